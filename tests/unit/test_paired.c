/* Verdicts by paired comparison, on numbers worked out by hand. */
#include "sim/check/paired.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static const struct paired_rule latency = {.more_is_better = false, .tolerance_permille = 10};
static const struct paired_rule goodput = {.more_is_better = true, .tolerance_permille = 10};

static void nothing_differs(void **state)
{
    (void)state;
    const int64_t values[] = {100, 250, 90};
    struct paired paired = paired_compare(values, values, 3, &latency);
    assert_int_equal(paired.verdict, VERDICT_SAME);
    assert_int_equal(paired.difference, 0);
    assert_int_equal(paired.low, 0);
    assert_int_equal(paired.high, 0);
    assert_int_equal(paired_compare(values, values, 0, &latency).pairs, 0);
}

/* Differences 10, 12, 14, 16, 18 (thousand): mean 14, standard deviation sqrt(10) = 3.1623, standard error 1.41421,
 * t(99 %, 4) = 4.604, half width 6.5110. */
static void the_interval_is_students(void **state)
{
    (void)state;
    const int64_t before[] = {100000, 200000, 150000, 120000, 180000};
    const int64_t after[] = {110000, 212000, 164000, 136000, 198000};
    struct paired paired = paired_compare(before, after, 5, &latency);
    assert_int_equal(paired.mean_before, 150000);
    assert_int_equal(paired.mean_after, 164000);
    assert_int_equal(paired.difference, 14000);
    assert_true(paired.interval);
    assert_int_equal(paired.low, 14000 - 6512);
    assert_int_equal(paired.high, 14000 + 6512);
    assert_int_equal(paired.verdict, VERDICT_WORSE);
    assert_int_equal(paired_compare(before, after, 5, &goodput).verdict, VERDICT_BETTER);
    assert_int_equal(paired_compare(after, before, 5, &latency).verdict, VERDICT_BETTER);
    assert_int_equal(paired_compare(after, before, 5, &goodput).verdict, VERDICT_WORSE);
}

/* The seeds themselves differ by more than the change: unpaired, nothing could be said. */
static void pairing_takes_the_seeds_out(void **state)
{
    (void)state;
    const int64_t before[] = {1000, 90000, 4000, 30000, 500000, 70000};
    int64_t after[6];
    for (int i = 0; i < 6; i++)
        after[i] = before[i] + 9000 + i % 2;
    assert_int_equal(paired_compare(before, after, 6, &latency).verdict, VERDICT_WORSE);
}

static void an_interval_with_zero_is_no_verdict(void **state)
{
    (void)state;
    const int64_t before[] = {100, 100, 100, 100, 100};
    const int64_t after[] = {150, 90, 140, 95, 130}; /* mean +21, half width 56 */
    struct paired paired = paired_compare(before, after, 5, &latency);
    assert_int_equal(paired.difference, 21);
    assert_true(paired.low < 0 && paired.high > 0);
    assert_int_equal(paired.verdict, VERDICT_CHANGED);
}

static void a_sure_change_within_the_tolerance_is_no_verdict(void **state)
{
    (void)state;
    const int64_t before[] = {1000, 2000, 3000, 4000};
    const int64_t exactly[] = {1025, 2025, 3025, 4025}; /* one per cent of the mean, 2500 */
    const int64_t more[] = {1026, 2026, 3026, 4026};
    assert_int_equal(paired_compare(before, exactly, 4, &latency).verdict, VERDICT_CHANGED);
    assert_int_equal(paired_compare(before, more, 4, &latency).verdict, VERDICT_WORSE);
}

/* A load that the seed does not touch has one run: its outcome is what it is. */
static void a_single_pair_is_judged_by_the_tolerance(void **state)
{
    (void)state;
    const int64_t before[] = {1000};
    const int64_t within[] = {1010};
    const int64_t beyond[] = {1011};
    struct paired paired = paired_compare(before, within, 1, &latency);
    assert_false(paired.interval);
    assert_int_equal(paired.verdict, VERDICT_CHANGED);
    assert_int_equal(paired_compare(before, beyond, 1, &latency).verdict, VERDICT_WORSE);
    assert_int_equal(paired_compare(before, beyond, 1, &goodput).verdict, VERDICT_BETTER);
}

/* Two pairs have one degree of freedom, t = 63.657: hardly anything is sure. */
static void two_pairs_want_a_lot(void **state)
{
    (void)state;
    const int64_t before[] = {1000, 1000};
    const int64_t apart[] = {1100, 1150};
    const int64_t together[] = {1100, 1101};
    assert_int_equal(paired_compare(before, apart, 2, &latency).verdict, VERDICT_CHANGED);
    assert_int_equal(paired_compare(before, together, 2, &latency).verdict, VERDICT_WORSE);
}

/* What was zero and is not any more: no share of zero is tolerated. */
static void from_nothing_to_something(void **state)
{
    (void)state;
    const int64_t before[] = {0, 0, 0};
    const int64_t after[] = {500, 510, 505};
    assert_int_equal(paired_compare(before, after, 3, &latency).verdict, VERDICT_WORSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_differs),
        cmocka_unit_test(the_interval_is_students),
        cmocka_unit_test(pairing_takes_the_seeds_out),
        cmocka_unit_test(an_interval_with_zero_is_no_verdict),
        cmocka_unit_test(a_sure_change_within_the_tolerance_is_no_verdict),
        cmocka_unit_test(a_single_pair_is_judged_by_the_tolerance),
        cmocka_unit_test(two_pairs_want_a_lot),
        cmocka_unit_test(from_nothing_to_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
