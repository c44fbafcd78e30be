/* Calibration: times of prefill and decode steps of models of real size, over the axes of
 * shared/world/scenario/step_table.h; printed, and written as Lua for `machine { steps = ... }`. Contexts are not
 * computed but taken as they lie in memory: a step's time does not depend on what its cache holds.
 */
#include "gpu/gpu_check.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define REPEATS 5
#define ENOUGH_MS 1000.0 /* steps that take so long are not repeated */
#define SEQUENCES 32
#define LONGEST 16384
#define STEPS_FILE "build/gpu-check/steps.lua"

/* New tokens of a prefill step, and keys that each sees on average: the largest chunk without a context to the largest
 * with one. */
static const uint32_t tokens_axis[] = {16, 256, 1024, 4096};
static const uint32_t keys_axis[] = {2049, 6144, 12288};
/* Sequences of a decode step, and cached tokens of all of them. */
static const uint32_t sequences_axis[] = {1, 4, 16, SEQUENCES};
static const uint32_t context_axis[] = {1024, 8192, 16352};

#define COUNT(axis) (sizeof(axis) / sizeof *(axis))

struct table {
    double prefill[COUNT(tokens_axis)][COUNT(keys_axis)];
    double decode[COUNT(sequences_axis)][COUNT(context_axis)];
    double first_layer;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of a step that computes a chunk of the first sequence, or none; the first is left out (graphs are
 * captured in it). Negative where a step fails. */
static double step_ms(struct run *run, uint32_t chunk_tokens, uint32_t context)
{
    double times[REPEATS + 1], total = 0;
    int count = 0;
    while (count < 2 || (count <= REPEATS && total < ENOUGH_MS)) {
        if (chunk_tokens > 0)
            run_chunk(run, 0, context, chunk_tokens);
        double start = now_ms();
        if (!run_step(run, false))
            return -1;
        times[count] = now_ms() - start;
        total += times[count++];
    }
    qsort(times + 1, (size_t)(count - 1), sizeof *times, compare);
    return times[1 + (count - 2) / 2];
}

static double prefill_ms(struct run *run, uint32_t tokens, uint32_t context)
{
    double ms = step_ms(run, tokens, context);
    run_leave(run, 0);
    return ms;
}

static double decode_ms(struct run *run, uint32_t batch, uint32_t context)
{
    for (uint32_t s = 0; s < batch; s++)
        run_join(run, s, context / batch);
    double ms = step_ms(run, 0, 0);
    for (uint32_t s = 0; s < batch; s++)
        run_leave(run, s);
    return ms;
}

/* ---- From the launch to the first tick --------------------------------------------------------------------------- */

struct first_tick {
    _Atomic uint64_t *counter;
    uint64_t from;
    double at_ms;
};

static void *watch_first(void *context)
{
    struct first_tick *tick = context;
    double until = now_ms() + 10000;
    while (atomic_load_explicit(tick->counter, memory_order_acquire) <= tick->from && now_ms() < until)
        ;
    tick->at_ms = now_ms();
    return NULL;
}

/* Of a step in the middle of the axes; negative where it fails. */
static double first_layer_ms(struct run *run)
{
    struct first_tick tick = {.counter = run->counter, .from = run->steps * run->architecture.layers};
    pthread_t thread;
    run_chunk(run, 0, 0, 1024);
    if (pthread_create(&thread, NULL, watch_first, &tick) != 0)
        return -1;
    double start = now_ms();
    bool ran = run_step(run, false);
    pthread_join(thread, NULL);
    run_leave(run, 0);
    return ran ? tick.at_ms - start : -1;
}

/* ---- Measuring -----------------------------------------------------------------------------------------------------
 */

static bool measure(struct run *run, struct table *table)
{
    bool ran = true;
    for (size_t t = 0; t < COUNT(tokens_axis); t++)
        for (size_t k = 0; k < COUNT(keys_axis) && ran; k++) {
            table->prefill[t][k] = prefill_ms(run, tokens_axis[t], keys_axis[k] - (tokens_axis[t] + 1) / 2);
            ran = table->prefill[t][k] > 0;
        }
    for (size_t s = 0; s < COUNT(sequences_axis); s++)
        for (size_t c = 0; c < COUNT(context_axis) && ran; c++) {
            table->decode[s][c] = decode_ms(run, sequences_axis[s], context_axis[c]);
            ran = table->decode[s][c] > 0;
        }
    table->first_layer = ran ? first_layer_ms(run) : -1;
    return ran && table->first_layer > 0;
}

static void print_grid(const char *what, const char *row, const uint32_t *rows, size_t row_count,
                       const uint32_t *columns, size_t column_count, const double *ms)
{
    printf("  %-34s", what);
    for (size_t c = 0; c < column_count; c++)
        printf(" %9u", columns[c]);
    for (size_t r = 0; r < row_count; r++) {
        printf("\n  %22u %-11s", rows[r], row);
        for (size_t c = 0; c < column_count; c++)
            printf(" %9.3f", ms[r * column_count + c]);
    }
    printf("\n");
}

static void write_axis(FILE *file, const char *name, const uint32_t *axis, size_t count)
{
    fprintf(file, "%s = {", name);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%s%u", i == 0 ? " " : ", ", axis[i]);
    fprintf(file, " }, ");
}

static void write_times(FILE *file, const double *ms, size_t rows, size_t columns)
{
    fprintf(file, "time = {");
    for (size_t r = 0; r < rows; r++) {
        fprintf(file, "%s {", r == 0 ? "" : ",");
        for (size_t c = 0; c < columns; c++)
            fprintf(file, "%s ns(%lld)", c == 0 ? "" : ",", llround(ms[r * columns + c] * 1e6));
        fprintf(file, " }");
    }
    fprintf(file, " } },\n");
}

static void write_table(FILE *file, const char *model, const struct table *table)
{
    fprintf(file,
            "  steps {\n    model = \"%s\", sharding = { tensor = 1 },\n    first_layer = ns(%lld),\n    prefill = { ",
            model, llround(table->first_layer * 1e6));
    write_axis(file, "tokens", tokens_axis, COUNT(tokens_axis));
    write_axis(file, "keys", keys_axis, COUNT(keys_axis));
    write_times(file, &table->prefill[0][0], COUNT(tokens_axis), COUNT(keys_axis));
    fprintf(file, "    decode = { ");
    write_axis(file, "sequences", sequences_axis, COUNT(sequences_axis));
    write_axis(file, "context", context_axis, COUNT(context_axis));
    write_times(file, &table->decode[0][0], COUNT(sequences_axis), COUNT(context_axis));
    fprintf(file, "  },\n");
}

static void calibrate(const struct architecture *architecture, FILE *file)
{
    struct run run;
    struct table table;
    double start = now_ms();
    if (!run_make(&run, &device_cuda, architecture, SEQUENCES, LONGEST, 4096)) {
        report(false, "calibration", "%s: no device", architecture->name);
        return;
    }
    printf("\n%s, one rank, bf16; weights made in %.1f s\n", architecture->name, (now_ms() - start) * 1e-3);
    bool ran = measure(&run, &table);
    if (ran) {
        print_grid("prefill, ms of a step; keys of each", "tokens", tokens_axis, COUNT(tokens_axis), keys_axis,
                   COUNT(keys_axis), &table.prefill[0][0]);
        print_grid("decode, ms of a step; cached tokens", "sequences", sequences_axis, COUNT(sequences_axis),
                   context_axis, COUNT(context_axis), &table.decode[0][0]);
        printf("  first tick after %.3f ms\n", table.first_layer);
        if (file != NULL)
            write_table(file, architecture->name, &table);
    }
    report(ran, "calibration", "%-21s in %.0f s; the tables are above", architecture->name, (now_ms() - start) * 1e-3);
    run_free(&run);
}

void check_calibration(void)
{
    struct architecture models[] = {llama_8b(), deepseek_v3_cut()};
    struct cudaDeviceProp properties;
    FILE *file = fopen(STEPS_FILE, "w");
    if (file != NULL && cudaGetDeviceProperties(&properties, 0) == cudaSuccess)
        fprintf(file,
                "-- Steps measured on an %s by scripts/gpu-check: for machine { steps = ... } "
                "(shared/world/scenario/step_table.h).\n"
                "-- A model that is named with its layers is cut to them, to see what a layer takes.\nreturn {\n",
                properties.name);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        calibrate(&models[i], file);
    if (file == NULL)
        return;
    fprintf(file, "}\n");
    if (fclose(file) == 0)
        printf("%s holds the tables as Lua\n", STEPS_FILE);
}
