/* See admission.h. */
#include "serve/admission.h"

#include "base/arith.h"

enum reject_reason admission_check(const struct admission_policy *policy, const struct admission_outlook *outlook)
{
    if (policy->queued_tokens_max > 0 && outlook->queued_tokens > policy->queued_tokens_max)
        return REJECT_ADMISSION;
    if (policy->decode_load_max_permille > 0 && outlook->decode_load_permille > policy->decode_load_max_permille)
        return REJECT_ADMISSION;
    uint64_t rate = policy->prefill_tokens_per_s > 0 ? policy->prefill_tokens_per_s : outlook->prefill_tokens_per_s;
    if (policy->ttft_limit_ns > 0 && rate > 0) {
        uint64_t wait_ns = mul_div_ceil_u64(outlook->tokens_to_first, (uint64_t)NS_PER_S, rate);
        if (wait_ns > (uint64_t)policy->ttft_limit_ns)
            return REJECT_ADMISSION;
    }
    return REJECT_NONE;
}
