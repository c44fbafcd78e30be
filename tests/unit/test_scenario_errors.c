/* Scenarios that are wrong: the exact text that the user reads, with the line of the key. */
#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROUTERS "'round_robin', 'random', 'power_of_two', 'least_queued_tokens', 'least_kv', 'prefix_aware', a function"

/* The good scenario with `old` replaced by `new_text`. */
struct bad {
    const char *old;
    const char *new_text;
    const char *expected;
};

static void expect_errors(const struct bad *bad, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        char *text = scenario_text_replace(scenario_text_good, bad[k].old, bad[k].new_text);
        scenario_text_must_fail(text, NULL, 0, bad[k].expected);
        free(text);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"rate = per_second(2.5)", "rate = 2.5",
         "plan.lua:19: load.rate: a rate is wanted, not the bare number 2.5: write it as in per_second(2.5)"},
        {"rate = per_second(2.5)", "rate = ms(3)",
         "plan.lua:19: load.rate: a rate is wanted, as in per_second(1), not ms(3)"},
        {"rate = per_second(2.5)", "rate = per_second(0)",
         "plan.lua:19: load.rate: must be at least per_second(0.000001), not per_second(0)"},
        {"rate = per_second(2.5),", "rate = per_second(2.5), profile = 3,",
         "plan.lua:19: load.profile: a list of steps or sine(period, swing) is wanted"},
        {"rate = per_second(2.5),", "rate = per_second(2.5), profile = { { s(1), 1 }, { s(2) } },",
         "plan.lua:19: load.profile: step 2: a time and a number are wanted, as in { minutes(5), 2.5 }"},
        {"rate = per_second(2.5),", "rate = per_second(2.5), profile = { { s(1), 0 } },",
         "plan.lua:19: load.profile: somewhere requests have to come: a number above 0 is wanted"},
        {"rate = per_second(2.5),", "rate = per_second(2.5), profile = sine(s(3), percent(120)),",
         "plan.lua:19: load.profile: a swing of at most percent(100) is wanted: no rate is below 0"},
        {"rate = per_second(2.5),", "", "plan.lua:18: load.rate: missing; a rate is wanted, as in per_second(1)"},
        {"below = ms(25)", "below = 25",
         "plan.lua:26: targets.2.below: a time is wanted, not the bare number 25: write it as in ms(25)"},
        {"below = ms(25)", "below = never",
         "plan.lua:26: targets.2.below: must be at most s(9223372.036854775806), "
         "not never"},
        {"p = 99.9", "p = 100", "plan.lua:26: targets.2.p: must be at most 99.9, not 100"},
        {"p = 99.9", "p = percent(99)", "plan.lua:26: targets.2.p: a plain number is wanted, not percent(99)"},
        {"percent(90)", "90",
         "plan.lua:26: targets.attainment: a share is wanted, not the bare number 90: write it as in percent(90)"},
        {"count = 1,", "count = 0,", "plan.lua:8: pools.prefill.count: must be at least 1, not 0"},
        {"count = 1,", "count = 1024,", "plan.lua:8: pools.prefill.count: must be at most 1023 (NODES_MAX), not 1024"},
        {"count = 1,", "count = 1.5,", "plan.lua:8: pools.prefill.count: a whole number is wanted, not 1.5"},
        {"count = 1,", "count = '1',", "plan.lua:8: pools.prefill.count: a whole number is wanted, not the text '1'"},
        {"count = 1,", "count = ms(1),", "plan.lua:8: pools.prefill.count: a whole number is wanted, not ms(1)"},
        {"'shortest_first'", "'shortest'",
         "plan.lua:16: pools.decode.queue: 'shortest' is not one of 'fcfs', 'shortest_first', 'earliest_deadline', a "
         "function"},
        {"'shortest_first'", "'fcsf'",
         "plan.lua:16: pools.decode.queue: 'fcsf' is not one of 'fcfs', 'shortest_first', 'earliest_deadline', a "
         "function; did you "
         "mean 'fcfs'?"},
        {"'shortest_first'", "2",
         "plan.lua:16: pools.decode.queue: one of 'fcfs', 'shortest_first', 'earliest_deadline', a function is wanted, "
         "not 2"},
        {"'power_of_two'", "'power-of-two'",
         "plan.lua:24: routing.decode: 'power-of-two' is not one of " ROUTERS "; did you mean 'power_of_two'?"},
        {"token_budget = 16384", "prefix_cache = 1",
         "plan.lua:11: pools.prefill.prefix_cache: true or false is wanted, not 1"},
        {"seeds = 5", "seeds = 1", "plan.lua:27: plan.seeds: must be at least 2, not 1"},
        {"'How many decoders?'", "''", "plan.lua:3: question: must not be empty"},
        {"'How many decoders?'", "'two\\nlines'", "plan.lua:3: question: must be one line, free of control characters"},
        {"  question = 'How many decoders?',", "", "plan.lua:2: question: missing; a text is wanted"},
    };
    expect_errors(bad, sizeof bad / sizeof bad[0]);
}

static void test_keys(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"batch_max", "max_batch", "plan.lua:15: pools.decode.max_batch: unknown key"},
        {"batch_max", "batch_mx", "plan.lua:15: pools.decode.batch_mx: unknown key; did you mean 'batch_max'?"},
        {"targets =", "target =", "plan.lua:25: target: unknown key; did you mean 'targets'?"},
        {"warmup", "Warm_up", "plan.lua:22: load.Warm_up: unknown key; did you mean 'warmup'?"},
        {"attainment", "attained",
         "plan.lua:26: targets.attained: unknown key; targets are listed, as in ttft { p = 95, below = s(2) }, beside "
         "attainment = percent(90)"},
        {"tpot { p = 99.9, below", "tpot { p = 99.9, limit = 3, below", "plan.lua:26: targets.2.limit: unknown key"},
        {"{ tensor = 1 }", "{ tensr = 1 }",
         "plan.lua:10: pools.prefill.shardings.2.tensr: unknown key; did you mean 'tensor'?"},
        {"routing = {", "routing = { 'random',",
         "plan.lua:24: routing: every value here has a name, as in name = value"},
        {"poisson {", "burst { size = 2, burst = 1,", "plan.lua:18: load.burst: unknown key"},
    };
    expect_errors(bad, sizeof bad / sizeof bad[0]);
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"poisson {", "{",
         "plan.lua:18: load: poisson, evenly, burst, closed, sessions, trace or listed { ... } is wanted"},
        {"poisson {", "poison {",
         "plan.lua:18: 'poison' is not part of the scenario language; did you mean 'poisson'?"},
        {"prefill = pool {", "prefill = {", "plan.lua:6: pools.prefill: pool { ... } is wanted, not a table"},
        {"machine = h200, count", "machine = require 'models.llama-3.1-8b', count",
         "plan.lua:13: pools.decode.machine: machine { ... } is wanted, not a table made by model"},
        {"machine = h200, count", "count", "plan.lua:13: pools.decode.machine: missing; machine { ... } is wanted"},
        {"plan = {1, 4}", "plan = {4, 1}", "plan.lua:8: pools.prefill.plan.2: must be at least 4, not 1"},
        {"plan = {1, 4}", "plan = {1}", "plan.lua:8: pools.prefill.plan: two counts are wanted, as in {1, 4}"},
        {"plan = {1, 4}", "plan = 4", "plan.lua:8: pools.prefill.plan: a plain table { ... } is wanted, not 4"},
        {"shardings = { { tensor = 2 } }", "shardings = { tensor = 2 }",
         "plan.lua:14: pools.decode.shardings: at least one entry is wanted"},
        {"uniform(512, 2048)", "uniform(2048, 512)", "plan.lua:20: load.prompt.2: must be at least 2048, not 512"},
        {"uniform(512, 2048)", "uniform(512)",
         "plan.lua:20: uniform takes two whole numbers of tokens, as in uniform(512, 2048)"},
        {"uniform(512, 2048)", "ms(3)",
         "plan.lua:20: load.prompt: a number of tokens, uniform(low, high) or quantiles { ... } is wanted"},
        {"poisson {", "sessions { turns = 3, concurrency = 2,",
         "plan.lua:19: load.rate: either a rate, at which conversations begin, or concurrency, so many at a time, is "
         "wanted, not both"},
        {"[0] = 1,", "", "plan.lua:21: load.output: needs [0] and [1000], the shortest and the longest"},
        {"[500] = 100", "[500] = 1000", "plan.lua:21: load.output.1000: must be at least 1000, not 900"},
        {"[500] = 100", "[50.5] = 100",
         "plan.lua:21: load.output: keys are permille, whole numbers from 0 to 1000, as in [500] = 1020"},
        {"ttft { p = 95, below = s(2) }", "ttft(3)", "plan.lua:25: ttft takes a table: ttft { ... }"},
        {"return scenario", "local s = scenario", "plan.lua: must end with: return scenario { ... }"},
        {"attainment = ", "3, attainment = ",
         "plan.lua:26: targets.3: ttft, tpot, e2e or itl { p = 95, below = ms(...) } is wanted"},
        {"plan = { nodes = 8", "expect = 3, plan = { nodes = 8",
         "plan.lua:27: expect: a function is wanted, as in expect = function(r) check(r.failed == 0) end"},
        {"plan = { nodes = 8", "vary = { ['load.rate'] = {} }, plan = { nodes = 8",
         "plan.lua:27: vary.load.rate: a list of 1 to 64 values is wanted (SCENARIO_VARY_VALUES_MAX)"},
        {"plan = { nodes = 8", "vary = { ['load.rate'] = { print } }, plan = { nodes = 8",
         "plan.lua:27: 'print' is not part of the scenario language"},
        {"plan = { nodes = 8", "vary = { ['load.rate'] = { type } }, plan = { nodes = 8",
         "plan.lua:27: vary.load.rate: value 1: a number, a quantity, a short text, true or false, uniform(...) or a "
         "required module is wanted"},
        {"question =", "question, =", "plan.lua:3: unexpected symbol near '='"},
        {"ms(1500)", "ms(-1)", "plan.lua:22: ms(-1): must not be negative"},
        {"ms(1500)", "hours(1e9)", "plan.lua:22: hours(1000000000.0): too large"},
        {"ms(1500)", "hours(9000000000)", "plan.lua:22: hours(9000000000): too large"},
        {"ms(1500)", "ms('1500')", "plan.lua:22: ms takes one number, as in ms(1)"},
        {"ms(1500)", "ms(0/0)", "plan.lua:22: ms takes one number, as in ms(1)"},
        {"local h200", "h200", "plan.lua:1: 'h200' would be a global; write 'local h200 = ...'"},
    };
    expect_errors(bad, sizeof bad / sizeof bad[0]);
}

static void test_parts_that_do_not_fit(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"page = 32", "page = 48",
         "plan.lua:15: pools.decode.page: 48 tokens here and 64 in prefill: one must divide the other"},
        {"page = 32", "layout = 'NHD'", "plan.lua:15: pools.decode.layout: must be that of prefill"},
        {"{ tensor = 1 }", "{ tensor = 3 }",
         "plan.lua:10: pools.prefill.shardings.2: tensor must divide the model's heads (32), not be 3"},
        {"{ tensor = 1 }", "{ tensor = 16, data = 16, pipeline = 4 }",
         "plan.lua:10: pools.prefill.shardings.2: tensor * data * pipeline must be at most 512 (RANKS_MAX), not 1024"},
        {"{ tensor = 1 }", "{ tensor = 2, expert = 2 }",
         "plan.lua:10: pools.prefill.shardings.2: the model has no experts to spread over 2 ranks"},
        {"batch_max = 128", "token_budget = 64",
         "plan.lua:15: pools.decode.token_budget: must hold a token of every sequence of a batch (batch_max, 256), not "
         "64"},
        {"token_budget = 16384", "chunk = 8193",
         "plan.lua:11: pools.prefill.chunk: must be at most token_budget (8192), not 8193"},
        {"role = 'decode'", "role = 'prefill'",
         "plan.lua:5: pools: a pool of role 'decode' is missing: prefill and decode, or mixed"},
        {"role = 'decode'", "role = 'mixed'",
         "plan.lua:5: pools: a pool of role 'decode' is missing beside the mixed ones"},
        {"batch_max = 128", "placement = 'near'",
         "plan.lua:15: pools.decode.placement: \"apart\", \"packed\", \"spread\", \"apart from POOL\", \"beside POOL\" "
         "or a machine for each instance, as in {1, 1, 2}, is wanted"},
        {"batch_max = 128", "placement = 'apart from '",
         "plan.lua:15: pools.decode.placement: \"apart\", \"packed\", \"spread\", \"apart from POOL\", \"beside POOL\" "
         "or a machine for each instance, as in {1, 1, 2}, is wanted"},
        {"batch_max = 128", "placement = 'apart from prefil'",
         "plan.lua:15: pools.decode.placement: there is no pool 'prefil'"},
        {"batch_max = 128", "placement = 'beside decode'",
         "plan.lua:15: pools.decode.placement: 'decode' is this pool itself"},
        {"batch_max = 128", "placement = {0}", "plan.lua:15: pools.decode.placement.1: must be at least 1, not 0"},
        {"requests = 100, ", "",
         "plan.lua:18: load.requests: missing, or 0; requests, 1 at least, or duration ends a load"},
        {"requests = 100", "duration = s(1)", "plan.lua:22: load.warmup: must be shorter than duration"},
        {"nodes = 8", "goal = 'serve_rate'",
         "plan.lua:27: plan.rate: missing; the goal is to serve a rate, as in per_second(10)"},
        {"nodes = 8", "rate = per_second(3)", "plan.lua:27: plan.rate: has a meaning only with goal = \"serve_rate\""},
        {"uniform(512, 2048)", "2097152",
         "plan.lua:20: load.prompt: prompt and output together may have 2097152 tokens (REQUEST_TOKENS_MAX), not "
         "2098052"},
        {"uniform(512, 2048)", "1047000",
         "plan.lua:15: pools.decode.page: a request of 1047900 tokens needs more pages of 32 than it may have (16384, "
         "REQUEST_PAGES_MAX)"},
        {"count = 2", "count = 1023",
         "plan.lua:5: pools: at most 1023 instances in all (NODES_MAX, the front included), not 1027"},
    };
    expect_errors(bad, sizeof bad / sizeof bad[0]);
}

/* Each is a model that does not hold together; the file is found beside the scenario. */
static void test_models(void **state)
{
    (void)state;
    static const struct {
        const char *change;
        const char *expected;
    } bad[] = {
        {"attention = 'mla'", "base.lua:2: model.attention: mla needs latent_dim, rope_dim, nope_dim and value_dim"},
        {"kv_heads = 5", "base.lua:2: model.kv_heads: must divide heads (32), not 5"},
        {"latent_dim = 512", "base.lua:2: model.attention: gqa has no latent_dim, rope_dim, nope_dim or q_latent_dim"},
        {"experts_active = 2", "base.lua:2: model.experts: missing; the model has other keys of a mixture of experts"},
        {"experts = 8, experts_active = 9, expert_intermediate = 64",
         "base.lua:2: model.experts_active: must be from 1 to experts (8), not 9"},
        {"experts = 8, experts_active = 2", "base.lua:2: model.expert_intermediate: missing; the model has experts"},
        {"dense_layers = 1", "base.lua:2: model.dense_layers: has a meaning only beside experts"},
        {"intermediate = 0", "base.lua:2: model.intermediate: missing; the model has dense layers"},
        {"full_layers = 3", "base.lua:2: model.full_layers: has a meaning only beside window"},
        {"window = 128, full_layers = 33", "base.lua:2: model.full_layers: must be at most layers (32), not 33"},
        {"tail = bytes(8)", "base.lua:2: model.tail_writes: a tail needs both its size and the number of its writes"},
        {"weights = 'int8'",
         "base.lua:2: model.weights: 'int8' is not one of 'bf16', 'fp8', 'fp8_block', 'fp4', 'int4'; "
         "did you mean 'int4'?"},
    };
    char *text = scenario_text_replace(scenario_text_good, "'models.llama-3.1-8b'", "'base'");
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        char *module = scenario_text_replace("local llama = require 'models.llama-3.1-8b'\n"
                                             "return with(llama, { CHANGE })\n",
                                             "CHANGE", bad[k].change);
        scenario_text_write("base.lua", module, strlen(module));
        scenario_text_must_fail(text, NULL, 0, bad[k].expected);
        free(module);
    }
    free(text);
}

static void test_traces(void **state)
{
    (void)state;
    static const char load[] = "load = trace { file = 'requests.csv', format = 'csv', window = {s(1), s(2)} },\n"
                               "  routing =";
    static const struct bad bad[] = {
        {"file = 'requests.csv'", "file = 'absent.csv'",
         "plan.lua:24: load.file: there is no absent.csv in . or " TANDEM_SOURCE_DIR "/scenarios"},
        {"file = 'requests.csv'", "file = '/absent.csv'", "plan.lua:24: load.file: there is no /absent.csv"},
        {"file = 'requests.csv'", "file = '.'", "plan.lua:24: load.file: {folder} cannot be read: Is a directory"},
        {"file = 'requests.csv',", "", "plan.lua:24: load.file: missing; the path of a trace is wanted"},
        {"format = 'csv'", "format = 'parquet'",
         "plan.lua:24: load.format: 'parquet' is not one of 'azure', 'mooncake', 'csv', 'servegen'"},
        {"{s(1), s(2)}", "{s(2), s(1)}", "plan.lua:24: load.window: two times are wanted, the first before the second"},
        {"{s(1), s(2)}", "{1, 2}", "plan.lua:24: load.window: two times are wanted, as in {minutes(0), minutes(30)}"},
        {"{s(1), s(2)}", "{s(1), s(2)}, prompt = 3", "plan.lua:24: load.prompt: unknown key"},
    };
    scenario_text_write("requests.csv", "x", 1);
    /* Of two fields of one name the later one counts. */
    char *good = scenario_text_replace(scenario_text_good, "routing =", load);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        char *text = scenario_text_replace(good, bad[k].old, bad[k].new_text);
        struct user_error error = {.set = false};
        assert_null(scenario_text_load(text, NULL, 0, &error));
        if (strstr(bad[k].expected, "{folder}") == NULL)
            assert_string_equal(error.text, bad[k].expected);
        else
            assert_non_null(strstr(error.text, "cannot be read: Is a directory"));
        free(text);
    }
    free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_parts_that_do_not_fit),
        cmocka_unit_test(test_models), cmocka_unit_test(test_traces),
    };
    return cmocka_run_group_tests_name("scenario_errors", tests, scenario_text_setup, scenario_text_teardown);
}
