/* The CUDA device from inside: one rank's share of the model, its sequences, the rows of a step, and the buffers in
 * between.
 *
 * Everything is queued on one stream. A step without chunks is a graph, captured once for each number of rows (a power
 * of two): its row arrays stay on the device, where sampling moves tokens and positions on, so that an unchanged batch
 * uploads nothing but the base of the layer counter.
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_INTERNAL_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_INTERNAL_H

#include "real/device/cuda/cuda_blas.h"
#include "real/device/cuda/cuda_device.h"
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/cuda/cuda_memory.h"
#include "real/device/slots.h"
#include "host/user_error.h"

/* Batch buckets are powers of two up to 2^(CUDA_BUCKETS - 1) rows. */
#define CUDA_BUCKETS 14

/* Blocks of attention that fill the GPU several times over: contexts are split until a step has about as many. */
#define CUDA_ATTENTION_BLOCKS 528u

/* Slots of an expert, on average, up to which its product is the kernel that reads sizes on the device; above,
 * cuBLAS. */
#define CUDA_EXPERT_SLOTS_FEW 16u

/* What this rank holds. */
struct cuda_shape {
    uint32_t ranks; /* of the instance, numbered (stage * data + group) * tensor + t */
    uint32_t tensor;
    uint32_t data;
    uint32_t stages;
    uint32_t stage;
    uint32_t group;
    uint32_t t; /* rank within the group; 0 leads */
    uint32_t group_first;
    uint32_t layer_first; /* of the model's; layers here are counted from it */
    uint32_t layers;
    bool last_stage;
    uint32_t heads;
    uint32_t head_first;
    uint32_t kv_heads;
    uint32_t kv_head_first;
    uint32_t query_dim; /* of a head of Q's output */
    uint32_t value_dim; /* of a head of O's input */
    uint32_t key_dim;   /* of a cached head */
    uint32_t cached_value_dim;
    uint32_t dense; /* intermediate elements here */
    uint32_t shared;
    uint32_t expert;       /* intermediate elements of an expert here */
    uint32_t expert_slice; /* which part of them */
    uint32_t expert_first;
    uint32_t experts;
};

/* bf16 matrices [outputs][inputs]; NULL where the layer has none. */
struct cuda_layer {
    float *norm_attention;
    float *norm_mlp;
    uint16_t *qkv; /* GQA: Q, K, V one below the other */
    uint16_t *q_latent;
    float *norm_q_latent;
    uint16_t *q;
    uint16_t *kv_latent;
    float *norm_kv_latent;
    uint16_t *absorb_k; /* [head][latent][nope] */
    uint16_t *absorb_v; /* [head][value][latent] */
    uint16_t *o;
    uint16_t *gate_up; /* gate above up */
    uint16_t *down;
    uint16_t *router;
    uint16_t *shared_gate_up;
    uint16_t *shared_down;
    uint16_t *expert_gate_up; /* [expert][gate above up][hidden] */
    uint16_t *expert_down;
    uint32_t window;
};

struct cuda_weights {
    struct cuda_layer *layers;
    float *norm_final;
    uint16_t *lm_head; /* whole on every rank, so that each knows the next token without asking */
    float *rope;
    void *memory;
    size_t bytes;
};

/* Arrays of the coming step in pinned memory, in the order in which they lie on the device. */
struct cuda_arrays {
    uint32_t *token;     /* [rows_max] */
    uint32_t *position;  /* [rows_max] */
    uint32_t *sequence;  /* [rows_max] */
    uint32_t *tile_row;  /* [rows_max] */
    uint32_t *tile_rows; /* [rows_max] */
    uint32_t *select;    /* [sequences_max]: rows whose logits are wanted */
};

struct cuda_step {
    uint32_t rows; /* of a graph: the bucket */
    uint32_t decode_rows;
    uint32_t tiles; /* of the chunks */
    uint32_t samples;
    uint32_t splits;
    bool graph; /* decode alone: rows are samples, and sampling moves them on */
};

struct cuda_buffers {
    float *x;
    float *y; /* what a layer adds to x */
    uint16_t *h;
    float *wide;
    uint16_t *act;
    float *latent;
    uint16_t *q_latent;
    uint16_t *nope;
    float *query;
    uint16_t *attention;
    uint16_t *values;
    float *part;
    float *part_state;
    float *router;
    uint32_t *choice;
    float *weight;
    uint32_t *expert_count;
    uint32_t *expert_first;
    uint32_t *slot_row;
    uint32_t *pair_slot;
    uint16_t *expert_in;
    float *expert_wide;
    uint16_t *expert_act;
    float *expert_out;
    float *logits;
    float *hidden; /* before the final norm, of the samples */
    uint32_t *sampled;
    uint64_t *counter_base;
    void *blas;
    void *memory;
    size_t bytes;
};

struct cuda_reduce {
    struct device *device;
    size_t floats;
};

/* How the ranks of a group add up (cuda_peers.c). */
enum cuda_reduction {
    CUDA_REDUCE_UNSETTLED = 0, /* the ranks have not agreed yet */
    CUDA_REDUCE_PEERS = 1,     /* through each other's memory */
    CUDA_REDUCE_HOST = 2,      /* through pinned memory and the host's collective */
};

struct cuda_peers {
    enum cuda_reduction reduction;
    bool possible; /* every rank of the group has a GPU of its own, and reaches the others' */
    struct cuda_memory own;
    struct cuda_memory others[CUDA_PEERS_MAX]; /* by rank of the group; its own: nothing */
    uint32_t *sequence;                        /* [CUDA_PEER_BLOCKS], on the device */
    uint64_t capacity;                         /* floats at a time */
    void *abandon_registered;
    const uint8_t *abandon; /* mapped */
};

struct device {
    struct device_config config;
    struct architecture architecture;
    struct cuda_shape shape;
    struct cuda_driver driver;
    int ordinal;
    cudaStream_t stream;
    struct cuda_blas library;
    cublasHandle_t blas;

    struct cuda_memory memory; /* of the KV cache, where it is the device's */
    void *registered;          /* where it is the host's */
    uint8_t *kv;
    struct kernel_pages pages;
    void *counter_registered;
    uint64_t *counter; /* mapped; NULL: nobody asks, or another rank leads */

    struct cuda_weights weights;
    struct cuda_buffers buffers;
    uint32_t rows_max;
    uint32_t pages_max; /* of a sequence */

    struct slots slots; /* of the device's group; decode sequences in the order of rows */
    bool rows_stale;    /* row arrays on the device are not those of the decoding sequences */

    struct cuda_arrays host; /* pinned */
    struct cuda_arrays arrays;
    size_t array_bytes;
    uint32_t *page_table_host; /* pinned, [sequences_max][pages_max] */
    uint32_t *page_table;
    float *tails;                /* [sequences_max][hidden + vocab], after the last chunk; with tails alone */
    uint32_t *sampled_host;      /* pinned */
    uint64_t *counter_base_host; /* pinned */
    uint32_t *expert_first_host; /* pinned */
    float *reduce_host;          /* pinned, [rows_max][hidden]; for sums through the host */
    struct cuda_reduce reduces[CUDA_BUCKETS + 1]; /* by bucket; the last: a step with chunks */
    struct cuda_peers peers;
    bool abandoned;

    /* With several stages: what they hand on. */
    float *stage_x;      /* pinned, [rows_max][hidden] */
    float *stage_all;    /* [data * rows_max][hidden] */
    float *stage_counts; /* [ranks][2]: rows and samples of each rank's group */
    size_t *gather;      /* [ranks] */

    cudaGraphExec_t graphs[CUDA_BUCKETS];
    bool graphs_refused; /* where capturing failed once, steps run without */
    uint64_t graph_steps;
    uint64_t embedding; /* the seeded matrix */
    float embedding_scale;
    cudaError_t failure; /* first error of a call; ends the step */
    cublasStatus_t blas_failure;
};

/* cuda_shape.c */
bool cuda_shape_make(struct cuda_shape *shape, const struct device_config *config, struct user_error *error);

/* `layer` of the model. */
static inline bool cuda_layer_sparse(const struct architecture *architecture, uint32_t layer)
{
    return architecture->experts > 0 && layer >= architecture->dense_layers;
}

/* cuda_weights.c */
bool cuda_weights_make(struct device *device, struct user_error *error);
void cuda_weights_free(struct device *device);

/* cuda_buffers.c */
bool cuda_buffers_make(struct device *device, struct user_error *error);
void cuda_buffers_free(struct device *device);

/* cuda_batch.c: the rows of a step. */
/* Fills the host's arrays where they must be uploaded. A step without rows has rows == 0. */
struct cuda_step cuda_batch_build(struct device *device, bool sample_chunks);
/* Takes in the sampled tokens; writes those that are reported. */
uint32_t cuda_batch_done(struct device *device, bool prefill_tokens, struct device_token *tokens);

/* cuda_step.c: device_ops.step. */
bool cuda_step_run(struct device *device, uint64_t counter_base, bool prefill_tokens, struct device_token *tokens,
                   uint32_t *token_count);

/* cuda_forward.c: queues everything that a step computes. */
void cuda_forward(struct device *device, const struct cuda_step *step);

/* cuda_peers.c: y becomes its sum over the ranks of the group, queued. */
void cuda_reduce(struct device *device, const struct cuda_step *step);
/* Looks for peers, and makes the memory that they read; nothing where there can be none. */
bool cuda_peers_make(struct device *device, struct user_error *error);
void cuda_peers_free(struct device *device);
int cuda_peers_share(struct device *device, struct user_error *error);
bool cuda_peers_join(struct device *device, const int *descriptors, struct user_error *error);
/* Before the first step, on all ranks at a time. False when abandoned. */
bool cuda_peers_settle(struct device *device);

/* cuda_stages.c: what pipeline stages tell each other, on all ranks of the instance at a time. */
bool cuda_stages_make(struct device *device, struct user_error *error);
void cuda_stages_free(struct device *device);
/* How many rows and samples each group has in this step. */
bool cuda_stages_count(struct device *device, const struct cuda_step *step);
/* stage_x of the leads of `stage` becomes stage_x of the next stage. */
bool cuda_stages_hand_over(struct device *device, uint32_t stage);
/* The last stage's tokens become everyone's. */
bool cuda_stages_samples(struct device *device);

/* Lets the GPU reach host memory. Another device of this process may have registered the same pages: then it keeps
 * them, and `registered` stays as it was. */
cudaError_t cuda_map_host(void *memory, size_t bytes, void **registered, void **mapped);
/* The same for a word in shared memory: whole pages are registered. */
cudaError_t cuda_map_word(uintptr_t word, void **registered, void **mapped);

/* cuda_attend.c, cuda_mlp.c: the parts of a layer, which is counted within the stage. y becomes this rank's share. */
void cuda_layer_attention(struct device *device, const struct cuda_step *step, uint32_t layer);
void cuda_layer_mlp(struct device *device, const struct cuda_step *step, uint32_t layer);
/* What the attention kernel will be given; rows and tiles from `row_first` and `tile_first` on. */
struct cuda_attention cuda_attention_arguments(struct device *device, uint32_t layer, uint32_t tile_first,
                                               uint32_t splits);

/* out[row][outputs] = in[row][inputs] times weights[outputs][inputs], bf16 with f32 sums. */
void cuda_product(struct device *device, const uint16_t *in, const uint16_t *weights, float *out, uint32_t rows,
                  uint32_t outputs, uint32_t inputs);

static inline void cuda_note(struct device *device, cudaError_t status)
{
    if (status != cudaSuccess && device->failure == cudaSuccess)
        device->failure = status;
}

static inline void cuda_note_blas(struct device *device, cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS && device->blas_failure == CUBLAS_STATUS_SUCCESS)
        device->blas_failure = status;
}

/* The smallest power of two that is not below n >= 1, as an exponent. */
static inline uint32_t cuda_bucket(uint32_t n)
{
    uint32_t bucket = 0;
    while (((uint32_t)1 << bucket) < n)
        bucket++;
    return bucket;
}

#endif
