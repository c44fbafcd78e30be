/* Order statistics of a few measurements. */
#ifndef TANDEM_REAL_CALIBRATE_SAMPLE_H
#define TANDEM_REAL_CALIBRATE_SAMPLE_H

#include <stdint.h>
#include <stdlib.h>

static inline int sample_order(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

static inline void sample_sort(int64_t *values, uint32_t count)
{
    qsort(values, count, sizeof *values, sample_order);
}

/* The value below which a share of the sorted values lies; of an even number the median is the upper one. count >= 1 */
static inline int64_t sample_quantile(const int64_t *sorted, uint32_t count, uint32_t permille)
{
    uint32_t place = (uint32_t)((uint64_t)count * permille / 1000);
    return sorted[place < count ? place : count - 1];
}

#endif
