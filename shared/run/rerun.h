/* A stored run as it can be had again: its scenario with all that was set, its seed, and the arrivals that it took from
 * another run, if it did.
 */
#ifndef TANDEM_RUN_RERUN_H
#define TANDEM_RUN_RERUN_H

#include "run/results/results.h"
#include "run/run.h"

struct rerun {
    struct run_report report;
    struct results_origin origin;
    struct scenario *scenario;
    struct trace_file *recorded;
    struct results_requests requests; /* of the run that it repeats, if it does */
    struct scenario_override *sets;   /* that were set, and those added */
    size_t set_count;
    struct deployment_choice choice;
    struct workload_arrivals arrivals;
};

/* Reads what is stored of the run. False with an error; free in either case. */
bool rerun_read(struct rerun *rerun, struct results *store, int64_t run, struct user_error *error);

/* Loads its scenario, with what is added to what was set. False with an error: the run is the planner's, whose
 * deployment is not the scenario's own, or the scenario has changed since, unless something is added. */
bool rerun_load(struct rerun *rerun, struct results *store, const struct scenario_override *added, size_t count,
                struct user_error *error);

void rerun_free(struct rerun *rerun);

/* What makes the same run of it: options and listener are the caller's to fill in. */
struct run_config rerun_config(const struct rerun *rerun);

/* Requests as arrivals. */
struct workload_arrivals requests_arrivals(const struct results_requests *requests);

#endif
