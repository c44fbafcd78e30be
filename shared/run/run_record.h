/* What a run leaves behind, in the plain form that recorders produce and the database stores: one row a request, one a
 * run, integers throughout.
 */
#ifndef TANDEM_RUN_RUN_RECORD_H
#define TANDEM_RUN_RUN_RECORD_H

#include "node.h"

#include <stdbool.h>
#include <stdint.h>

/* Boundaries of a request's life. Spans are the differences between neighbours, and the sum of the first seven spans is
 * its TTFT exactly. */
enum boundary {
    BOUNDARY_ARRIVED = 0,
    BOUNDARY_RECEIVED = 1,         /* route */
    BOUNDARY_DISPATCHED = 2,       /* admission wait */
    BOUNDARY_PREFILL_STARTED = 3,  /* prefill queue */
    BOUNDARY_PREFILL_FINISHED = 4, /* prefill */
    BOUNDARY_READY = 5,            /* exposed transfer */
    BOUNDARY_DECODE_STARTED = 6,   /* decode queue */
    BOUNDARY_FIRST_TOKEN = 7,      /* first decode step */
    BOUNDARY_FINISHED = 8,         /* decode */
    BOUNDARY_COUNT = 9,
};

#define SPAN_COUNT (BOUNDARY_COUNT - 1)
extern const char *const span_names[SPAN_COUNT]; /* "route", "admission_wait", "prefill_queue", "prefill",
                                                     "exposed_transfer", "decode_queue", "first_decode", "decode" */

enum outcome { OUTCOME_COMPLETED = 1, OUTCOME_REJECTED = 2, OUTCOME_FAILED = 3, OUTCOME_ABORTED = 4 };

/* Why an endpoint did not serve a request: reasons of rejected and failed ones beside those of nodes. Stored:
 * append-only. */
enum endpoint_reason {
    ENDPOINT_OVERLOAD = 64,
    ENDPOINT_REFUSED = 65,
    ENDPOINT_ERROR = 66,
    ENDPOINT_CUT = 67,
    ENDPOINT_MALFORMED = 68,
    ENDPOINT_UNREACHED = 69,
    ENDPOINT_STALLED = 70,
    ENDPOINT_EMPTY = 71,
};

/* In a few words, for people and for JSON keys: "too_large_decode", "deadline". Of an unknown number: "unknown". */
const char *outcome_reason_key(enum outcome outcome, uint8_t reason);

/* What it means, half a sentence: "its KV can never fit a decoder's pool". */
const char *outcome_reason_text(enum outcome outcome, uint8_t reason);

struct request_row {
    uint32_t request;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t cached_tokens; /* found in the prefiller's prefix index */
    uint32_t conversation;  /* whose turn it is, from 1 on; 0: it is none */
    uint16_t decoder;
    uint16_t prefiller;
    uint8_t outcome; /* enum outcome */
    uint8_t reason;  /* enum reject_reason or enum fail_reason */
    uint8_t attempts;
    uint8_t preemptions;
    bool warmup;                         /* arrived before the warm-up ended: in no statistic */
    int64_t boundary_ns[BOUNDARY_COUNT]; /* from the start of the run; of a request that did not complete, the
                                            boundaries it reached, then its end in BOUNDARY_FINISHED */
};

/* One post: a request has one a chunk, and one of its tail. */
struct transfer_row {
    uint32_t request;
    uint32_t epoch;
    uint64_t ticket; /* the sender's name of the post */
    uint16_t source;
    uint16_t destination;
    uint32_t layers;
    uint64_t bytes;
    uint64_t writes;
    int64_t posted_ns;
    int64_t landed_ns;
    int64_t confirmed_ns;
};

struct step_row {
    uint16_t node;
    uint32_t steps;            /* a repetition is one row */
    uint32_t decode_sequences; /* over all groups */
    uint64_t prefill_tokens;
    uint64_t decode_context;
    int64_t start_ns;
    int64_t end_ns;
};

/* What a real run measured of a node beside what it serves. */
struct sample_row {
    uint16_t node;
    char counter[48];
    int64_t at_ns;
    int64_t value;
};

struct instance_summary {
    char name[48]; /* "prefill-0" */
    uint16_t node;
    enum node_role role;
    uint32_t ranks;
    uint64_t requests;
    int64_t busy_ns;          /* a step in progress */
    int64_t compute_bound_ns; /* of busy_ns, by what bounded the step */
    int64_t bandwidth_bound_ns;
    int64_t communication_bound_ns;
    int64_t overhead_bound_ns;
    uint64_t steps;
    uint64_t prefill_tokens;
    uint64_t decode_tokens;
    uint64_t pages_total;
    uint64_t pages_held_peak;
    uint64_t page_wait_ns;    /* request-nanoseconds spent waiting for pages */
    uint64_t handoff_wait_ns; /* ... for a tail slot */
    uint64_t preemptions;
    int64_t nic_transmit_busy_ns;
    int64_t nic_receive_busy_ns;
    int64_t nic_op_bound_ns;
    int64_t posting_busy_ns; /* of the thread that posts the writes of all ranks; not stored */
    uint64_t nic_bytes;
};

/* Gap between a token and the one before it, weighed by tokens: log-linear buckets, 128 to an octave (0.8 % wide). */
#define ITL_BUCKETS (128 * 40)
uint32_t itl_bucket(int64_t gap_ns);
int64_t itl_bucket_upper_ns(uint32_t bucket);

struct run_summary {
    uint64_t seed;
    uint64_t trace_hash;
    uint64_t event_count;
    uint64_t final_draw; /* of the fingerprint stream */
    uint64_t arrived;
    uint64_t completed;
    uint64_t rejected;
    uint64_t failed;
    uint64_t aborted;
    uint64_t met_all_targets; /* completed, after the warm-up, within every limit */
    uint64_t counted;         /* completed, rejected or failed after the warm-up */
    int64_t start_ns;         /* end of the warm-up */
    int64_t end_ns;           /* last event */
    uint64_t output_tokens;
    uint64_t prompt_tokens;
};

#endif
