#define _POSIX_C_SOURCE 200809L
/* How soon a host thread that polls the layer counter sees a tick that a graph wrote. Stamps of the GPU's clock are
 * taken just before each tick; the two clocks are compared by the shortest delay seen, so what is reported is the delay
 * beyond that one.
 */
#include "gpu/gpu_check.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LAYERS 61
#define REPLAYS 100
#define SPIN_NS 20000
#define LAST ((uint64_t)LAYERS * REPLAYS)

struct watch {
    _Atomic uint64_t *counter; /* pinned */
    int64_t *seen_ns;          /* by tick; 0: never seen by itself */
    uint64_t coalesced;
    bool backwards;
};

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *watch_main(void *context)
{
    struct watch *watch = context;
    uint64_t before = 0;
    int64_t deadline = clock_ns() + (int64_t)20 * 1000000000;
    while (before < LAST) {
        uint64_t now = atomic_load_explicit(watch->counter, memory_order_acquire);
        int64_t at = clock_ns();
        if (at > deadline)
            break;
        if (now == before)
            continue;
        watch->backwards |= now < before;
        watch->coalesced += now - before - 1;
        watch->seen_ns[now - 1] = at;
        before = now;
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static cudaError_t capture(cudaStream_t stream, uint64_t *counter, uint64_t *stamps, uint64_t *base,
                           cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    for (uint32_t layer = 0; layer < LAYERS && status == cudaSuccess; layer++)
        ticks_layer(stream, counter, stamps, base, layer, SPIN_NS);
    if (status == cudaSuccess)
        status = cudaStreamEndCapture(stream, &graph);
    if (status == cudaSuccess)
        status = cudaGraphInstantiate(exec, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    return status;
}

/* Replays one graph after another; stamps are copied out after each. */
static cudaError_t replay(cudaStream_t stream, cudaGraphExec_t exec, uint64_t *base, uint64_t *stamps, uint64_t *all)
{
    cudaError_t status = cudaSuccess;
    for (uint64_t i = 0; i < REPLAYS && status == cudaSuccess; i++) {
        *base = i * LAYERS; /* pinned: the graph reads it there */
        status = cudaGraphLaunch(exec, stream);
        if (status == cudaSuccess)
            status = cudaStreamSynchronize(stream);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            all[i * LAYERS + layer] = stamps[layer];
    }
    return status;
}

static void judge(struct watch *watch, const uint64_t *stamps)
{
    int64_t *delays = malloc(LAST * sizeof *delays);
    uint32_t count = 0;
    int64_t shortest = INT64_MAX;
    if (delays == NULL)
        return;
    for (uint64_t i = 0; i < LAST; i++) {
        if (watch->seen_ns[i] == 0)
            continue;
        delays[count] = watch->seen_ns[i] - (int64_t)stamps[i];
        shortest = delays[count] < shortest ? delays[count] : shortest;
        count++;
    }
    qsort(delays, count, sizeof *delays, compare);
    bool whole = count > 0 && watch->seen_ns[LAST - 1] != 0 && !watch->backwards;
    uint32_t half = count / 2;
    uint64_t p99 = (uint64_t)count * 99 / 100;
    uint64_t p999 = (uint64_t)count * 999 / 1000;
    if (whole)
        report(count > LAST / 2, "watcher",
               "%u ticks in graphs: %.1f / %.1f / %.1f / %.1f us at p50 / p99 / p99.9 / max beyond the shortest; %llu "
               "coalesced",
               (uint32_t)LAST, (double)(delays[half] - shortest) * 1e-3, (double)(delays[p99] - shortest) * 1e-3,
               (double)(delays[p999] - shortest) * 1e-3, (double)(delays[count - 1] - shortest) * 1e-3,
               (unsigned long long)watch->coalesced);
    else
        report(false, "watcher", "%u of %u ticks seen%s", count, (uint32_t)LAST, watch->backwards ? ", backwards" : "");
    free(delays);
}

void check_watcher(void)
{
    uint64_t *pinned = NULL; /* counter, base, stamps */
    cudaStream_t stream = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t status = cudaHostAlloc((void **)&pinned, (LAYERS + 16) * sizeof *pinned, cudaHostAllocMapped);
    if (status == cudaSuccess)
        status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    uint64_t *all = malloc(LAST * sizeof *all);
    struct watch watch = {.seen_ns = calloc(LAST, sizeof(int64_t))};
    if (status == cudaSuccess && all != NULL && watch.seen_ns != NULL) {
        pinned[0] = 0;
        watch.counter = (_Atomic uint64_t *)(void *)pinned;
        status = capture(stream, pinned, pinned + 16, pinned + 8, &exec);
        pthread_t thread;
        bool started = status == cudaSuccess && pthread_create(&thread, NULL, watch_main, &watch) == 0;
        if (started) {
            status = replay(stream, exec, pinned + 8, pinned + 16, all);
            pthread_join(thread, NULL);
            if (status == cudaSuccess)
                judge(&watch, all);
        }
    }
    if (status != cudaSuccess)
        report(false, "watcher", "%s", cudaGetErrorString(status));
    if (exec != NULL)
        cudaGraphExecDestroy(exec);
    if (stream != NULL)
        cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    free(all);
    free(watch.seen_ns);
}
