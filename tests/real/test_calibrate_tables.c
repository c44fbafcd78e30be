/* What calibration makes of its measurements, without measuring: fits of writes, breakpoints and batches, cells that
 * were not reached, noise, and the profile as a file. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arith.h"
#include "base/rng.h"
#include "world/scenario/hardware_load.h"
#include "real/calibrate/profile.h"
#include "support/scenario_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Fits -------------------------------------------------------------------------------------------------------- */

#define POINTS 7

static const uint64_t point_sizes[POINTS] = {1024, 4096, 16384, 65536, 262144, 1048576, 4194304};

/* Times that a NIC of these parameters takes, each off by up to `noise` permille. */
static void draw(const struct nic *nic, uint32_t noise, struct write_time *singles, struct write_time *stream)
{
    struct rng rng = rng_stream(7, 1, RNG_GENERATE);
    for (size_t i = 0; i < POINTS; i++) {
        int64_t off = 1000 - (int64_t)noise + (int64_t)rng_below(&rng, 2 * noise + 1);
        singles[i] = (struct write_time){point_sizes[i], nic_single_ps(nic, point_sizes[i]) * off / 1000};
        stream[i] = (struct write_time){point_sizes[i], nic_paged_ps(nic, point_sizes[i]) * off / 1000};
    }
}

static void assert_near(double value, double expected, double permille)
{
    if (fabs(value - expected) > fabs(expected) * permille / 1000)
        fail_msg("%g is not within %g permille of %g", value, permille, expected);
}

static void fits_find_the_parameters(void **state)
{
    (void)state;
    static const struct nic nics[] = {
        /* ConnectX-7 and EFA as fitted to arXiv 2510.27656; a loopback that adds gap and bytes up. */
        {.base_ns = 11200, .bytes_per_s = 46800000000, .gap_ps = 86000, .knee_permille = 1750},
        {.base_ns = 32200, .bytes_per_s = 43300000000, .gap_ps = 474000, .knee_permille = 8000},
        {.base_ns = 3000, .bytes_per_s = 5000000000, .gap_ps = 1500000, .knee_permille = 1000},
    };
    for (size_t k = 0; k < sizeof nics / sizeof *nics; k++) {
        struct write_time singles[POINTS];
        struct write_time stream[POINTS];
        struct nic found = {.queue_depth = 64};
        struct user_error error = {.set = false};
        draw(&nics[k], 0, singles, stream);
        assert_true(nic_fit(singles, POINTS, stream, POINTS, &found, &error));
        assert_near((double)found.base_ns, (double)nics[k].base_ns, 10);
        assert_near((double)found.bytes_per_s, (double)nics[k].bytes_per_s, 10);
        assert_near((double)found.gap_ps, (double)nics[k].gap_ps, 10);
        assert_near(found.knee_permille, nics[k].knee_permille, 60); /* the knees that are tried lie 5 % apart */
        assert_int_equal(found.queue_depth, 64);
    }
}

static void noise_moves_a_fit_by_no_more_than_itself(void **state)
{
    (void)state;
    const struct nic nic = {.base_ns = 11200, .bytes_per_s = 20000000000, .gap_ps = 300000, .knee_permille = 2000};
    struct write_time singles[POINTS];
    struct write_time stream[POINTS];
    struct nic found = {0};
    struct user_error error = {.set = false};
    draw(&nic, 50, singles, stream);
    assert_true(nic_fit(singles, POINTS, stream, POINTS, &found, &error));
    assert_near((double)found.bytes_per_s, 20e9, 50);
    assert_near((double)found.gap_ps, 300000, 50);
    assert_near((double)found.base_ns, 11200, 50);
    for (size_t i = 0; i < POINTS; i++)
        assert_near((double)nic_paged_ps(&found, point_sizes[i]), (double)nic_paged_ps(&nic, point_sizes[i]), 60);
}

static void streams_without_a_gap(void **state)
{
    (void)state;
    struct write_time points[3];
    struct nic found = {0};
    struct user_error error = {.set = false};
    for (size_t i = 0; i < 3; i++) /* and one that grows faster than its size: no gap is below zero */
        points[i] = (struct write_time){point_sizes[i], (int64_t)(point_sizes[i] * 100 + 50000 * i)};
    assert_true(nic_fit(points, 3, points, 3, &found, &error));
    assert_int_equal(found.gap_ps, 0);
    assert_true(found.base_ns >= 0 && found.bytes_per_s > 0 && found.knee_permille >= 1000);
}

static void points_that_say_nothing(void **state)
{
    (void)state;
    const struct write_time good[2] = {{1000, 100000}, {100000, 1000000}};
    const struct write_time one[2] = {{1000, 100000}, {1000, 110000}};
    const struct write_time none[2] = {{1000, 0}, {100000, 1000000}};
    const struct write_time falling[3] = {{1000, 900000}, {100000, 90000}, {200000, 30000}};
    struct nic nic;
    struct user_error error = {.set = false};
    assert_false(nic_fit(good, 2, one, 2, &nic, &error));
    assert_string_equal(error.text, "streamed writes of at least two sizes are needed");
    error.set = false;
    assert_false(nic_fit(good, 2, good, 0, &nic, &error));
    assert_true(error.set);
    error.set = false;
    assert_false(nic_fit(none, 2, good, 2, &nic, &error));
    assert_string_equal(error.text, "the single writes of 1000 bytes took no time");
    error.set = false;
    assert_false(nic_fit(good, 2, falling, 3, &nic, &error));
    assert_string_equal(error.text, "large writes of a stream take no longer than small ones: is the machine busy?");
    assert_true(nic_fit(good, 2, good, 2, &nic, &error));
}

/* ---- Breakpoints and batches
 * ------------------------------------------------------------------------------------------- */

static const struct step_limits tiny = {.prefill_tokens = 128,
                                        .chunk_tokens = 64,
                                        .batch_max = 16,
                                        .repeat = 8,
                                        .request_tokens_max = 240,
                                        .page_tokens = 16,
                                        .pages = 1000};

static void assert_axes(const struct step_grid *grid)
{
    assert_in_range(grid->row_count, 1, STEP_BREAKPOINTS_MAX);
    assert_in_range(grid->column_count, 1, STEP_BREAKPOINTS_MAX);
    for (uint32_t r = 1; r < grid->row_count; r++)
        assert_true(grid->rows[r] > grid->rows[r - 1]);
    for (uint32_t c = 1; c < grid->column_count; c++)
        assert_true(grid->columns[c] > grid->columns[c - 1]);
}

static void axes_hold_chunk_and_limits(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {1, 2, 4, 8, 16, 32, 64, 128};
    static const uint64_t keys[] = {1, 33, 66, 132, 240};
    static const uint32_t sequences[] = {1, 2, 4, 8, 16};
    static const uint64_t context[] = {16, 64, 240, 960, 3840};
    struct step_grid grid = {0};
    breakpoints_prefill(&tiny, &grid);
    assert_int_equal(grid.row_count, 8);
    assert_memory_equal(grid.rows, tokens, sizeof tokens);
    assert_int_equal(grid.column_count, 5);
    assert_memory_equal(grid.columns, keys, sizeof keys);
    breakpoints_decode(&tiny, &grid);
    assert_int_equal(grid.row_count, 5);
    assert_memory_equal(grid.rows, sequences, sizeof sequences);
    assert_int_equal(grid.column_count, 5);
    assert_memory_equal(grid.columns, context, sizeof context);
}

/* Whatever limits a scenario may have: axes ascend, and every row has a cell that a batch reaches. */
static void every_row_can_be_measured(void **state)
{
    (void)state;
    struct rng rng = rng_stream(11, 1, RNG_GENERATE);
    for (uint32_t round = 0; round < 20000; round++) {
        struct step_limits limits = {
            .prefill_tokens = 1 + (uint32_t)rng_below(&rng, UINT64_C(1) << rng_below(&rng, 15)),
            .batch_max = 1 + (uint32_t)rng_below(&rng, UINT64_C(1) << rng_below(&rng, 10)),
            .repeat = 1 + (uint32_t)rng_below(&rng, 8),
            .request_tokens_max = 2 + (uint32_t)rng_below(&rng, UINT64_C(1) << rng_below(&rng, 18)),
            .page_tokens = 1 + (uint32_t)rng_below(&rng, 128),
            .pages = 1 + (uint32_t)rng_below(&rng, UINT64_C(1) << rng_below(&rng, 16)),
        };
        limits.chunk_tokens = 1 + (uint32_t)rng_below(&rng, limits.prefill_tokens);
        struct step_grid grid = {0};
        struct chunk_batch batch;
        breakpoints_prefill(&limits, &grid);
        for (uint32_t r = 0; r < grid.row_count; r++) {
            bool reached = false;
            for (uint32_t c = 0; c < grid.column_count; c++)
                reached = reached || chunk_batch(&limits, grid.rows[r], grid.columns[c], &batch);
            if (!reached)
                fail_msg("round %u: row %u of: budget %u chunk %u batch %u repeat %u request %u page %u pages %u",
                         round, grid.rows[r], limits.prefill_tokens, limits.chunk_tokens, limits.batch_max,
                         limits.repeat, limits.request_tokens_max, limits.page_tokens, limits.pages);
        }
        if (grid.row_count > 0)
            assert_axes(&grid);
        breakpoints_decode(&limits, &grid);
        for (uint32_t r = 0; r < grid.row_count; r++) {
            bool reached = false;
            for (uint32_t c = 0; c < grid.column_count; c++)
                reached = reached || decode_batch_fits(&limits, grid.rows[r], grid.columns[c]);
            if (!reached)
                fail_msg("round %u: row %u of: budget %u chunk %u batch %u repeat %u request %u page %u pages %u",
                         round, grid.rows[r], limits.prefill_tokens, limits.chunk_tokens, limits.batch_max,
                         limits.repeat, limits.request_tokens_max, limits.page_tokens, limits.pages);
        }
        if (grid.row_count > 0)
            assert_axes(&grid);
    }
}

static void pools_that_do_one_thing(void **state)
{
    (void)state;
    struct step_limits prefill = tiny;
    struct step_limits decode = tiny;
    struct step_grid grid = {0};
    prefill.batch_max = 0;
    decode.prefill_tokens = decode.chunk_tokens = 0;
    breakpoints_decode(&prefill, &grid);
    assert_int_equal(grid.row_count, 0);
    breakpoints_prefill(&decode, &grid);
    assert_int_equal(grid.row_count, 0);
    struct step_limits both = step_limits_union(&prefill, &decode);
    assert_memory_equal(&both, &tiny, sizeof both);
}

static void chunks_see_the_keys_asked_for(void **state)
{
    (void)state;
    struct chunk_batch batch;
    assert_true(chunk_batch(&tiny, 64, 33, &batch)); /* the first chunk of a prompt: 32.5 keys a token */
    assert_int_equal(batch.chunks, 1);
    assert_int_equal(batch.context, 0);
    assert_true(chunk_batch(&tiny, 128, 132, &batch));
    assert_int_equal(batch.chunks, 2);
    assert_int_equal(batch.context, 99); /* 99 + 65 / 2, rounded to a whole key */
    assert_true(chunk_batch(&tiny, 1, 240, &batch));
    assert_int_equal(batch.context, 239);
    assert_false(chunk_batch(&tiny, 64, 32, &batch)); /* it sees more by itself */
    struct step_limits few = tiny;
    few.pages = 15;
    assert_true(chunk_batch(&few, 1, 240, &batch));
    assert_false(chunk_batch(&few, 16, 240, &batch));
    assert_true(decode_batch_fits(&tiny, 2, 480));
    assert_false(decode_batch_fits(&tiny, 2, 481));
    assert_false(decode_batch_fits(&few, 2, 240)); /* with what a launch adds */
}

/* ---- Cells ------------------------------------------------------------------------------------------------------- */

/* A step of a + b rows + c columns. */
static int64_t bilinear(uint64_t row, uint64_t column)
{
    return 1000 + 300 * (int64_t)row + 7 * (int64_t)column;
}

static void unreached_cells_lie_on_lines(void **state)
{
    (void)state;
    struct step_grid grid = {0};
    breakpoints_decode(&tiny, &grid);
    for (uint32_t r = 0; r < grid.row_count; r++)
        for (uint32_t c = 0; c < grid.column_count; c++)
            if (decode_batch_fits(&tiny, grid.rows[r], grid.columns[c]))
                grid.ns[r][c] = bilinear(grid.rows[r], grid.columns[c]);
    assert_int_equal(grid.ns[0][grid.column_count - 1], 0);
    step_grid_fill(&grid);
    for (uint32_t r = 0; r < grid.row_count; r++)
        for (uint32_t c = 0; c < grid.column_count; c++)
            assert_int_equal(grid.ns[r][c], bilinear(grid.rows[r], grid.columns[c]));
    /* The low side: a row's own line; and never below a nanosecond. */
    grid.ns[2][0] = 0;
    grid.ns[3][0] = 0;
    grid.ns[3][1] = 10;
    step_grid_fill(&grid);
    assert_int_equal(grid.ns[2][0], bilinear(grid.rows[2], grid.columns[0]));
    assert_int_equal(grid.ns[3][0], 1);
}

static void noise_does_not_fall(void **state)
{
    (void)state;
    struct step_grid grid = {.row_count = 2, .column_count = 4};
    static const int64_t noisy[2][4] = {{10, 8, 20, 40}, {12, 30, 24, 39}};
    static const int64_t risen[2][4] = {{9, 9, 20, 39}, {12, 27, 27, 39}};
    for (uint32_t r = 0; r < 2; r++)
        memcpy(grid.ns[r], noisy[r], sizeof noisy[r]);
    step_grid_rise(&grid);
    for (uint32_t r = 0; r < 2; r++)
        assert_memory_equal(grid.ns[r], risen[r], sizeof risen[r]);
    struct step_grid again = grid;
    step_grid_rise(&again);
    assert_memory_equal(&again, &grid, sizeof grid); /* what rises is left alone */
}

static void any_grid_rises(void **state)
{
    (void)state;
    struct rng rng = rng_stream(13, 1, RNG_GENERATE);
    for (uint32_t round = 0; round < 2000; round++) {
        struct step_grid grid = {.row_count = 1 + (uint32_t)rng_below(&rng, STEP_BREAKPOINTS_MAX),
                                 .column_count = 1 + (uint32_t)rng_below(&rng, STEP_BREAKPOINTS_MAX)};
        for (uint32_t r = 0; r < grid.row_count; r++)
            for (uint32_t c = 0; c < grid.column_count; c++)
                grid.ns[r][c] = 1 + (int64_t)rng_below(&rng, 1000000);
        step_grid_rise(&grid);
        for (uint32_t r = 0; r < grid.row_count; r++) {
            for (uint32_t c = 0; c < grid.column_count; c++) {
                assert_in_range(grid.ns[r][c], 1, 1000000);
                assert_true(r == 0 || grid.ns[r][c] >= grid.ns[r - 1][c]);
                assert_true(c == 0 || grid.ns[r][c] >= grid.ns[r][c - 1]);
            }
        }
    }
}

/* ---- The profile ------------------------------------------------------------------------------------------------- */

struct sample_profile {
    struct profile profile;
    struct step_plan plan;
    struct step_quality quality[2];
};

static void make_profile(struct sample_profile *sample)
{
    struct user_error error = {.set = false};
    memset(sample, 0, sizeof *sample);
    struct profile *profile = &sample->profile;
    assert_true(hardware_load("hardware.host", &profile->hardware, &error));
    profile_describe_host(profile);
    profile->base = "hardware.host";
    profile->device = "host";
    profile->rounds = 3;
    profile->steps = &sample->plan;
    profile->quality = sample->quality;
    profile->hardware.nic = (struct nic){.name = "a \"quoted\\ name",
                                         .base_ns = 2871,
                                         .bytes_per_s = 5123456789,
                                         .gap_ps = 1503007,
                                         .knee_permille = 1050,
                                         .posting_ps = 611,
                                         .queue_depth = 64};
    profile->hardware.watcher_ns = 16049;
    profile->hardware.poll_ns = 105;
    profile->hardware.message_ns = 20168;
    profile->hardware.arm_ns = 52001;
    for (size_t i = 0; i < FABRIC_SIZES; i++)
        profile->fabric.single[i] = profile->fabric.stream[i] =
            (struct write_time){UINT32_C(512) << i, INT64_C(1000) << i};
    sample->plan.count = 1;
    struct step_job *job = &sample->plan.item[0];
    snprintf(job->name, sizeof job->name, "tiny-gqa TP2");
    snprintf(job->table.model, sizeof job->table.model, "tiny-gqa");
    job->table.parallelism = (struct parallelism){.tensor = 2, .data = 1, .expert = 1, .pipeline = 1};
    job->table.in_flight = 1;
    job->table.first_layer_ns = 1234567;
    job->table.launch_ns = 70123;
    job->table.prefill = (struct step_grid){
        .row_count = 2, .column_count = 2, .rows = {1, 64}, .columns = {1, 33}, .ns = {{100, 200}, {300, 400}}};
}

static char *printed(const struct profile *profile)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    profile_print(file, profile);
    fclose(file);
    return text;
}

static void a_profile_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct sample_profile sample;
    struct user_error error = {.set = false};
    struct hardware read;
    make_profile(&sample);
    assert_true(profile_write("measured.lua", &sample.profile, &error));
    assert_true(hardware_load("measured.lua", &read, &error));
    assert_string_equal(read.nic.name, sample.profile.hardware.nic.name);
    assert_memory_equal(&read, &sample.profile.hardware, sizeof read);
    /* Again, over itself; and of a machine that has everything. */
    assert_true(profile_may_write("measured.lua", false, &error));
    assert_true(hardware_load("hardware.b200", &sample.profile.hardware, &error));
    assert_true(profile_write("measured.lua", &sample.profile, &error));
    assert_true(hardware_load("measured.lua", &read, &error));
    assert_memory_equal(&read, &sample.profile.hardware, sizeof read);
    assert_int_equal(unlink("measured.lua"), 0);
}

static void scenarios_name_a_profile(void **state)
{
    (void)state;
    struct sample_profile sample;
    struct user_error error = {.set = false};
    const struct scenario_override set = {"pools.prefill.machine", "require 'measured'"};
    make_profile(&sample);
    sample.plan.item[0].table.in_flight = 1; /* as a profile that does not say it */
    for (uint32_t steps = 0; steps < 2; steps++) {
        sample.plan.count = steps;
        assert_true(profile_write("measured.lua", &sample.profile, &error));
        struct scenario *scenario = scenario_text_must_load(scenario_text_good, &set, 1);
        const struct hardware *machine = &scenario->pools[0].hardware;
        assert_int_equal(scenario->pools[0].role, ROLE_PREFILL);
        assert_int_equal(machine->nic.bytes_per_s, 5123456789);
        assert_int_equal(machine->nic.gap_ps, 1503007);
        assert_int_equal(machine->poll_ns, 105);
        assert_int_equal(machine->steps != NULL, steps);
        if (steps > 0) {
            assert_int_equal(machine->steps->count, 1);
            assert_memory_equal(&machine->steps->item[0], &sample.plan.item[0].table, sizeof(struct step_table));
        }
        scenario_free(scenario);
    }
    assert_int_equal(unlink("measured.lua"), 0);
}

static void steps_are_written_by_rows(void **state)
{
    (void)state;
    static const char expected[] =
        "  steps = {\n"
        "    steps {\n"
        "      model = \"tiny-gqa\",\n"
        "      sharding = { tensor = 2 },\n"
        "      first_layer = us(1234.567),    -- launch to the first tick, of the median step\n"
        "      launch = us(70.123),           -- of decode steps, beyond the steps\n"
        "      prefill = {\n"
        "        tokens = { 1, 64 },\n"
        "        keys = { 1, 33 },\n"
        "        time = {\n"
        "          { ns(100), ns(200) }, -- 1\n"
        "          { ns(300), ns(400) }, -- 64\n"
        "        },\n"
        "      },\n"
        "    },\n"
        "  },\n";
    struct sample_profile sample;
    make_profile(&sample);
    char *text = printed(&sample.profile);
    if (strstr(text, expected) == NULL)
        fail_msg("not in:\n%s", text);
    assert_null(strstr(text, "decode = {"));
    free(text);
    sample.plan.item[0].table.parallelism = (struct parallelism){.tensor = 1, .data = 2, .expert = 2, .pipeline = 1};
    text = printed(&sample.profile);
    assert_non_null(strstr(text, "sharding = { tensor = 1, data = 2, expert = 2 },"));
    free(text);
}

/* ---- Corrections by a run ---------------------------------------------------------------------------------------- */

static void a_line_passes_over_what_was_held_up(void **state)
{
    (void)state;
    struct line_sample samples[60];
    struct line line = {.factor = 7};
    for (uint32_t i = 0; i < 60; i++) {
        samples[i].expected_ns = 1000.0 * (1 + i % 15);
        samples[i].took_ns = 400 + 1.5 * samples[i].expected_ns + (i % 4 == 3 ? 90000.0 : (double)(i % 3) - 1);
    }
    assert_true(line_fit(samples, 60, &line));
    assert_true(line.factor > 1.49 && line.factor < 1.51);
    assert_true(line.base_ns > 350 && line.base_ns < 450);
    assert_false(line_fit(samples, LINE_SAMPLES_LEAST - 1, &line));
}

static void a_line_without_a_slope_is_a_ratio(void **state)
{
    (void)state;
    struct line_sample samples[20];
    struct line line;
    for (uint32_t i = 0; i < 20; i++)
        samples[i] = (struct line_sample){.expected_ns = 1000 + i, .took_ns = 2 * (1000 + i)};
    assert_true(line_fit(samples, 20, &line));
    assert_true(line.base_ns == 0 && line.factor > 1.999 && line.factor < 2.001);
    for (uint32_t i = 0; i < 20; i++) /* faster at first than at last: the base would be negative */
        samples[i] = (struct line_sample){.expected_ns = 1000 * (i + 1), .took_ns = 3000.0 * (i + 1) - 2000};
    assert_true(line_fit(samples, 20, &line));
    assert_true(line.base_ns == 0 && line.factor > 2 && line.factor < 3);
}

static void a_correction_is_in_the_table(void **state)
{
    (void)state;
    struct sample_profile sample;
    make_profile(&sample);
    struct step_table *table = &sample.plan.item[0].table;
    table->decode = (struct step_grid){.row_count = 1, .column_count = 1, .rows = {1}, .columns = {16}, .ns = {{400}}};
    struct in_run in_run = {.messages = 40, .armed = 38};
    in_run.prefill[0] = (struct step_correction){.launches = 50, .line = {.base_ns = 10, .factor = 1.5}};
    in_run.decode[0] = (struct step_correction){.launches = 3, .line = {.base_ns = 6, .factor = 2}};
    step_table_correct(table, &in_run.prefill[0], &in_run.decode[0]);
    assert_int_equal(table->prefill.ns[0][0], 160);
    assert_int_equal(table->prefill.ns[1][1], 610);
    assert_int_equal(table->decode.ns[0][0], 800);
    assert_int_equal(table->launch_ns, 6);
    assert_int_equal(table->first_layer_ns, 1851861);
    sample.profile.in_run = &in_run;
    char *text = printed(&sample.profile);
    assert_non_null(strstr(text, "--   tiny-gqa TP2, prefill: x 1.50 and 0 us a launch, by 50 launches\n"));
    assert_non_null(strstr(text, "--   tiny-gqa TP2, decode: 3 launches, too few: as measured alone\n"));
    assert_non_null(strstr(text, "medians of 40 of the front and of 38 that waited for a count\n"));
    free(text);
}

static void other_files_are_left_alone(void **state)
{
    (void)state;
    struct sample_profile sample;
    struct user_error error = {.set = false};
    make_profile(&sample);
    scenario_text_write("mine.lua", "return 1\n", 9);
    assert_false(profile_may_write("mine.lua", false, &error));
    assert_string_equal(error.text, "mine.lua: is there and no profile of tandem calibrate; --force overwrites it");
    error.set = false;
    assert_true(profile_may_write("mine.lua", true, &error));
    assert_false(profile_may_write("nowhere/new.lua", true, &error));
    assert_string_equal(error.text, "nowhere/new.lua: cannot be written: No such file or directory");
    error.set = false;
    assert_false(profile_write("nowhere/new.lua", &sample.profile, &error));
    assert_int_equal(unlink("mine.lua"), 0);
}

static void profiles_that_cannot_be_read(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    struct hardware hardware;
    assert_false(hardware_load("hardware.h300", &hardware, &error));
    assert_non_null(strstr(error.text, "require 'hardware.h300': there is no hardware/h300.lua in "));
    error.set = false;
    scenario_text_write("mine.lua", "return pool { count = 1 }\n", 26);
    assert_false(hardware_load("mine.lua", &hardware, &error));
    assert_string_equal(error.text, "mine.lua: must end with: return machine { ... }");
    error.set = false;
    scenario_text_write("mine.lua", "return machine { name = \"x\" }\n", 30);
    assert_false(hardware_load("mine.lua", &hardware, &error));
    assert_true(strncmp(error.text, "mine.lua:1: ", 12) == 0);
    assert_int_equal(unlink("mine.lua"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_find_the_parameters),
        cmocka_unit_test(noise_moves_a_fit_by_no_more_than_itself),
        cmocka_unit_test(streams_without_a_gap),
        cmocka_unit_test(points_that_say_nothing),
        cmocka_unit_test(axes_hold_chunk_and_limits),
        cmocka_unit_test(every_row_can_be_measured),
        cmocka_unit_test(pools_that_do_one_thing),
        cmocka_unit_test(chunks_see_the_keys_asked_for),
        cmocka_unit_test(unreached_cells_lie_on_lines),
        cmocka_unit_test(noise_does_not_fall),
        cmocka_unit_test(any_grid_rises),
        cmocka_unit_test(a_profile_is_read_as_it_was_written),
        cmocka_unit_test(scenarios_name_a_profile),
        cmocka_unit_test(steps_are_written_by_rows),
        cmocka_unit_test(a_line_passes_over_what_was_held_up),
        cmocka_unit_test(a_line_without_a_slope_is_a_ratio),
        cmocka_unit_test(a_correction_is_in_the_table),
        cmocka_unit_test(other_files_are_left_alone),
        cmocka_unit_test(profiles_that_cannot_be_read),
    };
    return cmocka_run_group_tests_name("calibrate_tables", tests, scenario_text_setup, scenario_text_teardown);
}
