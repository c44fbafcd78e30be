/* Which events met a request in which state: decoders, prefillers, mixed instances and the front, each with its table.
 * A pair that no seed reaches is either one that cannot be, and then the table says why, or one that nobody tests.
 */
#ifndef TANDEM_SIM_SWARM_COVERAGE_H
#define TANDEM_SIM_SWARM_COVERAGE_H

#include "sim/sim_run.h"
#include "sim/engine/sim.h"

#include <stdbool.h>
#include <stdint.h>

#define COVERAGE_TABLES 4
#define COVERAGE_STATES_MAX 10
#define COVERAGE_EVENTS_MAX 16

struct coverage {
    uint64_t count[COVERAGE_TABLES][COVERAGE_STATES_MAX][COVERAGE_EVENTS_MAX];
};

/* Counts what happens in a run from here on. To be freed when the run is over. */
struct coverage_watch;
struct coverage_watch *coverage_listen(struct coverage *coverage, struct sim *sim, const struct run_nodes *nodes);
void coverage_watch_free(struct coverage_watch *watch);

/* One pair of a state and an event, in words; NULL behind the last event, state or table. */
const char *coverage_table_name(uint32_t table);
const char *coverage_state_name(uint32_t table, uint32_t state);
const char *coverage_event_name(uint32_t table, uint32_t event);

/* Why the pair cannot be; NULL: it can. A pair that is explained and happens all the same is a mistake somewhere. */
const char *coverage_explanation(uint32_t table, uint32_t state, uint32_t event);

void coverage_add(struct coverage *to, const struct coverage *from);

#endif
