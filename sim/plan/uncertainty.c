/* What the error of the device model leaves of a plan's answer.
 *
 * Those that may be the answer somewhere within the error are searched again at its limits: with the steps of prefill,
 * and those of decoding, as fast and as slow as validation leaves open. Candidates share that error where they run the
 * same steps; where a rival's sharding is another, it is also given steps that are faster than the best one's by what
 * two shardings differ. Who comes out ahead nowhere is beaten for certain. Where another one does, the time of the step
 * at which both serve as much is found (break_even.c): measured on one instance (measure.c), it decides.
 *
 * All of it under the first seed, so that two candidates are compared on the same requests. Of those that the runs do
 * not tell relative, and that cost the same, the one that does best over all limits together is recommended.
 */
#include "sim/plan/uncertainty.h"

#include "base/arith.h"
#include "world/scenario/scenario.h"
#include "host/thread_pool.h"

#include <string.h>

/* Who may win is known before by bounds alone; they may be off by so much, compared with the best one's. */
#define PROMISE_PERMILLE 80

#define PROMISING_MAX 2 /* at one limit */

/* Of a probe's requests, what is played at the limits: comparisons need fewer than rates. */
#define LIMIT_REQUESTS_MIN 500
#define LIMIT_RATE_FINE 40 /* of a rate, the width of its bracket */

struct plan_candidate *uncertainty_item(const struct uncertainty *uncertainty, uint32_t contender)
{
    return &uncertainty->plan->result->items[uncertainty->contenders[contender]];
}

/* ---- Places in the error ---------------------------------------------------------------------------------------- */

enum step_kind limit_kind(uint32_t limit)
{
    return limit == LIMIT_DECODE_FAST || limit == LIMIT_DECODE_SLOW || limit == LIMIT_DECODE_RELATIVE ? STEP_DECODE
                                                                                                      : STEP_PREFILL;
}

bool limit_is_relative(uint32_t limit)
{
    return limit == LIMIT_PREFILL_RELATIVE || limit == LIMIT_DECODE_RELATIVE;
}

uint32_t uncertainty_pool(const struct candidate *candidate, enum step_kind kind)
{
    enum node_role other = kind == STEP_PREFILL ? ROLE_DECODE : ROLE_PREFILL;
    for (uint32_t p = 0; p < candidate->scenario->pool_count; p++)
        if (candidate->choice.pool[p].count > 0 && candidate->scenario->pools[p].role != other)
            return p;
    CHECK(false && "a candidate has a pool for every kind of step");
    return 0;
}

const struct parallelism *uncertainty_sharding(const struct candidate *candidate, enum step_kind kind)
{
    uint32_t pool = uncertainty_pool(candidate, kind);
    return &candidate->scenario->pools[pool].shardings[candidate->choice.pool[pool].sharding];
}

bool uncertainty_error(const struct plan *plan, const struct candidate *candidate, enum step_kind kind,
                       struct step_error *error)
{
    const struct pool *pool = &candidate->scenario->pools[uncertainty_pool(candidate, kind)];
    return model_error_find(plan->options->errors, kind, pool->engine.kernels, pool->hardware.gpu,
                            &candidate->scenario->model, error);
}

struct step_scale uncertainty_scale(enum step_kind kind, uint32_t permille)
{
    struct step_scale scale = STEP_SCALE_NONE;
    *(kind == STEP_PREFILL ? &scale.prefill_permille : &scale.decode_permille) = permille;
    return scale;
}

uint32_t limit_permille(const struct step_error *error, uint32_t limit)
{
    switch (limit) {
    case LIMIT_PREFILL_FAST:
    case LIMIT_DECODE_FAST:
        return error->fast_permille;
    case LIMIT_PREFILL_SLOW:
    case LIMIT_DECODE_SLOW:
        return error->slow_permille;
    default:
        return error->relative_permille;
    }
}

static struct step_scale scale_at(const struct plan *plan, const struct candidate *candidate, uint32_t limit)
{
    struct step_error error;
    if (limit == LIMIT_NONE || !uncertainty_error(plan, candidate, limit_kind(limit), &error))
        return STEP_SCALE_NONE;
    return uncertainty_scale(limit_kind(limit), limit_permille(&error, limit));
}

bool uncertainty_steps_differ(const struct candidate *a, const struct candidate *b, enum step_kind kind)
{
    const struct pool *p = &a->scenario->pools[uncertainty_pool(a, kind)];
    const struct pool *q = &b->scenario->pools[uncertainty_pool(b, kind)];
    return a->aggregated == b->aggregated &&
           (!parallelism_same(uncertainty_sharding(a, kind), uncertainty_sharding(b, kind)) ||
            strcmp(p->hardware.gpu, q->hardware.gpu) != 0);
}

/* ---- Who may win ------------------------------------------------------------------------------------------------- */

static uint64_t bound_at(const struct plan *plan, const struct candidate *candidate, uint32_t limit)
{
    struct candidate scaled = *candidate;
    scaled.scale = scale_at(plan, candidate, limit);
    candidate_assess(&scaled, &plan->demand, &plan->sizes);
    return scaled.bound_micro_per_s;
}

/* What a candidate may come to at a limit: its bound there, of which it reaches as much as where the model is right;
 * not searched, as much as the best one, and no more than where it was dismissed. */
static uint64_t promise_at(const struct plan *plan, const struct plan_candidate *item, uint32_t limit)
{
    const struct plan_candidate *model = &plan->result->items[plan->result->best];
    if (item->searched && item->reachable)
        model = item;
    uint64_t bound = bound_at(plan, &item->candidate, limit);
    uint64_t of_bound = max_u64(model->candidate.bound_micro_per_s, model->rate_micro_per_s);
    uint64_t rate = model->rate_micro_per_s;
    if (item->dismissed_micro_per_s > 0 && item->dismissed_micro_per_s < item->candidate.bound_micro_per_s) {
        of_bound = item->candidate.bound_micro_per_s;
        rate = min_u64(item->dismissed_micro_per_s, mul_div_floor_u64(of_bound, model->rate_micro_per_s,
                                                                      max_u64(1, model->candidate.bound_micro_per_s)));
    }
    return mul_div_floor_u64(bound, rate, max_u64(1, of_bound));
}

/* Whether a at rate_a is the better answer than b at rate_b. */
static bool ahead(const struct plan *plan, const struct candidate *a, uint64_t rate_a, const struct candidate *b,
                  uint64_t rate_b)
{
    if (plan->scenario->plan.goal != PLAN_SERVE_RATE)
        return plan_better(rate_a, a, rate_b, b);
    if (!plan_serves(plan, rate_a))
        return false;
    return !plan_serves(plan, rate_b) || a->cost < b->cost;
}

static void add_contender(struct uncertainty *uncertainty, uint32_t item)
{
    for (uint32_t c = 0; c < uncertainty->count; c++)
        if (uncertainty->contenders[c] == item)
            return;
    if (uncertainty->count < CONTENDERS_MAX)
        uncertainty->contenders[uncertainty->count++] = item;
}

/* The most promising ones at one limit, of those that may be ahead of the best one there. */
static void find_promising(struct uncertainty *uncertainty, uint32_t limit)
{
    struct plan *plan = uncertainty->plan;
    struct plan_result *result = plan->result;
    const struct plan_candidate *best = &result->items[result->best];
    uint64_t best_rate = limit_is_relative(limit) ? best->rate_micro_per_s : promise_at(plan, best, limit);
    uint32_t found[PROMISING_MAX];
    uint64_t promises[PROMISING_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct candidate *candidate = &result->items[i].candidate;
        if (i == result->best || candidate->aggregated != best->candidate.aggregated || candidate->refusal[0] != '\0' ||
            (limit_is_relative(limit) && !uncertainty_steps_differ(candidate, &best->candidate, limit_kind(limit))))
            continue;
        uint64_t promise = plan_with_slack(promise_at(plan, &result->items[i], limit), PROMISE_PERMILLE);
        if (!ahead(plan, candidate, promise, &best->candidate, best_rate))
            continue;
        uint32_t at = count < PROMISING_MAX ? count++ : PROMISING_MAX;
        for (; at > 0 && ahead(plan, candidate, promise, &result->items[found[at - 1]].candidate, promises[at - 1]);
             at--)
            if (at < PROMISING_MAX) {
                found[at] = found[at - 1];
                promises[at] = promises[at - 1];
            }
        if (at < PROMISING_MAX) {
            found[at] = i;
            promises[at] = promise;
        }
    }
    for (uint32_t k = 0; k < count; k++)
        add_contender(uncertainty, found[k]);
}

static void find_contenders(struct uncertainty *uncertainty)
{
    struct plan *plan = uncertainty->plan;
    struct plan_result *result = plan->result;
    const struct plan_candidate *rival = plan_rival(plan);
    add_contender(uncertainty, result->best);
    if (result->alternative != NO_CANDIDATE)
        add_contender(uncertainty, result->alternative);
    if (rival != NULL)
        add_contender(uncertainty, (uint32_t)(rival - result->items));
    for (uint32_t limit = 0; limit < ERROR_LIMITS; limit++)
        find_promising(uncertainty, limit);
}

/* ---- Rates at the limits -------------------------------------------------------------------------------------------
 */

static uint32_t limit_requests(const struct plan *plan)
{
    uint32_t all = plan->requests;
    return min_u32(all, max_u32(LIMIT_REQUESTS_MIN, all / LIMIT_REQUESTS_PART));
}

bool uncertainty_rate(struct plan *plan, const struct plan_candidate *item, struct step_scale scale, uint32_t requests,
                      uint64_t start, uint64_t fine, uint64_t *rate)
{
    struct candidate scaled = item->candidate;
    scaled.scale = scale;
    struct candidate bounded = scaled;
    candidate_assess(&bounded, &plan->demand, &plan->sizes);
    start = max_u64(1000, start);
    struct search_range range = {.start = start, .floor = max_u64(1, start / 64), .part = fine / 4, .fine = fine};
    range.ceiling = max_u64(start, plan_with_slack(bounded.bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE));
    return plan_search_rate(plan, &scaled, &range, FIRST_SEED, requests, rate, NULL, NULL);
}

static void limit_job(void *context, uint32_t job)
{
    struct uncertainty *uncertainty = context;
    struct plan *plan = uncertainty->plan;
    struct plan_candidate *item = &plan->result->items[uncertainty->jobs[job].item];
    uint32_t limit = uncertainty->jobs[job].limit;
    item->limit_known[limit] =
        uncertainty_rate(plan, item, scale_at(plan, &item->candidate, limit), limit_requests(plan),
                         promise_at(plan, item, limit), LIMIT_RATE_FINE, &item->limit_micro_per_s[limit]);
    uncertainty->jobs[job].done = item->limit_known[limit];
    progress_add(plan->options->progress, 1);
}

static void add_job(struct uncertainty *uncertainty, uint32_t contender, uint32_t limit)
{
    CHECK(uncertainty->job_count < UNCERTAINTY_JOBS_MAX);
    uncertainty->jobs[uncertainty->job_count].item = uncertainty->contenders[contender];
    uncertainty->jobs[uncertainty->job_count++].limit = limit;
}

static void add_jobs(struct uncertainty *uncertainty)
{
    const struct plan_candidate *best = uncertainty_item(uncertainty, 0);
    uncertainty->job_count = 0;
    for (uint32_t c = 0; c < uncertainty->count; c++) {
        const struct plan_candidate *item = uncertainty_item(uncertainty, c);
        for (uint32_t limit = 0; limit <= ERROR_LIMITS; limit++) {
            bool wanted = !limit_is_relative(limit) ||
                          uncertainty_steps_differ(&item->candidate, &best->candidate, limit_kind(limit));
            if (wanted && !item->limit_known[limit])
                add_job(uncertainty, c, limit);
        }
    }
}

/* What the limits make of a candidate's mean over seeds: it moves as the first seed's rate does. */
static void sum_up_limits(struct plan_candidate *item)
{
    uint64_t same = item->limit_micro_per_s[LIMIT_NONE];
    uint64_t mean = item->searched ? item->rate_micro_per_s : same;
    uint64_t low = same;
    uint64_t high = same;
    for (uint32_t limit = 0; limit <= LIMIT_DECODE_SLOW; limit++) {
        low = min_u64(low, item->limit_micro_per_s[limit]);
        high = max_u64(high, item->limit_micro_per_s[limit]);
    }
    item->uncertainty_known = true;
    item->rate_model_low_micro_per_s = mul_div_floor_u64(low, mean, max_u64(1, same));
    item->rate_model_high_micro_per_s = mul_div_floor_u64(high, mean, max_u64(1, same));
}

static bool search_limits(struct uncertainty *uncertainty)
{
    struct plan *plan = uncertainty->plan;
    add_jobs(uncertainty);
    plan->jobs += uncertainty->job_count;
    progress_total(plan->options->progress, plan->jobs);
    bool whole = workers_run(plan->options->threads, uncertainty->job_count, limit_job, uncertainty);
    for (uint32_t j = 0; j < uncertainty->job_count; j++)
        whole &= uncertainty->jobs[j].done;
    for (uint32_t c = 0; c < uncertainty->count && whole; c++)
        sum_up_limits(uncertainty_item(uncertainty, c));
    return whole;
}

static uint64_t over_limits(const struct plan_candidate *item)
{
    uint64_t sum = 0;
    for (uint32_t limit = 0; limit <= LIMIT_DECODE_SLOW; limit++)
        sum += item->limit_micro_per_s[limit];
    return sum;
}

/* The contender that is to be recommended in place of the best one: as good by the runs, for the same cost, and better
 * over all limits together. */
static uint32_t most_robust(const struct uncertainty *uncertainty)
{
    const struct plan_candidate *best = uncertainty_item(uncertainty, 0);
    uint32_t choice = 0;
    for (uint32_t c = 1; c < uncertainty->count; c++) {
        const struct plan_candidate *item = uncertainty_item(uncertainty, c);
        uint64_t least = plan_with_slack(over_limits(uncertainty_item(uncertainty, choice)), LEAD_PERMILLE);
        if (item->candidate.aggregated == best->candidate.aggregated && item->searched && item->seeds == best->seeds &&
            item->candidate.cost == best->candidate.cost && item->rate_micro_per_s >= best->rate_low_micro_per_s &&
            plan_serves(uncertainty->plan, item->rate_low_micro_per_s) && over_limits(item) > least)
            choice = c;
    }
    return choice;
}

/* What a rate of the fewer requests that are played at limits is of all requests: it moves as the candidate's own rate
 * does where the model is right, or, not searched, as the best one's. */
static uint64_t of_all(const struct plan_candidate *item, const struct plan_candidate *best, uint64_t rate)
{
    const struct plan_candidate *known = item->searched && item->reachable ? item : best;
    return mul_div_floor_u64(rate, known->rate_micro_per_s, max_u64(1, known->limit_micro_per_s[LIMIT_NONE]));
}

uint64_t uncertainty_lead(const struct uncertainty *uncertainty, const struct plan_candidate *item, uint32_t limit)
{
    const struct plan_candidate *best = uncertainty_item(uncertainty, 0);
    uint64_t best_rate =
        limit_is_relative(limit) ? best->limit_micro_per_s[LIMIT_NONE] : best->limit_micro_per_s[limit];
    uint64_t rate = item->limit_micro_per_s[limit];
    if (limit_is_relative(limit) && !uncertainty_steps_differ(&item->candidate, &best->candidate, limit_kind(limit)))
        return 0;
    if (uncertainty->plan->scenario->plan.goal == PLAN_SERVE_RATE)
        return ahead(uncertainty->plan, &item->candidate, of_all(item, best, rate), &best->candidate,
                     of_all(best, best, best_rate))
                   ? 2000
                   : 1000;
    uint128 ours = (uint128)best_rate * item->candidate.cost;
    uint128 its = (uint128)rate * best->candidate.cost;
    return ours == 0 ? (its > 0 ? 1000000 : 0) : min_u64(1000000, (uint64_t)(its * 1000 / ours));
}

/* ---- The verdict ------------------------------------------------------------------------------------------------- */

/* Where the best one gives way to the one that leads it by most, at a limit, by steps of one kind. */
struct break_even {
    struct uncertainty *uncertainty;
    const struct plan_candidate *rival;
    uint32_t limit;
    uint32_t permille;
    bool whole;
};

static void break_even_job(void *context, uint32_t job)
{
    struct break_even *break_even = (struct break_even *)context + job;
    break_even->permille =
        uncertainty_break_even(break_even->uncertainty, &break_even->rival, break_even->limit, &break_even->whole);
}

static void judge_contenders(struct uncertainty *uncertainty, struct break_even break_evens[STEP_KINDS],
                             bool open[STEP_KINDS])
{
    struct plan_result *result = uncertainty->plan->result;
    struct plan_uncertainty *verdict = &result->uncertainty;
    const struct plan_candidate *best = uncertainty_item(uncertainty, 0);
    const struct plan_candidate *undecided = plan_rival(uncertainty->plan);
    uint64_t strongest[STEP_KINDS] = {1000 + LEAD_PERMILLE, 1000 + LEAD_PERMILLE};
    verdict->certain = true;
    for (uint32_t c = 1; c < uncertainty->count; c++) {
        const struct plan_candidate *item = uncertainty_item(uncertainty, c);
        bool other_kind = item->candidate.aggregated != best->candidate.aggregated;
        bool wins = false;
        for (uint32_t limit = 0; limit < ERROR_LIMITS; limit++) {
            uint64_t lead = uncertainty_lead(uncertainty, item, limit);
            enum step_kind kind = limit_kind(limit);
            wins |= lead > 1000 + LEAD_PERMILLE;
            if (lead <= strongest[kind])
                continue;
            strongest[kind] = lead;
            open[kind] = true;
            break_evens[kind] =
                (struct break_even){.uncertainty = uncertainty, .rival = item, .limit = limit, .whole = true};
        }
        bool other = item->candidate.prefill != best->candidate.prefill ||
                     item->candidate.decode != best->candidate.decode || other_kind;
        verdict->certain &= !(other && (wins || item == undecided));
        verdict->alternative_may_win |= wins && other_kind;
        if ((wins || item == undecided) && verdict->tie_count < PLAN_TIES_MAX)
            verdict->ties[verdict->tie_count++] = uncertainty->contenders[c];
    }
}

bool plan_uncertainty(struct plan *plan)
{
    struct plan_result *result = plan->result;
    struct plan_uncertainty *verdict = &result->uncertainty;
    struct uncertainty uncertainty = {.plan = plan};
    if (plan->options->errors == NULL || result->best == NO_CANDIDATE || result->interrupted)
        return true;
    const struct candidate *best = &result->items[result->best].candidate;
    for (uint32_t kind = 0; kind < STEP_KINDS; kind++)
        if (!uncertainty_error(plan, best, (enum step_kind)kind, &verdict->error[kind]))
            return true;
    find_contenders(&uncertainty);
    if (!search_limits(&uncertainty))
        return false;
    uint32_t choice = most_robust(&uncertainty);
    if (choice != 0) {
        uint32_t chosen = uncertainty.contenders[choice];
        uncertainty.contenders[choice] = result->best;
        uncertainty.contenders[0] = result->best = chosen;
        find_promising(&uncertainty, LIMIT_PREFILL_RELATIVE);
        find_promising(&uncertainty, LIMIT_DECODE_RELATIVE);
        if (!search_limits(&uncertainty))
            return false;
    }
    struct break_even break_evens[STEP_KINDS];
    bool open[STEP_KINDS] = {false, false};
    memset(break_evens, 0, sizeof break_evens);
    judge_contenders(&uncertainty, break_evens, open);
    uint32_t count = 0;
    for (uint32_t kind = 0; kind < STEP_KINDS; kind++)
        if (open[kind])
            break_evens[count++] = break_evens[kind];
    bool whole = workers_run(plan->options->threads, count, break_even_job, break_evens);
    for (uint32_t c = 0; c < count && whole; c++) {
        whole &= break_evens[c].whole;
        if (whole && break_evens[c].permille > 0)
            uncertainty_measure(&uncertainty, break_evens[c].rival, break_evens[c].limit, break_evens[c].permille,
                                &verdict->measures[verdict->measure_count++]);
    }
    verdict->known = whole;
    return whole;
}
