/* See run_record.h. */
#include "run/run_record.h"

#include "base/check.h"

const char *const span_names[SPAN_COUNT] = {
    "route", "admission_wait", "prefill_queue", "prefill", "exposed_transfer", "decode_queue", "first_decode", "decode",
};

/* The octave [2^(7+k), 2^(8+k)) is cut into 128 buckets of 2^k ns; below it buckets are one nanosecond wide. The last
 * octave ends at 2^46 ns (19 hours); a longer gap counts in the last bucket. */
#define PER_OCTAVE 128
#define PER_OCTAVE_BITS 7

uint32_t itl_bucket(int64_t gap_ns)
{
    CHECK(gap_ns >= 0);
    uint64_t gap = (uint64_t)gap_ns;
    if (gap < PER_OCTAVE)
        return (uint32_t)gap;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(gap) - PER_OCTAVE_BITS; /* k of the comment above */
    uint64_t bucket = (uint64_t)octave * PER_OCTAVE + (gap >> octave);
    return bucket < ITL_BUCKETS ? (uint32_t)bucket : ITL_BUCKETS - 1;
}

int64_t itl_bucket_upper_ns(uint32_t bucket)
{
    CHECK(bucket < ITL_BUCKETS);
    if (bucket < PER_OCTAVE)
        return (int64_t)bucket;
    uint32_t octave = bucket / PER_OCTAVE - 1;
    int64_t position = (int64_t)(bucket % PER_OCTAVE + PER_OCTAVE);
    return (int64_t)((uint64_t)(position + 1) << octave) - 1;
}
