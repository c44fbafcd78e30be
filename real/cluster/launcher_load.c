/* The load of a real run: requests arrive at the front when their time has come on the clock. */
#define _GNU_SOURCE
#include "real/cluster/launcher_internal.h"

#include "base/arith.h"

#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void push(struct requests *requests, uint32_t request)
{
    if (requests->count == requests->room) {
        requests->room = max_u32(64, 2 * requests->room);
        requests->items = realloc(requests->items, requests->room * sizeof *requests->items);
        CHECK(requests->items != NULL);
    }
    requests->items[requests->count++] = request;
}

void launcher_load_make(struct launcher *launcher)
{
    launcher->wake_ns = TIME_NEVER;
    launcher->arrival_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(launcher->arrival_timer >= 0);
    real_runtime_watch(launcher->real, launcher->arrival_timer, launcher_feed, launcher, 0);
}

void launcher_load_free(struct launcher *launcher)
{
    free(launcher->waits.items);
    free(launcher->ended.items);
    if (launcher->arrival_timer >= 0)
        close(launcher->arrival_timer);
}

/* The first request that counts has come, and gaps between tokens count from now on: everybody is told. */
void launcher_count_from(void *self, int64_t from_ns)
{
    (void)from_ns;
    struct launcher *launcher = self;
    for (uint32_t i = 1; i < launcher->node_count; i++)
        launcher_say_counted(launcher, i);
}

void launcher_say_counted(struct launcher *launcher, uint32_t node)
{
    unsigned char bytes[8];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u64(&writer, (uint64_t)launcher->run->counted_ns);
    if (launcher->run->counted_ns != TIME_NEVER)
        mesh_send(launcher->mesh, node, FRAME_COUNT, bytes, writer.used);
}

void launcher_arrive(void *self, const struct event *event)
{
    struct launcher *launcher = self;
    if (event->status == ARRIVAL_NEW && run_answers(launcher->run))
        push(&launcher->waits, (uint32_t)event->id);
    real_runtime_deliver(launcher->real, event);
}

void launcher_wake(void *self, int64_t at_ns)
{
    struct launcher *launcher = self;
    struct itimerspec at = {.it_value = {0}};
    launcher->wake_ns = at_ns;
    if (at_ns != TIME_NEVER) {
        int64_t wait_ns = max_i64(1, at_ns - real_runtime_now_ns(launcher->real));
        at.it_value.tv_sec = wait_ns / NS_PER_S;
        at.it_value.tv_nsec = wait_ns % NS_PER_S;
    }
    CHECK(timerfd_settime(launcher->arrival_timer, 0, &at, NULL) == 0);
}

void launcher_feed(void *self, uint32_t argument)
{
    (void)argument;
    struct launcher *launcher = self;
    uint64_t expired;
    ssize_t got = read(launcher->arrival_timer, &expired, sizeof expired);
    (void)got; /* EAGAIN: called to begin with, or set again since */
    while (launcher->wake_ns <= real_runtime_now_ns(launcher->real))
        run_feed(launcher->run);
}

/* The front tells nobody that a request has ended, but it lives there until it does. */
void launcher_after(void *self, const struct event *event)
{
    (void)event;
    struct launcher *launcher = self;
    struct requests *waits = &launcher->waits;
    launcher->front_live = node_stats(launcher->node.node).requests_live;
    for (uint32_t i = 0; i < waits->count && waits->count > launcher->front_live;) {
        uint32_t request = waits->items[i];
        if (node_serves(launcher->node.node, request)) {
            i++;
            continue;
        }
        waits->items[i] = waits->items[--waits->count];
        run_ended(launcher->run, request);
    }
}

void launcher_answer_soon(void *self, uint32_t request)
{
    push(&((struct launcher *)self)->ended, request);
}

/* Outside of the event in which they ended. */
void launcher_answer(struct launcher *launcher)
{
    struct requests *ended = &launcher->ended;
    while (ended->count > 0)
        run_answer(launcher->run, ended->items[--ended->count]);
}
