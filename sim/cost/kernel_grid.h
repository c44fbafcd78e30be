/* Interpolation in measured tables, in their own coordinates.
 *
 * A grid is the part of a table whose series differ only in the kind's dimensions: all n and k of one number format,
 * all head counts and batches of one attention. What is interpolated is log2(measured / roofline), linearly in the
 * logarithm of every coordinate: along the axis inside a series first, then between the series around the point. Beyond
 * the last breakpoint the ratio stays what it is there, so that the roofline goes on without a jump.
 *
 * A series may lack breakpoints that its neighbours on the grid have. Between its own breakpoints it then follows their
 * shape: the mean of how far they are from a straight line over the same stretch is added; beyond its last breakpoint
 * it follows how they go on.
 *
 * A slice is a grid at one value of its outer dimension, and, where asked, of its inner one: what the operators of a
 * served model look up. Immutable once made.
 */
#ifndef TANDEM_SIM_COST_KERNEL_GRID_H
#define TANDEM_SIM_COST_KERNEL_GRID_H

#include "sim/cost/estimate.h"
#include "sim/cost/kernel_roofline.h"

struct kernel_grid {
    const struct kernel_table *table;
    struct kernel_roofline roofline;
    uint32_t first; /* series */
    uint32_t series_count;
    uint32_t outer_count; /* 1 for a kind with one dimension */
    uint32_t inner_count;
    uint32_t *outer; /* ascending values; 0 for a kind with one dimension */
    uint32_t *inner;
    int32_t *series; /* [outer_count * inner_count], -1: not measured */
};

/* The series whose key columns before the dimensions are those of `first`, which must be their first one. */
bool kernel_grid_make(struct kernel_grid *grid, const struct kernel_table *table, uint32_t first,
                      const struct kernel_rates *rates);
void kernel_grid_free(struct kernel_grid *grid);

/* How many series from `first` on share its category. */
uint32_t kernel_category_length(const struct kernel_table *table, uint32_t first);

/* The least time of a grid: what launching its kernel costs. */
double kernel_grid_floor_ns(const struct kernel_table *table, uint32_t first, uint32_t count);

/* log2(measured / roofline) at a node of the grid. `without` is a row of the table that counts as not measured, or
 * KERNEL_NO_ROW. False: nothing to go by. */
#define KERNEL_NO_ROW UINT32_MAX
bool kernel_node_ratio(const struct kernel_grid *grid, uint32_t outer, uint32_t inner, double x, uint32_t without,
                       double *ratio);

struct kernel_curve {
    uint32_t first; /* of the slice's points */
    uint32_t count;
    double inner; /* value and logarithm */
    double inner_log;
};

struct kernel_slice {
    struct kernel_roofline roofline; /* the caller may change rates and bytes after making it */
    double outer;
    bool borrowed; /* of another shape: never measured */
    bool outside;  /* beyond the outer or the inner values that were measured */
    bool outer_exact;
    bool inner_exact; /* of the one curve of a slice that was made at an inner value */
    uint32_t curve_count;
    struct kernel_curve *curves;
    double *logs; /* log2 of the breakpoints, points of all curves */
    double *ratios;
    char source[160]; /* the table, for people */
};

/* At `outer` (ignored by a kind with one dimension) and every inner value, or, if `inner` > 0, at that one. */
bool kernel_slice_make(struct kernel_slice *slice, const struct kernel_grid *grid, double outer, double inner);
void kernel_slice_free(struct kernel_slice *slice);

/* log2(measured / roofline). */
double kernel_slice_ratio(const struct kernel_slice *slice, double inner, double x, enum estimate *estimate);

double kernel_slice_ns(const struct kernel_slice *slice, double inner, double x, enum estimate *estimate);

#endif
