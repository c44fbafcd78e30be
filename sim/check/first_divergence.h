/* Where two stored simulated runs part: both are simulated again, from their scenario files, and their trace records
 * compared.
 *
 * Memory does not grow with the runs. The first run leaves a running hash every few thousand records; the second one
 * finds the piece in which they part; a second look at both keeps that piece alone.
 */
#ifndef TANDEM_SIM_CHECK_FIRST_DIVERGENCE_H
#define TANDEM_SIM_CHECK_FIRST_DIVERGENCE_H

#include "run/compare/compare.h"

/* A divergence_function. Runs that cannot be simulated again (another build, a file that is gone or has changed, a run
 * of the planner's or of the real runtime) are no error: divergence->unknown says why. An error is a run that comes out
 * otherwise than it is stored. */
bool sim_divergence(struct results *store, int64_t run_a, int64_t run_b, struct divergence *divergence,
                    struct user_error *error);

#endif
