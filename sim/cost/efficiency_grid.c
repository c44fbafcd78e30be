/* See efficiency_grid.h. */
#include "sim/cost/efficiency_grid.h"

#include "base/check.h"

#include <string.h>

double log2_linear(double x)
{
    CHECK(x > 0);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    double mantissa; /* in [1, 2) */
    memcpy(&mantissa, &bits, sizeof mantissa);
    return (double)exponent + (mantissa - 1.0);
}

/* Sets the node below x and how far x lies towards the next one, 0 to 1. */
static uint32_t axis_locate(const struct grid_axis *axis, double x, double *fraction)
{
    *fraction = 0.0;
    if (axis->count == 1)
        return 0;
    double at = log2_linear(x);
    if (at <= axis->nodes[0])
        return 0;
    for (uint32_t i = 0; i + 1 < axis->count; i++) {
        if (at < axis->nodes[i + 1]) {
            *fraction = (at - axis->nodes[i]) / (double)(axis->nodes[i + 1] - axis->nodes[i]);
            return i;
        }
    }
    *fraction = 1.0;
    return axis->count - 2;
}

double grid_efficiency(const struct efficiency_grid *grid, double x, double y, double z)
{
    double at[3] = {x, y, z};
    uint32_t node[3];
    double fraction[3];
    for (uint32_t a = 0; a < 3; a++)
        node[a] = axis_locate(grid->axes[a], at[a], &fraction[a]);
    double sum = 0.0;
    for (uint32_t corner = 0; corner < 8; corner++) {
        double weight = 1.0;
        uint32_t index = 0;
        for (uint32_t a = 0; a < 3; a++) {
            uint32_t up = corner >> a & 1;
            weight *= up ? fraction[a] : 1.0 - fraction[a];
            index = index * grid->axes[a]->count + node[a] + (grid->axes[a]->count > 1 ? up : 0);
        }
        if (weight > 0.0)
            sum += weight * (double)grid->values[index];
    }
    return sum * 1e-4;
}

double latency_curve_ns(const struct latency_curve *curve, double size)
{
    double at = (log2_linear(size) - curve->first_log2) / (double)curve->stride_log2;
    if (at <= 0.0)
        return (double)curve->values[0];
    uint32_t last = curve->count - 1u;
    if (at >= (double)last) {
        double largest = (double)(UINT64_C(1) << (uint32_t)(curve->first_log2 + (int)(last * curve->stride_log2)));
        return (double)curve->values[last] * (size / largest);
    }
    uint32_t i = (uint32_t)at;
    double low = (double)curve->values[i];
    double high = (double)curve->values[i + 1];
    return low + (high - low) * (at - (double)i);
}
