/* Tables for people and for machines, from one model of columns and rows.
 *
 * A cell is text, an integer, or a decimal number kept as an integer and its count of decimals: it prints with exactly
 * these digits in every format, and no floating point is in between. Text is plain columns: optional ones are left out
 * where they do not fit, and on a terminal that is narrower still text is broken between words. JSON is an array of
 * objects by the columns' keys.
 */
#ifndef TANDEM_HOST_OUTPUT_H
#define TANDEM_HOST_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum output_format { OUTPUT_TEXT = 1, OUTPUT_JSON = 2, OUTPUT_CSV = 3, OUTPUT_MARKDOWN = 4 };

/* As --format takes them, for option tables. */
#define OUTPUT_FORMATS "text|json|csv|md"

/* Where a command's answer goes. */
struct output {
    FILE *file;
    enum output_format format;
    bool terminal; /* text only: lay out for the terminal */
    bool bold;     /* a terminal that shows it, and NO_COLOR is not set */
    size_t width;  /* of text, in columns: COLUMNS where that is set, the terminal's, or 120 */
};

/* `format` is one of OUTPUT_FORMATS or NULL for text. */
struct output output_to(FILE *file, const char *format);

struct table;

/* `title` may be NULL. */
struct table *table_new(const char *title);
void table_free(struct table *table);

/* Columns come first. `key` is the name for machines, with its unit; `heading` the one for people. Numbers are aligned
 * to the right. Both are copied. */
void table_column(struct table *table, const char *key, const char *heading);

/* The last column may be left out of text where the output is not wide enough: those of the greatest rank first, and
 * those of one rank together. 0, as every column begins: it stays. */
void table_column_optional(struct table *table, unsigned rank);

/* Begins a row; the next cells fill it from the left, and those not filled are empty. */
void table_row(struct table *table);
void table_text(struct table *table, const char *text);
void table_integer(struct table *table, int64_t value);
void table_fixed(struct table *table, int64_t value, unsigned decimals); /* value / 10^decimals, decimals <= 9 */
void table_row_marked(struct table *table); /* the last row stands out: ">" in text, bold in Markdown */
void table_none(struct table *table);       /* unknown: "-" in text, nothing in CSV, null in JSON */

/* `value` in units of 10^-from, rounded half away from zero to 10^-to: what table_fixed() shows of a long number. */
int64_t fixed_round(int64_t value, unsigned from, unsigned to);

/* Writes the table in the output's format. Titles stand above text and Markdown and before CSV as a comment line. */
void output_table(const struct output *output, const struct table *table);

/* Text, bold where the output has it, padded to `width` columns. */
void output_bold(const struct output *output, const char *text, size_t width);

/* An array of objects, the caller's. */
json_t *table_json(const struct table *table);

/* An array of JSON objects as CSV: a row an object, a column a value, by its path: "ttft_ms.p50", "instances.0.name".
 * The columns are those of all objects, in the order in which they come up. Values are as output_json() writes them,
 * text without its quotes, null as nothing. */
void output_rows(const struct output *output, const json_t *rows);

/* The number value / 10^decimals. Printed by output_json() it has no digits beyond its decimals. */
json_t *json_fixed(int64_t value, unsigned decimals);

/* Writes `json` with stable formatting and a newline, keys in the order they were set. */
void output_json(const struct output *output, const json_t *json);

#endif
