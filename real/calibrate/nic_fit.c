/* See nic_fit.h. */
#include "real/calibrate/nic_fit.h"

#include "base/arith.h"

#include <math.h>
#include <stdio.h>

/* The knees that are tried: 1 (times add up) to 16 (whichever takes longer), by steps of a twentieth. Sharper knees
 * cannot be told from 16 by any points. */
#define KNEE_MIN 1.0
#define KNEE_MAX 16.0
#define KNEE_STEP 1.05

static double seconds(const struct write_time *point)
{
    return (double)point->ps * 1e-12;
}

static double paged(double gap, double wire, double knee)
{
    double greater = gap > wire ? gap : wire;
    double smaller = gap > wire ? wire : gap;
    return greater * pow(1 + pow(smaller / greater, knee), 1 / knee);
}

/* For a given p the p-th powers of the times are a line over those of the sizes: t^p = g^p + B^-p b^p. Sizes and times
 * are in units of the largest, so that no power overflows. Weights make it the relative error of t^p, which is p times
 * that of t. False where no such line rises. */
static bool fit_knee(const struct write_time *points, size_t count, double knee, double *gap, double *bytes_per_s)
{
    double largest = 0;
    double longest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, (double)points[i].bytes);
        longest = fmax(longest, seconds(&points[i]));
    }
    double s11 = 0;
    double s12 = 0;
    double s22 = 0;
    double r1 = 0;
    double r2 = 0;
    for (size_t i = 0; i < count; i++) {
        double x = pow((double)points[i].bytes / largest, knee);
        double y = pow(seconds(&points[i]) / longest, knee);
        s11 += 1 / (y * y);
        s12 += x / (y * y);
        s22 += x * x / (y * y);
        r1 += 1 / y;
        r2 += x / y;
    }
    double determinant = s11 * s22 - s12 * s12;
    if (!(determinant > 1e-12 * s11 * s22))
        return false;
    double constant = (r1 * s22 - r2 * s12) / determinant;
    double slope = (r2 * s11 - r1 * s12) / determinant;
    if (constant <= 0) { /* no gap to be seen: all of it is bytes */
        constant = 0;
        slope = r2 / s22;
    }
    if (!(slope > 0))
        return false;
    *gap = longest * pow(constant, 1 / knee);
    *bytes_per_s = largest / (longest * pow(slope, 1 / knee));
    return true;
}

static double squares(const struct write_time *points, size_t count, double gap, double bytes_per_s, double knee)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double off = paged(gap, (double)points[i].bytes / bytes_per_s, knee) / seconds(&points[i]) - 1;
        sum += off * off;
    }
    return sum;
}

static bool sound(const struct write_time *points, size_t count, const char *what, struct user_error *error)
{
    bool sizes_differ = false;
    for (size_t i = 0; i < count; i++) {
        sizes_differ = sizes_differ || points[i].bytes != points[0].bytes;
        if (points[i].ps <= 0 || points[i].bytes == 0) {
            user_error_set(error, NULL, 0, NULL, "the %s of %llu bytes took no time", what,
                           (unsigned long long)points[i].bytes);
            return false;
        }
    }
    if (!sizes_differ)
        user_error_set(error, NULL, 0, NULL, "%s of at least two sizes are needed", what);
    return sizes_differ;
}

bool nic_fit(const struct write_time *singles, size_t single_count, const struct write_time *stream,
             size_t stream_count, struct nic *nic, struct user_error *error)
{
    if (!sound(stream, stream_count, "streamed writes", error) || !sound(singles, single_count, "single writes", error))
        return false;
    double best = INFINITY;
    double best_gap = 0;
    double best_rate = 0;
    double best_knee = KNEE_MIN;
    for (double knee = KNEE_MIN; knee <= KNEE_MAX; knee *= KNEE_STEP) {
        double gap;
        double rate;
        if (!fit_knee(stream, stream_count, knee, &gap, &rate))
            continue;
        double sum = squares(stream, stream_count, gap, rate, knee);
        if (sum < best) {
            best = sum;
            best_gap = gap;
            best_rate = rate;
            best_knee = knee;
        }
    }
    if (!(best < INFINITY)) {
        user_error_set(error, NULL, 0, NULL,
                       "large writes of a stream take no longer than small ones: is the machine busy?");
        return false;
    }
    double weights = 0;
    double sum = 0;
    for (size_t i = 0; i < single_count; i++) {
        double t = seconds(&singles[i]);
        sum += (t - (double)singles[i].bytes / best_rate) / (t * t);
        weights += 1 / (t * t);
    }
    nic->base_ns = max_i64(0, (int64_t)(sum / weights * 1e9 + 0.5));
    nic->bytes_per_s = (uint64_t)(best_rate + 0.5);
    nic->gap_ps = (int64_t)(best_gap * 1e12 + 0.5);
    nic->knee_permille = (uint32_t)(best_knee * 1000 + 0.5);
    return true;
}

int64_t nic_single_ps(const struct nic *nic, uint64_t bytes)
{
    return nic->base_ns * 1000 + (int64_t)((double)bytes * 1e12 / (double)nic->bytes_per_s + 0.5);
}

int64_t nic_paged_ps(const struct nic *nic, uint64_t bytes)
{
    double wire = (double)bytes * 1e12 / (double)nic->bytes_per_s;
    return (int64_t)(paged((double)nic->gap_ps, wire, (double)nic->knee_permille / 1000) + 0.5);
}

static uint32_t missed_permille(const struct write_time *points, size_t count, const struct nic *nic,
                                int64_t (*fitted_ps)(const struct nic *nic, uint64_t bytes))
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += fabs((double)fitted_ps(nic, points[i].bytes) / (double)points[i].ps - 1);
    return (uint32_t)fmin(1e9, sum / (double)count * 1000 + 0.5);
}

struct nic_misfit nic_misfit(const struct write_time *singles, size_t single_count, const struct write_time *stream,
                             size_t stream_count, const struct nic *nic)
{
    return (struct nic_misfit){
        .alone_permille = missed_permille(singles, single_count, nic, nic_single_ps),
        .streamed_permille = missed_permille(stream, stream_count, nic, nic_paged_ps),
    };
}
