/* Exact percentiles of values that are read twice, in memory that does not grow with their number.
 *
 * The first reading counts values by buckets (256 to an octave) and notes the least and the greatest of each; the
 * second keeps the values of those buckets alone that a wanted percentile falls into, unless all values of a bucket are
 * equal.
 *
 * Percentiles are those of host/stats.h. The mean is rounded down.
 */
#ifndef TANDEM_HOST_QUANTILES_H
#define TANDEM_HOST_QUANTILES_H

#include <stdbool.h>
#include <stdint.h>

#define QUANTILES_MAX 16

struct quantiles;

/* `permille`: `count` of them, at most QUANTILES_MAX, 1 to 1000, in any order. */
struct quantiles *quantiles_make(const uint32_t *permille, uint32_t count);
void quantiles_free(struct quantiles *quantiles);

/* Of the first reading. */
void quantiles_count(struct quantiles *quantiles, int64_t value);

/* Ends the first reading. Returns how many values the second one will keep; 0: it is not needed. */
uint64_t quantiles_counted(struct quantiles *quantiles);

/* Of the second reading, all values again; in any order. */
void quantiles_keep(struct quantiles *quantiles, int64_t value);

struct quantiles_result {
    uint64_t count; /* 0: nothing below means anything */
    int64_t mean;
    int64_t max;
    int64_t at[QUANTILES_MAX]; /* in the order of `permille` */
};

/* Ends the second reading, if there was one. */
struct quantiles_result quantiles_result(struct quantiles *quantiles);

#endif
