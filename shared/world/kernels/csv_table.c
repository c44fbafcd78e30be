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

#define COLUMNS_MAX 1024

static uint32_t line_count(const char *text)
{
    uint32_t count = 1;
    for (const char *at = strchr(text, '\n'); at != NULL; at = strchr(at + 1, '\n'))
        count++;
    return count;
}

/* A line that is no comment: the names of the columns, then rows. There is room for `*room` rows. */
static bool take_line(struct csv_table *table, char *line, int number, uint32_t *room, struct user_error *error)
{
    struct csv_cell cells[COLUMNS_MAX];
    uint32_t count;
    if (!csv_split(line, cells, COLUMNS_MAX, &count, table->path, number, error))
        return false;
    bool names = table->names == NULL;
    if (names) {
        table->head_line = number;
        table->column_count = count;
        table->names = memory_zeroed(count, sizeof *table->names);
    }
    if (count != table->column_count) {
        user_error_set(error, table->path, number, NULL, "%u cells, expected %u", count, table->column_count);
        return false;
    }
    if (table->row_count == *room) {
        *room = 2 * *room + 64;
        table->cells = memory_resized(table->cells, (size_t)*room * count * sizeof *table->cells);
    }
    const char **row = names ? table->names : table->cells + (size_t)table->row_count * count;
    for (uint32_t c = 0; c < count; c++)
        row[c] = cells[c].text;
    if (!names)
        table->lines[table->row_count++] = number;
    return true;
}

static bool fill(struct csv_table *table, struct user_error *error)
{
    uint32_t lines = line_count(table->text);
    uint32_t room = 0;
    int number = 0;
    char *next;
    table->lines = memory_zeroed(lines, sizeof *table->lines);
    table->comments = memory_zeroed(lines, sizeof *table->comments);
    for (char *line = table->text; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        number++;
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '#')
            table->comments[table->comment_count++] = line + 1 + (line[1] == ' ');
        else if (line[0] != '\0' && !take_line(table, line, number, &room, error))
            return false;
    }
    if (table->names == NULL)
        user_error_set(error, table->path, number, NULL, "holds no table; a line that names the columns is wanted");
    return table->names != NULL;
}

bool csv_table_parse(const char *path, char *text, size_t size, struct csv_table *table, struct user_error *error)
{
    *table = (struct csv_table){.text = text};
    snprintf(table->path, sizeof table->path, "%s", path);
    if (memchr(text, 0, size) != NULL)
        user_error_set(error, path, 0, NULL, "holds a NUL byte; text is wanted");
    else if (fill(table, error))
        return true;
    csv_table_free(table);
    return false;
}

bool csv_table_read(const char *path, struct csv_table *table, struct user_error *error)
{
    size_t size;
    char *text = input_all(path, CSV_BYTES_MAX, &size, error);
    *table = (struct csv_table){0};
    return text != NULL && csv_table_parse(path, text, size, table, error);
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
    free(table->comments);
    free(table->lines);
    free(table->text);
    *table = (struct csv_table){0};
}

uint32_t csv_column_find(const struct csv_table *table, const char *name)
{
    uint32_t c = 0;
    while (c < table->column_count && strcmp(table->names[c], name) != 0)
        c++;
    return c;
}

uint32_t csv_column(const struct csv_table *table, const char *name)
{
    uint32_t c = csv_column_find(table, name);
    if (c < table->column_count)
        return c;
    fprintf(stderr, "%s: no column '%s'\n", table->path, name);
    check_failed("a shipped table has its columns", __FILE__, __LINE__);
}

const char *csv_comment(const struct csv_table *table, const char *key)
{
    size_t length = strlen(key);
    for (uint32_t i = 0; i < table->comment_count; i++)
        if (strncmp(table->comments[i], key, length) == 0 && strncmp(table->comments[i] + length, ": ", 2) == 0)
            return table->comments[i] + length + 2;
    return NULL;
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

bool csv_decimal(const char *text, double *number)
{
    /* Below 2^53, and powers of ten up to 10^15, are doubles: their ratio is rounded once. */
    static const double power[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t digits = 0;
    uint32_t count = 0;
    uint32_t places = 0;
    bool point = false;
    const char *at = text;
    for (; count < 15 && ((*at >= '0' && *at <= '9') || (*at == '.' && !point)); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        digits = digits * 10 + (uint64_t)(*at - '0');
        count++;
        places += point;
    }
    if (*at == '\0' && count > 0) {
        *number = (double)digits / power[places];
        return true;
    }
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0';
}
