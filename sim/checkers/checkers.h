/* Invariants that are looked at while a simulation runs: after every event, or every so many, and at its end.
 *
 * A failed one is no CHECK: it stops the simulation and says which node, when and what, so that a fuzzer can go on with
 * the next seed and a script can tell a broken invariant (exit status 129) from a crash.
 */
#ifndef TANDEM_SIM_CHECKERS_CHECKERS_H
#define TANDEM_SIM_CHECKERS_CHECKERS_H

#include "node.h"
#include "sim/engine/sim.h"

#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define CHECKERS_FORMAT(text, first) __attribute__((format(printf, text, first)))
#else
#define CHECKERS_FORMAT(text, first)
#endif

struct checkers;

/* Listens to `sim`, which must outlive it. Looks at a node after every `every`-th event given to it; at least 1. */
struct checkers *checkers_make(struct sim *sim, uint32_t node_count, uint32_t every);
void checkers_free(struct checkers *checkers);

/* The state of node `index`, from now on (again after a restart); NULL while there is none. */
void checkers_watch(struct checkers *checkers, uint32_t index, const struct node *node);

/* After all inputs have ended and nothing is pending: no node may hold anything for a request. */
void checkers_drained(struct checkers *checkers);

/* Something does not hold on a node: the first sentence is kept, and the simulation stops. For whoever else watches. */
void checkers_fail(struct checkers *checkers, uint32_t node, const char *format, ...) CHECKERS_FORMAT(3, 4);

/* NULL while everything holds, else a sentence about the first thing that did not. */
const char *checkers_failure(const struct checkers *checkers);

#endif
