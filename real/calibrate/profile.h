/* The hardware profile that a calibration leaves: a Lua file of the scenario language that returns machine { ... }, for
 * people to read: every value with its unit and where it came from, every fit with what it misses.
 */
#ifndef TANDEM_REAL_CALIBRATE_PROFILE_H
#define TANDEM_REAL_CALIBRATE_PROFILE_H

#include "host/user_error.h"
#include "real/calibrate/fabric_profiler.h"
#include "real/calibrate/in_run.h"
#include "host/busy.h"
#include "real/calibrate/step_profiler.h"

#include <stdio.h>

struct profile {
    struct hardware hardware; /* the base with what was measured in place */
    const char *base;         /* name of the base */
    const char *device;
    char date[32];            /* "2026-11-29 18:20 UTC" */
    char processor[128];      /* model name */
    struct machine_load load; /* at the start */
    uint32_t rounds;
    struct fabric_times fabric;
    struct nic_misfit misfit; /* of the NIC's parameters */
    const struct step_plan *steps;
    const struct step_quality *quality; /* [steps->count] */
    const struct in_run *in_run;        /* by which steps and messages are corrected; NULL: they are not */
};

/* Date, processors and load of this moment. */
void profile_describe_host(struct profile *profile);

void profile_print(FILE *file, const struct profile *profile);

/* Whether the file may be written: it is not there, or profile_print() wrote it, or `force`; and its folder takes new
 * files. False with an error. */
bool profile_may_write(const char *path, bool force, struct user_error *error);

/* Writes the file whole or not at all. */
bool profile_write(const char *path, const struct profile *profile, struct user_error *error);

#endif
