/* A stored run as a timeline, in the JSON trace event format that ui.perfetto.dev and chrome://tracing read.
 *
 * A process is a node, named as in reports. The spans of every request stand on the node that they were spent at, as
 * asynchronous events with the request's number; steps and transfers are there where the run recorded them. Times are
 * microseconds with three decimals, that is nanoseconds.
 */
#ifndef TANDEM_RUN_TIMELINE_H
#define TANDEM_RUN_TIMELINE_H

#include "run/results/results.h"

#include <stdio.h>

/* Streams: memory does not grow with the run. False with an error. */
bool timeline_write(struct results *store, int64_t run, FILE *file, struct user_error *error);

#endif
