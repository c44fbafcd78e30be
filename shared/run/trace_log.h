/* All trace records of one run: in memory, and packed into a few bytes a record.
 *
 * Packed, the records stand column by column (times, kinds, nodes, requests, operands), each as the difference to the
 * record that it most likely resembles, and the whole is compressed. What a compressor of another version makes of the
 * same records may differ; unpacked they are the same, and their trace hash says so.
 */
#ifndef TANDEM_RUN_TRACE_LOG_H
#define TANDEM_RUN_TRACE_LOG_H

#include "base/trace.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stamped_record {
    int64_t at_ns;
    struct trace_record record;
};

struct trace_log {
    struct stamped_record *items;
    uint64_t count;
    uint64_t capacity;
};

/* Of one run: what memory holds is 40 bytes a record. */
#define TRACE_LOG_RECORDS_MAX (UINT64_C(1) << 28)

/* Appends; the shape of run_options.trace with the log as `self`. */
void trace_log_add(struct trace_log *log, int64_t now_ns, const struct trace_record *record);
void trace_log_free(struct trace_log *log);

uint64_t trace_log_hash(const struct trace_log *log);

/* Returns `*size` bytes, the caller's; NULL with an error where the compressor fails. */
unsigned char *trace_log_pack(const struct trace_log *log, size_t *size, struct user_error *error);

/* Fills an empty log. False where the bytes are not a packed log; the log is then empty. */
bool trace_log_unpack(struct trace_log *log, const unsigned char *bytes, size_t size);

#endif
