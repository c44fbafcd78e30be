/* What the error of the device model leaves of a plan's answer.
 *
 * Those that may be the answer somewhere within the error are searched again at its ends: with the steps of prefill,
 * and those of decoding, as fast and as slow as validation leaves open. Candidates share that error where they run the
 * same steps; where a rival's sharding is another, it is also given steps that are faster than the best one's by what
 * two shardings differ. Who comes out ahead nowhere is beaten for certain. Where another one does, the time of the step
 * at which both serve as much is found (crossing.c): measured on one instance (measure.c), it decides.
 *
 * All of it under the first seed, so that two candidates are compared on the same requests. Of those that the runs do
 * not tell apart, and that cost the same, the one that does best over all ends together is recommended.
 */
#include "sim/plan/doubt.h"

#include "base/arith.h"
#include "world/scenario/scenario.h"
#include "host/thread_pool.h"

#include <string.h>

/* Who may win is known before by bounds alone; they may be off by so much, compared with the best one's. */
#define PROMISE_PERMILLE 80

#define PROMISING_MAX 2 /* at one end */

/* Of a probe's requests, what is played at the ends: comparisons need fewer than rates. */
#define END_REQUESTS_PART 4
#define END_REQUESTS_MIN 500
#define END_RATE_FINE 40 /* of a rate, the width of its bracket */

struct plan_candidate *doubt_item(const struct doubt *doubt, uint32_t contender)
{
    return &doubt->plan->result->items[doubt->contenders[contender]];
}

/* ---- Places in the error ---------------------------------------------------------------------------------------- */

enum step_kind end_kind(uint32_t end)
{
    return end == END_DECODE_FAST || end == END_DECODE_SLOW || end == END_DECODE_APART ? STEP_DECODE : STEP_PREFILL;
}

bool end_is_apart(uint32_t end)
{
    return end == END_PREFILL_APART || end == END_DECODE_APART;
}

uint32_t doubt_pool(const struct candidate *candidate, enum step_kind kind)
{
    enum node_role other = kind == STEP_PREFILL ? ROLE_DECODE : ROLE_PREFILL;
    for (uint32_t p = 0; p < candidate->scenario->pool_count; p++)
        if (candidate->choice.pool[p].count > 0 && candidate->scenario->pools[p].role != other)
            return p;
    CHECK(false && "a candidate has a pool for every kind of step");
    return 0;
}

const struct parallelism *doubt_sharding(const struct candidate *candidate, enum step_kind kind)
{
    uint32_t pool = doubt_pool(candidate, kind);
    return &candidate->scenario->pools[pool].shardings[candidate->choice.pool[pool].sharding];
}

bool doubt_error(const struct plan *plan, const struct candidate *candidate, enum step_kind kind,
                 struct step_error *error)
{
    const struct pool *pool = &candidate->scenario->pools[doubt_pool(candidate, kind)];
    return model_error_find(plan->options->errors, kind, pool->engine.kernels, pool->hardware.gpu,
                            &candidate->scenario->model, error);
}

struct step_scale doubt_scale(enum step_kind kind, uint32_t permille)
{
    struct step_scale scale = STEP_SCALE_NONE;
    *(kind == STEP_PREFILL ? &scale.prefill_permille : &scale.decode_permille) = permille;
    return scale;
}

uint32_t end_permille(const struct step_error *error, uint32_t end)
{
    switch (end) {
    case END_PREFILL_FAST:
    case END_DECODE_FAST:
        return error->fast_permille;
    case END_PREFILL_SLOW:
    case END_DECODE_SLOW:
        return error->slow_permille;
    default:
        return error->apart_permille;
    }
}

static struct step_scale scale_at(const struct plan *plan, const struct candidate *candidate, uint32_t end)
{
    struct step_error error;
    if (end == END_NONE || !doubt_error(plan, candidate, end_kind(end), &error))
        return STEP_SCALE_NONE;
    return doubt_scale(end_kind(end), end_permille(&error, end));
}

bool doubt_steps_differ(const struct candidate *a, const struct candidate *b, enum step_kind kind)
{
    const struct pool *p = &a->scenario->pools[doubt_pool(a, kind)];
    const struct pool *q = &b->scenario->pools[doubt_pool(b, kind)];
    return !a->mixed && !b->mixed &&
           (!parallelism_same(doubt_sharding(a, kind), doubt_sharding(b, kind)) ||
            strcmp(p->hardware.gpu, q->hardware.gpu) != 0);
}

/* ---- Who may win ------------------------------------------------------------------------------------------------- */

static uint64_t bound_at(const struct plan *plan, const struct candidate *candidate, uint32_t end)
{
    struct candidate scaled = *candidate;
    scaled.scale = scale_at(plan, candidate, end);
    candidate_assess(&scaled, &plan->demand, &plan->sizes);
    return scaled.bound_micro_per_s;
}

/* What a candidate may come to at an end: its bound there, of which it reaches as much as where the model is right, or,
 * not searched, as much as the best one. */
static uint64_t promise_at(const struct plan *plan, const struct plan_candidate *item, uint32_t end)
{
    const struct plan_candidate *model = &plan->result->items[plan->result->best];
    if (item->searched && item->reachable)
        model = item;
    uint64_t bound = bound_at(plan, &item->candidate, end);
    uint64_t of_bound = max_u64(model->candidate.bound_micro_per_s, model->rate_micro_per_s);
    return mul_div_floor_u64(bound, model->rate_micro_per_s, max_u64(1, of_bound));
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

static void add_contender(struct doubt *doubt, uint32_t item)
{
    for (uint32_t c = 0; c < doubt->count; c++)
        if (doubt->contenders[c] == item)
            return;
    if (doubt->count < CONTENDERS_MAX)
        doubt->contenders[doubt->count++] = item;
}

/* The most promising ones at one end, of those that may be ahead of the best one there. */
static void find_promising(struct doubt *doubt, uint32_t end)
{
    struct plan *plan = doubt->plan;
    struct plan_result *result = plan->result;
    const struct plan_candidate *best = &result->items[result->best];
    uint64_t best_rate = end_is_apart(end) ? best->rate_micro_per_s : promise_at(plan, best, end);
    uint32_t found[PROMISING_MAX];
    uint64_t promises[PROMISING_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct candidate *candidate = &result->items[i].candidate;
        if (i == result->best || candidate->mixed || candidate->refusal[0] != '\0' ||
            (end_is_apart(end) && !doubt_steps_differ(candidate, &best->candidate, end_kind(end))))
            continue;
        uint64_t promise = plan_with_slack(promise_at(plan, &result->items[i], end), PROMISE_PERMILLE);
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
        add_contender(doubt, found[k]);
}

static void find_contenders(struct doubt *doubt)
{
    struct plan *plan = doubt->plan;
    struct plan_result *result = plan->result;
    const struct plan_candidate *rival = plan_rival(plan);
    add_contender(doubt, result->best);
    if (result->colocated != NO_CANDIDATE)
        add_contender(doubt, result->colocated);
    if (rival != NULL)
        add_contender(doubt, (uint32_t)(rival - result->items));
    for (uint32_t end = 0; end < PLAN_ENDS; end++)
        find_promising(doubt, end);
}

/* ---- Rates at the ends ------------------------------------------------------------------------------------------- */

static uint32_t end_requests(const struct plan *plan)
{
    uint32_t all = plan_requests(plan);
    return min_u32(all, max_u32(END_REQUESTS_MIN, all / END_REQUESTS_PART));
}

bool doubt_rate(struct plan *plan, const struct plan_candidate *item, struct step_scale scale, uint32_t requests,
                uint64_t start, uint64_t fine, uint64_t *rate)
{
    struct candidate scaled = item->candidate;
    scaled.scale = scale;
    struct candidate bounded = scaled;
    candidate_assess(&bounded, &plan->demand, &plan->sizes);
    start = max_u64(1000, start);
    struct reach reach = {.start = start, .floor = max_u64(1, start / 64), .part = fine / 4, .fine = fine};
    reach.ceiling = max_u64(start, plan_with_slack(bounded.bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE));
    return plan_search_rate(plan, &scaled, &reach, FIRST_SEED, requests, rate, NULL, NULL);
}

static void end_job(void *context, uint32_t job)
{
    struct doubt *doubt = context;
    struct plan *plan = doubt->plan;
    struct plan_candidate *item = &plan->result->items[doubt->jobs[job].item];
    uint32_t end = doubt->jobs[job].end;
    item->end_known[end] = doubt_rate(plan, item, scale_at(plan, &item->candidate, end), end_requests(plan),
                                      promise_at(plan, item, end), END_RATE_FINE, &item->end_micro_per_s[end]);
    doubt->jobs[job].done = item->end_known[end];
    progress_add(plan->options->progress, 1);
}

static void add_job(struct doubt *doubt, uint32_t contender, uint32_t end)
{
    CHECK(doubt->job_count < DOUBT_JOBS_MAX);
    doubt->jobs[doubt->job_count].item = doubt->contenders[contender];
    doubt->jobs[doubt->job_count++].end = end;
}

static void add_jobs(struct doubt *doubt)
{
    const struct plan_candidate *best = doubt_item(doubt, 0);
    doubt->job_count = 0;
    for (uint32_t c = 0; c < doubt->count; c++) {
        const struct plan_candidate *item = doubt_item(doubt, c);
        for (uint32_t end = 0; end <= PLAN_ENDS; end++) {
            bool wanted = !end_is_apart(end) || doubt_steps_differ(&item->candidate, &best->candidate, end_kind(end));
            if (wanted && !item->end_known[end])
                add_job(doubt, c, end);
        }
    }
}

/* What the ends make of a candidate's mean over seeds: it moves as the first seed's rate does. */
static void sum_up_ends(struct plan_candidate *item)
{
    uint64_t same = item->end_micro_per_s[END_NONE];
    uint64_t mean = item->searched ? item->rate_micro_per_s : same;
    uint64_t low = same;
    uint64_t high = same;
    for (uint32_t end = 0; end <= END_DECODE_SLOW; end++) {
        low = min_u64(low, item->end_micro_per_s[end]);
        high = max_u64(high, item->end_micro_per_s[end]);
    }
    item->doubted = true;
    item->rate_model_low_micro_per_s = mul_div_floor_u64(low, mean, max_u64(1, same));
    item->rate_model_high_micro_per_s = mul_div_floor_u64(high, mean, max_u64(1, same));
}

static bool search_ends(struct doubt *doubt)
{
    struct plan *plan = doubt->plan;
    add_jobs(doubt);
    plan->jobs += doubt->job_count;
    progress_total(plan->options->progress, plan->jobs);
    bool whole = workers_run(plan->options->threads, doubt->job_count, end_job, doubt);
    for (uint32_t j = 0; j < doubt->job_count; j++)
        whole &= doubt->jobs[j].done;
    for (uint32_t c = 0; c < doubt->count && whole; c++)
        sum_up_ends(doubt_item(doubt, c));
    return whole;
}

static uint64_t over_ends(const struct plan_candidate *item)
{
    uint64_t sum = 0;
    for (uint32_t end = 0; end <= END_DECODE_SLOW; end++)
        sum += item->end_micro_per_s[end];
    return sum;
}

/* The contender that is to be recommended in place of the best one: as good by the runs, for the same cost, and better
 * over all ends together. */
static uint32_t steadier(const struct doubt *doubt)
{
    const struct plan_candidate *best = doubt_item(doubt, 0);
    uint32_t choice = 0;
    for (uint32_t c = 1; c < doubt->count; c++) {
        const struct plan_candidate *item = doubt_item(doubt, c);
        uint64_t least = plan_with_slack(over_ends(doubt_item(doubt, choice)), LEAD_PERMILLE);
        if (!item->candidate.mixed && item->seeds == best->seeds && item->candidate.cost == best->candidate.cost &&
            item->rate_micro_per_s >= best->rate_low_micro_per_s &&
            plan_serves(doubt->plan, item->rate_low_micro_per_s) && over_ends(item) > least)
            choice = c;
    }
    return choice;
}

uint64_t doubt_lead(const struct doubt *doubt, const struct plan_candidate *item, uint32_t end)
{
    const struct plan_candidate *best = doubt_item(doubt, 0);
    uint64_t best_rate = end_is_apart(end) ? best->end_micro_per_s[END_NONE] : best->end_micro_per_s[end];
    uint64_t rate = item->end_micro_per_s[end];
    if (end_is_apart(end) && !doubt_steps_differ(&item->candidate, &best->candidate, end_kind(end)))
        return 0;
    if (doubt->plan->scenario->plan.goal == PLAN_SERVE_RATE)
        return ahead(doubt->plan, &item->candidate, rate, &best->candidate, best_rate) ? 2000 : 1000;
    uint128 ours = (uint128)best_rate * item->candidate.cost;
    uint128 its = (uint128)rate * best->candidate.cost;
    return ours == 0 ? (its > 0 ? 1000000 : 0) : min_u64(1000000, (uint64_t)(its * 1000 / ours));
}

/* ---- The verdict ------------------------------------------------------------------------------------------------- */

/* Where the best one gives way to the one that leads it by most, at an end, by steps of one kind. */
struct crossing {
    struct doubt *doubt;
    const struct plan_candidate *rival;
    uint32_t end;
    uint32_t permille;
    bool whole;
};

static void crossing_job(void *context, uint32_t job)
{
    struct crossing *crossing = (struct crossing *)context + job;
    crossing->permille = doubt_crossing(crossing->doubt, &crossing->rival, crossing->end, &crossing->whole);
}

static void judge_contenders(struct doubt *doubt, struct crossing crossings[STEP_KINDS], bool open[STEP_KINDS])
{
    struct plan_result *result = doubt->plan->result;
    struct plan_doubt *verdict = &result->doubt;
    const struct plan_candidate *best = doubt_item(doubt, 0);
    const struct plan_candidate *undecided = plan_rival(doubt->plan);
    uint64_t strongest[STEP_KINDS] = {1000 + LEAD_PERMILLE, 1000 + LEAD_PERMILLE};
    verdict->certain = true;
    for (uint32_t c = 1; c < doubt->count; c++) {
        const struct plan_candidate *item = doubt_item(doubt, c);
        bool wins = false;
        /* Colocated serving that is better where the model is right is said to be; no measurement is asked for. */
        if (item->candidate.mixed && doubt_lead(doubt, item, END_NONE) > 1000 + LEAD_PERMILLE) {
            verdict->colocated_may_win = true;
            verdict->certain = false;
            continue;
        }
        for (uint32_t end = 0; end < PLAN_ENDS; end++) {
            uint64_t lead = doubt_lead(doubt, item, end);
            enum step_kind kind = end_kind(end);
            wins |= lead > 1000 + LEAD_PERMILLE;
            if (lead <= strongest[kind])
                continue;
            strongest[kind] = lead;
            open[kind] = true;
            crossings[kind] = (struct crossing){.doubt = doubt, .rival = item, .end = end, .whole = true};
        }
        bool other = item->candidate.prefill != best->candidate.prefill ||
                     item->candidate.decode != best->candidate.decode || item->candidate.mixed;
        verdict->certain &= !(other && (wins || item == undecided));
        verdict->colocated_may_win |= wins && item->candidate.mixed;
        if ((wins || item == undecided) && !item->candidate.mixed && verdict->tie_count < PLAN_TIES_MAX)
            verdict->ties[verdict->tie_count++] = doubt->contenders[c];
    }
}

bool plan_doubt(struct plan *plan)
{
    struct plan_result *result = plan->result;
    struct plan_doubt *verdict = &result->doubt;
    struct doubt doubt = {.plan = plan};
    if (plan->options->errors == NULL || result->best == NO_CANDIDATE || result->interrupted)
        return true;
    const struct candidate *best = &result->items[result->best].candidate;
    for (uint32_t kind = 0; kind < STEP_KINDS; kind++)
        if (!doubt_error(plan, best, (enum step_kind)kind, &verdict->error[kind]))
            return true;
    find_contenders(&doubt);
    if (!search_ends(&doubt))
        return false;
    uint32_t choice = steadier(&doubt);
    if (choice != 0) {
        uint32_t chosen = doubt.contenders[choice];
        doubt.contenders[choice] = result->best;
        doubt.contenders[0] = result->best = chosen;
        find_promising(&doubt, END_PREFILL_APART);
        find_promising(&doubt, END_DECODE_APART);
        if (!search_ends(&doubt))
            return false;
    }
    struct crossing crossings[STEP_KINDS];
    bool open[STEP_KINDS] = {false, false};
    memset(crossings, 0, sizeof crossings);
    judge_contenders(&doubt, crossings, open);
    uint32_t count = 0;
    for (uint32_t kind = 0; kind < STEP_KINDS; kind++)
        if (open[kind])
            crossings[count++] = crossings[kind];
    bool whole = workers_run(plan->options->threads, count, crossing_job, crossings);
    for (uint32_t c = 0; c < count && whole; c++) {
        whole &= crossings[c].whole;
        if (whole && crossings[c].permille > 0)
            doubt_measure(&doubt, crossings[c].rival, crossings[c].end, crossings[c].permille,
                          &verdict->measures[verdict->measure_count++]);
    }
    verdict->known = whole;
    return whole;
}
