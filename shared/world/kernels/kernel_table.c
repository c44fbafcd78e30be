/* See kernel_table.h. */
#include "world/kernels/kernel_table.h"

#include "base/check.h"
#include "base/log2.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

void kernel_table_free(struct kernel_table *table)
{
    if (table == NULL)
        return;
    for (uint32_t c = 0; c < KERNEL_COLUMNS_MAX; c++)
        free(table->texts[c]);
    free(table->keys);
    free(table->axis);
    free(table->row_first);
    free(table->point_first);
    free(table->points);
    free(table->codes);
    free(table);
}

bool kernel_text_find(const struct kernel_table *table, uint32_t column, const char *text, uint32_t *index)
{
    for (uint32_t i = 0; i < table->text_count[column]; i++) {
        if (strcmp(table->texts[column][i], text) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

struct kernel_table *kernel_table_new(const struct kernel_kind *kind, uint32_t series, uint32_t rows)
{
    struct kernel_table *table = memory_zeroed(1, sizeof *table);
    CHECK(series > 0 && rows > 0);
    table->kind = kind;
    table->keys = memory_zeroed((size_t)series * kind->column_count, sizeof table->keys[0]);
    table->axis = memory_zeroed(series, sizeof table->axis[0]);
    table->row_first = memory_zeroed((size_t)series + 1, sizeof table->row_first[0]);
    table->point_first = memory_zeroed((size_t)series + 1, sizeof table->point_first[0]);
    table->points = memory_zeroed(rows, sizeof table->points[0]);
    table->codes = memory_zeroed(rows, sizeof table->codes[0]);
    return table;
}

bool kernel_text_add(struct kernel_table *table, uint32_t column, const char *text)
{
    uint32_t count = table->text_count[column];
    if (count == KERNEL_TEXTS_MAX)
        return false;
    if (count == 0) {
        table->texts[column] = memory_zeroed(KERNEL_TEXTS_MAX, sizeof table->texts[column][0]);
    }
    char(*texts)[KERNEL_TEXT_SIZE] = table->texts[column];
    for (; count > 0 && strcmp(texts[count - 1], text) > 0; count--)
        memcpy(texts[count], texts[count - 1], KERNEL_TEXT_SIZE);
    CHECK(strlen(text) < KERNEL_TEXT_SIZE);
    strcpy(texts[count], text);
    table->text_count[column]++;
    return true;
}

/* The axis with these points: the newest that fits, for neighbours are alike, or a new one. */
static uint32_t axis_of(struct kernel_table *table, const uint32_t *points, uint32_t count)
{
    for (uint32_t a = table->axis_count; a-- > 0;)
        if (table->point_first[a + 1] - table->point_first[a] == count &&
            memcmp(table->points + table->point_first[a], points, count * sizeof *points) == 0)
            return a;
    memcpy(table->points + table->point_count, points, count * sizeof *points);
    table->point_count += count;
    table->point_first[++table->axis_count] = table->point_count;
    return table->axis_count - 1;
}

void kernel_series_add(struct kernel_table *table, const uint32_t *keys, const uint32_t *points, const uint16_t *codes,
                       uint32_t count)
{
    uint32_t s = table->series_count++;
    memcpy(table->keys + (size_t)s * table->kind->column_count, keys, table->kind->column_count * sizeof keys[0]);
    memcpy(table->codes + table->row_count, codes, count * sizeof codes[0]);
    table->axis[s] = axis_of(table, points, count);
    table->row_count += count;
    table->row_first[s + 1] = table->row_count;
}

static int compare_places(const struct kernel_row *a, const struct kernel_row *b)
{
    for (uint32_t c = 0; c < KERNEL_COLUMNS_MAX; c++)
        if (a->keys[c] != b->keys[c])
            return a->keys[c] < b->keys[c] ? -1 : 1;
    return (a->point > b->point) - (a->point < b->point);
}

/* By place, then by time, so that the median of a place stands in its middle; the order of the source decides last. */
static int compare_rows(const void *first, const void *second)
{
    const struct kernel_row *a = first;
    const struct kernel_row *b = second;
    int place = compare_places(a, b);
    if (place != 0)
        return place;
    if (a->code != b->code)
        return a->code < b->code ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Keeps one row a place; returns how many are left. */
static uint32_t merge_rows(struct kernel_row *rows, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count;) {
        uint32_t end = i + 1;
        while (end < count && compare_places(&rows[i], &rows[end]) == 0)
            end++;
        rows[kept++] = rows[i + (end - i - 1) / 2];
        i = end;
    }
    return kept;
}

static bool same_series(const struct kernel_row *a, const struct kernel_row *b)
{
    return memcmp(a->keys, b->keys, sizeof a->keys) == 0;
}

/* From rows in order, one a place. */
static struct kernel_table *table_of(const struct kernel_kind *kind, const struct kernel_row *rows, uint32_t kept)
{
    uint32_t series = 1;
    for (uint32_t i = 1; i < kept; i++)
        series += !same_series(&rows[i - 1], &rows[i]);
    struct kernel_table *table = kernel_table_new(kind, series, kept);
    uint32_t *points = memory_zeroed(kept, sizeof *points);
    uint16_t *codes = memory_zeroed(kept, sizeof *codes);
    for (uint32_t i = 0; i < kept;) {
        uint32_t count = 0;
        while (i + count < kept && same_series(&rows[i], &rows[i + count])) {
            points[count] = rows[i + count].point;
            codes[count] = rows[i + count].code;
            count++;
        }
        kernel_series_add(table, rows[i].keys, points, codes, count);
        i += count;
    }
    free(points);
    free(codes);
    return table;
}

/* The code of a series at a point; 0: none. */
static uint32_t code_at(const struct kernel_table *table, uint32_t series, uint32_t point)
{
    const uint32_t *points = kernel_points(table, series);
    uint32_t low = 0;
    uint32_t high = kernel_point_count(table, series);
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (points[middle] < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < kernel_point_count(table, series) && points[low] == point ? kernel_codes(table, series)[low] : 0;
}

/* Whether two series differ in their batch alone, which is then the last key. */
static bool beside(const struct kernel_table *table, uint32_t a, uint32_t b)
{
    size_t columns = table->kind->column_count;
    if (strcmp(table->kind->columns[columns - 1].name, "batch_size") != 0)
        return false;
    return memcmp(table->keys + a * columns, table->keys + b * columns, (columns - 1) * sizeof table->keys[0]) == 0;
}

static bool is_spike(uint32_t code, uint32_t before, uint32_t after)
{
    return before > 0 && after > 0 && code > before + LOG_CODES_AN_OCTAVE && code > after + LOG_CODES_AN_OCTAVE;
}

/* More work does not take half the time: a row that takes over twice as long as both of its neighbours, along the axis
 * or along the batch, was disturbed (compiled at its first call, interrupted). Leaves the others
 * at the front of `rows`, which are those of the table in its order, and returns how many they are. */
static uint32_t part_spikes(const struct kernel_table *table, struct kernel_row *rows)
{
    uint32_t kept = 0;
    for (uint32_t s = 0; s < table->series_count; s++) {
        const uint16_t *codes = kernel_codes(table, s);
        uint32_t count = kernel_point_count(table, s);
        bool inside = s > 0 && s + 1 < table->series_count && beside(table, s - 1, s) && beside(table, s, s + 1);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t point = kernel_points(table, s)[i];
            bool spike = i > 0 && i + 1 < count && is_spike(codes[i], codes[i - 1], codes[i + 1]);
            if (inside && !spike)
                spike = is_spike(codes[i], code_at(table, s - 1, point), code_at(table, s + 1, point));
            if (!spike)
                rows[kept++] = rows[table->row_first[s] + i];
        }
    }
    return kept;
}

struct kernel_table *kernel_table_make(struct kernel_table *texts, struct kernel_row *rows, uint32_t count)
{
    CHECK(count > 0 && count <= KERNEL_ROWS_MAX);
    qsort(rows, count, sizeof rows[0], compare_rows);
    uint32_t places = merge_rows(rows, count);
    struct kernel_table *table = table_of(texts->kind, rows, places);
    uint32_t kept = part_spikes(table, rows);
    if (kept < places) {
        kernel_table_free(table);
        table = table_of(texts->kind, rows, kept);
    }
    memcpy(table->texts, texts->texts, sizeof table->texts);
    memcpy(table->text_count, texts->text_count, sizeof table->text_count);
    memset(texts->texts, 0, sizeof texts->texts);
    table->merged = count - places;
    table->dropped = places - kept;
    return table;
}
