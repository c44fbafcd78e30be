/* What the parts of plan_uncertainty() share: contenders and the limits of the error (uncertainty.c), the time of a
 * step at which two serve as much (break_even.c), the step to measure (next_measurement.c). */
#ifndef TANDEM_SIM_PLAN_UNCERTAINTY_H
#define TANDEM_SIM_PLAN_UNCERTAINTY_H

#include "sim/plan/plan_internal.h"

/* Two candidates are compared on the same requests: those of the first seed. */
#define FIRST_SEED 1

/* Rates of two searches may differ by the width of their brackets: less is no lead. */
#define LEAD_PERMILLE 31

/* Of a probe's requests, what is played at the limits: comparisons need fewer than rates. */
#define LIMIT_REQUESTS_PART 4

#define CONTENDERS_MAX 7
#define UNCERTAINTY_JOBS_MAX (CONTENDERS_MAX * (ERROR_LIMITS + 1))

/* The place of a search that is at none of the limits: where the model is right. */
#define LIMIT_NONE ERROR_LIMITS

struct uncertainty {
    struct plan *plan;
    uint32_t count;
    uint32_t contenders[CONTENDERS_MAX]; /* the best one first */
    uint32_t job_count;
    struct {
        uint32_t item;
        uint32_t limit;
        bool done;
    } jobs[UNCERTAINTY_JOBS_MAX];
};

struct plan_candidate *uncertainty_item(const struct uncertainty *uncertainty, uint32_t contender);

/* Which steps a limit is about, and whether only the rival's are another's there, by what two shardings differ. */
enum step_kind limit_kind(uint32_t limit);
bool limit_is_relative(uint32_t limit);
uint32_t limit_permille(const struct step_error *error, uint32_t limit);
struct step_scale uncertainty_scale(enum step_kind kind, uint32_t permille);

/* The pool whose steps of a kind a candidate takes, its sharding, and the validated error of those steps (false: not
 * known). */
uint32_t uncertainty_pool(const struct candidate *candidate, enum step_kind kind);
const struct parallelism *uncertainty_sharding(const struct candidate *candidate, enum step_kind kind);
bool uncertainty_error(const struct plan *plan, const struct candidate *candidate, enum step_kind kind,
                       struct step_error *error);

/* Whether two candidates' steps of a kind are different ones, whose errors therefore differ. Aggregated and
 * disaggregated serving are compared in the errors that are shared alone. */
bool uncertainty_steps_differ(const struct candidate *a, const struct candidate *b, enum step_kind kind);

/* The highest rate of a candidate whose steps are scaled, searched for from `start` to one part in `fine`. False when
 * interrupted or failed. */
bool uncertainty_rate(struct plan *plan, const struct plan_candidate *item, struct step_scale scale, uint32_t requests,
                      uint64_t start, uint64_t fine, uint64_t *rate);

/* By how much a contender serves more for its cost than the best one at a limit, in permille; 1000: the same. */
uint64_t uncertainty_lead(const struct uncertainty *uncertainty, const struct plan_candidate *item, uint32_t limit);

/* break_even.c: what the steps of the limit's kind take, in permille of what the model says, where the best contender
 * gives way to another: to *rival, or to one that overtakes both there, which *rival then names. 0: nowhere, or the
 * runs do not show it. *whole is cleared when interrupted or failed. */
uint32_t uncertainty_break_even(struct uncertainty *uncertainty, const struct plan_candidate **rival, uint32_t limit,
                                bool *whole);

/* next_measurement.c: the step at whose time the best contender and the rival part. */
void uncertainty_measure(const struct uncertainty *uncertainty, const struct plan_candidate *rival, uint32_t limit,
                         uint32_t permille, struct plan_measure *measure);

#endif
