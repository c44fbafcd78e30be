/* A good scenario resolves to exact values; overrides, sweeps and shipped files. */
#define _XOPEN_SOURCE 700

#include "base/arith.h"
#include "support/known_models.h"
#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>

static void test_values(void **state)
{
    (void)state;
    struct scenario *s = scenario_text_must_load(scenario_text_good, NULL, 0);
    assert_string_equal(s->path, "plan.lua");
    assert_string_equal(s->name, "plan");
    assert_string_equal(s->question, "How many decoders?");
    assert_int_equal(s->seed, 1);
    assert_false(s->has_expect);
    assert_string_equal(s->model.name, "Llama-3.1-8B");
    assert_int_equal(s->model.layers, 32);
    assert_int_equal(s->model.full_layers, 32);
    assert_int_equal(s->model.expert_weight_format, FORMAT_BF16);
    assert_int_equal(s->load.arrivals, ARRIVAL_POISSON);
    assert_int_equal(s->load.rate_micro_per_s, 2500000);
    assert_int_equal(s->load.requests, 100);
    assert_int_equal(s->load.warmup_ns, 1500 * NS_PER_MS);
    assert_int_equal(s->load.duration_ns, 0);
    assert_int_equal(s->load.prompt.kind, LENGTH_UNIFORM);
    assert_int_equal(s->load.prompt.low, 512);
    assert_int_equal(s->load.prompt.high, 2048);
    assert_int_equal(s->load.output.kind, LENGTH_QUANTILES);
    assert_int_equal(s->load.output.quantile_count, 3);
    assert_int_equal(s->load.output.quantile_permille[1], 500);
    assert_int_equal(s->load.output.quantile_tokens[1], 100);
    assert_int_equal(s->load.output.low, 1);
    assert_int_equal(s->load.output.high, 900);
    assert_int_equal(s->decode_router, ROUTER_POWER_OF_TWO);
    assert_int_equal(s->prefill_router, ROUTER_LEAST_QUEUED_TOKENS);
    assert_int_equal(s->messenger.deadline_ns, 480 * NS_PER_S);
    assert_int_equal(s->targets.count, 2);
    assert_int_equal(s->targets.item[0].metric, TARGET_TTFT);
    assert_int_equal(s->targets.item[0].percentile_permille, 950);
    assert_int_equal(s->targets.item[0].limit_ns, 2 * NS_PER_S);
    assert_int_equal(s->targets.item[1].metric, TARGET_TPOT);
    assert_int_equal(s->targets.item[1].percentile_permille, 999);
    assert_int_equal(s->targets.item[1].limit_ns, 25 * NS_PER_MS);
    assert_int_equal(s->targets.attainment_permille, 900);
    assert_int_equal(s->plan.goal, PLAN_HIGHEST_RATE);
    assert_int_equal(s->plan.nodes_max, 8);
    assert_int_equal(s->plan.seeds, 5);
    assert_int_equal(s->plan.compare_mixed, 1);
    assert_int_equal(strlen(s->identity), 64);
    scenario_free(s);
}

static void test_pools(void **state)
{
    (void)state;
    struct scenario *s = scenario_text_must_load(scenario_text_good, NULL, 0);
    assert_int_equal(s->pool_count, 2);
    const struct pool *prefill = &s->pools[0];
    const struct pool *decode = &s->pools[1];
    assert_string_equal(prefill->name, "prefill");
    assert_int_equal(prefill->role, ROLE_PREFILL);
    assert_int_equal(prefill->count, 1);
    assert_int_equal(prefill->count_min, 1);
    assert_int_equal(prefill->count_max, 4);
    assert_int_equal(prefill->sharding_count, 2);
    assert_int_equal(prefill->shardings[0].tensor, 2);
    assert_int_equal(prefill->shardings[1].tensor, 1);
    assert_int_equal(prefill->shardings[1].data, 1);
    assert_int_equal(prefill->shardings[1].expert, 1);
    assert_int_equal(prefill->shardings[1].pipeline, 1);
    assert_int_equal(prefill->page_tokens, 64);
    assert_int_equal(prefill->layout, LAYOUT_HND);
    assert_int_equal(prefill->memory_utilization_permille, 900);
    assert_int_equal(prefill->scheduler.token_budget, 16384);
    assert_int_equal(prefill->scheduler.prefix_cache, 1);
    assert_string_equal(decode->name, "decode");
    assert_int_equal(decode->count, 2);
    assert_int_equal(decode->count_min, 2);
    assert_int_equal(decode->count_max, 2);
    assert_int_equal(decode->page_tokens, 32);
    assert_int_equal(decode->scheduler.batch_max, 128);
    assert_int_equal(decode->scheduler.queue, QUEUE_SHORTEST_FIRST);
    const struct hardware *h200 = &decode->hardware;
    assert_string_equal(h200->gpu, "H200");
    assert_int_equal(h200->gpus_per_node, 8);
    assert_int_equal(h200->memory_bytes, INT64_C(141) << 30);
    assert_int_equal(h200->memory_bytes_per_s, INT64_C(4800000000000));
    assert_int_equal(h200->bf16_flops, INT64_C(989000000000000));
    assert_int_equal(h200->fp4_flops, 0);
    assert_int_equal(h200->watcher_ns, 6200);
    assert_int_equal(h200->usd_micros_per_gpu_hour, 1600000);
    assert_int_equal(h200->nic.base_ns, 11200);
    assert_int_equal(h200->nic.bytes_per_s, INT64_C(46800000000));
    assert_int_equal(h200->nic.gap_ps, 86000);
    assert_int_equal(h200->nic.knee_permille, 1750);
    scenario_free(s);
}

/* Pools come in the order of their roles, then of their names, whatever order the file or Lua's tables have. */
static void test_pool_order(void **state)
{
    (void)state;
    static const char *const expected[] = {"b", "zeta", "a", "m"};
    char *text = scenario_text_replace(scenario_text_good, "prefill = pool",
                                       "m = pool { role = 'decode', machine = h200, shardings = { {} } },\n"
                                       "b = pool { role = 'prefill', machine = h200, shardings = { {} } },\n"
                                       "a = pool { role = 'decode', machine = h200, shardings = { {} } },\n"
                                       "decode = nil, zeta = pool");
    char *last = scenario_text_replace(text, "decode = pool", "unused = nil and pool");
    struct scenario *s = scenario_text_must_load(last, NULL, 0);
    assert_int_equal(s->pool_count, 4);
    for (uint32_t k = 0; k < 4; k++)
        assert_string_equal(s->pools[k].name, expected[k]);
    scenario_free(s);
    free(last);
    free(text);
}

/* One quantity of each constructor, and its value in the base unit. */
static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int64_t expected_ns;
    } times[] = {
        {"ns(7)", 7},
        {"ns(0.5)", 1},
        {"ns(0.4)", 0},
        {"us(11.2)", 11200},
        {"ms(200)", 200000000},
        {"s(2)", 2000000000},
        {"minutes(1.5)", INT64_C(90000000000)},
        {"hours(1)", INT64_C(3600000000000)},
    };
    for (size_t k = 0; k < sizeof times / sizeof times[0]; k++) {
        const struct scenario_override set = {"load.warmup", times[k].value};
        struct scenario *s = scenario_text_must_load(scenario_text_good, &set, 1);
        assert_int_equal(s->load.warmup_ns, times[k].expected_ns);
        scenario_free(s);
    }
    static const struct {
        const char *value;
        int64_t bytes;
    } sizes[] = {{"GiB(141)", INT64_C(141) << 30},
                 {"GB(141)", INT64_C(141000000000)},
                 {"MiB(2048)", INT64_C(1) << 31},
                 {"KiB(4194304)", INT64_C(1) << 32},
                 {"bytes(1073741825)", 1073741825}};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        const struct scenario_override set = {"pools.decode.machine.memory", sizes[k].value};
        struct scenario *s = scenario_text_must_load(scenario_text_good, &set, 1);
        assert_int_equal(s->pools[1].hardware.memory_bytes, sizes[k].bytes);
        /* The machine is one table in the file; the other pool keeps it as it was. */
        assert_int_equal(s->pools[0].hardware.memory_bytes, INT64_C(141) << 30);
        scenario_free(s);
    }
    const struct scenario_override sets[] = {
        {"pools.decode.machine.nvlink", "Gbit_s(400)"},
        {"load.rate", "per_minute(100)"},
        {"messenger.deadline", "never"},
        {"admission.prefill_rate", "tokens_per_second(20000)"},
        {"load.abort_share", "percent(12.5)"},
        {"pools.decode.machine.price", "usd_per_hour(0.25)"},
        {"pools.decode.machine.bf16", "TFLOPS(989.5)"},
        {"pools.decode.machine.memory_bandwidth", "TB_s(3.35)"},
        {"model.tail", "bytes(14336 + 4)"},
        {"model.tail_writes", "2"},
    };
    struct scenario *s = scenario_text_must_load(scenario_text_good, sets, sizeof sets / sizeof sets[0]);
    assert_int_equal(s->pools[1].hardware.nvlink_bytes_per_s, INT64_C(50000000000));
    assert_int_equal(s->load.rate_micro_per_s, 1666667); /* 100 / 60 s, rounded to the nearest */
    assert_int_equal(s->messenger.deadline_ns, TIME_NEVER);
    assert_int_equal(s->admission.prefill_tokens_per_s, 20000);
    assert_int_equal(s->load.abort_permille, 125);
    assert_int_equal(s->pools[1].hardware.usd_micros_per_gpu_hour, 250000);
    assert_int_equal(s->pools[1].hardware.bf16_flops, INT64_C(989500000000000));
    assert_int_equal(s->pools[1].hardware.memory_bytes_per_s, INT64_C(3350000000000));
    assert_int_equal(s->model.tail_bytes, 14340);
    scenario_free(s);
}

static void test_loads(void **state)
{
    (void)state;
    const struct scenario_override burst = {
        "load", "burst { rate = per_second(1), size = 8, duration = s(9), prompt = 7, output = uniform(1, 2) }"};
    struct scenario *s = scenario_text_must_load(scenario_text_good, &burst, 1);
    assert_int_equal(s->load.arrivals, ARRIVAL_BURST);
    assert_int_equal(s->load.burst_size, 8);
    assert_int_equal(s->load.duration_ns, 9 * NS_PER_S);
    assert_int_equal(s->load.prompt.kind, LENGTH_CONSTANT);
    assert_int_equal(s->load.prompt.low, 7);
    assert_int_equal(s->load.prompt.high, 7);
    scenario_free(s);
    const struct scenario_override closed = {"load",
                                             "closed { concurrency = 64, requests = 5, prompt = 7, output = 1 }"};
    s = scenario_text_must_load(scenario_text_good, &closed, 1);
    assert_int_equal(s->load.arrivals, ARRIVAL_CLOSED);
    assert_int_equal(s->load.concurrency, 64);
    scenario_free(s);
    const struct scenario_override evenly = {
        "load", "evenly { rate = per_second(3), requests = 5, prompt = 7, output = 1, deadline = s(4) }"};
    s = scenario_text_must_load(scenario_text_good, &evenly, 1);
    assert_int_equal(s->load.arrivals, ARRIVAL_UNIFORM);
    assert_int_equal(s->load.deadline_ns, 4 * NS_PER_S);
    scenario_free(s);
}

/* The trace is found beside the scenario first, then among the shipped ones, and known by its bytes. */
static void test_trace(void **state)
{
    (void)state;
    char folder[512];
    char expected[600];
    assert_non_null(getcwd(folder, sizeof folder));
    scenario_text_write("requests.csv", "abc", 3);
    const struct scenario_override local = {
        "load", "trace { file = 'requests.csv', format = 'csv', window = {minutes(1), minutes(3)}, repetitions = 2 }"};
    struct scenario *s = scenario_text_must_load(scenario_text_good, &local, 1);
    snprintf(expected, sizeof expected, "%s/requests.csv", folder);
    assert_string_equal(s->load.trace_path, expected);
    /* FIPS 180-4's own example: SHA-256 of "abc". */
    assert_string_equal(s->load.trace_sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(s->load.trace.format, TRACE_FORMAT_CSV);
    assert_int_equal(s->load.trace_window_start_ns, 60 * NS_PER_S);
    assert_int_equal(s->load.trace_window_ns, 120 * NS_PER_S);
    assert_int_equal(s->load.trace_repeat, 2);
    assert_int_equal(s->load.rate_micro_per_s, 0);
    scenario_free(s);
    const struct scenario_override shipped = {
        "load", "trace { file = 'traces/azure-2023-conversation.csv.xz', format = 'azure', rate = per_second(10) }"};
    s = scenario_text_must_load(scenario_text_good, &shipped, 1);
    assert_string_equal(s->load.trace_path, TANDEM_SOURCE_DIR "/scenarios/traces/azure-2023-conversation.csv.xz");
    assert_int_equal(s->load.trace_repeat, 1);
    assert_int_equal(s->load.rate_micro_per_s, 10000000);
    assert_int_equal(s->load.trace_window_ns, 0);
    scenario_free(s);
}

static void test_overrides(void **state)
{
    (void)state;
    const struct scenario_override sets[] = {
        {"pools.decode.count", "3"},
        {"targets.1.below", "ms(700)"},
        {"pools.prefill.shardings.2.tensor", "4"},
        {"pools.decode.queue", "'fcfs'"},
        {"messenger.attempts_max", "1"},
        {"load.rate", "per_second(8)"},
        {"pools.prefill.plan.2", "1 + 1"},
        {"load.rate", "per_second(9)"},
        {"pools.decode.batch_max", "nil"},
        {"model", "require 'models.llama-3.1-70b'"},
    };
    struct scenario *s = scenario_text_must_load(scenario_text_good, sets, sizeof sets / sizeof sets[0]);
    assert_int_equal(s->pools[1].count, 3);
    assert_int_equal(s->targets.item[0].limit_ns, 700 * NS_PER_MS);
    assert_int_equal(s->pools[0].shardings[1].tensor, 4);
    assert_int_equal(s->pools[1].scheduler.queue, QUEUE_FCFS);
    assert_int_equal(s->messenger.attempts_max, 1);
    assert_int_equal(s->load.rate_micro_per_s, 9000000); /* the last one counts */
    assert_int_equal(s->pools[0].count_max, 2);
    assert_int_equal(s->pools[1].scheduler.batch_max, 256); /* taken back: the default */
    assert_string_equal(s->model.name, "Llama-3.1-70B");
    scenario_free(s);
}

static void test_bad_overrides(void **state)
{
    (void)state;
    static const struct {
        struct scenario_override set;
        const char *expected;
    } bad[] = {
        {{"load.ratee", "per_second(3)"},
         "--set load.ratee=per_second(3): load.ratee: unknown key; did you mean 'rate'?"},
        {{"pools.decoed.count", "3"}, "--set pools.decoed.count=3: pools.decoed: unknown path; did you mean 'decode'?"},
        {{"nothing.like.it", "3"}, "--set nothing.like.it=3: nothing: unknown path"},
        {{"question.x", "3"}, "--set question.x=3: question: has no parts to set"},
        {{"load..rate", "3"}, "--set load..rate=3: a path is names with dots between, as in load.rate"},
        {{"", "3"}, "--set =3: a path is names with dots between, as in load.rate"},
        {{"load.rate", "8"},
         "--set load.rate=8: load.rate: a rate is wanted, not the bare number 8: write it as in per_second(8)"},
        {{"load.rate", "per_second(8"}, "--set load.rate=per_second(8:1: ')' expected near <eof>"},
        {{"load.rate", "fast"}, "--set load.rate=fast:1: 'fast' is not part of the scenario language"},
        {{"load.rate", "(function() while true do end end)()"},
         "--set load.rate=(function() while true do end end)():1: the scenario ran for too long; is there an endless "
         "loop?"},
        {{"pools.decode.shardings.1.tensor", "3"},
         "--set pools.decode.shardings.1.tensor=3: pools.decode.shardings.1: tensor must divide the model's heads "
         "(32), "
         "not be 3"},
        {{"pools.decode.shardings.2.tensor", "3"},
         "--set pools.decode.shardings.2.tensor=3: pools.decode.shardings.2: unknown path"},
        {{"pools.decode.machine", "require 'models.llama-3.1-8b'"},
         "--set pools.decode.machine=require 'models.llama-3.1-8b': pools.decode.machine: machine { ... } is wanted, "
         "not a table made by model"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        scenario_text_must_fail(scenario_text_good, &bad[k].set, 1, bad[k].expected);
}

static void test_override_split(void **state)
{
    (void)state;
    char good[] = "load.rate=per_second(8)";
    char nested[] = "a=b=c";
    static const char *const bad[] = {"load.rate", "=3", "load.rate=", ""};
    struct scenario_override override;
    struct user_error error = {.set = false};
    assert_true(scenario_override_split(good, &override, &error));
    assert_string_equal(override.path, "load.rate");
    assert_string_equal(override.value, "per_second(8)");
    assert_true(scenario_override_split(nested, &override, &error));
    assert_string_equal(override.value, "b=c");
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        char argument[32];
        snprintf(argument, sizeof argument, "%s", bad[k]);
        error = (struct user_error){.set = false};
        assert_false(scenario_override_split(argument, &override, &error));
        assert_true(error.set);
    }
}

static void test_vary(void **state)
{
    (void)state;
    char *text =
        scenario_text_replace(scenario_text_good, "plan = { nodes",
                              "vary = { ['pools.decode.count'] = {1, 2, 3},\n"
                              "  ['load.rate'] = {per_second(4), per_minute(90)},\n"
                              "  ['pools.decode.machine'] = {require 'hardware.h100', require 'hardware.h200'} },\n"
                              "plan = { nodes");
    struct scenario *s = scenario_text_must_load(text, NULL, 0);
    struct scenario_override overrides[SCENARIO_VARY_MAX];
    struct user_error error = {.set = false};
    /* In the order of their paths, the last one fastest. */
    assert_int_equal(s->vary_count, 3);
    assert_string_equal(s->vary[0].path, "load.rate");
    assert_string_equal(s->vary[0].values[1], "per_second(1.5)");
    assert_string_equal(s->vary[2].values[0], "require \"hardware.h100\"");
    assert_int_equal(scenario_variant_count(s), 12);
    assert_int_equal(scenario_variant_overrides(s, 7, overrides), 3);
    assert_string_equal(overrides[0].value, "per_second(1.5)");
    assert_string_equal(overrides[1].value, "1");
    assert_string_equal(overrides[2].value, "require \"hardware.h200\"");
    for (size_t k = 0; k < 12; k++) {
        struct scenario *variant = scenario_load_variant(s, k, &error);
        if (variant == NULL)
            fail_msg("%s", error.text);
        assert_int_equal(variant->load.rate_micro_per_s, k < 6 ? 4000000 : 1500000);
        assert_int_equal(variant->pools[1].count, k / 2 % 3 + 1);
        assert_string_equal(variant->pools[1].hardware.gpu, k % 2 == 0 ? "H100" : "H200");
        assert_int_equal(scenario_variant_count(variant), 1);
        scenario_free(variant);
    }
    scenario_free(s);
    /* What --set fixes does not vary, and holds in every variant. */
    const struct scenario_override set = {"load.rate", "per_second(7)"};
    s = scenario_text_must_load(text, &set, 1);
    assert_int_equal(scenario_variant_count(s), 6);
    struct scenario *variant = scenario_load_variant(s, 5, &error);
    assert_non_null(variant);
    assert_int_equal(variant->load.rate_micro_per_s, 7000000);
    assert_int_equal(variant->pools[1].count, 3);
    scenario_free(variant);
    scenario_free(s);
    free(text);
}

/* Every file of a shipped folder takes the place of `path` in the good scenario. */
static unsigned load_folder(const char *folder, const char *path, void (*check)(const struct scenario *))
{
    char name[512];
    char value[512];
    unsigned count = 0;
    snprintf(name, sizeof name, TANDEM_SOURCE_DIR "/scenarios/%s", folder);
    DIR *directory = opendir(name);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 4, ".lua") != 0 || strcmp(entry->d_name, "fabrics.lua") == 0)
            continue;
        snprintf(value, sizeof value, "require '%s.%.*s'", folder, (int)length - 4, entry->d_name);
        const struct scenario_override set = {path, value};
        struct scenario *s = scenario_text_must_load(scenario_text_good, &set, 1);
        check(s);
        scenario_free(s);
        count++;
    }
    closedir(directory);
    return count;
}

/* The shipped models agree with the tests' own copy of the published configurations. */
static void test_known_models(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"deepseek-r1", "DeepSeek-R1"},       {"kimi-k2", "Kimi-K2-Instruct"},
        {"qwen3-235b", "Qwen3-235B-A22B"},    {"qwen3-coder-480b-bf16", "Qwen3-Coder-480B-A35B"},
        {"mixtral-8x7b", "Mixtral-8x7B"},     {"gpt-oss-120b", "gpt-oss-120b"},
        {"llama-3.1-8b", "Llama-3.1-8B"},     {"llama-3.1-70b", "Llama-3.1-70B"},
        {"llama-3.1-405b", "Llama-3.1-405B"}, {"llama-2-70b", "Llama-2-70B"},
    };
    char value[128];
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
        snprintf(value, sizeof value, "require 'models.%s'", pairs[k][0]);
        const struct scenario_override set = {"model", value};
        struct scenario *s = scenario_text_must_load(scenario_text_good, &set, 1);
        const struct architecture *model = &s->model;
        const struct architecture *known = known_model(pairs[k][1]);
        assert_int_equal(model->attention, known->attention);
        assert_int_equal(model->layers, known->layers);
        assert_int_equal(model->hidden, known->hidden);
        assert_int_equal(model->heads, known->heads);
        assert_int_equal(model->vocab, known->vocab);
        assert_int_equal(model->kv_heads, known->kv_heads);
        assert_int_equal(model->experts, known->experts);
        assert_int_equal(model->experts_active, known->experts_active);
        assert_int_equal(model->expert_intermediate, known->expert_intermediate);
        assert_int_equal(model->shared_experts, known->shared_experts);
        assert_int_equal(model->dense_layers, known->dense_layers);
        assert_int_equal(model->latent_dim, known->latent_dim);
        assert_int_equal(model->rope_dim, known->rope_dim);
        assert_int_equal(model->weight_format, known->weight_format);
        assert_int_equal(model->expert_weight_format, known->expert_weight_format);
        assert_int_equal(model->window, known->window);
        scenario_free(s);
    }
}

static void check_model(const struct scenario *s)
{
    assert_true(s->model.weight_format != 0 && s->model.expert_weight_format != 0);
}

static void check_machine(const struct scenario *s)
{
    const struct hardware *machine = &s->pools[1].hardware;
    assert_true(machine->gpus_per_node == 8 || machine->gpus_per_node == 4); /* a board, or a tray of an NVL72 */
    assert_true(machine->usd_micros_per_gpu_hour > 0);
    assert_true(machine->nic.bytes_per_s > 0 && machine->nic.bytes_per_s <= machine->nvlink_bytes_per_s);
}

static void test_shipped_files(void **state)
{
    (void)state;
    assert_int_equal(load_folder("models", "model", check_model), 22);
    assert_int_equal(load_folder("hardware", "pools.decode.machine", check_machine), 8);
}

/* The reference names every key that explain shows. */
static void test_reference(void **state)
{
    (void)state;
    static char reference[1 << 16];
    FILE *file = fopen(TANDEM_SOURCE_DIR "/docs/reference-language.md", "rb");
    assert_non_null(file);
    size_t length = fread(reference, 1, sizeof reference - 1, file);
    assert_true(length > 0 && length < sizeof reference - 1);
    fclose(file);
    struct scenario *s = scenario_text_must_load(scenario_text_good, NULL, 0);
    json_t *explained = scenario_explain_json(s);
    const json_t *values = json_object_get(explained, "values");
    for (size_t k = 0; k < json_array_size(values); k++) {
        const char *path = json_string_value(json_object_get(json_array_get(values, k), "path"));
        const char *dot = strrchr(path, '.');
        const char *key = dot == NULL ? path : dot + 1;
        char alone[64];
        char qualified[64];
        snprintf(alone, sizeof alone, "`%.50s`", key);
        snprintf(qualified, sizeof qualified, ".%.50s`", key);
        if (strstr(reference, alone) == NULL && strstr(reference, qualified) == NULL &&
            strstr(path, "shardings") == NULL && strncmp(path, "targets.", 8) != 0)
            fail_msg("docs/reference-language.md does not name %s", path);
    }
    json_decref(explained);
    scenario_free(s);
}

/* The shipped scenarios load, as files of the tree. */
static void test_shipped_scenarios(void **state)
{
    (void)state;
    static const char *const names[] = {"w1-llama-70b", "llama-8b-rates"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        char path[512];
        struct user_error error = {.set = false};
        snprintf(path, sizeof path, TANDEM_SOURCE_DIR "/scenarios/%s.lua", names[k]);
        struct scenario *s = scenario_load(path, NULL, 0, &error);
        if (s == NULL)
            fail_msg("%s", error.text);
        assert_string_equal(s->name, names[k]);
        assert_true(s->has_expect);
        assert_int_equal(scenario_variant_count(s), k == 0 ? 1 : 4);
        scenario_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),         cmocka_unit_test(test_pools),
        cmocka_unit_test(test_pool_order),     cmocka_unit_test(test_units),
        cmocka_unit_test(test_loads),          cmocka_unit_test(test_trace),
        cmocka_unit_test(test_overrides),      cmocka_unit_test(test_bad_overrides),
        cmocka_unit_test(test_override_split), cmocka_unit_test(test_vary),
        cmocka_unit_test(test_shipped_files),  cmocka_unit_test(test_known_models),
        cmocka_unit_test(test_reference),      cmocka_unit_test(test_shipped_scenarios),
    };
    return cmocka_run_group_tests_name("scenario_load", tests, scenario_text_setup, scenario_text_teardown);
}
