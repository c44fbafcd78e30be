/* Routed experts. Few tokens touch few experts, so weight bytes follow the expected number of distinct experts; many
 * tokens are computed by the busiest of the expert-parallel ranks. */
#include "sim/cost/operators.h"

#include "base/log2.h"

/* base^exponent for a real base and a real exponent >= 0: repeated squaring for the whole part, linear between. */
static double power(double base, double exponent)
{
    uint64_t whole = (uint64_t)exponent;
    double fraction = exponent - (double)whole;
    double result = 1.0 - fraction * (1.0 - base);
    for (double square = base; whole > 0; whole >>= 1, square *= square)
        if (whole & 1)
            result *= square;
    return result;
}

double distinct_experts(double experts, double active, double tokens)
{
    return experts * (1.0 - power(1.0 - active / experts, tokens));
}

static struct operator_time experts_measured(const struct moe_shape *shape, double tokens)
{
    const struct kernel_roofline *roofline = &shape->measured->roofline;
    double touched = distinct_experts(shape->experts, shape->active, tokens) / shape->expert_ranks;
    double rows = tokens * shape->active / shape->expert_ranks;
    struct operator_time time = {.source = shape->measured->source};
    /* launch_ns stays 0: the floor of a table of experts is the reading of a few, which is work. */
    double ratio = kernel_slice_ratio(shape->measured, shape->expert_ranks, tokens, &time.estimate);
    time.ns = exp2_of(ratio) * kernel_experts_ns(roofline, shape->tensor, shape->expert_ranks, tokens,
                                                 shape->shared_width, tokens / shape->groups);
    bool compute = 2.0 * rows / roofline->flops > touched * roofline->weight_bytes / roofline->memory_bytes;
    time.bound = compute ? BOUND_COMPUTE : BOUND_BANDWIDTH;
    return time;
}

struct operator_time moe_time(const struct device *device, double tokens, const struct moe_shape *shape)
{
    if (shape->measured != NULL)
        return experts_measured(shape, tokens);
    enum number_format format = shape->format;
    const struct efficiency_grid *grid = device->moe[format];
    double experts_local = shape->experts / shape->expert_ranks;
    double rows = tokens * shape->active / shape->expert_ranks * expert_imbalance(shape->expert_ranks);
    double touched = distinct_experts(shape->experts, shape->active, tokens) / shape->expert_ranks;
    double weights = 3.0 * shape->hidden * (touched * shape->width + shape->shared_width);
    double memory = weights * device->weight_bytes[format] / device->bytes_per_ns;
    double products = rows * shape->width + tokens / shape->groups * shape->shared_width;
    double compute = 6.0 * shape->hidden * products / device->flops_per_ns[format];
    double shuffle = 6.0 * rows * shape->hidden / device->bytes_per_ns; /* gathered, and scattered back in bf16 */
    double roofline = (compute > memory ? compute : memory) + shuffle;
    double efficiency = grid_efficiency(grid, tokens * shape->active / shape->experts, shape->width, experts_local);
    return (struct operator_time){
        .ns = (double)grid->launch_ns + roofline / efficiency,
        .launch_ns = (double)grid->launch_ns,
        .bound = compute > memory ? BOUND_COMPUTE : BOUND_BANDWIDTH,
        .estimate = ESTIMATE_MODELLED,
        .source = grid->source,
    };
}
