/* No prefill is faster than its operations at peak over the GPUs that work at once.
 *
 * A launch's prompt tokens take 2 operations for each parameter that a token is multiplied by (footprint_parameters()
 * without the LM head; attention is left out). The GPUs of one pipeline stage work on it at once, one stage after the
 * other, so that it takes at least all operations over one stage's peak; and as stages work side by side on launches
 * that follow each other, two of them end no closer than the later one's operations over the peak of all stages.
 *
 * On in every simulated run on GPUs that are shipped: a user's own measurements may be beyond what a machine is said to
 * reach.
 */
#ifndef TANDEM_SIM_CHECKERS_PREFILL_PEAK_H
#define TANDEM_SIM_CHECKERS_PREFILL_PEAK_H

#include "sim/checkers/checkers.h"
#include "world/deployment.h"

struct prefill_peak;

/* Watches the instances of pools for which `modelled` is true. */
struct prefill_peak *prefill_peak_make(struct sim *sim, const struct scenario *scenario,
                                       const struct deployment *deployment, const bool *modelled,
                                       struct checkers *checkers);
void prefill_peak_free(struct prefill_peak *peak);

#endif
