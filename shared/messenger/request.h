/* A request from the front at an instance that may serve it: what decoders and mixed instances have in common. */
#ifndef TANDEM_MESSENGER_REQUEST_H
#define TANDEM_MESSENGER_REQUEST_H

#include "messenger/wire.h"
#include "serve/instance.h"

/* Why this instance cannot serve it whoever computes its prompt, or REJECT_NONE. */
enum reject_reason request_check(const struct instance *instance, const struct message *message);

/* A sequence of the request, found by its id from now on, whose state and wanted tokens the caller sets; or SLOT_NONE,
 * and the front is told that it is turned away: for the reason, or because the table is full. */
uint32_t request_take(struct instance *instance, const struct message *message, enum reject_reason reason);

void request_reject(struct instance *instance, uint32_t request, uint32_t attempt, enum reject_reason reason);

#endif
