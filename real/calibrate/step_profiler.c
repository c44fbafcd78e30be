/* See step_profiler.h. */
#define _GNU_SOURCE
#include "real/calibrate/step_profiler.h"

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/stats.h"
#include "real/executor/executors.h"
#include "real/runtime/real_runtime.h"
#include "real/cluster/real_world.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define TURN_NS (50 * NS_PER_MS)

/* How often the layer counter is looked at while its first tick is awaited. */
#define LOOK_NS 5000L

/* Before a launch of prefill the machine rests: at the loads at which latencies are predicted a prompt finds the
 * executors asleep. Decode steps follow each other. */
#define REST_NS (1 * NS_PER_MS)

struct step_profiler {
    struct step_job *job;
    struct executors *executors;
    struct real_runtime *real;
    struct step_launch launch;
    struct step_group groups[GROUPS_MAX];
    struct step_change *changes;
    uint32_t change_room;
    uint32_t *pages; /* of the changes */
    uint32_t page_used;
    uint32_t request; /* of the next sequence */
    uint32_t live;    /* sequences of the launch before, in slots [0, live), by request from live_first on */
    uint32_t live_first;
    uint32_t live_per_group;
    bool running;
    int64_t start_ns;
    int64_t took_ns;
    char trouble[160];
};

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

static struct step_change *add_change(struct step_profiler *profiler, enum step_change_kind kind, uint32_t slot,
                                      uint32_t group, uint32_t request)
{
    CHECK(profiler->launch.change_count < profiler->change_room);
    struct step_change *change = &profiler->changes[profiler->launch.change_count++];
    *change = (struct step_change){
        .kind = (uint16_t)kind, .group = (uint16_t)group, .sequence = slot, .request = request, .token_seed = request};
    return change;
}

static void give_pages(struct step_profiler *profiler, struct step_change *change, uint64_t tokens, uint32_t *next_page)
{
    change->page_count = (uint32_t)ceil_div_u64(tokens, profiler->job->limits.page_tokens);
    change->pages = profiler->pages + profiler->page_used;
    for (uint32_t i = 0; i < change->page_count; i++)
        profiler->pages[profiler->page_used++] = (*next_page)++;
    CHECK(*next_page <= profiler->job->setup.memory.pages);
}

/* A launch that begins with the sequences of the last one leaving. */
static void begin(struct step_profiler *profiler, uint32_t per_group, uint32_t repeat)
{
    profiler->launch.ticket++;
    profiler->launch.repeat_max = repeat;
    profiler->launch.change_count = 0;
    profiler->page_used = 0;
    memset(profiler->groups, 0, sizeof profiler->groups);
    for (uint32_t i = 0; i < profiler->live; i++)
        add_change(profiler, STEP_LEAVE, i, i / profiler->live_per_group, profiler->live_first + i);
    profiler->live = per_group * profiler->job->setup.groups;
    profiler->live_per_group = per_group;
    profiler->live_first = profiler->request;
    profiler->request += profiler->live;
}

static void batch_prefill(struct step_profiler *profiler, const struct chunk_batch *batch)
{
    begin(profiler, batch->chunks, 1);
    for (uint32_t g = 0; g < profiler->job->setup.groups; g++) {
        struct step_group *group = &profiler->groups[g];
        uint32_t next_page = 0;
        for (uint32_t i = 0; i < batch->chunks; i++) {
            uint32_t slot = g * batch->chunks + i;
            struct step_change *change = add_change(profiler, STEP_CHUNK, slot, g, profiler->live_first + slot);
            change->start = batch->context;
            change->tokens = (uint32_t)part_of(batch->tokens, batch->chunks, i);
            give_pages(profiler, change, (uint64_t)change->start + change->tokens, &next_page);
            group->prefill_sequences++;
            group->prefill_tokens += change->tokens;
            group->prefill_context += change->start;
            group->prefill_pairs +=
                (uint64_t)change->tokens * change->start + (uint64_t)change->tokens * (change->tokens + 1) / 2;
        }
    }
}

/* The context grows by a token a step: it begins so much lower that its mean over the launch is the cell's. */
static void batch_decode(struct step_profiler *profiler, uint32_t sequences, uint64_t context)
{
    uint32_t repeat = profiler->job->limits.repeat;
    begin(profiler, sequences, repeat);
    for (uint32_t g = 0; g < profiler->job->setup.groups; g++) {
        struct step_group *group = &profiler->groups[g];
        uint32_t next_page = 0;
        for (uint32_t i = 0; i < sequences; i++) {
            uint32_t slot = g * sequences + i;
            uint32_t cached = (uint32_t)part_of(context, sequences, i);
            struct step_change *change = add_change(profiler, STEP_JOIN, slot, g, profiler->live_first + slot);
            change->start = cached - min_u32(cached, (repeat - 1) / 2);
            give_pages(profiler, change, (uint64_t)change->start + repeat, &next_page);
            group->decode_sequences++;
            group->decode_context += change->start;
        }
    }
}

/* Whether a batch reaches the cell. */
static bool reached(const struct step_job *job, bool decode, uint32_t row, uint32_t column)
{
    struct chunk_batch batch;
    if (decode)
        return decode_batch_fits(&job->limits, job->table.decode.rows[row], job->table.decode.columns[column]);
    return chunk_batch(&job->limits, job->table.prefill.rows[row], job->table.prefill.columns[column], &batch);
}

/* Of a cell that is reached; every batch is launched. */
static void batch_cell(struct step_profiler *profiler, bool decode, uint32_t row, uint32_t column)
{
    const struct step_job *job = profiler->job;
    struct chunk_batch batch;
    if (decode) {
        batch_decode(profiler, job->table.decode.rows[row], job->table.decode.columns[column]);
        return;
    }
    CHECK(chunk_batch(&job->limits, job->table.prefill.rows[row], job->table.prefill.columns[column], &batch));
    batch_prefill(profiler, &batch);
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

/* The node of this instance: it launches when the timer says so and hears when the steps are done. */
static void handle(void *self, const struct event *event)
{
    struct step_profiler *profiler = self;
    struct runtime *seam = real_runtime_seam(profiler->real);
    if (event->kind == EVENT_TIMER) {
        profiler->running = true;
        profiler->start_ns = seam->now_ns;
        rt_launch(seam, &profiler->launch);
    } else if (event->kind == EVENT_STEPS_DONE) {
        CHECK(event->count == profiler->launch.repeat_max);
        profiler->running = false;
        profiler->took_ns = seam->now_ns - profiler->start_ns;
    }
}

static void on_trouble(void *self, const char *text)
{
    struct step_profiler *profiler = self;
    if (profiler->trouble[0] == '\0')
        snprintf(profiler->trouble, sizeof profiler->trouble, "%s", text);
}

static void on_death(void *self, uint32_t rank)
{
    struct step_profiler *profiler = self;
    char text[64];
    snprintf(text, sizeof text, "the executor of rank %u died", rank);
    real_runtime_unwatch(profiler->real, executors_death_fd(profiler->executors, rank));
    executors_abandon(profiler->executors);
    on_trouble(profiler, text);
}

static void pause_ns(long ns)
{
    struct timespec nap = {.tv_nsec = ns};
    nanosleep(&nap, NULL);
}

/* Until the launch is over. False in trouble. */
static bool finish(struct step_profiler *profiler)
{
    while (profiler->running && profiler->trouble[0] == '\0')
        real_runtime_turn(profiler->real, TURN_NS);
    return profiler->trouble[0] == '\0';
}

static bool launch(struct step_profiler *profiler)
{
    real_runtime_deliver(profiler->real, &(struct event){.kind = EVENT_TIMER});
    return finish(profiler);
}

/* From a launch to the first tick of the layer counter. */
static bool launch_to_tick(struct step_profiler *profiler, int64_t *took_ns)
{
    const _Atomic uint64_t *counter = executors_counters(profiler->executors);
    uint64_t before = atomic_load_explicit(counter, memory_order_acquire);
    real_runtime_deliver(profiler->real, &(struct event){.kind = EVENT_TIMER});
    int64_t until_ns = profiler->start_ns + 10 * NS_PER_S;
    while (atomic_load_explicit(counter, memory_order_acquire) == before &&
           real_runtime_now_ns(profiler->real) < until_ns)
        pause_ns(LOOK_NS);
    *took_ns = real_runtime_now_ns(profiler->real) - profiler->start_ns;
    return finish(profiler);
}

/* ---- Grids ------------------------------------------------------------------------------------------------------- */

struct rounds {
    uint32_t count;
    int64_t (*ns)[STEP_ROUNDS_MAX]; /* [cell][round] */
};

static bool run_round(struct step_profiler *profiler, bool decode, struct rounds *rounds, bool counted)
{
    const struct step_grid *grid = decode ? &profiler->job->table.decode : &profiler->job->table.prefill;
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            if (interrupt_requested())
                return false;
            if (!reached(profiler->job, decode, r, c))
                continue;
            batch_cell(profiler, decode, r, c);
            if (!decode)
                pause_ns(REST_NS);
            if (!launch(profiler))
                return false;
            if (counted)
                rounds->ns[r * STEP_BREAKPOINTS_MAX + c][rounds->count] =
                    profiler->took_ns / profiler->launch.repeat_max;
        }
    }
    rounds->count += counted;
    return true;
}

/* Medians into the grid; the spread of each cell is added to `spreads`. */
static void take_medians(struct step_profiler *profiler, bool decode, struct rounds *rounds, int64_t *spreads,
                         struct step_quality *quality)
{
    struct step_grid *grid = decode ? &profiler->job->table.decode : &profiler->job->table.prefill;
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            int64_t *ns = rounds->ns[r * STEP_BREAKPOINTS_MAX + c];
            grid->ns[r][c] = 0;
            if (ns[0] == 0) {
                quality->cells_filled++;
                continue;
            }
            stats_sort(ns, rounds->count);
            grid->ns[r][c] = max_i64(1, stats_percentile(ns, rounds->count, 500));
            int64_t quartiles = stats_percentile(ns, rounds->count, 750) - stats_percentile(ns, rounds->count, 250);
            spreads[quality->cells_measured++] = quartiles * 500 / grid->ns[r][c];
        }
    }
}

static bool measure_grid(struct step_profiler *profiler, bool decode, uint32_t count, struct progress *progress,
                         int64_t *spreads, struct step_quality *quality)
{
    struct step_grid *grid = decode ? &profiler->job->table.decode : &profiler->job->table.prefill;
    struct rounds rounds = {.ns = calloc(STEP_BREAKPOINTS_MAX * STEP_BREAKPOINTS_MAX, sizeof *rounds.ns)};
    CHECK(rounds.ns != NULL);
    bool good = true;
    for (uint32_t i = 0; i <= count && good; i++) {
        good = run_round(profiler, decode, &rounds, i > 0);
        progress_add(progress, (uint64_t)grid->row_count * grid->column_count);
    }
    if (good) {
        take_medians(profiler, decode, &rounds, spreads, quality);
        step_grid_fill(grid);
        step_grid_rise(grid);
    }
    free(rounds.ns);
    return good;
}

static int64_t grid_median(const struct step_grid *grid)
{
    int64_t cells[STEP_BREAKPOINTS_MAX * STEP_BREAKPOINTS_MAX];
    uint32_t count = 0;
    for (uint32_t r = 0; r < grid->row_count; r++)
        for (uint32_t c = 0; c < grid->column_count; c++)
            cells[count++] = grid->ns[r][c];
    stats_sort(cells, count);
    return stats_percentile(cells, count, 500);
}

/* The cell that a batch reaches and whose time is the nearest to `ns`. */
static void find_cell(const struct step_job *job, bool decode, int64_t ns, uint32_t *row, uint32_t *column)
{
    const struct step_grid *grid = decode ? &job->table.decode : &job->table.prefill;
    int64_t nearest_ns = INT64_MAX;
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            int64_t off_ns = max_i64(grid->ns[r][c] - ns, ns - grid->ns[r][c]);
            if (off_ns >= nearest_ns || !reached(job, decode, r, c))
                continue;
            nearest_ns = off_ns;
            *row = r;
            *column = c;
        }
    }
}

/* Of the step whose time is the median of the table, prefill's where the pool does it: from the nearest cell that can
 * be launched, in proportion. */
static bool measure_first_layer(struct step_profiler *profiler, uint32_t count)
{
    struct step_table *table = &profiler->job->table;
    bool decode = table->prefill.row_count == 0;
    const struct step_grid *grid = decode ? &table->decode : &table->prefill;
    int64_t median_ns = grid_median(grid);
    int64_t ticks[STEP_ROUNDS_MAX];
    uint32_t row = 0;
    uint32_t column = 0;
    find_cell(profiler->job, decode, median_ns, &row, &column);
    prctl(PR_SET_TIMERSLACK, 1000UL);
    bool good = true;
    for (uint32_t i = 0; i < count && good; i++) {
        batch_cell(profiler, decode, row, column);
        profiler->launch.repeat_max = 1;
        pause_ns(REST_NS);
        good = launch_to_tick(profiler, &ticks[i]) && !interrupt_requested();
    }
    prctl(PR_SET_TIMERSLACK, 0UL); /* back to what it was */
    if (good) {
        stats_sort(ticks, count);
        int64_t tick_ns = min_i64(stats_percentile(ticks, count, 500), grid->ns[row][column]);
        table->first_layer_ns = (int64_t)((int128)tick_ns * median_ns / grid->ns[row][column]);
    }
    return good;
}

/* ---- The instance ------------------------------------------------------------------------------------------------ */

static bool start(struct step_profiler *profiler, struct user_error *error)
{
    const struct executor_setup *setup = &profiler->job->setup;
    profiler->executors = executors_start(setup, error);
    if (profiler->executors == NULL)
        return false;
    profiler->real = real_runtime_make(&(struct real_config){
        .node = 1,
        .limits = real_world_limits(),
        .handle = handle,
        .self = profiler,
        .stepper = executors_stepper(profiler->executors),
        .listener = {.self = profiler, .trouble = on_trouble},
    });
    real_runtime_origin(profiler->real, clock_now_ns());
    for (uint32_t r = 0; r < setup->ranks; r++)
        real_runtime_watch(profiler->real, executors_death_fd(profiler->executors, r), on_death, profiler, r);
    profiler->change_room = 2 * setup->sequences_max;
    profiler->changes = calloc(profiler->change_room, sizeof *profiler->changes);
    profiler->pages = calloc((size_t)setup->groups * setup->memory.pages, sizeof *profiler->pages);
    CHECK(profiler->changes != NULL && profiler->pages != NULL);
    profiler->launch.group_count = setup->groups;
    profiler->launch.groups = profiler->groups;
    profiler->launch.changes = profiler->changes;
    return true;
}

bool step_profiler(struct step_job *job, uint32_t rounds, struct progress *progress, struct step_quality *quality,
                   struct user_error *error)
{
    CHECK(rounds >= 1 && rounds <= STEP_ROUNDS_MAX);
    struct step_profiler profiler = {.job = job};
    int64_t *spreads = calloc((size_t)2 * STEP_BREAKPOINTS_MAX * STEP_BREAKPOINTS_MAX, sizeof *spreads);
    CHECK(spreads != NULL);
    *quality = (struct step_quality){0};
    bool good = start(&profiler, error);
    if (good) {
        progress_note(progress, job->name);
        good = measure_grid(&profiler, false, rounds, progress, spreads, quality) &&
               measure_grid(&profiler, true, rounds, progress, spreads, quality) &&
               measure_first_layer(&profiler, rounds);
        if (!good)
            user_error_set(error, NULL, 0, NULL, "%s", profiler.trouble);
    }
    if (good && quality->cells_measured > 0) {
        stats_sort(spreads, quality->cells_measured);
        quality->spread_permille = stats_percentile(spreads, quality->cells_measured, 500);
    }
    real_runtime_free(profiler.real);
    executors_stop(profiler.executors);
    free(profiler.changes);
    free(profiler.pages);
    free(spreads);
    return good;
}
