/* The run (run/run.h) over a backend of a few lines: what arrives when, who is answered, how it ends, what is stored.
 *
 * The backend serves every request in SERVICE_NS, as many at a time as there are. Records come at once, or LAG_NS late,
 * as those of other processes do.
 */
#include "base/arith.h"
#include "run/stored_run.h"
#include "support/results_fixture.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SERVICE_NS (10 * NS_PER_MS)
#define LAG_NS (25 * NS_PER_MS)
#define REQUESTS_MAX 512

/* What a test wants of the backend, and what the run asked of it. */
struct wish {
    bool refuses;   /* make() fails */
    uint32_t holds; /* this request never ends; 0: none */
    bool unsound;   /* end() breaks the run */
    bool samples;
    uint32_t made;
    uint32_t freed;
    uint32_t ended;
    uint32_t counts; /* count_from() */
    int64_t counted_ns;
    uint32_t answers; /* answer_soon() */
    uint32_t arrived;
    uint32_t aborts;
    int64_t arrived_ns[REQUESTS_MAX];
    int64_t ended_ns[REQUESTS_MAX];
    uint32_t live_most;
};

struct fake {
    struct run *run;
    struct wish *wish;
    int64_t now_ns;
    int64_t wake_ns;
    bool begun;
    uint32_t live;
    uint32_t first; /* of arrived, not ended: they end in their order */
    uint32_t told;  /* ends that were recorded */
    uint32_t answer[REQUESTS_MAX];
    uint32_t answer_count;
};

static struct trace_record record_of(uint32_t request, enum trace_kind kind)
{
    return (struct trace_record){.kind = (uint16_t)kind, .request = request, .a = 1, .b = 1};
}

static void *fake_make(struct run *run, struct user_error *error)
{
    struct wish *wish = (struct wish *)(uintptr_t)run->config->options;
    wish->made++;
    if (wish->refuses) {
        user_error_set(error, NULL, 0, NULL, "not on this backend");
        return NULL;
    }
    struct fake *fake = calloc(1, sizeof *fake);
    CHECK(fake != NULL);
    fake->run = run;
    fake->wish = wish;
    fake->wake_ns = TIME_NEVER;
    return fake;
}

static void fake_free(void *self)
{
    ((struct fake *)self)->wish->freed++;
    free(self);
}

static int64_t fake_now_ns(const void *self)
{
    return ((const struct fake *)self)->now_ns;
}

static uint32_t fake_live(const void *self)
{
    return ((const struct fake *)self)->live;
}

static void fake_arrive(void *self, const struct event *event)
{
    struct fake *fake = self;
    struct wish *wish = fake->wish;
    if (event->status == ARRIVAL_ABORT) {
        wish->aborts++;
        return;
    }
    uint32_t request = (uint32_t)event->id;
    assert_int_equal(request, wish->arrived); /* each once, in order */
    assert_true(request < REQUESTS_MAX);
    wish->arrived_ns[wish->arrived++] = fake->now_ns;
    fake->live++;
    wish->live_most = max_u32(wish->live_most, fake->live);
    struct trace_record record = record_of(request, TRACE_ARRIVED);
    run_trace(fake->run, fake->now_ns, &record);
}

static void fake_wake(void *self, int64_t at_ns)
{
    ((struct fake *)self)->wake_ns = at_ns;
}

static void fake_answer_soon(void *self, uint32_t request)
{
    struct fake *fake = self;
    fake->answer[fake->answer_count++] = request;
    fake->wish->answers++;
}

static void fake_count_from(void *self, int64_t from_ns)
{
    struct fake *fake = self;
    fake->wish->counts++;
    fake->wish->counted_ns = from_ns;
}

static void fake_stop(void *self)
{
    CHECK(self != NULL); /* turns are short */
}

static void tell_end(struct fake *fake)
{
    uint32_t request = fake->told++;
    struct trace_record record = record_of(request, TRACE_ABORTED);
    run_trace(fake->run, fake->now_ns, &record);
}

static void end_one(struct fake *fake)
{
    uint32_t request = fake->first++;
    fake->wish->ended_ns[request] = fake->now_ns;
    fake->live--;
    if (fake->run->backend->rows_at_once)
        tell_end(fake);
    else if (run_answers(fake->run))
        run_ended(fake->run, request);
}

/* The instant at which the next of them happens; TIME_NEVER: none is to come. */
static int64_t end_ns(const struct fake *fake)
{
    const struct wish *wish = fake->wish;
    bool held = wish->holds != 0 && fake->first == wish->holds;
    return fake->first == wish->arrived || held ? TIME_NEVER : wish->arrived_ns[fake->first] + SERVICE_NS;
}

static int64_t tell_ns(const struct fake *fake)
{
    return fake->told == fake->first ? TIME_NEVER : fake->wish->ended_ns[fake->told] + LAG_NS;
}

/* All of one kind at a time, until the run has enough. */
static bool fake_turn(void *self)
{
    struct fake *fake = self;
    if (!fake->begun) {
        fake->begun = true;
        run_begin(fake->run);
    }
    int64_t next_ns = min_i64(fake->wake_ns, min_i64(end_ns(fake), tell_ns(fake)));
    if (next_ns == TIME_NEVER) {
        if (fake->live > 0)
            run_break(fake->run, RUN_NO_PROGRESS, "%u requests stand still", fake->live);
        return false;
    }
    fake->now_ns = max_i64(fake->now_ns, next_ns);
    if (end_ns(fake) == next_ns)
        end_one(fake);
    else if (tell_ns(fake) == next_ns)
        tell_end(fake);
    else
        run_feed(fake->run);
    for (uint32_t i = 0; i < fake->answer_count; i++)
        run_answer(fake->run, fake->answer[i]);
    fake->answer_count = 0;
    return fake->run->backend->rows_at_once || fake->live > 0 || !run_fed(fake->run);
}

static void fake_end(void *self)
{
    struct fake *fake = self;
    fake->wish->ended++;
    while (fake->told < fake->first)
        tell_end(fake);
    if (!fake->wish->unsound)
        return;
    run_break(fake->run, RUN_INVARIANT, "something is left");
    run_break(fake->run, RUN_REFUSED, "a second word");
}

static void fake_summarize(void *self, struct run_result *result)
{
    struct fake *fake = self;
    const struct run_listener *listener = &fake->run->config->listener;
    result->summary.trace_hash = 7;
    result->summary.event_count = fake->wish->arrived;
    struct sample_row row = {.node = 1, .counter = "clock_offset_ns", .value = -3};
    if (fake->wish->samples && listener->sample != NULL)
        listener->sample(listener->self, &row);
}

#define FAKE_OPERATIONS                                                                                                \
    .make = fake_make, .free = fake_free, .now_ns = fake_now_ns, .live = fake_live, .arrive = fake_arrive,             \
    .wake = fake_wake, .answer_soon = fake_answer_soon, .count_from = fake_count_from, .turn = fake_turn,              \
    .stop = fake_stop, .end = fake_end, .summarize = fake_summarize

static const struct run_backend prompt_backend = {.stored_as = RESULTS_SIM, .rows_at_once = true, FAKE_OPERATIONS};
static const struct run_backend late_backend = {.stored_as = RESULTS_REAL, .record = RECORD_SAMPLES, FAKE_OPERATIONS};
static const struct run_backend *const both[] = {&prompt_backend, &late_backend};

/* ---- What runs --------------------------------------------------------------------------------------------------- */

struct heard {
    uint32_t rows;
    uint32_t enough; /* rows after which the run is to end; 0: never */
    uint32_t conversations[REQUESTS_MAX];
};

static bool on_row(void *self, const struct request_row *row, bool met)
{
    (void)met;
    struct heard *heard = self;
    heard->conversations[row->request] = row->conversation;
    return ++heard->rows != heard->enough;
}

static struct scenario *scenario_made(enum arrival_kind arrivals, uint32_t requests)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    assert_non_null(scenario);
    scenario_llama_70b(scenario, 1, 1, 100, requests);
    scenario->load.arrivals = arrivals;
    scenario->plan.goal = PLAN_HIGHEST_RATE;
    memset(scenario->identity, 'a', sizeof scenario->identity - 1);
    snprintf(scenario->path, sizeof scenario->path, "none.lua");
    return scenario;
}

static void play(const struct run_backend *backend, const struct scenario *scenario,
                 const struct workload_arrivals *arrivals, struct wish *wish, struct heard *heard,
                 struct run_result *result)
{
    struct deployment_choice choice = deployment_default(scenario);
    run_play(backend,
             &(struct run_config){.scenario = scenario,
                                  .choice = &choice,
                                  .seed = 1,
                                  .arrivals = arrivals,
                                  .options = wish,
                                  .listener = {.self = heard, .row = on_row}},
             result);
    assert_int_equal(wish->freed, wish->made > 0 && !wish->refuses ? 1 : 0);
}

/* ---- Arrivals ---------------------------------------------------------------------------------------------------- */

static void open_arrivals_come_when_they_are_due(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct scenario *scenario = scenario_made(ARRIVAL_UNIFORM, 20);
        struct wish wish = {0};
        struct heard heard = {0};
        struct run_result result;
        play(both[k], scenario, NULL, &wish, &heard, &result);
        assert_int_equal(result.status, RUN_COMPLETE);
        assert_int_equal(wish.arrived, 20);
        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(wish.arrived_ns[i], i * 10 * NS_PER_MS);
        assert_int_equal(heard.rows, 20);
        assert_int_equal(wish.answers, 0);
        assert_int_equal(wish.counts, 0); /* from the start */
        assert_int_equal(wish.ended, 1);
        assert_int_equal(result.summary.arrived, 20);
        assert_int_equal(result.summary.end_ns, 19 * 10 * NS_PER_MS + SERVICE_NS);
        assert_int_equal(result.summary.trace_hash, 7);
        assert_int_equal(result.instance_count, 2);
        assert_string_equal(result.instances[1].name, "decode-0");
        assert_int_equal(result.gpus, 8);
        run_result_free(&result);
        free(scenario);
    }
}

static void aborts_are_given_on(void **state)
{
    (void)state;
    struct scenario *scenario = scenario_made(ARRIVAL_UNIFORM, 20);
    scenario->load.abort_permille = 1000;
    scenario->load.abort_after_ns = NS_PER_S;
    struct wish wish = {0};
    struct heard heard = {0};
    struct run_result result;
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(result.status, RUN_COMPLETE);
    assert_int_equal(wish.arrived, 20);
    assert_int_equal(wish.aborts, 20); /* of requests that have ended, too: the backend knows which */
    run_result_free(&result);
    free(scenario);
}

static void a_client_of_a_closed_loop_sends_when_it_is_answered(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct scenario *scenario = scenario_made(ARRIVAL_CLOSED, 11);
        scenario->load.concurrency = 3;
        struct wish wish = {0};
        struct heard heard = {0};
        struct run_result result;
        play(both[k], scenario, NULL, &wish, &heard, &result);
        assert_int_equal(result.status, RUN_COMPLETE);
        assert_int_equal(wish.arrived, 11);
        assert_int_equal(wish.answers, 11);
        assert_int_equal(wish.live_most, 3);
        for (uint32_t i = 0; i < 11; i++)
            assert_int_equal(wish.arrived_ns[i], i / 3 * SERVICE_NS);
        assert_int_equal(heard.rows, 11);
        run_result_free(&result);
        free(scenario);
    }
}

/* A row says whose turn it was, although its conversation has gone on before a late row comes. */
static void a_conversation_goes_on_when_it_is_answered(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct scenario *scenario = scenario_made(ARRIVAL_SESSIONS, 200);
        struct load *load = &scenario->load;
        load->rate_micro_per_s = 4000000;
        load->session_turns = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 4, .high = 4};
        load->session_think_ns = NS_PER_MS; /* much less than records are late */
        load->session_block_tokens = 64;
        struct wish wish = {0};
        struct heard heard = {0};
        struct run_result result;
        play(both[k], scenario, NULL, &wish, &heard, &result);
        assert_int_equal(result.status, RUN_COMPLETE);
        assert_int_equal(wish.arrived, 200);
        assert_int_equal(heard.rows, 200);
        uint32_t last[REQUESTS_MAX] = {0}; /* by conversation: 1 + its last request */
        uint32_t turns[REQUESTS_MAX] = {0};
        for (uint32_t i = 0; i < 200; i++) {
            uint32_t conversation = heard.conversations[i];
            assert_in_range(conversation, 1, 200);
            if (last[conversation] > 0)
                assert_true(wish.arrived_ns[i] >= wish.ended_ns[last[conversation] - 1]);
            last[conversation] = i + 1;
            assert_true(++turns[conversation] <= 4);
        }
        run_result_free(&result);
        free(scenario);
    }
}

static void what_is_played_again_comes_when_it_came(void **state)
{
    (void)state;
    static const int64_t at_ns[] = {3, 500, 500, 7000000, 90000000};
    const struct workload_arrivals arrivals = {.count = 5, .at_ns = at_ns};
    for (int k = 0; k < 2; k++) {
        struct scenario *scenario = scenario_made(ARRIVAL_CLOSED, 11);
        scenario->load.concurrency = 3;
        struct wish wish = {0};
        struct heard heard = {0};
        struct run_result result;
        play(both[k], scenario, &arrivals, &wish, &heard, &result);
        assert_int_equal(result.status, RUN_COMPLETE);
        assert_int_equal(wish.arrived, 5);
        assert_memory_equal(wish.arrived_ns, at_ns, sizeof at_ns);
        assert_int_equal(wish.answers, 0);
        run_result_free(&result);
        free(scenario);
    }
}

static void what_counts_begins_with_the_first_request_behind_the_warm_up(void **state)
{
    (void)state;
    struct scenario *scenario = scenario_made(ARRIVAL_UNIFORM, 20);
    scenario->load.warmup_requests = 4;
    struct wish wish = {0};
    struct heard heard = {0};
    struct run_result result;
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(wish.counts, 1);
    assert_int_equal(wish.counted_ns, 4 * 10 * NS_PER_MS);
    assert_int_equal(result.summary.start_ns, 4 * 10 * NS_PER_MS);
    run_result_free(&result);
    /* A run that ends before its warm-up has no time that counts, and none that is negative. */
    scenario->load.warmup_requests = 0;
    scenario->load.warmup_ns = 3600 * NS_PER_S;
    wish = (struct wish){0};
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(result.status, RUN_COMPLETE);
    assert_int_equal(result.summary.start_ns, result.summary.end_ns);
    run_result_free(&result);
    free(scenario);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void a_row_ends_the_run(void **state)
{
    (void)state;
    struct scenario *scenario = scenario_made(ARRIVAL_UNIFORM, 20);
    struct wish wish = {0};
    struct heard heard = {.enough = 3};
    struct run_result result;
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(result.status, RUN_STOPPED);
    assert_int_equal(heard.rows, 3);
    assert_int_equal(wish.ended, 0);
    assert_int_equal(result.summary.aborted, 3); /* of what was seen */
    run_result_free(&result);
    free(scenario);
}

static void what_a_backend_refuses_is_said(void **state)
{
    (void)state;
    struct scenario *scenario = scenario_made(ARRIVAL_UNIFORM, 20);
    struct wish wish = {.refuses = true};
    struct heard heard = {0};
    struct run_result result;
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(result.status, RUN_REFUSED);
    assert_string_equal(result.text, "not on this backend");
    assert_int_equal(run_exit(result.status), EXIT_USER);
    run_result_free(&result);
    /* A load without an end is refused before there is a backend. */
    scenario->load.requests = 0;
    wish = (struct wish){0};
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(result.status, RUN_REFUSED);
    assert_int_equal(wish.made, 0);
    run_result_free(&result);
    free(scenario);
}

static void other_ends(void **state)
{
    (void)state;
    struct scenario *scenario = scenario_made(ARRIVAL_UNIFORM, 20);
    struct wish wish = {.holds = 5};
    struct heard heard = {0};
    struct run_result result;
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(result.status, RUN_NO_PROGRESS);
    assert_string_equal(result.text, "15 requests stand still");
    assert_int_equal(wish.ended, 0);
    assert_int_equal(run_exit(result.status), EXIT_NO_PROGRESS);
    run_result_free(&result);

    wish = (struct wish){.unsound = true};
    play(&prompt_backend, scenario, NULL, &wish, &heard, &result);
    assert_int_equal(result.status, RUN_INVARIANT);
    assert_string_equal(result.text, "something is left"); /* the first thing that goes wrong */
    assert_int_equal(run_exit(result.status), EXIT_INVARIANT);
    assert_int_equal(run_exit(RUN_STOPPED), EXIT_INTERRUPTED);
    assert_int_equal(run_exit(RUN_COMPLETE), EXIT_OK);
    run_result_free(&result);
    free(scenario);
}

/* ---- Storing ----------------------------------------------------------------------------------------------------- */

static enum run_status store(struct results *results, const struct run_backend *backend, struct wish *wish,
                             int64_t replay_of, pthread_mutex_t *lock, int64_t *run, struct user_error *error)
{
    static const struct scenario_override sets[] = {{"load.rate", "1"}, {"seed", "4"}, {"load.rate", "2"}};
    struct scenario *scenario = scenario_made(ARRIVAL_UNIFORM, 20);
    struct deployment_choice choice = deployment_default(scenario);
    struct run_config config = {
        .scenario = scenario, .choice = &choice, .seed = 1, .sets = sets, .set_count = 3, .options = wish};
    struct stored_run what = {.store = results,
                              .backend = backend,
                              .config = &config,
                              .kind = RESULTS_RUN,
                              .replay_of = replay_of,
                              .lock = lock};
    *error = (struct user_error){.set = false};
    enum run_status status = stored_run(&what, run, NULL, error);
    free(scenario);
    return status;
}

static void a_run_is_stored_whole(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *results = fixture_open(path, RESULTS_WRITE);
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct user_error error;
    for (int k = 0; k < 2; k++) {
        struct wish wish = {.samples = k == 1};
        int64_t run;
        assert_int_equal(store(results, both[k], &wish, 0, k == 0 ? NULL : &lock, &run, &error), RUN_COMPLETE);
        struct run_report report;
        assert_true(results_run_read(results, run, &report, &error));
        assert_string_equal(report.backend, k == 0 ? "sim" : "real");
        assert_int_equal(report.requests, 20);
        assert_int_equal(report.aborted, 20);
        assert_string_equal(report.params, "load.rate=2\nseed=4"); /* of a path set twice the last */
        assert_int_equal(report.instances[0].clock_offset_ns, k == 0 ? 0 : -3);
        run_report_free(&report);
    }
    fixture_close(results);
    fixture_remove(path);
}

static void what_does_not_complete_leaves_nothing(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *results = fixture_open(path, RESULTS_WRITE);
    struct user_error error;
    struct run_report report;
    int64_t run = 0;
    /* It cannot begin: there is no run 999. */
    struct wish wish = {0};
    assert_int_equal(store(results, &prompt_backend, &wish, 999, NULL, &run, &error), RUN_REFUSED);
    assert_true(error.set);
    assert_int_equal(wish.made, 0);
    /* It ends otherwise, rows streaming or waiting. */
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (int k = 0; k < 2; k++) {
        wish = (struct wish){.unsound = true};
        assert_int_equal(store(results, &prompt_backend, &wish, 0, k == 0 ? NULL : &lock, &run, &error), RUN_INVARIANT);
        assert_string_equal(error.text, "none.lua: something is left");
    }
    assert_int_equal(results_run_lookup(results, "last", &error), 0);
    /* And a run after it is stored as if nothing had been. */
    wish = (struct wish){0};
    assert_int_equal(store(results, &prompt_backend, &wish, 0, NULL, &run, &error), RUN_COMPLETE);
    int64_t first = run;
    wish = (struct wish){0};
    assert_int_equal(store(results, &late_backend, &wish, first, NULL, &run, &error), RUN_COMPLETE);
    assert_true(results_run_read(results, run, &report, &error));
    assert_int_not_equal(run, first);
    assert_non_null(strstr(report.params, "replay="));
    run_report_free(&report);
    fixture_close(results);
    fixture_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_arrivals_come_when_they_are_due),
        cmocka_unit_test(aborts_are_given_on),
        cmocka_unit_test(a_client_of_a_closed_loop_sends_when_it_is_answered),
        cmocka_unit_test(a_conversation_goes_on_when_it_is_answered),
        cmocka_unit_test(what_is_played_again_comes_when_it_came),
        cmocka_unit_test(what_counts_begins_with_the_first_request_behind_the_warm_up),
        cmocka_unit_test(a_row_ends_the_run),
        cmocka_unit_test(what_a_backend_refuses_is_said),
        cmocka_unit_test(other_ends),
        cmocka_unit_test(a_run_is_stored_whole),
        cmocka_unit_test(what_does_not_complete_leaves_nothing),
    };
    return cmocka_run_group_tests_name("run_driver", tests, NULL, NULL);
}
