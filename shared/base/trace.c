/* See trace.h. */
#include "base/trace.h"

#include <stddef.h>

static uint64_t fold(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9fb21c651e98df25);
    return hash ^ (hash >> 32);
}

uint64_t trace_hash_fold(uint64_t hash, int64_t time_ns, const struct trace_record *record)
{
    hash = fold(hash, (uint64_t)time_ns);
    hash = fold(hash, (uint64_t)record->kind | (uint64_t)record->node << 16 | (uint64_t)record->request << 32);
    hash = fold(hash, record->a);
    return fold(hash, record->b);
}

const char *trace_kind_name(uint16_t kind)
{
    static const char *const names[] = {
        [TRACE_ARRIVED] = "arrived",
        [TRACE_RECEIVED] = "received",
        [TRACE_DISPATCHED] = "dispatched",
        [TRACE_PREFILL_STARTED] = "prefill_started",
        [TRACE_PREFILL_FINISHED] = "prefill_finished",
        [TRACE_READY] = "ready",
        [TRACE_DECODE_STARTED] = "decode_started",
        [TRACE_FIRST_TOKEN] = "first_token",
        [TRACE_FINISHED] = "finished",
        [TRACE_REJECTED] = "rejected",
        [TRACE_FAILED] = "failed",
        [TRACE_ABORTED] = "aborted",
        [TRACE_ROUTED] = "routed",
        [TRACE_BATCH] = "batch",
        [TRACE_CHUNK] = "chunk",
        [TRACE_PREEMPTED] = "preempted",
        [TRACE_ADMIT_WAIT] = "admit_wait",
        [TRACE_EVICTED] = "evicted",
        [TRACE_PREFIX_HIT] = "prefix_hit",
        [TRACE_ARMED] = "armed",
        [TRACE_ACCEPTED] = "accepted",
        [TRACE_NACKED] = "nacked",
        [TRACE_WRITE] = "write",
        [TRACE_TAIL] = "tail",
        [TRACE_DRAINED] = "drained",
        [TRACE_CANCELLING] = "cancelling",
        [TRACE_QUIESCED] = "quiesced",
        [TRACE_RELEASED] = "released",
        [TRACE_QUARANTINED] = "quarantined",
        [TRACE_FENCED] = "fenced",
        [TRACE_DEADLINE] = "deadline",
        [TRACE_PEER_LOST] = "peer_lost",
        [TRACE_PEER_JOINED] = "peer_joined",
        [TRACE_LATE] = "late",
    };
    return kind < sizeof names / sizeof *names ? names[kind] : NULL;
}
