/* tandem run: a scenario as it stands, or the sweep that it describes, simulated, stored and told. */
#include "host/interrupt.h"
#include "host/output.h"
#include "host/progress.h"
#include "host/report_run.h"
#include "host/results.h"
#include "sim/commands.h"
#include "sim/stored_run.h"
#include "sim/workers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct option run_options[] = {
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    {"seed", "N", "of the run (the scenario's)", OPTION_INTEGER},
    {"record", "LIST", "store these too: transfers, steps, or both with a comma", OPTION_TEXT},
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"threads", "N", "of a sweep (one a processor)", OPTION_INTEGER},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

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

/* What was set is stored with the run: it is how the run can be had again. Of a path set twice the last one counts. */
static uint32_t set_params(const struct scenario_sets *sets, struct results_param *params)
{
    uint32_t count = 0;
    for (size_t k = 0; k < sets->count; k++) {
        bool last = true;
        for (size_t later = k + 1; later < sets->count; later++)
            last = last && strcmp(sets->sets[later].path, sets->sets[k].path) != 0;
        if (last)
            params[count++] = (struct results_param){sets->sets[k].path, sets->sets[k].value};
    }
    return count;
}

static void run_variant(void *context, uint32_t index)
{
    struct sweep *sweep = context;
    struct variant *variant = &sweep->variants[index];
    struct results_param params[SETS_MAX + SCENARIO_VARY_MAX];
    uint32_t param_count = set_params(sweep->sets, params);
    for (size_t k = 0; k < variant->override_count; k++)
        params[param_count++] = (struct results_param){variant->overrides[k].path, variant->overrides[k].value};
    struct deployment_choice choice = deployment_default(variant->scenario);
    struct stored_run what = {
        .store = sweep->store,
        .scenario = variant->scenario,
        .choice = &choice,
        .recorded = variant->recorded,
        .seed = sweep->seed_given ? sweep->seed : variant->scenario->seed,
        .kind = RESULTS_RUN,
        .record = sweep->record,
        .params = params,
        .param_count = param_count,
        .lock = sweep->count > 1 ? &sweep->lock : NULL,
    };
    variant->status = stored_run(&what, &variant->run, NULL, &variant->error);
    progress_add(sweep->progress, 1);
}

/* ---- The answer -------------------------------------------------------------------------------------------------- */

static int status_exit(enum run_status status)
{
    switch (status) {
    case RUN_COMPLETE:
        return EXIT_OK;
    case RUN_NO_PROGRESS:
        return EXIT_NO_PROGRESS;
    case RUN_INVARIANT:
        return EXIT_INVARIANT;
    case RUN_STOPPED:
        return EXIT_INTERRUPTED;
    case RUN_REFUSED:
        break;
    }
    return EXIT_USER;
}

/* Shows one run and asks the scenario what it expected. */
static int tell(struct sweep *sweep, struct variant *variant, const struct command_context *command,
                const struct output *output, json_t *answers, struct user_error *error)
{
    int exit = status_exit(variant->status);
    if (exit != EXIT_OK) {
        if (!error->set && variant->error.set)
            *error = variant->error;
        return exit;
    }
    struct run_report report;
    if (!results_run_read(sweep->store, variant->run, &report, error))
        return EXIT_USER;
    json_t *json = run_report_json(&report);
    if (output->format == OUTPUT_JSON)
        json_array_append(answers, json);
    else
        report_run(&report, output);
    run_report_free(&report);
    struct user_error failed = {.set = false};
    enum expect_outcome outcome = scenario_expect(variant->scenario, json, &failed);
    json_decref(json);
    if (outcome == EXPECT_HELD)
        return EXIT_OK;
    if (outcome == EXPECT_BROKEN) {
        *error = failed;
        return EXIT_USER;
    }
    for (size_t k = 0; k < variant->override_count; k++)
        fprintf(command->err, "%s%s=%s%s", k == 0 ? "with " : ", ", variant->overrides[k].path,
                variant->overrides[k].value, k + 1 == variant->override_count ? ":\n" : "");
    fprintf(command->err, "%s\n", failed.text);
    return EXIT_WORSE;
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
    if (output.format == OUTPUT_JSON)
        output_json(&output, sweep->count == 1 && json_array_size(answers) == 1 ? json_array_get(answers, 0) : answers);
    json_decref(answers);
    return !whole && worst < EXIT_INTERRUPTED ? EXIT_INTERRUPTED : worst;
}

static bool load_variants(struct sweep *sweep, const struct scenario *scenario, struct user_error *error)
{
    size_t count = scenario_variant_count(scenario);
    sweep->variants = calloc(count, sizeof *sweep->variants);
    if (sweep->variants == NULL) {
        user_error_set(error, NULL, 0, NULL, "out of memory");
        return false;
    }
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

static bool read_record(const struct arguments *arguments, uint32_t *record, struct user_error *error)
{
    const char *text = argument_text(arguments, "record");
    *record = 0;
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ",");
        if (length == strlen("transfers") && strncmp(text, "transfers", length) == 0) {
            *record |= RECORD_TRANSFERS;
        } else if (length == strlen("steps") && strncmp(text, "steps", length) == 0) {
            *record |= RECORD_STEPS;
        } else {
            user_error_set(error, NULL, 0, NULL, "--record: %.*s is unknown; transfers and steps can be stored",
                           (int)length, text);
            return false;
        }
        text += length + (text[length] == ',');
    }
    return true;
}

static int run_run(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct scenario_sets sets;
    struct sweep sweep = {.count = 0, .sets = &sets};
    int exit = EXIT_USER;
    int64_t seed = argument_integer(arguments, "seed", -1);
    sweep.seed_given = seed >= 0;
    sweep.seed = seed < 0 ? 0 : (uint64_t)seed;
    interrupt_install();
    struct scenario *scenario = NULL;
    if (scenario_sets_read(arguments, &sets, error) && read_record(arguments, &sweep.record, error))
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

const struct command command_run = {
    .name = "run",
    .operands = "SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "simulate the scenario, or its sweep, and store the result",
    .description =
        "A scenario with `vary` is run once per combination of its values. A run that is stored already is run\n"
        "again as a check: it must come out the same.",
    .options = run_options,
    .run = run_run,
};
