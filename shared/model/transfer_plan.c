/* See transfer_plan.h. */
#include "model/transfer_plan.h"

#include "base/arith.h"
#include "base/check.h"

/* What one side of a transfer looks like to the shard map. */
struct side {
    const struct kv_geometry *geometry;
    uint32_t group;
    uint32_t heads;    /* a rank's: hp or hd */
    uint32_t replicas; /* rp or rd */
    uint32_t plane_first;
    uint32_t page_tokens;
};

static struct side side_of(const struct kv_geometry *geometry, uint32_t group)
{
    return (struct side){
        .geometry = geometry,
        .group = group,
        .heads = kv_rank_heads(geometry),
        .replicas = kv_replicas(geometry),
        .page_tokens = geometry->page_tokens,
    };
}

static uint16_t side_rank(const struct side *side, uint32_t stage, uint32_t t)
{
    const struct parallelism *p = &side->geometry->parallelism;
    return (uint16_t)((stage * p->data + side->group) * p->tensor + t);
}

/* Bytes of an offset that kv_geometry_check() has bounded: a page's plane is below 4 GiB. */
static uint32_t offset_bytes(uint64_t bytes)
{
    return narrow_u32(bytes);
}

/* Where `heads` common heads lie on the two sides, `source_head` and `destination_head` being the index of the first of
 * them among the rank's own, and how a unit of them falls into contiguous runs. */
static void pair_lay_out(struct transfer_pair *pair, const struct side *source, const struct side *destination,
                         uint32_t unit_tokens, uint32_t source_head, uint32_t destination_head, uint32_t heads)
{
    uint64_t head_bytes = kv_plane_head_bytes(source->geometry, source->plane_first);
    bool equal_pages = source->page_tokens == destination->page_tokens;
    uint64_t source_pitch; /* from a run's start to the next one's */
    uint64_t destination_pitch;

    if (source->geometry->layout == LAYOUT_HND) {
        uint64_t source_head_pitch = source->page_tokens * head_bytes;
        uint64_t destination_head_pitch = destination->page_tokens * head_bytes;
        pair->source_offset = offset_bytes(source_head * source_head_pitch);
        pair->destination_offset = offset_bytes(destination_head * destination_head_pitch);
        pair->runs = equal_pages ? 1 : heads;
        pair->run_bytes = offset_bytes((equal_pages ? heads : 1) * unit_tokens * head_bytes);
        pair->source_unit_stride = offset_bytes(unit_tokens * head_bytes);
        pair->destination_unit_stride = pair->source_unit_stride;
        source_pitch = source_head_pitch;
        destination_pitch = destination_head_pitch;
    } else {
        /* Ranks that hold the same heads exchange whole tokens, and tokens are adjacent. */
        bool whole_tokens = source->heads == destination->heads;
        source_pitch = source->heads * head_bytes;
        destination_pitch = destination->heads * head_bytes;
        pair->source_offset = offset_bytes(source_head * head_bytes);
        pair->destination_offset = offset_bytes(destination_head * head_bytes);
        pair->runs = whole_tokens ? 1 : unit_tokens;
        pair->run_bytes = offset_bytes((whole_tokens ? unit_tokens : 1) * (uint64_t)heads * head_bytes);
        pair->source_unit_stride = offset_bytes(unit_tokens * source_pitch);
        pair->destination_unit_stride = offset_bytes(unit_tokens * destination_pitch);
    }
    pair->source_run_stride = pair->runs == 1 ? 0 : offset_bytes(source_pitch);
    pair->destination_run_stride = pair->runs == 1 ? 0 : offset_bytes(destination_pitch);
    if (source->page_tokens == unit_tokens)
        pair->source_unit_stride = 0;
    if (destination->page_tokens == unit_tokens)
        pair->destination_unit_stride = 0;
}

/* Appends the pairs of destination rank t of `destination_stage` with the ranks of `source_stage`, which have the
 * layers [layer_first, layer_end) in common. False when the plan is full. */
static bool plan_add_rank(struct transfer_plan *plan, const struct side *source, uint32_t source_stage,
                          const struct side *destination, uint32_t destination_stage, uint32_t t, uint32_t choice,
                          uint32_t layer_first, uint32_t layer_end)
{
    uint32_t head_first = t / destination->replicas * destination->heads;
    uint32_t head_end = head_first + destination->heads;
    uint32_t replica = (choice + t % destination->replicas) % source->replicas;

    for (uint32_t u = head_first / source->heads; u <= (head_end - 1) / source->heads; u++) {
        if (plan->pair_count == TRANSFER_PAIRS_MAX)
            return false;
        uint32_t common_first = max_u32(head_first, u * source->heads);
        uint32_t common_end = min_u32(head_end, (u + 1) * source->heads);
        struct transfer_pair *pair = &plan->pairs[plan->pair_count++];
        pair->source_rank = side_rank(source, source_stage, u * source->replicas + replica);
        pair->destination_rank = side_rank(destination, destination_stage, t);
        pair->layer_first = (uint16_t)layer_first;
        pair->layer_count = (uint16_t)(layer_end - layer_first);
        pair->plane_first = (uint16_t)source->plane_first;
        pair_lay_out(pair, source, destination, plan->unit_tokens, common_first - u * source->heads,
                     common_first - head_first, common_end - common_first);

        uint64_t pieces = (uint64_t)pair->layer_count * plan->planes * pair->runs;
        plan->writes_per_unit = add_u64(plan->writes_per_unit, pieces);
        plan->bytes_per_unit = add_u64(plan->bytes_per_unit, mul_u64(pieces, pair->run_bytes));
    }
    return true;
}

/* Whether the two sides cache the same thing in the same shape. */
static enum geometry_refusal sides_check(const struct kv_geometry *source, const struct kv_geometry *destination)
{
    enum geometry_refusal refusal = kv_geometry_check(source);
    if (refusal == GEOMETRY_OK)
        refusal = kv_geometry_check(destination);
    if (refusal != GEOMETRY_OK)
        return refusal;
    if (source->planes != destination->planes || source->head_bytes != destination->head_bytes ||
        source->index_bytes != destination->index_bytes || source->kv_heads != destination->kv_heads ||
        source->layout != destination->layout)
        return GEOMETRY_MODEL;
    if (source->layers != destination->layers || source->window != destination->window ||
        source->full_layers != destination->full_layers)
        return GEOMETRY_LAYERS;
    if (source->page_tokens % destination->page_tokens != 0 && destination->page_tokens % source->page_tokens != 0)
        return GEOMETRY_PAGE_SIZES;
    return GEOMETRY_OK;
}

uint32_t transfer_replica_choices(const struct kv_geometry *source)
{
    return kv_replicas(source);
}

/* The end of the stretch of layers from `first` that a plan takes or leaves out as one. */
static uint32_t stretch_end(const struct kv_geometry *g, bool behind, uint32_t first, uint32_t end, bool *taken)
{
    *taken = !behind || kv_full_layers(g, first + 1) > kv_full_layers(g, first);
    if (!behind)
        return end;
    uint32_t at = first + 1;
    while (at < end && (kv_full_layers(g, at + 1) > kv_full_layers(g, at)) == *taken)
        at++;
    return at;
}

/* Appends the pairs of all ranks of two stages for the layers [first, end) that they have in common. False when the
 * plan is full. */
static bool plan_add_stages(struct transfer_plan *plan, struct side *source, uint32_t s, const struct side *destination,
                            uint32_t d, uint32_t choice, uint32_t first, uint32_t end)
{
    for (uint32_t t = 0; t < destination->geometry->parallelism.tensor; t++)
        for (uint32_t plane = 0; plane < source->geometry->planes; plane += plan->planes) {
            source->plane_first = plane;
            if (!plan_add_rank(plan, source, s, destination, d, t, choice, first, end))
                return false;
        }
    return true;
}

static enum geometry_refusal make(const struct kv_geometry *source_geometry, uint32_t source_group,
                                  const struct kv_geometry *destination_geometry, uint32_t destination_group,
                                  uint32_t replica_choice, bool behind, struct transfer_plan *plan)
{
    enum geometry_refusal refusal = sides_check(source_geometry, destination_geometry);
    if (refusal != GEOMETRY_OK)
        return refusal;
    CHECK(source_group < source_geometry->parallelism.data);
    CHECK(destination_group < destination_geometry->parallelism.data);
    CHECK(replica_choice < transfer_replica_choices(source_geometry));

    struct side source = side_of(source_geometry, source_group);
    const struct side destination = side_of(destination_geometry, destination_group);
    plan->unit_tokens = min_u32(source.page_tokens, destination.page_tokens);
    plan->source_units_per_page = source.page_tokens / plan->unit_tokens;
    plan->destination_units_per_page = destination.page_tokens / plan->unit_tokens;
    plan->planes = source_geometry->index_bytes > 0 ? 1 : source_geometry->planes;
    plan->layers = source_geometry->layers;
    plan->layers_carried = behind ? source_geometry->full_layers : source_geometry->layers;
    plan->window = behind ? 0 : source_geometry->window;
    plan->behind = NULL;
    plan->pair_count = 0;
    plan->writes_per_unit = 0;
    plan->bytes_per_unit = 0;

    for (uint32_t d = 0; d < destination_geometry->parallelism.pipeline; d++) {
        for (uint32_t s = 0; s < source_geometry->parallelism.pipeline; s++) {
            uint32_t layer = max_u32(source_geometry->stage_layer_first[s], destination_geometry->stage_layer_first[d]);
            uint32_t layer_end =
                min_u32(source_geometry->stage_layer_first[s + 1], destination_geometry->stage_layer_first[d + 1]);
            while (layer < layer_end) {
                bool taken;
                uint32_t end = stretch_end(source_geometry, behind, layer, layer_end, &taken);
                if (taken && !plan_add_stages(plan, &source, s, &destination, d, replica_choice, layer, end))
                    return GEOMETRY_LIMIT;
                layer = end;
            }
        }
    }
    return GEOMETRY_OK;
}

enum geometry_refusal transfer_plan_make(const struct kv_geometry *source, uint32_t source_group,
                                         const struct kv_geometry *destination, uint32_t destination_group,
                                         uint32_t replica_choice, struct transfer_plan *plan)
{
    return make(source, source_group, destination, destination_group, replica_choice, false, plan);
}

enum geometry_refusal transfer_plan_make_behind(const struct kv_geometry *source, uint32_t source_group,
                                                const struct kv_geometry *destination, uint32_t destination_group,
                                                uint32_t replica_choice, struct transfer_plan *plan)
{
    CHECK(source->window > 0 && source->full_layers > 0);
    return make(source, source_group, destination, destination_group, replica_choice, true, plan);
}

uint32_t transfer_units(const struct transfer_plan *plan, uint32_t tokens)
{
    return ceil_div_u32(tokens, plan->unit_tokens);
}

uint64_t transfer_expected(const struct transfer_plan *plan, uint32_t units, uint32_t tail_writes)
{
    return add_u64(mul_u64(plan->writes_per_unit, units), tail_writes);
}
