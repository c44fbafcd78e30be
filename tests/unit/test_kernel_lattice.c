/* Interpolation in measured tables, and the choice of a table. */
#include "sim/cost/kernel_lattice.h"
#include "base/log2.h"
#include "sim/cost/kernel_choice.h"
#include "support/known_hardware.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct kernel_rates rates = {
    .bf16_flops = 1e6, .fp8_flops = 2e6, .memory_bytes = 4000.0, .link_bytes = 450.0};

/* Products of one format, at every n and k of some powers of two; `time` gives nanoseconds. */
static struct kernel_table *products(double (*time)(double m, double n, double k), uint32_t hole)
{
    struct kernel_table texts = {.kind = kernel_kind_of(KERNEL_GEMM)};
    struct kernel_row *rows = calloc(2048, sizeof *rows);
    uint32_t count = 0;
    assert_non_null(rows);
    for (uint32_t n = 256; n <= 4096; n *= 2)
        for (uint32_t k = 256; k <= 4096; k *= 2)
            for (uint32_t m = 1; m <= 1024; m *= 2) {
                if (n == 1024 && k == 1024 && m == hole)
                    continue;
                rows[count] =
                    (struct kernel_row){.keys = {0, n, k}, .point = m, .code = log_code(time(m, n, k)), .index = count};
                count++;
            }
    assert_true(kernel_text_add(&texts, 0, "bfloat16"));
    struct kernel_table *table = kernel_table_make(&texts, rows, count);
    free(rows);
    return table;
}

/* A roofline that reaches 60 % of its rates, and 3 us of launch. */
static double roofline(double m, double n, double k)
{
    double compute = 2.0 * m * n * k / 1e6;
    double memory = 2.0 * (n * k + m * k + m * n) / 4000.0;
    return 3000.0 + (compute > memory ? compute : memory) / 0.6;
}

/* Every fourth knot stands out by a fifth, as an unlucky tile does, whatever n and k are. */
static double bumpy(double m, double n, double k)
{
    return roofline(m, n, k) * (m == 4.0 || m == 64.0 || m == 1024.0 ? 1.2 : 1.0);
}

static void assert_near(double value, double wanted, double error)
{
    if (fabs(value / wanted - 1.0) > error)
        fail_msg("%.1f, wanted %.1f", value, wanted);
}

static double sheet_at(const struct kernel_lattice *lattice, double n, double k, double m, enum estimate *estimate)
{
    struct kernel_sheet sheet;
    assert_true(kernel_sheet_make(&sheet, lattice, n, k));
    double ns = kernel_sheet_ns(&sheet, k, m, estimate);
    kernel_sheet_free(&sheet);
    return ns;
}

/* On a row its time, to the rounding of codes; between rows near the truth; beyond the edge the roofline goes on. */
static void test_lookup(void **state)
{
    (void)state;
    enum estimate estimate;
    struct kernel_lattice lattice;
    struct kernel_table *table = products(roofline, 0);
    assert_true(kernel_lattice_make(&lattice, table, 0, &rates));
    assert_int_equal(lattice.series_count, 25);
    assert_near(sheet_at(&lattice, 1024, 512, 64, &estimate), roofline(64, 1024, 512), 0.001);
    assert_int_equal(estimate, ESTIMATE_MEASURED);
    assert_near(sheet_at(&lattice, 1024, 512, 50, &estimate), roofline(50, 1024, 512), 0.01);
    assert_int_equal(estimate, ESTIMATE_INTERPOLATED);
    assert_near(sheet_at(&lattice, 1500, 700, 50, &estimate), roofline(50, 1500, 700), 0.03);
    assert_int_equal(estimate, ESTIMATE_INTERPOLATED);
    assert_near(sheet_at(&lattice, 4096, 4096, 8192, &estimate), roofline(8192, 4096, 4096), 0.04);
    assert_int_equal(estimate, ESTIMATE_MODELLED);
    assert_near(sheet_at(&lattice, 8192, 4096, 1024, &estimate), roofline(1024, 8192, 4096), 0.02);
    double edge = sheet_at(&lattice, 4096, 4096, 1024, &estimate);
    assert_near(sheet_at(&lattice, 4096, 4096, 1025, &estimate), edge, 0.002);
    kernel_lattice_free(&lattice);
    kernel_table_free(table);
}

/* A row that is missing is filled in from the shape of its neighbours: the bump they have in common is found. */
static void test_hole(void **state)
{
    (void)state;
    static const uint32_t holes[] = {1, 8, 64, 1024};
    for (size_t i = 0; i < sizeof holes / sizeof holes[0]; i++) {
        enum estimate estimate;
        struct kernel_lattice lattice;
        struct kernel_table *table = products(bumpy, holes[i]);
        assert_true(kernel_lattice_make(&lattice, table, 0, &rates));
        double ratio;
        assert_true(kernel_node_ratio(&lattice, 2, 2, holes[i], KERNEL_NO_ROW, &ratio));
        double ideal = kernel_ideal_ns(&lattice.ideal, 1024, 1024, holes[i]);
        assert_near(exp2_of(ratio) * ideal, bumpy(holes[i], 1024, 1024), 0.02);
        assert_near(sheet_at(&lattice, 1100, 1100, holes[i], &estimate), bumpy(holes[i], 1100, 1100), 0.04);
        kernel_lattice_free(&lattice);
        kernel_table_free(table);
    }
}

/* Leaving a row out is the same as never having had it. */
static void test_without(void **state)
{
    (void)state;
    struct kernel_lattice whole;
    struct kernel_lattice holed;
    struct kernel_table *table = products(bumpy, 0);
    struct kernel_table *less = products(bumpy, 64);
    assert_true(kernel_lattice_make(&whole, table, 0, &rates));
    assert_true(kernel_lattice_make(&holed, less, 0, &rates));
    uint32_t series = (uint32_t)whole.series[2 * whole.inner_count + 2];
    double left_out;
    double absent;
    assert_true(kernel_node_ratio(&whole, 2, 2, 64, table->row_first[series] + 6, &left_out));
    assert_true(kernel_node_ratio(&holed, 2, 2, 64, KERNEL_NO_ROW, &absent));
    assert_true(fabs(left_out - absent) < 1e-12);
    kernel_lattice_free(&whole);
    kernel_lattice_free(&holed);
    kernel_table_free(table);
    kernel_table_free(less);
}

/* Whose table it is: "H200 gemm, trtllm 1.3.0rc20, fp8_block" for the engine that was asked for. */
static void test_engines(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        enum engine_kind engine;
        enum number_format format;
        const char *starts;
    } cases[] = {
        {"H200", ENGINE_VLLM, FORMAT_BF16, "H200 gemm, vllm"},
        {"H200", ENGINE_SGLANG, FORMAT_FP8, "H200 gemm, sglang"},
        {"H200", ENGINE_TRTLLM, FORMAT_FP8_BLOCK, "H200 gemm, trtllm"},
        {"H200", ENGINE_NEUTRAL, FORMAT_BF16, "H200 gemm, trtllm"},
        {"H200", ENGINE_VLLM, FORMAT_FP8_BLOCK, "H200 gemm, trtllm"}, /* its own is bound by 55 us of launch */
        {"H200", ENGINE_TRTLLM, FORMAT_FP8, "H200 gemm, vllm"},       /* its own is bound by 11.8 us */
        {"H100", ENGINE_TRTLLM, FORMAT_BF16, "H100 gemm, vllm"},      /* it has none */
        {"H100", ENGINE_VLLM, FORMAT_FP8_BLOCK, "H100 gemm, sglang"},
        {"B200", ENGINE_NEUTRAL, FORMAT_FP4, "B200 gemm, sglang"}, /* 1.5 times as fast at 8 tokens as trtllm's */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct device device;
        struct kernel_chooser chooser;
        struct kernel_sheet sheet;
        const struct hardware *hardware = known_hardware(cases[i].gpu);
        device_init(&device, hardware);
        kernel_chooser_make(&chooser, &device, hardware, cases[i].engine);
        assert_true(kernel_choose_gemm(&chooser, 4096, 4096, cases[i].format, &sheet));
        if (strncmp(sheet.source, cases[i].starts, strlen(cases[i].starts)) != 0)
            fail_msg("%s, wanted %s", sheet.source, cases[i].starts);
        kernel_sheet_free(&sheet);
    }
}

/* Without kernels for a format its weights are unpacked: the products of bf16 on narrower weights, never slower. */
static void test_unpacked(void **state)
{
    (void)state;
    struct device device;
    struct kernel_chooser chooser;
    struct kernel_sheet bf16;
    struct kernel_sheet fp8;
    enum estimate estimate;
    const struct hardware *a100 = known_hardware("A100");
    device_init(&device, a100);
    kernel_chooser_make(&chooser, &device, a100, ENGINE_NEUTRAL);
    assert_true(kernel_choose_gemm(&chooser, 8192, 8192, FORMAT_BF16, &bf16));
    assert_true(kernel_choose_gemm(&chooser, 8192, 8192, FORMAT_FP8, &fp8));
    double wide = kernel_sheet_ns(&bf16, 8192, 1, &estimate);
    double narrow = kernel_sheet_ns(&fp8, 8192, 1, &estimate);
    assert_true(narrow > 0.45 * wide && narrow < 0.65 * wide);
    assert_near(kernel_sheet_ns(&fp8, 8192, 8192, &estimate), kernel_sheet_ns(&bf16, 8192, 8192, &estimate), 0.01);
    kernel_sheet_free(&bf16);
    kernel_sheet_free(&fp8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),  cmocka_unit_test(test_hole),     cmocka_unit_test(test_without),
        cmocka_unit_test(test_engines), cmocka_unit_test(test_unpacked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
