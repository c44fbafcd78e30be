/* See slot_heap.h. */
#include "serve/slot_heap.h"

#include "base/check.h"

void slot_heap_make(struct slot_heap *heap, struct arena *arena, uint32_t capacity, uint32_t *positions)
{
    heap->entries = arena_take(arena, capacity, sizeof *heap->entries);
    heap->positions = positions;
    heap->count = 0;
    heap->capacity = capacity;
}

static bool before(const struct slot_heap_entry *a, const struct slot_heap_entry *b)
{
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static void put(struct slot_heap *heap, uint32_t position, struct slot_heap_entry entry)
{
    heap->entries[position] = entry;
    heap->positions[entry.slot] = position + 1;
}

static void sift_up(struct slot_heap *heap, uint32_t position, struct slot_heap_entry entry)
{
    while (position > 0) {
        uint32_t parent = (position - 1) / 2;
        if (!before(&entry, &heap->entries[parent]))
            break;
        put(heap, position, heap->entries[parent]);
        position = parent;
    }
    put(heap, position, entry);
}

static void sift_down(struct slot_heap *heap, uint32_t position, struct slot_heap_entry entry)
{
    for (;;) {
        uint32_t child = 2 * position + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!before(&heap->entries[child], &entry))
            break;
        put(heap, position, heap->entries[child]);
        position = child;
    }
    put(heap, position, entry);
}

void slot_heap_push(struct slot_heap *heap, uint32_t slot, uint64_t key, uint32_t tie)
{
    CHECK(heap->count < heap->capacity);
    CHECK(heap->positions[slot] == 0);
    sift_up(heap, heap->count++, (struct slot_heap_entry){.key = key, .tie = tie, .slot = slot});
}

void slot_heap_remove(struct slot_heap *heap, uint32_t slot)
{
    CHECK(heap->positions[slot] != 0);
    uint32_t position = heap->positions[slot] - 1;
    CHECK(position < heap->count && heap->entries[position].slot == slot);
    heap->positions[slot] = 0;
    struct slot_heap_entry last = heap->entries[--heap->count];
    if (position == heap->count)
        return;
    if (position > 0 && before(&last, &heap->entries[(position - 1) / 2]))
        sift_up(heap, position, last);
    else
        sift_down(heap, position, last);
}
