/* See plan_output.h. */
#include "sim/plan/plan_output.h"

#include "base/arith.h"

#include <inttypes.h>

#define NO_CANDIDATE UINT32_MAX

static const struct probe *at(const struct plan_candidate *item)
{
    return item->reachable ? &item->at[item->worst_seed] : &item->light;
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

static void candidate_columns(struct table *table, bool mixed)
{
    table_column(table, "candidate", mixed ? "colocated" : "candidate");
    table_column(table, "nodes", "nodes");
    table_column(table, "gpus", "GPUs");
    if (!mixed)
        table_column(table, "kv_over", "KV over");
    table_column(table, "max_rate_per_s", "req/s");
    table_column(table, "rate_low_per_s", "low");
    table_column(table, "rate_high_per_s", "high");
    table_column(table, "rate_model_low_per_s", "model low");
    table_column(table, "rate_model_high_per_s", "high");
    table_column(table, "goodput_per_gpu_per_s", "/GPU");
    table_column(table, "ttft_ms", "TTFT ms");
    table_column(table, "tpot_ms", "TPOT ms");
    table_column(table, "prefill_percent", "P %");
    table_column(table, "decode_percent", "D %");
    table_column(table, "kv_peak_percent", "KV %");
    table_column(table, "saturation_percent", "of max %");
    table_column(table, "usd_per_mtok", "$/Mtok");
    table_column(table, "bound_by", "bound by");
}

static void add_candidate(struct table *table, const struct scenario *scenario, const struct plan_candidate *item)
{
    const struct candidate *candidate = &item->candidate;
    const struct probe *probe = at(item);
    table_row(table);
    table_text(table, candidate->label);
    table_integer(table, candidate->machines);
    table_integer(table, candidate->gpus);
    if (!candidate->mixed)
        table_text(table, deployment_paths_name(&candidate->paths));
    table_fixed(table, fixed_round((int64_t)item->rate_micro_per_s, 6, 2), 2);
    if (item->seeds > 1) {
        table_fixed(table, fixed_round((int64_t)item->rate_low_micro_per_s, 6, 2), 2);
        table_fixed(table, fixed_round((int64_t)item->rate_high_micro_per_s, 6, 2), 2);
    } else {
        table_none(table);
        table_none(table);
    }
    if (item->doubted) {
        table_fixed(table, fixed_round((int64_t)item->rate_model_low_micro_per_s, 6, 2), 2);
        table_fixed(table, fixed_round((int64_t)item->rate_model_high_micro_per_s, 6, 2), 2);
    } else {
        table_none(table);
        table_none(table);
    }
    table_fixed(table, fixed_round((int64_t)per_gpu(item->rate_micro_per_s, candidate), 6, 3), 3);
    table_fixed(table, fixed_round(at_target(scenario, probe, TARGET_TTFT), 6, 0), 0);
    table_fixed(table, fixed_round(at_target(scenario, probe, TARGET_TPOT), 6, 1), 1);
    table_fixed(table, fixed_round(probe->prefill_busy, 1, 0), 0);
    table_fixed(table, fixed_round(probe->decode_busy, 1, 0), 0);
    table_fixed(table, fixed_round(probe->kv_peak, 1, 0), 0);
    if (item->saturation_permille > 0)
        table_fixed(table, fixed_round(item->saturation_permille, 1, 0), 0);
    else
        table_none(table);
    if (item->usd_micros_per_mtok > 0)
        table_fixed(table, fixed_round((int64_t)item->usd_micros_per_mtok, 6, 2), 2);
    else
        table_none(table);
    table_text(table, bound_name(item->bound_by));
}

static void print_candidates(const struct scenario *scenario, const struct plan_result *result, bool mixed,
                             const struct output *output)
{
    struct table *table = table_new(NULL);
    candidate_columns(table, mixed);
    for (uint32_t i = 0; i < result->count; i++)
        if (result->items[i].searched && result->items[i].candidate.mixed == mixed)
            add_candidate(table, scenario, &result->items[i]);
    output_table(output, table);
    table_free(table);
}

static void print_frontier(const struct plan_result *result, const struct output *output)
{
    struct table *table = table_new("Frontier: what a user gets against what a GPU yields");
    table_column(table, "kind", "serving");
    table_column(table, "candidate", "candidate");
    table_column(table, "rate_per_s", "req/s");
    table_column(table, "tokens_per_s_per_user", "tokens/s/user");
    table_column(table, "tokens_per_s_per_gpu", "tokens/s/GPU");
    for (uint32_t i = 0; i < result->frontier_count; i++) {
        const struct frontier_point *point = &result->frontier[i];
        table_row(table);
        table_text(table, point->mixed ? "colocated" : "disaggregated");
        table_text(table, point->label);
        table_fixed(table, fixed_round((int64_t)point->rate_micro_per_s, 6, 2), 2);
        table_fixed(table, fixed_round((int64_t)point->tokens_per_s_per_user_milli, 3, 1), 1);
        table_fixed(table, fixed_round((int64_t)point->tokens_per_s_per_gpu_milli, 3, 1), 1);
    }
    output_table(output, table);
    table_free(table);
}

static void print_left_out(const struct plan_result *result, FILE *file)
{
    uint32_t pruned = 0;
    uint32_t refused = 0;
    uint32_t hopeless = 0;
    const struct candidate *example = NULL;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        if (item->candidate.refusal[0] != '\0') {
            refused++;
            example = &item->candidate;
        } else if (!item->searched && item->candidate.bound_micro_per_s == 0) {
            hopeless++;
        } else if (!item->searched && !item->candidate.mixed) {
            pruned++;
        }
    }
    if (result->interrupted)
        return;
    if (hopeless > 0)
        fprintf(file, "%" PRIu32 " candidates were not simulated: they meet the targets at no rate.\n", hopeless);
    if (pruned > 0)
        fprintf(file, "%" PRIu32 " more candidates were not simulated: their upper bounds do not reach the best one.\n",
                pruned);
    if (refused > 0)
        fprintf(file, "%" PRIu32 " candidates cannot be deployed, such as %s: %s\n", refused, example->label,
                example->refusal);
}

/* A short load ends before the queue that a rate too high builds up reaches the targets. */
static void print_short_probes(const struct scenario *scenario, const struct plan_result *result, FILE *file)
{
    uint32_t above = 0;
    for (uint32_t i = 0; i < result->count; i++)
        above += result->items[i].searched && result->items[i].saturation_permille > 1050;
    if (above > 0)
        fprintf(file,
                "%" PRIu32 " of the rates lie above what their candidates complete under overload: probes of %" PRIu32
                " requests end before their queues do. More plan.requests would lower them.\n",
                above, scenario->plan.requests);
}

static void print_targets(const struct scenario *scenario, FILE *file)
{
    static const char *const names[] = {
        [TARGET_TTFT] = "TTFT", [TARGET_TPOT] = "TPOT", [TARGET_E2E] = "E2E", [TARGET_ITL] = "ITL"};
    fprintf(file, "Targets:");
    for (uint32_t t = 0; t < scenario->targets.count; t++) {
        const struct target *target = &scenario->targets.item[t];
        fprintf(file, "%s %s p%g below %g ms", t == 0 ? "" : ",", names[target->metric],
                target->percentile_permille / 10.0, (double)target->limit_ns / 1e6);
    }
    if (scenario->targets.attainment_permille > 0)
        fprintf(file, "; all at once for %g %% of requests", scenario->targets.attainment_permille / 10.0);
    fprintf(file, ".\n");
}

void plan_print(const struct scenario *scenario, const struct plan_result *result, const struct output *output)
{
    if (output->format == OUTPUT_CSV) {
        print_candidates(scenario, result, false, output);
        return;
    }
    FILE *file = output->file;
    bool markdown = output->format == OUTPUT_MARKDOWN;
    fprintf(file, "%s%s\n\n", markdown ? "## " : "",
            scenario->question[0] != '\0' ? scenario->question : scenario->name);
    print_targets(scenario, file);
    fprintf(
        file,
        "Rates are means over %" PRIu32 " seeds with their 95 %% interval; a candidate far "
        "behind the best has one seed and no interval. Latencies are those at the rate of the least favourable "
        "seed, at the target's percentile. The second low and high are what the model's error makes of the rate.\n\n",
        scenario->plan.seeds);
    print_candidates(scenario, result, false, output);
    fprintf(file, "\n");
    if (scenario->plan.compare_mixed) {
        print_candidates(scenario, result, true, output);
        fprintf(file, "\n");
    }
    print_frontier(result, output);
    fprintf(file, "\n");
    print_left_out(result, file);
    print_short_probes(scenario, result, file);
    fprintf(file, "%sRecommendation:%s %s\n", markdown ? "**" : "", markdown ? "**" : "", result->why);
    if (result->interrupted)
        fprintf(file, "Interrupted: what stands above is what was complete. The same command goes on from here.\n");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *milliseconds(int64_t ns)
{
    return json_fixed(fixed_round(ns, 6, 3), 3);
}

static json_t *micro(uint64_t value)
{
    return json_fixed((int64_t)value, 6);
}

static json_t *candidate_json(const struct scenario *scenario, const struct plan_candidate *item)
{
    const struct candidate *candidate = &item->candidate;
    const struct probe *probe = at(item);
    json_t *json = json_object();
    json_object_set_new(json, "candidate", json_string(candidate->label));
    json_object_set_new(json, "prefill", json_integer(candidate->prefill));
    json_object_set_new(json, "decode", json_integer(candidate->decode));
    json_object_set_new(json, "sharding", json_string(candidate->sharding));
    json_object_set_new(json, "nodes", json_integer(candidate->machines));
    json_object_set_new(json, "gpus", json_integer(candidate->gpus));
    json_object_set_new(json, "kv_over", json_string(deployment_paths_name(&candidate->paths)));
    json_object_set_new(json, "max_rate_per_s", micro(item->rate_micro_per_s));
    json_object_set_new(json, "seeds", json_integer(item->seeds));
    json_object_set_new(json, "rate_low_per_s", micro(item->rate_low_micro_per_s));
    json_object_set_new(json, "rate_high_per_s", micro(item->rate_high_micro_per_s));
    json_object_set_new(json, "rate_model_low_per_s",
                        item->doubted ? micro(item->rate_model_low_micro_per_s) : json_null());
    json_object_set_new(json, "rate_model_high_per_s",
                        item->doubted ? micro(item->rate_model_high_micro_per_s) : json_null());
    json_object_set_new(json, "goodput_per_gpu_per_s", micro(per_gpu(item->rate_micro_per_s, candidate)));
    json_object_set_new(json, "goodput_per_node_per_s",
                        micro(candidate->machines == 0 ? 0 : item->rate_micro_per_s / candidate->machines));
    json_object_set_new(json, "ttft_ms", milliseconds(at_target(scenario, probe, TARGET_TTFT)));
    json_object_set_new(json, "tpot_ms", milliseconds(at_target(scenario, probe, TARGET_TPOT)));
    json_object_set_new(json, "prefill_utilization", json_fixed(probe->prefill_busy, 3));
    json_object_set_new(json, "decode_utilization", json_fixed(probe->decode_busy, 3));
    json_object_set_new(json, "kv_peak", json_fixed(probe->kv_peak, 3));
    json_object_set_new(json, "usd_per_mtok",
                        item->usd_micros_per_mtok > 0 ? micro(item->usd_micros_per_mtok) : json_null());
    json_object_set_new(json, "saturation", json_fixed(item->saturation_permille, 3));
    json_object_set_new(json, "bound_by", json_string(bound_name(item->bound_by)));
    return json;
}

static json_t *candidates_json(const struct scenario *scenario, const struct plan_result *result, bool mixed)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < result->count; i++)
        if (result->items[i].searched && result->items[i].candidate.mixed == mixed)
            json_array_append_new(array, candidate_json(scenario, &result->items[i]));
    return array;
}

/* What was not simulated, and why. */
static json_t *left_out_json(const struct plan_result *result)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < result->count && !result->interrupted; i++) {
        const struct candidate *candidate = &result->items[i].candidate;
        if (result->items[i].searched)
            continue;
        bool refused = candidate->refusal[0] != '\0';
        json_t *json = json_object();
        json_object_set_new(json, "candidate", json_string(candidate->label));
        json_object_set_new(json, "bound_per_s", refused ? json_null() : micro(candidate->bound_micro_per_s));
        json_object_set_new(json, "bound_by", json_string(bound_name(candidate->bound_by)));
        json_object_set_new(json, "why",
                            json_string(refused                             ? candidate->refusal
                                        : candidate->bound_micro_per_s == 0 ? "meets the targets at no rate"
                                                                            : "its bound does not reach the best"));
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
        json_object_set_new(json, "kind", json_string(point->mixed ? "colocated" : "disaggregated"));
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
    json_object_set_new(json, "apart", json_fixed(error->apart_permille, 3));
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
static void add_doubt(json_t *recommendation, const struct plan_result *result)
{
    const struct plan_doubt *doubt = &result->doubt;
    const char *const keys[] = {"certain", "error", "ties", "colocated_may_win", "measure"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        json_object_set_new(recommendation, keys[k], json_null());
    if (!doubt->known)
        return;
    json_t *error = json_object();
    json_t *ties = json_array();
    json_t *measures = json_array();
    json_object_set_new(error, "prefill", error_json(&doubt->error[STEP_PREFILL]));
    json_object_set_new(error, "decode", error_json(&doubt->error[STEP_DECODE]));
    for (uint32_t t = 0; t < doubt->tie_count; t++)
        json_array_append_new(ties, json_string(result->items[doubt->ties[t]].candidate.label));
    for (uint32_t m = 0; m < doubt->measure_count; m++)
        json_array_append_new(measures, measure_json(&doubt->measures[m]));
    json_object_set_new(recommendation, "certain", json_boolean(doubt->certain));
    json_object_set_new(recommendation, "error", error);
    json_object_set_new(recommendation, "ties", ties);
    json_object_set_new(recommendation, "colocated_may_win", json_boolean(doubt->colocated_may_win));
    json_object_set_new(recommendation, "measure", measures);
}

json_t *plan_json(const struct scenario *scenario, const struct plan_result *result)
{
    json_t *json = json_object();
    json_t *recommendation = json_object();
    bool any = result->best != NO_CANDIDATE;
    const struct plan_candidate *best = any ? &result->items[result->best] : NULL;
    json_object_set_new(recommendation, "prefill", any ? json_integer(best->candidate.prefill) : json_null());
    json_object_set_new(recommendation, "decode", any ? json_integer(best->candidate.decode) : json_null());
    json_object_set_new(recommendation, "sharding", any ? json_string(best->candidate.sharding) : json_null());
    json_object_set_new(recommendation, "max_rate_per_s", any ? micro(best->rate_micro_per_s) : json_null());
    json_object_set_new(recommendation, "goodput_per_gpu_per_s",
                        any ? micro(per_gpu(best->rate_micro_per_s, &best->candidate)) : json_null());
    json_object_set_new(recommendation, "bound_by", any ? json_string(bound_name(best->bound_by)) : json_null());
    add_doubt(recommendation, result);
    json_object_set_new(recommendation, "why", json_string(result->why));
    json_object_set_new(json, "scenario", json_string(scenario->name));
    json_object_set_new(json, "interrupted", json_boolean(result->interrupted));
    json_object_set_new(json, "candidates", candidates_json(scenario, result, false));
    json_object_set_new(json, "colocated", candidates_json(scenario, result, true));
    json_object_set_new(json, "left_out", left_out_json(result));
    json_object_set_new(json, "frontier", frontier_json(result));
    json_object_set_new(json, "recommendation", recommendation);
    return json;
}
