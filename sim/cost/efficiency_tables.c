/* See efficiency_tables.h: the files, the imbalance of routing. */
#define _POSIX_C_SOURCE 200809L
#include "sim/cost/efficiency_tables.h"

#include "base/check.h"
#include "world/kernels/csv_table.h"
#include "host/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"A100", "B200", "H100", "H200"};
#define GPUS (sizeof names / sizeof names[0])

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct gpu_tables *loaded[GPUS]; /* each from when it is first asked for to the end of the process */

/* ---- Cells ------------------------------------------------------------------------------------------------------ */

/* A row of a file, by column. */
struct cells {
    const char *table, *variant, *source, *launch_ns, *axes[3], *values;
};

/* The numbers of a cell, separated by blanks, at most `max`; returns how many. */
static uint32_t numbers_read(const char *cell, double *numbers, uint32_t max)
{
    uint32_t count = 0;
    char *end;
    for (double number = strtod(cell, &end); end != cell; number = strtod(cell, &end)) {
        CHECK(count < max);
        numbers[count++] = number;
        cell = end;
    }
    CHECK(*cell == '\0');
    return count;
}

/* In a cell ';' stands where a sentence has a comma. */
static char *source_read(const char *cell)
{
    char *source = memory_zeroed(strlen(cell) + 1, 1);
    strcpy(source, cell);
    for (char *at = strchr(source, ';'); at != NULL; at = strchr(at, ';'))
        *at = ',';
    return source;
}

static struct grid_axis axis_read(const char *cell)
{
    double nodes[GRID_NODES_MAX];
    struct grid_axis axis = {.count = numbers_read(cell, nodes, GRID_NODES_MAX)};
    for (uint32_t i = 0; i < axis.count; i++) {
        axis.nodes[i] = (int8_t)log2_linear(nodes[i]);
        CHECK(log2_linear(nodes[i]) == (double)axis.nodes[i] && (i == 0 || axis.nodes[i] > axis.nodes[i - 1]));
    }
    if (axis.count == 0)
        axis.count = 1;
    return axis;
}

static const struct efficiency_grid *grid_read(const struct cells *cells)
{
    struct efficiency_grid *grid = memory_zeroed(1, sizeof *grid);
    struct grid_axis *axes = memory_zeroed(3, sizeof *axes);
    uint32_t size = 1;
    for (uint32_t a = 0; a < 3; a++) {
        axes[a] = axis_read(cells->axes[a]);
        grid->axes[a] = &axes[a];
        size *= axes[a].count;
    }
    double *numbers = memory_zeroed(size, sizeof *numbers);
    uint16_t *values = memory_zeroed(size, sizeof *values);
    CHECK(numbers_read(cells->values, numbers, size) == size);
    for (uint32_t i = 0; i < size; i++)
        values[i] = (uint16_t)numbers[i];
    free(numbers);
    grid->source = source_read(cells->source);
    grid->launch_ns = (uint32_t)strtoul(cells->launch_ns, NULL, 10);
    grid->values = values;
    return grid;
}

static const struct latency_curve *curve_read(const struct cells *cells)
{
    double sizes[CURVE_SIZES_MAX];
    double numbers[CURVE_SIZES_MAX];
    struct latency_curve *curve = memory_zeroed(1, sizeof *curve);
    uint32_t *values = memory_zeroed(CURVE_SIZES_MAX, sizeof *values);
    curve->count = (uint16_t)numbers_read(cells->values, numbers, CURVE_SIZES_MAX);
    CHECK(curve->count >= 2 && numbers_read(cells->axes[0], sizes, CURVE_SIZES_MAX) == curve->count);
    curve->first_log2 = (int8_t)log2_linear(sizes[0]);
    curve->stride_log2 = (uint8_t)(log2_linear(sizes[1]) - log2_linear(sizes[0]));
    for (uint32_t i = 0; i < curve->count; i++) {
        CHECK(log2_linear(sizes[i]) == (double)(curve->first_log2 + (int)(i * curve->stride_log2)));
        values[i] = (uint32_t)numbers[i];
    }
    curve->source = source_read(cells->source);
    curve->values = values;
    return curve;
}

static const struct prefill_fit *prefill_read(const struct cells *cells)
{
    double factors[2];
    struct prefill_fit *fit = memory_zeroed(1, sizeof *fit);
    CHECK(numbers_read(cells->values, factors, 2) == 2);
    *fit = (struct prefill_fit){.source = source_read(cells->source),
                                .launch_ns = (uint32_t)strtoul(cells->launch_ns, NULL, 10),
                                .pair = factors[0],
                                .token = factors[1]};
    return fit;
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

static void row_read(struct gpu_tables *gpu, const struct cells *cells)
{
    static const char *const formats[FORMATS] = {[FORMAT_BF16] = "bf16",
                                                 [FORMAT_FP8] = "fp8",
                                                 [FORMAT_FP8_BLOCK] = "fp8_block",
                                                 [FORMAT_FP4] = "fp4",
                                                 [FORMAT_INT4] = "int4"};
    uint32_t number = (uint32_t)strtoul(cells->variant, NULL, 10); /* 2, 4, 8 ranks; 1, 2, 4, 8 nodes */
    uint32_t log = number >= 8 ? 3 : number / 2;
    bool fp8 = strcmp(cells->variant, "fp8") == 0;
    uint32_t format = FORMATS;
    for (uint32_t f = 0; f < FORMATS; f++)
        if (formats[f] != NULL && strcmp(formats[f], cells->variant) == 0)
            format = f;
    double rates[4];
    if (strcmp(cells->table, "rates") == 0) {
        CHECK(numbers_read(cells->values, rates, 4) == 4);
        gpu->bf16_flops = rates[0];
        gpu->fp8_flops = rates[1];
        gpu->fp4_flops = rates[2];
        gpu->bytes_per_s = rates[3];
    } else if (strcmp(cells->table, "all_reduce") == 0) {
        CHECK(log >= 1);
        gpu->all_reduce[log - 1] = curve_read(cells);
    } else if (strcmp(cells->table, "deepep") == 0) {
        gpu->deepep[log] = curve_read(cells);
    } else {
        CHECK(format < FORMATS);
        if (strcmp(cells->table, "gemm") == 0)
            gpu->gemm[format] = grid_read(cells);
        else if (strcmp(cells->table, "moe") == 0)
            gpu->moe[format] = grid_read(cells);
        else if (strcmp(cells->table, "decode_attention") == 0)
            gpu->decode_attention[fp8] = grid_read(cells);
        else if (strcmp(cells->table, "mla_decode") == 0)
            gpu->mla_decode[fp8] = grid_read(cells);
        else if (strcmp(cells->table, "prefill_attention") == 0)
            gpu->prefill_attention[fp8] = prefill_read(cells);
        else if (strcmp(cells->table, "mla_prefill") == 0)
            gpu->mla_prefill[fp8] = prefill_read(cells);
    }
}

static const struct gpu_tables *gpu_load(const char *name)
{
    struct gpu_tables *gpu = memory_zeroed(1, sizeof *gpu);
    struct csv_table table;
    struct user_error error = {.set = false};
    char path[64];
    snprintf(path, sizeof path, "hardware/efficiency/%s.csv", name);
    if (!csv_table_load(path, &table, &error)) {
        fprintf(stderr, "%s\n", error.text);
        check_failed("the shipped tables of efficiencies can be read", __FILE__, __LINE__);
    }
    gpu->name = name;
    static const char *const columns[] = {"table", "variant", "source", "launch_ns", "x", "y", "z", "values"};
    uint32_t at[8];
    for (uint32_t c = 0; c < 8; c++)
        at[c] = csv_column(&table, columns[c]);
    for (uint32_t r = 0; r < table.row_count; r++)
        row_read(gpu, &(struct cells){
                          .table = csv_text(&table, r, at[0]),
                          .variant = csv_text(&table, r, at[1]),
                          .source = csv_text(&table, r, at[2]),
                          .launch_ns = csv_text(&table, r, at[3]),
                          .axes = {csv_text(&table, r, at[4]), csv_text(&table, r, at[5]), csv_text(&table, r, at[6])},
                          .values = csv_text(&table, r, at[7])});
    csv_table_free(&table);
    return gpu;
}

const struct gpu_tables *gpu_tables_find(const char *gpu)
{
    for (size_t i = 0; i < GPUS; i++) {
        if (strcmp(names[i], gpu) != 0)
            continue;
        pthread_mutex_lock(&lock);
        if (loaded[i] == NULL)
            loaded[i] = gpu_load(names[i]);
        const struct gpu_tables *found = loaded[i];
        pthread_mutex_unlock(&lock);
        return found;
    }
    return NULL;
}

const struct gpu_tables *gpu_tables_nearest(const char *gpu)
{
    const struct gpu_tables *own = gpu_tables_find(gpu);
    if (own != NULL)
        return own;
    return gpu_tables_find(strstr(gpu, "B200") != NULL ? "B200" : "H100");
}

const char *gpu_tables_names(void)
{
    return "A100, B200, GB200, H100, H200";
}

/* Latency under power-law routing over that under balanced routing, 16,384 tokens, at 1, 2, 4, ... 256 ranks: rounded
 * means over the shapes of DeepSeek-R1, Qwen3-Coder-480B and Qwen3-235B in h200_sxm/moe_perf, trtllm-1.3.0rc20. */
double expert_imbalance(double ranks)
{
    static const double factor[] = {1.0, 1.15, 1.35, 1.65, 2.0, 2.5, 3.0, 3.5, 4.5};
    double at = log2_linear(ranks);
    uint32_t last = (uint32_t)(sizeof factor / sizeof factor[0]) - 1;
    if (at >= (double)last)
        return factor[last];
    uint32_t i = (uint32_t)at;
    return factor[i] + (factor[i + 1] - factor[i]) * (at - (double)i);
}
