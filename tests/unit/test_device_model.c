/* The device model: that steps only get longer with work, that the two ways to a decode step's time agree, and known
 * answers. */
#include "sim/cost/device_model.h"
#include "base/rng.h"
#include "support/known_hardware.h"
#include "support/known_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GROUPS 16

/* Deployments that between them use every kind of operator. */
static const struct deployment {
    const char *model;
    const char *gpu;
    struct parallelism parallelism;
    enum number_format format; /* 0: the model's own */
    enum number_format kv;
    uint32_t draft_tokens;
} deployments[] = {
    {"DeepSeek-R1", "H200", {8, 1, 1, 1}, 0, FORMAT_BF16, 0},
    {"DeepSeek-R1", "H200", {8, 1, 8, 1}, 0, FORMAT_FP8, 0},
    {"DeepSeek-R1", "H200", {1, 8, 8, 1}, 0, FORMAT_BF16, 0},
    {"DeepSeek-R1", "H100", {1, 16, 16, 1}, 0, FORMAT_FP8, 0},
    {"DeepSeek-R1", "B200", {8, 1, 8, 1}, FORMAT_FP4, FORMAT_FP8, 0},
    {"Kimi-K2-Instruct", "H200", {2, 8, 16, 1}, 0, FORMAT_BF16, 0},
    {"Qwen3-Coder-480B-A35B", "H200", {8, 1, 1, 1}, FORMAT_FP8_BLOCK, FORMAT_BF16, 0},
    {"Qwen3-235B-A22B", "H200", {4, 1, 1, 1}, 0, FORMAT_BF16, 0},
    {"Qwen3-235B-A22B", "H100", {4, 2, 1, 2}, FORMAT_FP8, FORMAT_FP8, 0},
    {"Mixtral-8x7B", "A100", {4, 1, 1, 1}, 0, FORMAT_BF16, 0},
    {"gpt-oss-120b", "H100", {2, 1, 1, 1}, 0, FORMAT_BF16, 0},
    {"gpt-oss-120b", "B200", {1, 4, 4, 1}, 0, FORMAT_FP8, 0},
    {"Llama-3.1-70B", "H100", {4, 1, 1, 1}, FORMAT_FP8, FORMAT_FP8, 0},
    {"Llama-3.1-70B", "A100", {4, 1, 1, 2}, FORMAT_FP8, FORMAT_FP8, 0},
    {"Llama-3.1-405B", "H200", {16, 1, 1, 1}, FORMAT_BF16, FORMAT_BF16, 0},
    {"Llama-3.1-8B", "B200", {1, 1, 1, 1}, FORMAT_BF16, FORMAT_BF16, 0},
    {"Llama-2-70B", "A100", {8, 1, 1, 1}, 0, FORMAT_BF16, 0},
    {"DeepSeek-V3.2", "H200", {8, 1, 1, 1}, 0, FORMAT_BF16, 0},
    {"GLM-5", "B200", {8, 1, 8, 1}, FORMAT_FP4, FORMAT_FP8, 0},
    {"GLM-5", "H200", {8, 1, 1, 1}, 0, FORMAT_BF16, 3},
    {"DeepSeek-R1", "H200", {8, 1, 1, 1}, 0, FORMAT_BF16, 1},
    {"DeepSeek-R1", "H100", {1, 16, 16, 1}, 0, FORMAT_FP8, 4},
};

#define DEPLOYMENTS (sizeof deployments / sizeof deployments[0])

static struct device_model *models[DEPLOYMENTS];

static struct device_model *make_drafting(const char *name, const char *gpu, struct parallelism parallelism,
                                          enum number_format format, enum number_format kv, uint32_t draft_tokens)
{
    struct scenario *scenario = calloc(1, sizeof *scenario);
    struct pool *pool = &scenario->pools[0];
    scenario->model = *known_model(name);
    if (format != 0)
        scenario->model.weight_format = scenario->model.expert_weight_format = format;
    scenario->model.kv_format = kv;
    scenario->model.draft_layers = 1;
    scenario->pool_count = 1;
    pool->role = ROLE_MIXED;
    pool->hardware = *known_hardware(gpu);
    pool->scheduler.draft_tokens = draft_tokens;
    pool->draft.head = DRAFT_MTP;
    struct user_error error = {.set = false};
    struct device_model *model = device_model_of_pool(scenario, pool, parallelism, &error);
    if (model == NULL)
        fail_msg("%s", error.text);
    free(scenario);
    return model;
}

static struct device_model *make(const char *name, const char *gpu, struct parallelism parallelism,
                                 enum number_format format, enum number_format kv)
{
    return make_drafting(name, gpu, parallelism, format, kv, 0);
}

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEPLOYMENTS; i++) {
        const struct deployment *d = &deployments[i];
        models[i] = make_drafting(d->model, d->gpu, d->parallelism, d->format, d->kv, d->draft_tokens);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEPLOYMENTS; i++)
        device_model_free(models[i]);
    return 0;
}

/* ---- Random steps ------------------------------------------------------------------------------------------------ */

static uint64_t scattered(struct rng *rng, uint32_t bits)
{
    /* In this order: C leaves open which operand draws first. */
    uint64_t value = rng_next(rng);
    uint64_t width = rng_below(rng, bits);
    return value >> (63 - width);
}

static void group_add_chunk(struct step_group *group, uint64_t tokens, uint64_t cached)
{
    group->prefill_sequences++;
    group->prefill_tokens += tokens;
    group->prefill_context += cached;
    group->prefill_pairs += tokens * cached + tokens * (tokens + 1) / 2;
}

/* Of up to 2^bits tokens, in every other case after some that are cached. */
static void random_chunk(struct rng *rng, struct step_group *group, uint32_t bits)
{
    uint64_t tokens = 1 + scattered(rng, bits);
    uint64_t cached = rng_chance(rng, 1, 2) ? scattered(rng, 17) : 0;
    group_add_chunk(group, tokens, cached);
}

static void random_step(struct rng *rng, const struct deployment *deployment, bool prefill, struct step_group *groups)
{
    memset(groups, 0, GROUPS * sizeof *groups);
    for (uint32_t g = 0; g < deployment->parallelism.data; g++) {
        groups[g].decode_sequences = (uint32_t)scattered(rng, 10);
        for (uint32_t s = 0; s < groups[g].decode_sequences; s++)
            groups[g].decode_context += scattered(rng, 17);
        for (uint64_t chunks = prefill ? rng_below(rng, 4) : 0; chunks > 0; chunks--)
            random_chunk(rng, &groups[g], 14);
    }
    if (groups[0].decode_sequences + groups[0].prefill_sequences == 0)
        groups[0].decode_sequences = 1;
}

static int64_t step_ns(size_t i, const struct step_group *groups)
{
    struct step_time time;
    device_step(models[i], groups, deployments[i].parallelism.data, &time);
    return time.total_ns;
}

static int64_t line_at(const struct device_model *model, const struct step_group *group)
{
    struct decode_line line;
    device_decode_line(model, group->decode_sequences, group->decode_context, &line);
    return decode_line_ns(&line, group->decode_context);
}

/* step = fixed + the largest line, to the nanosecond. */
static void test_decode_split(void **state)
{
    (void)state;
    struct rng rng = rng_stream(1, 0, RNG_GENERATE);
    for (uint32_t round = 0; round < 4000; round++) {
        size_t i = round % DEPLOYMENTS;
        uint32_t count = deployments[i].parallelism.data;
        struct step_group groups[GROUPS];
        random_step(&rng, &deployments[i], false, groups);
        int64_t slowest = 0;
        for (uint32_t g = 0; g < count; g++)
            slowest = max_i64(slowest, line_at(models[i], &groups[g]));
        assert_int_equal(step_ns(i, groups), device_decode_fixed_ns(models[i], groups, count) + slowest);
    }
}

/* A line holds for all of its range, and the next one takes over where it ends. */
static void test_decode_lines(void **state)
{
    (void)state;
    struct rng rng = rng_stream(2, 0, RNG_GENERATE);
    for (uint32_t round = 0; round < 4000; round++) {
        const struct device_model *model = models[round % DEPLOYMENTS];
        uint32_t sequences = 1 + (uint32_t)scattered(&rng, 12);
        uint64_t context = scattered(&rng, 28);
        struct decode_line line;
        device_decode_line(model, sequences, context, &line);
        assert_true(line.context_min <= context && context <= line.context_max);
        uint64_t last = min_u64(line.context_max, UINT64_C(1) << 30);
        struct decode_line other;
        device_decode_line(model, sequences, rng_between(&rng, line.context_min, last - 1), &other);
        assert_int_equal(other.base_ns, line.base_ns);
        assert_int_equal(other.slope_q32, line.slope_q32);
        assert_int_equal(other.context_max, line.context_max);
        device_decode_line(model, sequences, last, &other);
        int64_t gap = decode_line_ns(&other, last) - decode_line_ns(&line, last);
        assert_true(gap >= 0 && gap <= 1);
    }
    struct decode_line none;
    device_decode_line(models[0], 0, 0, &none);
    assert_int_equal(decode_line_ns(&none, 0), 0);
}

/* Takes the step from `groups` to one with more work, in one of the ways a scheduler adds it. */
static void add_work(struct rng *rng, struct step_group *group)
{
    switch (rng_below(rng, 6)) {
    case 0:
        group->decode_context += group->decode_sequences > 0 ? 1 + scattered(rng, 18) : 0;
        break;
    case 1:
        group->decode_sequences++;
        group->decode_context += scattered(rng, 17);
        break;
    case 2:
        group->decode_sequences += 1 + (uint32_t)scattered(rng, 7);
        break;
    case 3:
        group_add_chunk(group, 1, 0);
        break;
    case 4:
        random_chunk(rng, group, 13);
        break;
    case 5:
        /* One chunk gets longer, or has more before it. */
        if (group->prefill_sequences > 0) {
            uint64_t tokens = scattered(rng, 8);
            group->prefill_pairs += tokens * (group->prefill_tokens / group->prefill_sequences) + tokens;
            group->prefill_tokens += tokens;
            group->prefill_context += 16;
            group->prefill_pairs += 16 * (group->prefill_tokens / group->prefill_sequences);
        }
        break;
    }
}

static void test_monotonic(void **state)
{
    (void)state;
    struct rng rng = rng_stream(3, 0, RNG_GENERATE);
    for (uint32_t round = 0; round < 20000; round++) {
        size_t i = round % DEPLOYMENTS;
        struct step_group groups[GROUPS];
        random_step(&rng, &deployments[i], round % 2 == 0, groups);
        int64_t before = step_ns(i, groups);
        add_work(&rng, &groups[rng_below(&rng, deployments[i].parallelism.data)]);
        int64_t after = step_ns(i, groups);
        if (after < before)
            fail_msg("%s: %lld ns, with more work %lld ns", deployments[i].model, (long long)before, (long long)after);
    }
}

/* Small batches one by one: no dip where tables are exact and none where they are not. */
static void test_monotonic_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEPLOYMENTS; i++) {
        int64_t decode_before = 0;
        int64_t prefill_before = 0;
        for (uint32_t tokens = 1; tokens < 3000; tokens++) {
            struct step_group decode[GROUPS] = {{.decode_sequences = tokens, .decode_context = 3000000}};
            struct step_group prefill[GROUPS] = {{0}};
            group_add_chunk(&prefill[0], tokens, 0);
            int64_t decode_ns = step_ns(i, decode);
            int64_t prefill_ns = step_ns(i, prefill);
            assert_true(decode_ns >= decode_before && prefill_ns >= prefill_before);
            decode_before = decode_ns;
            prefill_before = prefill_ns;
        }
    }
}

/* The layers of a step fit into it, and its first KV comes before its end. */
static void test_layers(void **state)
{
    (void)state;
    struct rng rng = rng_stream(4, 0, RNG_GENERATE);
    for (uint32_t round = 0; round < 2000; round++) {
        size_t i = round % DEPLOYMENTS;
        struct step_group groups[GROUPS];
        random_step(&rng, &deployments[i], true, groups);
        struct step_time time;
        device_step(models[i], groups, deployments[i].parallelism.data, &time);
        int64_t layers = known_model(deployments[i].model)->layers;
        assert_true(time.layer_ns > 0 && time.first_layer_ns > 0);
        assert_true(time.first_layer_ns + (layers - 1) * time.layer_ns <= time.total_ns);
        assert_true(time.bound >= BOUND_COMPUTE && time.bound <= BOUND_OVERHEAD);
    }
}

/* The parts add up to the step to the nanosecond; its operators alone mostly within 5 %, else within what is
 * smoothed. */
static void test_breakdown(void **state)
{
    (void)state;
    struct rng rng = rng_stream(5, 0, RNG_GENERATE);
    uint32_t far = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        size_t i = round % DEPLOYMENTS;
        uint32_t count = deployments[i].parallelism.data;
        struct step_group groups[GROUPS];
        random_step(&rng, &deployments[i], round % 3 == 0, groups);
        struct operator_share shares[OPERATORS_MAX];
        uint32_t operators = device_model_breakdown(models[i], groups, count, shares);
        assert_true(operators > 5 && operators <= OPERATORS_MAX);
        int64_t sum = 0;
        int64_t all = 0;
        for (uint32_t o = 0; o < operators; o++) {
            assert_true((shares[o].ns >= 0 || shares[o].rest) && shares[o].count > 0 && shares[o].source != NULL);
            sum += shares[o].rest ? 0 : shares[o].ns;
            all += shares[o].ns;
        }
        int64_t total = step_ns(i, groups);
        assert_int_equal(all, total);
        int64_t difference = sum > total ? sum - total : total - sum;
        far += difference * 20 > total;
        if (difference * (known_model(deployments[i].model)->index_topk > 0 ? 3 : 5) > total)
            fail_msg("%s: operators add up to %lld ns, the step is %lld ns", deployments[i].model, (long long)sum,
                     (long long)total);
    }
    assert_true(far < 2000 / 8);
}

/* ---- Known answers -------------------------------------------------------------------------------------------------
 */

static double error_of(double value, double measured)
{
    double error = value / measured - 1.0;
    return error < 0 ? -error : error;
}

static double decode_ms(const struct device_model *model, uint32_t sequences, uint64_t context)
{
    struct step_group group = {.decode_sequences = sequences, .decode_context = sequences * context};
    struct step_time time;
    device_step(model, &group, 1, &time);
    return (double)time.total_ns * 1e-6;
}

static double prefill_ms(const struct device_model *model, uint64_t tokens, uint64_t cached)
{
    struct step_group group = {0};
    group_add_chunk(&group, tokens, cached);
    struct step_time time;
    device_step(model, &group, 1, &time);
    return (double)time.total_ns * 1e-6;
}

/* DeepSeek-R1 fp8 on 8 x H200, SGLang 0.5.9, TP8, no draft tokens, closed loop of `batch` requests, lengths uniform in
 * [0.8, 1] of nominal (InferenceX rows in aiconfigurator@095f58a's silicon sample). In such a loop every other request
 * is prefilled once while one decodes, and that stalls it: TPOT = decode step + (batch - 1) / output * prefill. */
static void test_deepseek_tpot(void **state)
{
    (void)state;
    static const uint32_t batch[5] = {4, 8, 16, 32, 64};
    static const double measured[2][5] = {{10.29, 12.47, 16.63, 23.31, 32.99}, {11.27, 14.37, 20.41, 31.97, 50.24}};
    static const uint64_t prompt[2] = {922, 7373};
    const uint64_t output = 922;
    uint32_t close = 0;
    for (uint32_t row = 0; row < 2; row++) {
        double prefill = prefill_ms(models[0], prompt[row], 0);
        for (uint32_t i = 0; i < 5; i++) {
            double decode = decode_ms(models[0], batch[i], prompt[row] + output / 2);
            double tpot = decode + (batch[i] - 1) / (double)output * prefill;
            if (error_of(tpot, measured[row][i]) > 0.20)
                fail_msg("batch %u: TPOT %.2f ms, measured %.2f ms", batch[i], tpot, measured[row][i]);
            close += error_of(tpot, measured[row][i]) < 0.08;
        }
    }
    /* Far off are both of batch 16: SGLang's experts of the newer version take long there. */
    assert_true(close >= 8);
}

/* Likewise Llama-3.1-70B fp8 under vLLM on H100 and H200, 1K in and 1K out, TP4. What is missing at 32 is vLLM's host
 * time a sequence, 36 to 54 us, which the neutral engine does not have. */
static void test_llama_tpot(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        uint32_t batch;
        double measured;
    } rows[] = {
        {"H100", 4, 11.78}, {"H100", 8, 12.11}, {"H100", 16, 13.19}, {"H100", 32, 16.49}, {"H100", 64, 19.51},
        {"H200", 4, 9.85},  {"H200", 8, 10.14}, {"H200", 16, 10.94}, {"H200", 32, 14.38}, {"H200", 64, 16.07},
    };
    uint32_t close = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct device_model *model =
            make("Llama-3.1-70B", rows[i].gpu, (struct parallelism){4, 1, 1, 1}, FORMAT_FP8, FORMAT_FP8);
        double tpot =
            decode_ms(model, rows[i].batch, 922 + 461) + (rows[i].batch - 1) / 922.0 * prefill_ms(model, 922, 0);
        device_model_free(model);
        if (error_of(tpot, rows[i].measured) > 0.12)
            fail_msg("%s, batch %u: TPOT %.2f ms, measured %.2f ms", rows[i].gpu, rows[i].batch, tpot,
                     rows[i].measured);
        close += error_of(tpot, rows[i].measured) < 0.08;
    }
    assert_true(close >= 8);
}

/* Qwen3-235B on H200 TP4, prefill compute a layer of arXiv 2510.27656: prompts of 4K and 8K, and chunks of 16K after 0,
 * 16K, 48K and 112K cached tokens. Short prompts come out a fifth fast, for that engine's expert and dense kernels take
 * longer than the measured ones; attention, which decides the late chunks, agrees. */
static void test_qwen_layers(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens;
        uint64_t cached;
        double measured;
        double error;
    } rows[] = {
        {4096, 0, 2.267, 0.25},       {8192, 0, 4.578, 0.25},       {16384, 0, 9.860, 0.25},
        {16384, 16384, 13.295, 0.15}, {16384, 49152, 20.344, 0.05}, {16384, 114688, 34.895, 0.05},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double layer = prefill_ms(models[7], rows[i].tokens, rows[i].cached) / 94;
        if (error_of(layer, rows[i].measured) > rows[i].error)
            fail_msg("%llu tokens: %.3f ms a layer, measured %.3f", (unsigned long long)rows[i].tokens, layer,
                     rows[i].measured);
    }
}

/* ---- Parallelism ---------------------------------------------------------------------------------------------------
 */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        struct parallelism parallelism;
        const char *says;
    } cases[] = {
        {"DeepSeek-R1", {3, 1, 1, 1}, "128 query heads do not divide over 3"},
        {"Qwen3-Coder-480B-A35B", {6, 1, 1, 1}, "neither 8 KV heads nor 6"},
        {"Llama-3.1-8B", {1, 1, 1, 33}, "33 pipeline stages for 32 layers"},
        {"Llama-3.1-8B", {4, 1, 4, 1}, "without experts"},
        {"Mixtral-8x7B", {1, 16, 16, 1}, "8 experts for 16"},
        {"DeepSeek-R1", {8, 1, 3, 1}, "3 expert-parallel ranks do not divide the 8 ranks"},
        {"DeepSeek-R1", {0, 1, 1, 1}, "at least 1"},
    };
    struct user_error error = {.set = false};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        error.set = false;
        assert_null(
            device_model_make(known_model(cases[i].model), cases[i].parallelism, known_hardware("H200"), NULL, &error));
        if (strstr(error.text, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].says);
    }
    struct hardware unknown = *known_hardware("H200");
    snprintf(unknown.gpu, sizeof unknown.gpu, "H20");
    error.set = false;
    assert_null(
        device_model_make(known_model("DeepSeek-R1"), (struct parallelism){8, 1, 8, 1}, &unknown, NULL, &error));
    assert_non_null(strstr(error.text, "\"H20\""));
    assert_non_null(strstr(error.text, device_gpu_names()));
}

/* A step passes all stages: it takes no less than on one of them with all layers, and a stage its share of that. */
static void test_pipeline(void **state)
{
    (void)state;
    struct device_model *one = make("Llama-3.1-70B", "H200", (struct parallelism){4, 1, 1, 1}, FORMAT_FP8, FORMAT_BF16);
    for (uint16_t stages = 2; stages <= 16; stages *= 2) {
        struct device_model *many =
            make("Llama-3.1-70B", "H200", (struct parallelism){4, 1, 1, stages}, FORMAT_FP8, FORMAT_BF16);
        for (uint32_t tokens = 16; tokens <= 16384; tokens *= 2) {
            const struct step_group steps[2] = {
                {.decode_sequences = tokens / 16, .decode_context = 2048 * (uint64_t)tokens / 16},
                {.prefill_sequences = 1,
                 .prefill_tokens = tokens,
                 .prefill_pairs = (uint64_t)tokens * (tokens + 1) / 2},
            };
            for (int k = 0; k < 2; k++) {
                struct step_time whole, staged;
                device_step(one, &steps[k], 1, &whole);
                device_step(many, &steps[k], 1, &staged);
                int64_t hops = (stages - 1) * staged.hop_ns;
                assert_int_equal(staged.total_ns, staged.entry_ns + stages * staged.stage_ns + hops + staged.exit_ns);
                if (staged.hop_ns < 8000) /* a copy over NVLink, or the NIC */
                    fail_msg("%u stages, %u tokens: %d ns of hand-over", stages, tokens, (int)staged.hop_ns);
                if (staged.total_ns + 1000 < whole.total_ns + hops || staged.total_ns > whole.total_ns + hops + 1000)
                    fail_msg("%u stages, %u tokens: %.3f ms, %.3f ms in one and %.3f of hand-overs", stages, tokens,
                             (double)staged.total_ns / 1e6, (double)whole.total_ns / 1e6, (double)hops / 1e6);
                int64_t share = (whole.total_ns - staged.entry_ns) / stages;
                assert_true(staged.stage_ns <= share + 1000 && staged.stage_ns > share / 2);
                assert_true(step_interval_ns(&staged, stages) < staged.total_ns);
            }
        }
        device_model_free(many);
    }
    device_model_free(one);
}

/* Stages of four ranks on machines of eight: every other hand-over goes by NIC, and takes longer. */
static void test_hand_overs_between_stages(void **state)
{
    (void)state;
    struct device_model *model =
        make("Llama-3.1-70B", "H200", (struct parallelism){4, 1, 1, 4}, FORMAT_FP8, FORMAT_BF16);
    const struct step_group step = {
        .prefill_sequences = 1, .prefill_tokens = 8192, .prefill_pairs = UINT64_C(8192) * 8193 / 2};
    struct operator_share shares[OPERATORS_MAX];
    uint32_t count = device_model_breakdown(model, &step, 1, shares);
    const struct operator_share *nvlink = NULL;
    const struct operator_share *nic = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(shares[i].name, "hand-over to the next stage") == 0)
            nvlink = &shares[i];
        if (strcmp(shares[i].name, "hand-over to the next stage, NIC") == 0)
            nic = &shares[i];
    }
    assert_true(nvlink != NULL && nic != NULL);
    assert_int_equal(nvlink->count, 2);
    assert_int_equal(nic->count, 1);
    /* 8192 tokens of 8192 bf16 over four ranks: 33.6 MB a rank, at 46.8 GB/s or 0.78 * 450. */
    assert_in_range(nic->ns, 720000, 740000);
    assert_in_range(nvlink->ns / 2, 100000, 106000);
    device_model_free(model);
}

/* Attention groups run in lockstep: the slowest decides, and a group that does nothing costs nothing. */
static void test_lockstep(void **state)
{
    (void)state;
    struct step_group even[8] = {{0}};
    struct step_group uneven[8] = {{0}};
    for (uint32_t g = 0; g < 8; g++) {
        even[g] = (struct step_group){.decode_sequences = 16, .decode_context = 16 * 4096};
        uneven[g] = even[g];
    }
    uneven[3].decode_context *= 8;
    int64_t gap = step_ns(2, uneven) - step_ns(2, even);
    assert_int_equal(gap, line_at(models[2], &uneven[3]) - line_at(models[2], &even[0]));
    assert_true(gap > 0);
    /* The same sequences in one group: as many tokens for the experts, more for that group's attention. */
    struct step_group skewed[8] = {{.decode_sequences = 128, .decode_context = 128 * 4096}};
    assert_true(step_ns(2, skewed) > step_ns(2, even));
}

/* More expert-parallel ranks read fewer experts each; the exchange over nodes takes back part of it. */
static void test_expert_parallel(void **state)
{
    (void)state;
    int64_t experts[2] = {0, 0};
    int64_t exchange[2] = {0, 0};
    for (uint32_t i = 0; i < 2; i++) {
        uint16_t ranks = i == 0 ? 8 : 32;
        struct device_model *model =
            make("DeepSeek-R1", "H200", (struct parallelism){1, ranks, ranks, 1}, 0, FORMAT_BF16);
        struct step_group groups[32] = {{0}};
        for (uint32_t g = 0; g < ranks; g++)
            groups[g] = (struct step_group){.decode_sequences = 32, .decode_context = 32 * 2048};
        struct operator_share shares[OPERATORS_MAX];
        uint32_t count = device_model_breakdown(model, groups, ranks, shares);
        for (uint32_t o = 0; o < count; o++) {
            if (strcmp(shares[o].name, "experts") == 0)
                experts[i] = shares[o].ns;
            if (strcmp(shares[o].name, i == 0 ? "expert gather and scatter" : "expert dispatch and combine") == 0)
                exchange[i] = shares[o].ns;
        }
        device_model_free(model);
    }
    assert_true(experts[1] > 0 && experts[1] < experts[0] * 2 / 3);
    assert_true(exchange[0] > 0 && exchange[1] > exchange[0]);
}

/* Two machines that NVLink joins are one as far as collectives go; that NICs join take longer. */
static void test_nvlink_over_machines(void **state)
{
    (void)state;
    const struct parallelism shardings[2] = {{8, 1, 1, 1}, {2, 4, 1, 1}};
    for (uint32_t i = 0; i < 2; i++) {
        const struct step_group groups[4] = {{.decode_sequences = 32, .decode_context = 32 * 2048},
                                             {.decode_sequences = 32, .decode_context = 4096}};
        int64_t ns[3];
        for (uint32_t k = 0; k < 3; k++) {
            struct hardware machine = *known_hardware("H200");
            struct user_error error = {.set = false};
            struct step_time time;
            machine.gpus_per_node = k == 0 ? 8 : 4;
            machine.nvlink_gpus = k == 1 ? 8 : 0;
            struct device_model *model =
                device_model_make(known_model("DeepSeek-R1"), shardings[i], &machine, NULL, &error);
            assert_non_null(model);
            device_step(model, groups, shardings[i].data, &time);
            ns[k] = time.total_ns;
            device_model_free(model);
        }
        assert_int_equal(ns[1], ns[0]);
        if (ns[2] <= ns[0])
            fail_msg("sharding %u: %lld ns over NICs, %lld ns over NVLink", i, (long long)ns[2], (long long)ns[0]);
    }
}

/* Where no whole block of sparse attention was measured it is made of its parts: the tokens that attention reads end at
 * the indexer's choice, what the indexer scans does not. */
static void test_sparse_parts(void **state)
{
    (void)state;
    struct device_model *model =
        make("DeepSeek-V3.2", "A100", (struct parallelism){8, 1, 1, 1}, FORMAT_BF16, FORMAT_BF16);
    struct operator_share shares[OPERATORS_MAX];
    const uint32_t lengths[4] = {1024, 2048, 32768, 65536};
    double ns[4] = {0};
    for (size_t i = 0; i < 4; i++) {
        const struct step_group group = {.decode_sequences = 64, .decode_context = 64ull * lengths[i]};
        uint32_t count = device_model_breakdown(model, &group, 1, shares);
        for (uint32_t o = 0; o < count; o++) {
            assert_null(strstr(shares[o].source, "dsa"));
            if (strcmp(shares[o].name, "decode attention") == 0)
                ns[i] = (double)shares[o].ns;
        }
    }
    /* One byte an element of 128 for each token, over the machine's bandwidth, in 61 layers. */
    double scan = 61.0 * 64.0 * 32768.0 * 128.0 / ((double)known_hardware("A100")->memory_bytes_per_s * 1e-9);
    assert_true(ns[1] > ns[0]);
    assert_true(error_of(ns[3] - ns[2], scan) < 0.01);
    device_model_free(model);
}

/* ---- Determinism ---------------------------------------------------------------------------------------------------
 */

static uint64_t digest_add(uint64_t digest, uint64_t value)
{
    for (uint32_t byte = 0; byte < 8; byte++)
        digest = (digest ^ (value >> (8 * byte) & 0xff)) * UINT64_C(1099511628211);
    return digest;
}

/* The same nanoseconds from every compiler and at every level of optimization. The digest changes whenever the model
 * does; then look at the known answers, and replace it. */
static void test_determinism(void **state)
{
    (void)state;
    struct rng rng = rng_stream(6, 0, RNG_GENERATE);
    uint64_t digest = UINT64_C(14695981039346656037);
    for (uint32_t round = 0; round < 10000; round++) {
        size_t i = round % DEPLOYMENTS;
        struct step_group groups[GROUPS];
        random_step(&rng, &deployments[i], round % 2 == 0, groups);
        struct step_time time;
        device_step(models[i], groups, deployments[i].parallelism.data, &time);
        digest = digest_add(digest, (uint64_t)time.total_ns);
        digest = digest_add(digest, (uint64_t)time.first_layer_ns);
        digest = digest_add(digest, (uint64_t)time.layer_ns);
        digest = digest_add(digest, (uint64_t)time.bound);
    }
    if (digest != UINT64_C(0x8218e9de39df10ea))
        fail_msg("digest 0x%016llx", (unsigned long long)digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_split),
        cmocka_unit_test(test_decode_lines),
        cmocka_unit_test(test_monotonic),
        cmocka_unit_test(test_monotonic_batch),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_breakdown),
        cmocka_unit_test(test_deepseek_tpot),
        cmocka_unit_test(test_llama_tpot),
        cmocka_unit_test(test_qwen_layers),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_hand_overs_between_stages),
        cmocka_unit_test(test_lockstep),
        cmocka_unit_test(test_expert_parallel),
        cmocka_unit_test(test_nvlink_over_machines),
        cmocka_unit_test(test_sparse_parts),
        cmocka_unit_test(test_determinism),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
