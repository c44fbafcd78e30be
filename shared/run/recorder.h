/* From trace records to one row a request.
 *
 * A recorder listens to a simulation (or to the records of a real run) and keeps the boundaries of every request that
 * is under way; when one ends it checks the row and hands it to a sink. Memory grows with the requests in flight, not
 * with the run. Of every completed request it checks that boundaries are in order and that the spans add up to its time
 * to first token exactly.
 *
 * Rules where the records leave room:
 *  - An attempt that stamps a boundary again takes back what came after it; after the first token nothing is stamped
 *    again. Records of an earlier epoch are dropped.
 *  - The last layer's bytes may be at the decoder before the prefill step ends. Then the prefill ends, for the spans,
 *    when the bytes are there, and the exposed transfer is zero.
 *  - A boundary that a request never reaches takes the time of the one before it: its span is empty. The dispatch of a
 *    request that has nothing to prefill takes the time at which it was ready: it waited for pages, not for a
 * prefiller.
 */
#ifndef TANDEM_RUN_RECORDER_H
#define TANDEM_RUN_RECORDER_H

#include "base/trace.h"
#include "run/run_record.h"
#include "world/scenario/scenario.h"

struct recorder;

/* Called once for every request, at its end; the row dies with the return. */
struct recorder_sink {
    void (*row)(void *self, const struct request_row *row, bool met_all_targets);
    void *self;
};

struct recorder_config {
    int64_t warmup_ns;        /* arrivals before this count for no statistic */
    uint32_t warmup_requests; /* nor do the first so many */
    struct targets targets;
    uint32_t node_count;
    struct recorder_sink sink; /* row may be NULL */
};

struct recorder *recorder_make(const struct recorder_config *config);
void recorder_free(struct recorder *recorder);

void recorder_trace(struct recorder *recorder, int64_t now_ns, const struct trace_record *record);

uint32_t recorder_live(const struct recorder *recorder);

/* Counts so far; hash, event count, draw and times are the simulation's and left alone. Tokens are of the requests that
 * completed after the warm-up. */
void recorder_summary(const struct recorder *recorder, struct run_summary *summary);

/* Per node, of all requests: what the records say that the runtime does not know. */
struct recorder_node {
    uint64_t requests;        /* ended ones it prefilled or decoded */
    uint64_t page_wait_ns;    /* request-nanoseconds waited for pages */
    uint64_t handoff_wait_ns; /* ... for a tail slot while pages were free */
    uint64_t preemptions;
};
const struct recorder_node *recorder_node(const struct recorder *recorder, uint32_t node);

/* Time to first token, time per output token after it (0 of a single token) and end to end, of a completed row. */
int64_t row_ttft_ns(const struct request_row *row);
int64_t row_tpot_ns(const struct request_row *row);
int64_t row_e2e_ns(const struct request_row *row);

/* Whether a completed row is within every per-request limit (ITL, which is about tokens, is not one). */
bool row_meets(const struct request_row *row, const struct targets *targets);

#endif
