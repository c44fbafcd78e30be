/* See plan_report.h. */
#include "cli/plan_report.h"

#include "base/arith.h"
#include "cli/plan_decision.h"

#include <inttypes.h>
#include <string.h>

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

/* The probe whose latencies are told. */
static const struct probe *told(const struct plan_candidate *item)
{
    return item->reachable ? plan_at(item) : &item->light;
}

/* The metric's value at the percentile that the targets name, or at p95. */
static int64_t at_target(const struct scenario *scenario, const struct probe *probe, enum target_metric metric)
{
    for (uint32_t t = 0; t < scenario->targets.count; t++)
        if (scenario->targets.item[t].metric == metric)
            return probe->target_ns[t];
    return metric == TARGET_TTFT ? probe->ttft_ns[PROBE_P95] : probe->tpot_ns[PROBE_P95];
}

static uint64_t per_gpu(uint64_t rate_micro_per_s, const struct candidate *candidate)
{
    return candidate->gpus == 0 ? 0 : rate_micro_per_s / candidate->gpus;
}

static json_t *milliseconds(int64_t ns)
{
    return json_fixed(fixed_round(ns, 6, 3), 3);
}

static json_t *micro(uint64_t value)
{
    return json_fixed((int64_t)value, 6);
}

static json_t *positive(uint64_t value)
{
    return value > 0 ? micro(value) : json_null();
}

static const char *serving_name(bool aggregated)
{
    return aggregated ? "aggregated" : "disaggregated";
}

static json_t *candidate_json(const struct scenario *scenario, const struct plan_result *result, uint32_t index)
{
    const struct plan_candidate *item = &result->items[index];
    const struct candidate *candidate = &item->candidate;
    const struct probe *probe = told(item);
    json_t *json = json_object();
    json_object_set_new(json, "candidate", json_string(candidate->label));
    json_object_set_new(json, "recommended", json_boolean(index == result->best));
    json_object_set_new(json, "serving", json_string(serving_name(candidate->aggregated)));
    json_object_set_new(json, "prefill", json_integer(candidate->prefill));
    json_object_set_new(json, "decode", json_integer(candidate->decode));
    json_object_set_new(json, "sharding", json_string(candidate->sharding));
    json_object_set_new(json, "nodes", json_integer(candidate->machines));
    json_object_set_new(json, "gpus", json_integer(candidate->gpus));
    json_object_set_new(json, "kv_over",
                        candidate->aggregated ? json_null() : json_string(deployment_paths_name(&candidate->paths)));
    json_object_set_new(json, "max_rate_per_s", micro(item->rate_micro_per_s));
    json_object_set_new(json, "seeds", json_integer(item->seeds));
    json_object_set_new(json, "rate_low_per_s", micro(item->rate_low_micro_per_s));
    json_object_set_new(json, "rate_high_per_s", micro(item->rate_high_micro_per_s));
    json_object_set_new(json, "rate_model_low_per_s",
                        item->uncertainty_known ? micro(item->rate_model_low_micro_per_s) : json_null());
    json_object_set_new(json, "rate_model_high_per_s",
                        item->uncertainty_known ? micro(item->rate_model_high_micro_per_s) : json_null());
    json_object_set_new(json, "goodput_per_gpu_per_s", micro(per_gpu(item->rate_micro_per_s, candidate)));
    json_object_set_new(json, "goodput_per_node_per_s",
                        micro(candidate->machines == 0 ? 0 : item->rate_micro_per_s / candidate->machines));
    json_object_set_new(json, "ttft_ms", milliseconds(at_target(scenario, probe, TARGET_TTFT)));
    json_object_set_new(json, "tpot_ms", milliseconds(at_target(scenario, probe, TARGET_TPOT)));
    json_object_set_new(json, "prefill_utilization", json_fixed(probe->prefill_busy, 3));
    json_object_set_new(json, "decode_utilization", json_fixed(probe->decode_busy, 3));
    json_object_set_new(json, "kv_peak", json_fixed(probe->kv_peak, 3));
    json_object_set_new(json, "usd_per_hour", positive(candidate->usd_micros_per_hour));
    json_object_set_new(json, "usd_per_mtok", positive(item->usd_micros_per_mtok));
    json_object_set_new(json, "usd_per_mtok_asked", positive(item->asked_usd_micros_per_mtok));
    json_object_set_new(json, "saturation", json_fixed(item->saturation_permille, 3));
    json_object_set_new(json, "bound_by", json_string(bound_name(item->bound_by)));
    return json;
}

/* Those whose rate is known, the recommended one first. */
static json_t *candidates_json(const struct scenario *scenario, const struct plan_result *result)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < result->count; i++)
        if (result->items[result->order[i]].searched)
            json_array_append_new(array, candidate_json(scenario, result, result->order[i]));
    return array;
}

/* What has no rate, and why. */
static json_t *left_out_json(const struct plan_result *result)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < result->count && !result->interrupted; i++) {
        const struct plan_candidate *item = &result->items[result->order[i]];
        const struct candidate *candidate = &item->candidate;
        if (item->searched)
            continue;
        bool refused = candidate->refusal[0] != '\0';
        const char *why = refused ? candidate->refusal
                          : item->dismissed_micro_per_s > 0
                              ? "misses the targets at the rate that would keep it in the running"
                          : candidate->bound_micro_per_s == 0 ? "meets the targets at no rate"
                                                              : "its bound does not reach the best";
        json_t *json = json_object();
        json_object_set_new(json, "candidate", json_string(candidate->label));
        json_object_set_new(json, "serving", json_string(serving_name(candidate->aggregated)));
        json_object_set_new(json, "bound_per_s", refused ? json_null() : micro(candidate->bound_micro_per_s));
        json_object_set_new(json, "bound_by", json_string(bound_name(candidate->bound_by)));
        json_object_set_new(json, "misses_at_per_s", positive(item->dismissed_micro_per_s));
        json_object_set_new(json, "why", json_string(why));
        json_array_append_new(array, json);
    }
    return array;
}

static json_t *frontier_json(const struct plan_result *result)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < result->frontier_count; i++) {
        const struct frontier_point *point = &result->frontier[i];
        json_t *json = json_object();
        json_object_set_new(json, "serving", json_string(serving_name(point->aggregated)));
        json_object_set_new(json, "candidate", json_string(point->label));
        json_object_set_new(json, "rate_per_s", micro(point->rate_micro_per_s));
        json_object_set_new(json, "tokens_per_s_per_user", json_fixed((int64_t)point->tokens_per_s_per_user_milli, 3));
        json_object_set_new(json, "tokens_per_s_per_gpu", json_fixed((int64_t)point->tokens_per_s_per_gpu_milli, 3));
        json_array_append_new(array, json);
    }
    return array;
}

static json_t *error_json(const struct step_error *error)
{
    json_t *json = json_object();
    json_object_set_new(json, "class", json_string(error->class_name));
    json_object_set_new(json, "cases", json_integer(error->rows));
    json_object_set_new(json, "bias", json_fixed(error->bias_permille, 3));
    json_object_set_new(json, "p90", json_fixed(error->p90_permille, 3));
    json_object_set_new(json, "fast", json_fixed(error->fast_permille, 3));
    json_object_set_new(json, "slow", json_fixed(error->slow_permille, 3));
    json_object_set_new(json, "relative", json_fixed(error->relative_permille, 3));
    return json;
}

static json_t *measure_json(const struct plan_measure *measure)
{
    json_t *json = json_object();
    char how[256];
    plan_measure_how(measure, how, sizeof how);
    json_object_set_new(json, "step", json_string(measure->step == STEP_PREFILL ? "prefill" : "decode"));
    json_object_set_new(json, "sharding", json_string(measure->sharding));
    json_object_set_new(json, "gpus", json_integer(measure->gpus));
    json_object_set_new(json, "sequences", json_integer(measure->sequences));
    json_object_set_new(json, "tokens", json_integer((json_int_t)measure->tokens));
    json_object_set_new(json, "model_ms", milliseconds(measure->model_ns));
    json_object_set_new(json, "decides_ms", milliseconds(measure->decides_ns));
    json_object_set_new(json, "below", json_string(measure->below));
    json_object_set_new(json, "above", json_string(measure->above));
    json_object_set_new(json, "how", json_string(how));
    return json;
}

/* What the error of the device model leaves of the recommendation; null where it is not known. */
static void add_uncertainty(json_t *recommendation, const struct plan_result *result)
{
    const struct plan_uncertainty *uncertainty = &result->uncertainty;
    const char *const keys[] = {"certain", "error", "ties", "alternative_may_win", "measure"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        json_object_set_new(recommendation, keys[k], json_null());
    if (!uncertainty->known)
        return;
    json_t *error = json_object();
    json_t *ties = json_array();
    json_t *measures = json_array();
    json_object_set_new(error, "prefill", error_json(&uncertainty->error[STEP_PREFILL]));
    json_object_set_new(error, "decode", error_json(&uncertainty->error[STEP_DECODE]));
    for (uint32_t t = 0; t < uncertainty->tie_count; t++)
        json_array_append_new(ties, json_string(result->items[uncertainty->ties[t]].candidate.label));
    for (uint32_t m = 0; m < uncertainty->measure_count; m++)
        json_array_append_new(measures, measure_json(&uncertainty->measures[m]));
    json_object_set_new(recommendation, "certain", json_boolean(uncertainty->certain));
    json_object_set_new(recommendation, "error", error);
    json_object_set_new(recommendation, "ties", ties);
    json_object_set_new(recommendation, "alternative_may_win", json_boolean(uncertainty->alternative_may_win));
    json_object_set_new(recommendation, "measure", measures);
}

/* Another candidate beside the recommended one: how much it serves for its cost, of what that one does. */
static json_t *beside_json(const struct plan_result *result, uint32_t index)
{
    if (index == NO_CANDIDATE)
        return json_null();
    const struct plan_candidate *item = &result->items[index];
    json_t *json = json_object();
    json_object_set_new(json, "candidate", json_string(item->candidate.label));
    json_object_set_new(json, "serving", json_string(serving_name(item->candidate.aggregated)));
    json_object_set_new(json, "max_rate_per_s", micro(item->rate_micro_per_s));
    json_object_set_new(json, "usd_per_hour", positive(item->candidate.usd_micros_per_hour));
    json_object_set_new(json, "for_its_cost",
                        json_fixed((int64_t)plan_worth_permille(item, &result->items[result->best]), 3));
    return json;
}

static json_t *recommendation_json(const struct scenario *scenario, const struct plan_result *result)
{
    json_t *json = json_object();
    static const char *const keys[] = {"candidate",
                                       "serving",
                                       "prefill",
                                       "decode",
                                       "sharding",
                                       "nodes",
                                       "gpus",
                                       "max_rate_per_s",
                                       "rate_low_per_s",
                                       "rate_high_per_s",
                                       "rate_model_low_per_s",
                                       "rate_model_high_per_s",
                                       "goodput_per_gpu_per_s",
                                       "usd_per_hour",
                                       "usd_per_mtok",
                                       "usd_per_mtok_asked",
                                       "bound_by"};
    bool any = result->best != NO_CANDIDATE;
    json_t *best = any ? candidate_json(scenario, result, result->best) : json_object();
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        json_t *value = json_object_get(best, keys[k]);
        json_object_set_new(json, keys[k], value == NULL ? json_null() : json_incref(value));
    }
    json_decref(best);
    add_uncertainty(json, result);
    json_object_set_new(json, "runner_up", any ? beside_json(result, result->runner_up) : json_null());
    json_object_set_new(json, "alternative", any ? beside_json(result, result->alternative) : json_null());
    json_object_set_new(json, "decision", plan_decision(scenario, result));
    return json;
}

static json_t *targets_json(const struct targets *targets)
{
    static const char *const names[] = {
        [TARGET_TTFT] = "ttft", [TARGET_TPOT] = "tpot", [TARGET_E2E] = "e2e", [TARGET_ITL] = "itl"};
    json_t *array = json_array();
    for (uint32_t t = 0; t < targets->count; t++) {
        json_t *json = json_object();
        json_object_set_new(json, "metric", json_string(names[targets->item[t].metric]));
        json_object_set_new(json, "percentile", json_fixed(targets->item[t].percentile_permille, 1));
        json_object_set_new(json, "below_ms", milliseconds(targets->item[t].limit_ns));
        json_array_append_new(array, json);
    }
    return array;
}

json_t *plan_json(const struct scenario *scenario, const struct plan_result *result)
{
    json_t *json = json_object();
    uint32_t short_probes = 0;
    for (uint32_t i = 0; i < result->count; i++)
        short_probes += result->items[i].searched && result->items[i].short_probes;
    json_object_set_new(json, "scenario", json_string(scenario->name));
    json_object_set_new(json, "question", json_string(scenario->question));
    json_object_set_new(json, "interrupted", json_boolean(result->interrupted));
    json_object_set_new(json, "goal",
                        json_string(scenario->plan.goal == PLAN_SERVE_RATE ? "serve_rate" : "highest_rate"));
    json_object_set_new(json, "asked_rate_per_s", positive(scenario->plan.rate_micro_per_s));
    json_object_set_new(json, "rule", json_string(plan_rule(scenario)));
    json_object_set_new(json, "targets", targets_json(&scenario->targets));
    json_object_set_new(json, "attainment",
                        scenario->targets.attainment_permille > 0 ? json_fixed(scenario->targets.attainment_permille, 3)
                                                                  : json_null());
    json_object_set_new(json, "whole_trace", json_boolean(result->whole_trace));
    json_object_set_new(json, "requests", json_integer(result->requests));
    json_object_set_new(json, "seeds", json_integer(result->seeds));
    json_object_set_new(json, "short_probes", json_integer(short_probes));
    json_object_set_new(json, "recommendation", recommendation_json(scenario, result));
    json_object_set_new(json, "candidates", candidates_json(scenario, result));
    json_object_set_new(json, "left_out", left_out_json(result));
    json_object_set_new(json, "frontier", frontier_json(result));
    return json;
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* A column of a table that is made from an array of JSON objects. */
struct view {
    const char *key;
    const char *heading;
    unsigned decimals;
    unsigned times;    /* 100: shares in per cent */
    unsigned optional; /* where the width does not suffice those with the highest go first; 0: stays */
};

static void add_cell(struct table *table, const json_t *value, const struct view *view)
{
    if (json_is_string(value)) {
        table_text(table, json_string_value(value));
    } else if (json_is_integer(value)) {
        table_integer(table, json_integer_value(value));
    } else if (json_is_real(value)) {
        double unit = view->times > 0 ? view->times : 1;
        for (unsigned d = 0; d < view->decimals; d++)
            unit *= 10;
        double scaled = json_real_value(value) * unit;
        table_fixed(table, (int64_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5), view->decimals);
    } else if (json_is_boolean(value)) {
        table_text(table, json_is_true(value) ? "yes" : "no");
    } else {
        table_none(table);
    }
}

static void print_view(const char *title, const json_t *rows, const struct view *views, size_t count, uint32_t top,
                       const struct output *output)
{
    struct table *table = table_new(title);
    for (size_t v = 0; v < count; v++) {
        table_column(table, views[v].key, views[v].heading);
        table_column_optional(table, views[v].optional);
    }
    for (size_t r = 0; r < json_array_size(rows) && r < top; r++) {
        const json_t *row = json_array_get(rows, r);
        table_row(table);
        for (size_t v = 0; v < count; v++)
            add_cell(table, json_object_get(row, views[v].key), &views[v]);
        if (json_is_true(json_object_get(row, "recommended")))
            table_row_marked(table);
    }
    output_table(output, table);
    table_free(table);
}

static void print_candidates(const json_t *plan, const struct output *output, uint32_t top)
{
    static const struct view views[] = {
        {"candidate", "candidate", 0, 0, 0},
        {"nodes", "nodes", 0, 0, 4},
        {"gpus", "GPUs", 0, 0, 1},
        {"kv_over", "KV over", 0, 0, 6},
        {"max_rate_per_s", "req/s", 2, 0, 0},
        {"rate_low_per_s", "low", 2, 0, 2},
        {"rate_high_per_s", "high", 2, 0, 2},
        {"rate_model_low_per_s", "model low", 2, 0, 6},
        {"rate_model_high_per_s", "high", 2, 0, 6},
        {"goodput_per_gpu_per_s", "/GPU", 3, 0, 5},
        {"ttft_ms", "TTFT ms", 0, 0, 3},
        {"tpot_ms", "TPOT ms", 1, 0, 3},
        {"prefill_utilization", "P %", 0, 100, 8},
        {"decode_utilization", "D %", 0, 100, 8},
        {"kv_peak", "KV %", 0, 100, 8},
        {"saturation", "of max %", 0, 100, 9},
        {"usd_per_hour", "$/h", 2, 0, 1},
        {"usd_per_mtok", "$/Mtok", 2, 0, 3},
        {"bound_by", "bound by", 0, 0, 7},
    };
    const json_t *rows = json_object_get(plan, "candidates");
    print_view(NULL, rows, views, sizeof views / sizeof *views, top, output);
    if (json_array_size(rows) > top)
        fprintf(output->file, "%zu more: --top %zu shows them.\n", json_array_size(rows) - top, json_array_size(rows));
}

/* A row: a candidate, or one left out, and `own`, what the plan says beside them. */
static void add_row(json_t *rows, json_t *item, json_t *own)
{
    json_t *row = json_copy(item);
    json_object_set(row, "plan", own);
    json_array_append_new(rows, row);
}

void plan_print_rows(const json_t *plans, const struct output *output)
{
    static const char *const lists[] = {"candidates", "left_out"};
    json_t *rows = json_array();
    for (size_t p = 0; p < json_array_size(plans); p++) {
        json_t *own = json_copy(json_array_get(plans, p));
        json_t *brief = json_copy(own);
        bool first = true;
        for (size_t k = 0; k < 2; k++) {
            json_object_del(own, lists[k]);
            json_object_del(brief, lists[k]);
        }
        json_object_del(brief, "recommendation");
        json_object_del(brief, "frontier");
        for (size_t k = 0; k < 2; k++) {
            const json_t *list = json_object_get(json_array_get(plans, p), lists[k]);
            for (size_t i = 0; i < json_array_size(list); i++, first = false)
                add_row(rows, json_array_get(list, i), first ? own : brief);
        }
        json_decref(own);
        json_decref(brief);
    }
    output_rows(output, rows);
    json_decref(rows);
}

static void print_frontier(const json_t *plan, const struct output *output, uint32_t top)
{
    static const struct view views[] = {
        {"serving", "serving", 0, 0, 1},
        {"candidate", "candidate", 0, 0, 0},
        {"rate_per_s", "req/s", 2, 0, 0},
        {"tokens_per_s_per_user", "tokens/s/user", 1, 0, 0},
        {"tokens_per_s_per_gpu", "tokens/s/GPU", 1, 0, 0},
    };
    print_view("Frontier: what a user gets against what a GPU yields", json_object_get(plan, "frontier"), views,
               sizeof views / sizeof *views, top, output);
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

#define TEXT_WIDTH 88
#define LABEL_WIDTH 16

/* Words from column `indent` on, broken between them before TEXT_WIDTH, or the output's where that is less. */
static void print_words(const struct output *output, const char *text, size_t indent)
{
    FILE *file = output->file;
    size_t width = output->width < TEXT_WIDTH ? output->width : TEXT_WIDTH;
    size_t column = indent;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > indent && column + 1 + word > width) {
            fprintf(file, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', file);
            column++;
        }
        fwrite(text, 1, word, file);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', file);
}

static void print_decision(const json_t *plan, const struct output *output)
{
    static const struct {
        const char *key;
        const char *label;
    } lines[] = {
        {"deploy", "Deploy"},
        {"serves", "Serves"},
        {"costs", "Costs"},
        {"bound_by", "Bound by"},
        {"sure", "Sure?"},
        {"measure_next", "Measure next"},
        {"runner_up", "Runner-up"},
        {"aggregated_instead", "Aggregated"},
        {"disaggregated_instead", "Disaggregated"},
    };
    const json_t *decision = json_object_get(json_object_get(plan, "recommendation"), "decision");
    bool markdown = output->format == OUTPUT_MARKDOWN;
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        const char *text = json_string_value(json_object_get(decision, lines[k].key));
        if (text == NULL)
            continue;
        if (markdown) {
            fprintf(output->file, "- **%s:** %s\n", lines[k].label, text);
            continue;
        }
        output_bold(output, lines[k].label, LABEL_WIDTH);
        print_words(output, text, LABEL_WIDTH);
    }
    fputc('\n', output->file);
}

static const char *text_of(const json_t *plan, const char *key)
{
    const char *text = json_string_value(json_object_get(plan, key));
    return text == NULL ? "" : text;
}

static void print_asked(const json_t *plan, const struct output *output)
{
    const json_t *targets = json_object_get(plan, "targets");
    const json_t *attainment = json_object_get(plan, "attainment");
    char text[1024] = "Targets:";
    size_t used = strlen(text);
    for (size_t t = 0; t < json_array_size(targets) && used < sizeof text; t++) {
        const json_t *target = json_array_get(targets, t);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %s p%g below %g ms", t == 0 ? "" : ",",
                                 text_of(target, "metric"), json_number_value(json_object_get(target, "percentile")),
                                 json_number_value(json_object_get(target, "below_ms")));
    }
    if (json_is_real(attainment) && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, "; all at once for %g %% of requests",
                                 100 * json_real_value(attainment));
    if (json_is_real(json_object_get(plan, "asked_rate_per_s")) && used < sizeof text)
        snprintf(text + used, sizeof text - used, "; %g requests/s are to be served",
                 json_real_value(json_object_get(plan, "asked_rate_per_s")));
    print_words(output, text, 0);
}

static void print_rule(const json_t *plan, const struct output *output)
{
    char text[512];
    long long requests = json_integer_value(json_object_get(plan, "requests"));
    bool whole = json_is_true(json_object_get(plan, "whole_trace"));
    int used = snprintf(text, sizeof text, "Ranked by %s. ", text_of(plan, "rule"));
    if (whole)
        snprintf(
            text + used, sizeof text - (size_t)used,
            "Each rate is that of the whole trace, %lld requests; latencies are at it, at the targets' percentiles.",
            requests);
    else
        snprintf(text + used, sizeof text - (size_t)used,
                 "Rates are means over %lld seeds of %lld requests, with their 95 %% interval; latencies are those "
                 "under the least favourable seed, at the targets' percentiles.",
                 (long long)json_integer_value(json_object_get(plan, "seeds")), requests);
    print_words(output, text, 0);
    fputc('\n', output->file);
}

static void print_left_out(const json_t *plan, const struct output *output)
{
    FILE *file = output->file;
    const json_t *left_out = json_object_get(plan, "left_out");
    size_t refused = 0;
    size_t dismissed = 0;
    size_t hopeless = 0;
    size_t bounded = 0;
    const json_t *example = NULL;
    for (size_t i = 0; i < json_array_size(left_out); i++) {
        const json_t *item = json_array_get(left_out, i);
        const json_t *bound = json_object_get(item, "bound_per_s");
        if (json_is_null(bound)) {
            example = example == NULL ? item : example;
            refused++;
        } else if (json_is_real(json_object_get(item, "misses_at_per_s"))) {
            dismissed++;
        } else if (json_number_value(bound) > 0) {
            bounded++;
        } else {
            hopeless++;
        }
    }
    char text[1024];
    if (dismissed > 0)
        fprintf(file, "%zu more miss the targets at the rate that would keep them in the running.\n", dismissed);
    if (bounded > 0)
        fprintf(file, "%zu more were not simulated: their upper bounds do not reach the best one.\n", bounded);
    if (hopeless > 0)
        fprintf(file, "%zu more were not simulated: they meet the targets at no rate.\n", hopeless);
    if (refused > 0) {
        snprintf(text, sizeof text, "%zu cannot be deployed, such as %s: %s", refused, text_of(example, "candidate"),
                 text_of(example, "why"));
        print_words(output, text, 0);
    }
}

void plan_print(const json_t *plan, const struct output *output, uint32_t top)
{
    FILE *file = output->file;
    const char *question = text_of(plan, "question");
    fprintf(file, "%s%s\n", output->format == OUTPUT_MARKDOWN ? "## " : "",
            question[0] != '\0' ? question : text_of(plan, "scenario"));
    print_asked(plan, output);
    fputc('\n', file);
    print_decision(plan, output);
    print_rule(plan, output);
    print_candidates(plan, output, top);
    print_left_out(plan, output);
    long long short_probes = json_integer_value(json_object_get(plan, "short_probes"));
    if (short_probes > 0) {
        char text[128];
        snprintf(text, sizeof text,
                 "%lld of the rates lie above what overload completes: a longer load would lower them.", short_probes);
        print_words(output, text, 0);
    }
    fputc('\n', file);
    print_frontier(plan, output, top);
    if (json_is_true(json_object_get(plan, "interrupted")))
        fprintf(file, "Interrupted: this is what was complete. The same command goes on from here.\n");
}

/* What a point's predecessor recommended, and serves here for its cost, of what is recommended here; NULL: it is not
 * among those that came near. */
static const json_t *kept(const json_t *plan, const char *label)
{
    const json_t *candidates = json_object_get(plan, "candidates");
    for (size_t i = 0; i < json_array_size(candidates); i++)
        if (strcmp(text_of(json_array_get(candidates, i), "candidate"), label) == 0)
            return json_array_get(candidates, i);
    return NULL;
}

void plan_print_points(const json_t *plans, const struct output *output)
{
    struct table *table = table_new(NULL);
    const char *path;
    const json_t *value;
    json_object_foreach(json_object_get(json_array_get(plans, 0), "params"), path, value)
        table_column(table, path, path);
    static const struct view views[] = {
        {"candidate", "deploy", 0, 0, 0},     {"max_rate_per_s", "req/s", 2, 0, 0}, {"rate_low_per_s", "low", 2, 0, 2},
        {"rate_high_per_s", "high", 2, 0, 2}, {"usd_per_hour", "$/h", 2, 0, 1},     {"usd_per_mtok", "$/Mtok", 2, 0, 1},
        {"bound_by", "bound by", 0, 0, 3},
    };
    for (size_t v = 0; v < sizeof views / sizeof *views; v++) {
        table_column(table, views[v].key, views[v].heading);
        table_column_optional(table, views[v].optional);
    }
    table_column(table, "before", "the one above");
    const char *before = "";
    for (size_t i = 0; i < json_array_size(plans); i++) {
        const json_t *plan = json_array_get(plans, i);
        const json_t *best = json_object_get(plan, "recommendation");
        table_row(table);
        json_object_foreach(json_object_get(plan, "params"), path, value) table_text(table, json_string_value(value));
        for (size_t v = 0; v < sizeof views / sizeof *views; v++)
            add_cell(table, json_object_get(best, views[v].key), &views[v]);
        const char *label = text_of(best, "candidate");
        const json_t *old = kept(plan, before);
        char text[64];
        if (*before == '\0' || *label == '\0')
            snprintf(text, sizeof text, "-");
        else if (strcmp(before, label) == 0)
            snprintf(text, sizeof text, "the same");
        else if (old == NULL)
            snprintf(text, sizeof text, "changes; it is not near here");
        else
            snprintf(text, sizeof text, "changes; it serves %.2f/s here",
                     json_number_value(json_object_get(old, "max_rate_per_s")));
        table_text(table, text);
        before = label;
    }
    output_table(output, table);
    table_free(table);
}

const char *plan_deploys(const json_t *plan)
{
    return text_of(json_object_get(json_object_get(plan, "recommendation"), "decision"), "deploy");
}
