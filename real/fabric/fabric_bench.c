/* See fabric_bench.h. */
#define _DEFAULT_SOURCE

#include "real/fabric/fabric_bench.h"

#include "base/arith.h"
#include "real/fabric/bare_loop.h"
#include "real/fabric/fabric.h"
#include "real/fabric/fabric_internal.h"
#include "real/fabric/leftovers.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION_BYTES (UINT32_C(64) << 20)
#define PAGES_OF_A_TICKET 256
#define TICKETS 4 /* in flight: the next one's writes follow the last one's without a gap */
#define SINGLES 400
#define TURNS_MAX 15
#define IMMEDIATE 1

static const uint32_t sizes[] = {4096, 32768, 131072, 1048576};

/* What both processes see. */
struct meeting {
    _Atomic uint32_t cards; /* bit 0: the target's is there, bit 1: the writer's */
    uint32_t card_bytes[2];
    unsigned char card[2][4096]; /* of one NIC and one rank */
    struct bare_address bare;
    _Atomic uint32_t stop;
    _Atomic uint32_t expecting; /* rounds of single writes that the target is armed for */
    _Atomic int64_t event_ns;   /* when the target heard of the last one; 0: not yet */
};

struct turn {
    uint64_t writes_per_s;
    uint64_t bytes_per_s;
    int64_t post_ns[SINGLES]; /* sorted, all four */
    int64_t completion_ns[SINGLES];
    int64_t immediate_ns[SINGLES];
};

static int by_value(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

static void *region(void)
{
    void *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 1, REGION_BYTES); /* pages are there before the clock starts */
    return memory;
}

/* ---- The engine -------------------------------------------------------------------------------------------------- */

/* One rank, one layer, one plane, one head: a page is one write of `bytes`. */
static struct fabric_config engine_config(const struct fabric_bench_config *config, uint32_t bytes,
                                          struct fabric_rank *rank, const _Atomic uint64_t *counter)
{
    struct kv_memory memory = {
        .geometry = {.layers = 1,
                     .kv_heads = 1,
                     .planes = 1,
                     .page_tokens = 1,
                     .head_bytes = bytes,
                     .layout = LAYOUT_HND,
                     .parallelism = {1, 1, 1, 1},
                     .stage_layer_first = {0, 1}},
        .pages = REGION_BYTES / bytes,
    };
    return (struct fabric_config){
        .provider = config->provider,
        .address = config->address,
        .nics = 1,
        .window = config->window,
        .memory = memory,
        .rank_count = 1,
        .ranks = rank,
        .layer_counters = counter,
        .group_count = 1,
        .handoffs_max = 16,
        .tickets_max = TICKETS,
    };
}

/* Puts one's card on the table and takes the other's. */
static bool engine_meet(struct meeting *meeting, struct fabric *fabric, uint32_t self, const struct kv_memory *memory,
                        char *error, size_t error_size)
{
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    uint32_t size = (uint32_t)fabric_card(fabric, 1 - self, card, error, error_size);
    CHECK(size <= sizeof meeting->card[0]);
    memcpy(meeting->card[self], card, size);
    meeting->card_bytes[self] = size;
    atomic_fetch_or(&meeting->cards, UINT32_C(1) << self);
    while (atomic_load(&meeting->cards) != 3)
        sched_yield();
    return size > 0 && fabric_peer_add(fabric, 1 - self, meeting->card[1 - self], meeting->card_bytes[1 - self], memory,
                                       error, error_size);
}

static void engine_serve(struct meeting *meeting, struct fabric *fabric)
{
    uint32_t rounds = 0;
    while (atomic_load_explicit(&meeting->stop, memory_order_relaxed) == 0) {
        struct fabric_event event;
        bool idle;
        uint32_t expecting = atomic_load_explicit(&meeting->expecting, memory_order_acquire);
        if (expecting % 2 == 1 && expecting != rounds) { /* odd: asked for; even: armed */
            fabric_expect(fabric, IMMEDIATE, 1);
            rounds = expecting + 1;
            atomic_store_explicit(&meeting->expecting, rounds, memory_order_release);
        }
        if (fabric_poll(fabric, &event, 1, &idle) == 1 && event.kind == FABRIC_IMMEDIATE)
            atomic_store_explicit(&meeting->event_ns, fabric_clock_ns(), memory_order_release);
        if (idle)
            sched_yield();
    }
}

struct engine_writer {
    struct fabric *fabric;
    struct transfer_plan plan;
    uint32_t pages[PAGES_OF_A_TICKET];
    uint32_t page_count; /* of the region */
    uint32_t next_page;
    bool failed;
};

static void writer_post(struct engine_writer *writer, uint32_t ticket, uint32_t units)
{
    for (uint32_t i = 0; i < units; i++)
        writer->pages[i] = (writer->next_page + i) % writer->page_count;
    writer->next_page = (writer->next_page + units) % writer->page_count;
    struct paged_write write = {
        .ticket = ticket,
        .gate = STEP_NONE,
        .destination = 0,
        .immediate = IMMEDIATE,
        .unit_count = units,
        .source_pages = writer->pages,
        .destination_pages = writer->pages,
        .plan = &writer->plan,
    };
    fabric_write(writer->fabric, &write, UINT64_MAX);
}

/* Keeps tickets in flight for the duration; the clock starts when the first has ended. */
static void writer_stream(struct engine_writer *writer, int64_t duration_ns, uint32_t bytes, struct turn *turn)
{
    int64_t start_ns = 0;
    uint64_t writes = 0;
    uint32_t live = TICKETS;
    for (uint32_t t = 0; t < TICKETS; t++)
        writer_post(writer, t, PAGES_OF_A_TICKET);
    while (live > 0) {
        struct fabric_event events[TICKETS];
        bool idle;
        uint32_t count = fabric_poll(writer->fabric, events, TICKETS, &idle);
        int64_t now_ns = count > 0 ? fabric_clock_ns() : 0;
        for (uint32_t i = 0; i < count; i++) {
            if (events[i].kind != FABRIC_WRITE_DONE)
                continue;
            writer->failed = writer->failed || events[i].status != WRITE_OK;
            if (start_ns == 0)
                start_ns = now_ns;
            else
                writes += events[i].writes;
            if (!writer->failed && now_ns < start_ns + duration_ns)
                writer_post(writer, events[i].id, PAGES_OF_A_TICKET);
            else
                live--;
        }
        if (idle)
            sched_yield();
    }
    uint64_t took_ns = (uint64_t)max_i64(fabric_clock_ns() - start_ns, 1);
    turn->writes_per_s = mul_div_floor_u64(writes, (uint64_t)NS_PER_S, took_ns);
    turn->bytes_per_s = mul_div_floor_u64(mul_u64(writes, bytes), (uint64_t)NS_PER_S, took_ns);
}

/* One write at a time: what posting costs the engine's thread, when its completion is told here, when its count is told
 * there. */
static void writer_singles(struct engine_writer *writer, struct meeting *meeting, struct turn *turn)
{
    for (uint32_t i = 0; i < SINGLES && !writer->failed; i++) {
        struct fabric_event event;
        bool idle;
        int64_t give_up_ns = fabric_clock_ns() + FABRIC_STALL_NS;
        atomic_store(&meeting->event_ns, 0);
        atomic_store(&meeting->expecting, 2 * i + 1);
        while (atomic_load(&meeting->expecting) != 2 * i + 2 && fabric_clock_ns() < give_up_ns)
            sched_yield();
        int64_t start_ns = fabric_clock_ns();
        writer_post(writer, 0, 1);
        uint32_t count = fabric_poll(writer->fabric, &event, 1, &idle);
        turn->post_ns[i] = fabric_clock_ns() - start_ns;
        while (count == 0) {
            if (idle)
                sched_yield();
            count = fabric_poll(writer->fabric, &event, 1, &idle);
        }
        turn->completion_ns[i] = fabric_clock_ns() - start_ns;
        writer->failed = event.kind != FABRIC_WRITE_DONE || event.status != WRITE_OK;
        while (atomic_load(&meeting->event_ns) == 0 && fabric_clock_ns() < give_up_ns)
            sched_yield();
        turn->immediate_ns[i] = atomic_load(&meeting->event_ns) - start_ns;
        writer->failed = writer->failed || atomic_load(&meeting->event_ns) == 0;
    }
    qsort(turn->post_ns, SINGLES, sizeof turn->post_ns[0], by_value);
    qsort(turn->completion_ns, SINGLES, sizeof turn->completion_ns[0], by_value);
    qsort(turn->immediate_ns, SINGLES, sizeof turn->immediate_ns[0], by_value);
}

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

static void child_engine(const struct fabric_bench_config *config, uint32_t bytes, struct meeting *meeting)
{
    static const _Atomic uint64_t counter;
    char error[256];
    struct fabric_rank rank = {.memory = region(), .bytes = REGION_BYTES};
    struct fabric_config engine = engine_config(config, bytes, &rank, &counter);
    struct fabric *fabric = fabric_make(&engine, error, sizeof error);
    if (fabric != NULL && engine_meet(meeting, fabric, 0, &engine.memory, error, sizeof error))
        engine_serve(meeting, fabric);
    fabric_free(fabric);
    _exit(0);
}

static bool turn_engine(const struct fabric_bench_config *config, uint32_t bytes, struct meeting *meeting,
                        struct turn *turn, char *error, size_t error_size)
{
    static const _Atomic uint64_t counter;
    struct fabric_rank rank = {.memory = region(), .bytes = REGION_BYTES};
    struct fabric_config engine = engine_config(config, bytes, &rank, &counter);
    struct engine_writer writer = {.page_count = engine.memory.pages};
    writer.fabric = fabric_make(&engine, error, error_size);
    bool good = writer.fabric != NULL && engine_meet(meeting, writer.fabric, 1, &engine.memory, error, error_size);
    if (good) {
        CHECK(transfer_plan_make(&engine.memory.geometry, 0, &engine.memory.geometry, 0, 0, &writer.plan) ==
              GEOMETRY_OK);
        writer_stream(&writer, config->duration_ns, bytes, turn);
        writer_singles(&writer, meeting, turn);
        if (writer.failed)
            snprintf(error, error_size, "fabric %s: a write of %u bytes failed", config->provider, bytes);
        good = !writer.failed;
    }
    fabric_free(writer.fabric);
    munmap(rank.memory, REGION_BYTES);
    return good;
}

static void child_bare(const struct fabric_bench_config *config, struct meeting *meeting)
{
    char error[256];
    struct bare_loop *loop =
        bare_loop_make(config->provider, config->address, region(), REGION_BYTES, &meeting->bare, error, sizeof error);
    if (loop != NULL) {
        atomic_store(&meeting->cards, 3);
        bare_loop_serve(loop, &meeting->stop);
    }
    bare_loop_free(loop);
    _exit(0);
}

static bool turn_bare(const struct fabric_bench_config *config, uint32_t bytes, struct meeting *meeting,
                      uint64_t *bytes_per_s, char *error, size_t error_size)
{
    struct bare_address own;
    void *memory = region();
    int64_t took_ns = 1;
    uint64_t writes = 0;
    struct bare_loop *loop =
        bare_loop_make(config->provider, config->address, memory, REGION_BYTES, &own, error, error_size);
    if (loop != NULL) {
        while (atomic_load(&meeting->cards) != 3)
            sched_yield();
        writes = bare_loop_write(loop, &meeting->bare, config->window, bytes, config->duration_ns, &took_ns);
        *bytes_per_s = mul_div_floor_u64(mul_u64(writes, bytes), (uint64_t)NS_PER_S, (uint64_t)max_i64(took_ns, 1));
        if (writes == 0)
            snprintf(error, error_size, "fabric %s: the bare loop moved nothing", config->provider);
    }
    bare_loop_free(loop);
    munmap(memory, REGION_BYTES);
    return writes > 0;
}

/* One turn of one kind, with a target of its own. `turn` NULL: the bare loop. */
static bool take_turn(const struct fabric_bench_config *config, uint32_t bytes, struct turn *turn, uint64_t *bare,
                      char *error, size_t error_size)
{
    struct meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(meeting != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        if (turn != NULL)
            child_engine(config, bytes, meeting);
        child_bare(config, meeting);
    }
    bool good = child > 0 && (turn != NULL ? turn_engine(config, bytes, meeting, turn, error, error_size)
                                           : turn_bare(config, bytes, meeting, bare, error, error_size));
    if (child > 0) {
        atomic_store(&meeting->stop, 1);
        if (!good)
            kill(child, SIGKILL); /* it may wait for a card that will not come */
        waitpid(child, NULL, 0);
        leftovers_remove_of(child);
    }
    munmap(meeting, sizeof *meeting);
    return good;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

struct table *fabric_bench_table(void)
{
    struct table *table = table_new(NULL);
    table_column(table, "provider", "provider");
    table_column(table, "bytes", "bytes");
    table_column(table, "gb_per_s", "GB/s");
    table_column(table, "bare_gb_per_s", "bare GB/s");
    table_column(table, "of_bare_percent", "of bare %");
    table_column(table, "writes_per_s", "writes/s");
    table_column(table, "post_us_p50", "post us p50");
    table_column(table, "post_us_p99", "p99");
    table_column(table, "completion_us_p50", "completion us p50");
    table_column(table, "completion_us_p99", "p99");
    table_column(table, "immediate_us_p50", "immediate us p50");
    table_column(table, "immediate_us_p99", "p99");
    return table;
}

static void add_percentiles(struct table *table, const int64_t *sorted)
{
    table_fixed(table, fixed_round(sorted[SINGLES / 2], 3, 1), 1);
    table_fixed(table, fixed_round(sorted[SINGLES * 99 / 100], 3, 1), 1);
}

static int by_speed(const void *left, const void *right)
{
    const struct turn *a = left;
    const struct turn *b = right;
    return a->bytes_per_s < b->bytes_per_s ? -1 : a->bytes_per_s > b->bytes_per_s;
}

static void add_row(struct table *table, const char *provider, uint32_t bytes, const struct turn *turn, uint64_t bare)
{
    table_row(table);
    table_text(table, provider);
    table_integer(table, bytes);
    table_fixed(table, fixed_round((int64_t)turn->bytes_per_s, 9, 3), 3);
    table_fixed(table, fixed_round((int64_t)bare, 9, 3), 3);
    table_fixed(table, (int64_t)mul_div_floor_u64(turn->bytes_per_s, 1000, max_u64(bare, 1)), 1);
    table_integer(table, (int64_t)turn->writes_per_s);
    add_percentiles(table, turn->post_ns);
    add_percentiles(table, turn->completion_ns);
    add_percentiles(table, turn->immediate_ns);
}

bool fabric_bench(const struct fabric_bench_config *config, struct table *table, char *error, size_t error_size)
{
    static struct turn turns[TURNS_MAX];
    int64_t bare[TURNS_MAX];
    CHECK(config->turns >= 1 && config->turns <= TURNS_MAX);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint32_t t = 0; t < config->turns; t++) {
            uint64_t speed = 0;
            if (!take_turn(config, sizes[s], &turns[t], NULL, error, error_size) ||
                !take_turn(config, sizes[s], NULL, &speed, error, error_size))
                return false;
            bare[t] = (int64_t)speed;
        }
        qsort(turns, config->turns, sizeof turns[0], by_speed);
        qsort(bare, config->turns, sizeof bare[0], by_value);
        add_row(table, config->provider, sizes[s], &turns[config->turns / 2], (uint64_t)bare[config->turns / 2]);
    }
    return true;
}
