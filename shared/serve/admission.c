/* See admission.h. */
#include "serve/admission.h"

#include "base/arith.h"

enum reject_reason admission_check(const struct admission_policy *policy, uint64_t least_queued_tokens,
                                   uint32_t prompt_tokens)
{
    if (policy->queued_tokens_max > 0 && least_queued_tokens > policy->queued_tokens_max)
        return REJECT_ADMISSION;
    if (policy->ttft_limit_ns > 0 && policy->prefill_tokens_per_s > 0) {
        uint64_t tokens = least_queued_tokens + prompt_tokens;
        uint64_t wait_ns = mul_div_ceil_u64(tokens, (uint64_t)NS_PER_S, policy->prefill_tokens_per_s);
        if (wait_ns > (uint64_t)policy->ttft_limit_ns)
            return REJECT_ADMISSION;
    }
    return REJECT_NONE;
}
