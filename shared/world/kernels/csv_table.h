/* A whole CSV file in memory, for tables of measurements: plain or compressed (xz, gzip, zstd). Lines that begin with
 * '#' are comments, the first other line names the columns, every row has as many cells. Cells are those of host/csv.h,
 * none over the end of a line; an empty cell is "unknown".
 */
#ifndef TANDEM_WORLD_KERNELS_CSV_TABLE_H
#define TANDEM_WORLD_KERNELS_CSV_TABLE_H

#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a file. */
#define CSV_BYTES_MAX ((size_t)512 << 20)

struct csv_table {
    char path[1024];
    uint32_t column_count;
    uint32_t row_count;
    uint32_t comment_count;
    int head_line;         /* that names the columns */
    const char **names;    /* [column_count] */
    const char **cells;    /* [row_count * column_count] */
    const char **comments; /* [comment_count], without '#' and the blank after it */
    int *lines;            /* [row_count]: where in the file a row stands */
    char *text;            /* what all of them point into */
};

/* `name` is a path below the shipped scenarios, as in "validation/serving.csv.xz". False and `error` described when the
 * file is missing, damaged or not of this form. */
bool csv_table_load(const char *name, struct csv_table *table, struct user_error *error);

/* The same, of a path as it is. */
bool csv_table_read(const char *path, struct csv_table *table, struct user_error *error);

/* The same, of the bytes of a file, with a NUL behind them, which it takes over. */
bool csv_table_parse(const char *path, char *text, size_t size, struct csv_table *table, struct user_error *error);

void csv_table_free(struct csv_table *table);

/* The number of a column; column_count: there is none. */
uint32_t csv_column_find(const struct csv_table *table, const char *name);

/* A column that the program's own tables have: asking for another is a bug. */
uint32_t csv_column(const struct csv_table *table, const char *name);

/* The value of a comment "# KEY: VALUE"; NULL: there is none. */
const char *csv_comment(const struct csv_table *table, const char *key);

static inline const char *csv_text(const struct csv_table *table, uint32_t row, uint32_t column)
{
    return table->cells[(uint64_t)row * table->column_count + column];
}

/* A whole number, or `otherwise` where the cell is empty. Anything else in it is a bug in a shipped table. */
int64_t csv_integer(const struct csv_table *table, uint32_t row, uint32_t column, int64_t otherwise);

/* False where the text is no decimal number; its last bit is that of strtod(). */
bool csv_decimal(const char *text, double *number);

#endif
