/* Interpolation in measured tables, in their own coordinates.
 *
 * A lattice is the part of a table whose series differ only in the kind's dimensions: all n and k of one number format,
 * all head counts and batches of one attention. What is interpolated is log2(measured / ideal), linearly in the
 * logarithm of every coordinate: along the axis inside a series first, then between the series around the point. Beyond
 * the last knot the ratio stays what it is there, so that the ideal, the roofline, goes on without a jump.
 *
 * A series may lack knots that its neighbours on the lattice have. Between its own knots it then follows their shape:
 * the mean of how far they are from a straight line over the same stretch is added; beyond its last knot it follows how
 * they go on.
 *
 * A sheet is a lattice at one value of its outer dimension, and, where asked, of its inner one: what the operators of a
 * served model look up. Immutable once made.
 */
#ifndef TANDEM_SIM_COST_KERNEL_LATTICE_H
#define TANDEM_SIM_COST_KERNEL_LATTICE_H

#include "sim/cost/estimate.h"
#include "sim/cost/kernel_ideal.h"

struct kernel_lattice {
    const struct kernel_table *table;
    struct kernel_ideal ideal;
    uint32_t first; /* series */
    uint32_t series_count;
    uint32_t outer_count; /* 1 for a kind with one dimension */
    uint32_t inner_count;
    uint32_t *outer; /* ascending values; 0 for a kind with one dimension */
    uint32_t *inner;
    int32_t *series; /* [outer_count * inner_count], -1: not measured */
};

/* The series whose key columns before the dimensions are those of `first`, which must be their first one. */
bool kernel_lattice_make(struct kernel_lattice *lattice, const struct kernel_table *table, uint32_t first,
                         const struct kernel_rates *rates);
void kernel_lattice_free(struct kernel_lattice *lattice);

/* How many series from `first` on share its category. */
uint32_t kernel_category_length(const struct kernel_table *table, uint32_t first);

/* The least time of a lattice: what launching its kernel costs. */
double kernel_lattice_floor_ns(const struct kernel_table *table, uint32_t first, uint32_t count);

/* log2(measured / ideal) at a node of the lattice. `without` is a row of the table that counts as not measured, or
 * KERNEL_NO_ROW. False: nothing to go by. */
#define KERNEL_NO_ROW UINT32_MAX
bool kernel_node_ratio(const struct kernel_lattice *lattice, uint32_t outer, uint32_t inner, double x, uint32_t without,
                       double *ratio);

struct kernel_curve {
    uint32_t first; /* of the sheet's points */
    uint32_t count;
    double inner; /* value and logarithm */
    double inner_log;
};

struct kernel_sheet {
    struct kernel_ideal ideal; /* the caller may change rates and bytes after making it */
    double outer;
    bool borrowed; /* of another shape: never measured */
    bool outside;  /* beyond the outer or the inner values that were measured */
    bool outer_exact;
    bool inner_exact; /* of the one curve of a sheet that was made at an inner value */
    uint32_t curve_count;
    struct kernel_curve *curves;
    double *logs; /* log2 of the knots, points of all curves */
    double *ratios;
    char source[160]; /* the table, for people */
};

/* At `outer` (ignored by a kind with one dimension) and every inner value, or, if `inner` > 0, at that one. */
bool kernel_sheet_make(struct kernel_sheet *sheet, const struct kernel_lattice *lattice, double outer, double inner);
void kernel_sheet_free(struct kernel_sheet *sheet);

/* log2(measured / ideal). */
double kernel_sheet_ratio(const struct kernel_sheet *sheet, double inner, double x, enum estimate *estimate);

double kernel_sheet_ns(const struct kernel_sheet *sheet, double inner, double x, enum estimate *estimate);

#endif
