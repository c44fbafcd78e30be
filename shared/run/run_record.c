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

static const struct reason {
    const char *key;
    const char *text;
} unknown_reason = {"unknown", "no reason is known"},
  rejected[] =
      {
          [REJECT_NONE] = {"none", "without a reason"},
          [REJECT_TOO_LARGE_PREFILL] = {"too_large_prefill", "its KV can never fit a prefiller's pool"},
          [REJECT_TOO_LARGE_DECODE] = {"too_large_decode", "its KV can never fit a decoder's pool"},
          [REJECT_QUEUE_FULL] = {"queue_full", "the request table of its instance was full"},
          [REJECT_ADMISSION] = {"admission", "the admission policy expected its target to be missed"},
          [REJECT_GEOMETRY] = {"geometry", "the KV layouts of the two instances cannot be mapped"},
          [REJECT_NO_INSTANCE] = {"no_instance", "no instance of a role was alive"},
          [REJECT_DUPLICATE] = {"duplicate", "its number was in flight already"},
          [REJECT_COUNT_OVERFLOW] = {"count_overflow", "a count of its transfer does not fit the protocol's field"},
},
  failed[] =
      {
          [FAIL_NONE] = {"none", "without a reason"},
          [FAIL_PEER_LOST] = {"peer_lost", "an instance that served it was lost"},
          [FAIL_DEADLINE] = {"deadline", "its transfer did not end within messenger.deadline"},
          [FAIL_WRITE] = {"write", "a write of its KV failed"},
          [FAIL_CLIENT] = {"client", "its client went away"},
          [FAIL_REFUSED] = {"refused", "the prefiller had no room for it"},
},
  endpoint[] = {
      {"overload", "the endpoint was overloaded (429, 503, 529)"},
      {"status", "the endpoint refused it by a status"},
      {"stream_error", "the endpoint sent an error in the answer"},
      {"cut", "the answer ended before it was complete"},
      {"malformed", "what came is no answer of this API"},
      {"unreached", "there was no connection to the endpoint"},
      {"stalled", "nothing came for too long"},
      {"empty", "the answer has no token"},
};

static const struct reason *reason_of(enum outcome outcome, uint8_t reason)
{
    if (reason >= ENDPOINT_OVERLOAD && reason < ENDPOINT_OVERLOAD + sizeof endpoint / sizeof *endpoint)
        return &endpoint[reason - ENDPOINT_OVERLOAD];
    if (outcome == OUTCOME_REJECTED && reason < sizeof rejected / sizeof *rejected)
        return &rejected[reason];
    if (outcome == OUTCOME_FAILED && reason < sizeof failed / sizeof *failed)
        return &failed[reason];
    return &unknown_reason;
}

const char *outcome_reason_key(enum outcome outcome, uint8_t reason)
{
    return reason_of(outcome, reason)->key;
}

const char *outcome_reason_text(enum outcome outcome, uint8_t reason)
{
    return reason_of(outcome, reason)->text;
}
