/* Attention kernels. Decode reads the cache once and is bound by bandwidth for grouped-query attention; with one latent
 * shared by all heads it has tens of operations a byte and is bound by compute at many heads a rank. */
#include "sim/cost/operators.h"

struct operator_time decode_attention_time(const struct device *device, const struct attention_shape *shape,
                                           double sequences, double context)
{
    double element_bytes = shape->kv_fp8 ? 1.0 : 2.0;
    double bf16 = device->flops_per_ns[FORMAT_BF16];
    double length = context / sequences;
    if (shape->window > 0 && length > shape->window)
        length = shape->window;
    double read = length * sequences;
    const struct efficiency_grid *grid;
    double memory;
    double compute;
    double efficiency;
    if (shape->kind == ATTENTION_MLA) {
        double latent = shape->latent_dim + shape->rope_dim;
        grid = device->tables->mla_decode[shape->kv_fp8];
        memory = read * latent * element_bytes / device->bytes_per_ns;
        compute = 2.0 * read * shape->heads * (latent + shape->latent_dim) / bf16;
        efficiency = grid_efficiency(grid, sequences, length, shape->heads);
    } else {
        grid = device->tables->decode_attention[shape->kv_fp8];
        memory = 2.0 * read * shape->kv_heads * shape->head_dim * element_bytes / device->bytes_per_ns;
        compute = 4.0 * read * shape->heads * shape->head_dim / bf16;
        efficiency = grid_efficiency(grid, sequences * shape->kv_heads, length, 1.0);
    }
    bool compute_bound = shape->kind == ATTENTION_MLA && compute > memory;
    return (struct operator_time){
        .ns = (double)grid->launch_ns + (compute_bound ? compute : memory) / efficiency,
        .launch_ns = (double)grid->launch_ns,
        .bound = compute_bound ? BOUND_COMPUTE : BOUND_BANDWIDTH,
        .source = grid->source,
    };
}

struct operator_time prefill_attention_time(const struct device *device, const struct attention_shape *shape,
                                            double tokens, double pairs)
{
    bool latent = shape->kind == ATTENTION_MLA;
    const struct prefill_fit *fit =
        latent ? device->tables->mla_prefill[shape->kv_fp8] : device->tables->prefill_attention[shape->kv_fp8];
    double per_pair = latent ? 2.0 * shape->heads * (shape->nope_dim + shape->rope_dim + shape->value_dim)
                             : 4.0 * shape->heads * shape->head_dim;
    if (shape->window > 0 && pairs > tokens * shape->window)
        pairs = tokens * shape->window;
    double work = (pairs * fit->pair + tokens * fit->token) * per_pair;
    return (struct operator_time){
        .ns = (double)fit->launch_ns + work / device->flops_per_ns[FORMAT_BF16],
        .launch_ns = (double)fit->launch_ns,
        .bound = BOUND_COMPUTE,
        .source = fit->source,
    };
}
