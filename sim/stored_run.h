/* A simulated run whose rows go to the results database, in one transaction: begun, streamed, committed, or as if it
 * had never been.
 */
#ifndef TANDEM_SIM_STORED_RUN_H
#define TANDEM_SIM_STORED_RUN_H

#include "run/results/results.h"
#include "sim/run.h"

#include <pthread.h>

struct stored_run {
    struct results *store;
    const struct scenario *scenario; /* its identity is the run's */
    const struct deployment_choice *choice;
    const struct load *load;                  /* NULL: the scenario's own */
    const struct trace_file *recorded;        /* of a trace load */
    const struct workload_arrivals *arrivals; /* of a run that is played again; NULL: the load's own */
    int64_t replay_of;                        /* that run; 0: none */
    uint64_t seed;
    enum results_kind kind;
    uint32_t record; /* enum results_record */
    const struct results_param *params;
    uint32_t param_count;
    pthread_mutex_t *lock; /* of the store, where several threads run: rows are then kept until the run is over. NULL:
                              rows stream to the store, and memory does not grow with the number of requests */
};

/* Runs and stores. *run is the stored run's id; *summary, where it is not NULL, is filled from the run itself. The
 * status is the simulation's; on RUN_REFUSED, and when storing fails or an interrupt is requested (RUN_STOPPED),
 * nothing is stored and `error` says why. */
enum run_status stored_run(const struct stored_run *what, int64_t *run, struct run_summary *summary,
                           struct user_error *error);

/* The trace that a scenario's load names, or NULL with error->set false when it names none. The caller frees. */
struct trace_file *scenario_trace(const struct scenario *scenario, struct user_error *error);

#endif
