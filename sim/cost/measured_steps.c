/* See measured_steps.h. */
#include "sim/cost/measured_steps.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

/* No step takes longer, whatever is extrapolated: 292 years fit into 64 bits, and times of several steps are added. */
#define STEP_NS_MAX (INT64_C(1) << 60)

/* ---- Making ------------------------------------------------------------------------------------------------------ */

/* The nearest non-decreasing row: values that fall are pooled with those before them, each pool has its mean. */
static void row_smooth(int64_t *ns, uint32_t count)
{
    int64_t sum[STEP_KNOTS_MAX];
    int64_t size[STEP_KNOTS_MAX];
    uint32_t pools = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum[pools] = ns[i];
        size[pools++] = 1;
        while (pools > 1 && sum[pools - 2] / size[pools - 2] > sum[pools - 1] / size[pools - 1]) {
            sum[pools - 2] += sum[pools - 1];
            size[pools - 2] += size[pools - 1];
            pools--;
        }
    }
    uint32_t at = 0;
    for (uint32_t p = 0; p < pools; p++)
        for (int64_t i = 0; i < size[p]; i++)
            ns[at++] = sum[p] / size[p];
}

static int by_size(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static int64_t grid_median(const struct step_grid *grid)
{
    int64_t all[STEP_KNOTS_MAX * STEP_KNOTS_MAX];
    size_t count = 0;
    for (uint32_t r = 0; r < grid->row_count; r++)
        for (uint32_t c = 0; c < grid->column_count; c++)
            all[count++] = grid->ns[r][c];
    qsort(all, count, sizeof all[0], by_size); /* equal values are alike */
    return all[count / 2];
}

bool measured_steps_find(const struct hardware *hardware, const struct architecture *architecture,
                         struct parallelism parallelism, uint32_t draft_tokens, struct measured_steps *measured)
{
    *measured = (struct measured_steps){.parallelism = parallelism, .layers = architecture->layers, .stages = 1};
    memcpy(measured->model, architecture->name, sizeof measured->model);
    for (uint32_t i = 0; hardware->steps != NULL && i < hardware->steps->count; i++) {
        const struct step_table *table = &hardware->steps->item[i];
        if (strcmp(table->model, architecture->name) != 0 || !parallelism_same(&table->parallelism, &parallelism) ||
            table->draft_tokens != draft_tokens)
            continue;
        /* Transfers begin in steps of prefill: their first layer is the one that matters. */
        measured->stages = max_u32(1, min_u32(table->in_flight, parallelism.pipeline));
        bool prefills = measured->prefill.row_count == 0 && table->prefill.row_count > 0;
        if (prefills || measured->median_ns == 0) {
            measured->first_layer_ns = table->first_layer_ns;
            measured->median_ns = grid_median(table->prefill.row_count > 0 ? &table->prefill : &table->decode);
        }
        if (prefills)
            measured->prefill = table->prefill;
        if (measured->decode.row_count == 0) {
            measured->decode = table->decode;
            measured->launch_ns = table->launch_ns;
        }
    }
    for (uint32_t r = 0; r < measured->decode.row_count; r++)
        row_smooth(measured->decode.ns[r], measured->decode.column_count);
    return measured->median_ns > 0;
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

/* Times over the context of a batch of `sequences`, between or beyond the rows: positive and not decreasing. */
static void decode_row(const struct step_grid *grid, uint32_t sequences, int64_t *ns)
{
    uint32_t low = 0;
    while (low + 2 < grid->row_count && grid->rows[low + 1] <= sequences)
        low++;
    int64_t least_ns = 1;
    for (uint32_t c = 0; c < grid->column_count; c++) {
        int128 value = grid->ns[low][c];
        if (grid->row_count > 1) {
            int64_t from = grid->rows[low];
            value +=
                ((int128)grid->ns[low + 1][c] - grid->ns[low][c]) * (sequences - from) / (grid->rows[low + 1] - from);
        }
        ns[c] = value > STEP_NS_MAX ? STEP_NS_MAX : max_i64((int64_t)value, least_ns);
        least_ns = ns[c];
    }
}

void measured_decode_line(const struct measured_steps *measured, uint32_t decode_sequences, uint64_t decode_context,
                          struct decode_line *line)
{
    const struct step_grid *grid = &measured->decode;
    *line = (struct decode_line){.context_max = UINT64_MAX};
    if (decode_sequences == 0)
        return;
    CHECK(grid->row_count > 0);
    int64_t ns[STEP_KNOTS_MAX] = {0};
    decode_row(grid, decode_sequences, ns);
    line->base_ns = ns[0];
    if (grid->column_count == 1)
        return;
    uint32_t low = 0;
    while (low + 2 < grid->column_count && grid->columns[low + 1] <= decode_context)
        low++;
    uint64_t first = grid->columns[low];
    line->slope_q32 = (uint64_t)(((uint128)(uint64_t)(ns[low + 1] - ns[low]) << 32) / (grid->columns[low + 1] - first));
    /* Below the first knot the line goes on, but not below a nanosecond. */
    if (first > 0 && decode_context < first)
        line->slope_q32 = min_u64(line->slope_q32, (uint64_t)(((uint128)(uint64_t)(ns[0] - 1) << 32) / first));
    line->base_ns = ns[low] - (int64_t)(uint64_t)((uint128)first * line->slope_q32 >> 32);
    if (decode_context < first) {
        line->context_max = first - 1;
        return;
    }
    line->context_min = first;
    line->context_max = low + 2 == grid->column_count ? UINT64_MAX : grid->columns[low + 1];
}

/* ---- Any step ---------------------------------------------------------------------------------------------------- */

static int64_t prefill_ns(const struct measured_steps *measured, uint64_t tokens, uint64_t pairs)
{
    CHECK(measured->prefill.row_count > 0);
    double ns = step_grid_at(&measured->prefill, (double)tokens, (double)pairs / (double)tokens);
    return ns < (double)STEP_NS_MAX ? (int64_t)(ns + 0.5) : STEP_NS_MAX;
}

static int64_t group_ns(const struct measured_steps *measured, const struct step_group *group)
{
    int64_t decode_ns = 0;
    if (group->decode_sequences > 0) {
        struct decode_line line;
        measured_decode_line(measured, group->decode_sequences, group->decode_context, &line);
        decode_ns = decode_line_ns(&line, group->decode_context);
    }
    if (group->prefill_tokens == 0)
        return decode_ns;
    int64_t chunk_ns = prefill_ns(measured, group->prefill_tokens, group->prefill_pairs);
    if (decode_ns == 0)
        return chunk_ns;
    return max_i64(decode_ns + chunk_ns - measured->decode.ns[0][0], max_i64(decode_ns, chunk_ns));
}

/* A table does not say what a step waits for. Where the smallest step of its kind takes more than half of it, the
 * launch does; beyond that prefill is taken to compute and decode to read. */
static enum step_bound bound_of(const struct measured_steps *measured, bool prefills, int64_t total_ns)
{
    int64_t smallest_ns = prefills ? measured->prefill.ns[0][0] : measured->decode.ns[0][0];
    if (smallest_ns > total_ns / 2)
        return BOUND_OVERHEAD;
    return prefills ? BOUND_COMPUTE : BOUND_BANDWIDTH;
}

void measured_step(const struct measured_steps *measured, const struct step_group *groups, uint32_t group_count,
                   struct step_time *time)
{
    bool prefills = false;
    *time = (struct step_time){.total_ns = 0};
    for (uint32_t g = 0; g < group_count; g++) {
        prefills = prefills || groups[g].prefill_tokens > 0;
        time->total_ns = max_i64(time->total_ns, group_ns(measured, &groups[g]));
    }
    /* Layers are alike. What comes before the first and what the first does until it ticks are not told apart. */
    int64_t first_ns = (int64_t)((int128)time->total_ns * measured->first_layer_ns / measured->median_ns);
    time->first_layer_ns = min_i64(first_ns, time->total_ns);
    time->layer_ns = (time->total_ns - time->first_layer_ns) / measured->layers;
    time->bound = bound_of(measured, prefills, time->total_ns);
    /* A table is of a step that has the stages to itself. */
    time->stage_ns = max_i64(1, time->total_ns / measured->stages);
    time->exit_ns = max_i64(0, time->total_ns - time->stage_ns * measured->stages);
}
