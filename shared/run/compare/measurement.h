/* A benchmark's result, as the load generators of the field write it, in the terms of a run's report.
 *
 *     vllm bench serve      --save-result (JSON); with --save-detailed, of every request
 *     sglang.bench_serving  --output-file (JSON lines, the last result of the file); with --output-details likewise
 *     aiperf                profile_export.jsonl (a line a request), profile_export_aiperf.json
 *     genai-perf            profile_export.json (all times of all requests), profile_export_genai_perf.json
 *
 * Which it is is told from what the file holds. Where a file has every request, percentiles are computed from them as
 * those of runs are (host/stats.h); else they are what the tool printed, which interpolates. Requests that failed are
 * counted and are in no latency. Keys that are missing are unknown and those of other purposes are passed over, for
 * tools add some with every version; a key that is read and has another type or unit is an error.
 */
#ifndef TANDEM_RUN_COMPARE_MEASUREMENT_H
#define TANDEM_RUN_COMPARE_MEASUREMENT_H

#include "host/user_error.h"
#include "run/results/results.h"

#include <stdint.h>

#define COUNT_UNKNOWN UINT64_MAX

struct measurement {
    const char *tool; /* as above */
    const char *file; /* the caller's */
    uint32_t results; /* in the file; the last one was read */
    /* Filled are the counts, tokens, duration_ns and the latencies, warm-up left out. A count that is not known is
     * COUNT_UNKNOWN, a time below 0. */
    struct run_report report;
    uint64_t requests_micro_per_s; /* completed */
    uint64_t output_tokens_micro_per_s;
};

bool measurement_read(const char *path, struct measurement *measurement, struct user_error *error);

#endif
