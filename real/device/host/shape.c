/* See shape.h. */
#include "real/device/host/shape.h"

#include "base/arith.h"
#include "real/device/host/linear.h"
#include "real/device/kernels/topk.h"

#include <stdio.h>

#define MLP_UNITS_MAX 32

static bool power_of_two(uint32_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

/* Cuts `columns` into units and takes one rank's share. */
static bool split(uint32_t columns, uint32_t sharers, const char *what, uint32_t *units, uint32_t *width,
                  struct user_error *error)
{
    uint32_t all = columns & (~columns + 1);
    all = min_u32(all, MLP_UNITS_MAX);
    if (columns == 0 || !power_of_two(sharers) || sharers > all) {
        user_error_set(error, NULL, 0, NULL, "the host device cannot split %s of %u columns over %u ranks", what,
                       columns, sharers);
        return false;
    }
    *units = all / sharers;
    *width = columns / all;
    return true;
}

static void place(struct host_shape *shape, const struct device_config *config)
{
    const struct kv_geometry *geometry = &config->memory.geometry;
    const struct parallelism *p = &geometry->parallelism;
    shape->ranks = kv_ranks(p);
    shape->tensor = p->tensor;
    shape->data = p->data;
    shape->stages = p->pipeline;
    shape->stage_ranks = (uint32_t)p->data * p->tensor;
    shape->stage = config->rank / shape->stage_ranks;
    shape->group = config->rank / p->tensor % p->data;
    shape->t = config->rank % p->tensor;
    shape->stage_first = shape->stage * shape->stage_ranks;
    shape->group_first = config->rank - shape->t;
    shape->layer_first = geometry->stage_layer_first[shape->stage];
    shape->layer_count = kv_memory_layers(&config->memory, config->rank);
    shape->last_stage = shape->stage + 1 == shape->stages;
}

static bool split_attention(struct host_shape *shape, const struct device_config *config, struct user_error *error)
{
    const struct architecture *a = config->architecture;
    bool latent = a->attention == ATTENTION_MLA;
    if (!power_of_two(shape->tensor) || a->heads % shape->tensor != 0 || a->heads / shape->tensor > UNITS_MAX) {
        user_error_set(error, NULL, 0, NULL, "the host device cannot split %u query heads over %u ranks", a->heads,
                       shape->tensor);
        return false;
    }
    shape->heads = a->heads / shape->tensor;
    shape->head_first = shape->t * shape->heads;
    shape->kv_heads = kv_rank_heads(&config->memory.geometry);
    shape->kv_head_first = shape->t / kv_replicas(&config->memory.geometry) * shape->kv_heads;
    shape->query_dim = latent ? a->nope_dim + a->rope_dim : a->head_dim;
    shape->value_dim = latent ? a->value_dim : a->head_dim;
    shape->cache_dim = latent ? a->latent_dim + a->rope_dim : a->head_dim;
    shape->rotated = latent ? a->rope_dim : a->head_dim;
    if (!latent && a->heads % a->kv_heads != 0) {
        user_error_set(error, NULL, 0, NULL, "the host device cannot share %u KV heads among %u query heads",
                       a->kv_heads, a->heads);
        return false;
    }
    if (shape->rotated % 2 != 0 || shape->query_dim == 0 || shape->value_dim == 0) {
        user_error_set(error, NULL, 0, NULL, "the host device rotates pairs: %u dimensions of a head cannot be",
                       shape->rotated);
        return false;
    }
    return true;
}

static bool split_experts(struct host_shape *shape, const struct device_config *config, struct user_error *error)
{
    const struct architecture *a = config->architecture;
    uint32_t sets = config->memory.geometry.parallelism.expert;
    if (a->experts == 0)
        return true;
    if (sets == 0 || shape->stage_ranks % sets != 0 || a->experts_active == 0 || a->experts_active > a->experts ||
        a->experts_active > KERNEL_TOPK_MAX) {
        user_error_set(error, NULL, 0, NULL,
                       "the host device cannot deal %u experts, %u of them active, to %u of %u ranks", a->experts,
                       a->experts_active, sets, shape->stage_ranks);
        return false;
    }
    shape->expert_slices = shape->stage_ranks / sets;
    uint32_t place_in_stage = shape->group * shape->tensor + shape->t;
    shape->expert_set = place_in_stage / shape->expert_slices;
    shape->expert_slice = place_in_stage % shape->expert_slices;
    shape->experts_per_set = ceil_div_u32(a->experts, sets);
    shape->expert_first = min_u32(a->experts, shape->expert_set * shape->experts_per_set);
    shape->expert_count = min_u32(shape->experts_per_set, a->experts - shape->expert_first);
    if (!split(a->expert_intermediate, shape->expert_slices, "an expert", &shape->expert_units, &shape->expert_width,
               error))
        return false;
    return a->shared_experts == 0 || split(a->shared_experts * a->expert_intermediate, shape->tensor,
                                           "the shared experts", &shape->shared_units, &shape->shared_width, error);
}

bool host_shape_make(struct host_shape *shape, const struct device_config *config, struct user_error *error)
{
    const struct architecture *a = config->architecture;
    *shape = (struct host_shape){0};
    place(shape, config);
    if (device_unsupported(a) != NULL) {
        user_error_set(error, NULL, 0, NULL, "the host device does not compute %s, which %s has", device_unsupported(a),
                       a->name);
        return false;
    }
    shape->element_bytes = kv_format_bytes(a->kv_format);
    if (shape->element_bytes == 0) {
        user_error_set(error, NULL, 0, NULL, "the host device keeps its KV cache in bf16 or fp8");
        return false;
    }
    if (a->hidden == 0 || a->vocab == 0 || a->vocab < shape->tensor) {
        user_error_set(error, NULL, 0, NULL,
                       "the host device needs a hidden state and a vocabulary of %u tokens or more", shape->tensor);
        return false;
    }
    if (!split_attention(shape, config, error))
        return false;
    bool any_dense = a->experts == 0 || a->dense_layers > 0;
    if (any_dense && !split(a->intermediate, shape->tensor, "an MLP", &shape->dense_units, &shape->dense_width, error))
        return false;
    shape->vocab_first = host_vocab_first(a, shape->tensor, shape->t);
    shape->vocab_count = host_vocab_first(a, shape->tensor, shape->t + 1) - shape->vocab_first;
    return split_experts(shape, config, error);
}
