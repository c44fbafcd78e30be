/* What the probes of a candidate say: its rate and how sure that is, what binds it, what it costs; the frontier; and
 * the recommendation.
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

void plan_sum_up_rate(struct plan_candidate *item)
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
    /* The bracket itself leaves three per cent open; no interval is narrower than that. One seed has no interval: it is
     * taken to be as far off as the slack that kept it from more seeds. */
    uint64_t half = item->rate_micro_per_s / (seeds > 1 ? 64 : 10);
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

/* Of the decode side's busy time, in permille: what a mixed instance spends on prompts. */
static uint64_t prompt_share(const struct look *look)
{
    const struct candidate *candidate = look->candidate;
    const struct probe *probe = look->probe;
    if (!candidate->mixed || probe->decode_busy == 0)
        return 0;
    uint128 prompts_ns_per_s = (uint128)probe->rate_micro_per_s * candidate->prompt_ns / 1000000 / candidate->decode;
    return min_u64(1000, (uint64_t)(prompts_ns_per_s * 1000 * 1000 / (uint64_t)NS_PER_S / probe->decode_busy));
}

/* Whether prompts stretch the steps of a mixed instance more than the growing batch does: with a share s of the time
 * spent on prompts they take 1 / (1 - s) of the growth of TPOT since nothing else was there, and the batch the rest. */
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
    if (look->candidate->mixed && prompts_interfere(look))
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
    if (look->candidate->mixed)
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
    if (look->candidate->mixed)
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
        .probe = &item->above[item->worst_seed],
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

void plan_conclude(struct plan *plan, struct plan_candidate *item)
{
    item->searched = true;
    plan_sum_up_rate(item);
    item->bound_by = binding(plan, item);
    if (!item->reachable)
        return;
    item->capped = item->above[item->worst_seed].counted == 0;
    if (item->overload.completed_micro_per_s > 0)
        item->saturation_permille = (uint32_t)min_u64(
            9999, mul_div_floor_u64(item->rate_micro_per_s, 1000, item->overload.completed_micro_per_s));
    /* Dollars an hour over output tokens an hour at that rate. */
    uint64_t mean_output_milli = plan->demand.output_sum * 1000 / plan->demand.count;
    uint64_t tokens_per_hour = mul_div_floor_u64(item->rate_micro_per_s, mean_output_milli * 3600, 1000000000);
    if (item->candidate.usd_micros_per_hour > 0 && tokens_per_hour > 0)
        item->usd_micros_per_mtok = mul_div_ceil_u64(item->candidate.usd_micros_per_hour, 1000000, tokens_per_hour);
}

/* ---- Frontier ---------------------------------------------------------------------------------------------------- */

static void add_point(struct frontier_point *points, uint32_t *count, uint32_t capacity,
                      const struct candidate *candidate, const struct probe *probe)
{
    if (!probe->complete || probe->tpot_ns[PROBE_P50] <= 0 || *count == capacity)
        return;
    struct frontier_point *point = &points[(*count)++];
    *point = (struct frontier_point){
        .mixed = candidate->mixed,
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
    if (a->mixed != b->mixed)
        return a->mixed ? 1 : -1;
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
        bool new_kind = i == 0 || points[i].mixed != points[i - 1].mixed;
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

void plan_pick(struct plan *plan)
{
    struct plan_result *result = plan->result;
    result->best = result->colocated = NO_CANDIDATE;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        bool mixed = item->candidate.mixed;
        uint32_t *best = mixed ? &result->colocated : &result->best;
        if (!item->reachable || (!mixed && !plan_serves(plan, item->rate_low_micro_per_s)))
            continue;
        /* Colocated candidates are all on the same machines: the one that serves most stands for them. */
        const struct plan_candidate *other = *best == NO_CANDIDATE ? NULL : &result->items[*best];
        if (other == NULL ||
            (mixed ? plan_better(item->rate_micro_per_s, &item->candidate, other->rate_micro_per_s, &other->candidate)
                   : plan_preferred(plan, item, other)))
            *best = i;
    }
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
        if (i == result->best || item->candidate.mixed || !item->reachable)
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

static double per_s(uint64_t micro)
{
    return (double)micro / 1e6;
}

static void append(char *text, size_t size, const char *more)
{
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s", more);
}

static void explain(const struct plan *plan)
{
    struct plan_result *result = plan->result;
    const struct plan_candidate *best = &result->items[result->best];
    char sentence[512];
    snprintf(result->why, sizeof result->why,
             "%s serves %.2f requests/s within the targets (%.2f to %.2f, 95 %%), %.3f per GPU on %u GPUs; "
             "what binds it is %s%s.",
             best->candidate.label, per_s(best->rate_micro_per_s), per_s(best->rate_low_micro_per_s),
             per_s(best->rate_high_micro_per_s), per_s(best->rate_micro_per_s) / best->candidate.gpus,
             best->candidate.gpus, bound_name(best->bound_by),
             best->capped ? " (its probes ended before their queues reached the targets)" : "");
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE) {
        snprintf(sentence, sizeof sentence, " It is the cheapest that serves %.2f/s.",
                 per_s(plan->scenario->plan.rate_micro_per_s));
        append(result->why, sizeof result->why, sentence);
    }
    if (result->colocated != NO_CANDIDATE) {
        const struct plan_candidate *mixed = &result->items[result->colocated];
        double gain = per_s(best->rate_micro_per_s) / best->candidate.gpus /
                          (per_s(mixed->rate_micro_per_s) / mixed->candidate.gpus) -
                      1;
        snprintf(sentence, sizeof sentence,
                 " Colocated serving (%s) reaches %.2f/s, %.3f per GPU: disaggregation serves %.0f %% %s.",
                 mixed->candidate.label, per_s(mixed->rate_micro_per_s),
                 per_s(mixed->rate_micro_per_s) / mixed->candidate.gpus, gain < 0 ? -gain * 100 : gain * 100,
                 gain < 0 ? "less, so colocated is the better choice here" : "more");
        append(result->why, sizeof result->why, sentence);
    }
    if (result->doubt.known) {
        plan_explain_doubt(plan, result->why, sizeof result->why);
        return;
    }
    const struct plan_candidate *close = plan_rival(plan);
    if (close != NULL) {
        snprintf(
            sentence, sizeof sentence,
            " %s (%.2f to %.2f/s) lies within the error of these runs: more seeds, or a measurement, would decide.",
            close->candidate.label, per_s(close->rate_low_micro_per_s), per_s(close->rate_high_micro_per_s));
        append(result->why, sizeof result->why, sentence);
    }
}

/* The most promising candidate of which something holds. */
static const struct candidate *first_with(const struct plan_result *result, bool deployable, enum bound bound)
{
    const struct candidate *first = NULL;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct candidate *candidate = &result->items[i].candidate;
        if (!candidate->mixed && (candidate->refusal[0] == '\0') == deployable &&
            (bound == BOUND_NONE || candidate->bound_by == bound) &&
            (first == NULL || candidate->bound_micro_per_s > first->bound_micro_per_s))
            first = candidate;
    }
    return first;
}

/* Nothing was searched: what the candidates lack is known without. */
static void explain_none_searched(const struct plan *plan)
{
    struct plan_result *result = plan->result;
    const struct candidate *able = first_with(result, true, BOUND_NONE);
    const struct candidate *short_of_memory = first_with(result, true, BOUND_KV_CAPACITY);
    if (able == NULL) {
        const struct candidate *first = first_with(result, false, BOUND_NONE);
        snprintf(result->why, sizeof result->why, "No candidate can be deployed. %s: %s", first->label, first->refusal);
    } else if (able->bound_micro_per_s > 0) {
        snprintf(result->why, sizeof result->why,
                 "No candidate can serve %.2f requests/s: at its bound, %s carries %.2f/s (%s). Allow more instances.",
                 per_s(plan->scenario->plan.rate_micro_per_s), able->label, per_s(able->bound_micro_per_s),
                 bound_name(able->bound_by));
    } else if (short_of_memory != NULL) {
        snprintf(result->why, sizeof result->why,
                 "No candidate can decode one request of the load: the memory that the model leaves to %s is less than "
                 "its KV. What binds is %s.",
                 short_of_memory->label, bound_name(BOUND_KV_CAPACITY));
    } else {
        snprintf(result->why, sizeof result->why,
                 "No candidate meets the target on output tokens at any rate: alone in the batch, a request on %s gets "
                 "one every %.1f ms. What binds is %s.",
                 able->label, (double)able->token_ns / 1e6, bound_name(able->bound_by));
    }
}

/* Why nothing can be recommended: the candidate that came closest says what stands in the way. */
static void explain_none(const struct plan *plan)
{
    struct plan_result *result = plan->result;
    const struct plan_candidate *closest = NULL;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        if (item->searched && !item->candidate.mixed &&
            (closest == NULL || item->rate_micro_per_s > closest->rate_micro_per_s))
            closest = item;
    }
    if (result->interrupted) {
        snprintf(result->why, sizeof result->why, "Interrupted before there was an answer.");
    } else if (closest == NULL) {
        explain_none_searched(plan);
    } else if (closest->reachable) {
        snprintf(
            result->why, sizeof result->why,
            "No candidate serves %.2f requests/s: the most is %.2f/s (%.2f to %.2f) by %s, bound by %s. Allow more "
            "instances.",
            per_s(plan->scenario->plan.rate_micro_per_s), per_s(closest->rate_micro_per_s),
            per_s(closest->rate_low_micro_per_s), per_s(closest->rate_high_micro_per_s), closest->candidate.label,
            bound_name(closest->bound_by));
    } else {
        snprintf(result->why, sizeof result->why,
                 "No candidate meets the targets at any rate. Unloaded, %s has TTFT p95 %.0f ms and TPOT p95 %.1f ms; "
                 "what binds it is %s.",
                 closest->candidate.label, (double)closest->light.ttft_ns[PROBE_P95] / 1e6,
                 (double)closest->light.tpot_ns[PROBE_P95] / 1e6, bound_name(closest->bound_by));
    }
}

void plan_explain(struct plan *plan)
{
    if (plan->result->best == NO_CANDIDATE)
        explain_none(plan);
    else
        explain(plan);
}
