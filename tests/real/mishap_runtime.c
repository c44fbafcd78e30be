/* See mishap_runtime.h. */
#define _GNU_SOURCE
#include "real/mishap_runtime.h"

#include "base/arith.h"
#include "base/check.h"
#include "base/rng.h"
#include "messenger/wire.h"
#include "real/process/real_runtime.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define HELD_MAX 4096u
#define LATE_NS_MAX (25 * NS_PER_MS)

/* Instances of the scenario that the tests run. */
#define INSTANCES 4

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

static struct {
    struct runtime runtime; /* what the node is made on */
    struct runtime *inner;
    struct real_runtime *real;
    void (*handle)(void *self, const struct event *event);
    void *self;
    struct mishaps mishaps;
    struct rng rng;
    uint32_t events;
    bool releasing;
    int timer;
    struct held held[HELD_MAX]; /* in order of arrival */
    uint32_t held_count;
} shim;

struct mishaps mishaps_of(uint64_t seed, uint32_t instances)
{
    struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
    struct mishaps mishaps = {.bits = (uint32_t)rng_between(&rng, 1, (1 << MISHAP_BITS) - 1)};
    mishaps.victim = (uint32_t)rng_between(&rng, 1, instances);
    mishaps.victim_at = (uint32_t)rng_between(&rng, 1, 150);
    if (!rng_chance(&rng, 1, 2)) /* half of all runs keep everybody: what they do can be held to more */
        mishaps.bits &= ~(uint32_t)MISHAP_KILL;
    if (mishaps.bits == 0)
        mishaps.bits = MISHAP_LATE_COMPLETIONS;
    return mishaps;
}

static bool has(enum mishap_bit bit)
{
    return (shim.mishaps.bits & (uint32_t)bit) != 0;
}

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

static void due(void *self, uint32_t argument)
{
    uint64_t times;
    (void)self;
    (void)argument;
    if (read(shim.timer, &times, sizeof times) < 0)
        return;
    int64_t now_ns = clock_ns();
    for (uint32_t i = 0; i < shim.held_count;) {
        if (shim.held[i].due_ns > now_ns) {
            i++;
            continue;
        }
        struct held held = take(i);
        shim.releasing = true;
        real_runtime_deliver(shim.real, &held.event);
        shim.releasing = false;
        free(held.bytes);
    }
    arm();
}

/* How late the event is to be; 0: it is not. */
static int64_t lateness_ns(const struct event *event)
{
    bool late = false;
    if (event->kind == EVENT_MESSAGE)
        late = has(MISHAP_LATE_MESSAGES) && rng_chance(&shim.rng, 1, 8);
    else if (event->kind == EVENT_WRITE_DONE || event->kind == EVENT_IMMEDIATE)
        late = has(MISHAP_LATE_COMPLETIONS) && rng_chance(&shim.rng, 1, 3);
    else if (event->kind == EVENT_STEPS_DONE)
        late = has(MISHAP_LATE_STEPS) && rng_chance(&shim.rng, 1, 8);
    return late ? (int64_t)rng_between(&shim.rng, 1, LATE_NS_MAX) : 0;
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
    (void)self;
    if (shim.releasing) {
        shim.releasing = false; /* what follows from it is not released */
        pass(event);
        return;
    }
    if (has(MISHAP_KILL) && shim.runtime.node == shim.mishaps.victim && ++shim.events == shim.mishaps.victim_at)
        raise(SIGKILL);
    if (event->kind == EVENT_WRITE_DONE && event->status == WRITE_OK && has(MISHAP_WRITES_IN_ERROR) &&
        rng_chance(&shim.rng, 1, 40))
        passed.status = WRITE_FAILED;
    if (event->kind == EVENT_PEER_LOST)
        release_messages(event->id);
    int64_t late_ns = lateness_ns(event);
    int64_t behind_ns = event->kind == EVENT_MESSAGE ? last_due_ns(event->id) : 0;
    if (late_ns > 0 || behind_ns > 0) {
        hold(&passed, max_i64(behind_ns, clock_ns() + late_ns));
        return;
    }
    pass(&passed);
    if (event->kind == EVENT_MESSAGE && has(MISHAP_TWICE_MESSAGES) && rng_chance(&shim.rng, 1, 8))
        pass(&passed);
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
    (void)rt;
    bool covered = wire_decode(bytes, length, &m) &&
                   (m.kind == MESSAGE_PREFILL || m.kind == MESSAGE_ACCEPTED || m.kind == MESSAGE_NACK);
    if (covered && has(MISHAP_LOST_MESSAGES) && rng_chance(&shim.rng, 1, 20))
        return;
    rt_send(shim.inner, node, bytes, length);
}

static void op_trace(struct runtime *rt, const struct trace_record *record)
{
    (void)rt;
    shim.inner->ops->trace(shim.inner, record);
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
    const char *seed = getenv("TANDEM_MISHAP_SEED");
    if (seed == NULL)
        return __real_real_runtime_make(config);
    uint64_t number = strtoull(seed, NULL, 10);
    shim.handle = config->handle;
    shim.self = config->self;
    shim.mishaps = mishaps_of(number, INSTANCES);
    shim.rng = rng_stream(number, 1 + config->node, RNG_FAULTS);
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
