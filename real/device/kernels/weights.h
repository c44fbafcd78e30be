/* Weights from a seed. Every element is a function of (seed, layer, matrix, row, column) with global indices, so that a
 * rank computes its share without a file and without the rest. A matrix is [outputs = rows][inputs = columns]; elements
 * are uniform with variance 1 / inputs, so that a product keeps the size of its input, and they are bf16 values on
 * every device.
 */
#ifndef TANDEM_REAL_DEVICE_KERNELS_WEIGHTS_H
#define TANDEM_REAL_DEVICE_KERNELS_WEIGHTS_H

#include "real/device/kernels/kernel.h"

/* Append-only: the number is part of the seed. Dimensions as [rows][columns] of the unsharded matrix. */
enum weight_matrix {
    WEIGHT_EMBEDDING = 1,    /* [vocab][hidden], layer 0 */
    WEIGHT_LM_HEAD = 2,      /* [vocab][hidden], layer 0; the embedding where embeddings are tied */
    WEIGHT_Q = 3,            /* [heads * (head_dim | nope + rope)][hidden | q_latent] */
    WEIGHT_K = 4,            /* [kv_heads * head_dim][hidden] */
    WEIGHT_V = 5,            /* [kv_heads * head_dim][hidden] */
    WEIGHT_O = 6,            /* [hidden][heads * (head_dim | value_dim)] */
    WEIGHT_Q_LATENT = 7,     /* [q_latent][hidden] */
    WEIGHT_KV_LATENT = 8,    /* [latent + rope][hidden] */
    WEIGHT_K_UP = 9,         /* [heads * nope][latent] */
    WEIGHT_V_UP = 10,        /* [heads * value][latent] */
    WEIGHT_GATE = 11,        /* [intermediate][hidden] */
    WEIGHT_UP = 12,          /* [intermediate][hidden] */
    WEIGHT_DOWN = 13,        /* [hidden][intermediate] */
    WEIGHT_ROUTER = 14,      /* [experts][hidden] */
    WEIGHT_SHARED_GATE = 15, /* [shared_experts * expert_intermediate][hidden] */
    WEIGHT_SHARED_UP = 16,
    WEIGHT_SHARED_DOWN = 17, /* [hidden][shared_experts * expert_intermediate] */
    /* Gains of the norms, [1][n]: 1 plus a tenth of a weight in [-1, 1). */
    WEIGHT_NORM_ATTENTION = 18,
    WEIGHT_NORM_MLP = 19,
    WEIGHT_NORM_FINAL = 20, /* layer 0 */
    WEIGHT_NORM_Q_LATENT = 21,
    WEIGHT_NORM_KV_LATENT = 22, /* of the latent part alone */
    /* Experts: matrix = WEIGHT_EXPERT + 3 * expert + {0: gate, 1: up, 2: down}. */
    WEIGHT_EXPERT = 64,
};

KERNEL uint64_t kernel_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

KERNEL uint64_t kernel_weight_key(uint64_t seed, uint32_t layer, uint32_t matrix)
{
    return kernel_mix(kernel_mix(seed + 0x9e3779b97f4a7c15ull) ^ ((uint64_t)layer << 32 | matrix));
}

/* Uniform in [-1, 1), a multiple of 2^-23. `index` is row * columns + column. */
KERNEL float kernel_weight_unit(uint64_t key, uint64_t index)
{
    uint32_t bits = (uint32_t)(kernel_mix(key + (index + 1) * 0x9e3779b97f4a7c15ull) >> 40);
    return (float)((int32_t)bits - 0x800000) * 1.1920928955078125e-7f;
}

/* sqrt(3 / inputs): a uniform variate in [-a, a) has variance a^2 / 3. */
KERNEL float kernel_weight_scale(uint32_t inputs)
{
    return sqrtf(3.0f / (float)inputs);
}

/* Element `index` of a matrix, as bf16 bits. Embeddings take scale = kernel_weight_scale(1), hence unit variance. */
KERNEL uint16_t kernel_weight(uint64_t key, uint64_t index, float scale)
{
    return kernel_bf16(kernel_weight_unit(key, index) * scale);
}

KERNEL float kernel_weight_gain(uint64_t key, uint64_t index)
{
    return 1.0f + 0.1f * kernel_weight_unit(key, index);
}

#endif
