/* Trace records of all nodes, put back in the order of their times.
 *
 * Records arrive by node, each node's in order of time and with a promise: nothing earlier than this will come. A
 * record is passed on when no node can send an earlier one; equal times go by node. A node that is gone promises
 * everything.
 */
#ifndef TANDEM_REAL_CLUSTER_TRACE_MERGE_H
#define TANDEM_REAL_CLUSTER_TRACE_MERGE_H

#include "real/control/frame.h"

struct trace_merge;

struct trace_merge *trace_merge_make(uint32_t nodes, void (*next)(void *self, const struct timed_record *record),
                                     void *self);
void trace_merge_free(struct trace_merge *merge);

/* A record that is earlier than its node promised, or than its last one, is moved up to that time. */
void trace_merge_add(struct trace_merge *merge, uint32_t node, const struct timed_record *record);

/* The node will send nothing earlier than `time_ns`; INT64_MAX: nothing at all. */
void trace_merge_promise(struct trace_merge *merge, uint32_t node, int64_t time_ns);

/* A node that was gone is there again, and will send nothing earlier than `time_ns`. */
void trace_merge_again(struct trace_merge *merge, uint32_t node, int64_t time_ns);

/* Passes on what can be. */
void trace_merge_release(struct trace_merge *merge);

#endif
