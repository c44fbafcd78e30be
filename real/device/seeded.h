/* The seeded model: weights and prompt tokens as functions of their seeds, the same for every device.
 *
 * Element (row, column) of a matrix is a hash of (weight seed, matrix, row, column), uniform in [-scale, scale): exact
 * but for one rounding of a product, so that it is the same number on a CPU and a GPU. Rows are outputs, columns
 * inputs, both counted over the whole matrix whoever holds a part of it.
 */
#ifndef TANDEM_REAL_DEVICE_SEEDED_H
#define TANDEM_REAL_DEVICE_SEEDED_H

#include <stdint.h>

#ifdef __CUDACC__
#define SEEDED static __host__ __device__ inline
#else
#define SEEDED static inline
#endif

/* What a matrix is for. Part of the hash: append-only. */
enum seeded_kind {
    SEEDED_EMBEDDING = 1, /* vocab x hidden; the LM head too where embeddings are tied */
    SEEDED_LM_HEAD = 2,   /* vocab x hidden */
    SEEDED_NORM_FINAL = 3,
    SEEDED_NORM_ATTENTION = 4,
    SEEDED_NORM_MLP = 5,
    SEEDED_Q = 6, /* heads * head x hidden; MLA: head = nope + rope, columns are the q latent where there is one */
    SEEDED_K = 7, /* kv_heads * head_dim x hidden */
    SEEDED_V = 8,
    SEEDED_O = 9,         /* hidden x heads * head_dim; MLA: x heads * value_dim */
    SEEDED_Q_LATENT = 10, /* q_latent_dim x hidden */
    SEEDED_NORM_Q_LATENT = 11,
    SEEDED_KV_LATENT = 12, /* latent_dim + rope_dim x hidden */
    SEEDED_NORM_KV_LATENT = 13,
    SEEDED_KV_UP_K = 14, /* heads * nope_dim x latent_dim */
    SEEDED_KV_UP_V = 15, /* heads * value_dim x latent_dim */
    SEEDED_GATE = 16,    /* intermediate x hidden; of a dense MLP, or of routed expert `expert` */
    SEEDED_UP = 17,
    SEEDED_DOWN = 18, /* hidden x intermediate */
    SEEDED_SHARED_GATE = 19,
    SEEDED_SHARED_UP = 20,
    SEEDED_SHARED_DOWN = 21,
    SEEDED_ROUTER = 22, /* experts x hidden */
};

/* The finalizer of splitmix64 (Steele, Lea and Flood, 2014). */
SEEDED uint64_t seeded_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

SEEDED uint64_t seeded_matrix(uint64_t weight_seed, uint32_t kind, uint32_t layer, uint32_t expert)
{
    return seeded_mix(seeded_mix(weight_seed ^ kind) ^ ((uint64_t)layer << 32 | expert));
}

SEEDED float seeded_weight(uint64_t matrix, uint32_t row, uint32_t column, float scale)
{
    uint64_t bits = seeded_mix(matrix ^ ((uint64_t)row << 32 | column)) >> 40;
    return (float)((int32_t)bits - (1 << 23)) * (1.0f / (1 << 23)) * scale;
}

/* Gain of a norm: around 1. */
SEEDED float seeded_gain(uint64_t matrix, uint32_t column)
{
    return 1.0f + seeded_weight(matrix, 0, column, 0.25f);
}

SEEDED uint32_t seeded_prompt_token(uint64_t token_seed, uint32_t position, uint32_t vocab)
{
    return (uint32_t)(((seeded_mix(token_seed + seeded_mix(position)) >> 32) * vocab) >> 32);
}

#endif
