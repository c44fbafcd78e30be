/* See ring.h.
 *
 * head and tail run freely modulo 2^32, so that a full ring and an empty one differ without a spare record. Each index
 * is written by one side alone: its release store publishes the record (or the free place) to the other side's acquire
 * load.
 */
#include "real/memory/ring.h"

#include "base/check.h"

#include <string.h>

static unsigned char *record_at(struct ring *ring, uint32_t index)
{
    size_t offset = (size_t)(index & (ring->capacity - 1)) * ring->record_bytes;
    return (unsigned char *)ring + sizeof *ring + offset;
}

size_t ring_bytes(uint32_t capacity, uint32_t record_bytes)
{
    return sizeof(struct ring) + ((size_t)capacity * record_bytes + 63) / 64 * 64;
}

void ring_make(struct ring *ring, uint32_t capacity, uint32_t record_bytes)
{
    CHECK(capacity > 0 && capacity <= UINT32_C(1) << 31 && (capacity & (capacity - 1)) == 0 && record_bytes > 0);
    ring->capacity = capacity;
    ring->record_bytes = record_bytes;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
}

bool ring_push(struct ring *ring, const void *record)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    if (tail - head == ring->capacity)
        return false;
    memcpy(record_at(ring, tail), record, ring->record_bytes);
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

bool ring_pop(struct ring *ring, void *record)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (head == tail)
        return false;
    memcpy(record, record_at(ring, head), ring->record_bytes);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}

uint32_t ring_length(const struct ring *ring)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    return atomic_load_explicit(&ring->tail, memory_order_acquire) - head;
}
