/* An efficiency measured over a grid of shapes, and a time measured over sizes.
 *
 * Grids have up to three axes. Along an axis nodes are powers of two, and between nodes a value is interpolated
 * linearly in log2_linear(x), the piecewise-linear logarithm: it needs no logarithm of a library, so it is the same
 * number on every machine. Outside its nodes a grid continues with the value at its edge.
 */
#ifndef TANDEM_SIM_COST_EFFICIENCY_GRID_H
#define TANDEM_SIM_COST_EFFICIENCY_GRID_H

#include <stdint.h>

#define GRID_NODES_MAX 12

struct grid_axis {
    uint32_t count;               /* 1: the efficiency does not depend on this axis */
    int8_t nodes[GRID_NODES_MAX]; /* log2 of the node values, ascending */
};

/* time = launch + bound / efficiency, where bound is that of the roofline for the shape. An efficiency may exceed 1
 * where the formula of the roofline counts more work than a measured kernel had to do. */
struct efficiency_grid {
    const char *source; /* measured table, for people */
    uint32_t launch_ns;
    const struct grid_axis *axes[3];
    const uint16_t *values; /* in units of 1e-4; the last axis runs fastest */
};

/* e + (x / 2^e - 1) for 2^e <= x < 2^(e + 1); x > 0. */
double log2_linear(double x);

double grid_efficiency(const struct efficiency_grid *grid, double x, double y, double z);

/* A time per size: values[i] nanoseconds at 2^(first_log2 + i * stride_log2). Linear in log2_linear between nodes,
 * constant below the first, proportional to size above the last. */
struct latency_curve {
    const char *source;
    int8_t first_log2;
    uint8_t stride_log2;
    uint16_t count;
    const uint32_t *values;
};

double latency_curve_ns(const struct latency_curve *curve, double size);

#endif
