/* How far the clock of another host is off, from exchanged time stamps.
 *
 * One asks at `asked_ns` of its clock, the other answers with `stamp_ns` of its own, the answer is heard at `heard_ns`.
 * The stamp was taken somewhere between: the other clock is ahead by the stamp less the middle of the two, and that is
 * wrong by half the time between them at most, however unlike the two ways are. The quickest exchange is believed.
 * Clocks also drift apart. What was estimated before a run is taken out of its times, and what is estimated after it
 * tells how far that has become wrong.
 */
#ifndef TANDEM_REAL_CONTROL_CLOCK_ESTIMATE_H
#define TANDEM_REAL_CONTROL_CLOCK_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

struct clock_estimate {
    int64_t offset_ns; /* the other's clock minus one's own */
    int64_t error_ns;  /* at most, of the offset */
};

/* Nothing is known yet. */
static inline struct clock_estimate clock_estimate_none(void)
{
    return (struct clock_estimate){.error_ns = INT64_MAX};
}

/* False: the stamps make no sense, and nothing has changed. */
bool clock_estimate_add(struct clock_estimate *estimate, int64_t asked_ns, int64_t stamp_ns, int64_t heard_ns);

/* How far the offset `before` a run is off at most at any moment of it, given an estimate from `after` it and that the
 * clocks drift steadily. */
int64_t clock_estimate_error_ns(const struct clock_estimate *before, const struct clock_estimate *after);

#endif
