/* What a seed of the swarm (sim/swarm/fuzz_draw.h) means to a real run: the same cluster, load, policies and faults, as
 * far as processes on a small machine can run them, and as far as they can be made to happen beside the node. What
 * differs:
 *
 * - Model: the drawn attention, layers, heads and tail, in sizes that leave something to compute. Nothing is drafted
 *   and no indexer has keys: real devices know neither.
 * - Pools: one of each role, mixed ones alone or not at all; at most two instances of two ranks.
 * - Times: a step takes a hundred times as long. What is told in time takes REAL_TIMES_LONGER as long, at most
 *   REAL_LATE_NS_MAX for what is late and REAL_LEAD_NS_MAX for what begins. Transfers have half a second to two and
 *   five attempts: on a machine that others use a turn may be long.
 * - Loads: conversations, which are not run for real, become clients that ask again; all is in the statistics.
 * - `kill`: one, for good, for nothing starts an instance again; its NICs end with it.
 * - `slow`: the count of the writes is late. `ticks`: the whole step is told late. `fail`: the bytes are there, and the
 *   sender is told that they are not.
 * - `cut`, `nic` and `shuffle` are left out: they are the fabric's and the clock's.
 * - A process knows its own records alone: what begins with the n-th begins with the n-th of the process it is about.
 *   `skip` and `count` are of what one process receives, or has sent; no fault is about more than REAL_COUNT_MAX.
 */
#ifndef TANDEM_TESTS_REAL_REAL_DRAW_H
#define TANDEM_TESTS_REAL_REAL_DRAW_H

#include "base/arith.h"
#include "sim/swarm/fuzz_draw.h"

#define REAL_TIMES_LONGER 10
#define REAL_LATE_NS_MAX (25 * NS_PER_MS)
#define REAL_LEAD_NS_MAX (500 * NS_PER_MS)
#define REAL_COUNT_MAX 16

/* The faults are in drawn->faults, and not the scenario's: real runs take none. */
void real_draw(uint64_t seed, struct drawn *drawn);

/* The node of an instance's name; UINT32_MAX: there is none. */
uint32_t real_draw_node(const struct drawn *drawn, const char *name);

uint32_t real_draw_instances(const struct drawn *drawn);

/* Whether a fault may keep a request from its answer. */
bool real_draw_loses(const struct drawn *drawn);

#endif
