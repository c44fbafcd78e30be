/* What goes wrong in the simulated world: lost nodes, failed NICs, lost, late and doubled messages, late writes. */
#include "base/arith.h"
#include "serve/token_clock.h"
#include "support/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS 8
#define SUSPECT_NS (3 * NS_PER_MS)
#define FENCE_NS (2 * NS_PER_MS)

static const struct probe_cost cost = {
    .decode_fixed_ns = 20000,
    .prefill_token_ns = 100,
    .layers = LAYERS,
};

static void make(struct world *world, uint32_t nodes)
{
    struct world_config config = {
        .nodes = nodes,
        .message_ns = 5000,
        .watcher_ns = 6000,
        .ranks = 2,
        .detection = {.suspect_ns = SUSPECT_NS, .fence_ns = FENCE_NS},
    };
    world_make(world, &config, &cost);
}

static void run(struct world *world)
{
    sim_start(world->sim);
    assert_int_equal(sim_advance(world->sim, TIME_NEVER / 4), SIM_IDLE);
}

static void post(struct probe *probe, uint32_t ticket, uint32_t destination, uint32_t units)
{
    static const uint32_t pages[64];
    struct paged_write write = {
        .ticket = ticket,
        .gate = STEP_NONE,
        .destination = destination,
        .immediate = ticket,
        .unit_count = units,
        .source_page_count = units,
        .destination_page_count = units,
        .source_pages = pages,
        .destination_pages = pages,
        .plan = probe_plan(LAYERS, 1 << 20),
    };
    rt_write_post(probe->rt, &write);
}

static void kill_one(struct sim *sim, void *self, uint64_t node)
{
    (void)self;
    sim_kill(sim, (uint32_t)node);
}

static void everybody_is_busy(struct probe *probe, const struct event *event)
{
    uint32_t me = probe->rt->node;
    if (event->kind != EVENT_START)
        return;
    struct step_group group = {.prefill_sequences = 1, .prefill_tokens = 5000, .prefill_pairs = 12502500};
    struct step_launch launch = {
        .ticket = 1, .yield = TOKEN_CLOCK_ONE, .repeat_max = 1, .group_count = 1, .groups = &group};
    rt_launch(probe->rt, &launch);
    rt_timer_set(probe->rt, 0, 500000);
    rt_immediate_expect(probe->rt, 10, 40 * LAYERS);
    rt_immediate_expect(probe->rt, 11, 40 * LAYERS);
    /* Each writes to the next, which takes 40 MiB * 8 about 7 ms. */
    post(probe, 10 + me % 2, (me + 1) % 3, 40);
    rt_send(probe->rt, (me + 1) % 3, "?", 1);
}

static void a_killed_node_is_silent_and_missed(void **state)
{
    (void)state;
    const int64_t dead_ns = 100000;
    struct world world;
    make(&world, 3);
    for (uint32_t i = 0; i < 3; i++)
        world.probe[i].act = everybody_is_busy;
    sim_call_at(world.sim, dead_ns, (struct sim_call){.run = kill_one, .argument = 1});
    run(&world);
    assert_false(sim_alive(world.sim, 1));
    const struct probe *dead = &world.probe[1];
    assert_true(dead->log[dead->count - 1].at_ns < dead_ns);
    assert_int_equal(probe_count(dead, EVENT_STEPS_DONE) + probe_count(dead, EVENT_TIMER), 0);
    for (uint32_t i = 0; i < 3; i += 2) {
        const struct probe *peer = &world.probe[i];
        assert_int_equal(probe_count(peer, EVENT_PEER_LOST), 2);
        const struct probe_event *suspected = probe_nth(peer, EVENT_PEER_LOST, 0);
        const struct probe_event *fenced = probe_nth(peer, EVENT_PEER_LOST, 1);
        assert_int_equal(suspected->event.id, 1);
        assert_int_equal(suspected->event.status, PEER_SUSPECTED);
        assert_int_equal(suspected->at_ns, dead_ns + SUSPECT_NS);
        assert_int_equal(fenced->event.status, PEER_FENCED);
        assert_int_equal(fenced->at_ns, dead_ns + SUSPECT_NS + FENCE_NS);
        assert_int_equal(probe_count(peer, EVENT_STEPS_DONE), 1);
    }
    /* 0 wrote to the dead node and is told so; 2 wrote to 0, and nothing of the dead node's write to 2 is counted. */
    assert_int_equal(probe_nth(&world.probe[0], EVENT_WRITE_DONE, 0)->event.status, WRITE_FAILED);
    assert_int_equal(probe_nth(&world.probe[0], EVENT_WRITE_DONE, 0)->at_ns, dead_ns + SUSPECT_NS);
    assert_int_equal(probe_nth(&world.probe[2], EVENT_WRITE_DONE, 0)->event.status, WRITE_OK);
    assert_int_equal(probe_count(&world.probe[0], EVENT_IMMEDIATE), 1);
    assert_int_equal(probe_count(&world.probe[2], EVENT_IMMEDIATE), 0);
    world_free(&world);
}

/* ---- Restart
 * --------------------------------------------------------------------------------------------------------- */

static void write_to_the_dead(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        rt_timer_set(probe->rt, 0, 200000);
    if (event->kind == EVENT_TIMER) {
        rt_send(probe->rt, 1, "x", 1); /* on its way when the node comes back: meant for the one that died */
        post(probe, 1, 1, 1);
    }
    if (event->kind == EVENT_WRITE_DONE && event->status == WRITE_FAILED)
        rt_send(probe->rt, 1, "y", 1);
}

static void bring_back(struct sim *sim, void *self, uint64_t argument)
{
    (void)argument;
    sim_restart(sim, 1, (struct participant){.handle = probe_handle, .self = self});
}

static void a_restarted_node_is_another(void **state)
{
    (void)state;
    struct world world;
    make(&world, 2);
    world.probe[0].act = write_to_the_dead;
    struct probe reborn = {.rt = sim_runtime(world.sim, 1)};
    sim_call_at(world.sim, 100000, (struct sim_call){.run = kill_one, .argument = 1});
    sim_call_at(world.sim, 203000, (struct sim_call){.run = bring_back, .self = &reborn});
    run(&world);
    assert_int_equal(world.probe[1].count, 1);
    assert_int_equal(reborn.log[0].event.kind, EVENT_START);
    assert_int_equal(reborn.log[0].at_ns, 203000);
    /* What was sent to the dead is not for it; what is sent after it came back is. */
    assert_int_equal(probe_count(&reborn, EVENT_MESSAGE), 1);
    assert_int_equal(probe_nth(&reborn, EVENT_MESSAGE, 0)->bytes[0], 'y');
    assert_int_equal(probe_nth(&world.probe[0], EVENT_WRITE_DONE, 0)->at_ns, 200000 + SUSPECT_NS);
    probe_free(&reborn);
    world_free(&world);
}

/* ---- Messages
 * -------------------------------------------------------------------------------------------------------- */

static void send_five(struct probe *probe, const struct event *event)
{
    if (event->kind != EVENT_START)
        return;
    for (uint32_t i = 0; i < 5; i++)
        rt_send(probe->rt, 1, &"abcde"[i], 1);
}

static struct message_fault by_letter(void *self, int64_t now_ns, uint32_t source, uint32_t destination,
                                      const void *bytes, size_t length)
{
    uint32_t *calls = self;
    ++*calls;
    assert_int_equal(now_ns, 0);
    assert_int_equal(source, 0);
    assert_int_equal(destination, 1);
    assert_int_equal(length, 1);
    switch (*(const char *)bytes) {
    case 'b':
        return (struct message_fault){.copies = 0};
    case 'c':
        return (struct message_fault){.copies = 1, .delay_ns = NS_PER_MS};
    case 'e':
        return (struct message_fault){.copies = 2};
    default:
        return (struct message_fault){.copies = 1};
    }
}

static void messages_are_lost_delayed_and_doubled(void **state)
{
    (void)state;
    struct world world;
    uint32_t calls = 0;
    make(&world, 2);
    world.probe[0].act = send_five;
    sim_set_faults(world.sim, &(struct sim_faults){.self = &calls, .message = by_letter});
    run(&world);
    const struct probe *probe = &world.probe[1];
    assert_int_equal(calls, 5);
    assert_int_equal(probe_count(probe, EVENT_MESSAGE), 5);
    static const int64_t at_ns[] = {5000, 5000 + NS_PER_MS, 5000 + NS_PER_MS, 5000 + NS_PER_MS, 5000 + NS_PER_MS};
    for (uint32_t n = 0; n < 5; n++) {
        /* Behind the late one the order is kept. */
        assert_int_equal(probe_nth(probe, EVENT_MESSAGE, n)->bytes[0], "acdee"[n]);
        assert_int_equal(probe_nth(probe, EVENT_MESSAGE, n)->at_ns, at_ns[n]);
    }
    world_free(&world);
}

/* ---- Writes
 * ---------------------------------------------------------------------------------------------------------- */

static void write_one(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        post(probe, 1, 1, 4);
}

static void expect_one(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        rt_immediate_expect(probe->rt, 1, 4 * LAYERS);
}

static struct write_fault thirty_seconds(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write)
{
    (void)self;
    (void)now_ns;
    assert_int_equal(source, 0);
    assert_int_equal(write->ticket, 1);
    return (struct write_fault){.delay_ns = 30 * NS_PER_S};
}

static void cut_nic(struct sim *sim, void *self, uint64_t up)
{
    (void)self;
    sim_nic(sim, 0, 0, up != 0);
}

static void count_transfer(void *self, const struct transfer_row *row)
{
    struct transfer_row *kept = self;
    *kept = *row;
}

static void writes_are_late(void **state)
{
    (void)state;
    int64_t landed_ns[3];
    for (uint32_t how = 0; how < 3; how++) {
        struct world world;
        struct transfer_row row = {0};
        make(&world, 2);
        world.probe[0].act = write_one;
        world.probe[1].act = expect_one;
        sim_listen(world.sim, &(struct sim_listener){.self = &row, .transfer = count_transfer});
        if (how == 1)
            sim_set_faults(world.sim, &(struct sim_faults){.write = thirty_seconds});
        if (how == 2) {
            sim_call_at(world.sim, 100000, (struct sim_call){.run = cut_nic, .argument = 0});
            sim_call_at(world.sim, 7100000, (struct sim_call){.run = cut_nic, .argument = 1});
        }
        run(&world);
        landed_ns[how] = probe_nth(&world.probe[1], EVENT_IMMEDIATE, 0)->at_ns;
        assert_int_equal(row.landed_ns, landed_ns[how]);
        assert_int_equal(row.writes, 4 * LAYERS);
        assert_int_equal(row.bytes, 4 * LAYERS * UINT64_C(1048576));
        assert_int_equal(row.confirmed_ns, probe_nth(&world.probe[0], EVENT_WRITE_DONE, 0)->at_ns);
        world_free(&world);
    }
    /* 32 MiB at 46.8 GB/s are 717 us. */
    assert_in_range(landed_ns[0], 717000, 760000);
    assert_int_equal(landed_ns[1], landed_ns[0] + 30 * NS_PER_S);
    assert_in_range(landed_ns[2], landed_ns[0] + 7 * NS_PER_MS - 10, landed_ns[0] + 7 * NS_PER_MS + 10);
}

/* ---- Writes that outlive their sender, connections that end -------------------------------------------------------
 */

static void kill_lingering(struct sim *sim, void *self, uint64_t node)
{
    (void)self;
    sim_kill_lingering(sim, (uint32_t)node);
}

static void cut_both(struct sim *sim, void *self, uint64_t argument)
{
    (void)self;
    (void)argument;
    sim_cut(sim, 0, 1);
}

static void write_forty(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        post(probe, 1, 1, 40); /* about 7 ms */
}

static void expect_forty(struct probe *probe, const struct event *event)
{
    if (event->kind == EVENT_START)
        rt_immediate_expect(probe->rt, 1, 40 * LAYERS);
}

struct landings {
    uint32_t count;
    uint64_t writes;
    uint32_t first_piece;
    uint32_t last_piece;
};

static void count_landing(void *self, const struct sim_landing *landing)
{
    struct landings *landings = self;
    if (landings->count++ == 0)
        landings->first_piece = landing->piece;
    landings->last_piece = landing->piece;
    landings->writes += landing->writes;
}

/* A dead node's writes land until it is fenced, and no longer. */
static void writes_of_the_dead_linger_until_the_fence(void **state)
{
    (void)state;
    for (uint32_t late = 0; late < 2; late++) {
        struct world world;
        struct landings landings = {0};
        make(&world, 2);
        world.probe[0].act = write_forty;
        world.probe[1].act = expect_forty;
        sim_listen(world.sim, &(struct sim_listener){.self = &landings, .landed = count_landing});
        if (late)
            sim_set_faults(world.sim, &(struct sim_faults){.write = thirty_seconds});
        sim_call_at(world.sim, 3 * NS_PER_MS, (struct sim_call){.run = kill_lingering, .argument = 0});
        run(&world);
        assert_int_equal(probe_count(&world.probe[1], EVENT_IMMEDIATE), late ? 0 : 1);
        assert_int_equal(landings.count, late ? 0 : 1);
        assert_int_equal(probe_count(&world.probe[1], EVENT_PEER_LOST), 2);
        assert_int_equal(probe_count(&world.probe[0], EVENT_WRITE_DONE), 0);
        world_free(&world);
    }
}

static void talk(struct probe *probe, const struct event *event)
{
    uint32_t other = 1 - probe->rt->node;
    write_forty(probe, event);
    if (event->kind == EVENT_START)
        rt_timer_set(probe->rt, 0, 4 * NS_PER_MS);
    if (event->kind == EVENT_TIMER)
        rt_send(probe->rt, other, "?", 1);
}

static void a_cut_is_told_to_both_and_fences_both(void **state)
{
    (void)state;
    struct world world;
    make(&world, 3);
    world.probe[0].act = talk;
    sim_set_faults(world.sim, &(struct sim_faults){.write = thirty_seconds});
    sim_call_at(world.sim, 3 * NS_PER_MS, (struct sim_call){.run = cut_both});
    run(&world);
    for (uint32_t i = 0; i < 2; i++) {
        const struct probe *end = &world.probe[i];
        assert_int_equal(probe_count(end, EVENT_PEER_LOST), 2);
        assert_int_equal(probe_nth(end, EVENT_PEER_LOST, 0)->event.id, 1 - i);
        assert_int_equal(probe_nth(end, EVENT_PEER_LOST, 0)->at_ns, 3 * NS_PER_MS + SUSPECT_NS);
        assert_int_equal(probe_nth(end, EVENT_PEER_LOST, 1)->at_ns, 3 * NS_PER_MS + SUSPECT_NS + FENCE_NS);
        assert_int_equal(probe_count(end, EVENT_MESSAGE), 0);
    }
    assert_int_equal(probe_count(&world.probe[2], EVENT_PEER_LOST), 0);
    /* What was to land after the fence does not, and its sender is told. */
    assert_int_equal(probe_nth(&world.probe[0], EVENT_WRITE_DONE, 0)->event.status, WRITE_FAILED);
    world_free(&world);
}

static struct write_fault in_pieces(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write)
{
    (void)now_ns;
    (void)source;
    (void)write;
    return *(struct write_fault *)self;
}

static void writes_land_in_pieces(void **state)
{
    (void)state;
    for (uint32_t fails = 0; fails < 2; fails++) {
        struct world world;
        struct landings landings = {0};
        struct write_fault fault = {.pieces = 3, .piece_ns = NS_PER_MS, .confirm_ns = 7 * NS_PER_MS, .fails = fails};
        make(&world, 2);
        world.probe[0].act = write_one;
        world.probe[1].act = expect_one;
        sim_listen(world.sim, &(struct sim_listener){.self = &landings, .landed = count_landing});
        sim_set_faults(world.sim, &(struct sim_faults){.self = &fault, .write = in_pieces});
        run(&world);
        const struct probe_event *done = probe_nth(&world.probe[0], EVENT_WRITE_DONE, 0);
        assert_int_equal(done->event.status, fails ? WRITE_FAILED : WRITE_OK);
        assert_int_equal(landings.count, fails ? 2 : 3);
        assert_int_equal(landings.first_piece, fails ? 1 : 2); /* the last comes first, or never */
        assert_int_equal(landings.last_piece, 0);
        assert_int_equal(probe_count(&world.probe[1], EVENT_IMMEDIATE), 1 - fails);
        if (!fails) {
            const struct probe_event *counted = probe_nth(&world.probe[1], EVENT_IMMEDIATE, 0);
            assert_int_equal(landings.writes, 4 * LAYERS);
            assert_true(done->at_ns - counted->at_ns > 6 * NS_PER_MS);
        }
        world_free(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_node_is_silent_and_missed),
        cmocka_unit_test(a_restarted_node_is_another),
        cmocka_unit_test(messages_are_lost_delayed_and_doubled),
        cmocka_unit_test(writes_are_late),
        cmocka_unit_test(writes_of_the_dead_linger_until_the_fence),
        cmocka_unit_test(a_cut_is_told_to_both_and_fences_both),
        cmocka_unit_test(writes_land_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
