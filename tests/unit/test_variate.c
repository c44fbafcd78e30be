/* Variates in fixed point against what is known of their families. */
#include "world/load/variate.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void logarithms_and_powers_undo_each_other(void **state)
{
    (void)state;
    assert_int_equal(variate_log2(VARIATE_ONE), 0);
    assert_int_equal(variate_log2(8 * VARIATE_ONE), 3 * (int64_t)VARIATE_ONE);
    assert_int_equal(variate_log2(VARIATE_ONE / 4), -2 * (int64_t)VARIATE_ONE);
    assert_int_equal(variate_exp2(0), VARIATE_ONE);
    assert_int_equal(variate_exp2(-3 * (int64_t)VARIATE_ONE), VARIATE_ONE / 8);
    assert_int_equal(variate_exp2(40 * (int64_t)VARIATE_ONE), UINT64_MAX);
    assert_int_equal(variate_exp2(-80 * (int64_t)VARIATE_ONE), 0);
    /* sqrt(2) = 1.41421356237... */
    assert_in_range(variate_exp2((int64_t)(VARIATE_ONE / 2)), UINT64_C(6074000998), UINT64_C(6074001001));
    struct rng rng = rng_stream(5, 0, RNG_GENERATE);
    for (int i = 0; i < 1000; i++) {
        uint64_t value = (rng_next(&rng) >> (i % 24)) | 1;
        if (value >= UINT64_C(1) << 62)
            continue;
        uint64_t again = variate_exp2(variate_log2(value));
        assert_in_range(again, value - value / 100000000 - 2, value + value / 100000000 + 2);
    }
}

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

#define SAMPLES 40000

/* Of many draws: the mean and the quartiles, in thousandths, each within `percent`. */
static void expect_family(uint64_t (*draw)(struct rng *rng, uint32_t shape), uint32_t shape, uint64_t mean,
                          const uint64_t quartiles[3], uint64_t percent)
{
    uint64_t *sample = calloc(SAMPLES, sizeof *sample);
    assert_non_null(sample);
    struct rng rng = rng_stream(7, shape, RNG_GENERATE);
    uint128 sum = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        sample[i] = draw(&rng, shape);
        sum += sample[i];
    }
    qsort(sample, SAMPLES, sizeof *sample, by_size);
    uint64_t found = (uint64_t)(sum / SAMPLES * 1000 / VARIATE_ONE);
    assert_in_range(found, mean - mean * percent / 100, mean + mean * percent / 100);
    for (uint32_t q = 0; q < 3; q++) {
        uint64_t at = (uint64_t)((uint128)sample[SAMPLES / 4 * (q + 1)] * 1000 / VARIATE_ONE);
        assert_in_range(at, quartiles[q] - quartiles[q] * percent / 100 - 1,
                        quartiles[q] + quartiles[q] * percent / 100 + 1);
    }
    free(sample);
}

static void families_have_their_means_and_quartiles(void **state)
{
    (void)state;
    /* -ln(1 - q) to the power of 1 / shape; means of the gamma function at 2, 3 and 1.5. */
    expect_family(variate_weibull, 1000, 1000, (const uint64_t[]){288, 693, 1386}, 3);
    expect_family(variate_weibull, 500, 2000, (const uint64_t[]){83, 480, 1922}, 6);
    expect_family(variate_weibull, 2000, 886, (const uint64_t[]){536, 833, 1177}, 3);
    /* Half of chi-square with 2 x shape degrees of freedom, from any table of it. */
    expect_family(variate_gamma, 1000, 1000, (const uint64_t[]){288, 693, 1386}, 3);
    expect_family(variate_gamma, 500, 500, (const uint64_t[]){51, 227, 662}, 5);
    expect_family(variate_gamma, 2500, 2500, (const uint64_t[]){1337, 2176, 3313}, 3);
    expect_family(variate_gamma, 5000, 5000, (const uint64_t[]){3369, 4671, 6274}, 3);
}

static void a_weibull_variate_has_its_mean(void **state)
{
    (void)state;
    /* Gamma(2), Gamma(3), Gamma(1.5), Gamma(1 + 1 / 0.3). */
    const struct {
        uint32_t shape;
        double mean;
    } known[] = {{1000, 1.0}, {500, 2.0}, {2000, 0.8862269}, {300, 9.2605281}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        double mean = (double)variate_weibull_mean(known[i].shape) / (double)VARIATE_ONE;
        assert_true(mean > known[i].mean * 0.999999 && mean < known[i].mean * 1.000001);
    }
}

/* The same draws on every machine. */
static void draws_are_these(void **state)
{
    (void)state;
    struct rng rng = rng_stream(1, 0, RNG_GENERATE);
    uint64_t sum = 0;
    for (uint32_t shape = 20; shape < 20000; shape += 37) {
        sum = sum * 31 + variate_gamma(&rng, shape);
        sum = sum * 31 + variate_weibull(&rng, shape);
    }
    assert_true(sum == UINT64_C(0xca1e9b166a8ab105));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logarithms_and_powers_undo_each_other),
        cmocka_unit_test(families_have_their_means_and_quartiles),
        cmocka_unit_test(a_weibull_variate_has_its_mean),
        cmocka_unit_test(draws_are_these),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
