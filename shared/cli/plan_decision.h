/* A plan's answer in sentences, one a fact, made from its result. */
#ifndef TANDEM_CLI_PLAN_DECISION_H
#define TANDEM_CLI_PLAN_DECISION_H

#include "sim/plan/plan.h"

#include <jansson.h>

/* An object of texts, in the order in which they are to be read: deploy, serves, costs, bound_by, sure, measure_next,
 * runner_up, and aggregated_instead or disaggregated_instead; without an answer deploy alone, which says why. The
 * caller's. */
json_t *plan_decision(const struct scenario *scenario, const struct plan_result *result);

/* By which rule candidates are ranked. */
const char *plan_rule(const struct scenario *scenario);

/* How to take a measure: the engine's own benchmark. */
void plan_measure_how(const struct plan_measure *measure, char *text, size_t size);

#endif
