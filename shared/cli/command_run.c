/* tandem run: a scenario as it stands, or the sweep that it describes, run on a backend, stored and told. */
#include "cli/commands.h"
#include "cli/report_run.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/output.h"
#include "host/progress.h"
#include "host/thread_pool.h"
#include "run/stored_run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One variant of the sweep. Its Lua state stays with the main thread; the run reads the plain struct. */
struct variant {
    struct scenario *scenario;
    struct trace_file *recorded;
    struct scenario_override overrides[SCENARIO_VARY_MAX];
    size_t override_count;
    enum run_status status; /* 0: not run */
    int64_t run;
    struct user_error error;
};

struct sweep {
    const struct command_context *command;
    const struct backend *backend;
    const void *options; /* the backend's */
    struct results *store;
    struct variant *variants;
    uint32_t count;
    uint32_t threads;
    int64_t seed; /* negative: the scenario's */
    uint32_t record;
    struct scenario_sets sets;
    pthread_mutex_t lock;
    struct progress *progress;
    struct output output;
    json_t *answers;
    int worst;
    struct user_error *error;
};

/* ---- One variant ------------------------------------------------------------------------------------------------- */

static void tell(struct sweep *sweep, struct variant *variant)
{
    int exit = (int)run_exit(variant->status);
    if (variant->error.set && !sweep->error->set)
        *sweep->error = variant->error;
    if (exit == EXIT_OK)
        exit = run_tell(sweep->store, variant->run, variant->scenario, variant->overrides, variant->override_count,
                        sweep->command, &sweep->output, sweep->answers, sweep->error);
    sweep->worst = exit > sweep->worst ? exit : sweep->worst;
}

static void run_variant(void *context, uint32_t index)
{
    struct sweep *sweep = context;
    struct variant *variant = &sweep->variants[index];
    bool alone = sweep->threads == 1;
    /* One after the other: what is wrong with one will be with the next. */
    if (alone && sweep->error->set)
        return;
    struct scenario_override all[SETS_MAX + SCENARIO_VARY_MAX];
    memcpy(all, sweep->sets.sets, sweep->sets.count * sizeof *all);
    memcpy(all + sweep->sets.count, variant->overrides, variant->override_count * sizeof *all);
    struct deployment_choice choice = deployment_default(variant->scenario);
    struct run_config config = {
        .scenario = variant->scenario,
        .choice = &choice,
        .seed = sweep->seed < 0 ? variant->scenario->seed : (uint64_t)sweep->seed,
        .recorded = variant->recorded,
        .sets = all,
        .set_count = sweep->sets.count + variant->override_count,
        .options = sweep->options,
        .listener = {.self = sweep->command->err, .notice = run_tell_notice},
    };
    struct stored_run what = {
        .store = sweep->store,
        .backend = sweep->backend->run,
        .config = &config,
        .kind = RESULTS_RUN,
        .record = sweep->record,
        .lock = alone ? NULL : &sweep->lock,
    };
    variant->status = stored_run(&what, &variant->run, NULL, &variant->error);
    progress_add(sweep->progress, 1);
    if (alone)
        tell(sweep, variant);
}

/* ---- The sweep --------------------------------------------------------------------------------------------------- */

static int run_all(struct sweep *sweep)
{
    /* Where runs take their time, they have something to say. */
    if (sweep->backend->run->concurrent)
        sweep->progress = progress_start(sweep->variants[0].scenario->name, sweep->count);
    sweep->answers = json_array();
    bool whole = workers_run(sweep->threads, sweep->count, run_variant, sweep);
    progress_end(sweep->progress);
    for (uint32_t i = 0; i < sweep->count && sweep->threads > 1; i++)
        if (sweep->variants[i].status != 0)
            tell(sweep, &sweep->variants[i]);
    report_runs(sweep->answers, sweep->count > 1, &sweep->output);
    json_decref(sweep->answers);
    return !whole && sweep->worst < EXIT_INTERRUPTED ? EXIT_INTERRUPTED : sweep->worst;
}

static bool load_variants(struct sweep *sweep, const struct scenario *scenario, struct user_error *error)
{
    size_t count = scenario_variant_count(scenario);
    if (count > 1 && sweep->backend->one_at_most != NULL && sweep->backend->one_at_most()) {
        user_error_set(error, scenario->path, 0, NULL,
                       "under a job's launcher one run at a time: fix `vary` with --set");
        return false;
    }
    sweep->variants = memory_zeroed(count, sizeof *sweep->variants);
    for (size_t i = 0; i < count; i++) {
        struct variant *variant = &sweep->variants[i];
        variant->override_count = scenario_variant_overrides(scenario, i, variant->overrides);
        variant->scenario = scenario_load_variant(scenario, i, error);
        if (variant->scenario == NULL)
            return false;
        sweep->count++;
        variant->recorded = scenario_trace(variant->scenario, error);
        if (error->set)
            return false;
    }
    return true;
}

static int run_scenario(struct sweep *sweep, const struct arguments *arguments, struct user_error *error)
{
    uint32_t threads = argument_workers(arguments, "threads", workers_default(), error);
    if (threads == 0)
        return EXIT_USER;
    if (!sweep->backend->run->concurrent)
        threads = 1;
    struct scenario *scenario = scenario_load(operand(arguments, 0), sweep->sets.sets, sweep->sets.count, error);
    int exit = EXIT_USER;
    if (scenario != NULL && load_variants(sweep, scenario, error)) {
        sweep->threads = sweep->count == 1 ? 1 : threads;
        sweep->store = results_open(database_path(arguments), RESULTS_WRITE, error);
    }
    if (sweep->store != NULL) {
        CHECK(pthread_mutex_init(&sweep->lock, NULL) == 0);
        exit = run_all(sweep);
        pthread_mutex_destroy(&sweep->lock);
        if (!results_close(sweep->store, error))
            exit = EXIT_USER;
    }
    for (uint32_t i = 0; i < sweep->count; i++) {
        trace_file_free(sweep->variants[i].recorded);
        scenario_free(sweep->variants[i].scenario);
    }
    free(sweep->variants);
    if (scenario != NULL)
        scenario_free(scenario);
    return exit;
}

static int run(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct sweep sweep = {
        .command = command,
        .seed = argument_integer(arguments, "seed", -1),
        .output = output_to(command->out, argument_text(arguments, "format")),
        .error = error,
    };
    int exit = EXIT_USER;
    interrupt_install();
    sweep.backend = backend_choose(backends[0]->name, arguments, error);
    if (sweep.backend == NULL)
        return EXIT_USER;
    bool ready = scenario_sets_read(arguments, &sweep.sets, error) &&
                 run_record_read(arguments, &sweep.record, error) &&
                 (sweep.backend->prepare == NULL ||
                  sweep.backend->prepare(command, arguments, &sweep.sets, &sweep.options, &exit, error));
    if (ready)
        exit = run_scenario(&sweep, arguments, error);
    if (sweep.backend->release != NULL)
        sweep.backend->release();
    scenario_sets_free(&sweep.sets);
    return exit;
}

const struct command command_run = {
    .name = "run",
    .operands = "SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "run the scenario, or its sweep, and store the result",
    .description =
        "A scenario with `vary` is run once per combination of its values. A simulated run that is stored\n"
        "already is run again as a check: it must come out the same. With --backend real every instance is a\n"
        "process and every rank another; under mpirun or srun the processes are theirs.",
    .options = run_options,
    .run = run,
};
