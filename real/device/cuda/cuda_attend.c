/* The attention half of a layer: projections, append to the cache, attention, output projection. */
#include "real/device/cuda/cuda_internal.h"

#include <math.h>

void cuda_product(struct device *device, const uint16_t *in, const uint16_t *weights, float *out, uint32_t rows,
                  uint32_t outputs, uint32_t inputs)
{
    const float one = 1.0f, zero = 0.0f;
    /* cuBLAS counts by columns: out^T = weights^T^T in^T. */
    cuda_note_blas(device,
                   device->library.gemm(device->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)outputs, (int)rows, (int)inputs,
                                        &one, weights, CUDA_R_16BF, (int)inputs, in, CUDA_R_16BF, (int)inputs, &zero,
                                        out, CUDA_R_32F, (int)outputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* One product a head: weights [head][outputs][inputs]; in and out are [row][head][stride]. */
static void product_by_head(struct device *device, const uint16_t *in, const uint16_t *weights, float *out,
                            uint32_t rows, uint32_t outputs, uint32_t inputs, uint32_t out_stride)
{
    const float one = 1.0f, zero = 0.0f;
    uint32_t heads = device->shape.heads;
    cuda_note_blas(device, device->library.gemm_batched(
                               device->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)outputs, (int)rows, (int)inputs, &one,
                               weights, CUDA_R_16BF, (int)inputs, (long long)outputs * inputs, in, CUDA_R_16BF,
                               (int)(heads * inputs), inputs, &zero, out, CUDA_R_32F, (int)(heads * out_stride),
                               out_stride, (int)heads, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static struct cuda_rows rows_of(const struct device *device)
{
    return (struct cuda_rows){.token = device->arrays.token,
                              .position = device->arrays.position,
                              .sequence = device->arrays.sequence,
                              .page_table = device->page_table,
                              .pages_max = device->pages_max};
}

struct cuda_attention cuda_attention_arguments(struct device *device, uint32_t layer, uint32_t tile_first,
                                               uint32_t splits)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    const struct cuda_buffers *b = &device->buffers;
    bool latent = a->attention == ATTENTION_MLA;
    uint32_t stride = latent ? s->heads * s->key_dim : (s->heads + 2 * s->kv_heads) * a->head_dim;
    return (struct cuda_attention){.rows = rows_of(device),
                                   .tile_row = device->arrays.tile_row + tile_first,
                                   .tile_rows = device->arrays.tile_rows + tile_first,
                                   .query = latent ? b->query : b->wide,
                                   .kv = device->kv,
                                   .pages = device->pages,
                                   .out = b->attention,
                                   .part = b->part,
                                   .part_state = b->part_state,
                                   .query_stride = stride,
                                   .layer = layer,
                                   .heads = s->heads,
                                   .kv_heads = s->kv_heads,
                                   .key_dim = s->key_dim,
                                   .value_dim = s->cached_value_dim,
                                   .value_plane = latent ? 0 : 1,
                                   .window = device->weights.layers[layer].window,
                                   .splits = splits,
                                   .scale = 1.0f / sqrtf((float)s->query_dim)};
}

static void append_gqa(struct device *device, const struct cuda_step *step, uint32_t layer)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    struct cuda_buffers *b = &device->buffers;
    cuda_product(device, b->h, device->weights.layers[layer].qkv, b->wide, step->rows,
                 (s->heads + 2 * s->kv_heads) * a->head_dim, a->hidden);
    struct cuda_append append = {.rows = rows_of(device),
                                 .qkv = b->wide,
                                 .rope = device->weights.rope,
                                 .kv = device->kv,
                                 .pages = device->pages,
                                 .layer = layer,
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_dim = a->head_dim};
    cuda_append(&append, step->rows, device->stream);
}

static void append_latent(struct device *device, const struct cuda_step *step, uint32_t layer)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_layer *w = &device->weights.layers[layer];
    struct cuda_buffers *b = &device->buffers;
    cuda_product(device, b->h, w->kv_latent, b->latent, step->rows, a->latent_dim + a->rope_dim, a->hidden);
    struct cuda_append_latent append = {.rows = rows_of(device),
                                        .latent = b->latent,
                                        .gain = w->norm_kv_latent,
                                        .rope = device->weights.rope,
                                        .kv = device->kv,
                                        .pages = device->pages,
                                        .layer = layer,
                                        .latent_dim = a->latent_dim,
                                        .rope_dim = a->rope_dim};
    cuda_append_latent(&append, step->rows, device->stream);
}

static void query_latent(struct device *device, const struct cuda_step *step, uint32_t layer)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    const struct cuda_layer *w = &device->weights.layers[layer];
    struct cuda_buffers *b = &device->buffers;
    const uint16_t *in = b->h;
    uint32_t inputs = a->hidden;
    if (a->q_latent_dim > 0) {
        cuda_product(device, b->h, w->q_latent, b->latent, step->rows, a->q_latent_dim, a->hidden);
        struct cuda_norm norm = {.x = b->latent,
                                 .gain = w->norm_q_latent,
                                 .out = b->q_latent,
                                 .n = a->q_latent_dim,
                                 .x_stride = a->q_latent_dim};
        cuda_norm(&norm, step->rows, device->stream);
        in = b->q_latent;
        inputs = a->q_latent_dim;
    }
    cuda_product(device, in, w->q, b->wide, step->rows, s->heads * s->query_dim, inputs);
    struct cuda_query_latent query = {.rows = rows_of(device),
                                      .q = b->wide,
                                      .rope = device->weights.rope,
                                      .nope = b->nope,
                                      .query = b->query,
                                      .heads = s->heads,
                                      .nope_dim = a->nope_dim,
                                      .rope_dim = a->rope_dim,
                                      .latent_dim = a->latent_dim};
    cuda_query_latent(&query, step->rows, device->stream);
    product_by_head(device, b->nope, w->absorb_k, b->query, step->rows, a->latent_dim, a->nope_dim, s->key_dim);
}

void cuda_layer_attention(struct device *device, const struct cuda_step *step, uint32_t layer)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    const struct cuda_layer *w = &device->weights.layers[layer];
    struct cuda_buffers *b = &device->buffers;
    bool latent = a->attention == ATTENTION_MLA;
    if (latent) {
        append_latent(device, step, layer);
        query_latent(device, step, layer);
    } else {
        append_gqa(device, step, layer);
    }
    if (step->decode_rows > 0) {
        struct cuda_attention decode = cuda_attention_arguments(device, layer, 0, step->splits);
        cuda_attention(&decode, step->decode_rows, step->decode_rows, device->stream);
    }
    if (step->tiles > 0) {
        struct cuda_attention prefill = cuda_attention_arguments(device, layer, step->decode_rows, 1);
        cuda_attention(&prefill, step->tiles, step->rows, device->stream);
    }
    const uint16_t *values = b->attention;
    if (latent) {
        product_by_head(device, b->attention, w->absorb_v, b->wide, step->rows, a->value_dim, a->latent_dim,
                        a->value_dim);
        cuda_to_bf16(b->wide, b->values, (uint64_t)step->rows * s->heads * a->value_dim, device->stream);
        values = b->values;
    }
    cuda_product(device, values, w->o, b->y, step->rows, a->hidden, s->heads * s->value_dim);
}
