/* See run_record.h. */
#include "host/run_record.h"

#include "base/arith.h"

const char *const span_names[SPAN_COUNT] = {
    "route",      "admission_wait", "prefill_queue", "prefill", "exposed_transfer",
    "decode_queue", "first_decode",   "decode",
};

/* Buckets of an octave. Below it a bucket is one nanosecond wide. */
#define OCTAVE 128u
#define OCTAVE_BITS 7

uint32_t itl_bucket(int64_t gap_ns)
{
    CHECK(gap_ns >= 0);
    uint64_t gap = (uint64_t)gap_ns;
    if (gap < OCTAVE)
        return (uint32_t)gap;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(gap) - OCTAVE_BITS;
    return min_u32(shift * OCTAVE + (uint32_t)(gap >> shift), ITL_BUCKETS - 1);
}

int64_t itl_bucket_upper_ns(uint32_t bucket)
{
    CHECK(bucket < ITL_BUCKETS);
    if (bucket < 2 * OCTAVE)
        return bucket;
    uint32_t shift = bucket / OCTAVE - 1;
    return (int64_t)((uint64_t)(bucket - shift * OCTAVE + 1) << shift) - 1;
}
