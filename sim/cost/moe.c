/* Routed experts. Few tokens touch few experts, so weight bytes follow the expected number of distinct experts; many
 * tokens are computed by the busiest of the expert-parallel ranks. */
#include "sim/cost/operators.h"

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

struct operator_time moe_time(const struct device *device, double tokens, const struct moe_shape *shape)
{
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
    double ideal = (compute > memory ? compute : memory) + shuffle;
    double efficiency = grid_efficiency(grid, tokens * shape->active / shape->experts, shape->width, experts_local);
    return (struct operator_time){
        .ns = (double)grid->launch_ns + ideal / efficiency,
        .launch_ns = (double)grid->launch_ns,
        .bound = compute > memory ? BOUND_COMPUTE : BOUND_BANDWIDTH,
        .source = grid->source,
    };
}
