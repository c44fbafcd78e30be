/* clang-format off */
/* The model that every device computes, in one place; what a device may choose is the order of its sums alone.
 *
 *   x = embedding[token]
 *   for each layer:
 *     h = norm(x, NORM_ATTENTION)
 *     GQA: q = Q h, k = K h, v = V h; rope over the whole of each head of q and k; k to plane 0 and v to plane 1 of the
 *          cache; head a of q attends to KV head a / (heads / kv_heads); scores times 1 / sqrt(head_dim)
 *     MLA: q = Q norm(Q_LATENT h, NORM_Q_LATENT), or Q h where q_latent_dim is 0; a head of q is nope, then rope;
 *          [c, r] = KV_LATENT h; c = norm(c, NORM_KV_LATENT); rope over r and the rope part of every head of q;
 *          [c, r] to plane 0. Weight-absorbed: q' = K_UP^T q_nope; score = (q' . c + q_rope . r) / sqrt(nope + rope);
 *          the output of a head is V_UP (sum of weights * c)
 *     causal; in layers with a window (kernel_layer_window) only the last tokens
 *     x += O (outputs of all heads), summed over the ranks of the group; then the layer counter ticks
 *     h = norm(x, NORM_MLP)
 *     dense layer: x += DOWN (silu(GATE h) * (UP h))
 *     MoE layer: the experts_active best of ROUTER h (ties: lowest id), weighed by a softmax over the chosen;
 *          x += sum of weight * expert(h), in order of rank in that choice, + shared experts as one MLP
 *     both summed over the ranks of the group
 *   logits = LM_HEAD norm(x, NORM_FINAL); the token is the greatest, ties to the lowest id
 *
 * Weights are those of real/device/seeded.h, with the scales below, rounded to bf16 but for gains and the embedding as
 * a lookup; a norm is x / sqrt(mean of squares + 1e-5) * gain.
 *
 * Queries, keys, values and latents enter the attention as floats, from the cache as what the cache's format keeps:
 * also the step's own tokens are read back from the cache. Tensor-parallel rank t of T holds query heads [t heads / T,
 * (t + 1) heads / T), the KV heads that serve them (real/memory/kv_memory.h), columns of O, and the t-th of T equal
 * parts of
 * the intermediate elements of MLPs and experts. With expert parallelism over E ranks, a rank holds whole experts: the
 * e-th of E equal parts of their ids.
 */
/* clang-format on */
#ifndef TANDEM_REAL_DEVICE_KERNELS_MODEL_H
#define TANDEM_REAL_DEVICE_KERNELS_MODEL_H

#include <math.h>
#include <stdint.h>

/* A matrix of n inputs is uniform in [-s, s) with s = gain * sqrt(3 / n). Queries have a larger gain, which makes
 * attention prefer some positions; the residual stream starts small, so that what the layers add decides the next
 * token. */
#define MODEL_GAIN 1.0f
#define MODEL_GAIN_QUERY 3.0f
#define MODEL_GAIN_EMBEDDING 0.5f /* n = 1 */
#define MODEL_GAIN_EMBEDDING_TIED                                                                                      \
    1.0f /* n = hidden: where the LM head is the embedding, a token's logit for itself would grow */
#define MODEL_GAIN_TO_RESIDUAL 2.0f /* O and DOWN */

static inline float model_weight_scale(uint32_t inputs, float gain)
{
    return gain * sqrtf(3.0f / (float)inputs);
}

#define MODEL_ROPE_BASE 10000.0

/* Cosine and sine of each position and pair: table[(position * dim / 2 + pair) * 2 + {0, 1}]. In double, rounded
 * once. */
static inline void model_rope_table(float *table, uint32_t positions, uint32_t dim)
{
    for (uint32_t pair = 0; pair < dim / 2; pair++) {
        double frequency = pow(MODEL_ROPE_BASE, -2.0 * pair / dim);
        for (uint32_t position = 0; position < positions; position++) {
            double angle = position * frequency;
            uint64_t at = ((uint64_t)position * (dim / 2) + pair) * 2;
            table[at] = (float)cos(angle);
            table[at + 1] = (float)sin(angle);
        }
    }
}

#endif
