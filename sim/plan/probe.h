/* One probe: a candidate at one rate under one seed, and what of it the search and the verdict need. A probe is a
 * function of (scenario, build, candidate, rate, seed); it is stored so, and never run twice.
 */
#ifndef TANDEM_SIM_PLAN_PROBE_H
#define TANDEM_SIM_PLAN_PROBE_H

#include "run/run_record.h"
#include "world/scenario/scenario.h"
#include "world/load/trace_reader.h"
#include "sim/plan/scaled_device.h"
#include "sim/sim_run.h"
#include "host/user_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum probe_percentile { PROBE_P50 = 0, PROBE_P90 = 1, PROBE_P95 = 2, PROBE_P99 = 3, PROBE_PERCENTILES = 4 };

struct probe {
    uint64_t rate_micro_per_s;
    uint64_t seed;
    bool complete; /* false: given up as soon as the targets were out of reach; figures are of what was seen */
    bool passed;   /* every target met */
    uint64_t trace_hash;
    uint64_t counted; /* requests that count: after the warm-up, completed or not */
    uint64_t completed;
    uint64_t unserved; /* of the counted: rejected or failed; they miss every target */
    uint64_t missed[SCENARIO_TARGETS_MAX];
    int64_t target_ns[SCENARIO_TARGETS_MAX]; /* each target's metric at its percentile, of completed requests */
    uint64_t met_all;
    int64_t ttft_ns[PROBE_PERCENTILES];
    int64_t tpot_ns[PROBE_PERCENTILES];
    int64_t span_ns[SPAN_COUNT]; /* means */
    uint64_t
        completed_micro_per_s; /* between a tenth and nine tenths of the completions, where nothing ramps or drains */
    uint64_t output_tokens_per_s;
    int64_t page_wait_ns; /* mean a request */
    int64_t handoff_wait_ns;
    uint32_t preempted; /* permille of the completed: preemptions of decoders */
    /* Permille. Of the busiest instance of its side; a mixed instance is on both. */
    uint32_t prefill_busy;
    uint32_t decode_busy;
    uint32_t decode_compute; /* of the decode side's busy time */
    uint32_t decode_bandwidth;
    uint32_t decode_communication;
    uint32_t decode_overhead;
    uint32_t nic_busy;     /* of the busiest NIC, or posting thread */
    uint32_t nic_op_bound; /* of that time: spent on writes rather than on bytes */
    uint32_t kv_peak;
};

struct probe_input {
    const struct scenario *scenario;
    const struct deployment_choice *choice;
    const struct run_models *models;
    const struct trace_file *recorded; /* NULL unless the load is a trace */
    uint64_t rate_micro_per_s;
    uint64_t seed;                  /* 1, 2, ...: also which window of a trace is played */
    uint32_t seeds;                 /* of the search: windows are spread over the trace */
    uint32_t requests;              /* to play; a trace has as many at most */
    bool stop_early;                /* give up when too many requests have missed a target */
    const struct step_scale *scale; /* what steps take of what the models say, which must be given; NULL: all of it */
};

/* The rows of a trace that lie in the window of its load. */
struct trace_rows {
    uint32_t first;
    uint32_t count;
};
struct trace_rows probe_trace_rows(const struct load *load, const struct trace_file *recorded);

/* The load that a probe plays: the scenario's own at the wanted rate, over the wanted number of requests, of which the
 * first tenth of the time warms up. A trace is cut to the seed's window of it; the rate is that of the whole trace, and
 * a window that is busier than the whole stays so. */
struct load probe_load(const struct probe_input *input);

/* Runs it. False with a sentence in `error` when the run itself failed (refused, no progress, a broken invariant). */
bool probe_run(const struct probe_input *input, struct probe *probe, enum run_status *status, struct user_error *error);

/* As it is stored. */
json_t *probe_json(const struct probe *probe);
bool probe_from_json(const json_t *json, struct probe *probe);

#endif
