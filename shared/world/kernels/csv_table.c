/* See csv_table.h. */
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"

#include "base/check.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)512 << 20)
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

char *csv_bytes_read(const char *path, size_t *size, struct user_error *error)
{
    struct archive *archive = archive_read_new();
    struct archive_entry *entry;
    CHECK(archive != NULL);
    archive_read_support_filter_all(archive);
    archive_read_support_format_raw(archive);
    archive_read_support_format_empty(archive);
    char *text = NULL;
    *size = 0;
    if (archive_read_open_filename(archive, path, BLOCK) == ARCHIVE_OK) {
        int head = archive_read_next_header(archive, &entry);
        if (head == ARCHIVE_EOF)
            text = calloc(1, 1);
        else if (head == ARCHIVE_OK)
            text = read_entry(archive, size);
    }
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

/* A line that is no comment: the names of the columns, then rows. */
static bool line_take(struct csv_table *table, char *line, int number, uint32_t *room, struct user_error *error)
{
    if (strchr(line, '"') != NULL) {
        user_error_set(error, table->path, number, NULL, "a quoted field; fields are plain here");
        return false;
    }
    if (table->names == NULL) {
        table->head_line = number;
        table->column_count = count_of(line, ',') + 1;
        table->names = calloc(table->column_count, sizeof *table->names);
        CHECK(table->names != NULL);
        cut(line, table->names, table->column_count);
        return true;
    }
    if (table->row_count == *room) {
        *room = 2 * *room + 64;
        table->cells = realloc(table->cells, (size_t)*room * table->column_count * sizeof *table->cells);
        CHECK(table->cells != NULL);
    }
    uint32_t count = cut(line, table->cells + (size_t)table->row_count * table->column_count, table->column_count);
    if (count != table->column_count) {
        user_error_set(error, table->path, number, NULL, "%u cells, expected %u", count, table->column_count);
        return false;
    }
    table->lines[table->row_count++] = number;
    return true;
}

static bool fill(struct csv_table *table, struct user_error *error)
{
    uint32_t lines = count_of(table->text, '\n') + 1;
    uint32_t room = 0;
    int number = 0;
    char *next;
    table->lines = calloc(lines, sizeof *table->lines);
    table->comments = calloc(lines, sizeof *table->comments);
    CHECK(table->lines != NULL && table->comments != NULL);
    for (char *line = table->text; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        number++;
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '#')
            table->comments[table->comment_count++] = line + 1 + (line[1] == ' ');
        else if (line[0] != '\0' && !line_take(table, line, number, &room, error))
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
    char *text = csv_bytes_read(path, &size, error);
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
