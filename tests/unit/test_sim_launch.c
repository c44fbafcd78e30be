/* Steps in virtual time: repetitions in closed form and one launch a step give the same boundaries, an event ends a
 * repetition at the first boundary not before it, and queueing follows the formula. */
#include "base/arith.h"
#include "serve/token_clock.h"
#include "base/rng.h"
#include "support/probe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct probe_cost cost_growing = {
    .decode_fixed_ns = 5000,
    .decode_base_ns = 300,
    .slope_q32 = UINT64_C(7) << 30, /* 1.75 ns a token */
    .bend_context = 1500,
    .prefill_token_ns = 40,
    .layers = 4,
};

struct batch {
    uint32_t repeat_max;
    uint32_t stride; /* a launch stops at multiples of it, as a node's does where a sequence ends */
    uint32_t steps_wanted;
    uint32_t steps_done;
    uint32_t ticket;
    uint32_t groups;
    struct step_group group[3];
    int64_t timer_at_ns;
};

static void launch_batch(struct probe *probe, struct batch *batch)
{
    uint32_t left = batch->steps_wanted - batch->steps_done;
    if (left == 0)
        return;
    struct step_launch launch = {
        .ticket = ++batch->ticket,
        .yield = TOKEN_CLOCK_ONE,
        .repeat_max = min_u32(min_u32(batch->repeat_max, left), batch->stride - batch->steps_done % batch->stride),
        .group_count = batch->groups,
        .groups = batch->group,
    };
    rt_launch(probe->rt, &launch);
}

/* Keeps the batch decoding until it has done the steps wanted. */
static void decode(struct probe *probe, const struct event *event)
{
    struct batch *batch = probe->context;
    if (event->kind == EVENT_START) {
        if (batch->timer_at_ns > 0)
            rt_timer_set(probe->rt, 0, batch->timer_at_ns);
        launch_batch(probe, batch);
    }
    if (event->kind != EVENT_STEPS_DONE)
        return;
    assert_int_equal(event->id, batch->ticket);
    batch->steps_done += (uint32_t)event->count;
    for (uint32_t g = 0; g < batch->groups; g++)
        batch->group[g].decode_context += event->count * batch->group[g].decode_sequences;
    launch_batch(probe, batch);
}

static struct batch make_batch(uint32_t repeat_max, uint32_t groups)
{
    return (struct batch){

        .repeat_max = repeat_max,
        .stride = UINT32_MAX,
        .steps_wanted = 500,
        .groups = groups,
        .group = {{.decode_sequences = 5, .decode_context = 700},
                  {.decode_sequences = 9, .decode_context = 100},
                  {.decode_sequences = 0}},
    };
}

struct totals {
    int64_t end_ns;
    uint64_t queue_count;
    uint64_t steps;
    uint64_t tokens;
    uint64_t gap_tokens;
    int64_t busy_ns;
    uint64_t itl_hash;
};

static struct totals run_batch(uint32_t repeat_max, uint32_t groups, bool plain)
{
    struct world world;
    struct batch batch = make_batch(repeat_max, groups);
    world_make(&world, &(struct world_config){.nodes = 1, .groups = 3, .plain = plain, .message_ns = 1000},
               &cost_growing);
    world.probe[0].act = decode;
    world.probe[0].context = &batch;
    sim_start(world.sim);
    assert_int_equal(sim_advance(world.sim, TIME_NEVER / 4), SIM_IDLE);
    assert_int_equal(batch.steps_done, batch.steps_wanted);
    const struct sim_ledger *ledger = sim_ledger(world.sim, 0);
    struct totals totals = {
        .end_ns = sim_now_ns(world.sim),
        .queue_count = sim_queue_count(world.sim),
        .steps = ledger->steps,
        .tokens = ledger->decode_tokens,
        .busy_ns = ledger->busy_ns,
    };
    for (uint32_t i = 0; i < ITL_BUCKETS; i++) {
        totals.gap_tokens += sim_itl(world.sim)[i];
        totals.itl_hash = (totals.itl_hash ^ sim_itl(world.sim)[i]) * UINT64_C(0x9fb21c651e98df25);
    }
    world_free(&world);
    return totals;
}

/* The sum that the closed form must give, step by step from the definition. */
static int64_t expected_end_ns(uint32_t groups)
{
    struct batch batch = make_batch(1, groups);
    struct device device = probe_device(&cost_growing);
    int64_t end_ns = 0;
    for (uint32_t step = 0; step < batch.steps_wanted; step++) {
        struct step_time time;
        device.ops->step(device.model, batch.group, groups, &time);
        end_ns += time.total_ns;
        for (uint32_t g = 0; g < groups; g++)
            batch.group[g].decode_context += batch.group[g].decode_sequences;
    }
    return end_ns;
}

static void repetition_agrees_with_single_steps(void **state)
{
    (void)state;
    for (uint32_t groups = 1; groups <= 3; groups++) {
        struct totals repeated = run_batch(500, groups, false);
        struct totals single = run_batch(1, groups, false);
        struct totals plain = run_batch(500, groups, true);
        assert_int_equal(repeated.end_ns, expected_end_ns(groups));
        const struct totals *others[] = {&single, &plain};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(repeated.end_ns, others[i]->end_ns);
            assert_int_equal(repeated.steps, others[i]->steps);
            assert_int_equal(repeated.tokens, others[i]->tokens);
            assert_int_equal(repeated.busy_ns, others[i]->busy_ns);
            assert_int_equal(repeated.itl_hash, others[i]->itl_hash);
        }
        assert_int_equal(repeated.steps, 500);
        /* Every token but those of the very first step has one before it. */
        assert_int_equal(repeated.gap_tokens, repeated.tokens / 500 * 499);
        /* 8 + 16 + 32 + 64 * 6 < 500: the end of ten chunks, and the start. */
        assert_int_equal(repeated.queue_count, 11);
        assert_int_equal(single.queue_count, 501);
    }
}

/* Boundaries of the undisturbed batch, to aim events at. */
static int64_t boundary_ns(uint32_t step)
{
    struct batch batch = make_batch(1, 1);
    struct device device = probe_device(&cost_growing);
    int64_t end_ns = 0;
    for (uint32_t i = 0; i < step; i++) {
        struct step_time time;
        device.ops->step(device.model, batch.group, 1, &time);
        end_ns += time.total_ns;
        batch.group[0].decode_context += batch.group[0].decode_sequences;
    }
    return end_ns;
}

static void event_ends_repetition_at_next_boundary(void **state)
{
    (void)state;
    /* In the first chunk, at its end, in later ones; before, on and after a boundary. */
    static const uint32_t steps[] = {1, 2, 7, 8, 9, 23, 24, 25, 57, 119, 120, 121, 400, 499};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (int64_t shift_ns = -1; shift_ns <= 1; shift_ns++) {
            struct world world;
            struct batch batch = make_batch(500, 1);
            batch.timer_at_ns = boundary_ns(steps[i]) + shift_ns;
            world_make(&world, &(struct world_config){.nodes = 1, .message_ns = 1000}, &cost_growing);
            world.probe[0].act = decode;
            world.probe[0].context = &batch;
            sim_start(world.sim);
            sim_advance(world.sim, TIME_NEVER / 4);
            const struct probe_event *done = probe_nth(&world.probe[0], EVENT_STEPS_DONE, 0);
            uint32_t expected = steps[i] + (shift_ns > 0);
            assert_int_equal(done->event.count, expected);
            assert_int_equal(done->at_ns, boundary_ns(expected));
            assert_int_equal(sim_now_ns(world.sim), boundary_ns(500));
            world_free(&world);
        }
    }
}

static void end_from_within(struct probe *probe, const struct event *event)
{
    decode(probe, event);
    struct batch *batch = probe->context;
    if (event->kind == EVENT_START) {
        rt_launch_end(probe->rt, batch->ticket + 1); /* not this one: ignored */
        rt_launch_end(probe->rt, batch->ticket);
    }
}

static void launch_end_ends_at_the_first_boundary(void **state)
{
    (void)state;
    struct world world;
    struct batch batch = make_batch(500, 1);
    world_make(&world, &(struct world_config){.nodes = 1}, &cost_growing);
    world.probe[0].act = end_from_within;
    world.probe[0].context = &batch;
    sim_start(world.sim);
    sim_advance(world.sim, TIME_NEVER / 4);
    assert_int_equal(probe_nth(&world.probe[0], EVENT_STEPS_DONE, 0)->event.count, 1);
    assert_int_equal(probe_nth(&world.probe[0], EVENT_STEPS_DONE, 1)->event.count, 499);
    world_free(&world);
}

/* Two nodes in lockstep that send to each other at every boundary: ties everywhere. */
static void gossip(struct probe *probe, const struct event *event)
{
    decode(probe, event);
    struct batch *batch = probe->context;
    if (event->kind == EVENT_STEPS_DONE && batch->steps_done % 7 == 0)
        rt_send(probe->rt, 1 - probe->rt->node, &batch->steps_done, sizeof batch->steps_done);
    /* How many steps have been reported is what the two forms may differ in between. */
    if (event->kind == EVENT_MESSAGE || (event->kind == EVENT_STEPS_DONE && batch->steps_done % 7 == 0))
        rt_trace(probe->rt, TRACE_LATE, TRACE_NO_REQUEST, event->kind, event->id * (event->kind == EVENT_MESSAGE));
}

static uint64_t gossip_hash(bool plain, int64_t message_ns)
{
    /* Every step takes 6 us, so that a message of that latency arrives on a boundary. */
    static const struct probe_cost even = {.decode_fixed_ns = 6000, .layers = 1};
    struct world world;
    struct batch batches[2];
    world_make(&world, &(struct world_config){.nodes = 2, .plain = plain, .message_ns = message_ns}, &even);
    for (uint32_t i = 0; i < 2; i++) {
        batches[i] = make_batch(7, 1);
        batches[i].steps_wanted = 49;
        batches[i].stride = 7;
        world.probe[i].act = gossip;
        world.probe[i].context = &batches[i];
    }
    sim_start(world.sim);
    sim_advance(world.sim, TIME_NEVER / 4);
    uint64_t hash = sim_trace_hash(world.sim);
    assert_int_equal(probe_count(&world.probe[0], EVENT_MESSAGE), probe_count(&world.probe[1], EVENT_MESSAGE));
    assert_true(probe_count(&world.probe[0], EVENT_MESSAGE) >= 7);
    world_free(&world);
    return hash;
}

static void ties_are_resolved_alike(void **state)
{
    (void)state;
    for (int64_t message_ns = 5999; message_ns <= 6001; message_ns++)
        assert_int_equal(gossip_hash(false, message_ns), gossip_hash(true, message_ns));
}

/* ---- M/D/1 ------------------------------------------------------------------------------------------------------ */

/* Serves arrivals (EVENT_ARRIVAL) one at a time, in order, each with one prefill step of the same cost. */
struct queue {
    int64_t *arrived_ns;
    uint32_t arrived;
    uint32_t served;
    bool busy;
    uint64_t waited_ns;
};

static void serve_next(struct probe *probe, struct queue *queue)
{
    if (queue->busy || queue->served == queue->arrived)
        return;
    queue->busy = true;
    queue->waited_ns += (uint64_t)(probe->rt->now_ns - queue->arrived_ns[queue->served++]);
    struct step_group group = {.prefill_sequences = 1, .prefill_tokens = 1000, .prefill_pairs = 500500};
    struct step_launch launch = {
        .ticket = queue->served, .yield = TOKEN_CLOCK_ONE, .repeat_max = 1, .group_count = 1, .groups = &group};
    rt_launch(probe->rt, &launch);
}

static void serve(struct probe *probe, const struct event *event)
{
    struct queue *queue = probe->context;
    if (event->kind == EVENT_ARRIVAL)
        queue->arrived_ns[queue->arrived++] = probe->rt->now_ns;
    if (event->kind == EVENT_STEPS_DONE)
        queue->busy = false;
    serve_next(probe, queue);
}

static void deliver_arrival(struct sim *sim, void *self, uint64_t argument)
{
    (void)self;
    (void)argument;
    sim_deliver(sim, 0, &(struct event){.kind = EVENT_ARRIVAL});
}

/* Mean wait of M/D/1 (Pollaczek-Khinchine): rho / (2 (1 - rho)) services. */
static void queueing_follows_the_formula(void **state)
{
    (void)state;
    enum { CUSTOMERS = 150000 };
    const int64_t service_ns = 40000; /* 1000 tokens of 40 ns */
    static const uint32_t load_percent[] = {30, 60, 80};
    for (size_t i = 0; i < sizeof load_percent / sizeof *load_percent; i++) {
        struct world world;
        struct queue queue = {.arrived_ns = malloc(CUSTOMERS * sizeof(int64_t))};
        world_make(&world, &(struct world_config){.nodes = 1}, &cost_growing);
        world.probe[0].act = serve;
        world.probe[0].context = &queue;
        struct rng rng = rng_stream(7, i, RNG_ARRIVALS);
        int64_t at_ns = 0;
        for (uint32_t c = 0; c < CUSTOMERS; c++) {
            at_ns += (int64_t)rng_exponential(&rng, (uint64_t)service_ns * 100 / load_percent[i]);
            sim_call_at(world.sim, at_ns, (struct sim_call){.run = deliver_arrival});
        }
        assert_int_equal(sim_advance(world.sim, TIME_NEVER / 4), SIM_IDLE);
        assert_int_equal(queue.served, CUSTOMERS);
        double rho = load_percent[i] / 100.0;
        double expected = rho / (2 * (1 - rho)) * (double)service_ns;
        double mean = (double)queue.waited_ns / CUSTOMERS;
        assert_true(fabs(mean - expected) < 0.05 * expected);
        assert_int_equal(sim_ledger(world.sim, 0)->busy_ns, CUSTOMERS * service_ns);
        free(queue.arrived_ns);
        world_free(&world);
    }
}

/* Every launch takes so much longer, whatever its steps do. */
static void a_launch_costs_what_its_device_says(void **state)
{
    (void)state;
    static const struct probe_cost even = {.decode_base_ns = 1000, .layers = 1};
    static const uint32_t repeats[] = {1, 5};
    for (size_t k = 0; k < 2; k++) {
        for (int plain = 0; plain < 2; plain++) {
            struct world world;
            struct batch batch = make_batch(repeats[k], 1);
            batch.steps_wanted = 10;
            world_make(&world, &(struct world_config){.nodes = 1, .plain = plain != 0, .launch_ns = 70}, &even);
            world.probe[0].act = decode;
            world.probe[0].context = &batch;
            sim_start(world.sim);
            assert_int_equal(sim_advance(world.sim, TIME_NEVER / 4), SIM_IDLE);
            /* The plain form launches every step by itself. */
            uint64_t launches = plain != 0 ? 10 : 10 / repeats[k];
            assert_int_equal(sim_ledger(world.sim, 0)->steps, 10);
            assert_int_equal(sim_now_ns(world.sim), 10 * 1000 + 70 * launches);
            world_free(&world);
        }
    }
}

static void arm_and_send(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START && probe->rt->node == 0) {
        rt_send(probe->rt, 1, "a", 1);
        rt_timer_set(probe->rt, 0, 50000);
    } else if (event->kind == EVENT_TIMER) {
        rt_immediate_expect(probe->rt, 3, 7);
        rt_send(probe->rt, 1, "b", 1);
    }
}

static void a_message_waits_for_the_count_that_it_lets_rise(void **state)
{
    (void)state;
    static const struct probe_cost even = {.decode_base_ns = 1000, .layers = 1};
    struct world world;
    world_make(&world, &(struct world_config){.nodes = 2, .message_ns = 1000, .arm_ns = 300}, &even);
    world.probe[0].act = arm_and_send;
    sim_start(world.sim);
    sim_advance(world.sim, 80000);
    assert_int_equal(probe_count(&world.probe[1], EVENT_MESSAGE), 2);
    assert_int_equal(probe_nth(&world.probe[1], EVENT_MESSAGE, 0)->at_ns, 1000);
    assert_int_equal(probe_nth(&world.probe[1], EVENT_MESSAGE, 1)->at_ns, 51300);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repetition_agrees_with_single_steps),
        cmocka_unit_test(event_ends_repetition_at_next_boundary),
        cmocka_unit_test(launch_end_ends_at_the_first_boundary),
        cmocka_unit_test(ties_are_resolved_alike),
        cmocka_unit_test(a_launch_costs_what_its_device_says),
        cmocka_unit_test(a_message_waits_for_the_count_that_it_lets_rise),
        cmocka_unit_test(queueing_follows_the_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
