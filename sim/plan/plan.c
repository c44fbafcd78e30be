/* See plan.h. The order of the search: waves of candidates, best promise first, and what a wave leaves to the next. */
#include "sim/plan/plan.h"

#include "base/arith.h"
#include "sim/plan/plan_internal.h"
#include "host/memory.h"
#include "host/thread_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Candidates searched together. Fixed, so that what is left out does not depend on the machine. */
#define WAVE 4
#define WAVE_MAX 64 /* colocated candidates are one wave */

#define DEMAND_SAMPLE 1000

/* A candidate whose first seed ends this far below the best is not given the others. */
#define SEED_SLACK_PERMILLE 100

/* Jobs of one round: (candidate, seed) pairs. */
struct round {
    struct plan *plan;
    uint32_t count;
    struct {
        uint32_t item;
        uint32_t seed;
    } jobs[WAVE_MAX * PLAN_SEEDS_MAX];
};

static void add_job(struct round *round, uint32_t item, uint32_t seed)
{
    CHECK(round->count < sizeof round->jobs / sizeof *round->jobs);
    round->jobs[round->count].item = item;
    round->jobs[round->count++].seed = seed;
}

static void round_job(void *context, uint32_t job)
{
    struct round *round = context;
    plan_search_seed(round->plan, &round->plan->result->items[round->jobs[job].item], round->jobs[job].seed);
    progress_add(round->plan->options->progress, 1);
}

static bool run_round(struct round *round)
{
    struct plan *plan = round->plan;
    plan->jobs += round->count;
    progress_total(plan->options->progress, plan->jobs);
    bool whole = workers_run(plan->options->threads, round->count, round_job, round);
    for (uint32_t i = 0; i < round->count; i++)
        whole &= plan->result->items[round->jobs[i].item].seed_done[round->jobs[i].seed];
    return whole;
}

/* Whether a candidate's first seed came near enough to the best of its kind, this wave included, to deserve the
 * others. */
static bool deserves_seeds(const struct plan *plan, const struct plan_candidate *item)
{
    if (plan->options->exhaustive)
        return true;
    for (uint32_t i = 0; i < plan->result->count; i++) {
        const struct plan_candidate *other = &plan->result->items[i];
        uint64_t rate = other->searched ? other->rate_micro_per_s : other->seed_micro_per_s[0];
        if (other->candidate.mixed == item->candidate.mixed && other->seed_done[0] && rate > 0 &&
            plan_better(rate, &other->candidate, plan_with_slack(item->seed_micro_per_s[0], SEED_SLACK_PERMILLE),
                        &item->candidate))
            return false;
    }
    return item->seed_micro_per_s[0] > 0;
}

/* Searches candidates [first, first + count): the first seed of each, then the others of those that are in the running.
 * False when interrupted or failed; what is complete is concluded all the same. */
static bool search_wave(struct plan *plan, uint32_t first, uint32_t count)
{
    struct round round = {.plan = plan};
    bool serve = plan->scenario->plan.goal == PLAN_SERVE_RATE;
    for (uint32_t i = first; i < first + count; i++)
        add_job(&round, i, 0);
    bool whole = run_round(&round);
    round.count = 0;
    for (uint32_t i = first; i < first + count && whole; i++)
        if (serve || deserves_seeds(plan, &plan->result->items[i]))
            for (uint32_t seed = 1; seed < plan->scenario->plan.seeds; seed++)
                add_job(&round, i, seed);
    if (whole && round.count > 0)
        whole = run_round(&round);
    for (uint32_t i = first; i < first + count; i++) {
        struct plan_candidate *item = &plan->result->items[i];
        while (item->seeds < plan->scenario->plan.seeds && item->seed_done[item->seeds])
            item->seeds++;
        if (item->seeds == plan->scenario->plan.seeds || (item->seeds == 1 && whole))
            plan_conclude(plan, item);
    }
    return whole;
}

static int by_promise(const void *left, const void *right)
{
    const struct plan_candidate *a = left;
    const struct plan_candidate *b = right;
    if (plan_better(a->candidate.bound_micro_per_s, &a->candidate, b->candidate.bound_micro_per_s, &b->candidate))
        return -1;
    if (plan_better(b->candidate.bound_micro_per_s, &b->candidate, a->candidate.bound_micro_per_s, &a->candidate))
        return 1;
    return strcmp(a->candidate.label, b->candidate.label);
}

static int by_price(const void *left, const void *right)
{
    const struct candidate *a = &((const struct plan_candidate *)left)->candidate;
    const struct candidate *b = &((const struct plan_candidate *)right)->candidate;
    if (a->cost != b->cost)
        return a->cost < b->cost ? -1 : 1;
    return by_promise(left, right);
}

/* Whether a candidate not yet searched may still be the answer. */
static bool may_win(const struct plan *plan, const struct plan_candidate *item, const struct plan_candidate *best)
{
    const struct candidate *candidate = &item->candidate;
    if (candidate->refusal[0] != '\0')
        return false;
    if (plan->options->exhaustive)
        return true;
    if (candidate->bound_micro_per_s == 0)
        return false;
    uint64_t promise = plan_with_slack(candidate->bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE);
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE) {
        if (promise < plan->scenario->plan.rate_micro_per_s)
            return false;
        /* In order of price: once one serves the rate, only its equals in price can be better. */
        return best == NULL || candidate->cost <= best->candidate.cost;
    }
    return best == NULL || plan_better(promise, candidate, best->rate_micro_per_s, &best->candidate);
}

bool plan_preferred(const struct plan *plan, const struct plan_candidate *item, const struct plan_candidate *other)
{
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE && item->candidate.cost != other->candidate.cost)
        return item->candidate.cost < other->candidate.cost;
    return plan_better(item->rate_micro_per_s, &item->candidate, other->rate_micro_per_s, &other->candidate);
}

static const struct plan_candidate *best_so_far(const struct plan *plan, uint32_t until)
{
    const struct plan_candidate *best = NULL;
    for (uint32_t i = 0; i < until; i++) {
        const struct plan_candidate *item = &plan->result->items[i];
        if (!item->reachable)
            continue;
        if (plan->scenario->plan.goal == PLAN_SERVE_RATE &&
            item->rate_low_micro_per_s < plan->scenario->plan.rate_micro_per_s)
            continue;
        if (best == NULL || plan_preferred(plan, item, best))
            best = item;
    }
    return best;
}

/* Moves the next candidate worth a search to the end of the searched ones. */
static bool bring_next(struct plan *plan, uint32_t position, const struct plan_candidate *best)
{
    struct plan_result *result = plan->result;
    for (uint32_t i = position; i < result->count; i++) {
        if (!may_win(plan, &result->items[i], best))
            continue;
        struct plan_candidate chosen = result->items[i];
        memmove(&result->items[position + 1], &result->items[position], (i - position) * sizeof chosen);
        result->items[position] = chosen;
        return true;
    }
    return false;
}

static bool search_disaggregated(struct plan *plan)
{
    struct plan_result *result = plan->result;
    bool serve = plan->scenario->plan.goal == PLAN_SERVE_RATE;
    qsort(result->items, result->count, sizeof *result->items, serve ? by_price : by_promise);
    uint32_t position = 0;
    for (;;) {
        const struct plan_candidate *best = best_so_far(plan, position);
        struct plan_candidate held;
        if (best != NULL) {
            held = *best; /* the table moves under it */
            best = &held;
        }
        uint32_t count = 0;
        while (count < WAVE && position + count < result->count && bring_next(plan, position + count, best))
            count++;
        if (count == 0)
            return true;
        if (!search_wave(plan, position, count))
            return false;
        position += count;
    }
}

static bool search_colocated(struct plan *plan)
{
    struct plan_result *result = plan->result;
    if (!plan->scenario->plan.compare_mixed)
        return true;
    const struct plan_candidate *best = best_so_far(plan, result->count);
    uint32_t machines = best != NULL                         ? best->candidate.machines
                        : plan->scenario->plan.nodes_max > 0 ? plan->scenario->plan.nodes_max
                                                             : 1;
    uint32_t first = result->count;
    plan_enumerate_colocated(plan, machines);
    qsort(result->items + first, result->count - first, sizeof *result->items, by_promise);
    uint32_t count = 0;
    while (first + count < result->count && count < WAVE_MAX &&
           result->items[first + count].candidate.refusal[0] == '\0' &&
           (plan->options->exhaustive || result->items[first + count].candidate.bound_micro_per_s > 0))
        count++;
    return search_wave(plan, first, count);
}

/* The order of the answer: what was searched, the most for the money first. */
static int by_worth(const void *left, const void *right)
{
    const struct plan_candidate *a = left;
    const struct plan_candidate *b = right;
    if (a->searched != b->searched)
        return a->searched ? -1 : 1;
    if (a->searched && a->rate_micro_per_s != 0 && b->rate_micro_per_s != 0) {
        if (plan_better(a->rate_micro_per_s, &a->candidate, b->rate_micro_per_s, &b->candidate))
            return -1;
        if (plan_better(b->rate_micro_per_s, &b->candidate, a->rate_micro_per_s, &a->candidate))
            return 1;
    }
    if (a->rate_micro_per_s != b->rate_micro_per_s)
        return a->rate_micro_per_s > b->rate_micro_per_s ? -1 : 1;
    return strcmp(a->candidate.label, b->candidate.label);
}

static bool check_scenario(const struct scenario *scenario, char *error, size_t error_size)
{
    if (load_is_closed(&scenario->load)) {
        snprintf(
            error, error_size,
            "plan searches for the highest rate and needs an open load (poisson, uniform, burst or trace); load is "
            "a closed loop");
        return false;
    }
    if (scenario->load.arrivals == ARRIVAL_LISTED) {
        snprintf(error, error_size, "plan searches for the highest rate, and a load that is listed has but one");
        return false;
    }
    if (scenario->targets.count == 0 && scenario->targets.attainment_permille == 0) {
        snprintf(error, error_size, "plan needs targets: at least one limit on ttft, tpot, itl or e2e");
        return false;
    }
    if (scenario->plan.seeds < 2 || scenario->plan.seeds > PLAN_SEEDS_MAX || scenario->plan.requests < 100) {
        snprintf(error, error_size, "plan needs 2 to %d seeds and at least 100 requests a probe", PLAN_SEEDS_MAX);
        return false;
    }
    return true;
}

enum plan_status plan_search(const struct scenario *scenario, const struct trace_file *recorded,
                             const struct plan_options *options, struct plan_result *result, char *error,
                             size_t error_size)
{
    struct plan *plan = memory_zeroed(1, sizeof *plan);
    *result = (struct plan_result){.best = NO_CANDIDATE, .colocated = NO_CANDIDATE};
    plan->scenario = scenario;
    plan->recorded = recorded;
    plan->options = options;
    plan->priced = plan_priced(scenario);
    plan->result = result;
    plan->failure = PLAN_DONE;
    plan->error = error;
    plan->error_size = error_size;
    enum plan_status status = PLAN_REFUSED;
    if (check_scenario(scenario, error, error_size) &&
        demand_make(&plan->demand, scenario, recorded, DEMAND_SAMPLE, error, error_size)) {
        CHECK(pthread_mutex_init(&plan->lock, NULL) == 0);
        plan->sizes = deployment_sizes_traced(&scenario->load, recorded);
        if (plan_enumerate(plan)) {
            result->interrupted = !(search_disaggregated(plan) && search_colocated(plan));
            qsort(result->items, result->count, sizeof *result->items, by_worth);
            plan_frontier(plan);
            plan_pick(plan);
            result->interrupted |= !plan_doubt(plan);
            plan_explain(plan);
            status = plan->failure;
        } else {
            snprintf(error, error_size,
                     "plan needs a pool with role \"prefill\" and one with role \"decode\" whose "
                     "counts fit plan.nodes; pools share machines only where placement = \"packed\" lets them");
        }
        CHECK(pthread_mutex_destroy(&plan->lock) == 0);
    }
    demand_free(&plan->demand);
    plan_space_free(plan);
    free(plan);
    return status;
}

void plan_result_free(struct plan_result *result)
{
    for (uint32_t v = 0; v < result->variant_count; v++)
        free(result->variants[v]);
    free(result->variants);
    free(result->items);
    *result = (struct plan_result){.count = 0};
}
