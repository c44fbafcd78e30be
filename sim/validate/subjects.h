/* Errors by what was served: engine, GPU and class of model, and pooled over any of them. For `tandem plan`, which must
 * know how far to trust a figure for the scenario in front of it. */
#ifndef TANDEM_SIM_VALIDATE_SUBJECTS_H
#define TANDEM_SIM_VALIDATE_SUBJECTS_H

#include "sim/validate/validate.h"

#include <stdio.h>

/* The columns of what `subjects_print` prints: engine, GPU ("H200"), class of model ("gqa-dense", "gqa-moe",
 * "mla-moe"), each "*" where pooled over all; the key of the validation; then cases and their errors in millionths. */
#define SUBJECTS_HEAD "engine,system,family,metric,rows,median_ppm,p90_ppm,bias_ppm"

/* Cases without a subject are left out. Whole pools first, then the engine, then all three, each in the order of the
 * names. */
void subjects_print(FILE *file, const struct validation *validation);

#endif
