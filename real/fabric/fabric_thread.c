/* See fabric_thread.h. */
#define _GNU_SOURCE
#include "real/fabric/fabric_thread.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/memory/shared_memory.h"
#include "real/memory/ring.h"
#include "host/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Reports that can be outstanding are at most one a ticket, one an immediate and one a peer: the launcher refuses
 * scenarios with more, so the thread is never kept from carrying out commands. */
#define COMMANDS 4096u
#define REPORTS FABRIC_REPORTS_MAX
#define EVENTS_AT_ONCE 64u

/* An idle thread first polls on, since on a busy fabric the next completion is near, then naps: remote writes land only
 * while their target polls, so a nap is a price on the latency of the first write after a pause. It never yields:
 * whoever yields a core that others want waits for a turn of milliseconds, and whoever wakes from a nap is let in at
 * once. A poll that finds nothing costs the other side, which writes to the same words of memory: half a microsecond
 * lies between two. */
#define SPINS 128u
#define SPIN_GAP_NS 500
#define NAP_NS 20000L
#define NAPPING_NS (10 * NS_PER_MS) /* without anything: from then on longer */
#define LONG_NAP_NS 100000L

/* Where threads outnumber processors, whoever polls takes a core from those that compute, and a rank that is
 * interrupted holds up the others at their next barrier: a wake-up costs a step more than a nap costs a write. Naps
 * then grow to what is still short beside a step. */
#define CROWDED_SPINS 8u
#define CROWDED_NAP_NS 500000L

/* When nothing is in flight and nobody was told to write here, nothing can come but what a provider says to itself:
 * naps grow until they cost nothing. A command ends them. */
#define CALM_NAP_NS (20 * NS_PER_MS)

/* A thread that has carried nothing out for so long, of the clock or of a core, never will. */
#define HOPELESS_NS (20 * NS_PER_S)
#define HOPELESS_CPU_NS (5 * NS_PER_S)

enum command_kind {
    COMMAND_WRITE = 1,
    COMMAND_WRITE_STOP = 2,
    COMMAND_EXPECT = 3,
    COMMAND_CARD = 4,
    COMMAND_PEER = 5,
    COMMAND_REMOVE = 6,
    COMMAND_NIC_FAIL = 7,
    COMMAND_CLOSE = 8,
    COMMAND_LAND = 9,
};

struct peer_command {
    struct kv_memory memory;
    size_t bytes;
    unsigned char card[];
};

struct landing_command {
    struct fabric_landing landing;
    uint32_t pages[];
};

/* One place for each ticket in flight: taken by the loop, given back when the engine has its copy. Its array of pages
 * is kept, so that nothing is allocated for a write once arrays are as long as prompts are. */
struct write_command {
    struct paged_write write;
    uint32_t *pages; /* source pages, then destination pages */
    uint32_t room;
};

struct fabric_command {
    enum command_kind kind;
    uint32_t id; /* place of a write_command, ticket, immediate, node, NIC */
    uint64_t count;
    void *owned; /* struct peer_command or landing_command, freed once carried out */
};

struct fabric_thread {
    struct fabric *fabric;
    pthread_t thread;
    atomic_bool quit;
    struct ring *commands;
    struct ring *reports;
    struct write_command *writes;
    uint32_t write_count;
    struct ring *unused_writes; /* places in `writes`, from the thread to the loop */
    int fd;
    atomic_bool fd_raised;  /* and not cleared since */
    struct doorbell bell;   /* rung with each command: the thread naps on it */
    uint64_t given;         /* the loop's count of commands */
    _Atomic uint64_t done;  /* carried out */
    _Atomic uint64_t quiet; /* commands after which the engine was quiet; UINT64_MAX: it is not */
    unsigned char card[FABRIC_CARD_BYTES_MAX];
    _Atomic uint64_t late;
    bool crowded;
    bool staged;
    _Atomic uint64_t staged_bytes;
    _Atomic int64_t staged_ns;
};

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

static struct ring *make_ring(uint32_t capacity, size_t record_bytes)
{
    size_t bytes = (ring_bytes(capacity, (uint32_t)record_bytes) + 63) / 64 * 64;
    struct ring *ring = aligned_alloc(64, bytes);
    CHECK(ring != NULL);
    ring_make(ring, capacity, (uint32_t)record_bytes);
    return ring;
}

/* ---- The thread -------------------------------------------------------------------------------------------------- */

/* What the loop is woken for is there already: a loop that has not cleared the descriptor since the last time will see
 * it when it does. */
static void wake_loop(struct fabric_thread *thread)
{
    uint64_t one = 1;
    if (atomic_exchange(&thread->fd_raised, true))
        return;
    CHECK(write(thread->fd, &one, sizeof one) == sizeof one);
}

/* There is room: commands are carried out only while there is. */
static void report(struct fabric_thread *thread, const struct fabric_report *what)
{
    CHECK(ring_push(thread->reports, what));
}

static void make_card(struct fabric_thread *thread, uint32_t node)
{
    struct fabric_report what = {.kind = REPORT_CARD, .node = node};
    struct user_error error = {.set = false};
    what.card_bytes = fabric_card(thread->fabric, node, thread->card, &error);
    snprintf(what.error, sizeof what.error, "%.255s", error.text);
    if (what.card_bytes > 0) {
        what.card = allocate(what.card_bytes, 1);
        memcpy(what.card, thread->card, what.card_bytes);
    }
    report(thread, &what);
}

static void learn_peer(struct fabric_thread *thread, uint32_t node, const struct peer_command *peer)
{
    struct fabric_report what = {.kind = REPORT_PEER, .node = node};
    struct user_error error = {.set = false};
    if (!fabric_peer_add(thread->fabric, node, peer->card, peer->bytes, &peer->memory, &error))
        snprintf(what.error, sizeof what.error, "%.255s", error.set ? error.text : "its card was refused");
    report(thread, &what);
}

static void carry_out(struct fabric_thread *thread, const struct fabric_command *command)
{
    switch (command->kind) {
    case COMMAND_WRITE:
        fabric_write(thread->fabric, &thread->writes[command->id].write, command->count);
        CHECK(ring_push(thread->unused_writes, &command->id));
        break;
    case COMMAND_WRITE_STOP:
        fabric_write_stop(thread->fabric, command->id);
        break;
    case COMMAND_EXPECT:
        fabric_expect(thread->fabric, command->id, command->count);
        break;
    case COMMAND_CARD:
        make_card(thread, command->id);
        break;
    case COMMAND_PEER:
        learn_peer(thread, command->id, command->owned);
        break;
    case COMMAND_LAND:
        fabric_land(thread->fabric, command->id, command->count,
                    &((const struct landing_command *)command->owned)->landing);
        break;
    case COMMAND_REMOVE:
        fabric_peer_remove(thread->fabric, command->id);
        report(thread,
               &(struct fabric_report){.kind = REPORT_FENCED, .node = command->id, .event.count = command->count});
        break;
    case COMMAND_NIC_FAIL:
        fabric_nic_fail(thread->fabric, command->id);
        break;
    case COMMAND_CLOSE:
        fabric_peer_close(thread->fabric, command->id, (uint32_t)command->count);
        report(thread, &(struct fabric_report){
                           .kind = REPORT_CLOSED, .node = command->id, .event.id = (uint32_t)(command->count >> 32)});
        break;
    }
    free(command->owned);
}

/* Returns whether the loop waits for any of them. */
static bool carry_out_commands(struct fabric_thread *thread, bool *busy)
{
    bool awaited = false;
    struct fabric_command command;
    while (ring_length(thread->reports) + EVENTS_AT_ONCE < REPORTS && ring_pop(thread->commands, &command)) {
        carry_out(thread, &command);
        awaited = awaited || command.kind >= COMMAND_EXPECT;
        uint64_t done = atomic_load_explicit(&thread->done, memory_order_relaxed);
        atomic_store_explicit(&thread->done, done + 1, memory_order_release);
        *busy = true;
    }
    return awaited;
}

static void publish_staging(struct fabric_thread *thread)
{
    if (!thread->staged)
        return;
    struct device_reach_statistics staging = fabric_staging(thread->fabric);
    atomic_store_explicit(&thread->staged_bytes, staging.bytes, memory_order_relaxed);
    atomic_store_explicit(&thread->staged_ns, staging.copy_ns, memory_order_relaxed);
}

/* What an idle thread has waited so far. */
struct idleness {
    uint32_t polls;
    int64_t nap_ns; /* the newest */
    int64_t napped_ns;
};

static int64_t nap_most_ns(const struct fabric_thread *thread, const struct idleness *idle)
{
    if (fabric_quiet(thread->fabric) && !fabric_awaits(thread->fabric))
        return CALM_NAP_NS;
    if (thread->crowded)
        return CROWDED_NAP_NS;
    return idle->napped_ns < NAPPING_NS ? NAP_NS : LONG_NAP_NS;
}

/* `heard`: the bell before commands were looked for, so that none is slept over. */
static void rest(struct fabric_thread *thread, struct idleness *idle, uint32_t heard)
{
    if (idle->polls++ < (thread->crowded ? CROWDED_SPINS : SPINS)) {
        int64_t until_ns = clock_now_ns() + SPIN_GAP_NS;
        while (clock_now_ns() < until_ns)
            continue;
        return;
    }
    idle->nap_ns = min_i64(max_i64(2 * idle->nap_ns, NAP_NS), nap_most_ns(thread, idle));
    idle->napped_ns += idle->nap_ns;
    doorbell_wait(&thread->bell, heard, idle->nap_ns);
}

static void *run(void *self)
{
    struct fabric_thread *thread = self;
    struct idleness idle = {.polls = 0};
    prctl(PR_SET_TIMERSLACK, 1); /* else a nap is 50 us longer than it says */
    while (!atomic_load_explicit(&thread->quit, memory_order_acquire)) {
        struct fabric_event events[EVENTS_AT_ONCE];
        bool busy = false;
        bool still = true;
        uint32_t heard = doorbell_seen(&thread->bell);
        bool wake = carry_out_commands(thread, &busy);
        /* A loop that does not take its reports gets no more; posting goes on as soon as it does. */
        uint32_t count = 0;
        if (ring_length(thread->reports) + EVENTS_AT_ONCE < REPORTS)
            count = fabric_poll(thread->fabric, events, EVENTS_AT_ONCE, &still);
        for (uint32_t i = 0; i < count; i++)
            report(thread, &(struct fabric_report){.kind = REPORT_EVENT, .event = events[i]});
        if (wake || count > 0)
            wake_loop(thread);
        uint64_t done = atomic_load_explicit(&thread->done, memory_order_relaxed);
        atomic_store_explicit(&thread->late, fabric_counters(thread->fabric).late, memory_order_relaxed);
        atomic_store_explicit(&thread->quiet, fabric_quiet(thread->fabric) ? done : UINT64_MAX, memory_order_release);
        publish_staging(thread);
        if (busy || count > 0 || !still)
            idle = (struct idleness){.polls = 0};
        else
            rest(thread, &idle, heard);
    }
    fabric_free(thread->fabric);
    return NULL;
}

/* ---- The loop's side --------------------------------------------------------------------------------------------- */

static void make_writes(struct fabric_thread *thread)
{
    uint32_t places = 1;
    thread->write_count = fabric_tickets_max(thread->fabric);
    while (places < thread->write_count)
        places *= 2;
    thread->writes = allocate(thread->write_count, sizeof *thread->writes);
    thread->unused_writes = make_ring(places, sizeof(uint32_t));
    for (uint32_t i = 0; i < thread->write_count; i++)
        CHECK(ring_push(thread->unused_writes, &i));
}

struct fabric_thread *fabric_thread_start(struct fabric *fabric, bool crowded)
{
    struct fabric_thread *thread = allocate(1, sizeof *thread);
    thread->fabric = fabric;
    thread->crowded = crowded;
    thread->staged = fabric_staged(fabric);
    thread->commands = make_ring(COMMANDS, sizeof(struct fabric_command));
    thread->reports = make_ring(REPORTS, sizeof(struct fabric_report));
    make_writes(thread);
    thread->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(thread->fd >= 0);
    CHECK(pthread_create(&thread->thread, NULL, run, thread) == 0);
    pthread_setname_np(thread->thread, "fabric");
    return thread;
}

int64_t fabric_thread_cpu_ns(const struct fabric_thread *thread)
{
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(thread->thread, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return used.tv_sec * NS_PER_S + used.tv_nsec;
}

bool fabric_thread_hopeless(const struct fabric_thread *thread, int64_t since_ns, int64_t cpu_ns)
{
    return clock_now_ns() - since_ns > HOPELESS_NS || fabric_thread_cpu_ns(thread) - cpu_ns > HOPELESS_CPU_NS;
}

bool fabric_thread_stop(struct fabric_thread *thread)
{
    if (thread == NULL)
        return true;
    int64_t since_ns = clock_now_ns();
    int64_t cpu_ns = fabric_thread_cpu_ns(thread);
    atomic_store_explicit(&thread->quit, true, memory_order_release);
    doorbell_ring(&thread->bell);
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (pthread_timedjoin_np(thread->thread, NULL, &until) == 0)
            break;
        if (fabric_thread_hopeless(thread, since_ns, cpu_ns))
            return false;
    }
    struct fabric_command command;
    while (ring_pop(thread->commands, &command))
        free(command.owned);
    struct fabric_report left;
    while (ring_pop(thread->reports, &left))
        free(left.card);
    close(thread->fd);
    for (uint32_t i = 0; i < thread->write_count; i++)
        free(thread->writes[i].pages);
    free(thread->writes);
    free(thread->unused_writes);
    free(thread->commands);
    free(thread->reports);
    free(thread);
    return true;
}

/* The thread empties a full ring without any help of the loop. */
static uint64_t give(struct fabric_thread *thread, const struct fabric_command *command)
{
    while (!ring_push(thread->commands, command))
        sched_yield();
    doorbell_ring(&thread->bell);
    return ++thread->given;
}

uint64_t fabric_thread_write(struct fabric_thread *thread, const struct paged_write *write, uint64_t counter_base)
{
    uint32_t source = write->source_page_count, destination = write->destination_page_count;
    uint32_t place;
    CHECK(ring_pop(thread->unused_writes, &place)); /* tickets in flight are at most tickets_max */
    struct write_command *copy = &thread->writes[place];
    if (copy->room < source + destination) {
        free(copy->pages);
        copy->room = source + destination;
        copy->pages = allocate(copy->room, sizeof *copy->pages);
    }
    copy->write = *write;
    if (write->unit_count > 0) {
        memcpy(copy->pages, write->source_pages, source * sizeof *copy->pages);
        memcpy(copy->pages + source, write->destination_pages, destination * sizeof *copy->pages);
        copy->write.source_pages = copy->pages;
        copy->write.destination_pages = copy->pages + source;
    }
    return give(thread, &(struct fabric_command){.kind = COMMAND_WRITE, .id = place, .count = counter_base});
}

uint64_t fabric_thread_write_stop(struct fabric_thread *thread, uint32_t ticket)
{
    return give(thread, &(struct fabric_command){.kind = COMMAND_WRITE_STOP, .id = ticket});
}

uint64_t fabric_thread_expect(struct fabric_thread *thread, uint32_t immediate, uint64_t count)
{
    return give(thread, &(struct fabric_command){.kind = COMMAND_EXPECT, .id = immediate, .count = count});
}

uint64_t fabric_thread_land(struct fabric_thread *thread, uint32_t immediate, uint64_t count,
                            const struct fabric_landing *landing)
{
    struct landing_command *copy = allocate(1, sizeof *copy + landing->page_count * sizeof copy->pages[0]);
    copy->landing = *landing;
    if (landing->page_count > 0)
        memcpy(copy->pages, landing->pages, landing->page_count * sizeof copy->pages[0]);
    copy->landing.pages = copy->pages;
    return give(thread, &(struct fabric_command){.kind = COMMAND_LAND, .id = immediate, .count = count, .owned = copy});
}

bool fabric_thread_staged(const struct fabric_thread *thread)
{
    return thread->staged;
}

uint64_t fabric_thread_card(struct fabric_thread *thread, uint32_t node)
{
    return give(thread, &(struct fabric_command){.kind = COMMAND_CARD, .id = node});
}

uint64_t fabric_thread_peer(struct fabric_thread *thread, uint32_t node, const void *card, size_t bytes,
                            const struct kv_memory *memory)
{
    struct peer_command *copy = allocate(1, sizeof *copy + bytes);
    copy->memory = *memory;
    copy->bytes = bytes;
    memcpy(copy->card, card, bytes);
    return give(thread, &(struct fabric_command){.kind = COMMAND_PEER, .id = node, .owned = copy});
}

uint64_t fabric_thread_nic_fail(struct fabric_thread *thread, uint32_t nic)
{
    return give(thread, &(struct fabric_command){.kind = COMMAND_NIC_FAIL, .id = nic});
}

uint64_t fabric_thread_close(struct fabric_thread *thread, uint32_t node, uint32_t rails, uint32_t id)
{
    return give(thread,
                &(struct fabric_command){.kind = COMMAND_CLOSE, .id = node, .count = (uint64_t)id << 32 | rails});
}

uint64_t fabric_thread_remove(struct fabric_thread *thread, uint32_t node, uint32_t incarnation)
{
    return give(thread, &(struct fabric_command){.kind = COMMAND_REMOVE, .id = node, .count = incarnation});
}

uint64_t fabric_thread_done(const struct fabric_thread *thread)
{
    return atomic_load_explicit(&thread->done, memory_order_acquire);
}

int fabric_thread_fd(const struct fabric_thread *thread)
{
    return thread->fd;
}

void fabric_thread_clear(struct fabric_thread *thread)
{
    uint64_t count;
    ssize_t got = read(thread->fd, &count, sizeof count);
    (void)got; /* EAGAIN: nobody has woken the loop since */
    /* After the read, and before reports are taken: a wake-up that is left out from here on would be one too few. */
    atomic_exchange(&thread->fd_raised, false);
}

bool fabric_thread_next(struct fabric_thread *thread, struct fabric_report *what)
{
    return ring_pop(thread->reports, what);
}

uint64_t fabric_thread_late(const struct fabric_thread *thread)
{
    return atomic_load_explicit(&thread->late, memory_order_relaxed);
}

uint64_t fabric_thread_staged_bytes(const struct fabric_thread *thread)
{
    return atomic_load_explicit(&thread->staged_bytes, memory_order_relaxed);
}

int64_t fabric_thread_staged_ns(const struct fabric_thread *thread)
{
    return atomic_load_explicit(&thread->staged_ns, memory_order_relaxed);
}

bool fabric_thread_quiet(const struct fabric_thread *thread)
{
    return atomic_load_explicit(&thread->quiet, memory_order_acquire) == thread->given &&
           ring_length(thread->reports) == 0;
}
