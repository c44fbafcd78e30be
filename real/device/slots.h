/* The sequences of a device in their slots, as the changes of launches make them: what the coming step computes, and
 * what is known of each sequence's tokens and pages. The same for every device; how rows lie in a step is its own.
 */
#ifndef TANDEM_REAL_DEVICE_SLOTS_H
#define TANDEM_REAL_DEVICE_SLOTS_H

#include "runtime.h"

#include <stdbool.h>
#include <stdint.h>

struct slot {
    bool live;
    bool decoding;
    bool pages_changed; /* since the device last looked, where it does */
    uint16_t group;
    uint16_t microbatch; /* in which it decodes */
    uint32_t request;
    uint64_t token_seed;
    uint32_t context;      /* tokens in the cache after the last step */
    uint32_t decode_index; /* in the list of decoding sequences */

    uint32_t *pages; /* of the device's own group alone */
    uint32_t page_count;
    uint32_t page_room;

    /* The token that follows the context, where a step here has produced it. */
    bool sampled;
    uint32_t sampled_token;
    uint32_t sampled_position;

    /* Tokens that were produced elsewhere, at positions [given_first, given_first + given_count). */
    uint32_t *given;
    uint32_t given_first;
    uint32_t given_count;
    uint32_t given_room;
};

struct slot_chunk {
    uint32_t sequence;
    uint32_t start;
    uint32_t tokens;
};

struct slots_config {
    uint32_t sequences_max;
    uint32_t pages; /* of the device's memory */
    uint32_t vocab;
    uint16_t groups;
    uint16_t group;   /* the device's own */
    bool every_group; /* sequences of the others are followed, too, but for their pages */
};

struct slots {
    struct slots_config config;
    struct slot *slot;  /* [sequences_max] */
    uint32_t *decoding; /* slots of all microbatches, the last one fills the place of one that leaves */
    uint32_t decoding_count;
    uint16_t microbatch;       /* of the launch at hand: its sequences decode in the coming step */
    struct slot_chunk *chunks; /* of the coming step */
    uint32_t chunk_count;
    bool decoding_changed; /* the list, since the device last looked */
    bool pages_changed;    /* of any slot, likewise */
};

/* False when there is no memory; free in either case. */
bool slots_make(struct slots *slots, const struct slots_config *config);
void slots_free(struct slots *slots);

/* The changes of a launch, of that microbatch. */
void slots_change(struct slots *slots, uint32_t microbatch, const struct step_change *changes, uint32_t count);

/* Tokens of a live sequence that no step here produced; of one that is not followed here, nothing happens. */
void slots_given(struct slots *slots, uint32_t sequence, uint32_t first, const uint32_t *tokens, uint32_t count);

/* What stands at a position: produced here, given, or of the prompt. */
uint32_t slots_token(const struct slots *slots, const struct slot *slot, uint32_t position);

void slot_sampled(struct slot *slot, uint32_t token, uint32_t position);

/* The step is over: contexts move on and chunks are done. */
void slots_stepped(struct slots *slots);

#endif
