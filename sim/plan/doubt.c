/* What the error of the device model leaves of a plan's answer.
 *
 * Those that may be the answer somewhere within the error are searched again at its ends: with the steps of prefill,
 * and those of decoding, as fast and as slow as validation leaves open. Candidates share that error where they run the
 * same steps; where a rival's sharding is another, it is also given steps that are faster than the best one's by what
 * two shardings differ. Who comes out ahead nowhere is beaten for certain. Where another one does, the time of the step
 * at which both serve as much is found by halving, each time by simulating both: measured on one instance, it decides.
 *
 * All of it under the first seed, so that two candidates are compared on the same requests. Of those that the runs do
 * not tell apart, and that cost the same, the one that does best over all ends together is recommended.
 */
#include "base/arith.h"
#include "host/scenario.h"
#include "sim/plan/plan_internal.h"
#include "sim/workers.h"

#include <stdio.h>
#include <string.h>

#define FIRST_SEED 1

/* Rates of two searches may differ by the width of their brackets: less is no lead. */
#define LEAD_PERMILLE 31

/* Who may win is known before by bounds alone; they may be off by so much, compared with the best one's. */
#define PROMISE_PERMILLE 80

#define CONTENDERS_MAX 7
#define PROMISING_MAX 2 /* at one end */
#define JOBS_MAX (CONTENDERS_MAX * (PLAN_ENDS + 1))

/* The place of a search that is at none of the ends: where the model is right. */
#define END_NONE PLAN_ENDS

/* Of a probe's requests, what is played at the ends: comparisons need fewer than rates. */
#define END_REQUESTS_PART 4
#define END_REQUESTS_MIN 500
#define END_RATE_FINE 40 /* of a rate, the width of its bracket */

/* A crossing is known when what the step takes is, to one in so many; the rates that are compared, to one in so many.
 */
#define CROSSING_FINE 64
#define CROSSING_RATE_FINE 96

/* How far from a first guess a crossing is looked for, in permille, before all that is left is halved. */
#define CROSSING_NEAR 80

struct doubt {
    struct plan *plan;
    uint32_t count;
    uint32_t contenders[CONTENDERS_MAX]; /* the best one first */
    uint32_t job_count;
    struct {
        uint32_t item;
        uint32_t end;
        bool done;
    } jobs[JOBS_MAX];
};

static struct plan_candidate *item_of(const struct doubt *doubt, uint32_t contender)
{
    return &doubt->plan->result->items[doubt->contenders[contender]];
}

/* ---- Places in the error ---------------------------------------------------------------------------------------- */

static enum step_kind kind_of(uint32_t end)
{
    return end == END_DECODE_FAST || end == END_DECODE_SLOW || end == END_DECODE_APART ? STEP_DECODE : STEP_PREFILL;
}

static bool is_apart(uint32_t end)
{
    return end == END_PREFILL_APART || end == END_DECODE_APART;
}

/* The pool whose steps of a kind a candidate takes. */
static uint32_t pool_of(const struct candidate *candidate, enum step_kind kind)
{
    enum node_role other = kind == STEP_PREFILL ? ROLE_DECODE : ROLE_PREFILL;
    for (uint32_t p = 0; p < candidate->scenario->pool_count; p++)
        if (candidate->choice.pool[p].count > 0 && candidate->scenario->pools[p].role != other)
            return p;
    CHECK(false && "a candidate has a pool for every kind of step");
    return 0;
}

static const struct parallelism *sharding_of(const struct candidate *candidate, enum step_kind kind)
{
    uint32_t pool = pool_of(candidate, kind);
    return &candidate->scenario->pools[pool].shardings[candidate->choice.pool[pool].sharding];
}

static bool error_of(const struct plan *plan, const struct candidate *candidate, enum step_kind kind,
                     struct step_error *error)
{
    const struct pool *pool = &candidate->scenario->pools[pool_of(candidate, kind)];
    return model_error_find(plan->options->errors, kind, pool->engine.kernels, pool->hardware.gpu,
                            &candidate->scenario->model, error);
}

static struct step_scale scale_of(enum step_kind kind, uint32_t permille)
{
    struct step_scale scale = STEP_SCALE_NONE;
    *(kind == STEP_PREFILL ? &scale.prefill_permille : &scale.decode_permille) = permille;
    return scale;
}

static uint32_t permille_at(const struct step_error *error, uint32_t end)
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
    if (end == END_NONE || !error_of(plan, candidate, kind_of(end), &error))
        return STEP_SCALE_NONE;
    return scale_of(kind_of(end), permille_at(&error, end));
}

/* Whether two candidates' steps of a kind are different ones, whose errors therefore differ. Colocated serving is
 * compared in the errors that are shared alone. */
static bool steps_differ(const struct candidate *a, const struct candidate *b, enum step_kind kind)
{
    const struct pool *p = &a->scenario->pools[pool_of(a, kind)];
    const struct pool *q = &b->scenario->pools[pool_of(b, kind)];
    return !a->mixed && !b->mixed &&
           (!parallelism_same(sharding_of(a, kind), sharding_of(b, kind)) ||
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
    uint64_t best_rate = is_apart(end) ? best->rate_micro_per_s : promise_at(plan, best, end);
    uint32_t found[PROMISING_MAX];
    uint64_t promises[PROMISING_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct candidate *candidate = &result->items[i].candidate;
        if (i == result->best || candidate->mixed || candidate->refusal[0] != '\0' ||
            (is_apart(end) && !steps_differ(candidate, &best->candidate, kind_of(end))))
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

static bool rate_at(struct plan *plan, const struct plan_candidate *item, struct step_scale scale, uint32_t requests,
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
    item->end_known[end] = rate_at(plan, item, scale_at(plan, &item->candidate, end), end_requests(plan),
                                   promise_at(plan, item, end), END_RATE_FINE, &item->end_micro_per_s[end]);
    doubt->jobs[job].done = item->end_known[end];
    progress_add(plan->options->progress, 1);
}

static void add_job(struct doubt *doubt, uint32_t contender, uint32_t end)
{
    CHECK(doubt->job_count < JOBS_MAX);
    doubt->jobs[doubt->job_count].item = doubt->contenders[contender];
    doubt->jobs[doubt->job_count++].end = end;
}

static void add_jobs(struct doubt *doubt)
{
    const struct plan_candidate *best = item_of(doubt, 0);
    doubt->job_count = 0;
    for (uint32_t c = 0; c < doubt->count; c++) {
        const struct plan_candidate *item = item_of(doubt, c);
        for (uint32_t end = 0; end <= PLAN_ENDS; end++) {
            bool wanted = !is_apart(end) || steps_differ(&item->candidate, &best->candidate, kind_of(end));
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
        sum_up_ends(item_of(doubt, c));
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
    const struct plan_candidate *best = item_of(doubt, 0);
    uint32_t choice = 0;
    for (uint32_t c = 1; c < doubt->count; c++) {
        const struct plan_candidate *item = item_of(doubt, c);
        uint64_t least = plan_with_slack(over_ends(item_of(doubt, choice)), LEAD_PERMILLE);
        if (!item->candidate.mixed && item->seeds == best->seeds && item->candidate.cost == best->candidate.cost &&
            item->rate_micro_per_s >= best->rate_low_micro_per_s &&
            plan_serves(doubt->plan, item->rate_low_micro_per_s) && over_ends(item) > least)
            choice = c;
    }
    return choice;
}

/* By how much a contender serves more for its cost than the best one at an end, in permille; 1000: the same. */
static uint64_t lead_at(const struct doubt *doubt, const struct plan_candidate *item, uint32_t end)
{
    const struct plan_candidate *best = item_of(doubt, 0);
    uint64_t best_rate = is_apart(end) ? best->end_micro_per_s[END_NONE] : best->end_micro_per_s[end];
    uint64_t rate = item->end_micro_per_s[end];
    if (is_apart(end) && !steps_differ(&item->candidate, &best->candidate, kind_of(end)))
        return 0;
    if (doubt->plan->scenario->plan.goal == PLAN_SERVE_RATE)
        return ahead(doubt->plan, &item->candidate, rate, &best->candidate, best_rate) ? 2000 : 1000;
    uint128 ours = (uint128)best_rate * item->candidate.cost;
    uint128 its = (uint128)rate * best->candidate.cost;
    return ours == 0 ? (its > 0 ? 1000000 : 0) : min_u64(1000000, (uint64_t)(its * 1000 / ours));
}

/* ---- Crossings --------------------------------------------------------------------------------------------------- */

/* The best one and one that is ahead of it at an end. */
struct pair {
    struct doubt *doubt;
    const struct plan_candidate *best;
    const struct plan_candidate *rival;
    uint32_t end;
    uint64_t best_rate; /* where it was looked for last */
    bool best_found;    /* it holds whatever the rival's steps take */
    bool whole;         /* nothing was cut off */
};

static bool probe_passes(struct pair *pair, const struct plan_candidate *item, struct step_scale scale, uint64_t rate)
{
    struct plan *plan = pair->doubt->plan;
    struct candidate scaled = item->candidate;
    struct probe probe;
    scaled.scale = scale;
    pair->whole &= plan_probe(plan, &scaled, max_u64(1, rate), FIRST_SEED, plan_requests(plan), true, &probe);
    return pair->whole && probe.passed;
}

/* Whether the rival is ahead where steps of the end's kind take so much. */
static bool rival_wins(struct pair *pair, uint32_t permille)
{
    struct plan *plan = pair->doubt->plan;
    struct step_scale rival_scale = scale_of(kind_of(pair->end), permille);
    struct step_scale best_scale = is_apart(pair->end) ? STEP_SCALE_NONE : rival_scale;
    const struct candidate *best = &pair->best->candidate;
    const struct candidate *rival = &pair->rival->candidate;
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE) {
        uint64_t rate = plan->scenario->plan.rate_micro_per_s;
        return probe_passes(pair, pair->rival, rival_scale, rate) &&
               (rival->cost < best->cost || !probe_passes(pair, pair->best, best_scale, rate));
    }
    if (!pair->best_found) {
        /* It starts at what the bound makes of the rate where the model is right. */
        struct candidate bounded = *best;
        bounded.scale = best_scale;
        candidate_assess(&bounded, &plan->demand, &plan->sizes);
        uint64_t start = mul_div_floor_u64(pair->best->seed_micro_per_s[0], bounded.bound_micro_per_s,
                                           max_u64(1, best->bound_micro_per_s));
        pair->whole &=
            rate_at(plan, pair->best, best_scale, plan_requests(plan), start, CROSSING_RATE_FINE, &pair->best_rate);
        pair->best_found = is_apart(pair->end);
    }
    uint128 equal = (uint128)pair->best_rate * rival->cost / max_u64(1, best->cost);
    return pair->whole && probe_passes(pair, pair->rival, rival_scale, (uint64_t)equal + 1);
}

/* What the step takes where the pair is as good, between `lost`, where the best one is ahead, and `won`, where the
 * rival is; a guess lies between. */
static uint32_t between(struct pair *pair, uint32_t lost, uint32_t won, uint32_t guess)
{
    const uint32_t goal = won;
    while (pair->whole && max_u32(won, lost) - min_u32(won, lost) > max_u32(won, lost) / CROSSING_FINE) {
        bool inside = (guess > lost) == (guess < won) && guess != lost && guess != won;
        uint32_t middle = inside ? guess : (won + lost) / 2;
        bool wins = rival_wins(pair, middle);
        *(wins ? &won : &lost) = middle;
        /* A good guess is near: looked for beside it first, then by halves. */
        bool further = inside && (goal > middle) != wins;
        guess = !inside ? 0 : further ? middle + middle * CROSSING_NEAR / 1000 : middle - middle * CROSSING_NEAR / 1000;
    }
    return won == goal && pair->whole && !rival_wins(pair, won) ? 0 : (won + lost) / 2;
}

/* 0: nowhere, or the runs do not show it. */
static uint32_t crossing(struct pair *pair)
{
    struct step_error error;
    if (!error_of(pair->doubt->plan, &pair->rival->candidate, kind_of(pair->end), &error))
        return 0;
    bool fast = pair->end == END_PREFILL_FAST || pair->end == END_DECODE_FAST;
    uint32_t won = permille_at(&error, pair->end);
    if (!rival_wins(pair, 1000)) {
        /* Leads as they are at both places, and straight in between. */
        int64_t behind = 1000 - (int64_t)min_u64(1000, lead_at(pair->doubt, pair->rival, END_NONE));
        int64_t ahead_by = (int64_t)lead_at(pair->doubt, pair->rival, pair->end) - 1000;
        int64_t guess = 1000 + ((int64_t)won - 1000) * behind / max_i64(1, behind + ahead_by);
        return between(pair, 1000, won, (uint32_t)guess);
    }
    /* Nearly as good where the model is right: they part on its other side. */
    uint32_t lost = is_apart(pair->end) ? 1000000 / error.apart_permille
                    : fast              ? error.slow_permille
                                        : error.fast_permille;
    return rival_wins(pair, lost) ? 0 : between(pair, lost, 1000, 0);
}

/* ---- What to measure --------------------------------------------------------------------------------------------- */

static const char *const engine_names[] = {
    [ENGINE_NEUTRAL] = "neutral", [ENGINE_VLLM] = "vllm", [ENGINE_SGLANG] = "sglang", [ENGINE_TRTLLM] = "trtllm"};

static void prompts_step(struct step_group *step, uint64_t sequences, uint64_t tokens)
{
    *step = (struct step_group){.prefill_sequences = (uint32_t)sequences,
                                .prefill_tokens = sequences * tokens,
                                .prefill_pairs = sequences * tokens * (tokens + 1) / 2};
}

static int64_t step_ns(const struct candidate *candidate, uint32_t pool, const struct step_group *step, uint32_t groups)
{
    struct step_group all[GROUPS_MAX];
    struct step_time time;
    for (uint32_t g = 0; g < groups; g++)
        all[g] = *step;
    device_step(candidate->models.pool[pool], all, groups, &time);
    return time.total_ns;
}

/* Prompts of a step, a group: as many as arrive while the step before takes its time. */
static uint64_t prompts_of_step(const struct plan_candidate *item, uint32_t pool, uint64_t tokens, uint32_t groups)
{
    const struct candidate *candidate = &item->candidate;
    uint64_t most = max_u64(1, candidate->scenario->pools[pool].scheduler.token_budget / tokens);
    uint64_t instances = candidate->mixed ? candidate->decode : candidate->prefill;
    uint64_t rate = max_u64(item->rate_micro_per_s, item->end_micro_per_s[END_NONE]) / (instances * groups);
    uint64_t sequences = 0;
    for (uint64_t more = 1; more > sequences;) {
        struct step_group step;
        sequences = more;
        prompts_step(&step, sequences, tokens);
        uint64_t takes_ns = (uint64_t)step_ns(candidate, pool, &step, groups);
        more = min_u64(most, mul_div_ceil_u64(rate, takes_ns, UINT64_C(1000000) * (uint64_t)NS_PER_S));
    }
    return sequences;
}

/* The step of a candidate's instance as the plan runs it: prompts of the mean length, or the batch that decodes at its
 * rate, all groups alike. */
static void describe_step(const struct plan *plan, const struct plan_candidate *item, enum step_kind kind,
                          struct plan_measure *measure)
{
    const struct candidate *candidate = &item->candidate;
    const struct parallelism *sharding = sharding_of(candidate, kind);
    uint32_t index = pool_of(candidate, kind);
    const struct pool *pool = &candidate->scenario->pools[index];
    const struct demand *demand = &plan->demand;
    const struct plan_candidate *best = &plan->result->items[plan->result->best];
    uint32_t groups = max_u32(1, sharding->data);
    struct step_group step = {.decode_sequences = 0};
    uint64_t sequences;
    if (kind == STEP_PREFILL) {
        measure->tokens = min_u64(demand->prompt_sum / demand->count, pool->scheduler.token_budget);
        sequences = prompts_of_step(item, index, measure->tokens, groups);
        prompts_step(&step, sequences, measure->tokens);
    } else {
        /* Little's law: requests a second and instance, times how long each decodes. */
        uint64_t rate =
            max_u64(item->rate_micro_per_s, item->end_micro_per_s[END_NONE]) / max_u32(1, candidate->decode);
        uint64_t tpot_ns = (uint64_t)max_i64(0, best->at[best->worst_seed].tpot_ns[PROBE_P50]);
        uint64_t decode_ns = mul_u64(tpot_ns, demand->output_sum / demand->count);
        uint64_t batch = mul_div_floor_u64(rate, decode_ns, UINT64_C(1000000) * (uint64_t)NS_PER_S);
        measure->tokens = demand_context(demand);
        sequences = min_u64(max_u64(1, batch / groups), pool->scheduler.batch_max);
        step.decode_sequences = (uint32_t)sequences;
        step.decode_context = sequences * measure->tokens;
    }
    measure->step = kind;
    measure->sequences = (uint32_t)sequences * groups;
    measure->gpus = kv_ranks(sharding);
    measure->model_ns = step_ns(candidate, index, &step, groups);
    parallelism_text(sharding, measure->sharding, sizeof measure->sharding);
    snprintf(measure->engine, sizeof measure->engine, "%s", engine_names[pool->engine.kernels]);
}

struct crossing_job {
    struct pair pair;
    uint32_t permille;
};

static void crossing_job(void *context, uint32_t job)
{
    struct crossing_job *jobs = context;
    jobs[job].permille = crossing(&jobs[job].pair);
}

static void add_measure(struct plan *plan, const struct crossing_job *job)
{
    const struct pair *pair = &job->pair;
    struct plan_doubt *doubt = &plan->result->doubt;
    struct plan_measure *measure = &doubt->measures[doubt->measure_count++];
    enum step_kind kind = kind_of(pair->end);
    describe_step(plan, is_apart(pair->end) ? pair->rival : pair->best, kind, measure);
    measure->decides_ns = (int64_t)mul_div_floor_u64((uint64_t)measure->model_ns, job->permille, 1000);
    bool slow = pair->end == END_PREFILL_SLOW || pair->end == END_DECODE_SLOW;
    const char *best = pair->best->candidate.label;
    const char *rival = pair->rival->candidate.label;
    snprintf(measure->below, sizeof measure->below, "%s", slow ? best : rival);
    snprintf(measure->above, sizeof measure->above, "%s", slow ? rival : best);
}

/* ---- The verdict ------------------------------------------------------------------------------------------------- */

static void judge_contenders(struct doubt *doubt, struct crossing_job jobs[STEP_KINDS], bool open[STEP_KINDS])
{
    struct plan_result *result = doubt->plan->result;
    struct plan_doubt *verdict = &result->doubt;
    const struct plan_candidate *best = item_of(doubt, 0);
    const struct plan_candidate *undecided = plan_rival(doubt->plan);
    uint64_t strongest[STEP_KINDS] = {1000 + LEAD_PERMILLE, 1000 + LEAD_PERMILLE};
    verdict->certain = true;
    for (uint32_t c = 1; c < doubt->count; c++) {
        const struct plan_candidate *item = item_of(doubt, c);
        bool wins = false;
        /* Colocated serving that is better where the model is right is said to be; no measurement is asked for. */
        if (item->candidate.mixed && lead_at(doubt, item, END_NONE) > 1000 + LEAD_PERMILLE) {
            verdict->colocated_may_win = true;
            verdict->certain = false;
            continue;
        }
        for (uint32_t end = 0; end < PLAN_ENDS; end++) {
            uint64_t lead = lead_at(doubt, item, end);
            enum step_kind kind = kind_of(end);
            wins |= lead > 1000 + LEAD_PERMILLE;
            if (lead <= strongest[kind])
                continue;
            strongest[kind] = lead;
            open[kind] = true;
            jobs[kind].pair = (struct pair){.doubt = doubt, .best = best, .rival = item, .end = end, .whole = true};
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
        if (!error_of(plan, best, (enum step_kind)kind, &verdict->error[kind]))
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
    struct crossing_job jobs[STEP_KINDS];
    bool open[STEP_KINDS] = {false, false};
    memset(jobs, 0, sizeof jobs);
    judge_contenders(&doubt, jobs, open);
    uint32_t count = 0;
    for (uint32_t kind = 0; kind < STEP_KINDS; kind++)
        if (open[kind])
            jobs[count++] = jobs[kind];
    bool whole = workers_run(plan->options->threads, count, crossing_job, jobs);
    for (uint32_t j = 0; j < count && whole; j++) {
        whole &= jobs[j].pair.whole;
        if (whole && jobs[j].permille > 0)
            add_measure(plan, &jobs[j]);
    }
    verdict->known = whole;
    return whole;
}

/* ---- In words ---------------------------------------------------------------------------------------------------- */

void plan_measure_how(const struct plan_measure *measure, char *text, size_t size)
{
    bool prefill = measure->step == STEP_PREFILL;
    if (strcmp(measure->engine, "sglang") == 0)
        snprintf(
            text, size,
            "python -m sglang.bench_one_batch --batch-size %u --input-len %llu --output-len %u, as the instance is "
            "started: the %s latency",
            measure->sequences, (unsigned long long)measure->tokens, prefill ? 2 : 32,
            prefill ? "prefill" : "median decode");
    else if (strcmp(measure->engine, "trtllm") == 0)
        snprintf(
            text, size,
            "trtllm-bench throughput --concurrency %u with that many requests of %llu tokens in and %u out: the mean "
            "%s",
            measure->sequences, (unsigned long long)measure->tokens, prefill ? 1 : 32,
            prefill ? "time to the first token" : "time per output token");
    else
        snprintf(text, size,
                 "vllm bench latency --batch-size %u --input-len %llu --output-len %u, as the instance is started%s",
                 measure->sequences, (unsigned long long)measure->tokens, prefill ? 1 : 33,
                 prefill ? "" : ": 1/32 of what it takes more than with --output-len 1");
}

static void explain_measure(const struct plan_measure *measure, char *text, size_t size)
{
    bool prefill = measure->step == STEP_PREFILL;
    char shape[160];
    snprintf(shape, sizeof shape,
             prefill ? "the prefill step of %u prompt%s of %llu tokens"
                     : "the decode step of %u sequence%s of %llu tokens",
             measure->sequences, measure->sequences == 1 ? "" : "s", (unsigned long long)measure->tokens);
    size_t length = strlen(text);
    snprintf(text + length, size - length,
             " Measure %s on one %s instance (%u GPUs; the model says %.1f ms): below %.1f ms %s is best, above it %s.",
             shape, measure->sharding, measure->gpus, (double)measure->model_ns / 1e6,
             (double)measure->decides_ns / 1e6, measure->below, measure->above);
}

static bool colocated_is_better(const struct plan_result *result)
{
    if (result->colocated == NO_CANDIDATE)
        return false;
    const struct plan_candidate *mixed = &result->items[result->colocated];
    const struct plan_candidate *best = &result->items[result->best];
    return plan_better(mixed->rate_micro_per_s, &mixed->candidate, best->rate_micro_per_s, &best->candidate);
}

void plan_explain_doubt(const struct plan *plan, char *why, size_t size)
{
    const struct plan_result *result = plan->result;
    const struct plan_doubt *doubt = &result->doubt;
    const struct plan_candidate *best = &result->items[result->best];
    const struct step_error *prefill = &doubt->error[STEP_PREFILL];
    const struct step_error *decode = &doubt->error[STEP_DECODE];
    size_t length = strlen(why);
    snprintf(why + length, size - length,
             " Validated, prefill steps take %.2f to %.2f of what the model says (%s: %u cases), decode steps %.2f to "
             "%.2f (%s: %u cases): it serves %.2f to %.2f/s.",
             prefill->fast_permille / 1000.0, prefill->slow_permille / 1000.0, prefill->class_name, prefill->rows,
             decode->fast_permille / 1000.0, decode->slow_permille / 1000.0, decode->class_name, decode->rows,
             (double)best->rate_model_low_micro_per_s / 1e6, (double)best->rate_model_high_micro_per_s / 1e6);
    length = strlen(why);
    if (doubt->tie_count == 0 && !doubt->colocated_may_win) {
        snprintf(why + length, size - length, " Nothing within that error makes another one better.");
        return;
    }
    if (doubt->tie_count > 0)
        snprintf(why + length, size - length, " Within the error of the model it ties with");
    for (uint32_t t = 0; t < doubt->tie_count; t++) {
        length = strlen(why);
        snprintf(why + length, size - length, "%s %s%s", t > 0 ? "," : "",
                 result->items[doubt->ties[t]].candidate.label, t + 1 == doubt->tie_count ? "." : "");
    }
    length = strlen(why);
    if (doubt->colocated_may_win && !colocated_is_better(result))
        snprintf(why + length, size - length, " Within that error colocated serving may be better too.");
    for (uint32_t m = 0; m < doubt->measure_count; m++)
        explain_measure(&doubt->measures[m], why, size);
    length = strlen(why);
    if (doubt->measure_count == 0 && doubt->tie_count > 0)
        snprintf(why + length, size - length,
                 " No time of a step decides between them: they serve as much as each other.");
}
