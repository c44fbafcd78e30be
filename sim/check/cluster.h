/* What each node of a cluster had at an instant, from the trace records up to it: how many requests waited for pages,
 * were on their way, were being decoded. It is what somebody who looks at a decision asks for first.
 */
#ifndef TANDEM_SIM_CHECK_CLUSTER_H
#define TANDEM_SIM_CHECK_CLUSTER_H

#include "run/compare/divergence.h"

struct cluster;

struct cluster *cluster_make(void);
void cluster_free(struct cluster *cluster);

/* Records in the order of the trace. */
void cluster_trace(struct cluster *cluster, const struct trace_record *record);

/* Fills the divergence's nodes: by number, the front left out, and of a large cluster those with most requests.
 * `names` has `count` entries, by node. */
void cluster_describe(const struct cluster *cluster, const char (*names)[48], uint32_t count,
                      struct divergence *divergence);

#endif
