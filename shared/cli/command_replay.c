/* tandem replay: a stored run's arrivals and lengths once more, on the other backend, and both side by side. */
#include "cli/commands.h"
#include "host/interrupt.h"
#include "run/rerun.h"
#include "run/stored_run.h"
#include "sim/check/first_divergence.h"

#include <inttypes.h>
#include <string.h>

/* The scenario must still make the requests that were stored: the same lengths in the same order. */
static bool same_requests(const struct rerun *rerun, const struct results_requests *requests,
                          const struct workload_arrivals *arrivals, struct user_error *error)
{
    const struct scenario *scenario = rerun->scenario;
    struct workload *workload =
        workload_create_again(&scenario->load, rerun->report.seed, rerun->recorded, arrivals, error);
    struct workload_item item;
    bool same = workload != NULL;
    while (same && workload_next(workload, &item)) {
        if (item.is_abort)
            continue;
        uint32_t id = item.spec.id;
        same = item.spec.prompt_tokens == requests->prompt_tokens[id] &&
               item.spec.output_tokens == requests->output_tokens[id];
        if (!same)
            user_error_set(error, scenario->path, 0, "load",
                           "request %" PRIu32 " has %" PRIu32 " + %" PRIu32 " tokens now and had %" PRIu32 " + %" PRIu32
                           " in run %" PRId64,
                           id, item.spec.prompt_tokens, item.spec.output_tokens, requests->prompt_tokens[id],
                           requests->output_tokens[id], rerun->report.run);
    }
    workload_free(workload);
    return same;
}

/* Steps and transfers are what a comparison is about: they are recorded unless said otherwise. */
static bool read_record(const struct arguments *arguments, uint32_t *record, struct user_error *error)
{
    *record = RECORD_TRANSFERS | RECORD_STEPS;
    return !argument_given(arguments, "record") || run_record_read(arguments, record, error);
}

static int play(struct results *store, const struct rerun *rerun, int64_t *again, const struct command_context *command,
                const struct arguments *arguments, struct user_error *error)
{
    bool was_real = strcmp(rerun->report.backend, "sim") != 0;
    const struct backend *backend = backend_choose(was_real ? "sim" : "real", arguments, error);
    struct results_requests requests = {.count = 0};
    if (backend == NULL || !results_requests_read(store, rerun->report.run, &requests, error))
        return EXIT_USER;
    struct workload_arrivals arrivals = requests_arrivals(&requests);
    struct run_config config = rerun_config(rerun);
    config.arrivals = &arrivals;
    config.listener = (struct run_listener){.self = command->err, .notice = run_tell_notice};
    struct stored_run what = {
        .store = store,
        .backend = backend->run,
        .config = &config,
        .kind = RESULTS_RUN,
        .replay_of = rerun->report.run,
    };
    if (!was_real && strcmp(backend->name, "real") == 0)
        fprintf(command->err,
                "run %" PRId64 " was simulated and is played for real, by processes of this machine; "
                "--backend sim simulates it again\n",
                rerun->report.run);
    int exit = EXIT_USER;
    if (same_requests(rerun, &requests, &arrivals, error) && read_record(arguments, &what.record, error) &&
        (backend->prepare == NULL || backend->prepare(command, arguments, NULL, &config.options, &exit, error)))
        exit = (int)run_exit(stored_run(&what, again, NULL, error));
    if (backend->release != NULL)
        backend->release();
    results_requests_free(&requests);
    return exit;
}

/* A file of a scenario, not a run: there is nothing yet to be compared with. */
static bool is_scenario(const char *text)
{
    static const char ending[] = ".lua";
    size_t length = strlen(text);
    return length > sizeof ending - 1 && strcmp(text + length - (sizeof ending - 1), ending) == 0;
}

static int replay(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct rerun rerun;
    struct scenario_sets sets = {.count = 0};
    struct output output = output_to(command->out, argument_text(arguments, "format"));
    int exit = EXIT_USER;
    if (argument_given(arguments, "endpoint") && is_scenario(operand(arguments, 0)))
        return command_run.run(command, arguments, error);
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
        memset(&rerun, 0, sizeof rerun);
        if (run != 0 && rerun_read(&rerun, store, run, error) &&
            rerun_load(&rerun, store, sets.sets, sets.count, error))
            exit = play(store, &rerun, &again, command, arguments, error);
        if (exit == EXIT_OK && !compare_runs(store, run, again, sim_divergence, &output, error))
            exit = EXIT_USER;
        rerun_free(&rerun);
        if (!results_close(store, error))
            exit = EXIT_USER;
    }
    scenario_sets_free(&sets);
    return exit;
}

const struct command command_replay = {
    .name = "replay",
    .operands = "RUN|SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "a stored run's arrivals and lengths on the other backend, and both side by side",
    .description =
        "RUN is a run's number, last, last~N, or SCENARIO/SEED. Its scenario with all that was set is run again with\n"
        "exactly the arrivals that were stored, in simulation if it was real and for real if it was simulated, or\n"
        "as --backend says. --hardware and --set change it further. Steps and transfers are recorded, the new run\n"
        "is stored with a link to the old one, and `tandem compare` of both is the answer. With --endpoint they are\n"
        "sent to an OpenAI-compatible server, at the load's times, and rows are what its client saw; of a SCENARIO,\n"
        "which has no run yet, that is all.",
    .options = run_options,
    .run = replay,
};
