/* How far the device model was off where it was held against measurements: the errors of `tandem validate` by engine,
 * GPU and class of model (scenarios/validation/errors.csv), as the span in which a step of a plan truly lies.
 *
 * Validation says error = predicted / measured - 1, with a bias b and a 90th percentile e of its absolute value. What
 * is left of e beside b is scatter, d = e - |b|: nine of ten errors lie about within [b - d, b + d], and a step truly
 * takes 1 / (1 + error) of what the model says. All candidates that run one sharding on one machine share that error,
 * whatever it is. Two shardings share only b: each scatters by itself, and their difference by d times the root of two.
 */
#ifndef TANDEM_SIM_PLAN_MODEL_ERROR_H
#define TANDEM_SIM_PLAN_MODEL_ERROR_H

#include "world/scenario/engine.h"
#include "host/user_error.h"
#include "model/architecture.h"

#include <stdbool.h>
#include <stdint.h>

/* Errors of fewer cases than these say little: a wider class is asked. */
#define MODEL_ERROR_ROWS_MIN 10

/* No error makes a step longer than this many times what the model says, or shorter than a part of it. */
#define MODEL_ERROR_FACTOR_MAX 4

enum step_kind { STEP_PREFILL = 0, STEP_DECODE = 1, STEP_KINDS = 2 };

struct step_error {
    uint32_t fast_permille; /* what a step truly takes, of what the model says: from */
    uint32_t slow_permille; /* ... to */
    uint32_t
        relative_permille; /* what a step of one sharding takes at the least, where another's is as the model says */
    uint32_t rows;         /* cases behind it */
    int32_t bias_permille; /* as validated */
    uint32_t p90_permille;
    char class_name[64]; /* "sglang, H200, mla-moe"; "any engine, ..." */
};

struct model_errors;

/* Reads "validation/errors.csv", or the file at `path`. NULL and `error` described when it is missing or damaged. */
struct model_errors *model_errors_load(const char *path, struct user_error *error);
void model_errors_free(struct model_errors *errors);

/* The error of the closest class that was validated with rows enough: what is asked first pools over engines, then over
 * models, then over GPUs. Time to first token stands for prefill steps, time per output token for decode steps. False:
 * nothing of the kind was validated. */
bool model_error_find(const struct model_errors *errors, enum step_kind kind, enum engine_kind engine, const char *gpu,
                      const struct architecture *model, struct step_error *found);

/* The span that a bias and a 90th percentile mean; the rest of *error is left alone. */
void step_error_span(int64_t bias_ppm, int64_t p90_ppm, struct step_error *error);

#endif
