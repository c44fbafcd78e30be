/* The kinds of measured tables: which columns of a CSV are the keys of a series, which is its axis, which holds the
 * time, and which rows count.
 *
 * Names of columns are those of ai-dynamo/aiconfigurator's perf files, the largest public collection; a table of one's
 * own is written with the same names. Columns that a kind does not name are ignored.
 */
#ifndef TANDEM_WORLD_KERNELS_KERNEL_KIND_H
#define TANDEM_WORLD_KERNELS_KERNEL_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_COLUMNS_MAX 10
#define KERNEL_TIMES_MAX 2
#define KERNEL_SUMMANDS_MAX 2

enum kernel_kind_id {
    KERNEL_GEMM = 1,
    KERNEL_CONTEXT_ATTENTION = 2,
    KERNEL_GENERATION_ATTENTION = 3,
    KERNEL_CONTEXT_MLA = 4,
    KERNEL_GENERATION_MLA = 5,
    KERNEL_MLA_BMM = 6,
    KERNEL_MLA_CONTEXT_MODULE = 7,
    KERNEL_MLA_GENERATION_MODULE = 8,
    KERNEL_DSA_CONTEXT_MODULE = 9,
    KERNEL_DSA_GENERATION_MODULE = 10,
    KERNEL_WIDEEP_CONTEXT_MLA = 11,
    KERNEL_WIDEEP_GENERATION_MLA = 12,
    KERNEL_MOE = 13,
    KERNEL_WIDEEP_CONTEXT_MOE = 14,
    KERNEL_WIDEEP_GENERATION_MOE = 15,
    KERNEL_WIDEEP_MOE = 16,
    KERNEL_DEEPEP_LL = 17,
    KERNEL_DEEPEP_NORMAL = 18,
    KERNEL_ALLTOALL = 19,
    KERNEL_ALL_REDUCE = 20,
    KERNEL_NCCL = 21,
};
#define KERNEL_KINDS 21

struct kernel_column {
    const char *name;
    bool text;
    const char *absent; /* the value where the CSV has no such column; NULL: it is required */
};

/* A time of a row, in the unit of its columns: the sum of them. Where a kind has two, `phase`, the value of its first
 * key column, tells them apart. */
struct kernel_time {
    const char *phase;
    const char *columns[KERNEL_SUMMANDS_MAX];
};

struct kernel_kind {
    enum kernel_kind_id id;
    const char *name; /* as in `tandem pack --table` and in a pack's head */
    const char *about;
    uint32_t column_count;
    struct kernel_column columns[KERNEL_COLUMNS_MAX];
    const char *axis;
    struct kernel_time times[KERNEL_TIMES_MAX];
    double unit_ns; /* of the time's columns */

    /* Rows whose filter column ends otherwise are left out; NULL: all rows count. A CSV without the column is whole. */
    const char *filter_column;
    const char *filter_suffix;

    /* The key columns along which one may interpolate between series, outermost first; the others must match. */
    uint32_t dimension_count;
    uint32_t dimensions[2];
};

const struct kernel_kind *kernel_kind_named(const char *name); /* NULL: none */
const struct kernel_kind *kernel_kind_of(enum kernel_kind_id id);
const struct kernel_kind *kernel_kind_at(uint32_t index); /* 0 ... KERNEL_KINDS - 1 */

/* Whether series may be interpolated along a key column; its values are at least 1. Dimensions are the last columns. */
bool kernel_is_dimension(const struct kernel_kind *kind, uint32_t column);

#endif
