/* Steps as they were measured on a machine, in place of the rooflines (world/scenario/step_table.h is the contract:
 * what the tables hold, and how a step of several kinds or groups follows from them).
 *
 * A prefill grid is read bilinearly in (tokens, keys a token), a decode grid in (sequences, cached tokens); outside of
 * the knots the nearest two of an axis go on, and one knot alone holds everywhere. Times that fall along the context
 * are noise: each row of the decode grid is replaced by the non-decreasing one nearest to it (pool adjacent violators),
 * so that a decode step has the form that device_model.h promises. There the whole step is in the line and the fixed
 * part is nothing: the largest line of the groups is the largest step of the groups.
 *
 * Pure functions, rounded once to nanoseconds.
 */
#ifndef TANDEM_SIM_COST_MEASURED_STEPS_H
#define TANDEM_SIM_COST_MEASURED_STEPS_H

#include "sim/cost/device_model.h"

#include <stdbool.h>

struct measured_steps {
    char model[64];
    struct parallelism parallelism;
    struct step_grid prefill; /* row_count 0: not measured */
    struct step_grid decode;
    uint32_t layers;
    uint32_t stages;        /* that launches in flight pass one after the other; 1: one at a time passes all */
    int64_t first_layer_ns; /* of a step that takes median_ns; others in proportion */
    int64_t median_ns;
    int64_t launch_ns; /* of decode steps, beyond the steps */
};

/* Fills *measured where `hardware` has steps of this model in this sharding, in which so many tokens are drafted by the
 * model's own layers; prefill and decode may be in tables of their own. */
bool measured_steps_find(const struct hardware *hardware, const struct architecture *architecture,
                         struct parallelism parallelism, uint32_t draft_tokens, struct measured_steps *measured);

void measured_step(const struct measured_steps *measured, const struct step_group *groups, uint32_t group_count,
                   struct step_time *time);
void measured_decode_line(const struct measured_steps *measured, uint32_t decode_sequences, uint64_t decode_context,
                          struct decode_line *line);

#endif
