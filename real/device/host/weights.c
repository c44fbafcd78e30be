/* See weights.h. */
#include "real/device/host/weights.h"

#include "base/check.h"
#include "real/device/kernels/kernel.h"
#include "real/device/kernels/model.h"
#include "real/device/seeded.h"

#include <stdlib.h>

/* Fills a part of a matrix; in a first pass with no memory it only counts. */
struct filler {
    uint64_t seed;
    uint32_t layer;
    uint8_t *memory; /* NULL: counting */
    size_t taken;
};

static void *take(struct filler *filler, size_t bytes)
{
    void *at = filler->memory == NULL ? NULL : filler->memory + filler->taken;
    filler->taken += (bytes + 63) / 64 * 64;
    return at;
}

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix with `inputs` columns in all. */
struct part {
    uint32_t row;
    uint32_t rows;
    uint32_t column;
    uint32_t columns;
    uint32_t inputs;
    float gain;
};

static uint16_t *fill(struct filler *filler, enum seeded_kind kind, uint32_t expert, struct part part)
{
    uint16_t *to = take(filler, (size_t)part.rows * part.columns * sizeof *to);
    if (to == NULL)
        return NULL;
    uint64_t matrix = seeded_matrix(filler->seed, (uint32_t)kind, filler->layer, expert);
    float scale = model_weight_scale(part.inputs, part.gain);
    for (uint32_t r = 0; r < part.rows; r++)
        for (uint32_t c = 0; c < part.columns; c++)
            to[(size_t)r * part.columns + c] = kernel_bf16(seeded_weight(matrix, part.row + r, part.column + c, scale));
    return to;
}

static float *fill_gains(struct filler *filler, enum seeded_kind kind, uint32_t n)
{
    float *to = take(filler, n * sizeof *to);
    if (to == NULL)
        return NULL;
    uint64_t matrix = seeded_matrix(filler->seed, (uint32_t)kind, filler->layer, 0);
    for (uint32_t i = 0; i < n; i++)
        to[i] = seeded_gain(matrix, i);
    return to;
}

/* All columns of some rows. */
static struct part rows_of(uint32_t row, uint32_t rows, uint32_t inputs)
{
    return (struct part){.row = row, .rows = rows, .columns = inputs, .inputs = inputs, .gain = MODEL_GAIN};
}

static struct host_mlp fill_mlp(struct filler *filler, enum seeded_kind gate, uint32_t expert, uint32_t hidden,
                                uint32_t units, uint32_t width, uint32_t slice, uint32_t slices)
{
    struct host_mlp mlp = {.units = units, .width = width};
    uint32_t columns = units * width;
    struct part up = rows_of(slice * columns, columns, hidden);
    struct part down = {.rows = hidden,
                        .column = slice * columns,
                        .columns = columns,
                        .inputs = columns * slices,
                        .gain = MODEL_GAIN_TO_RESIDUAL};
    mlp.gate = fill(filler, gate, expert, up);
    mlp.up = fill(filler, gate + (SEEDED_UP - SEEDED_GATE), expert, up);
    mlp.down = fill(filler, gate + (SEEDED_DOWN - SEEDED_GATE), expert, down);
    return mlp;
}

/* A head's slice of SEEDED_KV_UP_K, transposed: a product then maps the head's query into latent space. */
static uint16_t *fill_absorb_k(struct filler *filler, const struct architecture *a, const struct host_shape *shape)
{
    uint16_t *to = take(filler, (size_t)shape->heads * a->latent_dim * a->nope_dim * sizeof *to);
    if (to == NULL)
        return NULL;
    uint64_t matrix = seeded_matrix(filler->seed, SEEDED_KV_UP_K, filler->layer, 0);
    float scale = model_weight_scale(a->latent_dim, MODEL_GAIN);
    for (uint32_t h = 0; h < shape->heads; h++)
        for (uint32_t c = 0; c < a->latent_dim; c++)
            for (uint32_t i = 0; i < a->nope_dim; i++)
                to[((size_t)h * a->latent_dim + c) * a->nope_dim + i] =
                    kernel_bf16(seeded_weight(matrix, (shape->head_first + h) * a->nope_dim + i, c, scale));
    return to;
}

static void fill_attention(struct filler *filler, const struct architecture *a, const struct host_shape *shape,
                           struct host_layer *layer)
{
    bool latent = a->attention == ATTENTION_MLA;
    uint32_t query_inputs = latent && a->q_latent_dim > 0 ? a->q_latent_dim : a->hidden;
    struct part q = rows_of(shape->head_first * shape->query_dim, shape->heads * shape->query_dim, query_inputs);
    q.gain = MODEL_GAIN_QUERY;
    layer->q = fill(filler, SEEDED_Q, 0, q);
    layer->o = fill(filler, SEEDED_O, 0,
                    (struct part){.rows = a->hidden,
                                  .column = shape->head_first * shape->value_dim,
                                  .columns = shape->heads * shape->value_dim,
                                  .inputs = a->heads * shape->value_dim,
                                  .gain = MODEL_GAIN_TO_RESIDUAL});
    if (!latent) {
        struct part kv = rows_of(shape->kv_head_first * a->head_dim, shape->kv_heads * a->head_dim, a->hidden);
        layer->k = fill(filler, SEEDED_K, 0, kv);
        layer->v = fill(filler, SEEDED_V, 0, kv);
        return;
    }
    if (a->q_latent_dim > 0) {
        layer->q_latent = fill(filler, SEEDED_Q_LATENT, 0, rows_of(0, a->q_latent_dim, a->hidden));
        layer->norm_q_latent = fill_gains(filler, SEEDED_NORM_Q_LATENT, a->q_latent_dim);
    }
    layer->kv_latent = fill(filler, SEEDED_KV_LATENT, 0, rows_of(0, a->latent_dim + a->rope_dim, a->hidden));
    layer->norm_kv_latent = fill_gains(filler, SEEDED_NORM_KV_LATENT, a->latent_dim);
    layer->absorb_k = fill_absorb_k(filler, a, shape);
    layer->absorb_v = fill(filler, SEEDED_KV_UP_V, 0,
                           rows_of(shape->head_first * a->value_dim, shape->heads * a->value_dim, a->latent_dim));
}

static void fill_layer(struct filler *filler, const struct architecture *a, const struct host_shape *shape,
                       struct host_layer *layer)
{
    layer->norm_attention = fill_gains(filler, SEEDED_NORM_ATTENTION, a->hidden);
    layer->norm_mlp = fill_gains(filler, SEEDED_NORM_MLP, a->hidden);
    fill_attention(filler, a, shape, layer);
    if (!host_layer_sparse(a, filler->layer)) {
        layer->dense = fill_mlp(filler, SEEDED_GATE, 0, a->hidden, shape->dense_units, shape->dense_width, shape->t,
                                shape->tensor);
        return;
    }
    layer->router = fill(filler, SEEDED_ROUTER, 0, rows_of(0, a->experts, a->hidden));
    for (uint32_t e = 0; e < shape->expert_count; e++)
        layer->experts[e] = fill_mlp(filler, SEEDED_GATE, shape->expert_first + e, a->hidden, shape->expert_units,
                                     shape->expert_width, shape->expert_slice, shape->expert_slices);
    if (a->shared_experts > 0)
        layer->shared = fill_mlp(filler, SEEDED_SHARED_GATE, 0, a->hidden, shape->shared_units, shape->shared_width,
                                 shape->t, shape->tensor);
}

static void fill_all(struct filler *filler, const struct architecture *a, const struct host_shape *shape,
                     struct host_weights *weights)
{
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        filler->layer = shape->layer_first + l;
        fill_layer(filler, a, shape, &weights->layers[l]);
    }
    filler->layer = 0;
    if (!shape->last_stage)
        return;
    weights->norm_final = fill_gains(filler, SEEDED_NORM_FINAL, a->hidden);
    weights->lm_head = fill(filler, a->tied_embeddings ? SEEDED_EMBEDDING : SEEDED_LM_HEAD, 0,
                            rows_of(shape->vocab_first, shape->vocab_count, a->hidden));
}

static bool make_layers(struct host_weights *weights, const struct host_shape *shape)
{
    weights->layers = calloc(shape->layer_count, sizeof *weights->layers);
    if (weights->layers == NULL)
        return false;
    weights->layer_count = shape->layer_count;
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        if (shape->expert_count == 0)
            continue;
        weights->layers[l].experts = calloc(shape->expert_count, sizeof(struct host_mlp));
        if (weights->layers[l].experts == NULL)
            return false;
    }
    return true;
}

uint64_t host_weights_bytes(const struct architecture *architecture, const struct host_shape *shape)
{
    struct host_weights weights = {.seed = 0};
    struct filler filler = {.seed = 0};
    CHECK(make_layers(&weights, shape));
    fill_all(&filler, architecture, shape, &weights);
    host_weights_free(&weights);
    return filler.taken;
}

bool host_weights_make(struct host_weights *weights, const struct architecture *architecture,
                       const struct host_shape *shape, uint64_t seed)
{
    *weights = (struct host_weights){.seed = seed};
    weights->embedding_scale = architecture->tied_embeddings
                                   ? model_weight_scale(architecture->hidden, MODEL_GAIN_EMBEDDING_TIED)
                                   : model_weight_scale(1, MODEL_GAIN_EMBEDDING);
    if (!make_layers(weights, shape))
        return false;
    struct filler filler = {.seed = seed};
    fill_all(&filler, architecture, shape, weights);
    weights->memory = aligned_alloc(64, filler.taken);
    if (weights->memory == NULL)
        return false;
    filler = (struct filler){.seed = seed, .memory = weights->memory};
    fill_all(&filler, architecture, shape, weights);
    return true;
}

void host_weights_free(struct host_weights *weights)
{
    for (uint32_t l = 0; weights->layers != NULL && l < weights->layer_count; l++)
        free(weights->layers[l].experts);
    free(weights->layers);
    free(weights->memory);
    *weights = (struct host_weights){0};
}

void host_embedding(const struct host_weights *weights, const struct architecture *architecture, uint32_t token,
                    float *row)
{
    uint64_t matrix = seeded_matrix(weights->seed, SEEDED_EMBEDDING, 0, 0);
    for (uint32_t i = 0; i < architecture->hidden; i++)
        row[i] = seeded_weight(matrix, token, i, weights->embedding_scale);
}
