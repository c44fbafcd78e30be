/* Trace records become rows: spans add up, attempts and preemptions re-stamp, late records change nothing, memory is
 * reused. */
#include "base/arith.h"
#include "run/recorder.h"
#include "support/death.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FRONT 0
#define PREFILLER 1
#define DECODER 2
#define OTHER 3

struct sink {
    uint32_t count;
    struct request_row last;
    bool last_met;
};

static void keep(void *self, const struct request_row *row, bool met)
{
    struct sink *sink = self;
    sink->count++;
    sink->last = *row;
    sink->last_met = met;
}

static struct recorder *make(struct sink *sink)
{
    *sink = (struct sink){0};
    struct recorder_config config = {
        .warmup_ns = 100,
        .targets = {.count = 3,
                    .item = {{.metric = TARGET_TTFT, .limit_ns = 700},
                             {.metric = TARGET_TPOT, .limit_ns = 10},
                             {.metric = TARGET_ITL, .limit_ns = 1}}},
        .node_count = 4,
        .sink = {.row = keep, .self = sink},
    };
    return recorder_make(&config);
}

static void say(struct recorder *recorder, int64_t now_ns, uint16_t node, enum trace_kind kind, uint32_t request,
                uint64_t a, uint64_t b)
{
    recorder_trace(recorder, now_ns,
                   &(struct trace_record){.kind = (uint16_t)kind, .node = node, .request = request, .a = a, .b = b});
}

static void arrive(struct recorder *recorder, int64_t now_ns, uint32_t request)
{
    say(recorder, now_ns, FRONT, TRACE_ARRIVED, request, 500, 11);
    say(recorder, now_ns, FRONT, TRACE_ROUTED, request, DECODER, PREFILLER);
}

static void assert_boundaries(const struct request_row *row, const int64_t expected[BOUNDARY_COUNT])
{
    for (int i = 0; i < BOUNDARY_COUNT; i++)
        assert_int_equal(row->boundary_ns[i], expected[i]);
}

static void one_request(void **state)
{
    (void)state;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    arrive(recorder, 100, 7);
    say(recorder, 110, DECODER, TRACE_RECEIVED, 7, 0, 0);
    say(recorder, 110, DECODER, TRACE_ADMIT_WAIT, 7, 8, 3);
    say(recorder, 150, DECODER, TRACE_DISPATCHED, 7, PREFILLER, 1000);
    say(recorder, 200, PREFILLER, TRACE_PREFILL_STARTED, 7, 1, 64);
    say(recorder, 600, PREFILLER, TRACE_PREFILL_FINISHED, 7, 1, 0);
    say(recorder, 640, DECODER, TRACE_READY, 7, 1, 0);
    say(recorder, 650, DECODER, TRACE_DECODE_STARTED, 7, 0, 0);
    say(recorder, 670, DECODER, TRACE_FIRST_TOKEN, 7, 0, 0);
    assert_int_equal(recorder_live(recorder), 1);
    say(recorder, 770, DECODER, TRACE_FINISHED, 7, 11, 0);
    say(recorder, 780, DECODER, TRACE_RELEASED, 7, 1, 0);
    assert_int_equal(recorder_live(recorder), 0);
    assert_int_equal(sink.count, 1);
    assert_boundaries(&sink.last, (const int64_t[]){100, 110, 150, 200, 600, 640, 650, 670, 770});
    assert_int_equal(sink.last.outcome, OUTCOME_COMPLETED);
    assert_int_equal(sink.last.cached_tokens, 64);
    assert_int_equal(sink.last.decoder, DECODER);
    assert_int_equal(sink.last.prefiller, PREFILLER);
    assert_false(sink.last.warmup);
    assert_int_equal(row_ttft_ns(&sink.last), 570);
    assert_int_equal(row_tpot_ns(&sink.last), 10);
    assert_int_equal(row_e2e_ns(&sink.last), 670);
    assert_true(sink.last_met);
    assert_int_equal(recorder_node(recorder, DECODER)->page_wait_ns, 40);
    assert_int_equal(recorder_node(recorder, DECODER)->requests, 1);
    assert_int_equal(recorder_node(recorder, PREFILLER)->requests, 1);
    struct run_summary summary = {0};
    recorder_summary(recorder, &summary);
    assert_int_equal(summary.met_all_targets, 1);
    assert_int_equal(summary.output_tokens, 11);
    recorder_free(recorder);
}

/* The last bytes land before the prefill step ends: nothing of the transfer is exposed. */
static void hidden_transfer(void **state)
{
    (void)state;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    arrive(recorder, 0, 1);
    say(recorder, 10, DECODER, TRACE_RECEIVED, 1, 0, 0);
    say(recorder, 20, DECODER, TRACE_DISPATCHED, 1, PREFILLER, 9);
    say(recorder, 30, PREFILLER, TRACE_PREFILL_STARTED, 1, 4, 0);
    say(recorder, 90, DECODER, TRACE_READY, 1, 4, 0);
    say(recorder, 95, PREFILLER, TRACE_PREFILL_FINISHED, 1, 4, 0);
    say(recorder, 96, DECODER, TRACE_DECODE_STARTED, 1, 0, 0);
    say(recorder, 99, DECODER, TRACE_FIRST_TOKEN, 1, 0, 0);
    say(recorder, 99, DECODER, TRACE_FINISHED, 1, 1, 0);
    assert_boundaries(&sink.last, (const int64_t[]){0, 10, 20, 30, 90, 90, 96, 99, 99});
    assert_true(sink.last.warmup);
    assert_int_equal(row_tpot_ns(&sink.last), 0);
    struct run_summary summary = {0};
    recorder_summary(recorder, &summary);
    assert_int_equal(summary.completed, 1);
    assert_int_equal(summary.counted, 0); /* of the warm-up */
    recorder_free(recorder);
}

/* A second attempt at another prefiller; records of the first come late, between and after those of the second. */
static void second_attempt(void **state)
{
    (void)state;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    arrive(recorder, 0, 1);
    say(recorder, 10, DECODER, TRACE_RECEIVED, 1, 0, 0);
    say(recorder, 20, DECODER, TRACE_DISPATCHED, 1, OTHER, 9);
    say(recorder, 30, OTHER, TRACE_PREFILL_STARTED, 1, 4, 0);
    say(recorder, 40, FRONT, TRACE_ROUTED, 1, DECODER, PREFILLER);
    say(recorder, 50, DECODER, TRACE_RECEIVED, 1, 1, 0);
    say(recorder, 60, DECODER, TRACE_DISPATCHED, 1, PREFILLER, 9);
    say(recorder, 70, PREFILLER, TRACE_PREFILL_STARTED, 1, 5, 0);
    say(recorder, 75, OTHER, TRACE_PREFILL_FINISHED, 1, 4, 0);
    say(recorder, 80, PREFILLER, TRACE_PREFILL_FINISHED, 1, 5, 0);
    say(recorder, 85, OTHER, TRACE_PREFILL_STARTED, 1, 4, 0);
    say(recorder, 90, DECODER, TRACE_READY, 1, 5, 0);
    say(recorder, 91, DECODER, TRACE_DECODE_STARTED, 1, 0, 0);
    say(recorder, 92, DECODER, TRACE_FIRST_TOKEN, 1, 0, 0);
    say(recorder, 100, DECODER, TRACE_FINISHED, 1, 3, 0);
    assert_boundaries(&sink.last, (const int64_t[]){0, 50, 60, 70, 80, 90, 91, 92, 100});
    assert_int_equal(sink.last.attempts, 2);
    assert_int_equal(sink.last.prefiller, PREFILLER);
    recorder_free(recorder);
}

/* Preempted while decoding: what it takes to come back is decode time, and the first token stays where it was. */
static void preempted_after_first_token(void **state)
{
    (void)state;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    arrive(recorder, 0, 1);
    say(recorder, 10, DECODER, TRACE_RECEIVED, 1, 0, 0);
    say(recorder, 20, DECODER, TRACE_DISPATCHED, 1, PREFILLER, 9);
    say(recorder, 30, PREFILLER, TRACE_PREFILL_STARTED, 1, 4, 0);
    say(recorder, 40, PREFILLER, TRACE_PREFILL_FINISHED, 1, 4, 0);
    say(recorder, 45, DECODER, TRACE_READY, 1, 4, 0);
    say(recorder, 50, DECODER, TRACE_DECODE_STARTED, 1, 0, 0);
    say(recorder, 60, DECODER, TRACE_FIRST_TOKEN, 1, 0, 0);
    say(recorder, 70, DECODER, TRACE_PREEMPTED, 1, 500, 0);
    say(recorder, 70, DECODER, TRACE_ADMIT_WAIT, 1, 9, 9); /* pages enough: it waits for a hand-off slot */
    say(recorder, 80, DECODER, TRACE_DISPATCHED, 1, OTHER, 9);
    say(recorder, 90, OTHER, TRACE_PREFILL_STARTED, 1, 5, 0);
    say(recorder, 95, DECODER, TRACE_READY, 1, 5, 0);
    say(recorder, 200, DECODER, TRACE_FINISHED, 1, 3, 0);
    assert_boundaries(&sink.last, (const int64_t[]){0, 10, 20, 30, 40, 45, 50, 60, 200});
    assert_int_equal(sink.last.preemptions, 1);
    assert_int_equal(recorder_node(recorder, DECODER)->preemptions, 1);
    assert_int_equal(recorder_node(recorder, DECODER)->handoff_wait_ns, 10);
    assert_int_equal(recorder_node(recorder, DECODER)->page_wait_ns, 0);
    recorder_free(recorder);
}

/* Nothing to prefill; and a mixed instance, where nothing is dispatched. */
static void missing_boundaries(void **state)
{
    (void)state;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    arrive(recorder, 0, 1);
    say(recorder, 10, DECODER, TRACE_RECEIVED, 1, 0, 0);
    say(recorder, 50, DECODER, TRACE_READY, 1, 4, 0);
    say(recorder, 60, DECODER, TRACE_DECODE_STARTED, 1, 0, 0);
    say(recorder, 70, DECODER, TRACE_FIRST_TOKEN, 1, 0, 0);
    say(recorder, 90, DECODER, TRACE_FINISHED, 1, 3, 0);
    assert_boundaries(&sink.last, (const int64_t[]){0, 10, 50, 50, 50, 50, 60, 70, 90});

    arrive(recorder, 0, 2);
    say(recorder, 10, OTHER, TRACE_RECEIVED, 2, 0, 0);
    say(recorder, 20, OTHER, TRACE_PREFILL_STARTED, 2, 0, 0);
    say(recorder, 40, OTHER, TRACE_PREFILL_FINISHED, 2, 0, 0);
    say(recorder, 40, OTHER, TRACE_FIRST_TOKEN, 2, 0, 0);
    say(recorder, 90, OTHER, TRACE_FINISHED, 2, 3, 0);
    assert_boundaries(&sink.last, (const int64_t[]){0, 10, 10, 20, 40, 40, 40, 40, 90});
    recorder_free(recorder);
}

static void other_ends(void **state)
{
    (void)state;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    static const struct {
        enum trace_kind kind;
        enum outcome ends;
    } ends[] = {{TRACE_REJECTED, OUTCOME_REJECTED}, {TRACE_FAILED, OUTCOME_FAILED}, {TRACE_ABORTED, OUTCOME_ABORTED}};
    for (uint32_t i = 0; i < 3; i++) {
        arrive(recorder, 200, i);
        say(recorder, 200, FRONT, TRACE_REJECTED, i, REJECT_DUPLICATE, 0); /* of another with its id */
        assert_int_equal(recorder_live(recorder), 1);
        say(recorder, 300, FRONT, ends[i].kind, i, 4, 0);
        assert_int_equal(sink.last.outcome, ends[i].ends);
        assert_int_equal(sink.last.reason, 4);
        assert_int_equal(sink.last.boundary_ns[BOUNDARY_FINISHED], 300);
        assert_false(sink.last_met);
    }
    struct run_summary summary = {0};
    recorder_summary(recorder, &summary);
    assert_int_equal(summary.arrived, 3);
    assert_int_equal(summary.rejected, 1);
    assert_int_equal(summary.failed, 1);
    assert_int_equal(summary.aborted, 1);
    assert_int_equal(summary.counted, 2); /* an abort is the client's own */
    assert_int_equal(summary.met_all_targets, 0);
    recorder_free(recorder);
}

/* Ids far apart live together (one old request among a hundred thousand young ones), and rows are reused. */
static void many_requests(void **state)
{
    (void)state;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    arrive(recorder, 0, 0);
    for (uint32_t i = 1; i <= 100000; i++) {
        arrive(recorder, i, i);
        if (i > 10)
            say(recorder, i, FRONT, TRACE_REJECTED, i - 10, 1, 0);
    }
    assert_int_equal(recorder_live(recorder), 11);
    say(recorder, 100001, FRONT, TRACE_FAILED, 0, 1, 0);
    assert_int_equal(sink.last.request, 0);
    assert_int_equal(recorder_live(recorder), 10);
    recorder_free(recorder);
}

static void go_back(void *argument)
{
    (void)argument;
    struct sink sink;
    struct recorder *recorder = make(&sink);
    arrive(recorder, 100, 1);
    say(recorder, 90, DECODER, TRACE_RECEIVED, 1, 0, 0);
    say(recorder, 120, DECODER, TRACE_FIRST_TOKEN, 1, 0, 0);
    say(recorder, 130, DECODER, TRACE_FINISHED, 1, 3, 0);
}

static void boundaries_never_go_back(void **state)
{
    (void)state;
    assert_check_fails(go_back, NULL, "span_ns >= 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request),        cmocka_unit_test(hidden_transfer),
        cmocka_unit_test(second_attempt),     cmocka_unit_test(preempted_after_first_token),
        cmocka_unit_test(missing_boundaries), cmocka_unit_test(other_ends),
        cmocka_unit_test(many_requests),      cmocka_unit_test(boundaries_never_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
