/* The two commands that need no simulation, explain and compare, and what all of them share. */
#include "cli/command.h"
#include "base/check.h"
#include "run/compare/compare.h"
#include "cli/explain_placement.h"
#include "cli/explain_memory.h"
#include "cli/explain_transfer.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/output.h"
#include "run/results/results.h"
#include "world/scenario/scenario_lua.h"
#include "cli/commands.h"
#include "sim/check/first_divergence.h"
#include "cli/explain_step.h"

#include <stdlib.h>
#include <string.h>

/* ---- explain ---------------------------------------------------------------------------------------------------- */

static const struct option explain_options[] = {
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    HARDWARE_OPTION,
    {"transfer", "TOKENS", "instead: the transfer plan of a prompt of so many tokens", OPTION_INTEGER},
    {"step", "[prefill:]COUNT,CONTEXT", "instead: what a step of COUNT sequences, or prompt tokens, is made of",
     OPTION_TEXT},
    {"format", OUTPUT_FORMATS, "of the answer; csv and md with --step", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

static const struct pool *pool_of(const struct scenario *scenario, enum node_role role)
{
    for (uint32_t k = 0; k < scenario->pool_count; k++)
        if (scenario->pools[k].role == role)
            return &scenario->pools[k];
    return NULL;
}

static bool pool_geometry(const struct scenario *scenario, enum node_role role, const char *role_name,
                          struct kv_geometry *geometry, struct user_error *error)
{
    const struct pool *pool = pool_of(scenario, role);
    if (pool == NULL) {
        user_error_set(error, scenario->path, 0, "pools", "--transfer wants a %s pool, and there is none", role_name);
        return false;
    }
    const struct architecture model = scenario_served(scenario, pool);
    enum geometry_refusal refusal =
        kv_geometry_make(&model, pool->shardings[0], pool->page_tokens, pool->layout, geometry);
    if (refusal == GEOMETRY_OK)
        return true;
    user_error_set(error, scenario->path, 0, pool->name, "%s", geometry_refusal_text(refusal));
    return false;
}

/* The plan from the first attention group of a prefiller to the first of a decoder. The last token of a prompt is the
 * decoder's own to compute: it is not moved. */
static bool explain_plan(const struct scenario *scenario, uint32_t prompt_tokens, const struct output *output,
                         struct user_error *error)
{
    uint32_t tokens = prompt_tokens - 1;
    struct kv_geometry source;
    struct kv_geometry destination;
    if (!pool_geometry(scenario, ROLE_PREFILL, "prefill", &source, error) ||
        !pool_geometry(scenario, ROLE_DECODE, "decode", &destination, error))
        return false;
    struct transfer_plan *plan = memory_zeroed(1, sizeof *plan);
    uint32_t tail_writes = scenario_served(scenario, pool_of(scenario, ROLE_DECODE)).tail_writes;
    enum geometry_refusal refusal = transfer_plan_make(&source, 0, &destination, 0, 0, plan);
    struct transfer_plan *behind = NULL;
    if (refusal == GEOMETRY_OK && plan->window > 0) {
        plan->behind = behind = memory_get(sizeof *behind);
        refusal = transfer_plan_make_behind(&source, 0, &destination, 0, 0, behind);
    }
    if (refusal != GEOMETRY_OK) {
        char text[512];
        explain_refusal(refusal, &source, &destination, text, sizeof text);
        user_error_set(error, scenario->path, 0, NULL, "%s", text);
    } else if (output->format == OUTPUT_JSON) {
        json_t *json = explain_transfer_json(plan, tokens, tail_writes);
        output_json(output, json);
        json_decref(json);
    } else if (!explain_transfer_print(output->file, plan, tokens, tail_writes)) {
        user_error_set(error, NULL, 0, NULL, "the transfer plan could not be written");
    }
    free(behind);
    free(plan);
    return !error->set;
}

static void explain_scenario(const struct scenario *scenario, const struct output *output)
{
    if (output->format != OUTPUT_JSON) {
        scenario_explain(scenario, output->file);
        explain_memory_print(scenario, output->file);
        explain_placement_print(scenario, output->file);
        return;
    }
    json_t *json = scenario_explain_json(scenario);
    explain_memory_json(scenario, json);
    explain_placement_json(scenario, json);
    output_json(output, json);
    json_decref(json);
}

static int explain_run(const struct command_context *context, const struct arguments *arguments,
                       struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    int64_t tokens = argument_integer(arguments, "transfer", -1);
    if (tokens == 0 || tokens > REQUEST_TOKENS_MAX) {
        user_error_set(error, NULL, 0, NULL, "--transfer: a prompt has 1 to %d tokens", REQUEST_TOKENS_MAX);
        return EXIT_USER;
    }
    const char *step = argument_text(arguments, "step");
    struct step_wanted wanted;
    if (step != NULL && !step_wanted_read(step, &wanted, error))
        return EXIT_USER;
    if (step == NULL && (output.format == OUTPUT_CSV || output.format == OUTPUT_MARKDOWN)) {
        user_error_set(error, NULL, 0, "--format", "csv and md are of --step; text or json is wanted");
        return EXIT_USER;
    }
    struct scenario_sets sets;
    if (scenario_sets_read(arguments, &sets, error)) {
        struct scenario *scenario = scenario_load(operand(arguments, 0), sets.sets, sets.count, error);
        if (scenario != NULL && step != NULL)
            explain_step(scenario, &wanted, &output, error);
        else if (scenario != NULL && tokens > 0)
            explain_plan(scenario, (uint32_t)tokens, &output, error);
        else if (scenario != NULL)
            explain_scenario(scenario, &output);
        if (scenario != NULL)
            scenario_free(scenario);
    }
    scenario_sets_free(&sets);
    return error->set ? EXIT_USER : EXIT_OK;
}

const struct command command_explain = {
    .name = "explain",
    .operands = "SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "the resolved scenario, or the transfer plan of one prompt",
    .description =
        "Prints every value of the scenario with where it comes from: a default, a line of a file, or --set;\n"
        "then on which machine each instance stands, and over what prefillers reach decoders.\n"
        "With --transfer it prints what moving one prompt from a prefiller to a decoder takes: for each pair\n"
        "of ranks the runs, bytes and offsets of the first page, writes per layer, and the number of writes\n"
        "that the decoder waits for. The last token of a prompt is computed by the decoder and not moved.\n"
        "With --step it prints every operator of one step: its time, where the estimate comes from (a row of a\n"
        "measured table, interpolation between rows, a formula), the table, and what bounds it.",
    .options = explain_options,
    .run = explain_run,
};

/* ---- compare ---------------------------------------------------------------------------------------------------- */

static const struct option compare_options[] = {
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* Results of benchmarks are JSON, and no run is called so. */
static bool is_file(const char *operand)
{
    const char *ending = strrchr(operand, '.');
    return ending != NULL && (strcmp(ending, ".json") == 0 || strcmp(ending, ".jsonl") == 0);
}

static int compare_run(const struct command_context *context, const struct arguments *arguments,
                       struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    interrupt_install();
    struct results *store = results_open(database_path(arguments), RESULTS_READ, error);
    if (store == NULL)
        return EXIT_USER;
    int file = is_file(operand(arguments, 1)) ? 1 : is_file(operand(arguments, 0)) ? 0 : -1;
    int64_t a = results_run_lookup(store, operand(arguments, file == 0 ? 1 : 0), error);
    int64_t b = a == 0 || file >= 0 ? 0 : results_run_lookup(store, operand(arguments, 1), error);
    if (b != 0)
        compare_runs(store, a, b, sim_divergence, &output, error);
    else if (a != 0 && file >= 0)
        compare_measurement(store, a, operand(arguments, (unsigned)file), &output, error);
    results_close(store, error);
    if (interrupt_requested())
        return EXIT_INTERRUPTED;
    return error->set ? EXIT_USER : EXIT_OK;
}

const struct command command_compare = {
    .name = "compare",
    .operands = "A B",
    .operands_min = 2,
    .operands_max = 2,
    .summary = "two stored runs side by side, or a run and a benchmark's result",
    .description =
        "A and B are a run's number, last, last~N (the Nth before the last), or SCENARIO/SEED. Simulated runs whose\n"
        "decisions differ are simulated again to show the first one in which they part.\n"
        "One may be a file, FILE.json or FILE.jsonl: what vllm bench serve, sglang.bench_serving, aiperf or "
        "genai-perf\n"
        "measured. Differences are then those of the prediction from the measurement.",
    .options = compare_options,
    .run = compare_run,
};
