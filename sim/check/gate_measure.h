/* What a trace says about requests: one row each, by the recorder that every run goes through, and the numbers that are
 * watched.
 */
#ifndef TANDEM_SIM_CHECK_GATE_MEASURE_H
#define TANDEM_SIM_CHECK_GATE_MEASURE_H

#include "run/baseline.h"
#include "run/run_record.h"
#include "world/scenario/scenario.h"
#include "run/suite.h"

/* The rows of one run. */
struct measured {
    uint32_t count; /* requests that ended */
    uint32_t capacity;
    struct request_row *rows; /* by request; owned */
    const uint64_t *itl;      /* the run's */
    int64_t duration_ns;
    uint64_t completed; /* warm-up included */
    uint64_t served;    /* what goodput counts */
};

/* Targets and warm-up are the scenario's, whatever they were when the trace was made: both sides are measured alike. */
void measure(const struct baseline_run *run, const struct scenario *scenario, struct measured *measured);
void measured_free(struct measured *measured);

/* Whether a row counts in latencies: completed, after the warm-up. */
bool row_counts(const struct request_row *row);

/* A latency of a counted row, nanoseconds; negative where it has none (TPOT of one token). */
int64_t row_value_ns(const struct request_row *row, enum watch_kind kind, uint32_t span);

/* The watched number: nanoseconds, goodput in 1e-6 requests a second, or a count. False where there is none. */
bool measured_value(const struct measured *measured, const struct watch *watch, int64_t *value);

#endif
