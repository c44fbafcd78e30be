/* See ledger.h. */
#include "real/runtime/ledger.h"

struct launch_sums launch_sums(const struct step_launch *launch)
{
    struct launch_sums sums = {0};
    for (uint32_t g = 0; g < launch->group_count; g++) {
        sums.tokens += launch->groups[g].decode_sequences;
        sums.prefill_tokens += launch->groups[g].prefill_tokens;
        sums.decode_context += launch->groups[g].decode_context;
    }
    for (uint32_t i = 0; i < launch->change_count; i++) {
        sums.joins += launch->changes[i].kind == STEP_JOIN;
        sums.follows += launch->changes[i].kind == STEP_JOIN && launch->changes[i].tokens > 0;
    }
    return sums;
}

static void count_gap(struct ledger *ledger, int64_t gap_ns, uint64_t tokens)
{
    ledger->itl[itl_bucket(gap_ns)] += tokens;
}

void ledger_steps(struct ledger *ledger, struct step_times *times, const struct launch_sums *sums,
                  const struct steps_outcome *outcome, int64_t origin_ns, int64_t itl_from_ns,
                  bool produces_first_token)
{
    for (uint32_t i = 0; i < outcome->steps; i++) {
        int64_t end_ns = outcome->end_ns[i] - origin_ns;
        uint64_t joins = i == 0 ? sums->joins : 0;
        if (sums->tokens > 0 && end_ns >= itl_from_ns) {
            if (times->decode_end_ns >= 0)
                count_gap(ledger, end_ns - times->decode_end_ns, sums->tokens - joins);
            if (produces_first_token && times->step_end_ns >= 0)
                count_gap(ledger, end_ns - times->step_end_ns, joins == 0 ? 0 : sums->follows);
        }
        if (sums->tokens > 0)
            times->decode_end_ns = end_ns;
        times->step_end_ns = end_ns;
    }
    ledger->launches++;
    ledger->steps += outcome->steps;
    ledger->prefill_tokens += sums->prefill_tokens;
    ledger->decode_tokens += sums->tokens * outcome->steps;
}
