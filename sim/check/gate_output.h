/* What `tandem check` says: for people, for a pull request, for programs, for a CI server.
 */
#ifndef TANDEM_SIM_CHECK_GATE_OUTPUT_H
#define TANDEM_SIM_CHECK_GATE_OUTPUT_H

#include "host/output.h"
#include "sim/check/gate.h"

/* What the suite was compared with. */
struct check_before {
    const char *name;                         /* the baseline's file or the other program */
    bool program;                             /* --against */
    uint32_t blessings;                       /* of the baseline so far */
    const struct baseline_blessing *blessing; /* the last one */
};

/* The answer in the output's format. JSON: {suite, before: {name, version, build, blessed_at, reason, blessings},
 * scenarios, same, better, changed, worse, broken, cases: [{name, scenario, verdict, seeds, same_seeds, distinct_seeds,
 * scenario_changed, requests_changed, unfinished, broken (null, or {seed, text}), diverging_seed, first_difference,
 * first_decision (divergence.h, or null), watched: [{metric, unit, before, after, difference, relative_percent,
 * low_percent, high_percent, verdict}], requests: [{latency, requests, faster, faster_p50_ms, slower, slower_p50_ms,
 * mean_before_ms, mean_after_ms, difference_ms}]}]}. */
void check_print(const struct output *output, const struct suite *suite, const struct check_before *before,
                 const struct check_result *result);

/* One test case per scenario: worse ones have failed, broken ones are errors. False where the file cannot be
 * written. */
bool check_junit(const char *path, const struct suite *suite, const struct check_result *result,
                 struct user_error *error);

#endif
