/* The real runtime on the command line. */
#ifndef TANDEM_CLI_REAL_RUN_REAL_H
#define TANDEM_CLI_REAL_RUN_REAL_H

#include "cli/run_options.h"

/* As a backend of `tandem run`, and the options that it alone takes. */
int run_real(const struct command_context *command, const struct arguments *arguments, struct user_error *error);
int replay_real(const struct replay *replay, const struct command_context *command, const struct arguments *arguments,
                int64_t *run, struct user_error *error);
extern const char *const run_real_alone[];

/* Whether this process was started by a real run, as one of its instances or executors. Then it has done its part. */
bool run_real_role(int argc, char **argv, int *status);

#endif
