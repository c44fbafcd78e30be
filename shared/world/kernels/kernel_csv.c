/* See kernel_csv.h. */
#include "world/kernels/kernel_csv.h"

#include "base/check.h"
#include "base/log2.h"
#include "host/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No kernel is faster than the clock can tell, nor slower than a quarter of an hour. */
#define TIME_NS_MAX 1e12
#define NS_PER_US 1e3

const char *const kernel_csv_suffixes[] = {".csv.zst", ".csv.xz", ".csv.gz", ".csv", NULL};

struct reading {
    const struct kernel_kind *kind;
    const struct csv_table *file;
    struct user_error *error;
    struct kernel_table *texts; /* only these of it */
    struct kernel_row *rows;
    uint32_t row_count;
    uint32_t row_room;
    uint32_t dropped;
};

#define HEAD UINT32_MAX /* in place of a row: the line that names the columns */

static bool wrong(const struct reading *reading, uint32_t row, const char *column, const char *text, const char *what)
{
    int line = row == HEAD ? reading->file->head_line : reading->file->lines[row];
    if (text != NULL)
        user_error_set(reading->error, reading->file->path, line, column, "\"%.40s\": %s", text, what);
    else
        user_error_set(reading->error, reading->file->path, line, column, "%s", what);
    return false;
}

/* ---- Cells ------------------------------------------------------------------------------------------------------ */

static bool number_of(const char *text, uint32_t *number)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value <= UINT32_MAX; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    *number = (uint32_t)value;
    return at != text && *at == '\0' && value <= UINT32_MAX;
}

static bool read_number(const struct reading *reading, uint32_t row, const char *column, const char *text,
                        bool positive, uint32_t *number)
{
    if (!number_of(text, number))
        return wrong(reading, row, column, text, "a whole number below 2^32 is wanted");
    return !positive || *number > 0 || wrong(reading, row, column, text, "at least 1 is wanted");
}

/* Collects a name; names have their numbers when all are there. */
static bool text_collect(const struct reading *reading, uint32_t row, uint32_t c, const char *text)
{
    const char *column = reading->kind->columns[c].name;
    uint32_t index;
    if (kernel_text_find(reading->texts, c, text, &index))
        return true;
    if (text[0] == '\0' || strlen(text) >= KERNEL_TEXT_SIZE)
        return wrong(reading, row, column, text, "a name of at most 95 bytes is wanted");
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return wrong(reading, row, column, NULL, "a name without control characters is wanted");
    return kernel_text_add(reading->texts, c, text) ||
           wrong(reading, row, column, text, "one name more than the 64 that a column may have");
}

/* A key of a row from its cell. */
static bool read_key(const struct reading *reading, uint32_t row, uint32_t c, const char *text, uint32_t *key)
{
    const struct kernel_column *column = &reading->kind->columns[c];
    if (column->text)
        return kernel_text_find(reading->texts, c, text, key);
    return read_number(reading, row, column->name, text, kernel_is_dimension(reading->kind, c), key);
}

static bool read_time(const struct reading *reading, uint32_t row, const char *column, const char *text, double unit_ns,
                      double *ns)
{
    return (csv_decimal(text, ns) && *ns >= 0.0 && (*ns *= unit_ns) < TIME_NS_MAX) ||
           wrong(reading, row, column, text, "a time is wanted, positive and below a quarter of an hour");
}

static bool long_enough(const struct reading *reading, uint32_t row, const char *column, const char *text, double ns)
{
    return ns >= 1.0 || wrong(reading, row, column, text, "a time of at least 1 ns is wanted");
}

/* ---- A benchmark's rows ----------------------------------------------------------------------------------------- */

/* Where the columns of a file stand; column_count: nowhere. */
struct columns {
    uint32_t keys[KERNEL_COLUMNS_MAX];
    uint32_t axis;
    uint32_t filter;
    uint32_t times[KERNEL_TIMES_MAX][KERNEL_SUMMANDS_MAX];
};

static bool column_wanted(const struct reading *reading, const char *name, uint32_t *column)
{
    const struct csv_table *file = reading->file;
    *column = csv_column_find(file, name);
    if (*column < file->column_count)
        return true;
    const char *nearest = nearest_name(name, file->names, file->column_count);
    user_error_set(reading->error, file->path, file->head_line, name,
                   "no such column; a table of kind \"%s\" needs it%s%s%s", reading->kind->name,
                   nearest != NULL ? " (is it '" : "", nearest != NULL ? nearest : "", nearest != NULL ? "'?)" : "");
    return false;
}

/* A key column of a kind with two times that is their phase stands in no file. */
static bool is_phase(const struct kernel_kind *kind, uint32_t column)
{
    return column == 0 && kind->times[0].phase != NULL;
}

static bool columns_find(const struct reading *reading, struct columns *columns)
{
    const struct kernel_kind *kind = reading->kind;
    for (uint32_t c = 0; c < kind->column_count; c++) {
        columns->keys[c] = csv_column_find(reading->file, kind->columns[c].name);
        if (kind->columns[c].absent == NULL && !is_phase(kind, c) &&
            !column_wanted(reading, kind->columns[c].name, &columns->keys[c]))
            return false;
    }
    columns->filter =
        kind->filter_column == NULL ? reading->file->column_count : csv_column_find(reading->file, kind->filter_column);
    for (uint32_t t = 0; t < KERNEL_TIMES_MAX; t++)
        for (uint32_t s = 0; s < KERNEL_SUMMANDS_MAX; s++)
            if (kind->times[t].columns[s] != NULL &&
                !column_wanted(reading, kind->times[t].columns[s], &columns->times[t][s]))
                return false;
    return column_wanted(reading, kind->axis, &columns->axis);
}

static bool is_filtered(const struct reading *reading, const struct columns *columns, uint32_t row)
{
    if (columns->filter == reading->file->column_count)
        return false;
    const char *text = csv_text(reading->file, row, columns->filter);
    size_t length = strlen(text);
    size_t wanted = strlen(reading->kind->filter_suffix);
    return length < wanted || strcmp(text + length - wanted, reading->kind->filter_suffix) != 0;
}

static const char *key_text(const struct reading *reading, const struct columns *columns, uint32_t row, uint32_t c)
{
    return columns->keys[c] < reading->file->column_count ? csv_text(reading->file, row, columns->keys[c])
                                                          : reading->kind->columns[c].absent;
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

static bool row_read(struct reading *reading, const struct columns *columns, uint32_t r)
{
    const struct kernel_kind *kind = reading->kind;
    struct kernel_row row = {0};
    for (uint32_t c = 0; c < kind->column_count; c++)
        if (!is_phase(kind, c) && !read_key(reading, r, c, key_text(reading, columns, r, c), &row.keys[c]))
            return false;
    if (!read_number(reading, r, kind->axis, csv_text(reading->file, r, columns->axis), true, &row.point))
        return false;
    for (uint32_t t = 0; t < KERNEL_TIMES_MAX && kind->times[t].columns[0] != NULL; t++) {
        const struct kernel_time *time = &kind->times[t];
        double sum = 0.0;
        for (uint32_t s = 0; s < KERNEL_SUMMANDS_MAX && time->columns[s] != NULL; s++) {
            double ns;
            if (!read_time(reading, r, time->columns[s], csv_text(reading->file, r, columns->times[t][s]),
                           kind->unit_ns, &ns))
                return false;
            sum += ns;
        }
        if (!long_enough(reading, r, time->columns[0], csv_text(reading->file, r, columns->times[t][0]), sum))
            return false;
        if (time->phase != NULL)
            CHECK(kernel_text_find(reading->texts, 0, time->phase, &row.keys[0]));
        row.code = log_code(sum);
        if (reading->row_count == KERNEL_ROWS_MAX)
            return wrong(reading, r, NULL, NULL, "more rows than a table may have");
        row_add(reading, &row);
    }
    return true;
}

/* The names of a file's rows, or its rows themselves. */
static bool file_read(struct reading *reading, const struct csv_table *file, bool names)
{
    const struct kernel_kind *kind = reading->kind;
    struct columns columns;
    reading->file = file;
    if (!columns_find(reading, &columns))
        return false;
    for (uint32_t r = 0; r < file->row_count; r++) {
        if (is_filtered(reading, &columns, r)) {
            reading->dropped += !names;
            continue;
        }
        for (uint32_t c = 0; names && c < kind->column_count; c++)
            if (kind->columns[c].text && !is_phase(kind, c) &&
                !text_collect(reading, r, c, key_text(reading, &columns, r, c)))
                return false;
        if (!names && !row_read(reading, &columns, r))
            return false;
    }
    return true;
}

struct kernel_table *kernel_rows_read(const struct csv_table *files, size_t count, const struct kernel_kind *kind,
                                      const struct kernel_origin *origin, struct user_error *error)
{
    struct reading reading = {.kind = kind, .error = error, .texts = memory_zeroed(1, sizeof *reading.texts)};
    struct kernel_table *table = NULL;
    bool good = true;
    CHECK(reading.texts != NULL && count > 0);
    reading.texts->kind = kind;
    for (uint32_t t = 0; t < KERNEL_TIMES_MAX; t++)
        if (kind->times[t].phase != NULL)
            kernel_text_add(reading.texts, 0, kind->times[t].phase);
    for (size_t i = 0; i < 2 * count && good; i++)
        good = file_read(&reading, &files[i % count], i < count);
    if (good && reading.row_count == 0)
        user_error_set(error, files[0].path, 0, NULL, "no row that counts; at least one is wanted");
    if (good && reading.row_count > 0) {
        table = kernel_table_make(reading.texts, reading.rows, reading.row_count);
        table->origin = *origin;
        table->dropped += reading.dropped;
    }
    kernel_table_free(reading.texts);
    free(reading.rows);
    return table;
}

/* ---- A table's file, read --------------------------------------------------------------------------------------- */

static bool comment_read(const struct reading *reading, const char *key, char *value, size_t size)
{
    const char *text = csv_comment(reading->file, key);
    if (text == NULL || text[0] == '\0' || strlen(text) >= size) {
        user_error_set(reading->error, reading->file->path, 0, NULL,
                       "a comment \"# %s: TEXT\" of at most %zu bytes is wanted above the columns", key, size - 1);
        return false;
    }
    strcpy(value, text);
    return true;
}

static bool origin_read(struct reading *reading, struct kernel_origin *origin)
{
    char name[64];
    if (!comment_read(reading, "table", name, sizeof name))
        return false;
    reading->kind = kernel_kind_named(name);
    if (reading->kind == NULL)
        return wrong(reading, HEAD, "table", name, "a kind of table that this version does not know");
    const char *digest = csv_comment(reading->file, "source_sha256");
    if (digest != NULL)
        snprintf(origin->source_sha256, sizeof origin->source_sha256, "%s", digest);
    return comment_read(reading, "gpu", origin->gpu, sizeof origin->gpu) &&
           comment_read(reading, "engine", origin->engine, sizeof origin->engine) &&
           comment_read(reading, "version", origin->version, sizeof origin->version) &&
           comment_read(reading, "source", origin->source, sizeof origin->source) &&
           comment_read(reading, "licence", origin->licence, sizeof origin->licence);
}

/* The names of the columns: the keys of the kind, then points of the axis, whose numbers the caller frees. */
static uint32_t *points_read(const struct reading *reading)
{
    const struct csv_table *file = reading->file;
    uint32_t keys = reading->kind->column_count;
    for (uint32_t c = 0; c < keys; c++) {
        if (c < file->column_count && strcmp(file->names[c], reading->kind->columns[c].name) == 0)
            continue;
        wrong(reading, HEAD, reading->kind->columns[c].name, c < file->column_count ? file->names[c] : "",
              "this column of the kind of table is wanted here");
        return NULL;
    }
    uint32_t *points = memory_zeroed(file->column_count, sizeof *points);
    for (uint32_t c = keys; c < file->column_count; c++) {
        if (read_number(reading, HEAD, reading->kind->axis, file->names[c], true, &points[c - keys]) &&
            (c == keys || points[c - keys] > points[c - keys - 1] ||
             wrong(reading, HEAD, reading->kind->axis, file->names[c], "more than the column before is wanted")))
            continue;
        free(points);
        return NULL;
    }
    return points;
}

static bool ascends(const struct kernel_table *table, const uint32_t *keys)
{
    uint32_t columns = table->kind->column_count;
    if (table->series_count == 0)
        return true;
    const uint32_t *before = table->keys + (size_t)(table->series_count - 1) * columns;
    uint32_t c = 0;
    while (c < columns && before[c] == keys[c])
        c++;
    return c < columns && before[c] < keys[c];
}

/* What a row is read into. */
struct series {
    uint32_t *points;
    uint16_t *codes;
    uint32_t count;
};

static bool series_read(const struct reading *reading, uint32_t row, const uint32_t *points, struct series *series)
{
    const struct csv_table *file = reading->file;
    uint32_t columns = reading->kind->column_count;
    uint32_t keys[KERNEL_COLUMNS_MAX];
    for (uint32_t c = 0; c < columns; c++)
        if (!read_key(reading, row, c, csv_text(file, row, c), &keys[c]))
            return false;
    if (!ascends(reading->texts, keys))
        return wrong(reading, row, NULL, NULL, "rows are wanted in ascending order, none twice; `tandem pack` sorts");
    series->count = 0;
    for (uint32_t c = columns; c < file->column_count; c++) {
        const char *text = csv_text(file, row, c);
        double ns;
        if (text[0] == '\0')
            continue;
        if (!read_time(reading, row, file->names[c], text, NS_PER_US, &ns) ||
            !long_enough(reading, row, file->names[c], text, ns))
            return false;
        series->points[series->count] = points[c - columns];
        series->codes[series->count++] = log_code(ns);
    }
    if (series->count == 0)
        return wrong(reading, row, NULL, NULL, "a row without a time");
    kernel_series_add(reading->texts, keys, series->points, series->codes, series->count);
    return true;
}

/* Reads the rows into reading->texts. */
static bool series_read_all(const struct reading *reading, const uint32_t *points)
{
    const struct csv_table *file = reading->file;
    struct series series = {.points = memory_zeroed(file->column_count, sizeof *series.points),
                            .codes = memory_zeroed(file->column_count, sizeof *series.codes)};
    CHECK(series.points != NULL && series.codes != NULL);
    bool good = true;
    for (uint32_t r = 0; r < file->row_count && good; r++)
        for (uint32_t c = 0; c < reading->kind->column_count && good; c++)
            good = !reading->kind->columns[c].text || text_collect(reading, r, c, csv_text(file, r, c));
    for (uint32_t r = 0; r < file->row_count && good; r++)
        good = series_read(reading, r, points, &series);
    free(series.points);
    free(series.codes);
    return good;
}

struct kernel_table *kernel_table_parse(const struct csv_table *file, struct user_error *error)
{
    struct reading reading = {.file = file, .error = error};
    struct kernel_origin origin = {0};
    uint32_t *points = NULL;
    if (!origin_read(&reading, &origin) || (points = points_read(&reading)) == NULL)
        return NULL;
    uint64_t cells = (uint64_t)file->row_count * (file->column_count - reading.kind->column_count);
    struct kernel_table *table = NULL;
    if (cells == 0 || cells > KERNEL_ROWS_MAX) {
        wrong(&reading, HEAD, NULL, NULL, "between one time and 4 million are wanted");
    } else {
        table = kernel_table_new(reading.kind, file->row_count, (uint32_t)cells);
        table->origin = origin;
        reading.texts = table;
        if (!series_read_all(&reading, points)) {
            kernel_table_free(table);
            table = NULL;
        }
    }
    free(points);
    return table;
}

struct kernel_table *kernel_table_read(const char *path, struct user_error *error)
{
    struct csv_table file;
    if (!csv_table_read(path, &file, error))
        return NULL;
    struct kernel_table *table = kernel_table_parse(&file, error);
    csv_table_free(&file);
    return table;
}

/* ---- A table's file, written ------------------------------------------------------------------------------------ */

/* The fewest decimals of microseconds that give the code. */
static void time_write(FILE *file, uint16_t code)
{
    double us = exp2_of((double)code / LOG_CODES_AN_OCTAVE) / NS_PER_US;
    char text[32];
    double ns;
    for (int decimals = 0; decimals < 12; decimals++) {
        snprintf(text, sizeof text, "%.*f", decimals, us);
        if (csv_decimal(text, &ns) && (ns *= NS_PER_US) >= 1.0 && log_code(ns) == code)
            break;
    }
    fprintf(file, ",%s", text);
}

static int compare_points(const void *a, const void *b)
{
    uint32_t first = *(const uint32_t *)a;
    uint32_t second = *(const uint32_t *)b;
    return (first > second) - (first < second);
}

/* Every point of any axis once, ascending; the caller frees. */
static uint32_t *points_of(const struct kernel_table *table, uint32_t *count)
{
    uint32_t *points = memory_zeroed(table->point_count, sizeof *points);
    memcpy(points, table->points, table->point_count * sizeof *points);
    qsort(points, table->point_count, sizeof *points, compare_points);
    *count = 0;
    for (uint32_t i = 0; i < table->point_count; i++)
        if (i == 0 || points[i] != points[i - 1])
            points[(*count)++] = points[i];
    return points;
}

static void text_write(FILE *file, const struct kernel_table *table)
{
    const struct kernel_kind *kind = table->kind;
    const struct kernel_origin *o = &table->origin;
    uint32_t count;
    uint32_t *points = points_of(table, &count);
    fprintf(file,
            "# Times of %s, in microseconds over %s. Written by `tandem pack`.\n# table: %s\n# gpu: %s\n# engine: %s\n"
            "# version: %s\n# source: %s\n# licence: %s\n# source_sha256: %s\n# rows: %" PRIu32 ", merged: %" PRIu32
            ", left out: %" PRIu32 "\n",
            kind->about, kind->axis, kind->name, o->gpu, o->engine, o->version, o->source, o->licence, o->source_sha256,
            table->row_count, table->merged, table->dropped);
    for (uint32_t c = 0; c < kind->column_count; c++)
        fprintf(file, "%s%s", c > 0 ? "," : "", kind->columns[c].name);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, ",%" PRIu32, points[i]);
    for (uint32_t s = 0; s < table->series_count; s++) {
        for (uint32_t c = 0; c < kind->column_count; c++) {
            fprintf(file, "%s", c > 0 ? "," : "\n");
            if (kind->columns[c].text)
                fprintf(file, "%s", table->texts[c][kernel_key(table, s, c)]);
            else
                fprintf(file, "%" PRIu32, kernel_key(table, s, c));
        }
        const uint32_t *own = kernel_points(table, s);
        for (uint32_t i = 0, at = 0; i < count; i++) {
            if (at < kernel_point_count(table, s) && own[at] == points[i])
                time_write(file, kernel_codes(table, s)[at++]);
            else
                fputc(',', file);
        }
    }
    fputc('\n', file);
    free(points);
}

bool kernel_table_write(const struct kernel_table *table, const char *path, struct user_error *error)
{
    char temporary[1024];
    if (snprintf(temporary, sizeof temporary, "%s.part", path) >= (int)sizeof temporary) {
        user_error_set(error, path, 0, NULL, "the path is too long");
        return false;
    }
    FILE *file = fopen(temporary, "wb");
    if (file != NULL)
        text_write(file, table);
    bool good = file != NULL && ferror(file) == 0;
    if (file != NULL && fclose(file) != 0)
        good = false;
    if (good && rename(temporary, path) == 0)
        return true;
    user_error_set(error, path, 0, NULL, "cannot be written: %s", strerror(errno));
    remove(temporary);
    return false;
}
