/* The token clock: its mean, and that its two functions are inverse to each other. */
#include "serve/token_clock.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint16_t none[8];

static void test_one_token_without_drafts(void **state)
{
    (void)state;
    assert_int_equal(token_clock_yield(0, 900, none), TOKEN_CLOCK_ONE);
    assert_int_equal(token_clock_yield(3, 0, none), TOKEN_CLOCK_ONE);
    for (uint64_t step = 0; step < 100; step++) {
        assert_int_equal(token_clock(TOKEN_CLOCK_ONE, step), step);
        assert_int_equal(token_clock_step(TOKEN_CLOCK_ONE, step), step);
    }
}

/* 1 + 0.8 + 0.64 + 0.512 = 2.952, and 4 where everything is accepted. */
static void test_yield(void **state)
{
    (void)state;
    assert_int_equal(token_clock_yield(3, 1000, none), 4 * TOKEN_CLOCK_ONE);
    uint64_t yield = token_clock_yield(3, 800, none);
    assert_in_range(yield * 1000 / TOKEN_CLOCK_ONE, 2951, 2952);
    assert_in_range(token_clock((uint32_t)yield, 1000000), 2951900, 2952000);
    for (uint64_t step = 0; step < 1000; step++)
        assert_in_range(token_clock((uint32_t)yield, step + 1) - token_clock((uint32_t)yield, step), 2, 3);
}

/* 1 + 0.76 + 0.62 + 0.51 + 0.42 + 0.36 + 0.31 + 0.27 + 0.24 = 4.49. */
static void test_by_place(void **state)
{
    (void)state;
    static const uint16_t places[8] = {760, 620, 510, 420, 360, 310, 270, 240};
    uint64_t yield = token_clock_yield(8, 0, places);
    assert_in_range(yield * 1000 / TOKEN_CLOCK_ONE, 4489, 4490);
    assert_int_equal(token_clock_yield(1, 0, places), TOKEN_CLOCK_ONE + TOKEN_CLOCK_ONE * 760 / 1000);
}

static void test_inverse(void **state)
{
    (void)state;
    struct rng rng = {{11, 2, 3, 4}};
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t yield = token_clock_yield((uint32_t)rng_below(&rng, 8), (uint32_t)rng_below(&rng, 1001), none);
        uint64_t tokens = rng_below(&rng, UINT64_C(1) << 40);
        uint64_t step = token_clock_step(yield, tokens);
        assert_true(token_clock(yield, step) >= tokens);
        assert_true(step == 0 || token_clock(yield, step - 1) < tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_token_without_drafts),
        cmocka_unit_test(test_yield),
        cmocka_unit_test(test_by_place),
        cmocka_unit_test(test_inverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
