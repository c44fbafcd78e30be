/* Attention of the host device over a paged cache: grouped-query, and multi-head latent with absorbed weights.
 *
 * A row attends to the cached vectors of positions 0 to its own, its own included, all read back from the cache: so a
 * prompt computed in one chunk and one that came over the network in pages give the same bits. Scores, exponentials and
 * the weighted sum each run over positions in ascending order, whatever page or chunk they came in.
 *
 * MLA computes prompts the same absorbed way as single tokens: a query is mapped into latent space, attends to latents,
 * and the latent sum is mapped to values. Decompressing K and V for prompts would be faster, and round differently.
 */
#include "real/device/host/host_device.h"

#include "base/arith.h"
#include "real/device/host/linear.h"
#include "real/device/kernels/kernel.h"

#include <math.h>
#include <string.h>

uint8_t *host_cache(const struct host_device *device, const struct slot *s, uint32_t layer, uint32_t plane,
                    uint32_t kv_head, uint32_t position)
{
    const struct kv_memory *memory = &device->config.memory;
    const struct kv_geometry *g = &memory->geometry;
    uint32_t page = s->pages[position / g->page_tokens];
    uint32_t place = position % g->page_tokens;
    uint64_t vector = g->layout == LAYOUT_HND ? (uint64_t)kv_head * g->page_tokens + place
                                              : (uint64_t)place * device->shape.kv_heads + kv_head;
    uint64_t offset = kv_memory_page_offset(memory, device->config.rank, layer, plane, page);
    return device->kv + offset + vector * g->head_bytes;
}

/* Reads a head's vectors of positions [0, count). */
static void load_head(const struct host_device *device, const struct slot *s, uint32_t layer, uint32_t plane,
                      uint32_t kv_head, uint32_t count, uint16_t *to)
{
    uint32_t dim = device->shape.cache_dim;
    for (uint32_t j = 0; j < count; j++)
        linear_cache_load(to + (size_t)j * dim, host_cache(device, s, layer, plane, kv_head, j), dim,
                          device->shape.element_bytes);
}

/* First position that a row attends to. */
static uint32_t first_seen(const struct host_device *device, uint32_t layer, uint32_t position)
{
    const struct architecture *a = &device->architecture;
    return kernel_attention_first(position, kernel_layer_window(layer, a->layers, a->full_layers, a->window));
}

/* device->scores <- unnormalised weights of positions [first, position] for one query; returns their sum. */
static float attend(struct host_device *device, const float *query, uint32_t first, uint32_t position, float scale)
{
    uint32_t dim = device->shape.cache_dim;
    uint32_t n = position + 1 - first;
    linear_product(&(struct product){.x = query,
                                     .weights = device->keys + (size_t)first * dim,
                                     .y = device->scores,
                                     .rows = 1,
                                     .outputs = n,
                                     .units = 1,
                                     .width = dim});
    for (uint32_t j = 0; j < n; j++)
        device->scores[j] *= scale;
    return linear_exponentials(device->scores, n);
}

/* ---- Grouped-query --------------------------------------------------------------------------------------------- */

static void project(const float *x, uint32_t inputs, const uint16_t *weights, uint32_t outputs, float *y, uint32_t rows)
{
    linear_product(&(struct product){.x = x,
                                     .x_stride = inputs,
                                     .weights = weights,
                                     .y = y,
                                     .y_stride = outputs,
                                     .rows = rows,
                                     .outputs = outputs,
                                     .units = 1,
                                     .width = inputs});
}

static void gqa_append(struct host_device *device, uint32_t layer)
{
    const struct host_shape *shape = &device->shape;
    uint32_t dim = shape->cache_dim;
    uint32_t width = shape->kv_heads * dim;
    const struct host_layer *weights = &device->weights.layers[layer - shape->layer_first];
    uint32_t rows = device->batch.rows;
    float *keys = device->kv_new;
    float *values = device->kv_new + (size_t)rows * width;

    project(device->normed, device->architecture.hidden, weights->k, width, keys, rows);
    project(device->normed, device->architecture.hidden, weights->v, width, values, rows);
    for (uint32_t i = 0; i < device->batch.span_count; i++) {
        const struct host_span *span = &device->batch.spans[i];
        const struct slot *s = &device->slots.slot[span->sequence];
        for (uint32_t r = 0; r < span->rows; r++) {
            size_t row = span->row_first + r;
            for (uint32_t h = 0; h < shape->kv_heads; h++) {
                float *key = keys + row * width + (size_t)h * dim;
                linear_rotate(key, device->cosines + row * (dim / 2), device->sines + row * (dim / 2), dim);
                linear_cache_store(host_cache(device, s, layer, 0, h, span->position + r), key, dim,
                                   shape->element_bytes);
                linear_cache_store(host_cache(device, s, layer, 1, h, span->position + r),
                                   values + row * width + (size_t)h * dim, dim, shape->element_bytes);
            }
        }
    }
}

static void gqa_span(struct host_device *device, uint32_t layer, const struct host_span *span)
{
    const struct host_shape *shape = &device->shape;
    const struct slot *s = &device->slots.slot[span->sequence];
    uint32_t dim = shape->cache_dim;
    uint32_t ratio = device->architecture.heads / device->architecture.kv_heads;
    float scale = 1.0f / sqrtf((float)dim);

    for (uint32_t kv = 0; kv < shape->kv_heads; kv++) {
        load_head(device, s, layer, 0, kv, span->position + span->rows, device->keys);
        load_head(device, s, layer, 1, kv, span->position + span->rows, device->values);
        for (uint32_t h = 0; h < shape->heads; h++) {
            if ((shape->head_first + h) / ratio != shape->kv_head_first + kv)
                continue;
            for (uint32_t r = 0; r < span->rows; r++) {
                size_t row = (size_t)(span->row_first + r) * shape->heads + h;
                uint32_t position = span->position + r;
                uint32_t first = first_seen(device, layer, position);
                float sum = attend(device, device->q + row * dim, first, position, scale);
                linear_weighted_rows(device->scores, device->values + (size_t)first * dim, dim, position + 1 - first,
                                     dim, sum, device->o + row * dim);
            }
        }
    }
}

static void gqa(struct host_device *device, uint32_t layer)
{
    const struct host_shape *shape = &device->shape;
    const struct host_layer *weights = &device->weights.layers[layer - shape->layer_first];
    uint32_t dim = shape->cache_dim;
    project(device->normed, device->architecture.hidden, weights->q, shape->heads * dim, device->q, device->batch.rows);
    for (size_t row = 0; row < device->batch.rows; row++)
        for (uint32_t h = 0; h < shape->heads; h++)
            linear_rotate(device->q + (row * shape->heads + h) * dim, device->cosines + row * (dim / 2),
                          device->sines + row * (dim / 2), dim);
    gqa_append(device, layer);
    for (uint32_t i = 0; i < device->batch.span_count; i++)
        gqa_span(device, layer, &device->batch.spans[i]);
}

/* ---- Latent ---------------------------------------------------------------------------------------------------- */

static void mla_query(struct host_device *device, const struct host_layer *weights)
{
    const struct architecture *a = &device->architecture;
    const struct host_shape *shape = &device->shape;
    const float *x = device->normed;
    uint32_t inputs = a->hidden;
    uint32_t rows = device->batch.rows;
    if (a->q_latent_dim > 0) {
        inputs = a->q_latent_dim;
        project(device->normed, a->hidden, weights->q_latent, inputs, device->latent, rows);
        for (size_t row = 0; row < rows; row++)
            linear_rms_norm(device->latent + row * inputs, weights->norm_q_latent, device->latent + row * inputs,
                            inputs);
        x = device->latent;
    }
    project(x, inputs, weights->q, shape->heads * shape->query_dim, device->q, rows);
    uint32_t half = a->rope_dim / 2;
    for (size_t row = 0; row < rows; row++)
        for (uint32_t h = 0; h < shape->heads; h++)
            linear_rotate(device->q + (row * shape->heads + h) * shape->query_dim + a->nope_dim,
                          device->cosines + row * half, device->sines + row * half, a->rope_dim);
}

static void mla_append(struct host_device *device, uint32_t layer, const struct host_layer *weights)
{
    const struct architecture *a = &device->architecture;
    uint32_t dim = device->shape.cache_dim;
    uint32_t half = a->rope_dim / 2;
    project(device->normed, a->hidden, weights->kv_latent, dim, device->kv_new, device->batch.rows);
    for (uint32_t i = 0; i < device->batch.span_count; i++) {
        const struct host_span *span = &device->batch.spans[i];
        const struct slot *s = &device->slots.slot[span->sequence];
        for (uint32_t r = 0; r < span->rows; r++) {
            size_t row = span->row_first + r;
            float *vector = device->kv_new + row * dim;
            linear_rms_norm(vector, weights->norm_kv_latent, vector, a->latent_dim);
            linear_rotate(vector + a->latent_dim, device->cosines + row * half, device->sines + row * half,
                          a->rope_dim);
            linear_cache_store(host_cache(device, s, layer, 0, 0, span->position + r), vector, dim,
                               device->shape.element_bytes);
        }
    }
}

static void mla_span_head(struct host_device *device, uint32_t layer, const struct host_layer *weights,
                          const struct host_span *span, uint32_t h)
{
    const struct architecture *a = &device->architecture;
    const struct host_shape *shape = &device->shape;
    uint32_t dim = shape->cache_dim;
    size_t q_stride = (size_t)shape->heads * shape->query_dim;
    const float *q = device->q + span->row_first * q_stride + (size_t)h * shape->query_dim;
    float *absorbed = device->latent;
    float scale = 1.0f / sqrtf((float)shape->query_dim);

    linear_product(&(struct product){.x = q,
                                     .x_stride = q_stride,
                                     .weights = weights->absorb_k + (size_t)h * a->latent_dim * a->nope_dim,
                                     .y = absorbed,
                                     .y_stride = dim,
                                     .rows = span->rows,
                                     .outputs = a->latent_dim,
                                     .units = 1,
                                     .width = a->nope_dim});
    for (uint32_t r = 0; r < span->rows; r++) {
        uint32_t position = span->position + r;
        uint32_t first = first_seen(device, layer, position);
        float *query = absorbed + (size_t)r * dim;
        memcpy(query + a->latent_dim, q + r * q_stride + a->nope_dim, a->rope_dim * sizeof *query);
        float sum = attend(device, query, first, position, scale);
        linear_weighted_rows(device->scores, device->keys + (size_t)first * dim, dim, position + 1 - first,
                             a->latent_dim, sum, device->sums + (size_t)r * a->latent_dim);
    }
    size_t o_stride = (size_t)shape->heads * a->value_dim;
    linear_product(&(struct product){.x = device->sums,
                                     .x_stride = a->latent_dim,
                                     .weights = weights->absorb_v + (size_t)h * a->value_dim * a->latent_dim,
                                     .y = device->o + span->row_first * o_stride + (size_t)h * a->value_dim,
                                     .y_stride = o_stride,
                                     .rows = span->rows,
                                     .outputs = a->value_dim,
                                     .units = 1,
                                     .width = a->latent_dim});
}

static void mla(struct host_device *device, uint32_t layer)
{
    const struct host_layer *weights = &device->weights.layers[layer - device->shape.layer_first];
    mla_query(device, weights);
    mla_append(device, layer, weights);
    for (uint32_t i = 0; i < device->batch.span_count; i++) {
        const struct host_span *span = &device->batch.spans[i];
        load_head(device, &device->slots.slot[span->sequence], layer, 0, 0, span->position + span->rows, device->keys);
        for (uint32_t h = 0; h < device->shape.heads; h++)
            mla_span_head(device, layer, weights, span, h);
    }
}

bool host_attention(struct host_device *device, uint32_t layer)
{
    const struct host_shape *shape = &device->shape;
    const struct host_layer *weights = &device->weights.layers[layer - shape->layer_first];
    uint32_t hidden = device->architecture.hidden;
    uint32_t rows = device->batch.rows;
    if (rows == 0)
        return true;
    for (size_t row = 0; row < rows; row++)
        linear_rms_norm(device->x + row * hidden, weights->norm_attention, device->normed + row * hidden, hidden);
    if (device->architecture.attention == ATTENTION_MLA)
        mla(device, layer);
    else
        gqa(device, layer);
    linear_product(&(struct product){.x = device->o,
                                     .x_stride = (size_t)shape->heads * shape->value_dim,
                                     .weights = weights->o,
                                     .y = device->partial,
                                     .y_stride = hidden,
                                     .rows = rows,
                                     .outputs = hidden,
                                     .units = shape->heads,
                                     .width = shape->value_dim});
    if (!collective_all_reduce(device->config.collective, shape->group_first, shape->tensor, device->partial,
                               (size_t)rows * hidden))
        return false;
    linear_add(device->x, device->partial, (size_t)rows * hidden);
    return true;
}
