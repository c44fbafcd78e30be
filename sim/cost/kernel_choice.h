/* Which measured table stands for an operator: that of the engine, where it has one that can be trusted, else another
 * engine's. A table whose smallest products take longer than the kernel, because launching it does, says nothing about
 * a kernel inside a CUDA graph: it is passed over (vLLM's fp8_block products take 55 us on Hopper at any size).
 *
 * Each function makes a slice and returns true, or returns false: no table (error not set), or a damaged table (error
 * set). The caller frees the slice.
 */
#ifndef TANDEM_SIM_COST_KERNEL_CHOICE_H
#define TANDEM_SIM_COST_KERNEL_CHOICE_H

#include "world/scenario/engine.h"
#include "sim/cost/kernel_grid.h"
#include "sim/cost/kernel_store.h"
#include "sim/cost/operators.h"

struct kernel_chooser {
    const struct kernel_store *store;
    const struct device *device;
    enum engine_kind engine;
    struct kernel_rates measured; /* of the GPU that the tables were measured on; of its links those of the machine */
    bool altered;                 /* the machine has others than its GPU had: nothing was measured on it */
    struct user_error error;
};

void kernel_chooser_make(struct kernel_chooser *chooser, const struct device *device, const struct hardware *hardware,
                         enum engine_kind engine);

/* (m x k) by (k x n) for every m: one curve. */
bool kernel_choose_gemm(struct kernel_chooser *chooser, double n, double k, enum number_format format,
                        struct kernel_slice *slice);

/* Over batches and lengths. */
bool kernel_choose_decode_attention(struct kernel_chooser *chooser, const struct attention_shape *shape,
                                    struct kernel_slice *slice);
bool kernel_choose_prefill_attention(struct kernel_chooser *chooser, const struct attention_shape *shape,
                                     struct kernel_slice *slice);

/* The whole attention block with its projections: of sparse attention, or, where experts are spread over machines,
 * SGLang's latent attention. */
bool kernel_choose_module(struct kernel_chooser *chooser, const struct attention_shape *shape,
                          enum number_format format, bool prefill, struct kernel_slice *slice);

/* Products of decoding tokens with the absorbed halves: the query's, or the output's. */
bool kernel_choose_absorbed(struct kernel_chooser *chooser, const struct attention_shape *shape, bool output,
                            struct kernel_slice *slice);

/* Routed experts split over `tensor` ranks each and spread over `shape->expert_ranks`. `width` is that of a whole
 * expert. */
bool kernel_choose_experts(struct kernel_chooser *chooser, const struct moe_shape *shape, double width, double tensor,
                           struct kernel_slice *slice);

/* The same behind an exchange among machines, for prompts and for decoding tokens; with `redundant` copies. */
bool kernel_choose_wide_experts(struct kernel_chooser *chooser, const struct moe_shape *shape, double width,
                                double redundant, bool prefill, struct kernel_slice *slice);

/* One phase of that exchange ("dispatch", "combine"), over the tokens of one rank: DeepEP's normal one for prompts, its
 * low-latency one for decoding; or TensorRT-LLM's over NVLink ("alltoall_prepare", "alltoall_dispatch", ...). */
bool kernel_choose_deepep(struct kernel_chooser *chooser, const struct exchange_shape *shape, double experts,
                          double nodes, bool prefill, const char *phase, struct kernel_slice *slice);
bool kernel_choose_alltoall(struct kernel_chooser *chooser, const struct exchange_shape *shape, double experts,
                            enum number_format format, const char *phase, struct kernel_slice *slice);

/* The engine's own all-reduce, and NCCL's collectives ("all_reduce", "all_gather", "reduce_scatter"), over elements of
 * bf16 of all ranks together. */
bool kernel_choose_all_reduce(struct kernel_chooser *chooser, double ranks, struct kernel_slice *slice);
bool kernel_choose_nccl(struct kernel_chooser *chooser, const char *collective, double ranks,
                        struct kernel_slice *slice);

#endif
