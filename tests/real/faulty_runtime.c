/* See faulty_runtime.h. */
#define _GNU_SOURCE
#include "real/faulty_runtime.h"

#include "base/arith.h"
#include "base/check.h"
#include "messenger/wire.h"
#include "real/runtime/real_runtime.h"
#include "real/real_draw.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define HELD_MAX 4096u
#define TICKETS_MAX 4096u
#define ANY UINT32_MAX

/* The linker gives these names to the functions of real_runtime.h and to those that stand before them. */
struct real_runtime *__real_real_runtime_make(const struct real_config *config);
struct real_runtime *__wrap_real_runtime_make(const struct real_config *config);
struct runtime *__real_real_runtime_seam(struct real_runtime *real);
struct runtime *__wrap_real_runtime_seam(struct real_runtime *real);

/* An event that the node gets later. */
struct held {
    struct event event;
    unsigned char *bytes; /* owned */
    int64_t due_ns;       /* CLOCK_MONOTONIC */
};

/* One of the faults, as it stands in this process. */
struct played {
    const struct fault *fault;
    uint32_t node;
    uint32_t to;
    uint32_t seen;     /* records of its kind */
    uint32_t request;  /* of the record */
    uint32_t passed;   /* messages, writes or steps that it was about, since it began */
    int64_t begins_ns; /* CLOCK_MONOTONIC; TIME_NEVER: its moment has not come */
    bool begun;
};

static struct {
    struct runtime runtime; /* what the node is made on */
    struct runtime *inner;
    struct real_runtime *real;
    void (*handle)(void *self, const struct event *event);
    void *self;
    struct drawn drawn;
    struct played played[FAULTS_MAX];
    bool started;
    bool releasing;
    int timer;
    uint32_t destinations[TICKETS_MAX]; /* of writes */
    struct held held[HELD_MAX];         /* in order of arrival */
    uint32_t held_count;
} shim;

static int64_t clock_ns(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void pass(const struct event *event)
{
    shim.runtime.now_ns = shim.inner->now_ns;
    shim.handle(shim.self, event);
}

static void arm(void)
{
    int64_t first_ns = TIME_NEVER;
    for (uint32_t i = 0; i < shim.held_count; i++)
        first_ns = min_i64(first_ns, shim.held[i].due_ns);
    for (uint32_t i = 0; i < shim.drawn.faults.count; i++)
        if (!shim.played[i].begun)
            first_ns = min_i64(first_ns, shim.played[i].begins_ns);
    struct itimerspec at = {.it_value = {0}};
    if (first_ns != TIME_NEVER)
        at.it_value = (struct timespec){.tv_sec = first_ns / NS_PER_S, .tv_nsec = first_ns % NS_PER_S};
    CHECK(timerfd_settime(shim.timer, TFD_TIMER_ABSTIME, &at, NULL) == 0);
}

static void hold(const struct event *event, int64_t due_ns)
{
    CHECK(shim.held_count < HELD_MAX);
    struct held *held = &shim.held[shim.held_count++];
    *held = (struct held){.event = *event, .due_ns = due_ns};
    if (event->kind == EVENT_MESSAGE) {
        held->bytes = malloc((size_t)event->count + 1);
        CHECK(held->bytes != NULL);
        memcpy(held->bytes, event->data, (size_t)event->count);
        held->event.data = held->bytes;
    }
    arm();
}

static struct held take(uint32_t index)
{
    struct held held = shim.held[index];
    memmove(&shim.held[index], &shim.held[index + 1], (--shim.held_count - index) * sizeof *shim.held);
    return held;
}

/* The last message of a node that waits is due then; 0: none waits. */
static int64_t last_due_ns(uint32_t source)
{
    int64_t last_ns = 0;
    for (uint32_t i = 0; i < shim.held_count; i++)
        if (shim.held[i].event.kind == EVENT_MESSAGE && shim.held[i].event.id == source)
            last_ns = shim.held[i].due_ns;
    return last_ns;
}

static void deliver(const struct event *event)
{
    shim.releasing = true;
    real_runtime_deliver(shim.real, event);
    shim.releasing = false;
}

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

static void leave(uint32_t request)
{
    struct request_spec spec = {.id = request, .deadline_ns = TIME_NEVER};
    deliver(&(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_ABORT, .id = request, .data = &spec});
}

/* Not from within the node. */
static void begin(struct played *p)
{
    p->begun = true;
    if (p->fault->kind == FAULT_KILL && p->node == shim.runtime.node)
        raise(SIGKILL);
    uint32_t request = p->fault->request != FAULT_REQUEST_ANY ? p->fault->request : p->request;
    if (p->fault->kind == FAULT_LEAVE && shim.runtime.node == 0 && request != TRACE_NO_REQUEST)
        leave(request);
}

static void begin_due(void)
{
    for (uint32_t i = 0; i < shim.drawn.faults.count; i++) {
        struct played *p = &shim.played[i];
        if (!p->begun && p->begins_ns <= clock_ns())
            begin(p);
    }
}

/* Faults without a record begin so long after the first event of the process. */
static void start(void)
{
    int64_t now_ns = clock_ns();
    shim.started = true;
    for (uint32_t i = 0; i < shim.drawn.faults.count; i++)
        if (shim.drawn.faults.item[i].record == 0)
            shim.played[i].begins_ns = now_ns + shim.drawn.faults.item[i].at_ns;
    arm();
}

/* Whether the fault is about what passes from `source` to `destination`, and its turn has come. ANY: nobody knows. */
static bool hits(struct played *p, enum fault_kind kind, uint32_t source, uint32_t destination)
{
    bool about = p->fault->kind == kind && p->begun && (p->node == ANY || source == ANY || p->node == source) &&
                 (p->to == ANY || destination == ANY || p->to == destination);
    if (!about)
        return false;
    uint32_t number = p->passed++;
    return number >= p->fault->skip && number - p->fault->skip < p->fault->count;
}

/* How many faults of the kind hit it, and what they delay it by, in all. */
static uint32_t count_hits(enum fault_kind kind, uint32_t source, uint32_t destination, int64_t *late_ns)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < shim.drawn.faults.count; i++) {
        struct played *p = &shim.played[i];
        if (!hits(p, kind, source, destination))
            continue;
        *late_ns = min_i64(REAL_LATE_NS_MAX, *late_ns + p->fault->delay_ns);
        count++;
    }
    return count;
}

static void due(void *self, uint32_t argument)
{
    uint64_t times;
    (void)self;
    (void)argument;
    if (read(shim.timer, &times, sizeof times) < 0)
        return;
    begin_due();
    int64_t now_ns = clock_ns();
    for (uint32_t i = 0; i < shim.held_count;) {
        if (shim.held[i].due_ns > now_ns) {
            i++;
            continue;
        }
        struct held held = take(i);
        deliver(&held.event);
        free(held.bytes);
    }
    arm();
}

/* How late the event is to be; 0: it is not. */
static int64_t lateness_ns(const struct event *event)
{
    uint32_t own = shim.runtime.node;
    int64_t late_ns = 0;
    if (event->kind == EVENT_MESSAGE)
        count_hits(FAULT_LATE, event->id, own, &late_ns);
    else if (event->kind == EVENT_WRITE_DONE)
        count_hits(FAULT_STALL, own, shim.destinations[event->id], &late_ns);
    else if (event->kind == EVENT_IMMEDIATE)
        count_hits(FAULT_SLOW, ANY, own, &late_ns);
    else if (event->kind == EVENT_STEPS_DONE)
        count_hits(FAULT_TICKS, own, ANY, &late_ns);
    return late_ns;
}

/* What a lost node said before it was lost is heard before. */
static void release_messages(uint32_t source)
{
    for (uint32_t i = 0; i < shim.held_count;) {
        if (shim.held[i].event.kind != EVENT_MESSAGE || shim.held[i].event.id != source) {
            i++;
            continue;
        }
        struct held held = take(i);
        pass(&held.event);
        free(held.bytes);
    }
}

static void handle(void *self, const struct event *event)
{
    struct event passed = *event;
    int64_t none_ns = 0;
    (void)self;
    if (shim.releasing) {
        shim.releasing = false; /* what follows from it is not released */
        pass(event);
        return;
    }
    if (!shim.started)
        start();
    CHECK(event->kind != EVENT_WRITE_DONE || event->id < TICKETS_MAX);
    if (event->kind == EVENT_WRITE_DONE && event->status == WRITE_OK &&
        count_hits(FAULT_FAIL, shim.runtime.node, shim.destinations[event->id], &none_ns) > 0)
        passed.status = WRITE_FAILED;
    if (event->kind == EVENT_PEER_LOST)
        release_messages(event->id);
    bool twice = event->kind == EVENT_MESSAGE && count_hits(FAULT_TWICE, event->id, shim.runtime.node, &none_ns) > 0;
    int64_t late_ns = lateness_ns(event);
    int64_t behind_ns = event->kind == EVENT_MESSAGE ? last_due_ns(event->id) : 0;
    for (uint32_t copy = 0; copy < (twice ? 2 : 1); copy++) {
        if (late_ns > 0 || behind_ns > 0)
            hold(&passed, max_i64(behind_ns, clock_ns() + late_ns));
        else
            pass(&passed);
    }
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

static void op_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    (void)rt;
    rt_timer_set(shim.inner, slot, at_ns);
}

static void op_launch(struct runtime *rt, const struct step_launch *launch)
{
    (void)rt;
    rt_launch(shim.inner, launch);
}

static void op_launch_end(struct runtime *rt, uint32_t ticket)
{
    (void)rt;
    rt_launch_end(shim.inner, ticket);
}

static void op_write_post(struct runtime *rt, const struct paged_write *write)
{
    (void)rt;
    CHECK(write->ticket < TICKETS_MAX);
    shim.destinations[write->ticket] = write->destination;
    rt_write_post(shim.inner, write);
}

static void op_write_stop(struct runtime *rt, uint32_t ticket)
{
    (void)rt;
    rt_write_stop(shim.inner, ticket);
}

static void op_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    (void)rt;
    rt_immediate_expect(shim.inner, immediate, count);
}

static void op_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    struct message m;
    int64_t none_ns = 0;
    (void)rt;
    bool covered = wire_decode(bytes, length, &m) && message_loss_is_covered(m.kind);
    if (covered && count_hits(FAULT_DROP, shim.runtime.node, node, &none_ns) > 0)
        return;
    rt_send(shim.inner, node, bytes, length);
}

/* Who is to die at a record dies in the call that writes it. */
static void op_trace(struct runtime *rt, const struct trace_record *record)
{
    (void)rt;
    shim.inner->ops->trace(shim.inner, record);
    bool any = false;
    for (uint32_t i = 0; i < shim.drawn.faults.count; i++) {
        struct played *p = &shim.played[i];
        if (p->fault->record != record->kind || ++p->seen != p->fault->nth)
            continue;
        p->request = record->request;
        if (p->fault->kind == FAULT_KILL && p->node == shim.runtime.node && p->fault->at_ns == 0)
            raise(SIGKILL);
        p->begins_ns = clock_ns() + p->fault->at_ns;
        any = true;
    }
    if (any)
        arm();
}

static const struct runtime_ops operations = {
    .timer_set = op_timer_set,
    .launch = op_launch,
    .launch_end = op_launch_end,
    .write_post = op_write_post,
    .write_stop = op_write_stop,
    .immediate_expect = op_immediate_expect,
    .send = op_send,
    .trace = op_trace,
};

/* ---- In front of the real one ------------------------------------------------------------------------------------ */

struct real_runtime *__wrap_real_runtime_make(const struct real_config *config)
{
    const char *seed = getenv(INJECT_SEED);
    if (seed == NULL)
        return __real_real_runtime_make(config);
    real_draw(strtoull(seed, NULL, 10), &shim.drawn);
    for (uint32_t i = 0; i < shim.drawn.faults.count; i++) {
        const struct fault *fault = &shim.drawn.faults.item[i];
        shim.played[i] = (struct played){.fault = fault,
                                         .node = real_draw_node(&shim.drawn, fault->node),
                                         .to = real_draw_node(&shim.drawn, fault->to),
                                         .request = TRACE_NO_REQUEST,
                                         .begins_ns = TIME_NEVER};
    }
    shim.handle = config->handle;
    shim.self = config->self;
    shim.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(shim.timer >= 0);
    struct real_config own = *config;
    own.handle = handle;
    shim.real = __real_real_runtime_make(&own);
    shim.inner = __real_real_runtime_seam(shim.real);
    shim.runtime = *shim.inner;
    shim.runtime.ops = &operations;
    real_runtime_watch(shim.real, shim.timer, due, NULL, 0);
    return shim.real;
}

struct runtime *__wrap_real_runtime_seam(struct real_runtime *real)
{
    return real == shim.real ? &shim.runtime : __real_real_runtime_seam(real);
}
