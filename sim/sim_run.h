/* The simulator as a backend of runs (run/backend.h): virtual time, under the checkers that it has for any scenario. */
#ifndef TANDEM_SIM_SIM_RUN_H
#define TANDEM_SIM_SIM_RUN_H

#include "node.h"
#include "run/backend.h"
#include "sim/cost/device_model.h"
#include "sim/engine/sim.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const struct run_backend sim_backend; /* its options are struct sim_options */

/* Device models of a choice, one per pool, made once and shared by runs and threads. */
struct run_models {
    uint32_t pool_count;
    struct device_model *pool[SCENARIO_POOLS_MAX]; /* NULL where the pool has no instances */
};

/* False with a sentence in `error` when an instance cannot be. */
bool run_models_make(const struct scenario *scenario, const struct deployment_choice *choice, struct run_models *models,
                     struct user_error *error);
void run_models_free(struct run_models *models);

/* The nodes of a run, for listeners: by id; of one that is replaced the pointer changes. */
struct run_nodes {
    uint32_t count;
    const struct node_config *configs;
    struct node *const *nodes;
};

/* None of it is needed: NULL is all zero. */
struct sim_options {
    const struct run_models *models; /* NULL: made for this run alone */
    const struct device *devices;    /* by pool, in place of models; NULL: the models */
    uint64_t shuffle_seed;           /* perturbs the order of equal times, unless the scenario's faults do; 0: none */
    bool plain;                      /* one step a launch, an event per layer: the slow form that must agree */
    uint32_t check_every; /* invariants after every so many events of a node; 0: none but at the end. Where the scenario
                             has faults, be it none of them, everything is checked all along (oracle.h, shadow.h) */
    const struct sim_faults *hooks; /* what happens to messages and writes, in place of what the scenario says; NULL:
                                       that */
    /* Where time is another's: called before it goes on, with the time of what happens next (TIME_NEVER: nothing), it
     * waits and says how far to go. The run's source is asked there. False: there will be nothing more. NULL: virtual
     * time, as fast as it can be computed. */
    bool (*pace)(void *self, int64_t next_ns, int64_t *until_ns);
    /* Called when the nodes are made, before anything happens: for whoever wants to listen. NULL: nobody. */
    void (*ready)(void *self, struct sim *sim, const struct run_nodes *nodes);
    void *self;
};

#endif
