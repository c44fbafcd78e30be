/* A measured table of one kind of kernel: the times of a GEMM, of decode attention, of an all-reduce, ... on one GPU,
 * as one engine runs it.
 *
 * A table consists of series. A series has one value in each key column (say n and k of a matrix product) and a time at
 * every point of its axis (say m). Many series are measured at the same points: such an axis stands once. Series are in
 * ascending order of their keys, points of an axis ascend strictly, so that a table has one order only. Text columns
 * hold indices into their sorted texts.
 *
 * Times are codes: see base/log2.h.
 */
#ifndef TANDEM_WORLD_KERNELS_KERNEL_TABLE_H
#define TANDEM_WORLD_KERNELS_KERNEL_TABLE_H

#include "world/kernels/kernel_kind.h"
#include "host/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_TEXT_SIZE 96
#define KERNEL_TEXTS_MAX 64
#define KERNEL_ROWS_MAX (UINT32_C(1) << 22)

/* What a table says about itself. Texts are one line each, without control characters. */
struct kernel_origin {
    char gpu[16];     /* "H200" */
    char engine[16];  /* "vllm", "sglang", "trtllm", "nccl", or another */
    char version[32]; /* of the engine */
    char source[256]; /* where the rows come from */
    char licence[64];
    char source_sha256[SHA256_HEX_SIZE]; /* of the CSV that the table was made from */
};

struct kernel_table {
    const struct kernel_kind *kind;
    struct kernel_origin origin;
    uint32_t merged;  /* rows at the same place as another: their median stands for them */
    uint32_t dropped; /* rows that the kind leaves out, and disturbed ones */

    uint32_t text_count[KERNEL_COLUMNS_MAX]; /* 0: a column of numbers */
    char (*texts[KERNEL_COLUMNS_MAX])[KERNEL_TEXT_SIZE];

    uint32_t series_count;
    uint32_t row_count;
    uint32_t axis_count;
    uint32_t point_count;  /* of all axes */
    uint32_t *keys;        /* series_count * kind->column_count */
    uint32_t *axis;        /* of each series */
    uint32_t *row_first;   /* series_count + 1 */
    uint32_t *point_first; /* axis_count + 1 */
    uint32_t *points;
    uint16_t *codes; /* row_count */
};

void kernel_table_free(struct kernel_table *table); /* NULL is allowed */

static inline uint32_t kernel_key(const struct kernel_table *table, uint32_t series, uint32_t column)
{
    return table->keys[series * table->kind->column_count + column];
}

static inline uint32_t kernel_point_count(const struct kernel_table *table, uint32_t series)
{
    return table->row_first[series + 1] - table->row_first[series];
}

static inline const uint32_t *kernel_points(const struct kernel_table *table, uint32_t series)
{
    return table->points + table->point_first[table->axis[series]];
}

static inline const uint16_t *kernel_codes(const struct kernel_table *table, uint32_t series)
{
    return table->codes + table->row_first[series];
}

/* The index of a text in a column; false where no series has it. */
bool kernel_text_find(const struct kernel_table *table, uint32_t column, const char *text, uint32_t *index);

/* ---- Making one ------------------------------------------------------------------------------------------------ */

/* An empty table with room for so many series and rows (at least one each), without origin. */
struct kernel_table *kernel_table_new(const struct kernel_kind *kind, uint32_t series, uint32_t rows);

/* Adds a text to a column's, in order; false: no room for another. */
bool kernel_text_add(struct kernel_table *table, uint32_t column, const char *text);

/* Adds a series of `count` rows. The caller adds them in ascending order of their keys, and has added all texts. */
void kernel_series_add(struct kernel_table *table, const uint32_t *keys, const uint32_t *points, const uint16_t *codes,
                       uint32_t count);

struct kernel_row {
    uint32_t keys[KERNEL_COLUMNS_MAX];
    uint32_t point;
    uint16_t code;
    uint32_t index; /* order in the source */
};

/* Sorts rows (in place) into a table that takes over the texts of `texts`. Rows at one place become their median; a row
 * that takes over twice as long as both its neighbours, in its series or in the next batches, was disturbed and is
 * dropped. */
struct kernel_table *kernel_table_make(struct kernel_table *texts, struct kernel_row *rows, uint32_t count);

#endif
