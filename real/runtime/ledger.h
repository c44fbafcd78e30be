/* What one instance did, counted where it happens: steps, tokens, gaps between tokens, writes. */
#ifndef TANDEM_REAL_RUNTIME_LEDGER_H
#define TANDEM_REAL_RUNTIME_LEDGER_H

#include "run/run_record.h"
#include "real/executor/stepper.h"

struct ledger {
    int64_t busy_ns;
    uint64_t launches;
    uint64_t steps;
    uint64_t prefill_tokens;
    uint64_t decode_tokens;
    uint64_t pages_held_peak;
    uint64_t events; /* given to the node */
    int64_t node_ns; /* of the loop's thread inside the node, CPU time */
    uint64_t writes; /* tickets that are over */
    uint64_t writes_failed;
    uint64_t write_bytes;
    uint64_t pieces_verified; /* by digest, on arrival */
    uint64_t pieces_differ;
    uint64_t staged_bytes; /* copied between devices and pinned memory */
    uint64_t staged_ns;    /* and what the copies took */
    uint64_t itl[ITL_BUCKETS];
};

/* The batch of a launch, in sums. */
struct launch_sums {
    uint64_t tokens;  /* decode sequences over all groups: one token each and step */
    uint64_t joins;   /* of these, sequences whose first decode step on this node is the launch's first step, */
    uint64_t follows; /* and of these, those that have had a token before */
    uint64_t prefill_tokens;
    uint64_t decode_context;
};

struct launch_sums launch_sums(const struct step_launch *launch);

/* When a microbatch last produced tokens, on the run's clock; -1: never. */
struct step_times {
    int64_t decode_end_ns;
    int64_t step_end_ns;
};

/* Books a launch that is over, but for the time that the node was busy, which launches of several microbatches share.
 * Times in the outcome are CLOCK_MONOTONIC; `origin_ns` is the run's start on that clock. Gaps count from `itl_from_ns`
 * of the run on. A sequence that joins has no token before it on this node, unless the step that ended its prefill gave
 * it one (`produces_first_token`). */
void ledger_steps(struct ledger *ledger, struct step_times *times, const struct launch_sums *sums,
                  const struct steps_outcome *outcome, int64_t origin_ns, int64_t itl_from_ns,
                  bool produces_first_token);

#endif
