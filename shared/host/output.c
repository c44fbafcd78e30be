/* See output.h. */
#define _DEFAULT_SOURCE

#include "host/output.h"
#include "host/memory.h"

#include "base/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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
    unsigned optional;
};

struct table {
    char *title;
    struct column *columns;
    struct cell *cells; /* row by row */
    size_t column_count;
    size_t row_count;
    size_t row_room;
    size_t next;   /* column of the next cell of the last row */
    size_t marked; /* of the rows, from 1; 0: none */
};

/* A number with its sign, point and nine decimals, and the end. */
#define CELL_TEXT_MAX 32

/* Of a number in JSON: fifteen are what a double is sure to keep of a decimal number. */
#define REAL_DIGITS 15

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

void table_column_optional(struct table *table, unsigned rank)
{
    CHECK(table->column_count > 0);
    table->columns[table->column_count - 1].optional = rank;
}

void table_row_marked(struct table *table)
{
    CHECK(table->row_count > 0);
    table->marked = table->row_count;
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

#define PIPE_WIDTH 120

static size_t width_of(int descriptor, bool terminal)
{
    const char *columns = getenv("COLUMNS");
    long asked = columns == NULL ? 0 : strtol(columns, NULL, 10);
    struct winsize size;
    if (asked > 0)
        return (size_t)asked;
    return terminal && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : PIPE_WIDTH;
}

void output_bold(const struct output *output, const char *text, size_t width)
{
    fprintf(output->file, "%s%s%s", output->bold ? "\033[1m" : "", text, output->bold ? "\033[0m" : "");
    for (size_t used = strlen(text); used < width; used++)
        fputc(' ', output->file);
}

struct output output_to(FILE *file, const char *format)
{
    static const char *const names[] = {"text", "json", "csv", "md"};
    struct output output = {.file = file, .format = OUTPUT_TEXT};
    for (unsigned k = 0; k < 4; k++)
        if (format != NULL && strcmp(format, names[k]) == 0)
            output.format = (enum output_format)(k + 1);
    int descriptor = fileno(file);
    output.terminal = output.format == OUTPUT_TEXT && descriptor >= 0 && isatty(descriptor);
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    output.bold =
        output.terminal && (no_color == NULL || *no_color == '\0') && term != NULL && strcmp(term, "dumb") != 0;
    output.width = width_of(descriptor, output.terminal);
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
    size_t used = text_width(text);
    size_t pad = width > used ? width - used : 0;
    for (size_t k = 0; right && k < pad; k++)
        fputc(' ', file);
    fputs(text, file);
    for (size_t k = 0; !right && !last && k < pad; k++)
        fputc(' ', file);
    if (!last)
        fputs("  ", file);
}

/* The widths of columns, and which are left out: 0. */
static size_t *lay_out(const struct table *table, size_t width_max, size_t margin)
{
    size_t *widths = memory_zeroed(table->column_count + 1, sizeof *widths);
    char number[CELL_TEXT_MAX];
    size_t total = margin;
    for (size_t c = 0; c < table->column_count; c++) {
        widths[c] = text_width(table->columns[c].heading);
        for (size_t r = 0; r < table->row_count; r++) {
            size_t width = text_width(cell_text(&table->cells[r * table->column_count + c], "-", number));
            widths[c] = width > widths[c] ? width : widths[c];
        }
        total += widths[c] + (c > 0 ? 2 : 0);
    }
    while (total > width_max) {
        unsigned rank = 0;
        for (size_t c = 0; c < table->column_count; c++)
            if (widths[c] > 0 && table->columns[c].optional > rank)
                rank = table->columns[c].optional;
        if (rank == 0)
            break;
        for (size_t c = 0; c < table->column_count; c++)
            if (widths[c] > 0 && table->columns[c].optional == rank) {
                total -= widths[c] + 2;
                widths[c] = 0;
            }
    }
    return widths;
}

/* On a terminal that is still too narrow the widest column of text is broken, between words. */
static size_t broken_column(const struct output *output, const struct table *table, size_t *widths, size_t margin)
{
    size_t total = margin;
    size_t widest = table->column_count;
    for (size_t c = 0; c < table->column_count; c++) {
        total += widths[c] + (c > 0 && widths[c] > 0 ? 2 : 0);
        if (table->columns[c].left && (widest == table->column_count || widths[c] > widths[widest]))
            widest = c;
    }
    if (!output->terminal || total <= output->width || widest == table->column_count)
        return table->column_count;
    size_t over = total - output->width;
    size_t word = 16; /* at the least, and the longest word of the column */
    for (size_t r = 0; r < table->row_count; r++) {
        const char *text = table->cells[r * table->column_count + widest].text;
        while (text != NULL && *text != '\0') {
            size_t length = strcspn(text, " ");
            word = length > word ? length : word;
            text += length + strspn(text + length, " ");
        }
    }
    widths[widest] = widths[widest] > over + word ? widths[widest] - over : word;
    return widest;
}

/* Bytes of the words at the start of `text` that fit so many columns; one word at least. */
static size_t fitting(const char *text, size_t width)
{
    size_t used = strcspn(text, " ");
    while (text[used] == ' ') {
        size_t next = used + 1 + strcspn(text + used + 1, " ");
        if (next > width)
            break;
        used = next;
    }
    return used;
}

static void write_text_row(const struct output *output, const struct table *table, const size_t *widths, size_t row,
                           size_t broken, size_t last)
{
    char number[CELL_TEXT_MAX];
    const char *rest = NULL; /* of the broken cell */
    for (bool first = true; first || (rest != NULL && *rest != '\0'); first = false) {
        if (table->marked > 0)
            fputs(first && row > 0 && row == table->marked ? "> " : "  ", output->file);
        for (size_t c = 0; c <= last; c++) {
            const char *text = row == 0 ? table->columns[c].heading
                                        : cell_text(&table->cells[(row - 1) * table->column_count + c], "-", number);
            char part[1024];
            if (widths[c] == 0)
                continue;
            if (c == broken) {
                rest = first ? text : rest;
                size_t length = fitting(rest, widths[c]);
                snprintf(part, sizeof part, "%.*s", (int)length, rest);
                rest += length;
                rest += strspn(rest, " ");
                text = part;
            } else if (!first) {
                text = "";
            }
            write_padded(output->file, text, widths[c], !table->columns[c].left, c == last);
        }
        fputc('\n', output->file);
    }
}

static void write_text(const struct output *output, const struct table *table)
{
    const size_t margin = table->marked > 0 ? 2 : 0;
    size_t *widths = lay_out(table, output->width, margin);
    size_t broken = broken_column(output, table, widths, margin);
    size_t last = 0;
    for (size_t c = 0; c < table->column_count; c++)
        last = widths[c] > 0 ? c : last;
    for (size_t r = 0; r <= table->row_count; r++) {
        bool bold = output->bold && (r == 0 || r == table->marked);
        fputs(bold ? "\033[1m" : "", output->file);
        write_text_row(output, table, widths, r, broken, last);
        fputs(bold ? "\033[0m" : "", output->file);
    }
    free(widths);
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

static void write_markdown_text(FILE *file, bool bold, const char *text)
{
    fputs(bold ? " **" : " ", file);
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputc('\\', file);
        fputc(*text == '\n' ? ' ' : *text, file);
    }
    fputs(bold ? "** |" : " |", file);
}

static void write_markdown(FILE *file, const struct table *table)
{
    char number[CELL_TEXT_MAX];
    for (size_t r = 0; r <= table->row_count; r++) {
        fputc('|', file);
        for (size_t c = 0; c < table->column_count; c++)
            write_markdown_text(file, r > 0 && r == table->marked && c == 0,
                                r == 0 ? table->columns[c].heading
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
    else
        write_text(output, table);
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
    json_dumpf(json, output->file, JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS));
    fputc('\n', output->file);
}

/* ---- Objects as rows --------------------------------------------------------------------------------------------- */

/* Sets what a value holds in `row`, by path. */
static void flatten(json_t *row, const char *path, json_t *value)
{
    char below[512];
    const char *key;
    size_t index;
    json_t *item;
    if (json_is_object(value)) {
        json_object_foreach(value, key, item)
        {
            snprintf(below, sizeof below, "%s%s%s", path, *path == '\0' ? "" : ".", key);
            flatten(row, below, item);
        }
    } else if (json_is_array(value)) {
        json_array_foreach(value, index, item)
        {
            snprintf(below, sizeof below, "%s.%zu", path, index);
            flatten(row, below, item);
        }
    } else {
        json_object_set(row, path, value);
    }
}

static void write_csv_value(FILE *file, const json_t *value)
{
    if (json_is_string(value))
        write_csv_text(file, json_string_value(value));
    else if (value != NULL && !json_is_null(value))
        json_dumpf(value, file, JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS));
}

void output_rows(const struct output *output, const json_t *rows)
{
    FILE *file = output->file;
    json_t *flat = memory_given(json_array());
    json_t *columns = memory_given(json_object());
    const char *key;
    size_t index;
    json_t *row;
    json_t *value;
    json_array_foreach(rows, index, row)
    {
        json_t *one = memory_given(json_object());
        flatten(one, "", row);
        json_object_update_missing(columns, one);
        json_array_append_new(flat, one);
    }
    size_t column = 0;
    json_object_foreach(columns, key, value)
    {
        fputs(column++ > 0 ? "," : "", file);
        write_csv_text(file, key);
    }
    fputc('\n', file);
    json_array_foreach(flat, index, row)
    {
        column = 0;
        json_object_foreach(columns, key, value)
        {
            fputs(column++ > 0 ? "," : "", file);
            write_csv_value(file, json_object_get(row, key));
        }
        fputc('\n', file);
    }
    json_decref(columns);
    json_decref(flat);
}
