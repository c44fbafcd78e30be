/* Order statistics, defined once.
 *
 * A percentile is the nearest rank: of n values in ascending order the one at place ceil(n * permille / 1000), counted
 * from 1 (type 1 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50, 1996).
 * It is always a value that occurred, and the views of the results database compute the same.
 *
 * The median of a fit is the mean of the two in the middle (their type 2): it does not lean to one side where there are
 * few values, and is what the published figures it stands beside were made with.
 */
#ifndef TANDEM_HOST_STATS_H
#define TANDEM_HOST_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Values one after another; {.count = 0} is empty. The owner frees the items. */
struct stats_values {
    int64_t *items;
    size_t count;
    size_t room;
};
void stats_add(struct stats_values *values, int64_t value);

/* Into ascending order. */
void stats_sort(int64_t *values, size_t count);

/* The place of a percentile among `count` >= 1 values in ascending order, from 0. permille: 1 to 1000. */
static inline uint64_t stats_place(uint64_t count, uint32_t permille)
{
    /* In two parts, so that the product cannot overflow. */
    return count / 1000 * permille + (count % 1000 * permille + 999) / 1000 - 1;
}

/* Of values in ascending order; 0 where there are none. */
static inline int64_t stats_percentile(const int64_t *sorted, size_t count, uint32_t permille)
{
    return count == 0 ? 0 : sorted[stats_place(count, permille)];
}

/* Of a fit; sorts. count >= 1 */
double stats_median(double *values, size_t count);

#endif
