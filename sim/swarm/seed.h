/* One seed: a drawn scenario, run under all checkers. */
#ifndef TANDEM_SIM_SWARM_SEED_H
#define TANDEM_SIM_SWARM_SEED_H

#include "sim/swarm/coverage.h"
#include "sim/swarm/fuzz_draw.h"
#include "sim/sim_run.h"

#include <stdbool.h>
#include <stdint.h>

/* Wall seconds after which a seed is taken for one that never ends; one takes milliseconds. */
#define SEED_SECONDS_MAX 60

struct seed_result {
    enum run_status status; /* RUN_COMPLETE: nothing is wrong */
    bool crashed;           /* a CHECK failed, or worse: status means nothing */
    uint64_t events;
    char text[4096]; /* what is wrong */
};

/* What a test breaks on purpose: called when the nodes of a run are made. NULL: nothing. */
struct seed_sabotage {
    void (*ready)(void *self, struct sim *sim, const struct run_nodes *nodes);
    void *self;
};

/* In this process: a CHECK ends it. `coverage` may be NULL. */
void seed_run(const struct drawn *drawn, struct coverage *coverage, const struct seed_sabotage *sabotage,
              struct seed_result *result);

/* In a process of its own: a CHECK, a signal and an endless loop are results like others. */
void seed_run_apart(const struct drawn *drawn, const struct seed_sabotage *sabotage, struct seed_result *result);

/* Whether two results are of one mistake: the same end with the same words, whatever the numbers in them. */
bool seed_same_failure(const struct seed_result *a, const struct seed_result *b);

static inline bool seed_failed(const struct seed_result *result)
{
    return result->crashed || result->status != RUN_COMPLETE;
}

#endif
