/* One simulated run: a scenario, a choice of counts and shardings, a seed, from the first arrival until everything has
 * drained. Nothing is printed or stored here; rows stream to the caller and the rest is in the result. Runs share
 * nothing that is written, so any number may go on at once, one a thread.
 */
#ifndef TANDEM_SIM_RUN_H
#define TANDEM_SIM_RUN_H

#include "world/deployment.h"
#include "run/run_record.h"
#include "world/scenario/scenario.h"
#include "world/load/trace_reader.h"
#include "world/load/workload.h"
#include "node.h"
#include "sim/cost/device_model.h"
#include "sim/engine/sim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Device models of a choice, one per pool, made once and shared by runs and threads. */
struct run_models {
    uint32_t pool_count;
    struct device_model *pool[SCENARIO_POOLS_MAX]; /* NULL where the pool has no instances */
};

/* False with a sentence in `error` when an instance cannot be. */
bool run_models_make(const struct scenario *scenario, const struct deployment_choice *choice, struct run_models *models,
                     char *error, size_t error_size);
void run_models_free(struct run_models *models);

/* The nodes of a run, for listeners: by id; of one that is replaced the pointer changes. */
struct run_nodes {
    uint32_t count;
    const struct node_config *configs;
    struct node *const *nodes;
};

struct run_options {
    const struct load *load;                  /* in place of the scenario's; NULL: the scenario's own */
    const struct trace_file *recorded;        /* of a trace load, else NULL; must outlive the run */
    const struct workload_arrivals *arrivals; /* of a run that is played again; NULL: the load draws them */
    const struct run_models *models;          /* NULL: made for this run alone */
    const struct device *devices;             /* by pool, in place of models; NULL: the models */
    uint64_t shuffle_seed; /* perturbs the order of equal times, unless the scenario's faults do; 0: none */
    bool plain;            /* one step a launch, an event per layer: the slow form that must agree */
    uint32_t check_every; /* invariants after every so many events of a node; 0: none but at the end. Where the scenario
                             has faults, be it none of them, everything is checked all along (oracle.h, shadow.h) */
    const struct sim_faults *hooks; /* what happens to messages and writes, in place of what the scenario says; NULL:
                                       that */

    void *self;
    /* Called when the nodes are made, before anything happens: for whoever wants to listen. NULL: nobody. */
    void (*ready)(void *self, struct sim *sim, const struct run_nodes *nodes);
    /* Any may be NULL. A row is called at the end of each request; false ends the run at once (RUN_STOPPED). */
    bool (*row)(void *self, const struct request_row *row, bool met_all_targets);
    void (*trace)(void *self, int64_t now_ns, const struct trace_record *record);
    void (*steps)(void *self, const struct step_row *row);
    void (*transfer)(void *self, const struct transfer_row *row);
};

enum run_status {
    RUN_COMPLETE = 1,    /* every request has ended and everything is back */
    RUN_STOPPED = 2,     /* by the row callback; summaries are of what was seen */
    RUN_NO_PROGRESS = 3, /* requests are unfinished and nothing would ever happen: exit status 128 */
    RUN_INVARIANT = 4,   /* a checker failed: exit status 129 */
    RUN_REFUSED = 5,     /* the scenario cannot be run so: exit status 2 */
};

struct run_result {
    enum run_status status;
    char text[4096]; /* of the last three */
    struct run_summary summary;
    uint32_t instance_count; /* without the front */
    struct instance_summary *instances;
    uint64_t *itl; /* ITL_BUCKETS counts, after the warm-up */
    uint32_t machines;
    uint32_t gpus;
    uint64_t usd_micros_per_hour;
    uint64_t queue_events; /* taken from the queue; the summary counts those given to nodes */
    uint64_t steps;
};

/* Fills *result, which the caller gives back with run_result_free(), whatever the status. */
void sim_run(const struct scenario *scenario, const struct deployment_choice *choice, uint64_t seed,
             const struct run_options *options, struct run_result *result);

void run_result_free(struct run_result *result);

#endif
