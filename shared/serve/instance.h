/* A model replica: its sequences, the page pools and queues of its attention groups, and the launches in progress.
 *
 * All parts of an instance work on this struct: the decode batch (decode_batch.h), the prefill queue and chunks
 * (prefill_batch.h), and the two sides of the messenger, which build on both.
 */
#ifndef TANDEM_SERVE_INSTANCE_H
#define TANDEM_SERVE_INSTANCE_H

#include "base/index_map.h"
#include "base/rng.h"
#include "node.h"
#include "serve/page_pool.h"
#include "serve/sequence.h"
#include "serve/slot_heap.h"

struct group {
    struct page_pool pool;
    struct slot_heap waiting;       /* prefill: queued sequences by policy */
    struct sequence_list streaming; /* prefill: sequences with pages whose prompt is not complete, by admission */
    struct sequence_list ready;     /* decode: complete, waiting for a place in the batch */
    uint32_t live;                  /* decode: sequences holding pages */
    uint32_t decode_sequences;      /* of all microbatches */
    uint64_t queued_tokens;         /* prefill: prompt tokens not yet computed */
};

/* Tokens [start, start + tokens) of a prompt, computed by one launch. */
struct chunk {
    uint32_t slot;
    uint32_t start;
    uint32_t tokens;
};

/* What is launched as one step: sequences that decode together, and the chunks that ride along. An instance has one
 * for each pipeline stage, so that every stage may work on another (as vLLM's virtual engines and SGLang's microbatches
 * do): a decode sequence stays in its own, whose next step is launched when the one before has left the last stage.
 * Chunks go into whichever is free, and follow each other through the stages. */
struct microbatch {
    bool stepping; /* its launch is in progress */
    uint32_t ticket;
    uint64_t step_counter; /* steps completed: where its token clock stands */
    uint64_t decode_sequences;
    struct step_group *groups;   /* sums, by attention group */
    struct slot_heap *attention; /* by group: decode sequences by the step at which they finish or need pages */
    bool *changed;               /* by group: the composition differs from the last launch's */
    uint32_t *joined;            /* sequences whose first decode step this launch is */
    uint32_t joined_count;
    struct chunk *chunks;
    uint32_t chunk_count;
    uint32_t *aborting; /* decode sequences whose client has gone away during the launch */
    uint32_t aborting_count;
};

/* Where sequences wait for pages on a decoder that also computes prompts: in two lines, neither of which may take pages
 * while an older sequence of the other is short of them. */
enum { LINE_TRANSFER, LINE_PREFILL, LINE_COUNT };

struct instance {
    const struct node_config *config;
    struct runtime *rt;
    uint32_t incarnation; /* 0 unless it replaces an instance that was lost */
    struct sequence *sequences;
    uint32_t *pages;      /* page lists, pages_max a sequence */
    uint32_t *peer_pages; /* prefillers: the decoder's page lists */
    uint64_t *blocks;     /* prefix blocks, request_blocks_max a sequence */
    uint32_t pages_max;
    uint32_t peer_pages_max;
    uint32_t *unused; /* a stack of free slots */
    uint32_t unused_count;
    uint32_t next_age;
    struct index_map by_key;     /* decoder, mixed: request; prefiller: decoder << 32 | epoch */
    struct index_map by_request; /* prefiller: the newest slot of a request, which leads to its other ones */
    struct group *groups;
    struct eviction_list evictions; /* of all groups, since the last report; only where they are told */
    unsigned char *report_bytes;    /* room for a report that tells them */
    uint32_t *attention_positions;
    uint32_t *waiting_positions;

    struct microbatch *microbatches;
    uint32_t microbatch_count;
    struct microbatch *current;  /* that is being put together, or has just ended */
    uint32_t ticket;             /* of the newest launch */
    uint64_t step_counter;       /* steps completed, of all microbatches */
    uint64_t waiting_step;       /* when the first of the prompts that are held back was seen; UINT64_MAX: none is */
    uint64_t held_steps;         /* until they may come in; 0: none is held back */
    uint32_t yield;              /* tokens a decode sequence takes in a step, times 2^16 */
    struct step_change *changes; /* for the next launch */
    uint32_t change_count;

    uint64_t decode_sequences;
    uint32_t running;       /* sequences in prefill or decode */
    uint64_t queued_tokens; /* over all groups */
    uint32_t waiting_count;
    uint64_t pages_wanted;          /* by those that wait */
    uint32_t short_age[LINE_COUNT]; /* age of the first of a line that is short of pages; UINT32_MAX: none is */
    uint32_t newest_number;         /* of the front's requests */
    uint32_t transfers;
    uint32_t quarantined;
};

/* Lays the instance out in the arena (measuring or real). `peer_page_tokens` is the smallest page among the peers that
 * may ask for a transfer; 0: there are none. */
void instance_make(struct instance *instance, struct arena *arena, const struct node_config *config, struct runtime *rt,
                   uint32_t peer_page_tokens);

/* A cleared sequence, or SLOT_NONE when the table is full. */
uint32_t instance_take_slot(struct instance *instance);
void instance_free_slot(struct instance *instance, uint32_t slot);

static inline uint32_t *instance_pages(struct instance *instance, uint32_t slot)
{
    return &instance->pages[(size_t)slot * instance->pages_max];
}

static inline uint32_t *instance_peer_pages(struct instance *instance, uint32_t slot)
{
    return &instance->peer_pages[(size_t)slot * instance->peer_pages_max];
}

static inline uint64_t *instance_blocks(struct instance *instance, uint32_t slot)
{
    return &instance->blocks[(size_t)slot * instance->config->request_blocks_max];
}

/* The sequence waits for pages for `tokens` tokens, and does so no more. */
void instance_wait(struct instance *instance, uint32_t slot, uint32_t tokens);
void instance_wait_over(struct instance *instance, uint32_t slot);

/* A request with this number has come from the front. False: it has come before, since the front counts them and
 * messages of a pair arrive in order. */
bool instance_received(struct instance *instance, uint32_t number);

/* Blocks of the sequence's prompt that lie wholly within `tokens`, if this instance keeps a prefix index for them. */
uint32_t instance_whole_blocks(const struct instance *instance, const struct sequence *sequence, uint32_t tokens);

/* Takes pages for `tokens` tokens: cached blocks first (within `cached_limit` tokens), fresh pages for the rest, or
 * nothing at all. Sets page_count and local. */
bool instance_take_pages(struct instance *instance, uint32_t slot, uint32_t tokens, uint32_t cached_limit);

/* Grows the sequence's list to `tokens` tokens; false when the pool is short. */
bool instance_grow_pages(struct instance *instance, uint32_t slot, uint32_t tokens);

/* Publishes the blocks among the first `tokens` tokens in the prefix index. */
void instance_publish(struct instance *instance, uint32_t slot, uint32_t tokens);

/* What the front has to be told: blocks that were evicted and that no group holds again, in instance->evictions.hashes.
 * Returns how many; the list starts anew. */
uint32_t instance_evicted(struct instance *instance);

/* Gives all pages back, and tells the device that the sequence is gone. Must not be in a launch. */
void instance_release_pages(struct instance *instance, uint32_t slot);

/* The group with the most available pages; ties go to the lowest. */
uint32_t instance_roomiest_group(const struct instance *instance);

/* The request is over on this instance (decoder, mixed): gives back pages and slot, and forgets its id. */
void instance_end(struct instance *instance, uint32_t slot);

static inline struct microbatch *instance_microbatch(const struct instance *instance, uint32_t slot)
{
    return &instance->microbatches[instance->sequences[slot].microbatch];
}

/* Whether a launch in progress works on the sequence. */
static inline bool instance_steps(const struct instance *instance, uint32_t slot)
{
    const struct sequence *s = &instance->sequences[slot];
    return s->state == SEQUENCE_DECODE ? instance_microbatch(instance, slot)->stepping : s->in_step > 0;
}

/* Marks a sequence that a launch works on to be taken out when that launch, or the last that does, ends. */
void instance_abort_after_step(struct instance *instance, uint32_t slot);

void instance_change(struct instance *instance, const struct step_change *change);

#endif
