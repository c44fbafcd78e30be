/* tandem run: a scenario as it stands, or the sweep that it describes, simulated, stored and told. */
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/output.h"
#include "host/progress.h"
#include "run/results/results.h"
#include "cli/commands.h"
#include "cli/report_run.h"
#include "run/stored_run.h"
#include "sim/sim_run.h"
#include "host/thread_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char *const run_simulated_alone[] = {"threads", NULL};

/* One variant of the sweep. Its Lua state stays with the main thread; the simulation reads the plain struct. */
struct variant {
    struct scenario *scenario;
    struct trace_file *recorded;
    struct scenario_override overrides[SCENARIO_VARY_MAX];
    size_t override_count;
    enum run_status status;
    int64_t run;
    struct user_error error;
};

struct sweep {
    struct results *store;
    struct variant *variants;
    uint32_t count;
    bool seed_given;
    uint64_t seed;
    uint32_t record;
    const struct scenario_sets *sets;
    pthread_mutex_t lock;
    struct progress *progress;
};

static void run_variant(void *context, uint32_t index)
{
    struct sweep *sweep = context;
    struct variant *variant = &sweep->variants[index];
    struct scenario_override all[SETS_MAX + SCENARIO_VARY_MAX];
    memcpy(all, sweep->sets->sets, sweep->sets->count * sizeof *all);
    memcpy(all + sweep->sets->count, variant->overrides, variant->override_count * sizeof *all);
    struct deployment_choice choice = deployment_default(variant->scenario);
    struct run_config config = {
        .scenario = variant->scenario,
        .choice = &choice,
        .seed = sweep->seed_given ? sweep->seed : variant->scenario->seed,
        .recorded = variant->recorded,
        .sets = all,
        .set_count = sweep->sets->count + variant->override_count,
    };
    struct stored_run what = {
        .store = sweep->store,
        .backend = &sim_backend,
        .config = &config,
        .kind = RESULTS_RUN,
        .record = sweep->record,
        .lock = sweep->count > 1 ? &sweep->lock : NULL,
    };
    variant->status = stored_run(&what, &variant->run, NULL, &variant->error);
    progress_add(sweep->progress, 1);
}

/* ---- The answer -------------------------------------------------------------------------------------------------- */

static int tell(struct sweep *sweep, struct variant *variant, const struct command_context *command,
                const struct output *output, json_t *answers, struct user_error *error)
{
    int exit = (int)run_exit(variant->status);
    if (exit != EXIT_OK) {
        if (!error->set && variant->error.set)
            *error = variant->error;
        return exit;
    }
    return run_tell(sweep->store, variant->run, variant->scenario, variant->overrides, variant->override_count, command,
                    output, answers, error);
}

static int sweep_all(struct sweep *sweep, const struct command_context *command, const struct arguments *arguments,
                     struct user_error *error)
{
    struct output output = output_to(command->out, argument_text(arguments, "format"));
    int64_t threads = argument_integer(arguments, "threads", workers_default());
    sweep->progress = progress_start(sweep->variants[0].scenario->name, sweep->count);
    bool whole = workers_run(threads < 1     ? 1
                             : threads > 256 ? 256
                                             : (uint32_t)threads,
                             sweep->count, run_variant, sweep);
    progress_end(sweep->progress);
    json_t *answers = json_array();
    int worst = EXIT_OK;
    for (uint32_t i = 0; i < sweep->count; i++) {
        if (!whole && sweep->variants[i].status == 0)
            continue;
        int exit = tell(sweep, &sweep->variants[i], command, &output, answers, error);
        worst = exit > worst ? exit : worst;
    }
    report_runs(answers, sweep->count > 1, &output);
    json_decref(answers);
    return !whole && worst < EXIT_INTERRUPTED ? EXIT_INTERRUPTED : worst;
}

static bool load_variants(struct sweep *sweep, const struct scenario *scenario, struct user_error *error)
{
    size_t count = scenario_variant_count(scenario);
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

static void free_variants(struct sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->count; i++) {
        trace_file_free(sweep->variants[i].recorded);
        scenario_free(sweep->variants[i].scenario);
    }
    free(sweep->variants);
}

int run_simulated(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct scenario_sets sets;
    struct sweep sweep = {.count = 0, .sets = &sets};
    int exit = EXIT_USER;
    int64_t seed = argument_integer(arguments, "seed", -1);
    sweep.seed_given = seed >= 0;
    sweep.seed = seed < 0 ? 0 : (uint64_t)seed;
    interrupt_install();
    struct scenario *scenario = NULL;
    if (scenario_sets_read(arguments, &sets, error) && run_record_read(arguments, &sweep.record, error))
        scenario = scenario_load(operand(arguments, 0), sets.sets, sets.count, error);
    if (scenario != NULL && load_variants(&sweep, scenario, error)) {
        sweep.store = results_open(database_path(arguments), RESULTS_WRITE, error);
        if (sweep.store != NULL && pthread_mutex_init(&sweep.lock, NULL) == 0) {
            exit = sweep_all(&sweep, command, arguments, error);
            pthread_mutex_destroy(&sweep.lock);
            if (!results_close(sweep.store, error))
                exit = EXIT_USER;
        }
    }
    free_variants(&sweep);
    if (scenario != NULL)
        scenario_free(scenario);
    scenario_sets_free(&sets);
    return exit;
}

int replay_simulated(const struct replay *replay, const struct command_context *command,
                     const struct arguments *arguments, int64_t *run, struct user_error *error)
{
    (void)command;
    (void)arguments;
    struct scenario *scenario = scenario_load(replay->path, replay->sets, replay->set_count, error);
    struct trace_file *recorded = scenario == NULL ? NULL : scenario_trace(scenario, error);
    enum run_status status = RUN_REFUSED;
    if (!error->set) {
        struct deployment_choice choice = deployment_default(scenario);
        struct run_config config = {
            .scenario = scenario,
            .choice = &choice,
            .seed = replay->seed,
            .recorded = recorded,
            .arrivals = &replay->arrivals,
            .sets = replay->sets,
            .set_count = replay->set_count,
        };
        struct stored_run what = {
            .store = replay->store,
            .backend = &sim_backend,
            .config = &config,
            .replay_of = replay->run,
            .kind = RESULTS_RUN,
            .record = replay->record,
        };
        status = stored_run(&what, run, NULL, error);
    }
    trace_file_free(recorded);
    if (scenario != NULL)
        scenario_free(scenario);
    return (int)run_exit(status);
}
