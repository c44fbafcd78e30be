/* See trace_reader.h. Opening, decompression and lines; growing, sorting and sealing the arrays. */
#define _POSIX_C_SOURCE 200809L

#include "world/load/trace_reader.h"

#include "base/arith.h"
#include "base/limits.h"
#include "world/load/trace_format.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define READ_BYTES (64 * 1024)
#define BUFFER_BYTES (TRACE_LINE_MAX + READ_BYTES + 1)

bool trace_wrong(struct trace_reading *reading, const char *column, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    user_error_set(reading->error, reading->name, reading->line, column, "%s", text);
    return false;
}

/* ---- Lines ----------------------------------------------------------------------------------------------------- */

/* Reads on until a whole line, the longest allowed line or the end of the file is in the buffer. */
static bool fill(struct trace_reading *reading, size_t *length, bool *whole)
{
    size_t searched = 0;
    for (;;) {
        char *start = reading->buffer + reading->position;
        size_t present = reading->filled - reading->position;
        char *end = memchr(start + searched, '\n', present - searched);
        if (end != NULL && reading->csv && memchr(start, '"', (size_t)(end - start)) != NULL) {
            size_t record = csv_record(start, present);
            /* A quote that never closes is an error of the line on which it opens. */
            bool hopeless = reading->ended || present > TRACE_LINE_MAX;
            end = record != SIZE_MAX ? start + record : hopeless ? end : NULL;
            searched = 0;
        } else {
            searched = present;
        }
        *length = end != NULL ? (size_t)(end - start) : present;
        *whole = end != NULL;
        if (end != NULL || reading->ended || present > TRACE_LINE_MAX)
            return true;
        memmove(reading->buffer, start, present);
        reading->position = 0;
        reading->filled = present;
        size_t room = min_u64(READ_BYTES, BUFFER_BYTES - 1 - present);
        int64_t got = input_read(reading->input, reading->buffer + present, room, reading->line + 1, reading->error);
        if (got < 0)
            return false;
        reading->ended = got == 0;
        reading->filled += (size_t)got;
    }
}

static bool check_text(struct trace_reading *reading, const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)line[i];
        bool inner = reading->csv && (c == '\n' || (c == '\r' && line[i + 1] == '\n')); /* in quotes */
        reading->lines_more += c == '\n';
        if ((c < 0x20 && c != '\t' && !inner) || c == 0x7f)
            return trace_wrong(reading, NULL,
                               "byte 0x%02x in column %zu is not text; expected UTF-8, plain or "
                               "compressed with xz, gzip or zstd",
                               c, i + 1);
    }
    return true;
}

static bool blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t')
            return false;
    return true;
}

/* One line, blank or not. */
static enum line_result line_any(struct trace_reading *reading, char **line, size_t *length)
{
    bool whole = false;
    if (!fill(reading, length, &whole))
        return LINE_FAILED;
    if (*length == 0 && !whole)
        return LINE_END;
    reading->line += 1 + reading->lines_more;
    reading->lines_more = 0;
    char *start = reading->buffer + reading->position;
    reading->position += *length + whole;
    if (*length > TRACE_LINE_MAX) {
        trace_wrong(reading, NULL, "the line is longer than %d bytes", TRACE_LINE_MAX);
        return LINE_FAILED;
    }
    if (reading->line == 1 && *length >= 3 && memcmp(start, "\xef\xbb\xbf", 3) == 0) {
        start += 3;
        *length -= 3;
    }
    if (*length > 0 && start[*length - 1] == '\r')
        (*length)--;
    start[*length] = '\0';
    *line = start;
    return check_text(reading, start, *length) ? LINE_READ : LINE_FAILED;
}

enum line_result trace_line(struct trace_reading *reading, char **line, size_t *length)
{
    int blank_line = 0;
    for (;;) {
        enum line_result result = line_any(reading, line, length);
        if (result != LINE_READ)
            return result;
        if (!blank(*line, *length))
            break;
        if (blank_line == 0)
            blank_line = reading->line;
    }
    if (blank_line == 0)
        return LINE_READ;
    reading->line = blank_line;
    trace_wrong(reading, NULL, "the line is empty, expected a request; empty lines may only end a file");
    return LINE_FAILED;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

static void grow_rows(struct trace_reading *reading)
{
    struct trace_file *trace = reading->trace;
    uint32_t capacity = reading->capacity == 0 ? 1024 : min_u32(reading->capacity * 2, TRACE_ROWS_MAX);
    trace->arrival_ns = memory_resized(trace->arrival_ns, capacity * sizeof *trace->arrival_ns);
    trace->prompt_tokens = memory_resized(trace->prompt_tokens, capacity * sizeof *trace->prompt_tokens);
    trace->output_tokens = memory_resized(trace->output_tokens, capacity * sizeof *trace->output_tokens);
    if (trace->block_tokens != 0) {
        trace->block_first = memory_resized(trace->block_first, ((size_t)capacity + 1) * sizeof *trace->block_first);
        trace->block_first[0] = 0;
    }
    reading->capacity = capacity;
}

/* To the nearest token, at least one; 0 stays: what is not recorded. */
static uint32_t scaled(uint32_t tokens, uint32_t permille)
{
    if (permille == 0 || permille == 1000 || tokens == 0)
        return tokens;
    return (uint32_t)min_u64(REQUEST_TOKENS_MAX, max_u64(1, ((uint64_t)tokens * permille + 500) / 1000));
}

bool trace_row(struct trace_reading *reading, int64_t arrival_ns, uint32_t prompt_tokens, uint32_t output_tokens)
{
    struct trace_file *trace = reading->trace;
    if (trace->count == TRACE_ROWS_MAX)
        return trace_wrong(reading, NULL, "more than %" PRIu32 " requests", TRACE_ROWS_MAX);
    if (trace->count == reading->capacity)
        grow_rows(reading);
    CHECK(arrival_ns < TRACE_TIME_MAX);
    reading->chain = 0;
    reading->unsorted = reading->unsorted || arrival_ns < reading->arrival_latest_ns;
    trace->out_of_order += arrival_ns >= 0 && arrival_ns < reading->arrival_latest_ns;
    arrival_ns = max_i64(arrival_ns, 0);
    prompt_tokens = scaled(prompt_tokens, reading->options->prompt_permille);
    output_tokens = scaled(output_tokens, reading->options->output_permille);
    if (!trace_tokens_together(reading, NULL, prompt_tokens, output_tokens))
        return false;
    uint32_t row = trace->count++;
    trace->arrival_ns[row] = arrival_ns;
    trace->prompt_tokens[row] = prompt_tokens;
    trace->output_tokens[row] = output_tokens;
    if (trace->block_tokens != 0)
        trace->block_first[row + 1] = reading->block_count;
    trace->prompt_tokens_sum += prompt_tokens;
    trace->output_tokens_sum += output_tokens;
    reading->arrival_latest_ns = max_i64(reading->arrival_latest_ns, arrival_ns);
    return true;
}

uint64_t trace_block_hash(uint64_t before, uint64_t id)
{
    /* The finalizer of splitmix64 over both, with odd constants between. */
    uint64_t z = before * UINT64_C(0xd6e8feb86659fd93) + id + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return z != 0 ? z : 1;
}

bool trace_row_block(struct trace_reading *reading, uint64_t id, bool ends)
{
    struct trace_file *trace = reading->trace;
    if (reading->block_count == reading->block_capacity) {
        if (reading->block_count == TRACE_BLOCKS_MAX)
            return trace_wrong(reading, NULL, "more than %" PRIu64 " prefix blocks in all", TRACE_BLOCKS_MAX);
        uint64_t capacity = reading->block_capacity == 0 ? 4096 : reading->block_capacity * 2;
        trace->blocks = memory_resized(trace->blocks, (size_t)capacity * sizeof *trace->blocks);
        reading->block_capacity = capacity;
    }
    reading->chain = trace_block_hash(reading->chain, id);
    if (!ends)
        return true;
    trace->blocks[reading->block_count++] = reading->chain;
    trace->block_first[trace->count] = reading->block_count;
    return true;
}

bool trace_ignored(struct trace_reading *reading, const char *name)
{
    const struct trace_options *options = reading->options;
    for (uint32_t i = 0; i < options->ignore_count; i++)
        if (strcasecmp(options->ignore[i], name) == 0)
            return true;
    return trace_wrong(reading, name, "is not known; ignore = { \"%.40s\" } in the load passes over it", name);
}

bool trace_tokens(struct trace_reading *reading, const char *column, uint64_t tokens, uint32_t *result)
{
    if (tokens < 1 || tokens > REQUEST_TOKENS_MAX)
        return trace_wrong(reading, column, "%" PRIu64 ", expected a whole number of tokens from 1 to %d%s", tokens,
                           REQUEST_TOKENS_MAX, tokens == 0 ? "; a request that failed has no place in a load" : "");
    *result = (uint32_t)tokens;
    return true;
}

bool trace_tokens_together(struct trace_reading *reading, const char *column, uint32_t prompt, uint32_t output)
{
    if ((uint64_t)prompt + output > REQUEST_TOKENS_MAX)
        return trace_wrong(reading, column,
                           "a prompt of %" PRIu32 " and an output of %" PRIu32 " tokens, expected at "
                           "most %d together",
                           prompt, output, REQUEST_TOKENS_MAX);
    return true;
}

/* ---- Order ----------------------------------------------------------------------------------------------------- */

struct sort_key {
    int64_t arrival_ns;
    uint32_t row;
};

static int compare_keys(const void *left, const void *right)
{
    const struct sort_key *a = left;
    const struct sort_key *b = right;
    if (a->arrival_ns != b->arrival_ns)
        return a->arrival_ns < b->arrival_ns ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Copies the rows in the order of `keys` into the arrays of `sorted`. */
static void copy_sorted(const struct trace_file *trace, const struct sort_key *keys, struct trace_file *sorted)
{
    uint64_t block = 0;
    for (uint32_t i = 0; i < trace->count; i++) {
        uint32_t row = keys[i].row;
        sorted->arrival_ns[i] = trace->arrival_ns[row];
        sorted->prompt_tokens[i] = trace->prompt_tokens[row];
        sorted->output_tokens[i] = trace->output_tokens[row];
        if (trace->block_tokens == 0)
            continue;
        uint64_t count = trace->block_first[row + 1] - trace->block_first[row];
        memcpy(sorted->blocks + block, trace->blocks + trace->block_first[row], (size_t)count * sizeof *trace->blocks);
        sorted->block_first[i] = block;
        block += count;
    }
    if (trace->block_tokens != 0)
        sorted->block_first[trace->count] = block;
}

static void free_arrays(struct trace_file *trace)
{
    free(trace->arrival_ns);
    free(trace->prompt_tokens);
    free(trace->output_tokens);
    free(trace->block_first);
    free(trace->blocks);
}

static void free_links(struct trace_file *trace)
{
    free(trace->waits);
    free(trace->delay_ns);
    free(trace->follower_first);
    free(trace->followers);
}

/* order[i]: which row, as read, is the i-th. */
static void sort_rows(const struct trace_reading *reading, uint32_t *order)
{
    struct trace_file *trace = reading->trace;
    struct trace_file sorted = *trace;
    struct sort_key *keys = memory_get(trace->count * sizeof *keys);
    sorted.arrival_ns = memory_get(trace->count * sizeof *sorted.arrival_ns);
    sorted.prompt_tokens = memory_get(trace->count * sizeof *sorted.prompt_tokens);
    sorted.output_tokens = memory_get(trace->count * sizeof *sorted.output_tokens);
    if (trace->block_tokens != 0) {
        sorted.block_first = memory_get(((size_t)trace->count + 1) * sizeof *sorted.block_first);
        sorted.blocks = memory_get((size_t)reading->block_count * sizeof *sorted.blocks);
    }
    for (uint32_t row = 0; row < trace->count; row++)
        keys[row] = (struct sort_key){.arrival_ns = trace->arrival_ns[row], .row = row};
    qsort(keys, trace->count, sizeof *keys, compare_keys);
    copy_sorted(trace, keys, &sorted);
    for (uint32_t i = 0; i < trace->count; i++)
        order[i] = keys[i].row;
    free_arrays(trace);
    free(keys);
    *trace = sorted;
}

/* Makes arrivals relative to the first and takes the fingerprint. */
static void seal(struct trace_file *trace)
{
    int64_t first_ns = trace->arrival_ns[0];
    uint64_t hash = trace_block_hash(trace->count, trace->block_tokens);
    for (uint32_t i = 0; i < trace->count; i++) {
        trace->arrival_ns[i] -= first_ns;
        hash = trace_block_hash(hash, (uint64_t)trace->arrival_ns[i]);
        hash = trace_block_hash(hash, (uint64_t)trace->prompt_tokens[i] << 32 | trace->output_tokens[i]);
        if (trace->block_tokens != 0 && trace->block_first[i + 1] > trace->block_first[i])
            hash = trace_block_hash(hash, trace->blocks[trace->block_first[i + 1] - 1]); /* chained: stands for all */
        if (trace->waits != NULL && trace->waits[i] > 0)
            hash = trace_block_hash(hash, (uint64_t)trace->delay_ns[i]);
    }
    for (uint32_t k = 0; trace->waits != NULL && k < trace->follower_first[trace->count]; k++)
        hash = trace_block_hash(hash, trace->followers[k]);
    trace->fingerprint = hash;
}

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static bool read_rows(struct trace_reading *reading)
{
    switch (reading->trace->format) {
    case TRACE_FORMAT_AZURE_CSV:
        return trace_azure_read(reading);
    case TRACE_FORMAT_MOONCAKE_JSONL:
        return trace_mooncake_read(reading);
    case TRACE_FORMAT_SERVEGEN:
        return trace_servegen_read(reading);
    case TRACE_FORMAT_CSV:
        break;
    }
    CHECK(reading->trace->format == TRACE_FORMAT_CSV);
    return trace_csv_read(reading);
}

static bool read_all(struct trace_reading *reading)
{
    if (!read_rows(reading))
        return false;
    if (reading->trace->count == 0)
        return trace_wrong(reading, NULL, "the file has no requests");
    uint32_t *order = NULL;
    if (reading->unsorted) {
        order = memory_get(reading->trace->count * sizeof *order);
        sort_rows(reading, order);
    }
    bool good = trace_links_finish(reading, order);
    free(order);
    if (good)
        seal(reading->trace);
    return good;
}

/* Reads everything from an input that has been opened, or has not and is described, and closes it. */
static struct trace_file *read_input(struct input *input, const char *name, const struct trace_options *options,
                                     struct user_error *error)
{
    if (input == NULL)
        return NULL;
    struct trace_reading reading = {.input = input, .error = error, .options = options, .name = name};
    reading.trace = memory_zeroed(1, sizeof *reading.trace);
    reading.buffer = memory_get(BUFFER_BYTES);
    snprintf(reading.trace->path, sizeof reading.trace->path, "%s", name);
    reading.trace->format = options->format;
    bool read = read_all(&reading);
    free(reading.buffer);
    trace_links_free(&reading);
    input_close(input);
    if (read)
        return reading.trace;
    trace_file_free(reading.trace);
    return NULL;
}

struct trace_file *trace_file_read(const char *path, const struct trace_options *options, struct user_error *error)
{
    return read_input(input_open(path, TRACE_BYTES_MAX, error), path, options, error);
}

struct trace_file *trace_file_read_memory(const void *bytes, size_t size, const char *name,
                                          const struct trace_options *options, struct user_error *error)
{
    return read_input(input_open_memory(bytes, size, name, error), name, options, error);
}

void trace_file_free(struct trace_file *trace)
{
    if (trace == NULL)
        return;
    free_arrays(trace);
    free_links(trace);
    free(trace);
}
