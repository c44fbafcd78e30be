/* The shard map between two instances, and what moving a prompt between them takes.
 *
 * A plan holds for one (source geometry, source group, destination geometry, destination group, replica choice). It is
 * computed once per choice at set-up and never changes; a request only adds page indices. All rules and formulas are
 * those of the protocol's shard map: with hp, hd heads a rank and rp, rd replicas on the two sides, destination rank d
 * of a group needs heads [g * hd, (g + 1) * hd), g = d / rd; it draws on source head groups
 * u = (g * hd) / hp ... ((g + 1) * hd - 1) / hp, and of each one's rp replicas exactly one sends.
 *
 * The transfer unit is the smaller of the two page sizes: a unit is one whole page on one side and a part of a page on
 * the other. Counts are in units, so they do not depend on how the prompt was cut into chunks.
 */
#ifndef TANDEM_MODEL_TRANSFER_PLAN_H
#define TANDEM_MODEL_TRANSFER_PLAN_H

#include "model/kv_geometry.h"

struct transfer_pair {
    uint16_t source_rank;      /* numbered within the instance */
    uint16_t destination_rank; /* numbered within the instance */
    uint16_t layer_first;      /* global layer ids [layer_first, layer_first + layer_count) */
    uint16_t layer_count;
    uint16_t plane_first;   /* planes [plane_first, plane_first + the plan's planes) */
    uint32_t runs;          /* contiguous pieces per unit, layer and plane. NHD: 1 where both sides hold the same
                               heads, else unit_tokens. HND: 1 where the pages are equal, else the heads moved */
    uint32_t run_bytes;     /* bytes of one piece */
    uint32_t source_offset; /* of the first piece, from the start of the page's plane on that rank, for the first
                               unit of the page */
    uint32_t destination_offset;
    uint32_t source_run_stride; /* from piece to piece; 0 when runs == 1 */
    uint32_t destination_run_stride;
    uint32_t source_unit_stride; /* from unit to unit inside a source page that holds several; else 0 */
    uint32_t destination_unit_stride;
};

struct transfer_plan {
    uint32_t unit_tokens;
    uint32_t source_units_per_page;      /* 1, or source page tokens / unit_tokens */
    uint32_t destination_units_per_page; /* 1, or destination page tokens / unit_tokens */
    uint16_t planes;                     /* of a pair; a cache whose planes are not alike has a pair for each */
    uint16_t layers;
    uint16_t layers_carried;            /* fewer than `layers` where pairs leave out the windowed ones */
    uint32_t window;                    /* as the geometries'; 0 in a plan that leaves the windowed layers out */
    const struct transfer_plan *behind; /* for units that lie wholly behind the window: the same without the windowed
                                           layers. NULL: every unit takes all layers */
    uint32_t pair_count;
    uint64_t writes_per_unit; /* over all pairs, layers, planes and runs */
    uint64_t bytes_per_unit;  /* likewise */
    struct transfer_pair pairs[TRANSFER_PAIRS_MAX];
};

/* Number of distinct replica choices for a source geometry (rp for GQA, all ranks of the group for MLA). Under choice c
 * destination replica j draws from source replica (c + j) mod rp, so that copies spread over all source ranks. */
uint32_t transfer_replica_choices(const struct kv_geometry *source);

/* Fills *plan; its content is undefined after a refusal. Refuses, never guesses; the groups and the choice, which are
 * the caller's own numbers, must be in range (CHECK).
 *
 * HND with unequal page sizes has its heads apart by a page's tokens on each side, so a unit that is part of a page is
 * one run a head; `runs` says so. Where hp and hd do not divide each other (12 heads over 3 and 2 ranks) a pair moves
 * the heads that its two ranks have in common, fewer than min(hp, hd).
 *
 * Pairs are ordered by destination stage, source stage, destination rank, head group, plane. */
enum geometry_refusal transfer_plan_make(const struct kv_geometry *source, uint32_t source_group,
                                         const struct kv_geometry *destination, uint32_t destination_group,
                                         uint32_t replica_choice, struct transfer_plan *plan);

/* The same for units that lie wholly behind the window of the windowed layers, which are left out: their KV is read by
 * nobody any more. The geometries must have a window and a layer without one (CHECK). */
enum geometry_refusal transfer_plan_make_behind(const struct kv_geometry *source, uint32_t source_group,
                                                const struct kv_geometry *destination, uint32_t destination_group,
                                                uint32_t replica_choice, struct transfer_plan *plan);

/* Units of a prompt of which `tokens` tokens are moved that lie wholly behind the window: what comes next is the token
 * after them, which reads the last window - 1 of them and itself. */
static inline uint32_t transfer_units_behind(uint32_t window, uint32_t unit_tokens, uint32_t tokens)
{
    return kv_window_first(window, tokens) / unit_tokens;
}

/* Units that tokens [0, tokens) occupy. */
uint32_t transfer_units(const struct transfer_plan *plan, uint32_t tokens);

/* Pages of one side that units [first, first + count) lie in: the first and the last may lie in a page only in part. */
static inline uint32_t transfer_pages(uint32_t first, uint32_t count, uint32_t units_per_page)
{
    return count == 0 ? 0 : (first + count - 1) / units_per_page - first / units_per_page + 1;
}

/* N: writes that carry `units` units of every layer, plus the tail's. 64 bits; the caller refuses what does not fit the
 * counter of its fabric. */
uint64_t transfer_expected(const struct transfer_plan *plan, uint32_t units, uint32_t tail_writes);

/* Page index and byte offset of one piece on each side: unit `unit` of the prompt lies in source page
 * unit / source_units_per_page at source_offset + (unit % source_units_per_page) * source_unit_stride, and so on. */
static inline uint64_t transfer_source_offset(const struct transfer_plan *plan, const struct transfer_pair *pair,
                                              uint32_t unit, uint32_t run)
{
    return (uint64_t)pair->source_offset + (uint64_t)(unit % plan->source_units_per_page) * pair->source_unit_stride +
           (uint64_t)run * pair->source_run_stride;
}

static inline uint64_t transfer_destination_offset(const struct transfer_plan *plan, const struct transfer_pair *pair,
                                                   uint32_t unit, uint32_t run)
{
    return (uint64_t)pair->destination_offset +
           (uint64_t)(unit % plan->destination_units_per_page) * pair->destination_unit_stride +
           (uint64_t)run * pair->destination_run_stride;
}

#endif
