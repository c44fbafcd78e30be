/* How the KV cache of one rank lies in its memory. Both sides of a transfer compute addresses from this, so it is part
 * of the handshake: the hash of the geometry and the number of pages decide it.
 *
 * The region of a rank is, for each layer of its stage and each plane, all pages; then the tail slots:
 *
 *     [layer - first layer of the stage][plane][page][page plane bytes]   [tail slot][tail bytes, rounded up to 64]
 *
 * Every rank has tail slots; the tail is written to those of the last stage's first rank of the group alone.
 */
#ifndef TANDEM_REAL_MEMORY_KV_MEMORY_H
#define TANDEM_REAL_MEMORY_KV_MEMORY_H

#include "model/kv_geometry.h"

struct kv_memory {
    struct kv_geometry geometry;
    uint32_t pages; /* of one attention group, hence of each of its ranks */
    uint32_t tail_slots;
    uint32_t tail_bytes;
};

/* The stage of a rank, and the layers it holds. */
static inline uint32_t kv_memory_stage(const struct kv_memory *memory, uint32_t rank)
{
    const struct parallelism *p = &memory->geometry.parallelism;
    return rank / ((uint32_t)p->data * p->tensor);
}

static inline uint32_t kv_memory_layers(const struct kv_memory *memory, uint32_t rank)
{
    uint32_t stage = kv_memory_stage(memory, rank);
    return (uint32_t)(memory->geometry.stage_layer_first[stage + 1] - memory->geometry.stage_layer_first[stage]);
}

static inline uint64_t kv_memory_tail_stride(const struct kv_memory *memory)
{
    return ((uint64_t)memory->tail_bytes + 63) / 64 * 64;
}

static inline uint64_t kv_memory_pages_bytes(const struct kv_memory *memory, uint32_t rank)
{
    return (uint64_t)kv_memory_layers(memory, rank) * memory->geometry.planes * memory->pages *
           kv_page_plane_bytes(&memory->geometry);
}

static inline uint64_t kv_memory_bytes(const struct kv_memory *memory, uint32_t rank)
{
    return kv_memory_pages_bytes(memory, rank) + memory->tail_slots * kv_memory_tail_stride(memory);
}

/* Offset of a page's plane in the region of `rank`; `layer` is a global id that the rank holds. */
static inline uint64_t kv_memory_page_offset(const struct kv_memory *memory, uint32_t rank, uint32_t layer,
                                             uint32_t plane, uint32_t page)
{
    uint32_t local = layer - memory->geometry.stage_layer_first[kv_memory_stage(memory, rank)];
    return (((uint64_t)local * memory->geometry.planes + plane) * memory->pages + page) *
           kv_page_plane_bytes(&memory->geometry);
}

static inline uint64_t kv_memory_tail_offset(const struct kv_memory *memory, uint32_t rank, uint32_t slot)
{
    return kv_memory_pages_bytes(memory, rank) + slot * kv_memory_tail_stride(memory);
}

/* The first rank of a group on the last stage: whose tail slots are used. */
static inline uint32_t kv_memory_tail_rank(const struct kv_memory *memory, uint32_t group)
{
    const struct parallelism *p = &memory->geometry.parallelism;
    return ((uint32_t)(p->pipeline - 1) * p->data + group) * p->tensor;
}

#endif
