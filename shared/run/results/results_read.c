/* Reading runs and findings, from the views alone. See results.h. */
#include "base/arith.h"
#include "host/memory.h"
#include "host/output.h"
#include "host/quantiles.h"
#include "host/stats.h"
#include "run/results/results_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a query to its end, handing each row to `take`. Its parameters are `number` and, where it has a second,
 * `text`. */
static bool each_row(struct results *store, const char *sql, int64_t number, const char *text,
                     bool (*take)(sqlite3_stmt *row, void *context), void *context, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store, sql, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, number);
    if (text != NULL)
        sqlite3_bind_text(statement, 2, text, -1, SQLITE_TRANSIENT);
    int code = sqlite3_step(statement);
    while (code == SQLITE_ROW && take(statement, context))
        code = sqlite3_step(statement);
    if (code != SQLITE_DONE)
        results_fail(store, error, "reading results");
    sqlite3_finalize(statement);
    return code == SQLITE_DONE;
}

static void column_copy(char *to, size_t size, sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    snprintf(to, size, "%s", text == NULL ? "" : text);
}

static uint64_t column_count(sqlite3_stmt *row, int column)
{
    return (uint64_t)sqlite3_column_int64(row, column);
}

static uint64_t column_hex(sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    return text == NULL ? 0 : strtoull(text, NULL, 16);
}

/* ---- Reports ---------------------------------------------------------------------------------------------------- */

static bool take_run(sqlite3_stmt *row, void *context)
{
    struct run_report *report = context;
    report->run = sqlite3_column_int64(row, 0);
    column_copy(report->scenario, sizeof report->scenario, row, 1);
    column_copy(report->identity, sizeof report->identity, row, 2);
    column_copy(report->build, sizeof report->build, row, 3);
    column_copy(report->backend, sizeof report->backend, row, 4);
    column_copy(report->kind, sizeof report->kind, row, 5);
    column_copy(report->params, sizeof report->params, row, 6);
    report->seed = column_count(row, 7);
    report->trace_hash = column_hex(row, 8);
    report->event_count = column_count(row, 9);
    report->final_draw = column_hex(row, 10);
    report->requests = column_count(row, 11);
    report->completed = column_count(row, 12);
    report->rejected = column_count(row, 13);
    report->failed = column_count(row, 14);
    report->aborted = column_count(row, 15);
    report->prompt_tokens = column_count(row, 16);
    report->output_tokens = column_count(row, 17);
    report->duration_ns = sqlite3_column_int64(row, 18);
    report->met_all_targets = column_count(row, 19);
    report->counted = column_count(row, 20);
    report->attainment_asked_permille = (uint32_t)column_count(row, 21);
    report->has_warmup = sqlite3_column_int64(row, 22) > 0;
    return true;
}

static bool take_hidden(sqlite3_stmt *row, void *context)
{
    struct run_report *report = context;
    uint64_t transfer_ns = column_count(row, 0);
    if (transfer_ns > 0)
        report->transfer_hidden_permille = (int32_t)mul_div_floor_u64(column_count(row, 1), 1000, transfer_ns);
    return true;
}

static bool take_mean(sqlite3_stmt *row, void *context)
{
    struct metric_summary *metric = context;
    metric->count = column_count(row, 0);
    metric->mean_ns = sqlite3_column_int64(row, 1);
    metric->max_ns = sqlite3_column_int64(row, 2);
    return true;
}

static bool take_percentile(sqlite3_stmt *row, void *context)
{
    struct metric_summary *metric = context;
    int64_t value = sqlite3_column_int64(row, 1);
    switch (sqlite3_column_int(row, 0)) {
    case 50:
        metric->p50_ns = value;
        break;
    case 90:
        metric->p90_ns = value;
        break;
    case 95:
        metric->p95_ns = value;
        break;
    default:
        metric->p99_ns = value;
    }
    return true;
}

static int64_t column_known(sqlite3_stmt *row, int column, int64_t otherwise)
{
    return sqlite3_column_type(row, column) == SQLITE_NULL ? otherwise : sqlite3_column_int64(row, column);
}

static bool take_instance(sqlite3_stmt *row, void *context)
{
    struct run_report *report = context;
    struct instance_report *grown =
        memory_resized(report->instances, (report->instance_count + (size_t)1) * sizeof *report->instances);
    if (grown == NULL)
        return false;
    report->instances = grown;
    struct instance_report *instance = &grown[report->instance_count++];
    memset(instance, 0, sizeof *instance);
    column_copy(instance->name, sizeof instance->name, row, 0);
    column_copy(instance->role, sizeof instance->role, row, 1);
    instance->ranks = (uint32_t)column_count(row, 2);
    instance->requests = column_count(row, 3);
    instance->utilization_permille = (uint32_t)column_count(row, 4);
    instance->kv_used_peak_permille = (uint32_t)column_count(row, 5);
    instance->compute_bound_permille = (uint32_t)column_count(row, 6);
    instance->bandwidth_bound_permille = (uint32_t)column_count(row, 7);
    instance->communication_bound_permille = (uint32_t)column_count(row, 8);
    instance->overhead_bound_permille = (uint32_t)column_count(row, 9);
    instance->preemptions = column_count(row, 10);
    instance->nic_bytes = column_count(row, 11);
    instance->steps = column_count(row, 12);
    instance->node_ns = column_known(row, 13, -1);
    instance->clock_offset_ns = column_known(row, 14, 0);
    instance->clock_error_ns = column_known(row, 15, -1);
    return true;
}

/* One metric a query, from its views: what SQLite sorts is freed at a query's end. */
static bool read_metric(struct results *store, int64_t run, const char *views, const char *name,
                        struct metric_summary *metric, struct user_error *error)
{
    char sql[160];
    snprintf(sql, sizeof sql, "SELECT count, mean_ns, max_ns FROM run_%s_mean WHERE run_id = ? AND metric = ?", views);
    if (!each_row(store, sql, run, name, take_mean, metric, error))
        return false;
    snprintf(sql, sizeof sql, "SELECT percentile, value_ns FROM run_%s_percentile WHERE run_id = ? AND metric = ?",
             views);
    return metric->count == 0 || each_row(store, sql, run, name, take_percentile, metric, error);
}

/* ---- Latencies of requests ----------------------------------------------------------------------------------------
 */

/* All latencies and spans of a run's requests in two readings of its rows. The views say the same of each, and are for
 * users: they sort the rows once a metric, and of a million requests that takes longer than simulating them. */
#define LATENCIES (3 + SPAN_COUNT)

/* Most values that one second reading keeps; metrics that need more have readings of their own. */
#define KEPT_MAX 1000000u

#define REPORTED 4
static const uint32_t reported_permille[REPORTED] = {500, 900, 950, 990};

struct latencies {
    struct quantiles *of[LATENCIES]; /* the reported quantiles, then the targets' */
    struct run_report *report;
    uint64_t requests;
    int first; /* of those that are kept in this reading */
    int end;
};

/* Of a target's metric among the columns of latencies. A request of one token has no TPOT, and misses none. */
static int column_of(enum target_metric metric)
{
    return metric == TARGET_TTFT ? 0 : metric == TARGET_TPOT ? 1 : 2;
}

static bool take_counts(sqlite3_stmt *row, void *context)
{
    struct latencies *latencies = context;
    latencies->requests++;
    latencies->report->cached_tokens += column_count(row, LATENCIES);
    for (int k = 0; k < LATENCIES; k++)
        if (sqlite3_column_type(row, k) != SQLITE_NULL)
            quantiles_count(latencies->of[k], sqlite3_column_int64(row, k));
    for (uint32_t t = 0; t < latencies->report->target_count; t++) {
        struct target_report *target = &latencies->report->targets[t];
        target->missed += target->target.metric != TARGET_ITL &&
                          sqlite3_column_int64(row, column_of(target->target.metric)) > target->target.limit_ns;
    }
    return true;
}

static bool take_kept(sqlite3_stmt *row, void *context)
{
    struct latencies *latencies = context;
    for (int k = latencies->first; k < latencies->end; k++)
        if (sqlite3_column_type(row, k) != SQLITE_NULL)
            quantiles_keep(latencies->of[k], sqlite3_column_int64(row, k));
    return true;
}

/* Of as many metrics at once as fit. */
static bool keep_all(struct results *store, const char *sql, int64_t run, struct latencies *latencies,
                     struct user_error *error)
{
    uint64_t to_keep[LATENCIES];
    for (int k = 0; k < LATENCIES; k++)
        to_keep[k] = quantiles_counted(latencies->of[k]);
    bool good = true;
    for (int k = 0; good && k < LATENCIES; k = latencies->end) {
        uint64_t sum = to_keep[k];
        latencies->first = k;
        latencies->end = k + 1;
        while (latencies->end < LATENCIES && sum + to_keep[latencies->end] <= KEPT_MAX)
            sum += to_keep[latencies->end++];
        good = sum == 0 || each_row(store, sql, run, NULL, take_kept, latencies, error);
    }
    return good;
}

static struct metric_summary summary_of(const struct quantiles_result *result)
{
    return (struct metric_summary){.count = result->count,
                                   .mean_ns = result->mean,
                                   .p50_ns = result->at[0],
                                   .p90_ns = result->at[1],
                                   .p95_ns = result->at[2],
                                   .p99_ns = result->at[3],
                                   .max_ns = result->max};
}

/* What is asked of a column: what is reported of each, and what targets ask of it, in their order. */
static struct quantiles *quantiles_of(const struct run_report *report, int column)
{
    uint32_t permille[QUANTILES_MAX];
    uint32_t count = REPORTED;
    memcpy(permille, reported_permille, sizeof reported_permille);
    for (uint32_t t = 0; t < report->target_count; t++)
        if (report->targets[t].target.metric != TARGET_ITL && column_of(report->targets[t].target.metric) == column)
            permille[count++] = report->targets[t].target.percentile_permille;
    return quantiles_make(permille, count);
}

static void judge_latencies(struct run_report *report, int column, const struct quantiles_result *result,
                            uint64_t unserved)
{
    uint32_t place = REPORTED;
    for (uint32_t t = 0; t < report->target_count; t++) {
        struct target_report *target = &report->targets[t];
        if (target->target.metric == TARGET_ITL || column_of(target->target.metric) != column)
            continue;
        target->known = result->count > 0;
        target->value_ns = result->at[place++];
        target->missed += unserved;
        target->met = report->counted > 0 &&
                      target->missed * 1000 <= report->counted * (1000 - target->target.percentile_permille);
    }
}

static bool read_latencies(struct results *store, int64_t run, struct run_report *report, struct user_error *error)
{
    char sql[512] = "SELECT ttft_ns, tpot_ns, e2e_ns";
    size_t used = strlen(sql);
    for (int span = 0; span < SPAN_COUNT; span++)
        used += (size_t)snprintf(sql + used, sizeof sql - used, ", %s_ns", span_names[span]);
    snprintf(sql + used, sizeof sql - used, ", cached_tokens FROM request_latency WHERE run_id = ?");
    struct latencies latencies = {.report = report};
    for (int k = 0; k < LATENCIES; k++)
        latencies.of[k] = quantiles_of(report, k);
    bool good =
        each_row(store, sql, run, NULL, take_counts, &latencies, error) && keep_all(store, sql, run, &latencies, error);
    if (good) {
        /* A client sees when it sent a request and when tokens came, and nothing of what lies between. */
        bool outside = strcmp(report->backend, "live") == 0;
        struct metric_summary *metrics[3] = {&report->ttft, &report->tpot, &report->e2e};
        for (int k = 0; k < LATENCIES; k++) {
            struct quantiles_result result = quantiles_result(latencies.of[k]);
            *(k < 3 ? metrics[k] : &report->spans[k - 3]) = summary_of(&result);
            if (k > 3 && k < LATENCIES - 1 && outside)
                report->spans[k - 3] = (struct metric_summary){.count = 0};
            judge_latencies(report, k, &result, report->counted - min_u64(report->counted, latencies.requests));
        }
        report->served = report->target_count > 0 ? report->met_all_targets : latencies.requests;
        if (report->duration_ns > 0)
            report->goodput_micro_per_s =
                mul_div_floor_u64(report->served, UINT64_C(1000000000000000), (uint64_t)report->duration_ns);
    }
    for (int k = 0; k < LATENCIES; k++)
        quantiles_free(latencies.of[k]);
    return good;
}

/* ---- Targets and ends ----------------------------------------------------------------------------------------------
 */

static bool take_target(sqlite3_stmt *row, void *context)
{
    static const char *const names[] = {
        [TARGET_TTFT] = "ttft", [TARGET_TPOT] = "tpot", [TARGET_E2E] = "e2e", [TARGET_ITL] = "itl"};
    struct run_report *report = context;
    const char *name = (const char *)sqlite3_column_text(row, 0);
    struct target target = {.percentile_permille = (uint32_t)column_count(row, 1),
                            .limit_ns = sqlite3_column_int64(row, 2)};
    for (int metric = TARGET_TTFT; metric <= TARGET_ITL; metric++)
        if (name != NULL && strcmp(name, names[metric]) == 0)
            target.metric = (enum target_metric)metric;
    if (target.metric != 0 && report->target_count < SCENARIO_TARGETS_MAX)
        report->targets[report->target_count++] = (struct target_report){.target = target};
    return true;
}

struct gaps {
    struct target_report *target;
    uint64_t wanted; /* place of the gap, from 1 */
    uint64_t below;
};

static bool take_gap(sqlite3_stmt *row, void *context)
{
    struct gaps *gaps = context;
    uint64_t tokens = column_count(row, 1);
    if (!gaps->target->known && gaps->below + tokens >= gaps->wanted) {
        gaps->target->known = true;
        gaps->target->value_ns = itl_bucket_upper_ns((uint32_t)column_count(row, 0));
    }
    gaps->below += tokens;
    return true;
}

static bool judge_gaps(struct results *store, int64_t run, struct run_report *report, struct user_error *error)
{
    bool good = true;
    for (uint32_t t = 0; good && t < report->target_count; t++) {
        struct target_report *target = &report->targets[t];
        if (target->target.metric != TARGET_ITL || report->itl.count == 0)
            continue;
        struct gaps gaps = {.target = target,
                            .wanted = stats_place(report->itl.count, target->target.percentile_permille) + 1};
        good = each_row(store, "SELECT bucket, tokens FROM itl_histogram WHERE run_id = ? ORDER BY bucket", run, NULL,
                        take_gap, &gaps, error);
        target->met = target->known && target->value_ns <= target->target.limit_ns;
    }
    return good;
}

bool run_report_met(const struct run_report *report)
{
    for (uint32_t t = 0; t < report->target_count; t++)
        if (!report->targets[t].met)
            return false;
    return report->met_all_targets * 1000 >= report->counted * report->attainment_asked_permille;
}

static bool take_ending(sqlite3_stmt *row, void *context)
{
    struct run_report *report = context;
    if (report->ending_count < ENDINGS_MAX)
        report->endings[report->ending_count++] = (struct ending){.outcome = (enum outcome)sqlite3_column_int(row, 0),
                                                                  .reason = (uint8_t)sqlite3_column_int(row, 1),
                                                                  .requests = column_count(row, 2)};
    return true;
}

/* Rows count the warm-up; rates are over the time behind it, and so are the counts of a report. */
static bool take_warmup(sqlite3_stmt *row, void *context)
{
    struct run_report *report = context;
    uint64_t requests = column_count(row, 1);
    uint64_t *counts[] = {[OUTCOME_COMPLETED] = &report->completed,
                          [OUTCOME_REJECTED] = &report->rejected,
                          [OUTCOME_FAILED] = &report->failed,
                          [OUTCOME_ABORTED] = &report->aborted};
    int outcome = sqlite3_column_int(row, 0);
    if (outcome < OUTCOME_COMPLETED || outcome > OUTCOME_ABORTED || *counts[outcome] < requests)
        return true;
    *counts[outcome] -= requests;
    report->requests -= requests;
    report->warmup_requests += requests;
    return true;
}

static bool read_metrics(struct results *store, int64_t run, struct run_report *report, struct user_error *error)
{
    return each_row(store,
                    "SELECT metric, percentile_permille, limit_ns FROM run_target WHERE run_id = ? ORDER BY place", run,
                    NULL, take_target, report, error) &&
           read_latencies(store, run, report, error) && read_metric(store, run, "itl", "itl", &report->itl, error) &&
           judge_gaps(store, run, report, error) &&
           read_metric(store, run, "transfer", "transfer", &report->transfer, error) &&
           (!report->has_warmup ||
            each_row(store, "SELECT outcome, count(*) FROM request WHERE run_id = ? AND warmup = 1 GROUP BY outcome",
                     run, NULL, take_warmup, report, error)) &&
           (report->rejected + report->failed == 0 || each_row(store,
                                                               "SELECT outcome, reason, count(*) FROM request"
                                                               " WHERE run_id = ? AND outcome IN (2, 3) AND warmup = 0"
                                                               " GROUP BY outcome, reason",
                                                               run, NULL, take_ending, report, error));
}

bool results_run_read(struct results *store, int64_t run, struct run_report *report, struct user_error *error)
{
    memset(report, 0, sizeof *report);
    report->transfer_hidden_permille = -1;
    bool good = each_row(store,
                         "SELECT run_id, scenario, scenario_identity, build_identity, backend, kind, params, seed,"
                         " trace_hash, event_count, final_draw, arrived, completed, rejected, failed, aborted,"
                         " prompt_tokens, output_tokens, end_ns - start_ns, met_all_targets, counted,"
                         " (SELECT attainment_permille FROM run WHERE run.id = run_id), start_ns"
                         " FROM complete_run WHERE run_id = ?",
                         run, NULL, take_run, report, error);
    if (good && report->run == 0) {
        user_error_set(error, store->path, 0, NULL, "holds no run %" PRId64, run);
        good = false;
    }
    good = good && read_metrics(store, run, report, error) &&
           each_row(store, "SELECT transfer_ns, hidden_ns FROM run_transfer_hidden WHERE run_id = ?", run, NULL,
                    take_hidden, report, error) &&
           each_row(store,
                    "SELECT name, role, ranks, requests, utilization_permille, kv_used_peak_permille,"
                    " compute_bound_permille, bandwidth_bound_permille, communication_bound_permille,"
                    " overhead_bound_permille, preemptions, nic_bytes, steps, node_ns, clock_offset_ns, clock_error_ns"
                    " FROM run_instance JOIN run_instance_real USING (run_id, node) WHERE run_id = ? ORDER BY node",
                    run, NULL, take_instance, report, error);
    if (!good)
        run_report_free(report);
    return good;
}

void run_report_free(struct run_report *report)
{
    free(report->instances);
    memset(report, 0, sizeof *report);
}

/* Milliseconds with all their digits; null where nothing was measured. */
static json_t *metric_json(const struct metric_summary *metric)
{
    const struct {
        const char *key;
        int64_t value_ns;
    } values[] = {{"mean", metric->mean_ns}, {"p50", metric->p50_ns}, {"p90", metric->p90_ns},
                  {"p95", metric->p95_ns},   {"p99", metric->p99_ns}, {"max", metric->max_ns}};
    json_t *json = json_object();
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
        json_object_set_new(json, values[k].key, metric->count == 0 ? json_null() : json_fixed(values[k].value_ns, 6));
    return json;
}

/* The sweep's values of this run, by path, as text. */
static json_t *params_json(const char *params)
{
    json_t *json = json_object();
    while (*params != '\0') {
        size_t length = strcspn(params, "\n");
        size_t path = strcspn(params, "=");
        char name[sizeof((struct run_report *)0)->params];
        snprintf(name, sizeof name, "%.*s", (int)path, params);
        if (path < length)
            json_object_set_new(json, name, json_stringn(params + path + 1, length - path - 1));
        params += length + (params[length] == '\n');
    }
    return json;
}

int64_t instance_report_node_ns_per_step(const struct instance_report *instance)
{
    return instance->node_ns < 0 || instance->steps == 0 ? -1 : instance->node_ns / (int64_t)instance->steps;
}

static json_t *us_json(bool known, int64_t value_ns)
{
    return known ? json_fixed(value_ns, 3) : json_null();
}

static json_t *instance_json(const struct instance_report *instance)
{
    int64_t node_ns = instance_report_node_ns_per_step(instance);
    bool real = instance->clock_error_ns >= 0;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "name", instance->name, "role",
        instance->role, "ranks", (json_int_t)instance->ranks, "requests", (json_int_t)instance->requests, "utilization",
        json_fixed(instance->utilization_permille, 3), "compute_bound", json_fixed(instance->compute_bound_permille, 3),
        "bandwidth_bound", json_fixed(instance->bandwidth_bound_permille, 3), "communication_bound",
        json_fixed(instance->communication_bound_permille, 3), "overhead_bound",
        json_fixed(instance->overhead_bound_permille, 3), "kv_used_peak",
        json_fixed(instance->kv_used_peak_permille, 3), "preemptions", (json_int_t)instance->preemptions,
        "node_us_per_step", us_json(node_ns >= 0, node_ns), "clock_offset_us", us_json(real, instance->clock_offset_ns),
        "clock_error_us", us_json(real, instance->clock_error_ns));
}

static json_t *endings_json(const struct run_report *report, enum outcome outcome)
{
    json_t *json = json_object();
    for (uint32_t k = 0; k < report->ending_count; k++)
        if (report->endings[k].outcome == outcome)
            json_object_set_new(json, outcome_reason_key(outcome, report->endings[k].reason),
                                json_integer((json_int_t)report->endings[k].requests));
    return json;
}

static json_t *targets_json(const struct run_report *report)
{
    static const char *const names[] = {
        [TARGET_TTFT] = "ttft", [TARGET_TPOT] = "tpot", [TARGET_E2E] = "e2e", [TARGET_ITL] = "itl"};
    json_t *json = json_array();
    for (uint32_t t = 0; t < report->target_count; t++) {
        const struct target_report *target = &report->targets[t];
        json_array_append_new(json, json_pack("{s:s, s:o, s:o, s:o, s:I, s:b}", "metric", names[target->target.metric],
                                              "percentile", json_fixed(target->target.percentile_permille, 1),
                                              "below_ms", json_fixed(target->target.limit_ns, 6), "value_ms",
                                              target->known ? json_fixed(target->value_ns, 6) : json_null(), "missed",
                                              (json_int_t)target->missed, "met", target->met));
    }
    return json;
}

static json_t *attainment_json(const struct run_report *report)
{
    if (report->target_count == 0)
        return json_null();
    return json_fixed(
        report->counted == 0 ? 0 : (int64_t)mul_div_floor_u64(report->met_all_targets, 1000, report->counted), 3);
}

static json_t *counts_json(const struct run_report *report)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, report->trace_hash);
    return json_pack("{s:s, s:I, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "scenario", report->scenario,
                     "seed", (json_int_t)report->seed, "params", params_json(report->params), "backend",
                     report->backend, "trace_hash", hash, "requests", (json_int_t)report->requests, "completed",
                     (json_int_t)report->completed, "rejected", (json_int_t)report->rejected, "failed",
                     (json_int_t)report->failed, "aborted", (json_int_t)report->aborted, "duration_s",
                     json_fixed(report->duration_ns, 9), "goodput_per_s",
                     json_fixed((int64_t)report->goodput_micro_per_s, 6));
}

uint32_t run_report_cached_permille(const struct run_report *report)
{
    if (report->prompt_tokens == 0)
        return 0;
    return (uint32_t)mul_div_floor_u64(report->cached_tokens, 1000, report->prompt_tokens);
}

uint64_t run_report_output_tokens_deci_per_s(const struct run_report *report)
{
    if (report->duration_ns <= 0)
        return 0;
    return mul_div_floor_u64(report->output_tokens, UINT64_C(10) * NS_PER_S, (uint64_t)report->duration_ns);
}

json_t *run_report_json(const struct run_report *report)
{
    json_t *spans = json_object();
    for (int span = 0; span < SPAN_COUNT; span++)
        json_object_set_new(spans, span_names[span], metric_json(&report->spans[span]));
    json_t *instances = json_array();
    for (uint32_t k = 0; k < report->instance_count; k++)
        json_array_append_new(instances, instance_json(&report->instances[k]));
    json_t *json = counts_json(report);
    json_object_set_new(json, "warmup_requests", json_integer((json_int_t)report->warmup_requests));
    json_object_set_new(json, "rejections", endings_json(report, OUTCOME_REJECTED));
    json_object_set_new(json, "failures", endings_json(report, OUTCOME_FAILED));
    json_object_set_new(json, "targets", targets_json(report));
    json_object_set_new(json, "attainment", attainment_json(report));
    json_object_set_new(json, "prompt_tokens", json_integer((json_int_t)report->prompt_tokens));
    json_object_set_new(json, "output_tokens", json_integer((json_int_t)report->output_tokens));
    json_object_set_new(json, "output_tokens_per_s",
                        json_fixed((int64_t)run_report_output_tokens_deci_per_s(report), 1));
    json_object_set_new(json, "cached_share", json_fixed(run_report_cached_permille(report), 3));
    json_object_set_new(json, "ttft_ms", metric_json(&report->ttft));
    json_object_set_new(json, "tpot_ms", metric_json(&report->tpot));
    json_object_set_new(json, "itl_ms", metric_json(&report->itl));
    json_object_set_new(json, "e2e_ms", metric_json(&report->e2e));
    json_object_set_new(json, "transfer_ms", metric_json(&report->transfer));
    json_object_set_new(json, "transfer_hidden_share",
                        report->transfer_hidden_permille < 0 ? json_null()
                                                             : json_fixed(report->transfer_hidden_permille, 3));
    json_object_set_new(json, "spans_ms", spans);
    json_object_set_new(json, "instances", instances);
    return json;
}

json_t *results_run_json(struct results *store, int64_t run, struct user_error *error)
{
    struct run_report report;
    if (!results_run_read(store, run, &report, error))
        return NULL;
    json_t *json = run_report_json(&report);
    run_report_free(&report);
    return json;
}

/* ---- Findings --------------------------------------------------------------------------------------------------- */

static json_t *column_json(sqlite3_stmt *row, int column, unsigned decimals)
{
    switch (sqlite3_column_type(row, column)) {
    case SQLITE_INTEGER:
        if (decimals == 0)
            return json_integer(sqlite3_column_int64(row, column));
        return json_fixed(sqlite3_column_int64(row, column), decimals);
    case SQLITE_TEXT:
        return json_string((const char *)sqlite3_column_text(row, column));
    default:
        return json_null();
    }
}

/* Keys and decimals of the columns of the findings' query, in its order. */
static const struct {
    const char *key;
    unsigned decimals;
} finding_columns[] = {
    {"kind", 0},     {"label", 0},   {"prefill", 0},        {"decode", 0},
    {"sharding", 0}, {"nodes", 0},   {"max_rate_per_s", 6}, {"goodput_per_gpu_per_s", 6},
    {"ttft_ms", 6},  {"tpot_ms", 6}, {"usd_per_mtok", 6},   {"saturation", 3},
    {"bound_by", 0}, {"why", 0},
};
#define FINDING_COLUMNS (int)(sizeof finding_columns / sizeof *finding_columns)

static bool take_finding(sqlite3_stmt *row, void *context)
{
    json_t *finding = json_object();
    for (int k = 0; k < FINDING_COLUMNS; k++)
        json_object_set_new(finding, finding_columns[k].key, column_json(row, k, finding_columns[k].decimals));
    const char *detail = (const char *)sqlite3_column_text(row, FINDING_COLUMNS);
    json_object_set_new(finding, "detail", detail == NULL ? json_null() : json_loads(detail, JSON_DECODE_ANY, NULL));
    return json_array_append_new(context, finding) == 0;
}

json_t *results_findings_json(struct results *store, int64_t scenario, int64_t build, struct user_error *error)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "SELECT kind, label, prefill, decode, sharding, nodes, max_rate_micro_per_s, goodput_per_gpu_micro_per_s,"
             " ttft_ns, tpot_ns, usd_micros_per_mtok, saturation_permille, bound_by, why, detail FROM plan_finding"
             " WHERE scenario_id = ? AND build_id = %" PRId64 " ORDER BY finding_id",
             build);
    json_t *findings = json_array();
    if (each_row(store, sql, scenario, NULL, take_finding, findings, error))
        return findings;
    json_decref(findings);
    return NULL;
}

static bool take_plan(sqlite3_stmt *row, void *context)
{
    json_t **plan = context;
    const char *text = (const char *)sqlite3_column_text(row, 0);
    *plan = text == NULL ? NULL : json_loads(text, 0, NULL);
    return true;
}

json_t *results_plan_json(struct results *store, int64_t run, const char *scenario, struct user_error *error)
{
    json_t *plan = NULL;
    each_row(store,
             "SELECT detail FROM plan_finding AS plan WHERE kind = '" FINDING_PLAN "' AND (scenario = ?2 OR EXISTS"
             " (SELECT 1 FROM plan_finding AS verdict WHERE verdict.run_id = ?1"
             " AND verdict.scenario_id = plan.scenario_id AND verdict.build_id = plan.build_id))"
             " ORDER BY finding_id DESC LIMIT 1",
             run, scenario == NULL ? "" : scenario, take_plan, &plan, error);
    return plan;
}

/* ---- Names of runs ---------------------------------------------------------------------------------------------- */

static bool take_id(sqlite3_stmt *row, void *context)
{
    *(int64_t *)context = sqlite3_column_int64(row, 0);
    return true;
}

/* Digits only, and all of them; -1 otherwise. */
static int64_t number_of(const char *text)
{
    int64_t number = 0;
    if (*text == '\0')
        return -1;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || number > (INT64_MAX - 9) / 10)
            return -1;
        number = number * 10 + (*text - '0');
    }
    return number;
}

static int64_t lookup_last(struct results *store, int64_t back, struct user_error *error)
{
    int64_t run = 0;
    if (each_row(store, "SELECT run_id FROM complete_run WHERE kind <> 'probe' ORDER BY recency DESC LIMIT 1 OFFSET ?",
                 back, NULL, take_id, &run, error) &&
        run == 0)
        user_error_set(error, store->path, 0, NULL, "holds no run last~%" PRId64 ": fewer runs are stored", back);
    return run;
}

static int64_t lookup_id(struct results *store, int64_t id, struct user_error *error)
{
    int64_t run = 0;
    int64_t newest = 0;
    if (each_row(store, "SELECT run_id FROM complete_run WHERE run_id = ?", id, NULL, take_id, &run, error) &&
        run == 0 &&
        each_row(store, "SELECT coalesce(max(run_id), 0) FROM complete_run WHERE ?1 = ?1", id, NULL, take_id, &newest,
                 error))
        user_error_set(error, store->path, 0, NULL, "holds no run %" PRId64 "; the newest is %" PRId64, id, newest);
    return run;
}

/* Names of all scenarios, for the error; at most as many as fit. */
#define NAMES_MAX 256
struct names {
    size_t count;
    char text[NAMES_MAX][64];
};

static bool take_name(sqlite3_stmt *row, void *context)
{
    struct names *names = context;
    if (names->count < NAMES_MAX)
        column_copy(names->text[names->count++], sizeof names->text[0], row, 0);
    return true;
}

static void explain_name(struct results *store, const char *name, int64_t seed, struct user_error *error)
{
    struct names *names = memory_zeroed(1, sizeof *names);
    if (names == NULL)
        return;
    if (each_row(store, "SELECT DISTINCT scenario FROM complete_run WHERE ?1 = ?1 ORDER BY scenario", 0, NULL,
                 take_name, names, error)) {
        const char *known[NAMES_MAX];
        bool exact = false;
        for (size_t k = 0; k < names->count; k++) {
            known[k] = names->text[k];
            exact = exact || strcmp(name, known[k]) == 0;
        }
        const char *nearest = nearest_name(name, known, names->count);
        if (exact)
            user_error_set(error, store->path, 0, NULL, "holds no run of %s with seed %" PRId64, name, seed);
        else if (nearest != NULL)
            user_error_set(error, store->path, 0, NULL, "holds no run of a scenario '%s'; nearest: '%s'", name,
                           nearest);
        else
            user_error_set(error, store->path, 0, NULL,
                           "holds no run '%s': expected a number, last, last~N, or SCENARIO/SEED", name);
    }
    free(names);
}

static int64_t lookup_scenario(struct results *store, const char *name, int64_t seed, struct user_error *error)
{
    sqlite3_stmt *statement =
        results_prepare(store,
                        "SELECT run_id FROM complete_run WHERE scenario = ?1 AND (?2 < 0 OR seed = ?2)"
                        " ORDER BY kind = 'probe', recency DESC LIMIT 1",
                        error);
    if (statement == NULL)
        return 0;
    int64_t run = 0;
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(statement, 2, seed);
    int code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        run = sqlite3_column_int64(statement, 0);
    else if (code != SQLITE_DONE)
        results_fail(store, error, "looking for a run");
    sqlite3_finalize(statement);
    if (run == 0)
        explain_name(store, name, seed, error);
    return run;
}

int64_t results_run_lookup(struct results *store, const char *name, struct user_error *error)
{
    if (strcmp(name, "last") == 0)
        return lookup_last(store, 0, error);
    if (strncmp(name, "last~", 5) == 0 && number_of(name + 5) >= 0)
        return lookup_last(store, number_of(name + 5), error);
    if (number_of(name) >= 0)
        return lookup_id(store, number_of(name), error);
    /* A scenario's name may hold a slash: only what follows the last one can be a seed. */
    char scenario[256];
    snprintf(scenario, sizeof scenario, "%s", name);
    char *slash = strrchr(scenario, '/');
    int64_t seed = slash == NULL ? -1 : number_of(slash + 1);
    if (seed >= 0)
        *slash = '\0';
    return lookup_scenario(store, scenario, seed, error);
}
