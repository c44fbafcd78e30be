/* See clock_estimate.h. */
#include "real/control/clock_estimate.h"

#include "base/arith.h"

bool clock_estimate_add(struct clock_estimate *estimate, int64_t asked_ns, int64_t stamp_ns, int64_t heard_ns)
{
    if (asked_ns < 0 || stamp_ns < 0 || heard_ns < asked_ns)
        return false;
    int64_t half_ns = (heard_ns - asked_ns + 1) / 2;
    if (half_ns < estimate->error_ns) {
        estimate->error_ns = half_ns;
        estimate->offset_ns = stamp_ns - (asked_ns + (heard_ns - asked_ns) / 2);
    }
    return true;
}

int64_t clock_estimate_error_ns(const struct clock_estimate *before, const struct clock_estimate *after)
{
    int64_t moved_ns = after->offset_ns - before->offset_ns;
    if (after->error_ns == INT64_MAX)
        return before->error_ns;
    return max_i64(before->error_ns, (moved_ns < 0 ? -moved_ns : moved_ns) + after->error_ns);
}
