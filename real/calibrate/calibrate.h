/* A calibration from beginning to end: everything that a profile holds, measured in turn. */
#ifndef TANDEM_REAL_CALIBRATE_CALIBRATE_H
#define TANDEM_REAL_CALIBRATE_CALIBRATE_H

#include "real/calibrate/in_run.h"
#include "real/calibrate/profile.h"

struct calibration {
    const char *base;   /* as hardware_load() takes it */
    const char *name;   /* of the machine; NULL: the base's with "-calibrated" */
    const char *device; /* "host", "cuda" */
    const char *bind;
    const char *provider; /* NULL: the best that works */
    uint32_t window;
    uint32_t rounds; /* of steps */
    const char *const *scenarios;
    size_t scenario_count;
    const struct scenario_override *sets; /* what the scenarios are loaded with */
    size_t set_count;
    uint32_t misfit_permille; /* fits that miss by more on average are refused, and steps that spread by more */
    bool in_run;              /* correct the figures by a run of each scenario (in_run.h) */
};

struct calibrated {
    struct profile profile;
    struct step_plan plan;
    struct step_quality quality[STEP_TABLES_MAX];
    struct in_run in_run;
};

/* Fills *result, to which profile points. False with an error, or without one when interrupted. The caller has one
 * thread. */
bool calibrate(const struct calibration *what, struct calibrated *result, struct user_error *error);

#endif
