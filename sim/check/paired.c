/* See paired.h. */
#include "sim/check/paired.h"

#include "base/arith.h"

#include <math.h>

const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {"same", "better", "changed", "worse"};
    return names[verdict];
}

/* Two-sided 99 % points of Student's t with n - 1 degrees of freedom, in thousandths. Source: any table of it. Beyond
 * 31 pairs that of 31, which is a little wider than need be. */
static double student_t99(uint32_t n)
{
    static const uint32_t milli[] = {0,    0,    63657, 9925, 5841, 4604, 4032, 3707, 3499, 3355, 3250,
                                     3169, 3106, 3055,  3012, 2977, 2947, 2921, 2898, 2878, 2861, 2845,
                                     2831, 2819, 2807,  2797, 2787, 2779, 2771, 2763, 2756, 2750};
    uint32_t last = sizeof milli / sizeof *milli - 1;
    return (double)milli[min_u32(n, last)] / 1000;
}

/* sum / count, rounded half away from zero. */
static int64_t mean_of(int128 sum, uint32_t count)
{
    int128 half = count / 2;
    return (int64_t)((sum + (sum < 0 ? -half : half)) / (int128)count);
}

static int64_t half_width(const int64_t *before, const int64_t *after, uint32_t pairs, int128 sum)
{
    double mean = (double)sum / pairs;
    double squares = 0;
    for (uint32_t i = 0; i < pairs; i++) {
        double d = (double)(after[i] - before[i]) - mean;
        squares += d * d;
    }
    /* Up, so that rounding never makes a change significant. */
    return (int64_t)(student_t99(pairs) * sqrt(squares / (pairs - 1) / pairs)) + (squares > 0);
}

static enum verdict judge(const struct paired *paired, const struct paired_rule *rule)
{
    int128 size = paired->difference < 0 ? -(int128)paired->difference : paired->difference;
    bool beyond = size * 1000 > (int128)paired->mean_before * rule->tolerance_permille;
    bool sure = !paired->interval || paired->low > 0 || paired->high < 0;
    if (!beyond || !sure)
        return VERDICT_CHANGED;
    return (paired->difference > 0) == rule->more_is_better ? VERDICT_BETTER : VERDICT_WORSE;
}

struct paired paired_compare(const int64_t *before, const int64_t *after, uint32_t pairs,
                             const struct paired_rule *rule)
{
    struct paired paired = {.pairs = pairs, .verdict = VERDICT_SAME};
    int128 sum_before = 0;
    int128 sum_after = 0;
    bool same = true;
    for (uint32_t i = 0; i < pairs; i++) {
        sum_before += before[i];
        sum_after += after[i];
        same = same && before[i] == after[i];
    }
    if (pairs == 0)
        return paired;
    paired.mean_before = mean_of(sum_before, pairs);
    paired.mean_after = mean_of(sum_after, pairs);
    paired.difference = mean_of(sum_after - sum_before, pairs);
    paired.interval = pairs > 1;
    if (paired.interval) {
        int64_t half = half_width(before, after, pairs, sum_after - sum_before);
        paired.low = paired.difference - half;
        paired.high = paired.difference + half;
    }
    if (!same)
        paired.verdict = judge(&paired, rule);
    return paired;
}
