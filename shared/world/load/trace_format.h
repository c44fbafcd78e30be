/* Between the trace reader and its formats: lines come in, rows go out. Not for others; see
 * trace_reader.h. */
#ifndef TANDEM_WORLD_LOAD_TRACE_FORMAT_H
#define TANDEM_WORLD_LOAD_TRACE_FORMAT_H

#include "world/load/trace_reader.h"
#include "host/csv.h"
#include "host/input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arrivals lie below this, relative or since 1970: half of what 64 bits hold, so that sums of two cannot overflow. */
#define TRACE_TIME_MAX (INT64_C(1) << 62)

/* The state of one reading. */
struct trace_reading {
    struct input *input;
    struct user_error *error;
    const char *name; /* of the file, for errors */
    int line;         /* of the line last returned, from 1: its first, where quotes hold ends of lines */
    int lines_more;   /* that it has beyond that */
    bool ended;       /* the input has no more bytes */
    bool csv;         /* ends of lines in quotes do not end a record */
    char *buffer;     /* bytes read ahead: [position, filled) are not yet returned */
    size_t position;
    size_t filled;
    struct trace_file *trace; /* grows; arrivals are as in the file until all are read */
    uint32_t capacity;        /* rows */
    uint64_t block_capacity;
    uint64_t block_count;
    int64_t arrival_latest_ns;
};

enum line_result { LINE_READ = 1, LINE_END = 2, LINE_FAILED = 3 };

/* The next line, without its end, writable and NUL-terminated until the next call. Lines that are blank to the end of
 * the file are the end; a blank line before others is a failure. */
enum line_result trace_line(struct trace_reading *reading, char **line, size_t *length);

/* Describes what is wrong with the current line, in `column` where that is not NULL. Always false. */
bool trace_wrong(struct trace_reading *reading, const char *column, const char *format, ...) USER_ERROR_FORMAT(3, 4);

/* Adds a row; the block ids, where the format has them, follow one by one. False: a limit, described. */
bool trace_row(struct trace_reading *reading, int64_t arrival_ns, uint32_t prompt_tokens, uint32_t output_tokens);
bool trace_row_block(struct trace_reading *reading, uint64_t id);

/* The limits on the lengths of a row, each and together. */
bool trace_tokens(struct trace_reading *reading, const char *column, uint64_t tokens, uint32_t *result);
bool trace_tokens_together(struct trace_reading *reading, const char *column, uint32_t prompt, uint32_t output);

/* One per format: reads all lines. */
bool trace_azure_read(struct trace_reading *reading);
bool trace_mooncake_read(struct trace_reading *reading);
bool trace_csv_read(struct trace_reading *reading);
bool trace_servegen_read(struct trace_reading *reading);

/* ---- Shared by the CSV formats --------------------------------------------------------------------------------- */

enum csv_time { CSV_TIME_DATE, CSV_TIME_S, CSV_TIME_MS, CSV_TIME_US, CSV_TIME_NS };

/* The columns that matter, found in the header. */
struct csv_columns {
    uint32_t count; /* of the file */
    uint32_t arrival;
    uint32_t prompt;
    uint32_t output;
    enum csv_time time;
    char arrival_name[64]; /* as the file spells them, for errors */
    char prompt_name[64];
    char output_name[64];
};

/* Splits a line in place; room for TRACE_COLUMNS_MAX. False: described. */
bool trace_cells(struct trace_reading *reading, char *line, struct csv_cell *cells, uint32_t *count);

/* Reads the rows after a header. */
bool csv_rows(struct trace_reading *reading, const struct csv_columns *columns);

/* "2023-11-16 18:15:46.6805900" to ns since 1970-01-01 00:00:00 UTC. False: not of that form, or not from 1970 to 2115,
 * which is what lies below TRACE_TIME_MAX. */
bool trace_parse_date(const char *text, int64_t *result_ns);

/* A decimal number of 10^exponent ns, rounded to the nearest, half up. False: not a number in [0, TRACE_TIME_MAX). */
bool trace_parse_decimal(const char *text, int exponent, int64_t *result_ns);

#endif
