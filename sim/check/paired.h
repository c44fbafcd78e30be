/* A verdict by numbers: the same measure under the same seeds before and after, and what the differences say.
 *
 * Runs are paired by seed, so that what a seed does to both sides (a burst, a long prompt) drops out of the difference.
 * The mean difference has a two-sided 99 % interval from Student's t. Of a change that means nothing, one measure in a
 * hundred would be called better or worse, and with the five that are watched by default one scenario in twenty.
 *
 * Integers go in and come out; what is between is + - * / sqrt in double, rounded once.
 */
#ifndef TANDEM_SIM_CHECK_PAIRED_H
#define TANDEM_SIM_CHECK_PAIRED_H

#include <stdbool.h>
#include <stdint.h>

/* From good to bad, so that a maximum is the worst of several. */
enum verdict { VERDICT_SAME = 0, VERDICT_BETTER = 1, VERDICT_CHANGED = 2, VERDICT_WORSE = 3 };

/* "same", "better", "changed", "worse" */
const char *verdict_name(enum verdict verdict);

struct paired {
    uint32_t pairs; /* 0: nothing below means anything */
    int64_t mean_before;
    int64_t mean_after;
    int64_t difference; /* mean of after - before */
    bool interval;      /* there are pairs enough for one: */
    int64_t low;        /* of the mean difference */
    int64_t high;
    enum verdict verdict;
};

struct paired_rule {
    bool more_is_better;
    int64_t tolerance_permille; /* of mean_before, which a difference must exceed to be better or worse */
};

/* same: no pair differs. better, worse: the mean difference exceeds the tolerance and the interval leaves out zero; of
 * a single pair, which has no interval, the tolerance alone decides. changed: anything else. Values are at least 0 and
 * below 2^53. */
struct paired paired_compare(const int64_t *before, const int64_t *after, uint32_t pairs,
                             const struct paired_rule *rule);

#endif
