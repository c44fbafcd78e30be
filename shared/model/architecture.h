/* What a served model is made of: the numbers that decide its arithmetic, its weights and its KV cache.
 * Filled from a scenario's model table (scenarios/models); every value there names its source.
 */
#ifndef TANDEM_MODEL_ARCHITECTURE_H
#define TANDEM_MODEL_ARCHITECTURE_H

#include <stdint.h>

enum attention_kind {
    ATTENTION_GQA = 1, /* grouped-query; MHA and MQA are its ends */
    ATTENTION_MLA = 2, /* multi-head latent attention: one latent vector a token, shared by all heads */
};

enum number_format {
    FORMAT_BF16 = 1,
    FORMAT_FP8 = 2,       /* per-tensor or per-channel scales */
    FORMAT_FP8_BLOCK = 3, /* 128 x 128 block scales, as DeepSeek ships */
    FORMAT_FP4 = 4,       /* nvfp4, mxfp4: 4 bits and scales */
    FORMAT_INT4 = 5,      /* weights of 4 bits in groups (GPTQ, AWQ, compressed-tensors); computed in bf16 */
};

struct architecture {
    char name[64];
    enum attention_kind attention;
    uint32_t layers;
    uint32_t dense_layers; /* leading layers whose MLP is dense though the rest is MoE */
    uint32_t moe_interval; /* of the layers behind them, the last of each so many has experts; 0: as 1, all */
    uint32_t hidden;
    uint32_t heads;    /* query heads */
    uint32_t kv_heads; /* 1 for MLA */
    uint32_t head_dim; /* of q and k (GQA) */
    uint32_t vocab;

    /* MLA only. Cached a token and layer: latent_dim + rope_dim elements. */
    uint32_t latent_dim;   /* kv_lora_rank, 512 */
    uint32_t rope_dim;     /* qk_rope_head_dim, 64 */
    uint32_t nope_dim;     /* qk_nope_head_dim, 128 */
    uint32_t value_dim;    /* v_head_dim, 128 */
    uint32_t q_latent_dim; /* q_lora_rank, 1536; 0: q is projected directly */

    uint32_t intermediate; /* of a dense MLP (SwiGLU: three matrices) */

    /* Mixture of experts; experts = 0 for a dense model. */
    uint32_t experts;
    uint32_t experts_active;
    uint32_t expert_intermediate;
    uint32_t shared_experts; /* each of expert_intermediate */

    /* Sliding window: layers - full_layers attend to the last `window` tokens only. window = 0: none. */
    uint32_t window;
    uint32_t full_layers;

    /* Sparse attention over MLA (DeepSeek-V3.2): an indexer scores every cached token of a layer with `index_heads`
     * small heads of `index_dim`, and attention reads the `index_topk` best. Its keys are cached beside the latent, in
     * fp8 with a 4-byte scale. index_topk = 0: none. */
    uint32_t index_topk;
    uint32_t index_heads;
    uint32_t index_dim;

    enum number_format weight_format;           /* of the projections, dense MLPs and shared experts */
    enum number_format attention_weight_format; /* of the attention's projections; 0: weight_format */
    enum number_format output_weight_format;    /* of the attention's output projection; 0: as the others of it */
    enum number_format expert_weight_format;    /* of the routed experts */
    enum number_format kv_format;               /* of the KV cache: bf16 or fp8 */
    uint32_t fp4_block;                         /* fp4 values that share a scale: 16 (nvfp4; also 0), 32 (mxfp4) */

    /* Layers of a draft head that the checkpoint holds beside `layers` (num_nextn_predict_layers); each is built like a
     * layer with experts, where there are experts, and takes the embedding of the next token and the hidden state. */
    uint32_t draft_layers;

    /* What a deployment adds, not the checkpoint: of `layers`, the last so many are draft layers in use, which cache
     * KV like the others; and experts held more than once, of those that most tokens choose. */
    uint32_t layers_drafting;
    uint32_t experts_redundant;

    uint32_t tied_embeddings; /* 1: the LM head is the embedding */
    uint32_t tail_bytes;      /* a request's tail: hidden states and logits of the last position; 0: no tail */
    uint32_t tail_writes;     /* writes that carry it */
};

static inline enum number_format architecture_attention_format(const struct architecture *a)
{
    return a->attention_weight_format != 0 ? a->attention_weight_format : a->weight_format;
}

static inline enum number_format architecture_output_format(const struct architecture *a)
{
    return a->output_weight_format != 0 ? a->output_weight_format : architecture_attention_format(a);
}

/* Layers with a dense MLP among the first `end`. */
static inline uint32_t architecture_dense_before(const struct architecture *a, uint32_t end)
{
    uint32_t leading = a->dense_layers < end ? a->dense_layers : end;
    if (a->experts == 0)
        return end;
    return a->moe_interval < 2 ? leading : end - (end - leading) / a->moe_interval;
}

#endif
