/* What a model weighs: its parameters, the bytes of weights on one rank, and the KV pages that fit beside them.
 *
 * Pure integer arithmetic over struct architecture. Counted is what a served checkpoint holds for the main model, and
 * its draft layers where they are in use (layers_drafting; they share the embedding and the LM head); left out are
 * biases and q/k norms (below 1 % of every model in sight).
 */
#ifndef TANDEM_MODEL_FOOTPRINT_H
#define TANDEM_MODEL_FOOTPRINT_H

#include "model/kv_geometry.h"

#include <stdint.h>

/* Parameters, over all layers. */
struct footprint_parameters {
    uint64_t embedding;
    uint64_t attention; /* projections: q, k, v, o; MLA: q_a, q_b (or q), kv_a, kv_b, o; those of an indexer, and what
                           feeds draft layers in use */
    uint64_t norms;     /* two a layer and the final one; MLA: also those of the latents */
    uint64_t dense_mlp; /* three matrices in each layer without experts */
    uint64_t router;
    uint64_t routed_experts;
    uint64_t shared_experts;
    uint64_t lm_head; /* 0 where it is the embedding */
    uint64_t total;
    uint64_t
        active; /* that one token is multiplied by: everything but the embedding (a row is looked up) and the routed
                   experts not chosen; a tied LM head counts. Some publications add the embedding to theirs */
};

void footprint_parameters(const struct architecture *architecture, struct footprint_parameters *parameters);

/* Bytes of a matrix of `rows` outputs and `columns` inputs with its scales:
 *   bf16       2 an element
 *   fp8        1, and a 4-byte scale an output row (per-tensor scales need less)
 *   fp8_block  1, and a 4-byte scale for each 128 x 128 block begun
 *   fp4        half, and a 1-byte scale for each 16 elements of a row begun (nvfp4) or, with fp4_block = 32, 32 (mxfp4)
 *   int4       half, and a 2-byte scale for each 32 elements of a row begun (Kimi-K2.5; GPTQ and AWQ: one for 128) */
uint64_t footprint_matrix_bytes(enum number_format format, uint64_t rows, uint64_t columns);

enum footprint_verdict {
    FOOTPRINT_FITS = 0,
    FOOTPRINT_HEADS = 1,    /* query heads cannot be split over the tensor-parallel ranks */
    FOOTPRINT_EXPERTS = 2,  /* `expert` does not divide the ranks of a stage, exceeds the experts and their copies, or
                               there are none */
    FOOTPRINT_WEIGHTS = 3,  /* weights and activations alone exceed the memory that may be used */
    FOOTPRINT_PAGES = 4,    /* they fit, but not one KV page beside them */
    FOOTPRINT_GEOMETRY = 5, /* the geometry is not one of this architecture, or cannot be laid out at all */
};

/* One sentence for people, without numbers; those are in struct footprint. */
const char *footprint_verdict_text(enum footprint_verdict verdict);

/* How the weights lie on the ranks. Stated as vLLM and SGLang do it:
 *
 *  - a pipeline stage holds its layers; the first also the embedding, the last the final norm and the LM head (where it
 *    is tied and the last stage is not the first: its own copy);
 *  - attention is split over the `tensor` ranks of a group by heads and repeated in each of the `data` groups; KV
 *    projections of replicated heads are repeated; MLA's q_a, kv_a and its indexer are on every rank;
 *  - dense MLPs, shared experts, embedding and LM head are split over the group's `tensor` ranks, repeated per group;
 *  - routed experts with expert > 1: whole experts, redundant copies included, are dealt to `expert` ranks (the fullest
 *    has ceil((experts + experts_redundant) / expert)), and each is split over the (tensor * data / expert) ranks left
 * of the stage. With expert == 1 every expert is split over all tensor * data ranks of the stage;
 *  - norms and the router are on every rank. Embedding, LM head, router and norms are bf16 whatever weight_format says;
 *  - MLA decodes with kv_b absorbed into q and o, for which engines keep its two halves in bf16 beside it.
 *
 * Sizes that do not divide count as their ceiling: the fullest rank. */
struct footprint_weights {
    uint64_t attention; /* MLA's absorbed halves included */
    uint64_t dense_mlp;
    uint64_t routed_experts;
    uint64_t shared_experts;
    uint64_t other; /* norms, router, embedding, LM head */
    uint64_t total;
};

/* Weight bytes of one rank of pipeline stage `stage`. */
enum footprint_verdict footprint_weights(const struct architecture *architecture, const struct kv_geometry *geometry,
                                         uint32_t stage, struct footprint_weights *weights);

/* Bytes of activations that one rank holds at the peak of a step of `token_budget` tokens a group, in bf16:
 *
 *   tokens * 2 * (2 * hidden + max(attention, mlp)) + sequences * 4 * ceil(vocab / tensor)
 *
 *   attention  q, k, v and the output of a rank's heads; MLA also the decompressed k and v
 *   mlp        gate, up and product of a dense layer's share, or, a routed copy, hidden in and out and the three of an
 *              expert's share. Copies that reach a rank: token_budget * data * experts_active / expert
 *   sequences  whose logits a step keeps, in fp32
 *
 * Nothing else: what a driver context, communicators and captured graphs take is what the memory utilization leaves. */
uint64_t footprint_activation_bytes(const struct architecture *architecture, const struct kv_geometry *geometry,
                                    uint32_t token_budget, uint32_t sequences);

/* What an engine's memory share is a share of. */
enum memory_share {
    MEMORY_SHARE_GPU = 0, /* of the GPU, for weights, activations and KV (vLLM: gpu_memory_utilization) */
    MEMORY_SHARE_STATIC =
        1,                 /* of the GPU, for weights and KV; activations lie beside it (SGLang: mem_fraction_static) */
    MEMORY_SHARE_FREE = 2, /* of what weights and activations leave free, for KV (TensorRT-LLM:
                              free_gpu_memory_fraction) */
};

/* What fits on a rank. Filled also when it does not fit, for the tightest stage, so that the report can say by how
 * much. */
struct footprint {
    uint64_t pages;        /* of one attention group: the fewest of all stages */
    uint32_t stage;        /* that has the fewest */
    uint64_t usable_bytes; /* memory * utilization; MEMORY_SHARE_FREE: the memory */
    uint64_t kv_bytes;     /* of pages, at most; 0 where weights and activations take all */
    uint64_t weight_bytes; /* of a rank of that stage */
    uint64_t activation_bytes;
    uint64_t page_bytes; /* of one page there: all layers and planes of the stage */
};

/* KV pages of one attention group: on every stage floor(KV bytes / page bytes), where KV bytes are
 *   MEMORY_SHARE_GPU     memory * share - weights - activations
 *   MEMORY_SHARE_STATIC  min(memory * share, memory - activations) - weights
 *   MEMORY_SHARE_FREE    (memory - weights - activations) * share
 * All layers keep all tokens; a sliding window saves bandwidth, not pages (as engines without a hybrid allocator do).
 */
enum footprint_verdict footprint_kv_pages(const struct architecture *architecture, const struct kv_geometry *geometry,
                                          uint64_t memory_bytes, enum memory_share share, uint32_t share_permille,
                                          uint64_t activation_bytes, struct footprint *footprint);

#endif
