/* Two stored runs, or a run and a measurement, side by side: counts, percentiles and spans with their differences, and
 * the first decision in which they part.
 */
#ifndef TANDEM_RUN_COMPARE_COMPARE_H
#define TANDEM_RUN_COMPARE_COMPARE_H

#include "run/compare/divergence.h"
#include "host/output.h"
#include "run/results/results.h"

/* How the traces of two runs are had again is the runtime's affair: the database stores their hashes. NULL in place of
 * the function: unknown. False with an error when it was tried and failed. */
typedef bool divergence_function(struct results *store, int64_t run_a, int64_t run_b, struct divergence *divergence,
                                 struct user_error *error);

/* Writes the comparison. Runs with equal trace hashes made the same decisions at the same times, and `first_divergence`
 * is not asked. JSON: {a, b (run objects), same_decisions, divergence (divergence.h), divergence_unknown (null, or why
 * there is none), decisions (null where the runs do not have the same requests, or {requests, alike, first_route,
 * first_batch}, each of the last null or {time_a_ns, text}), metrics: [{metric, a, b, difference, relative_percent}],
 * pairs: [{metric, pairs, a_p50_ms, b_p50_ms, error_p50_ms, error_p50_percent, error_p90_percent, bias_percent}],
 * steps: [{role, prompt_tokens, sequences, context, a_launches, b_launches, a_p50_ms, b_p50_ms, error_percent}],
 * transfers: [{bytes, a_transfers, b_transfers, a_p50_ms, b_p50_ms, error_percent}]}; see compare_data.h. CSV has the
 * tables one after the other, an empty line between them. */
bool compare_runs(struct results *store, int64_t run_a, int64_t run_b, divergence_function *first_divergence,
                  const struct output *output, struct user_error *error);

/* Writes a run beside a benchmark's result (measurement.h): differences are the run's from what was measured. JSON:
 * {measurement: {file, tool, results}, run, metrics: [{metric, measured, predicted, difference, relative_percent}]}. */
bool compare_measurement(struct results *store, int64_t run, const char *path, const struct output *output,
                         struct user_error *error);

#endif
