/* What an instance tells the front. Every report carries the instance's load, so the front's view is as old as the last
 * message, like that of any real router.
 */
#ifndef TANDEM_MESSENGER_REPORT_H
#define TANDEM_MESSENGER_REPORT_H

#include "messenger/wire.h"
#include "serve/instance.h"

struct load_report instance_load(const struct instance *instance);

/* Sends `kind` about a request to the front. `reason` as the kind says; `produced`: tokens so far. */
void report_to_front(struct instance *instance, enum message_kind kind, uint32_t request, uint32_t reason,
                     uint32_t produced);

#endif
