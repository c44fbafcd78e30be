/* One case, seed by seed: decisions, requests, what is watched. See check.h. */
#include "base/arith.h"
#include "run/recorder.h"
#include "sim/check/gate.h"
#include "sim/check/decision.h"
#include "host/memory.h"
#include "host/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

static struct trace_side side_of(const struct baseline_run *run)
{
    return (struct trace_side){.items = run->log.items,
                               .count = run->log.count,
                               .names = (const char(*)[48])run->nodes,
                               .name_count = run->node_count};
}

static void compare_decisions_of(const struct baseline_run *before, const struct baseline_run *after,
                                 struct case_result *result)
{
    struct trace_side a = side_of(before);
    struct trace_side b = side_of(after);
    struct cluster *cluster = cluster_make();
    decision_first(&a, &b, 0, cluster, &result->first);
    cluster_free(cluster);
    if (result->first.times_alone)
        decision_first_timeless(&a, &b, &result->decision);
}

/* Whether the seed decides anything that an earlier one did not. */
static bool distinct(const struct check_case *item, const struct baseline_run *before, uint32_t seed)
{
    for (uint32_t s = 0; s < seed; s++)
        if (before[s].trace_hash == before[seed].trace_hash &&
            item->runs[s].run.trace_hash == item->runs[seed].run.trace_hash)
            return false;
    return true;
}

/* ---- Request by request ------------------------------------------------------------------------------------------ */

/* The median; frees. */
static int64_t take_median(struct stats_values *values)
{
    stats_sort(values->items, values->count);
    int64_t median = stats_percentile(values->items, values->count, 500);
    free(values->items);
    return median;
}

/* One latency over all seeds. */
static void compare_latency(const struct measured *before, const struct measured *after, uint32_t seeds,
                            enum watch_kind kind, uint32_t span, struct moved *moved)
{
    struct stats_values gains = {.count = 0};
    struct stats_values losses = {.count = 0};
    int128 sum_before = 0;
    int128 sum_after = 0;
    for (uint32_t s = 0; s < seeds; s++) {
        uint32_t count = min_u32(before[s].count, after[s].count);
        for (uint32_t i = 0; i < count; i++) {
            const struct request_row *x = &before[s].rows[i];
            const struct request_row *y = &after[s].rows[i];
            int64_t was = row_counts(x) ? row_value_ns(x, kind, span) : -1;
            int64_t is = row_counts(y) ? row_value_ns(y, kind, span) : -1;
            if (was < 0 || is < 0)
                continue;
            moved->requests++;
            sum_before += was;
            sum_after += is;
            if (is != was)
                stats_add(is < was ? &gains : &losses, is < was ? was - is : is - was);
        }
    }
    moved->faster = gains.count;
    moved->slower = losses.count;
    moved->faster_p50_ns = take_median(&gains);
    moved->slower_p50_ns = take_median(&losses);
    if (moved->requests > 0) {
        moved->mean_before_ns = (int64_t)(sum_before / (int128)moved->requests);
        moved->mean_after_ns = (int64_t)(sum_after / (int128)moved->requests);
    }
}

static void compare_requests(const struct measured *before, const struct measured *after, struct case_result *result)
{
    static const struct {
        const char *name;
        enum watch_kind kind;
    } latencies[] = {{"ttft", WATCH_TTFT}, {"tpot", WATCH_TPOT}, {"e2e", WATCH_E2E}};
    for (uint32_t k = 0; k < MOVED_COUNT; k++) {
        struct moved *moved = &result->moved[k];
        bool span = k >= 3;
        snprintf(moved->name, sizeof moved->name, "%s", span ? span_names[k - 3] : latencies[k].name);
        compare_latency(before, after, result->seeds, span ? WATCH_SPAN : latencies[k].kind, span ? k - 3 : 0, moved);
    }
}

/* The same requests arrive: as many, of the same lengths. When does not matter: of a closed loop that is an effect. */
static bool same_requests(const struct measured *before, const struct measured *after)
{
    if (before->count != after->count)
        return false;
    for (uint32_t i = 0; i < before->count; i++) {
        const struct request_row *x = &before->rows[i];
        const struct request_row *y = &after->rows[i];
        bool both = x->outcome == OUTCOME_COMPLETED && y->outcome == OUTCOME_COMPLETED;
        if (x->prompt_tokens != y->prompt_tokens || (both && x->output_tokens != y->output_tokens))
            return false;
    }
    return true;
}

/* ---- What is watched --------------------------------------------------------------------------------------------- */

static void compare_watched(const struct check_case *item, const struct baseline_run *runs,
                            const struct measured *before, const struct measured *after, struct case_result *result)
{
    for (uint32_t w = 0; w < item->item->watch_count; w++) {
        struct watched *watched = &result->watched[result->watched_count];
        int64_t was[SUITE_SEEDS_MAX];
        int64_t is[SUITE_SEEDS_MAX];
        uint32_t pairs = 0;
        watched->watch = item->item->watch[w];
        for (uint32_t s = 0; s < result->seeds; s++)
            if (distinct(item, runs, s) && measured_value(&before[s], &watched->watch, &was[pairs]) &&
                measured_value(&after[s], &watched->watch, &is[pairs]))
                pairs++;
        struct paired_rule rule = {watched->watch.more_is_better, item->item->tolerance_permille};
        watched->paired = paired_compare(was, is, pairs, &rule);
        result->watched_count += pairs > 0;
    }
}

/* Worse wins over better: a change that helps one number and hurts another has to be looked at. */
static enum verdict verdict_of(const struct case_result *result)
{
    bool better = false;
    if (result->same == result->seeds)
        return VERDICT_SAME;
    for (uint32_t w = 0; w < result->watched_count; w++) {
        if (result->watched[w].paired.verdict == VERDICT_WORSE)
            return VERDICT_WORSE;
        better = better || result->watched[w].paired.verdict == VERDICT_BETTER;
    }
    return better ? VERDICT_BETTER : VERDICT_CHANGED;
}

void check_compare_case(const struct check_case *item, const struct baseline_run *before, struct case_result *result)
{
    struct measured was[SUITE_SEEDS_MAX];
    struct measured is[SUITE_SEEDS_MAX];
    result->item = item->item;
    result->seeds = (uint32_t)item->item->seeds;
    for (uint32_t s = 0; s < result->seeds; s++) {
        const struct baseline_run *after = &item->runs[s].run;
        bool same = before[s].trace_hash == after->trace_hash;
        result->same += same;
        result->distinct += distinct(item, before, s);
        result->scenario_changed = result->scenario_changed || strcmp(before[s].identity, after->identity) != 0;
        if (!same && !result->first.found) {
            result->diverging_seed = item->item->first_seed + s;
            compare_decisions_of(&before[s], after, result);
        }
    }
    if (result->same == result->seeds) {
        result->verdict = VERDICT_SAME;
        return;
    }
    for (uint32_t s = 0; s < result->seeds; s++) {
        measure(&before[s], item->scenario, &was[s]);
        measure(&item->runs[s].run, item->scenario, &is[s]);
        result->requests_changed = result->requests_changed || !same_requests(&was[s], &is[s]);
        result->unfinished += (int64_t)was[s].completed - (int64_t)is[s].completed;
    }
    compare_watched(item, before, was, is, result);
    if (!result->requests_changed)
        compare_requests(was, is, result);
    result->verdict = verdict_of(result);
    for (uint32_t s = 0; s < result->seeds; s++) {
        measured_free(&was[s]);
        measured_free(&is[s]);
    }
}
