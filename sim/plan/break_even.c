/* The time of a step at which the best contender of a plan gives way to another, found by halving, each time by
 * simulating both. Between where the model is right and the limit of its error another contender may be ahead of both:
 * the first to overtake is the one that a measurement decides about. */
#include "sim/plan/uncertainty.h"

#include "base/arith.h"
#include "world/scenario/scenario.h"

/* A break_even is known when what the step takes is, to one in so many; the rates that are compared, to one in so
 * many. */
#define BREAK_EVEN_FINE 64
#define BREAK_EVEN_RATE_FINE 80

/* How far from a first guess a break_even is looked for, in permille, before all that is left is halved. */
#define BREAK_EVEN_NEAR 80

/* What the best one serves, by what the steps of the limit's kind take: found by search at a few places, and between
 * two that are near, by a straight line. A rate is about the inverse of a step's time: over a fifth of it the line is
 * off by half a per cent. */
#define CURVE_MAX 64
#define CURVE_NEAR_PART 5

struct rate_curve {
    uint32_t count;
    uint32_t permille[CURVE_MAX]; /* rising */
    uint64_t rate[CURVE_MAX];
};

/* The best one and one that is ahead of it at a limit. */
struct pair {
    struct uncertainty *uncertainty;
    const struct plan_candidate *best;
    const struct plan_candidate *rival;
    uint32_t limit;
    struct rate_curve *curve;
    bool whole; /* nothing was cut off */
};

static bool probe_passes(struct pair *pair, const struct plan_candidate *item, struct step_scale scale, uint64_t rate)
{
    struct plan *plan = pair->uncertainty->plan;
    struct candidate scaled = item->candidate;
    struct probe probe;
    scaled.scale = scale;
    pair->whole &= plan_probe(plan, &scaled, max_u64(1, rate), FIRST_SEED, plan->requests, true, &probe);
    return pair->whole && probe.passed;
}

/* What the best one may serve where steps of the limit's kind take `permille`: between its rates at the limit and where
 * the model is right, which are known of fewer requests, in a straight line. */
static uint64_t likely_rate(const struct pair *pair, uint32_t permille)
{
    const struct plan_candidate *best = pair->best;
    struct step_error error;
    uint64_t rate = best->whole_done ? best->whole_micro_per_s : best->seed_micro_per_s[0];
    if (limit_is_relative(pair->limit) ||
        !uncertainty_error(pair->uncertainty->plan, &best->candidate, limit_kind(pair->limit), &error))
        return rate;
    bool prefill = limit_kind(pair->limit) == STEP_PREFILL;
    bool slow = permille > 1000;
    uint32_t limit =
        prefill ? (slow ? LIMIT_PREFILL_SLOW : LIMIT_PREFILL_FAST) : (slow ? LIMIT_DECODE_SLOW : LIMIT_DECODE_FAST);
    int64_t far = (int64_t)limit_permille(&error, limit) - 1000;
    int64_t same = (int64_t)max_u64(1, best->limit_micro_per_s[LIMIT_NONE]);
    int64_t there = (int64_t)best->limit_micro_per_s[limit];
    if (far == 0)
        return rate;
    int64_t likely = same + (there - same) * ((int64_t)permille - 1000) / far;
    return mul_div_floor_u64(rate, (uint64_t)max_i64(same / 8, likely), (uint64_t)same);
}

static uint64_t best_rate_at(struct pair *pair, uint32_t permille)
{
    struct rate_curve *curve = pair->curve;
    uint32_t at = 0;
    while (at < curve->count && curve->permille[at] < permille)
        at++;
    if (at < curve->count && curve->permille[at] == permille)
        return curve->rate[at];
    if (at > 0 && at < curve->count) {
        uint32_t low = curve->permille[at - 1];
        uint32_t high = curve->permille[at];
        if (high - low <= low / CURVE_NEAR_PART) {
            int64_t rise = (int64_t)curve->rate[at] - (int64_t)curve->rate[at - 1];
            return (uint64_t)((int64_t)curve->rate[at - 1] + rise * (int64_t)(permille - low) / (int64_t)(high - low));
        }
    }
    uint64_t rate = 0;
    pair->whole &=
        uncertainty_rate(pair->uncertainty->plan, pair->best, uncertainty_scale(limit_kind(pair->limit), permille),
                         pair->uncertainty->plan->requests, likely_rate(pair, permille), BREAK_EVEN_RATE_FINE, &rate);
    if (curve->count < CURVE_MAX) {
        for (uint32_t k = curve->count++; k > at; k--) {
            curve->permille[k] = curve->permille[k - 1];
            curve->rate[k] = curve->rate[k - 1];
        }
        curve->permille[at] = permille;
        curve->rate[at] = rate;
    }
    return rate;
}

/* Whether the rival is ahead by so much, in permille, where steps of the limit's kind take `permille`. */
static bool rival_leads(struct pair *pair, uint32_t permille, uint32_t lead_permille)
{
    struct plan *plan = pair->uncertainty->plan;
    struct step_scale rival_scale = uncertainty_scale(limit_kind(pair->limit), permille);
    struct step_scale best_scale = limit_is_relative(pair->limit) ? STEP_SCALE_NONE : rival_scale;
    const struct candidate *best = &pair->best->candidate;
    const struct candidate *rival = &pair->rival->candidate;
    if (plan->scenario->plan.goal == PLAN_SERVE_RATE) {
        uint64_t rate = plan->scenario->plan.rate_micro_per_s;
        return probe_passes(pair, pair->rival, rival_scale, rate) &&
               (rival->cost < best->cost || !probe_passes(pair, pair->best, best_scale, rate));
    }
    uint64_t best_rate = best_rate_at(pair, limit_is_relative(pair->limit) ? 1000 : permille);
    uint128 equal = (uint128)best_rate * rival->cost / max_u64(1, best->cost);
    uint64_t wanted = plan_with_slack((uint64_t)equal, lead_permille) + 1;
    return pair->whole && probe_passes(pair, pair->rival, rival_scale, wanted);
}

static bool rival_wins(struct pair *pair, uint32_t permille)
{
    return rival_leads(pair, permille, 0);
}

/* What the step takes where the pair is as good, between `lost`, where the best one is ahead, and `won`, where the
 * rival is; a guess lies between. */
static uint32_t between(struct pair *pair, uint32_t lost, uint32_t won, uint32_t guess)
{
    const uint32_t goal = won;
    while (pair->whole && max_u32(won, lost) - min_u32(won, lost) > max_u32(won, lost) / BREAK_EVEN_FINE) {
        bool inside = (guess > lost) == (guess < won) && guess != lost && guess != won;
        uint32_t middle = inside ? guess : (won + lost) / 2;
        bool wins = rival_wins(pair, middle);
        *(wins ? &won : &lost) = middle;
        /* A good guess is near: looked for beside it first, then by halves. */
        bool further = inside && (goal > middle) != wins;
        guess = !inside   ? 0
                : further ? middle + middle * BREAK_EVEN_NEAR / 1000
                          : middle - middle * BREAK_EVEN_NEAR / 1000;
    }
    return won == goal && pair->whole && !rival_wins(pair, won) ? 0 : (won + lost) / 2;
}

/* Where the rival, which is ahead where steps take `won`, begins to be. 0: nowhere, or the runs do not show it. */
static uint32_t break_even(struct pair *pair, uint32_t won)
{
    struct step_error error;
    if (!uncertainty_error(pair->uncertainty->plan, &pair->rival->candidate, limit_kind(pair->limit), &error))
        return 0;
    bool fast = pair->limit == LIMIT_PREFILL_FAST || pair->limit == LIMIT_DECODE_FAST;
    if (!rival_wins(pair, 1000)) {
        /* Leads as they are at both places, and straight in between. */
        int64_t behind = 1000 - (int64_t)min_u64(1000, uncertainty_lead(pair->uncertainty, pair->rival, LIMIT_NONE));
        int64_t ahead_by = (int64_t)uncertainty_lead(pair->uncertainty, pair->rival, pair->limit) - 1000;
        int64_t guess = 1000 + ((int64_t)won - 1000) * behind / max_i64(1, behind + ahead_by);
        return between(pair, 1000, won, (uint32_t)guess);
    }
    /* Nearly as good where the model is right: they part on its other side. */
    uint32_t lost = limit_is_relative(pair->limit) ? 1000000 / error.relative_permille
                    : fast                         ? error.slow_permille
                                                   : error.fast_permille;
    return rival_wins(pair, lost) ? 0 : between(pair, lost, 1000, 0);
}

/* Whether a third one is ahead of both by more than rates of searches differ, where the two are as good. */
static bool overtakes(struct pair *pair, const struct plan_candidate *third, uint32_t permille)
{
    struct pair with = {.uncertainty = pair->uncertainty,
                        .best = pair->best,
                        .rival = third,
                        .limit = pair->limit,
                        .curve = pair->curve,
                        .whole = pair->whole};
    bool wins = rival_leads(&with, permille, LEAD_PERMILLE);
    if (pair->uncertainty->plan->scenario->plan.goal == PLAN_SERVE_RATE)
        wins = wins && third->candidate.cost < pair->rival->candidate.cost;
    pair->whole &= with.whole;
    return wins;
}

static const struct plan_candidate *overtaker(struct pair *pair, uint32_t permille)
{
    for (uint32_t c = 1; c < pair->uncertainty->count && pair->whole; c++) {
        const struct plan_candidate *third = uncertainty_item(pair->uncertainty, c);
        if (third == pair->rival || third->candidate.aggregated != pair->best->candidate.aggregated ||
            (limit_is_relative(pair->limit) &&
             !uncertainty_steps_differ(&third->candidate, &pair->best->candidate, limit_kind(pair->limit))))
            continue;
        if (overtakes(pair, third, permille))
            return third;
    }
    return NULL;
}

uint32_t uncertainty_break_even(struct uncertainty *uncertainty, const struct plan_candidate **rival, uint32_t limit,
                                bool *whole)
{
    struct step_error error;
    struct rate_curve curve = {.count = 0};
    struct pair pair = {.uncertainty = uncertainty,
                        .best = uncertainty_item(uncertainty, 0),
                        .rival = *rival,
                        .limit = limit,
                        .curve = &curve,
                        .whole = true};
    if (!uncertainty_error(uncertainty->plan, &pair.rival->candidate, limit_kind(limit), &error))
        return 0;
    uint32_t permille = break_even(&pair, limit_permille(&error, limit));
    /* Each one that overtakes does so nearer to where the model is right. */
    for (uint32_t round = 2; round < uncertainty->count && permille > 0 && pair.whole; round++) {
        const struct plan_candidate *third = overtaker(&pair, permille);
        if (third == NULL)
            break;
        pair.rival = third;
        permille = break_even(&pair, permille);
    }
    *rival = pair.rival;
    *whole &= pair.whole;
    return pair.whole ? permille : 0;
}
