/* Random streams: fixed for ever, apart by purpose, unbiased, exponential where asked. Statistics are over fixed seeds,
 * so a bound of four standard deviations either always holds or never does. */
#include "base/rng.h"
#include "support/death.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The first outputs of the published generator from state 1, 2, 3, 4. */
static void the_generator_is_xoshiro256_starstar(void **state)
{
    (void)state;
    static const uint64_t expected[] = {11520,
                                        0,
                                        1509978240,
                                        UINT64_C(1215971899390074240),
                                        UINT64_C(1216172134540287360),
                                        UINT64_C(607988272756665600)};
    struct rng rng = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(rng_next(&rng) == expected[i]);
}

/* Stored results name seeds: the streams behind them must never change. */
static void the_streams_are_fixed(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        uint64_t component;
        enum rng_purpose purpose;
        uint64_t first[4];
    } streams[] = {
        {1, 0, RNG_ARRIVALS, {0xf5fd081625673a07, 0xf7d16e130300538b, 0x0d7ffaf8e218b198, 0xe3707d6c1d0d919d}},
        {0, 0, RNG_ROUTING, {0xa356858d5c50c988, 0x3922adbc216e12ab, 0x66a3bb3eb4046858, 0xbcd880a45131fa75}},
        {UINT64_MAX, 7, RNG_FAULTS, {0x79f6814904e9edda, 0xdde072d3ed993766, 0xfc81f4336e094804, 0x66e3577616fe1810}},
    };
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        struct rng rng = rng_stream(streams[i].seed, streams[i].component, streams[i].purpose);
        for (int draw = 0; draw < 4; draw++)
            assert_true(rng_next(&rng) == streams[i].first[draw]);
    }
}

static void seed_component_and_purpose_tell_streams_apart(void **state)
{
    (void)state;
    uint64_t seen[4 * 4 * 12];
    size_t count = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        for (uint64_t component = 0; component < 4; component++) {
            for (int purpose = RNG_ARRIVALS; purpose <= RNG_GENERATE; purpose++) {
                struct rng rng = rng_stream(seed, component, (enum rng_purpose)purpose);
                seen[count] = rng_next(&rng);
                for (size_t i = 0; i < count; i++)
                    assert_true(seen[i] != seen[count]);
                count++;
            }
        }
    }
}

/* With a bound of 3 * 2^62 a plain multiplication would give one residue of three half of all draws. */
static void below_is_unbiased(void **state)
{
    (void)state;
    struct rng rng = rng_stream(3, 1, RNG_NETWORK);
    const uint64_t bound = UINT64_C(3) << 62;
    int residues[3] = {0};
    for (int i = 0; i < 30000; i++) {
        uint64_t draw = rng_below(&rng, bound);
        assert_true(draw < bound);
        residues[draw % 3]++;
    }
    for (int i = 0; i < 3; i++)
        assert_in_range(residues[i], 10000 - 327, 10000 + 327);

    int digits[10] = {0};
    for (int i = 0; i < 100000; i++)
        digits[rng_below(&rng, 10)]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(digits[i], 10000 - 380, 10000 + 380);
    for (int i = 0; i < 100; i++)
        assert_true(rng_below(&rng, 1) == 0);
}

static void between_includes_both_ends(void **state)
{
    (void)state;
    struct rng rng = rng_stream(3, 2, RNG_NETWORK);
    int seen[3] = {0};
    for (int i = 0; i < 1000; i++) {
        uint64_t draw = rng_between(&rng, 5, 7);
        assert_in_range(draw, 5, 7);
        seen[draw - 5]++;
    }
    for (int i = 0; i < 3; i++)
        assert_in_range(seen[i], 333 - 60, 333 + 60);
    assert_true(rng_between(&rng, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    assert_true(rng_between(&rng, 1, UINT64_MAX) >= 1);
    /* The widest interval has no count that fits 64 bits. */
    uint64_t both = 0;
    for (int i = 0; i < 64; i++)
        both |= rng_between(&rng, 0, UINT64_MAX);
    assert_true(both == UINT64_MAX);
}

static void chance_is_the_ratio(void **state)
{
    (void)state;
    struct rng rng = rng_stream(3, 3, RNG_FAULTS);
    int hits = 0;
    for (int i = 0; i < 40000; i++) {
        assert_false(rng_chance(&rng, 0, 9));
        assert_true(rng_chance(&rng, 9, 9));
        hits += rng_chance(&rng, 250, 1000);
    }
    assert_in_range(hits, 10000 - 347, 10000 + 347);
}

/* Each draw against the logarithm of the C library, for means from a nanosecond to the largest: the rounding, and 2^-40
 * of the mean from each of the two factors. */
static void exponential_is_minus_the_logarithm(void **state)
{
    (void)state;
    static const uint64_t means[] = {0, 1, 1000, 62500000, UINT64_C(3600000000000), (UINT64_C(1) << 56) - 1};
    for (size_t m = 0; m < sizeof means / sizeof *means; m++) {
        struct rng rng = rng_stream(5, m, RNG_ARRIVALS);
        for (int i = 0; i < 2000; i++) {
            struct rng same = rng;
            long double u = ldexpl((long double)(rng_next(&same) | 1), -64);
            long double expected = -logl(u) * (long double)means[m];
            long double got = (long double)rng_exponential(&rng, means[m]);
            assert_true(fabsl(got - expected) <= 0.501L + ldexpl((long double)means[m], -39) + ldexpl(expected, -39));
        }
    }
}

static void exponential_is_fixed(void **state)
{
    (void)state;
    static const uint64_t expected[] = {194590, 387627, 1545626, 50239, 417919, 104796, 1587059, 3447856};
    struct rng rng = rng_stream(42, 3, RNG_ARRIVALS);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(rng_exponential(&rng, 1000000) == expected[i]);
}

/* Mean m, variance m^2, and a share of 1 - 1/e below the mean. */
static void exponential_has_its_moments(void **state)
{
    (void)state;
    const int draws = 100000;
    const double mean = 1e6;
    struct rng rng = rng_stream(7, 0, RNG_ARRIVALS);
    double sum = 0, squares = 0;
    int below = 0;
    for (int i = 0; i < draws; i++) {
        double draw = (double)rng_exponential(&rng, 1000000);
        sum += draw;
        squares += (draw - mean) * (draw - mean);
        below += draw < mean;
    }
    assert_true(fabs(sum / draws - mean) < 4 * mean / sqrt(draws));
    assert_true(fabs(squares / draws / (mean * mean) - 1) < 4 * sqrt(8.0 / draws));
    assert_true(fabs(below - 0.6321205588 * draws) < 4 * sqrt(0.2325 * draws));
}

static volatile uint64_t sink;

static void draw_below_zero(void *argument)
{
    sink = rng_below(argument, 0);
}

static void draw_between_crossed(void *argument)
{
    sink = rng_between(argument, 2, 1);
}

static void draw_chance_above_one(void *argument)
{
    sink = rng_chance(argument, 2, 1);
}

static void draw_mean_too_large(void *argument)
{
    sink = rng_exponential(argument, UINT64_C(1) << 56);
}

static void misuse_is_a_bug(void **state)
{
    (void)state;
    struct rng rng = rng_stream(1, 1, RNG_TIES);
    assert_check_fails(draw_below_zero, &rng, "bound > 0");
    assert_check_fails(draw_between_crossed, &rng, "low <= high");
    assert_check_fails(draw_chance_above_one, &rng, "numerator <= denominator");
    assert_check_fails(draw_mean_too_large, &rng, "mean < ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_is_xoshiro256_starstar),
        cmocka_unit_test(the_streams_are_fixed),
        cmocka_unit_test(seed_component_and_purpose_tell_streams_apart),
        cmocka_unit_test(below_is_unbiased),
        cmocka_unit_test(between_includes_both_ends),
        cmocka_unit_test(chance_is_the_ratio),
        cmocka_unit_test(exponential_is_minus_the_logarithm),
        cmocka_unit_test(exponential_is_fixed),
        cmocka_unit_test(exponential_has_its_moments),
        cmocka_unit_test(misuse_is_a_bug),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
