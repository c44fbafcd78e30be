/* Parameters, weights and KV capacity against published figures and against sums done by hand. */
#include "model/footprint.h"
#include "support/known_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GIGA UINT64_C(1000000000)
#define MEGA UINT64_C(1000000)
#define GIB (UINT64_C(1) << 30)

static struct kv_geometry geometry_of(const struct architecture *architecture, struct parallelism parallelism,
                                      uint32_t page_tokens)
{
    struct kv_geometry geometry;
    assert_int_equal(kv_geometry_make(architecture, parallelism, page_tokens, LAYOUT_HND, &geometry), GEOMETRY_OK);
    return geometry;
}

static struct footprint_weights weights_of(const struct architecture *architecture, struct parallelism parallelism,
                                           uint32_t stage)
{
    struct kv_geometry geometry = geometry_of(architecture, parallelism, 64);
    struct footprint_weights weights;
    assert_int_equal(footprint_weights(architecture, &geometry, stage, &weights), FOOTPRINT_FITS);
    return weights;
}

static void assert_within(uint64_t value, uint64_t published, uint64_t permille)
{
    uint64_t difference = value > published ? value - published : published - value;
    if (difference * 1000 > published * permille)
        fail_msg("%llu is more than %llu permille from the published %llu", (unsigned long long)value,
                 (unsigned long long)permille, (unsigned long long)published);
}

static void test_total_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t published_mega; /* model cards; Llama: arXiv 2407.21783; gpt-oss: arXiv 2508.10925 */
    } rows[] = {
        {"DeepSeek-R1", 671000},  {"Qwen3-Coder-480B-A35B", 480000}, {"Qwen3-235B-A22B", 235000},
        {"Mixtral-8x7B", 46700},  {"gpt-oss-120b", 116830},          {"Llama-3.1-8B", 8030},
        {"Llama-3.1-70B", 70600}, {"Llama-3.1-405B", 405800},        {"Llama-2-70B", 69000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct footprint_parameters p;
        footprint_parameters(known_model(rows[i].name), &p);
        assert_within(p.total, rows[i].published_mega * MEGA, 10);
        assert_true(p.total == p.embedding + p.attention + p.norms + p.dense_mlp + p.router + p.routed_experts +
                                   p.shared_experts + p.lm_head);
    }

    /* Kimi-K2 is published as 1T and as 1.04T (arXiv 2507.20534); its configuration adds up to 1.026T. */
    struct footprint_parameters kimi;
    footprint_parameters(known_model("Kimi-K2-Instruct"), &kimi);
    assert_within(kimi.total, 1026 * GIGA, 1);
}

/* Exact: the tensors of Llama-3.1-8B's checkpoint hold 8,030,261,248 elements. */
static void test_exact_count(void **state)
{
    (void)state;
    struct footprint_parameters p;
    footprint_parameters(known_model("Llama-3.1-8B"), &p);
    assert_true(p.total == UINT64_C(8030261248));
    footprint_parameters(known_model("Llama-3.1-70B"), &p);
    assert_true(p.total == UINT64_C(70553706496));
}

static void test_active_parameters(void **state)
{
    (void)state;
    struct footprint_parameters p;

    /* Published to the whole billion: the sum must round to it. */
    footprint_parameters(known_model("DeepSeek-R1"), &p);
    assert_true((p.active + GIGA / 2) / GIGA == 37);
    footprint_parameters(known_model("Qwen3-Coder-480B-A35B"), &p);
    assert_true((p.active + GIGA / 2) / GIGA == 35);
    footprint_parameters(known_model("Qwen3-235B-A22B"), &p);
    assert_true((p.active + GIGA / 2) / GIGA == 22);

    footprint_parameters(known_model("gpt-oss-120b"), &p);
    assert_within(p.active, 5130 * MEGA, 10);
    footprint_parameters(known_model("Mixtral-8x7B"), &p);
    assert_within(p.active + p.embedding, 12900 * MEGA, 10);
    /* Published with the embedding. */
    footprint_parameters(known_model("Kimi-K2-Instruct"), &p);
    assert_within(p.active + p.embedding, 32800 * MEGA, 10);

    /* A dense model is active as a whole, but for the row look-up; a tied head is multiplied all the same. */
    footprint_parameters(known_model("Llama-3.1-8B"), &p);
    assert_true(p.active == p.total - p.embedding);
    struct architecture tied = *known_model("Llama-3.1-8B");
    tied.tied_embeddings = 1;
    struct footprint_parameters q;
    footprint_parameters(&tied, &q);
    assert_true(q.active == p.active && q.total == p.total - p.lm_head);
}

static void test_matrix_bytes(void **state)
{
    (void)state;
    assert_true(footprint_matrix_bytes(FORMAT_BF16, 10, 20) == 400);
    assert_true(footprint_matrix_bytes(FORMAT_FP8, 10, 20) == 200 + 40);
    assert_true(footprint_matrix_bytes(FORMAT_FP8_BLOCK, 128, 256) == 128 * 256 + 2 * 4);
    assert_true(footprint_matrix_bytes(FORMAT_FP8_BLOCK, 129, 256) == 129 * 256 + 4 * 4);
    assert_true(footprint_matrix_bytes(FORMAT_FP4, 16, 64) == 16 * 36); /* 4.5 bits an element */
}

/* One rank holds what the checkpoint holds: 16.06 GB in bf16. */
static void test_weights_of_one_rank(void **state)
{
    (void)state;
    const struct architecture *llama = known_model("Llama-3.1-8B");
    struct footprint_weights w = weights_of(llama, (struct parallelism){1, 1, 1, 1}, 0);
    assert_true(w.total == 2 * UINT64_C(8030261248));
}

static void test_weights_are_split(void **state)
{
    (void)state;
    const struct architecture *llama = known_model("Llama-3.1-70B");
    uint64_t whole = weights_of(llama, (struct parallelism){1, 1, 1, 1}, 0).total;
    uint64_t norms = (UINT64_C(80) * 2 + 1) * 8192 * 2;
    uint64_t eighth = weights_of(llama, (struct parallelism){8, 1, 1, 1}, 0).total;
    assert_true(8 * (eighth - norms) == whole - norms);

    /* 16 ranks for 8 KV heads: k and v are repeated, all else is halved once more. */
    uint64_t sixteenth = weights_of(llama, (struct parallelism){16, 1, 1, 1}, 0).total;
    uint64_t kv_of_a_head = UINT64_C(80) * 2 * 128 * 8192 * 2;
    assert_true(2 * (sixteenth - norms - kv_of_a_head) == eighth - norms - kv_of_a_head);

    /* Stages hold all of it between them. */
    struct parallelism two_stages = {1, 1, 1, 2};
    assert_true(weights_of(llama, two_stages, 0).total + weights_of(llama, two_stages, 1).total == whole);

    /* A tied head costs nothing in one stage and a second copy in two. */
    struct architecture tied = *llama;
    tied.tied_embeddings = 1;
    uint64_t table = UINT64_C(128256) * 8192 * 2;
    assert_true(weights_of(&tied, (struct parallelism){1, 1, 1, 1}, 0).total == whole - table);
    assert_true(weights_of(&tied, two_stages, 1).total == weights_of(llama, two_stages, 1).total);
}

static void test_weights_of_experts(void **state)
{
    (void)state;
    const struct architecture *r1 = known_model("DeepSeek-R1");
    struct footprint_weights tp8 = weights_of(r1, (struct parallelism){8, 1, 1, 1}, 0);
    struct footprint_weights tp8_ep8 = weights_of(r1, (struct parallelism){8, 1, 8, 1}, 0);
    struct footprint_weights dp8_ep8 = weights_of(r1, (struct parallelism){1, 8, 8, 1}, 0);
    struct footprint_weights dp8 = weights_of(r1, (struct parallelism){1, 8, 1, 1}, 0);
    struct footprint_weights tp8_ep2 = weights_of(r1, (struct parallelism){8, 1, 2, 1}, 0);

    /* However an eighth of the routed experts is cut, it is an eighth; 256-wide shares are whole scale blocks. */
    uint64_t expert_bytes = 3 * (UINT64_C(2048) * 7168 + UINT64_C(16) * 56 * 4);
    assert_true(tp8.routed_experts == 58 * 256 * expert_bytes / 8);
    assert_true(tp8_ep8.routed_experts == tp8.routed_experts && dp8_ep8.routed_experts == tp8.routed_experts);
    assert_true(dp8.routed_experts == tp8.routed_experts && tp8_ep2.routed_experts == tp8.routed_experts);

    /* Attention groups repeat attention, dense MLPs and shared experts. */
    assert_true(dp8_ep8.dense_mlp == 8 * tp8_ep8.dense_mlp);
    assert_true(dp8_ep8.shared_experts == 8 * tp8_ep8.shared_experts);
    assert_true(dp8_ep8.attention > 5 * tp8_ep8.attention && dp8_ep8.attention < 8 * tp8_ep8.attention);

    /* 384 experts over 256 ranks: the fullest rank has two. */
    const struct architecture *kimi = known_model("Kimi-K2-Instruct");
    struct footprint_weights wide = weights_of(kimi, (struct parallelism){1, 256, 256, 1}, 0);
    assert_true(wide.routed_experts == 60 * 2 * expert_bytes);

    /* The dense layers lead: of two stages only the first has them. */
    assert_true(weights_of(r1, (struct parallelism){8, 1, 8, 2}, 1).dense_mlp == 0);
    assert_true(weights_of(r1, (struct parallelism){8, 1, 8, 2}, 0).dense_mlp == tp8.dense_mlp);

    /* The fp8 checkpoint of R1's main model is about 671 GB; with bf16 tables and absorbed halves 1 to 2 % more. */
    assert_within(weights_of(r1, (struct parallelism){1, 1, 1, 1}, 0).total, 677 * GIGA, 5);
}

static void test_kv_bytes_of_a_token(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {
        {"DeepSeek-R1", 70272},     {"Llama-3.1-70B", 327680},   {"Llama-3.1-8B", 131072},
        {"Llama-3.1-405B", 516096}, {"Qwen3-235B-A22B", 192512}, {"Qwen3-Coder-480B-A35B", 253952},
        {"gpt-oss-120b", 73728},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct architecture *architecture = known_model(rows[i].name);
        struct kv_geometry g = geometry_of(architecture, (struct parallelism){1, 1, 1, 1}, 16);
        assert_true(kv_token_rank_bytes(&g, architecture->layers) == rows[i].bytes);
    }
    struct architecture fp8 = *known_model("DeepSeek-R1");
    fp8.kv_format = FORMAT_FP8;
    struct kv_geometry g = geometry_of(&fp8, (struct parallelism){8, 1, 8, 1}, 64);
    assert_true(kv_token_rank_bytes(&g, 61) == 70272 / 2); /* every rank holds the whole latent */
}

static void test_pages(void **state)
{
    (void)state;
    const struct architecture *llama = known_model("Llama-3.1-70B");
    struct kv_geometry g = geometry_of(llama, (struct parallelism){4, 1, 1, 1}, 16);
    struct footprint f;
    uint64_t activations = footprint_activation_bytes(llama, &g, 8192, 256);
    assert_int_equal(footprint_kv_pages(llama, &g, 80 * GIB, MEMORY_SHARE_GPU, 900, activations, &f), FOOTPRINT_FITS);
    uint64_t free_bytes = 72 * GIB - weights_of(llama, (struct parallelism){4, 1, 1, 1}, 0).total - activations;
    assert_true(f.page_bytes == 16 * 327680 / 4);
    assert_true(f.pages == free_bytes / f.page_bytes);
    assert_true(f.usable_bytes == 72 * GIB && f.activation_bytes == activations);

    /* By hand for 8192 tokens: residual and normed input, then the MLP's gate, up and product, in bf16; fp32 logits. */
    assert_true(activations == UINT64_C(8192) * 2 * (2 * 8192 + 3 * 28672 / 4) + UINT64_C(256) * 4 * 128256 / 4);

    /* The tightest stage decides: R1's first of two holds one more layer than the second. */
    const struct architecture *r1 = known_model("DeepSeek-R1");
    struct kv_geometry staged = geometry_of(r1, (struct parallelism){8, 1, 8, 2}, 64);
    assert_int_equal(footprint_kv_pages(r1, &staged, 80 * GIB, MEMORY_SHARE_GPU, 900, GIB, &f), FOOTPRINT_FITS);
    uint64_t pages[2];
    for (uint32_t stage = 0; stage < 2; stage++) {
        uint64_t weights = weights_of(r1, (struct parallelism){8, 1, 8, 2}, stage).total;
        pages[stage] = (72 * GIB - weights - GIB) / (64 * UINT64_C(1152) * (stage == 0 ? 31 : 30));
    }
    assert_true(f.pages == (pages[0] < pages[1] ? pages[0] : pages[1]));
    assert_true(f.stage == (pages[0] < pages[1] ? 0 : 1));
}

static void test_does_not_fit(void **state)
{
    (void)state;
    const struct architecture *r1 = known_model("DeepSeek-R1");
    struct kv_geometry g = geometry_of(r1, (struct parallelism){8, 1, 8, 1}, 64);
    struct footprint f;

    /* 671 GB on 8 x 80 GB: by weights, and by how much. On 8 x H200 it fits. */
    assert_int_equal(footprint_kv_pages(r1, &g, 80 * GIB, MEMORY_SHARE_GPU, 900, GIB, &f), FOOTPRINT_WEIGHTS);
    assert_true(f.pages == 0 && f.weight_bytes > f.usable_bytes && f.usable_bytes == 72 * GIB);
    assert_int_equal(footprint_kv_pages(r1, &g, 141 * GIB, MEMORY_SHARE_GPU, 900, GIB, &f), FOOTPRINT_FITS);

    /* Exactly the weights, one byte less than a page, and a page. */
    uint64_t taken = f.weight_bytes + GIB;
    assert_int_equal(footprint_kv_pages(r1, &g, taken - 1, MEMORY_SHARE_GPU, 1000, GIB, &f), FOOTPRINT_WEIGHTS);
    assert_int_equal(footprint_kv_pages(r1, &g, taken + f.page_bytes - 1, MEMORY_SHARE_GPU, 1000, GIB, &f),
                     FOOTPRINT_PAGES);
    assert_int_equal(footprint_kv_pages(r1, &g, taken + f.page_bytes, MEMORY_SHARE_GPU, 1000, GIB, &f), FOOTPRINT_FITS);
    assert_true(f.pages == 1);

    /* Refused before any memory is looked at. */
    struct kv_geometry odd = geometry_of(r1, (struct parallelism){8, 1, 3, 1}, 64);
    assert_int_equal(footprint_kv_pages(r1, &odd, 141 * GIB, MEMORY_SHARE_GPU, 900, 0, &f), FOOTPRINT_EXPERTS);
    const struct architecture *llama = known_model("Llama-3.1-8B");
    struct kv_geometry dense = geometry_of(llama, (struct parallelism){8, 1, 8, 1}, 16);
    assert_int_equal(footprint_kv_pages(llama, &dense, 80 * GIB, MEMORY_SHARE_GPU, 900, 0, &f), FOOTPRINT_EXPERTS);
    struct kv_geometry wide = geometry_of(llama, (struct parallelism){64, 1, 1, 1}, 16);
    assert_int_equal(footprint_kv_pages(llama, &wide, 80 * GIB, MEMORY_SHARE_GPU, 900, 0, &f), FOOTPRINT_HEADS);
    assert_int_equal(footprint_kv_pages(r1, &wide, 80 * GIB, MEMORY_SHARE_GPU, 900, 0, &f), FOOTPRINT_GEOMETRY);

    for (int verdict = FOOTPRINT_FITS; verdict <= FOOTPRINT_GEOMETRY; verdict++)
        for (int other = FOOTPRINT_FITS; other < verdict; other++)
            assert_string_not_equal(footprint_verdict_text((enum footprint_verdict)verdict),
                                    footprint_verdict_text((enum footprint_verdict)other));
}

/* Routed copies under expert parallelism: 8 a token, of the tokens of all groups, over the expert ranks. */
static void test_activations_of_experts(void **state)
{
    (void)state;
    const struct architecture *r1 = known_model("DeepSeek-R1");
    struct kv_geometry g = geometry_of(r1, (struct parallelism){1, 8, 8, 1}, 64);
    uint64_t tokens = 1024;
    uint64_t mlp = tokens * 8 * 8 / 8 * (2 * 7168 + 3 * 2048);
    uint64_t attention = tokens * 128 * (192 + 192 + 128 + 128);
    assert_true(mlp > attention);
    assert_true(footprint_activation_bytes(r1, &g, 1024, 0) == 2 * (tokens * 2 * 7168 + mlp));

    struct kv_geometry mixed = geometry_of(r1, (struct parallelism){8, 1, 8, 1}, 64);
    assert_true(footprint_activation_bytes(r1, &mixed, 1024, 0) < footprint_activation_bytes(r1, &g, 1024, 0));
}

/* The same 90 % of 141 GiB under the three engines: vLLM takes activations out of the share, SGLang leaves them beside
 * it while there is room, TensorRT-LLM shares what is free. */
static void test_memory_shares(void **state)
{
    (void)state;
    const struct architecture *r1 = known_model("DeepSeek-R1");
    struct kv_geometry g =
        geometry_of(r1, (struct parallelism){.tensor = 8, .data = 1, .expert = 1, .pipeline = 1}, 64);
    struct footprint f;
    uint64_t memory = 141 * GIB;
    uint64_t activations = 4 * GIB;
    assert_int_equal(footprint_kv_pages(r1, &g, memory, MEMORY_SHARE_GPU, 900, activations, &f), FOOTPRINT_FITS);
    assert_true(f.kv_bytes == memory * 900 / 1000 - f.weight_bytes - activations);
    assert_int_equal(footprint_kv_pages(r1, &g, memory, MEMORY_SHARE_STATIC, 900, activations, &f), FOOTPRINT_FITS);
    assert_true(f.kv_bytes == memory * 900 / 1000 - f.weight_bytes);
    assert_int_equal(footprint_kv_pages(r1, &g, memory, MEMORY_SHARE_STATIC, 1000, activations, &f), FOOTPRINT_FITS);
    assert_true(f.kv_bytes == memory - activations - f.weight_bytes);
    assert_int_equal(footprint_kv_pages(r1, &g, memory, MEMORY_SHARE_FREE, 900, activations, &f), FOOTPRINT_FITS);
    assert_true(f.kv_bytes == (memory - activations - f.weight_bytes) * 900 / 1000);
    assert_true(f.pages == f.kv_bytes / f.page_bytes);
    assert_int_equal(footprint_kv_pages(r1, &g, memory, MEMORY_SHARE_STATIC, 500, activations, &f), FOOTPRINT_WEIGHTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_shares),       cmocka_unit_test(test_total_parameters),
        cmocka_unit_test(test_exact_count),         cmocka_unit_test(test_active_parameters),
        cmocka_unit_test(test_matrix_bytes),        cmocka_unit_test(test_weights_of_one_rank),
        cmocka_unit_test(test_weights_are_split),   cmocka_unit_test(test_weights_of_experts),
        cmocka_unit_test(test_kv_bytes_of_a_token), cmocka_unit_test(test_pages),
        cmocka_unit_test(test_does_not_fit),        cmocka_unit_test(test_activations_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
