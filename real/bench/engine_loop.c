/* See engine_loop.h. */
#define _POSIX_C_SOURCE 200809L

#include "real/bench/engine_loop.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/fabric/fabric_internal.h"
#include "host/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes in a row carry one that nobody counts, and single ones another, so that stragglers of the former are not taken
 * for the latter. */
#define STREAM_IMMEDIATE 0
#define SINGLE_IMMEDIATE 1
#define WAIT_MS 100

struct engine_loop {
    struct fabric *fabric; /* until the thread has taken it over */
    struct fabric_thread *thread;
    _Atomic uint64_t counter; /* of layers: nothing here is gated */
    struct kv_memory memory;
    struct transfer_plan plan;
    uint32_t window;
    uint32_t self;
    uint32_t next_page;
    uint32_t pages[ENGINE_UNITS_MAX];
};

struct engine_loop *engine_loop_make(const char *provider, const char *address, uint32_t window, void *memory,
                                     size_t bytes, uint32_t page_bytes, uint32_t self, struct engine_card *own,
                                     struct user_error *error)
{
    struct engine_loop *loop = calloc(1, sizeof *loop);
    CHECK(loop != NULL);
    loop->window = window;
    loop->self = self;
    /* One rank, one layer, one plane, one head: a page is one write. */
    loop->memory = (struct kv_memory){
        .geometry = {.layers = 1,
                     .kv_heads = 1,
                     .planes = 1,
                     .page_tokens = 1,
                     .head_bytes = page_bytes,
                     .layout = LAYOUT_HND,
                     .parallelism = {1, 1, 1, 1},
                     .stage_layer_first = {0, 1}},
        .pages = (uint32_t)(bytes / page_bytes),
    };
    CHECK(transfer_plan_make(&loop->memory.geometry, 0, &loop->memory.geometry, 0, 0, &loop->plan) == GEOMETRY_OK);
    struct fabric_rank rank = {.memory = memory, .bytes = bytes};
    struct fabric_config config = {
        .provider = provider,
        .address = address,
        .nics = 1,
        .window = window,
        .memory = loop->memory,
        .rank_count = 1,
        .ranks = &rank,
        .layer_counters = &loop->counter,
        .group_count = 1,
        .handoffs_max = SINGLE_IMMEDIATE + 1,
        .tickets_max = ENGINE_TICKETS_MAX,
    };
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    loop->fabric = fabric_make(&config, error);
    own->bytes = loop->fabric == NULL ? 0 : (uint32_t)fabric_card(loop->fabric, 1 - self, card, error);
    CHECK(own->bytes <= sizeof own->card);
    memcpy(own->card, card, own->bytes);
    if (own->bytes == 0) {
        engine_loop_free(loop);
        return NULL;
    }
    return loop;
}

bool engine_loop_aim(struct engine_loop *loop, const struct engine_card *peer, struct user_error *error)
{
    if (!fabric_peer_add(loop->fabric, 1 - loop->self, peer->card, peer->bytes, &loop->memory, error))
        return false;
    loop->thread = fabric_thread_start(loop->fabric, false);
    loop->fabric = NULL;
    return true;
}

void engine_loop_free(struct engine_loop *loop)
{
    if (loop == NULL)
        return;
    fabric_thread_stop(loop->thread);
    fabric_free(loop->fabric);
    free(loop);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void give(struct engine_loop *loop, uint32_t ticket, uint32_t immediate, uint32_t units)
{
    for (uint32_t i = 0; i < units; i++)
        loop->pages[i] = (loop->next_page + i) % loop->memory.pages;
    loop->next_page = (loop->next_page + units) % loop->memory.pages;
    struct paged_write write = {
        .ticket = ticket,
        .gate = STEP_NONE,
        .destination = 1 - loop->self,
        .immediate = immediate,
        .unit_count = units,
        .source_page_count = units,
        .destination_page_count = units,
        .source_pages = loop->pages,
        .destination_pages = loop->pages,
        .plan = &loop->plan,
    };
    fabric_thread_write(loop->thread, &write, UINT64_MAX);
}

/* Waits for the next report of a kind; others are of no interest here. False: nothing came for too long. */
static bool await(struct engine_loop *loop, unsigned kind, struct fabric_event *event)
{
    int64_t give_up_ns = clock_now_ns() + 2 * FABRIC_STALL_NS;
    struct fabric_report report;
    do {
        while (fabric_thread_next(loop->thread, &report)) {
            *event = report.event;
            if (report.kind == REPORT_EVENT && event->kind == kind)
                return true;
        }
        struct pollfd ready = {.fd = fabric_thread_fd(loop->thread), .events = POLLIN};
        if (poll(&ready, 1, WAIT_MS) == 1)
            fabric_thread_clear(loop->thread);
    } while (clock_now_ns() < give_up_ns);
    return false;
}

bool engine_loop_stream(struct engine_loop *loop, uint32_t units, int64_t warm_ns, int64_t duration_ns,
                        struct bare_stream *stream)
{
    enum { CONNECTING, WARMING, COUNTING, DRAINING } phase = CONNECTING;
    uint32_t live = max_u32(4, 2 * loop->window / units);
    int64_t mark_ns = 0;
    CHECK(units <= ENGINE_UNITS_MAX && live <= ENGINE_TICKETS_MAX);
    *stream = (struct bare_stream){.writes = 0};
    for (uint32_t t = 0; t < live; t++)
        give(loop, t, STREAM_IMMEDIATE, units);
    while (live > 0) {
        struct fabric_event event;
        if (!await(loop, FABRIC_WRITE_DONE, &event) || event.status != WRITE_OK)
            return false;
        int64_t now_ns = event.done_ns; /* when it completed, however late the loop may hear of it */
        if (phase == COUNTING) {
            stream->writes += event.writes;
            stream->took_ns = now_ns - mark_ns;
            if (stream->took_ns >= duration_ns)
                phase = DRAINING;
        } else if (phase == CONNECTING || (phase == WARMING && now_ns - mark_ns >= warm_ns)) {
            phase = phase == CONNECTING ? WARMING : COUNTING;
            mark_ns = now_ns;
        }
        if (phase == DRAINING)
            live--;
        else
            give(loop, event.id, STREAM_IMMEDIATE, units);
    }
    return stream->writes > 0 && stream->took_ns > 0;
}

bool engine_loop_single(struct engine_loop *loop, struct engine_single *single)
{
    struct fabric_event event;
    single->start_ns = clock_now_ns();
    give(loop, 0, SINGLE_IMMEDIATE, 1);
    bool good = await(loop, FABRIC_WRITE_DONE, &event) && event.status == WRITE_OK;
    single->completion_ns = clock_now_ns() - single->start_ns;
    single->post_ns = event.posted_ns - single->start_ns;
    return good;
}

/* ---- Being written to -------------------------------------------------------------------------------------------- */

void engine_loop_expect(struct engine_loop *loop)
{
    uint64_t number = fabric_thread_expect(loop->thread, SINGLE_IMMEDIATE, 1);
    while (fabric_thread_done(loop->thread) < number) {
        struct pollfd ready = {.fd = fabric_thread_fd(loop->thread), .events = POLLIN};
        if (poll(&ready, 1, WAIT_MS) == 1)
            fabric_thread_clear(loop->thread);
    }
}

int engine_loop_fd(const struct engine_loop *loop)
{
    return fabric_thread_fd(loop->thread);
}

bool engine_loop_heard(struct engine_loop *loop, int64_t *counted_ns, int64_t *heard_ns)
{
    struct fabric_report report;
    fabric_thread_clear(loop->thread);
    bool heard = false;
    while (fabric_thread_next(loop->thread, &report)) {
        if (report.kind != REPORT_EVENT || report.event.kind != FABRIC_IMMEDIATE)
            continue;
        *heard_ns = clock_now_ns();
        *counted_ns = report.event.done_ns;
        heard = true;
    }
    return heard;
}
