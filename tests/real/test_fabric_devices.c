/* The transfer engine over memory of devices: whether NICs reach it is found out by a write, and where they do not,
 * pieces go through pinned memory on both sides and arrive all the same. The devices are fakes in this process.
 */
#include "support/fabric_pair.h"
#include "support/fake_device.h"

#include "base/arith.h"
#include "model/transfer_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PATIENCE_NS (20 * NS_PER_S)
#define IMMEDIATE 0x00300007u
#define PAGES_MAX 100u

static struct fabric_side source;
static struct fabric_side destination;
static struct fake_device devices[2][FABRIC_RANKS];
static struct fabric_rank regions[2][FABRIC_RANKS];
static struct transfer_plan plan;
static uint32_t pages[2][PAGES_MAX];

static struct {
    uint32_t done;
    uint32_t status;
    uint32_t reached;
    uint32_t landed;
    uint64_t count;
} heard;

static int64_t now_ns(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void poll_side(struct fabric_side *side)
{
    struct fabric_event events[16];
    bool idle;
    uint32_t count = fabric_poll(side->fabric, events, 16, &idle);
    for (uint32_t i = 0; i < count; i++) {
        heard.done += events[i].kind == FABRIC_WRITE_DONE;
        heard.reached += events[i].kind == FABRIC_IMMEDIATE;
        heard.landed += events[i].kind == FABRIC_LANDED;
        if (events[i].kind == FABRIC_WRITE_DONE)
            heard.status = events[i].status;
        if (events[i].kind == FABRIC_IMMEDIATE || events[i].kind == FABRIC_LANDED)
            heard.count = events[i].count;
    }
}

static void poll_both(void)
{
    poll_side(&source);
    poll_side(&destination);
}

static void poll_times(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        poll_both();
}

/* Until *count is `wanted`; fails the test when it takes too long. */
static void poll_until(const uint32_t *count, uint32_t wanted)
{
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (*count < wanted) {
        poll_both();
        assert_true(now_ns() < until_ns);
    }
}

static void give_devices(struct fabric_side *side, uint32_t place, bool direct)
{
    for (uint32_t r = 0; r < side->rank_count; r++) {
        struct fake_device *device = &devices[place][r];
        fake_device_make(device, side->ranks[r].memory, side->ranks[r].bytes, direct, 2 + r);
        regions[place][r] = (struct fabric_rank){
            .memory = device->reach.address, .bytes = side->ranks[r].bytes, .reach = &device->reach};
    }
    side->config.ranks = regions[place];
}

static void pair_make(const char *provider, const struct kv_geometry *from, const struct kv_geometry *to,
                      uint32_t page_count, bool direct)
{
    memset(&heard, 0, sizeof heard);
    fabric_side_make(&source, 1, provider, from, page_count);
    fabric_side_make(&destination, 2, provider, to, page_count);
    give_devices(&source, 0, direct);
    give_devices(&destination, 1, direct);
    for (uint32_t i = 0; i < page_count; i++) {
        pages[0][i] = i * 7 % page_count;
        pages[1][i] = page_count - 1 - i * 11 % page_count;
    }
}

/* The probes have left zeros. */
static void pair_open(void)
{
    struct user_error error = {.set = false};
    bool good = fabric_side_open(&source, &error) && fabric_side_open(&destination, &error);
    if (!good)
        fail_msg("%s", error);
    fabric_side_join(&source, &destination);
    fabric_side_paint(&source, FABRIC_BLANK);
    fabric_side_paint(&destination, FABRIC_BLANK);
}

static void pair_free(void)
{
    for (uint32_t place = 0; place < 2; place++) {
        struct fabric_side *side = place == 0 ? &source : &destination;
        uint32_t ranks = side->rank_count;
        fabric_side_free(side);
        for (uint32_t r = 0; r < ranks; r++)
            fake_device_free(&devices[place][r]);
    }
}

static struct kv_geometry geometry(struct parallelism parallelism, uint16_t page_tokens)
{
    return fabric_geometry(3, 8, 2, 24, page_tokens, LAYOUT_HND, parallelism);
}

static struct paged_write write_of(uint32_t units, uint32_t from, uint32_t to)
{
    assert_int_equal(transfer_plan_make(&source.memory.geometry, from, &destination.memory.geometry, to, 0, &plan),
                     GEOMETRY_OK);
    return (struct paged_write){.ticket = 5,
                                .gate = STEP_NONE,
                                .destination = 2,
                                .immediate = IMMEDIATE,
                                .unit_count = units,
                                .source_page_count = transfer_pages(0, units, plan.source_units_per_page),
                                .destination_page_count = transfer_pages(0, units, plan.destination_units_per_page),
                                .source_group = (uint16_t)from,
                                .destination_group = (uint16_t)to,
                                .tail_writes = 3,
                                .tail_bytes = 1000,
                                .tail_source_slot = 1,
                                .tail_destination_slot = 2,
                                .source_pages = pages[0],
                                .destination_pages = pages[1],
                                .plan = &plan};
}

static unsigned char *tail_of(struct fabric_side *side, uint32_t group, uint32_t slot)
{
    uint32_t rank = kv_memory_tail_rank(&side->memory, group);
    return (unsigned char *)side->ranks[rank].memory + kv_memory_tail_offset(&side->memory, rank, slot);
}

static void land(uint32_t group, uint32_t page_count)
{
    fabric_land(destination.fabric, IMMEDIATE, heard.count,
                &(struct fabric_landing){
                    .group = (uint16_t)group, .page_count = page_count, .pages = pages[1], .tail_slot = 2});
}

/* Whole pages on both sides, since landing moves whole pages. */
static void transfer(const char *provider, struct parallelism from, struct parallelism to, uint32_t page_count,
                     bool direct)
{
    struct kv_geometry g = geometry(from, 4);
    struct kv_geometry h = geometry(to, 8);
    uint32_t tokens = page_count * 4;
    uint32_t to_group = (uint32_t)to.data - 1;
    pair_make(provider, &g, &h, page_count, direct);
    source.config.sends_only = true;
    source.config.nics = 2;
    pair_open();
    assert_true(fabric_staged(source.fabric) != direct && fabric_staged(destination.fabric) != direct);
    assert_non_null(strstr(fabric_path(source.fabric), direct ? "reach" : "is said to be done and did not arrive"));
    fabric_side_fill(&source, 0, pages[0], tokens);
    for (uint32_t i = 0; i < 1000; i++)
        tail_of(&source, 0, 1)[i] = (unsigned char)(i * 7 + 3);

    struct paged_write write = write_of(0, 0, to_group); /* makes the plan that says the units */
    uint32_t units = transfer_units(&plan, tokens);
    write = write_of(units, 0, to_group);
    fabric_expect(destination.fabric, IMMEDIATE, transfer_expected(&plan, units, 3));
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_false(fabric_quiet(source.fabric));
    poll_until(&heard.reached, 1);
    poll_until(&heard.done, 1);
    assert_int_equal(heard.status, WRITE_OK);
    assert_int_equal(fabric_counters(source.fabric).writes_completed, transfer_expected(&plan, units, 3));
    if (!direct) {
        assert_int_equal(fabric_side_other(&destination, FABRIC_BLANK), 0); /* nothing is in the device yet */
        land(to_group, page_count / 2);
        poll_until(&heard.landed, 1);
        assert_int_equal(heard.count, transfer_expected(&plan, units, 3));
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(tail_of(&destination, to_group, 2)[i], (unsigned char)(i * 7 + 3));
    assert_int_equal(fabric_side_wrong(&destination, to_group, pages[1], tokens), 0);
    assert_true(fabric_quiet(source.fabric) && fabric_quiet(destination.fabric));
    pair_free();
}

static void devices_that_nics_reach(void **state)
{
    (void)state;
    transfer("shm", (struct parallelism){2, 1, 1, 1}, (struct parallelism){1, 1, 1, 1}, 12, true);
    transfer("tcp", (struct parallelism){1, 1, 1, 2}, (struct parallelism){2, 1, 1, 1}, 12, true);
}

static void devices_that_nics_do_not_reach(void **state)
{
    (void)state;
    transfer("shm", (struct parallelism){1, 1, 1, 1}, (struct parallelism){1, 1, 1, 1}, 12, false);
    transfer("tcp", (struct parallelism){2, 1, 1, 1}, (struct parallelism){1, 1, 1, 1}, 12, false);
    transfer("tcp", (struct parallelism){1, 1, 1, 2}, (struct parallelism){2, 2, 1, 1}, 12, false);
}

/* More pieces than there are slots, and more landing pieces than a batch has. */
static void slots_are_used_again(void **state)
{
    (void)state;
    transfer("shm", (struct parallelism){1, 1, 1, 1}, (struct parallelism){8, 1, 1, 1}, PAGES_MAX, false);
}

static void small_pair(void)
{
    struct kv_geometry g = geometry((struct parallelism){1, 1, 1, 1}, 4);
    pair_make("tcp", &g, &g, 12, false);
}

/* Pieces are taken layer by layer, as the counter passes. */
static void layers_wait_for_their_tick(void **state)
{
    (void)state;
    small_pair();
    source.config.tail_ticks = 1;
    pair_open();
    struct paged_write write = write_of(2, 0, 0);
    uint64_t layer = transfer_expected(&plan, 2, 0) / 3;
    fabric_expect(destination.fabric, IMMEDIATE, transfer_expected(&plan, 2, 3));
    fabric_write(source.fabric, &write, 100);
    for (uint32_t ticks = 0; ticks < 4; ticks++) {
        atomic_store(&source.counters[0], 100 + ticks);
        poll_times(300);
        assert_int_equal(fabric_counters(source.fabric).writes_posted, ticks * layer);
    }
    assert_int_equal(heard.reached, 0);
    atomic_store(&source.counters[0], 104);
    poll_until(&heard.reached, 1);
    pair_free();
}

/* What was copied for a peer that is gone is not sent to the one that takes its place. */
static void peers_go(void **state)
{
    (void)state;
    small_pair();
    pair_open();
    devices[0][0].patience = UINT32_MAX; /* nothing is copied for now */
    struct paged_write write = write_of(8, 0, 0);
    fabric_write(source.fabric, &write, UINT64_MAX);
    poll_times(10);
    assert_true(fabric_counters(source.fabric).writes_posted > 0);
    fabric_peer_remove(source.fabric, 2);
    fabric_peer_remove(destination.fabric, 1);
    fabric_side_join(&source, &destination);
    fabric_expect(destination.fabric, IMMEDIATE, transfer_expected(&plan, 8, 3));
    assert_int_equal(heard.done, 0); /* its pieces are still being copied */
    devices[0][0].patience = 0;
    poll_until(&heard.done, 1);
    assert_int_equal(heard.status, WRITE_FAILED);
    poll_times(200);
    assert_int_equal(fabric_counters(destination.fabric).immediates, 0);
    write.ticket = 6;
    fabric_write(source.fabric, &write, UINT64_MAX);
    poll_until(&heard.reached, 1);
    pair_free();
}

/* An immediate that is forgotten while its bytes are on the way to the device: after that nothing changes there. */
static void landings_are_stopped(void **state)
{
    (void)state;
    small_pair();
    pair_open();
    struct paged_write write = write_of(8, 0, 0);
    fabric_expect(destination.fabric, IMMEDIATE, transfer_expected(&plan, 8, 3));
    fabric_write(source.fabric, &write, UINT64_MAX);
    poll_until(&heard.reached, 1);
    devices[1][0].patience = 50;
    land(0, 8);
    poll_times(3);
    assert_int_equal(devices[1][0].submitted - devices[1][0].done, 1);
    fabric_expect(destination.fabric, IMMEDIATE, 0);
    assert_int_equal(devices[1][0].submitted, devices[1][0].done);
    fabric_side_paint(&destination, 0x11);
    poll_times(200);
    assert_int_equal(fabric_side_other(&destination, 0x11), 0);
    assert_int_equal(heard.landed, 0);
    assert_true(fabric_quiet(destination.fabric));
    pair_free();
}

static void devices_fail(void **state)
{
    (void)state;
    small_pair();
    pair_open();
    devices[0][0].patience = UINT32_MAX;
    struct paged_write write = write_of(8, 0, 0);
    fabric_write(source.fabric, &write, UINT64_MAX);
    poll_times(10);
    devices[0][0].broken = true;
    poll_until(&heard.done, 1);
    assert_int_equal(heard.status, WRITE_FAILED);
    pair_free();
}

static void nothing_is_written_to_a_sender(void **state)
{
    (void)state;
    small_pair();
    destination.config.sends_only = true;
    pair_open();
    struct paged_write write = write_of(2, 0, 0);
    fabric_write(source.fabric, &write, UINT64_MAX);
    poll_until(&heard.done, 1);
    assert_int_equal(heard.status, WRITE_FAILED);
    assert_int_equal(fabric_counters(source.fabric).writes_posted, 0);
    pair_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_that_nics_reach),
        cmocka_unit_test(devices_that_nics_do_not_reach),
        cmocka_unit_test(slots_are_used_again),
        cmocka_unit_test(layers_wait_for_their_tick),
        cmocka_unit_test(peers_go),
        cmocka_unit_test(landings_are_stopped),
        cmocka_unit_test(devices_fail),
        cmocka_unit_test(nothing_is_written_to_a_sender),
    };
    return cmocka_run_group_tests_name("fabric_devices", tests, NULL, NULL);
}
