/* A bounded ring of fixed-size records between two threads or two processes: one producer, one consumer, no lock, no
 * system call. Lives in memory that both map.
 */
#ifndef TANDEM_REAL_MEMORY_RING_H
#define TANDEM_REAL_MEMORY_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
    _Alignas(64) _Atomic uint32_t head; /* next to be read */
    _Alignas(64) _Atomic uint32_t tail; /* next to be written */
    _Alignas(64) uint32_t capacity;     /* records, a power of two */
    uint32_t record_bytes;
    /* records follow, aligned to 64 */
};

size_t ring_bytes(uint32_t capacity, uint32_t record_bytes);
void ring_make(struct ring *ring, uint32_t capacity, uint32_t record_bytes);

/* False when the ring is full (empty). */
bool ring_push(struct ring *ring, const void *record);
bool ring_pop(struct ring *ring, void *record);
uint32_t ring_length(const struct ring *ring);

#endif
