/* What the probes of a candidate say: its rate and how sure that is, what binds it, what it costs; the frontier; and
 * the recommendation, as facts.
 */
#include "base/arith.h"
#include "sim/plan/plan_internal.h"
#include "host/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rate -------------------------------------------------------------------------------------------------------- */

/* Two-sided 95 % points of Student's t with n - 1 degrees of freedom, in thousandths. Source: any table of it. */
uint64_t plan_student_t_milli(uint32_t n)
{
    static const uint32_t points[] = {0,    0,    12706, 4303, 3182, 2776, 2571, 2447, 2365,
                                      2306, 2262, 2228,  2201, 2179, 2160, 2145, 2131};
    return n < sizeof points / sizeof *points ? points[n] : 2131;
}

void plan_sum_up_rate(struct plan_candidate *item, bool all)
{
    uint32_t seeds = item->seeds;
    uint64_t sum = 0;
    for (uint32_t s = 0; s < seeds; s++) {
        sum += item->seed_micro_per_s[s];
        if (item->seed_micro_per_s[s] < item->seed_micro_per_s[item->worst_seed])
            item->worst_seed = s;
    }
    /* A candidate that misses its targets at any rate under some seed does not meet them. */
    item->reachable = item->seed_micro_per_s[item->worst_seed] > 0;
    if (!item->reachable)
        return;
    item->rate_micro_per_s = sum / seeds;
    double squares = 0;
    for (uint32_t s = 0; s < seeds; s++) {
        double d = (double)item->seed_micro_per_s[s] - (double)item->rate_micro_per_s;
        squares += d * d;
    }
    /* The bracket itself leaves three per cent open; no interval is narrower than that. One seed of several has no
     * interval: it is taken to be as far off as the slack that kept it from more seeds. */
    uint64_t half = item->rate_micro_per_s / (all ? 64 : 10);
    if (seeds > 1) {
        double error = sqrt(squares / (seeds - 1) / seeds);
        half = max_u64(half, (uint64_t)(error * (double)plan_student_t_milli(seeds) / 1000));
    }
    item->rate_low_micro_per_s = item->rate_micro_per_s - min_u64(half, item->rate_micro_per_s);
    item->rate_high_micro_per_s = item->rate_micro_per_s + half;
}

/* ---- What binds -------------------------------------------------------------------------------------------------- */

/* Permille. A side is saturated when its busiest instance or NIC hardly ever rests; the run's ramp and drain keep even
 * the busiest below 1000. */
#define SATURATED_PERMILLE 850

/* The target that is violated most: by the share of requests that missed it over the share that may; of token gaps, by
 * their percentile over its limit. */
static enum target_metric worst_target(const struct targets *targets, const struct probe *probe)
{
    uint64_t worst = 0;
    enum target_metric metric = TARGET_TTFT;
    for (uint32_t t = 0; t < targets->count; t++) {
        const struct target *target = &targets->item[t];
        uint64_t may_miss = max_u64(1, probe->counted * (1000 - target->percentile_permille));
        uint64_t excess = mul_div_floor_u64(probe->missed[t], 1000000, may_miss);
        if (target->metric == TARGET_ITL)
            excess =
                max_u64(excess, mul_div_floor_u64((uint64_t)probe->target_ns[t], 1000, (uint64_t)target->limit_ns));
        if (excess > worst) {
            worst = excess;
            metric = target->metric;
        }
    }
    return metric;
}

/* What a verdict looks at. */
struct look {
    const struct candidate *candidate;
    const struct probe *probe;    /* the lowest rate that failed, or, where none passes, hardly any load */
    const struct probe *light;    /* to compare with; NULL where nothing passes: nothing has grown then */
    const struct probe *overload; /* what never rests here is what would have to grow */
};

static bool prefill_saturated(const struct look *look)
{
    return max_u32(look->probe->prefill_busy, look->overload->prefill_busy) >= SATURATED_PERMILLE;
}

static bool nic_saturated(const struct look *look)
{
    return max_u32(look->probe->nic_busy, look->overload->nic_busy) >= SATURATED_PERMILLE;
}

/* Of the decode side's busy time, in permille: what an aggregated worker spends on prompts. */
static uint64_t prompt_share(const struct look *look)
{
    const struct candidate *candidate = look->candidate;
    const struct probe *probe = look->probe;
    if (!candidate->aggregated || probe->decode_busy == 0)
        return 0;
    uint128 prompts_ns_per_s = (uint128)probe->rate_micro_per_s * candidate->prompt_ns / 1000000 / candidate->decode;
    return min_u64(1000, (uint64_t)(prompts_ns_per_s * 1000 * 1000 / (uint64_t)NS_PER_S / probe->decode_busy));
}

/* Whether prompts stretch the steps of an aggregated worker more than the growing batch does: with a share s of the
 * time spent on prompts they take 1 / (1 - s) of the growth of TPOT since nothing else was there, and the batch the
 * rest. */
static bool prompts_interfere(const struct look *look)
{
    uint64_t left = 1000 - prompt_share(look);
    if (look->light == NULL)
        return left < 500;
    uint128 tpot_ns = (uint128)max_i64(0, look->probe->tpot_ns[PROBE_P50]);
    return left * left * tpot_ns < (uint128)1000000 * (uint64_t)max_i64(0, look->light->tpot_ns[PROBE_P50]);
}

/* What a decoder's steps spend most of their time on. */
static enum bound step_bound(const struct probe *probe)
{
    uint32_t most = max_u32(max_u32(probe->decode_compute, probe->decode_bandwidth),
                            max_u32(probe->decode_communication, probe->decode_overhead));
    if (probe->decode_bandwidth == most)
        return BOUND_DECODE_BANDWIDTH;
    if (probe->decode_compute == most)
        return BOUND_DECODE_COMPUTE;
    return probe->decode_communication == most ? BOUND_DECODE_COMMUNICATION : BOUND_DECODE_OVERHEAD;
}

/* Why output tokens come slowly. */
static enum bound decode_bound(const struct look *look)
{
    /* Where one request in ten or more loses its pages and is computed again, memory is what is short. */
    if (look->probe->preempted >= 100)
        return BOUND_KV_CAPACITY;
    if (look->candidate->aggregated && prompts_interfere(look))
        return BOUND_PREFILL_INTERFERENCE;
    return step_bound(look->probe);
}

static enum bound nic_bound(const struct probe *probe)
{
    return probe->nic_op_bound > 500 ? BOUND_NIC_OP_RATE : BOUND_NIC_BANDWIDTH;
}

/* Requests that wait for a prefiller: it computes, or its pages are held by transfers that do not get away. */
static enum bound prefill_bound(const struct look *look)
{
    if (look->candidate->aggregated)
        return prompt_share(look) > 500 ? BOUND_PREFILL_COMPUTE : step_bound(look->probe);
    if (nic_saturated(look) && !prefill_saturated(look))
        return nic_bound(look->probe);
    return BOUND_PREFILL_COMPUTE;
}

/* Requests that wait at the decoder for pages or a hand-off slot. Either is held from the request for prefill to the
 * last byte: where prefillers or NICs are saturated, they are what keeps it, and more pages or slots would only move
 * the queue. */
static enum bound admission_bound(const struct look *look)
{
    if (look->candidate->aggregated)
        return BOUND_KV_CAPACITY;
    if (prefill_saturated(look))
        return BOUND_PREFILL_COMPUTE;
    if (nic_saturated(look))
        return nic_bound(look->probe);
    return look->probe->handoff_wait_ns > look->probe->page_wait_ns ? BOUND_HANDOFFS : BOUND_KV_CAPACITY;
}

/* Requests that are ready and not decoded: a step, or several launched at once, has to end; what is longer than two
 * waits for a place in the batch. */
static enum bound ready_bound(const struct look *look)
{
    int64_t wait_ns = look->probe->span_ns[BOUNDARY_READY];
    return wait_ns > 2 * look->probe->tpot_ns[PROBE_P90] ? BOUND_BATCH_LIMIT : decode_bound(look);
}

/* Which of the first `spans` spans has grown most since nothing had to wait; where nothing is to be compared with, the
 * longest. Span s lies between boundary s and the next. */
static enum bound span_bound(const struct look *look, uint32_t spans)
{
    uint32_t grown = BOUNDARY_PREFILL_STARTED;
    int64_t most = INT64_MIN;
    for (uint32_t s = 0; s < spans; s++) {
        int64_t growth = look->probe->span_ns[s] - (look->light == NULL ? 0 : look->light->span_ns[s]);
        if (growth > most) {
            most = growth;
            grown = s;
        }
    }
    switch (grown) {
    case BOUNDARY_RECEIVED: /* admission wait */
        return admission_bound(look);
    case BOUNDARY_PREFILL_FINISHED: /* exposed transfer */
        return nic_bound(look->probe);
    case BOUNDARY_READY: /* decode queue */
        return ready_bound(look);
    case BOUNDARY_DECODE_STARTED: /* first decode step */
    case BOUNDARY_FIRST_TOKEN:    /* the other ones */
        return decode_bound(look);
    default: /* prefill queue and prefill itself */
        return prefill_bound(look);
    }
}

static enum bound binding(const struct plan *plan, const struct plan_candidate *item)
{
    struct look look = {
        .candidate = &item->candidate,
        .probe = plan_above(item),
        .light = item->reachable ? &item->light : NULL,
        .overload = &item->overload,
    };
    if (look.probe->counted == 0)
        return item->candidate.bound_by;
    /* Where no rate meets the targets, what takes longest without any load is in the way. */
    if (!item->reachable && item->light.completed > 0)
        look.probe = look.overload = &item->light;
    switch (worst_target(&plan->scenario->targets, look.probe)) {
    case TARGET_TPOT:
    case TARGET_ITL:
        return decode_bound(&look);
    case TARGET_E2E:
        return span_bound(&look, SPAN_COUNT);
    case TARGET_TTFT:
        break;
    }
    return span_bound(&look, SPAN_COUNT - 1);
}

const struct probe *plan_at(const struct plan_candidate *item)
{
    return item->whole_done ? &item->whole_at : &item->at[item->worst_seed];
}

const struct probe *plan_above(const struct plan_candidate *item)
{
    return item->whole_done ? &item->whole_above : &item->above[item->worst_seed];
}

/* Dollars an hour over output tokens an hour at a rate; 0: no price is known. */
static uint64_t usd_micros_per_mtok(const struct plan *plan, const struct candidate *candidate, uint64_t rate)
{
    uint64_t mean_output_milli = plan->demand.output_sum * 1000 / plan->demand.count;
    uint64_t tokens_per_hour = mul_div_floor_u64(rate, mean_output_milli * 3600, 1000000000);
    if (candidate->usd_micros_per_hour == 0 || tokens_per_hour == 0)
        return 0;
    return mul_div_ceil_u64(candidate->usd_micros_per_hour, 1000000, tokens_per_hour);
}

/* What a long trace makes of it, played whole: no window of it stands for the others. */
static void take_whole(struct plan_candidate *item)
{
    item->reachable = item->whole_micro_per_s > 0;
    item->rate_micro_per_s = item->whole_micro_per_s;
    item->rate_low_micro_per_s = item->rate_micro_per_s - item->rate_micro_per_s / 64;
    item->rate_high_micro_per_s = item->rate_micro_per_s + item->rate_micro_per_s / 64;
}

void plan_conclude(struct plan *plan, struct plan_candidate *item)
{
    item->searched = true;
    plan_sum_up_rate(item, item->seeds == plan->seeds);
    if (item->whole_done)
        take_whole(item);
    item->bound_by = binding(plan, item);
    if (!item->reachable)
        return;
    item->capped = plan_above(item)->counted == 0;
    uint64_t most = item->overload.completed_micro_per_s;
    if (most > 0) {
        item->saturation_permille = (uint32_t)min_u64(1000, mul_div_floor_u64(item->rate_micro_per_s, 1000, most));
        item->short_probes = item->rate_micro_per_s > plan_with_slack(most, 50);
    }
    item->usd_micros_per_mtok = usd_micros_per_mtok(plan, &item->candidate, item->rate_micro_per_s);
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE)
        item->asked_usd_micros_per_mtok =
            usd_micros_per_mtok(plan, &item->candidate, plan->scenario->plan.rate_micro_per_s);
}

/* ---- Frontier ---------------------------------------------------------------------------------------------------- */

static void add_point(struct frontier_point *points, uint32_t *count, uint32_t capacity,
                      const struct candidate *candidate, const struct probe *probe)
{
    if (!probe->complete || probe->tpot_ns[PROBE_P50] <= 0 || *count == capacity)
        return;
    struct frontier_point *point = &points[(*count)++];
    *point = (struct frontier_point){
        .aggregated = candidate->aggregated,
        .rate_micro_per_s = probe->rate_micro_per_s,
        .tokens_per_s_per_user_milli = (uint64_t)(1000 * NS_PER_S / probe->tpot_ns[PROBE_P50]),
        .tokens_per_s_per_gpu_milli = probe->output_tokens_per_s * 1000 / candidate->gpus,
    };
    snprintf(point->label, sizeof point->label, "%s", candidate->label);
}

static int by_user(const void *left, const void *right)
{
    const struct frontier_point *a = left;
    const struct frontier_point *b = right;
    if (a->aggregated != b->aggregated)
        return a->aggregated ? 1 : -1;
    if (a->tokens_per_s_per_user_milli != b->tokens_per_s_per_user_milli)
        return a->tokens_per_s_per_user_milli > b->tokens_per_s_per_user_milli ? -1 : 1;
    if (a->tokens_per_s_per_gpu_milli != b->tokens_per_s_per_gpu_milli)
        return a->tokens_per_s_per_gpu_milli > b->tokens_per_s_per_gpu_milli ? -1 : 1;
    int order = strcmp(a->label, b->label);
    if (order != 0)
        return order;
    return a->rate_micro_per_s < b->rate_micro_per_s ? -1 : a->rate_micro_per_s > b->rate_micro_per_s;
}

/* The points that no other of their kind beats in both, from the fastest for a user to the most per GPU; of neighbours
 * within a tenth for the user, the one that yields more. */
void plan_frontier(struct plan *plan)
{
    struct plan_result *result = plan->result;
    uint32_t capacity = result->count * (PLAN_SEEDS_MAX + 2);
    struct frontier_point *points = memory_zeroed(capacity + 1, sizeof *points);
    uint32_t count = 0;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        if (!item->searched)
            continue;
        for (uint32_t s = 0; s < item->seeds; s++)
            if (item->seed_micro_per_s[s] > 0)
                add_point(points, &count, capacity, &item->candidate, &item->at[s]);
        add_point(points, &count, capacity, &item->candidate, &item->light);
        add_point(points, &count, capacity, &item->candidate, &item->overload);
    }
    qsort(points, count, sizeof *points, by_user);
    uint64_t best = 0;
    uint64_t started_at = 0; /* the fastest point of the neighbours in hand */
    for (uint32_t i = 0; i < count; i++) {
        bool new_kind = i == 0 || points[i].aggregated != points[i - 1].aggregated;
        if (!new_kind && points[i].tokens_per_s_per_gpu_milli <= best)
            continue;
        best = points[i].tokens_per_s_per_gpu_milli;
        uint64_t user = points[i].tokens_per_s_per_user_milli;
        bool neighbour = !new_kind && user * 10 > started_at * 9;
        if (!neighbour)
            started_at = user;
        if (neighbour)
            result->frontier[result->frontier_count - 1] = points[i];
        else if (result->frontier_count < PLAN_FRONTIER_MAX)
            result->frontier[result->frontier_count++] = points[i];
    }
    free(points);
}

/* ---- Recommendation ---------------------------------------------------------------------------------------------- */

bool plan_serves(const struct plan *plan, uint64_t rate_micro_per_s)
{
    return plan->scenario->plan.goal != PLAN_SERVE_RATE || rate_micro_per_s >= plan->scenario->plan.rate_micro_per_s;
}

/* Whether a candidate is an answer: of windows of a trace only who has played all of it. */
static bool eligible(const struct plan *plan, const struct plan_candidate *item)
{
    return item->searched && item->reachable && (!plan->windows || item->whole_done) &&
           plan_serves(plan, item->rate_low_micro_per_s);
}

const struct plan_candidate *plan_best_of(const struct plan *plan, bool aggregated)
{
    const struct plan_candidate *best = NULL;
    for (uint32_t i = 0; i < plan->result->count; i++) {
        const struct plan_candidate *item = &plan->result->items[i];
        if (item->candidate.aggregated == aggregated && eligible(plan, item) &&
            (best == NULL || plan_preferred(plan, item, best)))
            best = item;
    }
    return best;
}

/* Of those that are not `best`, the preferred one. */
static uint32_t runner_up(const struct plan *plan, uint32_t best)
{
    const struct plan_result *result = plan->result;
    uint32_t next = NO_CANDIDATE;
    for (uint32_t i = 0; i < result->count; i++)
        if (i != best && eligible(plan, &result->items[i]) &&
            (next == NO_CANDIDATE || plan_preferred(plan, &result->items[i], &result->items[next])))
            next = i;
    return next;
}

/* Whether the first is closer to an answer than the second, of which none is one. */
static bool closer(const struct plan_candidate *a, const struct plan_candidate *b)
{
    if (a->searched != b->searched)
        return a->searched;
    if (a->searched && a->rate_micro_per_s != b->rate_micro_per_s)
        return a->rate_micro_per_s > b->rate_micro_per_s;
    bool deployable_a = a->candidate.refusal[0] == '\0';
    bool deployable_b = b->candidate.refusal[0] == '\0';
    if (deployable_a != deployable_b)
        return deployable_a;
    return a->candidate.bound_micro_per_s > b->candidate.bound_micro_per_s;
}

/* Why nothing can be recommended: what stands in the way of the candidate that came closest. */
static void find_closest(struct plan_result *result)
{
    uint32_t short_of_memory = NO_CANDIDATE;
    result->closest = 0;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        if (closer(item, &result->items[result->closest]))
            result->closest = i;
        if (short_of_memory == NO_CANDIDATE && item->candidate.refusal[0] == '\0' &&
            item->candidate.bound_by == BOUND_KV_CAPACITY)
            short_of_memory = i;
    }
    const struct plan_candidate *closest = &result->items[result->closest];
    if (result->interrupted)
        result->outcome = PLAN_INTERRUPTED;
    else if (closest->searched)
        result->outcome = closest->reachable ? PLAN_NONE_SERVES : PLAN_NONE_MEETS;
    else if (closest->candidate.refusal[0] != '\0')
        result->outcome = PLAN_NONE_DEPLOYABLE;
    else if (closest->candidate.bound_micro_per_s > 0)
        result->outcome = PLAN_BOUNDS_TOO_LOW;
    else if (short_of_memory != NO_CANDIDATE) {
        result->outcome = PLAN_NONE_HOLDS_ONE;
        result->closest = short_of_memory;
    } else {
        result->outcome = PLAN_NONE_FAST_ENOUGH;
    }
}

void plan_pick(struct plan *plan)
{
    struct plan_result *result = plan->result;
    /* The error of the model may have chosen another one of those that the runs do not tell apart. */
    if (!result->uncertainty.known)
        result->best = runner_up(plan, NO_CANDIDATE);
    result->runner_up = result->alternative = NO_CANDIDATE;
    if (result->best == NO_CANDIDATE) {
        find_closest(result);
        return;
    }
    result->outcome = PLAN_FOUND;
    result->runner_up = runner_up(plan, result->best);
    const struct plan_candidate *other = plan_best_of(plan, !result->items[result->best].candidate.aggregated);
    if (other != NULL)
        result->alternative = (uint32_t)(other - result->items);
}

/* The rival between which and the best one these runs do not decide: its interval reaches the best one's; or, where a
 * rate is to be served for the least money, it is cheaper and its interval reaches that rate. */
const struct plan_candidate *plan_rival(const struct plan *plan)
{
    const struct plan_result *result = plan->result;
    const struct plan_candidate *best = &result->items[result->best];
    const struct plan_candidate *closest = NULL;
    bool serve = plan->scenario->plan.goal == PLAN_SERVE_RATE;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        if (i == result->best || !item->searched || !item->reachable || (plan->windows && !item->whole_done))
            continue;
        bool decided =
            serve ? item->candidate.cost >= best->candidate.cost || !plan_serves(plan, item->rate_high_micro_per_s)
                  : plan_better(best->rate_low_micro_per_s, &best->candidate, item->rate_high_micro_per_s,
                                &item->candidate);
        if (!decided && (closest == NULL || plan_preferred(plan, item, closest)))
            closest = item;
    }
    return closest;
}
