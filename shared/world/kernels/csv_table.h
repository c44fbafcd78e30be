/* A whole CSV file in memory, for tables of measurements that come with the program: plain or compressed (xz, gzip,
 * zstd). Lines that begin with '#' are comments, the first other line names the columns, every row has as many cells.
 * Cells are those of host/csv.h, none over the end of a line; an empty cell is "unknown".
 */
#ifndef TANDEM_WORLD_KERNELS_CSV_TABLE_H
#define TANDEM_WORLD_KERNELS_CSV_TABLE_H

#include "host/user_error.h"

#include <stdbool.h>
#include <stdint.h>

struct csv_table {
    char path[1024];
    uint32_t column_count;
    uint32_t row_count;
    const char **names; /* [column_count] */
    const char **cells; /* [row_count * column_count] */
    char *text;         /* what all of them point into */
};

/* `name` is a path below the shipped scenarios, as in "validation/serving.csv.xz". False and `error` described when the
 * file is missing, damaged or not of this form. */
bool csv_table_load(const char *name, struct csv_table *table, struct user_error *error);

/* The same, of a path as it is. */
bool csv_table_read(const char *path, struct csv_table *table, struct user_error *error);

void csv_table_free(struct csv_table *table);

/* A column that the program's own tables have: asking for another is a bug. */
uint32_t csv_column(const struct csv_table *table, const char *name);

static inline const char *csv_text(const struct csv_table *table, uint32_t row, uint32_t column)
{
    return table->cells[(uint64_t)row * table->column_count + column];
}

/* A whole number, or `otherwise` where the cell is empty. Anything else in it is a bug in a shipped table. */
int64_t csv_integer(const struct csv_table *table, uint32_t row, uint32_t column, int64_t otherwise);

#endif
