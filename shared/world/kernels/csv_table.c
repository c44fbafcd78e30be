/* See csv_table.h. */
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"

#include "base/check.h"
#include "host/csv.h"
#include "host/input.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)64 << 20)
#define COLUMNS_MAX 256

/* ---- Cells ------------------------------------------------------------------------------------------------------ */

static uint32_t line_count(const char *text)
{
    uint32_t count = 1;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

/* A line that is no comment: the names of the columns, then rows. */
static bool take_line(struct csv_table *table, char *line, int number, uint32_t lines, struct user_error *error)
{
    struct csv_cell cells[COLUMNS_MAX];
    uint32_t count;
    if (!csv_split(line, cells, COLUMNS_MAX, &count, table->path, number, error))
        return false;
    bool names = table->names == NULL;
    if (names) {
        table->column_count = count;
        table->names = memory_zeroed(count, sizeof *table->names);
        table->cells = memory_zeroed((size_t)lines * count, sizeof *table->cells);
    }
    if (count != table->column_count) {
        user_error_set(error, table->path, number, NULL, "%u cells, expected %u", count, table->column_count);
        return false;
    }
    const char **row = names ? table->names : table->cells + (size_t)table->row_count * count;
    for (uint32_t c = 0; c < count; c++)
        row[c] = cells[c].text;
    table->row_count += !names;
    return true;
}

static bool fill(struct csv_table *table, struct user_error *error)
{
    uint32_t lines = line_count(table->text);
    int number = 0;
    char *next;
    for (char *line = table->text; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        number++;
        if (line[0] != '#' && line[0] != '\0' && !take_line(table, line, number, lines, error))
            return false;
    }
    if (table->names == NULL)
        user_error_set(error, table->path, number, NULL, "holds no table");
    return table->names != NULL;
}

bool csv_table_read(const char *path, struct csv_table *table, struct user_error *error)
{
    size_t length;
    *table = (struct csv_table){0};
    snprintf(table->path, sizeof table->path, "%s", path);
    table->text = input_all(table->path, BYTES_MAX, &length, error);
    if (table->text != NULL && fill(table, error))
        return true;
    csv_table_free(table);
    return false;
}

bool csv_table_load(const char *name, struct csv_table *table, struct user_error *error)
{
    char path[sizeof table->path];
    snprintf(path, sizeof path, "%s/%s", scenario_library_root(), name);
    return csv_table_read(path, table, error);
}

void csv_table_free(struct csv_table *table)
{
    free(table->names);
    free(table->cells);
    free(table->text);
    *table = (struct csv_table){0};
}

uint32_t csv_column(const struct csv_table *table, const char *name)
{
    for (uint32_t c = 0; c < table->column_count; c++)
        if (strcmp(table->names[c], name) == 0)
            return c;
    fprintf(stderr, "%s: no column '%s'\n", table->path, name);
    check_failed("a shipped table has its columns", __FILE__, __LINE__);
}

int64_t csv_integer(const struct csv_table *table, uint32_t row, uint32_t column, int64_t otherwise)
{
    const char *cell = csv_text(table, row, column);
    char *end;
    if (cell[0] == '\0')
        return otherwise;
    long long value = strtoll(cell, &end, 10);
    if (*end != '\0') {
        fprintf(stderr, "%s: '%s' in column '%s' is not a whole number\n", table->path, cell, table->names[column]);
        check_failed("a shipped table holds numbers", __FILE__, __LINE__);
    }
    return value;
}
