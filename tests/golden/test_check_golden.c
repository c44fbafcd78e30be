/* Approved texts of `tandem check` in every format, of made-up results: a scenario that is the same, one that is worse
 * by another decision, one whose times alone differ, one that stood still.
 */
#define _POSIX_C_SOURCE 200809L

#include "sim/check/gate_output.h"

#include "support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void watch(struct case_result *one, const char *name, const int64_t *before, const int64_t *after,
                  uint32_t pairs)
{
    struct user_error error = {.set = false};
    struct watched *watched = &one->watched[one->watched_count++];
    assert_true(watch_read(name, &watched->watch, &error));
    struct paired_rule rule = {watched->watch.more_is_better, 10};
    watched->paired = paired_compare(before, after, pairs, &rule);
}

static void routed_elsewhere(struct divergence *found)
{
    *found =
        (struct divergence){.found = true,
                            .record = 812,
                            .node = "front",
                            .request = 17,
                            .time_a_ns = 1234567890,
                            .time_b_ns = 1234567890,
                            .a = "front routed request 17 decoder=3 prefiller=1",
                            .b = "front routed request 17 decoder=3 prefiller=2",
                            .before_count = 2,
                            .before = {{1234500000, "prefill-0 chunk request 16 from=0 tokens=512"},
                                       {1234567890, "front arrived request 17 prompt=700 output=90"}},
                            .about_count = 1,
                            .about = {{1234567890, "front arrived request 17 prompt=700 output=90"}},
                            .node_count = 3,
                            .nodes = {{.node = 1, .name = "prefill-0", .queued = 2, .prefilling = 1},
                                      {.node = 2, .name = "prefill-1", .draining = 1},
                                      {.node = 3, .name = "decode-0", .waiting = 1, .filling = 3, .decoding = 12}}};
}

static void fill_worse(struct case_result *one)
{
    static const char *const names[MOVED_COUNT] = {"ttft",           "tpot",          "e2e",     "route",
                                                   "admission_wait", "prefill_queue", "prefill", "exposed_transfer",
                                                   "decode_queue",   "first_decode",  "decode"};
    static const int64_t ttft[2][5] = {{101000000, 99000000, 105000000, 98000000, 102000000},
                                       {131000000, 126000000, 140000000, 125500000, 133000000}};
    static const int64_t served[2][5] = {{15900000, 16100000, 16000000, 15950000, 16050000},
                                         {15900000, 16100001, 16000000, 15950000, 16050000}};
    one->verdict = VERDICT_WORSE;
    one->distinct = 5;
    one->diverging_seed = 2;
    one->same = 1;
    one->scenario_changed = true;
    one->unfinished = 1;
    routed_elsewhere(&one->first);
    watch(one, "ttft.p95", ttft[0], ttft[1], 5);
    watch(one, "goodput", served[0], served[1], 5);
    for (uint32_t k = 0; k < MOVED_COUNT; k++) {
        struct moved *moved = &one->moved[k];
        snprintf(moved->name, sizeof moved->name, "%s", names[k]);
        moved->requests = 1000;
        moved->mean_before_ns = moved->mean_after_ns = 5000000 * (k + 1);
        if (k == 0 || k == 5) {
            moved->faster = 40;
            moved->faster_p50_ns = 1500000;
            moved->slower = 310;
            moved->slower_p50_ns = 28000499;
            moved->mean_after_ns += 9876543;
        }
    }
}

static void fill_times(struct case_result *one)
{
    static const int64_t tpot[2][1] = {{16000000}, {16050000}};
    one->verdict = VERDICT_CHANGED;
    one->distinct = 1;
    one->diverging_seed = 1;
    one->requests_changed = true;
    routed_elsewhere(&one->first);
    one->first.times_alone = true;
    one->first.time_b_ns += 250;
    memcpy(one->first.b, one->first.a, sizeof one->first.b);
    watch(one, "tpot.p50", tpot[0], tpot[1], 1);
}

static const struct baseline_blessing blessing = {.reason = "prefill kernels were measured again",
                                                  .version = "0.1.0",
                                                  .build = "0123456789abcdef",
                                                  .at = "2026-11-29 21:50"};

static void make_suite(struct suite *suite)
{
    static const char *const names[] = {"as-it-was", "worse", "other-times", "stuck"};
    memset(suite, 0, sizeof *suite);
    snprintf(suite->path, sizeof suite->path, "suites/golden.lua");
    for (uint32_t k = 0; k < 4; k++) {
        snprintf(suite->cases[k].name, sizeof suite->cases[k].name, "%s", names[k]);
        snprintf(suite->cases[k].scenario, sizeof suite->cases[k].scenario, "scenarios/%s.lua", names[k]);
    }
    suite->case_count = 4;
}

static void make_result(const struct suite *suite, struct check_result *result)
{
    *result = (struct check_result){.count = 4, .cases = calloc(4, sizeof *result->cases), .broken = 1};
    assert_non_null(result->cases);
    for (uint32_t k = 0; k < 4; k++) {
        struct case_result *one = &result->cases[k];
        one->item = &suite->cases[k];
        one->seeds = 5;
        one->status = RUN_COMPLETE;
    }
    result->cases[0].same = result->cases[0].distinct = 5;
    fill_worse(&result->cases[1]);
    fill_times(&result->cases[2]);
    result->cases[3].status = RUN_NO_PROGRESS;
    result->cases[3].verdict = VERDICT_WORSE;
    result->cases[3].status_seed = 4;
    result->cases[3].text = "no progress: 3 requests are unfinished & nothing <more> will happen";
    result->tally[VERDICT_SAME] = result->tally[VERDICT_WORSE] = result->tally[VERDICT_CHANGED] = 1;
}

static void every_format(void **state)
{
    (void)state;
    static const char *const formats[] = {"text", "md", "csv", "json"};
    struct suite *suite = calloc(1, sizeof *suite);
    struct check_result result;
    assert_non_null(suite);
    make_suite(suite);
    make_result(suite, &result);
    for (uint32_t k = 0; k < 4; k++) {
        struct check_before before = {.name = "suites/golden.baseline", .blessings = 3, .blessing = &blessing};
        char *text = NULL;
        size_t size = 0;
        char name[32];
        FILE *file = open_memstream(&text, &size);
        struct output output = output_to(file, formats[k]);
        check_print(&output, suite, &before, &result);
        fclose(file);
        snprintf(name, sizeof name, "check_%s", formats[k]);
        assert_golden(name, text);
        free(text);
    }
    check_result_free(&result);
    free(suite);
}

static void junit(void **state)
{
    (void)state;
    struct suite *suite = calloc(1, sizeof *suite);
    struct check_result result;
    struct user_error error = {.set = false};
    char path[] = "/tmp/tandem-junit-XXXXXX";
    char text[32768];
    int descriptor = mkstemp(path);
    assert_non_null(suite);
    assert_true(descriptor >= 0);
    close(descriptor);
    make_suite(suite);
    make_result(suite, &result);
    assert_true(check_junit(path, suite, &result, &error));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    fclose(file);
    unlink(path);
    assert_golden("check_junit", text);
    assert_false(check_junit("/nowhere/junit.xml", suite, &result, &error));
    assert_non_null(strstr(error.text, "/nowhere/junit.xml: --junit: cannot be written"));
    check_result_free(&result);
    free(suite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format),
        cmocka_unit_test(junit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
