/* Checked arithmetic: exact at the edges of the types, and a failed CHECK one step beyond. */
#include "base/arith.h"
#include "support/death.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void divisions_round_up(void **state)
{
    (void)state;
    assert_int_equal(ceil_div_u32(0, 7), 0);
    assert_int_equal(ceil_div_u32(7, 7), 1);
    assert_int_equal(ceil_div_u32(8, 7), 2);
    assert_int_equal(ceil_div_u32(UINT32_MAX, 1), UINT32_MAX);
    assert_int_equal(ceil_div_u32(UINT32_MAX, 2), 1u << 31);
    assert_true(ceil_div_u64(UINT64_MAX, 1) == UINT64_MAX);
    assert_true(ceil_div_u64(UINT64_MAX, 2) == UINT64_C(1) << 63);
    assert_true(ceil_div_u64(1, UINT64_MAX) == 1);
}

static void products_go_through_128_bits(void **state)
{
    (void)state;
    assert_true(mul_div_floor_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    assert_true(mul_div_ceil_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    /* 400 Gbit/s carry a 128 KiB page in 2621.44 ns; 10^19 / 3 is 3333333333333333333.3. */
    assert_true(mul_div_floor_u64(131072, NS_PER_S, UINT64_C(50000000000)) == 2621);
    assert_true(mul_div_ceil_u64(131072, NS_PER_S, UINT64_C(50000000000)) == 2622);
    assert_true(mul_div_floor_u64(UINT64_C(10000000000), NS_PER_S, 3) == UINT64_C(3333333333333333333));
    assert_true(mul_div_ceil_u64(UINT64_C(10000000000), NS_PER_S, 3) == UINT64_C(3333333333333333334));
    assert_true(mul_div_ceil_u64(6, 7, 42) == 1);
    assert_true(mul_div_ceil_u64(0, 7, 42) == 0);
}

/* Against the schoolbook form in smaller numbers: a = q c + r, so that a b / c = q b + r b / c. */
static void products_agree_with_long_division(void **state)
{
    (void)state;
    uint64_t a = 0x9e3779b97f4a7c15;
    for (int i = 0; i < 1000; i++) {
        a = a * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t x = a >> 20, y = (a >> 7) % 100000, z = (a >> 40) + 1;
        uint64_t whole = x / z * y, rest = x % z * y;
        assert_true(mul_div_floor_u64(x, y, z) == whole + rest / z);
        assert_true(mul_div_ceil_u64(x, y, z) == whole + (rest + z - 1) / z);
    }
}

static void in_range_is_exact(void **state)
{
    (void)state;
    assert_true(add_u64(UINT64_MAX - 1, 1) == UINT64_MAX);
    assert_true(mul_u64(UINT64_C(1) << 32, UINT32_MAX) == UINT64_MAX - UINT32_MAX);
    assert_true(mul_u64(UINT64_MAX, 0) == 0);
    assert_true(mul_u64(0, UINT64_MAX) == 0);
    assert_int_equal(narrow_u32(UINT32_MAX), UINT32_MAX);
}

static void time_saturates(void **state)
{
    (void)state;
    assert_true(time_add(5, 7) == 12);
    assert_true(time_add(-5, 7) == 2);
    assert_true(time_add(TIME_NEVER - 7, 7) == TIME_NEVER);
    assert_true(time_add(TIME_NEVER - 7, 8) == TIME_NEVER);
    assert_true(time_add(TIME_NEVER, 1) == TIME_NEVER);
    assert_true(time_add(0, TIME_NEVER) == TIME_NEVER);
}

/* The operands pass through memory that the optimizer does not see through. */
static volatile uint64_t sink;

static void add_too_much(void *a)
{
    sink = add_u64(*(uint64_t *)a, 1);
}

static void multiply_too_much(void *a)
{
    sink = mul_u64(*(uint64_t *)a, 2);
}

static void narrow_too_much(void *a)
{
    sink = narrow_u32(*(uint64_t *)a);
}

static void divide_by_zero(void *a)
{
    sink = mul_div_floor_u64(*(uint64_t *)a, 1, 0);
}

static void floor_too_much(void *a)
{
    sink = mul_div_floor_u64(*(uint64_t *)a, 2, 1);
}

static void ceil_too_much(void *a)
{
    sink = mul_div_ceil_u64(*(uint64_t *)a, 2, 1);
}

static void add_negative_duration(void *a)
{
    sink = (uint64_t)time_add((int64_t)(*(uint64_t *)a >> 1), -1);
}

static void overflow_is_a_bug(void **state)
{
    (void)state;
    uint64_t most = UINT64_MAX;
    assert_check_fails(add_too_much, &most, "base/arith.h");
    assert_check_fails(multiply_too_much, &most, "base/arith.h");
    assert_check_fails(narrow_too_much, &most, "a <= UINT32_MAX");
    assert_check_fails(divide_by_zero, &most, "c != 0");
    assert_check_fails(floor_too_much, &most, "quotient <= UINT64_MAX");
    assert_check_fails(ceil_too_much, &most, "quotient <= UINT64_MAX");
    assert_check_fails(add_negative_duration, &most, "duration_ns >= 0");
}

static void numbers_wrap(void **state)
{
    (void)state;
    assert_true(number_reached(5, 5) && number_reached(6, 5) && !number_reached(4, 5));
    assert_false(number_reached(0, 1)); /* nothing yet */
    assert_true(number_reached(1, UINT32_MAX) && !number_reached(UINT32_MAX, 1));
    assert_true(number_reached(UINT32_C(1) << 31, 1) && !number_reached((UINT32_C(1) << 31) + 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divisions_round_up),
        cmocka_unit_test(products_go_through_128_bits),
        cmocka_unit_test(products_agree_with_long_division),
        cmocka_unit_test(in_range_is_exact),
        cmocka_unit_test(time_saturates),
        cmocka_unit_test(overflow_is_a_bug),
        cmocka_unit_test(numbers_wrap),
    };
    return cmocka_run_group_tests_name("arith", tests, NULL, NULL);
}
