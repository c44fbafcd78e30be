/* What a plan found, told: its facts as JSON, which is also what is stored of it, and the view of that JSON as text,
 * Markdown or CSV. A stored plan is shown as a fresh one is. */
#ifndef TANDEM_CLI_PLAN_REPORT_H
#define TANDEM_CLI_PLAN_REPORT_H

#include "host/output.h"
#include "sim/plan/plan.h"

/* The caller's: scenario, question, goal, rule, candidates, left_out, frontier and recommendation, whose "decision"
 * says each fact in a line. */
json_t *plan_json(const struct scenario *scenario, const struct plan_result *result);

/* Writes an array of plans as CSV, with all that their JSON holds: a row a candidate, those left out behind those
 * searched, under the keys of the JSON. What a plan says beside them is in every row under "plan.", but its
 * recommendation and its frontier, which stand in its first row. */
void plan_print_rows(const json_t *plans, const struct output *output);

#define PLAN_ROWS 10 /* of each table, unless more are asked for */

/* Writes a plan's JSON for people, as text or Markdown: the decision, then tables of at most `top` rows. */
void plan_print(const json_t *plan, const struct output *output, uint32_t top);

/* Writes what is recommended at each point of a plan that varies: an array of plans with "params". */
void plan_print_points(const json_t *plans, const struct output *output);

/* What the decision says of the deployment alone: one line. */
const char *plan_deploys(const json_t *plan);

#endif
