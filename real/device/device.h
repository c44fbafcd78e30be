/* A device: what computes the steps of one rank. The host device (real/device/host) is a real decoder-only transformer
 * on the CPU; the CUDA device (real/device/cuda) is the same on a GPU. An executor process owns one device.
 *
 * Weights derive from a seed, so that every rank of every instance has its share of the same model without a file.
 * Tokens of prompts derive from the request's token seed (device_prompt_token), those that lie in prefix blocks from
 * the block (device_prompt_token_at): a device knows the seed alone and is given the others. Sampling is greedy; equal
 * logits go to the lowest id.
 *
 * On the host device every reduction has a fixed order, whatever the batch, the chunking, the paging and the sharding:
 * the tokens of a run are a function of (weights, prompt) alone, bit for bit.
 */
#ifndef TANDEM_REAL_DEVICE_DEVICE_H
#define TANDEM_REAL_DEVICE_DEVICE_H

#include "model/architecture.h"
#include "real/device/collective.h"
#include "real/memory/kv_memory.h"
#include "runtime.h"
#include "host/user_error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_config {
    const struct architecture *architecture;
    struct kv_memory memory;
    uint32_t rank;         /* within the instance */
    uint32_t device_first; /* ranks of other instances on this machine that come before this instance's: a rank's device
                              is number device_first + rank of the machine's, counted round where there are fewer */
    uint64_t weight_seed;
    uint32_t sequences_max; /* slots that step changes may name */
    uint32_t tokens_max;    /* new tokens of one step and group, those of decode sequences included */
    uint32_t request_tokens_max;
    void *kv; /* kv_memory_bytes(memory, rank), mapped by the executor; NULL: the device allocates (CUDA) */
    struct collective *collective; /* of the instance's ranks; NULL with one rank */
    const _Atomic bool *abandon;   /* true: nobody waits any more, as for the collective; NULL: never */
    /* Ticks once per layer of a step, after the layer's attention output is reduced over the group: the step's base
     * plus the layers of the model done, those of earlier pipeline stages included. Written by the lead rank of each
     * group (with several stages, of each stage's part of the group); read by the instance's fabric thread. Never goes
     * back. NULL: nobody asks. */
    _Atomic uint64_t *layer_counter;
};

/* One decode sequence's token of a step. */
struct device_token {
    uint32_t sequence;
    uint32_t request;
    uint32_t position; /* of the produced token in the request: prompt tokens come before it */
    uint32_t token;
};

struct device;

/* Memory that a device allocates itself and another process may map. */
enum device_share {
    DEVICE_SHARE_KV = 1,    /* for the instance's process: device_reach.h */
    DEVICE_SHARE_PEERS = 2, /* for the devices of the other ranks: join() */
};

struct device_reach;
struct device_reach_config;

struct device_ops {
    const char *name; /* "host", "cuda" */
    /* How many of them this machine has; 0 with one sentence in `error` when none. NULL: always there. */
    uint32_t (*count)(struct user_error *error);
    /* What make() would take of the machine's memory, beside that for KV. False with one sentence where the model
     * cannot be. NULL: the device has memory of its own. */
    bool (*bytes)(const struct device_config *config, uint64_t *weights, uint64_t *buffers, struct user_error *error);
    /* NULL with one sentence in `error` when the device is absent or the model cannot be. */
    struct device *(*make)(const struct device_config *config, struct user_error *error);
    void (*free)(struct device *device);
    /* Applies the changes of a launch, in order: those of all groups, on every rank. */
    void (*change)(struct device *device, const struct step_change *changes, uint32_t count);
    /* Tokens at positions [first, first + count) of a live sequence that its seed does not give: produced before, here
     * or on another instance, or those of prefix blocks. Given after the change that names the sequence and before the
     * step, to every rank; replaces what was given before. A decode sequence goes on from the token it has sampled
     * here, if it has; every other position is read from what was given, else from the prompt's seed. */
    void (*given)(struct device *device, uint32_t sequence, uint32_t first, const uint32_t *tokens, uint32_t count);
    /* Runs one step over the chunks that the last change() named and the sequences that have joined. Every rank of the
     * instance calls it for every step, in the same order, whether or not its group has work. `counter_base`: value of
     * the layer counter before the first layer. Tokens of decode sequences are written by the lead rank of each group
     * on the last stage, `tokens` has room for sequences_max; other ranks write none. Where `prefill_tokens`, so is the
     * token after each chunk: only the receiver knows whether the chunk ended its prompt, and drops it where it did
     * not. A sequence that joins right after its last chunk goes on from that token. False when the collective was
     * abandoned: then the device is of no more use. */
    bool (*step)(struct device *device, uint64_t counter_base, bool prefill_tokens, struct device_token *tokens,
                 uint32_t *token_count);
    /* The tail of a request, into a tail slot: after the last token of its last chunk, the hidden state before the
     * final norm (hidden floats) and the logits (vocab floats), in f32, cut or filled up with zeros to tail_bytes.
     * Written by the lead rank of the group on the last stage alone; other ranks do nothing. */
    void (*tail_store)(struct device *device, uint32_t sequence, uint32_t slot);
    /* A digest of one page plane, for --verify. */
    uint64_t (*page_digest)(struct device *device, uint32_t layer, uint32_t plane, uint32_t page);

    /* The rest is of devices with memory of their own; NULL for others, whose memory the instance makes. */

    /* A descriptor by which another process maps that memory; the caller closes it. -1 with a sentence; -1 with an
     * empty one where there is nothing to share. */
    int (*share)(struct device *device, enum device_share what, struct user_error *error);
    /* Once, after all ranks' devices have been made and before the first step: what each rank of the instance has
     * shared for peers, by rank; -1: nothing. The descriptors stay the caller's. */
    bool (*join)(struct device *device, const int *descriptors, struct user_error *error);
    /* In the instance's process: maps a rank's KV memory by the descriptor that the rank has shared. NULL with a
     * sentence. */
    struct device_reach *(*reach)(const struct device_reach_config *config, struct user_error *error);
};

extern const struct device_ops device_host;

/* A 64-bit digest of bytes, the same on every device; not against anyone who means harm. */
uint64_t device_digest(const void *bytes, size_t count);

/* The token at a position of a prompt that shares nothing. */
uint32_t device_prompt_token(uint64_t token_seed, uint32_t position, uint32_t vocab);

/* What the tokens of a prompt derive from. */
struct device_prompt {
    uint32_t tokens;
    uint64_t seed;
    uint32_t block_tokens; /* of a prefix block; 0: there are none */
    uint32_t block_count;
    const uint64_t *blocks; /* chained hashes, as in struct request_spec */
};

/* The token at a position of a prompt: of the prefix block that holds it, where one does, so that prompts which share
 * blocks share their tokens; else of the prompt's own seed. */
uint32_t device_prompt_token_at(const struct device_prompt *prompt, uint32_t position, uint32_t vocab);

/* A part of the model that no device computes; NULL: none. */
static inline const char *device_unsupported(const struct architecture *a)
{
    if (a->index_topk > 0)
        return "sparse attention";
    return a->experts > 0 && a->moe_interval > 1 ? "experts in some layers only" : NULL;
}

#endif
