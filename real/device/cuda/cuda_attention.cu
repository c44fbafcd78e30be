/* Attention over the paged cache, for prefill and decode, grouped-query and latent: one kernel.
 *
 * A block takes up to 16 query items (pairs of row and head) that read the same KV head of the same sequence: in decode
 * the query heads of one row, in prefill also several rows. It walks its share of the context in tiles of 32 tokens:
 * the tile goes to shared memory as floats, each warp computes the scores of two items, the softmax goes on from the
 * tiles before, and the value accumulators stay in registers. What several blocks made of one context is merged by a
 * second kernel, in order.
 */
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/cuda/cuda_launch.h"
#include "real/device/kernels/softmax.h"

#define ITEMS CUDA_ATTENTION_ITEMS
#define TILE 32u
#define THREADS 256u
#define WARPS (THREADS / 32u)
#define VALUES_A_THREAD (CUDA_ATTENTION_VALUE_MAX / THREADS)

/* One item of a block. */
struct item {
    float greatest;
    float sum;
    float factor; /* of the accumulators, by the latest tile */
    uint32_t row;
    uint32_t head;
    uint32_t first; /* tokens [first, end) are seen */
    uint32_t end;
};

struct tile_memory {
    float *query;  /* [ITEMS][key_dim] */
    float *key;    /* [TILE][key_dim + 1] */
    float *value;  /* [TILE][value_stride] */
    float *weight; /* [ITEMS][TILE] */
    struct item *item;
    uint32_t value_stride;
};

CUDA_DEVICE struct tile_memory divide(float *shared, const struct cuda_attention *a)
{
    struct tile_memory m;
    m.item = (struct item *)(void *)shared;
    m.weight = shared + ITEMS * sizeof(struct item) / sizeof(float);
    m.query = m.weight + ITEMS * TILE;
    m.key = m.query + ITEMS * a->key_dim;
    m.value = a->value_plane > 0 ? m.key + TILE * (a->key_dim + 1) : m.key;
    m.value_stride = a->value_plane > 0 ? a->value_dim : a->key_dim + 1;
    return m;
}

uint32_t cuda_attention_shared_bytes(const struct cuda_attention *a)
{
    uint32_t floats = ITEMS * (uint32_t)(sizeof(struct item) / sizeof(float)) + ITEMS * TILE + ITEMS * a->key_dim +
                      TILE * (a->key_dim + 1) + (a->value_plane > 0 ? TILE * a->value_dim : 0);
    return floats * (uint32_t)sizeof(float);
}

/* The items of this block and their queries. Returns their number. */
CUDA_DEVICE uint32_t load_items(const struct cuda_attention *a, const struct tile_memory *m)
{
    uint32_t block_heads = cuda_attention_block_heads(a->heads, a->kv_heads);
    uint32_t head_first = CUDA_BLOCK_Y * block_heads; /* block_heads divides the heads of a KV head */
    uint32_t items = a->tile_rows[CUDA_BLOCK_X] * block_heads;
    for (uint32_t i = CUDA_THREAD; i < items; i += THREADS) {
        struct item *item = &m->item[i];
        item->greatest = KERNEL_SCORE_NONE;
        item->sum = 0.0f;
        item->factor = 1.0f;
        item->row = a->tile_row[CUDA_BLOCK_X] + i / block_heads;
        item->head = head_first + i % block_heads;
        uint32_t position = a->rows.position[item->row];
        item->first = kernel_attention_first(position, a->window);
        item->end = position + 1;
    }
    cuda_sync();
    for (uint32_t i = CUDA_THREAD; i < items * a->key_dim; i += THREADS) {
        const struct item *item = &m->item[i / a->key_dim];
        const float *query = a->query + item->row * a->query_stride + (uint64_t)item->head * a->key_dim;
        m->query[i] = query[i % a->key_dim] * a->scale;
    }
    cuda_sync();
    return items;
}

/* Tokens [start, start + TILE) to shared memory; those from `end` on are left as they are, and masked later. */
CUDA_DEVICE void load_tile(const struct cuda_attention *a, const struct tile_memory *m, uint32_t sequence,
                           uint32_t start, uint32_t end)
{
    uint32_t kv_head = CUDA_BLOCK_Y * cuda_attention_block_heads(a->heads, a->kv_heads) / (a->heads / a->kv_heads);
    uint32_t lane = CUDA_THREAD % 32;
    const uint32_t *table = a->rows.page_table + (uint64_t)sequence * a->rows.pages_max;
    for (uint32_t t = CUDA_THREAD / 32; t < TILE; t += WARPS) {
        uint32_t token = start + t;
        if (token >= end)
            continue;
        uint32_t page = table[token / a->pages.page_tokens];
        uint32_t slot = token % a->pages.page_tokens;
        for (uint32_t plane = 0; plane <= a->value_plane; plane++) {
            const uint8_t *from = a->kv + kernel_page_offset(&a->pages, a->layer, plane, page, kv_head, slot);
            float *to = plane > 0 ? m->value + t * m->value_stride : m->key + t * (a->key_dim + 1);
            uint32_t n = plane > 0 ? a->value_dim : a->key_dim;
            if (a->pages.element_bytes == 2 && n % 2 == 0) {
                for (uint32_t i = lane; i < n / 2; i += 32) {
                    uint32_t pair = ((const uint32_t *)(const void *)from)[i];
                    to[2 * i] = kernel_bits_float(pair << 16);
                    to[2 * i + 1] = kernel_bits_float(pair & 0xffff0000u);
                }
            } else {
                for (uint32_t i = lane; i < n; i += 32)
                    to[i] = kernel_page_load(&a->pages, from, i);
            }
        }
    }
}

/* Scores of a tile and the softmax up to it: a warp takes item after item, a lane one token. */
CUDA_DEVICE void weigh_tile(const struct cuda_attention *a, const struct tile_memory *m, uint32_t items, uint32_t start,
                            uint32_t end)
{
    uint32_t lane = CUDA_THREAD % 32;
    const float *key = m->key + lane * (a->key_dim + 1);
    for (uint32_t i = CUDA_THREAD / 32; i < items; i += WARPS) {
        struct item *item = &m->item[i];
        uint32_t token = start + lane;
        int seen = token >= item->first && token < item->end && token < end;
        float score = KERNEL_SCORE_NONE;
        if (seen) {
            const float *query = m->query + i * a->key_dim;
            score = 0.0f;
            for (uint32_t d = 0; d < a->key_dim; d++)
                score = cuda_fma(query[d], key[d], score);
        }
        float greatest = score;
        for (uint32_t mask = 16; mask > 0; mask >>= 1) {
            float other = cuda_shuffle_xor(greatest, mask);
            greatest = other > greatest ? other : greatest;
        }
        float before = item->greatest;
        greatest = before > greatest ? before : greatest;
        float weight = seen ? kernel_exp(score - greatest) : 0.0f;
        m->weight[i * TILE + lane] = weight;
        for (uint32_t mask = 16; mask > 0; mask >>= 1)
            weight += cuda_shuffle_xor(weight, mask);
        if (lane == 0) {
            item->factor = kernel_exp(before - greatest);
            item->greatest = greatest;
            item->sum = item->sum * item->factor + weight;
        }
    }
}

/* Which accumulators a thread holds: value elements d and d + 256 of every `groups`-th item. */
struct accumulators {
    float value[VALUES_A_THREAD][ITEMS];
    uint32_t d;
    uint32_t group;
    uint32_t groups;
    int idle;
};

CUDA_DEVICE void accumulate_tile(const struct cuda_attention *a, const struct tile_memory *m, struct accumulators *acc,
                                 uint32_t items, uint32_t tokens)
{
    if (acc->idle)
        return;
    CUDA_UNROLL
    for (uint32_t v = 0; v < VALUES_A_THREAD; v++) {
        uint32_t d = acc->d + v * THREADS;
        if (d >= a->value_dim)
            continue;
        CUDA_UNROLL
        for (uint32_t q = 0; q < ITEMS; q++) {
            uint32_t i = acc->group + q * acc->groups;
            if (i < items)
                acc->value[v][q] *= m->item[i].factor;
        }
        for (uint32_t t = 0; t < tokens; t++) {
            float value = m->value[t * m->value_stride + d];
            CUDA_UNROLL
            for (uint32_t q = 0; q < ITEMS; q++) {
                uint32_t i = acc->group + q * acc->groups;
                if (i < items)
                    acc->value[v][q] = cuda_fma(m->weight[i * TILE + t], value, acc->value[v][q]);
            }
        }
    }
}

CUDA_DEVICE void store_items(const struct cuda_attention *a, const struct tile_memory *m,
                             const struct accumulators *acc, uint32_t items)
{
    CUDA_UNROLL
    for (uint32_t v = 0; v < VALUES_A_THREAD; v++) {
        uint32_t d = acc->d + v * THREADS;
        if (acc->idle || d >= a->value_dim)
            continue;
        CUDA_UNROLL
        for (uint32_t q = 0; q < ITEMS; q++) {
            uint32_t i = acc->group + q * acc->groups;
            if (i >= items)
                continue;
            const struct item *item = &m->item[i];
            uint64_t place = (uint64_t)item->row * a->heads + item->head;
            if (a->splits == 1)
                a->out[place * a->value_dim + d] = kernel_bf16(acc->value[v][q] / item->sum);
            else
                a->part[(place * a->splits + CUDA_BLOCK_Z) * a->value_dim + d] = acc->value[v][q];
        }
    }
    if (a->splits == 1)
        return;
    for (uint32_t i = CUDA_THREAD; i < items; i += THREADS) {
        const struct item *item = &m->item[i];
        uint64_t place = ((uint64_t)item->row * a->heads + item->head) * a->splits + CUDA_BLOCK_Z;
        a->part_state[place * 2] = item->greatest;
        a->part_state[place * 2 + 1] = item->sum;
    }
}

CUDA_KERNEL(attention_kernel, cuda_attention)
{
    CUDA_DYNAMIC_SHARED(shared);
    uint32_t row = a.tile_row[CUDA_BLOCK_X];
    uint32_t sequence = a.rows.sequence[row];
    if (sequence == CUDA_ROW_NONE)
        return;
    struct tile_memory m = divide(shared, &a);
    uint32_t items = load_items(&a, &m);

    /* The rows of a tile have ascending positions: the first sees the earliest token, the last the latest. */
    uint32_t first = m.item[0].first;
    uint32_t end = m.item[items - 1].end;
    uint32_t share = ((end - first + a.splits - 1) / a.splits + TILE - 1) / TILE * TILE;
    uint32_t from = first + CUDA_BLOCK_Z * share;
    uint32_t to = from + share < end ? from + share : end;

    struct accumulators acc;
    uint32_t width = a.value_dim < THREADS ? a.value_dim : THREADS;
    acc.d = CUDA_THREAD % width;
    acc.group = CUDA_THREAD / width;
    acc.groups = THREADS / width;
    acc.idle = acc.group >= acc.groups;
    CUDA_UNROLL
    for (uint32_t v = 0; v < VALUES_A_THREAD; v++) {
        CUDA_UNROLL
        for (uint32_t q = 0; q < ITEMS; q++)
            acc.value[v][q] = 0.0f;
    }
    for (uint32_t start = from; start < to; start += TILE) {
        load_tile(&a, &m, sequence, start, to);
        cuda_sync();
        weigh_tile(&a, &m, items, start, to);
        cuda_sync();
        accumulate_tile(&a, &m, &acc, items, to - start < TILE ? to - start : TILE);
        cuda_sync();
    }
    store_items(&a, &m, &acc, items);
}

CUDA_KERNEL(merge_kernel, cuda_attention)
{
    uint32_t row = CUDA_BLOCK_X;
    uint64_t place = (uint64_t)row * a.heads + CUDA_BLOCK_Y;
    if (a.rows.sequence[row] == CUDA_ROW_NONE)
        return;
    for (uint32_t d = CUDA_THREAD; d < a.value_dim; d += CUDA_THREADS) {
        struct kernel_softmax all = kernel_softmax_empty();
        float value = 0.0f;
        for (uint32_t split = 0; split < a.splits; split++) {
            struct kernel_softmax part;
            float keep, add;
            part.greatest = a.part_state[(place * a.splits + split) * 2];
            part.sum = a.part_state[(place * a.splits + split) * 2 + 1];
            all = kernel_softmax_merge(all, part, &keep, &add);
            value = value * keep + a.part[(place * a.splits + split) * a.value_dim + d] * add;
        }
        a.out[place * a.value_dim + d] = kernel_bf16(value / all.sum);
    }
}

cudaError_t cuda_attention_prepare(const struct cuda_attention *a)
{
    return CUDA_SHARED_LIMIT(attention_kernel, cuda_attention_shared_bytes(a));
}

void cuda_attention(const struct cuda_attention *a, uint32_t tiles, uint32_t rows, cudaStream_t stream)
{
    uint32_t blocks = a->heads / cuda_attention_block_heads(a->heads, a->kv_heads);
    CUDA_LAUNCH(attention_kernel, tiles, blocks, a->splits, THREADS, cuda_attention_shared_bytes(a), stream, *a);
    if (a->splits > 1)
        CUDA_LAUNCH(merge_kernel, rows, a->heads, 1, 128, 0, stream, *a);
}
