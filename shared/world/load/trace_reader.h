/* Reads recorded request traces into flat arrays that any number of threads may share.
 *
 * Formats (struct trace_options):
 *
 *   Azure CSV        header exactly TIMESTAMP,ContextTokens,GeneratedTokens (Azure/AzurePublicDataset, 2023 and 2024).
 *                    TIMESTAMP is a date and time, see below.
 *   Mooncake JSONL   an object a line, of the family that Mooncake began (AIPerf, Dynamo, Bailian's traces):
 *                      timestamp       arrival; with a delay or wait_for it may be missing
 *                      input_length    prompt tokens
 *                      output_length   may be missing where the load says how long outputs are
 *                      hash_ids        one integer for each block of the prompt or part of it; in all lines or in none
 *                      session_id      whose turn it is; a turn with a `delay` arrives so long after the answer to the
 *                                      turn of its session before it
 *                      request_id, wait_for, tool_wait_ms
 *                                      a line that waits for earlier ones arrives so long after the last of them has
 *                                      been answered, and not before its own timestamp
 *                      chat_id, parent_chat_id, turn, type: passed over
 *                    Any other key is an error, unless options.ignore names it. Times are milliseconds unless
 *                    options.unit says otherwise (Bailian's are seconds), blocks have 512 tokens unless
 *                    options.block_tokens does (Bailian's 16).
 *   plain CSV        a header that names exactly one column of each kind, or whose columns options name; a column of
 *                    another name is an error, unless options.ignore has it:
 *                      arrival  arrival_s, arrival_ms, arrival_us, arrival_ns, arrived_at (s), arrival_time_ns,
 *                               timestamp (a date and time; a bare number where options.unit says of what)
 *                      prompt   prompt_tokens, input_tokens, input_length, num_prefill_tokens, input_toks,
 *                               ContextTokens
 *                      output   output_tokens, generated_tokens, output_length, num_decode_tokens, output_toks,
 *                               GeneratedTokens
 *
 *                    BurstGPT's header (Timestamp,Model,Request tokens,Response tokens,...) is known: seconds, and rows
 *                    without a response are failures, which are left out and counted.
 *
 * Names of columns are compared without regard to case. A date and time is "2023-11-16 18:15:46", with "T" for the
 * blank if so wished, up to nine decimals of a second, and an optional "Z" or "+hh:mm"; it is read to the nanosecond.
 * A plain arrival is a decimal number, "1e-05" included, exact to the nanosecond, a half rounded up. Files are UTF-8
 * text with or without byte order mark, lines end with LF or CRLF, fields may be quoted (RFC 4180); plain or compressed
 * with xz, gzip or zstd, which is told from the bytes, not from the name.
 *
 * What is refused, each as `file:line: column: what, expected`: a missing value of any kind (a missing timestamp is
 * never 0); a prompt or an output of fewer than 1 token (a row without output is a request that failed, and no replay
 * of it can succeed: such rows are the owner's to leave out) or of more than REQUEST_TOKENS_MAX together; a wrong
 * number of columns, an empty line followed by more, bytes that are not text, a line longer than TRACE_LINE_MAX; a
 * file without rows; damaged or truncated compression.
 *
 * Rows need not be in order of arrival (a log is often written as requests end): they are sorted, rows that arrive
 * together keeping the order of the file, and `out_of_order` says how many had to move.
 */
#ifndef TANDEM_WORLD_LOAD_TRACE_READER_H
#define TANDEM_WORLD_LOAD_TRACE_READER_H

#include "world/scenario/scenario.h"
#include "host/user_error.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of one line: the block ids of the longest request with 20 digits each are 90 KiB. */
#define TRACE_LINE_MAX (256 * 1024)

/* Bytes of one file, unpacked: every row that one may have, at 512 bytes each. */
#define TRACE_BYTES_MAX (UINT64_C(16) << 30)

/* Rows of one file: a week at 55 requests a second. */
#define TRACE_ROWS_MAX (UINT32_C(1) << 25)

/* Prefix blocks of one file, 2 GiB of them. */
#define TRACE_BLOCKS_MAX (UINT64_C(1) << 28)

/* Columns of one CSV file. */
#define TRACE_COLUMNS_MAX 64

/* A trace, immutable once read. Row i, in order of arrival: */
struct trace_file {
    char path[1024]; /* as given */
    enum trace_format format;
    uint32_t count;        /* rows, at least 1 */
    uint32_t out_of_order; /* rows that stood behind a later arrival in the file */
    uint32_t left_out;     /* rows of requests that failed, in formats that mark them */
    uint32_t block_tokens; /* 0: the format names no prefix blocks, and the two block arrays are NULL */
    int64_t *arrival_ns;   /* from the first arrival: [0] is 0 */
    uint32_t *prompt_tokens;
    uint32_t *output_tokens; /* 0: not known */
    uint64_t *block_first;   /* count + 1 entries: the blocks of row i are blocks[block_first[i]] up to, not
                                including, blocks[block_first[i + 1]] */
    uint64_t *blocks;        /* chained: see trace_block_hash() */
    /* Where rows wait for the ends of others, else NULL: */
    uint32_t *waits;          /* for so many rows, all of them before it; 0: the row comes at its own time */
    int64_t *delay_ns;        /* from the last of these ends to the arrival, which is not before arrival_ns */
    uint32_t *follower_first; /* count + 1 entries: those that wait for row i are followers[follower_first[i]] up to,
                                 not including, followers[follower_first[i + 1]] */
    uint32_t *followers;
    uint64_t prompt_tokens_sum;
    uint64_t output_tokens_sum;
    uint64_t fingerprint; /* of all rows, field by field: tells apart two contents under one path */
};

/* Reads a file. NULL and `error` described when it cannot. The caller frees. */
struct trace_file *trace_file_read(const char *path, const struct trace_options *options, struct user_error *error);

/* Likewise from memory, compressed or not; `name` stands for the file in errors. */
struct trace_file *trace_file_read_memory(const void *bytes, size_t size, const char *name,
                                          const struct trace_options *options, struct user_error *error);

void trace_file_free(struct trace_file *trace); /* NULL is allowed */

/* The hash of a prefix block from that of the block before it (0 for the first) and the id the file gives it. Whatever
 * the file's own ids mean, two equal hashes then mean equal blocks after equal blocks, as the prefix index requires;
 * in the Mooncake traces the ids already have this property, so that exactly the recorded sharing remains. Never 0. */
uint64_t trace_block_hash(uint64_t before, uint64_t id);

#endif
