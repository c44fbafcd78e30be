/* The regression gate: the scenarios of a suite as this build decides them, beside what a baseline says.
 *
 * A side is all runs of the suite: made here, read from a baseline, or made by another build, which writes a baseline
 * for the purpose. Sides are compared case by case, and a case seed by seed.
 */
#ifndef TANDEM_SIM_CHECK_GATE_H
#define TANDEM_SIM_CHECK_GATE_H

#include "run/baseline.h"
#include "run/compare/divergence.h"
#include "run/suite.h"
#include "sim/check/gate_measure.h"
#include "sim/check/paired.h"
#include "sim/sim_run.h"

/* ---- Running ----------------------------------------------------------------------------------------------------- */

struct check_run {
    enum run_status status;
    char text[1024]; /* of a run that did not complete */
    struct baseline_run run;
};

struct check_case {
    const struct suite_case *item;
    struct scenario *scenario;
    struct trace_file *recorded;
    struct run_models models;
    struct check_run runs[SUITE_SEEDS_MAX]; /* by seed, from the case's first on */
};

struct check_side {
    const struct suite *suite;
    uint32_t count;
    struct check_case *cases;
};

/* Loads every scenario of the suite, with what is set for the case and then `sets`. False with an error; free in either
 * case. */
bool check_side_load(struct check_side *side, const struct suite *suite, const struct scenario_override *sets,
                     size_t set_count, struct user_error *error);

/* Runs everything. False where an interrupt left runs out. */
bool check_side_run(struct check_side *side, uint32_t threads);
void check_side_free(struct check_side *side);

/* ---- Comparing --------------------------------------------------------------------------------------------------- */

/* TTFT, TPOT, end to end, then the spans. */
#define MOVED_COUNT (3 + SPAN_COUNT)

/* One latency, request by request over all seeds: requests that are in both, completed, after the warm-up. */
struct moved {
    char name[24];
    uint64_t requests;
    uint64_t faster;
    uint64_t slower;
    int64_t faster_p50_ns; /* median of what the faster ones gained */
    int64_t slower_p50_ns;
    int64_t mean_before_ns;
    int64_t mean_after_ns;
};

struct watched {
    struct watch watch;
    struct paired paired;
};

struct case_result {
    const struct suite_case *item;
    enum verdict verdict;
    enum run_status status; /* RUN_COMPLETE, or that of the first run of this build that came to another end: */
    uint64_t status_seed;
    const char *text; /* the check_run's */
    uint32_t seeds;
    uint32_t same;           /* of them, with the same decisions at the same times */
    uint32_t distinct;       /* of them, unlike every seed before: where the seed changes nothing it is counted once */
    bool scenario_changed;   /* resolves to another one than at the blessing */
    bool requests_changed;   /* other requests arrive, so that nothing is said request by request */
    int64_t unfinished;      /* requests that completed before and do not now, less the other way round */
    uint64_t diverging_seed; /* the first with a difference: */
    struct divergence first;
    struct divergence decision; /* where `first` is about times alone: the first other decision; found or not */
    uint32_t watched_count;
    struct watched watched[SUITE_WATCH_MAX];
    struct moved moved[MOVED_COUNT];
};

struct check_result {
    uint32_t count;
    struct case_result *cases;
    uint32_t tally[4]; /* by verdict, of completed cases */
    uint32_t broken;   /* cases that did not complete */
};

/* False with an error: the baseline lacks a run, or is damaged. The result points into `side`; free it in either
 * case. */
bool check_compare(const struct check_side *side, struct baseline *baseline, struct check_result *result,
                   struct user_error *error);
void check_result_free(struct check_result *result);

/* Compares one case whose runs before are given, by seed: the heart of check_compare(). */
void check_compare_case(const struct check_case *item, const struct baseline_run *before, struct case_result *result);

/* ---- Blessing ---------------------------------------------------------------------------------------------------- */

/* Makes this side's runs the baseline at `path`, after the blessings of `old` (NULL: there is none yet). Every run must
 * be complete. */
bool check_bless(const struct check_side *side, const char *path, struct baseline *old,
                 const struct baseline_blessing *blessing, struct user_error *error);

/* Has another tandem run the suite and write its decisions to `path`; `program` is its binary. It sees the same
 * scenarios. False with an error, *exit then is its exit status, or -1 where it did not run. */
bool check_other_build(const char *program, const struct suite *suite, const char *path, uint32_t threads, int *exit,
                       struct user_error *error);

#endif
