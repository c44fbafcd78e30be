/* One rank's share of the seeded model in device memory, filled there. */
#include "real/device/cuda/cuda_internal.h"
#include "real/device/kernels/model.h"
#include "real/device/seeded.h"

#include <stdio.h>
#include <stdlib.h>

/* Lays matrices out one after another; in a first pass with no memory it only counts. */
struct filler {
    struct device *device;
    uint8_t *memory; /* NULL: counting */
    size_t taken;
    uint32_t layer;
};

static void *take(struct filler *filler, uint64_t bytes)
{
    void *at = filler->memory == NULL ? NULL : filler->memory + filler->taken;
    filler->taken += (bytes + 255) / 256 * 256;
    return at;
}

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix with `inputs` columns in all. */
struct part {
    uint32_t kind;
    uint32_t expert;
    uint32_t row;
    uint32_t rows;
    uint32_t column;
    uint32_t columns;
    uint32_t inputs;
    uint32_t block;
    float gain;
};

static void fill_at(struct filler *filler, uint16_t *at, struct part part)
{
    if (filler->memory == NULL || part.rows == 0 || part.columns == 0)
        return;
    struct cuda_fill fill = {
        .out = at,
        .matrix = seeded_matrix(filler->device->config.weight_seed, part.kind, filler->layer, part.expert),
        .rows = part.rows,
        .columns = part.columns,
        .row_first = part.row,
        .column_first = part.column,
        .block = part.block,
        .scale = model_weight_scale(part.inputs, part.gain),
    };
    cuda_fill(&fill, filler->device->stream);
}

static uint16_t *fill(struct filler *filler, struct part part)
{
    uint16_t *at = take(filler, (uint64_t)part.rows * part.columns * 2);
    fill_at(filler, at, part);
    return at;
}

static float *fill_gain(struct filler *filler, uint32_t kind, uint32_t n)
{
    float *at = take(filler, (uint64_t)n * 4);
    if (at == NULL)
        return NULL;
    struct cuda_fill fill = {
        .gain = at,
        .matrix = seeded_matrix(filler->device->config.weight_seed, kind, filler->layer, 0),
        .rows = 1,
        .columns = n,
    };
    cuda_fill(&fill, filler->device->stream);
    return at;
}

/* Whole rows. */
static struct part rows_of(uint32_t kind, uint32_t row, uint32_t rows, uint32_t inputs)
{
    return (struct part){
        .kind = kind, .row = row, .rows = rows, .columns = inputs, .inputs = inputs, .gain = MODEL_GAIN};
}

/* GATE above UP, columns [slice * columns, (slice + 1) * columns) of the intermediate dimension as rows. */
static void fill_gate_up(struct filler *filler, uint16_t *at, uint32_t gate_kind, uint32_t expert, uint32_t columns,
                         uint32_t slice)
{
    uint32_t hidden = filler->device->architecture.hidden;
    struct part part = rows_of(gate_kind, slice * columns, columns, hidden);
    part.expert = expert;
    fill_at(filler, at, part);
    part.kind = gate_kind + (SEEDED_UP - SEEDED_GATE);
    fill_at(filler, at == NULL ? NULL : at + (size_t)columns * hidden, part);
}

static struct part down_of(struct filler *filler, uint32_t gate_kind, uint32_t expert, uint32_t columns, uint32_t slice,
                           uint32_t all)
{
    return (struct part){.kind = gate_kind + (SEEDED_DOWN - SEEDED_GATE),
                         .expert = expert,
                         .rows = filler->device->architecture.hidden,
                         .column = slice * columns,
                         .columns = columns,
                         .inputs = all,
                         .gain = MODEL_GAIN_TO_RESIDUAL};
}

static void fill_gqa(struct filler *filler, struct cuda_layer *layer)
{
    const struct architecture *a = &filler->device->architecture;
    const struct cuda_shape *s = &filler->device->shape;
    uint32_t q_rows = s->heads * a->head_dim;
    uint32_t kv_rows = s->kv_heads * a->head_dim;
    layer->qkv = take(filler, (uint64_t)(q_rows + 2 * kv_rows) * a->hidden * 2);
    struct part q = rows_of(SEEDED_Q, s->head_first * a->head_dim, q_rows, a->hidden);
    q.gain = MODEL_GAIN_QUERY;
    fill_at(filler, layer->qkv, q);
    if (filler->memory == NULL)
        return;
    uint32_t kv_first = s->kv_head_first * a->head_dim;
    fill_at(filler, layer->qkv + (size_t)q_rows * a->hidden, rows_of(SEEDED_K, kv_first, kv_rows, a->hidden));
    fill_at(filler, layer->qkv + (size_t)(q_rows + kv_rows) * a->hidden,
            rows_of(SEEDED_V, kv_first, kv_rows, a->hidden));
}

static void fill_mla(struct filler *filler, struct cuda_layer *layer)
{
    const struct architecture *a = &filler->device->architecture;
    const struct cuda_shape *s = &filler->device->shape;
    uint32_t inputs = a->q_latent_dim > 0 ? a->q_latent_dim : a->hidden;
    struct part q = rows_of(SEEDED_Q, s->head_first * s->query_dim, s->heads * s->query_dim, inputs);
    q.gain = MODEL_GAIN_QUERY;
    if (a->q_latent_dim > 0) {
        layer->q_latent = fill(filler, rows_of(SEEDED_Q_LATENT, 0, a->q_latent_dim, a->hidden));
        layer->norm_q_latent = fill_gain(filler, SEEDED_NORM_Q_LATENT, a->q_latent_dim);
    }
    layer->q = fill(filler, q);
    layer->kv_latent = fill(filler, rows_of(SEEDED_KV_LATENT, 0, a->latent_dim + a->rope_dim, a->hidden));
    layer->norm_kv_latent = fill_gain(filler, SEEDED_NORM_KV_LATENT, a->latent_dim);
    struct part k_up = rows_of(SEEDED_KV_UP_K, s->head_first * a->nope_dim, s->heads * a->nope_dim, a->latent_dim);
    k_up.block = a->nope_dim;
    layer->absorb_k = fill(filler, k_up);
    layer->absorb_v =
        fill(filler, rows_of(SEEDED_KV_UP_V, s->head_first * a->value_dim, s->heads * a->value_dim, a->latent_dim));
}

static void fill_experts(struct filler *filler, struct cuda_layer *layer)
{
    const struct architecture *a = &filler->device->architecture;
    const struct cuda_shape *s = &filler->device->shape;
    size_t gate_up = (size_t)2 * s->expert * a->hidden;
    size_t down = (size_t)a->hidden * s->expert;
    layer->router = fill(filler, rows_of(SEEDED_ROUTER, 0, a->experts, a->hidden));
    layer->expert_gate_up = take(filler, s->experts * gate_up * 2);
    layer->expert_down = take(filler, s->experts * down * 2);
    for (uint32_t e = 0; e < s->experts && filler->memory != NULL; e++) {
        uint32_t expert = s->expert_first + e;
        fill_gate_up(filler, layer->expert_gate_up + e * gate_up, SEEDED_GATE, expert, s->expert, s->expert_slice);
        fill_at(filler, layer->expert_down + e * down,
                down_of(filler, SEEDED_GATE, expert, s->expert, s->expert_slice, a->expert_intermediate));
    }
    if (s->shared == 0)
        return;
    layer->shared_gate_up = take(filler, (uint64_t)2 * s->shared * a->hidden * 2);
    fill_gate_up(filler, layer->shared_gate_up, SEEDED_SHARED_GATE, 0, s->shared, s->t);
    layer->shared_down = fill(
        filler, down_of(filler, SEEDED_SHARED_GATE, 0, s->shared, s->t, a->shared_experts * a->expert_intermediate));
}

static void fill_layer(struct filler *filler, struct cuda_layer *layer)
{
    const struct architecture *a = &filler->device->architecture;
    const struct cuda_shape *s = &filler->device->shape;
    layer->window = kernel_layer_window(filler->layer, a->layers, a->full_layers, a->window);
    layer->norm_attention = fill_gain(filler, SEEDED_NORM_ATTENTION, a->hidden);
    layer->norm_mlp = fill_gain(filler, SEEDED_NORM_MLP, a->hidden);
    if (a->attention == ATTENTION_MLA)
        fill_mla(filler, layer);
    else
        fill_gqa(filler, layer);
    layer->o = fill(filler, (struct part){.kind = SEEDED_O,
                                          .rows = a->hidden,
                                          .column = s->head_first * s->value_dim,
                                          .columns = s->heads * s->value_dim,
                                          .inputs = a->heads * s->value_dim,
                                          .gain = MODEL_GAIN_TO_RESIDUAL});
    if (cuda_layer_sparse(a, filler->layer)) {
        fill_experts(filler, layer);
        return;
    }
    layer->gate_up = take(filler, (uint64_t)2 * s->dense * a->hidden * 2);
    fill_gate_up(filler, layer->gate_up, SEEDED_GATE, 0, s->dense, s->t);
    layer->down = fill(filler, down_of(filler, SEEDED_GATE, 0, s->dense, s->t, a->intermediate));
}

static void fill_all(struct filler *filler)
{
    struct device *device = filler->device;
    const struct architecture *a = &device->architecture;
    for (uint32_t l = 0; l < device->shape.layers; l++) {
        filler->layer = device->shape.layer_first + l;
        fill_layer(filler, &device->weights.layers[l]);
    }
    filler->layer = 0;
    if (device->shape.last_stage) {
        device->weights.norm_final = fill_gain(filler, SEEDED_NORM_FINAL, a->hidden);
        device->weights.lm_head =
            fill(filler, rows_of(a->tied_embeddings ? SEEDED_EMBEDDING : SEEDED_LM_HEAD, 0, a->vocab, a->hidden));
    }
    uint32_t rotated = a->attention == ATTENTION_MLA ? a->rope_dim : a->head_dim;
    device->weights.rope = take(filler, (uint64_t)device->config.request_tokens_max * rotated * 4);
}

static cudaError_t upload_rope(struct device *device)
{
    const struct architecture *a = &device->architecture;
    uint32_t rotated = a->attention == ATTENTION_MLA ? a->rope_dim : a->head_dim;
    size_t bytes = (size_t)device->config.request_tokens_max * rotated * sizeof(float);
    float *table = malloc(bytes);
    if (table == NULL)
        return cudaErrorMemoryAllocation;
    model_rope_table(table, device->config.request_tokens_max, rotated);
    cudaError_t status = cudaMemcpy(device->weights.rope, table, bytes, cudaMemcpyHostToDevice);
    free(table);
    return status;
}

bool cuda_weights_make(struct device *device, struct user_error *error)
{
    struct cuda_weights *weights = &device->weights;
    weights->layers = calloc(device->shape.layers, sizeof *weights->layers);
    if (weights->layers == NULL) {
        user_error_set(error, NULL, 0, NULL, "no memory for the table of layers");
        return false;
    }
    struct filler filler = {.device = device};
    fill_all(&filler);
    weights->bytes = filler.taken;
    size_t unused = 0, total = 0;
    cudaError_t status = cudaMemGetInfo(&unused, &total);
    if (status == cudaSuccess && weights->bytes > unused) {
        user_error_set(error, NULL, 0, NULL, "the rank's weights take %zu MiB and the GPU has %zu MiB free",
                       weights->bytes >> 20, unused >> 20);
        return false;
    }
    if (status == cudaSuccess)
        status = cudaMalloc(&weights->memory, weights->bytes);
    if (status == cudaSuccess) {
        filler = (struct filler){.device = device, .memory = weights->memory};
        fill_all(&filler);
        status = upload_rope(device);
    }
    if (status == cudaSuccess)
        status = cudaStreamSynchronize(device->stream);
    if (status == cudaSuccess)
        status = cudaGetLastError();
    if (status != cudaSuccess)
        user_error_set(error, NULL, 0, NULL, "the weights cannot be made on the GPU: %s", cudaGetErrorString(status));
    return status == cudaSuccess;
}

void cuda_weights_free(struct device *device)
{
    cudaFree(device->weights.memory);
    free(device->weights.layers);
}
