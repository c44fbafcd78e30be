/* See step_meter.h. */
#define _GNU_SOURCE
#include "real/calibrate/step_meter.h"

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/stats.h"
#include "real/executor/executors.h"
#include "real/runtime/real_runtime.h"
#include "real/cluster/real_world.h"
#include "real/memory/shared_memory.h"

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

struct step_meter {
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

static struct step_change *add_change(struct step_meter *meter, enum step_change_kind kind, uint32_t slot,
                                      uint32_t group, uint32_t request)
{
    CHECK(meter->launch.change_count < meter->change_room);
    struct step_change *change = &meter->changes[meter->launch.change_count++];
    *change = (struct step_change){
        .kind = (uint16_t)kind, .group = (uint16_t)group, .sequence = slot, .request = request, .token_seed = request};
    return change;
}

static void give_pages(struct step_meter *meter, struct step_change *change, uint64_t tokens, uint32_t *next_page)
{
    change->page_count = (uint32_t)ceil_div_u64(tokens, meter->job->limits.page_tokens);
    change->pages = meter->pages + meter->page_used;
    for (uint32_t i = 0; i < change->page_count; i++)
        meter->pages[meter->page_used++] = (*next_page)++;
    CHECK(*next_page <= meter->job->setup.memory.pages);
}

/* A launch that begins with the sequences of the last one leaving. */
static void begin(struct step_meter *meter, uint32_t per_group, uint32_t repeat)
{
    meter->launch.ticket++;
    meter->launch.repeat_max = repeat;
    meter->launch.change_count = 0;
    meter->page_used = 0;
    memset(meter->groups, 0, sizeof meter->groups);
    for (uint32_t i = 0; i < meter->live; i++)
        add_change(meter, STEP_LEAVE, i, i / meter->live_per_group, meter->live_first + i);
    meter->live = per_group * meter->job->setup.groups;
    meter->live_per_group = per_group;
    meter->live_first = meter->request;
    meter->request += meter->live;
}

static void batch_prefill(struct step_meter *meter, const struct chunk_batch *batch)
{
    begin(meter, batch->chunks, 1);
    for (uint32_t g = 0; g < meter->job->setup.groups; g++) {
        struct step_group *group = &meter->groups[g];
        uint32_t next_page = 0;
        for (uint32_t i = 0; i < batch->chunks; i++) {
            uint32_t slot = g * batch->chunks + i;
            struct step_change *change = add_change(meter, STEP_CHUNK, slot, g, meter->live_first + slot);
            change->start = batch->context;
            change->tokens = (uint32_t)part_of(batch->tokens, batch->chunks, i);
            give_pages(meter, change, (uint64_t)change->start + change->tokens, &next_page);
            group->prefill_sequences++;
            group->prefill_tokens += change->tokens;
            group->prefill_context += change->start;
            group->prefill_pairs +=
                (uint64_t)change->tokens * change->start + (uint64_t)change->tokens * (change->tokens + 1) / 2;
        }
    }
}

/* The context grows by a token a step: it begins so much lower that its mean over the launch is the cell's. */
static void batch_decode(struct step_meter *meter, uint32_t sequences, uint64_t context)
{
    uint32_t repeat = meter->job->limits.repeat;
    begin(meter, sequences, repeat);
    for (uint32_t g = 0; g < meter->job->setup.groups; g++) {
        struct step_group *group = &meter->groups[g];
        uint32_t next_page = 0;
        for (uint32_t i = 0; i < sequences; i++) {
            uint32_t slot = g * sequences + i;
            uint32_t cached = (uint32_t)part_of(context, sequences, i);
            struct step_change *change = add_change(meter, STEP_JOIN, slot, g, meter->live_first + slot);
            change->start = cached - min_u32(cached, (repeat - 1) / 2);
            give_pages(meter, change, (uint64_t)change->start + repeat, &next_page);
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
static void batch_cell(struct step_meter *meter, bool decode, uint32_t row, uint32_t column)
{
    const struct step_job *job = meter->job;
    struct chunk_batch batch;
    if (decode) {
        batch_decode(meter, job->table.decode.rows[row], job->table.decode.columns[column]);
        return;
    }
    CHECK(chunk_batch(&job->limits, job->table.prefill.rows[row], job->table.prefill.columns[column], &batch));
    batch_prefill(meter, &batch);
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

/* The node of this instance: it launches when the timer says so and hears when the steps are done. */
static void handle(void *self, const struct event *event)
{
    struct step_meter *meter = self;
    struct runtime *seam = real_runtime_seam(meter->real);
    if (event->kind == EVENT_TIMER) {
        meter->running = true;
        meter->start_ns = seam->now_ns;
        rt_launch(seam, &meter->launch);
    } else if (event->kind == EVENT_STEPS_DONE) {
        CHECK(event->count == meter->launch.repeat_max);
        meter->running = false;
        meter->took_ns = seam->now_ns - meter->start_ns;
    }
}

static void on_trouble(void *self, const char *text)
{
    struct step_meter *meter = self;
    if (meter->trouble[0] == '\0')
        snprintf(meter->trouble, sizeof meter->trouble, "%s", text);
}

static void on_death(void *self, uint32_t rank)
{
    struct step_meter *meter = self;
    char text[64];
    snprintf(text, sizeof text, "the executor of rank %u died", rank);
    real_runtime_unwatch(meter->real, executors_death_fd(meter->executors, rank));
    executors_abandon(meter->executors);
    on_trouble(meter, text);
}

static void pause_ns(long ns)
{
    struct timespec nap = {.tv_nsec = ns};
    nanosleep(&nap, NULL);
}

/* Until the launch is over. False in trouble. */
static bool finish(struct step_meter *meter)
{
    while (meter->running && meter->trouble[0] == '\0')
        real_runtime_turn(meter->real, TURN_NS);
    return meter->trouble[0] == '\0';
}

static bool launch(struct step_meter *meter)
{
    real_runtime_deliver(meter->real, &(struct event){.kind = EVENT_TIMER});
    return finish(meter);
}

/* From a launch to the first tick of the layer counter. */
static bool launch_to_tick(struct step_meter *meter, int64_t *took_ns)
{
    const _Atomic uint64_t *counter = executors_counters(meter->executors);
    uint64_t before = atomic_load_explicit(counter, memory_order_acquire);
    real_runtime_deliver(meter->real, &(struct event){.kind = EVENT_TIMER});
    int64_t until_ns = meter->start_ns + 10 * NS_PER_S;
    while (atomic_load_explicit(counter, memory_order_acquire) == before && real_runtime_now_ns(meter->real) < until_ns)
        pause_ns(LOOK_NS);
    *took_ns = real_runtime_now_ns(meter->real) - meter->start_ns;
    return finish(meter);
}

/* ---- Grids ------------------------------------------------------------------------------------------------------- */

struct rounds {
    uint32_t count;
    int64_t (*ns)[STEP_ROUNDS_MAX]; /* [cell][round] */
};

static bool run_round(struct step_meter *meter, bool decode, struct rounds *rounds, bool counted)
{
    const struct step_grid *grid = decode ? &meter->job->table.decode : &meter->job->table.prefill;
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            if (interrupt_requested())
                return false;
            if (!reached(meter->job, decode, r, c))
                continue;
            batch_cell(meter, decode, r, c);
            if (!decode)
                pause_ns(REST_NS);
            if (!launch(meter))
                return false;
            if (counted)
                rounds->ns[r * STEP_KNOTS_MAX + c][rounds->count] = meter->took_ns / meter->launch.repeat_max;
        }
    }
    rounds->count += counted;
    return true;
}

/* Medians into the grid; the spread of each cell is added to `spreads`. */
static void take_medians(struct step_meter *meter, bool decode, struct rounds *rounds, int64_t *spreads,
                         struct step_quality *quality)
{
    struct step_grid *grid = decode ? &meter->job->table.decode : &meter->job->table.prefill;
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            int64_t *ns = rounds->ns[r * STEP_KNOTS_MAX + c];
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

static bool measure_grid(struct step_meter *meter, bool decode, uint32_t count, struct progress *progress,
                         int64_t *spreads, struct step_quality *quality)
{
    struct step_grid *grid = decode ? &meter->job->table.decode : &meter->job->table.prefill;
    struct rounds rounds = {.ns = calloc(STEP_KNOTS_MAX * STEP_KNOTS_MAX, sizeof *rounds.ns)};
    CHECK(rounds.ns != NULL);
    bool good = true;
    for (uint32_t i = 0; i <= count && good; i++) {
        good = run_round(meter, decode, &rounds, i > 0);
        progress_add(progress, (uint64_t)grid->row_count * grid->column_count);
    }
    if (good) {
        take_medians(meter, decode, &rounds, spreads, quality);
        step_grid_fill(grid);
        step_grid_rise(grid);
    }
    free(rounds.ns);
    return good;
}

static int64_t grid_median(const struct step_grid *grid)
{
    int64_t cells[STEP_KNOTS_MAX * STEP_KNOTS_MAX];
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
static bool measure_first_layer(struct step_meter *meter, uint32_t count)
{
    struct step_table *table = &meter->job->table;
    bool decode = table->prefill.row_count == 0;
    const struct step_grid *grid = decode ? &table->decode : &table->prefill;
    int64_t median_ns = grid_median(grid);
    int64_t ticks[STEP_ROUNDS_MAX];
    uint32_t row = 0;
    uint32_t column = 0;
    find_cell(meter->job, decode, median_ns, &row, &column);
    prctl(PR_SET_TIMERSLACK, 1000UL);
    bool good = true;
    for (uint32_t i = 0; i < count && good; i++) {
        batch_cell(meter, decode, row, column);
        meter->launch.repeat_max = 1;
        pause_ns(REST_NS);
        good = launch_to_tick(meter, &ticks[i]) && !interrupt_requested();
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

static bool start(struct step_meter *meter, char *error, size_t error_size)
{
    const struct executor_setup *setup = &meter->job->setup;
    meter->executors = executors_start(setup, error, error_size);
    if (meter->executors == NULL)
        return false;
    meter->real = real_runtime_make(&(struct real_config){
        .node = 1,
        .limits = real_world_limits(),
        .handle = handle,
        .self = meter,
        .stepper = executors_stepper(meter->executors),
        .listener = {.self = meter, .trouble = on_trouble},
    });
    real_runtime_origin(meter->real, clock_now_ns());
    for (uint32_t r = 0; r < setup->ranks; r++)
        real_runtime_watch(meter->real, executors_death_fd(meter->executors, r), on_death, meter, r);
    meter->change_room = 2 * setup->sequences_max;
    meter->changes = calloc(meter->change_room, sizeof *meter->changes);
    meter->pages = calloc((size_t)setup->groups * setup->memory.pages, sizeof *meter->pages);
    CHECK(meter->changes != NULL && meter->pages != NULL);
    meter->launch.group_count = setup->groups;
    meter->launch.groups = meter->groups;
    meter->launch.changes = meter->changes;
    return true;
}

bool step_meter(struct step_job *job, uint32_t rounds, struct progress *progress, struct step_quality *quality,
                char *error, size_t error_size)
{
    CHECK(rounds >= 1 && rounds <= STEP_ROUNDS_MAX);
    struct step_meter meter = {.job = job};
    int64_t *spreads = calloc((size_t)2 * STEP_KNOTS_MAX * STEP_KNOTS_MAX, sizeof *spreads);
    CHECK(spreads != NULL);
    *quality = (struct step_quality){0};
    bool good = start(&meter, error, error_size);
    if (good) {
        progress_note(progress, job->name);
        good = measure_grid(&meter, false, rounds, progress, spreads, quality) &&
               measure_grid(&meter, true, rounds, progress, spreads, quality) && measure_first_layer(&meter, rounds);
        if (!good)
            snprintf(error, error_size, "%s", meter.trouble);
    }
    if (good && quality->cells_measured > 0) {
        stats_sort(spreads, quality->cells_measured);
        quality->spread_permille = stats_percentile(spreads, quality->cells_measured, 500);
    }
    real_runtime_free(meter.real);
    executors_stop(meter.executors);
    free(meter.changes);
    free(meter.pages);
    free(spreads);
    return good;
}
