/* The load of a real run: requests arrive at the front when their time has come on the clock. */
#define _GNU_SOURCE
#include "real/cluster/launcher_internal.h"

#include "base/arith.h"

#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Requests whose clients wait for the answer, in no particular order, and behind them those that have ended since
 * launcher_answer() was last called. */
struct clients {
    uint32_t *requests;
    uint32_t waiting;
    uint32_t count;
    uint32_t room;
};

/* Clients send more when they are answered. Where a run is played again, all comes when it came. */
static struct clients *make_clients(const struct launcher *launcher)
{
    bool closed = launcher->world->scenario->load.arrivals == ARRIVAL_CLOSED && launcher->config->arrivals == NULL;
    if (!closed && !workload_follows(launcher->workload))
        return NULL;
    struct clients *clients = calloc(1, sizeof *clients);
    CHECK(clients != NULL);
    return clients;
}

static void client_waits(struct clients *clients, uint32_t request)
{
    if (clients->count == clients->room) {
        clients->room = max_u32(64, 2 * clients->room);
        clients->requests = realloc(clients->requests, clients->room * sizeof *clients->requests);
        CHECK(clients->requests != NULL);
    }
    clients->requests[clients->count++] = clients->requests[clients->waiting];
    clients->requests[clients->waiting++] = request;
}

/* The front tells nobody that a request has ended, but it lives there until it does. */
static void find_ended(struct launcher *launcher, struct clients *clients)
{
    for (uint32_t i = 0; i < clients->waiting && clients->waiting > launcher->front_live;) {
        uint32_t request = clients->requests[i];
        if (node_serves(launcher->node, request)) {
            i++;
            continue;
        }
        clients->requests[i] = clients->requests[--clients->waiting];
        clients->requests[clients->waiting] = request;
    }
}

bool launcher_load_make(struct launcher *launcher)
{
    struct user_error error = {.set = false};
    launcher->workload = workload_create_again(&launcher->world->scenario->load, launcher->world->seed,
                                               launcher->world->recorded, launcher->config->arrivals, &error);
    if (launcher->workload == NULL) {
        launcher_break(launcher, LAUNCH_FAILED, "%s", error.text);
        return false;
    }
    launcher->clients = make_clients(launcher);
    launcher->arrival_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(launcher->arrival_timer >= 0);
    real_runtime_watch(launcher->real, launcher->arrival_timer, launcher_feed, launcher, 0);
    return true;
}

void launcher_load_free(struct launcher *launcher)
{
    workload_free(launcher->workload);
    if (launcher->clients != NULL)
        free(launcher->clients->requests);
    free(launcher->clients);
    free(launcher->conversations);
    if (launcher->arrival_timer >= 0)
        close(launcher->arrival_timer);
}

/* A request's row is written when all nodes have reported its end: its conversation may have gone on by then. */
static void note_conversation(struct launcher *launcher, uint32_t request)
{
    if (request >= launcher->conversation_room) {
        launcher->conversation_room = max_u32(request + 1, 2 * launcher->conversation_room);
        launcher->conversations =
            realloc(launcher->conversations, launcher->conversation_room * sizeof *launcher->conversations);
        CHECK(launcher->conversations != NULL);
    }
    launcher->conversations[request] = workload_conversation(launcher->workload, request);
}

uint32_t launcher_conversation(const struct launcher *launcher, uint32_t request)
{
    return launcher->conversations == NULL ? 0 : launcher->conversations[request];
}

/* The first request that counts has come, and gaps between tokens count from now on: everybody is told. */
static void begin_counting(struct launcher *launcher)
{
    launcher->counted_ns = max_i64(launcher->world->scenario->load.warmup_ns, real_runtime_now_ns(launcher->real));
    for (uint32_t i = 1; i < launcher->node_count; i++)
        launcher_say_counted(launcher, i);
}

void launcher_say_counted(struct launcher *launcher, uint32_t node)
{
    unsigned char bytes[8];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u64(&writer, (uint64_t)launcher->counted_ns);
    if (launcher->counted_ns != TIME_NEVER)
        mesh_send(launcher->mesh, node, FRAME_COUNT, bytes, writer.used);
}

static void arrive(struct launcher *launcher, const struct workload_item *item)
{
    const struct load *load = &launcher->world->scenario->load;
    if (!item->is_abort && load->warmup_requests > 0 && item->spec.id == load->warmup_requests)
        begin_counting(launcher);
    if (!item->is_abort && launcher->clients != NULL)
        client_waits(launcher->clients, item->spec.id);
    if (!item->is_abort && workload_conversation(launcher->workload, item->spec.id) > 0)
        note_conversation(launcher, item->spec.id);
    real_runtime_deliver(launcher->real, &(struct event){.kind = EVENT_ARRIVAL,
                                                         .status = item->is_abort ? ARRIVAL_ABORT : ARRIVAL_NEW,
                                                         .id = item->spec.id,
                                                         .data = &item->spec});
}

static void arm(struct launcher *launcher)
{
    int64_t next_ns = workload_next_ns(launcher->workload);
    struct itimerspec at = {.it_value = {0}};
    if (next_ns != TIME_NEVER) {
        int64_t wait_ns = max_i64(1, next_ns - real_runtime_now_ns(launcher->real));
        at.it_value.tv_sec = wait_ns / NS_PER_S;
        at.it_value.tv_nsec = wait_ns % NS_PER_S;
    }
    CHECK(timerfd_settime(launcher->arrival_timer, 0, &at, NULL) == 0);
}

void launcher_feed(void *self, uint32_t argument)
{
    (void)argument;
    struct launcher *launcher = self;
    struct workload_item item;
    uint64_t expired;
    ssize_t got = read(launcher->arrival_timer, &expired, sizeof expired);
    (void)got; /* EAGAIN: called to begin with, or set again since */
    while (workload_next_ns(launcher->workload) <= real_runtime_now_ns(launcher->real) &&
           workload_next(launcher->workload, &item))
        arrive(launcher, &item);
    arm(launcher);
}

void launcher_after(void *self, const struct event *event)
{
    (void)event;
    struct launcher *launcher = self;
    launcher->front_live = node_stats(launcher->node).requests_live;
    if (launcher->clients != NULL)
        find_ended(launcher, launcher->clients);
}

/* A client whose request has ended sends its next one at once (closed loop) or when it has thought (conversation),
 * outside of the event in which it ended. */
void launcher_answer(struct launcher *launcher)
{
    struct clients *clients = launcher->clients;
    struct workload_item item;
    if (clients == NULL || clients->count == clients->waiting)
        return;
    while (clients->count > clients->waiting) {
        uint32_t request = clients->requests[--clients->count];
        int64_t now_ns = real_runtime_now_ns(launcher->real);
        workload_answered(launcher->workload, request, now_ns);
        if (launcher->world->scenario->load.arrivals == ARRIVAL_CLOSED &&
            workload_closed_next(launcher->workload, now_ns, &item))
            arrive(launcher, &item);
    }
    arm(launcher);
}

bool launcher_served(const struct launcher *launcher)
{
    return launcher->front_live == 0 && (launcher->clients == NULL || launcher->clients->count == 0) &&
           workload_next_ns(launcher->workload) == TIME_NEVER;
}
