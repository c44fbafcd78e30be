/* The host device's contract beyond the truth matrix: prompts that decode where they were computed, prefix pages shared
 * between requests, requests that resume after a preemption, slots used again, digests, and what is refused.
 */
#include "support/device_instance.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WEIGHT_SEED 3
#define PAGE 4
#define PAGES 64
#define SEED 77
#define OUTPUT 9

static const struct architecture model = {
    .attention = ATTENTION_GQA,
    .layers = 2,
    .hidden = 64,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .vocab = 256,
    .intermediate = 64,
    .kv_format = FORMAT_BF16,
};

static struct device_instance *make(uint16_t tensor, uint16_t data)
{
    return device_instance_make(&(struct device_instance_config){
        .architecture = &model,
        .parallelism = {.tensor = tensor, .data = data, .expert = 1, .pipeline = 1},
        .page_tokens = PAGE,
        .layout = LAYOUT_HND,
        .pages = PAGES,
        .sequences_max = 4,
        .tokens_max = 100,
        .weight_seed = WEIGHT_SEED,
    });
}

static uint32_t page_list[PAGES];

static void list_pages(uint32_t first)
{
    for (uint32_t i = 0; i < PAGES; i++)
        page_list[i] = (first + i * 5) % PAGES;
}

static struct step_change chunk(uint32_t sequence, uint32_t request, uint32_t start, uint32_t tokens, uint32_t pages)
{
    return (struct step_change){.kind = STEP_CHUNK,
                                .sequence = sequence,
                                .request = request,
                                .start = start,
                                .tokens = tokens,
                                .page_count = pages,
                                .pages = page_list,
                                .token_seed = SEED};
}

static struct step_change join(uint32_t sequence, uint32_t request, uint32_t context, uint32_t produced, uint32_t pages)
{
    struct step_change change = chunk(sequence, request, context, produced, pages);
    change.kind = STEP_JOIN;
    return change;
}

static struct step_change leave(uint32_t sequence, uint32_t request)
{
    return (struct step_change){.kind = STEP_LEAVE, .sequence = sequence, .request = request};
}

/* Tokens [from, OUTPUT) of a sequence that decodes alone. */
static void expect_decode(struct device_instance *instance, const struct step_change *first, uint32_t request,
                          uint32_t prompt, uint32_t from, const uint32_t *expected)
{
    for (uint32_t i = from; i < OUTPUT; i++) {
        struct device_token token;
        assert_int_equal(device_instance_step(instance, first, first != NULL && i == from, false, &token), 1);
        assert_int_equal(token.request, request);
        assert_int_equal(token.position, prompt + i);
        assert_int_equal(token.token, expected[i]);
    }
}

/* A mixed instance: the last chunk's token is the first; every other chunk's is a by-product that must not disturb the
 * prompt. */
static void test_mixed(void **state)
{
    (void)state;
    const uint32_t prompt = 14;
    uint32_t expected[OUTPUT];
    device_reference(&model, WEIGHT_SEED, SEED, prompt, OUTPUT, expected, NULL);
    list_pages(3);
    for (uint16_t tensor = 1; tensor <= 2; tensor++) {
        struct device_instance *instance = make(tensor, 1);
        struct device_token token;
        for (uint32_t start = 0; start < prompt; start += 5) {
            uint32_t tokens = min_u32(5, prompt - start);
            struct step_change change = chunk(2, 8, start, tokens, start == 0 ? 6 : 0);
            assert_int_equal(device_instance_step(instance, &change, 1, true, &token), 1);
            assert_int_equal(token.sequence, 2);
            assert_int_equal(token.request, 8);
            assert_int_equal(token.position, start + tokens);
        }
        assert_int_equal(token.token, expected[0]);
        struct step_change change = join(2, 8, prompt, 1, 0);
        expect_decode(instance, &change, 8, prompt, 1, expected);
        device_instance_free(instance);
    }
}

/* A longer prompt that begins like an earlier one starts on its pages, while that one decodes on. */
static void test_prefix(void **state)
{
    (void)state;
    uint32_t expected_short[OUTPUT];
    uint32_t expected_long[OUTPUT];
    struct device_token tokens[2];
    device_reference(&model, WEIGHT_SEED, SEED, 10, OUTPUT, expected_short, NULL);
    device_reference(&model, WEIGHT_SEED, SEED, 23, OUTPUT, expected_long, NULL);
    list_pages(0);
    struct device_instance *instance = make(2, 1);
    struct step_change changes[2] = {chunk(0, 0, 0, 9, 5)};
    assert_int_equal(device_instance_step(instance, changes, 1, false, tokens), 0);

    /* Two whole pages, 8 tokens, are shared; the rest is new. */
    changes[0] = join(0, 0, 9, 0, 0);
    uint32_t shared[2] = {page_list[0], page_list[1]};
    list_pages(32);
    page_list[0] = shared[0];
    page_list[1] = shared[1];
    changes[1] = chunk(1, 1, 8, 14, 8);
    assert_int_equal(device_instance_step(instance, changes, 2, false, tokens), 1);
    assert_int_equal(tokens[0].token, expected_short[0]);
    changes[0] = join(1, 1, 22, 0, 0);
    for (uint32_t i = 0; i + 1 < OUTPUT; i++) {
        assert_int_equal(device_instance_step(instance, changes, i == 0, false, tokens), 2);
        uint32_t shorter = tokens[0].request == 0 ? 0 : 1;
        assert_int_equal(tokens[shorter].token, expected_short[i + 1]);
        assert_int_equal(tokens[1 - shorter].token, expected_long[i]);
    }
    device_instance_free(instance);
}

/* After four tokens a request is preempted; elsewhere its prompt and those tokens are computed again, and it goes on:
 * on a decoder of its own, and where the tokens were computed again (a mixed instance). */
static void test_resume(void **state)
{
    (void)state;
    const uint32_t prompt = 11;
    const uint32_t produced = 4;
    uint32_t expected[OUTPUT];
    struct device_token token;
    device_reference(&model, WEIGHT_SEED, SEED, prompt, OUTPUT, expected, NULL);
    list_pages(7);
    uint32_t cached = prompt + produced - 1; /* the last token produced is the next one's input */

    struct device_instance *prefiller = make(1, 1);
    struct device_instance *decoder = make(2, 2);
    struct step_change change = chunk(0, 5, 0, cached, 6);
    assert_int_equal(device_instance_step(prefiller, NULL, 0, false, &token), 0);
    device_instance_change(prefiller, &change, 1);
    device_instance_given(prefiller, 0, prompt, expected, produced);
    assert_int_equal(device_instance_step(prefiller, NULL, 0, false, &token), 0);
    device_instance_transfer(prefiller, 0, page_list, decoder, 1, page_list, cached, 0);
    change = join(1, 5, cached, produced, 6);
    change.group = 1;
    device_instance_change(decoder, &change, 1);
    device_instance_given(decoder, 1, prompt, expected, produced);
    expect_decode(decoder, NULL, 5, prompt, produced, expected);
    device_instance_free(decoder);

    change = leave(0, 5);
    assert_int_equal(device_instance_step(prefiller, &change, 1, false, &token), 0);
    change = chunk(0, 6, 0, prompt + produced, 6);
    device_instance_change(prefiller, &change, 1);
    device_instance_given(prefiller, 0, prompt, expected, produced);
    assert_int_equal(device_instance_step(prefiller, NULL, 0, true, &token), 1);
    assert_int_equal(token.token, expected[produced]);
    change = join(0, 6, prompt + produced, produced + 1, 0);
    expect_decode(prefiller, &change, 6, prompt, produced + 1, expected);
    device_instance_free(prefiller);
}

/* A slot is used again by the list of changes that ends its last user; what it was given does not outlive it. */
static void test_slot_again(void **state)
{
    (void)state;
    uint32_t expected[OUTPUT];
    struct device_token tokens[4];
    device_reference(&model, WEIGHT_SEED, SEED, 6, OUTPUT, expected, NULL);
    list_pages(0);
    struct device_instance *instance = make(1, 1);
    struct step_change changes[3] = {join(3, 1, 0, 0, 4)};
    const uint32_t lies[6] = {1, 2, 3, 4, 5, 6};
    device_instance_change(instance, changes, 1);
    device_instance_given(instance, 3, 0, lies, 6);
    assert_int_equal(device_instance_step(instance, NULL, 0, false, tokens), 1);
    changes[0] = chunk(3, 2, 0, 5, 4);
    changes[1] = leave(3, 2);
    changes[2] = changes[0];
    changes[2].request = 4;
    struct step_change first = leave(3, 1);
    device_instance_change(instance, &first, 1);
    assert_int_equal(device_instance_step(instance, changes, 3, false, tokens), 0);
    changes[0] = join(3, 4, 5, 0, 0);
    expect_decode(instance, changes, 4, 6, 0, expected);
    device_instance_free(instance);
}

/* Equal pages have equal digests, wherever they lie; one bit more or less is another digest. */
static void test_digest(void **state)
{
    (void)state;
    struct device_instance *a = make(1, 1);
    struct device_instance *b = make(1, 1);
    struct device_token token;
    struct step_change change = chunk(0, 0, 0, 8, 2);
    list_pages(11);
    device_instance_step(a, &change, 1, false, &token);
    list_pages(40);
    device_instance_step(b, &change, 1, false, &token);
    for (uint32_t layer = 0; layer < model.layers; layer++)
        for (uint32_t plane = 0; plane < 2; plane++)
            for (uint32_t i = 0; i < 2; i++)
                assert_true(device_instance_digest(a, 0, layer, plane, 11 + i * 5) ==
                            device_instance_digest(b, 0, layer, plane, 40 + i * 5));
    uint64_t before = device_instance_digest(a, 0, 1, 1, 16);
    const struct kv_memory *memory = device_instance_memory(a);
    uint8_t *last = device_instance_kv(a, 0) + kv_memory_page_offset(memory, 0, 1, 1, 17) - 1;
    *last ^= 0x80;
    assert_false(device_instance_digest(a, 0, 1, 1, 16) == before);
    *last ^= 0x80;
    assert_true(device_instance_digest(a, 0, 1, 1, 16) == before);
    device_instance_free(a);
    device_instance_free(b);
}

/* The device says in one sentence what it cannot do. */
static void test_refusals(void **state)
{
    (void)state;
    struct refusal {
        struct architecture architecture;
        struct parallelism parallelism;
        const char *text;
    } refusals[] = {
        {model, {.tensor = 3, .data = 1, .expert = 1, .pipeline = 1}, "cannot split 6 query heads over 3 ranks"},
        {model, {.tensor = 4, .data = 1, .expert = 1, .pipeline = 1}, "cannot split an MLP of 66 columns over 4 ranks"},
        {model, {.tensor = 2, .data = 1, .expert = 2, .pipeline = 1}, "cannot deal 4 experts, 17 of them active"},
        {model, {.tensor = 2, .data = 1, .expert = 1, .pipeline = 1}, "does not compute sparse attention"},
        {model, {.tensor = 2, .data = 1, .expert = 1, .pipeline = 1}, "does not compute experts in some layers only"},
        {model, {.tensor = 2, .data = 1, .expert = 1, .pipeline = 1}, "bf16 or fp8"},
    };
    refusals[0].architecture.heads = 6;
    refusals[0].architecture.kv_heads = 3;
    refusals[1].architecture.intermediate = 66;
    refusals[2].architecture.experts = 4;
    refusals[2].architecture.experts_active = 17;
    refusals[2].architecture.expert_intermediate = 64;
    refusals[4].architecture.experts = refusals[4].architecture.moe_interval = 2;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct user_error error = {.set = false};
        struct device_config config = {.architecture = &refusals[i].architecture,
                                       .memory = {.pages = 1},
                                       .sequences_max = 1,
                                       .tokens_max = 1,
                                       .request_tokens_max = 4};
        assert_int_equal(
            kv_geometry_make(config.architecture, refusals[i].parallelism, PAGE, LAYOUT_HND, &config.memory.geometry),
            GEOMETRY_OK);
        if (strstr(refusals[i].text, "fp8") != NULL)
            refusals[i].architecture.kv_format = FORMAT_FP4;
        if (strstr(refusals[i].text, "sparse") != NULL) /* what only a latent cache can be laid out with */
            refusals[i].architecture.index_topk = 16;
        assert_null(device_host.make(&config, &error));
        if (strstr(error.text, refusals[i].text) == NULL)
            fail_msg("'%s' instead of '%s'", error.text, refusals[i].text);
    }
}

/* Prompt tokens cover the vocabulary evenly, and neither seed nor position alone decides them. */
static void test_prompt_tokens(void **state)
{
    (void)state;
    uint32_t seen[100] = {0};
    uint32_t same = 0;
    for (uint32_t position = 0; position < 20000; position++) {
        uint32_t token = device_prompt_token(SEED, position, 100);
        assert_true(token < 100);
        seen[token]++;
        same += token == device_prompt_token(SEED + 1, position, 100);
        same += token == device_prompt_token(SEED, position + 1, 100);
    }
    for (uint32_t i = 0; i < 100; i++)
        assert_in_range(seen[i], 120, 280);
    assert_in_range(same, 250, 550);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),         cmocka_unit_test(test_prefix), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_slot_again),    cmocka_unit_test(test_digest), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_prompt_tokens),
    };
    return cmocka_run_group_tests_name("device_host", tests, NULL, NULL);
}
