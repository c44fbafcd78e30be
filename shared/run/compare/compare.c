/* See compare.h. */
#include "run/compare/compare.h"

#include "base/arith.h"
#include "run/compare/compare_data.h"
#include "run/compare/measurement.h"

#include <inttypes.h>
#include <string.h>

/* The two reports and everything found about them. */
struct comparison {
    const struct measurement *measurement; /* that `a` is; NULL: a run */
    struct run_report a;
    struct run_report b;
    bool same;
    bool asked; /* the first divergence was looked for */
    struct divergence divergence;
    struct comparison_data data;
};

/* b - a in percent of a, with one decimal; a is not negative. */
static void add_relative(struct table *table, int64_t a, int64_t b)
{
    if (a == 0) {
        table_none(table);
        return;
    }
    int128 scaled = (int128)(b - a) * 2000 + (b >= a ? a : -a);
    table_fixed(table, (int64_t)(scaled / ((int128)a * 2)), 1);
}

/* Nothing where one is below 0: a benchmark's result does not say everything. */
static void add_values(struct table *table, const char *name, int64_t a, int64_t b, unsigned decimals)
{
    if (a < 0 || b < 0)
        return;
    table_row(table);
    table_text(table, name);
    table_fixed(table, a, decimals);
    table_fixed(table, b, decimals);
    table_fixed(table, b - a, decimals);
    add_relative(table, a, b);
}

/* What a benchmark says beside a run's count over its duration. */
static void add_rate(struct table *table, const char *name, uint64_t micro_per_s, uint64_t count, int64_t duration_ns)
{
    if (micro_per_s != COUNT_UNKNOWN && duration_ns > 0)
        add_values(table, name, fixed_round((int64_t)micro_per_s, 6, 3),
                   (int64_t)mul_div_floor_u64(count, UINT64_C(1000) * NS_PER_S, (uint64_t)duration_ns), 3);
}

static void add_counts(struct table *table, const struct comparison *c)
{
    add_values(table, "requests", (int64_t)c->a.requests, (int64_t)c->b.requests, 0);
    add_values(table, "completed", (int64_t)c->a.completed, (int64_t)c->b.completed, 0);
    add_values(table, "rejected", (int64_t)c->a.rejected, (int64_t)c->b.rejected, 0);
    add_values(table, "failed", (int64_t)c->a.failed, (int64_t)c->b.failed, 0);
    add_values(table, "aborted", (int64_t)c->a.aborted, (int64_t)c->b.aborted, 0);
    add_values(table, "duration_s", c->a.duration_ns < 0 ? -1 : fixed_round(c->a.duration_ns, 9, 3),
               fixed_round(c->b.duration_ns, 9, 3), 3);
    if (c->measurement == NULL) {
        add_values(table, "goodput_per_s", fixed_round((int64_t)c->a.goodput_micro_per_s, 6, 3),
                   fixed_round((int64_t)c->b.goodput_micro_per_s, 6, 3), 3);
        return;
    }
    add_values(table, "prompt_tokens", (int64_t)c->a.prompt_tokens, (int64_t)c->b.prompt_tokens, 0);
    add_values(table, "output_tokens", (int64_t)c->a.output_tokens, (int64_t)c->b.output_tokens, 0);
    add_rate(table, "requests_per_s", c->measurement->requests_micro_per_s, c->b.completed, c->b.duration_ns);
    add_rate(table, "output_tokens_per_s", c->measurement->output_tokens_micro_per_s, c->b.output_tokens,
             c->b.duration_ns);
}

static void add_metric(struct table *table, const char *name, const struct metric_summary *a,
                       const struct metric_summary *b)
{
    const struct {
        const char *statistic;
        int64_t a_ns;
        int64_t b_ns;
    } rows[] = {
        {"mean", a->mean_ns, b->mean_ns}, {"p50", a->p50_ns, b->p50_ns}, {"p90", a->p90_ns, b->p90_ns},
        {"p95", a->p95_ns, b->p95_ns},    {"p99", a->p99_ns, b->p99_ns},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char full[64];
        snprintf(full, sizeof full, "%s.%s", name, rows[k].statistic);
        /* A metric that one run lacks (no request completed) has nothing to be compared with. */
        if (a->count > 0 && b->count > 0 && rows[k].a_ns >= 0)
            add_values(table, full, fixed_round(rows[k].a_ns, 6, 3), fixed_round(rows[k].b_ns, 6, 3), 3);
    }
}

static struct table *comparison_table(const struct comparison *c)
{
    struct table *table = table_new(NULL);
    char heading[2][32];
    bool measured = c->measurement != NULL;
    snprintf(heading[0], sizeof heading[0], measured ? "measured" : "run %" PRId64, c->a.run);
    snprintf(heading[1], sizeof heading[1], "run %" PRId64, c->b.run);
    table_column(table, "metric", "");
    table_column(table, measured ? "measured" : "a", heading[0]);
    table_column(table, measured ? "predicted" : "b", heading[1]);
    table_column(table, "difference", "difference");
    table_column(table, "relative_percent", "%");
    add_counts(table, c);
    add_metric(table, "ttft_ms", &c->a.ttft, &c->b.ttft);
    add_metric(table, "tpot_ms", &c->a.tpot, &c->b.tpot);
    add_metric(table, "itl_ms", &c->a.itl, &c->b.itl);
    add_metric(table, "e2e_ms", &c->a.e2e, &c->b.e2e);
    for (int span = 0; span < SPAN_COUNT; span++) {
        char name[64];
        snprintf(name, sizeof name, "spans_ms.%s", span_names[span]);
        add_metric(table, name, &c->a.spans[span], &c->b.spans[span]);
    }
    return table;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static void run_columns(struct table *table, const struct comparison *c, const char *what, const char *unit)
{
    const int64_t runs[2] = {c->a.run, c->b.run};
    for (uint32_t s = 0; s < 2; s++) {
        char key[32];
        char heading[64];
        snprintf(key, sizeof key, "%c_%s", s == 0 ? 'a' : 'b', what);
        snprintf(heading, sizeof heading, "run %" PRId64 "%s", runs[s], unit);
        table_column(table, key, heading);
    }
}

static void add_ms(struct table *table, int64_t ns)
{
    table_fixed(table, fixed_round(ns, 6, 3), 3);
}

/* What the errors are relative to, for titles. */
static void title_of(const struct comparison *c, const char *what, char *title, size_t size)
{
    snprintf(title, size, "%s; errors of run %" PRId64 " relative to run %" PRId64, what,
             c->data.reference == 0 ? c->b.run : c->a.run, c->data.reference == 0 ? c->a.run : c->b.run);
}

static struct table *pairs_table(const struct comparison *c)
{
    char title[128];
    title_of(c, "request by request", title, sizeof title);
    struct table *table = table_new(title);
    table_column(table, "metric", "");
    table_column(table, "pairs", "requests");
    run_columns(table, c, "p50_ms", " p50 ms");
    table_column(table, "error_p50_ms", "|error| p50 ms");
    table_column(table, "error_p50_percent", "|error| p50 %");
    table_column(table, "error_p90_percent", "|error| p90 %");
    table_column(table, "bias_percent", "bias %");
    for (uint32_t m = 0; m < PAIRED_METRICS; m++) {
        const struct paired_metric *metric = &c->data.metrics[m];
        if (metric->pairs == 0)
            continue;
        table_row(table);
        table_text(table, metric->name);
        table_integer(table, (int64_t)metric->pairs);
        add_ms(table, metric->p50_ns[0]);
        add_ms(table, metric->p50_ns[1]);
        add_ms(table, metric->error_p50_ns);
        const int64_t relative[] = {metric->error_p50_permille, metric->error_p90_permille, metric->bias_permille};
        for (uint32_t k = 0; k < 3; k++) {
            if (metric->relative)
                table_fixed(table, relative[k], 1);
            else
                table_none(table);
        }
    }
    return table;
}

static void add_shape_values(struct table *table, const struct shape_error *error)
{
    table_integer(table, (int64_t)error->count[0]);
    table_integer(table, (int64_t)error->count[1]);
    add_ms(table, error->p50_ns[0]);
    add_ms(table, error->p50_ns[1]);
    if (error->relative)
        table_fixed(table, error->error_permille, 1);
    else
        table_none(table);
}

static void shape_columns(struct table *table, const struct comparison *c, const char *counts)
{
    run_columns(table, c, counts, "");
    run_columns(table, c, "p50_ms", " p50 ms");
    table_column(table, "error_percent", "error %");
}

static struct table *steps_table(const struct comparison *c)
{
    static const char *const roles[] = {"", "front", "prefill", "decode", "mixed"};
    char title[160];
    title_of(c, "step by step, by shape (from; tokens and sequences by 2, context by 4)", title, sizeof title);
    struct table *table = table_new(title);
    table_column(table, "role", "role");
    table_column(table, "prompt_tokens", "prompt tokens");
    table_column(table, "sequences", "sequences");
    table_column(table, "context", "context");
    shape_columns(table, c, "launches");
    for (uint32_t k = 0; k < c->data.steps.count; k++) {
        const struct shape_error *error = &c->data.steps.items[k];
        table_row(table);
        table_text(table, error->role <= ROLE_MIXED ? roles[error->role] : "");
        table_integer(table, (int64_t)error->tokens);
        table_integer(table, (int64_t)error->sequences);
        table_integer(table, (int64_t)error->context);
        add_shape_values(table, error);
    }
    return table;
}

static struct table *transfers_table(const struct comparison *c)
{
    char title[160];
    title_of(c, "transfer by transfer, from the post to the last byte, by size (from; by 2)", title, sizeof title);
    struct table *table = table_new(title);
    table_column(table, "bytes", "bytes");
    shape_columns(table, c, "transfers");
    for (uint32_t k = 0; k < c->data.transfers.count; k++) {
        table_row(table);
        table_integer(table, (int64_t)c->data.transfers.items[k].tokens);
        add_shape_values(table, &c->data.transfers.items[k]);
    }
    return table;
}

static json_t *difference_json(const struct decision_difference *difference)
{
    if (!difference->found)
        return json_null();
    return json_pack("{s:I, s:s}", "time_a_ns", (json_int_t)difference->at_ns, "text", difference->text);
}

/* Null where the runs do not have the same requests. */
static json_t *decisions_json(const struct comparison *c)
{
    const struct decisions *d = &c->data.decisions;
    if (!c->data.paired)
        return json_null();
    return json_pack("{s:I, s:I, s:o, s:o}", "requests", (json_int_t)d->requests, "alike", (json_int_t)d->alike,
                     "first_route", difference_json(&d->route), "first_batch", difference_json(&d->batch));
}

static void write_difference(FILE *file, const char *what, const struct decision_difference *difference)
{
    if (difference->found)
        fprintf(file, "first other %s, at %" PRId64 " ns: %s\n", what, difference->at_ns, difference->text);
}

static void write_decisions(FILE *file, const struct comparison *c)
{
    const struct decisions *d = &c->data.decisions;
    if (!c->data.paired)
        return;
    fprintf(file, "%" PRIu64 " of %" PRIu64 " requests went the same way%s\n", d->alike, d->requests,
            !d->batches_known ? ""
            : d->batch.found  ? ""
                              : ", in the same batches");
    write_difference(file, "way", &d->route);
    write_difference(file, "batch", &d->batch);
}

static void write_errors(const struct output *output, const struct comparison *c)
{
    struct table *(*const makes[])(const struct comparison *) = {pairs_table, steps_table, transfers_table};
    const bool there[] = {c->data.paired, c->data.steps.count > 0, c->data.transfers.count > 0};
    for (uint32_t k = 0; k < 3; k++) {
        if (!there[k])
            continue;
        struct table *table = makes[k](c);
        fputc('\n', output->file);
        output_table(output, table);
        table_free(table);
    }
}

static json_t *errors_json(const struct comparison *c, struct table *(*make)(const struct comparison *))
{
    struct table *table = make(c);
    json_t *json = table_json(table);
    table_free(table);
    return json;
}

/* ---- All together ------------------------------------------------------------------------------------------------ */

static void write_run_line(FILE *file, const struct run_report *report)
{
    fprintf(file, "run %" PRId64 ": %s, seed %" PRIu64 ", %s, build %.12s, trace hash %016" PRIx64 "\n", report->run,
            report->scenario, report->seed, report->backend, report->build, report->trace_hash);
    /* Times of different hosts are no better than the alignment of their clocks. */
    int64_t error_ns = 0;
    for (uint32_t k = 0; k < report->instance_count; k++)
        error_ns = max_i64(error_ns, report->instances[k].clock_error_ns);
    if (error_ns > 0)
        fprintf(file, "  on several hosts, whose clocks are known within %" PRId64 " us\n", (error_ns + 999) / 1000);
}

static void write_divergence(FILE *file, const struct comparison *c)
{
    if (c->same) {
        fputs("the same decisions at the same times\n", file);
    } else if (!c->asked) {
        fputs("the decisions differ\n", file);
    } else if (c->divergence.unknown[0] != '\0') {
        fprintf(file, "the decisions differ; %s: %s\n",
                c->data.paired ? "their traces cannot be compared" : "where first, cannot be said",
                c->divergence.unknown);
    } else {
        char names[2][32];
        snprintf(names[0], sizeof names[0], "run %" PRId64, c->a.run);
        snprintf(names[1], sizeof names[1], "run %" PRId64, c->b.run);
        divergence_write(file, &c->divergence, names[0], names[1], "");
    }
}

static void write_comparison(const struct comparison *c, const struct output *output)
{
    struct table *table = comparison_table(c);
    if (output->format == OUTPUT_JSON) {
        json_t *json =
            json_pack("{s:o, s:o, s:b, s:o, s:s?, s:o, s:o}", "a", run_report_json(&c->a), "b", run_report_json(&c->b),
                      "same_decisions", c->same, "divergence", c->asked ? divergence_json(&c->divergence) : json_null(),
                      "divergence_unknown", c->divergence.unknown[0] != '\0' ? c->divergence.unknown : NULL,
                      "decisions", decisions_json(c), "metrics", table_json(table));
        json_object_set_new(json, "pairs", errors_json(c, pairs_table));
        json_object_set_new(json, "steps", errors_json(c, steps_table));
        json_object_set_new(json, "transfers", errors_json(c, transfers_table));
        output_json(output, json);
        json_decref(json);
    } else if (output->format == OUTPUT_CSV) {
        output_table(output, table);
        write_errors(output, c);
    } else {
        write_run_line(output->file, &c->a);
        write_run_line(output->file, &c->b);
        write_divergence(output->file, c);
        if (!c->same && !c->divergence.found)
            write_decisions(output->file, c);
        fputc('\n', output->file);
        output_table(output, table);
        write_errors(output, c);
    }
    table_free(table);
}

bool compare_runs(struct results *store, int64_t run_a, int64_t run_b, divergence_function *first_divergence,
                  const struct output *output, struct user_error *error)
{
    struct comparison c;
    memset(&c, 0, sizeof c);
    bool good = results_run_read(store, run_a, &c.a, error) && results_run_read(store, run_b, &c.b, error);
    if (good) {
        c.same = c.a.trace_hash == c.b.trace_hash && c.a.event_count == c.b.event_count;
        c.asked = !c.same && first_divergence != NULL;
        if (c.asked)
            good = first_divergence(store, run_a, run_b, &c.divergence, error);
    }
    /* What made the same decisions at the same times differs in nothing. */
    if (good && !c.same)
        good = comparison_data_read(store, &c.a, &c.b, &c.data, error);
    if (good)
        write_comparison(&c, output);
    comparison_data_free(&c.data);
    run_report_free(&c.a);
    run_report_free(&c.b);
    return good;
}

/* ---- With a measurement ------------------------------------------------------------------------------------------ */

/* Predictions are beside measurements of the same load only: told where the two are more than a percent apart. */
static void write_load(FILE *file, const char *what, uint64_t measured, uint64_t ran)
{
    if (measured == COUNT_UNKNOWN || (measured <= ran + ran / 100 && ran <= measured + measured / 100))
        return;
    fprintf(file, "not the same load: %" PRIu64 " %s were measured, the run has %" PRIu64 "\n", measured, what, ran);
}

static void write_measured(const struct comparison *c, const struct output *output)
{
    const struct measurement *m = c->measurement;
    struct table *table = comparison_table(c);
    if (output->format == OUTPUT_JSON) {
        json_t *json =
            json_pack("{s:{s:s, s:s, s:I}, s:o, s:o}", "measurement", "file", m->file, "tool", m->tool, "results",
                      (json_int_t)m->results, "run", run_report_json(&c->b), "metrics", table_json(table));
        output_json(output, json);
        json_decref(json);
    } else {
        if (output->format != OUTPUT_CSV) {
            fprintf(output->file, "measured: %s, of %s", m->file, m->tool);
            if (m->results > 1)
                fprintf(output->file, ", the last of its %" PRIu32 " results", m->results);
            fputc('\n', output->file);
            write_run_line(output->file, &c->b);
            write_load(output->file, "requests", m->report.requests, c->b.requests);
            write_load(output->file, "prompt tokens", m->report.prompt_tokens, c->b.prompt_tokens);
            write_load(output->file, "output tokens", m->report.output_tokens, c->b.output_tokens);
            fputc('\n', output->file);
        }
        output_table(output, table);
    }
    table_free(table);
}

bool compare_measurement(struct results *store, int64_t run, const char *path, const struct output *output,
                         struct user_error *error)
{
    struct measurement measurement;
    struct comparison c;
    memset(&c, 0, sizeof c);
    c.measurement = &measurement;
    bool good = measurement_read(path, &measurement, error) && results_run_read(store, run, &c.b, error);
    if (good) {
        c.a = measurement.report;
        write_measured(&c, output);
    }
    run_report_free(&c.b);
    return good;
}
