/* The prefill side of an instance: the queue of prompts, and the chunks of the next step.
 *
 * A step holds at most token_budget tokens a group, decode tokens included. Prompts under way go on first, in the
 * order of their admission; then the queue's first by policy is admitted if the pool has pages for the whole of it.
 * Nobody overtakes the first of the queue: a long prompt waits for pages, it does not starve. A mixed instance admits
 * no more prompts than leave room for all of its sequences in a batch, and may hold new ones back for some steps, as
 * its policy says.
 */
#ifndef TANDEM_SERVE_PREFILL_BATCH_H
#define TANDEM_SERVE_PREFILL_BATCH_H

#include "serve/instance.h"

/* Writes that one sequence may post between a launch and the next: what was found cached and the chunk behind its gate,
 * and, when the step has ended the prompt, the tail. */
#define PREFILL_PAGE_WRITES 2
#define PREFILL_TAIL_WRITES 1
#define PREFILL_WINDOW_WRITES 1 /* one write of a prompt crosses the window and becomes two */

static inline uint32_t prefill_writes_max(const struct node_config *config)
{
    uint32_t writes = PREFILL_PAGE_WRITES;
    if (config->geometry.window > 0)
        writes += PREFILL_WINDOW_WRITES;
    if (config->tail_writes > 0)
        writes += PREFILL_TAIL_WRITES;
    return writes;
}

/* Queues the sequence (state QUEUED) on the group with the fewest queued tokens. wanted and deadline are set. */
void prefill_enqueue(struct instance *instance, uint32_t slot);

/* Tokens of a prompt of `tokens` tokens that would be found cached if it were queued now. */
uint32_t prefill_cached(const struct instance *instance, const uint64_t *blocks, uint32_t block_count,
                        uint32_t block_tokens, uint32_t tokens);

/* Takes a queued sequence out again. */
void prefill_dequeue(struct instance *instance, uint32_t slot);

/* A sequence that has just been given pages but whose prompt turned out to be cached entirely. */
typedef void prefill_admitted(void *context, uint32_t slot);

/* Chooses the chunks of the current microbatch: fills its chunks, its prefill sums and the changes. `admitted` is
 * called for every sequence that got its pages (state STREAMING, computed = tokens found cached), before its first
 * chunk; it may find that there is nothing to compute. `write_budget`: writes that may still be posted; each
 * sequence with a chunk or admitted takes up to prefill_writes_max(). */
void prefill_schedule(struct instance *instance, uint32_t write_budget, prefill_admitted *admitted, void *context);

/* The chunk of a sequence is done, after those before it: moves its progress and takes it off the streaming list when
 * its prompt is complete (returns true then). */
bool prefill_chunk_done(struct instance *instance, const struct chunk *chunk);

/* Takes a streaming sequence off its list before it is complete. Not while it is in a launch. */
void prefill_abandon(struct instance *instance, uint32_t slot);

#endif
