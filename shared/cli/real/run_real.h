/* The real runtime on the command line: what `tandem run` knows of it, and the roles of the processes it starts. */
#ifndef TANDEM_CLI_REAL_RUN_REAL_H
#define TANDEM_CLI_REAL_RUN_REAL_H

#include "cli/run_options.h"

extern const struct backend backend_real;

/* Whether this process was started by a real run, as one of its instances or executors. Then it has done its part. */
bool run_real_role(int argc, char **argv, int *status);

#endif
