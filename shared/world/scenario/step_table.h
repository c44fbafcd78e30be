/* Steps measured on a machine: what `tandem calibrate` finds and writes into a hardware profile, and what the cost
 * model then uses, for the same model served in the same way, in place of its rooflines.
 *
 * A step has M new tokens in a group; their queries see `pairs` keys in all, each token at least itself. A prefill
 * table is over (M, pairs / M): a transformer's step is a + b M + c pairs, so between two knots it is bilinear in
 * those. A decode table is over (sequences, cached tokens of all of them), where the step is bilinear for the same
 * reason. Outside the knots the nearest two of an axis go on. Several attention groups run in lockstep: the step is
 * the largest of the groups', each table entry measured with every group at that load. A step that mixes both kinds
 * takes the decode time and the prefill time less one smallest decode step, which both contain.
 *
 * In a profile (every time in nanoseconds, rows by the first axis):
 *
 *     steps = { steps {
 *       model = "tiny-gqa", sharding = { tensor = 2 },
 *       draft = 1,             -- tokens that every sequence drafts, by the model's own layers; absent: none
 *       first_layer = ns(...), -- of the step that is the median: from launch to the first tick of the layer counter
 *       launch = ns(...),      -- beyond its steps, of each launch of decode steps; those of prefill have it in them
 *       prefill = { tokens = { 1, 16, ... }, keys = { 1, 64, ... }, time = { { ns(...), ... }, ... } },
 *       decode = { sequences = { 1, 2, ... }, context = { 16, ... }, time = { { ns(...), ... }, ... } },
 *     } }
 */
#ifndef TANDEM_WORLD_SCENARIO_STEP_TABLE_H
#define TANDEM_WORLD_SCENARIO_STEP_TABLE_H

#include "model/kv_geometry.h"

#include <stdint.h>

#define STEP_KNOTS_MAX 16
#define STEP_TABLES_MAX 8 /* of one machine */

struct step_grid {
    uint32_t row_count;    /* 0: not measured */
    uint32_t column_count; /* both axes ascend strictly */
    uint32_t rows[STEP_KNOTS_MAX];
    uint64_t columns[STEP_KNOTS_MAX];
    int64_t ns[STEP_KNOTS_MAX][STEP_KNOTS_MAX];
};

struct step_table {
    char model[64];
    struct parallelism parallelism;
    uint32_t draft_tokens; /* that every sequence drafts in these steps, by the model's own draft layers */
    uint32_t in_flight;    /* launches that the runtime had in the pipeline stages at once, and has */
    int64_t first_layer_ns;
    int64_t launch_ns; /* of each launch of decode steps, beyond the steps: those who take part wake up */
    struct step_grid prefill;
    struct step_grid decode;
};

/* What was measured on one machine. Owned by the scenario it was read from; pools and copies of it point here. */
struct step_tables {
    uint32_t count;
    struct step_table item[STEP_TABLES_MAX];
};

/* The grid's time at a place between its knots or beyond them; not below one nanosecond. At least one knot an axis. */
double step_grid_at(const struct step_grid *grid, double row, double column);

#endif
