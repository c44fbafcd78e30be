/* What the parts of the planner share: enumeration (space.c), search (search.c), verdict (verdict.c), order
 * (plan.c), what the model's error leaves of it (uncertainty.h). */
#ifndef TANDEM_SIM_PLAN_PLAN_INTERNAL_H
#define TANDEM_SIM_PLAN_PLAN_INTERNAL_H

#include "sim/plan/plan.h"
#include "host/user_error.h"

#include <pthread.h>

struct plan {
    const struct scenario *scenario;
    const struct trace_file *recorded;
    const struct plan_options *options;
    struct plan_result *result;
    uint32_t capacity;
    struct demand demand;
    struct deployment_sizes sizes;
    bool priced;       /* every machine has a price: candidates are compared by dollars */
    uint64_t jobs;     /* searches of one seed, started or over */
    uint32_t rows;     /* of the trace's window; 0: not a trace */
    uint32_t requests; /* of a probe */
    uint32_t seeds;
    bool windows; /* seeds are windows of a trace, and decide who plays it whole */
    /* Device models by pool and sharding, made when first needed. */
    struct device_model *models[SCENARIO_POOLS_MAX][SCENARIO_SHARDINGS_MAX];
    struct user_error model_errors[SCENARIO_POOLS_MAX][SCENARIO_SHARDINGS_MAX];

    pthread_mutex_t lock;     /* of the store, the counts and the failure */
    enum plan_status failure; /* PLAN_DONE: none */
    struct user_error *error;
};

/* A candidate whose first seed lies this far below the best of its kind under that seed is not given the others. */
#define SEED_SLACK_PERMILLE 100

static inline uint64_t plan_with_slack(uint64_t rate, uint32_t permille)
{
    return rate > UINT64_MAX / 2 ? rate : rate + rate / 1000 * permille;
}

/* space.c: every candidate, of both kinds. False: there is none. */
bool plan_enumerate(struct plan *plan);
bool plan_priced(const struct scenario *scenario);
void plan_space_free(struct plan *plan);

/* True when a serves more for its cost than b; of equals, when it takes less. */
bool plan_better(uint64_t rate_a, const struct candidate *a, uint64_t rate_b, const struct candidate *b);

/* plan.c. Of two that do what is wanted: the cheaper one where a rate is to be served, else the better one. */
bool plan_preferred(const struct plan *plan, const struct plan_candidate *item, const struct plan_candidate *other);
/* How much of the load is played, under how many seeds. */
void plan_set_load(struct plan *plan);

/* The place of the whole trace among a candidate's seeds. */
#define WHOLE_TRACE PLAN_SEEDS_MAX

/* search.c: one (candidate, seed), or the whole trace. The first seed also takes the light and the overload probe; the
 * others start from what it found. `rival`: a candidate that it must come near to under one of the seeds, or it is
 * dismissed; NULL: none. Where a rate is to be served, it must serve that; `challenged` false: it need not. */
void plan_search_seed(struct plan *plan, struct plan_candidate *item, uint32_t seed_index,
                      const struct plan_candidate *rival, bool challenged);

struct bracket {
    uint64_t low;  /* passed; 0: nothing has */
    uint64_t high; /* failed; 0: nothing has */
};

/* Where a search may go. */
struct search_range {
    struct bracket bracket; /* what is known before */
    uint64_t start;
    uint64_t floor;   /* below it the targets count as out of reach */
    uint64_t ceiling; /* what is met there is met by being finite: no queue of a probe grows for ever */
    uint64_t part;    /* of a rate, by which the bracket moves */
    uint64_t fine;    /* of a rate, by which the ends of a bracket that is narrow enough differ */
};

/* The highest rate of candidate, at its scale, that meets the targets under one seed and so many requests: *rate, 0
 * where none does; the probes there and above where wanted. False as below. */
bool plan_search_rate(struct plan *plan, const struct candidate *candidate, const struct search_range *range,
                      uint64_t seed, uint32_t requests, uint64_t *rate, struct probe *at, struct probe *above);
/* Runs or finds one probe. False when it failed; the plan's failure is set then. */
bool plan_probe(struct plan *plan, const struct candidate *candidate, uint64_t rate_micro_per_s, uint64_t seed,
                uint32_t requests, bool early, struct probe *probe);

/* verdict.c */
uint64_t
plan_student_t_milli(uint32_t n); /* two-sided 95 % point with n - 1 degrees of freedom, 2 <= n, in thousandths */
/* Mean and interval from the first item->seeds seeds; `all`: those are all that were wanted. */
void plan_sum_up_rate(struct plan_candidate *item, bool all);
void plan_conclude(struct plan *plan, struct plan_candidate *item);
void plan_frontier(struct plan *plan);
/* The best one, the runner-up and the best of the other kind; without a best one, why. */
void plan_pick(struct plan *plan);
/* Of those that are searched and do what is wanted, the preferred one of a kind; NULL: none. */
const struct plan_candidate *plan_best_of(const struct plan *plan, bool aggregated);
/* The one between which and the best one the runs do not decide; NULL: none. */
const struct plan_candidate *plan_rival(const struct plan *plan);
bool plan_serves(const struct plan *plan, uint64_t rate_micro_per_s);

/* uncertainty.c: what the error of the device model leaves open, once the best one is picked. False when interrupted or
 * failed. */
bool plan_uncertainty(struct plan *plan);

#endif
