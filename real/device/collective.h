/* Collectives among the ranks of one instance, which are processes on one machine: over shared memory that the instance
 * made. Sums are taken in rank order for every element, so a result never depends on who came first.
 */
#ifndef TANDEM_REAL_DEVICE_COLLECTIVE_H
#define TANDEM_REAL_DEVICE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collective;

/* Bytes of shared memory for `ranks` ranks that exchange up to `floats_max` floats each at a time. */
size_t collective_bytes(uint32_t ranks, size_t floats_max);

/* Joins as `rank`; `memory` is collective_bytes() long, zero when the first one joins, and mapped by all. A rank that is in a
 * collective call while another one dies waits until *abandon becomes true (checked while waiting), then calls return false. */
struct collective *collective_join(void *memory, uint32_t rank, uint32_t ranks, size_t floats_max,
                                   const volatile bool *abandon);
void collective_leave(struct collective *collective);

/* In place: every element becomes the sum over ranks [first, first + count), which all call it alike. */
bool collective_all_reduce(struct collective *collective, uint32_t first, uint32_t count, float *values, size_t n);

/* Each of those ranks contributes n floats; `all` receives count * n, in rank order. */
bool collective_all_gather(struct collective *collective, uint32_t first, uint32_t count, const float *values, size_t n,
                           float *all);

bool collective_barrier(struct collective *collective, uint32_t first, uint32_t count);

#endif
