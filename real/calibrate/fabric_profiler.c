/* See fabric_profiler.h. The target is a child process; what the two say to each other beside the fabric they say
 * through shared memory. */
#define _GNU_SOURCE
#include "real/calibrate/fabric_profiler.h"

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/stats.h"
#include "real/fabric/fabric.h"
#include "real/fabric/leftovers.h"
#include "real/fabric/lifeline.h"
#include "real/fabric/fabric_thread.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REGION_BYTES (UINT32_C(32) << 20)
#define CARD_BYTES 4096 /* of one NIC and one rank */
#define IMMEDIATE 1
#define GIVE_UP_NS (10 * NS_PER_S)

/* A stream is tickets one behind the other, each of so many writes that the next one's follow without a gap. */
#define TICKETS 4u
#define TICKET_BYTES (UINT32_C(16) << 20)
#define TICKET_PAGES_MIN 16u
#define TICKET_PAGES_MAX 256u
#define STREAM_NS (10 * NS_PER_MS)
#define SINGLES 50u
#define BURST 32u
#define IDLES 100u /* writes between processes that sleep */

#define SPINS 256u
#define NAP_NS 20000L
#define SLACK_NS 50000UL /* by which the kernel prolongs naps, unless asked not to: what threads inherit in a run */

/* Between the launch of a step and the layer that a write waits for. */
#define GATE_NS (3 * NS_PER_MS)

static const uint32_t sizes[FABRIC_SIZES] = {512, 2048, 8192, 32768, 131072, 1048576};

/* The size of a page and layer of a small model: what threads add does not depend on it. */
#define IDLE_SIZE 2

/* What both processes see. */
struct meeting {
    _Atomic uint32_t cards; /* bit of each that is there */
    uint32_t card_bytes[2];
    unsigned char card[2][CARD_BYTES];
    atomic_bool failed; /* the target has said why */
    struct user_error why;
    atomic_bool threads; /* from now on the engines are driven by their threads */
    atomic_bool stop;
    _Atomic uint32_t rounds;  /* odd: an immediate is to be armed; even: it is */
    _Atomic int64_t heard_ns; /* when the target heard of it; 0: not yet */
};

static void *region(void)
{
    void *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 1, REGION_BYTES); /* pages are there before the clock starts */
    return memory;
}

static void nap(long ns)
{
    struct timespec time = {.tv_nsec = ns};
    nanosleep(&time, NULL);
}

/* A process that found nothing to do `idle` times in a row. It polls on for as long as a write takes, and then naps: on
 * a machine with other work whoever wakes is let in at once, and whoever yields waits for a turn. */
static void rest(uint32_t idle)
{
    if (idle > SPINS)
        nap(NAP_NS);
}

/* One rank, one layer, one plane, one head: a page is one write of `bytes`. */
static struct fabric_config engine_config(const struct fabric_profiler_config *config, uint32_t bytes,
                                          struct fabric_rank *rank, const _Atomic uint64_t *counter)
{
    return (struct fabric_config){
        .provider = config->provider,
        .address = config->address,
        .nics = 1,
        .window = config->window,
        .memory = {.geometry = {.layers = 1,
                                .kv_heads = 1,
                                .planes = 1,
                                .page_tokens = 1,
                                .head_bytes = bytes,
                                .layout = LAYOUT_HND,
                                .parallelism = {1, 1, 1, 1},
                                .stage_layer_first = {0, 1}},
                   .pages = REGION_BYTES / bytes},
        .rank_count = 1,
        .ranks = rank,
        .layer_counters = counter,
        .group_count = 1,
        .handoffs_max = 16,
        .tickets_max = TICKETS,
    };
}

/* Puts one's card on the table and takes the other's. */
static bool meet(struct meeting *meeting, struct fabric *fabric, uint32_t self, const struct kv_memory *memory,
                 struct user_error *error)
{
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    uint32_t size = (uint32_t)fabric_card(fabric, 1 - self, card, error);
    if (size == 0)
        return false;
    CHECK(size <= CARD_BYTES);
    memcpy(meeting->card[self], card, size);
    meeting->card_bytes[self] = size;
    atomic_fetch_or(&meeting->cards, UINT32_C(1) << self);
    int64_t until_ns = clock_now_ns() + GIVE_UP_NS;
    while (atomic_load(&meeting->cards) != 3) {
        bool failed = atomic_load(&meeting->failed);
        if (failed || atomic_load(&meeting->stop) || clock_now_ns() > until_ns) {
            user_error_set(error, NULL, 0, NULL, "%s", failed ? meeting->why.text : "the other process did not come");
            return false;
        }
        nap(100000);
    }
    return fabric_peer_add(fabric, 1 - self, meeting->card[1 - self], meeting->card_bytes[1 - self], memory, error);
}

/* ---- The target -------------------------------------------------------------------------------------------------- */

static bool wants_arming(struct meeting *meeting)
{
    return atomic_load_explicit(&meeting->rounds, memory_order_acquire) % 2 == 1;
}

static void armed(struct meeting *meeting)
{
    atomic_fetch_add_explicit(&meeting->rounds, 1, memory_order_release);
}

static void heard(struct meeting *meeting, const struct fabric_event *event)
{
    if (event->kind == FABRIC_IMMEDIATE)
        atomic_store_explicit(&meeting->heard_ns, clock_now_ns(), memory_order_release);
}

static void serve_polling(struct meeting *meeting, struct fabric *fabric)
{
    uint32_t idles = 0;
    while (!atomic_load(&meeting->stop) && !atomic_load(&meeting->threads)) {
        struct fabric_event event;
        bool idle;
        if (wants_arming(meeting)) {
            fabric_expect(fabric, IMMEDIATE, 1);
            armed(meeting);
        }
        if (fabric_poll(fabric, &event, 1, &idle) == 1)
            heard(meeting, &event);
        idles = idle ? idles + 1 : 0;
        rest(idles);
    }
}

/* As an instance's loop: it sleeps until the thread wakes it. Takes the engine over. */
static void serve_sleeping(struct meeting *meeting, struct fabric *fabric, bool crowded)
{
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    struct fabric_thread *thread = fabric_thread_start(fabric, crowded);
    while (!atomic_load(&meeting->stop)) {
        struct pollfd wait = {.fd = fabric_thread_fd(thread), .events = POLLIN};
        struct fabric_report report;
        if (wants_arming(meeting)) {
            uint64_t number = fabric_thread_expect(thread, IMMEDIATE, 1);
            while (fabric_thread_done(thread) < number)
                nap(NAP_NS);
            armed(meeting);
        }
        /* A timeout is for arming alone: by then the writer's next write is far away. */
        poll(&wait, 1, 1);
        fabric_thread_clear(thread);
        while (fabric_thread_next(thread, &report))
            if (report.kind == REPORT_EVENT)
                heard(meeting, &report.event);
    }
    fabric_thread_stop(thread);
}

static _Noreturn void target(const struct fabric_profiler_config *config, uint32_t bytes, struct meeting *meeting)
{
    static const _Atomic uint64_t counter;
    struct fabric_rank rank = {.memory = region(), .bytes = REGION_BYTES};
    struct fabric_config engine = engine_config(config, bytes, &rank, &counter);
    struct user_error why = {.set = false};
    prctl(PR_SET_TIMERSLACK, 1UL);
    struct fabric *fabric = fabric_make(&engine, &why);
    if (fabric == NULL || !meet(meeting, fabric, 0, &engine.memory, &why)) {
        meeting->why = why;
        atomic_store(&meeting->failed, true);
        _exit(1);
    }
    serve_polling(meeting, fabric);
    if (atomic_load(&meeting->threads))
        serve_sleeping(meeting, fabric, config->crowded);
    else
        fabric_free(fabric);
    _exit(0);
}

/* ---- The writer -------------------------------------------------------------------------------------------------- */

struct writer {
    const struct fabric_profiler_config *config;
    struct meeting *meeting;
    struct fabric *fabric;
    struct transfer_plan plan;
    uint32_t bytes; /* of a page */
    uint32_t pages[TICKET_PAGES_MAX];
    uint32_t page_count; /* of the region */
    uint32_t next_page;
    bool failed;
};

static struct paged_write next_write(struct writer *writer, uint32_t ticket, uint32_t units)
{
    for (uint32_t i = 0; i < units; i++)
        writer->pages[i] = (writer->next_page + i) % writer->page_count;
    writer->next_page = (writer->next_page + units) % writer->page_count;
    return (struct paged_write){
        .ticket = ticket,
        .gate = STEP_NONE,
        .destination = 0,
        .immediate = IMMEDIATE,
        .unit_count = units,
        .source_page_count = units,
        .destination_page_count = units,
        .source_pages = writer->pages,
        .destination_pages = writer->pages,
        .plan = &writer->plan,
    };
}

static void post(struct writer *writer, uint32_t ticket, uint32_t units)
{
    struct paged_write write = next_write(writer, ticket, units);
    fabric_write(writer->fabric, &write, UINT64_MAX);
}

/* Waits for the end of the one ticket that is out. */
static void await(struct writer *writer)
{
    struct fabric_event event;
    bool idle;
    uint32_t idles = 0;
    while (fabric_poll(writer->fabric, &event, 1, &idle) == 0 || event.kind != FABRIC_WRITE_DONE) {
        idles = idle ? idles + 1 : 0;
        rest(idles);
    }
    writer->failed = writer->failed || event.status != WRITE_OK;
}

/* Picoseconds a write. The clock starts when the first ticket has ended. */
static int64_t time_stream(struct writer *writer)
{
    uint32_t units = min_u32(max_u32(TICKET_BYTES / writer->bytes, TICKET_PAGES_MIN), TICKET_PAGES_MAX);
    int64_t start_ns = 0;
    uint64_t writes = 0;
    uint32_t live = TICKETS;
    uint32_t idles = 0;
    for (uint32_t t = 0; t < TICKETS; t++)
        post(writer, t, units);
    while (live > 0) {
        struct fabric_event events[TICKETS];
        bool idle;
        uint32_t count = fabric_poll(writer->fabric, events, TICKETS, &idle);
        int64_t now_ns = count > 0 ? clock_now_ns() : 0;
        for (uint32_t i = 0; i < count; i++) {
            if (events[i].kind != FABRIC_WRITE_DONE)
                continue;
            writer->failed = writer->failed || events[i].status != WRITE_OK;
            if (start_ns == 0)
                start_ns = now_ns;
            else
                writes += events[i].writes;
            if (!writer->failed && now_ns < start_ns + STREAM_NS)
                post(writer, events[i].id, units);
            else
                live--;
        }
        idles = idle ? idles + 1 : 0;
        rest(idles);
    }
    return (clock_now_ns() - start_ns) * 1000 / (int64_t)max_u64(writes, 1);
}

/* Asks the target to arm the immediate and waits until it is. */
static bool arm(struct writer *writer)
{
    struct meeting *meeting = writer->meeting;
    int64_t until_ns = clock_now_ns() + GIVE_UP_NS;
    atomic_store(&meeting->heard_ns, 0);
    atomic_fetch_add(&meeting->rounds, 1);
    for (uint32_t idles = 0; atomic_load(&meeting->rounds) % 2 == 1 && clock_now_ns() < until_ns; idles++)
        rest(idles);
    return atomic_load(&meeting->rounds) % 2 == 0;
}

/* When the target heard; 0: never. */
static int64_t wait_heard(struct writer *writer)
{
    int64_t until_ns = clock_now_ns() + GIVE_UP_NS;
    int64_t at_ns;
    uint32_t idles = 0;
    while ((at_ns = atomic_load_explicit(&writer->meeting->heard_ns, memory_order_acquire)) == 0 &&
           clock_now_ns() < until_ns)
        rest(idles++);
    writer->failed = writer->failed || at_ns == 0;
    return at_ns;
}

/* Median nanoseconds of single writes, to the event at the target. */
static int64_t time_singles(struct writer *writer)
{
    int64_t ns[SINGLES] = {0};
    for (uint32_t i = 0; i < SINGLES && !writer->failed; i++) {
        writer->failed = !arm(writer);
        int64_t start_ns = clock_now_ns();
        post(writer, 0, 1);
        await(writer);
        ns[i] = wait_heard(writer) - start_ns;
    }
    stats_sort(ns, SINGLES);
    return stats_percentile(ns, SINGLES, 500);
}

/* Median picoseconds that the engine's thread spends on a write when it posts many. A provider may put posts off: what
 * counts is what a round of the thread has posted. */
static int64_t time_posting(struct writer *writer)
{
    int64_t ps[SINGLES];
    uint32_t count = 0;
    uint32_t burst = min_u32(writer->config->window, BURST);
    for (uint32_t i = 0; i < SINGLES && !writer->failed; i++) {
        struct fabric_event event;
        bool idle;
        uint64_t before = fabric_counters(writer->fabric).writes_posted;
        int64_t start_ns = clock_now_ns();
        post(writer, 0, burst);
        bool over = fabric_poll(writer->fabric, &event, 1, &idle) == 1;
        int64_t took_ns = clock_now_ns() - start_ns;
        uint64_t posted = fabric_counters(writer->fabric).writes_posted - before;
        if (posted > 0)
            ps[count++] = took_ns * 1000 / (int64_t)posted;
        if (!over)
            await(writer);
    }
    if (count == 0)
        return INT64_MAX;
    stats_sort(ps, count);
    return stats_percentile(ps, count, 500);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

/* The end of the one write that is out, as a loop hears of it. */
static bool await_report(struct fabric_thread *thread, struct fabric_event *event)
{
    int64_t until_ns = clock_now_ns() + GIVE_UP_NS;
    while (clock_now_ns() < until_ns) {
        struct pollfd wait = {.fd = fabric_thread_fd(thread), .events = POLLIN};
        struct fabric_report report;
        poll(&wait, 1, 10);
        fabric_thread_clear(thread);
        while (fabric_thread_next(thread, &report)) {
            if (report.kind == REPORT_EVENT && report.event.kind == FABRIC_WRITE_DONE) {
                *event = report.event;
                return event->status == WRITE_OK;
            }
        }
    }
    return false;
}

/* Gated writes one at a time, each a while after its launch: both threads have begun to nap. Takes the engine over. */
static void time_threads(struct writer *writer, _Atomic uint64_t *counter, struct fabric_times *times)
{
    int64_t watcher_ns[IDLES] = {0};
    int64_t known_ns[IDLES] = {0};
    atomic_store(&writer->meeting->threads, true);
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    struct fabric_thread *thread = fabric_thread_start(writer->fabric, writer->config->crowded);
    prctl(PR_SET_TIMERSLACK, 1UL);
    writer->fabric = NULL;
    for (uint32_t i = 0; i < IDLES && !writer->failed; i++) {
        struct fabric_event done = {.posted_ns = 0};
        writer->failed = !arm(writer);
        struct paged_write write = next_write(writer, 0, 1);
        write.gate = i;
        fabric_thread_write(thread, &write, i);
        nap((long)GATE_NS);
        int64_t tick_ns = clock_now_ns();
        atomic_store_explicit(counter, i + 1, memory_order_release);
        writer->failed = writer->failed || !await_report(thread, &done);
        watcher_ns[i] = done.posted_ns - tick_ns;
        known_ns[i] = wait_heard(writer) - done.posted_ns;
    }
    fabric_thread_stop(thread);
    stats_sort(watcher_ns, IDLES);
    stats_sort(known_ns, IDLES);
    times->watcher_ns = max_i64(0, stats_percentile(watcher_ns, IDLES, 500));
    times->poll_ns = max_i64(0, stats_percentile(known_ns, IDLES, 500) - times->single[IDLE_SIZE].ps / 1000);
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

static void time_size(struct writer *writer, uint32_t size, struct progress *progress, struct fabric_times *times)
{
    uint32_t turns = writer->config->turns;
    int64_t *stream = calloc(turns, sizeof *stream);
    int64_t *single = calloc(turns, sizeof *single);
    CHECK(stream != NULL && single != NULL);
    time_stream(writer); /* nobody counts the first */
    for (uint32_t t = 0; t < turns && !writer->failed && !interrupt_requested(); t++) {
        stream[t] = time_stream(writer);
        single[t] = writer->failed ? 0 : time_singles(writer) * 1000;
        progress_add(progress, 1);
    }
    stats_sort(stream, turns);
    stats_sort(single, turns);
    times->stream[size] = (struct write_time){writer->bytes, stats_percentile(stream, turns, 500)};
    times->single[size] = (struct write_time){writer->bytes, stats_percentile(single, turns, 500)};
    if (size == 0 && !writer->failed)
        times->posting_ps = min_i64(time_posting(writer), times->stream[0].ps);
    free(stream);
    free(single);
}

static bool write_size(const struct fabric_profiler_config *config, uint32_t size, struct meeting *meeting,
                       struct progress *progress, struct fabric_times *times, struct user_error *error)
{
    static _Atomic uint64_t counter;
    struct fabric_rank rank = {.memory = region(), .bytes = REGION_BYTES};
    struct fabric_config engine = engine_config(config, sizes[size], &rank, &counter);
    struct writer writer = {
        .config = config, .meeting = meeting, .bytes = sizes[size], .page_count = engine.memory.pages};
    atomic_store(&counter, 0);
    writer.fabric = fabric_make(&engine, error);
    bool good = writer.fabric != NULL && meet(meeting, writer.fabric, 1, &engine.memory, error);
    if (good) {
        snprintf(times->provider, sizeof times->provider, "%s", fabric_provider(writer.fabric));
        CHECK(transfer_plan_make(&engine.memory.geometry, 0, &engine.memory.geometry, 0, 0, &writer.plan) ==
              GEOMETRY_OK);
        time_size(&writer, size, progress, times);
        if (size == IDLE_SIZE && !writer.failed && !interrupt_requested())
            time_threads(&writer, &counter, times);
        if (writer.failed)
            user_error_set(error, NULL, 0, NULL, "fabric %s: a write of %u bytes failed", times->provider, sizes[size]);
        good = !writer.failed;
    }
    if (writer.fabric != NULL)
        fabric_free(writer.fabric);
    munmap(rank.memory, REGION_BYTES);
    return good && !interrupt_requested();
}

/* A pair of processes for each size: an engine has pages of one size. */
static bool pair(const struct fabric_profiler_config *config, uint32_t size, struct progress *progress,
                 struct fabric_times *times, struct user_error *error)
{
    struct meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(meeting != MAP_FAILED);
    fflush(NULL);
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        end_with_parent(parent);
        target(config, sizes[size], meeting);
    }
    bool good = child > 0 && write_size(config, size, meeting, progress, times, error);
    if (child > 0) {
        atomic_store(&meeting->stop, true);
        if (!good)
            kill(child, SIGKILL); /* it may be anywhere */
        waitpid(child, NULL, 0);
        leftovers_remove_of(child);
    } else {
        user_error_set(error, NULL, 0, NULL, "no process could be made for the other end of the fabric");
    }
    munmap(meeting, sizeof *meeting);
    return good;
}

uint32_t fabric_profiler_steps(const struct fabric_profiler_config *config)
{
    return FABRIC_SIZES * config->turns;
}

bool fabric_profiler(const struct fabric_profiler_config *config, struct progress *progress, struct fabric_times *times,
                     struct user_error *error)
{
    CHECK(config->turns >= 1);
    *times = (struct fabric_times){.posting_ps = 0};
    progress_note(progress, "fabric");
    prctl(PR_SET_TIMERSLACK, 1UL); /* else a nap is 50 us longer than it says */
    bool good = true;
    for (uint32_t s = 0; s < FABRIC_SIZES && good; s++)
        good = pair(config, s, progress, times, error);
    prctl(PR_SET_TIMERSLACK, 0UL); /* back to what it was */
    return good;
}
