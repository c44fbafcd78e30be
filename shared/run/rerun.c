/* See rerun.h. */
#include "run/rerun.h"

#include "base/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct workload_arrivals requests_arrivals(const struct results_requests *requests)
{
    return (struct workload_arrivals){requests->count, requests->arrived_ns, requests->conversations};
}

bool rerun_read(struct rerun *rerun, struct results *store, int64_t run, struct user_error *error)
{
    memset(rerun, 0, sizeof *rerun);
    return results_run_read(store, run, &rerun->report, error) &&
           results_origin_read(store, run, &rerun->origin, error);
}

bool rerun_load(struct rerun *rerun, struct results *store, const struct scenario_override *added, size_t count,
                struct user_error *error)
{
    const struct results_origin *origin = &rerun->origin;
    if (strcmp(rerun->report.kind, "run") != 0) {
        user_error_set(error, NULL, 0, NULL,
                       "run %" PRId64 " is the planner's: its deployment is not the scenario's own", rerun->report.run);
        return false;
    }
    rerun->sets = calloc(origin->param_count + count + 1, sizeof *rerun->sets);
    CHECK(rerun->sets != NULL);
    for (uint32_t p = 0; p < origin->param_count; p++)
        rerun->sets[rerun->set_count++] = (struct scenario_override){origin->params[p].path, origin->params[p].value};
    for (size_t s = 0; s < count; s++)
        rerun->sets[rerun->set_count++] = added[s];
    rerun->scenario = scenario_load(origin->path, rerun->sets, rerun->set_count, error);
    if (rerun->scenario == NULL)
        return false;
    if (count == 0 && strcmp(rerun->scenario->identity, rerun->report.identity) != 0) {
        user_error_set(error, origin->path, 0, NULL, "has changed since run %" PRId64, rerun->report.run);
        return false;
    }
    rerun->choice = deployment_default(rerun->scenario);
    rerun->recorded = scenario_trace(rerun->scenario, error);
    if (!error->set && origin->replay_of != 0 &&
        results_requests_read(store, origin->replay_of, &rerun->requests, error))
        rerun->arrivals = requests_arrivals(&rerun->requests);
    return !error->set;
}

void rerun_free(struct rerun *rerun)
{
    if (rerun->scenario != NULL)
        scenario_free(rerun->scenario);
    trace_file_free(rerun->recorded);
    free(rerun->sets);
    results_origin_free(&rerun->origin);
    results_requests_free(&rerun->requests);
    run_report_free(&rerun->report);
}

struct run_config rerun_config(const struct rerun *rerun)
{
    return (struct run_config){
        .scenario = rerun->scenario,
        .choice = &rerun->choice,
        .seed = rerun->report.seed,
        .recorded = rerun->recorded,
        .arrivals = rerun->origin.replay_of != 0 ? &rerun->arrivals : NULL,
        .sets = rerun->sets,
        .set_count = rerun->set_count,
    };
}
