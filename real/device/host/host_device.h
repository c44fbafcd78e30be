/* The host device from inside: one rank's sequences, the step being computed, and its buffers.
 *
 * A step's rows are the new tokens of this rank's group: decode sequences first, then chunks. Every rank follows the
 * changes of all groups, so that all know how much each contributes to a collective without asking.
 */
#ifndef TANDEM_REAL_DEVICE_HOST_HOST_DEVICE_H
#define TANDEM_REAL_DEVICE_HOST_HOST_DEVICE_H

#include "real/device/host/weights.h"

struct host_sequence {
    bool live;
    bool decoding;
    uint16_t group;
    uint32_t request;
    uint64_t token_seed;
    uint32_t context;      /* tokens in the cache after the last step */
    uint32_t decode_index; /* in the list of decoding sequences */

    uint32_t *pages;
    uint32_t page_count;
    uint32_t page_capacity;

    /* The token that follows the context, where a step here has produced it. */
    bool sampled;
    uint32_t sampled_token;
    uint32_t sampled_position;

    /* Tokens that were produced elsewhere, at positions [given_first, given_first + given_count). */
    uint32_t *given;
    uint32_t given_first;
    uint32_t given_count;
    uint32_t given_capacity;

    float *tail; /* lead rank of the last stage: hidden state and logits after the last chunk; NULL before */
};

struct host_chunk {
    uint32_t sequence;
    uint32_t start;
    uint32_t tokens;
};

/* The rows of one sequence in this step: tokens [position, position + rows) of its request. */
struct host_span {
    uint32_t sequence;
    uint32_t position;
    uint32_t row_first;
    uint32_t rows;
    bool chunk;
    bool sample; /* its last row's logits are wanted */
};

struct host_batch {
    struct host_span *spans; /* of this rank's group; [sequences_max] */
    uint32_t span_count;
    uint32_t rows;
    uint32_t samples;
    uint32_t row_before; /* rows of the groups before this one */
    uint32_t rows_all;
    uint32_t *group_rows;    /* [data] */
    uint32_t *group_samples; /* [data] */
};

struct host_device {
    struct device_config config;
    struct architecture architecture;
    struct host_shape shape;
    struct host_weights weights;
    uint8_t *kv;
    void *kv_owned; /* where the device allocated it */

    struct host_sequence *sequences; /* [sequences_max] */
    uint32_t *decoding;              /* slots of all groups, in no particular order */
    uint32_t decoding_count;
    struct host_chunk *chunks; /* of the coming step, of all groups */
    uint32_t chunk_count;
    struct host_batch batch;

    /* Buffers of one step; rows are those of the batch. */
    float *x;            /* [rows][hidden]: the residual stream */
    float *normed;       /* [rows][hidden] */
    float *partial;      /* [rows][hidden]: this rank's share of a layer's sum, then the sum */
    float *q;            /* [rows][heads * query_dim] */
    float *kv_new;       /* [rows][2 * kv_heads * head_dim], or [rows][latent_dim + rope_dim] */
    float *o;            /* [rows][heads * value_dim] */
    float *latent;       /* MLA: [rows][max(q_latent_dim, latent_dim + rope_dim)] */
    float *sums;         /* MLA: [rows][latent_dim] */
    double *frequencies; /* [rotated dimensions / 2] */
    float *cosines;      /* [rows][rotated dimensions / 2] */
    float *sines;
    uint16_t *keys;   /* [request_tokens_max][cache_dim]: of the sequence at hand */
    uint16_t *values; /* GQA: likewise */
    float *scores;    /* [request_tokens_max] */
    float *gate;      /* [HOST_MLP_ROWS][widest share] */
    float *up;
    float *logits;      /* [HOST_LOGIT_ROWS][vocab_count] */
    float *normed_last; /* [HOST_LOGIT_ROWS][hidden] */
    float *pairs;       /* [sequences_max][2]: this rank's best logit and its token */
    float *pairs_all;   /* [ranks of the last stage][sequences_max][2] */
    float *rows_all;    /* [data * rows][hidden]: of all groups; with several groups or stages */
    struct host_moe *moe;
    size_t *counts; /* [ranks] */
};

#define HOST_MLP_ROWS 64
#define HOST_LOGIT_ROWS 8

/* batch.c: what a step computes. */
void host_change(struct host_device *device, const struct step_change *changes, uint32_t count);
void host_given(struct host_device *device, uint32_t sequence, uint32_t first, const uint32_t *tokens, uint32_t count);
void host_batch_build(struct host_device *device, bool prefill_tokens);
uint32_t host_input_token(const struct host_device *device, const struct host_sequence *sequence, uint32_t position);
/* Contexts move on and chunks are done. */
void host_batch_done(struct host_device *device);
void host_sequence_release(struct host_sequence *sequence);

/* attention.c: x += output projection of attention, reduced over the group. */
bool host_attention(struct host_device *device, uint32_t layer);

/* Where a head's cached vector of a position of a sequence lies. */
uint8_t *host_cache(const struct host_device *device, const struct host_sequence *sequence, uint32_t layer,
                    uint32_t plane, uint32_t kv_head, uint32_t position);

/* mlp.c: x += the layer's MLP. Every rank of the stage calls it, with rows or without. */
bool host_mlp_layer(struct host_device *device, uint32_t layer);

/* moe.c. Adds the routed experts' outputs for this group's `normed` rows to `partial`. */
bool host_moe(struct host_device *device, const struct host_layer *layer);
/* Of `rows` rows of x; y [rows][hidden] becomes this rank's share. */
void host_mlp_share(struct host_device *device, const struct host_mlp *mlp, const float *x, uint32_t rows, float *y);
struct host_moe *host_moe_make(const struct host_device *device);
void host_moe_free(struct host_moe *moe);

/* sample.c: logits, tokens, tails. */
bool host_sample(struct host_device *device, bool prefill_tokens, struct device_token *tokens, uint32_t *token_count);
void host_tail_store(struct host_device *device, uint32_t sequence, uint32_t slot);

#endif
