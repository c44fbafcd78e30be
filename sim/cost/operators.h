/* Times of single operators on one GPU: the roofline with measured efficiencies.
 *
 * Every function is pure. Times are in nanoseconds as doubles; device_model.c sums them and rounds once. Tokens and
 * sequences are doubles because shapes are interpolated between knots.
 */
#ifndef TANDEM_SIM_COST_OPERATORS_H
#define TANDEM_SIM_COST_OPERATORS_H

#include "world/scenario/hardware.h"
#include "sim/cost/device_model.h"
#include "sim/cost/efficiency_tables.h"
#include "sim/cost/kernel_lattice.h"

#define EXCHANGE_PHASES 3 /* prepare, dispatch, combine */

/* What one GPU can do, in units of nanoseconds; formats without units of their own are resolved here. */
struct device {
    const struct gpu_tables *tables;
    double flops_per_ns[FORMATS];     /* of the arithmetic that weights of a format run in */
    double weight_bytes[FORMATS];     /* per element, scales included */
    double activation_bytes[FORMATS]; /* per element of the input of a matrix product */
    const struct efficiency_grid *gemm[FORMATS];
    const struct efficiency_grid *moe[FORMATS];
    double bytes_per_ns;
    double nvlink_bytes_per_ns;
    double nic_bytes_per_ns;
    double nic_base_ns;
    uint32_t gpus_per_node;
    uint32_t nvlink_gpus; /* that reach each other over NVLink: at least those of a machine */
};

struct operator_time {
    double ns;             /* launch included */
    double launch_ns;      /* the part that does not depend on the shape */
    enum step_bound bound; /* of the rest */
    enum estimate estimate;
    const char *source;
};

/* Distilled efficiencies are those of the GPU, or of the one whose design is nearest. */
void device_init(struct device *device, const struct hardware *hardware);

/* (m x k) times (k x n), weights of `format`; one rank's share of n or k. By a table of measured products where there
 * is one for this n and k, else by the distilled efficiencies. */
struct operator_time gemm_time(const struct device *device, const struct kernel_sheet *measured, double m, double n,
                               double k, enum number_format format);

/* Elementwise passes over `tokens` rows: `kernels` launches moving `bytes_per_token` in all. */
struct operator_time elementwise_time(const struct device *device, double tokens, double bytes_per_token,
                                      double kernels);

/* The experts of one layer on the busiest rank. Shared experts are computed with the routed ones: SGLang fuses them as
 * one more expert that every token chooses, TensorRT-LLM and vLLM run them on a second stream. */
struct moe_shape {
    double hidden;
    double width; /* expert_intermediate of one rank */
    double experts;
    double active;
    double expert_ranks;
    double shared_width; /* of one rank; 0: no shared experts */
    double groups;       /* attention groups whose tokens the routed experts see; a shared one sees its own group's */
    enum number_format format;
    double tensor;                       /* ranks that share an expert */
    const struct kernel_sheet *measured; /* NULL: by the distilled efficiencies */
};
struct operator_time moe_time(const struct device *device, double tokens, const struct moe_shape *shape);

/* Experts that at least one of `tokens` tokens is routed to, if all are equally likely: E * (1 - (1 - k /
 * E)^tokens). */
double distinct_experts(double experts, double active, double tokens);

/* One layer's attention of `sequences` sequences that read `context` cached tokens in all, on one rank. `window` 0:
 * all. */
struct attention_shape {
    enum attention_kind kind;
    double heads;    /* query heads of one rank */
    double kv_heads; /* KV heads of one rank */
    double head_dim;
    double latent_dim;
    double rope_dim;
    double nope_dim;
    double value_dim;
    uint32_t kv_fp8; /* 1: the cache is fp8 */
    double window;
    /* Tokens of one sequence that a decode step verifies. They read the same cache, as that many more heads would, and
     * kernels pack them so; 1 without drafted tokens. */
    double queries;
    /* Sparse attention: an indexer scores all cached tokens with so many heads of so many elements, and the best
     * `topk` are read, by every query others; 0: none. */
    double topk;
    double index_heads;
    double index_dim;
    /* The sheets are of the whole attention block with its projections, of one query a sequence: more queries are more
     * sequences. */
    bool module;
    double launches_ns; /* of a decode step's module, what launching its kernels one by one cost when it was measured */
    const struct kernel_sheet *decode; /* measured; NULL: by the distilled efficiencies */
    const struct kernel_sheet *prefill;
};
struct operator_time decode_attention_time(const struct device *device, const struct attention_shape *shape,
                                           double sequences, double context);

/* One layer's attention of `tokens` new tokens with `pairs` query-key pairs. These stand for one chunk after cached
 * tokens, where they have that many pairs, and else for as many prompts of one length as give them. A chunk c after p
 * cached tokens takes what a prompt of p + c takes beyond one of p, and a launch. */
struct operator_time prefill_attention_time(const struct device *device, const struct attention_shape *shape,
                                            double tokens, double pairs);

/* All-reduce of `elements` of bf16 among `ranks` consecutive GPUs; `measured` and `nccl` are tables of those inside a
 * node, or NULL. */
struct operator_time all_reduce_time(const struct device *device, const struct kernel_sheet *measured,
                                     const struct kernel_sheet *nccl, double ranks, double elements);

/* All-gather of the tokens of `ranks` GPUs of a node, and the scatter of their sums: `elements` of bf16 in all, each
 * way. Without tables: as an all-reduce, which does the same. */
struct operator_time gather_scatter_time(const struct device *device, const struct kernel_sheet *gather,
                                         const struct kernel_sheet *scatter, double ranks, double elements);

/* Dispatch and combine of `tokens` tokens of one rank to their experts among `ranks` GPUs of several machines. */
struct exchange_shape {
    double ranks;
    double hidden;
    double active;
    /* Measured phases that follow each other; the first NULL: by the distilled curves. */
    const struct kernel_sheet *phases[EXCHANGE_PHASES];
    double inner; /* the phases' second coordinate: nodes, or ranks */
    bool nvlink;  /* measured over NVLink alone */
};
struct operator_time exchange_time(const struct device *device, const struct exchange_shape *shape, double tokens);

/* Activations of `tokens` tokens handed from one pipeline stage to the next. */
struct operator_time stage_hop_time(const struct device *device, double tokens, double bytes_per_token,
                                    bool inside_node);

#endif
