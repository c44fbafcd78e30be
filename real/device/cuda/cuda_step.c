/* One step of the CUDA device: upload what changed, run or replay, read the tokens. */
#include "real/device/cuda/cuda_internal.h"

#include "base/arith.h"

#include <stdio.h>
#include <string.h>

/* Pages past the longest request are never reached, and have no place in the table. */
static void upload_pages(struct device *device, uint32_t sequence)
{
    struct slot *slot = &device->slots.slot[sequence];
    size_t first = (size_t)sequence * device->pages_max;
    size_t bytes = min_u32(slot->page_count, device->pages_max) * sizeof *device->page_table;
    slot->pages_changed = false;
    if (bytes == 0)
        return;
    memcpy(device->page_table_host + first, slot->pages, bytes);
    cuda_note(device, cudaMemcpyAsync(device->page_table + first, device->page_table_host + first, bytes,
                                      cudaMemcpyHostToDevice, device->stream));
}

static void upload(struct device *device, const struct cuda_step *step, uint64_t counter_base)
{
    *device->counter_base_host = counter_base;
    cuda_note(device, cudaMemcpyAsync(device->buffers.counter_base, device->counter_base_host, sizeof counter_base,
                                      cudaMemcpyHostToDevice, device->stream));
    if (device->rows_stale || !step->graph)
        cuda_note(device, cudaMemcpyAsync(device->arrays.token, device->host.token, device->array_bytes,
                                          cudaMemcpyHostToDevice, device->stream));
    for (uint32_t i = 0; i < device->config.sequences_max && device->slots.pages_changed; i++) {
        if (device->slots.slot[i].pages_changed)
            upload_pages(device, i);
    }
    device->slots.pages_changed = false;
}

/* Captures the step for its bucket. On failure steps of decode run without a graph from now on. */
static bool capture(struct device *device, const struct cuda_step *step, uint32_t bucket)
{
    cudaGraph_t graph = NULL;
    cudaError_t status = cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal);
    if (status == cudaSuccess) {
        cuda_forward(device, step);
        status = cudaStreamEndCapture(device->stream, &graph);
    }
    if (status == cudaSuccess && device->failure == cudaSuccess && device->blas_failure == CUBLAS_STATUS_SUCCESS)
        status = cudaGraphInstantiate(&device->graphs[bucket], graph, 0);
    else if (status == cudaSuccess)
        status = cudaErrorStreamCaptureInvalidated;
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (status == cudaSuccess)
        return true;
    /* What was noted belongs to the capture, and nothing has run yet. */
    (void)cudaGetLastError();
    device->failure = cudaSuccess;
    device->blas_failure = CUBLAS_STATUS_SUCCESS;
    device->graphs[bucket] = NULL;
    device->graphs_refused = true;
    return false;
}

static void run(struct device *device, const struct cuda_step *step)
{
    uint32_t bucket = step->graph ? cuda_bucket(step->rows) : 0;
    bool graph = step->graph && !device->graphs_refused;
    if (graph && device->graphs[bucket] == NULL)
        graph = capture(device, step, bucket);
    if (!graph) {
        cuda_forward(device, step);
        return;
    }
    cuda_note(device, cudaGraphLaunch(device->graphs[bucket], device->stream));
    device->graph_steps++;
}

/* Keeps hidden state and logits of each chunk's last token until it is asked for. */
static void keep_tails(struct device *device)
{
    const struct architecture *a = &device->architecture;
    size_t floats = (size_t)a->hidden + a->vocab;
    for (uint32_t c = 0; c < device->slots.chunk_count && device->tails != NULL && device->shape.t == 0; c++) {
        size_t sample = device->slots.decoding_count + c;
        float *to = device->tails + device->slots.chunks[c].sequence * floats;
        cuda_note(device, cudaMemcpyAsync(to, device->buffers.hidden + sample * a->hidden, a->hidden * sizeof *to,
                                          cudaMemcpyDeviceToDevice, device->stream));
        cuda_note(device, cudaMemcpyAsync(to + a->hidden, device->buffers.logits + sample * a->vocab,
                                          a->vocab * sizeof *to, cudaMemcpyDeviceToDevice, device->stream));
    }
}

static bool healthy(const struct device *device)
{
    if (device->failure != cudaSuccess)
        fprintf(stderr, "rank %u: a step fails on the GPU: %s\n", device->config.rank,
                cudaGetErrorString(device->failure));
    if (device->blas_failure != CUBLAS_STATUS_SUCCESS)
        fprintf(stderr, "rank %u: a step fails in cuBLAS: %s\n", device->config.rank,
                device->library.status_string(device->blas_failure));
    return device->failure == cudaSuccess && device->blas_failure == CUBLAS_STATUS_SUCCESS && !device->abandoned;
}

/* This stage's part of a step, from x in pinned memory to x there, or to the tokens. */
static bool run_stage(struct device *device, const struct cuda_step *step, uint64_t counter_base)
{
    const struct cuda_shape *shape = &device->shape;
    size_t x_bytes = (size_t)step->rows * device->architecture.hidden * sizeof(float);
    if (step->rows == 0) {
        if (device->counter != NULL)
            atomic_store_explicit(device->config.layer_counter, counter_base + shape->layer_first + shape->layers,
                                  memory_order_release);
        return true;
    }
    upload(device, step, counter_base);
    if (shape->stage > 0)
        cuda_note(device,
                  cudaMemcpyAsync(device->buffers.x, device->stage_x, x_bytes, cudaMemcpyHostToDevice, device->stream));
    run(device, step);
    keep_tails(device);
    if (!shape->last_stage)
        cuda_note(device,
                  cudaMemcpyAsync(device->stage_x, device->buffers.x, x_bytes, cudaMemcpyDeviceToHost, device->stream));
    else if (step->samples > 0)
        cuda_note(device, cudaMemcpyAsync(device->sampled_host, device->buffers.sampled,
                                          step->samples * sizeof *device->sampled_host, cudaMemcpyDeviceToHost,
                                          device->stream));
    cuda_note(device, cudaStreamSynchronize(device->stream));
    /* A sum over ranks that was waited for in vain gave rubbish. */
    if (device->peers.reduction == CUDA_REDUCE_PEERS && device->config.abandon != NULL &&
        atomic_load(device->config.abandon))
        device->abandoned = true;
    return healthy(device);
}

static bool run_stages(struct device *device, const struct cuda_step *step, uint64_t counter_base)
{
    const struct cuda_shape *shape = &device->shape;
    if (shape->stages == 1)
        return run_stage(device, step, counter_base);
    if (!cuda_stages_count(device, step))
        return false;
    for (uint32_t stage = 0; stage < shape->stages; stage++) {
        if (stage == shape->stage && !run_stage(device, step, counter_base))
            return false;
        if (stage + 1 < shape->stages && !cuda_stages_hand_over(device, stage))
            return false;
    }
    return cuda_stages_samples(device);
}

bool cuda_step_run(struct device *device, uint64_t counter_base, bool prefill_tokens, struct device_token *tokens,
                   uint32_t *token_count)
{
    *token_count = 0;
    if (!healthy(device) || !cuda_peers_settle(device))
        return false;
    cuda_note(device, cudaSetDevice(device->ordinal)); /* the caller's thread may be new */
    struct cuda_step step = cuda_batch_build(device, prefill_tokens || device->config.memory.tail_bytes > 0);
    if (!run_stages(device, &step, counter_base))
        return false;
    *token_count = step.rows == 0 ? 0 : cuda_batch_done(device, prefill_tokens, tokens);
    return true;
}
