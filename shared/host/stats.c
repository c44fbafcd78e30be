/* See stats.h. */
#include "host/stats.h"

#include "base/check.h"
#include "host/memory.h"

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

void stats_add(struct stats_values *values, int64_t value)
{
    if (values->count == values->room) {
        values->room = values->room == 0 ? 256 : values->room * 2;
        values->items = memory_resized(values->items, values->room * sizeof *values->items);
    }
    values->items[values->count++] = value;
}
