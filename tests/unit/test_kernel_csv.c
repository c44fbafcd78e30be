/* Tables of measured kernels: from a benchmark's rows to a table and through a file, and what is wrong with either. */
#define _POSIX_C_SOURCE 200809L
#include "base/log2.h"
#include "base/rng.h"
#include "world/kernels/kernel_csv.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tandem-kernels-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    remove(path);
    return rmdir(folder);
}

static const char *csv_write(const char *text)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(text, 1, strlen(text), file);
    fclose(file);
    return path;
}

static const struct kernel_origin origin = {
    .gpu = "H200", .engine = "vllm", .version = "1.0", .source = "a test", .licence = "MIT"};

static struct kernel_table *csv_read(const char *kind, const char *text, struct user_error *error)
{
    struct csv_table file;
    if (!csv_table_read(csv_write(text), &file, error))
        return NULL;
    struct kernel_table *table = kernel_rows_read(&file, 1, kernel_kind_named(kind), &origin, error);
    csv_table_free(&file);
    return table;
}

#define GEMM "framework,gemm_dtype,m,n,k,latency\n"

/* Of a table of m: the code of n, k, m. */
static uint16_t code_of(const struct kernel_table *table, uint32_t n, uint32_t k, uint32_t m)
{
    for (uint32_t s = 0; s < table->series_count; s++) {
        if (kernel_key(table, s, 1) != n || kernel_key(table, s, 2) != k)
            continue;
        for (uint32_t i = 0; i < kernel_point_count(table, s); i++)
            if (kernel_points(table, s)[i] == m)
                return kernel_codes(table, s)[i];
    }
    fail_msg("no row n %u, k %u, m %u", n, k, m);
    return 0;
}

/* Rows in any order; one place twice; one row that was disturbed. */
static void test_table(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    struct kernel_table *table = csv_read("gemm",
                                          GEMM "x,fp8,4,128,64,0.004\nx,fp8,1,128,64,0.001\nx,fp8,2,128,64,0.09\n"
                                               "x,bf16,1,128,64,0.003\nx,fp8,1,128,64,0.003\nx,fp8,1,128,64,0.002\n",
                                          &error);
    if (table == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(table->series_count, 2);
    assert_int_equal(table->row_count, 3);
    assert_int_equal(table->merged, 2);
    assert_int_equal(table->dropped, 1); /* 90 us between 2 and 4 */
    assert_string_equal(table->texts[0][0], "bf16");
    assert_string_equal(table->texts[0][1], "fp8");
    assert_int_equal(kernel_key(table, 0, 0), 0);
    assert_int_equal(kernel_point_count(table, 1), 2);
    assert_int_equal(kernel_codes(table, 1)[0], log_code(2000.0)); /* the median of three */
    assert_int_equal(kernel_codes(table, 1)[1], log_code(4000.0));
    kernel_table_free(table);
}

/* Two times a row, the phase a key of its own; the rows of eager mode left out. */
static void test_kinds(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    struct kernel_table *table = csv_read("deepep_normal",
                                          "node_num,hidden_size,num_token,num_topk,num_experts,dispatch_sms,"
                                          "dispatch_transmit_us,dispatch_notify_us,combine_transmit_us,"
                                          "combine_notify_us\n2,7168,64,8,256,20,30,10,50,14\n",
                                          &error);
    if (table == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(table->series_count, 2);
    assert_string_equal(table->texts[0][kernel_key(table, 0, 0)], "combine");
    assert_int_equal(kernel_codes(table, 0)[0], log_code(64000.0));
    assert_int_equal(kernel_codes(table, 1)[0], log_code(40000.0));
    kernel_table_free(table);
    table = csv_read("all_reduce", "num_gpus,message_size,latency,backend\n2,128,0.01,x_eager\n2,128,0.002,x_graph\n",
                     &error);
    if (table == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(table->row_count, 1);
    assert_int_equal(table->dropped, 1);
    kernel_table_free(table);
}

static void test_csv_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        {"", "holds no table"},
        {GEMM, "no row that counts"},
        {"gemm_dtype,m,n,kk,latency\n", "rows.csv:1: k: no such column"},
        {GEMM "x,fp8,1,128,64,0.1\nx,fp8,1,128\n", "rows.csv:3: 4 cells, expected 6"},
        {GEMM "x,fp8,1,128,x,0.1\n", "rows.csv:2: k: \"x\": a whole number"},
        {GEMM "x,fp8,1,0,64,0.1\n", "rows.csv:2: n: \"0\": at least 1"},
        {GEMM "x,fp8,0,128,64,0.1\n", "rows.csv:2: m: \"0\": at least 1"},
        {GEMM "x,fp8,1,128,64,0\n", "rows.csv:2: latency: \"0\": a time of at least 1 ns"},
        {GEMM "x,fp8,1,128,64,nan\n", "rows.csv:2: latency: \"nan\": a time is wanted"},
        {GEMM "x,fp8,1,128,64,-1\n", "rows.csv:2: latency: \"-1\": a time is wanted"},
        {GEMM "x,,1,128,64,1\n", "rows.csv:2: gemm_dtype: \"\": a name"},
        {GEMM "x,\"fp8,1,128,64,1\n", "rows.csv:2: a quoted field does not end"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct user_error error = {.set = false};
        assert_null(csv_read("gemm", bad[i].text, &error));
        if (strstr(error.text, bad[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, bad[i].says);
        assert_true(error.set);
    }
    struct user_error error = {.set = false};
    assert_null(kernel_table_read("/nowhere/rows.csv", &error));
    assert_non_null(strstr(error.text, "/nowhere/rows.csv: cannot be read"));
}

/* A table of some hundred rows with gaps. */
static struct kernel_table *some_table(void)
{
    struct rng rng = rng_stream(1, 0, RNG_GENERATE);
    struct user_error error = {.set = false};
    char *text = malloc(1 << 16);
    assert_non_null(text);
    size_t used = (size_t)sprintf(text, GEMM);
    for (uint32_t n = 64; n <= 1024; n *= 2)
        for (uint32_t k = 64; k <= 1024; k *= 2)
            for (uint32_t m = 1; m <= 64; m *= 2)
                if (rng_chance(&rng, 4, 5))
                    used += (size_t)sprintf(text + used, "x,%s,%u,%u,%u,%.6f\n", k > 256 ? "fp8" : "bfloat16", m, n, k,
                                            0.002 + (double)rng_below(&rng, 1000) * 1e-6 + m * n * k * 1e-9);
    struct kernel_table *table = csv_read("gemm", text, &error);
    if (table == NULL)
        fail_msg("%s", error.text);
    free(text);
    return table;
}

/* What is read is what was written. */
static void test_round_trip(void **state)
{
    (void)state;
    char path[128];
    struct user_error error = {.set = false};
    struct kernel_table *table = some_table();
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    if (!kernel_table_write(table, path, &error))
        fail_msg("%s", error.text);
    struct kernel_table *again = kernel_table_read(path, &error);
    if (again == NULL)
        fail_msg("%s", error.text);
    assert_ptr_equal(again->kind, table->kind);
    assert_memory_equal(&again->origin.gpu, &table->origin.gpu, sizeof table->origin.gpu);
    assert_string_equal(again->origin.source, table->origin.source);
    assert_int_equal(again->series_count, table->series_count);
    assert_int_equal(again->row_count, table->row_count);
    assert_memory_equal(again->keys, table->keys, table->series_count * 3 * sizeof table->keys[0]);
    assert_memory_equal(again->codes, table->codes, table->row_count * sizeof table->codes[0]);
    for (uint32_t s = 0; s < table->series_count; s++) {
        assert_int_equal(kernel_point_count(again, s), kernel_point_count(table, s));
        assert_memory_equal(kernel_points(again, s), kernel_points(table, s),
                            kernel_point_count(table, s) * sizeof(uint32_t));
    }
    assert_int_equal(code_of(again, 64, 64, 1), code_of(table, 64, 64, 1));
    kernel_table_free(again);
    kernel_table_free(table);
}

#define ROWS 40 /* to 2^39 ns */
#define CODES_A_ROW 500

/* Every code that a time can have is written so that it is read again. */
static void test_codes(void **state)
{
    (void)state;
    uint32_t points[CODES_A_ROW];
    uint16_t codes[CODES_A_ROW];
    char path[128];
    struct user_error error = {.set = false};
    struct kernel_table *table = kernel_table_new(kernel_kind_named("nccl"), ROWS, ROWS * CODES_A_ROW);
    table->origin = origin;
    assert_true(kernel_text_add(table, 0, "all_gather") && kernel_text_add(table, 1, "half"));
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < CODES_A_ROW; i++) {
            points[i] = i + 1;
            codes[i] = (uint16_t)(r * CODES_A_ROW + i);
        }
        kernel_series_add(table, (const uint32_t[3]){0, 0, 2 + r}, points, codes, CODES_A_ROW);
    }
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    assert_true(kernel_table_write(table, path, &error));
    struct kernel_table *again = kernel_table_read(path, &error);
    if (again == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(again->row_count, ROWS * CODES_A_ROW);
    assert_memory_equal(again->codes, table->codes, table->row_count * sizeof table->codes[0]);
    kernel_table_free(again);
    kernel_table_free(table);
}

#define HEAD "# table: gemm\n# gpu: X\n# engine: vllm\n# version: 1\n# source: a test\n# licence: MIT\n"

static void test_table_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        {"gemm_dtype,n,k,1\nfp8,1,1,1\n", "rows.csv: a comment \"# table: TEXT\""},
        {"# table: gemms\ngemm_dtype,n,k,1\nfp8,1,1,1\n", "rows.csv:2: table: \"gemms\": a kind"},
        {"# table: gemm\n# gpu: X\ngemm_dtype,n,k,1\n", "a comment \"# engine: TEXT\""},
        {HEAD "gemm_dtype,k,n,1\n", "rows.csv:7: n: \"k\": this column"},
        {HEAD "gemm_dtype,n\n", "rows.csv:7: k: \"\": this column"},
        {HEAD "gemm_dtype,n,k,2,1\n", "rows.csv:7: m: \"1\": more than the column before"},
        {HEAD "gemm_dtype,n,k,x\n", "rows.csv:7: m: \"x\": a whole number"},
        {HEAD "gemm_dtype,n,k,1\n", "rows.csv:7: between one time"},
        {HEAD "gemm_dtype,n,k\nfp8,1,1\n", "rows.csv:7: between one time"},
        {HEAD "gemm_dtype,n,k,1\nfp8,1,1,\n", "rows.csv:8: a row without a time"},
        {HEAD "gemm_dtype,n,k,1\nfp8,1,0,1\n", "rows.csv:8: k: \"0\": at least 1"},
        {HEAD "gemm_dtype,n,k,1\nfp8,1,1,0.0001\n", "rows.csv:8: 1: \"0.0001\": a time of at least 1 ns"},
        {HEAD "gemm_dtype,n,k,1\nfp8,1,1,1e9\n", "rows.csv:8: 1: \"1e9\": a time is wanted"},
        {HEAD "gemm_dtype,n,k,1\nfp8,2,1,1\nfp8,1,1,1\n", "rows.csv:9: rows are wanted in ascending order"},
        {HEAD "gemm_dtype,n,k,1\nfp8,2,1,1\nfp8,2,1,1\n", "rows.csv:9: rows are wanted in ascending order"},
        {HEAD "gemm_dtype,n,k,1\nfp8,1,1,1,1\n", "rows.csv:8: 5 cells, expected 4"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct user_error error = {.set = false};
        assert_null(kernel_table_read(csv_write(bad[i].text), &error));
        if (strstr(error.text, bad[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, bad[i].says);
    }
}

/* Against the C library, which tests may ask. */
static void test_log2(void **state)
{
    (void)state;
    struct rng rng = rng_stream(7, 0, RNG_GENERATE);
    for (uint32_t i = 0; i < 100000; i++) {
        double x = (double)(1 + (rng_next(&rng) >> (rng_below(&rng, 62)))) * 1e-3;
        assert_true(fabs(log2_of(x) - log2(x)) < 1e-13);
        double y = (double)rng_below(&rng, 2000000) * 1e-4 - 100.0;
        assert_true(fabs(exp2_of(y) / exp2(y) - 1.0) < 1e-13);
        assert_true(fabs(exp2_of(log2_of(x)) / x - 1.0) < 1e-12);
    }
    assert_true(log2_of(1.0) == 0.0 && log2_of(1024.0) == 10.0 && exp2_of(0.0) == 1.0 && exp2_of(20.0) == 1048576.0);
    assert_int_equal(log_code(1.0), 0);
    assert_int_equal(log_code(1024.0), 5120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),      cmocka_unit_test(test_kinds), cmocka_unit_test(test_csv_errors),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_codes), cmocka_unit_test(test_table_errors),
        cmocka_unit_test(test_log2),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
