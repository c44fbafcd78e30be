/* Collectives among the ranks of one instance, which are processes (or threads) on one machine: over shared memory that
 * the instance made.
 *
 * A sum over ranks is taken by bisection, for every element alike: sum of the first half of the ranks plus sum of the
 * second half. It never depends on who came first, and where the ranks are a power of two it continues the bisection
 * that each of them has begun over its own share of a split dimension: the result is the same however many share it.
 *
 * Ranks call in the same order within each set of ranks [first, first + count). A rank that must wait spins briefly and
 * then sleeps on a futex: machines may have fewer processors than ranks.
 */
#ifndef TANDEM_REAL_DEVICE_COLLECTIVE_H
#define TANDEM_REAL_DEVICE_COLLECTIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collective;

/* Sets of ranks in use at a time are partitions of the ranks: attention groups, pipeline stages, and twice every two
 * stages that follow each other. */
#define COLLECTIVE_PARTITIONS_MAX 4

/* Bytes of shared memory for `ranks` ranks that exchange floats_max (at least 1) floats each at a time. Longer vectors
 * go in pieces, so this is a matter of speed alone. Memory never touched is never taken from the machine. */
size_t collective_bytes(uint32_t ranks, size_t floats_max);

/* Joins as `rank`; `memory` is collective_bytes() long, aligned to 64, zero when the first one joins, and mapped by
 * all. A rank in a call waits for the others until *abandon becomes true, which is looked at every few milliseconds;
 * then this call and all later ones return false, and the memory is of no more use. NULL when there is no memory. */
struct collective *collective_join(void *memory, uint32_t rank, uint32_t ranks, size_t floats_max,
                                   const _Atomic bool *abandon);
void collective_leave(struct collective *collective);

/* In place: every element becomes the sum over ranks [first, first + count), which all call it alike. */
bool collective_all_reduce(struct collective *collective, uint32_t first, uint32_t count, float *values, size_t n);

/* Each of those ranks contributes n floats; `all` receives count * n, in rank order. */
bool collective_all_gather(struct collective *collective, uint32_t first, uint32_t count, const float *values, size_t n,
                           float *all);

/* The same where rank first + i contributes counts[i] floats, which may be 0; all know all counts. `all` receives the
 * contributions one after another, without gaps. Floats are moved as bytes: any 32 bits survive. */
bool collective_all_gather_counts(struct collective *collective, uint32_t first, uint32_t count, const float *values,
                                  const size_t *counts, float *all);

/* Words for others to read when they come to it, on one of as many boards as there are ranks: whoever posts waits for
 * nobody. At most floats_max words. A board is posted to by one rank, and again only when all who read it have. */
void collective_post(struct collective *collective, uint32_t board, const uint32_t *words, size_t n);

/* Reads what was posted as the `count`th on the board, counted from 1. Waits for it, or where not `wait` is false when
 * it is not there. */
bool collective_read(struct collective *collective, uint32_t board, uint32_t count, bool wait, uint32_t *words,
                     size_t n);

bool collective_barrier(struct collective *collective, uint32_t first, uint32_t count);

#endif
