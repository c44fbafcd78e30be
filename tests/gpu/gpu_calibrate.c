/* Calibration: times of prefill and decode steps of models of real size, over tokens and context. Contexts are not
 * computed but taken as they lie in memory: a step's time does not depend on what its cache holds.
 */
#include "gpu/gpu_check.h"

#include <stdlib.h>

#define REPEATS 5
#define ENOUGH_MS 1000.0 /* steps that take so long are not repeated */
#define SEQUENCES 32
#define LONGEST 16384

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
        run_join(run, s, context);
    double ms = step_ms(run, 0, 0);
    for (uint32_t s = 0; s < batch; s++)
        run_leave(run, s);
    return ms;
}

static void calibrate(const struct architecture *architecture)
{
    static const uint32_t tokens[] = {256, 1024, 4096};
    static const uint32_t contexts[] = {0, 4096, 12288};
    static const uint32_t batches[] = {1, 4, 16, SEQUENCES};
    static const uint32_t decode_contexts[] = {256, 2048, 8192};
    struct run run;
    double start = now_ms();
    if (!run_make(&run, &device_cuda, architecture, SEQUENCES, LONGEST, 4096)) {
        report(false, "calibration", "%s: no device", architecture->name);
        return;
    }
    bool ran = true;
    printf("\n%s, one rank, bf16; weights made in %.1f s\n", architecture->name, (now_ms() - start) * 1e-3);
    printf("  prefill, ms of a step    %10s", "context");
    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++)
        printf(" %9u", contexts[c]);
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
        printf("\n  %24u tokens    ", tokens[t]);
        for (size_t c = 0; c < sizeof contexts / sizeof *contexts && ran; c++) {
            double ms = prefill_ms(&run, tokens[t], contexts[c]);
            ran = ms > 0;
            printf(" %9.2f", ms);
        }
    }
    printf("\n  decode, ms of a step     %10s", "context");
    for (size_t c = 0; c < sizeof decode_contexts / sizeof *decode_contexts; c++)
        printf(" %9u", decode_contexts[c]);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        printf("\n  %24u sequences ", batches[b]);
        for (size_t c = 0; c < sizeof decode_contexts / sizeof *decode_contexts && ran; c++) {
            double ms = decode_ms(&run, batches[b], decode_contexts[c]);
            ran = ms > 0;
            printf(" %9.2f", ms);
        }
    }
    printf("\n");
    report(ran, "calibration", "%-21s in %.0f s; the tables are above", architecture->name, (now_ms() - start) * 1e-3);
    run_free(&run);
}

void check_calibration(void)
{
    struct architecture models[] = {llama_8b(), deepseek_v3_cut()};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        calibrate(&models[i]);
}
