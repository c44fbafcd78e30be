/* What is stored comes back: every percentile view against a computation by hand, rates, instances, repetitions. */
#include "base/arith.h"
#include "base/rng.h"
#include "run/results/results_internal.h"
#include "support/death.h"
#include "support/results_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REQUESTS 1237

static int compare_i64(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Nearest rank by hand: the smallest value that at least p percent of the values do not exceed. */
static int64_t percentile_by_hand(const int64_t *values, uint32_t count, uint32_t percent)
{
    for (uint32_t k = 0; k < count; k++) {
        uint32_t not_above = 0;
        for (uint32_t j = 0; j < count; j++)
            not_above += values[j] <= values[k];
        if ((uint64_t)not_above * 100 >= (uint64_t)count * percent)
            return values[k];
    }
    return -1;
}

static void check_metric(const char *name, const struct metric_summary *metric, int64_t *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare_i64);
    int64_t sum = 0;
    for (uint32_t k = 0; k < count; k++)
        sum += values[k];
    if (metric->count != count)
        fail_msg("%s: %lu values, by hand %u", name, (unsigned long)metric->count, count);
    if (count == 0)
        return;
    assert_int_equal(metric->mean_ns, sum / (int64_t)count);
    assert_int_equal(metric->p50_ns, percentile_by_hand(values, count, 50));
    assert_int_equal(metric->p90_ns, percentile_by_hand(values, count, 90));
    assert_int_equal(metric->p95_ns, percentile_by_hand(values, count, 95));
    assert_int_equal(metric->p99_ns, percentile_by_hand(values, count, 99));
    assert_int_equal(metric->max_ns, values[count - 1]);
}

/* The views, which users ask, say of a metric what the report says. */
static void check_views(struct results *store, int64_t run, const char *views, const char *name,
                        const struct metric_summary *metric)
{
    char *sql = sqlite3_mprintf("SELECT count, mean_ns, max_ns, (SELECT group_concat(value_ns) FROM"
                                " (SELECT value_ns FROM run_%s_percentile WHERE run_id = %lld AND metric = %Q"
                                " ORDER BY percentile)) FROM run_%s_mean WHERE run_id = %lld AND metric = %Q",
                                views, (long long)run, name, views, (long long)run, name);
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL), SQLITE_OK);
    sqlite3_free(sql);
    int code = sqlite3_step(statement);
    if (metric->count == 0) {
        assert_true(code == SQLITE_DONE || sqlite3_column_int64(statement, 0) == 0);
    } else {
        assert_int_equal(code, SQLITE_ROW);
        char percentiles[128];
        snprintf(percentiles, sizeof percentiles, "%lld,%lld,%lld,%lld", (long long)metric->p50_ns,
                 (long long)metric->p90_ns, (long long)metric->p95_ns, (long long)metric->p99_ns);
        assert_int_equal(sqlite3_column_int64(statement, 0), metric->count);
        assert_int_equal(sqlite3_column_int64(statement, 1), metric->mean_ns);
        assert_int_equal(sqlite3_column_int64(statement, 2), metric->max_ns);
        assert_string_equal((const char *)sqlite3_column_text(statement, 3), percentiles);
    }
    sqlite3_finalize(statement);
}

static int64_t number(struct results *store, const char *sql, int64_t run)
{
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL), SQLITE_OK);
    sqlite3_bind_int64(statement, 1, run);
    int64_t value = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return value;
}

static void check_all_views(struct results *store, int64_t run, const struct run_report *report)
{
    check_views(store, run, "latency", "ttft", &report->ttft);
    check_views(store, run, "latency", "tpot", &report->tpot);
    check_views(store, run, "latency", "e2e", &report->e2e);
    for (int span = 0; span < SPAN_COUNT; span++)
        check_views(store, run, "span", span_names[span], &report->spans[span]);
    assert_int_equal(number(store, "SELECT served FROM run_rate WHERE run_id = ?", run), report->served);
    assert_int_equal(number(store, "SELECT cached_tokens FROM run_prefix WHERE run_id = ?", run),
                     report->cached_tokens);
}

/* Compares a stored run of the fixture with its rows. */
static void check_run(struct results *store, int64_t run, uint64_t seed, uint32_t requests)
{
    struct user_error error = {.set = false};
    struct run_report report;
    if (!results_run_read(store, run, &report, &error))
        fail_msg("%s", error.text);
    static int64_t values[SPAN_COUNT + 3][REQUESTS];
    uint32_t completed = 0;
    uint32_t with_tpot = 0;
    for (uint32_t k = 0; k < requests; k++) {
        struct request_row row = fixture_request(seed, k);
        if (row.outcome != OUTCOME_COMPLETED || row.warmup)
            continue;
        int64_t ttft = 0;
        for (int span = 0; span < SPAN_COUNT; span++) {
            values[span][completed] = row.boundary_ns[span + 1] - row.boundary_ns[span];
            ttft += span < SPAN_COUNT - 1 ? values[span][completed] : 0;
        }
        values[SPAN_COUNT][completed] = ttft;
        values[SPAN_COUNT + 1][completed] = ttft + values[SPAN_COUNT - 1][completed];
        if (row.output_tokens > 1)
            values[SPAN_COUNT + 2][with_tpot++] = values[SPAN_COUNT - 1][completed] / (int64_t)(row.output_tokens - 1);
        completed++;
    }
    for (int span = 0; span < SPAN_COUNT; span++)
        check_metric(span_names[span], &report.spans[span], values[span], completed);
    check_metric("ttft", &report.ttft, values[SPAN_COUNT], completed);
    check_metric("e2e", &report.e2e, values[SPAN_COUNT + 1], completed);
    check_metric("tpot", &report.tpot, values[SPAN_COUNT + 2], with_tpot);
    check_all_views(store, run, &report);
    run_report_free(&report);
}

static void percentiles_are_the_nearest_rank(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    /* Sizes around the places where a rank moves, and runs of which nothing counts. */
    static const uint32_t sizes[] = {0, 3, 6, 7, 15, 16, 25, 26, 105, 106, 107, 211, REQUESTS};
    int64_t runs[sizeof sizes / sizeof *sizes];
    for (uint32_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        assert_int_not_equal(runs[k] = fixture_run(store, 100 + k, sizes[k], &error), 0);
    for (uint32_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        check_run(store, runs[k], 100 + k, sizes[k]);
    fixture_close(store);
    fixture_remove(path);
}

static void token_gaps_come_from_the_histogram(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    int64_t run = fixture_run(store, 1, 20, &error);
    struct run_report report;
    assert_true(results_run_read(store, run, &report, &error));
    /* 1, 2, ... 30 ms, ten of each: the median is the 150th value, 15 ms, and so on, each as its bucket's end. */
    assert_int_equal(report.itl.count, 300);
    assert_int_equal(report.itl.p50_ns, itl_bucket_upper_ns(itl_bucket(15 * NS_PER_MS)));
    assert_int_equal(report.itl.p90_ns, itl_bucket_upper_ns(itl_bucket(27 * NS_PER_MS)));
    assert_int_equal(report.itl.p95_ns, itl_bucket_upper_ns(itl_bucket(29 * NS_PER_MS)));
    assert_int_equal(report.itl.p99_ns, itl_bucket_upper_ns(itl_bucket(30 * NS_PER_MS)));
    assert_int_equal(report.itl.max_ns, report.itl.p99_ns);
    /* A bucket is 0.8 % wide and taken at its middle: the mean of 15.5 ms is met within 0.4 %. */
    assert_in_range(report.itl.mean_ns, 15438000, 15562000);
    run_report_free(&report);
    fixture_close(store);
    fixture_remove(path);
}

/* The views compute a bucket's ends in SQL: they must be those of run_record.c, for every bucket. */
static void buckets_agree_between_c_and_sql(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    struct results_begin begin = fixture_begin(store, 1);
    uint64_t *itl = calloc(ITL_BUCKETS, sizeof *itl);
    assert_non_null(itl);
    for (uint32_t bucket = 0; bucket < ITL_BUCKETS; bucket++)
        itl[bucket] = 1;
    struct run_summary summary = fixture_summary(1, 0);
    assert_int_not_equal(results_run_begin(store, &begin, &error), 0);
    assert_true(results_run_commit(store, &summary, 0, NULL, 0, itl, &error));
    sqlite3_stmt *statement =
        results_prepare(store, "SELECT bucket, lower_ns, upper_ns FROM itl_bucket ORDER BY bucket", &error);
    uint32_t rows = 0;
    int64_t last_upper = -1;
    while (sqlite3_step(statement) == SQLITE_ROW) {
        uint32_t bucket = (uint32_t)sqlite3_column_int(statement, 0);
        int64_t lower = sqlite3_column_int64(statement, 1);
        int64_t upper = sqlite3_column_int64(statement, 2);
        assert_int_equal(bucket, rows++);
        assert_int_equal(lower, last_upper + 1);
        assert_int_equal(upper, itl_bucket_upper_ns(bucket));
        assert_int_equal(itl_bucket(lower), bucket);
        assert_int_equal(itl_bucket(upper), bucket);
        last_upper = upper;
    }
    assert_int_equal(rows, ITL_BUCKETS);
    assert_int_equal(itl_bucket(last_upper + 1), ITL_BUCKETS - 1);
    assert_int_equal(itl_bucket(INT64_MAX), ITL_BUCKETS - 1);
    sqlite3_finalize(statement);
    free(itl);
    fixture_close(store);
    fixture_remove(path);
}

static void the_sum_of_long_waits_does_not_overflow(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    struct results_begin begin = fixture_begin(store, 1);
    uint64_t *itl = fixture_itl();
    assert_int_not_equal(results_run_begin(store, &begin, &error), 0);
    /* Three that take 150 years each: their sum leaves 64 bits, their mean does not. */
    for (uint32_t k = 0; k < 3; k++) {
        struct request_row row = fixture_request(1, 0);
        row.request = k;
        row.warmup = false;
        row.boundary_ns[BOUNDARY_FIRST_TOKEN] =
            row.boundary_ns[BOUNDARY_ARRIVED] + INT64_C(4700000000000000000) + k * 5;
        row.boundary_ns[BOUNDARY_FINISHED] = row.boundary_ns[BOUNDARY_FIRST_TOKEN];
        assert_true(results_add_request(store, &row, &error));
    }
    struct run_summary summary = fixture_summary(1, 0);
    assert_true(results_run_commit(store, &summary, 0, NULL, 0, itl, &error));
    struct run_report report;
    if (!results_run_read(store, 1, &report, &error))
        fail_msg("%s", error.text);
    assert_int_equal(report.ttft.mean_ns, INT64_C(4700000000000000005));
    run_report_free(&report);
    free(itl);
    fixture_close(store);
    fixture_remove(path);
}

static void goodput_counts_what_the_scenario_asks(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    uint64_t *itl = fixture_itl();
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct results_begin begin = fixture_begin(store, seed);
        begin.targets = seed == 1 ? &fixture_targets : NULL;
        assert_int_not_equal(results_run_begin(store, &begin, &error), 0);
        uint64_t counted = 0;
        for (uint32_t k = 0; k < 100; k++) {
            struct request_row row = fixture_request(seed, k);
            counted += row.outcome == OUTCOME_COMPLETED && !row.warmup;
            assert_true(results_add_request(store, &row, &error));
        }
        struct run_summary summary = fixture_summary(seed, 100);
        summary.start_ns = NS_PER_S;
        summary.end_ns = 21 * NS_PER_S;
        assert_true(results_run_commit(store, &summary, 0, fixture_instances, 2, itl, &error));
        struct run_report report;
        assert_true(results_run_read(store, (int64_t)seed, &report, &error));
        uint64_t expected = begin.targets != NULL ? summary.met_all_targets : counted;
        assert_int_equal(report.served, expected);
        assert_int_equal(report.duration_ns, 20 * NS_PER_S);
        assert_int_equal(report.goodput_micro_per_s, expected * 50000);
        assert_int_equal(report.requests + report.warmup_requests, 100);
        assert_int_equal(report.completed, counted);
        assert_int_equal(report.instance_count, 2);
        assert_string_equal(report.instances[0].name, "prefill-0");
        assert_string_equal(report.instances[1].role, "decode");
        assert_int_equal(report.instances[0].utilization_permille, 3000 / 21);
        assert_int_equal(report.instances[1].kv_used_peak_permille, 999);
        assert_int_equal(report.instances[1].bandwidth_bound_permille, 777);
        run_report_free(&report);
    }
    free(itl);
    fixture_close(store);
    fixture_remove(path);
}

static int64_t count_rows(struct results *store, const char *table)
{
    struct user_error error = {.set = false};
    char sql[256];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
    sqlite3_stmt *statement = results_prepare(store, sql, &error);
    assert_non_null(statement);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return count;
}

static void a_repetition_is_a_check(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    int64_t run = fixture_run(store, 7, 30, &error);
    assert_int_not_equal(run, 0);
    assert_int_equal(fixture_run(store, 7, 30, &error), run);
    assert_int_equal(count_rows(store, "run"), 1);
    assert_int_equal(count_rows(store, "request"), 30);

    /* Other events with the same seed: refused, both fingerprints shown, nothing changed. */
    assert_int_equal(fixture_run(store, 7, 31, &error), 0);
    assert_non_null(strstr(error.text, "is not reproduced"));
    assert_non_null(strstr(error.text, "270 events"));
    assert_non_null(strstr(error.text, "279 events"));
    assert_non_null(strstr(error.text, "scenario small, seed 7"));
    assert_int_equal(count_rows(store, "request"), 30);

    /* Another seed, other parameters, and another backend are other runs. */
    error.set = false;
    assert_int_not_equal(fixture_run(store, 8, 30, &error), run);
    struct results_param params[] = {{"pools.prefill.count", "2"}, {"load.rate", "per_second(8)"}};
    struct results_begin begin = fixture_begin(store, 7);
    int64_t found;
    begin.key.params = params;
    begin.key.param_count = 2;
    assert_true(results_run_find(store, &begin.key, &found, &error));
    assert_int_equal(found, 0);
    int64_t swept = results_run_begin(store, &begin, &error);
    assert_int_not_equal(swept, run);
    struct run_summary summary = fixture_summary(7, 0);
    uint64_t *itl = fixture_itl();
    assert_true(results_run_commit(store, &summary, 0, fixture_instances, 2, itl, &error));
    struct results_param reversed[] = {params[1], params[0]};
    begin.key.params = reversed;
    assert_true(results_run_find(store, &begin.key, &found, &error));
    assert_int_equal(found, swept);
    assert_int_equal(count_rows(store, "run_param"), 2);

    /* Real runs may repeat. */
    for (int k = 0; k < 2; k++) {
        begin.key.backend = RESULTS_REAL;
        assert_int_not_equal(results_run_begin(store, &begin, &error), swept);
        assert_true(results_run_commit(store, &summary, 0, NULL, 0, itl, &error));
    }
    assert_int_equal(count_rows(store, "run"), 5);
    free(itl);
    fixture_close(store);
    fixture_remove(path);
}

static void add_recordings(struct results *store)
{
    struct user_error error = {.set = false};
    struct transfer_row transfer = {.request = 1,
                                    .epoch = 1,
                                    .source = 1,
                                    .destination = 2,
                                    .layers = 61,
                                    .bytes = UINT64_C(1) << 40,
                                    .writes = 96256,
                                    .posted_ns = 5,
                                    .landed_ns = 6,
                                    .confirmed_ns = 7};
    struct step_row step = {.node = 1, .steps = 3, .start_ns = 1, .end_ns = 2, .prefill_tokens = 512};
    assert_true(results_add_transfer(store, &transfer, &error));
    assert_true(results_add_step(store, &step, &error));
    assert_true(results_add_sample(
        store, &(struct sample_row){.node = 2, .counter = "waiting", .at_ns = 10, .value = 4}, &error));
}

static void recordings_are_kept_where_asked_for(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    struct results_begin begin = fixture_begin(store, 1);
    struct run_summary summary = fixture_summary(1, 0);
    uint64_t *itl = fixture_itl();
    begin.kind = RESULTS_PROBE;
    begin.record = RECORD_STEPS;
    assert_int_equal(results_run_begin(store, &begin, &error), 1);
    add_recordings(store);
    assert_true(results_run_commit(store, &summary, 0, NULL, 0, itl, &error));
    assert_int_equal(count_rows(store, "step"), 1);
    assert_int_equal(count_rows(store, "transfer"), 0);
    assert_int_equal(count_rows(store, "sample"), 0);
    assert_int_equal(count_rows(store, "complete_run WHERE kind = 'probe' AND record = 2"), 1);

    /* Asked for again with more: what is there stays, what is missing comes in, and it is no probe any more. */
    begin.kind = RESULTS_RUN;
    begin.record = RECORD_STEPS | RECORD_TRANSFERS | RECORD_SAMPLES;
    assert_int_equal(results_run_begin(store, &begin, &error), 1);
    add_recordings(store);
    assert_true(results_run_commit(store, &summary, 0, NULL, 0, itl, &error));
    assert_int_equal(count_rows(store, "step"), 1);
    assert_int_equal(count_rows(store, "transfer WHERE bytes = 1 << 40 AND writes = 96256 AND confirmed_ns = 7"), 1);
    assert_int_equal(count_rows(store, "sample WHERE counter = 'waiting' AND value = 4"), 1);
    assert_int_equal(count_rows(store, "complete_run WHERE kind = 'run' AND record = 7"), 1);
    free(itl);
    fixture_close(store);
    fixture_remove(path);
}

/* Chunks of one attempt are rows of their own; what is told is from the first post to the last byte. */
static void a_transfer_has_a_row_a_chunk(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    struct results_begin begin = fixture_begin(store, 1);
    struct run_summary summary = fixture_summary(1, 50);
    uint64_t *itl = fixture_itl();
    begin.record = RECORD_TRANSFERS;
    int64_t run = results_run_begin(store, &begin, &error);
    uint64_t measured = 0;
    for (uint32_t k = 0; k < 50; k++) {
        struct request_row request = fixture_request(1, k);
        request.cached_tokens = request.prompt_tokens / 4;
        assert_true(results_add_request(store, &request, &error));
        measured += request.outcome == OUTCOME_COMPLETED && !request.warmup;
        struct transfer_row chunk = {.request = k, .epoch = 9, .bytes = 100, .posted_ns = 1000, .landed_ns = 3000};
        assert_true(results_add_transfer(store, &chunk, &error));
        chunk.ticket = 1; /* posted at the same instant */
        assert_true(results_add_transfer(store, &chunk, &error));
        chunk.ticket = 0; /* free again */
        chunk.posted_ns = 4000;
        chunk.landed_ns = 8000 + (int64_t)k;
        assert_true(results_add_transfer(store, &chunk, &error));
    }
    assert_true(results_run_commit(store, &summary, 0, NULL, 0, itl, &error));
    assert_int_equal(count_rows(store, "transfer"), 150);
    struct run_report report;
    assert_true(results_run_read(store, run, &report, &error));
    assert_int_equal(report.transfer.count, measured);
    assert_in_range(report.transfer.p50_ns, 7000, 7049);
    assert_in_range(report.transfer.max_ns, report.transfer.p99_ns, 7049);
    assert_in_range(run_report_cached_permille(&report), 240, 250);
    run_report_free(&report);
    free(itl);
    fixture_close(store);
    fixture_remove(path);
}

static void unreached_boundaries_are_null(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    assert_int_not_equal(fixture_run(store, 3, 50, &error), 0);
    /* 7, 18, 29, 40 did not complete: no dispatch, nothing from READY on, but an end. */
    assert_int_equal(count_rows(store, "request WHERE outcome <> 1"), 4);
    assert_int_equal(count_rows(store, "request WHERE dispatched_ns IS NULL AND prefill_started_ns IS NOT NULL AND"
                                       " ready_ns IS NULL AND first_token_ns IS NULL AND finished_ns IS NOT NULL"),
                     4);
    fixture_close(store);
    fixture_remove(path);
}

static void add_disordered(void *argument)
{
    struct user_error error = {.set = false};
    struct results *store = argument;
    struct results_begin begin = fixture_begin(store, 1);
    struct request_row row = fixture_request(1, 0);
    row.boundary_ns[BOUNDARY_READY] = row.boundary_ns[BOUNDARY_PREFILL_FINISHED] - 1;
    results_run_begin(store, &begin, &error);
    results_add_request(store, &row, &error);
}

static void a_completed_request_out_of_order_is_a_bug(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    assert_check_fails(add_disordered, store, "reached");
    fixture_close(store);
    fixture_remove(path);
}

static void runs_are_found_by_what_people_call_them(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    int64_t first = fixture_run(store, 1, 10, &error);
    int64_t second = fixture_run(store, 2, 10, &error);
    assert_int_equal(results_run_lookup(store, "last", &error), second);
    assert_int_equal(results_run_lookup(store, "last~1", &error), first);
    assert_int_equal(results_run_lookup(store, "2", &error), second);
    assert_int_equal(results_run_lookup(store, "small/1", &error), first);
    assert_int_equal(results_run_lookup(store, "small", &error), second);
    /* Running the first again makes it the last. */
    assert_int_equal(fixture_run(store, 1, 10, &error), first);
    assert_int_equal(results_run_lookup(store, "last", &error), first);
    assert_false(error.set);

    static const struct {
        const char *name;
        const char *text;
    } wrong[] = {
        {"last~2", "holds no run last~2: fewer runs are stored"},
        {"17", "holds no run 17; the newest is 2"},
        {"smal/1", "holds no run of a scenario 'smal'; nearest: 'small'"},
        {"small/9", "holds no run of small with seed 9"},
        {"xyzzy", "holds no run 'xyzzy': expected a number, last, last~N, or SCENARIO/SEED"},
        {"99999999999999999999", "holds no run '99999999999999999999': expected"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        error.set = false;
        assert_int_equal(results_run_lookup(store, wrong[k].name, &error), 0);
        if (strstr(error.text, wrong[k].text) == NULL)
            fail_msg("%s: %s", wrong[k].name, error.text);
    }
    struct run_report report;
    error.set = false;
    assert_false(results_run_read(store, 44, &report, &error));
    assert_non_null(strstr(error.text, "holds no run 44"));
    fixture_close(store);
    fixture_remove(path);
}

static void findings_replace_their_like(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    struct results_begin begin = fixture_begin(store, 1);
    json_t *detail = json_pack("{s:[i,i]}", "seeds", 1, 2);
    struct results_finding finding = {
        .scenario = begin.key.scenario,
        .build = begin.key.build,
        .kind = "candidate",
        .label = "2P3D tp8",
        .prefill = 2,
        .decode = 3,
        .sharding = "tp8/dp8",
        .nodes = 5,
        .max_rate_micro_per_s = 14500000,
        .goodput_per_gpu_micro_per_s = 362500,
        .ttft_ns = 1234567890,
        .tpot_ns = 24999999,
        .usd_micros_per_mtok = -1,
        .saturation_permille = 912,
        .bound_by = "decode bandwidth",
        .detail = detail,
    };
    assert_true(results_finding_add(store, &finding, &error));
    finding.max_rate_micro_per_s = 15000000;
    assert_true(results_finding_add(store, &finding, &error));
    finding.label = "1P4D tp8";
    finding.detail = NULL;
    assert_true(results_finding_add(store, &finding, &error));
    json_t *findings = results_findings_json(store, begin.key.scenario, begin.key.build, &error);
    assert_int_equal(json_array_size(findings), 2);
    json_t *first = json_array_get(findings, 0);
    assert_string_equal(json_string_value(json_object_get(first, "label")), "2P3D tp8");
    char *text = json_dumps(first, JSON_COMPACT | JSON_REAL_PRECISION(15));
    assert_string_equal(
        text, "{\"kind\":\"candidate\",\"label\":\"2P3D tp8\",\"prefill\":2,\"decode\":3,\"sharding\":\"tp8/dp8\","
              "\"nodes\":5,\"max_rate_per_s\":15.0,\"goodput_per_gpu_per_s\":0.3625,\"ttft_ms\":1234.56789,"
              "\"tpot_ms\":24.999999,\"usd_per_mtok\":null,\"saturation\":0.912,\"bound_by\":\"decode bandwidth\","
              "\"why\":null,\"detail\":{\"seeds\":[1,2]}}");
    free(text);
    json_decref(findings);
    json_decref(detail);

    /* A finding of a scenario that is not there has nothing to be about. */
    finding.scenario = 99;
    assert_false(results_finding_add(store, &finding, &error));
    fixture_close(store);
    fixture_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_the_nearest_rank),
        cmocka_unit_test(token_gaps_come_from_the_histogram),
        cmocka_unit_test(buckets_agree_between_c_and_sql),
        cmocka_unit_test(the_sum_of_long_waits_does_not_overflow),
        cmocka_unit_test(goodput_counts_what_the_scenario_asks),
        cmocka_unit_test(a_repetition_is_a_check),
        cmocka_unit_test(recordings_are_kept_where_asked_for),
        cmocka_unit_test(a_transfer_has_a_row_a_chunk),
        cmocka_unit_test(unreached_boundaries_are_null),
        cmocka_unit_test(a_completed_request_out_of_order_is_a_bug),
        cmocka_unit_test(runs_are_found_by_what_people_call_them),
        cmocka_unit_test(findings_replace_their_like),
    };
    return cmocka_run_group_tests_name("results: rows and views", tests, NULL, NULL);
}
