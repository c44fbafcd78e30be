/* The host device from inside: one rank's sequences, the step being computed, and its buffers.
 *
 * A step's rows are the new tokens of this rank's group: decode sequences first, then chunks. Every rank follows the
 * changes of all groups, so that all know how much each contributes to a collective without asking.
 */
#ifndef TANDEM_REAL_DEVICE_HOST_HOST_DEVICE_H
#define TANDEM_REAL_DEVICE_HOST_HOST_DEVICE_H

#include "real/device/host/weights.h"
#include "real/device/slots.h"

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

/* What the last stage has sampled in the newest step of a microbatch, which other stages read before they go on with
 * it: whose tokens those will be, in their order. */
struct host_awaited {
    struct device_token *items; /* [sequences_max]; tokens are not known yet */
    uint32_t count;             /* 0: none are awaited */
    uint32_t posts;             /* of the microbatch's board so far */
};

struct host_device {
    struct device_config config;
    struct architecture architecture;
    struct host_shape shape;
    struct host_weights weights;
    uint8_t *kv;
    void *kv_owned; /* where the device allocated it */

    struct slots slots; /* of all groups */
    float **tails;      /* [sequences_max]: lead rank of the last stage: hidden state and logits after a sequence's last
                           chunk; NULL before */
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
    size_t *counts;                          /* [ranks] */
    struct host_awaited awaited[STAGES_MAX]; /* by microbatch */
    uint32_t *words;                         /* [sequences_max] */
};

#define HOST_MLP_ROWS 64
#define HOST_LOGIT_ROWS 8

/* batch.c: what a step computes. */
void host_batch_build(struct host_device *device, bool prefill_tokens);

/* attention.c: x += output projection of attention, reduced over the group. */
bool host_attention(struct host_device *device, uint32_t layer);

/* Where a head's cached vector of a position of a sequence lies. */
uint8_t *host_cache(const struct host_device *device, const struct slot *sequence, uint32_t layer, uint32_t plane,
                    uint32_t kv_head, uint32_t position);

/* mlp.c: x += the layer's MLP. Every rank of the stage calls it, with rows or without. */
bool host_mlp_layer(struct host_device *device, uint32_t layer);

/* moe.c. Adds the routed experts' outputs for this group's `normed` rows to `partial`. */
bool host_moe(struct host_device *device, const struct host_layer *layer);
/* Of `rows` rows of x; y [rows][hidden] becomes this rank's share. */
void host_mlp_share(struct host_device *device, const struct host_mlp *mlp, const float *x, uint32_t rows, float *y);
uint64_t host_moe_bytes(const struct host_device *device); /* that host_moe_make() takes */
struct host_moe *host_moe_make(const struct host_device *device);
void host_moe_free(struct host_moe *moe);

/* sample.c: logits, tokens, tails. */
bool host_sample(struct host_device *device, bool prefill_tokens, struct device_token *tokens, uint32_t *token_count);
/* What has been sampled in steps before: of all microbatches that is there, and of the one at hand, for which it
 * waits. */
bool host_take_sampled(struct host_device *device);
void host_tail_store(struct host_device *device, uint32_t sequence, uint32_t slot);

#endif
