/* See line_fit.h. */
#include "real/calibrate/line_fit.h"

#include "base/check.h"
#include "host/stats.h"

#include <stdlib.h>

/* Pairs looked at; of more samples every so many-th is taken. */
#define SAMPLES_MOST 1000u

/* A pair shows a slope where one is expected to take so much longer than the other. */
#define APART 1.25

static double median_ratio(const struct line_sample *samples, uint32_t count, double *values)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = samples[i].took_ns / samples[i].expected_ns;
    return stats_median(values, count);
}

/* Slopes of pairs, and how many. */
static size_t slopes(const struct line_sample *samples, uint32_t count, double *values)
{
    uint32_t stride = (count + SAMPLES_MOST - 1) / SAMPLES_MOST;
    size_t found = 0;
    for (uint32_t i = 0; i < count; i += stride) {
        for (uint32_t j = 0; j < i; j += stride) {
            const struct line_sample *low = &samples[samples[i].expected_ns < samples[j].expected_ns ? i : j];
            const struct line_sample *high = low == &samples[i] ? &samples[j] : &samples[i];
            if (high->expected_ns >= APART * low->expected_ns)
                values[found++] = (high->took_ns - low->took_ns) / (high->expected_ns - low->expected_ns);
        }
    }
    return found;
}

bool line_fit(const struct line_sample *samples, uint32_t count, struct line *line)
{
    if (count < LINE_SAMPLES_LEAST)
        return false;
    size_t most = count < SAMPLES_MOST ? count : SAMPLES_MOST;
    size_t room = most * (most - 1) / 2;
    double *values = malloc((room > count ? room : count) * sizeof *values);
    CHECK(values != NULL);
    size_t pairs = slopes(samples, count, values);
    *line = (struct line){.factor = pairs >= LINE_SAMPLES_LEAST ? stats_median(values, pairs) : 0};
    if (line->factor > 0) {
        for (uint32_t i = 0; i < count; i++)
            values[i] = samples[i].took_ns - line->factor * samples[i].expected_ns;
        line->base_ns = stats_median(values, count);
    }
    if (!(line->factor > 0) || line->base_ns < 0)
        *line = (struct line){.factor = median_ratio(samples, count, values)};
    free(values);
    return true;
}
