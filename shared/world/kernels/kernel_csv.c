/* See kernel_csv.h. */
#include "world/kernels/kernel_csv.h"

#include "base/check.h"
#include "base/log2.h"
#include "host/csv.h"
#include "host/input.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CSV_BYTES_MAX ((size_t)512 << 20)
#define CSV_FIELDS_MAX 64

/* No kernel is faster than the clock can tell, nor slower than a quarter of an hour. */
#define TIME_NS_MAX 1e12

struct reading {
    const struct kernel_kind *kind;
    struct user_error *error;
    const char *path;
    int line;
    struct kernel_row *rows;
    uint32_t row_count;
    uint32_t row_room;
    uint32_t dropped;
    uint32_t text_count[KERNEL_COLUMNS_MAX];
    char texts[KERNEL_COLUMNS_MAX][KERNEL_TEXTS_MAX][KERNEL_TEXT_SIZE]; /* in order of appearance */

    /* Of the file at hand: where the columns stand. -1: there is none. */
    uint32_t fields;
    int key_field[KERNEL_COLUMNS_MAX];
    int axis_field;
    int filter_field;
    int time_field[KERNEL_TIMES_MAX][KERNEL_SUMMANDS_MAX];
};

static bool wrong(struct reading *reading, const char *column, const char *text, const char *what)
{
    if (text != NULL)
        user_error_set(reading->error, reading->path, reading->line, column, "\"%.40s\": %s", text, what);
    else
        user_error_set(reading->error, reading->path, reading->line, column, "%s", what);
    return false;
}

/* ---- The head line ---------------------------------------------------------------------------------------------- */

static int field_named(const struct csv_cell *fields, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(fields[i].text, name) == 0)
            return (int)i;
    return -1;
}

static bool field_wanted(struct reading *reading, const struct csv_cell *fields, const char *name, int *field)
{
    const char *known[CSV_FIELDS_MAX];
    for (uint32_t i = 0; i < reading->fields; i++)
        known[i] = fields[i].text;
    *field = field_named(fields, reading->fields, name);
    if (*field >= 0)
        return true;
    const char *nearest = nearest_name(name, known, reading->fields);
    user_error_set(reading->error, reading->path, reading->line, name,
                   "no such column; a table of kind \"%s\" needs it%s%s%s", reading->kind->name,
                   nearest != NULL ? " (is it '" : "", nearest != NULL ? nearest : "", nearest != NULL ? "'?)" : "");
    return false;
}

/* A key column of a kind with two times that is their phase stands in no file. */
static bool is_phase(const struct kernel_kind *kind, uint32_t column)
{
    return column == 0 && kind->times[0].phase != NULL;
}

static bool head_line(struct reading *reading, char *line)
{
    const struct kernel_kind *kind = reading->kind;
    struct csv_cell fields[CSV_FIELDS_MAX];
    if (!csv_split(line, fields, CSV_FIELDS_MAX, &reading->fields, reading->path, reading->line, reading->error))
        return false;
    for (uint32_t c = 0; c < kind->column_count; c++) {
        reading->key_field[c] = field_named(fields, reading->fields, kind->columns[c].name);
        if (reading->key_field[c] < 0 && kind->columns[c].absent == NULL && !is_phase(kind, c) &&
            !field_wanted(reading, fields, kind->columns[c].name, &reading->key_field[c]))
            return false;
    }
    if (!field_wanted(reading, fields, kind->axis, &reading->axis_field))
        return false;
    reading->filter_field =
        kind->filter_column == NULL ? -1 : field_named(fields, reading->fields, kind->filter_column);
    for (uint32_t t = 0; t < KERNEL_TIMES_MAX; t++)
        for (uint32_t s = 0; s < KERNEL_SUMMANDS_MAX; s++)
            if (kind->times[t].columns[s] != NULL &&
                !field_wanted(reading, fields, kind->times[t].columns[s], &reading->time_field[t][s]))
                return false;
    return true;
}

/* ---- A row ------------------------------------------------------------------------------------------------------ */

static bool read_number(struct reading *reading, const char *column, const char *text, uint32_t *number)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value <= UINT32_MAX; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    if (at == text || *at != '\0' || value > UINT32_MAX)
        return wrong(reading, column, text, "a whole number below 2^32 is wanted");
    *number = (uint32_t)value;
    return true;
}

/* The place of a text among those of its column, a new one at the end. */
static bool read_text(struct reading *reading, uint32_t c, const char *text, uint32_t *number)
{
    const char *column = reading->kind->columns[c].name;
    for (uint32_t i = 0; i < reading->text_count[c]; i++) {
        if (strcmp(reading->texts[c][i], text) == 0) {
            *number = i;
            return true;
        }
    }
    if (text[0] == '\0' || strlen(text) >= KERNEL_TEXT_SIZE)
        return wrong(reading, column, text, "a name of at most 95 bytes is wanted");
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return wrong(reading, column, NULL, "a name without control characters is wanted");
    if (reading->text_count[c] == KERNEL_TEXTS_MAX)
        return wrong(reading, column, text, "one name more than the 64 that a column may have");
    *number = reading->text_count[c]++;
    strcpy(reading->texts[c][*number], text);
    return true;
}

static bool read_time(struct reading *reading, uint32_t t, const struct csv_cell *fields, double *ns)
{
    const struct kernel_time *time = &reading->kind->times[t];
    *ns = 0.0;
    for (uint32_t s = 0; s < KERNEL_SUMMANDS_MAX && time->columns[s] != NULL; s++) {
        const char *text = fields[reading->time_field[t][s]].text;
        char *end;
        double value = strtod(text, &end);
        if (end == text || *end != '\0' || !(value >= 0.0 && value * reading->kind->unit_ns < TIME_NS_MAX))
            return wrong(reading, time->columns[s], text, "a time is wanted, positive and below a quarter of an hour");
        *ns += value * reading->kind->unit_ns;
    }
    if (*ns < 1.0)
        return wrong(reading, time->columns[0], fields[reading->time_field[t][0]].text,
                     "a time of at least 1 ns is wanted");
    return true;
}

static void row_add(struct reading *reading, const struct kernel_row *row)
{
    if (reading->row_count == reading->row_room) {
        reading->row_room = 2 * reading->row_room + 4096;
        reading->rows = memory_resized(reading->rows, reading->row_room * sizeof reading->rows[0]);
    }
    reading->rows[reading->row_count] = *row;
    reading->rows[reading->row_count].index = reading->row_count;
    reading->row_count++;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text);
    size_t wanted = strlen(suffix);
    return length >= wanted && strcmp(text + length - wanted, suffix) == 0;
}

static bool row_line(struct reading *reading, char *line)
{
    const struct kernel_kind *kind = reading->kind;
    struct csv_cell fields[CSV_FIELDS_MAX];
    uint32_t count;
    struct kernel_row row = {0};
    if (!csv_split(line, fields, CSV_FIELDS_MAX, &count, reading->path, reading->line, reading->error))
        return false;
    if (count != reading->fields)
        return wrong(reading, NULL, NULL, "another number of columns than the first line has");
    if (reading->filter_field >= 0 && !ends_with(fields[reading->filter_field].text, kind->filter_suffix)) {
        reading->dropped++;
        return true;
    }
    for (uint32_t c = 0; c < kind->column_count; c++) {
        const struct kernel_column *column = &kind->columns[c];
        if (is_phase(kind, c))
            continue;
        const char *text = reading->key_field[c] >= 0 ? fields[reading->key_field[c]].text : column->absent;
        if (!(column->text ? read_text(reading, c, text, &row.keys[c])
                           : read_number(reading, column->name, text, &row.keys[c])))
            return false;
        if (kernel_is_dimension(kind, c) && row.keys[c] == 0)
            return wrong(reading, column->name, text, "at least 1 is wanted");
    }
    if (!read_number(reading, kind->axis, fields[reading->axis_field].text, &row.knot))
        return false;
    if (row.knot == 0)
        return wrong(reading, kind->axis, "0", "at least 1 is wanted");
    for (uint32_t t = 0; t < KERNEL_TIMES_MAX && kind->times[t].columns[0] != NULL; t++) {
        double ns;
        if (!read_time(reading, t, fields, &ns) ||
            (kind->times[t].phase != NULL && !read_text(reading, 0, kind->times[t].phase, &row.keys[0])))
            return false;
        row.code = log_code(ns);
        if (reading->row_count == KERNEL_ROWS_MAX)
            return wrong(reading, NULL, NULL, "more rows than a table may have");
        row_add(reading, &row);
    }
    return true;
}

static bool rows_read(struct reading *reading, char *text)
{
    reading->line = 0;
    while (*text != '\0') {
        char *line = text;
        size_t length = strcspn(text, "\n");
        bool last = text[length] == '\0';
        text += length + !last;
        line[length] = '\0';
        if (length > 0 && line[length - 1] == '\r')
            line[length - 1] = '\0';
        reading->line++;
        if (line[0] == '\0' && *text == '\0')
            break;
        if (!(reading->line == 1 ? head_line(reading, line) : row_line(reading, line)))
            return false;
    }
    return reading->line > 0 || wrong(reading, NULL, NULL, "an empty file; a line with the names of columns is wanted");
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

/* Texts get the numbers of their order. */
static void texts_sort(struct reading *reading, uint32_t c)
{
    uint32_t rank[KERNEL_TEXTS_MAX];
    uint32_t count = reading->text_count[c];
    for (uint32_t i = 0; i < count; i++) {
        rank[i] = 0;
        for (uint32_t k = 0; k < count; k++)
            rank[i] += strcmp(reading->texts[c][k], reading->texts[c][i]) < 0;
    }
    for (uint32_t r = 0; r < reading->row_count; r++)
        reading->rows[r].keys[c] = rank[reading->rows[r].keys[c]];
    char(*sorted)[KERNEL_TEXT_SIZE] = memory_zeroed(count, sizeof *sorted);
    CHECK(sorted != NULL);
    for (uint32_t i = 0; i < count; i++)
        strcpy(sorted[rank[i]], reading->texts[c][i]);
    memcpy(reading->texts[c], sorted, count * sizeof *sorted);
    free(sorted);
}

static struct kernel_table *table_of(struct reading *reading, const struct kernel_origin *origin)
{
    if (reading->row_count == 0) {
        user_error_set(reading->error, reading->path, 0, NULL, "no row that counts; at least one is wanted");
        return NULL;
    }
    for (uint32_t c = 0; c < reading->kind->column_count; c++)
        if (reading->kind->columns[c].text)
            texts_sort(reading, c);
    struct kernel_table *table = kernel_table_make(reading->kind, reading->rows, reading->row_count);
    CHECK(table != NULL);
    table->origin = *origin;
    table->dropped += reading->dropped;
    for (uint32_t c = 0; c < reading->kind->column_count; c++) {
        if (!reading->kind->columns[c].text)
            continue;
        table->text_count[c] = reading->text_count[c];
        table->texts[c] = memory_zeroed(reading->text_count[c], sizeof table->texts[c][0]);
        memcpy(table->texts[c], reading->texts[c], reading->text_count[c] * sizeof table->texts[c][0]);
    }
    return table;
}

struct kernel_table *kernel_csv_read(const char *const *paths, size_t path_count, const struct kernel_kind *kind,
                                     const struct kernel_origin *origin, struct user_error *error)
{
    struct reading *reading = memory_zeroed(1, sizeof *reading);
    struct kernel_origin complete = *origin;
    struct sha256 hash;
    struct kernel_table *table = NULL;
    bool good = true;
    CHECK(path_count > 0);
    sha256_start(&hash);
    reading->kind = kind;
    reading->error = error;
    for (size_t i = 0; i < path_count && good; i++) {
        size_t size;
        reading->path = paths[i];
        char *bytes = input_all(paths[i], CSV_BYTES_MAX, &size, error);
        good = bytes != NULL;
        if (good) {
            sha256_add(&hash, bytes, size);
            good = memchr(bytes, 0, size) == NULL || wrong(reading, NULL, NULL, "holds a NUL byte; text is wanted");
        }
        good = good && rows_read(reading, bytes);
        free(bytes);
    }
    sha256_hex(&hash, complete.source_sha256);
    if (good)
        table = table_of(reading, &complete);
    free(reading->rows);
    free(reading);
    return table;
}
