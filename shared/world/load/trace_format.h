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
    const struct trace_options *options;
    struct trace_links *links; /* which rows wait for which; NULL: none so far */
    const char *name;          /* of the file, for errors */
    int line;                  /* of the line last returned, from 1: its first, where quotes hold ends of lines */
    int lines_more;            /* that it has beyond that */
    bool ended;                /* the input has no more bytes */
    bool csv;                  /* ends of lines in quotes do not end a record */
    char *buffer;              /* bytes read ahead: [position, filled) are not yet returned */
    size_t position;
    size_t filled;
    struct trace_file *trace; /* grows; arrivals are as in the file until all are read */
    uint32_t capacity;        /* rows */
    uint64_t block_capacity;
    uint64_t block_count;
    int64_t arrival_latest_ns;
    uint64_t chain; /* hash of the row's blocks so far */
    bool unsorted;  /* a row stands behind a later one */
};

enum line_result { LINE_READ = 1, LINE_END = 2, LINE_FAILED = 3 };

/* The next line, without its end, writable and NUL-terminated until the next call. Lines that are blank to the end of
 * the file are the end; a blank line before others is a failure. */
enum line_result trace_line(struct trace_reading *reading, char **line, size_t *length);

/* Describes what is wrong with the current line, in `column` where that is not NULL. Always false. */
bool trace_wrong(struct trace_reading *reading, const char *column, const char *format, ...) USER_ERROR_FORMAT(3, 4);

/* Adds a row; the block ids, where the format has them, follow one by one. An arrival of -1 is that of the rows it
 * waits for; an output of 0 is not known. False: a limit, described. */
bool trace_row(struct trace_reading *reading, int64_t arrival_ns, uint32_t prompt_tokens, uint32_t output_tokens);
bool trace_row_block(struct trace_reading *reading, uint64_t id, bool ends); /* ends: a prefix block, not only a part */

/* The limits on the lengths of a row, each and together. */
bool trace_tokens(struct trace_reading *reading, const char *column, uint64_t tokens, uint32_t *result);
bool trace_tokens_together(struct trace_reading *reading, const char *column, uint32_t prompt, uint32_t output);

/* Whether a column or key that means nothing here may be passed over; described if not. */
bool trace_ignored(struct trace_reading *reading, const char *name);

/* ---- Rows that wait (trace_links.c) ------------------------------------------------------------------------------ */

/* The row added last has this name, belongs to this session, or waits: for a named earlier row, or for the row of its
 * session before it. A delay counts from the last end. False: described. */
bool trace_link_name(struct trace_reading *reading, const char *name);
bool trace_link_session(struct trace_reading *reading, const char *session, bool follows);
bool trace_link_wait(struct trace_reading *reading, const char *name);
void trace_link_delay(struct trace_reading *reading, int64_t delay_ns);

/* Rows have been put in order: row `order[i]` is row i now; NULL: as they were read. Makes the arrays of the trace. */
bool trace_links_finish(struct trace_reading *reading, const uint32_t *order);
void trace_links_free(struct trace_reading *reading);

/* One per format: reads all lines. */
bool trace_azure_read(struct trace_reading *reading);
bool trace_mooncake_read(struct trace_reading *reading);
bool trace_csv_read(struct trace_reading *reading);
bool trace_servegen_read(struct trace_reading *reading);

/* ---- Shared by the CSV formats --------------------------------------------------------------------------------- */

/* As enum trace_unit numbers them. */
enum csv_time { CSV_TIME_DATE = 0, CSV_TIME_S = 1, CSV_TIME_MS = 2, CSV_TIME_US = 3, CSV_TIME_NS = 4 };

/* The columns that matter, found in the header. */
struct csv_columns {
    uint32_t count; /* of the file */
    uint32_t arrival;
    uint32_t prompt;
    uint32_t output;
    enum csv_time time;
    bool zero_failed;      /* an output of 0 marks a request that failed: the row is left out */
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
