/* tandem replay: a stored run's arrivals and lengths again, on the other backend, and both side by side. */
#ifndef TANDEM_CLI_COMMAND_REPLAY_H
#define TANDEM_CLI_COMMAND_REPLAY_H

#include "run/compare/compare.h"
#include "cli/run_options.h"

/* Takes the options of `tandem run` (run_options). The new run is stored with a link to the one that it repeats; then
 * the comparison is written. */
int replay_by_backend(const struct backend *backends, size_t count, divergence_function *first_divergence,
                      const struct command_context *command, const struct arguments *arguments,
                      struct user_error *error);

#endif
