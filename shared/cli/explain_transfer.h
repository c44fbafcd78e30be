/* A transfer plan, and what fits beside a model's weights, told to people and to scripts.
 *
 * All functions describe one prompt of `tokens` tokens to move (what the decoder asks for: the prompt without its last
 * token) and `tail_writes` writes of its tail. Offsets are those of the first page.
 */
#ifndef TANDEM_CLI_EXPLAIN_TRANSFER_H
#define TANDEM_CLI_EXPLAIN_TRANSFER_H

#include "model/footprint.h"
#include "model/transfer_plan.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A new reference, or NULL when memory runs out. Keys: tokens, unit_tokens, units, source_pages, pages (of the
 * destination), planes, layers, n_expected (tail included), tail_writes, writes_per_layer (all ranks), bytes (tail
 * aside), pairs: [{source_rank, destination_rank, layer_first, layer_count, runs, run_bytes, source_offset,
 * destination_offset, source_run_stride, destination_run_stride, source_unit_stride, destination_unit_stride}]. `runs`
 * is per unit, layer and plane. */
json_t *explain_transfer_json(const struct transfer_plan *plan, uint32_t tokens, uint32_t tail_writes);

/* The same as a table. Pairs that differ only in their ranks, by equal steps, share a row: "0-7 -> 0-7",
 * "0-3 -> 0-6 by 2". Returns false when memory or the stream failed. */
bool explain_transfer_print(FILE *stream, const struct transfer_plan *plan, uint32_t tokens, uint32_t tail_writes);

/* Why no plan exists between two geometries, with their numbers: "KV heads (8) and tensor-parallel ranks of the
 * destination (3): neither divides the other". Always terminated; cut off where `size` is too small. */
void explain_refusal(enum geometry_refusal refusal, const struct kv_geometry *source,
                     const struct kv_geometry *destination, char *text, size_t size);

#endif
