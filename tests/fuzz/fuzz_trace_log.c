/* Fuzz target: packed traces, as they come out of somebody's baseline.
 *
 * Whatever the bytes are, unpacking either refuses them or makes a log that packs and unpacks to itself.
 */
#include "run/trace_log.h"

#include "base/check.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_log log;
    if (!trace_log_unpack(&log, data, size))
        return 0;
    struct user_error error = {.set = false};
    struct trace_log again;
    size_t packed;
    unsigned char *bytes = trace_log_pack(&log, &packed, &error);
    CHECK(bytes != NULL && trace_log_unpack(&again, bytes, packed));
    CHECK(again.count == log.count && trace_log_hash(&again) == trace_log_hash(&log));
    free(bytes);
    trace_log_free(&again);
    trace_log_free(&log);
    return 0;
}
