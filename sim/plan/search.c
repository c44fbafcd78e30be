/* The search for the highest rate that meets the targets: one candidate under one seed.
 *
 * The bracket starts at a share of the candidate's bound and moves by fifths until one end passes and the other fails;
 * then it is halved until its ends are within three per cent. Later seeds start where the first one ended and move by
 * twentieths. Rates are integers and each step is a function of the bracket
 * alone, so a repeated search asks for the same probes and finds them in the store.
 */
#include "base/arith.h"
#include "host/interrupt.h"
#include "host/user_error.h"
#include "sim/plan/plan_internal.h"

#include <stdio.h>

#define LIGHT_REQUESTS 200
#define OVERLOAD_REQUESTS_MIN 1000

/* Names a probe in the store: the candidate's label, the share of the load it stands for, and what its steps take. */
static void probe_label(const struct candidate *candidate, uint32_t requests, bool early, char *label, size_t size)
{
    int length = snprintf(label, size, "%s, %u requests%s", candidate->label, requests, early ? "" : ", to the end");
    if (!step_scale_is_none(candidate->scale) && length > 0 && (size_t)length < size)
        snprintf(label + length, size - (size_t)length, ", steps x %u / %u", candidate->scale.prefill_permille,
                 candidate->scale.decode_permille);
}

static void count_probe(struct plan *plan, const struct candidate *candidate, uint64_t rate_micro_per_s, bool found)
{
    char note[320];
    if (found)
        plan->result->probes_found++;
    else
        plan->result->probes_run++;
    snprintf(note, sizeof note, "%s at %llu.%02llu/s", candidate->label,
             (unsigned long long)(rate_micro_per_s / 1000000), (unsigned long long)(rate_micro_per_s / 10000 % 100));
    progress_note(plan->options->progress, note);
}

static void fail(struct plan *plan, const struct candidate *candidate, enum run_status status, const char *text)
{
    if (plan->failure != PLAN_DONE)
        return;
    plan->failure = status == RUN_NO_PROGRESS ? PLAN_NO_PROGRESS
                    : status == RUN_INVARIANT ? PLAN_INVARIANT
                                              : PLAN_REFUSED;
    user_error_set(plan->error, NULL, 0, NULL, "%s: %s", candidate->label, text);
}

bool plan_probe(struct plan *plan, const struct candidate *candidate, uint64_t rate_micro_per_s, uint64_t seed,
                uint32_t requests, bool early, struct probe *probe)
{
    const struct probe_store *store = &plan->options->store;
    char label[320];
    struct user_error error = {.set = false};
    probe_label(candidate, requests, early, label, sizeof label);
    CHECK(pthread_mutex_lock(&plan->lock) == 0);
    bool found = store->find != NULL && store->find(store->self, label, rate_micro_per_s, seed, probe);
    bool failed = plan->failure != PLAN_DONE;
    if (found)
        count_probe(plan, candidate, rate_micro_per_s, true);
    CHECK(pthread_mutex_unlock(&plan->lock) == 0);
    if (found || failed || interrupt_requested())
        return found;
    struct probe_input input = {
        .scenario = candidate->scenario,
        .choice = &candidate->choice,
        .models = &candidate->models,
        .scale = step_scale_is_none(candidate->scale) ? NULL : &candidate->scale,
        .recorded = plan->recorded,
        .rate_micro_per_s = rate_micro_per_s,
        .seed = seed,
        .seeds = plan->seeds,
        .requests = requests,
        .stop_early = early,
    };
    enum run_status status;
    bool ran = probe_run(&input, probe, &status, &error);
    CHECK(pthread_mutex_lock(&plan->lock) == 0);
    count_probe(plan, candidate, rate_micro_per_s, false);
    if (!ran) {
        fail(plan, candidate, status, error.text);
    } else if (store->keep != NULL && !store->keep(store->self, label, probe, &error)) {
        fail(plan, candidate, RUN_REFUSED, error.text);
        ran = false;
    }
    CHECK(pthread_mutex_unlock(&plan->lock) == 0);
    return ran;
}

/* The next rate to try; 0 when the bracket is narrow enough or an end of the range is. */
static uint64_t next_rate(const struct bracket *bracket, const struct search_range *range)
{
    if (bracket->low == 0 && bracket->high == 0)
        return range->start;
    if (bracket->high == 0)
        return bracket->low >= range->ceiling ? 0
                                              : min_u64(range->ceiling, bracket->low + bracket->low / range->part + 1);
    if (bracket->low == 0) {
        uint64_t rate = bracket->high - bracket->high / range->part;
        return rate < range->floor || rate == bracket->high ? 0 : rate;
    }
    if (bracket->high - bracket->low <= bracket->low / range->fine)
        return 0;
    return bracket->low + (bracket->high - bracket->low) / 2;
}

bool plan_search_rate(struct plan *plan, const struct candidate *candidate, const struct search_range *range,
                      uint64_t seed, uint32_t requests, uint64_t *rate, struct probe *at, struct probe *above)
{
    struct bracket bracket = range->bracket;
    struct probe probe;
    uint64_t next;
    while ((next = next_rate(&bracket, range)) != 0) {
        if (!plan_probe(plan, candidate, next, seed, requests, true, &probe))
            return false;
        *(probe.passed ? &bracket.low : &bracket.high) = next;
        struct probe *kept = probe.passed ? at : above;
        if (kept != NULL)
            *kept = probe;
    }
    *rate = bracket.low;
    return true;
}

/* What a candidate must serve under a seed to stay in the running: the rate that is to be served, or, less the slack,
 * as much for its cost as the rival under the same seed. 0: it need not. */
static uint64_t challenge(const struct plan *plan, const struct candidate *candidate,
                          const struct plan_candidate *rival, uint32_t seed_index)
{
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE)
        return plan->scenario->plan.rate_micro_per_s;
    if (rival == NULL)
        return 0;
    uint64_t equal =
        mul_div_floor_u64(rival->seed_micro_per_s[seed_index], candidate->cost, max_u64(1, rival->candidate.cost));
    return mul_div_floor_u64(equal, 1000, 1000 + SEED_SLACK_PERMILLE);
}

/* Whether the candidate meets none of the challenges, one a window; the first seed alone where seeds are alike. The
 * answer to the first is noted in the bracket. False when interrupted or failed. */
static bool meet_challenges(struct plan *plan, struct plan_candidate *item, const struct plan_candidate *rival,
                            struct bracket *bracket, bool *dismissed)
{
    uint32_t windows = plan->windows ? plan->seeds : 1;
    *dismissed = false;
    for (uint32_t s = 0; s < windows; s++) {
        uint64_t rate = challenge(plan, &item->candidate, rival, s);
        if (rate == 0)
            return true;
        struct probe probe;
        if (!plan_probe(plan, &item->candidate, rate, s + 1, plan->requests, true, &probe))
            return false;
        if (s == 0 && probe.passed)
            item->at[0] = probe;
        if (s == 0 && !probe.passed)
            item->above[0] = probe;
        if (s == 0)
            *(probe.passed ? &bracket->low : &bracket->high) = rate;
        if (probe.passed)
            return true;
        item->dismissed_micro_per_s = max_u64(item->dismissed_micro_per_s, rate);
    }
    *dismissed = true;
    return true;
}

/* The whole trace, from where its windows are. */
static void search_whole(struct plan *plan, struct plan_candidate *item)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < plan->seeds; s++)
        sum += item->seed_micro_per_s[s];
    uint64_t start = max_u64(1000, sum / plan->seeds);
    struct search_range range = {.start = start, .floor = max_u64(1, start / 64), .part = 8, .fine = 32};
    range.ceiling = max_u64(start, plan_with_slack(item->candidate.bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE));
    item->whole_done = plan_search_rate(plan, &item->candidate, &range, 1, plan->rows, &item->whole_micro_per_s,
                                        &item->whole_at, &item->whole_above);
}

void plan_search_seed(struct plan *plan, struct plan_candidate *item, uint32_t seed_index,
                      const struct plan_candidate *rival, bool challenged)
{
    const struct candidate *candidate = &item->candidate;
    if (seed_index == WHOLE_TRACE) {
        search_whole(plan, item);
        return;
    }
    uint64_t seed = seed_index + 1;
    uint64_t start = max_u64(1000, candidate->likely_micro_per_s / 10 * 7);
    struct search_range range = {.start = start, .floor = max_u64(1, start / 64), .part = 5, .fine = 32};
    range.ceiling = max_u64(start, plan_with_slack(candidate->bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE));
    if (seed_index > 0 && item->seed_micro_per_s[0] > 0) {
        range.start = item->seed_micro_per_s[0];
        range.part = 20;
    }
    uint32_t requests = plan->requests;
    uint64_t rate;
    if (seed_index == 0 && !plan_probe(plan, candidate, max_u64(1, start / 20), seed, min_u32(LIGHT_REQUESTS, requests),
                                       false, &item->light))
        return;
    if (seed_index == 0 && challenged) {
        bool dismissed;
        if (!meet_challenges(plan, item, rival, &range.bracket, &dismissed))
            return;
        if (dismissed) {
            item->seed_done[0] = true;
            return;
        }
        item->dismissed_micro_per_s = 0;
    }
    if (!plan_search_rate(plan, candidate, &range, seed, requests, &rate, &item->at[seed_index],
                          &item->above[seed_index]))
        return;
    uint32_t overloading = max_u32(requests / 4, min_u32(OVERLOAD_REQUESTS_MIN, requests));
    if (seed_index == 0 &&
        !plan_probe(plan, candidate, 2 * max_u64(rate, start), seed, overloading, false, &item->overload))
        return;
    item->seed_micro_per_s[seed_index] = rate;
    item->seed_done[seed_index] = true;
}
