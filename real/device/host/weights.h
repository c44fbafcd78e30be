/* One rank's share of the seeded model, dense bf16 matrices of [outputs][inputs] and f32 gains. */
#ifndef TANDEM_REAL_DEVICE_HOST_WEIGHTS_H
#define TANDEM_REAL_DEVICE_HOST_WEIGHTS_H

#include "real/device/host/shape.h"

/* SwiGLU: down(silu(gate(x)) * up(x)), over this rank's units. */
struct host_mlp {
    uint32_t units;
    uint32_t width;
    uint16_t *gate; /* [units * width][hidden] */
    uint16_t *up;
    uint16_t *down; /* [hidden][units * width] */
};

struct host_layer {
    float *norm_attention; /* [hidden] */
    float *norm_mlp;
    uint16_t *q; /* [heads * query_dim][hidden, or the q latent] */
    uint16_t *o; /* [hidden][heads * value_dim] */

    uint16_t *k; /* GQA: [kv_heads * head_dim][hidden] */
    uint16_t *v;

    uint16_t *q_latent; /* MLA, where queries are compressed: [q_latent_dim][hidden] */
    float *norm_q_latent;
    uint16_t *kv_latent; /* MLA: [latent_dim + rope_dim][hidden] */
    float *norm_kv_latent;
    uint16_t *absorb_k; /* MLA: a head's [latent_dim][nope_dim], heads one after another: queries into latent space */
    uint16_t *absorb_v; /* MLA: a head's [value_dim][latent_dim]: latent sums into values */

    struct host_mlp dense; /* units == 0: none */
    struct host_mlp shared;
    uint16_t *router;         /* [experts][hidden] */
    struct host_mlp *experts; /* [expert_count], those of this rank */
};

struct host_weights {
    uint64_t seed;
    float embedding_scale;
    struct host_layer *layers; /* of this stage */
    uint32_t layer_count;
    float *norm_final; /* last stage */
    uint16_t *lm_head; /* last stage: [vocab_count][hidden] */
    void *memory;      /* all of the above */
};

/* Bytes of a rank's weights. */
uint64_t host_weights_bytes(const struct architecture *architecture, const struct host_shape *shape);

/* False when there is no memory. */
bool host_weights_make(struct host_weights *weights, const struct architecture *architecture,
                       const struct host_shape *shape, uint64_t seed);
void host_weights_free(struct host_weights *weights);

/* The embedding of a token is not kept but computed when it is wanted. */
void host_embedding(const struct host_weights *weights, const struct architecture *architecture, uint32_t token,
                    float *row);

#endif
