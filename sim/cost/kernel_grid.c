/* See kernel_grid.h. */
#include "sim/cost/kernel_grid.h"

#include "base/arith.h"
#include "base/check.h"
#include "base/log2.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MAX 512 /* breakpoints of one curve */

/* ---- The grid ------------------------------------------------------------------------------------------------ */

static uint32_t dimension_value(const struct kernel_table *table, uint32_t series, uint32_t dimension)
{
    return kernel_key(table, series, table->kind->dimensions[dimension]);
}

uint32_t kernel_category_length(const struct kernel_table *table, uint32_t first)
{
    uint32_t prefix = table->kind->column_count - table->kind->dimension_count;
    size_t columns = table->kind->column_count;
    const uint32_t *keys = table->keys + first * columns;
    uint32_t end = first + 1;
    while (end < table->series_count && memcmp(keys, table->keys + end * columns, prefix * sizeof keys[0]) == 0)
        end++;
    return end - first;
}

double kernel_grid_floor_ns(const struct kernel_table *table, uint32_t first, uint32_t count)
{
    uint16_t least = UINT16_MAX;
    for (uint32_t r = table->row_first[first]; r < table->row_first[first + count]; r++)
        least = table->codes[r] < least ? table->codes[r] : least;
    return exp2_of((double)least / LOG_CODES_AN_OCTAVE);
}

/* Adds a value to an ascending list, once. */
static void value_add(uint32_t *values, uint32_t *count, uint32_t value)
{
    uint32_t at = *count;
    while (at > 0 && values[at - 1] > value)
        at--;
    if (at > 0 && values[at - 1] == value)
        return;
    memmove(values + at + 1, values + at, (*count - at) * sizeof values[0]);
    values[at] = value;
    (*count)++;
}

static uint32_t value_place(const uint32_t *values, uint32_t count, uint32_t value)
{
    uint32_t at = 0;
    while (at < count && values[at] != value)
        at++;
    return at;
}

bool kernel_grid_make(struct kernel_grid *grid, const struct kernel_table *table, uint32_t first,
                      const struct kernel_rates *rates)
{
    uint32_t count = kernel_category_length(table, first);
    uint32_t dimensions = table->kind->dimension_count;
    *grid = (struct kernel_grid){.table = table, .first = first, .series_count = count};
    kernel_roofline_make(&grid->roofline, table, first, rates);
    grid->roofline.floor_ns = kernel_grid_floor_ns(table, first, count);
    grid->outer = calloc((size_t)count + 1, sizeof grid->outer[0]);
    grid->inner = calloc((size_t)count + 1, sizeof grid->inner[0]);
    if (grid->outer == NULL || grid->inner == NULL) {
        kernel_grid_free(grid);
        return false;
    }
    for (uint32_t s = first; s < first + count; s++) {
        value_add(grid->outer, &grid->outer_count, dimensions == 2 ? dimension_value(table, s, 0) : 0);
        value_add(grid->inner, &grid->inner_count, dimension_value(table, s, dimensions - 1));
    }
    size_t nodes = (size_t)grid->outer_count * grid->inner_count;
    grid->series = malloc(nodes * sizeof grid->series[0]);
    if (grid->series == NULL) {
        kernel_grid_free(grid);
        return false;
    }
    for (size_t i = 0; i < nodes; i++)
        grid->series[i] = -1;
    for (uint32_t s = first; s < first + count; s++) {
        uint32_t outer =
            value_place(grid->outer, grid->outer_count, dimensions == 2 ? dimension_value(table, s, 0) : 0);
        uint32_t inner = value_place(grid->inner, grid->inner_count, dimension_value(table, s, dimensions - 1));
        grid->series[outer * grid->inner_count + inner] = (int32_t)s;
    }
    return true;
}

void kernel_grid_free(struct kernel_grid *grid)
{
    free(grid->outer);
    free(grid->inner);
    free(grid->series);
    *grid = (struct kernel_grid){0};
}

/* ---- One series ------------------------------------------------------------------------------------------------- */

/* The rows of a series, less one. */
struct rows {
    const struct kernel_grid *grid;
    uint32_t outer;
    uint32_t inner;
    const uint32_t *breakpoints;
    const uint16_t *codes;
    uint32_t count;
    uint32_t skipped; /* place of the row that does not count; count: none */
};

static bool rows_of(const struct kernel_grid *grid, uint32_t outer, uint32_t inner, uint32_t without, struct rows *rows)
{
    int32_t series = grid->series[outer * grid->inner_count + inner];
    if (series < 0)
        return false;
    const struct kernel_table *table = grid->table;
    uint32_t s = (uint32_t)series;
    *rows = (struct rows){
        .grid = grid,
        .outer = outer,
        .inner = inner,
        .breakpoints = kernel_points(table, s),
        .codes = kernel_codes(table, s),
        .count = kernel_point_count(table, s),
    };
    rows->skipped = rows->count;
    if (without >= table->row_first[s] && without < table->row_first[s + 1])
        rows->skipped = without - table->row_first[s];
    return rows->count > (rows->skipped < rows->count ? 1u : 0u);
}

static double row_ratio(const struct rows *rows, uint32_t i)
{
    const struct kernel_grid *l = rows->grid;
    double roofline =
        kernel_roofline_ns(&l->roofline, l->outer[rows->outer], l->inner[rows->inner], rows->breakpoints[i]);
    return (double)rows->codes[i] / LOG_CODES_AN_OCTAVE - log2_of(roofline);
}

/* Where x lies in a series: at a row, between two, or beyond an end. */
struct place {
    uint32_t low;  /* the row at or below x; the first one when all are above */
    uint32_t high; /* the row at or above x; the last one when all are below */
    double fraction;
};

static struct place rows_place(const struct rows *rows, double x)
{
    uint32_t first = rows->skipped == 0 ? 1 : 0;
    uint32_t last = rows->count - 1 - (rows->skipped == rows->count - 1 ? 1u : 0u);
    struct place place = {.low = first, .high = first};
    if (x <= rows->breakpoints[first])
        return place;
    place.low = place.high = last;
    if (x >= rows->breakpoints[last])
        return place;
    uint32_t low = first;
    uint32_t high = last;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if ((double)rows->breakpoints[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    if (low == rows->skipped)
        low--;
    if (high == rows->skipped)
        high++;
    if ((double)rows->breakpoints[low] == x)
        high = low;
    place.low = low;
    place.high = high;
    if (high > low) {
        double start = log2_of(rows->breakpoints[low]);
        place.fraction = (log2_of(x) - start) / (log2_of(rows->breakpoints[high]) - start);
    }
    return place;
}

static double rows_ratio(const struct rows *rows, double x)
{
    struct place place = rows_place(rows, x);
    double low = row_ratio(rows, place.low);
    return place.high == place.low ? low : low + (row_ratio(rows, place.high) - low) * place.fraction;
}

/* Whether a series reaches x: it has rows on both sides, or one there. */
static bool rows_reach(const struct rows *rows, double x)
{
    return rows->breakpoints[0] <= x && x <= rows->breakpoints[rows->count - 1];
}

/* How far a neighbour at x is from the straight line between the breakpoints that the series itself has around x;
 * beyond the end of the series, from what it is there. False: the neighbour knows no more about x than the series does.
 */
static bool neighbour_shape(const struct rows *own, const struct place *place, const struct rows *near, double x,
                            double *shape)
{
    double low = own->breakpoints[place->low];
    double high = own->breakpoints[place->high];
    if (!rows_reach(near, x) || !rows_reach(near, low) || !rows_reach(near, high))
        return false;
    double line = rows_ratio(near, low);
    if (place->high > place->low)
        line += (rows_ratio(near, high) - line) * place->fraction;
    *shape = rows_ratio(near, x) - line;
    return true;
}

bool kernel_node_ratio(const struct kernel_grid *grid, uint32_t outer, uint32_t inner, double x, uint32_t without,
                       double *ratio)
{
    static const int32_t step[4][2] = {{-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    struct rows own;
    if (!rows_of(grid, outer, inner, without, &own))
        return false;
    struct place place = rows_place(&own, x);
    *ratio = rows_ratio(&own, x);
    if ((double)own.breakpoints[place.low] == x)
        return true;
    double sum = 0.0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < 4; i++) {
        int64_t at[2] = {(int64_t)outer + step[i][0], (int64_t)inner + step[i][1]};
        struct rows near;
        double shape;
        if (at[0] < 0 || at[0] >= grid->outer_count || at[1] < 0 || at[1] >= grid->inner_count ||
            !rows_of(grid, (uint32_t)at[0], (uint32_t)at[1], without, &near) ||
            (near.breakpoints == own.breakpoints && own.skipped == own.count) ||
            !neighbour_shape(&own, &place, &near, x, &shape))
            continue;
        sum += shape;
        count++;
    }
    if (count > 0)
        *ratio += sum / count;
    return true;
}

/* ---- Slices ----------------------------------------------------------------------------------------------------- */

/* The two values of an axis around `value` and how far it lies between them; clamped at the ends. */
static void values_around(const uint32_t *values, uint32_t count, double value, uint32_t at[2], double *fraction)
{
    at[0] = at[1] = 0;
    *fraction = 0.0;
    while (at[1] + 1 < count && values[at[1]] < value)
        at[1]++;
    at[0] = at[1] > 0 && values[at[1]] > value ? at[1] - 1 : at[1];
    if (at[0] == at[1] || value <= 0.0)
        return;
    double low = log2_of(values[at[0]]);
    *fraction = (log2_of(value) - low) / (log2_of(values[at[1]]) - low);
}

/* A point between nodes of the grid: up to four, whose weights sum to one among those that are measured. */
struct blend {
    uint32_t count;
    uint32_t outer[4];
    uint32_t inner[4];
    double weight[4];
};

static void blend_add(const struct kernel_grid *l, struct blend *blend, uint32_t outer, uint32_t inner, double weight)
{
    if (weight <= 0.0 || l->series[outer * l->inner_count + inner] < 0)
        return;
    blend->outer[blend->count] = outer;
    blend->inner[blend->count] = inner;
    blend->weight[blend->count++] = weight;
}

/* The measured node with the nearest outer value, at an inner value: where the grid has a hole. */
static void blend_nearest(const struct kernel_grid *l, struct blend *blend, uint32_t outer, uint32_t inner)
{
    uint64_t nearest = UINT64_MAX;
    for (uint32_t o = 0; o < l->outer_count; o++) {
        for (uint32_t i = 0; i < l->inner_count; i++) {
            uint64_t steps = (uint64_t)(o > outer ? o - outer : outer - o) + (i > inner ? i - inner : inner - i);
            if (l->series[o * l->inner_count + i] < 0 || steps >= nearest)
                continue;
            nearest = steps;
            blend->count = 0;
            blend_add(l, blend, o, i, 1.0);
        }
    }
}

static void blend_make(const struct kernel_grid *l, double outer, double inner, struct blend *blend)
{
    uint32_t o[2];
    uint32_t i[2];
    double outer_fraction;
    double inner_fraction;
    *blend = (struct blend){.count = 0};
    values_around(l->outer, l->outer_count, outer, o, &outer_fraction);
    values_around(l->inner, l->inner_count, inner, i, &inner_fraction);
    blend_add(l, blend, o[0], i[0], (1.0 - outer_fraction) * (1.0 - inner_fraction));
    blend_add(l, blend, o[0], i[1], (1.0 - outer_fraction) * inner_fraction);
    blend_add(l, blend, o[1], i[0], outer_fraction * (1.0 - inner_fraction));
    blend_add(l, blend, o[1], i[1], outer_fraction * inner_fraction);
    if (blend->count == 0)
        blend_nearest(l, blend, o[0], i[0]);
    double sum = 0.0;
    for (uint32_t n = 0; n < blend->count; n++)
        sum += blend->weight[n];
    for (uint32_t n = 0; n < blend->count; n++)
        blend->weight[n] /= sum;
}

/* The breakpoints of all nodes of a blend, each once. */
static uint32_t blend_breakpoints(const struct kernel_grid *l, const struct blend *blend, uint32_t *breakpoints)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < blend->count; n++) {
        uint32_t s = (uint32_t)l->series[blend->outer[n] * l->inner_count + blend->inner[n]];
        const uint32_t *own = kernel_points(l->table, s);
        for (uint32_t k = 0; k < kernel_point_count(l->table, s) && count < POINTS_MAX; k++)
            value_add(breakpoints, &count, own[k]);
    }
    return count;
}

static void slice_curve(struct kernel_slice *slice, const struct kernel_grid *l, double outer, double inner,
                        uint32_t *points)
{
    uint32_t breakpoints[POINTS_MAX + 1];
    struct blend blend;
    blend_make(l, outer, inner, &blend);
    uint32_t count = blend_breakpoints(l, &blend, breakpoints);
    struct kernel_curve *curve = &slice->curves[slice->curve_count];
    *curve = (struct kernel_curve){.first = *points, .count = count, .inner = inner, .inner_log = log2_of(inner)};
    for (uint32_t k = 0; k < count; k++) {
        double sum = 0.0;
        for (uint32_t n = 0; n < blend.count; n++) {
            double ratio = 0.0;
            CHECK(kernel_node_ratio(l, blend.outer[n], blend.inner[n], breakpoints[k], KERNEL_NO_ROW, &ratio));
            sum += blend.weight[n] * ratio;
        }
        slice->logs[*points + k] = log2_of(breakpoints[k]);
        slice->ratios[*points + k] = sum;
    }
    *points += count;
    slice->curve_count++;
}

static bool is_outside(const uint32_t *values, uint32_t count, double value)
{
    return value < (double)values[0] || value > (double)values[count - 1];
}

static bool is_value(const uint32_t *values, uint32_t count, double value)
{
    for (uint32_t i = 0; i < count; i++)
        if ((double)values[i] == value)
            return true;
    return false;
}

bool kernel_slice_make(struct kernel_slice *slice, const struct kernel_grid *l, double outer, double inner)
{
    bool two = l->table->kind->dimension_count == 2;
    uint32_t curves = inner > 0.0 ? 1 : l->inner_count;
    *slice = (struct kernel_slice){
        .roofline = l->roofline,
        .outer = outer,
        .outer_exact = !two || is_value(l->outer, l->outer_count, outer),
        .inner_exact = inner > 0.0 && is_value(l->inner, l->inner_count, inner),
        .outside = (two && is_outside(l->outer, l->outer_count, outer)) ||
                   (inner > 0.0 && is_outside(l->inner, l->inner_count, inner)),
    };
    slice->curves = calloc(curves, sizeof slice->curves[0]);
    slice->logs = malloc((size_t)curves * POINTS_MAX * sizeof slice->logs[0]);
    slice->ratios = malloc((size_t)curves * POINTS_MAX * sizeof slice->ratios[0]);
    if (slice->curves == NULL || slice->logs == NULL || slice->ratios == NULL) {
        kernel_slice_free(slice);
        return false;
    }
    uint32_t points = 0;
    if (inner > 0.0)
        slice_curve(slice, l, two ? outer : 0.0, inner, &points);
    for (uint32_t i = 0; inner <= 0.0 && i < l->inner_count; i++)
        slice_curve(slice, l, two ? outer : 0.0, l->inner[i], &points);
    const struct kernel_table *t = l->table;
    int used = snprintf(slice->source, sizeof slice->source, "%s %s, %s %s", t->origin.gpu, t->kind->name,
                        t->origin.engine, t->origin.version);
    uint32_t prefix = t->kind->column_count - t->kind->dimension_count;
    for (uint32_t c = 0; c < prefix && used > 0 && (size_t)used < sizeof slice->source; c++)
        if (t->kind->columns[c].text)
            used += snprintf(slice->source + used, sizeof slice->source - (size_t)used, ", %s",
                             t->texts[c][kernel_key(t, l->first, c)]);
    return true;
}

void kernel_slice_free(struct kernel_slice *slice)
{
    free(slice->curves);
    free(slice->logs);
    free(slice->ratios);
    *slice = (struct kernel_slice){0};
}

/* ---- Looking up ------------------------------------------------------------------------------------------------- */

static double curve_ratio(const struct kernel_slice *slice, const struct kernel_curve *curve, double x_log,
                          enum estimate *estimate)
{
    const double *logs = slice->logs + curve->first;
    const double *ratios = slice->ratios + curve->first;
    uint32_t last = curve->count - 1;
    if (x_log <= logs[0] || x_log >= logs[last]) {
        uint32_t end = x_log <= logs[0] ? 0 : last;
        if (x_log < logs[0] || x_log > logs[last])
            *estimate = ESTIMATE_MODELLED;
        return ratios[end];
    }
    uint32_t low = 0;
    uint32_t high = last;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (logs[middle] <= x_log)
            low = middle;
        else
            high = middle;
    }
    if (logs[low] != x_log && *estimate == ESTIMATE_MEASURED)
        *estimate = ESTIMATE_INTERPOLATED;
    return ratios[low] + (ratios[high] - ratios[low]) * ((x_log - logs[low]) / (logs[high] - logs[low]));
}

static double slice_ratio(const struct kernel_slice *slice, double inner, double x, enum estimate *estimate)
{
    double x_log = log2_of(x);
    const struct kernel_curve *curves = slice->curves;
    *estimate = slice->outer_exact ? ESTIMATE_MEASURED : ESTIMATE_INTERPOLATED;
    if (slice->curve_count == 1) {
        if (!slice->inner_exact)
            *estimate = ESTIMATE_INTERPOLATED;
        return curve_ratio(slice, curves, x_log, estimate);
    }
    uint32_t high = 0;
    while (high + 1 < slice->curve_count && curves[high].inner < inner)
        high++;
    uint32_t low = high > 0 && curves[high].inner > inner ? high - 1 : high;
    if (low == high) {
        double ratio = curve_ratio(slice, &curves[low], x_log, estimate);
        if (curves[low].inner != inner)
            *estimate = ESTIMATE_MODELLED;
        return ratio;
    }
    if (*estimate == ESTIMATE_MEASURED)
        *estimate = ESTIMATE_INTERPOLATED;
    double fraction = (log2_of(inner) - curves[low].inner_log) / (curves[high].inner_log - curves[low].inner_log);
    double below = curve_ratio(slice, &curves[low], x_log, estimate);
    return below + (curve_ratio(slice, &curves[high], x_log, estimate) - below) * fraction;
}

double kernel_slice_ratio(const struct kernel_slice *slice, double inner, double x, enum estimate *estimate)
{
    double ratio = slice_ratio(slice, inner, x, estimate);
    if (slice->borrowed || slice->outside)
        *estimate = ESTIMATE_MODELLED;
    return ratio;
}

double kernel_slice_ns(const struct kernel_slice *slice, double inner, double x, enum estimate *estimate)
{
    if (slice->curve_count == 1)
        inner = slice->curves[0].inner;
    return exp2_of(kernel_slice_ratio(slice, inner, x, estimate)) *
           kernel_roofline_ns(&slice->roofline, slice->outer, inner, x);
}
