/* The identity of a scenario: the same for the same meaning, different for any other; and what explain shows of it. */
#define _POSIX_C_SOURCE 200809L

#include "support/golden.h"
#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Of the good scenario. It changes when a shipped value or the language does, never by itself: on another machine, with
 * another compiler, tomorrow. */
#define GOOD_IDENTITY "9bdc4e6e769daabe37f863e84ac5197bc064afb2bce3b6aed32fb0a12377f42f"

static void test_known(void **state)
{
    (void)state;
    struct scenario *s = scenario_text_must_load(scenario_text_good, NULL, 0);
    assert_string_equal(s->identity, GOOD_IDENTITY);
    char before[65];
    memcpy(before, s->identity, sizeof before);
    scenario_identify(s);
    assert_string_equal(s->identity, before);
    scenario_free(s);
}

/* What is written otherwise but means the same, and what is not part of a scenario's meaning. */
static void test_unchanged(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"per_second(2.5)", "per_minute(150)"},
        {"s(2)", "ms(2000)"},
        {"count = 1,", "count = 1, page = 64, layout = 'HND',"},
        {"'How many decoders?'", "'And how many prefillers?', name = 'other', seed = 7"},
        {"plan = { nodes", "expect = function(r) check(r.failed == 0) end, vary = { seed = {1, 2} }, plan = { nodes"},
        {"routing =", "-- a comment\nrouting ="},
        {"routing =", "messenger = { deadline = minutes(8) }, routing ="},
    };
    for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
        char *text = scenario_text_replace(scenario_text_good, changes[k][0], changes[k][1]);
        struct scenario *s = scenario_text_must_load(text, NULL, 0);
        assert_string_equal(s->identity, GOOD_IDENTITY);
        scenario_free(s);
        free(text);
    }
}

/* A change of every key of the language. The keys of a model that exclude each other are changed one at a time. */
static const struct scenario_override changes[] = {
    {"model.name", "'x'"},
    {"model.attention", "'mla'"},
    {"model.layers", "31"},
    {"model.dense_layers", "1"},
    {"model.moe_interval", "2"},
    {"model.hidden", "8192"},
    {"model.heads", "64"},
    {"model.kv_heads", "4"},
    {"model.head_dim", "64"},
    {"model.vocab", "1"},
    {"model.latent_dim", "8"},
    {"model.rope_dim", "8"},
    {"model.nope_dim", "8"},
    {"model.value_dim", "8"},
    {"model.q_latent_dim", "8"},
    {"model.intermediate", "1"},
    {"model.experts", "8"},
    {"model.experts_active", "2"},
    {"model.expert_intermediate", "8"},
    {"model.shared_experts", "1"},
    {"model.window", "128"},
    {"model.index_topk", "64"},
    {"model.index_heads", "4"},
    {"model.index_dim", "8"},
    {"model.full_layers", "3"},
    {"model.fp4_block", "32"},
    {"model.attention_weights", "'fp8'"},
    {"model.output_weights", "'fp8'"},
    {"model.weights", "'fp8'"},
    {"model.expert_weights", "'fp4'"},
    {"model.kv", "'fp8'"},
    {"model.draft_layers", "1"},
    {"model.tied_embeddings", "true"},
    {"model.tail", "bytes(8)"},
    {"model.tail_writes", "2"},
    {"pools.decode.role", "'mixed'"},
    {"pools.decode.count", "3"},
    {"pools.decode.page", "64"},
    {"pools.decode.layout", "'NHD'"},
    {"pools.decode.memory_utilization", "percent(80)"},
    {"pools.decode.queue", "'fcfs'"},
    {"pools.decode.token_budget", "4096"},
    {"pools.decode.chunk", "512"},
    {"pools.decode.batch_max", "64"},
    {"pools.decode.headroom", "0"},
    {"pools.decode.reserve_output", "true"},
    {"pools.decode.prefix_cache", "false"},
    {"pools.decode.queue_max", "9"},
    {"pools.decode.repeat_max", "1"},
    {"pools.decode.redundant_experts", "1"},
    {"pools.decode.replace", "s(2)"},
    {"pools.decode.plan", "{1, 2}"},
    {"pools.decode.shardings.1.tensor", "4"},
    {"pools.decode.shardings.1.data", "2"},
    {"pools.decode.shardings.1.expert", "2"},
    {"pools.decode.shardings.1.pipeline", "2"},
    {"pools.decode.machine.name", "'x'"},
    {"pools.decode.machine.gpu", "'H100'"},
    {"pools.decode.machine.gpus", "4"},
    {"pools.decode.machine.nvlink_gpus", "72"},
    {"pools.decode.machine.memory", "GiB(100)"},
    {"pools.decode.machine.memory_bandwidth", "TB_s(3)"},
    {"pools.decode.machine.bf16", "TFLOPS(900)"},
    {"pools.decode.machine.fp8", "TFLOPS(0)"},
    {"pools.decode.machine.fp4", "TFLOPS(1)"},
    {"pools.decode.machine.nvlink", "GB_s(449)"},
    {"pools.decode.machine.watcher", "us(6)"},
    {"pools.decode.machine.poll", "us(1)"},
    {"pools.decode.machine.message", "us(1)"},
    {"pools.decode.machine.arm", "us(1)"},
    {"pools.decode.machine.price", "usd_per_hour(1)"},
    {"pools.decode.machine.price_basis", "'x'"},
    {"pools.decode.machine.nic.name", "'x'"},
    {"pools.decode.machine.nic.base", "us(1)"},
    {"pools.decode.machine.nic.bandwidth", "GB_s(1)"},
    {"pools.decode.machine.nic.gap", "ns(0.001)"},
    {"pools.decode.machine.nic.knee", "2"},
    {"pools.decode.machine.nic.posting", "ns(1)"},
    {"pools.decode.machine.nic.queue_depth", "1"},
    {"pools.decode.machine.nic.posting_by", "'instance'"},
    {"pools.decode.machine.nics", "4"},
    {"pools.decode.machine.between_instances", "'nic'"},
    {"pools.decode.placement", "{1, 2}"},
    {"pools.decode.engine.memory_share", "'free'"},
    {"pools.decode.engine.kernels", "'trtllm'"},
    {"pools.decode.engine.host", "us(499)"},
    {"pools.decode.engine.host_sequence", "us(1)"},
    {"pools.decode.engine.mixes", "false"},
    {"pools.decode.engine.prefill", "percent(99)"},
    {"pools.decode.engine.prefill_experts", "percent(150)"},
    {"pools.decode.engine.graph_step", "8"},
    {"pools.decode.engine.graph_max", "8"},
    {"pools.decode.engine.overlap", "percent(50)"},
    {"pools.decode.engine.receive", "30"},
    {"pools.decode.engine.gather", "60"},
    {"load", "evenly { rate = per_second(2.5), prompt = 1, output = 1, requests = 100 }"},
    {"load.rate", "per_second(2.500001)"},
    {"load.requests", "101"},
    {"load.duration", "s(10)"},
    {"load.warmup", "s(0)"},
    {"load.warmup_requests", "1"},
    {"load.abort_share", "percent(0.1)"},
    {"load.abort_within", "s(1)"},
    {"load.deadline", "s(1)"},
    {"load.prompt", "uniform(512, 2049)"},
    {"load.output", "quantiles { [0] = 1, [501] = 100, [1000] = 900 }"},
    {"load", "sessions { rate = per_second(2.5), turns = 2, prompt = 1, output = 1, requests = 100 }"},
    {"load.turns", "3"},
    {"load.think", "s(1)"},
    {"load.system", "1"},
    {"load.block", "128"},
    {"routing.decode", "'random'"},
    {"routing.prefill", "'random'"},
    {"admission.ttft_limit", "s(1)"},
    {"admission.queued_tokens_max", "1"},
    {"admission.prefill_rate", "tokens_per_second(1)"},
    {"messenger.deadline", "never"},
    {"messenger.attempts_max", "1"},
    {"messenger.handoffs_max", "1"},
    {"targets.1", "e2e { p = 95, below = s(2) }"},
    {"targets.1.p", "95.1"},
    {"targets.1.below", "ns(2000000001)"},
    {"targets.2", "itl { p = 99.9, below = ms(25) }"},
    {"targets.2.p", "50"},
    {"targets.2.below", "s(1)"},
    {"targets.attainment", "percent(90.1)"},
    {"plan.goal", "'serve_rate'"},
    {"plan.rate", "per_second(1)"},
    {"plan.nodes", "9"},
    {"plan.requests", "1"},
    {"plan.seeds", "6"},
    {"plan.compare_mixed", "false"},
    {"load", "listed { requests = { { prompt = 1, output = 1 } } }"},
    {"load", "listed { requests = { { at = ms(1), prompt = 1, output = 1 } } }"},
    {"load", "listed { block = 64, requests = { { prompt = 1, output = 1 } } }"},
    {"load", "listed { block = 64, requests = { { prompt = 1, output = 1, family = 2 } } }"},
    {"load", "listed { block = 64, requests = { { prompt = 1, output = 1, shared_blocks = 2 } } }"},
    {"load", "listed { requests = { { prompt = 1, output = 1, leaves = s(1) } } }"},
    {"load", "listed { requests = { { prompt = 1, output = 1, deadline = s(1) } } }"},
    {"faults", "{}"},
    {"faults", "{ shuffle = 3 }"},
    {"faults", "{ kill { node = 'decode-0' } }"},
    {"faults", "{ kill { node = 'decode-0', lingers = true } }"},
    {"faults", "{ kill { node = 'decode-0', back = s(1) } }"},
    {"faults", "{ kill { node = 'decode-0', at = s(1) } }"},
    {"faults", "{ kill { node = 'decode-0', on = 'armed' } }"},
    {"faults", "{ kill { node = 'decode-0', on = 'armed', by = 'decode-0' } }"},
    {"faults", "{ kill { node = 'decode-0', on = 'armed', nth = 2 } }"},
    {"faults", "{ cut { node = 'decode-0', to = 'prefill-0' } }"},
    {"faults", "{ nic { node = 'decode-0' } }"},
    {"faults", "{ nic { node = 'decode-0', rank = 1 } }"},
    {"faults", "{ late { delay = ms(1) } }"},
    {"faults", "{ twice {} }"},
    {"faults", "{ twice { skip = 1 } }"},
    {"faults", "{ twice { count = 0 } }"},
    {"faults", "{ slow { pieces = 2 } }"},
    {"faults", "{ stall { delay = ms(1) } }"},
    {"faults", "{ fail {} }"},
    {"faults", "{ ticks {} }"},
    {"faults", "{ leave { request = 4 } }"},
};

/* Applies one change, alone or with the first of these companions that it makes sense with, and writes the identity. It
 * must differ from that of the companions alone, where those are a scenario. */
static void identity_after(const struct scenario_override *change, char *identity)
{
    static const struct scenario_override beside[][10] = {
        {{NULL, NULL}},
        {{"model.experts", "8"}, {"model.experts_active", "1"}, {"model.expert_intermediate", "4"}, {NULL, NULL}},
        {{"model.attention", "'mla'"},
         {"model.kv_heads", "1"},
         {"model.latent_dim", "4"},
         {"model.rope_dim", "4"},
         {"model.nope_dim", "4"},
         {"model.value_dim", "4"}},
        {{"model.attention", "'mla'"},
         {"model.kv_heads", "1"},
         {"model.latent_dim", "4"},
         {"model.rope_dim", "4"},
         {"model.nope_dim", "4"},
         {"model.value_dim", "4"},
         {"model.index_topk", "32"},
         {"model.index_heads", "2"},
         {"model.index_dim", "4"}},
        {{"model.window", "64"}, {NULL, NULL}},
        {{"model.tail", "bytes(4)"}, {"model.tail_writes", "1"}, {NULL, NULL}},
        {{"admission.prefill_rate", "tokens_per_second(2)"}, {NULL, NULL}},
        {{"plan.goal", "'serve_rate'"}, {"plan.rate", "per_second(2)"}, {NULL, NULL}},
        {{"pools.prefill.layout", "'NHD'"}, {NULL, NULL}},
        {{"pools.prefill.role", "'mixed'"}, {NULL, NULL}},
        {{"load", "sessions { rate = per_second(2.5), turns = 2, prompt = 1, output = 1, requests = 100 }"},
         {NULL, NULL}},
        {{"pools.second", "pool { role = 'decode', machine = require 'hardware.h200', shardings = { {} } }"},
         {NULL, NULL}},
    };
    struct scenario_override sets[12];
    struct user_error error;
    for (size_t k = 0; k < sizeof beside / sizeof beside[0]; k++) {
        size_t count = 0;
        for (size_t n = 0; n < 10 && beside[k][n].path != NULL; n++) {
            if (strcmp(beside[k][n].path, change->path) != 0)
                sets[count++] = beside[k][n];
        }
        struct user_error ignored = {.set = false};
        struct scenario *without = scenario_text_load(scenario_text_good, sets, count, &ignored);
        sets[count++] = *change;
        error = (struct user_error){.set = false};
        struct scenario *with_change = scenario_text_load(scenario_text_good, sets, count, &error);
        bool changed =
            with_change != NULL && (without == NULL || strcmp(without->identity, with_change->identity) != 0);
        if (with_change != NULL)
            memcpy(identity, with_change->identity, 65);
        bool loaded = with_change != NULL;
        scenario_free(without);
        scenario_free(with_change);
        if (loaded && !changed)
            fail_msg("%s = %s leaves the identity as it was", change->path, change->value);
        if (loaded)
            return;
    }
    fail_msg("%s = %s: %s", change->path, change->value, error.text);
}

static void test_every_key_counts(void **state)
{
    (void)state;
    static char identities[sizeof changes / sizeof changes[0]][65];
    size_t count = sizeof changes / sizeof changes[0];
    for (size_t k = 0; k < count; k++) {
        identity_after(&changes[k], identities[k]);
        assert_string_not_equal(identities[k], GOOD_IDENTITY);
        for (size_t other = 0; other < k; other++)
            assert_string_not_equal(identities[k], identities[other]);
    }
}

static bool listed(const char *path)
{
    for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
        if (strcmp(changes[k].path, path) == 0)
            return true;
    }
    return false;
}

/* The list above knows every key that explain shows, so a new key cannot be left out of it. */
static void test_list_is_complete(void **state)
{
    (void)state;
    struct scenario *s = scenario_text_must_load(scenario_text_good, NULL, 0);
    json_t *explained = scenario_explain_json(s);
    const json_t *values = json_object_get(explained, "values");
    size_t count = json_array_size(values);
    assert_true(count > 100);
    for (size_t k = 0; k < count; k++) {
        const char *path = json_string_value(json_object_get(json_array_get(values, k), "path"));
        if (strncmp(path, "pools.prefill.", 14) == 0 || strcmp(path, "question") == 0 || strcmp(path, "name") == 0 ||
            strcmp(path, "seed") == 0)
            continue;
        if (!listed(path))
            fail_msg("%s is not in the list of changes", path);
    }
    json_decref(explained);
    scenario_free(s);
}

/* A planner changes a copy and identifies that; it equals the scenario written so. */
static void test_copy(void **state)
{
    (void)state;
    const struct scenario_override set = {"load.rate", "per_second(3)"};
    struct scenario *s = scenario_text_must_load(scenario_text_good, NULL, 0);
    struct scenario *other = scenario_text_must_load(scenario_text_good, &set, 1);
    struct scenario *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    *copy = *s;
    copy->load.rate_micro_per_s = 3000000;
    scenario_identify(copy);
    assert_string_equal(copy->identity, other->identity);
    free(copy);
    scenario_free(other);
    scenario_free(s);
}

/* A trace counts by its bytes, wherever it lies. */
static void test_trace(void **state)
{
    (void)state;
    const struct scenario_override here = {"load", "trace { file = 'a.csv', format = 'csv' }"};
    const struct scenario_override there = {"load", "trace { file = 'b.csv', format = 'csv' }"};
    char first[65];
    scenario_text_write("a.csv", "one", 3);
    scenario_text_write("b.csv", "one", 3);
    struct scenario *s = scenario_text_must_load(scenario_text_good, &here, 1);
    memcpy(first, s->identity, sizeof first);
    scenario_free(s);
    s = scenario_text_must_load(scenario_text_good, &there, 1);
    assert_string_equal(s->identity, first);
    scenario_free(s);
    scenario_text_write("b.csv", "two", 3);
    s = scenario_text_must_load(scenario_text_good, &there, 1);
    assert_string_not_equal(s->identity, first);
    scenario_free(s);
}

static char *explain(const char *path, const struct scenario_override *sets, size_t set_count)
{
    struct user_error error = {.set = false};
    char *text = NULL;
    size_t size = 0;
    struct scenario *s = scenario_load(path, sets, set_count, &error);
    if (s == NULL)
        fail_msg("%s", error.text);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    scenario_explain(s, out);
    assert_int_equal(fclose(out), 0);
    scenario_free(s);
    return text;
}

/* As a user in the root of the tree would see it. */
static void test_explain(void **state)
{
    (void)state;
    char folder[256];
    const struct scenario_override sets[] = {{"load.rate", "per_second(8)"},
                                             {"pools.decode.machine.memory", "GiB(96)"}};
    assert_non_null(getcwd(folder, sizeof folder));
    assert_int_equal(chdir(TANDEM_SOURCE_DIR), 0);
    char *text = explain("scenarios/w1-llama-70b.lua", sets, 2);
    assert_golden("explain-w1", text);
    assert_int_equal(chdir(folder), 0);
    free(text);
}

static void test_explain_json(void **state)
{
    (void)state;
    const struct scenario_override set = {"pools.decode.count", "3"};
    struct scenario *s = scenario_text_must_load(scenario_text_good, &set, 1);
    json_t *explained = scenario_explain_json(s);
    assert_string_equal(json_string_value(json_object_get(explained, "identity")), s->identity);
    assert_int_equal(json_integer_value(json_object_get(explained, "variants")), 1);
    const json_t *values = json_object_get(explained, "values");
    unsigned seen = 0;
    for (size_t k = 0; k < json_array_size(values); k++) {
        const json_t *row = json_array_get(values, k);
        const char *path = json_string_value(json_object_get(row, "path"));
        const char *value = json_string_value(json_object_get(row, "value"));
        const char *origin = json_string_value(json_object_get(row, "origin"));
        if (strcmp(path, "pools.decode.count") == 0) {
            assert_string_equal(value, "3");
            assert_string_equal(origin, "--set");
            seen++;
        } else if (strcmp(path, "targets.2.below") == 0) {
            assert_string_equal(value, "ms(25)");
            assert_string_equal(origin, "plan.lua:26");
            seen++;
        } else if (strcmp(path, "pools.prefill.shardings.2.tensor") == 0) {
            assert_string_equal(origin, "plan.lua:10");
            seen++;
        } else if (strcmp(path, "messenger.deadline") == 0) {
            assert_string_equal(value, "s(480)");
            assert_string_equal(origin, "default");
            seen++;
        }
    }
    assert_int_equal(seen, 4);
    json_decref(explained);
    scenario_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_every_key_counts),
        cmocka_unit_test(test_list_is_complete),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_explain_json),
    };
    return cmocka_run_group_tests_name("scenario_identity", tests, scenario_text_setup, scenario_text_teardown);
}
