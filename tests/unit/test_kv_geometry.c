/* Geometries of known models, what is refused and why, and the digest of the handshake. */
#include "model/kv_geometry.h"
#include "support/known_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct kv_geometry made(const char *name, struct parallelism parallelism, uint32_t page_tokens)
{
    struct kv_geometry g;
    assert_int_equal(kv_geometry_make(known_model(name), parallelism, page_tokens, LAYOUT_HND, &g), GEOMETRY_OK);
    return g;
}

static void test_grouped_query(void **state)
{
    (void)state;
    struct kv_geometry g = made("Llama-3.1-70B", (struct parallelism){4, 1, 1, 1}, 16);
    assert_int_equal(g.planes, 2);
    assert_int_equal(g.kv_heads, 8);
    assert_int_equal(g.head_bytes, 256);
    assert_int_equal(kv_rank_heads(&g), 2);
    assert_int_equal(kv_replicas(&g), 1);
    assert_true(kv_page_plane_bytes(&g) == 2 * 16 * 256);
    assert_true(4 * kv_token_rank_bytes(&g, 80) == 327680);
    assert_int_equal(g.stage_layer_first[0], 0);
    assert_int_equal(g.stage_layer_first[1], 80);

    struct kv_geometry wide = made("Llama-3.1-70B", (struct parallelism){32, 1, 1, 1}, 16);
    assert_int_equal(kv_rank_heads(&wide), 1);
    assert_int_equal(kv_replicas(&wide), 4);
}

static void test_latent(void **state)
{
    (void)state;
    struct kv_geometry g = made("DeepSeek-R1", (struct parallelism){8, 1, 8, 1}, 64);
    assert_int_equal(g.planes, 1);
    assert_int_equal(g.kv_heads, 1);
    assert_int_equal(g.head_bytes, 1152);
    assert_int_equal(kv_rank_heads(&g), 1);
    assert_int_equal(kv_replicas(&g), 8);
    assert_true(kv_token_rank_bytes(&g, 61) == 70272);

    struct architecture fp8 = *known_model("DeepSeek-R1");
    fp8.kv_format = FORMAT_FP8;
    assert_int_equal(kv_geometry_make(&fp8, (struct parallelism){8, 1, 8, 1}, 64, LAYOUT_HND, &g), GEOMETRY_OK);
    assert_int_equal(g.head_bytes, 576);
}

/* 61 layers over 4 stages: 16, 15, 15, 15. */
static void test_stages(void **state)
{
    (void)state;
    struct kv_geometry g = made("DeepSeek-R1", (struct parallelism){2, 1, 1, 4}, 64);
    static const uint16_t first[] = {0, 16, 31, 46, 61};
    assert_memory_equal(g.stage_layer_first, first, sizeof first);
    assert_int_equal(kv_ranks(&g.parallelism), 8);
}

static void test_pages(void **state)
{
    (void)state;
    struct kv_geometry g = made("DeepSeek-R1", (struct parallelism){8, 1, 8, 1}, 64);
    assert_int_equal(kv_pages(&g, 0), 0);
    assert_int_equal(kv_pages(&g, 1), 1);
    assert_int_equal(kv_pages(&g, 64), 1);
    assert_int_equal(kv_pages(&g, 65), 2);
    assert_int_equal(kv_pages(&g, UINT32_MAX), UINT32_C(1) << 26);
}

static enum geometry_refusal refusal_of(struct architecture a, struct parallelism parallelism, uint32_t page_tokens)
{
    struct kv_geometry g;
    return kv_geometry_make(&a, parallelism, page_tokens, LAYOUT_HND, &g);
}

static void test_refusals_of_make(void **state)
{
    (void)state;
    const struct parallelism one = {1, 1, 1, 1};
    struct architecture llama = *known_model("Llama-3.1-8B");

    assert_int_equal(refusal_of(llama, (struct parallelism){3, 1, 1, 1}, 16), GEOMETRY_HEADS);
    assert_int_equal(refusal_of(llama, (struct parallelism){12, 1, 1, 1}, 16), GEOMETRY_HEADS);
    assert_int_equal(refusal_of(llama, (struct parallelism){16, 1, 1, 1}, 16), GEOMETRY_OK);
    assert_int_equal(refusal_of(*known_model("DeepSeek-R1"), (struct parallelism){3, 1, 1, 1}, 16), GEOMETRY_OK);

    assert_int_equal(refusal_of(llama, one, 0), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(llama, one, 65536), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(llama, (struct parallelism){0, 1, 1, 1}, 16), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(llama, (struct parallelism){1, 0, 1, 1}, 16), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(llama, (struct parallelism){1, 1, 1, 0}, 16), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(llama, (struct parallelism){1, GROUPS_MAX + 1, 1, 1}, 16), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(llama, (struct parallelism){1, 1, 1, STAGES_MAX + 1}, 16), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(llama, (struct parallelism){64, 8, 1, 1}, 16), GEOMETRY_OK);
    assert_int_equal(refusal_of(llama, (struct parallelism){64, 8, 1, 2}, 16), GEOMETRY_LIMIT);

    struct architecture broken = llama;
    broken.kv_format = FORMAT_FP4;
    assert_int_equal(refusal_of(broken, one, 16), GEOMETRY_MODEL);
    broken = llama;
    broken.layers = LAYERS_MAX + 1;
    assert_int_equal(refusal_of(broken, one, 16), GEOMETRY_LIMIT);
    broken = llama;
    broken.layers = 3;
    assert_int_equal(refusal_of(broken, (struct parallelism){1, 1, 1, 4}, 16), GEOMETRY_LAYERS);
    broken = llama;
    broken.head_dim = 0;
    assert_int_equal(refusal_of(broken, one, 16), GEOMETRY_LIMIT);
    broken = llama;
    broken.head_dim = UINT32_MAX;
    assert_int_equal(refusal_of(broken, one, 16), GEOMETRY_LIMIT);
    /* A plane of 4 GiB and just below. */
    broken = llama;
    broken.head_dim = 1 << 13;
    assert_int_equal(refusal_of(broken, one, 1 << 15), GEOMETRY_LIMIT);
    assert_int_equal(refusal_of(broken, one, (1 << 15) - 1), GEOMETRY_OK);
}

/* What a peer may send. */
static void test_refusals_of_check(void **state)
{
    (void)state;
    const struct kv_geometry good = made("DeepSeek-R1", (struct parallelism){2, 1, 1, 2}, 64);
    assert_int_equal(kv_geometry_check(&good), GEOMETRY_OK);

    struct kv_geometry bad = good;
    bad.stage_layer_first[1] = 0;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_LAYERS);
    bad = good;
    bad.stage_layer_first[1] = 62;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_LAYERS);
    bad = good;
    bad.stage_layer_first[0] = 1;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_LAYERS);
    bad = good;
    bad.stage_layer_first[2] = 60;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_LAYERS);
    bad = good;
    bad.planes = 3;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_MODEL);
    bad = good;
    bad.layout = (enum kv_layout)3;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_MODEL);
    bad = good;
    bad.kv_heads = 0;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_LIMIT);
    bad = good;
    bad.kv_heads = KV_HEADS_MAX + 2;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_LIMIT);
    bad = good;
    bad.parallelism.pipeline = 65535;
    assert_int_equal(kv_geometry_check(&bad), GEOMETRY_LIMIT);
    memset(&bad, 0xff, sizeof bad);
    assert_int_not_equal(kv_geometry_check(&bad), GEOMETRY_OK);
    memset(&bad, 0, sizeof bad);
    assert_int_not_equal(kv_geometry_check(&bad), GEOMETRY_OK);
}

static void test_refusals_are_told_apart(void **state)
{
    (void)state;
    for (int a = GEOMETRY_OK; a <= GEOMETRY_LIMIT; a++)
        for (int b = GEOMETRY_OK; b < a; b++)
            assert_string_not_equal(geometry_refusal_text((enum geometry_refusal)a),
                                    geometry_refusal_text((enum geometry_refusal)b));
}

/* Equal geometries agree whatever their padding holds; a change in any field is seen. */
static void test_hash(void **state)
{
    (void)state;
    const struct kv_geometry good = made("DeepSeek-R1", (struct parallelism){2, 2, 4, 2}, 64);
    struct kv_geometry copies[13];
    for (size_t i = 0; i < 13; i++)
        copies[i] = good;
    copies[1].layers++;
    copies[2].kv_heads++;
    copies[3].planes++;
    copies[4].page_tokens++;
    copies[5].head_bytes++;
    copies[6].layout = LAYOUT_NHD;
    copies[7].parallelism.tensor++;
    copies[8].parallelism.data++;
    copies[9].parallelism.expert++;
    copies[10].parallelism.pipeline++;
    copies[11].stage_layer_first[1]++;
    copies[12].stage_layer_first[2]++;
    for (size_t i = 0; i < 13; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(kv_geometry_hash(&copies[i]) != kv_geometry_hash(&copies[j]));

    struct kv_geometry unused = good;
    unused.stage_layer_first[3] = 7; /* behind the last stage */
    assert_true(kv_geometry_hash(&unused) == kv_geometry_hash(&good));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grouped_query),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_refusals_of_make),
        cmocka_unit_test(test_refusals_of_check),
        cmocka_unit_test(test_refusals_are_told_apart),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
