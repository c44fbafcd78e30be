/* Percentiles in two readings, against sorting. */
#include "base/rng.h"
#include "host/quantiles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define WANTED 6
static const uint32_t wanted[WANTED] = {500, 900, 1000, 1, 990, 999};

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void check(int64_t *values, uint32_t count)
{
    struct quantiles *quantiles = quantiles_make(wanted, WANTED);
    int64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        quantiles_count(quantiles, values[i]);
        sum += values[i];
    }
    uint64_t kept = quantiles_counted(quantiles);
    assert_true(kept <= count);
    if (kept > 0)
        for (uint32_t i = count; i-- > 0;)
            quantiles_keep(quantiles, values[i]);
    struct quantiles_result result = quantiles_result(quantiles);
    quantiles_free(quantiles);
    qsort(values, count, sizeof *values, ascending);
    assert_int_equal(result.count, count);
    assert_int_equal(result.max, values[count - 1]);
    assert_int_equal(result.mean, sum / count - (sum < 0 && sum % count != 0));
    for (uint32_t i = 0; i < WANTED; i++)
        assert_int_equal(result.at[i], values[((uint64_t)count * wanted[i] + 999) / 1000 - 1]);
}

/* Shapes: wide, narrow, a few values many times, one value, some below zero, at the ends of buckets. */
static int64_t drawn(struct rng *rng, uint32_t shape)
{
    switch (shape) {
    case 0:
        return (int64_t)(rng_next(rng) >> (2 + rng_below(rng, 60)));
    case 1:
        return 1000000000 + (int64_t)rng_below(rng, 1000);
    case 2:
        return (int64_t)(1 + rng_below(rng, 3)) * 12345;
    case 3:
        return 777;
    case 4:
        return (int64_t)rng_below(rng, 2000) - 1000;
    default:
        return ((int64_t)1 << rng_below(rng, 62)) - (int64_t)rng_below(rng, 2);
    }
}

static void they_are_those_of_sorted_values(void **state)
{
    (void)state;
    static int64_t values[5000];
    static const uint32_t counts[] = {1, 2, 3, 9, 10, 11, 99, 100, 101, 5000};
    for (uint32_t seed = 0; seed < 60; seed++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            struct rng rng = rng_stream(seed, k, RNG_ROUTING);
            for (uint32_t i = 0; i < counts[k]; i++)
                values[i] = seed % 6 == 0 || seed % 6 == 5 ? drawn(&rng, seed % 6) / 8192 : drawn(&rng, seed % 6);
            check(values, counts[k]);
        }
}

static void of_nothing_there_is_nothing(void **state)
{
    (void)state;
    struct quantiles *quantiles = quantiles_make(wanted, WANTED);
    assert_int_equal(quantiles_counted(quantiles), 0);
    assert_int_equal(quantiles_result(quantiles).count, 0);
    quantiles_free(quantiles);
}

static void equal_values_are_not_kept(void **state)
{
    (void)state;
    struct quantiles *quantiles = quantiles_make(wanted, WANTED);
    for (uint32_t i = 0; i < 1000; i++)
        quantiles_count(quantiles, 5000000);
    assert_int_equal(quantiles_counted(quantiles), 0);
    assert_int_equal(quantiles_result(quantiles).at[3], 5000000);
    quantiles_free(quantiles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_those_of_sorted_values),
        cmocka_unit_test(of_nothing_there_is_nothing),
        cmocka_unit_test(equal_values_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
