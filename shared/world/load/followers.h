/* The rows of a trace in which some wait for the ends of others, in the order in which they become due.
 *
 * A row that waits for none is due at its own time. One that waits is due a delay after the last of those it waits for
 * has ended, however it ended, and not before its own time. Rows due at one instant come in the order of the trace.
 */
#ifndef TANDEM_WORLD_LOAD_FOLLOWERS_H
#define TANDEM_WORLD_LOAD_FOLLOWERS_H

#include "world/load/trace_reader.h"

struct followers;

/* Times of the trace are stretched by stretched_ns / recorded_ns, delays are not. The trace must outlive it. */
struct followers *followers_make(const struct trace_file *trace, int64_t recorded_ns, int64_t stretched_ns);
void followers_free(struct followers *followers); /* NULL is allowed */

/* When the next row is due; TIME_NEVER while all that are left wait. */
int64_t followers_next_ns(const struct followers *followers);

/* That row, as request `id`: ids are given in order, from 0. */
uint32_t followers_take(struct followers *followers, uint32_t id);

/* The row that a request was. */
uint32_t followers_row(const struct followers *followers, uint32_t id);

/* The request has ended. */
void followers_ended(struct followers *followers, uint32_t id, int64_t now_ns);

#endif
