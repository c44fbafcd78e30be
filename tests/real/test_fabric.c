/* The transfer engine over loopback, two engines polled in turn by one thread: every sharding's bytes and counts,
 * gates, stops, windows, immediates, NICs. Over each provider that is there. Processes, threads and deaths are in
 * test_fabric_faults.c. */
#include "real/fabric/provider.h"
#include "support/fabric_pair.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define EVENTS 16
#define PATIENCE_NS (10 * NS_PER_S)

static const char *const provider_names[] = {"shm", "tcp", "net", NULL};

static struct transfer_plan plan;
static struct fabric_side source;
static struct fabric_side destination;

static int64_t now_ns(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* What has been heard since the last forget(). */
static struct {
    struct fabric_event done[64];
    uint32_t done_count;
    struct fabric_event reached[64];
    uint32_t reached_count;
    uint32_t peer_errors;
} heard;

static void forget(void)
{
    memset(&heard, 0, sizeof heard);
}

static bool poll_side(struct fabric_side *side)
{
    struct fabric_event events[EVENTS];
    bool idle = true;
    uint32_t count = fabric_poll(side->fabric, events, EVENTS, &idle);
    for (uint32_t i = 0; i < count; i++) {
        if (events[i].kind == FABRIC_WRITE_DONE)
            heard.done[heard.done_count++ % 64] = events[i];
        else if (events[i].kind == FABRIC_IMMEDIATE)
            heard.reached[heard.reached_count++ % 64] = events[i];
        else
            heard.peer_errors++;
    }
    return !idle;
}

/* Polls both until so many tickets are done and counts reached; false after ten seconds. */
static bool poll_until(uint32_t done, uint32_t reached)
{
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (heard.done_count < done || heard.reached_count < reached) {
        poll_side(&source);
        poll_side(&destination);
        if (now_ns() > until_ns)
            return false;
    }
    return true;
}

/* Polls both until neither has had anything to do for 20 ms. */
static void poll_quiet(void)
{
    int64_t busy_ns = now_ns();
    while (now_ns() < busy_ns + 20 * NS_PER_MS) {
        bool busy = poll_side(&source);
        busy = poll_side(&destination) || busy;
        if (busy)
            busy_ns = now_ns();
    }
}

/* Polls both until the source has posted `writes` writes, and sees that it posts no more. */
static void poll_posted(uint64_t writes)
{
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (fabric_counters(source.fabric).writes_posted < writes && now_ns() < until_ns) {
        poll_side(&source);
        poll_side(&destination);
    }
    poll_quiet();
    assert_int_equal(fabric_counters(source.fabric).writes_posted, writes);
}

/* Two sides that are to be opened by pair_open(); pages: of each group. */
static void pair_make(const char *provider, const struct kv_geometry *from, const struct kv_geometry *to,
                      uint32_t pages)
{
    forget();
    fabric_side_make(&source, 1, provider, from, pages);
    fabric_side_make(&destination, 2, provider, to, pages);
}

/* False, with both sides freed, where the provider is missing. */
static bool pair_open(void)
{
    struct user_error error = {.set = false};
    if (!fabric_side_open(&source, &error)) {
        print_message("left out: %s\n", error.text);
        fabric_side_free(&source);
        fabric_side_free(&destination);
        return false;
    }
    assert_true(fabric_side_open(&destination, &error));
    fabric_side_join(&source, &destination);
    return true;
}

static void pair_free(void)
{
    fabric_side_free(&source);
    fabric_side_free(&destination);
}

static struct kv_geometry small(void)
{
    return fabric_geometry(4, 4, 2, 64, 4, LAYOUT_HND, (struct parallelism){1, 1, 1, 1});
}

static void plan_between(uint32_t from, uint32_t to, uint32_t choice)
{
    assert_int_equal(transfer_plan_make(&source.memory.geometry, from, &destination.memory.geometry, to, choice, &plan),
                     GEOMETRY_OK);
}

static struct paged_write write_of(uint32_t ticket, uint32_t immediate, uint32_t units, const uint32_t *source_pages,
                                   const uint32_t *destination_pages)
{
    return (struct paged_write){
        .ticket = ticket,
        .gate = STEP_NONE,
        .destination = 2,
        .immediate = immediate,
        .unit_count = units,
        .source_page_count = transfer_pages(0, units, plan.source_units_per_page),
        .destination_page_count = transfer_pages(0, units, plan.destination_units_per_page),
        .source_pages = source_pages,
        .destination_pages = destination_pages,
        .plan = &plan,
    };
}

/* ---- Shardings --------------------------------------------------------------------------------------------------- */

struct sharding {
    uint16_t heads;
    uint16_t planes;
    enum kv_layout layout;
    struct parallelism from;
    struct parallelism to;
    uint16_t from_tokens; /* of a page */
    uint16_t to_tokens;
    uint32_t nics;
};

static const struct sharding shardings[] = {
    {8, 2, LAYOUT_HND, {1, 1, 1, 1}, {1, 1, 1, 1}, 4, 4, 1},
    {8, 2, LAYOUT_HND, {4, 1, 1, 1}, {4, 1, 1, 1}, 4, 4, 4},
    {8, 2, LAYOUT_HND, {4, 1, 1, 1}, {2, 1, 1, 1}, 4, 4, 2},
    {8, 2, LAYOUT_HND, {2, 1, 1, 1}, {8, 1, 1, 1}, 4, 4, 3},
    {8, 2, LAYOUT_HND, {2, 1, 1, 1}, {1, 4, 1, 1}, 4, 4, 2},
    {2, 2, LAYOUT_HND, {8, 1, 1, 1}, {4, 1, 1, 1}, 4, 4, 2},
    {8, 2, LAYOUT_HND, {2, 1, 1, 1}, {4, 1, 1, 1}, 8, 4, 1},
    {8, 2, LAYOUT_HND, {4, 1, 1, 1}, {2, 1, 1, 1}, 4, 16, 2},
    {8, 2, LAYOUT_NHD, {4, 1, 1, 1}, {2, 1, 1, 1}, 4, 4, 2},
    {8, 2, LAYOUT_NHD, {2, 1, 1, 1}, {4, 1, 1, 1}, 4, 8, 1},
    {8, 2, LAYOUT_HND, {2, 1, 1, 2}, {2, 1, 1, 1}, 4, 4, 4},
    {8, 2, LAYOUT_HND, {1, 2, 1, 2}, {2, 1, 1, 3}, 4, 4, 2},
    {12, 2, LAYOUT_HND, {3, 1, 1, 1}, {2, 1, 1, 1}, 4, 4, 1},
    {1, 1, LAYOUT_HND, {4, 1, 1, 1}, {4, 1, 1, 1}, 4, 4, 4}, /* a latent cache: copies on all ranks */
    {1, 1, LAYOUT_HND, {8, 1, 1, 1}, {1, 8, 1, 1}, 4, 4, 2},
    {1, 1, LAYOUT_HND, {1, 4, 1, 1}, {2, 2, 1, 1}, 8, 4, 1},
};

static void transfer_sharding(const char *provider, const struct sharding *s, uint32_t choice, uint32_t from,
                              uint32_t to)
{
    static const uint32_t from_pages[] = {9, 2, 5, 11, 0, 7, 3, 10, 1, 4, 8, 6};
    static const uint32_t to_pages[] = {3, 8, 0, 6, 10, 1, 11, 2, 7, 9, 5, 4};
    struct kv_geometry g = fabric_geometry(3, s->heads, s->planes, 24, s->from_tokens, s->layout, s->from);
    struct kv_geometry h = fabric_geometry(3, s->heads, s->planes, 24, s->to_tokens, s->layout, s->to);
    uint32_t tokens = 3u * s->from_tokens + 1;
    pair_make(provider, &g, &h, 12);
    source.config.nics = s->nics;
    destination.config.nics = 1 + s->nics % 3;
    if (!pair_open())
        return;
    plan_between(from, to, choice);
    fabric_side_fill(&source, from, from_pages, tokens);
    for (uint32_t i = 0; i < 1000; i++)
        for (uint32_t r = 0; r < source.rank_count; r++)
            ((unsigned char *)source.ranks[r].memory)[kv_memory_tail_offset(&source.memory, r, 1) + i] =
                (unsigned char)(i * 7 + r);

    uint32_t units = transfer_units(&plan, tokens);
    struct paged_write write = write_of(5, 0x00300007, units, from_pages, to_pages);
    write.source_group = (uint16_t)from;
    write.destination_group = (uint16_t)to;
    write.tail_writes = 3;
    write.tail_bytes = 1000;
    write.tail_source_slot = 1;
    write.tail_destination_slot = 2;
    fabric_expect(destination.fabric, write.immediate, transfer_expected(&plan, units, 3));
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_true(poll_until(1, 1));
    poll_quiet();

    assert_int_equal(heard.done_count, 1);
    assert_int_equal(heard.done[0].id, 5);
    assert_int_equal(heard.done[0].status, WRITE_OK);
    assert_int_equal(heard.done[0].count, 3);
    assert_int_equal(heard.done[0].writes, transfer_expected(&plan, units, 3));
    assert_int_equal(heard.done[0].bytes, plan.bytes_per_unit * units + 1000);
    assert_true(heard.done[0].posted_ns > 0 && heard.done[0].posted_ns <= heard.done[0].done_ns);
    assert_int_equal(heard.reached_count, 1);
    assert_int_equal(heard.reached[0].id, 0x00300007);
    assert_int_equal(heard.reached[0].count, transfer_expected(&plan, units, 3));
    assert_int_equal(heard.peer_errors, 0);
    assert_int_equal(fabric_counters(destination.fabric).late, 0);
    assert_true(fabric_quiet(source.fabric));
    assert_int_equal(fabric_side_wrong(&destination, to, to_pages, tokens), 0);

    uint32_t last = ((s->to.pipeline - 1u) * s->to.data + to) * s->to.tensor;
    uint32_t first = ((s->from.pipeline - 1u) * s->from.data + from) * s->from.tensor;
    const unsigned char *tail =
        (unsigned char *)destination.ranks[last].memory + kv_memory_tail_offset(&destination.memory, last, 2);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(tail[i], (unsigned char)(i * 7 + first));
    pair_free();
}

static void test_shardings(void **state)
{
    const char *provider = *state;
    for (size_t i = 0; i < sizeof shardings / sizeof *shardings; i++) {
        const struct sharding *s = &shardings[i];
        struct kv_geometry g = fabric_geometry(3, s->heads, s->planes, 24, s->from_tokens, s->layout, s->from);
        transfer_sharding(provider, s, (uint32_t)i % transfer_replica_choices(&g), s->from.data - 1u, s->to.data - 1u);
    }
}

/* Invariant 13: small numbers of writes over any number of NICs all complete, and are counted, on whichever side the
 * NICs are. */
static void test_few_writes(void **state)
{
    static const uint32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct kv_geometry g = fabric_geometry(1, 1, 1, 64, 4, LAYOUT_HND, (struct parallelism){1, 1, 1, 1});
    for (uint32_t nics = 1; nics <= 4; nics++) {
        pair_make(*state, &g, &g, 16);
        source.config.nics = nics;
        destination.config.nics = 5 - nics;
        if (!pair_open())
            return;
        plan_between(0, 0, 0);
        for (uint32_t n = 1; n <= 16; n++) {
            forget();
            struct paged_write write = write_of(n, n << 20 | n, n, pages, pages);
            fabric_expect(destination.fabric, write.immediate, n);
            fabric_write(source.fabric, &write, UINT64_MAX);
            assert_true(poll_until(1, 1));
            assert_int_equal(heard.done[0].writes, n);
            assert_int_equal(heard.reached[0].count, n);
        }
        pair_free();
    }
}

/* ---- Gates, stops, windows --------------------------------------------------------------------------------------- */

static void test_gate(void **state)
{
    static const uint32_t pages[] = {4, 3, 2, 1, 0};
    struct kv_geometry g = small();
    pair_make(*state, &g, &g, 5);
    source.config.tail_ticks = 1;
    if (!pair_open())
        return;
    plan_between(0, 0, 0);
    fabric_side_fill(&source, 0, pages, 20);
    struct paged_write write = write_of(9, 17, 5, pages, pages);
    write.gate = 1;
    write.tail_writes = 1;
    write.tail_bytes = 100;
    uint64_t layer_writes = 5 * 2;
    fabric_expect(destination.fabric, 17, transfer_expected(&plan, 5, 1));
    atomic_store(&source.counters[0], 90); /* a step before the gating one is still under way */
    fabric_write(source.fabric, &write, 100);
    poll_posted(0);
    atomic_store(&source.counters[0], 100);
    poll_posted(0);
    atomic_store(&source.counters[0], 101);
    poll_posted(layer_writes);
    atomic_store(&source.counters[0], 103); /* two ticks in one look */
    poll_posted(3 * layer_writes);
    assert_int_equal(heard.done_count, 0);
    assert_false(fabric_quiet(source.fabric));
    atomic_store(&source.counters[0], 104); /* the last layer; its tail is one tick later */
    poll_posted(4 * layer_writes);
    assert_int_equal(heard.done_count, 0);
    atomic_store(&source.counters[0], 105);
    assert_true(poll_until(1, 1));
    assert_int_equal(heard.done[0].status, WRITE_OK);
    assert_int_equal(heard.done[0].count, 4);
    assert_int_equal(fabric_side_wrong(&destination, 0, pages, 20), 0);
    pair_free();
}

/* A stop lets the layer under way end and no other begin; the event says how many were posted, and the count at the
 * other side is exactly that many layers'. */
static void test_stop(void **state)
{
    static const uint32_t pages[] = {0, 1, 2, 3};
    struct kv_geometry g = small();
    pair_make(*state, &g, &g, 4);
    source.config.window = 3; /* less than a layer's eight writes */
    if (!pair_open())
        return;
    plan_between(0, 0, 0);
    struct paged_write write = write_of(1, 1, 4, pages, pages);
    fabric_expect(destination.fabric, 1, transfer_expected(&plan, 4, 0));

    fabric_write(source.fabric, &write, 0); /* before any layer */
    fabric_write_stop(source.fabric, 1);
    assert_true(poll_until(1, 0));
    assert_int_equal(heard.done[0].status, WRITE_STOPPED);
    assert_int_equal(heard.done[0].count, 0);
    assert_int_equal(heard.done[0].writes, 0);

    forget();
    fabric_write(source.fabric, &write, UINT64_MAX); /* inside the first one */
    int64_t until_ns = now_ns() + PATIENCE_NS;
    uint64_t begun = 0;
    while (begun == 0 && now_ns() < until_ns) { /* connecting takes a while */
        poll_side(&destination);
        poll_side(&source);
        begun = fabric_counters(source.fabric).writes_posted;
    }
    assert_true(begun > 0 && begun < 8);
    fabric_write_stop(source.fabric, 1);
    fabric_write_stop(source.fabric, 77); /* no such ticket: ignored */
    assert_true(poll_until(1, 0));
    assert_int_equal(heard.done[0].status, WRITE_STOPPED);
    assert_int_equal(heard.done[0].count, 1);
    assert_int_equal(heard.done[0].writes, 8);

    forget();
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_true(poll_until(1, 0));
    fabric_write_stop(source.fabric, 1); /* too late: ignored */
    assert_int_equal(heard.done[0].status, WRITE_OK);
    assert_int_equal(heard.done[0].count, 4);
    poll_quiet();
    assert_int_equal(fabric_counters(destination.fabric).immediates, 8 + 32);
    pair_free();
}

/* In flight never exceeds the window of each rail, and many tickets share it to their ends, whatever their order. (Over
 * shm the window is filled only by writes of more than 4 KiB.) */
static void test_window(void **state)
{
    static const uint32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct kv_geometry g = fabric_geometry(4, 4, 2, 512, 4, LAYOUT_HND, (struct parallelism){1, 1, 1, 1});
    for (uint32_t window = 1; window <= 5; window += 2) {
        pair_make(*state, &g, &g, 8);
        source.config.window = window;
        source.config.nics = 2;
        if (!pair_open())
            return;
        plan_between(0, 0, 0);
        for (uint32_t t = 0; t < 6; t++) {
            struct paged_write write = write_of(t, t + 1, 1 + t, pages, pages);
            fabric_expect(destination.fabric, t + 1, transfer_expected(&plan, 1 + t, 0));
            fabric_write(source.fabric, &write, UINT64_MAX);
        }
        int64_t until_ns = now_ns() + PATIENCE_NS;
        uint64_t most = 0;
        while (heard.done_count < 6 || heard.reached_count < 6) {
            poll_side(&source);
            struct fabric_counters c = fabric_counters(source.fabric);
            most = max_u64(most, c.writes_posted - c.writes_completed);
            poll_side(&destination);
            assert_true(now_ns() < until_ns);
        }
        assert_int_equal(most, 2 * window);
        for (uint32_t t = 0; t < 6; t++)
            assert_int_equal(heard.done[t].status, WRITE_OK);
        pair_free();
    }
}

/* ---- Immediates -------------------------------------------------------------------------------------------------- */

static void test_immediates(void **state)
{
    static const uint32_t pages[] = {0, 1};
    struct kv_geometry g = fabric_geometry(1, 1, 1, 64, 4, LAYOUT_HND, (struct parallelism){1, 1, 1, 1});
    pair_make(*state, &g, &g, 2);
    destination.config.handoffs_max = 1u << IMMEDIATE_SLOT_BITS;
    if (!pair_open())
        return;
    plan_between(0, 0, 0);

    /* Invariant 15: all ones survives. */
    struct paged_write write = write_of(0, UINT32_MAX, 2, pages, pages);
    assert_false(fabric_awaits(destination.fabric));
    fabric_expect(destination.fabric, UINT32_MAX, 2);
    assert_true(fabric_awaits(destination.fabric));
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_true(poll_until(1, 1));
    assert_true(heard.reached[0].id == UINT32_MAX);
    assert_false(fabric_awaits(destination.fabric));

    /* Beyond the count, of an earlier generation, of a slot that expects nothing: late, dropped. */
    write.immediate = UINT32_MAX;
    fabric_write(source.fabric, &write, UINT64_MAX);
    fabric_expect(destination.fabric, 0x00500003, 3);
    write.immediate = 0x00400003;
    write.ticket = 1;
    fabric_write(source.fabric, &write, UINT64_MAX);
    write.immediate = 0x00500004;
    write.ticket = 2;
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_true(poll_until(4, 1));
    poll_quiet();
    assert_int_equal(fabric_counters(destination.fabric).late, 6);
    assert_int_equal(heard.reached_count, 1);

    /* The present generation still counts from where it was; forgotten, it is late too. */
    write.immediate = 0x00500003;
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_true(poll_until(5, 1));
    poll_quiet();
    assert_int_equal(heard.reached_count, 1);
    assert_true(fabric_awaits(destination.fabric));
    fabric_expect(destination.fabric, 0x00500003, 4); /* armed anew it is still one */
    fabric_expect(destination.fabric, 0x00500003, 0);
    assert_false(fabric_awaits(destination.fabric));
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_true(poll_until(6, 1));
    poll_quiet();
    assert_int_equal(fabric_counters(destination.fabric).late, 8);
    assert_int_equal(fabric_counters(destination.fabric).immediates, 12);
    pair_free();
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    static const uint32_t pages[] = {0, 1};
    static const uint32_t beyond[] = {0, 2};
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    struct kv_geometry g = small();
    struct user_error error = {.set = false};
    pair_make(*state, &g, &g, 2);
    if (!pair_open())
        return;
    plan_between(0, 0, 0);
    struct paged_write write = write_of(1, 1, 2, pages, beyond); /* a page that the peer does not have */
    fabric_write(source.fabric, &write, UINT64_MAX);
    write = write_of(2, 1, 2, pages, pages);
    write.destination = 3; /* nobody */
    fabric_write(source.fabric, &write, UINT64_MAX);
    write = write_of(3, 1, 2, pages, pages);
    write.tail_writes = 1;
    write.tail_bytes = 10;
    write.tail_destination_slot = 4; /* there are four */
    fabric_write(source.fabric, &write, UINT64_MAX);
    write = write_of(4, 1, 2, pages, pages);
    write.destination_group = 1; /* there is one */
    fabric_write(source.fabric, &write, UINT64_MAX);
    assert_true(poll_until(4, 0));
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(heard.done[i].status, WRITE_FAILED);
        assert_int_equal(heard.done[i].writes, 0);
    }
    assert_true(fabric_quiet(source.fabric));

    /* A second card of a node that is there; a card of another geometry, or of other pages. */
    size_t size = fabric_card(destination.fabric, 1, card, &error);
    assert_true(size > 0);
    assert_false(fabric_peer_add(source.fabric, 2, card, size, &destination.memory, &error));
    assert_non_null(strstr(error.text, "already"));
    struct kv_memory other = destination.memory;
    other.pages++;
    error.set = false;
    assert_false(fabric_peer_add(source.fabric, 3, card, size, &other, &error));
    assert_non_null(strstr(error.text, "pages"));
    other = destination.memory;
    other.geometry.head_bytes *= 2;
    error.set = false;
    assert_false(fabric_peer_add(source.fabric, 3, card, size, &other, &error));
    assert_non_null(strstr(error.text, "geometry"));
    for (size_t cut = 0; cut < size; cut++)
        assert_false(fabric_peer_add(source.fabric, 3, card, cut, &destination.memory, &error));
    assert_false(fabric_peer_add(source.fabric, 3, card, size + 1, &destination.memory, &error));
    pair_free();
}

/* Each provider is what it says of itself, or a sentence says that it is not here and which ones are. */
static void test_providers_by_name(void **state)
{
    (void)state;
    struct kv_geometry g = small();
    char present[PROVIDERS_TEXT_BYTES];
    struct user_error error = {.set = false};
    uint32_t found = 0;
    providers_present(present, sizeof present);
    for (const struct provider *p = providers; p->name != NULL; p++) {
        assert_true(strlen(p->delivery) > 0 && strlen(p->death) > 0);
        fabric_side_make(&source, 1, p->name, &g, 5);
        error.set = false;
        if (fabric_side_open(&source, &error)) {
            assert_string_equal(fabric_provider(source.fabric), p->name);
            assert_non_null(strstr(present, p->name));
            found++;
        } else {
            char start[64];
            snprintf(start, sizeof start, "fabric %s is not to be had at ", p->name);
            assert_memory_equal(error.text, start, strlen(start));
            assert_string_equal(strstr(error.text, "present here: ") + strlen("present here: "), present);
        }
        fabric_side_free(&source);
    }
    assert_true(found > 0 || strcmp(present, "none") == 0);
}

/* Best on loopback is what does not leave the host. */
static void test_auto(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "auto"};
    struct kv_geometry g = small();
    char present[PROVIDERS_TEXT_BYTES];
    struct user_error error = {.set = false};
    providers_present(present, sizeof present);
    for (size_t i = 0; i < 2 && strstr(present, "shm") != NULL; i++) {
        fabric_side_make(&source, 1, names[i], &g, 5);
        assert_true(fabric_side_open(&source, &error));
        assert_string_equal(fabric_provider(source.fabric), "shm");
        fabric_side_free(&source);
    }
}

/* A rank's writes take its NICs in turn: one NIC a rank unless told otherwise, and with more an even share. */
static void test_nics_of_ranks(void **state)
{
    static const uint32_t asked[] = {0, 1, 2, 3, 7};
    static const uint32_t sets[][2] = {{1, 2}, {1, 1}, {1, 2}, {1, 6}, {7, 120}};
    struct kv_geometry g = fabric_geometry(2, 4, 2, 64, 4, LAYOUT_HND, (struct parallelism){1, 2, 1, 1});
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char text[256];
        struct user_error error = {.set = false};
        fabric_side_make(&source, 1, *state, &g, 5);
        source.config.nics = asked[i];
        if (!fabric_side_open(&source, &error)) {
            fabric_side_free(&source);
            return;
        }
        const struct nic_choice *choice = fabric_choice(source.fabric);
        assert_int_equal(choice->ranks, 2);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(nic_choice_set(choice, r), sets[i][r]);
        fabric_choice_text(source.fabric, text, sizeof text);
        assert_memory_equal(text, *state, strlen(*state));
        assert_non_null(strstr(text, "rank 1 by NIC "));
        assert_non_null(strstr(text, " (anywhere)"));
        fabric_choice_text(source.fabric, text, 20); /* cut, not overrun */
        assert_int_equal(strlen(text), 19);
        fabric_side_free(&source);
    }
}

static void test_no_provider(void **state)
{
    (void)state;
    struct kv_geometry g = small();
    struct user_error error = {.set = false};
    pair_make("carrier-pigeon", &g, &g, 2);
    assert_false(fabric_side_open(&source, &error));
    assert_non_null(strstr(error.text, "carrier-pigeon"));
    error.set = false;
    source.config.provider = "verbs";
    source.config.address = "127.0.0.1";
    if (!fabric_side_open(&source, &error))
        assert_non_null(strstr(error.text, "fabric verbs"));
    fabric_side_free(&source);
    fabric_side_free(&destination);

    pair_make(NULL, &g, &g, 2); /* whatever works */
    if (pair_open()) {
        print_message("of itself: %s\n", fabric_provider(source.fabric));
        pair_free();
    }
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; provider_names[i] != NULL; i++) {
        void *provider = (void *)(uintptr_t)provider_names[i];
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(test_shardings, provider),
            cmocka_unit_test_prestate(test_few_writes, provider),
            cmocka_unit_test_prestate(test_gate, provider),
            cmocka_unit_test_prestate(test_stop, provider),
            cmocka_unit_test_prestate(test_window, provider),
            cmocka_unit_test_prestate(test_immediates, provider),
            cmocka_unit_test_prestate(test_refused, provider),
            cmocka_unit_test_prestate(test_nics_of_ranks, provider),
        };
        failed += cmocka_run_group_tests_name(provider_names[i], tests, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_provider), cmocka_unit_test(test_providers_by_name),
                                       cmocka_unit_test(test_auto)};
    return failed + cmocka_run_group_tests_name("fabric", tests, NULL, NULL);
}
