/* See kernels.h. */
#include "sim/validate/kernels.h"

#include "base/arith.h"
#include "base/check.h"
#include "base/log2.h"
#include "sim/cost/efficiency_tables.h"
#include "sim/cost/kernel_grid.h"
#include "sim/cost/kernel_store.h"
#include "host/memory.h"
#include "host/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kernel_row_text(const struct kernel_prediction *prediction, char *text, size_t size)
{
    const struct kernel_table *table = prediction->table;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t c = 0; c < table->kind->column_count && used < size; c++) {
        uint32_t key = kernel_key(table, prediction->series, c);
        const char *name = table->kind->columns[c].name;
        if (table->kind->columns[c].text)
            used += (size_t)snprintf(text + used, size - used, "%s, ", table->texts[c][key]);
        else
            used += (size_t)snprintf(text + used, size - used, "%s %" PRIu32 ", ", name, key);
    }
    uint32_t breakpoint =
        kernel_points(table, prediction->series)[prediction->row - table->row_first[prediction->series]];
    if (used < size)
        snprintf(text + used, size - used, "%s %" PRIu32, table->kind->axis, breakpoint);
}

/* A number that depends on the row's place alone. */
static uint64_t row_hash(const struct kernel_table *table, uint32_t series, uint32_t breakpoint)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ breakpoint;
    for (uint32_t c = 0; c < table->kind->column_count; c++) {
        hash ^= kernel_key(table, series, c);
        hash *= UINT64_C(0xbf58476d1ce4e5b9);
        hash ^= hash >> 29;
    }
    hash ^= breakpoint;
    hash *= UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* The two least times of a grid: the floor of the roofline is the least of the rows that count. */
struct floors {
    uint32_t row;
    double least_ns;
    double next_ns;
};

static struct floors floors_of(const struct kernel_grid *grid)
{
    const struct kernel_table *table = grid->table;
    uint32_t first = table->row_first[grid->first];
    uint32_t end = table->row_first[grid->first + grid->series_count];
    uint32_t least = first;
    uint16_t next = UINT16_MAX;
    for (uint32_t r = first + 1; r < end; r++) {
        if (table->codes[r] < table->codes[least]) {
            next = table->codes[least];
            least = r;
        } else if (table->codes[r] < next) {
            next = table->codes[r];
        }
    }
    double least_ns = exp2_of((double)table->codes[least] / LOG_CODES_AN_OCTAVE);
    return (struct floors){
        .row = least,
        .least_ns = least_ns,
        .next_ns = next == UINT16_MAX ? least_ns : exp2_of((double)next / LOG_CODES_AN_OCTAVE),
    };
}

struct leaving {
    uint64_t keep_below; /* of a row's hash */
    void (*each)(void *context, const struct kernel_prediction *prediction);
    void *context;
    uint32_t alone;
};

static void leave_series(struct leaving *leaving, struct kernel_grid *grid, const struct floors *floors, uint32_t outer,
                         uint32_t inner)
{
    const struct kernel_table *table = grid->table;
    uint32_t series = (uint32_t)grid->series[outer * grid->inner_count + inner];
    const uint32_t *breakpoints = kernel_points(table, series);
    for (uint32_t i = 0; i < kernel_point_count(table, series); i++) {
        if (row_hash(table, series, breakpoints[i]) > leaving->keep_below)
            continue;
        uint32_t row = table->row_first[series] + i;
        double ratio;
        grid->roofline.floor_ns = row == floors->row ? floors->next_ns : floors->least_ns;
        if (!kernel_node_ratio(grid, outer, inner, breakpoints[i], row, &ratio)) {
            leaving->alone++;
            continue;
        }
        double roofline = kernel_roofline_ns(&grid->roofline, grid->outer[outer], grid->inner[inner], breakpoints[i]);
        struct kernel_prediction prediction = {
            .table = table,
            .series = series,
            .row = row,
            .measured_ns = (int64_t)(exp2_of((double)table->codes[row] / LOG_CODES_AN_OCTAVE) + 0.5),
            .predicted_ns = (int64_t)(exp2_of(ratio) * roofline + 0.5),
        };
        leaving->each(leaving->context, &prediction);
    }
}

static struct kernel_rates rates_of(const char *gpu)
{
    const struct gpu_tables *reference = gpu_tables_nearest(gpu);
    return (struct kernel_rates){
        .bf16_flops = reference->bf16_flops * 1e-9,
        .fp8_flops = reference->fp8_flops * 1e-9,
        .fp4_flops = reference->fp4_flops * 1e-9,
        .memory_bytes = reference->bytes_per_s * 1e-9,
        .link_bytes = 450.0,
    };
}

void kernel_leave_one_out(const struct kernel_table *table, uint32_t rows_max,
                          void (*each)(void *context, const struct kernel_prediction *prediction), void *context,
                          uint32_t *alone)
{
    struct kernel_rates rates = rates_of(table->origin.gpu);
    struct leaving leaving = {.keep_below = UINT64_MAX, .each = each, .context = context};
    if (rows_max > 0 && rows_max < table->row_count)
        leaving.keep_below = UINT64_MAX / table->row_count * rows_max;
    for (uint32_t s = 0; s < table->series_count;) {
        struct kernel_grid grid;
        CHECK(kernel_grid_make(&grid, table, s, &rates));
        struct floors floors = floors_of(&grid);
        for (uint32_t o = 0; o < grid.outer_count; o++)
            for (uint32_t i = 0; i < grid.inner_count; i++)
                if (grid.series[o * grid.inner_count + i] >= 0)
                    leave_series(&leaving, &grid, &floors, o, i);
        s += grid.series_count;
        kernel_grid_free(&grid);
    }
    *alone = leaving.alone;
}

/* ---- Summary ---------------------------------------------------------------------------------------------------- */

struct summary {
    struct kernel_errors *errors;
    int64_t *ppm;
    uint32_t count;
};

static int64_t magnitude(int64_t value)
{
    return value < 0 ? -value : value;
}

static void summary_add(void *context, const struct kernel_prediction *prediction)
{
    struct summary *summary = context;
    struct kernel_errors *errors = summary->errors;
    int64_t ppm = (prediction->predicted_ns - prediction->measured_ns) * 1000000 / prediction->measured_ns;
    summary->ppm[summary->count++] = ppm;
    uint32_t at = errors->worst_count < KERNEL_WORST ? errors->worst_count++ : KERNEL_WORST;
    for (; at > 0 && magnitude(errors->worst_ppm[at - 1]) < magnitude(ppm); at--) {
        if (at < KERNEL_WORST) {
            errors->worst[at] = errors->worst[at - 1];
            errors->worst_ppm[at] = errors->worst_ppm[at - 1];
        }
    }
    if (at < KERNEL_WORST) {
        errors->worst[at] = *prediction;
        errors->worst_ppm[at] = ppm;
    }
}

void kernel_errors_of(const struct kernel_table *table, uint32_t rows_max, struct kernel_errors *errors)
{
    struct summary summary = {.errors = errors, .ppm = memory_get((size_t)table->row_count * sizeof(int64_t))};
    CHECK(summary.ppm != NULL);
    *errors = (struct kernel_errors){.table = table};
    kernel_leave_one_out(table, rows_max, summary_add, &summary, &errors->alone);
    errors->tested = summary.count;
    if (summary.count > 0) {
        stats_sort(summary.ppm, summary.count);
        errors->bias_permille = (int32_t)(stats_percentile(summary.ppm, summary.count, 500) / 1000);
        for (uint32_t i = 0; i < summary.count; i++)
            summary.ppm[i] = magnitude(summary.ppm[i]);
        stats_sort(summary.ppm, summary.count);
        errors->median_permille = (uint32_t)((stats_percentile(summary.ppm, summary.count, 500) + 500) / 1000);
        errors->p90_permille = (uint32_t)((stats_percentile(summary.ppm, summary.count, 900) + 500) / 1000);
    }
    free(summary.ppm);
}

/* ---- As a source of validations ---------------------------------------------------------------------------------- */

/* Rows of one table that are predicted: all of the small ones. */
#define ROWS_MAX 2000

static const char *const gpus[] = {"A100", "B200", "GB200", "H100", "H200"};

struct pooling {
    struct validation *validation;
};

static void pool_add(void *context, const struct kernel_prediction *prediction)
{
    struct pooling *pooling = context;
    const struct kernel_origin *origin = &prediction->table->origin;
    char text[256];
    kernel_row_text(prediction, text, sizeof text);
    validation_case(pooling->validation, prediction->measured_ns, prediction->predicted_ns, "%s %s: %s", origin->gpu,
                    origin->engine, text);
}

static bool pool_kind(struct validation_set *set, const struct kernel_kind *kind, struct user_error *error)
{
    struct pooling pooling = {
        .validation = validation_add(set, kind->name, kind->about, 40000, 150000),
    };
    uint32_t alone = 0;
    for (size_t g = 0; g < sizeof gpus / sizeof gpus[0]; g++) {
        const struct kernel_store *store = kernel_store_open("", gpus[g]);
        for (uint32_t i = 0; i < kernel_store_count(store, kind, NULL); i++) {
            const struct kernel_table *table = kernel_store_table(store, kind, NULL, i, error);
            uint32_t more = 0;
            if (table == NULL)
                return false;
            kernel_leave_one_out(table, ROWS_MAX, pool_add, &pooling, &more);
            alone += more;
        }
    }
    if (alone > 0)
        validation_excluded(pooling.validation, "A", "alone: nothing to predict it from", alone);
    validation_finish(pooling.validation);
    return true;
}

bool validate_kernels(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    (void)options; /* seconds on one thread */
    for (uint32_t k = 0; k < KERNEL_KINDS; k++)
        if (!pool_kind(set, kernel_kind_at(k), error))
            return false;
    return true;
}
