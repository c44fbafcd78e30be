/* What a failed CHECK reports, beyond its own line: the seed that leads there again and what the nodes last decided.
 *
 * Whoever runs nodes (a simulation, the loop of the real runtime, a test) owns a context, names it for its thread and
 * appends every trace record. Contexts are per thread, so that simulations on several threads do not mix. Without one
 * the report has the condition alone.
 */
#ifndef TANDEM_HOST_CHECK_HOST_H
#define TANDEM_HOST_CHECK_HOST_H

#include "base/trace.h"

#include <stdint.h>

#define CHECK_RING 64 /* enough to see one request through a hand-off; a power of two */

struct check_context {
    uint64_t seed;
    struct {
        int64_t time_ns;
        struct trace_record record;
    } ring[CHECK_RING];
    uint32_t next;    /* records appended so far, modulo 2^32; the place of the next one modulo CHECK_RING */
    const char *hint; /* the command that runs this again, or NULL; outlives the context */
};

/* Names the context of the calling thread, which must outlive its use; NULL takes it away. */
void check_context_set(struct check_context *context);

static inline void check_context_append(struct check_context *context, int64_t time_ns,
                                        const struct trace_record *record)
{
    uint32_t place = context->next++ % CHECK_RING;
    context->ring[place].time_ns = time_ns;
    context->ring[place].record = *record;
}

#endif
