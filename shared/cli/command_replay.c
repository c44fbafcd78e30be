/* tandem replay: a stored run's arrivals and lengths once more, on the other backend, and both side by side. */
#include "cli/commands.h"
#include "host/interrupt.h"
#include "run/stored_run.h"
#include "sim/check/first_divergence.h"

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
    struct scenario *scenario;
    struct trace_file *recorded;
};

static void source_free(struct source *source)
{
    run_report_free(&source->report);
    results_origin_free(&source->origin);
    results_requests_free(&source->requests);
    trace_file_free(source->recorded);
    if (source->scenario != NULL)
        scenario_free(source->scenario);
}

static struct workload_arrivals source_arrivals(const struct source *source)
{
    const struct results_requests *requests = &source->requests;
    return (struct workload_arrivals){requests->count, requests->arrived_ns, requests->conversations};
}

/* The scenario must still make the requests that were stored: the same lengths in the same order. */
static bool same_requests(const struct source *source, struct user_error *error)
{
    const struct scenario *scenario = source->scenario;
    const struct workload_arrivals arrivals = source_arrivals(source);
    struct workload *workload =
        workload_create_again(&scenario->load, source->report.seed, source->recorded, &arrivals, error);
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
    return same;
}

static bool load_scenario(struct source *source, struct user_error *error)
{
    source->scenario = scenario_load(source->origin.path, source->sets, source->set_count, error);
    if (source->scenario == NULL)
        return false;
    if (source->added == 0 && strcmp(source->scenario->identity, source->report.identity) != 0)
        user_error_set(error, source->origin.path, 0, NULL, "has changed since run %" PRId64, source->report.run);
    else
        source->recorded = scenario_trace(source->scenario, error);
    return !error->set && same_requests(source, error);
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
    return load_scenario(source, error);
}

/* Steps and transfers are what a comparison is about: they are recorded unless said otherwise. */
static bool read_record(const struct arguments *arguments, uint32_t *record, struct user_error *error)
{
    *record = RECORD_TRANSFERS | RECORD_STEPS;
    return !argument_given(arguments, "record") || run_record_read(arguments, record, error);
}

static int play(struct results *store, const struct source *source, int64_t *again,
                const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    bool was_real = strcmp(source->report.backend, "real") == 0;
    const struct backend *backend = backend_choose(was_real ? "sim" : "real", arguments, error);
    if (backend == NULL)
        return EXIT_USER;
    struct workload_arrivals arrivals = source_arrivals(source);
    struct deployment_choice choice = deployment_default(source->scenario);
    struct run_config config = {
        .scenario = source->scenario,
        .choice = &choice,
        .seed = source->report.seed,
        .recorded = source->recorded,
        .arrivals = &arrivals,
        .sets = source->sets,
        .set_count = source->set_count,
        .listener = {.self = command->err, .notice = run_tell_notice},
    };
    struct stored_run what = {
        .store = store,
        .backend = backend->run,
        .config = &config,
        .kind = RESULTS_RUN,
        .replay_of = source->report.run,
    };
    int exit = EXIT_USER;
    if (read_record(arguments, &what.record, error) &&
        (backend->prepare == NULL || backend->prepare(command, arguments, NULL, &config.options, &exit, error)))
        exit = (int)run_exit(stored_run(&what, again, NULL, error));
    if (backend->release != NULL)
        backend->release();
    return exit;
}

static int replay(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
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
            exit = play(store, &source, &again, command, arguments, error);
        if (exit == EXIT_OK && !compare_runs(store, run, again, sim_divergence, &output, error))
            exit = EXIT_USER;
        source_free(&source);
        if (!results_close(store, error))
            exit = EXIT_USER;
    }
    scenario_sets_free(&sets);
    return exit;
}

const struct command command_replay = {
    .name = "replay",
    .operands = "RUN",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "a stored run's arrivals and lengths on the other backend, and both side by side",
    .description =
        "RUN is a run's number, last, last~N, or SCENARIO/SEED. Its scenario with all that was set is run again with\n"
        "exactly the arrivals that were stored, in simulation if it was real and for real if it was simulated, or\n"
        "as --backend says. --hardware and --set change it further. Steps and transfers are recorded, the new run\n"
        "is stored with a link to the old one, and `tandem compare` of both is the answer.",
    .options = run_options,
    .run = replay,
};
