/* The real runtime on the command line. */
#ifndef TANDEM_REAL_PROCESS_COMMANDS_H
#define TANDEM_REAL_PROCESS_COMMANDS_H

#include "host/command/run_command.h"

/* As a backend of `tandem run`, and the options that it alone takes. */
int run_real(const struct command_context *command, const struct arguments *arguments, struct user_error *error);
int replay_real(const struct replay *replay, const struct command_context *command, const struct arguments *arguments,
                int64_t *run, struct user_error *error);
extern const char *const run_real_alone[];

/* Whether this process was started by a real run, as one of its instances or executors. Then it has done its part. */
bool run_real_role(int argc, char **argv, int *status);

#endif
