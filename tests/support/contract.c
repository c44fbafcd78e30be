/* See contract.h. */
#include "support/contract.h"

#include "base/arith.h"
#include "serve/token_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct bench {
    const struct contract_runtime *runtime;
    struct probe *probe;
};

/* Runs one act on node 0 (and another on node 1) under several seeds; `look` judges each. */
struct story {
    uint32_t nodes;
    void (*act)(struct probe *probe, const struct event *event);
    void (*other)(struct probe *probe, const struct event *event);
    void (*look)(struct bench *bench);
};

static void tell(void **state, const struct story *story)
{
    const struct contract_runtime *runtime = *state;
    for (uint64_t seed = 0; seed < runtime->seeds; seed++) {
        struct bench bench = {.runtime = runtime};
        uint32_t context[64] = {0};
        void *world = runtime->make(runtime, story->nodes, seed, &bench.probe);
        bench.probe[0].act = story->act;
        bench.probe[0].context = context;
        if (story->nodes > 1) {
            bench.probe[1].act = story->other;
            bench.probe[1].context = context;
        }
        runtime->run(world);
        story->look(&bench);
        runtime->free(world);
    }
}

static struct paged_write make_write(uint32_t ticket, uint32_t immediate, uint32_t units, uint32_t gate)
{
    static const uint32_t pages[4] = {3, 1, 4, 1};
    return (struct paged_write){
        .ticket = ticket,
        .gate = gate,
        .destination = 1,
        .immediate = immediate,
        .unit_count = units,
        .source_page_count = units,
        .destination_page_count = units,
        .source_pages = pages,
        .destination_pages = pages,
        .plan = probe_plan(CONTRACT_LAYERS, CONTRACT_PAGE_BYTES),
    };
}

static void launch_prefill(struct probe *probe, uint32_t ticket, uint64_t tokens)
{
    struct step_group group = {.prefill_sequences = 1, .prefill_tokens = tokens, .prefill_pairs = tokens};
    struct step_launch launch = {
        .ticket = ticket, .yield = TOKEN_CLOCK_ONE, .repeat_max = 1, .group_count = 1, .groups = &group};
    rt_launch(probe->rt, &launch);
    memset(&group, 0xa5, sizeof group);
}

static void launch_decode(struct probe *probe, uint32_t ticket, uint32_t repeat_max)
{
    struct step_group group = {.decode_sequences = 3, .decode_context = 300};
    struct step_launch launch = {
        .ticket = ticket, .yield = TOKEN_CLOCK_ONE, .repeat_max = repeat_max, .group_count = 1, .groups = &group};
    rt_launch(probe->rt, &launch);
    memset(&group, 0xa5, sizeof group); /* arguments die with the call */
    memset(&launch, 0xa5, sizeof launch);
}

/* ---- Rules 1 and 2: no operation calls back, time stands still ------------------------------------------------------
 */

static void everything_at_once(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_START)
        return;
    int64_t now_ns = probe->rt->now_ns;
    uint32_t count = probe->count;
    rt_timer_set(probe->rt, 0, now_ns);
    rt_timer_set(probe->rt, 1, now_ns - 1);
    rt_send(probe->rt, 0, "self", 4);
    rt_send(probe->rt, 1, "other", 5);
    launch_prefill(probe, 1, 100);
    struct paged_write write = make_write(7, 0x500001, 1, 1);
    rt_write_post(probe->rt, &write);
    rt_write_stop(probe->rt, 99);
    rt_launch_end(probe->rt, 99);
    rt_immediate_expect(probe->rt, 5, 1);
    rt_immediate_expect(probe->rt, 5, 0);
    rt_trace(probe->rt, TRACE_LATE, TRACE_NO_REQUEST, 1, 2);
    assert_true(probe->rt->now_ns == now_ns);
    assert_int_equal(probe->count, count);
}

static void everything_was_answered(struct bench *bench)
{
    const struct probe *probe = &bench->probe[0];
    assert_int_equal(probe_count(probe, EVENT_TIMER), 2);
    assert_int_equal(probe_count(probe, EVENT_MESSAGE), 1);
    assert_memory_equal(probe_nth(probe, EVENT_MESSAGE, 0)->bytes, "self", 4);
    assert_int_equal(probe_count(probe, EVENT_STEPS_DONE), 1);
    assert_int_equal(probe_nth(probe, EVENT_STEPS_DONE, 0)->event.id, 1);
    assert_int_equal(probe_count(probe, EVENT_WRITE_DONE), 1);
    assert_int_equal(probe_nth(probe, EVENT_WRITE_DONE, 0)->event.id, 7);
    assert_int_equal(probe_nth(probe, EVENT_WRITE_DONE, 0)->event.status, WRITE_OK);
    assert_int_equal(probe_nth(probe, EVENT_WRITE_DONE, 0)->event.count, CONTRACT_LAYERS);
    assert_int_equal(bench->probe[1].count, 2); /* nobody expected the immediate */
}

void contract_operations_never_call_back(void **state)
{
    tell(state, &(struct story){2, everything_at_once, NULL, everything_was_answered});
}

/* ---- Messages: in order per pair; pointers die
 * ----------------------------------------------------------------------- */

static void chatter(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_START)
        return;
    for (uint32_t i = 0; i < 40; i++) {
        unsigned char bytes[PROBE_BYTES] = {(unsigned char)i};
        /* Longer and shorter ones, so that an order by size would show. */
        rt_send(probe->rt, i % 3, bytes, 1 + (i * 29) % (PROBE_BYTES - 1));
        memset(bytes, 0xee, sizeof bytes);
    }
    rt_send(probe->rt, 1, NULL, 0);
}

static void came_in_order(struct bench *bench)
{
    for (uint32_t node = 0; node < 3; node++) {
        const struct probe *probe = &bench->probe[node];
        uint32_t expected = (40 - node + 2) / 3;
        assert_int_equal(probe_count(probe, EVENT_MESSAGE), expected + (node == 1));
        for (uint32_t n = 0; n < expected; n++) {
            const struct probe_event *entry = probe_nth(probe, EVENT_MESSAGE, n);
            uint32_t i = node + 3 * n;
            assert_int_equal(entry->event.id, 0);
            assert_int_equal(entry->bytes[0], i);
            assert_int_equal(entry->event.count, 1 + (i * 29) % (PROBE_BYTES - 1));
        }
    }
    assert_int_equal(probe_nth(&bench->probe[1], EVENT_MESSAGE, 13)->event.count, 0);
}

void contract_messages_keep_their_order(void **state)
{
    tell(state, &(struct story){3, chatter, NULL, came_in_order});
}

static void send_two(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_START)
        return;
    rt_send(probe->rt, 1, "first", 5);
    rt_timer_set(probe->rt, 0, probe->rt->now_ns + NS_PER_MS);
}

static void first_bytes_are_gone(struct bench *bench)
{
    const struct probe_event *entry = probe_nth(&bench->probe[1], EVENT_MESSAGE, 0);
    assert_memory_equal(entry->bytes, "first", 5);
    if (!bench->runtime->poisons)
        return;
    /* Test runtimes keep the memory and overwrite it, so that looking at it late shows. */
    const unsigned char *stale = entry->event.data;
    for (int i = 0; i < 5; i++)
        assert_int_equal(stale[i], 0xa5);
}

void contract_pointers_die_with_the_call(void **state)
{
    tell(state, &(struct story){2, send_two, NULL, first_bytes_are_gone});
}

/* ---- Timers
 * ---------------------------------------------------------------------------------------------------------- */

static void set_and_reset(struct probe *probe, const struct event *event)
{
    int64_t now_ns = probe->rt->now_ns;
    uint32_t *step = probe->context;
    if (event->kind == EVENT_START) {
        rt_timer_set(probe->rt, 0, now_ns + 10 * NS_PER_MS);
        rt_timer_set(probe->rt, 0, now_ns + 20 * NS_PER_MS); /* later */
        rt_timer_set(probe->rt, 1, now_ns + 90 * NS_PER_MS);
        rt_timer_set(probe->rt, 1, now_ns + 30 * NS_PER_MS); /* earlier */
        rt_timer_set(probe->rt, 2, now_ns + 5 * NS_PER_MS);
        rt_timer_set(probe->rt, 2, TIME_NEVER);
        rt_timer_set(probe->rt, 3, TIME_NEVER); /* was not set: nothing */
        rt_timer_set(probe->rt, 4, now_ns + 40 * NS_PER_MS);
        rt_timer_set(probe->rt, 5, now_ns + 40 * NS_PER_MS);
    }
    /* Whichever of the two comes first calls the other one back, though it is on its way. */
    if (event->kind == EVENT_TIMER && event->id >= 4 && *step == 0) {
        *step = 1;
        rt_timer_set(probe->rt, 4 + 5 - event->id, TIME_NEVER);
        rt_timer_set(probe->rt, event->id, now_ns + NS_PER_MS); /* a slot may be set again from its own event */
    }
}

static void each_fired_once(struct bench *bench)
{
    const struct probe *probe = &bench->probe[0];
    assert_int_equal(probe_count(probe, EVENT_TIMER), 4);
    int64_t start_ns = probe_nth(probe, EVENT_START, 0)->at_ns;
    assert_int_equal(probe_nth(probe, EVENT_TIMER, 0)->event.id, 0);
    assert_true(probe_nth(probe, EVENT_TIMER, 0)->at_ns >= start_ns + 20 * NS_PER_MS);
    assert_int_equal(probe_nth(probe, EVENT_TIMER, 1)->event.id, 1);
    assert_true(probe_nth(probe, EVENT_TIMER, 1)->at_ns >= start_ns + 30 * NS_PER_MS);
    assert_int_equal(probe_nth(probe, EVENT_TIMER, 2)->event.id, probe_nth(probe, EVENT_TIMER, 3)->event.id);
    assert_true(probe_nth(probe, EVENT_TIMER, 3)->at_ns >= start_ns + 41 * NS_PER_MS);
}

void contract_timers_are_replaced(void **state)
{
    tell(state, &(struct story){1, set_and_reset, NULL, each_fired_once});
}

/* ---- Writes and immediates
 * ------------------------------------------------------------------------------------------- */

#define TWO_WRITES 0x100002u

static void expect_two(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_START)
        return;
    rt_immediate_expect(probe->rt, TWO_WRITES, 4 * CONTRACT_LAYERS + 2);
    rt_immediate_expect(probe->rt, UINT32_MAX, CONTRACT_LAYERS); /* all bits set is an immediate like any other */
    rt_immediate_expect(probe->rt, 3, 1);
    rt_immediate_expect(probe->rt, 3, 0); /* forgotten before anything came */
    rt_immediate_expect(probe->rt, 0x200004, CONTRACT_LAYERS);
    rt_immediate_expect(probe->rt, 0x300004, CONTRACT_LAYERS); /* the next generation of the slot */
    rt_immediate_expect(probe->rt, 0x200004, 0);               /* must not touch it */
    rt_send(probe->rt, 0, "go", 2);                            /* expected before any peer may write */
}

static void write_all(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_MESSAGE)
        return;
    struct paged_write writes[] = {
        make_write(1, TWO_WRITES, 1, STEP_NONE), make_write(2, TWO_WRITES, 3, STEP_NONE),
        make_write(3, UINT32_MAX, 1, STEP_NONE), make_write(4, 3, 1, STEP_NONE),
        make_write(5, 0x200004, 1, STEP_NONE),   make_write(6, 0x300004, 1, STEP_NONE),
    };
    writes[1].tail_writes = 2;
    writes[1].tail_bytes = CONTRACT_TAIL_BYTES;
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        rt_write_post(probe->rt, &writes[i]);
    memset(writes, 0xa5, sizeof writes);
}

static void counted_exactly(struct bench *bench)
{
    const struct probe *probe = &bench->probe[1];
    assert_int_equal(probe_count(probe, EVENT_IMMEDIATE), 3);
    bool seen[3] = {false};
    for (uint32_t n = 0; n < 3; n++) {
        const struct probe_event *entry = probe_nth(probe, EVENT_IMMEDIATE, n);
        uint32_t which = entry->event.id == TWO_WRITES ? 0 : entry->event.id == UINT32_MAX ? 1 : 2;
        assert_true(which != 2 || entry->event.id == 0x300004);
        assert_false(seen[which]);
        seen[which] = true;
        assert_int_equal(entry->event.count, which == 0 ? 4 * CONTRACT_LAYERS + 2 : CONTRACT_LAYERS);
    }
    const struct probe *writer = &bench->probe[0];
    assert_int_equal(probe_count(writer, EVENT_WRITE_DONE), 6);
    uint32_t tickets = 0;
    for (uint32_t n = 0; n < 6; n++) {
        const struct probe_event *entry = probe_nth(writer, EVENT_WRITE_DONE, n);
        assert_int_equal(entry->event.status, WRITE_OK);
        assert_int_equal(entry->event.count, CONTRACT_LAYERS);
        tickets |= 1u << entry->event.id;
    }
    assert_int_equal(tickets, 0x7e);
}

void contract_immediates_are_counted(void **state)
{
    tell(state, &(struct story){2, write_all, expect_two, counted_exactly});
}

#define STEP_TOKENS 5000

/* A prefill step with its write, then a second write for the same step after it has ended. */
static void write_behind_a_step(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START) {
        launch_prefill(probe, 11, STEP_TOKENS);
        struct paged_write write = make_write(1, 1, 2, 11);
        rt_write_post(probe->rt, &write);
    }
    if (event->kind == EVENT_STEPS_DONE) {
        struct paged_write write = make_write(2, 2, 2, 11);
        rt_write_post(probe->rt, &write);
    }
}

static void expect_both(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_START)
        return;
    rt_immediate_expect(probe->rt, 1, 2 * CONTRACT_LAYERS);
    rt_immediate_expect(probe->rt, 2, 2 * CONTRACT_LAYERS);
}

static void gates_have_opened(struct bench *bench)
{
    const struct probe *writer = &bench->probe[0];
    const struct probe *reader = &bench->probe[1];
    assert_int_equal(probe_count(writer, EVENT_WRITE_DONE), 2);
    assert_int_equal(probe_count(reader, EVENT_IMMEDIATE), 2);
    int64_t step_ns = probe_nth(writer, EVENT_STEPS_DONE, 0)->at_ns;
    for (uint32_t n = 0; n < 2; n++) {
        /* The last layer is complete, or nearly, when its step is: nothing can have landed before seven of eight. On a
         * clock the end of the step may be heard of late. */
        int64_t start_ns = probe_nth(writer, EVENT_START, 0)->at_ns;
        int64_t length_ns = bench->runtime->real ? STEP_TOKENS * CONTRACT_PREFILL_TOKEN_NS : step_ns - start_ns;
        assert_true(probe_nth(reader, EVENT_IMMEDIATE, n)->at_ns - start_ns > length_ns / 8 * 7);
    }
    assert_true(probe_nth(reader, EVENT_IMMEDIATE, 1)->at_ns > step_ns);
}

void contract_gates_open_with_their_step(void **state)
{
    tell(state, &(struct story){2, write_behind_a_step, expect_both, gates_have_opened});
}

static void stop_midway(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START) {
        launch_prefill(probe, 1, 50000);
        struct paged_write write = make_write(21, 9, 1, 1);
        rt_write_post(probe->rt, &write);
        write = make_write(22, 10, 1, STEP_NONE);
        rt_write_post(probe->rt, &write);
        rt_timer_set(probe->rt, 0, probe->rt->now_ns + 2 * NS_PER_MS);
    }
    if (event->kind == EVENT_TIMER) {
        rt_write_stop(probe->rt, 21);
        rt_write_stop(probe->rt, 21);
    }
    if (event->kind == EVENT_WRITE_DONE)
        rt_write_stop(probe->rt, event->id); /* answered: ignored */
}

static void stopped_and_answered(struct bench *bench)
{
    const struct probe *probe = &bench->probe[0];
    assert_int_equal(probe_count(probe, EVENT_WRITE_DONE), 2);
    for (uint32_t n = 0; n < 2; n++) {
        const struct event *event = &probe_nth(probe, EVENT_WRITE_DONE, n)->event;
        bool stopped = event->id == 21 && event->count < CONTRACT_LAYERS;
        assert_int_equal(event->status, stopped ? WRITE_STOPPED : WRITE_OK);
        assert_true(event->id == 21 || event->count == CONTRACT_LAYERS);
        /* In virtual time it is known how far it was: five layers of 625 us by 2 ms are three. */
        if (event->id == 21 && bench->runtime->exact)
            assert_int_equal(event->count, 3);
    }
    assert_int_equal(probe_count(&bench->probe[1], EVENT_IMMEDIATE), 0);
}

void contract_writes_stop_where_they_are(void **state)
{
    tell(state, &(struct story){2, stop_midway, NULL, stopped_and_answered});
}

/* ---- Steps
 * ----------------------------------------------------------------------------------------------------------- */

static void repeat(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        launch_decode(probe, 1, 30);
    if (event->kind == EVENT_STEPS_DONE && event->id < 40)
        launch_decode(probe, event->id + 1, 30 - (event->id % 3));
}

static void reported_within_bounds(struct bench *bench)
{
    const struct probe *probe = &bench->probe[0];
    assert_int_equal(probe_count(probe, EVENT_STEPS_DONE), 40);
    for (uint32_t n = 0; n < 40; n++) {
        const struct event *event = &probe_nth(probe, EVENT_STEPS_DONE, n)->event;
        uint32_t repeat_max = n == 0 ? 30 : 30 - n % 3;
        assert_int_equal(event->id, n + 1);
        assert_int_equal(event->status, 0);
        assert_int_equal(event->count, bench->runtime->plain ? 1 : repeat_max);
    }
}

void contract_undisturbed_repetitions_run_to_their_end(void **state)
{
    tell(state, &(struct story){1, repeat, NULL, reported_within_bounds});
}

/* Steps that would take twenty seconds. */
#define LONG 1000000

static void repeat_long(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        launch_decode(probe, 1, LONG);
}

static void disturb(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        rt_send(probe->rt, 0, "!", 1);
}

static void ended_at_next_boundary(struct bench *bench)
{
    const struct probe *probe = &bench->probe[0];
    const struct probe_event *message = probe_nth(probe, EVENT_MESSAGE, 0);
    const struct probe_event *done = probe_nth(probe, EVENT_STEPS_DONE, 0);
    assert_int_equal(probe_count(probe, EVENT_STEPS_DONE), 1);
    assert_true(done->at_ns >= message->at_ns);
    assert_true(done->event.count >= 1 && done->event.count < (bench->runtime->real ? LONG : 1000));
    if (bench->runtime->exact)
        assert_int_equal(done->event.count, 1); /* 3 us into a step of 20 */
}

void contract_an_event_ends_a_repetition(void **state)
{
    tell(state, &(struct story){2, repeat_long, disturb, ended_at_next_boundary});
}

static void launch_and_end(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_START)
        return;
    launch_decode(probe, 5, LONG);
    rt_launch_end(probe->rt, 4);
    rt_launch_end(probe->rt, 5);
}

static void one_step_was_done(struct bench *bench)
{
    const struct event *event = &probe_nth(&bench->probe[0], EVENT_STEPS_DONE, 0)->event;
    assert_int_equal(event->id, 5);
    /* On a clock some steps may have passed before the second call was made. */
    assert_true(bench->runtime->real ? event->count < LONG : event->count == 1);
}

void contract_launch_end_ends_a_repetition(void **state)
{
    tell(state, &(struct story){1, launch_and_end, NULL, one_step_was_done});
}
