/* tandem plan: the search for a ratio, kept in the database as it goes, and the two runs that its verdict rests on. */
#include "host/build_info.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/output.h"
#include "run/results/results.h"
#include "cli/commands.h"
#include "cli/plan_report.h"
#include "run/stored_run.h"
#include "sim/sim_run.h"
#include "host/thread_pool.h"
#include "host/user_error.h"

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
    {"exhaustive", NULL, "search also the candidates that bounds, a first seed or others rule out", OPTION_FLAG},
    {"stored", NULL, "show the plan that the database holds of the scenario, without a search", OPTION_FLAG},
    {"top", "N", "rows of a table for people (10)", OPTION_INTEGER},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* The probes of one scenario, by key: those stored by earlier searches and by this one. */
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
    size_t room;
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

static void know_probe(struct keeper *keeper, const char *candidate, const struct probe *probe)
{
    if (keeper->count == keeper->room) {
        size_t room = 2 * keeper->room + 64;
        keeper->known = memory_resized(keeper->known, room * sizeof *keeper->known);
        keeper->room = room;
    }
    struct kept_probe *kept = &keeper->known[keeper->count];
    *kept = (struct kept_probe){.candidate = memory_get(strlen(candidate) + 1), .probe = *probe};
    strcpy(kept->candidate, candidate);
    keeper->count++;
}

static bool keep_probe(void *self, const char *candidate, const struct probe *probe, struct user_error *error)
{
    struct keeper *keeper = self;
    json_t *measured = probe_json(probe);
    bool kept = results_probe_add(keeper->store, keeper->scenario, keeper->build, candidate, probe->rate_micro_per_s,
                                  probe->seed, measured, error);
    json_decref(measured);
    if (kept)
        know_probe(keeper, candidate, probe);
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
    for (size_t i = 0; i < json_array_size(probes); i++) {
        const json_t *stored = json_array_get(probes, i);
        const char *candidate = json_string_value(json_object_get(stored, "candidate"));
        struct probe probe;
        /* A record that this build cannot read is simulated anew: it would collide, so it is an error to meet one. */
        if (!probe_from_json(json_object_get(stored, "measured"), &probe)) {
            user_error_set(error, NULL, 0, NULL,
                           "a stored probe of %s is not readable; name another database with --db", candidate);
            break;
        }
        know_probe(keeper, candidate, &probe);
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
    const struct probe *probe = item->reachable ? plan_at(item) : &item->light;
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

/* The whole answer, as it is shown: one a scenario and build. */
static bool add_answer(const struct keeper *keeper, const json_t *answer, struct user_error *error)
{
    struct results_finding finding = {
        .scenario = keeper->scenario,
        .build = keeper->build,
        .kind = FINDING_PLAN,
        .label = "",
        .prefill = -1,
        .decode = -1,
        .nodes = -1,
        .max_rate_micro_per_s = -1,
        .goodput_per_gpu_micro_per_s = -1,
        .ttft_ns = -1,
        .tpot_ns = -1,
        .usd_micros_per_mtok = -1,
        .saturation_permille = -1,
        .detail = answer,
    };
    return results_finding_add(keeper->store, &finding, error);
}

/* The run that stands behind a verdict, with all its requests: the candidate at the rate of its least favourable
 * seed. */
static int64_t report_run_of(const struct keeper *keeper, const struct plan_result *result,
                             const struct plan_candidate *item, const struct trace_file *recorded,
                             struct user_error *error)
{
    struct scenario *identified = memory_get(sizeof *identified);
    *identified = *item->candidate.scenario;
    scenario_identify(identified);
    struct probe_input input = {
        .scenario = identified,
        .choice = &item->candidate.choice,
        .recorded = recorded,
        .rate_micro_per_s = plan_at(item)->rate_micro_per_s,
        .seed = plan_at(item)->seed,
        .seeds = result->seeds,
        .requests = result->requests,
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

static bool store_verdict(const struct keeper *keeper, const struct plan_result *result, const json_t *answer,
                          const struct trace_file *recorded, struct user_error *error)
{
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        bool verdict = i == result->best || i == result->alternative;
        if (!item->searched)
            continue;
        int64_t run = verdict ? report_run_of(keeper, result, item, recorded, error) : 0;
        if (verdict && run == 0)
            return interrupt_requested() && !error->set;
        if (!add_finding(keeper, item->candidate.aggregated ? "aggregated" : "candidate", item, run, NULL, error))
            return false;
        if (i == result->best && !add_finding(keeper, "recommendation", item, run, plan_deploys(answer), error))
            return false;
    }
    return add_answer(keeper, answer, error);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

struct plan_context {
    const struct arguments *arguments;
    struct results *store;
    struct output output;
    json_t *answers; /* for machines: one object a scenario and point */
    uint32_t threads;
    uint32_t top;
    struct model_errors *errors;
    FILE *err;
};

/* JSON and CSV are written when all is known. */
static bool for_machines(const struct plan_context *context)
{
    return context->output.format == OUTPUT_JSON || context->output.format == OUTPUT_CSV;
}

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

/* Shows the answer and holds it to what the scenario expects. Nothing to deploy is a target missed. */
static int tell(struct plan_context *context, struct scenario *scenario, json_t *answer, struct user_error *error)
{
    int status = EXIT_OK;
    if (for_machines(context))
        json_array_append(context->answers, answer);
    else
        plan_print(answer, &context->output, context->top);
    if (json_is_true(json_object_get(answer, "interrupted")))
        return EXIT_OK;
    if (json_is_null(json_object_get(json_object_get(answer, "recommendation"), "candidate"))) {
        fprintf(context->err, "%s: deploy %s\n", scenario->path, plan_deploys(answer));
        status = EXIT_WORSE;
    }
    struct user_error failed = {.set = false};
    switch (scenario_expect_plan(scenario, answer, &failed)) {
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
    return status;
}

/* What varies of a plan is added to its answer. */
static void add_params(json_t *answer, const struct scenario_override *overrides, size_t count)
{
    json_t *params = json_object();
    for (size_t k = 0; k < count; k++)
        json_object_set_new(params, overrides[k].path, json_string(overrides[k].value));
    json_object_set_new(answer, "params", params);
}

static json_t *search(struct plan_context *context, struct keeper *keeper, struct scenario *scenario,
                      const struct scenario_override *overrides, size_t count, int *exit, struct user_error *error)
{
    struct trace_file *recorded = scenario_trace(scenario, error);
    if (error->set)
        return NULL;
    struct plan_options options = {
        .threads = context->threads,
        .exhaustive = argument_flag(context->arguments, "exhaustive"),
        .store = {.self = keeper, .find = find_probe, .keep = keep_probe},
        .progress = progress_start(scenario->name, 0),
        .errors = context->errors,
    };
    struct plan_result result;
    struct user_error why = {.set = false};
    json_t *answer = NULL;
    enum plan_status status = plan_search(scenario, recorded, &options, &result, &why);
    progress_end(options.progress);
    *exit = exit_of(status);
    if (status != PLAN_DONE) {
        user_error_set(error, scenario->path, 0, NULL, "%s", why.text);
    } else {
        answer = plan_json(scenario, &result);
        add_params(answer, overrides, count);
        if (!result.interrupted && !store_verdict(keeper, &result, answer, recorded, error)) {
            json_decref(answer);
            answer = NULL;
            *exit = EXIT_USER;
        }
    }
    plan_result_free(&result);
    trace_file_free(recorded);
    return answer;
}

/* The answer that the database holds of the scenario, by this build. */
static json_t *find_answer(const struct keeper *keeper, const struct scenario *scenario, struct user_error *error)
{
    json_t *findings = results_findings_json(keeper->store, keeper->scenario, keeper->build, error);
    json_t *answer = NULL;
    for (size_t i = 0; findings != NULL && i < json_array_size(findings); i++) {
        const json_t *finding = json_array_get(findings, i);
        const char *kind = json_string_value(json_object_get(finding, "kind"));
        if (kind != NULL && strcmp(kind, FINDING_PLAN) == 0)
            answer = json_deep_copy(json_object_get(finding, "detail"));
    }
    json_decref(findings);
    if (answer == NULL && !error->set)
        user_error_set(error, scenario->path, 0, NULL,
                       "the database holds no plan of it by this build; without "
                       "--stored it is searched for");
    return answer;
}

static json_t *answer_of(struct plan_context *context, struct scenario *scenario,
                         const struct scenario_override *overrides, size_t count, int *exit, struct user_error *error)
{
    struct keeper keeper;
    json_t *answer = NULL;
    *exit = EXIT_USER;
    if (keeper_open(&keeper, context->store, scenario, error)) {
        if (argument_flag(context->arguments, "stored")) {
            answer = find_answer(&keeper, scenario, error);
            *exit = answer == NULL ? EXIT_USER : EXIT_OK;
        } else {
            answer = search(context, &keeper, scenario, overrides, count, exit, error);
        }
    }
    keeper_free(&keeper);
    return answer;
}

/* What a plan looks for itself cannot vary: every point would be the same plan. */
static bool may_vary(const struct scenario *scenario, struct user_error *error)
{
    for (uint32_t k = 0; k < scenario->vary_count; k++)
        if (strcmp(scenario->vary[k].path, "load.rate") == 0)
            user_error_set(error, scenario->path, 0, "vary.load.rate",
                           "a plan finds the rates itself; --set vary=nil plans without, and --set load.rate=RATE");
    return !error->set;
}

/* One plan, or one a point of what varies; of those a table of what is recommended where. */
static int plan_scenario(struct plan_context *context, const struct scenario *scenario, struct user_error *error)
{
    if (!may_vary(scenario, error))
        return EXIT_USER;
    size_t points = scenario_variant_count(scenario);
    json_t *answers = json_array();
    int worst = EXIT_OK;
    for (size_t i = 0; i < points && !error->set && !interrupt_requested(); i++) {
        struct scenario_override overrides[SCENARIO_VARY_MAX];
        size_t count = scenario_variant_overrides(scenario, i, overrides);
        struct scenario *variant = scenario_load_variant(scenario, i, error);
        if (variant == NULL)
            break;
        int exit;
        json_t *answer = answer_of(context, variant, overrides, count, &exit, error);
        if (answer != NULL) {
            if (points == 1 || for_machines(context)) {
                int told = tell(context, variant, answer, error);
                exit = told > exit ? told : exit;
            } else if (json_is_null(json_object_get(json_object_get(answer, "recommendation"), "candidate"))) {
                exit = EXIT_WORSE;
            }
            json_array_append_new(answers, answer);
        }
        worst = exit > worst ? exit : worst;
        scenario_free(variant);
    }
    if (points > 1 && !for_machines(context) && json_array_size(answers) > 0)
        plan_print_points(answers, &context->output);
    json_decref(answers);
    return worst;
}

static int plan_all(struct plan_context *context, struct user_error *error)
{
    struct scenario_sets sets;
    int worst = EXIT_OK;
    if (scenario_sets_read(context->arguments, &sets, error)) {
        for (size_t i = 0; i < operand_count(context->arguments) && !error->set && !interrupt_requested(); i++) {
            if (i > 0 && !for_machines(context))
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
    uint32_t threads = argument_workers(arguments, "threads", workers_default(), error);
    int64_t top = argument_integer(arguments, "top", PLAN_ROWS);
    struct plan_context context = {
        .arguments = arguments,
        .output = output_to(command->out, argument_text(arguments, "format")),
        .threads = threads,
        .top = (uint32_t)(top < 1            ? 1
                          : top > UINT32_MAX ? UINT32_MAX
                                             : top),
        .err = command->err,
    };
    if (threads == 0)
        return EXIT_USER;
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
    } else if (context.output.format == OUTPUT_CSV && json_array_size(context.answers) > 0) {
        plan_print_rows(context.answers, &context.output);
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
    .summary = "how many prefill and decode workers, sharded how, for the scenario's targets",
    .description =
        "Searches the counts and shardings that the scenario's pools allow, and aggregated serving on the same\n"
        "machines, for the most for the money within the targets, or for the cheapest that serves a rate. What\n"
        "`vary` lists is planned point by point. Every probe is kept in the database: a search that was interrupted\n"
        "goes on where it was. Exit status 1: nothing can be deployed, or an expectation does not hold.",
    .options = plan_options,
    .run = plan_run,
};
