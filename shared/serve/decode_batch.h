/* The decode batch of an instance: who is in it, and what the next step costs.
 *
 * A steady step is O(1) in the batch. Every sequence in the batch takes one token a step, or as many as the token clock
 * says (token_clock.h), so the sums that a step's cost depends on change by that many times the batch size, and a
 * sequence needs attention only at a step known in advance: when it produces its last token, or when the pages it holds
 * are full. A heap per group keeps those steps; nothing walks the batch.
 */
#ifndef TANDEM_SERVE_DECODE_BATCH_H
#define TANDEM_SERVE_DECODE_BATCH_H

#include "serve/instance.h"

/* Tokens that a sequence about to decode should hold pages for: what it has and its headroom, at most all it can
 * use. */
uint32_t decode_reserve_tokens(const struct instance *instance, const struct sequence *sequence, uint32_t cached);

/* Moves ready sequences into the current microbatch, in order of readiness, up to batch_max a group in all of them and
 * to its share of them. They are in `joined`. */
void decode_join_ready(struct instance *instance);

/* Takes the sequence out of the batch; its pages stay with it. Not while its microbatch is launched. */
void decode_leave(struct instance *instance, uint32_t slot);

/* Steps until some sequence of the current microbatch needs attention; UINT64_MAX for an empty batch. */
uint64_t decode_steps_to_attention(const struct instance *instance);

/* `steps` steps have been done by everybody in the current microbatch. */
void decode_advance(struct instance *instance, uint32_t steps);

/* What has to be done after a step of the current microbatch, one sequence at a time. */
enum decode_due {
    DECODE_NOTHING = 0,
    DECODE_FINISHED = 1, /* *slot has produced its last token and has left the batch; it still holds its pages */
    /* *slot, the youngest of its group's complete sequences, has left the batch (or the line for it) and must give up
     * its pages so that an older one can go on. */
    DECODE_PREEMPTED = 2,
};
enum decode_due decode_next_due(struct instance *instance, uint32_t *slot);

/* Tokens produced by a sequence so far, and tokens in its cache. */
uint32_t decode_produced(const struct instance *instance, const struct sequence *sequence);
uint32_t decode_context(const struct instance *instance, const struct sequence *sequence);

#endif
