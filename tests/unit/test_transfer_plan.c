/* Counts and offsets of transfer plans by hand, the spread of replicas, and refusals. That every byte lands where it
 * should is the business of test_shard_oracle.c. */
#include "model/transfer_plan.h"
#include "support/known_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct transfer_plan plan;

static struct kv_geometry made(const char *name, struct parallelism parallelism, uint32_t page_tokens,
                               enum kv_layout layout)
{
    struct kv_geometry g;
    assert_int_equal(kv_geometry_make(known_model(name), parallelism, page_tokens, layout, &g), GEOMETRY_OK);
    return g;
}

static void plan_between(const struct kv_geometry *source, const struct kv_geometry *destination, uint32_t choice)
{
    assert_int_equal(transfer_plan_make(source, 0, destination, 0, choice, &plan), GEOMETRY_OK);
}

/* The protocol's worked examples at 16 Ki tokens. */
static void test_worked_examples(void **state)
{
    (void)state;
    struct kv_geometry qwen = made("Qwen3-235B-A22B", (struct parallelism){4, 1, 1, 1}, 128, LAYOUT_HND);
    plan_between(&qwen, &qwen, 0);
    assert_true(transfer_expected(&plan, transfer_units(&plan, 16384), 0) == 96256);
    assert_true(plan.bytes_per_unit == 128 * UINT64_C(192512));
    assert_int_equal(plan.pairs[0].run_bytes, 32 * 1024);

    struct kv_geometry r1 = made("DeepSeek-R1", (struct parallelism){8, 1, 8, 1}, 64, LAYOUT_HND);
    plan_between(&r1, &r1, 0);
    assert_true(transfer_expected(&plan, transfer_units(&plan, 16384), 0) == 124928);
    assert_true(transfer_expected(&plan, transfer_units(&plan, 16384), 5) == 124933);
    assert_true(plan.bytes_per_unit == 8 * 64 * UINT64_C(70272)); /* a copy for each of eight ranks */

    struct kv_geometry r1_dp = made("DeepSeek-R1", (struct parallelism){1, 8, 8, 1}, 64, LAYOUT_HND);
    plan_between(&r1, &r1_dp, 0);
    assert_true(transfer_expected(&plan, transfer_units(&plan, 16384), 0) == 15616);
    assert_true(plan.bytes_per_unit == 64 * UINT64_C(70272));
}

static void test_units(void **state)
{
    (void)state;
    struct kv_geometry r1 = made("DeepSeek-R1", (struct parallelism){8, 1, 8, 1}, 64, LAYOUT_HND);
    plan_between(&r1, &r1, 0);
    assert_int_equal(transfer_units(&plan, 0), 0);
    assert_int_equal(transfer_units(&plan, 1), 1);
    assert_int_equal(transfer_units(&plan, 64), 1);
    assert_int_equal(transfer_units(&plan, 65), 2);
    assert_true(transfer_expected(&plan, 0, 0) == 0);
    assert_true(transfer_expected(&plan, 0, 2) == 2);
}

/* Llama-3.1-70B, 8 heads of 256 bytes, 16-token pages: 2 ranks of 4 heads to 8 ranks of one, and back. */
static void test_offsets_hnd(void **state)
{
    (void)state;
    struct kv_geometry two = made("Llama-3.1-70B", (struct parallelism){2, 1, 1, 1}, 16, LAYOUT_HND);
    struct kv_geometry eight = made("Llama-3.1-70B", (struct parallelism){8, 1, 1, 1}, 16, LAYOUT_HND);

    plan_between(&two, &eight, 0);
    assert_int_equal(plan.pair_count, 8);
    for (uint32_t d = 0; d < 8; d++) {
        const struct transfer_pair *pair = &plan.pairs[d];
        assert_int_equal(pair->destination_rank, d);
        assert_int_equal(pair->source_rank, d / 4);
        assert_int_equal(pair->runs, 1);
        assert_int_equal(pair->run_bytes, 4096);
        assert_int_equal(pair->source_offset, d % 4 * 4096);
        assert_int_equal(pair->destination_offset, 0);
        assert_int_equal(pair->layer_count, 80);
    }
    assert_true(plan.writes_per_unit == 8 * 80 * 2);

    plan_between(&eight, &two, 0);
    assert_int_equal(plan.pair_count, 8);
    for (uint32_t s = 0; s < 8; s++) {
        assert_int_equal(plan.pairs[s].source_rank, s);
        assert_int_equal(plan.pairs[s].destination_rank, s / 4);
        assert_int_equal(plan.pairs[s].source_offset, 0);
        assert_int_equal(plan.pairs[s].destination_offset, s % 4 * 4096);
    }
}

static void test_offsets_nhd(void **state)
{
    (void)state;
    struct kv_geometry two = made("Llama-3.1-70B", (struct parallelism){2, 1, 1, 1}, 16, LAYOUT_NHD);
    struct kv_geometry eight = made("Llama-3.1-70B", (struct parallelism){8, 1, 1, 1}, 16, LAYOUT_NHD);

    plan_between(&two, &eight, 0);
    const struct transfer_pair *pair = &plan.pairs[6];
    assert_int_equal(pair->source_rank, 1);
    assert_int_equal(pair->runs, 16);
    assert_int_equal(pair->run_bytes, 256);
    assert_int_equal(pair->source_offset, 512);
    assert_int_equal(pair->source_run_stride, 1024);
    assert_int_equal(pair->destination_run_stride, 256);
    assert_true(plan.writes_per_unit == 8 * 80 * 2 * 16);

    /* Equal heads: a token is whole, a page is one run. */
    plan_between(&two, &two, 0);
    assert_int_equal(plan.pairs[0].runs, 1);
    assert_int_equal(plan.pairs[0].run_bytes, 16 * 1024);
    assert_int_equal(plan.pairs[0].source_run_stride, 0);
}

/* 64-token source pages, 16-token destination pages: a unit is a quarter of a source page. */
static void test_unequal_pages(void **state)
{
    (void)state;
    struct kv_geometry large = made("Llama-3.1-70B", (struct parallelism){2, 1, 1, 1}, 64, LAYOUT_HND);
    struct kv_geometry small = made("Llama-3.1-70B", (struct parallelism){2, 1, 1, 1}, 16, LAYOUT_HND);
    plan_between(&large, &small, 0);
    assert_int_equal(plan.unit_tokens, 16);
    assert_int_equal(plan.source_units_per_page, 4);
    assert_int_equal(plan.destination_units_per_page, 1);
    const struct transfer_pair *pair = &plan.pairs[0];
    assert_int_equal(pair->runs, 4); /* one a head: in the large page heads lie 64 tokens apart */
    assert_int_equal(pair->run_bytes, 4096);
    assert_int_equal(pair->source_run_stride, 64 * 256);
    assert_int_equal(pair->destination_run_stride, 16 * 256);
    assert_int_equal(pair->source_unit_stride, 4096);
    assert_int_equal(pair->destination_unit_stride, 0);
    assert_true(transfer_source_offset(&plan, pair, 7, 2) == 3 * 4096 + 2 * 64 * 256);
    assert_true(transfer_destination_offset(&plan, pair, 7, 2) == 2 * 16 * 256);

    /* NHD keeps tokens whole: one run whatever the pages. */
    large.layout = LAYOUT_NHD;
    small.layout = LAYOUT_NHD;
    plan_between(&small, &large, 0);
    assert_int_equal(plan.pairs[0].runs, 1);
    assert_int_equal(plan.pairs[0].destination_unit_stride, 16 * 1024);
    assert_int_equal(plan.pairs[0].source_unit_stride, 0);
}

/* Of 8 heads 32 source ranks hold 4 copies; 16 destination ranks want 2. Copy j draws from replica (c + j) mod 4. */
static void test_replicas_spread(void **state)
{
    (void)state;
    struct kv_geometry source = made("Llama-3.1-70B", (struct parallelism){32, 1, 1, 1}, 16, LAYOUT_HND);
    struct kv_geometry destination = made("Llama-3.1-70B", (struct parallelism){16, 1, 1, 1}, 16, LAYOUT_HND);
    uint32_t sent[32] = {0};
    assert_int_equal(transfer_replica_choices(&source), 4);
    for (uint32_t choice = 0; choice < 4; choice++) {
        plan_between(&source, &destination, choice);
        assert_int_equal(plan.pair_count, 16);
        for (uint32_t d = 0; d < 16; d++) {
            assert_int_equal(plan.pairs[d].source_rank, d / 2 * 4 + (choice + d % 2) % 4);
            sent[plan.pairs[d].source_rank]++;
        }
    }
    for (uint32_t s = 0; s < 32; s++)
        assert_int_equal(sent[s], 2);
}

/* A latent is on all 8 source ranks: 4 destination ranks draw from 4 different ones, starting at the choice. */
static void test_latent_spreads(void **state)
{
    (void)state;
    struct kv_geometry source = made("DeepSeek-R1", (struct parallelism){8, 1, 8, 1}, 64, LAYOUT_HND);
    struct kv_geometry destination = made("DeepSeek-R1", (struct parallelism){4, 2, 8, 1}, 64, LAYOUT_HND);
    assert_int_equal(transfer_replica_choices(&source), 8);
    assert_int_equal(transfer_plan_make(&source, 0, &destination, 1, 6, &plan), GEOMETRY_OK);
    assert_int_equal(plan.pair_count, 4);
    for (uint32_t j = 0; j < 4; j++) {
        assert_int_equal(plan.pairs[j].destination_rank, 4 + j);
        assert_int_equal(plan.pairs[j].source_rank, (6 + j) % 8);
        assert_int_equal(plan.pairs[j].run_bytes, 64 * 1152);
    }
}

/* 61 layers as 31 + 30 to 21 + 20 + 20, two groups each side: layers meet by their global ids. */
static void test_stages(void **state)
{
    (void)state;
    struct kv_geometry source = made("DeepSeek-R1", (struct parallelism){1, 2, 1, 2}, 64, LAYOUT_HND);
    struct kv_geometry destination = made("DeepSeek-R1", (struct parallelism){1, 2, 1, 3}, 64, LAYOUT_HND);
    static const uint16_t expected[][4] = {/* source rank, destination rank, first layer, layers */
                                           {1, 0, 0, 21},
                                           {1, 2, 21, 10},
                                           {3, 2, 31, 10},
                                           {3, 4, 41, 20}};
    assert_int_equal(transfer_plan_make(&source, 1, &destination, 0, 0, &plan), GEOMETRY_OK);
    assert_int_equal(plan.pair_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(plan.pairs[i].source_rank, expected[i][0]);
        assert_int_equal(plan.pairs[i].destination_rank, expected[i][1]);
        assert_int_equal(plan.pairs[i].layer_first, expected[i][2]);
        assert_int_equal(plan.pairs[i].layer_count, expected[i][3]);
    }
    assert_true(plan.writes_per_unit == 61);
}

static void assert_refused(const struct kv_geometry *a, const struct kv_geometry *b, enum geometry_refusal refusal)
{
    assert_int_equal(transfer_plan_make(a, 0, b, 0, 0, &plan), refusal);
    assert_int_equal(transfer_plan_make(b, 0, a, 0, 0, &plan), refusal);
}

static void test_refusals(void **state)
{
    (void)state;
    const struct kv_geometry good = made("Llama-3.1-70B", (struct parallelism){4, 1, 1, 2}, 16, LAYOUT_HND);
    struct kv_geometry bad = good;
    bad.parallelism.tensor = 3;
    assert_refused(&good, &bad, GEOMETRY_HEADS);
    bad = good;
    bad.page_tokens = 24;
    assert_refused(&good, &bad, GEOMETRY_PAGE_SIZES);
    bad = good;
    bad.page_tokens = 48;
    assert_refused(&good, &bad, GEOMETRY_OK);
    bad = good;
    bad.layers = 79;
    bad.stage_layer_first[2] = 79;
    assert_refused(&good, &bad, GEOMETRY_LAYERS);
    bad = good;
    bad.stage_layer_first[1] = 80;
    assert_refused(&good, &bad, GEOMETRY_LAYERS);
    bad = good;
    bad.planes = 1;
    assert_refused(&good, &bad, GEOMETRY_MODEL);
    bad = good;
    bad.head_bytes = 128; /* fp8 to bf16 */
    assert_refused(&good, &bad, GEOMETRY_MODEL);
    bad = good;
    bad.kv_heads = 4;
    assert_refused(&good, &bad, GEOMETRY_MODEL);
    bad = good;
    bad.layout = LAYOUT_NHD;
    assert_refused(&good, &bad, GEOMETRY_MODEL);
    bad = good;
    bad.parallelism.data = GROUPS_MAX + 1;
    assert_refused(&good, &bad, GEOMETRY_LIMIT);
}

/* 3 and 4 heads a rank over 16 stages that never end together: 48 pairs for each of 31 meetings of stages. */
static void test_too_many_pairs(void **state)
{
    (void)state;
    struct kv_geometry source = {.layers = 64,
                                 .kv_heads = 96,
                                 .planes = 2,
                                 .page_tokens = 16,
                                 .head_bytes = 4,
                                 .layout = LAYOUT_HND,
                                 .parallelism = {.tensor = 32, .data = 1, .expert = 1, .pipeline = 16}};
    struct kv_geometry destination = source;
    destination.parallelism.tensor = 24;
    for (uint16_t stage = 1; stage <= 16; stage++) {
        source.stage_layer_first[stage] = (uint16_t)(4 * stage);
        destination.stage_layer_first[stage] = (uint16_t)(stage == 16 ? 64 : 4 * stage - 2);
    }
    assert_int_equal(kv_geometry_check(&source), GEOMETRY_OK);
    assert_int_equal(kv_geometry_check(&destination), GEOMETRY_OK);
    assert_refused(&source, &destination, GEOMETRY_LIMIT);

    destination.stage_layer_first[1] = 64;
    destination.parallelism.pipeline = 1;
    plan_between(&source, &destination, 0);
    assert_int_equal(plan.pair_count, 16 * 48);
}

/* The longest request at a token a write: the count needs more than 32 bits. */
static void test_count_is_64_bits(void **state)
{
    (void)state;
    struct kv_geometry two = made("Llama-3.1-405B", (struct parallelism){2, 1, 1, 1}, 16, LAYOUT_NHD);
    struct kv_geometry eight = made("Llama-3.1-405B", (struct parallelism){8, 1, 1, 1}, 16, LAYOUT_NHD);
    plan_between(&two, &eight, 0);
    assert_true(transfer_expected(&plan, transfer_units(&plan, REQUEST_TOKENS_MAX), 0) ==
                UINT64_C(8) * 126 * 2 * REQUEST_TOKENS_MAX);
}

/* GLM-5 in fp8 from one DP8 EP8 prefiller to TP4: a 64-token page is a latent and an indexer's keys in each of 78
 * layers, two writes to every rank (86,580 of each for 1,110 pages). */
static void test_sparse_attention_writes_twice(void **state)
{
    (void)state;
    static struct transfer_plan sparse;
    struct kv_geometry from;
    struct kv_geometry to;
    struct architecture model = *known_model("GLM-5");
    model.kv_format = FORMAT_FP8;
    assert_int_equal(kv_geometry_make(&model, (struct parallelism){1, 8, 8, 1}, 64, LAYOUT_HND, &from), GEOMETRY_OK);
    assert_int_equal(kv_geometry_make(&model, (struct parallelism){4, 1, 4, 1}, 64, LAYOUT_HND, &to), GEOMETRY_OK);
    assert_int_equal(transfer_plan_make(&from, 3, &to, 0, 0, &sparse), GEOMETRY_OK);
    assert_int_equal(transfer_expected(&sparse, transfer_units(&sparse, 70999), 0), 4 * 173160);
    assert_int_equal(sparse.bytes_per_unit, UINT64_C(4) * 78 * 64 * (576 + 132));
    assert_int_equal(kv_token_rank_bytes(&to, 78), 78 * (576 + 132));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_attention_writes_twice),
        cmocka_unit_test(test_worked_examples),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_offsets_hnd),
        cmocka_unit_test(test_offsets_nhd),
        cmocka_unit_test(test_unequal_pages),
        cmocka_unit_test(test_replicas_spread),
        cmocka_unit_test(test_latent_spreads),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_too_many_pairs),
        cmocka_unit_test(test_count_is_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
