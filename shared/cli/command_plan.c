/* tandem plan: the search for a ratio, kept in the database as it goes, and the two runs that its verdict rests on. */
#include "host/build_info.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/output.h"
#include "run/results/results.h"
#include "cli/commands.h"
#include "sim/plan/plan_output.h"
#include "run/stored_run.h"
#include "sim/sim_run.h"
#include "host/thread_pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SCENARIOS_MAX 16

static const struct option plan_options[] = {
    {"set", "PATH=VALUE", "change a value of every scenario", OPTION_LIST},
    HARDWARE_OPTION,
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"threads", "N", "simulate on so many threads (one a processor)", OPTION_INTEGER},
    {"errors", "FILE", "errors of the model, as `tandem validate --subjects` writes them (those shipped)", OPTION_TEXT},
    {"exhaustive", NULL, "search also the candidates that bounds or a first seed rule out", OPTION_FLAG},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* The probes of one scenario: those stored by earlier searches, by key, and the way to keep new ones. */
struct kept_probe {
    char *candidate;
    struct probe probe;
};

struct keeper {
    struct results *store;
    int64_t scenario;
    int64_t build;
    struct kept_probe *known;
    size_t count;
};

static bool find_probe(void *self, const char *candidate, uint64_t rate_micro_per_s, uint64_t seed, struct probe *probe)
{
    const struct keeper *keeper = self;
    for (size_t i = 0; i < keeper->count; i++) {
        const struct kept_probe *known = &keeper->known[i];
        if (known->probe.rate_micro_per_s == rate_micro_per_s && known->probe.seed == seed &&
            strcmp(known->candidate, candidate) == 0) {
            *probe = known->probe;
            return true;
        }
    }
    return false;
}

static bool keep_probe(void *self, const char *candidate, const struct probe *probe, char *error, size_t error_size)
{
    const struct keeper *keeper = self;
    struct user_error reason = {.set = false};
    json_t *measured = probe_json(probe);
    bool kept = results_probe_add(keeper->store, keeper->scenario, keeper->build, candidate, probe->rate_micro_per_s,
                                  probe->seed, measured, &reason);
    json_decref(measured);
    if (!kept)
        snprintf(error, error_size, "%s", reason.text);
    return kept;
}

static bool keeper_open(struct keeper *keeper, struct results *store, const struct scenario *scenario,
                        struct user_error *error)
{
    char *canonical = scenario_canonical(scenario);
    *keeper = (struct keeper){.store = store};
    keeper->scenario =
        results_scenario_add(store, scenario->identity, scenario->name, scenario->path, canonical, error);
    free(canonical);
    keeper->build = keeper->scenario == 0 ? 0 : results_build_add(store, build_identity, build_version, error);
    json_t *probes = keeper->build == 0 ? NULL : results_probes_json(store, keeper->scenario, keeper->build, error);
    if (probes == NULL)
        return false;
    keeper->known = memory_zeroed(json_array_size(probes) + 1, sizeof *keeper->known);
    for (size_t i = 0; keeper->known != NULL && i < json_array_size(probes); i++) {
        const json_t *stored = json_array_get(probes, i);
        const char *candidate = json_string_value(json_object_get(stored, "candidate"));
        struct kept_probe *known = &keeper->known[keeper->count];
        /* A record that this build cannot read is simulated anew: it would collide, so it is an error to meet one. */
        if (!probe_from_json(json_object_get(stored, "measured"), &known->probe)) {
            user_error_set(error, NULL, 0, NULL,
                           "a stored probe of %s is not readable; name another database with --db", candidate);
            break;
        }
        known->candidate = memory_get(strlen(candidate) + 1);
        if (known->candidate == NULL)
            break;
        strcpy(known->candidate, candidate);
        keeper->count++;
    }
    json_decref(probes);
    return !error->set;
}

static void keeper_free(struct keeper *keeper)
{
    for (size_t i = 0; i < keeper->count; i++)
        free(keeper->known[i].candidate);
    free(keeper->known);
}

/* ---- What is stored of the answer -------------------------------------------------------------------------------- */

static bool add_finding(const struct keeper *keeper, const char *kind, const struct plan_candidate *item, int64_t run,
                        const char *why, struct user_error *error)
{
    const struct candidate *candidate = &item->candidate;
    const struct probe *probe = item->reachable ? &item->at[item->worst_seed] : &item->light;
    json_t *detail = probe_json(probe);
    struct results_finding finding = {
        .scenario = keeper->scenario,
        .build = keeper->build,
        .run = run,
        .kind = kind,
        .label = candidate->label,
        .prefill = candidate->prefill,
        .decode = candidate->decode,
        .sharding = candidate->sharding,
        .nodes = candidate->machines,
        .max_rate_micro_per_s = (int64_t)item->rate_micro_per_s,
        .goodput_per_gpu_micro_per_s = candidate->gpus == 0 ? -1 : (int64_t)(item->rate_micro_per_s / candidate->gpus),
        .ttft_ns = probe->ttft_ns[PROBE_P95],
        .tpot_ns = probe->tpot_ns[PROBE_P95],
        .usd_micros_per_mtok = item->usd_micros_per_mtok > 0 ? (int64_t)item->usd_micros_per_mtok : -1,
        .saturation_permille = item->saturation_permille > 0 ? (int64_t)item->saturation_permille : -1,
        .bound_by = bound_name(item->bound_by),
        .why = why,
        .detail = detail,
    };
    bool added = results_finding_add(keeper->store, &finding, error);
    json_decref(detail);
    return added;
}

/* The run that stands behind a verdict, with all its requests: the candidate at the rate of its least favourable
 * seed. */
static int64_t report_run_of(const struct keeper *keeper, const struct plan_candidate *item,
                             const struct trace_file *recorded, struct user_error *error)
{
    struct scenario *identified = memory_get(sizeof *identified);
    if (identified == NULL)
        return 0;
    *identified = *item->candidate.scenario;
    scenario_identify(identified);
    struct probe_input input = {
        .scenario = identified,
        .choice = &item->candidate.choice,
        .recorded = recorded,
        .rate_micro_per_s = item->seed_micro_per_s[item->worst_seed],
        .seed = item->worst_seed + 1,
        .seeds = identified->plan.seeds,
        .requests = identified->plan.requests,
    };
    struct load load = probe_load(&input);
    char rate[48];
    snprintf(rate, sizeof rate, "per_second(%" PRIu64 ".%06" PRIu64 ")", input.rate_micro_per_s / 1000000,
             input.rate_micro_per_s % 1000000);
    const struct scenario_override sets[] = {{"plan.candidate", item->candidate.label}, {"load.rate", rate}};
    struct run_config config = {
        .scenario = identified,
        .choice = &item->candidate.choice,
        .seed = input.seed,
        .load = &load,
        .recorded = recorded,
        .sets = sets,
        .set_count = sizeof sets / sizeof *sets,
    };
    struct stored_run what = {
        .store = keeper->store, .backend = &sim_backend, .config = &config, .kind = RESULTS_REPORT};
    int64_t run = 0;
    enum run_status status = stored_run(&what, &run, NULL, error);
    free(identified);
    return status == RUN_COMPLETE ? run : 0;
}

static bool store_verdict(const struct keeper *keeper, const struct plan_result *result,
                          const struct trace_file *recorded, struct user_error *error)
{
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        bool verdict = i == result->best || i == result->colocated;
        if (!item->searched)
            continue;
        int64_t run = verdict ? report_run_of(keeper, item, recorded, error) : 0;
        if (verdict && run == 0)
            return interrupt_requested() && !error->set;
        if (!add_finding(keeper, item->candidate.mixed ? "colocated" : "candidate", item, run, NULL, error))
            return false;
        if (i == result->best && !add_finding(keeper, "recommendation", item, run, result->why, error))
            return false;
    }
    return true;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

struct plan_context {
    const struct arguments *arguments;
    struct results *store;
    struct output output;
    json_t *answers; /* JSON: one object a scenario */
    uint32_t threads;
    struct model_errors *errors;
    FILE *err;
};

static int exit_of(enum plan_status status)
{
    switch (status) {
    case PLAN_DONE:
        return EXIT_OK;
    case PLAN_NO_PROGRESS:
        return EXIT_NO_PROGRESS;
    case PLAN_INVARIANT:
        return EXIT_INVARIANT;
    case PLAN_REFUSED:
        break;
    }
    return EXIT_USER;
}

static int judge(struct plan_context *context, struct scenario *scenario, const struct plan_result *result,
                 struct user_error *error)
{
    json_t *json = plan_json(scenario, result);
    if (context->output.format == OUTPUT_JSON)
        json_array_append(context->answers, json);
    else
        plan_print(scenario, result, &context->output);
    int status = EXIT_OK;
    if (!result->interrupted) {
        struct user_error failed = {.set = false};
        switch (scenario_expect_plan(scenario, json, &failed)) {
        case EXPECT_HELD:
            break;
        case EXPECT_FAILED:
            fprintf(context->err, "%s\n", failed.text);
            status = EXIT_WORSE;
            break;
        case EXPECT_BROKEN:
            *error = failed;
            status = EXIT_USER;
            break;
        }
    }
    json_decref(json);
    return status;
}

static int plan_scenario(struct plan_context *context, struct scenario *scenario, struct user_error *error)
{
    struct trace_file *recorded = scenario_trace(scenario, error);
    if (error->set)
        return EXIT_USER;
    struct keeper keeper;
    int exit = EXIT_USER;
    if (keeper_open(&keeper, context->store, scenario, error)) {
        struct plan_options options = {
            .threads = context->threads,
            .exhaustive = argument_flag(context->arguments, "exhaustive"),
            .store = {.self = &keeper, .find = find_probe, .keep = keep_probe},
            .progress = progress_start(scenario->name, 0),
            .errors = context->errors,
        };
        struct plan_result result;
        char text[4096] = "";
        enum plan_status status = plan_search(scenario, recorded, &options, &result, text, sizeof text);
        progress_end(options.progress);
        exit = exit_of(status);
        if (status != PLAN_DONE)
            user_error_set(error, scenario->path, 0, NULL, "%s", text);
        else if (result.interrupted || store_verdict(&keeper, &result, recorded, error))
            exit = judge(context, scenario, &result, error);
        else
            exit = EXIT_USER;
        plan_result_free(&result);
    }
    keeper_free(&keeper);
    trace_file_free(recorded);
    return exit;
}

static int plan_all(struct plan_context *context, struct user_error *error)
{
    struct scenario_sets sets;
    int worst = EXIT_OK;
    if (scenario_sets_read(context->arguments, &sets, error)) {
        for (size_t i = 0; i < operand_count(context->arguments) && !error->set && !interrupt_requested(); i++) {
            if (i > 0 && context->output.format != OUTPUT_JSON)
                fputc('\n', context->output.file);
            struct scenario *scenario = scenario_load(operand(context->arguments, i), sets.sets, sets.count, error);
            if (scenario == NULL)
                break;
            int exit = plan_scenario(context, scenario, error);
            worst = exit > worst ? exit : worst;
            scenario_free(scenario);
            fflush(context->output.file);
        }
    }
    scenario_sets_free(&sets);
    return error->set && worst < EXIT_USER ? EXIT_USER : worst;
}

static int plan_run(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    int64_t threads = argument_integer(arguments, "threads", workers_default());
    struct plan_context context = {
        .arguments = arguments,
        .output = output_to(command->out, argument_text(arguments, "format")),
        .threads = threads < 1     ? 1
                   : threads > 256 ? 256
                                   : (uint32_t)threads,
        .err = command->err,
    };
    interrupt_install();
    context.store = results_open(database_path(arguments), RESULTS_WRITE, error);
    if (context.store == NULL)
        return EXIT_USER;
    context.errors = model_errors_load(argument_text(arguments, "errors"), error);
    context.answers = json_array();
    int exit = context.errors == NULL ? EXIT_USER : plan_all(&context, error);
    if (context.output.format == OUTPUT_JSON) {
        const json_t *only = json_array_size(context.answers) == 1 ? json_array_get(context.answers, 0) : NULL;
        output_json(&context.output, only != NULL ? only : context.answers);
    }
    json_decref(context.answers);
    model_errors_free(context.errors);
    if (!results_close(context.store, error))
        exit = EXIT_USER;
    return interrupt_requested() && exit == EXIT_OK ? EXIT_INTERRUPTED : exit;
}

const struct command command_plan = {
    .name = "plan",
    .operands = "SCENARIO...",
    .operands_min = 1,
    .operands_max = SCENARIOS_MAX,
    .summary = "how many prefillers and decoders, sharded how, for the scenario's targets",
    .description =
        "Searches the counts and shardings that the scenario's pools allow for the highest rate that meets the\n"
        "targets, and compares with colocated serving on the same machines. Every probe is kept in the\n"
        "database: a search that was interrupted goes on where it was.",
    .options = plan_options,
    .run = plan_run,
};
