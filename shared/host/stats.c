/* See stats.h. */
#include "host/stats.h"

#include "base/check.h"

#include <stdlib.h>

static int ascending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int ascending_real(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void stats_sort(int64_t *values, size_t count)
{
    if (count > 1)
        qsort(values, count, sizeof *values, ascending); /* equal values are alike */
}

double stats_median(double *values, size_t count)
{
    CHECK(count > 0);
    qsort(values, count, sizeof *values, ascending_real);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
