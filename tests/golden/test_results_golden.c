/* Approved texts: the schema of the results database, and a run and a comparison of runs in every format. */
#define _POSIX_C_SOURCE 200809L

#include "run/compare/compare.h"
#include "cli/report_run.h"
#include "run/results/results_internal.h"
#include "support/golden.h"
#include "support/results_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the file itself says its schema is, after all migrations. */
static void schema(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    sqlite3_stmt *statement =
        results_prepare(store, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name", &error);
    assert_non_null(statement);
    while (sqlite3_step(statement) == SQLITE_ROW)
        fprintf(file, "%s;\n\n", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    fclose(file);
    assert_golden("results_schema", text);
    free(text);
    fixture_close(store);
    fixture_remove(path);
}

static bool first_divergence(struct results *store, int64_t run_a, int64_t run_b, struct divergence *divergence,
                             struct user_error *error)
{
    (void)store;
    (void)error;
    *divergence = (struct divergence){.found = true, .record = 17, .time_a_ns = 5000, .time_b_ns = 5250};
    snprintf(divergence->a, sizeof divergence->a, "front routed request %d a=2 b=1", (int)run_a);
    snprintf(divergence->b, sizeof divergence->b, "front routed request %d a=3 b=1", (int)run_b);
    return true;
}

static void compare_in(struct results *store, int64_t a, int64_t b, const char *format, divergence_function *function,
                       const char *golden)
{
    struct user_error error = {.set = false};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    struct output output = output_to(file, format);
    if (!compare_runs(store, a, b, function, &output, &error))
        fail_msg("%s", error.text);
    fclose(file);
    assert_golden(golden, text);
    free(text);
}

static void report_in(const struct run_report *report, const char *format, const char *golden)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    struct output output = output_to(file, format);
    report_run(report, &output);
    fclose(file);
    assert_golden(golden, text);
    free(text);
}

static void runs(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct user_error error = {.set = false};
    int64_t full = fixture_run(store, 1, 300, &error);
    int64_t other = fixture_run(store, 2, 250, &error);
    int64_t empty = fixture_run(store, 3, 0, &error);
    struct run_report report;
    assert_true(results_run_read(store, full, &report, &error));
    report_in(&report, NULL, "report_run_text");
    report_in(&report, "json", "report_run_json");
    report_in(&report, "csv", "report_run_csv");
    report_in(&report, "md", "report_run_markdown");
    run_report_free(&report);
    /* Nothing completed: no number is made up. */
    assert_true(results_run_read(store, empty, &report, &error));
    report_in(&report, "json", "report_run_empty_json");
    report_in(&report, NULL, "report_run_empty_text");
    run_report_free(&report);

    compare_in(store, full, other, NULL, first_divergence, "compare_text");
    compare_in(store, full, other, "json", first_divergence, "compare_json");
    compare_in(store, full, other, "csv", NULL, "compare_csv");
    compare_in(store, full, full, "md", first_divergence, "compare_same_markdown");
    fixture_close(store);
    fixture_remove(path);
}

/* ---- A measured and a predicted run ------------------------------------------------------------------------------ */

#define MS INT64_C(1000000)

/* Request `k` of five; the prediction's spans are 10 % short, its transfers 20 % long, and it sends the last request
 * elsewhere. */
static void add_rows(struct results *store, bool real, uint32_t k, struct user_error *error)
{
    const int64_t span_ns[SPAN_COUNT] = {MS / 10, 0, MS / 5, (5 + k) * MS, MS / 4, 0, MS / 2, 20 * MS};
    struct request_row row = {
        .request = k,
        .prompt_tokens = 40 + k,
        .output_tokens = 21,
        .prefiller = 1,
        .decoder = real || k < 4 ? 2 : 1,
        .outcome = OUTCOME_COMPLETED,
        .attempts = 1,
    };
    row.boundary_ns[0] = k * 100 * MS;
    for (int s = 0; s < SPAN_COUNT; s++)
        row.boundary_ns[s + 1] = row.boundary_ns[s] + (real ? span_ns[s] : span_ns[s] * 9 / 10);
    struct transfer_row transfer = {
        .request = k,
        .source = 1,
        .destination = 2,
        .layers = 4,
        .bytes = k < 3 ? 70000 : 140000,
        .writes = 48,
        .posted_ns = row.boundary_ns[3],
        .landed_ns = row.boundary_ns[3] + (real ? 5 * MS : 6 * MS),
        .confirmed_ns = row.boundary_ns[5],
    };
    struct step_row prefill = {
        .node = 1,
        .steps = 1,
        .prefill_tokens = real || k != 2 ? row.prompt_tokens : 99,
        .start_ns = row.boundary_ns[3],
        .end_ns = row.boundary_ns[4],
    };
    /* Measured in two launches, predicted in one: the same batch. */
    struct step_row decode = {
        .node = 2,
        .steps = 20,
        .decode_sequences = 1,
        .decode_context = row.prompt_tokens,
        .start_ns = row.boundary_ns[6],
        .end_ns = row.boundary_ns[8],
    };
    assert_true(results_add_request(store, &row, error) && results_add_transfer(store, &transfer, error));
    assert_true(results_add_step(store, &prefill, error));
    if (real) {
        int64_t half_ns = (decode.start_ns + decode.end_ns) / 2;
        struct step_row rest = decode;
        rest.start_ns = half_ns;
        rest.steps = decode.steps = 10;
        rest.decode_context += 10;
        decode.end_ns = half_ns;
        assert_true(results_add_step(store, &rest, error));
    }
    assert_true(results_add_step(store, &decode, error));
}

static int64_t add_run(struct results *store, bool real)
{
    struct user_error error = {.set = false};
    struct results_begin begin = fixture_begin(store, 7);
    begin.key.backend = real ? RESULTS_REAL : RESULTS_SIM;
    begin.record = RECORD_STEPS | RECORD_TRANSFERS;
    int64_t run = results_run_begin(store, &begin, &error);
    assert_true(run != 0);
    for (uint32_t k = 0; k < 5; k++)
        add_rows(store, real, k, &error);
    struct run_summary summary = fixture_summary(real ? 7 : 8, 5);
    summary.arrived = 5;
    uint64_t *itl = fixture_itl();
    assert_true(results_run_commit(store, &summary, 1, fixture_instances, 2, itl, &error));
    free(itl);
    return run;
}

static bool not_simulated(struct results *store, int64_t run_a, int64_t run_b, struct divergence *divergence,
                          struct user_error *error)
{
    (void)store;
    (void)run_b;
    (void)error;
    *divergence = (struct divergence){.found = false};
    snprintf(divergence->unknown, sizeof divergence->unknown, "run %d was not simulated", (int)run_a);
    return true;
}

static void predicted_and_measured(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    int64_t real = add_run(store, true);
    int64_t sim = add_run(store, false);
    compare_in(store, real, sim, NULL, not_simulated, "compare_errors_text");
    compare_in(store, real, sim, "json", not_simulated, "compare_errors_json");
    compare_in(store, real, sim, "csv", not_simulated, "compare_errors_csv");
    /* The real one is the reference whichever is named first. */
    compare_in(store, sim, real, "md", not_simulated, "compare_errors_markdown");
    fixture_close(store);
    fixture_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema),
        cmocka_unit_test(runs),
        cmocka_unit_test(predicted_and_measured),
    };
    return cmocka_run_group_tests_name("results: approved texts", tests, NULL, NULL);
}
