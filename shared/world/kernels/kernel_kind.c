/* See kernel_kind.h. */
#include "world/kernels/kernel_kind.h"

#include "base/check.h"

#include <string.h>

#define MILLISECONDS 1e6
#define MICROSECONDS 1e3
#define NUMBER(name)                                                                                                   \
    {                                                                                                                  \
        name, false, NULL                                                                                              \
    }
#define NUMBER_OR(name, absent)                                                                                        \
    {                                                                                                                  \
        name, false, absent                                                                                            \
    }
#define TEXT(name)                                                                                                     \
    {                                                                                                                  \
        name, true, NULL                                                                                               \
    }
#define LATENCY                                                                                                        \
    {                                                                                                                  \
        {                                                                                                              \
            NULL,                                                                                                      \
            {                                                                                                          \
                "latency", NULL                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Attention is measured per rank; `window_size` 0 is none. The axis of a prefill is the prompt, that of a decode step
 * the cached tokens. */
#define ATTENTION_COLUMNS                                                                                              \
    {                                                                                                                  \
        TEXT("attn_dtype"), TEXT("kv_cache_dtype"), NUMBER_OR("window_size", "0"), NUMBER("head_dim"),                 \
            NUMBER("num_key_value_heads"), NUMBER("num_heads"), NUMBER("batch_size")                                   \
    }
#define MODULE_COLUMNS                                                                                                 \
    {                                                                                                                  \
        TEXT("kv_cache_dtype"), TEXT("gemm_type"), NUMBER("num_heads"), NUMBER("batch_size")                           \
    }
#define MOE_COLUMNS                                                                                                    \
    {                                                                                                                  \
        TEXT("kernel_source"), TEXT("moe_dtype"), TEXT("distribution"), NUMBER("hidden_size"), NUMBER("inter_size"),   \
            NUMBER("topk"), NUMBER("num_experts"), NUMBER("moe_tp_size"), NUMBER("moe_ep_size")                        \
    }

/* clang-format off */
static const struct kernel_kind kinds[KERNEL_KINDS] = {
    {KERNEL_GEMM, "gemm", "matrix products (m x k) by (k x n)", 3,
     {TEXT("gemm_dtype"), NUMBER("n"), NUMBER("k")}, "m", LATENCY, MILLISECONDS, NULL, NULL, 2, {1, 2}},
    {KERNEL_CONTEXT_ATTENTION, "context_attention", "attention of whole prompts", 7,
     ATTENTION_COLUMNS, "isl", LATENCY, MILLISECONDS, NULL, NULL, 2, {5, 6}},
    {KERNEL_GENERATION_ATTENTION, "generation_attention", "attention of one new token a sequence", 7,
     ATTENTION_COLUMNS, "step", LATENCY, MILLISECONDS, NULL, NULL, 2, {5, 6}},
    {KERNEL_CONTEXT_MLA, "context_mla", "latent attention of whole prompts, the kernel alone", 3,
     {TEXT("kv_cache_dtype"), NUMBER("num_heads"), NUMBER("batch_size")}, "isl", LATENCY, MILLISECONDS, NULL, NULL,
     2, {1, 2}},
    {KERNEL_GENERATION_MLA, "generation_mla", "latent attention of one new token a sequence, the kernel alone", 3,
     {TEXT("kv_cache_dtype"), NUMBER("num_heads"), NUMBER("batch_size")}, "step", LATENCY, MILLISECONDS, NULL, NULL,
     2, {1, 2}},
    {KERNEL_MLA_BMM, "mla_bmm", "products with the absorbed halves of latent attention", 3,
     {TEXT("op_name"), TEXT("bmm_dtype"), NUMBER("num_heads")}, "num_tokens", LATENCY, MILLISECONDS, NULL, NULL,
     1, {2, 0}},
    {KERNEL_MLA_CONTEXT_MODULE, "mla_context_module", "latent attention of whole prompts with its projections", 4,
     MODULE_COLUMNS, "isl", LATENCY, MILLISECONDS, NULL, NULL, 2, {2, 3}},
    {KERNEL_MLA_GENERATION_MODULE, "mla_generation_module", "latent attention of a decode step with its projections", 4,
     MODULE_COLUMNS, "step", LATENCY, MILLISECONDS, NULL, NULL, 2, {2, 3}},
    {KERNEL_DSA_CONTEXT_MODULE, "dsa_context_module", "sparse attention of whole prompts with its projections", 6,
     {TEXT("model"), TEXT("kv_cache_dtype"), TEXT("gemm_type"), NUMBER("step"), NUMBER("num_heads"),
      NUMBER("batch_size")}, "isl", LATENCY, MILLISECONDS, NULL, NULL, 2, {4, 5}},
    {KERNEL_DSA_GENERATION_MODULE, "dsa_generation_module", "sparse attention of a decode step with its projections", 5,
     {TEXT("model"), TEXT("kv_cache_dtype"), TEXT("gemm_type"), NUMBER("num_heads"), NUMBER("batch_size")}, "step",
     LATENCY, MILLISECONDS, NULL, NULL, 2, {3, 4}},
    {KERNEL_WIDEEP_CONTEXT_MLA, "wideep_context_mla", "latent attention of whole prompts beside wide experts", 3,
     {TEXT("kernel_source"), NUMBER("num_heads"), NUMBER("batch_size")}, "isl", LATENCY, MILLISECONDS, NULL, NULL,
     2, {1, 2}},
    {KERNEL_WIDEEP_GENERATION_MLA, "wideep_generation_mla", "latent attention of a decode step beside wide experts", 3,
     {TEXT("kernel_source"), NUMBER("num_heads"), NUMBER("batch_size")}, "isl", LATENCY, MILLISECONDS, NULL, NULL,
     2, {1, 2}},
    {KERNEL_MOE, "moe", "routed experts of one rank", 9,
     MOE_COLUMNS, "num_tokens", LATENCY, MILLISECONDS, NULL, NULL, 2, {7, 8}},
    {KERNEL_WIDEEP_CONTEXT_MOE, "wideep_context_moe", "routed experts behind DeepEP, prefill", 9,
     MOE_COLUMNS, "num_tokens", LATENCY, MILLISECONDS, NULL, NULL, 2, {7, 8}},
    {KERNEL_WIDEEP_GENERATION_MOE, "wideep_generation_moe", "routed experts behind DeepEP, decode", 9,
     MOE_COLUMNS, "num_tokens", LATENCY, MILLISECONDS, NULL, NULL, 2, {7, 8}},
    {KERNEL_WIDEEP_MOE, "wideep_moe", "routed experts of many ranks, with and without a load balancer", 10,
     {TEXT("op_name"), TEXT("moe_kernel"), TEXT("moe_dtype"), TEXT("distribution"), NUMBER("hidden_size"),
      NUMBER("inter_size"), NUMBER("topk"), NUMBER("num_experts"), NUMBER("num_slots"), NUMBER("moe_ep_size")},
     "num_tokens", LATENCY, MILLISECONDS, NULL, NULL, 1, {9, 0}},
    {KERNEL_DEEPEP_LL, "deepep_ll", "DeepEP's low-latency exchange of tokens among experts", 5,
     {TEXT("phase"), NUMBER("hidden_size"), NUMBER("num_topk"), NUMBER("num_experts"), NUMBER("node_num")},
     "num_token", {{"combine", {"combine_avg_t_us", NULL}}, {"dispatch", {"dispatch_avg_t_us", NULL}}}, MICROSECONDS,
     NULL, NULL, 1, {4, 0}},
    {KERNEL_DEEPEP_NORMAL, "deepep_normal", "DeepEP's normal exchange of tokens among experts", 6,
     {TEXT("phase"), NUMBER("hidden_size"), NUMBER("num_topk"), NUMBER("num_experts"), NUMBER("dispatch_sms"),
      NUMBER("node_num")}, "num_token",
     {{"combine", {"combine_transmit_us", "combine_notify_us"}},
      {"dispatch", {"dispatch_transmit_us", "dispatch_notify_us"}}}, MICROSECONDS, NULL, NULL, 1, {5, 0}},
    {KERNEL_ALLTOALL, "alltoall", "TensorRT-LLM's exchange of tokens among experts over NVLink", 7,
     {TEXT("op_name"), TEXT("kernel_source"), TEXT("moe_dtype"), NUMBER("hidden_size"), NUMBER("topk"),
      NUMBER("num_experts"), NUMBER("moe_ep_size")}, "num_tokens", LATENCY, MILLISECONDS, NULL, NULL, 1, {6, 0}},
    {KERNEL_ALL_REDUCE, "all_reduce", "an engine's own all-reduce; message_size counts elements", 1,
     {NUMBER("num_gpus")}, "message_size", LATENCY, MILLISECONDS, "backend", "graph", 1, {0, 0}},
    {KERNEL_NCCL, "nccl", "NCCL's collectives; message_size counts elements", 3,
     {TEXT("op_name"), TEXT("nccl_dtype"), NUMBER("num_gpus")}, "message_size", LATENCY, MILLISECONDS, NULL, NULL,
     1, {2, 0}},
};
/* clang-format on */

const struct kernel_kind *kernel_kind_named(const char *name)
{
    for (uint32_t i = 0; i < KERNEL_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

const struct kernel_kind *kernel_kind_of(enum kernel_kind_id id)
{
    CHECK(id >= 1 && id <= KERNEL_KINDS && kinds[id - 1].id == id);
    return &kinds[id - 1];
}

const struct kernel_kind *kernel_kind_at(uint32_t index)
{
    CHECK(index < KERNEL_KINDS);
    return &kinds[index];
}

bool kernel_is_dimension(const struct kernel_kind *kind, uint32_t column)
{
    return column + kind->dimension_count >= kind->column_count;
}
