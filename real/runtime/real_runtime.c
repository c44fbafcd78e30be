/* See real_runtime.h. */
#define _GNU_SOURCE
#include "real/runtime/real_runtime.h"

#include "base/arith.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* What waits until the node has returned. */
struct pending {
    struct event event;
    unsigned char *bytes; /* owned */
};

/* A write in flight. */
struct posted {
    struct paged_write write; /* with pages of its own while somebody wants to see what was written */
    uint32_t *pages;
    int64_t posted_ns;
};

/* A write that has failed and is not told yet: its receiver still closes what could bring more of it. */
struct failure {
    struct fabric_event event;
    uint32_t node;
    bool over; /* the receiver is lost */
};

struct watch {
    int fd; /* -1: unused */
    void (*ready)(void *self, uint32_t argument);
    void *self;
    uint32_t argument;
};

/* The launch of a microbatch. */
struct in_flight {
    bool launched;
    uint32_t ticket;
    int64_t launched_ns;
    uint64_t counter_base;
    struct launch_sums sums;
    struct step_times times;
};

struct real_runtime {
    struct runtime runtime;
    struct real_config config;
    void (*report)(void *self, struct fabric_report *report);
    void *report_self;
    int64_t origin_ns; /* TIME_NEVER: not set */
    int64_t tick_ns;   /* of the mesh, CLOCK_MONOTONIC */
    bool inside;
    int epoll;
    int timer;
    int64_t timer_at_ns; /* what the timer is set to */
    int64_t timers[TIMERS_MAX];
    uint32_t incarnations[NODES_MAX]; /* of the newest connection with each */

    struct in_flight launches[STAGES_MAX]; /* by microbatch */
    uint32_t launched;                     /* of them, in progress */
    uint64_t next_base;
    int64_t launched_ns;   /* of the newest */
    int64_t busy_until_ns; /* of the newest step that is over, CLOCK_MONOTONIC */

    uint64_t awaited;       /* number of the newest expectation given to the fabric thread */
    uint64_t fence;         /* number of the newest removal of a peer */
    uint64_t fence_done;    /* commands that were carried out when it was last looked, */
    int64_t fence_since_ns; /* since when it has been that many, */
    int64_t fence_cpu_ns;   /* and what the thread had used then */
    struct posted *posted;
    uint32_t posted_count;
    struct failure *failures; /* at most one a ticket */
    uint32_t failure_count;
    struct device_token *fresh; /* of the newest outcome */
    uint32_t fresh_room;
    uint32_t *carried; /* tokens that came with a message */
    uint32_t carried_room;
    struct pending *pending;
    size_t pending_first;
    size_t pending_count;
    size_t pending_room;
    struct watch watches[REAL_WATCHES_MAX];
    struct ledger ledger;
};

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

static struct real_runtime *of(struct runtime *rt)
{
    struct real_runtime *real = (struct real_runtime *)(void *)rt;
    CHECK(real->inside);
    return real;
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

void real_runtime_origin(struct real_runtime *real, int64_t monotonic_ns)
{
    real->origin_ns = monotonic_ns;
}

int64_t real_runtime_now_ns(const struct real_runtime *real)
{
    return real->origin_ns == TIME_NEVER ? 0 : max_i64(0, clock_now_ns() - real->origin_ns);
}

static void arm_timer(struct real_runtime *real)
{
    int64_t first_ns = TIME_NEVER;
    for (uint32_t i = 0; i < TIMERS_MAX; i++)
        first_ns = min_i64(first_ns, real->timers[i]);
    if (first_ns == real->timer_at_ns)
        return;
    real->timer_at_ns = first_ns;
    struct itimerspec at = {.it_value = {0}};
    if (first_ns != TIME_NEVER) {
        int64_t absolute_ns = max_i64(1, time_add(first_ns, real->origin_ns == TIME_NEVER ? 0 : real->origin_ns));
        at.it_value.tv_sec = absolute_ns / NS_PER_S;
        at.it_value.tv_nsec = absolute_ns % NS_PER_S;
    }
    CHECK(timerfd_settime(real->timer, TFD_TIMER_ABSTIME, &at, NULL) == 0);
}

/* ---- Giving events ----------------------------------------------------------------------------------------------- */

static void push_pending(struct real_runtime *real, const struct event *event, const void *bytes, size_t length)
{
    if (real->pending_first > 0 && real->pending_first == real->pending_count) {
        real->pending_first = 0;
        real->pending_count = 0;
    }
    if (real->pending_count == real->pending_room) {
        real->pending_room = real->pending_room == 0 ? 64 : real->pending_room * 2;
        real->pending = realloc(real->pending, real->pending_room * sizeof *real->pending);
        CHECK(real->pending != NULL);
    }
    struct pending *pending = &real->pending[real->pending_count++];
    *pending = (struct pending){.event = *event};
    if (bytes == NULL)
        return;
    pending->bytes = allocate(length + 1, 1);
    memcpy(pending->bytes, bytes, length);
    pending->event.data = pending->bytes;
}

/* Time that this thread has run: what the node costs, whatever else the machine does meanwhile. */
static int64_t own_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Any event for the node ends a repetition at its next step boundary. */
static void hand_over(struct real_runtime *real, const struct event *event)
{
    CHECK(!real->inside);
    if (real->launched > 0)
        real->config.stepper.ops->end(real->config.stepper.self);
    real->runtime.now_ns = max_i64(real->runtime.now_ns, real_runtime_now_ns(real));
    int64_t start_ns = own_cpu_ns();
    real->inside = true;
    real->config.handle(real->config.self, event);
    real->inside = false;
    real->ledger.node_ns += own_cpu_ns() - start_ns;
    real->ledger.events++;
    if (real->config.listener.after != NULL)
        real->config.listener.after(real->config.listener.self, event);
}

static void drain_pending(struct real_runtime *real)
{
    while (real->pending_first < real->pending_count) {
        struct pending pending = real->pending[real->pending_first++];
        hand_over(real, &pending.event);
        free(pending.bytes);
    }
}

void real_runtime_itl_from(struct real_runtime *real, int64_t from_ns)
{
    real->config.itl_from_ns = from_ns;
}

void real_runtime_deliver(struct real_runtime *real, const struct event *event)
{
    drain_pending(real);
    hand_over(real, event);
    drain_pending(real);
}

static void write_done(struct real_runtime *real, const struct fabric_event *done);

static void tell_failure(struct real_runtime *real, uint32_t index)
{
    struct fabric_event event = real->failures[index].event;
    real->failures[index] = real->failures[--real->failure_count];
    write_done(real, &event);
}

/* Not while the node runs. */
static void tell_failures_over(struct real_runtime *real)
{
    for (uint32_t i = real->failure_count; i > 0; i--)
        if (i <= real->failure_count && real->failures[i - 1].over)
            tell_failure(real, i - 1);
}

/* Has the receiver close its ends of rails that are closed here; what else is in flight goes on meanwhile. */
static void ask_to_close(struct real_runtime *real, uint32_t node, const struct fabric_event *event)
{
    unsigned char bytes[8];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u32(&writer, event->id);
    write_u32(&writer, event->closed);
    mesh_send(real->config.mesh, node, FRAME_CLOSE, bytes, writer.used);
    real->failures[real->failure_count++] = (struct failure){.event = *event, .node = node};
}

static bool close_frame(struct real_runtime *real, uint32_t source, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    uint32_t ticket = read_u32(&reader);
    if (frame->kind == FRAME_CLOSE) {
        uint32_t rails = read_u32(&reader);
        bool good = read_end(&reader) && real->config.fabric != NULL;
        if (good)
            fabric_thread_close(real->config.fabric, source, rails, ticket);
        return good;
    }
    for (uint32_t i = 0; read_end(&reader) && i < real->failure_count; i++) {
        if (real->failures[i].node == source && real->failures[i].event.id == ticket) {
            tell_failure(real, i);
            return true;
        }
    }
    return false;
}

/* The tokens that a message comes with are here before the node can ask for them. */
bool real_runtime_frame(struct real_runtime *real, uint32_t source, const struct frame *frame)
{
    if (frame->kind == FRAME_CLOSE || frame->kind == FRAME_CLOSED)
        return close_frame(real, source, frame);
    struct frame_reader reader = frame_read(frame);
    uint32_t count = frame->kind == FRAME_ANSWERS ? read_u32(&reader) : 0;
    if (reader.bad || count > (reader.length - reader.at) / 4)
        return false;
    if (count > real->carried_room) {
        free(real->carried);
        real->carried = allocate(count, sizeof *real->carried);
        real->carried_room = count;
    }
    for (uint32_t i = 0; i < count; i++)
        real->carried[i] = read_u32(&reader);
    const unsigned char *bytes = frame->body + reader.at;
    size_t length = reader.length - reader.at;
    if (length > MESSAGE_BYTES_MAX)
        return false;
    if (real->config.answers != NULL ? !answers_heard(real->config.answers, bytes, length, real->carried, count)
                                     : count > 0)
        return false;
    real_runtime_deliver(real, &(struct event){.kind = EVENT_MESSAGE, .id = source, .data = bytes, .count = length});
    return true;
}

/* May be called while the node sends: the mesh gives up a peer that does not read. */
void real_runtime_peer_down(struct real_runtime *real, uint32_t node)
{
    uint32_t incarnation = real->incarnations[node];
    struct event event = {.kind = EVENT_PEER_LOST, .status = PEER_SUSPECTED, .id = node, .count = incarnation};
    for (uint32_t i = 0; i < real->failure_count; i++)
        real->failures[i].over = real->failures[i].over || real->failures[i].node == node;
    push_pending(real, &event, NULL, 0);
    if (real->config.fabric != NULL) {
        real->fence = fabric_thread_remove(real->config.fabric, node, incarnation);
        real->fence_done = UINT64_MAX; /* patience begins with the next look */
        return;                        /* fenced when the fabric thread says so */
    }
    event.status = PEER_FENCED;
    push_pending(real, &event, NULL, 0);
}

void real_runtime_peer_up(struct real_runtime *real, uint32_t node, uint32_t incarnation)
{
    real->incarnations[node] = incarnation;
}

void real_runtime_peer_replaced(struct real_runtime *real, uint32_t node)
{
    struct event event = {.kind = EVENT_PEER_LOST, .id = node, .count = real->incarnations[node] - 1};
    for (event.status = PEER_SUSPECTED; event.status <= PEER_FENCED; event.status++)
        push_pending(real, &event, NULL, 0);
}

void real_runtime_immediate(struct real_runtime *real, uint32_t immediate, uint64_t count)
{
    real_runtime_deliver(real, &(struct event){.kind = EVENT_IMMEDIATE, .id = immediate, .count = count});
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

static void op_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    struct real_runtime *real = of(rt);
    CHECK(slot < TIMERS_MAX);
    real->timers[slot] = at_ns;
    arm_timer(real);
}

/* The launch in progress with this ticket; NULL: it is over. */
static struct in_flight *in_progress(struct real_runtime *real, uint32_t ticket)
{
    for (uint32_t i = 0; i < STAGES_MAX; i++)
        if (real->launches[i].launched && real->launches[i].ticket == ticket)
            return &real->launches[i];
    return NULL;
}

static void op_launch(struct runtime *rt, const struct step_launch *launch)
{
    struct real_runtime *real = of(rt);
    const struct stepper *stepper = &real->config.stepper;
    CHECK(stepper->ops != NULL && launch->microbatch < STAGES_MAX && launch->repeat_max >= 1);
    struct in_flight *own = &real->launches[launch->microbatch];
    CHECK(!own->launched);
    real->launched++;
    own->launched = true;
    own->ticket = launch->ticket;
    own->launched_ns = max_i64(rt->now_ns, real->launched_ns + 1); /* rows of steps are told apart by their start */
    real->launched_ns = own->launched_ns;
    own->counter_base = real->next_base;
    own->sums = launch_sums(launch);
    real->next_base += (uint64_t)launch->repeat_max * stepper->stride;
    uint32_t given_count = 0;
    const struct step_given *given =
        real->config.answers != NULL ? answers_given(real->config.answers, launch, &given_count) : NULL;
    stepper->ops->launch(stepper->self, launch, given, given_count, own->counter_base);
}

static void op_launch_end(struct runtime *rt, uint32_t ticket)
{
    struct real_runtime *real = of(rt);
    if (in_progress(real, ticket) != NULL)
        real->config.stepper.ops->end(real->config.stepper.self);
}

/* Pages of a write, copied for whoever looks at what was written. */
static void keep_pages(struct posted *posted, const struct paged_write *write)
{
    uint32_t source = write->source_page_count, destination = write->destination_page_count;
    if (write->unit_count == 0)
        return;
    posted->pages = allocate((size_t)source + destination, sizeof *posted->pages);
    memcpy(posted->pages, write->source_pages, source * sizeof *posted->pages);
    memcpy(posted->pages + source, write->destination_pages, destination * sizeof *posted->pages);
    posted->write.source_pages = posted->pages;
    posted->write.destination_pages = posted->pages + source;
}

static void op_write_post(struct runtime *rt, const struct paged_write *write)
{
    struct real_runtime *real = of(rt);
    CHECK(real->config.fabric != NULL && real->posted_count < real->config.limits.writes_in_flight);
    if (write->destination_incarnation != real->incarnations[write->destination]) {
        struct event failed = {.kind = EVENT_WRITE_DONE, .status = WRITE_FAILED, .id = write->ticket};
        push_pending(real, &failed, NULL, 0);
        return;
    }
    struct posted *posted = &real->posted[real->posted_count++];
    *posted = (struct posted){.write = *write, .posted_ns = rt->now_ns};
    if (real->config.listener.written != NULL)
        keep_pages(posted, write);
    /* A gate is a launch in progress, or one that is over: then every layer of it has passed. */
    const struct in_flight *gate = write->gate == STEP_NONE ? NULL : in_progress(real, write->gate);
    fabric_thread_write(real->config.fabric, write, gate != NULL ? gate->counter_base : UINT64_MAX);
}

static void op_write_stop(struct runtime *rt, uint32_t ticket)
{
    struct real_runtime *real = of(rt);
    for (uint32_t i = 0; i < real->posted_count; i++)
        if (real->posted[i].write.ticket == ticket)
            fabric_thread_write_stop(real->config.fabric, ticket);
}

static void op_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    struct real_runtime *real = of(rt);
    CHECK(real->config.fabric != NULL);
    if (real->config.listener.expected != NULL)
        real->config.listener.expected(real->config.listener.self, immediate, count);
    real->awaited = fabric_thread_expect(real->config.fabric, immediate, count);
    /* The pages of what is forgotten may be used by the next launch: by then nothing more is copied into them. */
    while (count == 0 && fabric_thread_staged(real->config.fabric) &&
           fabric_thread_done(real->config.fabric) < real->awaited)
        sched_yield();
}

/* A message, and in the same frame the tokens without which its reader cannot go on. */
static void send_message(struct real_runtime *real, uint32_t node, const void *bytes, size_t length)
{
    const uint32_t *tokens = NULL;
    uint32_t count = 0;
    if (real->config.answers != NULL)
        count = answers_sent(real->config.answers, bytes, length, &tokens);
    if (real->config.mesh == NULL)
        return;
    if (count == 0) {
        mesh_send(real->config.mesh, node, FRAME_MESSAGE, bytes, length);
        return;
    }
    struct frame_writer writer = {.size = 4 + (size_t)count * 4 + length};
    writer.bytes = allocate(writer.size, 1);
    write_u32(&writer, count);
    for (uint32_t i = 0; i < count; i++)
        write_u32(&writer, tokens[i]);
    write_bytes(&writer, bytes, length);
    mesh_send(real->config.mesh, node, FRAME_ANSWERS, writer.bytes, writer.used);
    free(writer.bytes);
}

static void op_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    struct real_runtime *real = of(rt);
    CHECK(length <= real->config.limits.message_bytes);
    if (node == rt->node) {
        struct event event = {.kind = EVENT_MESSAGE, .id = node, .count = length};
        push_pending(real, &event, length == 0 ? "" : bytes, length);
        return;
    }
    if (real->config.listener.before_send != NULL)
        real->config.listener.before_send(real->config.listener.self, node);
    send_message(real, node, bytes, length);
}

static void op_trace(struct runtime *rt, const struct trace_record *record)
{
    struct real_runtime *real = of(rt);
    if (real->config.listener.trace != NULL)
        real->config.listener.trace(real->config.listener.self, rt->now_ns, record);
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

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

static void epoll_add(const struct real_runtime *real, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};
    CHECK(epoll_ctl(real->epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* What epoll hands back: one of these, or TAG_WATCH + the place of a watch. */
enum tag { TAG_MESH = 1, TAG_FABRIC = 2, TAG_STEPPER = 3, TAG_TIMER = 4, TAG_WATCH = 16 };

struct real_runtime *real_runtime_make(const struct real_config *config)
{
    struct real_runtime *real = allocate(1, sizeof *real);
    real->config = *config;
    real->runtime = (struct runtime){.ops = &operations, .node = config->node, .limits = config->limits};
    real->origin_ns = TIME_NEVER;
    real->timer_at_ns = TIME_NEVER;
    real->launched_ns = -1;
    for (uint32_t i = 0; i < STAGES_MAX; i++)
        real->launches[i].times = (struct step_times){.decode_end_ns = -1, .step_end_ns = -1};
    for (uint32_t i = 0; i < TIMERS_MAX; i++)
        real->timers[i] = TIME_NEVER;
    for (uint32_t i = 0; i < REAL_WATCHES_MAX; i++)
        real->watches[i].fd = -1;
    real->posted = allocate(config->limits.writes_in_flight, sizeof *real->posted);
    real->failures = allocate(config->limits.writes_in_flight, sizeof *real->failures);
    real->epoll = epoll_create1(EPOLL_CLOEXEC);
    real->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(real->epoll >= 0 && real->timer >= 0);
    epoll_add(real, real->timer, TAG_TIMER);
    if (config->mesh != NULL)
        epoll_add(real, mesh_fd(config->mesh), TAG_MESH);
    if (config->fabric != NULL)
        epoll_add(real, fabric_thread_fd(config->fabric), TAG_FABRIC);
    if (config->stepper.ops != NULL)
        epoll_add(real, config->stepper.fd, TAG_STEPPER);
    return real;
}

void real_runtime_free(struct real_runtime *real)
{
    if (real == NULL)
        return;
    for (size_t i = real->pending_first; i < real->pending_count; i++)
        free(real->pending[i].bytes);
    for (uint32_t i = 0; i < real->posted_count; i++)
        free(real->posted[i].pages);
    close(real->timer);
    close(real->epoll);
    free(real->pending);
    free(real->posted);
    free(real->failures);
    free(real->fresh);
    free(real->carried);
    free(real);
}

struct runtime *real_runtime_seam(struct real_runtime *real)
{
    return &real->runtime;
}

struct ledger *real_runtime_ledger(struct real_runtime *real)
{
    return &real->ledger;
}

void real_runtime_watch(struct real_runtime *real, int fd, void (*ready)(void *self, uint32_t argument), void *self,
                        uint32_t argument)
{
    uint32_t place = 0;
    while (place < REAL_WATCHES_MAX && real->watches[place].fd >= 0)
        place++;
    CHECK(place < REAL_WATCHES_MAX);
    real->watches[place] = (struct watch){.fd = fd, .ready = ready, .self = self, .argument = argument};
    epoll_add(real, fd, TAG_WATCH + place);
}

void real_runtime_unwatch(struct real_runtime *real, int fd)
{
    for (uint32_t i = 0; i < REAL_WATCHES_MAX; i++) {
        if (real->watches[i].fd != fd)
            continue;
        epoll_ctl(real->epoll, EPOLL_CTL_DEL, fd, NULL);
        real->watches[i].fd = -1;
    }
}

void real_runtime_on_report(struct real_runtime *real, void (*report)(void *self, struct fabric_report *report),
                            void *self)
{
    real->report = report;
    real->report_self = self;
}

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

static uint32_t posted_place(const struct real_runtime *real, uint32_t ticket)
{
    uint32_t i = 0;
    while (i < real->posted_count && real->posted[i].write.ticket != ticket)
        i++;
    CHECK(i < real->posted_count);
    return i;
}

static void write_done(struct real_runtime *real, const struct fabric_event *done)
{
    const struct real_listener *listener = &real->config.listener;
    uint32_t i = posted_place(real, done->id);
    struct posted posted = real->posted[i];
    real->posted[i] = real->posted[--real->posted_count];
    real->ledger.writes++;
    real->ledger.writes_failed += done->status == WRITE_FAILED;
    real->ledger.write_bytes += done->bytes;
    if (done->status == WRITE_OK && listener->written != NULL)
        listener->written(listener->self, &posted.write);
    free(posted.pages);
    int64_t origin_ns = real->origin_ns == TIME_NEVER ? 0 : real->origin_ns;
    struct transfer_row row = {
        .request = posted.write.request,
        .epoch = posted.write.epoch,
        .source = (uint16_t)real->config.node,
        .destination = (uint16_t)posted.write.destination,
        .layers = (uint32_t)done->count,
        .bytes = done->bytes,
        .writes = done->writes,
        .posted_ns = posted.posted_ns,
        .landed_ns = done->writes == 0 ? posted.posted_ns : done->done_ns - origin_ns,
        .confirmed_ns = real_runtime_now_ns(real),
    };
    if (listener->transfer != NULL)
        listener->transfer(listener->self, &row);
    real_runtime_deliver(
        real, &(struct event){
                  .kind = EVENT_WRITE_DONE, .id = done->id, .status = (uint16_t)done->status, .count = done->count});
}

/* A rail that broke is no reason to give a peer up: its tickets fail or go another way, and whether the process lives
 * is for the control plane to say. */
/* Has the bytes of a reached immediate taken on to the device. */
static bool moves_on(struct real_runtime *real, const struct fabric_event *event)
{
    const struct real_listener *listener = &real->config.listener;
    struct fabric_landing landing;
    if (!fabric_thread_staged(real->config.fabric) || listener->landing == NULL ||
        !listener->landing(listener->self, event->id, &landing))
        return false;
    fabric_thread_land(real->config.fabric, event->id, event->count, &landing);
    return true;
}

static void fabric_event(struct real_runtime *real, const struct fabric_event *event)
{
    const struct real_listener *listener = &real->config.listener;
    if (event->kind == FABRIC_WRITE_DONE) {
        const struct paged_write *write = &real->posted[posted_place(real, event->id)].write;
        uint32_t node = write->destination;
        bool there = real->config.mesh != NULL && mesh_up(real->config.mesh, node) &&
                     write->destination_incarnation == real->incarnations[node];
        if (event->closed != 0 && there)
            ask_to_close(real, node, event);
        else
            write_done(real, event);
    } else if (event->kind == FABRIC_IMMEDIATE && moves_on(real, event)) {
        return; /* FABRIC_LANDED follows */
    } else if ((event->kind == FABRIC_IMMEDIATE || event->kind == FABRIC_LANDED) &&
               (listener->landed == NULL || listener->landed(listener->self, event->id, event->count))) {
        real_runtime_immediate(real, event->id, event->count);
    }
}

static void send_closed(struct real_runtime *real, const struct fabric_report *report)
{
    unsigned char bytes[4];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u32(&writer, report->event.id);
    mesh_send(real->config.mesh, report->node, FRAME_CLOSED, bytes, writer.used);
}

static void fabric_turn(struct real_runtime *real)
{
    struct fabric_report report;
    fabric_thread_clear(real->config.fabric);
    while (fabric_thread_next(real->config.fabric, &report)) {
        if (report.kind == REPORT_EVENT)
            fabric_event(real, &report.event);
        else if (report.kind == REPORT_CLOSED)
            send_closed(real, &report);
        else if (report.kind == REPORT_FENCED)
            real_runtime_deliver(real, &(struct event){.kind = EVENT_PEER_LOST,
                                                       .status = PEER_FENCED,
                                                       .id = report.node,
                                                       .count = report.event.count});
        else if (real->report != NULL)
            real->report(real->report_self, &report);
        else
            free(report.card);
    }
}

/* The outcome with those of its tokens that are news. */
static struct steps_outcome with_news(struct real_runtime *real, const struct steps_outcome *outcome)
{
    struct steps_outcome news = *outcome;
    if (real->config.answers == NULL)
        return news;
    if (outcome->token_count > real->fresh_room) {
        free(real->fresh);
        real->fresh_room = 2 * outcome->token_count;
        real->fresh = allocate(real->fresh_room, sizeof *real->fresh);
    }
    news.tokens = real->fresh;
    news.token_count = answers_produced(real->config.answers, outcome->tokens, outcome->token_count, real->fresh);
    return news;
}

static void steps_done(struct real_runtime *real, const struct steps_outcome *outcome)
{
    const struct real_listener *listener = &real->config.listener;
    struct in_flight *own = in_progress(real, outcome->ticket);
    CHECK(own != NULL);
    own->launched = false;
    real->launched--;
    if (outcome->trouble != NULL) {
        if (listener->trouble != NULL)
            listener->trouble(listener->self, outcome->trouble);
        return;
    }
    int64_t origin_ns = real->origin_ns == TIME_NEVER ? 0 : real->origin_ns;
    ledger_steps(&real->ledger, &own->times, &own->sums, outcome, origin_ns, real->config.itl_from_ns,
                 real->config.produces_first_token);
    if (outcome->steps > 0) { /* what overlaps is busy once */
        int64_t end_ns = outcome->end_ns[outcome->steps - 1];
        real->ledger.busy_ns += max_i64(0, end_ns - max_i64(outcome->start_ns, real->busy_until_ns));
        real->busy_until_ns = max_i64(real->busy_until_ns, end_ns);
    }
    struct step_row row = {
        .node = (uint16_t)real->config.node,
        .steps = outcome->steps,
        .decode_sequences = (uint32_t)own->sums.tokens,
        .prefill_tokens = own->sums.prefill_tokens,
        .decode_context = own->sums.decode_context,
        .start_ns = own->launched_ns,
        .end_ns = real_runtime_now_ns(real),
    };
    struct steps_outcome news = with_news(real, outcome);
    if (listener->steps != NULL)
        listener->steps(listener->self, &row, &news);
    real_runtime_deliver(real,
                         &(struct event){.kind = EVENT_STEPS_DONE, .id = outcome->ticket, .count = outcome->steps});
}

static void timers_due(struct real_runtime *real)
{
    uint64_t expired;
    ssize_t got = read(real->timer, &expired, sizeof expired);
    (void)got; /* EAGAIN: it was set again since */
    for (uint32_t i = 0; i < TIMERS_MAX; i++) {
        if (real->timers[i] == TIME_NEVER || real->timers[i] > real_runtime_now_ns(real))
            continue;
        real->timers[i] = TIME_NEVER;
        real_runtime_deliver(real, &(struct event){.kind = EVENT_TIMER, .id = i});
    }
    real->timer_at_ns = INT64_MIN; /* it has fired: whatever is first is to be set */
    arm_timer(real);
}

static void dispatch(struct real_runtime *real, uint64_t tag)
{
    const struct stepper *stepper = &real->config.stepper;
    const struct steps_outcome *outcome;
    switch (tag) {
    case TAG_MESH:
        mesh_turn(real->config.mesh, clock_now_ns());
        break;
    case TAG_FABRIC:
        fabric_turn(real);
        break;
    case TAG_STEPPER:
        while ((outcome = stepper->ops->outcome(stepper->self)) != NULL)
            steps_done(real, outcome);
        break;
    case TAG_TIMER:
        timers_due(real);
        break;
    default: {
        const struct watch *watch = &real->watches[tag - TAG_WATCH];
        if (watch->fd >= 0)
            watch->ready(watch->self, watch->argument);
        break;
    }
    }
}

/* Bytes leave only when every count that was armed before them is in effect. The fabric thread wakes the loop when it
 * has carried an expectation out, so what is held back here leaves at once then. */
static void flush(struct real_runtime *real)
{
    if (real->config.mesh == NULL)
        return;
    if (real->config.fabric != NULL && fabric_thread_done(real->config.fabric) < real->awaited)
        return;
    mesh_flush(real->config.mesh);
}

/* Providers have no answer to a peer that dies, or is stopped, inside one of their locks in shared memory: then the
 * fabric thread waits for ever, and with it every transfer of this node. Better to say so and end. */
static void watch_fences(struct real_runtime *real)
{
    if (real->config.fabric == NULL)
        return;
    uint64_t done = fabric_thread_done(real->config.fabric);
    if (done >= real->fence)
        return;
    if (done != real->fence_done) {
        real->fence_done = done;
        real->fence_since_ns = clock_now_ns();
        real->fence_cpu_ns = fabric_thread_cpu_ns(real->config.fabric);
    } else if (fabric_thread_hopeless(real->config.fabric, real->fence_since_ns, real->fence_cpu_ns) &&
               real->config.listener.trouble != NULL) {
        real->config.listener.trouble(real->config.listener.self,
                                      "a lost peer cannot be fenced: the fabric's provider does not return");
    }
}

void real_runtime_turn(struct real_runtime *real, int64_t timeout_ns)
{
    struct epoll_event events[64];
    drain_pending(real);
    flush(real);
    int64_t wait_ns = real->pending_first < real->pending_count ? 0 : timeout_ns;
    int64_t wait_ms = wait_ns <= 0 ? 0 : min_i64((wait_ns + 999999) / 1000000, 60000);
    int count = epoll_wait(real->epoll, events, 64, (int)wait_ms);
    for (int i = 0; i < count; i++)
        dispatch(real, events[i].data.u64);
    tell_failures_over(real);
    drain_pending(real);
    int64_t now_ns = clock_now_ns();
    if (real->config.mesh != NULL && now_ns - real->tick_ns >= HEARTBEAT_NS_DEFAULT / 4) {
        real->tick_ns = now_ns;
        mesh_tick(real->config.mesh, now_ns);
        drain_pending(real);
        watch_fences(real);
    }
    flush(real);
}

bool real_runtime_quiet(const struct real_runtime *real)
{
    return real->launched == 0 && real->posted_count == 0 && real->pending_first == real->pending_count &&
           (real->config.fabric == NULL || fabric_thread_quiet(real->config.fabric));
}
