/* When a load is above its mean rate and when below: a period of steps, over and over.
 *
 * Arrivals are made as if the rate were constant, and their times then moved: requests that are as far apart in what
 * has come as before, in time that goes faster where the rate is high. So a profile changes neither how many there are
 * in a period nor what they are, and another mean rate stretches nothing but the requests within it.
 */
#ifndef TANDEM_WORLD_LOAD_RATE_PROFILE_H
#define TANDEM_WORLD_LOAD_RATE_PROFILE_H

#include "world/scenario/scenario.h"

/* When what would have come at `even_ns` with a constant rate comes: not descending, 0 at 0 but for a pause, and the
 * same at the end of each period. A profile without steps changes nothing. */
int64_t rate_profile_time(const struct rate_profile *profile, int64_t even_ns);

#endif
