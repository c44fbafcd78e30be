/* Integer arithmetic that cannot overflow unseen.
 *
 * Durations round up (a thing is never finished early), rates round down (a link never carries more than its line
 * rate). Products that may leave 64 bits go through 128-bit intermediates.
 */
#ifndef TANDEM_BASE_ARITH_H
#define TANDEM_BASE_ARITH_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 uint128;
__extension__ typedef __int128 int128;

/* Nanoseconds: of virtual time in the simulator, of a monotonic clock in the real runtime. */
#define TIME_NEVER INT64_MAX
#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint32_t ceil_div_u32(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}
static inline uint64_t ceil_div_u64(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t add_u64(uint64_t a, uint64_t b)
{
    CHECK(a <= UINT64_MAX - b);
    return a + b;
}

static inline uint64_t mul_u64(uint64_t a, uint64_t b)
{
    CHECK(b == 0 || a <= UINT64_MAX / b);
    return a * b;
}

static inline uint32_t narrow_u32(uint64_t a)
{
    CHECK(a <= UINT32_MAX);
    return (uint32_t)a;
}

/* Numbers that are counted up and wrap: whether a count that has come to `number` has passed `wanted`. */
static inline bool number_reached(uint32_t number, uint32_t wanted)
{
    return number - wanted < UINT32_C(1) << 31;
}

/* ceil(a * b / c) and floor(a * b / c), exact; the result must fit 64 bits. */
static inline uint64_t mul_div_ceil_u64(uint64_t a, uint64_t b, uint64_t c)
{
    CHECK(c != 0);
    uint128 quotient = ((uint128)a * b + (c - 1)) / c;
    CHECK(quotient <= UINT64_MAX);
    return (uint64_t)quotient;
}

static inline uint64_t mul_div_floor_u64(uint64_t a, uint64_t b, uint64_t c)
{
    CHECK(c != 0);
    uint128 quotient = (uint128)a * b / c;
    CHECK(quotient <= UINT64_MAX);
    return (uint64_t)quotient;
}

/* A duration never runs past the end of time. */
static inline int64_t time_add(int64_t time_ns, int64_t duration_ns)
{
    CHECK(duration_ns >= 0);
    return time_ns > TIME_NEVER - duration_ns ? TIME_NEVER : time_ns + duration_ns;
}

#endif
