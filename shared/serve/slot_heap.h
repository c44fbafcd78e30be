/* A binary heap of slots, smallest (key, tie) first, from which any slot can be removed. The order is total because
 * ties are distinct, so equal keys leave in the order the caller numbered them.
 */
#ifndef TANDEM_SERVE_SLOT_HEAP_H
#define TANDEM_SERVE_SLOT_HEAP_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct slot_heap_entry {
    uint64_t key;
    uint32_t tie;
    uint32_t slot;
};

struct slot_heap {
    struct slot_heap_entry *entries;
    uint32_t *positions; /* by slot, plus one; 0: in no heap. May be shared by heaps that share no slot */
    uint32_t count;
    uint32_t capacity;
};

void slot_heap_make(struct slot_heap *heap, struct arena *arena, uint32_t capacity, uint32_t *positions);
void slot_heap_push(struct slot_heap *heap, uint32_t slot, uint64_t key, uint32_t tie);
void slot_heap_remove(struct slot_heap *heap, uint32_t slot);

static inline bool slot_heap_holds(const struct slot_heap *heap, uint32_t slot)
{
    return heap->positions[slot] != 0;
}

static inline const struct slot_heap_entry *slot_heap_top(const struct slot_heap *heap)
{
    return heap->count == 0 ? NULL : &heap->entries[0];
}

#endif
