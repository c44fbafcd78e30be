/* Times a control message from one process of this machine to another, one way, as nodes see it: from rt_send() in one
 * loop to the event in the other, over the control connections of a run.
 */
#ifndef TANDEM_REAL_CALIBRATE_MESSAGE_PROFILER_H
#define TANDEM_REAL_CALIBRATE_MESSAGE_PROFILER_H

#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The median of half the round trips. False with a sentence; without one when interrupted. The caller has one
 * thread. */
bool message_profiler(const char *address, int64_t *message_ns, struct user_error *error);

#endif
