/* A mixed instance: prefill and decode in the same steps, nothing is transferred. The colocated serving that
 * disaggregation is compared with, and what a decoder does with prompts that it computes itself: decode tokens first,
 * then chunks of prompts up to the token budget; the step that ends a prompt yields the first token.
 */
#ifndef TANDEM_ROLES_MIXED_H
#define TANDEM_ROLES_MIXED_H

#include "messenger/wire.h"
#include "serve/instance.h"

void mixed_request(struct instance *instance, const struct message *message);
void mixed_abort(struct instance *instance, uint32_t request);

/* The same while the prompt is not complete; false when there is no such sequence. */
bool mixed_abort_prompt(struct instance *instance, uint32_t request);

/* The scheduler has given the sequence its pages. */
void mixed_admitted(struct instance *instance, uint32_t slot);

/* The current microbatch has been launched, and is done. */
void mixed_launched(struct instance *instance);
void mixed_step_done(struct instance *instance);

/* A preempted sequence (out of the batch, holding pages) gives them up and computes its KV again. */
void mixed_preempted(struct instance *instance, uint32_t slot);

#endif
