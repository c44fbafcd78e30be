/* See event_queue.h.
 *
 * A 4-ary heap in one flat array: a node's four children lie side by side, so a level costs one or two cache lines and
 * a hundred thousand entries are nine levels deep. Entries carry their whole key; payloads stay put in slots named by
 * the handle, which also hold the entry's place in the heap for cancel and move.
 *
 * What follows a pop is most often a push (the event handled schedules the next), so a pop only marks the root as a
 * hole; a push falls into the hole and sinks, and only when something else comes first is the hole closed with the last
 * entry. That saves one of the two passes through the heap.
 */
#include "sim/time/event_queue.h"

#include "base/arith.h"
#include "host/memory.h"

#include <stdlib.h>

#define ARITY 4u
#define FIRST_CAPACITY 64u
#define NO_SLOT UINT32_MAX

struct entry {
    int64_t time_ns;
    uint64_t order; /* unique: the sequence of push, or a permutation of it */
    uint32_t handle;
};

struct slot {
    uint64_t payload;
    uint32_t place; /* in the heap; of a free slot: the next free one */
    bool live;
};

struct event_queue {
    struct entry *heap;
    struct slot *slots;
    uint32_t used; /* entries in the heap, the hole included */
    uint32_t capacity;
    uint32_t slots_used;
    uint32_t free_slot;
    bool hole; /* the root has been popped and not been replaced */
    uint64_t sequence;
    uint64_t shuffle_seed;
};

struct event_queue *event_queue_make(uint64_t shuffle_seed)
{
    struct event_queue *queue = memory_zeroed(1, sizeof *queue);
    queue->free_slot = NO_SLOT;
    queue->shuffle_seed = shuffle_seed;
    return queue;
}

void event_queue_free(struct event_queue *queue)
{
    if (queue == NULL)
        return;
    free(queue->heap);
    free(queue->slots);
    free(queue);
}

static void grow(struct event_queue *queue)
{
    CHECK(queue->capacity < NO_SLOT / 2);
    uint32_t capacity = queue->capacity == 0 ? FIRST_CAPACITY : 2 * queue->capacity;
    struct entry *heap = memory_resized(queue->heap, capacity * sizeof *heap);
    queue->heap = heap;
    struct slot *slots = memory_resized(queue->slots, capacity * sizeof *slots);
    queue->slots = slots;
    queue->capacity = capacity;
}

/* A bijection of 64 bits (every step is invertible), so that shuffled orders stay unique. */
static uint64_t next_order(struct event_queue *queue)
{
    uint64_t z = queue->sequence++;
    if (queue->shuffle_seed == 0)
        return z;
    z = (z + queue->shuffle_seed) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* One comparison of 128 bits, without a branch on the times being equal. */
static inline int128 key(const struct entry *entry)
{
    return (int128)entry->time_ns * ((int128)1 << 64) + entry->order;
}

static inline void put(struct event_queue *queue, uint32_t place, const struct entry *entry)
{
    queue->heap[place] = *entry;
    queue->slots[entry->handle].place = place;
}

/* `place` is vacant; finds room for `entry` at it or above it. */
static void rise(struct event_queue *queue, uint32_t place, struct entry entry)
{
    const int128 entry_key = key(&entry);
    while (place > 0) {
        uint32_t parent = (place - 1) / ARITY;
        if (key(&queue->heap[parent]) < entry_key)
            break;
        put(queue, place, &queue->heap[parent]);
        place = parent;
    }
    put(queue, place, &entry);
}

static uint32_t least_child(const struct event_queue *queue, uint32_t first)
{
    uint32_t end = min_u32(first + ARITY, queue->used);
    uint32_t least = first;
    int128 least_key = key(&queue->heap[first]);
    for (uint32_t child = first + 1; child < end; child++) {
        int128 child_key = key(&queue->heap[child]);
        bool less = child_key < least_key;
        least = less ? child : least;
        least_key = less ? child_key : least_key;
    }
    return least;
}

/* `place` is vacant; finds room for `entry` at it or below it. */
static void sink(struct event_queue *queue, uint32_t place, struct entry entry)
{
    const int128 entry_key = key(&entry);
    for (;;) {
        uint32_t first = place * ARITY + 1;
        if (first >= queue->used)
            break;
        uint32_t child = least_child(queue, first);
        if (entry_key < key(&queue->heap[child]))
            break;
        put(queue, place, &queue->heap[child]);
        place = child;
    }
    put(queue, place, &entry);
}

/* Fills the vacant `place` with the last entry of the heap. */
static void close_gap(struct event_queue *queue, uint32_t place)
{
    queue->used--;
    if (place == queue->used)
        return;
    struct entry last = queue->heap[queue->used];
    if (place > 0 && key(&last) < key(&queue->heap[(place - 1) / ARITY]))
        rise(queue, place, last);
    else
        sink(queue, place, last);
}

static void settle(struct event_queue *queue)
{
    if (!queue->hole)
        return;
    queue->hole = false;
    close_gap(queue, 0);
}

uint32_t event_queue_push(struct event_queue *queue, int64_t time_ns, uint64_t payload)
{
    if (!queue->hole && queue->used == queue->capacity)
        grow(queue);
    uint32_t handle = queue->free_slot;
    if (handle != NO_SLOT)
        queue->free_slot = queue->slots[handle].place;
    else
        handle = queue->slots_used++;
    queue->slots[handle].payload = payload;
    queue->slots[handle].live = true;
    struct entry entry = {.time_ns = time_ns, .order = next_order(queue), .handle = handle};
    if (queue->hole) {
        queue->hole = false;
        sink(queue, 0, entry);
    } else {
        rise(queue, queue->used++, entry);
    }
    return handle;
}

static void release(struct event_queue *queue, uint32_t handle)
{
    queue->slots[handle].live = false;
    queue->slots[handle].place = queue->free_slot;
    queue->free_slot = handle;
}

static uint32_t place_of(const struct event_queue *queue, uint32_t handle)
{
    CHECK(handle < queue->slots_used && queue->slots[handle].live);
    return queue->slots[handle].place;
}

void event_queue_cancel(struct event_queue *queue, uint32_t handle)
{
    settle(queue);
    uint32_t place = place_of(queue, handle);
    release(queue, handle);
    close_gap(queue, place);
}

void event_queue_move(struct event_queue *queue, uint32_t handle, int64_t time_ns)
{
    settle(queue);
    uint32_t place = place_of(queue, handle);
    struct entry entry = {.time_ns = time_ns, .order = next_order(queue), .handle = handle};
    if (key(&entry) < key(&queue->heap[place]))
        rise(queue, place, entry);
    else
        sink(queue, place, entry);
}

bool event_queue_peek(const struct event_queue *queue, int64_t *time_ns)
{
    if (event_queue_length(queue) == 0)
        return false;
    *time_ns = queue->heap[queue->hole ? least_child(queue, 1) : 0].time_ns;
    return true;
}

bool event_queue_pop(struct event_queue *queue, int64_t *time_ns, uint64_t *payload)
{
    settle(queue);
    if (queue->used == 0)
        return false;
    const struct entry *first = &queue->heap[0];
    *time_ns = first->time_ns;
    *payload = queue->slots[first->handle].payload;
    release(queue, first->handle);
    queue->hole = true;
    return true;
}

uint32_t event_queue_length(const struct event_queue *queue)
{
    return queue->used - queue->hole;
}
