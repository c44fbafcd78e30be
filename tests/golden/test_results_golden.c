/* Approved texts: the schema of the results database, and a run and a comparison of runs in every format. */
#define _POSIX_C_SOURCE 200809L

#include "host/compare.h"
#include "host/report_run.h"
#include "host/results_internal.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema),
        cmocka_unit_test(runs),
    };
    return cmocka_run_group_tests_name("results: approved texts", tests, NULL, NULL);
}
