/* Operators that others timed by themselves, beside what the tables say of the same shape: two measurements of one
 * thing. */
#include "sim/validate/validate.h"

#include "base/check.h"
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"
#include "sim/cost/kernel_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Vidur's times are rounded to microseconds. */
#define SHORTEST_NS 20000

struct timed {
    const char *origin;
    const char *system;
    bool product; /* else an all-reduce */
    int64_t tokens;
    int64_t columns;
    int64_t inner;
    int64_t ns;
};

static struct timed read_timed(const struct csv_table *table, uint32_t i)
{
    return (struct timed){
        .origin = csv_text(table, i, csv_column(table, "origin")),
        .system = csv_text(table, i, csv_column(table, "system")),
        .product = strcmp(csv_text(table, i, csv_column(table, "operator")), "product") == 0,
        .tokens = csv_integer(table, i, csv_column(table, "tokens"), 0),
        .columns = csv_integer(table, i, csv_column(table, "columns"), 0),
        .inner = csv_integer(table, i, csv_column(table, "inner"), 0),
        .ns = csv_integer(table, i, csv_column(table, "time_ns"), 0),
    };
}

/* Vidur launched each all-reduce by itself: what takes as long as one of eight times the elements is a launch. */
static bool is_launch(const struct csv_table *table, const struct timed *one)
{
    for (uint32_t i = 0; i < table->row_count; i++) {
        struct timed other = read_timed(table, i);
        if (!other.product && strcmp(other.system, one->system) == 0 && other.columns == one->columns &&
            other.tokens >= 8 * one->tokens && other.ns < 6 * one->ns / 5)
            return true;
    }
    return false;
}

struct bench_gpu {
    const char *name;
    struct scenario *scenario; /* owns the hardware */
    struct device device;
    struct kernel_chooser chooser;
};

static bool gpu_load(struct bench_gpu *gpu, struct user_error *error)
{
    char path[1200];
    char value[64];
    snprintf(path, sizeof path, "%s/validation/serving.lua", scenario_library_root());
    snprintf(value, sizeof value, "require \"hardware.%s\"", gpu->name);
    const struct scenario_override set = {"pools.mixed.machine", value};
    gpu->scenario = scenario_load(path, &set, 1, error);
    if (gpu->scenario == NULL)
        return false;
    const struct hardware *hardware = &gpu->scenario->pools[0].hardware;
    device_init(&gpu->device, hardware);
    kernel_chooser_make(&gpu->chooser, &gpu->device, hardware, ENGINE_NEUTRAL);
    return true;
}

/* 0: no table. */
static int64_t product_ns(struct bench_gpu *gpu, const struct timed *timed)
{
    struct kernel_slice slice;
    double n = (double)timed->columns;
    double k = (double)timed->inner;
    if (!kernel_choose_gemm(&gpu->chooser, n, k, FORMAT_BF16, &slice))
        return 0;
    double ns = gemm_time(&gpu->device, &slice, (double)timed->tokens, n, k, FORMAT_BF16).ns;
    kernel_slice_free(&slice);
    return (int64_t)ns;
}

static int64_t all_reduce_ns(struct bench_gpu *gpu, const struct timed *timed)
{
    struct kernel_slice own;
    struct kernel_slice nccl;
    double ranks = (double)timed->columns;
    bool has_own = kernel_choose_all_reduce(&gpu->chooser, ranks, &own);
    bool has_nccl = kernel_choose_nccl(&gpu->chooser, "all_reduce", ranks, &nccl);
    double ns = 0.0;
    if (has_own || has_nccl)
        ns = all_reduce_time(&gpu->device, has_own ? &own : NULL, has_nccl ? &nccl : NULL, ranks, (double)timed->tokens)
                 .ns;
    if (has_own)
        kernel_slice_free(&own);
    if (has_nccl)
        kernel_slice_free(&nccl);
    return (int64_t)ns;
}

struct operator_view {
    const char *origin;
    bool product;
    const char *key;
    const char *source;
};

static void add_view(struct validation_set *set, const struct operator_view *view, const struct csv_table *table,
                     struct bench_gpu *gpus, size_t gpu_count)
{
    struct validation *v = validation_add(set, view->key, view->source, 0, 0);
    uint32_t brief = 0;
    uint32_t launches = 0;
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < table->row_count; i++) {
        struct timed timed = read_timed(table, i);
        if (timed.product != view->product || strcmp(timed.origin, view->origin) != 0)
            continue;
        if (timed.ns < SHORTEST_NS) {
            brief++;
            continue;
        }
        if (!timed.product && is_launch(table, &timed)) {
            launches++;
            continue;
        }
        struct bench_gpu *gpu = gpus;
        while (gpu < gpus + gpu_count && strcmp(gpu->name, timed.system) != 0)
            gpu++;
        CHECK(gpu < gpus + gpu_count);
        int64_t ns = timed.product ? product_ns(gpu, &timed) : all_reduce_ns(gpu, &timed);
        if (ns == 0)
            unknown++;
        else if (timed.product)
            validation_case(v, timed.ns, ns, "%s, %u x %u x %u", timed.system, (uint32_t)timed.tokens,
                            (uint32_t)timed.columns, (uint32_t)timed.inner);
        else
            validation_case(v, timed.ns, ns, "%s, %u elements over %u GPUs", timed.system, (uint32_t)timed.tokens,
                            (uint32_t)timed.columns);
    }
    validation_excluded(v, "R", "shorter than 20 us: rounded, or waiting for the launch", brief);
    validation_excluded(v, "L", "within a fifth of the time of eight times as many elements: a launch", launches);
    validation_excluded(v, "S", "no table of the GPU", unknown);
    validation_finish(v);
}

bool validate_operators(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    static const struct operator_view views[] = {
        {"vidur", true, "vidur-products", "matrix products that Vidur timed, A100 and H100"},
        {"vidur", false, "vidur-all-reduce", "all-reduces in one node that Vidur timed, A100 and H100"},
        {"llmservingsim", true, "llmservingsim-products", "matrix products that LLMServingSim timed, H100"},
    };
    (void)options;
    struct bench_gpu gpus[] = {{.name = "a100-80g"}, {.name = "h100"}};
    enum { GPUS = sizeof gpus / sizeof *gpus };
    struct csv_table table = {0};
    bool whole = csv_table_load("validation/operators.csv.xz", &table, error);
    for (size_t g = 0; whole && g < GPUS; g++)
        whole = gpu_load(&gpus[g], error);
    for (size_t i = 0; whole && i < sizeof views / sizeof *views; i++)
        add_view(set, &views[i], &table, gpus, GPUS);
    for (size_t g = 0; g < GPUS; g++) {
        if (whole && gpus[g].chooser.error.set) {
            *error = gpus[g].chooser.error;
            whole = false;
        }
        if (gpus[g].scenario != NULL)
            scenario_free(gpus[g].scenario);
    }
    csv_table_free(&table);
    return whole;
}
