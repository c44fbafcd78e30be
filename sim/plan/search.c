/* The search for the highest rate that meets the targets: one candidate under one seed.
 *
 * The bracket starts at a share of the candidate's bound and moves by fifths until one end passes and the other fails;
 * then it is halved until its ends are within three per cent. Later seeds start where the first one ended and move by
 * twentieths. Rates are integers and each step is a function of the bracket
 * alone, so a repeated search asks for the same probes and finds them in the store.
 */
#include "base/arith.h"
#include "host/interrupt.h"
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
    snprintf(plan->error, plan->error_size, "%s: %s", candidate->label, text);
}

bool plan_probe(struct plan *plan, const struct candidate *candidate, uint64_t rate_micro_per_s, uint64_t seed,
                uint32_t requests, bool early, struct probe *probe)
{
    const struct probe_store *store = &plan->options->store;
    char label[320];
    char error[4096];
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
        .seeds = plan->scenario->plan.seeds,
        .requests = requests,
        .stop_early = early,
    };
    enum run_status status;
    bool ran = probe_run(&input, probe, &status, error, sizeof error);
    CHECK(pthread_mutex_lock(&plan->lock) == 0);
    count_probe(plan, candidate, rate_micro_per_s, false);
    if (!ran) {
        fail(plan, candidate, status, error);
    } else if (store->keep != NULL && !store->keep(store->self, label, probe, error, sizeof error)) {
        fail(plan, candidate, RUN_REFUSED, error);
        ran = false;
    }
    CHECK(pthread_mutex_unlock(&plan->lock) == 0);
    return ran;
}

struct bracket {
    uint64_t low;  /* passed; 0: nothing has */
    uint64_t high; /* failed; 0: nothing has */
};

/* The next rate to try; 0 when the bracket is narrow enough or an end of the reach is. */
static uint64_t next_rate(const struct bracket *bracket, const struct reach *reach)
{
    if (bracket->low == 0 && bracket->high == 0)
        return reach->start;
    if (bracket->high == 0)
        return bracket->low >= reach->ceiling ? 0
                                              : min_u64(reach->ceiling, bracket->low + bracket->low / reach->part + 1);
    if (bracket->low == 0) {
        uint64_t rate = bracket->high - bracket->high / reach->part;
        return rate < reach->floor || rate == bracket->high ? 0 : rate;
    }
    if (bracket->high - bracket->low <= bracket->low / reach->fine)
        return 0;
    return bracket->low + (bracket->high - bracket->low) / 2;
}

/* A trace is played whole where it is shorter than what the scenario asks for. */
uint32_t plan_requests(const struct plan *plan)
{
    uint32_t requests = plan->scenario->plan.requests;
    if (plan->recorded == NULL)
        return requests;
    struct trace_rows rows = probe_trace_rows(&plan->scenario->load, plan->recorded);
    return min_u32(requests, rows.count);
}

bool plan_search_rate(struct plan *plan, const struct candidate *candidate, const struct reach *reach, uint64_t seed,
                      uint32_t requests, uint64_t *rate, struct probe *at, struct probe *above)
{
    struct bracket bracket = {0, 0};
    struct probe probe;
    uint64_t next;
    while ((next = next_rate(&bracket, reach)) != 0) {
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

void plan_search_seed(struct plan *plan, struct plan_candidate *item, uint32_t seed_index)
{
    const struct candidate *candidate = &item->candidate;
    uint64_t seed = seed_index + 1;
    uint64_t start = max_u64(1000, candidate->likely_micro_per_s / 10 * 7);
    struct reach reach = {.start = start, .floor = max_u64(1, start / 64), .part = 5, .fine = 32};
    reach.ceiling = max_u64(start, plan_with_slack(candidate->bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE));
    if (seed_index > 0 && item->seed_micro_per_s[0] > 0) {
        reach.start = item->seed_micro_per_s[0];
        reach.part = 20;
    }
    uint32_t requests = plan_requests(plan);
    uint64_t rate;
    if (seed_index == 0 && !plan_probe(plan, candidate, max_u64(1, start / 20), seed, min_u32(LIGHT_REQUESTS, requests),
                                       false, &item->light))
        return;
    if (!plan_search_rate(plan, candidate, &reach, seed, requests, &rate, &item->at[seed_index],
                          &item->above[seed_index]))
        return;
    uint32_t overloading = max_u32(requests / 4, min_u32(OVERLOAD_REQUESTS_MIN, requests));
    if (seed_index == 0 &&
        !plan_probe(plan, candidate, 2 * max_u64(rate, start), seed, overloading, false, &item->overload))
        return;
    item->seed_micro_per_s[seed_index] = rate;
    item->seed_done[seed_index] = true;
}
