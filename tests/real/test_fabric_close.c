/* After a write has failed its bytes may still be on their way: in a kernel, or in shared memory that the receiver has
 * not looked into. Pages that are used again must not change any more: the receiver closes its ends of the rails.
 */
#define _POSIX_C_SOURCE 200809L

#include "support/fabric_pair.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#define PAGES 64
#define NEW_OWNER 0x5A
#define EVENTS 16

static struct transfer_plan plan;
static uint32_t all_pages[PAGES];

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Polls a side for a while, or until a write of its own is done. */
static bool poll_for(struct fabric_side *side, int64_t while_ns, struct fabric_event *done)
{
    int64_t until_ns = now_ns() + while_ns;
    while (now_ns() < until_ns) {
        struct fabric_event events[EVENTS];
        bool idle;
        uint32_t count = fabric_poll(side->fabric, events, EVENTS, &idle);
        for (uint32_t i = 0; i < count && done != NULL; i++) {
            if (events[i].kind == FABRIC_WRITE_DONE) {
                *done = events[i];
                return true;
            }
        }
    }
    return false;
}

static struct paged_write write_of(uint32_t ticket, uint32_t units)
{
    return (struct paged_write){
        .ticket = ticket,
        .gate = STEP_NONE,
        .destination = 2,
        .immediate = ticket,
        .unit_count = units,
        .source_page_count = units,
        .destination_page_count = units,
        .source_pages = all_pages,
        .destination_pages = all_pages,
        .plan = &plan,
    };
}

static bool open_pair(struct fabric_side *writer, struct fabric_side *reader, const char *provider, uint32_t nics)
{
    struct kv_geometry g = fabric_geometry(4, 8, 2, 256, 16, LAYOUT_HND, (struct parallelism){1, 1, 1, 1});
    struct user_error error = {.set = false};
    fabric_side_make(writer, 1, provider, &g, PAGES);
    fabric_side_make(reader, 2, provider, &g, PAGES);
    writer->config.nics = reader->config.nics = nics;
    writer->config.window = reader->config.window = 32;
    bool good = fabric_side_open(writer, &error) && fabric_side_open(reader, &error);
    if (!good) {
        print_message("left out: %s\n", error.text);
        fabric_side_free(writer);
        fabric_side_free(reader);
        return false;
    }
    fabric_side_join(writer, reader);
    assert_int_equal(transfer_plan_make(&g, 0, &g, 0, 0, &plan), GEOMETRY_OK);
    for (uint32_t i = 0; i < PAGES; i++)
        all_pages[i] = i;
    return true;
}

/* One write that arrives, so that all is connected. */
static void warm_up(struct fabric_side *writer, struct fabric_side *reader)
{
    struct paged_write write = write_of(1, 4);
    struct fabric_event done = {.id = 0};
    int64_t until_ns = now_ns() + 10 * NS_PER_S;
    fabric_write(writer->fabric, &write, UINT64_MAX);
    while (!poll_for(writer, NS_PER_MS, &done) && now_ns() < until_ns)
        poll_for(reader, NS_PER_MS, NULL);
    assert_int_equal(done.id, 1);
    assert_int_equal(done.status, WRITE_OK);
    assert_int_equal(done.closed, 0);
}

/* The writer's NIC fails while the reader looks elsewhere. Returns the bytes that change after the pages have a new
 * owner. */
static uint64_t changed_afterwards(const char *provider, uint32_t nics, bool close, bool *there)
{
    static struct fabric_side writer;
    static struct fabric_side reader;
    struct fabric_event done = {.id = 0};
    *there = open_pair(&writer, &reader, provider, nics);
    if (!*there)
        return 0;
    warm_up(&writer, &reader);
    fabric_side_paint(&writer, 0x11);
    struct paged_write write = write_of(2, PAGES);
    fabric_write(writer.fabric, &write, UINT64_MAX);
    assert_false(poll_for(&writer, 30 * NS_PER_MS, &done)); /* the window is out, and nobody takes it in */
    for (uint32_t n = 0; n < nics; n++)
        fabric_nic_fail(writer.fabric, n);
    assert_true(poll_for(&writer, 5 * NS_PER_S, &done));
    assert_int_equal(done.status, WRITE_FAILED);
    assert_int_equal(done.closed, (1u << nics) - 1);
    assert_true(done.writes > 0);
    if (close)
        fabric_peer_close(reader.fabric, 1, done.closed);
    fabric_side_paint(&reader, NEW_OWNER);
    poll_for(&reader, 300 * NS_PER_MS, NULL);
    uint64_t changed = fabric_side_other(&reader, NEW_OWNER);
    fabric_side_free(&writer);
    fabric_side_free(&reader);
    return changed;
}

/* Over tcp. With shm 1.17 two ends in one process share their mappings, and who reads after the other has closed falls
 * over; ends in two processes have one each. */
static void pages_keep_what_their_new_owner_wrote(void **state)
{
    (void)state;
    for (uint32_t nics = 1; nics <= 2; nics++) {
        bool there;
        uint64_t without = changed_afterwards("tcp", nics, false, &there);
        if (!there)
            return;
        print_message("%u NICs: without closing, %llu bytes of the failed write land afterwards\n", nics,
                      (unsigned long long)without);
        assert_int_equal(changed_afterwards("tcp", nics, true, &there), 0);
    }
}

/* Closing one of two rails leaves the other: the next write goes over it. A peer that has fewer rails than ours counts
 * them modulo its own. */
static void other_rails_go_on(void **state)
{
    (void)state;
    static struct fabric_side writer;
    static struct fabric_side reader;
    if (!open_pair(&writer, &reader, "tcp", 2))
        return;
    warm_up(&writer, &reader);
    fabric_nic_fail(writer.fabric, 0);
    fabric_peer_close(reader.fabric, 1, 1);
    struct paged_write write = write_of(3, PAGES);
    struct fabric_event done = {.id = 0};
    int64_t until_ns = now_ns() + 10 * NS_PER_S;
    fabric_write(writer.fabric, &write, UINT64_MAX);
    while (!poll_for(&writer, NS_PER_MS, &done) && now_ns() < until_ns)
        poll_for(&reader, NS_PER_MS, NULL);
    assert_int_equal(done.id, 3);
    assert_int_equal(done.status, WRITE_OK);
    fabric_peer_close(reader.fabric, 7, 1); /* nobody */
    fabric_side_free(&writer);
    fabric_side_free(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_keep_what_their_new_owner_wrote),
        cmocka_unit_test(other_rails_go_on),
    };
    return cmocka_run_group_tests_name("fabric_close", tests, NULL, NULL);
}
