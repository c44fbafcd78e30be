/* Trace records: what a node decided, for machines. The runtime stamps each with its time and node, folds it into the
 * run's 64-bit hash field by field, and hands it to whoever listens (recorder, checkers, golden stories, database).
 *
 * Kinds are append-only: their numbers are stored. The meaning of `a` and `b` stands beside each kind. Records of the
 * first group are request boundaries: a request's time to first token is the sum of the differences between them.
 */
#ifndef TANDEM_BASE_TRACE_H
#define TANDEM_BASE_TRACE_H

#include <stdint.h>

enum trace_kind {
    /* Boundaries of a request's life, in order. request = its run-wide id. A later attempt (after a NACK, a lost peer
     * or a preemption before the first token) stamps the boundaries again; the last before the first token counts. */
    TRACE_ARRIVED = 1,          /* front: a = prompt tokens, b = output tokens */
    TRACE_RECEIVED = 2,         /* decoder (or mixed): a = attempt */
    TRACE_DISPATCHED = 3,       /* decoder: pages held, prefiller asked. a = prefiller node, b = expected count N */
    TRACE_PREFILL_STARTED = 4,  /* prefiller: first chunk launched. a = epoch, b = cached tokens */
    TRACE_PREFILL_FINISHED = 5, /* prefiller: step of the last chunk done. a = epoch */
    TRACE_READY = 6,            /* decoder: all bytes are here (or nothing was to fetch). a = epoch */
    TRACE_DECODE_STARTED = 7,   /* decoder: first decode step launched. a = group */
    TRACE_FIRST_TOKEN = 8,      /* decoder */
    TRACE_FINISHED = 9,         /* decoder: a = tokens produced */

    /* Other ends of a request. */
    TRACE_REJECTED = 10, /* a = enum reject_reason */
    TRACE_FAILED = 11,   /* a = enum fail_reason */
    TRACE_ABORTED = 12,  /* the client went away; all resources are back */

    /* Decisions. */
    TRACE_ROUTED = 20,     /* front: a = decoder node, b = prefiller node */
    TRACE_BATCH = 21,      /* a launch whose composition differs from the last one's. a = group << 32 | decode
                              sequences, b = prefill tokens */
    TRACE_CHUNK = 22,      /* prefiller: a = first token, b = tokens */
    TRACE_PREEMPTED = 23,  /* a = tokens to recompute */
    TRACE_ADMIT_WAIT = 24, /* decoder: pages short, the request waits holding nothing. a = pages wanted, b = free */
    TRACE_EVICTED = 25,    /* a = block hash, b = group */
    TRACE_PREFIX_HIT = 26, /* a = tokens found, b = group */

    /* Messenger. */
    TRACE_ARMED = 40,       /* a = immediate, b = N */
    TRACE_ACCEPTED = 41,    /* prefiller: a = epoch */
    TRACE_NACKED = 42,      /* a = epoch, b = enum nack_reason */
    TRACE_WRITE = 43,       /* prefiller: a gated write posted. a = first unit << 32 | units, b = epoch */
    TRACE_TAIL = 44,        /* prefiller: tail posted. a = epoch */
    TRACE_DRAINED = 45,     /* prefiller: all local completions in, pages freed. a = epoch */
    TRACE_CANCELLING = 46,  /* decoder: a = epoch, b = enum fail_reason */
    TRACE_QUIESCED = 47,    /* prefiller: no write of the epoch is posted or will be. a = epoch */
    TRACE_RELEASED = 48,    /* decoder: pages, tail slot and immediate of an ended transfer are free. a = epoch */
    TRACE_QUARANTINED = 49, /* decoder: pages wait for the fence of a dead peer. a = epoch, b = peer */
    TRACE_FENCED = 50,      /* decoder: a = epoch, b = peer */
    TRACE_DEADLINE = 51,    /* decoder: a = epoch */
    TRACE_PEER_LOST = 52,   /* a = peer */
    TRACE_PEER_JOINED = 53, /* a = peer, b = incarnation */
    TRACE_LATE = 54,        /* a message of an epoch that has ended was dropped. a = epoch (front: attempt), b = message
                                kind */
};

struct trace_record {
    uint16_t kind;
    uint16_t node;
    uint32_t request; /* UINT32_MAX where the record is about no request */
    uint64_t a;
    uint64_t b;
};

#define TRACE_NO_REQUEST UINT32_MAX

/* Folds one record and its time into a running hash; fields one by one, so that padding never counts. */
uint64_t trace_hash_fold(uint64_t hash, int64_t time_ns, const struct trace_record *record);

/* "dispatched", "first_token", ...; NULL for an unknown kind. */
const char *trace_kind_name(uint16_t kind);

#endif
