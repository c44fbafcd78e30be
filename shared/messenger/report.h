/* What an instance tells the front. Every report carries the instance's load and, where the router looks at prefixes,
 * the blocks that were evicted since the last one: the front's view is as old as the last message, like that of any
 * real router.
 */
#ifndef TANDEM_MESSENGER_REPORT_H
#define TANDEM_MESSENGER_REPORT_H

#include "messenger/wire.h"
#include "serve/instance.h"

struct load_report instance_load(const struct instance *instance);

/* What became of one attempt at a request. */
struct report {
    enum message_kind kind;
    uint32_t request;
    uint32_t attempt;
    uint32_t reason;   /* as the kind says */
    uint32_t produced; /* tokens so far */
};

/* A report about the sequence as it is now, without a reason. Where the sequence ends, it is made before and sent after
 * that, so that the load is without it. */
struct report report_of(const struct sequence *sequence, enum message_kind kind);

void report_to_front(struct instance *instance, const struct report *report);

#endif
