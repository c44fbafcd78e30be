/* Kernels over rows: embedding, norms, RoPE and append, SwiGLU, sampling, the layer counter and copies. See
 * cuda_kernels.h for what each does and cuda_launch.h for how they are written.
 */
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/cuda/cuda_launch.h"
#include "real/device/kernels/kernel.h"
#include "real/device/kernels/topk.h"
#include "real/device/seeded.h"

/* The sum over a block of 256 threads, in every thread. */
CUDA_DEVICE float block_sum(float value)
{
    CUDA_SHARED float part[8];
    for (uint32_t mask = 16; mask > 0; mask >>= 1)
        value += cuda_shuffle_xor(value, mask);
    if (CUDA_THREAD % 32 == 0)
        part[CUDA_THREAD / 32] = value;
    cuda_sync();
    value = 0.0f;
    for (uint32_t warp = 0; warp < CUDA_THREADS / 32; warp++)
        value += part[warp];
    cuda_sync();
    return value;
}

/* Where the cache keeps head `head` of the row's token. */
CUDA_DEVICE uint64_t row_offset(const struct cuda_rows *rows, const struct kernel_pages *pages, uint32_t row,
                                uint32_t layer, uint32_t plane, uint32_t head)
{
    uint32_t position = rows->position[row];
    uint64_t table = (uint64_t)rows->sequence[row] * rows->pages_max;
    uint32_t page = rows->page_table[table + position / pages->page_tokens];
    return kernel_page_offset(pages, layer, plane, page, head, position % pages->page_tokens);
}

CUDA_KERNEL(fill_kernel, cuda_fill)
{
    uint64_t n = (uint64_t)a.rows * a.columns;
    for (uint64_t i = (uint64_t)CUDA_BLOCK_X * CUDA_THREADS + CUDA_THREAD; i < n;
         i += (uint64_t)CUDA_GRID_X * CUDA_THREADS) {
        uint32_t row = (uint32_t)(i / a.columns);
        uint32_t column = (uint32_t)(i % a.columns);
        if (a.block > 0) {
            uint64_t of_block = i % ((uint64_t)a.columns * a.block);
            row = (uint32_t)(i / ((uint64_t)a.columns * a.block)) * a.block + (uint32_t)(of_block % a.block);
            column = (uint32_t)(of_block / a.block);
        }
        if (a.gain != NULL)
            a.gain[i] = seeded_gain(a.matrix, a.column_first + column);
        else
            a.out[i] = kernel_bf16(seeded_weight(a.matrix, a.row_first + row, a.column_first + column, a.scale));
    }
}

void cuda_fill(const struct cuda_fill *a, cudaStream_t stream)
{
    uint64_t blocks = ((uint64_t)a->rows * a->columns + 255) / 256;
    CUDA_LAUNCH(fill_kernel, (uint32_t)(blocks < 4096 ? blocks : 4096), 1, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(embed_kernel, cuda_embed)
{
    uint32_t row = CUDA_BLOCK_X;
    uint32_t token = a.rows.token[row];
    for (uint32_t i = CUDA_THREAD; i < a.hidden; i += CUDA_THREADS)
        a.x[(uint64_t)row * a.hidden + i] = seeded_weight(a.matrix, token, i, a.scale);
}

void cuda_embed(const struct cuda_embed *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(embed_kernel, rows, 1, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(norm_kernel, cuda_norm)
{
    uint32_t row = CUDA_BLOCK_X;
    uint32_t source = a.select != NULL ? a.select[row] : row;
    float *x = a.x + (uint64_t)source * a.x_stride;
    float squares = 0.0f;
    for (uint32_t i = CUDA_THREAD; i < a.n; i += CUDA_THREADS) {
        float value = x[i];
        if (a.add != NULL) {
            value += a.add[(uint64_t)source * a.n + i];
            if (a.select == NULL)
                x[i] = value;
        }
        if (a.sum != NULL)
            a.sum[(uint64_t)row * a.n + i] = value;
        squares += value * value;
    }
    float scale = kernel_rms_scale(block_sum(squares), a.n);
    for (uint32_t i = CUDA_THREAD; i < a.n; i += CUDA_THREADS) {
        float value = x[i];
        if (a.add != NULL && a.select != NULL)
            value += a.add[(uint64_t)source * a.n + i];
        a.out[(uint64_t)row * a.n + i] = kernel_bf16(value * scale * a.gain[i]);
    }
}

void cuda_norm(const struct cuda_norm *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(norm_kernel, rows, 1, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(append_kernel, cuda_append)
{
    uint32_t row = CUDA_BLOCK_X;
    uint32_t head = CUDA_BLOCK_Y; /* queries, then keys, then values */
    uint32_t half = a.head_dim / 2;
    uint32_t rotated = a.heads + a.kv_heads;
    float *from = a.qkv + ((uint64_t)row * (rotated + a.kv_heads) + head) * a.head_dim;
    if (a.rows.sequence[row] == CUDA_ROW_NONE)
        return;
    uint8_t *to = NULL;
    if (head >= a.heads) {
        uint32_t plane = head >= rotated;
        to = a.kv + row_offset(&a.rows, &a.pages, row, a.layer, plane, head - a.heads - plane * a.kv_heads);
    }
    if (head >= rotated) {
        for (uint32_t i = CUDA_THREAD; i < a.head_dim; i += CUDA_THREADS)
            kernel_page_store(&a.pages, to, i, from[i]);
        return;
    }
    const float *angle = a.rope + (uint64_t)a.rows.position[row] * half * 2;
    for (uint32_t i = CUDA_THREAD; i < half; i += CUDA_THREADS) {
        float first = from[i];
        float second = from[half + i];
        kernel_rope(&first, &second, angle[2 * i], angle[2 * i + 1]);
        if (to != NULL) {
            kernel_page_store(&a.pages, to, i, first);
            kernel_page_store(&a.pages, to, half + i, second);
        } else {
            from[i] = first;
            from[half + i] = second;
        }
    }
}

void cuda_append(const struct cuda_append *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(append_kernel, rows, a->heads + 2 * a->kv_heads, 1, 64, 0, stream, *a);
}

CUDA_KERNEL(append_latent_kernel, cuda_append_latent)
{
    uint32_t row = CUDA_BLOCK_X;
    const float *from = a.latent + (uint64_t)row * (a.latent_dim + a.rope_dim);
    if (a.rows.sequence[row] == CUDA_ROW_NONE)
        return;
    uint8_t *to = a.kv + row_offset(&a.rows, &a.pages, row, a.layer, 0, 0);
    float squares = 0.0f;
    for (uint32_t i = CUDA_THREAD; i < a.latent_dim; i += CUDA_THREADS)
        squares += from[i] * from[i];
    float scale = kernel_rms_scale(block_sum(squares), a.latent_dim);
    for (uint32_t i = CUDA_THREAD; i < a.latent_dim; i += CUDA_THREADS)
        kernel_page_store(&a.pages, to, i, from[i] * scale * a.gain[i]);
    uint32_t half = a.rope_dim / 2;
    const float *angle = a.rope + (uint64_t)a.rows.position[row] * half * 2;
    for (uint32_t i = CUDA_THREAD; i < half; i += CUDA_THREADS) {
        float first = from[a.latent_dim + i];
        float second = from[a.latent_dim + half + i];
        kernel_rope(&first, &second, angle[2 * i], angle[2 * i + 1]);
        kernel_page_store(&a.pages, to, a.latent_dim + i, first);
        kernel_page_store(&a.pages, to, a.latent_dim + half + i, second);
    }
}

void cuda_append_latent(const struct cuda_append_latent *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(append_latent_kernel, rows, 1, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(query_latent_kernel, cuda_query_latent)
{
    uint32_t row = CUDA_BLOCK_X;
    uint32_t head = CUDA_BLOCK_Y;
    uint64_t item = (uint64_t)row * a.heads + head;
    const float *from = a.q + item * (a.nope_dim + a.rope_dim);
    float *to = a.query + item * (a.latent_dim + a.rope_dim) + a.latent_dim;
    for (uint32_t i = CUDA_THREAD; i < a.nope_dim; i += CUDA_THREADS)
        a.nope[item * a.nope_dim + i] = kernel_bf16(from[i]);
    uint32_t half = a.rope_dim / 2;
    int padding = a.rows.sequence[row] == CUDA_ROW_NONE;
    const float *angle = a.rope + (padding ? 0 : (uint64_t)a.rows.position[row]) * half * 2;
    for (uint32_t i = CUDA_THREAD; i < half; i += CUDA_THREADS) {
        float first = from[a.nope_dim + i];
        float second = from[a.nope_dim + half + i];
        kernel_rope(&first, &second, angle[2 * i], angle[2 * i + 1]);
        to[i] = first;
        to[half + i] = second;
    }
}

void cuda_query_latent(const struct cuda_query_latent *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(query_latent_kernel, rows, a->heads, 1, 128, 0, stream, *a);
}

struct to_bf16 {
    const float *in;
    uint16_t *out;
    uint64_t n;
};

CUDA_KERNEL(to_bf16_kernel, to_bf16)
{
    uint64_t i = (uint64_t)CUDA_BLOCK_X * CUDA_THREADS + CUDA_THREAD;
    if (i < a.n)
        a.out[i] = kernel_bf16(a.in[i]);
}

void cuda_to_bf16(const float *in, uint16_t *out, uint64_t n, cudaStream_t stream)
{
    struct to_bf16 a;
    a.in = in;
    a.out = out;
    a.n = n;
    CUDA_LAUNCH(to_bf16_kernel, (uint32_t)((n + 255) / 256), 1, 1, 256, 0, stream, a);
}

CUDA_KERNEL(swiglu_kernel, cuda_swiglu)
{
    uint32_t row = CUDA_BLOCK_X;
    if (a.limit != NULL && row >= *a.limit)
        return;
    const float *gate = a.in + (uint64_t)row * 2 * a.n;
    for (uint32_t i = CUDA_THREAD; i < a.n; i += CUDA_THREADS)
        a.out[(uint64_t)row * a.n + i] = kernel_bf16(kernel_silu(gate[i]) * gate[a.n + i]);
}

void cuda_swiglu(const struct cuda_swiglu *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(swiglu_kernel, rows, 1, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(sample_kernel, cuda_sample)
{
    CUDA_SHARED float scores[8];
    CUDA_SHARED uint32_t ids[8];
    uint32_t row = CUDA_BLOCK_X;
    const float *logits = a.logits + (uint64_t)row * a.vocab;
    float best = logits[0];
    uint32_t id = 0;
    for (uint32_t i = CUDA_THREAD; i < a.vocab; i += CUDA_THREADS)
        if (kernel_better(logits[i], i, best, id)) {
            best = logits[i];
            id = i;
        }
    for (uint32_t mask = 16; mask > 0; mask >>= 1) {
        float other = cuda_shuffle_xor(best, mask);
        uint32_t other_id = cuda_shuffle_xor_u32(id, mask);
        if (kernel_better(other, other_id, best, id)) {
            best = other;
            id = other_id;
        }
    }
    if (CUDA_THREAD % 32 == 0) {
        scores[CUDA_THREAD / 32] = best;
        ids[CUDA_THREAD / 32] = id;
    }
    cuda_sync();
    if (CUDA_THREAD != 0)
        return;
    for (uint32_t warp = 1; warp < CUDA_THREADS / 32; warp++)
        if (kernel_better(scores[warp], ids[warp], best, id)) {
            best = scores[warp];
            id = ids[warp];
        }
    a.sampled[row] = id;
    if (a.advance && a.rows.sequence[row] != CUDA_ROW_NONE) {
        a.rows.token[row] = id;
        a.rows.position[row]++;
    }
}

void cuda_sample(const struct cuda_sample *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(sample_kernel, rows, 1, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(tick_kernel, cuda_tick)
{
    /* Kernels on the stream have ended, so what they stored is in device memory; the fence orders it before the counter
     * for whoever reads both, a NIC included. */
    cuda_fence_system();
    *(volatile uint64_t *)a.counter = *a.base + a.ticks;
    cuda_fence_system();
}

void cuda_tick(const struct cuda_tick *a, cudaStream_t stream)
{
    CUDA_LAUNCH(tick_kernel, 1, 1, 1, 1, 0, stream, *a);
}

struct add {
    float *x;
    const float *y;
    uint64_t n;
};

CUDA_KERNEL(add_kernel, add)
{
    uint64_t i = (uint64_t)CUDA_BLOCK_X * CUDA_THREADS + CUDA_THREAD;
    if (i < a.n)
        a.x[i] += a.y[i];
}

void cuda_add(float *x, const float *y, uint64_t n, cudaStream_t stream)
{
    struct add a;
    a.x = x;
    a.y = y;
    a.n = n;
    CUDA_LAUNCH(add_kernel, (uint32_t)((n + 255) / 256), 1, 1, 256, 0, stream, a);
}

CUDA_KERNEL(copy_kernel, cuda_copy)
{
    const struct cuda_piece *piece = &a.pieces[CUDA_BLOCK_X];
    const uint8_t *from = a.from + piece->source;
    uint8_t *to = a.to + piece->destination;
    uint64_t bytes = piece->bytes;
#ifndef CUDA_EMULATED
    if (((uintptr_t)from | (uintptr_t)to | bytes) % 16 == 0) {
        for (uint64_t i = CUDA_THREAD; i < bytes / 16; i += CUDA_THREADS)
            ((uint4 *)(void *)to)[i] = ((const uint4 *)(const void *)from)[i];
        return;
    }
#endif
    for (uint64_t i = CUDA_THREAD; i < bytes / 4; i += CUDA_THREADS)
        ((uint32_t *)(void *)to)[i] = ((const uint32_t *)(const void *)from)[i];
}

void cuda_copy(const struct cuda_copy *a, uint32_t pieces, cudaStream_t stream)
{
    CUDA_LAUNCH(copy_kernel, pieces, 1, 1, 256, 0, stream, *a);
}
