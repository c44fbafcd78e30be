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
    free(table->ladder);
    free(table->row_first);
    free(table->knot_first);
    free(table->knots);
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

static int compare_places(const struct kernel_row *a, const struct kernel_row *b)
{
    for (uint32_t c = 0; c < KERNEL_COLUMNS_MAX; c++)
        if (a->keys[c] != b->keys[c])
            return a->keys[c] < b->keys[c] ? -1 : 1;
    return (a->knot > b->knot) - (a->knot < b->knot);
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

/* The ladder with the knots of rows[0 ... count - 1]: the newest that fits, for neighbours are alike, or a new one. */
static uint32_t ladder_of(struct kernel_table *table, const struct kernel_row *rows, uint32_t count)
{
    for (uint32_t l = table->ladder_count; l-- > 0;) {
        const uint32_t *knots = table->knots + table->knot_first[l];
        if (table->knot_first[l + 1] - table->knot_first[l] != count)
            continue;
        uint32_t same = 0;
        while (same < count && knots[same] == rows[same].knot)
            same++;
        if (same == count)
            return l;
    }
    for (uint32_t i = 0; i < count; i++)
        table->knots[table->knot_count++] = rows[i].knot;
    table->knot_first[++table->ladder_count] = table->knot_count;
    return table->ladder_count - 1;
}

/* From rows in order, one a place. */
static struct kernel_table *table_of(const struct kernel_kind *kind, const struct kernel_row *rows, uint32_t kept)
{
    uint32_t series = 1;
    for (uint32_t i = 1; i < kept; i++)
        series += !same_series(&rows[i - 1], &rows[i]);
    struct kernel_table *table = memory_zeroed(1, sizeof *table);
    table->kind = kind;
    table->keys = memory_zeroed((size_t)series * kind->column_count, sizeof table->keys[0]);
    table->ladder = memory_zeroed(series, sizeof table->ladder[0]);
    table->row_first = memory_zeroed((size_t)series + 1, sizeof table->row_first[0]);
    table->knot_first = memory_zeroed((size_t)series + 1, sizeof table->knot_first[0]);
    table->knots = memory_zeroed(kept, sizeof table->knots[0]);
    table->codes = memory_zeroed(kept, sizeof table->codes[0]);
    if (table->keys == NULL || table->ladder == NULL || table->row_first == NULL || table->knot_first == NULL ||
        table->knots == NULL || table->codes == NULL) {
        kernel_table_free(table);
        return NULL;
    }
    for (uint32_t i = 0; i < kept;) {
        uint32_t end = i;
        while (end < kept && same_series(&rows[i], &rows[end])) {
            table->codes[end] = rows[end].code;
            end++;
        }
        uint32_t s = table->series_count++;
        memcpy(table->keys + (size_t)s * kind->column_count, rows[i].keys, kind->column_count * sizeof(uint32_t));
        table->ladder[s] = ladder_of(table, rows + i, end - i);
        table->row_first[s + 1] = end;
        i = end;
    }
    table->row_count = kept;
    return table;
}

/* The code of a series at a knot; 0: none. */
static uint32_t code_at(const struct kernel_table *table, uint32_t series, uint32_t knot)
{
    const uint32_t *knots = kernel_knots(table, series);
    uint32_t low = 0;
    uint32_t high = kernel_knot_count(table, series);
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (knots[middle] < knot)
            low = middle + 1;
        else
            high = middle;
    }
    return low < kernel_knot_count(table, series) && knots[low] == knot ? kernel_codes(table, series)[low] : 0;
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
        uint32_t count = kernel_knot_count(table, s);
        bool inside = s > 0 && s + 1 < table->series_count && beside(table, s - 1, s) && beside(table, s, s + 1);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t knot = kernel_knots(table, s)[i];
            bool spike = i > 0 && i + 1 < count && is_spike(codes[i], codes[i - 1], codes[i + 1]);
            if (inside && !spike)
                spike = is_spike(codes[i], code_at(table, s - 1, knot), code_at(table, s + 1, knot));
            if (!spike)
                rows[kept++] = rows[table->row_first[s] + i];
        }
    }
    return kept;
}

struct kernel_table *kernel_table_make(const struct kernel_kind *kind, struct kernel_row *rows, uint32_t count)
{
    CHECK(count > 0 && count <= KERNEL_ROWS_MAX);
    qsort(rows, count, sizeof rows[0], compare_rows);
    uint32_t places = merge_rows(rows, count);
    struct kernel_table *table = table_of(kind, rows, places);
    uint32_t kept = part_spikes(table, rows);
    if (kept < places) {
        kernel_table_free(table);
        table = table_of(kind, rows, kept);
    }
    table->merged = count - places;
    table->dropped = places - kept;
    return table;
}
