/* From a seed to a small scenario in which much goes wrong: swarm testing. Cluster, shardings, pools, policies, load
 * and faults are all the seed's, and so is which of them are drawn at all: a seed without aborts finds what aborts
 * hide.
 *
 * What is drawn is a scenario like any other. It can be written to a file (world/scenario/scenario_write.h) and run
 * from there. `tandem fuzz` runs it in simulation; tests/real/real_draw.h says what the same seed means to a real run,
 * and its faults are played there too.
 *
 * Every key of the language that a scheduler, a router or the messenger can tell is drawn. Those that are not, and why:
 *
 * - plan, vary, expect, targets: about many runs, or about what a run has done.
 * - load = trace: a list of requests like the listed load, once it is read; reading has fuzz targets of its own.
 * - draft.head = model { ... }: weights, pages and time of a mixed pool. The scheduler knows how many tokens.
 * - engine but receive and gather, redundant_experts, sharding.expert, the sizes of the model, gpu, rates
 *   and prices of the machine: times and bytes. Steps are drawn as tables of times, and memory as its pages.
 * - memory_utilization: the number of pages, which is drawn.
 *
 * And of what may go wrong:
 *
 * - A tick before its chunk is recorded: the logic sees no ticks. A write names the step it waits for, which may have
 *   passed the layer or have ended: that is for each runtime to get right (tests/contract).
 * - An arrival that comes twice: the world numbers requests densely (struct request_spec), and a request that a client
 *   sends again is another. tests/unit/test_front.c gives one twice.
 * - A kill of the front; a message that overtakes another, or is lost though no deadline covers it:
 * world/scenario/fault.h.
 */
#ifndef TANDEM_SIM_SWARM_FUZZ_DRAW_H
#define TANDEM_SIM_SWARM_FUZZ_DRAW_H

#include "world/scenario/fault.h"
#include "world/scenario/request_list.h"
#include "world/scenario/scenario.h"
#include "world/scenario/step_table.h"

#include <stdint.h>

/* A scenario and all that it points to. Not to be copied by assignment: drawn_copy(). */
struct drawn {
    struct scenario scenario;
    struct fault_list faults;
    struct request_list requests; /* of a listed load; other loads make theirs, and this one is empty */
    struct step_tables steps[SCENARIO_POOLS_MAX];
    uint32_t pages[SCENARIO_POOLS_MAX]; /* that memory was sized for */
};

/* *drawn need not be cleared. Its run's seed is `seed`. */
void fuzz_draw(uint64_t seed, struct drawn *drawn);

/* After a change of the model, of a pool's sharding or of what is drafted: steps for it, and memory for as many pages
 * as before. */
void fuzz_fit(struct drawn *drawn, uint32_t pool);

void drawn_copy(struct drawn *to, const struct drawn *from);

#endif
