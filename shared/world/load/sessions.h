/* Conversations: clients whose turns follow each other, each with all that was said before as its prompt.
 *
 * Conversations begin as a Poisson process, or, where the load says how many there are at a time, when another has had
 * its last answer. Each has a number of turns. A turn's prompt is the system prompt, which all
 * conversations share, the prompts and answers of the turns before, and what the user says now; the next turn comes a
 * time to think after the answer, an exponential variate. Prefix blocks are named by what is in them: those of the
 * system prompt are the same in every conversation, those of a conversation the same in all its turns; a block that is
 * not yet full is another one when it is.
 *
 * What a turn says is drawn from (seed, conversation, turn) and does not depend on when anything was answered; which
 * turn a request id stands for does. A run that is played again is therefore told of each request whose turn it was.
 */
#ifndef TANDEM_WORLD_LOAD_SESSIONS_H
#define TANDEM_WORLD_LOAD_SESSIONS_H

#include "base/rng.h"
#include "world/scenario/scenario.h"
#include "runtime.h"

#include <stdbool.h>
#include <stdint.h>

struct sessions;

/* `load` is one of conversations and must outlive them. */
struct sessions *sessions_make(const struct load *load, uint64_t seed);
void sessions_free(struct sessions *sessions); /* NULL is allowed */

/* When the next turn comes, of a new conversation or of one whose user has thought; TIME_NEVER while all of so many at
 * a time wait for answers. */
int64_t sessions_next_ns(const struct sessions *sessions);

/* That turn, as request `id`: lengths and blocks of the spec, which live until the next call. */
void sessions_take(struct sessions *sessions, uint32_t id, struct request_spec *spec);

/* A request has ended, answered or not: its conversation goes on, if it has a turn left. */
void sessions_answered(struct sessions *sessions, uint32_t id, int64_t now_ns);

/* The conversation of a request that has not ended, counted from 0. */
uint32_t sessions_number(const struct sessions *sessions, uint32_t id);

/* The next turn of the conversation with that number, whoever has been answered by then, as sessions_take() gives it;
 * the two do not mix. False: that conversation has no such turn, or an earlier one has not begun. */
bool sessions_take_again(struct sessions *sessions, uint32_t number, struct request_spec *spec);

/* The mean prompt, in thousandths. */
uint64_t sessions_prompt_mean_milli(const struct load *load, uint64_t prompt_milli, uint64_t output_milli,
                                    uint64_t turns_milli);

/* Draws from a distribution (workload.c). */
uint32_t length_draw(const struct length_distribution *lengths, struct rng *rng);
uint64_t length_mean_milli(const struct length_distribution *lengths);

#endif
