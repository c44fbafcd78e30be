/* The arithmetic that the host and the CUDA device share, against naive double versions. Runs without a GPU: the same
 * inline functions are compiled for it by nvcc.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/kv_geometry.h"
#include "real/device/kernels/kernel.h"
#include "real/device/kernels/page.h"
#include "real/device/kernels/softmax.h"
#include "real/device/kernels/topk.h"
#include "real/device/seeded.h"
#include "real/memory/kv_memory.h"

#include <math.h>
#include <string.h>

static float uniform(struct rng *rng, float low, float high)
{
    return low + (high - low) * (float)rng_below(rng, 1u << 24) / (float)(1u << 24);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        float value = kernel_bf16_float((uint16_t)half);
        if (value != value) {
            float back = kernel_bf16_float(kernel_bf16(value));
            assert_true(back != back);
            continue;
        }
        assert_int_equal(kernel_bf16(value), half);
        uint32_t bits = half << 16;
        if ((half & 0x7f80u) == 0x7f80u)
            continue; /* infinity has no neighbour to round from */
        uint32_t even = half + (half & 1u);
        assert_int_equal(kernel_bf16(kernel_bits_float(bits | 0x8000u)), even);
        assert_int_equal(kernel_bf16(kernel_bits_float(bits | 0x7fffu)), half);
        assert_int_equal(kernel_bf16(kernel_bits_float(bits | 0x8001u)), half + 1);
    }
}

/* The nearest e4m3 value by trying all of them; a tie goes to the even code. */
static uint8_t fp8_naive(float value)
{
    uint8_t best = 0;
    double best_distance = INFINITY;
    for (uint32_t code = 0; code < 127; code++) {
        double candidate = code < 8 ? ldexp(code, -9) : ldexp(8 + (code & 7), (int)(code >> 3) - 10);
        double distance = fabs(fabs((double)value) - candidate);
        if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
            best = (uint8_t)code;
            best_distance = distance;
        }
    }
    return (uint8_t)(best | (signbit(value) ? 0x80u : 0u));
}

static void fp8_is_the_nearest_e4m3(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 256; code++) {
        float value = kernel_fp8_float((uint8_t)code);
        if ((code & 127) == 127)
            assert_true(value != value);
        else
            assert_int_equal(kernel_fp8(value), code);
    }
    struct rng rng = rng_stream(1, 0, RNG_FINGERPRINT);
    for (int i = 0; i < 20000; i++) {
        float value = uniform(&rng, -1.0f, 1.0f) * ldexpf(1.0f, (int)rng_below(&rng, 22) - 12);
        assert_int_equal(kernel_fp8(value), fp8_naive(value));
    }
    assert_int_equal(kernel_fp8(1e9f), 0x7e);
    assert_int_equal(kernel_fp8(-1e9f), 0xfe);
    assert_int_equal(kernel_fp8(0.0009765625f), 0); /* 2^-10 is a tie between 0 and 2^-9 */
}

static void exp_is_within_two_ulp(void **state)
{
    (void)state;
    struct rng rng = rng_stream(2, 0, RNG_FINGERPRINT);
    for (int i = 0; i < 200000; i++) {
        float x = uniform(&rng, -86.9f, 87.9f);
        double exact = exp((double)x);
        assert_true(fabs((double)kernel_exp(x) - exact) <= exact * 2.4e-7);
    }
    assert_true(kernel_exp(0.0f) == 1.0f);
    assert_true(kernel_exp(-1000.0f) == 0.0f);
    assert_true(kernel_exp(-INFINITY) == 0.0f);
    assert_true(isnan(kernel_exp(NAN)));
    for (int i = 0; i < 20000; i++) {
        float x = uniform(&rng, -80.0f, 80.0f);
        double exact = (double)x / (1.0 + exp(-(double)x));
        assert_true(fabs((double)kernel_silu(x) - exact) <= fabs(exact) * 5e-7);
    }
}

static void rms_scale_and_rope_match_double(void **state)
{
    (void)state;
    struct rng rng = rng_stream(3, 0, RNG_FINGERPRINT);
    for (int i = 0; i < 1000; i++) {
        float sum = uniform(&rng, 0.0f, 1000.0f);
        uint32_t n = 1 + (uint32_t)rng_below(&rng, 8192);
        double exact = 1.0 / sqrt((double)sum / n + 1e-5);
        assert_true(fabs((double)kernel_rms_scale(sum, n) - exact) <= exact * 4e-7);
        float a = uniform(&rng, -2.0f, 2.0f), b = uniform(&rng, -2.0f, 2.0f);
        double angle = (double)uniform(&rng, 0.0f, 3000.0f);
        double c = cos(angle), s = sin(angle);
        float x = a, y = b;
        kernel_rope(&x, &y, (float)c, (float)s);
        assert_true(fabs((double)x - ((double)a * c - (double)b * s)) < 1e-6);
        assert_true(fabs((double)y - ((double)a * s + (double)b * c)) < 1e-6);
    }
}

static void softmax_in_any_split_matches_double(void **state)
{
    (void)state;
    enum { TOKENS = 257 };
    struct rng rng = rng_stream(4, 0, RNG_FINGERPRINT);
    for (int round = 0; round < 200; round++) {
        float score[TOKENS], value[TOKENS];
        double exact = 0, exact_sum = 0;
        for (int i = 0; i < TOKENS; i++) {
            score[i] = uniform(&rng, -30.0f, 30.0f);
            value[i] = uniform(&rng, -1.0f, 1.0f);
            exact += exp((double)score[i]) * (double)value[i];
            exact_sum += exp((double)score[i]);
        }
        struct kernel_softmax all = kernel_softmax_empty();
        float accumulated = 0;
        int parts = 1 + (int)rng_below(&rng, 9);
        for (int part = 0; part < parts; part++) {
            struct kernel_softmax state_of_part = kernel_softmax_empty();
            float sum = 0;
            for (int i = TOKENS * part / parts; i < TOKENS * (part + 1) / parts; i++) {
                float correction;
                float weight = kernel_softmax_add(&state_of_part, score[i], &correction);
                sum = sum * correction + weight * value[i];
            }
            float keep, add;
            all = kernel_softmax_merge(all, state_of_part, &keep, &add);
            accumulated = accumulated * keep + sum * add;
        }
        assert_true(fabs((double)(accumulated / all.sum) - exact / exact_sum) < 2e-6);
    }
}

static void topk_orders_ties_by_id(void **state)
{
    (void)state;
    struct rng rng = rng_stream(5, 0, RNG_FINGERPRINT);
    for (int round = 0; round < 2000; round++) {
        float score[64], best[KERNEL_TOPK_MAX];
        uint32_t ids[KERNEL_TOPK_MAX], count = 0;
        uint32_t n = 1 + (uint32_t)rng_below(&rng, 64), k = 1 + (uint32_t)rng_below(&rng, KERNEL_TOPK_MAX);
        for (uint32_t i = 0; i < n; i++)
            score[i] = (float)rng_below(&rng, 12); /* few values, so that ties are common */
        /* Offered in a different order each time: the result must not depend on it. */
        uint32_t start = (uint32_t)rng_below(&rng, n);
        for (uint32_t i = 0; i < n; i++)
            kernel_topk_offer(best, ids, &count, k, score[(start + i) % n], (start + i) % n);
        assert_int_equal(count, k < n ? k : n);
        bool taken[64] = {false};
        for (uint32_t at = 0; at < count; at++) {
            uint32_t expected = UINT32_MAX;
            for (uint32_t i = 0; i < n; i++)
                if (!taken[i] && (expected == UINT32_MAX || score[i] > score[expected]))
                    expected = i;
            assert_int_equal(ids[at], expected);
            taken[expected] = true;
        }
        kernel_topk_weights(best, count);
        float sum = 0;
        for (uint32_t at = 0; at < count; at++) {
            sum += best[at];
            assert_true(at == 0 || best[at] <= best[at - 1]);
        }
        assert_true(fabsf(sum - 1.0f) < 1e-6f);
    }
}

static void weights_have_their_scale_and_differ(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    uint64_t matrix = seeded_matrix(7, SEEDED_GATE, 3, 0);
    assert_true(matrix != seeded_matrix(7, SEEDED_GATE, 4, 0));
    assert_true(matrix != seeded_matrix(7, SEEDED_GATE, 3, 1));
    assert_true(matrix != seeded_matrix(7, SEEDED_UP, 3, 0));
    assert_true(matrix != seeded_matrix(8, SEEDED_GATE, 3, 0));
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < N; i++) {
        float weight = seeded_weight(matrix, i / 256, i % 256, 1.0f);
        assert_true(weight >= -1.0f && weight < 1.0f);
        sum += (double)weight;
        squares += (double)weight * (double)weight;
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(squares / N * 3 - 1.0) < 0.02);
}

static void page_offsets_tile_the_region(void **state)
{
    (void)state;
    struct architecture architecture = {
        .attention = ATTENTION_GQA, .layers = 3, .kv_heads = 4, .head_dim = 8, .kv_format = FORMAT_BF16};
    for (int layout = LAYOUT_HND; layout <= LAYOUT_NHD; layout++) {
        struct kv_memory memory = {.pages = 5};
        struct parallelism parallelism = {.tensor = 2, .data = 1, .expert = 1, .pipeline = 1};
        assert_int_equal(kv_geometry_make(&architecture, parallelism, 4, (enum kv_layout)layout, &memory.geometry), 0);
        struct kernel_pages p = kernel_pages_make(&memory, 2);
        uint64_t bytes = kv_memory_pages_bytes(&memory, 0);
        uint8_t seen[3 * 2 * 5 * 2 * 4 * 16] = {0};
        assert_int_equal(bytes, sizeof seen);
        for (uint32_t i = 0; i < 3 * 2 * 5 * 2 * 4; i++) {
            uint32_t slot = i % 4, head = i / 4 % 2, page = i / 8 % 5, plane = i / 40 % 2, layer = i / 80;
            uint64_t at = kernel_page_offset(&p, layer, plane, page, head, slot);
            uint64_t start = kv_memory_page_offset(&memory, 0, layer, plane, page);
            assert_true(at >= start && at + p.head_bytes <= start + kv_page_plane_bytes(&memory.geometry));
            for (uint32_t byte = 0; byte < p.head_bytes; byte++)
                assert_int_equal(seen[at + byte]++, 0);
        }
        uint64_t second_head = kernel_page_offset(&p, 0, 0, 0, 1, 0),
                 second_token = kernel_page_offset(&p, 0, 0, 0, 0, 1);
        assert_int_equal(second_head, layout == LAYOUT_HND ? 64 : 16);
        assert_int_equal(second_token, layout == LAYOUT_HND ? 16 : 32);
    }
}

static void windows_fall_on_the_layers_that_are_not_full(void **state)
{
    (void)state;
    uint32_t full = 0;
    for (uint32_t layer = 0; layer < 26; layer++)
        full += kernel_layer_window(layer, 26, 4, 512) == 0;
    assert_int_equal(full, 4);
    assert_int_equal(kernel_layer_window(25, 26, 4, 512), 0);
    assert_int_equal(kernel_layer_window(3, 26, 0, 512), 512);
    assert_int_equal(kernel_layer_window(3, 26, 0, 0), 0);
    assert_int_equal(kernel_attention_first(511, 512), 0);
    assert_int_equal(kernel_attention_first(512, 512), 1);
    assert_int_equal(kernel_attention_first(99, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(fp8_is_the_nearest_e4m3),
        cmocka_unit_test(exp_is_within_two_ulp),
        cmocka_unit_test(rms_scale_and_rope_match_double),
        cmocka_unit_test(softmax_in_any_split_matches_double),
        cmocka_unit_test(topk_orders_ties_by_id),
        cmocka_unit_test(weights_have_their_scale_and_differ),
        cmocka_unit_test(page_offsets_tile_the_region),
        cmocka_unit_test(windows_fall_on_the_layers_that_are_not_full),
    };
    return cmocka_run_group_tests_name("kernel_math", tests, NULL, NULL);
}
