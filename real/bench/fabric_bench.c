/* See fabric_bench.h. */
#define _GNU_SOURCE /* sched_setaffinity */

#include "real/bench/fabric_bench.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/bench/engine_loop.h"
#include "real/fabric/leftovers.h"
#include "host/stats.h"
#include "real/fabric/lifeline.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION_BYTES (UINT32_C(64) << 20)
#define WARM_NS (200 * NS_PER_MS)
#define STEP_BYTES (UINT32_C(8) << 20) /* that a paged write carries at most */
#define SERVE_MS 5
#define PATIENCE_MS 20000
#define SINGLES FABRIC_BENCH_SINGLES
#define TURNS_MAX FABRIC_BENCH_TURNS_MAX

static const uint32_t sizes[] = {4096, 32768, 131072, 1048576};

/* What both processes of a turn see. */
struct meeting {
    _Atomic uint32_t there; /* bit 0: the target's address is there; bit 1: the writer's */
    _Atomic uint32_t stop;
    struct engine_card card[2];
    struct bare_address bare;
    int64_t counted_ns; /* of the immediate that was asked for, at the target */
    int64_t heard_ns;
};

/* Regions and descriptors outlive the turns: every turn writes from and to the same pages of memory. */
struct stage {
    void *source;
    void *target;
    struct meeting *meeting;
    int ask;    /* the writer wants a count armed */
    int answer; /* it is armed; then, it was reached */
};

enum kind { KIND_ENGINE = 0, KIND_BARE = 1 };

/* What a turn found. */
struct turn {
    struct bare_stream paged; /* of the bare loop: its only one */
    struct bare_stream single;
    int64_t post_ns[SINGLES];
    int64_t completion_ns[SINGLES];
    int64_t landed_ns[SINGLES];
    int64_t event_ns[SINGLES];
};

/* ---- The stage --------------------------------------------------------------------------------------------------- */

static void *shared_pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 1, bytes); /* they are there before the clock starts */
    return memory;
}

static void stage_make(struct stage *stage)
{
    stage->source = shared_pages(REGION_BYTES);
    stage->target = shared_pages(REGION_BYTES);
    stage->meeting = shared_pages(sizeof *stage->meeting);
    stage->ask = eventfd(0, EFD_CLOEXEC);
    stage->answer = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    CHECK(stage->ask >= 0 && stage->answer >= 0);
}

static void stage_free(struct stage *stage)
{
    munmap(stage->source, REGION_BYTES);
    munmap(stage->target, REGION_BYTES);
    munmap(stage->meeting, sizeof *stage->meeting);
    close(stage->ask);
    close(stage->answer);
}

/* The n-th core that this process may use, for all its threads to be made. Nothing with one core. */
static void settle_on(const cpu_set_t *allowed, int n)
{
    if (CPU_COUNT(allowed) < 2)
        return;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, allowed) || n-- > 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static void signal_other(int fd)
{
    uint64_t one = 1;
    CHECK(write(fd, &one, sizeof one) == sizeof one);
}

/* False: it did not come. */
static bool signalled(int fd, int timeout_ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    uint64_t count;
    return poll(&ready, 1, timeout_ms) == 1 && read(fd, &count, sizeof count) == sizeof count;
}

/* Waits for the other side's address. False: it will not come, for the other side has ended. */
static bool meet(struct meeting *meeting, uint32_t bit)
{
    while ((atomic_load(&meeting->there) >> bit & 1) == 0) {
        if (atomic_load(&meeting->stop) != 0)
            return false;
        sched_yield();
    }
    return true;
}

/* ---- The target -------------------------------------------------------------------------------------------------- */

static void serve_engine(const struct fabric_bench_config *config, uint32_t bytes, const struct stage *stage)
{
    struct meeting *meeting = stage->meeting;
    struct user_error error = {.set = false};
    struct engine_loop *loop = engine_loop_make(config->provider, config->address, config->window, stage->target,
                                                REGION_BYTES, bytes, 0, &meeting->card[0], &error);
    atomic_fetch_or(&meeting->there, 1);
    bool good = loop != NULL && meet(meeting, 1) && engine_loop_aim(loop, &meeting->card[1], &error);
    while (good && atomic_load(&meeting->stop) == 0) {
        struct pollfd ready[2] = {{.fd = engine_loop_fd(loop), .events = POLLIN}, {.fd = stage->ask, .events = POLLIN}};
        poll(ready, 2, SERVE_MS);
        if ((ready[0].revents & POLLIN) != 0 && engine_loop_heard(loop, &meeting->counted_ns, &meeting->heard_ns))
            signal_other(stage->answer);
        if ((ready[1].revents & POLLIN) != 0 && signalled(stage->ask, 0)) {
            engine_loop_expect(loop);
            signal_other(stage->answer);
        }
    }
    engine_loop_free(loop);
}

static void serve_bare(const struct fabric_bench_config *config, const struct stage *stage)
{
    struct meeting *meeting = stage->meeting;
    struct user_error error = {.set = false};
    struct bare_loop *loop =
        bare_loop_make(config->provider, config->address, stage->target, REGION_BYTES, &meeting->bare, &error);
    atomic_fetch_or(&meeting->there, 1);
    while (loop != NULL && atomic_load_explicit(&meeting->stop, memory_order_relaxed) == 0)
        bare_loop_serve(loop);
    bare_loop_free(loop);
}

/* ---- The writer -------------------------------------------------------------------------------------------------- */

static bool single_with_event(struct engine_loop *loop, const struct stage *stage, struct turn *turn, uint32_t i)
{
    struct engine_single single;
    signal_other(stage->ask);
    if (!signalled(stage->answer, PATIENCE_MS) || !engine_loop_single(loop, &single) ||
        !signalled(stage->answer, PATIENCE_MS))
        return false;
    turn->post_ns[i] = single.post_ns;
    turn->completion_ns[i] = single.completion_ns;
    turn->landed_ns[i] = stage->meeting->heard_ns - single.start_ns;
    turn->event_ns[i] = stage->meeting->heard_ns - stage->meeting->counted_ns;
    return true;
}

static bool write_engine(const struct fabric_bench_config *config, uint32_t bytes, const struct stage *stage,
                         struct turn *turn, struct user_error *error)
{
    struct meeting *meeting = stage->meeting;
    struct engine_loop *loop = engine_loop_make(config->provider, config->address, config->window, stage->source,
                                                REGION_BYTES, bytes, 1, &meeting->card[1], error);
    uint32_t units = min_u32(ENGINE_UNITS_MAX, STEP_BYTES / bytes);
    bool good = loop != NULL;
    if (good) {
        atomic_fetch_or(&meeting->there, 2);
        good = meet(meeting, 0) && engine_loop_aim(loop, &meeting->card[0], error);
    }
    if (good) {
        good = engine_loop_stream(loop, units, WARM_NS, config->duration_ns, &turn->paged) &&
               engine_loop_stream(loop, 1, WARM_NS, config->duration_ns, &turn->single);
        for (uint32_t i = 0; good && i < SINGLES; i++)
            good = single_with_event(loop, stage, turn, i);
        if (!good)
            user_error_set(error, NULL, 0, NULL, "fabric %s: a write of %u bytes failed", config->provider, bytes);
    }
    engine_loop_free(loop);
    return good;
}

static bool write_bare(const struct fabric_bench_config *config, uint32_t bytes, const struct stage *stage,
                       struct turn *turn, struct user_error *error)
{
    struct bare_address own;
    struct bare_loop *loop =
        bare_loop_make(config->provider, config->address, stage->source, REGION_BYTES, &own, error);
    bool good = loop != NULL;
    if (good) {
        good = meet(stage->meeting, 0) && bare_loop_aim(loop, &stage->meeting->bare) &&
               bare_loop_stream(loop, config->window, bytes, WARM_NS, config->duration_ns, &turn->paged);
        for (uint32_t i = 0; good && i < SINGLES; i++) {
            turn->completion_ns[i] = bare_loop_single_ns(loop, bytes);
            good = turn->completion_ns[i] > 0;
        }
        if (!good)
            user_error_set(error, NULL, 0, NULL, "fabric %s: the bare loop moved nothing", config->provider);
    }
    bare_loop_free(loop);
    return good;
}

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

/* One turn of one kind, with a target of its own. */
static bool take_turn(const struct fabric_bench_config *config, uint32_t bytes, const struct stage *stage,
                      enum kind kind, struct turn *turn, struct user_error *error)
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    memset(stage->meeting, 0, sizeof *stage->meeting);
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        end_with_parent(parent);
        settle_on(&allowed, 1);
        memset(stage->target, 1, REGION_BYTES); /* shared pages have no place in a new process until it touches them */
        if (kind == KIND_ENGINE)
            serve_engine(config, bytes, stage);
        else
            serve_bare(config, stage);
        _exit(0);
    }
    if (child < 0) {
        user_error_set(error, NULL, 0, NULL, "no second process can be started");
        return false;
    }
    settle_on(&allowed, 0);
    bool good = kind == KIND_ENGINE ? write_engine(config, bytes, stage, turn, error)
                                    : write_bare(config, bytes, stage, turn, error);
    sched_setaffinity(0, sizeof allowed, &allowed);
    atomic_store(&stage->meeting->stop, 1);
    if (!good)
        kill(child, SIGKILL); /* it may be in the middle of anything */
    waitpid(child, NULL, 0);
    leftovers_remove_of(child);
    return good;
}

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

static uint64_t writes_per_s(const struct bare_stream *stream)
{
    return mul_div_floor_u64(stream->writes, (uint64_t)NS_PER_S, (uint64_t)stream->took_ns);
}

static struct fabric_bench_percentiles percentiles(int64_t *values, size_t count)
{
    stats_sort(values, count);
    return (struct fabric_bench_percentiles){stats_percentile(values, count, 500),
                                             stats_percentile(values, count, 990)};
}

/* A latency of all turns together. `from` is its place in a turn. */
static struct fabric_bench_percentiles pooled(const struct turn *turns, uint32_t count, size_t from)
{
    static int64_t all[TURNS_MAX * SINGLES];
    for (uint32_t t = 0; t < count; t++)
        memcpy(all + (size_t)t * SINGLES, (const unsigned char *)&turns[t] + from, SINGLES * sizeof *all);
    return percentiles(all, (size_t)count * SINGLES);
}

/* A stream of all turns beside the bare loop's in the turn before or after. `from` is its place in a turn. */
static struct fabric_bench_stream beside(const struct turn *turns, const struct turn *bare, uint32_t count, size_t from,
                                         uint32_t bytes)
{
    int64_t speeds[TURNS_MAX];
    int64_t ratios[TURNS_MAX];
    for (uint32_t t = 0; t < count; t++) {
        struct bare_stream stream;
        memcpy(&stream, (const unsigned char *)&turns[t] + from, sizeof stream);
        speeds[t] = (int64_t)writes_per_s(&stream);
        ratios[t] = (int64_t)mul_div_floor_u64((uint64_t)speeds[t], 1000, max_u64(writes_per_s(&bare[t].paged), 1));
    }
    stats_sort(speeds, count);
    stats_sort(ratios, count);
    uint64_t speed = (uint64_t)stats_percentile(speeds, count, 500);
    return (struct fabric_bench_stream){
        .bytes_per_s = mul_u64(speed, bytes),
        .writes_per_s = speed,
        .of_bare = (uint32_t)stats_percentile(ratios, count, 500),
        .of_bare_low = (uint32_t)stats_percentile(ratios, count, 250),
        .of_bare_high = (uint32_t)stats_percentile(ratios, count, 750),
    };
}

bool fabric_bench_measure(const struct fabric_bench_config *config, uint32_t bytes, struct fabric_bench_size *size,
                          struct user_error *error)
{
    static struct turn turns[2][TURNS_MAX];
    struct stage stage;
    bool good = true;
    CHECK(config->turns >= 1 && config->turns <= TURNS_MAX && config->window <= BARE_WINDOW_MAX);
    CHECK(bytes > 0 && (UINT32_C(1) << 20) % bytes == 0);
    stage_make(&stage);
    for (uint32_t t = 0; good && t < config->turns; t++) {
        enum kind first = t % 2 == 0 ? KIND_ENGINE : KIND_BARE;
        enum kind second = first == KIND_ENGINE ? KIND_BARE : KIND_ENGINE;
        good = take_turn(config, bytes, &stage, first, &turns[first][t], error) &&
               take_turn(config, bytes, &stage, second, &turns[second][t], error);
    }
    stage_free(&stage);
    if (!good)
        return false;
    const struct turn *engine = turns[KIND_ENGINE];
    const struct turn *bare = turns[KIND_BARE];
    *size = (struct fabric_bench_size){
        .bytes = bytes,
        .paged = beside(engine, bare, config->turns, offsetof(struct turn, paged), bytes),
        .single = beside(engine, bare, config->turns, offsetof(struct turn, single), bytes),
        .bare_bytes_per_s = beside(bare, bare, config->turns, offsetof(struct turn, paged), bytes).bytes_per_s,
        .post = pooled(engine, config->turns, offsetof(struct turn, post_ns)),
        .completion = pooled(engine, config->turns, offsetof(struct turn, completion_ns)),
        .bare = pooled(bare, config->turns, offsetof(struct turn, completion_ns)),
        .landed = pooled(engine, config->turns, offsetof(struct turn, landed_ns)),
        .event = pooled(engine, config->turns, offsetof(struct turn, event_ns)),
    };
    return true;
}

/* ---- The tables -------------------------------------------------------------------------------------------------- */

struct table *fabric_bench_speeds(void)
{
    struct table *table = table_new("writes in a row");
    table_column(table, "provider", "provider");
    table_column(table, "bytes", "bytes");
    table_column(table, "kind", "writes");
    table_column(table, "gb_per_s", "GB/s");
    table_column(table, "writes_per_s", "writes/s");
    table_column(table, "bare_gb_per_s", "bare GB/s");
    table_column(table, "of_bare_percent", "of bare %");
    table_column(table, "of_bare_low_percent", "low");
    table_column(table, "of_bare_high_percent", "high");
    table_column(table, "verdict", "");
    return table;
}

struct table *fabric_bench_latencies(void)
{
    struct table *table = table_new("one write at a time, us");
    table_column(table, "provider", "provider");
    table_column(table, "bytes", "bytes");
    table_column(table, "post_us_p50", "post p50");
    table_column(table, "post_us_p99", "p99");
    table_column(table, "completion_us_p50", "completion p50");
    table_column(table, "completion_us_p99", "p99");
    table_column(table, "bare_us_p50", "bare p50");
    table_column(table, "bare_us_p99", "p99");
    table_column(table, "landed_us_p50", "event there p50");
    table_column(table, "landed_us_p99", "p99");
    table_column(table, "event_us_p50", "immediate to event p50");
    table_column(table, "event_us_p99", "p99");
    return table;
}

static void add_speed(struct table *table, const char *provider, const char *kind, const struct fabric_bench_size *size,
                      const struct fabric_bench_stream *stream)
{
    table_row(table);
    table_text(table, provider);
    table_integer(table, size->bytes);
    table_text(table, kind);
    table_fixed(table, fixed_round((int64_t)stream->bytes_per_s, 9, 3), 3);
    table_integer(table, (int64_t)stream->writes_per_s);
    table_fixed(table, fixed_round((int64_t)size->bare_bytes_per_s, 9, 3), 3);
    table_fixed(table, stream->of_bare, 1);
    table_fixed(table, stream->of_bare_low, 1);
    table_fixed(table, stream->of_bare_high, 1);
    table_text(table, 5 * (stream->of_bare_high - stream->of_bare_low) > stream->of_bare ? "noise" : "");
}

static void add_percentiles(struct table *table, const struct fabric_bench_percentiles *latency)
{
    table_fixed(table, fixed_round(latency->p50_ns, 3, 1), 1);
    table_fixed(table, fixed_round(latency->p99_ns, 3, 1), 1);
}

bool fabric_bench(const struct fabric_bench_config *config, struct table *speeds, struct table *latencies,
                  struct user_error *error)
{
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct fabric_bench_size size;
        if (!fabric_bench_measure(config, sizes[s], &size, error))
            return false;
        add_speed(speeds, config->provider, "paged", &size, &size.paged);
        add_speed(speeds, config->provider, "single", &size, &size.single);
        table_row(latencies);
        table_text(latencies, config->provider);
        table_integer(latencies, size.bytes);
        add_percentiles(latencies, &size.post);
        add_percentiles(latencies, &size.completion);
        add_percentiles(latencies, &size.bare);
        add_percentiles(latencies, &size.landed);
        add_percentiles(latencies, &size.event);
    }
    return true;
}
