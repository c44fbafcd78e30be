/* See plan.h. The order of the search: waves of candidates of a kind, best promise first, and what a wave leaves to the
 * next. Candidates stay where they were enumerated; what is ordered are pointers and indices. */
#include "sim/plan/plan.h"

#include "base/arith.h"
#include "sim/plan/plan_internal.h"
#include "host/memory.h"
#include "host/thread_pool.h"
#include "host/user_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Candidates searched together. Fixed, so that what is left out does not depend on the machine. */
#define WAVE 4

#define DEMAND_SAMPLE 1000

/* Jobs of one round: (candidate, seed) pairs. */
struct round {
    struct plan *plan;
    const struct plan_candidate *rival;
    bool challenged;
    uint32_t count;
    struct {
        struct plan_candidate *item;
        uint32_t seed;
    } jobs[WAVE * PLAN_SEEDS_MAX];
};

static void add_job(struct round *round, struct plan_candidate *item, uint32_t seed)
{
    CHECK(round->count < sizeof round->jobs / sizeof *round->jobs);
    round->jobs[round->count].item = item;
    round->jobs[round->count++].seed = seed;
}

static void round_job(void *context, uint32_t job)
{
    struct round *round = context;
    plan_search_seed(round->plan, round->jobs[job].item, round->jobs[job].seed, round->rival, round->challenged);
    progress_add(round->plan->options->progress, 1);
}

static bool run_round(struct round *round)
{
    struct plan *plan = round->plan;
    plan->jobs += round->count;
    progress_total(plan->options->progress, plan->jobs);
    bool whole = workers_run(plan->options->threads, round->count, round_job, round);
    for (uint32_t i = 0; i < round->count; i++) {
        const struct plan_candidate *item = round->jobs[i].item;
        whole &= round->jobs[i].seed == WHOLE_TRACE ? item->whole_done : item->seed_done[round->jobs[i].seed];
    }
    round->count = 0;
    return whole;
}

/* Whether a candidate came near enough, under the first seed, to the best of its kind under that seed, this wave
 * included, to deserve the others. */
static bool deserves_seeds(const struct plan *plan, const struct plan_candidate *item)
{
    if (plan->options->exhaustive)
        return true;
    if (item->dismissed_micro_per_s > 0 || item->seed_micro_per_s[0] == 0)
        return false;
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE)
        return plan->windows || item->seed_micro_per_s[0] >= plan->scenario->plan.rate_micro_per_s;
    uint64_t slack = plan_with_slack(item->seed_micro_per_s[0], SEED_SLACK_PERMILLE);
    for (uint32_t i = 0; i < plan->result->count; i++) {
        const struct plan_candidate *other = &plan->result->items[i];
        if (other->candidate.aggregated == item->candidate.aggregated && other->seed_done[0] &&
            other->seed_micro_per_s[0] > 0 &&
            plan_better(other->seed_micro_per_s[0], &other->candidate, slack, &item->candidate))
            return false;
    }
    return true;
}

/* Searches a few candidates: the first seed of each, the others of those that are in the running, and, where seeds are
 * windows of a trace, all of the trace. False when interrupted or failed; what is complete is concluded all the same.
 */
static bool search_wave(struct plan *plan, struct plan_candidate *const *wave, uint32_t count,
                        const struct plan_candidate *rival, bool challenged)
{
    struct round round = {.plan = plan, .rival = rival, .challenged = challenged};
    for (uint32_t i = 0; i < count; i++)
        add_job(&round, wave[i], 0);
    bool whole = run_round(&round);
    bool deserving[WAVE] = {false};
    for (uint32_t i = 0; i < count && whole; i++) {
        deserving[i] = deserves_seeds(plan, wave[i]);
        for (uint32_t seed = 1; seed < plan->seeds && deserving[i]; seed++)
            add_job(&round, wave[i], seed);
    }
    if (whole && round.count > 0)
        whole = run_round(&round);
    for (uint32_t i = 0; i < count && whole && plan->windows; i++)
        if (deserving[i])
            add_job(&round, wave[i], WHOLE_TRACE);
    if (whole && round.count > 0)
        whole = run_round(&round);
    for (uint32_t i = 0; i < count; i++) {
        struct plan_candidate *item = wave[i];
        while (item->seeds < plan->seeds && item->seed_done[item->seeds])
            item->seeds++;
        if (item->dismissed_micro_per_s == 0 && (item->seeds == plan->seeds || (item->seeds == 1 && whole)))
            plan_conclude(plan, item);
    }
    return whole;
}

/* Of two pointers to candidates, by what their bounds promise for the money. */
static int by_promise(const void *left, const void *right)
{
    const struct candidate *a = &(*(struct plan_candidate *const *)left)->candidate;
    const struct candidate *b = &(*(struct plan_candidate *const *)right)->candidate;
    uint64_t rate_a = a->aggregated ? a->likely_micro_per_s : a->bound_micro_per_s;
    uint64_t rate_b = b->aggregated ? b->likely_micro_per_s : b->bound_micro_per_s;
    if (plan_better(rate_a, a, rate_b, b))
        return -1;
    if (plan_better(rate_b, b, rate_a, a))
        return 1;
    return strcmp(a->label, b->label);
}

static int by_price(const void *left, const void *right)
{
    const struct candidate *a = &(*(struct plan_candidate *const *)left)->candidate;
    const struct candidate *b = &(*(struct plan_candidate *const *)right)->candidate;
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

/* The candidates of a kind, as pointers in the order in which they are to be searched. */
static struct plan_candidate **queue_of(const struct plan *plan, bool aggregated, uint32_t *count)
{
    struct plan_candidate **queue = memory_zeroed(plan->result->count + 1, sizeof *queue);
    *count = 0;
    for (uint32_t i = 0; i < plan->result->count; i++)
        if (plan->result->items[i].candidate.aggregated == aggregated)
            queue[(*count)++] = &plan->result->items[i];
    qsort(queue, *count, sizeof *queue, plan->scenario->plan.goal == PLAN_SERVE_RATE ? by_price : by_promise);
    return queue;
}

static bool search_kind(struct plan *plan, bool aggregated)
{
    uint32_t count;
    struct plan_candidate **queue = queue_of(plan, aggregated, &count);
    *(aggregated ? &plan->result->aggregated_searched : &plan->result->disaggregated_searched) = count > 0;
    for (bool whole = true; whole;) {
        const struct plan_candidate *best = plan_best_of(plan, aggregated);
        struct plan_candidate *wave[WAVE];
        uint32_t in_wave = 0;
        for (uint32_t i = 0; i < count && in_wave < WAVE; i++)
            if (!queue[i]->queued && may_win(plan, queue[i], best)) {
                queue[i]->queued = true;
                wave[in_wave++] = queue[i];
            }
        if (in_wave == 0)
            break;
        whole = search_wave(plan, wave, in_wave, best, !plan->options->exhaustive);
        if (!whole) {
            free(queue);
            return false;
        }
    }
    free(queue);
    return true;
}

/* Where none serves the rate: what the most promising of those do that were dismissed for it. */
static bool search_closest(struct plan *plan)
{
    if (plan->scenario->plan.goal != PLAN_SERVE_RATE || plan_best_of(plan, false) != NULL ||
        plan_best_of(plan, true) != NULL)
        return true;
    struct plan_candidate *wave[WAVE];
    uint32_t count = 0;
    for (; count < WAVE; count++) {
        struct plan_candidate *most = NULL;
        for (uint32_t i = 0; i < plan->result->count; i++) {
            struct plan_candidate *item = &plan->result->items[i];
            if (item->dismissed_micro_per_s > 0 &&
                (most == NULL || item->candidate.likely_micro_per_s > most->candidate.likely_micro_per_s))
                most = item;
        }
        if (most == NULL)
            break;
        most->dismissed_micro_per_s = 0;
        wave[count] = most;
    }
    return count == 0 || search_wave(plan, wave, count, NULL, false);
}

uint64_t plan_worth_permille(const struct plan_candidate *a, const struct plan_candidate *b)
{
    uint128 ours = (uint128)b->rate_micro_per_s * a->candidate.cost;
    uint128 its = (uint128)a->rate_micro_per_s * b->candidate.cost;
    return ours == 0 ? 1000 : (uint64_t)(its * 1000 / ours);
}

/* The order of the answer: the best one, what was searched, the most for the money first, and the rest. */
struct ranked {
    const struct plan *plan;
    const struct plan_candidate *item;
    uint32_t index;
};

static int by_rank(const void *left, const void *right)
{
    const struct ranked *x = left;
    const struct ranked *y = right;
    const struct plan_candidate *a = x->item;
    const struct plan_candidate *b = y->item;
    if (a->searched != b->searched)
        return a->searched ? -1 : 1;
    bool serves_a = a->searched && a->reachable && plan_serves(x->plan, a->rate_low_micro_per_s);
    bool serves_b = b->searched && b->reachable && plan_serves(x->plan, b->rate_low_micro_per_s);
    if (serves_a != serves_b)
        return serves_a ? -1 : 1;
    if (serves_a && plan_preferred(x->plan, a, b))
        return -1;
    if (serves_a && plan_preferred(x->plan, b, a))
        return 1;
    if (a->rate_micro_per_s != b->rate_micro_per_s)
        return a->rate_micro_per_s > b->rate_micro_per_s ? -1 : 1;
    return strcmp(a->candidate.label, b->candidate.label);
}

static void rank(const struct plan *plan)
{
    struct plan_result *result = plan->result;
    struct ranked *ranked = memory_zeroed(result->count + 1, sizeof *ranked);
    result->order = memory_zeroed(result->count + 1, sizeof *result->order);
    for (uint32_t i = 0; i < result->count; i++)
        ranked[i] = (struct ranked){.plan = plan, .item = &result->items[i], .index = i};
    qsort(ranked, result->count, sizeof *ranked, by_rank);
    uint32_t count = 0;
    if (result->best != NO_CANDIDATE)
        result->order[count++] = result->best;
    for (uint32_t i = 0; i < result->count; i++)
        if (ranked[i].index != result->best)
            result->order[count++] = ranked[i].index;
    free(ranked);
}

void plan_set_load(struct plan *plan)
{
    const struct plan_space *space = &plan->scenario->plan;
    plan->requests = space->requests;
    plan->seeds = space->seeds;
    plan->result->seeds = space->seeds;
    plan->result->requests = space->requests;
    if (plan->recorded == NULL)
        return;
    plan->rows = probe_trace_rows(&plan->scenario->load, plan->recorded).count;
    plan->windows = plan->rows > (uint64_t)space->requests * space->seeds;
    plan->requests = plan->windows ? space->requests : plan->rows;
    plan->seeds = plan->windows ? space->seeds : 1;
    plan->result->seeds = 1;
    plan->result->requests = plan->rows;
    plan->result->whole_trace = true;
}

static bool check_scenario(const struct scenario *scenario, struct user_error *error)
{
    if (load_is_closed(&scenario->load)) {
        user_error_set(
            error, NULL, 0, NULL,
            "plan searches for the highest rate and needs an open load (poisson, uniform, burst or trace); load is "
            "a closed loop");
        return false;
    }
    if (scenario->load.arrivals == ARRIVAL_LISTED) {
        user_error_set(error, NULL, 0, NULL,
                       "plan searches for the highest rate, and a load that is listed has but one");
        return false;
    }
    if (scenario->targets.count == 0 && scenario->targets.attainment_permille == 0) {
        user_error_set(error, NULL, 0, NULL, "plan needs targets: at least one limit on ttft, tpot, itl or e2e");
        return false;
    }
    if (scenario->plan.seeds < 2 || scenario->plan.seeds > PLAN_SEEDS_MAX || scenario->plan.requests < 100) {
        user_error_set(error, NULL, 0, NULL, "plan needs 2 to %d seeds and at least 100 requests a probe",
                       PLAN_SEEDS_MAX);
        return false;
    }
    return true;
}

enum plan_status plan_search(const struct scenario *scenario, const struct trace_file *recorded,
                             const struct plan_options *options, struct plan_result *result, struct user_error *error)
{
    struct plan *plan = memory_zeroed(1, sizeof *plan);
    *result = (struct plan_result){
        .best = NO_CANDIDATE, .runner_up = NO_CANDIDATE, .alternative = NO_CANDIDATE, .closest = NO_CANDIDATE};
    plan->scenario = scenario;
    plan->recorded = recorded;
    plan->options = options;
    plan->priced = plan_priced(scenario);
    plan->result = result;
    plan->failure = PLAN_DONE;
    plan->error = error;
    enum plan_status status = PLAN_REFUSED;
    if (check_scenario(scenario, error) && demand_make(&plan->demand, scenario, recorded, DEMAND_SAMPLE, error)) {
        CHECK(pthread_mutex_init(&plan->lock, NULL) == 0);
        plan->sizes = deployment_sizes_traced(&scenario->load, recorded);
        plan_set_load(plan);
        if (plan_enumerate(plan)) {
            result->interrupted = !(search_kind(plan, false) && search_kind(plan, true) && search_closest(plan));
            plan_frontier(plan);
            plan_pick(plan);
            result->interrupted |= !plan_uncertainty(plan);
            plan_pick(plan);
            rank(plan);
            status = plan->failure;
        } else {
            user_error_set(error, NULL, 0, NULL,
                           "plan needs pools with roles \"prefill\" and \"decode\", or \"mixed\", whose counts fit "
                           "plan.nodes; pools share machines only where placement = \"packed\" lets them");
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
    free(result->order);
    *result = (struct plan_result){.count = 0};
}
