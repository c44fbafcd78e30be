/* Baselines: what was written is read, what is not a baseline, damaged or too new is refused by name, and an update
 * that is given up leaves the old one.
 */
#define _POSIX_C_SOURCE 200809L

#include "run/baseline.h"

#include "base/rng.h"
#include "run/results/results.h"
#include "run/run_record.h"
#include "support/scenario_text.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Packed traces ----------------------------------------------------------------------------------------------- */

/* Records as odd as they can be: times that go back, operands of 64 bits, no request. */
static void draw_log(struct trace_log *log, uint64_t seed, uint32_t count, bool wild)
{
    struct rng rng = rng_stream(seed, 0, RNG_ROUTING);
    int64_t at_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct trace_record record = {
            .kind = (uint16_t)(1 + rng_below(&rng, 26)),
            .node = (uint16_t)rng_below(&rng, 4),
            .request = rng_below(&rng, 8) == 0 ? TRACE_NO_REQUEST : (uint32_t)rng_below(&rng, 1000),
            .a = wild ? rng_next(&rng) : rng_below(&rng, 100),
            .b = wild ? rng_next(&rng) : rng_below(&rng, 100),
        };
        at_ns = wild ? (int64_t)(rng_next(&rng) >> 2) - (INT64_C(1) << 61) : at_ns + (int64_t)rng_below(&rng, 1000000);
        trace_log_add(log, at_ns, &record);
    }
}

static bool equal_logs(const struct trace_log *a, const struct trace_log *b)
{
    if (a->count != b->count || trace_log_hash(a) != trace_log_hash(b))
        return false;
    for (uint64_t i = 0; i < a->count; i++) {
        const struct trace_record *x = &a->items[i].record;
        const struct trace_record *y = &b->items[i].record;
        if (a->items[i].at_ns != b->items[i].at_ns || x->kind != y->kind || x->node != y->node ||
            x->request != y->request || x->a != y->a || x->b != y->b)
            return false;
    }
    return true;
}

static void a_packed_trace_is_the_same_trace(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0, 1, 2, 300, 20000};
    for (size_t k = 0; k < 2 * sizeof counts / sizeof *counts; k++) {
        struct user_error error = {.set = false};
        struct trace_log log = {.count = 0};
        struct trace_log again;
        size_t size;
        draw_log(&log, k, counts[k / 2], k % 2 == 1);
        unsigned char *bytes = trace_log_pack(&log, &size, &error);
        assert_non_null(bytes);
        assert_true(trace_log_unpack(&again, bytes, size));
        assert_true(equal_logs(&log, &again));
        trace_log_free(&again);
        trace_log_free(&log);
        free(bytes);
    }
}

/* No byte may be lost or changed unseen: unpacking fails, or the hash differs. */
static void a_damaged_trace_is_seen(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    struct trace_log log = {.count = 0};
    struct trace_log again;
    size_t size;
    draw_log(&log, 7, 200, false);
    uint64_t hash = trace_log_hash(&log);
    unsigned char *bytes = trace_log_pack(&log, &size, &error);
    assert_non_null(bytes);
    for (size_t length = 0; length < size; length++)
        assert_false(trace_log_unpack(&again, bytes, length));
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x10;
        if (trace_log_unpack(&again, bytes, size)) {
            /* The frame of the compressor has bits that mean nothing for what comes out. */
            assert_true(trace_log_hash(&again) != hash || equal_logs(&log, &again));
            trace_log_free(&again);
        }
        bytes[i] ^= 0x10;
    }
    trace_log_free(&log);
    free(bytes);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static void make_run(struct baseline_run *run, uint64_t seed)
{
    static const char names[][BASELINE_NODE_NAME_SIZE] = {"front", "prefill-0", "decode-0", "decode-1"};
    *run = (struct baseline_run){.node_count = 4, .event_count = 77, .final_draw = UINT64_MAX - seed, .end_ns = 12345};
    memset(run->identity, 'a', 64);
    run->nodes = calloc(4, sizeof *run->nodes);
    run->itl = calloc(ITL_BUCKETS, sizeof *run->itl);
    assert_true(run->nodes != NULL && run->itl != NULL);
    memcpy(run->nodes, names, sizeof names);
    run->itl[0] = 3;
    run->itl[ITL_BUCKETS - 1] = UINT64_C(1) << 60;
    draw_log(&run->log, seed, 500, false);
    run->trace_hash = trace_log_hash(&run->log);
}

static const struct baseline_blessing first = {
    .reason = "it is right", .version = "0.1.0", .build = "b1", .at = "2026-11-29 21:50", .cases = 1, .changed = 1};

static void write_baseline(const char *path)
{
    struct user_error error = {.set = false};
    struct baseline_writer *writer = baseline_create(path, &error);
    assert_non_null(writer);
    assert_true(baseline_add_blessing(writer, &first, &error));
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct baseline_run run;
        make_run(&run, seed);
        assert_true(baseline_add_run(writer, "it's a case", seed, &run, &error));
        baseline_run_free(&run);
    }
    assert_true(baseline_commit(writer, &error));
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    write_baseline("right.baseline");
    struct baseline *baseline = baseline_open("right.baseline", &error);
    assert_non_null(baseline);
    assert_int_equal(baseline_blessing_count(baseline), 1);
    assert_string_equal(baseline_blessing(baseline, 0)->reason, "it is right");
    assert_int_equal(baseline_run_count(baseline), 3);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct baseline_run run;
        struct baseline_run made;
        bool found;
        make_run(&made, seed);
        assert_true(baseline_run_read(baseline, "it's a case", seed, &run, &found, &error));
        assert_int_equal(found, seed <= 3);
        if (found) {
            assert_true(equal_logs(&run.log, &made.log));
            assert_string_equal(run.identity, made.identity);
            assert_int_equal(run.final_draw, made.final_draw);
            assert_memory_equal(run.nodes, made.nodes, 4 * sizeof *run.nodes);
            assert_memory_equal(run.itl, made.itl, ITL_BUCKETS * sizeof *run.itl);
        }
        baseline_run_free(&run);
        baseline_run_free(&made);
    }
    baseline_close(baseline);
}

static void refused(const char *path, const char *why)
{
    struct user_error error = {.set = false};
    struct baseline *baseline = baseline_open(path, &error);
    if (baseline != NULL)
        fail_msg("%s was opened", path);
    if (strncmp(error.text, path, strlen(path)) != 0 || strstr(error.text, why) == NULL)
        fail_msg("%s; expected '%s' in it", error.text, why);
}

static void execute(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void what_is_no_baseline_is_refused_by_name(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    refused("nowhere.baseline", "no baseline");
    scenario_text_write("text.baseline", "return suite {}\n", 16);
    refused("text.baseline", "not SQLite's");
    struct results *store = results_open("runs.db", RESULTS_WRITE, &error);
    assert_non_null(store);
    assert_true(results_close(store, &error));
    refused("runs.db", "not a baseline, but another database");
    write_baseline("newer.baseline");
    execute("newer.baseline", "PRAGMA user_version = 2");
    refused("newer.baseline", "format 2; this tandem reads format 1");
    write_baseline("short.baseline");
    assert_int_equal(truncate("short.baseline", 3000), 0);
    refused("short.baseline", "damaged");
}

static void a_changed_run_is_refused(void **state)
{
    (void)state;
    static const char *const changes[] = {
        "UPDATE case_run SET trace_hash = trace_hash + 1",
        "UPDATE case_run SET trace = x'00'",
        "UPDATE case_run SET nodes = 'front' || char(10)", /* records of nodes that are not there */
        "UPDATE case_run SET itl = '999999:1'",
    };
    for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
        struct user_error error = {.set = false};
        struct baseline_run run;
        bool found;
        write_baseline("changed.baseline");
        execute("changed.baseline", changes[k]);
        struct baseline *baseline = baseline_open("changed.baseline", &error);
        assert_non_null(baseline);
        assert_false(baseline_run_read(baseline, "it's a case", 1, &run, &found, &error));
        assert_non_null(strstr(error.text, "changed.baseline: the baseline is damaged"));
        baseline_close(baseline);
    }
}

static void an_update_that_is_given_up_leaves_the_old_one(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    write_baseline("kept.baseline");
    struct baseline_writer *writer = baseline_create("kept.baseline", &error);
    assert_non_null(writer);
    assert_true(baseline_add_blessing(writer, &first, &error));
    struct baseline *baseline = baseline_open("kept.baseline", &error);
    assert_non_null(baseline);
    assert_int_equal(baseline_run_count(baseline), 3);
    baseline_close(baseline);
    baseline_abandon(writer);
    assert_int_equal(access("kept.baseline.part", F_OK), -1);
    /* What an update that was killed left behind is in nobody's way. */
    scenario_text_write("kept.baseline.part", "half", 4);
    write_baseline("kept.baseline");
    baseline = baseline_open("kept.baseline", &error);
    assert_non_null(baseline);
    baseline_close(baseline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_trace_is_the_same_trace),
        cmocka_unit_test(a_damaged_trace_is_seen),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(what_is_no_baseline_is_refused_by_name),
        cmocka_unit_test(a_changed_run_is_refused),
        cmocka_unit_test(an_update_that_is_given_up_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, scenario_text_setup, scenario_text_teardown);
}
