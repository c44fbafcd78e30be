/* From a seed to a small scenario in which much goes wrong: swarm testing. Cluster, shardings, pools, policies, load
 * and faults are all the seed's, and so is which of them are drawn at all: a seed without aborts finds what aborts
 * hide.
 *
 * What is drawn is a scenario like any other. It can be written to a file (host/scenario_write.h) and run from there.
 * `tandem fuzz` runs it in simulation; tests/real/real_draw.h says what the same seed means to a real run, and its faults
 * are played there too.
 *
 * Every key of the language that a scheduler, a router or the messenger can tell is drawn. Those that are not, and why:
 *
 *   plan, vary, expect, targets     are about many runs, or read what a run has done
 *   load = trace                    is a list of requests like the listed load once it is read; reading has fuzz
 * targets of its own (tests/fuzz/fuzz_trace.c) draft.head = model { ... }      is weights, pages and time of a mixed
 * pool; the scheduler knows how many tokens pool.engine but receive, gather, pool.redundant_experts, sharding.expert,
 * model.window, the model's and the weights' sizes, machine.gpu and its rates, price are times and bytes: steps are
 * drawn as tables of times, and memory as its pages memory_utilization              is the number of pages, which is
 * drawn
 */
#ifndef TANDEM_HOST_FUZZ_DRAW_H
#define TANDEM_HOST_FUZZ_DRAW_H

#include "host/fault.h"
#include "host/request_list.h"
#include "host/scenario.h"
#include "host/step_table.h"

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
