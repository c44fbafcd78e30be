/* Where steps are measured: the breakpoints of a table's axes (world/scenario/step_table.h), chosen from what a
 * scenario allows, the batches that stand for its cells, and what is done about cells that no batch can reach and about
 * noise.
 *
 * A device's step is close to bilinear between breakpoints, so few are needed; they lie at ratios of a power of two,
 * with the chunk size and the limits among them, where most steps of a run are.
 */
#ifndef TANDEM_REAL_CALIBRATE_BREAKPOINTS_H
#define TANDEM_REAL_CALIBRATE_BREAKPOINTS_H

#include "world/scenario/step_table.h"

#include <stdbool.h>
#include <stdint.h>

/* What a step of a pool may hold, per attention group. */
struct step_limits {
    uint32_t prefill_tokens; /* of one step; 0: the pool never prefills */
    uint32_t chunk_tokens;   /* of one prompt in one step, at most prefill_tokens */
    uint32_t batch_max;      /* decode sequences; 0: the pool never decodes */
    uint32_t repeat;         /* decode steps of one launch, at least 1 */
    uint32_t request_tokens_max;
    uint32_t page_tokens;
    uint32_t pages;
};

/* Whatever either allows; pages, which are memory, as far as both do. */
struct step_limits step_limits_union(const struct step_limits *a, const struct step_limits *b);

/* Axes of a grid, as far as the pages reach; none where the pool takes no such steps. */
void breakpoints_prefill(const struct step_limits *limits, struct step_grid *grid);
void breakpoints_decode(const struct step_limits *limits, struct step_grid *grid);

/* Equal parts of a batch: `count` sequences, of which sequence i has part_of(total, count, i). */
static inline uint64_t part_of(uint64_t total, uint32_t count, uint32_t i)
{
    return total / count + (i < total % count);
}

/* As few chunks as may hold `tokens`, with as much context as makes each token see `keys` on average (itself and what
 * is before it). False where the chunks by themselves see more, or the pages do not hold it. */
struct chunk_batch {
    uint32_t chunks;
    uint32_t tokens;  /* of all */
    uint32_t context; /* of each */
};
bool chunk_batch(const struct step_limits *limits, uint32_t tokens, uint64_t keys, struct chunk_batch *batch);

/* `sequences` with `context` cached tokens in all. False where they are too long or the pages do not hold them and what
 * a launch adds. */
bool decode_batch_fits(const struct step_limits *limits, uint32_t sequences, uint64_t context);

/* Fills cells that are 0, from the nearest measured cell of their row on: towards larger columns by what a later row
 * shows for the same way, else along the least-squares line of the row itself. At least one cell of each row is
 * measured. */
void step_grid_fill(struct step_grid *grid);

/* The nearest grid, in the sense of least squares along each axis in turn, in which more tokens or more context never
 * take less time: what differs from it is noise, and a table is read beyond its breakpoints by its last slope. */
void step_grid_rise(struct step_grid *grid);

#endif
