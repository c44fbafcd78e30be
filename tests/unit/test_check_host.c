/* The report of a failed CHECK: exit status, condition, seed, trace records in order, the line that runs it again. */
#include "base/check.h"
#include "host/check_host.h"
#include "support/death.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char report[1 << 14];

static void check_number(void *argument)
{
    CHECK(*(int *)argument == 3);
}

static void fails_with_status_127(void **state)
{
    (void)state;
    int number = 4;
    assert_int_equal(death_status(check_number, &number, report, sizeof report), 127);
    assert_non_null(strstr(report, "CHECK failed: *(int *)argument == 3"));
    assert_non_null(strstr(report, "tests/unit/test_check_host.c:"));
    assert_null(strstr(report, "seed"));
}

static void passes_silently(void **state)
{
    (void)state;
    int number = 3;
    assert_int_equal(death_status(check_number, &number, report, sizeof report), 0);
    assert_string_equal(report, "");
}

static void append_and_fail(void *argument)
{
    struct check_context context = {.seed = 77, .hint = "tandem run x.lua --seed 77"};
    check_context_set(&context);
    for (uint32_t i = 0; i < *(uint32_t *)argument; i++) {
        struct trace_record record = {.kind = TRACE_ARRIVED, .node = 5, .request = i, .a = i + 1000, .b = 9};
        check_context_append(&context, (int64_t)i * 10, &record);
    }
    CHECK(context.seed == 0);
}

static void tells_seed_records_and_hint(void **state)
{
    (void)state;
    uint32_t count = 2;
    assert_int_equal(death_status(append_and_fail, &count, report, sizeof report), 127);
    assert_non_null(strstr(report, "seed: 77\n"));
    assert_non_null(strstr(report, "the last 2 trace records"));
    const char *first = strstr(report, "0 ns  node 5  request 0  arrived  1000 9\n");
    const char *second = strstr(report, "10 ns  node 5  request 1  arrived  1001 9\n");
    assert_non_null(first);
    assert_non_null(second);
    assert_true(first < second);
    assert_non_null(strstr(report, "run it again: tandem run x.lua --seed 77\n"));
}

static void keeps_the_last_records_when_full(void **state)
{
    (void)state;
    uint32_t count = CHECK_RING + 7;
    assert_int_equal(death_status(append_and_fail, &count, report, sizeof report), 127);
    assert_non_null(strstr(report, "the last 64 trace records"));
    assert_null(strstr(report, "request 6 "));
    const char *oldest = strstr(report, "request 7 ");
    const char *newest = strstr(report, "request 70 ");
    assert_non_null(oldest);
    assert_non_null(newest);
    assert_true(oldest < newest);
}

static void fail_without_context(void *argument)
{
    struct check_context context = {.seed = 77};
    check_context_set(&context);
    check_context_set(NULL);
    CHECK(argument != NULL);
}

static void a_context_can_be_taken_away(void **state)
{
    (void)state;
    assert_int_equal(death_status(fail_without_context, NULL, report, sizeof report), 127);
    assert_null(strstr(report, "seed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fails_with_status_127),       cmocka_unit_test(passes_silently),
        cmocka_unit_test(tells_seed_records_and_hint), cmocka_unit_test(keeps_the_last_records_when_full),
        cmocka_unit_test(a_context_can_be_taken_away),
    };
    return cmocka_run_group_tests_name("check_host", tests, NULL, NULL);
}
