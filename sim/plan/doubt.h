/* What the parts of plan_doubt() share: contenders and the ends of the error (doubt.c), the time of a step at which two
 * serve as much (crossing.c), the step to measure and the words (measure.c). */
#ifndef TANDEM_SIM_PLAN_DOUBT_H
#define TANDEM_SIM_PLAN_DOUBT_H

#include "sim/plan/plan_internal.h"

/* Two candidates are compared on the same requests: those of the first seed. */
#define FIRST_SEED 1

/* Rates of two searches may differ by the width of their brackets: less is no lead. */
#define LEAD_PERMILLE 31

#define CONTENDERS_MAX 7
#define DOUBT_JOBS_MAX (CONTENDERS_MAX * (PLAN_ENDS + 1))

/* The place of a search that is at none of the ends: where the model is right. */
#define END_NONE PLAN_ENDS

struct doubt {
    struct plan *plan;
    uint32_t count;
    uint32_t contenders[CONTENDERS_MAX]; /* the best one first */
    uint32_t job_count;
    struct {
        uint32_t item;
        uint32_t end;
        bool done;
    } jobs[DOUBT_JOBS_MAX];
};

struct plan_candidate *doubt_item(const struct doubt *doubt, uint32_t contender);

/* Which steps an end is about, and whether only the rival's are another's there, by what two shardings differ. */
enum step_kind end_kind(uint32_t end);
bool end_is_apart(uint32_t end);
uint32_t end_permille(const struct step_error *error, uint32_t end);
struct step_scale doubt_scale(enum step_kind kind, uint32_t permille);

/* The pool whose steps of a kind a candidate takes, its sharding, and the validated error of those steps (false: not
 * known). */
uint32_t doubt_pool(const struct candidate *candidate, enum step_kind kind);
const struct parallelism *doubt_sharding(const struct candidate *candidate, enum step_kind kind);
bool doubt_error(const struct plan *plan, const struct candidate *candidate, enum step_kind kind,
                 struct step_error *error);

/* Whether two candidates' steps of a kind are different ones, whose errors therefore differ. Colocated serving is
 * compared in the errors that are shared alone. */
bool doubt_steps_differ(const struct candidate *a, const struct candidate *b, enum step_kind kind);

/* The highest rate of a candidate whose steps are scaled, searched for from `start` to one part in `fine`. False when
 * interrupted or failed. */
bool doubt_rate(struct plan *plan, const struct plan_candidate *item, struct step_scale scale, uint32_t requests,
                uint64_t start, uint64_t fine, uint64_t *rate);

/* By how much a contender serves more for its cost than the best one at an end, in permille; 1000: the same. */
uint64_t doubt_lead(const struct doubt *doubt, const struct plan_candidate *item, uint32_t end);

/* crossing.c: what the steps of the end's kind take, in permille of what the model says, where the best contender gives
 * way to another: to *rival, or to one that overtakes both there, which *rival then names. 0: nowhere, or the runs do
 * not show it. *whole is cleared when interrupted or failed. */
uint32_t doubt_crossing(struct doubt *doubt, const struct plan_candidate **rival, uint32_t end, bool *whole);

/* measure.c: the step at whose time the best contender and the rival part. */
void doubt_measure(const struct doubt *doubt, const struct plan_candidate *rival, uint32_t end, uint32_t permille,
                   struct plan_measure *measure);

#endif
