/* What the probes of a candidate say: its rate and how sure that is, what binds it, what it costs; the frontier; and the
 * recommendation.
 */
#include "base/arith.h"
#include "sim/plan/plan_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rate -------------------------------------------------------------------------------------------------------- */

/* Two-sided 95 % points of Student's t with n - 1 degrees of freedom, in thousandths. Source: any table of it. */
static uint64_t student_t_milli(uint32_t n)
{
    static const uint32_t points[] = {0,    0,    12706, 4303, 3182, 2776, 2571, 2447, 2365,
                                      2306, 2262, 2228,  2201, 2179, 2160, 2145, 2131};
    return n < sizeof points / sizeof *points ? points[n] : 2131;
}

static void sum_up_rate(struct plan_candidate *item)
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
        half = max_u64(half, (uint64_t)(error * (double)student_t_milli(seeds) / 1000));
    }
    item->rate_low_micro_per_s = item->rate_micro_per_s - min_u64(half, item->rate_micro_per_s);
    item->rate_high_micro_per_s = item->rate_micro_per_s + half;
}

/* ---- What binds -------------------------------------------------------------------------------------------------- */

/* The target that is violated most: by the share of requests that missed it over the share that may. */
static enum target_metric worst_target(const struct targets *targets, const struct probe *probe)
{
    uint64_t worst = 0;
    enum target_metric metric = TARGET_TTFT;
    for (uint32_t t = 0; t < targets->count; t++) {
        const struct target *target = &targets->item[t];
        uint64_t excess = target->metric == TARGET_ITL
                              ? mul_div_floor_u64((uint64_t)probe->target_ns[t], 1000, (uint64_t)target->limit_ns)
                              : probe->missed[t] * 1000 / (1001 - target->percentile_permille);
        if (excess > worst) {
            worst = excess;
            metric = target->metric;
        }
    }
    return metric;
}

/* In a mixed instance the chunks of prompts take a share of the time that decoding would have to itself; where that is the
 * larger share, it is what stretches the steps. */
static bool interferes(const struct candidate *candidate, const struct probe *probe)
{
    uint128 prompts_ns = (uint128)probe->rate_micro_per_s * candidate->prompt_ns;
    return candidate->mixed && prompts_ns > (uint128)candidate->decode * 1000000 * (uint64_t)NS_PER_S / 2;
}

static enum bound decode_bound(const struct candidate *candidate, const struct probe *probe)
{
    if (interferes(candidate, probe))
        return BOUND_PREFILL_INTERFERENCE;
    uint32_t most = max_u32(max_u32(probe->decode_compute, probe->decode_bandwidth),
                            max_u32(probe->decode_communication, probe->decode_overhead));
    if (probe->decode_bandwidth == most)
        return BOUND_DECODE_BANDWIDTH;
    if (probe->decode_compute == most)
        return BOUND_DECODE_COMPUTE;
    return probe->decode_communication == most ? BOUND_DECODE_COMMUNICATION : BOUND_DECODE_OVERHEAD;
}

/* Which span of the time to first token has grown most since nothing had to wait. */
static enum bound ttft_bound(const struct candidate *candidate, const struct probe *above, const struct probe *light)
{
    uint32_t grown = 1;
    int64_t most = INT64_MIN;
    for (uint32_t s = 0; s < SPAN_COUNT - 1; s++) {
        int64_t growth = above->span_ns[s] - light->span_ns[s];
        if (growth > most) {
            most = growth;
            grown = s;
        }
    }
    switch (grown) {
    case BOUNDARY_RECEIVED: /* span 1: from received to dispatched, waiting for pages or a hand-off slot */
        return above->handoff_wait_ns > above->page_wait_ns ? BOUND_HANDOFFS : BOUND_KV_CAPACITY;
    case BOUNDARY_PREFILL_FINISHED: /* span 4: exposed transfer */
        return above->nic_op_bound > 500 ? BOUND_NIC_OP_RATE : BOUND_NIC_BANDWIDTH;
    case BOUNDARY_READY: /* span 5: decode queue */
        return decode_bound(candidate, above) == BOUND_DECODE_OVERHEAD ? BOUND_BATCH_LIMIT : decode_bound(candidate, above);
    case BOUNDARY_DECODE_STARTED: /* span 6: first decode step */
        return decode_bound(candidate, above);
    default: /* prefill queue and prefill itself */
        return BOUND_PREFILL_COMPUTE;
    }
}

static enum bound binding(const struct plan *plan, const struct plan_candidate *item)
{
    const struct candidate *candidate = &item->candidate;
    const struct probe *above = item->reachable ? &item->above[item->worst_seed] : &item->light;
    if (above->counted == 0)
        return candidate->bound_by;
    enum target_metric metric = worst_target(&plan->scenario->targets, above);
    if (metric == TARGET_TPOT || metric == TARGET_ITL)
        return decode_bound(candidate, above);
    if (metric == TARGET_E2E && above->span_ns[SPAN_COUNT - 1] - item->light.span_ns[SPAN_COUNT - 1] >
                                    above->span_ns[2] - item->light.span_ns[2])
        return decode_bound(candidate, above);
    return ttft_bound(candidate, above, &item->light);
}

void plan_conclude(struct plan *plan, struct plan_candidate *item)
{
    item->searched = true;
    sum_up_rate(item);
    item->bound_by = binding(plan, item);
    if (!item->reachable)
        return;
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
    struct frontier_point *points = calloc(capacity + 1, sizeof *points);
    CHECK(points != NULL);
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

static void pick(struct plan *plan)
{
    struct plan_result *result = plan->result;
    bool serve = plan->scenario->plan.goal == PLAN_SERVE_RATE;
    uint64_t wanted = plan->scenario->plan.rate_micro_per_s;
    result->best = result->colocated = NO_CANDIDATE;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        if (!item->reachable)
            continue;
        uint32_t *best = item->candidate.mixed ? &result->colocated : &result->best;
        if (serve && !item->candidate.mixed && item->rate_low_micro_per_s < wanted)
            continue;
        const struct plan_candidate *other = *best == NO_CANDIDATE ? NULL : &result->items[*best];
        bool better;
        if (other == NULL)
            better = true;
        else if (serve && !item->candidate.mixed &&
                 item->candidate.usd_micros_per_hour != other->candidate.usd_micros_per_hour)
            better = item->candidate.usd_micros_per_hour < other->candidate.usd_micros_per_hour;
        else
            better = plan_better(item->rate_micro_per_s, &item->candidate, other->rate_micro_per_s,
                                 &other->candidate);
        if (better)
            *best = i;
    }
}

/* The cheaper-to-run rival whose interval reaches the best one's: the choice between them is not decided by these runs. */
static const struct plan_candidate *rival(const struct plan_result *result)
{
    const struct plan_candidate *best = &result->items[result->best];
    const struct plan_candidate *closest = NULL;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct plan_candidate *item = &result->items[i];
        if (i == result->best || item->candidate.mixed || !item->reachable)
            continue;
        if (plan_better(best->rate_low_micro_per_s, &best->candidate, item->rate_high_micro_per_s, &item->candidate))
            continue;
        if (closest == NULL || plan_better(item->rate_micro_per_s, &item->candidate, closest->rate_micro_per_s,
                                           &closest->candidate))
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

static void explain(struct plan_result *result)
{
    const struct plan_candidate *best = &result->items[result->best];
    char sentence[512];
    const struct scenario *scenario = best->candidate.scenario;
    if (scenario->plan.goal == PLAN_SERVE_RATE) {
        snprintf(sentence, sizeof sentence, "The cheapest that surely serves %.2f requests/s, at $%.2f an hour: ",
                 per_s(scenario->plan.rate_micro_per_s), per_s(best->candidate.usd_micros_per_hour));
        append(result->why, sizeof result->why, sentence);
    }
    snprintf(sentence, sizeof sentence,
             "%s serves %.2f requests/s within the targets (%.2f to %.2f, 95 %%), %.3f per GPU on %u GPUs; "
             "what binds it is %s.",
             best->candidate.label, per_s(best->rate_micro_per_s), per_s(best->rate_low_micro_per_s),
             per_s(best->rate_high_micro_per_s), per_s(best->rate_micro_per_s) / best->candidate.gpus,
             best->candidate.gpus, bound_name(best->bound_by));
    append(result->why, sizeof result->why, sentence);
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
    const struct plan_candidate *close = rival(result);
    if (close != NULL) {
        snprintf(sentence, sizeof sentence,
                 " %s (%.2f to %.2f/s) lies within the error of these runs: more seeds, or a measurement, would decide.",
                 close->candidate.label, per_s(close->rate_low_micro_per_s), per_s(close->rate_high_micro_per_s));
        append(result->why, sizeof result->why, sentence);
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
    if (closest == NULL) {
        const struct candidate *first = &result->items[0].candidate;
        snprintf(result->why, sizeof result->why, "No candidate can be deployed: %s",
                 first->refusal[0] != '\0' ? first->refusal : bound_name(first->bound_by));
    } else if (closest->reachable) {
        snprintf(result->why, sizeof result->why,
                 "No candidate serves %.2f requests/s: the most is %.2f/s (%.2f to %.2f) by %s, bound by %s. Allow more "
                 "instances.",
                 per_s(plan->scenario->plan.rate_micro_per_s), per_s(closest->rate_micro_per_s),
                 per_s(closest->rate_low_micro_per_s), per_s(closest->rate_high_micro_per_s),
                 closest->candidate.label, bound_name(closest->bound_by));
    } else {
        snprintf(result->why, sizeof result->why,
                 "No candidate meets the targets at any rate. Unloaded, %s has TTFT p95 %.0f ms and TPOT p95 %.1f ms; "
                 "what binds it is %s.",
                 closest->candidate.label, (double)closest->light.ttft_ns[PROBE_P95] / 1e6,
                 (double)closest->light.tpot_ns[PROBE_P95] / 1e6, bound_name(closest->bound_by));
    }
}

void plan_recommend(struct plan *plan)
{
    pick(plan);
    if (plan->result->best == NO_CANDIDATE)
        explain_none(plan);
    else
        explain(plan->result);
}
