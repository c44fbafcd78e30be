/* From a seed to a small scenario in which much goes wrong: swarm testing. Cluster, shardings, pools, policies, load
 * and faults are all the seed's, and so is which of them are drawn at all: a seed without aborts finds what aborts
 * hide.
 *
 * What is drawn is a scenario like any other. It can be written to a file (host/scenario_write.h) and run from there.
 */
#ifndef TANDEM_SIM_FUZZ_DRAW_H
#define TANDEM_SIM_FUZZ_DRAW_H

#include "host/fault.h"
#include "host/request_list.h"
#include "host/scenario.h"
#include "host/step_table.h"

#include <stdint.h>

/* A scenario and all that it points to. Not to be copied by assignment: drawn_copy(). */
struct drawn {
    struct scenario scenario;
    struct fault_list faults;
    struct request_list requests;
    struct step_tables steps[SCENARIO_POOLS_MAX];
    uint32_t pages[SCENARIO_POOLS_MAX]; /* that memory was sized for */
};

/* *drawn need not be cleared. Its run's seed is `seed`. */
void fuzz_draw(uint64_t seed, struct drawn *drawn);

/* After a change of the model or of a pool's sharding: steps for it, and memory for as many pages as before. */
void fuzz_fit(struct drawn *drawn, uint32_t pool);

void drawn_copy(struct drawn *to, const struct drawn *from);

#endif
