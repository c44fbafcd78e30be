/* See report_run.h. */
#include "cli/report_run.h"

#include <inttypes.h>
#include <string.h>

/* Microseconds are enough for people; nanoseconds are in the JSON. */
static void add_ms(struct table *table, int64_t value_ns)
{
    table_fixed(table, fixed_round(value_ns, 6, 3), 3);
}

static void add_percent(struct table *table, uint32_t permille)
{
    table_fixed(table, permille, 1);
}

static void write_and_free(const struct output *output, struct table *table)
{
    output_table(output, table);
    table_free(table);
}

static void report_summary(const struct run_report *report, const struct output *output)
{
    char title[sizeof report->params + 256];
    int length = snprintf(title, sizeof title, "run %" PRId64 ": %s, ", report->run, report->scenario);
    for (const char *p = report->params; *p != '\0'; p += *p != '\0') {
        int param = (int)strcspn(p, "\n");
        length += snprintf(title + length, sizeof title - (size_t)length, "%.*s, ", param, p);
        p += param;
    }
    snprintf(title + length, sizeof title - (size_t)length, "seed %" PRIu64 ", %s, trace hash %016" PRIx64,
             report->seed, report->backend, report->trace_hash);
    struct table *table = table_new(title);
    table_column(table, "requests", "requests");
    table_column(table, "completed", "completed");
    table_column(table, "rejected", "rejected");
    table_column(table, "failed", "failed");
    table_column(table, "aborted", "aborted");
    table_column(table, "duration_s", "duration s");
    table_column(table, "goodput_per_s", "goodput /s");
    table_column(table, "output_tokens_per_s", "output tokens/s");
    table_column(table, "cached_percent", "cached %");
    table_row(table);
    table_integer(table, (int64_t)report->requests);
    table_integer(table, (int64_t)report->completed);
    table_integer(table, (int64_t)report->rejected);
    table_integer(table, (int64_t)report->failed);
    table_integer(table, (int64_t)report->aborted);
    table_fixed(table, fixed_round(report->duration_ns, 9, 3), 3);
    table_fixed(table, fixed_round((int64_t)report->goodput_micro_per_s, 6, 3), 3);
    table_fixed(table, (int64_t)run_report_output_tokens_deci_per_s(report), 1);
    add_percent(table, run_report_cached_permille(report));
    write_and_free(output, table);
}

static void metric_columns(struct table *table, const char *key, const char *heading)
{
    table_column(table, key, heading);
    table_column(table, "count", "count");
    table_column(table, "mean_ms", "mean");
    table_column(table, "p50_ms", "p50");
    table_column(table, "p90_ms", "p90");
    table_column(table, "p95_ms", "p95");
    table_column(table, "p99_ms", "p99");
    table_column(table, "max_ms", "max");
}

static void metric_row(struct table *table, const char *name, const struct metric_summary *metric)
{
    table_row(table);
    table_text(table, name);
    table_integer(table, (int64_t)metric->count);
    if (metric->count == 0) {
        for (int k = 0; k < 6; k++)
            table_none(table);
        return;
    }
    add_ms(table, metric->mean_ns);
    add_ms(table, metric->p50_ns);
    add_ms(table, metric->p90_ns);
    add_ms(table, metric->p95_ns);
    add_ms(table, metric->p99_ns);
    add_ms(table, metric->max_ns);
}

static void latency_rows(struct table *table, const struct run_report *report)
{
    metric_row(table, "ttft", &report->ttft);
    metric_row(table, "tpot", &report->tpot);
    metric_row(table, "itl", &report->itl);
    metric_row(table, "e2e", &report->e2e);
    if (report->transfer.count > 0)
        metric_row(table, "transfer", &report->transfer);
}

static void span_rows(struct table *table, const struct run_report *report)
{
    for (int span = 0; span < SPAN_COUNT; span++)
        metric_row(table, span_names[span], &report->spans[span]);
}

static void report_instances(const struct run_report *report, const struct output *output)
{
    struct table *table = table_new("instances");
    table_column(table, "name", "instance");
    table_column(table, "role", "role");
    table_column(table, "ranks", "ranks");
    table_column(table, "requests", "requests");
    table_column(table, "utilization_percent", "busy %");
    table_column(table, "compute_bound_percent", "compute %");
    table_column(table, "bandwidth_bound_percent", "bandwidth %");
    table_column(table, "communication_bound_percent", "network %");
    table_column(table, "overhead_bound_percent", "overhead %");
    table_column(table, "kv_used_peak_percent", "KV peak %");
    table_column(table, "preemptions", "preempted");
    for (uint32_t k = 0; k < report->instance_count; k++) {
        const struct instance_report *instance = &report->instances[k];
        table_row(table);
        table_text(table, instance->name);
        table_text(table, instance->role);
        table_integer(table, instance->ranks);
        table_integer(table, (int64_t)instance->requests);
        add_percent(table, instance->utilization_permille);
        add_percent(table, instance->compute_bound_permille);
        add_percent(table, instance->bandwidth_bound_permille);
        add_percent(table, instance->communication_bound_permille);
        add_percent(table, instance->overhead_bound_permille);
        add_percent(table, instance->kv_used_peak_permille);
        table_integer(table, (int64_t)instance->preemptions);
    }
    write_and_free(output, table);
}

/* What a real run measured of itself. Nothing of a simulated one. */
static void report_real(const struct run_report *report, const struct output *output)
{
    bool real = false;
    for (uint32_t k = 0; k < report->instance_count; k++)
        real = real || report->instances[k].clock_error_ns >= 0;
    if (!real)
        return;
    fputc('\n', output->file);
    struct table *table =
        table_new("the program itself: CPU time inside scheduler and messenger, clocks against the front's");
    table_column(table, "name", "instance");
    table_column(table, "steps", "steps");
    table_column(table, "node_us_per_step", "node us/step");
    table_column(table, "clock_offset_us", "clock offset us");
    table_column(table, "clock_error_us", "known within us");
    for (uint32_t k = 0; k < report->instance_count; k++) {
        const struct instance_report *instance = &report->instances[k];
        int64_t node_ns = instance_report_node_ns_per_step(instance);
        table_row(table);
        table_text(table, instance->name);
        table_integer(table, (int64_t)instance->steps);
        if (node_ns < 0)
            table_none(table);
        else
            table_fixed(table, fixed_round(node_ns, 3, 1), 1);
        table_fixed(table, fixed_round(instance->clock_offset_ns, 3, 1), 1);
        table_fixed(table, fixed_round(instance->clock_error_ns, 3, 1), 1);
    }
    write_and_free(output, table);
}

/* Only where transfers were recorded. */
static void report_hidden(const struct run_report *report, const struct output *output)
{
    if (report->transfer_hidden_permille >= 0)
        fprintf(output->file, "of the time of transfers, %d.%d %% passed beneath prefill\n",
                report->transfer_hidden_permille / 10, report->transfer_hidden_permille % 10);
}

static const char *const target_words[] = {
    [TARGET_TTFT] = "ttft", [TARGET_TPOT] = "tpot", [TARGET_E2E] = "e2e", [TARGET_ITL] = "itl"};

void report_missed_target(const struct run_report *report, const struct target_report *target, FILE *err)
{
    const struct target *asked = &target->target;
    if (target->met)
        return;
    fprintf(err, "target missed: %s p%g ", target_words[asked->metric], asked->percentile_permille / 10.0);
    if (!target->known) {
        fprintf(err, "is not known, for no request completed\n");
        return;
    }
    int64_t over_ns = target->value_ns - asked->limit_ns;
    if (over_ns > 0)
        fprintf(err, "is %.3f ms, %.3f ms (%.1f %%) over %.3f ms", (double)target->value_ns / 1e6,
                (double)over_ns / 1e6, 100.0 * (double)over_ns / (double)asked->limit_ns,
                (double)asked->limit_ns / 1e6);
    else
        fprintf(err, "of what completed is %.3f ms, within %.3f ms", (double)target->value_ns / 1e6,
                (double)asked->limit_ns / 1e6);
    if (asked->metric != TARGET_ITL)
        fprintf(err, "; %" PRIu64 " of %" PRIu64 " requests missed it or were not served", target->missed,
                report->counted);
    fputc('\n', err);
}

static void report_targets(const struct run_report *report, const struct output *output)
{
    if (report->target_count == 0)
        return;
    fputc('\n', output->file);
    struct table *table = table_new("targets, ms");
    table_column(table, "metric", "");
    table_column(table, "percentile", "p");
    table_column(table, "value_ms", "is");
    table_column(table, "below_ms", "below");
    table_column(table, "missed", "missed");
    table_column(table, "met", "met");
    for (uint32_t t = 0; t < report->target_count; t++) {
        const struct target_report *target = &report->targets[t];
        table_row(table);
        table_text(table, target_words[target->target.metric]);
        table_fixed(table, target->target.percentile_permille, 1);
        if (target->known)
            add_ms(table, target->value_ns);
        else
            table_none(table);
        add_ms(table, target->target.limit_ns);
        table_integer(table, (int64_t)target->missed);
        table_text(table, target->met ? "yes" : "no");
    }
    write_and_free(output, table);
}

/* Why requests were not served. */
static void report_endings(const struct run_report *report, const struct output *output)
{
    for (uint32_t k = 0; k < report->ending_count; k++)
        fprintf(output->file, "%s%" PRIu64 " %s: %s\n", k == 0 ? "\n" : "", report->endings[k].requests,
                report->endings[k].outcome == OUTCOME_REJECTED ? "rejected" : "failed",
                outcome_reason_text(report->endings[k].outcome, report->endings[k].reason));
}

void report_run(const struct run_report *report, const struct output *output)
{
    if (output->format == OUTPUT_JSON || output->format == OUTPUT_CSV) {
        json_t *runs = json_pack("[o]", run_report_json(report));
        report_runs(runs, false, output);
        json_decref(runs);
        return;
    }
    report_summary(report, output);
    report_endings(report, output);
    report_targets(report, output);
    fputc('\n', output->file);
    struct table *latencies = table_new("latencies, ms");
    metric_columns(latencies, "metric", "");
    latency_rows(latencies, report);
    write_and_free(output, latencies);
    fputc('\n', output->file);
    struct table *spans = table_new("where the time goes, ms (the first seven add up to TTFT)");
    metric_columns(spans, "span", "");
    span_rows(spans, report);
    write_and_free(output, spans);
    report_hidden(report, output);
    fputc('\n', output->file);
    report_instances(report, output);
    report_real(report, output);
}

/* ---- Sweeps ------------------------------------------------------------------------------------------------------ */

/* A number of a run's JSON, as "ttft_ms.p95" names it. */
static void add_json_number(struct table *table, const json_t *run, const char *path, unsigned decimals)
{
    char key[32];
    const char *dot = strchr(path, '.');
    size_t length = dot == NULL ? strlen(path) : (size_t)(dot - path);
    snprintf(key, sizeof key, "%.*s", (int)length, path);
    const json_t *value = json_object_get(run, key);
    if (dot != NULL)
        value = json_object_get(value, dot + 1);
    if (json_is_integer(value)) {
        table_integer(table, json_integer_value(value));
    } else if (json_is_real(value)) {
        double unit = 1;
        for (unsigned d = 0; d < decimals; d++)
            unit *= 10;
        table_fixed(table, (int64_t)(json_real_value(value) * unit + 0.5), decimals);
    } else {
        table_none(table);
    }
}

static void report_sweep(const json_t *runs, const struct output *output)
{
    static const struct {
        const char *path;
        const char *heading;
        unsigned decimals;
        unsigned optional;
    } columns[] = {
        {"requests", "requests", 0, 3},        {"completed", "completed", 0, 0},
        {"rejected", "rejected", 0, 4},        {"failed", "failed", 0, 4},
        {"aborted", "aborted", 0, 4},          {"duration_s", "duration s", 3, 3},
        {"goodput_per_s", "goodput /s", 3, 0}, {"output_tokens_per_s", "output tokens/s", 1, 1},
        {"cached_share", "cached", 3, 3},      {"ttft_ms.p50", "TTFT p50 ms", 3, 0},
        {"ttft_ms.p95", "p95", 3, 0},          {"tpot_ms.p50", "TPOT p50 ms", 3, 0},
        {"tpot_ms.p95", "p95", 3, 0},          {"e2e_ms.p95", "E2E p95 ms", 3, 2},
    };
    const json_t *first = json_array_get(runs, 0);
    char title[160];
    snprintf(title, sizeof title, "%zu runs of %s, seed %" JSON_INTEGER_FORMAT ", %s", json_array_size(runs),
             json_string_value(json_object_get(first, "scenario")), json_integer_value(json_object_get(first, "seed")),
             json_string_value(json_object_get(first, "backend")));
    struct table *table = table_new(title);
    const char *name;
    const json_t *value;
    json_object_foreach(json_object_get(first, "params"), name, value) table_column(table, name, name);
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
        table_column(table, columns[c].path, columns[c].heading);
        table_column_optional(table, columns[c].optional);
    }
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        table_row(table);
        json_object_foreach(json_object_get(first, "params"), name, value)
        {
            const char *text = json_string_value(json_object_get(json_object_get(run, "params"), name));
            table_text(table, text == NULL ? "" : text);
        }
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            add_json_number(table, run, columns[c].path, columns[c].decimals);
    }
    write_and_free(output, table);
}

void report_runs(const json_t *runs, bool sweep, const struct output *output)
{
    if (output->format == OUTPUT_JSON)
        output_json(output, !sweep && json_array_size(runs) == 1 ? json_array_get(runs, 0) : runs);
    else if (output->format == OUTPUT_CSV && json_array_size(runs) > 0)
        output_rows(output, runs);
    else if (json_array_size(runs) > 0)
        report_sweep(runs, output);
}
