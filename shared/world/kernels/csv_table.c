/* See csv_table.h. */
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"

#include "base/check.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (size_t)(64 << 20)
#define BLOCK ((size_t)1 << 16)

/* ---- Bytes ------------------------------------------------------------------------------------------------------ */

static char *read_entry(struct archive *archive, size_t *length)
{
    char *text = NULL;
    size_t capacity = 0;
    for (;;) {
        if (capacity - *length < BLOCK + 1) {
            capacity += capacity + 2 * BLOCK;
            char *larger = capacity <= BYTES_MAX ? realloc(text, capacity) : NULL;
            if (larger == NULL)
                break;
            text = larger;
        }
        la_ssize_t got = archive_read_data(archive, text + *length, BLOCK);
        if (got == 0) {
            text[*length] = '\0';
            return text;
        }
        if (got < 0)
            break;
        *length += (size_t)got;
    }
    free(text);
    return NULL;
}

static char *read_all(const char *path, size_t *length, struct user_error *error)
{
    struct archive *archive = archive_read_new();
    struct archive_entry *entry;
    CHECK(archive != NULL);
    archive_read_support_filter_all(archive);
    archive_read_support_format_raw(archive);
    char *text = NULL;
    *length = 0;
    if (archive_read_open_filename(archive, path, BLOCK) == ARCHIVE_OK &&
        archive_read_next_header(archive, &entry) == ARCHIVE_OK)
        text = read_entry(archive, length);
    if (text == NULL)
        user_error_set(error, path, 0, NULL, "cannot be read: missing, damaged, or larger than %zu MiB",
                       BYTES_MAX >> 20);
    archive_read_free(archive);
    return text;
}

/* ---- Cells ------------------------------------------------------------------------------------------------------ */

/* Cuts the line at its commas into `cells`; returns how many there are, at most `max`. */
static uint32_t cut(char *line, const char **cells, uint32_t max)
{
    uint32_t count = 0;
    for (;;) {
        char *comma = strchr(line, ',');
        if (count < max)
            cells[count] = line;
        count++;
        if (comma == NULL)
            return count;
        *comma = '\0';
        line = comma + 1;
    }
}

static uint32_t count_of(const char *text, char wanted)
{
    uint32_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == wanted;
    return count;
}

static bool fill(struct csv_table *table, struct user_error *error)
{
    uint32_t lines = count_of(table->text, '\n') + 1;
    int number = 0;
    char *next;
    for (char *line = table->text; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        number++;
        if (line[0] == '#' || line[0] == '\0')
            continue;
        if (table->names == NULL) {
            table->column_count = count_of(line, ',') + 1;
            table->names = calloc(table->column_count, sizeof *table->names);
            table->cells = calloc((size_t)lines * table->column_count, sizeof *table->cells);
            CHECK(table->names != NULL && table->cells != NULL);
            cut(line, table->names, table->column_count);
            continue;
        }
        const char **row = table->cells + (size_t)table->row_count * table->column_count;
        uint32_t count = cut(line, row, table->column_count);
        if (count != table->column_count) {
            user_error_set(error, table->path, number, NULL, "%u cells, expected %u", count, table->column_count);
            return false;
        }
        table->row_count++;
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
    table->text = read_all(table->path, &length, error);
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
