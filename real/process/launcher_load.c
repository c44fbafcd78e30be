/* The load of a real run: requests arrive at the front when their time has come on the clock. */
#define _GNU_SOURCE
#include "real/process/launcher_internal.h"

#include "base/arith.h"

#include <sys/timerfd.h>
#include <unistd.h>

bool launcher_load_make(struct launcher *launcher)
{
    struct user_error error = {.set = false};
    launcher->workload = workload_create_again(&launcher->world->scenario->load, launcher->world->seed,
                                               launcher->world->recorded, launcher->config->arrivals, &error);
    if (launcher->workload == NULL) {
        launcher_break(launcher, LAUNCH_FAILED, "%s", error.text);
        return false;
    }
    launcher->arrival_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(launcher->arrival_timer >= 0);
    real_runtime_watch(launcher->real, launcher->arrival_timer, launcher_feed, launcher, 0);
    return true;
}

void launcher_load_free(struct launcher *launcher)
{
    workload_free(launcher->workload);
    if (launcher->arrival_timer >= 0)
        close(launcher->arrival_timer);
}

static void arrive(struct launcher *launcher, const struct workload_item *item)
{
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

/* The front tells nobody that a request has ended, but it lives there until it does. */
void launcher_after(void *self, const struct event *event)
{
    struct launcher *launcher = self;
    uint32_t arrived = event->kind == EVENT_ARRIVAL && event->status == ARRIVAL_NEW;
    uint32_t live = node_stats(launcher->node).requests_live;
    if (launcher->world->scenario->load.arrivals == ARRIVAL_CLOSED && launcher->config->arrivals == NULL)
        launcher->answers += launcher->front_live + arrived - live;
    launcher->front_live = live;
}

/* Closed loop: a client whose request has ended sends its next one, outside of the event in which it ended. */
void launcher_answer(struct launcher *launcher)
{
    struct workload_item item;
    bool answered = launcher->answers > 0;
    for (; launcher->answers > 0; launcher->answers--)
        if (workload_closed_next(launcher->workload, real_runtime_now_ns(launcher->real), &item))
            arrive(launcher, &item);
    if (answered)
        arm(launcher);
}

bool launcher_served(const struct launcher *launcher)
{
    return launcher->front_live == 0 && launcher->answers == 0 && workload_next_ns(launcher->workload) == TIME_NEVER;
}
