/* One probe of the planner: what it counts and sums up against the rows of the same run, giving up early against
 * playing to the end, what is stored of it, and which part of a trace it plays.
 */
#include "sim/plan/probe.h"

#include "base/arith.h"
#include "run/recorder.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REQUESTS 400

static struct scenario *make_scenario(void)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    assert_non_null(scenario);
    scenario_llama_70b(scenario, 1, 1, 10, REQUESTS);
    scenario->load.output.low = 1; /* some have a single token and so no TPOT */
    scenario->load.output.high = 200;
    return scenario;
}

static struct probe probe(const struct scenario *scenario, uint64_t rate_micro_per_s, uint64_t seed, bool stop_early)
{
    struct deployment_choice choice = deployment_default(scenario);
    struct probe_input input = {
        .scenario = scenario,
        .choice = &choice,
        .rate_micro_per_s = rate_micro_per_s,
        .seed = seed,
        .seeds = 2,
        .requests = REQUESTS,
        .stop_early = stop_early,
    };
    struct probe result;
    enum run_status status;
    char error[4096];
    if (!probe_run(&input, &result, &status, error, sizeof error))
        fail_msg("%s", error);
    return result;
}

/* ---- Against the rows -------------------------------------------------------------------------------------------- */

struct rows {
    struct request_row row[REQUESTS];
    uint32_t count;
};

static bool on_row(void *self, const struct request_row *row, bool met_all_targets)
{
    (void)met_all_targets;
    struct rows *rows = self;
    if (!row->warmup && row->outcome != OUTCOME_ABORTED)
        rows->row[rows->count++] = *row;
    return true;
}

/* By its definition, without sorting: the least value that at least `permille` of all values do not exceed. */
static int64_t nearest_rank(const int64_t *values, uint32_t count, uint32_t permille)
{
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t covered = 0;
        for (uint32_t j = 0; j < count; j++)
            covered += values[j] <= values[i];
        if ((uint64_t)covered * 1000 >= (uint64_t)count * permille)
            best = min_i64(best, values[i]);
    }
    return best;
}

static void figures_are_those_of_the_rows(void **state)
{
    (void)state;
    static const uint32_t permille[PROBE_PERCENTILES] = {500, 900, 950, 990};
    struct scenario *scenario = make_scenario();
    struct rows *rows = calloc(1, sizeof *rows);
    assert_non_null(rows);
    scenario->targets.count = 3;
    scenario->targets.item[2] =
        (struct target){.metric = TARGET_E2E, .percentile_permille = 731, .limit_ns = 1500 * NS_PER_MS};
    struct probe p = probe(scenario, 12000000, 2, false);
    struct deployment_choice choice = deployment_default(scenario);
    struct probe_input input = {.scenario = scenario,
                                .choice = &choice,
                                .rate_micro_per_s = 12000000,
                                .seed = 2,
                                .seeds = 2,
                                .requests = REQUESTS};
    struct load load = probe_load(&input);
    struct run_result result;
    run_play(&sim_backend,
             &(struct run_config){.scenario = scenario,
                                  .choice = &choice,
                                  .seed = 2,
                                  .load = &load,
                                  .listener = {.self = rows, .row = on_row}},
             &result);
    assert_int_equal(result.status, RUN_COMPLETE);
    assert_int_equal(p.trace_hash, result.summary.trace_hash);

    int64_t ttft_ns[REQUESTS];
    int64_t tpot_ns[REQUESTS];
    int64_t e2e_ns[REQUESTS];
    uint32_t tpots = 0;
    uint64_t missed[3] = {0, 0, 0};
    uint64_t met = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct request_row *row = &rows->row[i];
        assert_int_equal(row->outcome, OUTCOME_COMPLETED);
        ttft_ns[i] = row->boundary_ns[BOUNDARY_FIRST_TOKEN] - row->boundary_ns[BOUNDARY_ARRIVED];
        e2e_ns[i] = row->boundary_ns[BOUNDARY_FINISHED] - row->boundary_ns[BOUNDARY_ARRIVED];
        bool miss[3] = {ttft_ns[i] > 2 * NS_PER_S, false, e2e_ns[i] > 1500 * NS_PER_MS};
        if (row->output_tokens > 1) {
            tpot_ns[tpots] = row_tpot_ns(row);
            miss[1] = tpot_ns[tpots++] > 25 * NS_PER_MS;
        }
        for (uint32_t t = 0; t < 3; t++)
            missed[t] += miss[t];
        met += !miss[0] && !miss[1] && !miss[2];
    }
    assert_in_range(rows->count, REQUESTS * 8 / 10, REQUESTS * 98 / 100); /* the rest warmed up */
    assert_true(tpots < rows->count);
    assert_int_equal(p.counted, rows->count);
    assert_int_equal(p.completed, rows->count);
    assert_int_equal(p.unserved, 0);
    assert_int_equal(p.met_all, met);
    assert_true(missed[2] > 0);
    for (uint32_t t = 0; t < 3; t++)
        assert_int_equal(p.missed[t], missed[t]);
    for (uint32_t q = 0; q < PROBE_PERCENTILES; q++) {
        assert_int_equal(p.ttft_ns[q], nearest_rank(ttft_ns, rows->count, permille[q]));
        assert_int_equal(p.tpot_ns[q], nearest_rank(tpot_ns, tpots, permille[q]));
    }
    assert_int_equal(p.target_ns[2], nearest_rank(e2e_ns, rows->count, 731));
    run_result_free(&result);
    free(rows);
    free(scenario);
}

/* A percentile is below its limit exactly when no more than the rest miss it: the two ways to say so agree. */
static void passing_is_every_percentile_below_its_limit(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario();
    uint32_t passed = 0;
    scenario->load.output.low = 2;
    scenario->targets.attainment_permille = 0;
    for (uint64_t rate = 4; rate <= 40; rate += 3) {
        struct probe p = probe(scenario, rate * 1000000, 1, false);
        bool within = p.target_ns[0] <= scenario->targets.item[0].limit_ns &&
                      p.target_ns[1] <= scenario->targets.item[1].limit_ns;
        assert_int_equal(p.passed, within);
        passed += p.passed;
    }
    assert_in_range(passed, 2, 11);
    free(scenario);
}

/* ---- Giving up --------------------------------------------------------------------------------------------------- */

static void target_set(struct scenario *scenario, uint32_t which)
{
    struct targets *targets = &scenario->targets;
    switch (which) {
    case 0:
        break; /* TTFT, TPOT and attainment */
    case 1:    /* attainment alone decides */
        targets->item[0].percentile_permille = targets->item[1].percentile_permille = 10;
        targets->attainment_permille = 970;
        break;
    case 2:
        targets->count = 1;
        targets->item[0] =
            (struct target){.metric = TARGET_ITL, .percentile_permille = 990, .limit_ns = 20 * NS_PER_MS};
        targets->attainment_permille = 0;
        break;
    case 3: /* every single request */
        targets->item[0].percentile_permille = 1000;
        targets->attainment_permille = 0;
        break;
    default: /* some are turned away */
        scenario->admission.queued_tokens_max = 12000;
        targets->item[0].limit_ns = 60 * NS_PER_S;
        break;
    }
}

static void giving_up_early_never_changes_the_verdict(void **state)
{
    (void)state;
    uint32_t passed = 0;
    uint32_t given_up = 0;
    uint32_t turned_away = 0;
    for (uint32_t which = 0; which < 5; which++) {
        struct scenario *scenario = make_scenario();
        target_set(scenario, which);
        for (uint64_t rate = 2; rate <= 44; rate += 6) {
            struct probe whole = probe(scenario, rate * 1000000, rate % 3 + 1, false);
            struct probe early = probe(scenario, rate * 1000000, rate % 3 + 1, true);
            assert_true(whole.complete);
            assert_int_equal(early.passed, whole.passed);
            if (early.complete)
                assert_int_equal(early.trace_hash, whole.trace_hash);
            else
                assert_false(whole.passed);
            assert_int_equal(whole.counted, whole.completed + whole.unserved);
            passed += whole.passed;
            given_up += !early.complete;
            turned_away += whole.unserved > 0;
        }
        free(scenario);
    }
    assert_true(passed > 5 && given_up > 5 && turned_away > 0);
}

/* A load that is turned away is no load served, whatever the few that got through saw. */
static void requests_turned_away_miss_every_target(void **state)
{
    (void)state;
    static const enum target_metric metrics[] = {TARGET_TTFT, TARGET_TPOT, TARGET_E2E, TARGET_ITL};
    for (uint32_t m = 0; m < 4; m++) {
        struct scenario *scenario = make_scenario();
        scenario->admission.queued_tokens_max = 1;
        scenario->targets = (struct targets){
            .count = 1, .item = {{.metric = metrics[m], .percentile_permille = 900, .limit_ns = 600 * NS_PER_S}}};
        struct probe p = probe(scenario, 40000000, 1, false);
        assert_true(p.unserved * 10 > p.counted);
        assert_int_equal(p.missed[0], p.unserved);
        assert_false(p.passed);
        free(scenario);
    }
}

static void throughput_is_that_of_the_middle(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario();
    /* Far from saturation requests leave as fast as they come. */
    struct probe p = probe(scenario, 5000000, 1, false);
    assert_in_range(p.completed_micro_per_s, 4300000, 5700000);
    /* Beyond it, neither the rate asked for nor the queue at the end counts. */
    struct probe twice = probe(scenario, 100000000, 1, false);
    struct probe more = probe(scenario, 150000000, 1, false);
    assert_true(twice.completed_micro_per_s < 60000000);
    assert_in_range(more.completed_micro_per_s, twice.completed_micro_per_s * 8 / 10,
                    twice.completed_micro_per_s * 12 / 10);
    free(scenario);
}

/* ---- Storage ----------------------------------------------------------------------------------------------------- */

static void what_is_stored_is_what_is_read(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario();
    struct probe written = probe(scenario, 12000000, 3, false);
    struct probe read;
    written.trace_hash = UINT64_C(0xfedcba9876543210); /* above INT64_MAX */
    written.preempted = 77;
    written.nic_op_bound = 123;
    json_t *json = probe_json(&written);
    assert_true(probe_from_json(json, &read));
    json_t *again = probe_json(&read);
    assert_true(json_equal(json, again));
    assert_int_equal(read.trace_hash, written.trace_hash);
    assert_int_equal(read.preempted, 77);
    assert_int_equal(read.complete, written.complete);
    assert_int_equal(read.passed, written.passed);
    assert_memory_equal(read.span_ns, written.span_ns, sizeof read.span_ns);
    assert_memory_equal(read.target_ns, written.target_ns, sizeof read.target_ns);
    json_decref(again);

    /* Whatever is lacking or of another kind is refused, field by field. */
    const char *key;
    json_t *value;
    uint32_t keys = 0;
    json_object_foreach(json, key, value)
    {
        (void)value;
        json_t *lacking = json_copy(json);
        json_object_del(lacking, key);
        assert_false(probe_from_json(lacking, &read));
        json_object_set_new(lacking, key, json_true());
        assert_false(probe_from_json(lacking, &read));
        json_decref(lacking);
        keys++;
    }
    assert_int_equal(keys, 28);
    assert_false(probe_from_json(json_null(), &read));
    json_decref(json);
    free(scenario);
}

/* ---- Traces ------------------------------------------------------------------------------------------------------ */

static void a_probe_plays_its_window_of_the_trace(void **state)
{
    (void)state;
    int64_t arrivals_ns[100];
    struct trace_file trace = {.count = 100, .arrival_ns = arrivals_ns};
    struct scenario *scenario = make_scenario();
    for (uint32_t i = 0; i < 100; i++)
        arrivals_ns[i] = i * NS_PER_S;
    scenario->load.arrivals = ARRIVAL_TRACE;
    scenario->load.trace_window_start_ns = 20 * NS_PER_S;
    scenario->load.trace_window_ns = 40 * NS_PER_S; /* rows 20 to 59 */
    struct trace_rows rows = probe_trace_rows(&scenario->load, &trace);
    assert_int_equal(rows.first, 20);
    assert_int_equal(rows.count, 40);
    struct probe_input input = {
        .scenario = scenario, .recorded = &trace, .rate_micro_per_s = 1000000, .seeds = 3, .requests = 10};
    for (input.seed = 1; input.seed <= 3; input.seed++) {
        struct load load = probe_load(&input);
        int64_t first = 20 + 15 * (int64_t)(input.seed - 1); /* the windows reach from end to end */
        assert_int_equal(load.trace_window_start_ns, first * NS_PER_S);
        assert_int_equal(load.trace_window_ns, 9 * NS_PER_S + 1);
        assert_int_equal(load.requests, 10);
        /* Ten arrivals span nine seconds, forty span 39: the window is played at the pace of the whole. */
        assert_in_range(load.rate_micro_per_s, 1083333, 1083334);
        assert_in_range(load.warmup_ns, NS_PER_S * 12 / 13, NS_PER_S * 12 / 13 + 1000);
    }
    arrivals_ns[35] = arrivals_ns[36] = arrivals_ns[37] = 38 * NS_PER_S; /* a burst stays one */
    input.seed = 2;
    assert_in_range(probe_load(&input).rate_micro_per_s, 1624999, 1625001);
    input.seed = 1;
    input.requests = 1000; /* more than there are */
    struct load load = probe_load(&input);
    assert_int_equal(load.trace_window_start_ns, 20 * NS_PER_S);
    assert_int_equal(load.trace_window_ns, 39 * NS_PER_S + 1);

    scenario->load.trace_window_start_ns = 0;
    scenario->load.trace_window_ns = 0;
    rows = probe_trace_rows(&scenario->load, &trace);
    assert_int_equal(rows.first, 0);
    assert_int_equal(rows.count, 100);
    free(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_the_rows),
        cmocka_unit_test(passing_is_every_percentile_below_its_limit),
        cmocka_unit_test(giving_up_early_never_changes_the_verdict),
        cmocka_unit_test(requests_turned_away_miss_every_target),
        cmocka_unit_test(throughput_is_that_of_the_middle),
        cmocka_unit_test(what_is_stored_is_what_is_read),
        cmocka_unit_test(a_probe_plays_its_window_of_the_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
