/* A line through samples of which some are far off: took = base + factor * expected. */
#ifndef TANDEM_REAL_CALIBRATE_LINE_FIT_H
#define TANDEM_REAL_CALIBRATE_LINE_FIT_H

#include <stdbool.h>
#include <stdint.h>

struct line_sample {
    double expected_ns;
    double took_ns;
};

struct line {
    double base_ns; /* at least 0 */
    double factor;  /* above 0 */
};

/* Fewer say nothing. */
#define LINE_SAMPLES_LEAST 12u

/* The factor is the median of the slopes of pairs of samples (Theil and Sen), the base the median of what is left.
 * Where that would make the base negative, or the samples are too alike to show a slope, the line goes through the
 * origin and the factor is the median ratio. False with fewer than LINE_SAMPLES_LEAST samples. */
bool line_fit(const struct line_sample *samples, uint32_t count, struct line *line);

#endif
