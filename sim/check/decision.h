/* Where two traces part, told in words with what led to it: of whole traces, or of the pieces that somebody
 * kept. */
#ifndef TANDEM_SIM_CHECK_DECISION_H
#define TANDEM_SIM_CHECK_DECISION_H

#include "run/compare/divergence.h"
#include "run/trace_log.h"
#include "sim/check/cluster.h"

/* One side: records from number `first` of its trace on. Names are by node, the front first. */
struct trace_side {
    const struct stamped_record *items;
    uint64_t count;
    const char (*names)[48];
    uint32_t name_count;
};

/* Fills *divergence with the first record in which the sides differ; one that ends where the other goes on differs
 * there. Both pieces begin at record `first`, and hold that place or reach to the end of a trace; `cluster` has seen
 * all records before, and sees those of `a` up to the difference. */
void decision_first(const struct trace_side *a, const struct trace_side *b, uint64_t first, struct cluster *cluster,
                    struct divergence *divergence);

/* Of two whole traces, times aside: the first record, by its time in `a`, in which a node decided otherwise. Compared
 * are, node by node and in their order, where requests were sent, batches, chunks, preemptions, evictions and refusals.
 * Other times usually lead to another decision somewhere, and this is the first of those. */
void decision_first_timeless(const struct trace_side *a, const struct trace_side *b, struct divergence *divergence);

#endif
