/* Which heads, columns and experts of the model a rank of the CUDA device holds. The rules are those of model.h. */
#include "real/device/cuda/cuda_internal.h"
#include "real/device/kernels/topk.h"

#include <stdio.h>

#define REFUSE(...)                                                                                                    \
    do {                                                                                                               \
        user_error_set(error, NULL, 0, NULL, __VA_ARGS__);                                                             \
        return false;                                                                                                  \
    } while (0)

static bool shape_attention(struct cuda_shape *shape, const struct device_config *config, struct user_error *error)
{
    const struct architecture *a = config->architecture;
    const struct kv_geometry *g = &config->memory.geometry;
    bool latent = a->attention == ATTENTION_MLA;
    if (a->heads == 0 || a->heads % shape->tensor != 0)
        REFUSE("the CUDA device cannot split %u query heads over %u ranks", a->heads, shape->tensor);
    if (!latent && (a->kv_heads == 0 || a->heads % a->kv_heads != 0))
        REFUSE("the CUDA device cannot share %u KV heads among %u query heads", a->kv_heads, a->heads);
    shape->heads = a->heads / shape->tensor;
    shape->head_first = shape->t * shape->heads;
    shape->kv_heads = kv_rank_heads(g);
    shape->kv_head_first = shape->t / kv_replicas(g) * shape->kv_heads;
    shape->query_dim = latent ? a->nope_dim + a->rope_dim : a->head_dim;
    shape->value_dim = latent ? a->value_dim : a->head_dim;
    shape->key_dim = latent ? a->latent_dim + a->rope_dim : a->head_dim;
    shape->cached_value_dim = latent ? a->latent_dim : a->head_dim;
    if (shape->key_dim == 0 || (latent ? a->rope_dim : a->head_dim) % 2 != 0)
        REFUSE("the CUDA device rotates pairs: %u dimensions of a head cannot be", latent ? a->rope_dim : a->head_dim);
    if (shape->cached_value_dim > CUDA_ATTENTION_VALUE_MAX || shape->value_dim == 0)
        REFUSE("the CUDA device attends to values of 1 to %u elements, not %u", CUDA_ATTENTION_VALUE_MAX,
               shape->cached_value_dim);
    return true;
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Every attention group has all experts, dealt to its own ranks: groups exchange nothing, at the price of memory for as
 * many copies. */
static bool shape_mlp(struct cuda_shape *shape, const struct device_config *config, struct user_error *error)
{
    const struct architecture *a = config->architecture;
    const struct parallelism *p = &config->memory.geometry.parallelism;
    bool any_dense = a->experts == 0 || a->dense_layers > 0;
    if (any_dense && (a->intermediate == 0 || a->intermediate % shape->tensor != 0))
        REFUSE("the CUDA device cannot split an MLP of %u columns over %u ranks", a->intermediate, shape->tensor);
    shape->dense = any_dense ? a->intermediate / shape->tensor : 0;
    if (a->experts == 0)
        return true;
    if (p->expert == 0 || shape->data * shape->tensor % p->expert != 0)
        REFUSE("the CUDA device cannot deal experts to %u of %u ranks", p->expert, shape->data * shape->tensor);
    if (a->experts_active == 0 || a->experts_active > a->experts || a->experts_active > KERNEL_TOPK_MAX)
        REFUSE("the CUDA device routes to 1 to %u experts, not %u", KERNEL_TOPK_MAX, a->experts_active);
    uint32_t sets = common_divisor(p->expert, shape->tensor);
    uint32_t slices = shape->tensor / sets;
    uint32_t set = shape->t / slices;
    uint32_t each = (a->experts + sets - 1u) / sets;
    if (a->expert_intermediate % (2 * slices) != 0 || a->shared_experts * a->expert_intermediate % shape->tensor != 0)
        REFUSE("the CUDA device cannot split experts of %u columns over %u ranks", a->expert_intermediate, slices);
    shape->expert = a->expert_intermediate / slices;
    shape->expert_slice = shape->t % slices;
    shape->expert_first = set * each < a->experts ? set * each : a->experts;
    shape->experts = a->experts - shape->expert_first < each ? a->experts - shape->expert_first : each;
    shape->shared = a->shared_experts * a->expert_intermediate / shape->tensor;
    return true;
}

bool cuda_shape_make(struct cuda_shape *shape, const struct device_config *config, struct user_error *error)
{
    const struct architecture *a = config->architecture;
    const struct parallelism *p = &config->memory.geometry.parallelism;
    if (device_unsupported(a) != NULL)
        REFUSE("the CUDA device does not compute %s, which %s has", device_unsupported(a), a->name);
    uint32_t stage = kv_memory_stage(&config->memory, config->rank);
    *shape = (struct cuda_shape){.ranks = kv_ranks(p),
                                 .tensor = p->tensor,
                                 .data = p->data,
                                 .stages = p->pipeline,
                                 .stage = stage,
                                 .layer_first = config->memory.geometry.stage_layer_first[stage],
                                 .layers = kv_memory_layers(&config->memory, config->rank),
                                 .last_stage = stage + 1u == p->pipeline};
    if (a->hidden == 0 || a->hidden % 2 != 0 || a->vocab == 0)
        REFUSE("the CUDA device needs an even hidden dimension and a vocabulary");
    if (kv_format_bytes(a->kv_format) == 0)
        REFUSE("the CUDA device keeps its KV cache in bf16 or fp8");
    if (config->sequences_max > (1u << (CUDA_BUCKETS - 1)))
        REFUSE("the CUDA device takes %u sequences at most", 1u << (CUDA_BUCKETS - 1));
    shape->group = config->rank / p->tensor % p->data;
    shape->t = config->rank % p->tensor;
    shape->group_first = config->rank - shape->t;
    return shape_attention(shape, config, error) && shape_mlp(shape, config, error);
}
