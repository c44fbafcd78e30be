/* See breakpoints.h. */
#include "real/calibrate/breakpoints.h"

#include "base/arith.h"
#include "base/check.h"

#include <string.h>

/* Breakpoints of a geometric series, ends included; extra ones come on top and stay below STEP_BREAKPOINTS_MAX. */
#define GEOMETRIC_MAX 8u

/* How often rows and columns are straightened in turn. Each pass moves what the other axis undid, by less each time. */
#define RISE_PASSES 8

struct step_limits step_limits_union(const struct step_limits *a, const struct step_limits *b)
{
    return (struct step_limits){
        .prefill_tokens = max_u32(a->prefill_tokens, b->prefill_tokens),
        .chunk_tokens = max_u32(a->chunk_tokens, b->chunk_tokens),
        .batch_max = max_u32(a->batch_max, b->batch_max),
        .repeat = max_u32(a->repeat, b->repeat),
        .request_tokens_max = max_u32(a->request_tokens_max, b->request_tokens_max),
        .page_tokens = a->page_tokens,
        .pages = min_u32(a->pages, b->pages),
    };
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

static uint64_t pages_of(const struct step_limits *limits, uint64_t tokens)
{
    return ceil_div_u64(tokens, limits->page_tokens);
}

bool chunk_batch(const struct step_limits *limits, uint32_t tokens, uint64_t keys, struct chunk_batch *batch)
{
    uint32_t chunk = min_u32(limits->chunk_tokens, limits->request_tokens_max);
    uint32_t chunks = (uint32_t)ceil_div_u64(tokens, chunk);
    uint64_t own = 0;
    uint64_t pages = 0;
    for (uint32_t i = 0; i < chunks; i++) {
        uint64_t part = part_of(tokens, chunks, i);
        own += part * (part + 1) / 2;
    }
    if (keys * tokens < own)
        return false;
    uint64_t context = (keys * tokens - own) / tokens;
    for (uint32_t i = 0; i < chunks; i++)
        pages += pages_of(limits, context + part_of(tokens, chunks, i));
    *batch = (struct chunk_batch){.chunks = chunks, .tokens = tokens, .context = (uint32_t)context};
    return context < limits->request_tokens_max && pages <= limits->pages;
}

bool decode_batch_fits(const struct step_limits *limits, uint32_t sequences, uint64_t context)
{
    uint64_t pages = 0;
    if (context > (uint64_t)sequences * limits->request_tokens_max)
        return false;
    for (uint32_t i = 0; i < sequences; i++)
        pages += pages_of(limits, part_of(context, sequences, i) + limits->repeat);
    return pages <= limits->pages;
}

/* ---- Axes -------------------------------------------------------------------------------------------------------- */

struct axis {
    uint32_t count;
    uint64_t at[STEP_BREAKPOINTS_MAX];
};

/* Keeps the axis ascending; what is there already is not added again. */
static void axis_add(struct axis *axis, uint64_t value)
{
    uint32_t place = 0;
    while (place < axis->count && axis->at[place] < value)
        place++;
    if (place < axis->count && axis->at[place] == value)
        return;
    CHECK(axis->count < STEP_BREAKPOINTS_MAX);
    memmove(axis->at + place + 1, axis->at + place, (axis->count - place) * sizeof axis->at[0]);
    axis->at[place] = value;
    axis->count++;
}

/* From `first` to `last` by the smallest power of two that needs no more than `most` steps. A breakpoint that would
 * come too near to the end to say anything of its own is left out. */
static void axis_geometric(struct axis *axis, uint64_t first, uint64_t last, uint32_t most)
{
    unsigned shift = 1;
    for (;; shift++) {
        uint32_t count = 1;
        for (uint64_t at = first; at < last; at <<= shift)
            count++;
        if (count <= most)
            break;
    }
    for (uint64_t at = first; at < last; at <<= shift)
        if (at == first || 3 * at <= 2 * last)
            axis_add(axis, at);
    axis_add(axis, last);
}

static bool reached(const struct step_limits *limits, bool decode, uint64_t row, uint64_t column)
{
    struct chunk_batch batch;
    return decode ? decode_batch_fits(limits, (uint32_t)row, column)
                  : chunk_batch(limits, (uint32_t)row, column, &batch);
}

/* A row of which no cell can be measured is left out: pages are whole, and a batch may just miss them. */
static void take_axes(const struct step_limits *limits, bool decode, const struct axis *rows,
                      const struct axis *columns, struct step_grid *grid)
{
    for (uint32_t r = 0; r < rows->count; r++) {
        bool any = false;
        for (uint32_t c = 0; c < columns->count; c++)
            any = any || reached(limits, decode, rows->at[r], columns->at[c]);
        if (any)
            grid->rows[grid->row_count++] = (uint32_t)rows->at[r];
    }
    grid->column_count = columns->count;
    memcpy(grid->columns, columns->at, sizeof columns->at);
}

void breakpoints_prefill(const struct step_limits *limits, struct step_grid *grid)
{
    struct axis tokens = {0};
    struct axis keys = {0};
    grid->row_count = grid->column_count = 0;
    if (limits->prefill_tokens == 0)
        return;
    /* A whole first chunk sees half of itself: below that only short chunks can be measured. */
    uint32_t chunk = min_u32(limits->chunk_tokens, limits->request_tokens_max);
    uint64_t first = (uint64_t)chunk / 2 + 1;
    uint32_t most = limits->prefill_tokens;
    while (most > 0 && !reached(limits, false, most, first))
        most /= 2;
    if (most == 0)
        return;
    axis_geometric(&tokens, 1, most, GEOMETRIC_MAX);
    axis_add(&tokens, min_u32(chunk, most));
    axis_add(&keys, 1);
    axis_geometric(&keys, first, max_u64(limits->request_tokens_max, first), GEOMETRIC_MAX - 2);
    take_axes(limits, false, &tokens, &keys, grid);
}

void breakpoints_decode(const struct step_limits *limits, struct step_grid *grid)
{
    struct axis sequences = {0};
    struct axis context = {0};
    grid->row_count = grid->column_count = 0;
    if (limits->batch_max == 0)
        return;
    uint64_t held = min_u64((uint64_t)limits->batch_max * limits->request_tokens_max,
                            (uint64_t)limits->pages * limits->page_tokens);
    uint64_t first = min_u64(limits->page_tokens, limits->request_tokens_max);
    uint32_t most = limits->batch_max;
    while (most > 0 && !reached(limits, true, most, first))
        most /= 2;
    if (most == 0)
        return;
    axis_geometric(&sequences, 1, most, GEOMETRIC_MAX);
    /* Up to one request of full length, then on to a full batch of them. */
    axis_geometric(&context, first, limits->request_tokens_max, GEOMETRIC_MAX / 2);
    if (held > limits->request_tokens_max)
        axis_geometric(&context, limits->request_tokens_max, held, GEOMETRIC_MAX / 2);
    take_axes(limits, true, &sequences, &context, grid);
}

/* ---- Cells ------------------------------------------------------------------------------------------------------- */

/* Which cells were measured. */
struct reach {
    bool cell[STEP_BREAKPOINTS_MAX][STEP_BREAKPOINTS_MAX];
};

/* The measured column of a row that is the nearest to `column`. */
static uint32_t nearest(const struct step_grid *grid, const bool *measured, uint32_t column)
{
    for (uint32_t d = 0; d < grid->column_count; d++) {
        if (column >= d && measured[column - d])
            return column - d;
        if (column + d < grid->column_count && measured[column + d])
            return column + d;
    }
    check_failed("every row of a grid has a measured cell", __FILE__, __LINE__);
}

/* What a unit of the second axis costs in a row: the slope of the least-squares line through its measured cells; 0
 * where there is but one. */
static double own_slope(const struct step_grid *grid, uint32_t row, const bool *measured)
{
    double count = 0;
    double x = 0;
    double y = 0;
    for (uint32_t c = 0; c < grid->column_count; c++) {
        count += measured[c];
        x += measured[c] ? (double)grid->columns[c] : 0;
        y += measured[c] ? (double)grid->ns[row][c] : 0;
    }
    double xx = 0;
    double xy = 0;
    for (uint32_t c = 0; c < grid->column_count; c++) {
        double dx = (double)grid->columns[c] - x / count;
        xx += measured[c] ? dx * dx : 0;
        xy += measured[c] ? dx * ((double)grid->ns[row][c] - y / count) : 0;
    }
    return xx > 0 ? xy / xx : 0;
}

/* The time of a cell that was not measured, from the row's nearest measured one on. */
static int64_t filled(const struct step_grid *grid, const struct reach *measured, uint32_t row, uint32_t column)
{
    uint32_t from = nearest(grid, measured->cell[row], column);
    /* Rows further down reach further: they show what the context costs, over a longer way than this row has. */
    for (uint32_t r = row + 1; column > from && r < grid->row_count; r++)
        if (measured->cell[r][from] && measured->cell[r][column])
            return max_i64(1, grid->ns[row][from] + grid->ns[r][column] - grid->ns[r][from]);
    double by = (double)grid->columns[column] - (double)grid->columns[from];
    return max_i64(1, grid->ns[row][from] + (int64_t)(own_slope(grid, row, measured->cell[row]) * by));
}

void step_grid_fill(struct step_grid *grid)
{
    struct reach measured = {.cell = {{false}}};
    struct step_grid whole = *grid;
    for (uint32_t r = 0; r < grid->row_count; r++)
        for (uint32_t c = 0; c < grid->column_count; c++)
            measured.cell[r][c] = grid->ns[r][c] != 0;
    for (uint32_t r = 0; r < grid->row_count; r++)
        for (uint32_t c = 0; c < grid->column_count; c++)
            if (!measured.cell[r][c])
                whole.ns[r][c] = filled(grid, &measured, r, c);
    *grid = whole;
}

/* Pool adjacent violators: the nearest ascending sequence by least squares. Values lie `stride` apart. */
static bool rise(int64_t *values, uint32_t count, uint32_t stride)
{
    struct {
        int64_t sum;
        uint32_t count;
    } blocks[STEP_BREAKPOINTS_MAX];
    uint32_t used = 0;
    bool moved = false;
    for (uint32_t i = 0; i < count; i++) {
        blocks[used].sum = values[i * stride];
        blocks[used++].count = 1;
        while (used > 1 && blocks[used - 2].sum * (int64_t)blocks[used - 1].count >
                               blocks[used - 1].sum * (int64_t)blocks[used - 2].count) {
            blocks[used - 2].sum += blocks[used - 1].sum;
            blocks[used - 2].count += blocks[used - 1].count;
            used--;
        }
    }
    uint32_t at = 0;
    for (uint32_t b = 0; b < used; b++) {
        for (uint32_t i = 0; i < blocks[b].count; i++, at++) {
            int64_t value = blocks[b].sum / (int64_t)blocks[b].count;
            moved = moved || values[at * stride] != value;
            values[at * stride] = value;
        }
    }
    return moved;
}

void step_grid_rise(struct step_grid *grid)
{
    bool moved = true;
    for (int pass = 0; pass < RISE_PASSES && moved; pass++) {
        moved = false;
        for (uint32_t r = 0; r < grid->row_count; r++)
            moved |= rise(&grid->ns[r][0], grid->column_count, 1);
        for (uint32_t c = 0; c < grid->column_count; c++)
            moved |= rise(&grid->ns[0][c], grid->row_count, STEP_BREAKPOINTS_MAX);
    }
    /* Whatever is left of the two axes' quarrel goes upwards. */
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            if (r > 0)
                grid->ns[r][c] = max_i64(grid->ns[r][c], grid->ns[r - 1][c]);
            if (c > 0)
                grid->ns[r][c] = max_i64(grid->ns[r][c], grid->ns[r][c - 1]);
        }
    }
}
