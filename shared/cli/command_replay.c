/* See replay_command.h. */
#include "cli/command_replay.h"

#include "host/interrupt.h"

#include <inttypes.h>
#include <string.h>

/* Everything that is needed to play a run again. */
struct source {
    struct run_report report;
    struct results_origin origin;
    struct results_requests requests;
    struct scenario_override sets[RESULTS_ORIGIN_PARAMS_MAX + SETS_MAX];
    size_t set_count;
    size_t added; /* of them, those of the command line */
};

static void source_free(struct source *source)
{
    run_report_free(&source->report);
    results_origin_free(&source->origin);
    results_requests_free(&source->requests);
}

static struct workload_arrivals source_arrivals(const struct source *source)
{
    const struct results_requests *requests = &source->requests;
    return (struct workload_arrivals){requests->count, requests->arrived_ns, requests->conversations};
}

/* The scenario must still make the requests that were stored: the same lengths in the same order. */
static bool same_requests(const struct source *source, struct scenario *scenario, struct user_error *error)
{
    struct trace_file *trace = NULL;
    if (scenario->load.arrivals == ARRIVAL_TRACE) {
        trace = trace_file_read(scenario->load.trace_path, &scenario->load.trace, error);
        if (trace == NULL)
            return false;
    }
    const struct workload_arrivals arrivals = source_arrivals(source);
    struct workload *workload = workload_create_again(&scenario->load, source->report.seed, trace, &arrivals, error);
    struct workload_item item;
    bool same = workload != NULL;
    while (same && workload_next(workload, &item)) {
        if (item.is_abort)
            continue;
        uint32_t id = item.spec.id;
        same = item.spec.prompt_tokens == source->requests.prompt_tokens[id] &&
               item.spec.output_tokens == source->requests.output_tokens[id];
        if (!same)
            user_error_set(error, scenario->path, 0, "load",
                           "request %" PRIu32 " has %" PRIu32 " + %" PRIu32 " tokens now and had %" PRIu32 " + %" PRIu32
                           " in run %" PRId64,
                           id, item.spec.prompt_tokens, item.spec.output_tokens, source->requests.prompt_tokens[id],
                           source->requests.output_tokens[id], source->report.run);
    }
    workload_free(workload);
    trace_file_free(trace);
    return same;
}

static bool check_scenario(const struct source *source, struct user_error *error)
{
    struct scenario *scenario = scenario_load(source->origin.path, source->sets, source->set_count, error);
    if (scenario == NULL)
        return false;
    if (source->added == 0 && strcmp(scenario->identity, source->report.identity) != 0)
        user_error_set(error, source->origin.path, 0, NULL, "has changed since run %" PRId64, source->report.run);
    bool good = !error->set && same_requests(source, scenario, error);
    scenario_free(scenario);
    return good;
}

static bool source_read(struct source *source, struct results *store, int64_t run, const struct scenario_sets *sets,
                        struct user_error *error)
{
    memset(source, 0, sizeof *source);
    if (!results_run_read(store, run, &source->report, error) ||
        !results_origin_read(store, run, &source->origin, error) ||
        !results_requests_read(store, run, &source->requests, error))
        return false;
    if (strcmp(source->report.kind, "run") != 0) {
        user_error_set(error, NULL, 0, NULL,
                       "run %" PRId64 " is the planner's: its deployment is not the scenario's own", run);
        return false;
    }
    for (uint32_t p = 0; p < source->origin.param_count; p++)
        source->sets[source->set_count++] =
            (struct scenario_override){source->origin.params[p].path, source->origin.params[p].value};
    for (size_t s = 0; s < sets->count; s++)
        source->sets[source->set_count++] = sets->sets[s];
    source->added = sets->count;
    return check_scenario(source, error);
}

/* Steps and transfers are what a comparison is about: they are recorded unless said otherwise. */
static bool read_record(const struct arguments *arguments, uint32_t *record, struct user_error *error)
{
    *record = RECORD_TRANSFERS | RECORD_STEPS;
    return !argument_given(arguments, "record") || run_record_read(arguments, record, error);
}

static int play(const struct backend *backends, size_t count, struct results *store, const struct source *source,
                int64_t *again, const struct command_context *command, const struct arguments *arguments,
                struct user_error *error)
{
    struct replay replay = {
        .store = store,
        .run = source->report.run,
        .path = source->origin.path,
        .sets = source->sets,
        .set_count = source->set_count,
        .seed = source->report.seed,
        .arrivals = source_arrivals(source),
    };
    bool was_real = strcmp(source->report.backend, "real") == 0;
    const struct backend *backend = backend_choose(backends, count, was_real ? "sim" : "real", arguments, error);
    if (backend == NULL || !read_record(arguments, &replay.record, error))
        return EXIT_USER;
    return backend->replay(&replay, command, arguments, again, error);
}

int replay_by_backend(const struct backend *backends, size_t count, divergence_function *first_divergence,
                      const struct command_context *command, const struct arguments *arguments,
                      struct user_error *error)
{
    static struct source source; /* large, and there is one */
    struct scenario_sets sets = {.count = 0};
    struct output output = output_to(command->out, argument_text(arguments, "format"));
    int exit = EXIT_USER;
    interrupt_install();
    if (argument_given(arguments, "seed")) {
        user_error_set(error, NULL, 0, NULL, "--seed: a replay has the seed of its run");
        return EXIT_USER;
    }
    struct results *store = NULL;
    if (scenario_sets_read(arguments, &sets, error))
        store = results_open(database_path(arguments), RESULTS_WRITE, error);
    if (store != NULL) {
        int64_t again = 0;
        int64_t run = results_run_lookup(store, operand(arguments, 0), error);
        if (run != 0 && source_read(&source, store, run, &sets, error))
            exit = play(backends, count, store, &source, &again, command, arguments, error);
        if (exit == EXIT_OK && !compare_runs(store, run, again, first_divergence, &output, error))
            exit = EXIT_USER;
        source_free(&source);
        if (!results_close(store, error))
            exit = EXIT_USER;
    }
    scenario_sets_free(&sets);
    return exit;
}
