/* Where two stored runs part: found at the record where they do, in short and in long traces, and not guessed where a
 * run cannot be had again.
 */
#define _POSIX_C_SOURCE 200809L

#include "sim/check/first_divergence.h"

#include "base/arith.h"
#include "base/trace.h"
#include "run/stored_run.h"
#include "sim/sim_run.h"
#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char text[] = "local h100 = require 'hardware.h100'\n"
                           "return scenario {\n"
                           "  question = 'Where do they part?',\n"
                           "  model = require 'models.llama-3.1-8b',\n"
                           "  pools = {\n"
                           "    prefill = pool { role = 'prefill', machine = h100, shardings = { { tensor = 1 } } },\n"
                           "    decode = pool { role = 'decode', machine = h100, shardings = { { tensor = 1 } } },\n"
                           "  },\n"
                           "  load = poisson { rate = per_second(20), requests = 600,\n"
                           "                   prompt = uniform(256, 1024), output = uniform(8, 32) },\n"
                           "}\n";

static struct results *open_store(void)
{
    struct user_error error = {.set = false};
    struct results *store = results_open("runs.db", RESULTS_WRITE, &error);
    if (store == NULL)
        fail_msg("%s", error.text);
    return store;
}

static int64_t store_run(struct results *store, const char *path, const char *value, uint64_t seed)
{
    struct scenario_override set = {path, value};
    uint32_t count = path == NULL ? 0 : 1;
    struct user_error error = {.set = false};
    struct scenario *scenario = scenario_text_must_load(text, &set, count);
    struct deployment_choice choice = deployment_default(scenario);
    struct run_config config = {
        .scenario = scenario, .choice = &choice, .seed = seed, .sets = &set, .set_count = count};
    struct stored_run what = {.store = store, .backend = &sim_backend, .config = &config, .kind = RESULTS_RUN};
    int64_t run = 0;
    if (stored_run(&what, &run, NULL, &error) != RUN_COMPLETE)
        fail_msg("%s", error.text);
    scenario_free(scenario);
    return run;
}

/* ---- The plain way: both traces in memory ------------------------------------------------------------------------ */

struct trace {
    struct {
        int64_t at_ns;
        struct trace_record record;
    } * records;
    uint32_t count;
    uint32_t capacity;
};

static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct trace *trace = self;
    if (trace->count == trace->capacity) {
        trace->capacity = trace->capacity == 0 ? 4096 : 2 * trace->capacity;
        trace->records = realloc(trace->records, trace->capacity * sizeof *trace->records);
        assert_non_null(trace->records);
    }
    trace->records[trace->count].at_ns = now_ns;
    trace->records[trace->count++].record = *record;
}

static struct trace trace_of(const char *path, const char *value, uint64_t seed)
{
    struct scenario_override set = {path, value};
    struct trace trace = {.count = 0};
    struct scenario *scenario = scenario_text_must_load(text, &set, path == NULL ? 0 : 1);
    struct deployment_choice choice = deployment_default(scenario);
    struct run_result result;
    run_play(
        &sim_backend,
        &(struct run_config){
            .scenario = scenario, .choice = &choice, .seed = seed, .listener = {.self = &trace, .trace = on_trace}},
        &result);
    assert_int_equal(result.status, RUN_COMPLETE);
    run_result_free(&result);
    scenario_free(scenario);
    return trace;
}

static bool equal_at(const struct trace *a, const struct trace *b, uint32_t i)
{
    const struct trace_record *x = &a->records[i].record;
    const struct trace_record *y = &b->records[i].record;
    return a->records[i].at_ns == b->records[i].at_ns && x->kind == y->kind && x->node == y->node &&
           x->request == y->request && x->a == y->a && x->b == y->b;
}

static void check_pair(struct results *store, const char *path, const char *value, uint64_t seed, uint64_t least)
{
    struct user_error error = {.set = false};
    struct divergence found;
    int64_t a = store_run(store, NULL, NULL, 1);
    int64_t b = store_run(store, path, value, seed);
    if (!sim_divergence(store, a, b, &found, &error))
        fail_msg("%s", error.text);
    assert_string_equal(found.unknown, "");
    struct trace traces[2] = {trace_of(NULL, NULL, 1), trace_of(path, value, seed)};
    uint32_t at = 0;
    while (at < traces[0].count && at < traces[1].count && equal_at(&traces[0], &traces[1], at))
        at++;
    if (at == traces[0].count || at == traces[1].count)
        fail_msg("%s=%s does not tell: %u and %u records", path, value, traces[0].count, traces[1].count);
    assert_true(found.found);
    assert_int_equal(found.record, at);
    assert_true(at >= least);
    assert_int_equal(found.time_a_ns, traces[0].records[at].at_ns);
    assert_int_equal(found.time_b_ns, traces[1].records[at].at_ns);
    assert_int_equal(found.before_count, at < DIVERGENCE_BEFORE_MAX ? at : DIVERGENCE_BEFORE_MAX);
    for (uint32_t i = 0; i < found.before_count; i++)
        assert_int_equal(found.before[i].at_ns, traces[0].records[at - found.before_count + i].at_ns);
    free(traces[0].records);
    free(traces[1].records);
}

static void they_part_where_the_whole_traces_do(void **state)
{
    (void)state;
    struct results *store = open_store();
    struct user_error error = {.set = false};
    check_pair(store, NULL, NULL, 2, 0);                         /* another seed: from the first arrival on */
    check_pair(store, "load.rate", "per_second(21)", 1, 0);      /* the same */
    check_pair(store, "messenger.handoffs_max", "2", 1, 10);     /* once the third transfer has to wait */
    check_pair(store, "pools.decode.batch_max", "2", 1, 10);     /* once three would decode together */
    check_pair(store, "load.abort_share", "percent(50)", 1, 10); /* once a client goes away */
    check_pair(store, "load.requests", "500", 1, 2 * 4096);      /* far on, behind many pieces */
    check_pair(store, "load.requests", "400", 1, 4096);
    assert_true(results_close(store, &error));
}

static void a_trace_that_ends_earlier_differs_nowhere_before(void **state)
{
    (void)state;
    struct results *store = open_store();
    struct user_error error = {.set = false};
    struct divergence found;
    int64_t a = store_run(store, NULL, NULL, 1);
    assert_true(sim_divergence(store, a, a, &found, &error));
    assert_false(found.found);
    assert_string_equal(found.unknown, "");
    assert_true(results_close(store, &error));
}

static void what_cannot_be_had_again_is_said(void **state)
{
    (void)state;
    struct results *store = open_store();
    struct user_error error = {.set = false};
    struct divergence found;
    int64_t a = store_run(store, NULL, NULL, 1);
    int64_t b = store_run(store, NULL, NULL, 2);
    char *changed = scenario_text_replace(text, "per_second(20)", "per_second(30)");
    scenario_text_write("plan.lua", changed, strlen(changed));
    free(changed);
    assert_true(sim_divergence(store, a, b, &found, &error));
    assert_false(found.found);
    assert_non_null(strstr(found.unknown, "plan.lua: has changed since run"));
    assert_int_equal(unlink("plan.lua"), 0);
    assert_true(sim_divergence(store, a, b, &found, &error));
    assert_non_null(strstr(found.unknown, "No such file"));
    assert_false(sim_divergence(store, a, b + 100, &found, &error));
    assert_non_null(strstr(error.text, "holds no run"));
    error.set = false;
    assert_true(results_close(store, &error));
}

static void records_read_like_sentences(void **state)
{
    (void)state;
    char words[160];
    struct trace_record dispatched = {.kind = TRACE_DISPATCHED, .node = 3, .request = 17, .a = 1, .b = 96256};
    trace_record_text(&dispatched, "decode-0", words, sizeof words);
    assert_string_equal(words, "decode-0 dispatched request 17 prefiller=1 writes=96256");
    struct trace_record batch = {
        .kind = TRACE_BATCH, .request = TRACE_NO_REQUEST, .a = UINT64_C(2) << 32 | 40, .b = 512};
    trace_record_text(&batch, "mixed-1", words, sizeof words);
    assert_string_equal(words, "mixed-1 batch group=2 decoding=40 prefill_tokens=512");
    struct trace_record lost = {.kind = TRACE_PEER_LOST, .request = TRACE_NO_REQUEST, .a = 4};
    trace_record_text(&lost, "front", words, sizeof words);
    assert_string_equal(words, "front peer_lost a=4 b=0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_part_where_the_whole_traces_do),
        cmocka_unit_test(a_trace_that_ends_earlier_differs_nowhere_before),
        cmocka_unit_test(what_cannot_be_had_again_is_said),
        cmocka_unit_test(records_read_like_sentences),
    };
    return cmocka_run_group_tests(tests, scenario_text_setup, scenario_text_teardown);
}
