/* Memory of a step: buffers on the device, row arrays on both sides, pinned memory for what the host reads. */
#include "real/device/cuda/cuda_internal.h"

#include "base/arith.h"

#include <stdio.h>

#define BLAS_WORKSPACE_BYTES ((size_t)32 << 20) /* what cuBLAS recommends for Hopper */

/* Lays buffers out one after another; in a first pass with no memory it only counts. */
struct layout {
    uint8_t *memory; /* NULL: counting */
    size_t taken;
};

static void *take(struct layout *layout, uint64_t count, size_t size)
{
    void *at = layout->memory == NULL ? NULL : layout->memory + layout->taken;
    layout->taken += (count * size + 255) / 256 * 256;
    return at;
}

static void lay_out_attention(struct device *device, struct layout *layout)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    struct cuda_buffers *b = &device->buffers;
    uint64_t rows = device->rows_max;
    bool latent = a->attention == ATTENTION_MLA;
    b->attention = take(layout, rows * s->heads * s->cached_value_dim, 2);
    if (latent) {
        b->latent = take(layout, rows * max_u32(a->q_latent_dim, a->latent_dim + a->rope_dim), 4);
        b->q_latent = take(layout, rows * a->q_latent_dim, 2);
        b->nope = take(layout, rows * s->heads * a->nope_dim, 2);
        b->query = take(layout, rows * s->heads * s->key_dim, 4);
        b->values = take(layout, rows * s->heads * s->value_dim, 2);
    }
    /* Splits are chosen so that a step has about CUDA_ATTENTION_BLOCKS blocks of at most CUDA_ATTENTION_ITEMS items. */
    uint64_t items = (uint64_t)CUDA_ATTENTION_BLOCKS * CUDA_ATTENTION_ITEMS;
    b->part = take(layout, items * s->cached_value_dim, 4);
    b->part_state = take(layout, items * 2, 4);
}

static void lay_out_experts(struct device *device, struct layout *layout)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    struct cuda_buffers *b = &device->buffers;
    uint64_t rows = device->rows_max;
    uint64_t pairs = rows * a->experts_active;
    if (a->experts == 0)
        return;
    b->router = take(layout, rows * a->experts, 4);
    b->choice = take(layout, pairs, 4);
    b->weight = take(layout, pairs, 4);
    b->expert_count = take(layout, a->experts, 4);
    b->expert_first = take(layout, (uint64_t)a->experts + 1, 4);
    b->slot_row = take(layout, pairs, 4);
    b->pair_slot = take(layout, pairs, 4);
    b->expert_in = take(layout, pairs * a->hidden, 2);
    b->expert_wide = take(layout, pairs * 2 * s->expert, 4);
    b->expert_act = take(layout, pairs * s->expert, 2);
    b->expert_out = take(layout, pairs * a->hidden, 4);
}

static void lay_out(struct device *device, struct layout *layout)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    struct cuda_buffers *b = &device->buffers;
    uint64_t rows = device->rows_max;
    uint32_t samples = (uint32_t)1 << cuda_bucket(device->config.sequences_max);
    uint32_t widest = max_u32(2 * s->dense, 2 * s->shared);
    widest = max_u32(widest, s->heads * max_u32(s->query_dim, s->value_dim));
    if (a->attention != ATTENTION_MLA)
        widest = max_u32(widest, (s->heads + 2 * s->kv_heads) * a->head_dim);
    b->x = take(layout, rows * a->hidden, 4);
    b->y = take(layout, rows * a->hidden, 4);
    b->h = take(layout, rows * a->hidden, 2);
    b->wide = take(layout, rows * widest, 4);
    b->act = take(layout, rows * max_u32(s->dense, s->shared), 2);
    if (s->last_stage) {
        b->logits = take(layout, (uint64_t)samples * a->vocab, 4);
        b->hidden = take(layout, (uint64_t)samples * a->hidden, 4);
    }
    b->sampled = take(layout, samples, 4);
    b->counter_base = take(layout, 1, 8);
    b->blas = take(layout, 1, BLAS_WORKSPACE_BYTES);
    lay_out_attention(device, layout);
    lay_out_experts(device, layout);
    if (device->config.memory.tail_bytes > 0 && s->last_stage)
        device->tails = take(layout, (uint64_t)device->config.sequences_max * (a->hidden + a->vocab), 4);
    device->page_table = take(layout, (uint64_t)device->config.sequences_max * device->pages_max, 4);
}

static size_t array_bytes(const struct device *device)
{
    return (5 * (size_t)device->rows_max + device->config.sequences_max) * sizeof(uint32_t);
}

static void lay_out_arrays(const struct device *device, struct cuda_arrays *arrays, void *memory)
{
    size_t rows = device->rows_max;
    uint32_t *at = memory;
    *arrays = (struct cuda_arrays){.token = at,
                                   .position = at + rows,
                                   .sequence = at + 2 * rows,
                                   .tile_row = at + 3 * rows,
                                   .tile_rows = at + 4 * rows,
                                   .select = at + 5 * rows};
}

static cudaError_t pin(void *pointer, size_t bytes)
{
    return cudaHostAlloc((void **)pointer, bytes, cudaHostAllocDefault);
}

static cudaError_t make_pinned(struct device *device)
{
    const struct device_config *config = &device->config;
    void *arrays = NULL;
    void *device_arrays = NULL;
    cudaError_t status = pin(&arrays, device->array_bytes);
    if (status == cudaSuccess)
        lay_out_arrays(device, &device->host, arrays);
    if (status == cudaSuccess)
        status = cudaMalloc(&device_arrays, device->array_bytes);
    if (status == cudaSuccess)
        lay_out_arrays(device, &device->arrays, device_arrays);
    if (status == cudaSuccess)
        status = pin(&device->page_table_host, (size_t)config->sequences_max * device->pages_max * 4);
    if (status == cudaSuccess)
        status = pin(&device->sampled_host, ((size_t)1 << cuda_bucket(config->sequences_max)) * 4);
    if (status == cudaSuccess)
        status = pin(&device->counter_base_host, 8);
    if (status == cudaSuccess && device->architecture.experts > 0)
        status = pin(&device->expert_first_host, ((size_t)device->architecture.experts + 1) * 4);
    return status;
}

bool cuda_buffers_make(struct device *device, struct user_error *error)
{
    device->array_bytes = array_bytes(device);
    struct layout layout = {0};
    lay_out(device, &layout);
    device->buffers.bytes = layout.taken;
    cudaError_t status = cudaMalloc(&device->buffers.memory, layout.taken);
    if (status == cudaSuccess) {
        layout = (struct layout){.memory = device->buffers.memory};
        lay_out(device, &layout);
        status = cudaMemset(device->buffers.memory, 0, layout.taken);
    }
    if (status == cudaSuccess)
        status = make_pinned(device);
    if (status == cudaSuccess && device->library.set_workspace(device->blas, device->buffers.blas,
                                                               BLAS_WORKSPACE_BYTES) != CUBLAS_STATUS_SUCCESS)
        status = cudaErrorInvalidValue;
    if (status != cudaSuccess)
        user_error_set(error, NULL, 0, NULL, "no memory on the GPU for steps of %u tokens (%zu MiB): %s",
                       device->rows_max, layout.taken >> 20, cudaGetErrorString(status));
    return status == cudaSuccess;
}

void cuda_buffers_free(struct device *device)
{
    cudaFree(device->buffers.memory);
    cudaFree(device->arrays.token);
    cudaFreeHost(device->host.token);
    cudaFreeHost(device->page_table_host);
    cudaFreeHost(device->sampled_host);
    cudaFreeHost(device->counter_base_host);
    cudaFreeHost(device->expert_first_host);
}
