/* Whole runs of the real nodes: the short cuts change nothing, the same seed gives the same trace on any number of
 * threads, whatever the order of equal times the invariants hold, and every way a run may end is told apart. */
#include "base/arith.h"
#include "run/recorder.h"
#include "sim/sim_run.h"
#include "support/scenarios.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct run_result run(const struct scenario *scenario, uint64_t seed, const struct sim_options *options,
                             struct run_listener listener)
{
    struct deployment_choice choice = deployment_default(scenario);
    struct run_result result;
    run_play(&sim_backend,
             &(struct run_config){
                 .scenario = scenario, .choice = &choice, .seed = seed, .options = options, .listener = listener},
             &result);
    if (result.status != RUN_COMPLETE && result.text[0] != '\0')
        print_message("%s\n", result.text);
    return result;
}

static void assert_same(const struct run_result *a, const struct run_result *b)
{
    assert_int_equal(a->summary.trace_hash, b->summary.trace_hash);
    assert_int_equal(a->summary.completed, b->summary.completed);
    assert_int_equal(a->summary.end_ns, b->summary.end_ns);
    assert_int_equal(a->steps, b->steps);
    assert_memory_equal(a->itl, b->itl, ITL_BUCKETS * sizeof *a->itl);
    for (uint32_t i = 0; i < a->instance_count; i++) {
        assert_int_equal(a->instances[i].busy_ns, b->instances[i].busy_ns);
        assert_int_equal(a->instances[i].decode_tokens, b->instances[i].decode_tokens);
        assert_int_equal(a->instances[i].nic_bytes, b->instances[i].nic_bytes);
        assert_int_equal(a->instances[i].requests, b->instances[i].requests);
    }
}

/* Loads that strain different parts: light, close to saturation, beyond it with a small pool (preemptions), mixed. */
static void variants(struct scenario *scenario, uint32_t which)
{
    static const uint32_t rates[] = {4, 30, 60};
    if (which == 3) {
        scenario_llama_70b_mixed(scenario, 2, 10, 300);
        return;
    }
    scenario_llama_70b(scenario, 2, 2, rates[which], 300);
    if (which == 2) {
        scenario->pools[1].memory_utilization_permille = 240; /* a few hundred pages beside the weights */
        scenario->pools[1].scheduler.headroom_tokens = 16;
        scenario->load.abort_permille = 100;
        scenario->load.abort_after_ns = 5 * NS_PER_S;
    }
}

static void short_cuts_change_nothing(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    for (uint32_t which = 0; which < 4; which++) {
        variants(scenario, which);
        struct run_result fast = run(scenario, 5, NULL, (struct run_listener){0});
        for (uint32_t p = 0; p < scenario->pool_count; p++)
            scenario->pools[p].scheduler.repeat_max = 1;
        struct run_result plain = run(scenario, 5, &(struct sim_options){.plain = true}, (struct run_listener){0});
        assert_int_equal(fast.status, RUN_COMPLETE);
        assert_int_equal(plain.status, RUN_COMPLETE);
        assert_same(&fast, &plain);
        assert_true(fast.queue_events < plain.queue_events);
        if (which == 2)
            assert_true(fast.instances[2].preemptions + fast.instances[2].page_wait_ns > 0);
        run_result_free(&fast);
        run_result_free(&plain);
    }
    free(scenario);
}

/* ---- Threads ------------------------------------------------------------------------------------------------------
 */

struct sweep {
    const struct scenario *scenario;
    const struct run_models *models;
    uint64_t hash[6];
    uint32_t first, step;
};

static void *sweep(void *argument)
{
    struct sweep *job = argument;
    for (uint32_t i = job->first; i < 6; i += job->step) {
        struct run_result result;
        struct deployment_choice choice = deployment_default(job->scenario);
        run_play(&sim_backend,
                 &(struct run_config){.scenario = job->scenario,
                                      .choice = &choice,
                                      .seed = i,
                                      .options = &(struct sim_options){.models = job->models}},
                 &result);
        job->hash[i] = result.summary.trace_hash ^ result.summary.final_draw ^ result.summary.event_count;
        run_result_free(&result);
    }
    return NULL;
}

static void threads_change_nothing(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    variants(scenario, 1);
    struct deployment_choice choice = deployment_default(scenario);
    struct run_models models;
    char error[1000];
    assert_true(run_models_make(scenario, &choice, &models, error, sizeof error));
    struct sweep alone = {.scenario = scenario, .models = &models, .step = 1};
    sweep(&alone);
    struct sweep half[2];
    pthread_t thread[2];
    for (uint32_t t = 0; t < 2; t++) {
        half[t] = (struct sweep){.scenario = scenario, .models = &models, .first = t, .step = 2};
        assert_int_equal(pthread_create(&thread[t], NULL, sweep, &half[t]), 0);
    }
    for (uint32_t t = 0; t < 2; t++)
        assert_int_equal(pthread_join(thread[t], NULL), 0);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(alone.hash[i], half[i % 2].hash[i]);
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(alone.hash[i], alone.hash[j]);
    }
    run_models_free(&models);
    free(scenario);
}

/* ---- Invariants ----------------------------------------------------------------------------------------------------
 */

static void invariants_hold_for_every_order_of_ties(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    for (uint32_t which = 0; which < 4; which++) {
        for (uint64_t shuffle = 0; shuffle < 4; shuffle++) {
            variants(scenario, which);
            scenario->load.arrivals = ARRIVAL_BURST; /* ties by the dozen */
            scenario->load.burst_size = 12;
            struct run_result result =
                run(scenario, 9, &(struct sim_options){.shuffle_seed = shuffle, .check_every = 1},
                    (struct run_listener){0});
            assert_int_equal(result.status, RUN_COMPLETE);
            const struct run_summary *s = &result.summary;
            assert_int_equal(s->arrived, 300);
            assert_int_equal(s->completed + s->rejected + s->failed + s->aborted, 300);
            assert_int_equal(s->failed + s->rejected, 0);
            run_result_free(&result);
        }
    }
    free(scenario);
}

/* ---- Rows ----------------------------------------------------------------------------------------------------------
 */

struct rows {
    uint32_t count;
    uint32_t stop_after;
    uint32_t met;
    uint64_t tokens;
};

static bool on_row(void *self, const struct request_row *row, bool met)
{
    struct rows *rows = self;
    rows->count++;
    rows->met += met;
    rows->tokens += row->outcome == OUTCOME_COMPLETED ? row->output_tokens : 0;
    if (row->outcome == OUTCOME_COMPLETED) {
        int64_t sum_ns = 0;
        for (uint32_t i = 0; i < BOUNDARY_FIRST_TOKEN; i++)
            sum_ns += row->boundary_ns[i + 1] - row->boundary_ns[i];
        assert_int_equal(sum_ns, row_ttft_ns(row));
        assert_true(row->boundary_ns[BOUNDARY_PREFILL_STARTED] > row->boundary_ns[BOUNDARY_DISPATCHED]);
        assert_true(row->boundary_ns[BOUNDARY_FIRST_TOKEN] > row->boundary_ns[BOUNDARY_DECODE_STARTED]);
    }
    return rows->count != rows->stop_after;
}

static void rows_stream_and_stop(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    variants(scenario, 1);
    struct rows rows = {0};
    struct run_result result = run(scenario, 2, NULL, (struct run_listener){.self = &rows, .row = on_row});
    assert_int_equal(result.status, RUN_COMPLETE);
    assert_int_equal(rows.count, 300);
    assert_int_equal(rows.met, result.summary.met_all_targets);
    assert_int_equal(rows.tokens, result.summary.output_tokens);
    /* Every output token came from a decode step, and each but the first of a request has a gap. */
    uint64_t decoded = 0;
    uint64_t gaps = 0;
    for (uint32_t i = 0; i < result.instance_count; i++)
        decoded += result.instances[i].decode_tokens;
    for (uint32_t i = 0; i < ITL_BUCKETS; i++)
        gaps += result.itl[i];
    assert_int_equal(decoded, rows.tokens);
    assert_int_equal(gaps, rows.tokens - 300);
    run_result_free(&result);

    rows = (struct rows){.stop_after = 17};
    result = run(scenario, 2, NULL, (struct run_listener){.self = &rows, .row = on_row});
    assert_int_equal(result.status, RUN_STOPPED);
    assert_int_equal(rows.count, 17);
    assert_int_equal(result.summary.completed, 17);
    run_result_free(&result);
    free(scenario);
}

static void the_warm_up_does_not_count(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    variants(scenario, 0);
    scenario->load.warmup_ns = 30 * NS_PER_S;
    struct run_result result = run(scenario, 2, NULL, (struct run_listener){0});
    assert_int_equal(result.summary.completed, 300);
    assert_in_range(result.summary.counted, 100, 250); /* 4 a second for 75 s, the first 30 of them left out */
    assert_int_equal(result.summary.start_ns, scenario->load.warmup_ns);
    run_result_free(&result);
    free(scenario);
}

/* ---- Loads ---------------------------------------------------------------------------------------------------------
 */

struct concurrency {
    uint32_t live;
    uint32_t peak;
};

static void count_live(void *self, int64_t now_ns, const struct trace_record *record)
{
    (void)now_ns;
    struct concurrency *c = self;
    c->live += record->kind == TRACE_ARRIVED;
    c->live -= record->kind == TRACE_FINISHED;
    c->peak = max_u32(c->peak, c->live);
}

static void a_closed_loop_keeps_its_clients_busy(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    variants(scenario, 0);
    scenario->load.arrivals = ARRIVAL_CLOSED;
    scenario->load.concurrency = 24;
    struct concurrency c = {0};
    struct run_result result = run(scenario, 2, NULL, (struct run_listener){.self = &c, .trace = count_live});
    assert_int_equal(result.status, RUN_COMPLETE);
    assert_int_equal(result.summary.completed, 300);
    assert_int_equal(c.peak, 24);
    assert_int_equal(c.live, 0);
    run_result_free(&result);
    free(scenario);
}

/* One prompt of one chunk at a time: its pages, given back before the step ends, are the peak. */
static void the_peak_of_pages_is_that_of_a_prompt(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    scenario_llama_70b(scenario, 1, 1, 1, 20);
    scenario->load.arrivals = ARRIVAL_CLOSED;
    scenario->load.concurrency = 1;
    scenario->load.prompt.low = scenario->load.prompt.high = 1000;
    struct run_result result = run(scenario, 2, NULL, (struct run_listener){0});
    assert_int_equal(result.status, RUN_COMPLETE);
    uint32_t page = scenario->pools[0].page_tokens;
    assert_int_equal(result.instances[0].pages_held_peak, ceil_div_u32(999, page));
    assert_true(result.instances[1].pages_held_peak >= ceil_div_u32(1000, page));
    run_result_free(&result);
    free(scenario);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    variants(scenario, 0);
    scenario->pools[0].memory_utilization_permille = 10;
    struct deployment_choice choice = deployment_default(scenario);
    struct run_result result;
    run_play(&sim_backend, &(struct run_config){.scenario = scenario, .choice = &choice, .seed = 1}, &result);
    assert_int_equal(result.status, RUN_REFUSED);
    assert_non_null(strstr(result.text, "pool prefill"));
    run_result_free(&result);
    free(scenario);
}

/* Without deadlines a lost request for prefill is never missed: work is left and nothing would ever happen. */
static struct message_fault deaf_prefillers(void *self, int64_t now_ns, uint32_t source, uint32_t destination,
                                            const void *bytes, size_t length)
{
    (void)self;
    (void)now_ns;
    (void)source;
    (void)bytes;
    (void)length;
    return (struct message_fault){.copies = destination == 1 || destination == 2 ? 0 : 1};
}

static void a_dead_lock_is_diagnosed(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    variants(scenario, 0);
    scenario->messenger.deadline_ns = TIME_NEVER;
    struct sim_faults hooks = {.message = deaf_prefillers};
    struct deployment_choice choice = deployment_default(scenario);
    struct run_result result;
    run_play(&sim_backend,
             &(struct run_config){
                 .scenario = scenario, .choice = &choice, .seed = 1, .options = &(struct sim_options){.hooks = &hooks}},
             &result);
    assert_int_equal(result.status, RUN_NO_PROGRESS);
    assert_non_null(strstr(result.text, "300 requests are unfinished"));
    assert_non_null(strstr(result.text, "decode-0: "));
    run_result_free(&result);
    free(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_cuts_change_nothing),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(invariants_hold_for_every_order_of_ties),
        cmocka_unit_test(rows_stream_and_stop),
        cmocka_unit_test(the_warm_up_does_not_count),
        cmocka_unit_test(a_closed_loop_keeps_its_clients_busy),
        cmocka_unit_test(the_peak_of_pages_is_that_of_a_prompt),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_dead_lock_is_diagnosed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
