/* A plan's answer, for people and for programs. */
#ifndef TANDEM_SIM_PLAN_PLAN_OUTPUT_H
#define TANDEM_SIM_PLAN_PLAN_OUTPUT_H

#include "host/output.h"
#include "sim/plan/plan.h"

#include <jansson.h>

/* Text and Markdown: the candidates, the colocated ones, the frontier, the recommendation. CSV: the candidates. */
void plan_print(const struct scenario *scenario, const struct plan_result *result, const struct output *output);

/* The object of the command line's reference: {scenario, candidates, colocated, frontier, recommendation}. */
json_t *plan_json(const struct scenario *scenario, const struct plan_result *result);

#endif
