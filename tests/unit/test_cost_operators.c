/* Single operators against single measured kernels: rows of ai-dynamo/aiconfigurator@095f58a (Apache-2.0),
 * aic-core/src/aiconfigurator_core/systems/data. */
#include "sim/cost/operators.h"
#include "support/known_hardware.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct device device_of(const char *gpu)
{
    struct device device;
    device_init(&device, known_hardware(gpu));
    return device;
}

/* Every row within `most` of the measured time, and half of them within `usual`. */
struct deviation {
    uint32_t rows;
    uint32_t close;
};

static void judge(struct deviation *deviation, const char *what, double ns, double measured_ns, double usual,
                  double most)
{
    double error = fabs(ns / measured_ns - 1.0);
    deviation->rows++;
    deviation->close += error <= usual;
    if (error > most)
        fail_msg("%s: %.1f us, measured %.1f us", what, ns * 1e-3, measured_ns * 1e-3);
}

static void assert_usually_close(const struct deviation *deviation)
{
    if (deviation->close * 2 < deviation->rows)
        fail_msg("only %u of %u rows are close", deviation->close, deviation->rows);
}

static const struct gemm_row {
    const char *gpu;
    enum number_format format;
    double m, n, k;
    double ns;
} gemm_rows[] = {
    {"A100", FORMAT_BF16, 16, 7168, 2048, 26186},
    {"A100", FORMAT_BF16, 256, 4096, 7168, 80252},
    {"A100", FORMAT_BF16, 4096, 10240, 8192, 2360136},
    {"A100", FORMAT_BF16, 8192, 7168, 2048, 928423},
    {"H100", FORMAT_FP8, 16, 7168, 2048, 10709},
    {"H100", FORMAT_FP8, 64, 2048, 7168, 14456},
    {"H100", FORMAT_FP8, 128, 8192, 8192, 34441},
    {"H100", FORMAT_FP8, 2048, 5120, 5120, 93650},
    {"H100", FORMAT_FP8, 8192, 7168, 2048, 190817},
    {"H200", FORMAT_FP8_BLOCK, 16, 7168, 2048, 8915},
    {"H200", FORMAT_FP8_BLOCK, 64, 2048, 7168, 12417},
    {"H200", FORMAT_FP8_BLOCK, 256, 4096, 7168, 21527},
    {"H200", FORMAT_FP8_BLOCK, 4096, 10240, 8192, 602485},
    {"H200", FORMAT_FP8_BLOCK, 8192, 2560, 4096, 201420},
    {"H200", FORMAT_BF16, 1, 8192, 3584, 17571},
    {"H200", FORMAT_BF16, 128, 8192, 8192, 38619},
    {"H200", FORMAT_BF16, 2048, 5120, 5120, 138581},
    {"H200", FORMAT_BF16, 8192, 2560, 4096, 244542},
    {"B200", FORMAT_FP4, 16, 7168, 2048, 5607},
    {"B200", FORMAT_FP4, 128, 8192, 8192, 13713},
    {"B200", FORMAT_FP4, 2048, 5120, 5120, 35120},
    {"B200", FORMAT_FP4, 8192, 2560, 4096, 57054},
};

static void test_gemm(void **state)
{
    (void)state;
    struct deviation deviation = {0};
    for (size_t i = 0; i < sizeof gemm_rows / sizeof gemm_rows[0]; i++) {
        const struct gemm_row *row = &gemm_rows[i];
        struct device device = device_of(row->gpu);
        struct operator_time time = gemm_time(&device, NULL, row->m, row->n, row->k, row->format);
        judge(&deviation, row->gpu, time.ns, row->ns, 0.10, 0.35);
    }
    assert_usually_close(&deviation);
}

static const struct attention_row {
    const char *gpu;
    enum attention_kind kind;
    uint32_t kv_fp8;
    double heads, kv_heads;
    double sequences, length; /* prefill: of the prompt */
    double ns;
} decode_rows[] = {
    {"H200", ATTENTION_GQA, 0, 16, 2, 1, 8192, 17051},    {"H200", ATTENTION_GQA, 0, 16, 2, 16, 2048, 25195},
    {"H200", ATTENTION_GQA, 0, 8, 1, 64, 4096, 67120},    {"H200", ATTENTION_GQA, 0, 16, 1, 32, 32768, 152299},
    {"H100", ATTENTION_GQA, 0, 16, 2, 16, 2048, 15197},   {"H100", ATTENTION_GQA, 0, 12, 1, 256, 2048, 101226},
    {"B200", ATTENTION_GQA, 1, 12, 1, 256, 2048, 33659},  {"B200", ATTENTION_GQA, 1, 8, 2, 8, 65536, 53824},
    {"A100", ATTENTION_GQA, 0, 16, 4, 64, 1024, 121611},  {"A100", ATTENTION_GQA, 0, 8, 2, 8, 65536, 349216},
    {"H200", ATTENTION_MLA, 0, 16, 1, 1, 8192, 20715},    {"H200", ATTENTION_MLA, 0, 16, 1, 64, 8192, 156384},
    {"H200", ATTENTION_MLA, 0, 128, 1, 64, 8192, 249776}, {"H200", ATTENTION_MLA, 0, 128, 1, 128, 2048, 147829},
    {"H100", ATTENTION_MLA, 0, 16, 1, 16, 2048, 28269},   {"H100", ATTENTION_MLA, 0, 128, 1, 16, 4096, 58837},
    {"B200", ATTENTION_MLA, 1, 16, 1, 64, 8192, 62037},   {"B200", ATTENTION_MLA, 1, 128, 1, 64, 8192, 73568},
};

static const struct attention_row prefill_rows[] = {
    {"H200", ATTENTION_GQA, 0, 16, 2, 1, 2048, 73808},      {"H200", ATTENTION_GQA, 0, 16, 2, 1, 8192, 593515},
    {"H200", ATTENTION_GQA, 0, 8, 1, 4, 2048, 118277},      {"H200", ATTENTION_GQA, 0, 16, 1, 1, 16384, 2062976},
    {"H100", ATTENTION_GQA, 0, 16, 2, 1, 8192, 447432},     {"H100", ATTENTION_GQA, 0, 32, 4, 8, 1024, 193141},
    {"B200", ATTENTION_GQA, 0, 16, 2, 1, 8192, 329232},     {"B200", ATTENTION_GQA, 0, 16, 1, 1, 16384, 1004059},
    {"H200", ATTENTION_MLA, 0, 128, 1, 1, 4096, 1249000},   {"H200", ATTENTION_MLA, 0, 16, 1, 1, 8192, 633000},
    {"H200", ATTENTION_MLA, 0, 128, 1, 1, 32768, 76993000}, {"B200", ATTENTION_MLA, 0, 128, 1, 16, 1024, 1081000},
};

static struct attention_shape shape_of(const struct attention_row *row)
{
    return (struct attention_shape){
        .kind = row->kind,
        .heads = row->heads,
        .kv_heads = row->kv_heads,
        .head_dim = 128,
        .latent_dim = 512,
        .rope_dim = 64,
        .nope_dim = 128,
        .value_dim = 128,
        .queries = 1.0,
        .kv_fp8 = row->kv_fp8,
    };
}

static void test_decode_attention(void **state)
{
    (void)state;
    struct deviation deviation = {0};
    for (size_t i = 0; i < sizeof decode_rows / sizeof decode_rows[0]; i++) {
        const struct attention_row *row = &decode_rows[i];
        struct device device = device_of(row->gpu);
        struct attention_shape shape = shape_of(row);
        double ns = decode_attention_time(&device, &shape, row->sequences, row->sequences * row->length).ns;
        judge(&deviation, row->gpu, ns, row->ns, 0.10, 0.35);
    }
    assert_usually_close(&deviation);
}

static void test_prefill_attention(void **state)
{
    (void)state;
    struct deviation deviation = {0};
    for (size_t i = 0; i < sizeof prefill_rows / sizeof prefill_rows[0]; i++) {
        const struct attention_row *row = &prefill_rows[i];
        struct device device = device_of(row->gpu);
        struct attention_shape shape = shape_of(row);
        double pairs = row->sequences * row->length * (row->length + 1) / 2;
        double ns = prefill_attention_time(&device, &shape, row->sequences * row->length, pairs).ns;
        judge(&deviation, row->gpu, ns, row->ns, 0.12, 0.30);
    }
    assert_usually_close(&deviation);
}

static const struct expert_row {
    const char *gpu;
    enum number_format format;
    double hidden, intermediate, experts, split, ranks;
    double tokens;
    double ns;
} expert_rows[] = {
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 8, 1, 4, 78652},
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 8, 1, 32, 248594},
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 8, 1, 256, 404485},
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 8, 1, 4096, 1150567},
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 1, 8, 4, 92262},
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 1, 8, 32, 238694},
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 1, 8, 256, 388845},
    {"H200", FORMAT_FP8_BLOCK, 7168, 2048, 256, 1, 8, 4096, 1168096},
    {"H200", FORMAT_FP8_BLOCK, 6144, 2560, 160, 4, 1, 32, 381009},
    {"H200", FORMAT_FP8_BLOCK, 6144, 2560, 160, 4, 1, 4096, 1663821},
    {"H200", FORMAT_BF16, 4096, 1536, 128, 4, 1, 32, 265664},
    {"H200", FORMAT_BF16, 4096, 1536, 128, 4, 1, 4096, 1034624},
    {"B200", FORMAT_FP4, 7168, 2048, 256, 1, 8, 32, 95313},
    {"B200", FORMAT_FP4, 7168, 2048, 256, 1, 8, 4096, 396465},
};

static void test_experts(void **state)
{
    (void)state;
    struct deviation deviation = {0};
    for (size_t i = 0; i < sizeof expert_rows / sizeof expert_rows[0]; i++) {
        const struct expert_row *row = &expert_rows[i];
        struct device device = device_of(row->gpu);
        struct moe_shape shape = {
            .hidden = row->hidden,
            .width = row->intermediate / row->split,
            .experts = row->experts,
            .active = 8,
            .expert_ranks = row->ranks,
            .groups = 1,
            .format = row->format,
        };
        judge(&deviation, row->gpu, moe_time(&device, row->tokens, &shape).ns, row->ns, 0.08, 0.25);
    }
    assert_usually_close(&deviation);
}

static double exchange_ns(const struct device *device, double ranks, double tokens, double active)
{
    const struct exchange_shape shape = {.ranks = ranks, .hidden = 7168.0, .active = active};
    return exchange_time(device, &shape, tokens).ns;
}

static void test_distinct_experts(void **state)
{
    (void)state;
    assert_true(fabs(distinct_experts(256, 8, 1) - 8.0) < 1e-9);
    assert_true(fabs(distinct_experts(256, 8, 2) - 15.75) < 1e-9);
    assert_true(fabs(distinct_experts(8, 2, 3) - 8.0 * (1.0 - 27.0 / 64.0)) < 1e-9);
    assert_true(fabs(distinct_experts(128, 128, 5) - 128.0) < 1e-9);
    assert_true(fabs(distinct_experts(256, 8, 100000) - 256.0) < 1e-9);
    /* Half a token touches half of what one touches: between whole counts it is a line. */
    assert_true(fabs(distinct_experts(256, 8, 0.5) - 4.0) < 1e-9);
    double powers = 256.0 * (1.0 - pow(1.0 - 8.0 / 256.0, 77));
    assert_true(fabs(distinct_experts(256, 8, 77) - powers) < 1e-9 * powers);
}

static void test_collectives(void **state)
{
    (void)state;
    struct device h200 = device_of("H200");
    /* One rank has nothing to reduce. Eight: 64 tokens of DeepSeek, 0.92 MB; and 8192 tokens. */
    assert_true(all_reduce_time(&h200, NULL, NULL, 1, 1e6).ns == 0.0);
    struct deviation deviation = {0};
    judge(&deviation, "512 Ki elements", all_reduce_time(&h200, NULL, NULL, 8, 524288).ns, 13051, 0.01, 0.05);
    judge(&deviation, "64 Mi elements", all_reduce_time(&h200, NULL, NULL, 8, 67108864).ns, 562552, 0.01, 0.05);
    /* Two nodes: the ring over NICs comes on top, 1/8 of the bytes for each GPU. */
    double inside = all_reduce_time(&h200, NULL, NULL, 8, 67108864).ns;
    double ring = 2.0 * (11200 + 2.0 * 67108864 / 8 / 2 / 46.8);
    assert_true(fabs(all_reduce_time(&h200, NULL, NULL, 16, 67108864).ns - inside - ring) < 1.0);
    /* Dispatch and combine, 128 tokens a rank: 39.8 + 72.4 us in a node, 101 + 186 over two, both on H100. */
    judge(&deviation, "DeepEP, 1 node", exchange_ns(&h200, 8, 128, 8), 112200, 0.25, 0.35);
    judge(&deviation, "DeepEP, 2 nodes", exchange_ns(&h200, 16, 64, 8), 156290, 0.05, 0.10);
    judge(&deviation, "DeepEP, 4 nodes", exchange_ns(&h200, 32, 4096, 8), 5494000, 0.05, 0.10);
    assert_usually_close(&deviation);
    assert_true(exchange_ns(&h200, 16, 64, 4) < exchange_ns(&h200, 16, 64, 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_decode_attention),
        cmocka_unit_test(test_prefill_attention),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_distinct_experts),
        cmocka_unit_test(test_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
