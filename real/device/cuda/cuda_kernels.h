/* Launchers of the kernels, callable from C. All work is queued on `stream`; pointers are to device memory. Rows are
 * the new tokens of a step; row arrays of a batch bucket are padded with rows whose sequence is CUDA_ROW_NONE, which
 * touch no cache and produce zeros or values that nobody reads.
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_KERNELS_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_KERNELS_H

#include "real/device/kernels/page.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_ROW_NONE UINT32_MAX

/* Query items (pairs of row and head) of one block of the attention kernel, and the widest head it takes. */
#define CUDA_ATTENTION_ITEMS 16u
#define CUDA_ATTENTION_VALUE_MAX 512u
#define CUDA_ATTENTION_SPLITS_MAX 32u

/* The rows of a step. */
struct cuda_rows {
    uint32_t *token;
    uint32_t *position;
    uint32_t *sequence;
    const uint32_t *page_table; /* [sequence][pages_max] */
    uint32_t pages_max;
};

/* Fills rows x columns of a seeded matrix (real/device/seeded.h) from (row_first, column_first) on. With `block` the
 * part is [rows / block][columns][block]: blocks of rows transposed, as the absorbed K_UP wants them. */
struct cuda_fill {
    uint16_t *out; /* bf16; NULL for a gain */
    float *gain;
    uint64_t matrix;
    uint32_t rows;
    uint32_t columns;
    uint32_t row_first;
    uint32_t column_first;
    uint32_t block;
    float scale;
};
void cuda_fill(const struct cuda_fill *a, cudaStream_t stream);

/* The embedding is not kept but computed. */
struct cuda_embed {
    struct cuda_rows rows;
    float *x; /* [rows][hidden] */
    uint64_t matrix;
    uint32_t hidden;
    float scale;
};
void cuda_embed(const struct cuda_embed *a, uint32_t rows, cudaStream_t stream);

/* x += add (where add is not NULL, written back), then out = x * scale * gain in bf16. `select`: row of x for each row
 * of out, NULL for all; with a selection x is not written. */
struct cuda_norm {
    float *x;
    const float *add;
    const float *gain;
    const uint32_t *select;
    uint16_t *out;
    float *sum; /* [rows][n]: x + add, before the norm; NULL: not wanted */
    uint32_t n;
    uint32_t x_stride;
};
void cuda_norm(const struct cuda_norm *a, uint32_t rows, cudaStream_t stream);

/* GQA: qkv is [row][heads + 2 kv_heads][head_dim]; rotates q in place, k and v go to the cache. */
struct cuda_append {
    struct cuda_rows rows;
    float *qkv;
    const float *rope; /* model_rope_table() */
    uint8_t *kv;
    struct kernel_pages pages;
    uint32_t layer;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
};
void cuda_append(const struct cuda_append *a, uint32_t rows, cudaStream_t stream);

/* MLA: latent is [row][latent_dim + rope_dim]; norms, rotates, stores. */
struct cuda_append_latent {
    struct cuda_rows rows;
    const float *latent;
    const float *gain;
    const float *rope;
    uint8_t *kv;
    struct kernel_pages pages;
    uint32_t layer;
    uint32_t latent_dim;
    uint32_t rope_dim;
};
void cuda_append_latent(const struct cuda_append_latent *a, uint32_t rows, cudaStream_t stream);

/* MLA: q is [row][head][nope + rope]. The nope part goes to `nope` in bf16, the rotated rope part behind the place of
 * the absorbed query: query is [row][head][latent + rope]. */
struct cuda_query_latent {
    struct cuda_rows rows;
    const float *q;
    const float *rope;
    uint16_t *nope;
    float *query;
    uint32_t heads;
    uint32_t nope_dim;
    uint32_t rope_dim;
    uint32_t latent_dim;
};
void cuda_query_latent(const struct cuda_query_latent *a, uint32_t rows, cudaStream_t stream);

/* Paged attention. A tile is `tile_rows` consecutive rows of one sequence from `tile_row` on, at most
 * CUDA_ATTENTION_ITEMS / (query heads of a block) of them. query: row * query_stride + head * key_dim. out: bf16
 * [row][head][value_dim]. With splits > 1 the context is dealt to that many blocks, whose parts are merged in order. */
struct cuda_attention {
    struct cuda_rows rows;
    const uint32_t *tile_row;
    const uint32_t *tile_rows;
    const float *query;
    const uint8_t *kv;
    struct kernel_pages pages;
    uint16_t *out;
    float *part;       /* [row][head][split][value_dim] */
    float *part_state; /* [row][head][split][2]: greatest, sum */
    uint64_t query_stride;
    uint32_t layer;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t key_dim;
    uint32_t value_dim;
    uint32_t value_plane; /* 1: plane 1; 0: the first value_dim elements of the key, already loaded */
    uint32_t window;
    uint32_t splits;
    float scale;
};
/* Query heads of a block: the most that divide those of a KV head. A tile may hold CUDA_ATTENTION_ITEMS / this rows. */
KERNEL uint32_t cuda_attention_block_heads(uint32_t heads, uint32_t kv_heads)
{
    uint32_t of_kv_head = heads / kv_heads;
    uint32_t block = of_kv_head < CUDA_ATTENTION_ITEMS ? of_kv_head : CUDA_ATTENTION_ITEMS;
    while (of_kv_head % block != 0)
        block--;
    return block;
}
uint32_t cuda_attention_shared_bytes(const struct cuda_attention *a);
/* Once, before the first launch with such dimensions: allows as much shared memory. */
cudaError_t cuda_attention_prepare(const struct cuda_attention *a);
void cuda_attention(const struct cuda_attention *a, uint32_t tiles, uint32_t rows, cudaStream_t stream);

/* out = bf16(in). */
void cuda_to_bf16(const float *in, uint16_t *out, uint64_t n, cudaStream_t stream);

/* in is [row][gate n, up n]; out = silu(gate) * up in bf16. `limit`: rows at most, in device memory; NULL: all. */
struct cuda_swiglu {
    const float *in;
    uint16_t *out;
    const uint32_t *limit;
    uint32_t n;
};
void cuda_swiglu(const struct cuda_swiglu *a, uint32_t rows, cudaStream_t stream);

/* The greatest logit of each row, ties to the lowest id. With `advance` the row's token and position move on. */
struct cuda_sample {
    struct cuda_rows rows;
    const float *logits;
    uint32_t *sampled;
    uint32_t vocab;
    uint32_t advance;
};
void cuda_sample(const struct cuda_sample *a, uint32_t rows, cudaStream_t stream);

/* *counter = *base + ticks, visible to the host before anything later on the stream. */
struct cuda_tick {
    uint64_t *counter; /* mapped host memory */
    const uint64_t *base;
    uint64_t ticks;
};
void cuda_tick(const struct cuda_tick *a, cudaStream_t stream);

/* x += y. */
void cuda_add(float *x, const float *y, uint64_t n, cudaStream_t stream);

/* ---- Sums over ranks (cuda_reduce.cu) ---------------------------------------------------------------------------- */

/* The all-reduce of ranks that reach each other's memory, in one kernel: every rank stores its values in its own
 * buffer, raises a flag in each of the others', waits for theirs, and adds up all buffers, in the order of the host's
 * collective (kernels/bisect.h). Results depend neither on who came first nor on the rank.
 *
 * Blocks go by themselves: block b waits for the blocks b of the other ranks alone, so that nobody needs to have all of
 * its blocks running; their number is the same in every call. There are two buffers, used in turn: a rank that stores
 * into the first again has seen flags of the call between, which every rank raises after it has ended the call before
 * that, and read what it was to read. */
#define CUDA_PEERS_MAX 8u /* a power of two */
#define CUDA_PEER_BLOCKS 32u

/* A rank's memory as its peers see it: flags, then the two buffers. */
#define CUDA_PEER_FLAGS_BYTES (CUDA_PEER_BLOCKS * CUDA_PEERS_MAX * sizeof(uint32_t))

struct cuda_all_reduce {
    uint8_t *memory[CUDA_PEERS_MAX]; /* of each rank, CUDA_PEER_FLAGS_BYTES and two buffers long */
    uint32_t *sequence;              /* [CUDA_PEER_BLOCKS], on this device: calls so far */
    float *values;                   /* summed in place */
    const uint8_t *abandon;          /* mapped; not 0: wait for nobody. NULL: never */
    uint64_t capacity;               /* floats of a buffer */
    uint64_t n;                      /* at most that */
    uint32_t rank;                   /* within the group */
    uint32_t ranks;                  /* a power of two */
};
void cuda_all_reduce(const struct cuda_all_reduce *a, cudaStream_t stream);

/* Copies pieces between two regions, either of which may be mapped host memory. Offsets and sizes in bytes, multiples
 * of 4. */
struct cuda_piece {
    uint64_t source;
    uint64_t destination;
    uint64_t bytes;
};
struct cuda_copy {
    const uint8_t *from;
    uint8_t *to;
    const struct cuda_piece *pieces;
};
void cuda_copy(const struct cuda_copy *a, uint32_t pieces, cudaStream_t stream);

/* ---- Mixture of experts (cuda_experts.cu) ------------------------------------------------------------------------ */

/* Experts of each row: choice[row][k], best first, and their weights. Rows of padding choose CUDA_ROW_NONE. */
struct cuda_route {
    struct cuda_rows rows;
    const float *logits; /* [row][experts] */
    uint32_t *choice;
    float *weight;
    uint32_t experts;
    uint32_t active;
};
void cuda_route(const struct cuda_route *a, uint32_t rows, cudaStream_t stream);

/* Sorts the pairs (row, choice) by local expert, in order of rows: slots [first[e], first[e + 1]) belong to expert e.
 * slot_row: row of a slot. pair_slot[row][k]: its slot, CUDA_ROW_NONE where the expert is not here. */
struct cuda_place {
    const uint32_t *choice;
    uint32_t *count; /* [experts] */
    uint32_t *first; /* [experts + 1] */
    uint32_t *slot_row;
    uint32_t *pair_slot;
    uint32_t pairs;
    uint32_t expert_first;
    uint32_t experts; /* local */
    uint32_t active;
};
void cuda_place(const struct cuda_place *a, cudaStream_t stream);

struct cuda_gather {
    const uint16_t *in; /* [row][n] */
    uint16_t *out;      /* [slot][n] */
    const uint32_t *slot_row;
    const uint32_t *limit;
    uint32_t n;
};
void cuda_gather(const struct cuda_gather *a, uint32_t slots, cudaStream_t stream);

/* out[slot][outputs] = weights of the slot's expert [outputs][inputs] times in[slot][inputs]; sizes are read on the
 * device, so that it can be in a graph. Reads each expert's weights once for every 8 slots: for decode. inputs must be
 * even. */
struct cuda_expert_product {
    const uint16_t *weights; /* [expert][outputs][inputs] */
    const uint16_t *in;
    const uint32_t *first;
    float *out;
    uint32_t outputs;
    uint32_t inputs;
};
void cuda_expert_product(const struct cuda_expert_product *a, uint32_t experts, cudaStream_t stream);

/* y[row] += sum over choices, best first, of weight * in[slot]. */
struct cuda_combine {
    const float *in;
    const uint32_t *pair_slot;
    const float *weight;
    float *y;
    uint32_t n;
    uint32_t active;
};
void cuda_combine(const struct cuda_combine *a, uint32_t rows, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
