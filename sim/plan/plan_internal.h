/* What the parts of the planner share: enumeration (space.c), search (search.c), verdict (verdict.c), order
 * (plan.c). */
#ifndef TANDEM_SIM_PLAN_PLAN_INTERNAL_H
#define TANDEM_SIM_PLAN_PLAN_INTERNAL_H

#include "sim/plan/plan.h"

#include <pthread.h>

#define NO_CANDIDATE UINT32_MAX

struct plan {
    const struct scenario *scenario;
    const struct trace_file *recorded;
    const struct plan_options *options;
    struct plan_result *result;
    uint32_t capacity;
    struct demand demand;
    struct deployment_sizes sizes;
    bool priced;   /* every machine has a price: candidates are compared by dollars */
    uint64_t jobs; /* searches of one seed, started or over */
    /* Device models by pool and sharding, made when first needed. */
    struct device_model *models[SCENARIO_POOLS_MAX][SCENARIO_SHARDINGS_MAX];
    char model_errors[SCENARIO_POOLS_MAX][SCENARIO_SHARDINGS_MAX][256];

    pthread_mutex_t lock;     /* of the store, the counts and the failure */
    enum plan_status failure; /* PLAN_DONE: none */
    char *error;
    size_t error_size;
};

static inline uint64_t plan_with_slack(uint64_t rate, uint32_t permille)
{
    return rate > UINT64_MAX / 2 ? rate : rate + rate / 1000 * permille;
}

/* space.c */
bool plan_enumerate(struct plan *plan);
bool plan_priced(const struct scenario *scenario);
/* Adds colocated candidates on `machines` machines. */
void plan_enumerate_colocated(struct plan *plan, uint32_t machines);
void plan_space_free(struct plan *plan);

/* True when a serves more for its cost than b; of equals, when it takes less. */
bool plan_better(uint64_t rate_a, const struct candidate *a, uint64_t rate_b, const struct candidate *b);

/* plan.c. Of two that do what is wanted: the cheaper one where a rate is to be served, else the better one. */
bool plan_preferred(const struct plan *plan, const struct plan_candidate *item, const struct plan_candidate *other);

/* search.c: one (candidate, seed). The first seed also takes the light and the overload probe; the others start from
 * what it found. */
void plan_search_seed(struct plan *plan, struct plan_candidate *item, uint32_t seed_index);
/* Runs or finds one probe. False when it failed; the plan's failure is set then. */
bool plan_probe(struct plan *plan, const struct candidate *candidate, uint64_t rate_micro_per_s, uint64_t seed,
                uint32_t requests, bool early, struct probe *probe);

/* verdict.c */
uint64_t
plan_student_t_milli(uint32_t n); /* two-sided 95 % point with n - 1 degrees of freedom, 2 <= n, in thousandths */
void plan_sum_up_rate(struct plan_candidate *item); /* mean and interval from the first item->seeds seeds */
void plan_conclude(struct plan *plan, struct plan_candidate *item);
void plan_frontier(struct plan *plan);
void plan_recommend(struct plan *plan);

#endif
