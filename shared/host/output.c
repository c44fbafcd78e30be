/* See output.h. */
#define _POSIX_C_SOURCE 200809L

#include "host/output.h"
#include "host/memory.h"

#include "base/check.h"

#include <inttypes.h>
#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum cell_kind { CELL_NONE = 0, CELL_TEXT, CELL_INTEGER, CELL_FIXED };

struct cell {
    enum cell_kind kind;
    unsigned decimals;
    int64_t value;
    char *text;
};

struct column {
    char *key;
    char *heading;
    bool left; /* some cell is text */
};

struct table {
    char *title;
    struct column *columns;
    struct cell *cells; /* row by row */
    size_t column_count;
    size_t row_count;
    size_t row_room;
    size_t next; /* column of the next cell of the last row */
};

/* A number with its sign, point and nine decimals, and the end. */
#define CELL_TEXT_MAX 32

/* ---- Building --------------------------------------------------------------------------------------------------- */

struct table *table_new(const char *title)
{
    struct table *table = memory_zeroed(1, sizeof *table);
    table->title = title == NULL ? NULL : memory_copy(title);
    return table;
}

void table_free(struct table *table)
{
    for (size_t k = 0; k < table->column_count; k++) {
        free(table->columns[k].key);
        free(table->columns[k].heading);
    }
    for (size_t k = 0; k < table->row_count * table->column_count; k++)
        free(table->cells[k].text);
    free(table->columns);
    free(table->cells);
    free(table->title);
    free(table);
}

void table_column(struct table *table, const char *key, const char *heading)
{
    CHECK(table->row_count == 0);
    size_t count = table->column_count + 1;
    table->columns = memory_resized(table->columns, count * sizeof *table->columns);
    table->columns[table->column_count] = (struct column){.key = memory_copy(key), .heading = memory_copy(heading)};
    table->column_count = count;
}

void table_row(struct table *table)
{
    CHECK(table->column_count > 0);
    if (table->row_count == table->row_room) {
        table->row_room = table->row_room == 0 ? 16 : table->row_room * 2;
        table->cells = memory_resized(table->cells, table->row_room * table->column_count * sizeof *table->cells);
    }
    memset(&table->cells[table->row_count * table->column_count], 0, table->column_count * sizeof *table->cells);
    table->row_count++;
    table->next = 0;
}

static struct cell *next_cell(struct table *table, enum cell_kind kind)
{
    CHECK(table->row_count > 0 && table->next < table->column_count);
    struct column *column = &table->columns[table->next];
    struct cell *cell = &table->cells[(table->row_count - 1) * table->column_count + table->next++];
    column->left = column->left || kind == CELL_TEXT;
    cell->kind = kind;
    return cell;
}

void table_text(struct table *table, const char *text)
{
    next_cell(table, CELL_TEXT)->text = memory_copy(text);
}

void table_integer(struct table *table, int64_t value)
{
    next_cell(table, CELL_INTEGER)->value = value;
}

void table_fixed(struct table *table, int64_t value, unsigned decimals)
{
    CHECK(decimals <= 9);
    struct cell *cell = next_cell(table, CELL_FIXED);
    cell->value = value;
    cell->decimals = decimals;
}

void table_none(struct table *table)
{
    next_cell(table, CELL_NONE);
}

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

static int64_t power_of_ten(unsigned exponent)
{
    int64_t power = 1;
    for (unsigned k = 0; k < exponent; k++)
        power *= 10;
    return power;
}

int64_t fixed_round(int64_t value, unsigned from, unsigned to)
{
    CHECK(to <= from && from - to <= 18);
    int64_t unit = power_of_ten(from - to);
    int64_t rest = value % unit;
    int64_t whole = value / unit;
    if (rest >= unit - rest && rest > 0)
        return whole + 1;
    if (-rest >= unit + rest && rest < 0)
        return whole - 1;
    return whole;
}

static void fixed_text(int64_t value, unsigned decimals, char text[CELL_TEXT_MAX])
{
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint64_t unit = (uint64_t)power_of_ten(decimals);
    const char *sign = value < 0 ? "-" : "";
    if (decimals == 0)
        snprintf(text, CELL_TEXT_MAX, "%s%" PRIu64, sign, magnitude);
    else
        snprintf(text, CELL_TEXT_MAX, "%s%" PRIu64 ".%0*" PRIu64, sign, magnitude / unit, (int)decimals,
                 magnitude % unit);
}

/* The cell as people read it; `none` for an unknown one. */
static const char *cell_text(const struct cell *cell, const char *none, char text[CELL_TEXT_MAX])
{
    switch (cell->kind) {
    case CELL_TEXT:
        return cell->text;
    case CELL_INTEGER:
        fixed_text(cell->value, 0, text);
        return text;
    case CELL_FIXED:
        fixed_text(cell->value, cell->decimals, text);
        return text;
    default:
        return none;
    }
}

json_t *json_fixed(int64_t value, unsigned decimals)
{
    if (decimals == 0)
        return json_integer(value);
    /* One correctly rounded division: the nearest double to the decimal number, which prints as that number. */
    return json_real((double)value / (double)power_of_ten(decimals));
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

struct output output_to(FILE *file, const char *format)
{
    static const char *const names[] = {"text", "json", "csv", "md"};
    struct output output = {.file = file, .format = OUTPUT_TEXT};
    for (unsigned k = 0; k < 4; k++)
        if (format != NULL && strcmp(format, names[k]) == 0)
            output.format = (enum output_format)(k + 1);
    int descriptor = fileno(file);
    output.terminal = output.format == OUTPUT_TEXT && descriptor >= 0 && isatty(descriptor);
    return output;
}

/* Characters, not bytes, of UTF-8. */
static size_t text_width(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void write_padded(FILE *file, const char *text, size_t width, bool right, bool last)
{
    size_t pad = width - text_width(text);
    for (size_t k = 0; right && k < pad; k++)
        fputc(' ', file);
    fputs(text, file);
    for (size_t k = 0; !right && !last && k < pad; k++)
        fputc(' ', file);
    if (!last)
        fputs("  ", file);
}

static void write_plain(FILE *file, const struct table *table)
{
    size_t *widths = memory_zeroed(table->column_count, sizeof *widths);
    char number[CELL_TEXT_MAX];
    for (size_t c = 0; c < table->column_count; c++) {
        widths[c] = text_width(table->columns[c].heading);
        for (size_t r = 0; r < table->row_count; r++) {
            size_t width = text_width(cell_text(&table->cells[r * table->column_count + c], "-", number));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t r = 0; r <= table->row_count; r++) {
        for (size_t c = 0; c < table->column_count; c++) {
            const char *text = r == 0 ? table->columns[c].heading
                                      : cell_text(&table->cells[(r - 1) * table->column_count + c], "-", number);
            write_padded(file, text, widths[c], !table->columns[c].left, c + 1 == table->column_count);
        }
        fputc('\n', file);
    }
    free(widths);
}

static void write_terminal(FILE *file, const struct table *table)
{
    struct libscols_table *layout = memory_given(scols_new_table());
    scols_table_set_stream(layout, file);
    for (size_t c = 0; c < table->column_count; c++)
        memory_given(scols_table_new_column(layout, table->columns[c].heading, 0,
                                    table->columns[c].left ? SCOLS_FL_WRAP : SCOLS_FL_RIGHT));
    char number[CELL_TEXT_MAX];
    for (size_t r = 0; r < table->row_count; r++) {
        struct libscols_line *line = memory_given(scols_table_new_line(layout, NULL));
        for (size_t c = 0; c < table->column_count; c++)
            scols_line_set_data(line, c, cell_text(&table->cells[r * table->column_count + c], "-", number));
    }
    if (table->row_count > 0)
        scols_print_table(layout);
    scols_unref_table(layout);
}

static void write_csv_text(FILE *file, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, file);
        return;
    }
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

static void write_csv(FILE *file, const struct table *table)
{
    char number[CELL_TEXT_MAX];
    for (size_t r = 0; r <= table->row_count; r++) {
        for (size_t c = 0; c < table->column_count; c++) {
            if (c > 0)
                fputc(',', file);
            write_csv_text(file, r == 0 ? table->columns[c].key
                                        : cell_text(&table->cells[(r - 1) * table->column_count + c], "", number));
        }
        fputc('\n', file);
    }
}

static void write_markdown_text(FILE *file, const char *text)
{
    fputs(" ", file);
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputc('\\', file);
        fputc(*text == '\n' ? ' ' : *text, file);
    }
    fputs(" |", file);
}

static void write_markdown(FILE *file, const struct table *table)
{
    char number[CELL_TEXT_MAX];
    for (size_t r = 0; r <= table->row_count; r++) {
        fputc('|', file);
        for (size_t c = 0; c < table->column_count; c++)
            write_markdown_text(file, r == 0
                                          ? table->columns[c].heading
                                          : cell_text(&table->cells[(r - 1) * table->column_count + c], "-", number));
        fputc('\n', file);
        if (r > 0)
            continue;
        fputc('|', file);
        for (size_t c = 0; c < table->column_count; c++)
            fputs(table->columns[c].left ? "---|" : "---:|", file);
        fputc('\n', file);
    }
}

void output_table(const struct output *output, const struct table *table)
{
    FILE *file = output->file;
    if (output->format == OUTPUT_JSON) {
        json_t *json = table_json(table);
        output_json(output, json);
        json_decref(json);
        return;
    }
    if (table->title != NULL && output->format == OUTPUT_CSV)
        fprintf(file, "# %s\n", table->title);
    else if (table->title != NULL)
        fprintf(file, output->format == OUTPUT_MARKDOWN ? "**%s**\n\n" : "%s\n", table->title);
    if (output->format == OUTPUT_CSV)
        write_csv(file, table);
    else if (output->format == OUTPUT_MARKDOWN)
        write_markdown(file, table);
    else if (output->terminal)
        write_terminal(file, table);
    else
        write_plain(file, table);
}

json_t *table_json(const struct table *table)
{
    json_t *rows = memory_given(json_array());
    for (size_t r = 0; r < table->row_count; r++) {
        json_t *row = memory_given(json_object());
        for (size_t c = 0; c < table->column_count; c++) {
            const struct cell *cell = &table->cells[r * table->column_count + c];
            json_t *value = NULL;
            if (cell->kind == CELL_TEXT)
                value = json_string(cell->text);
            else if (cell->kind != CELL_NONE)
                value = json_fixed(cell->value, cell->decimals);
            json_object_set_new(row, table->columns[c].key, value == NULL ? json_null() : value);
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

void output_json(const struct output *output, const json_t *json)
{
    /* Fifteen digits are what a double is sure to keep of a decimal number. */
    json_dumpf(json, output->file, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    fputc('\n', output->file);
}
