/* The cost model's tables: breakpoints, interpolation in efficiency grids and latency curves. */
#include "sim/cost/efficiency_grid.h"
#include "sim/cost/efficiency_tables.h"
#include "sim/cost/token_curve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_near(double value, double expected)
{
    double difference = value > expected ? value - expected : expected - value;
    if (difference > 1e-9 * (expected < 0 ? -expected : expected) + 1e-12)
        fail_msg("%.12g is not %.12g", value, expected);
}

static void test_log2_linear(void **state)
{
    (void)state;
    assert_near(log2_linear(1.0), 0.0);
    assert_near(log2_linear(1024.0), 10.0);
    assert_near(log2_linear(1536.0), 10.5);
    assert_near(log2_linear(0.03125), -5.0);
    assert_near(log2_linear(0.046875), -4.5);
    double before = log2_linear(0.001);
    double x = 0.001;
    for (int step = 0; step < 2000; step++, x *= 1.01) {
        assert_true(log2_linear(x) >= before);
        before = log2_linear(x);
    }
}

static const struct grid_axis rows = {.count = 3, .nodes = {0, 2, 3}};
static const struct grid_axis columns = {.count = 2, .nodes = {1, 3}};
static const struct grid_axis one = {.count = 1, .nodes = {0}};
static const uint16_t values[] = {1000, 2000, 3000, 5000, 10000, 20000};
static const struct efficiency_grid grid = {
    .source = "made up", .launch_ns = 1, .axes = {&rows, &columns, &one}, .values = values};

static void test_grid(void **state)
{
    (void)state;
    /* At the nodes the table itself; the last axis runs fastest. */
    assert_near(grid_efficiency(&grid, 1.0, 2.0, 77.0), 0.1);
    assert_near(grid_efficiency(&grid, 1.0, 8.0, 77.0), 0.2);
    assert_near(grid_efficiency(&grid, 4.0, 2.0, 77.0), 0.3);
    assert_near(grid_efficiency(&grid, 8.0, 8.0, 77.0), 2.0);
    /* Half-way along one axis, along both. */
    assert_near(grid_efficiency(&grid, 2.0, 2.0, 0.5), 0.2);
    assert_near(grid_efficiency(&grid, 1.0, 4.0, 0.5), 0.15);
    assert_near(grid_efficiency(&grid, 2.0, 4.0, 0.5), 0.275);
    assert_near(grid_efficiency(&grid, 6.0, 2.0, 0.5), 0.65);
    /* Beyond the nodes the edge goes on. */
    assert_near(grid_efficiency(&grid, 0.001, 0.001, 1.0), 0.1);
    assert_near(grid_efficiency(&grid, 1e6, 1e6, 1.0), 2.0);
}

static void test_latency_curve(void **state)
{
    (void)state;
    static const uint32_t times[] = {100, 200, 800};
    static const struct latency_curve curve = {
        .source = "made up", .first_log2 = 4, .stride_log2 = 2, .count = 3, .values = times};
    assert_near(latency_curve_ns(&curve, 1.0), 100.0);
    assert_near(latency_curve_ns(&curve, 16.0), 100.0);
    assert_near(latency_curve_ns(&curve, 32.0), 150.0);
    assert_near(latency_curve_ns(&curve, 64.0), 200.0);
    assert_near(latency_curve_ns(&curve, 128.0), 500.0);
    assert_near(latency_curve_ns(&curve, 256.0), 800.0);
    assert_near(latency_curve_ns(&curve, 1024.0), 3200.0);
}

static void test_breakpoints(void **state)
{
    (void)state;
    const uint32_t bits[2] = {3, 4};
    const uint32_t octave_last[2] = {14, 21};
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t count = BREAKPOINT_COUNT(bits[i], octave_last[i]);
        for (uint32_t k = 0; k + 1 < count; k++) {
            uint64_t at = breakpoint_value(k, bits[i]);
            assert_true(breakpoint_value(k + 1, bits[i]) > at);
            struct breakpoint_position position = breakpoint_locate(at, bits[i], octave_last[i]);
            assert_int_equal(position.index, k);
            assert_int_equal(position.above, 0);
            assert_int_equal(breakpoint_value(k + 1, bits[i]) - at, UINT64_C(1) << position.shift);
            /* The last integer before the next breakpoint still belongs to this one. */
            position = breakpoint_locate(breakpoint_value(k + 1, bits[i]) - 1, bits[i], octave_last[i]);
            assert_int_equal(position.index, k);
        }
        /* Past the end the last piece goes on. */
        struct breakpoint_position far = breakpoint_locate(UINT64_C(1) << 40, bits[i], octave_last[i]);
        assert_int_equal(far.index, count - 2);
        assert_int_equal(breakpoint_value(far.index, bits[i]) + far.above, UINT64_C(1) << 40);
    }
}

static void test_token_curve(void **state)
{
    (void)state;
    static struct token_curve curve;
    for (uint32_t k = 0; k < TOKEN_CURVE_BREAKPOINTS; k++)
        curve.ns[k] = (int64_t)(7 * breakpoint_value(k, TOKEN_CURVE_BITS) + 3);
    /* Of a line it is the line, wherever one looks. */
    for (uint64_t tokens = 0; tokens < 5000000; tokens = tokens * 9 / 8 + 1)
        assert_int_equal(token_curve_ns(&curve, tokens), 7 * tokens + 3);
}

static void test_gpus(void **state)
{
    (void)state;
    assert_string_equal(gpu_tables_find("H200")->name, "H200");
    assert_null(gpu_tables_find("H20"));
    assert_null(gpu_tables_find(""));
    /* Measured imbalance of the busiest rank at the nodes and between them. */
    assert_near(expert_imbalance(1.0), 1.0);
    assert_near(expert_imbalance(8.0), 1.65);
    assert_near(expert_imbalance(12.0), 1.825);
    assert_near(expert_imbalance(512.0), 4.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log2_linear), cmocka_unit_test(test_grid),        cmocka_unit_test(test_latency_curve),
        cmocka_unit_test(test_breakpoints), cmocka_unit_test(test_token_curve), cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
