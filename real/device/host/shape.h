/* What one rank of the host device holds of the model: which layers, heads, columns of the MLPs and experts.
 *
 * Split dimensions are cut into units, and a rank holds an aligned run of them (linear.h): attention outputs into query
 * heads, an MLP's intermediate dimension into the largest power of two, at most 32, that divides it. The ranks that
 * share a dimension must be a power of two and divide its units.
 */
#ifndef TANDEM_REAL_DEVICE_HOST_SHAPE_H
#define TANDEM_REAL_DEVICE_HOST_SHAPE_H

#include "real/device/device.h"
#include "host/user_error.h"

struct host_shape {
    /* Place. Ranks of the instance are numbered (stage * data + group) * tensor + t. */
    uint32_t ranks;
    uint32_t tensor;
    uint32_t data;
    uint32_t stages;
    uint32_t stage;
    uint32_t group;
    uint32_t t;
    uint32_t stage_ranks; /* data * tensor */
    uint32_t stage_first; /* rank */
    uint32_t group_first; /* rank: the lead */
    uint32_t layer_first;
    uint32_t layer_count;
    bool last_stage;

    /* Attention. */
    uint32_t head_first;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t kv_head_first;
    uint32_t query_dim;     /* of a head: head_dim, or nope_dim + rope_dim */
    uint32_t value_dim;     /* of a head's output: head_dim, or value_dim */
    uint32_t cache_dim;     /* cached elements of a head, token and plane: head_dim, or latent_dim + rope_dim */
    uint32_t rotated;       /* dimensions that rope turns: head_dim, or rope_dim */
    uint32_t element_bytes; /* of a cached element */

    /* MLPs: this rank's units and their width. */
    uint32_t dense_units;
    uint32_t dense_width;
    uint32_t shared_units; /* of the shared experts, taken together as one MLP */
    uint32_t shared_width;
    uint32_t expert_units;
    uint32_t expert_width;
    uint32_t expert_slices; /* ranks that share an expert */
    uint32_t expert_slice;
    uint32_t expert_set; /* of `parallelism.expert` sets */
    uint32_t experts_per_set;
    uint32_t expert_first;
    uint32_t expert_count;

    /* LM head. */
    uint32_t vocab_first;
    uint32_t vocab_count;
};

/* False with one sentence in `error` when the host device cannot split the model so. */
bool host_shape_make(struct host_shape *shape, const struct device_config *config, struct user_error *error);

/* Whether MLP of layer `layer` is a mixture of experts. */
static inline bool host_layer_sparse(const struct architecture *architecture, uint32_t layer)
{
    return architecture->experts > 0 && layer >= architecture->dense_layers;
}

/* First vocabulary entry of rank t of a group, t <= tensor. */
static inline uint32_t host_vocab_first(const struct architecture *architecture, uint32_t tensor, uint32_t t)
{
    return (uint32_t)((uint64_t)architecture->vocab * t / tensor);
}

#endif
