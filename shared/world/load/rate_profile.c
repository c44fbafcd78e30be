/* See rate_profile.h. */
#include "world/load/rate_profile.h"

int64_t rate_profile_time(const struct rate_profile *profile, int64_t even_ns)
{
    uint64_t period_ns = 0;
    uint128 all = 0; /* of a period, in thousandths of the mean rate times ns */
    if (profile->count == 0 || even_ns == TIME_NEVER)
        return even_ns;
    for (uint32_t k = 0; k < profile->count; k++) {
        period_ns += (uint64_t)profile->step[k].lasts_ns;
        all += (uint128)(uint64_t)profile->step[k].lasts_ns * profile->step[k].weight;
    }
    uint64_t periods = (uint64_t)even_ns / period_ns;
    uint128 wanted = (uint64_t)even_ns % period_ns * all / period_ns;
    uint64_t at_ns = periods * period_ns;
    for (uint32_t k = 0; k < profile->count; k++) {
        uint128 brings = (uint128)(uint64_t)profile->step[k].lasts_ns * profile->step[k].weight;
        if (wanted < brings)
            return (int64_t)(at_ns + (uint64_t)(wanted / profile->step[k].weight));
        wanted -= brings;
        at_ns += (uint64_t)profile->step[k].lasts_ns;
    }
    return (int64_t)at_ns;
}
