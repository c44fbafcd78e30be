/* The backends that this program has. */
#include "cli/run_options.h"
#include "sim/sim_run.h"
#ifdef TANDEM_REAL
#include "cli/real/run_real.h"
#endif

static const struct backend backend_sim = {
    .name = "sim",
    .run = &sim_backend,
    .alone = (const char *const[]){"threads", NULL},
};

#ifndef TANDEM_REAL
static const struct backend backend_real = {
    .name = "real",
    .absent = "this tandem was built without it: libfabric or PMIx was not installed (libfabric-dev, libpmix-dev)",
    .alone = (const char *const[]){NULL},
};
#endif

const struct backend *const backends[] = {&backend_sim, &backend_real, &backend_live, NULL};
