/* The step whose time decides between two candidates of a plan: its shape, what the model says of it, and whose
 * benchmark takes it. */
#include "sim/plan/uncertainty.h"

#include "base/arith.h"
#include "world/scenario/scenario.h"

#include <stdio.h>
#include <string.h>

static const char *const engine_names[] = {
    [ENGINE_NEUTRAL] = "neutral", [ENGINE_VLLM] = "vllm", [ENGINE_SGLANG] = "sglang", [ENGINE_TRTLLM] = "trtllm"};

static void prompts_step(struct step_group *step, uint64_t sequences, uint64_t tokens)
{
    *step = (struct step_group){.prefill_sequences = (uint32_t)sequences,
                                .prefill_tokens = sequences * tokens,
                                .prefill_pairs = sequences * tokens * (tokens + 1) / 2};
}

static int64_t step_ns(const struct candidate *candidate, uint32_t pool, const struct step_group *step, uint32_t groups)
{
    struct step_group all[GROUPS_MAX];
    struct step_time time;
    for (uint32_t g = 0; g < groups; g++)
        all[g] = *step;
    device_step(candidate->models.pool[pool], all, groups, &time);
    return time.total_ns;
}

/* Prompts of a step, a group: as many as arrive while the step before takes its time. */
static uint64_t prompts_of_step(const struct plan_candidate *item, uint32_t pool, uint64_t tokens, uint32_t groups)
{
    const struct candidate *candidate = &item->candidate;
    uint64_t most = max_u64(1, candidate->scenario->pools[pool].scheduler.token_budget / tokens);
    uint64_t instances = candidate->aggregated ? candidate->decode : candidate->prefill;
    uint64_t rate = max_u64(item->rate_micro_per_s, item->limit_micro_per_s[LIMIT_NONE]) / (instances * groups);
    uint64_t sequences = 0;
    for (uint64_t more = 1; more > sequences;) {
        struct step_group step;
        sequences = more;
        prompts_step(&step, sequences, tokens);
        uint64_t takes_ns = (uint64_t)step_ns(candidate, pool, &step, groups);
        more = min_u64(most, mul_div_ceil_u64(rate, takes_ns, UINT64_C(1000000) * (uint64_t)NS_PER_S));
    }
    return sequences;
}

/* The step of a candidate's instance as the plan runs it: prompts of the mean length, or the batch that decodes at its
 * rate, all groups alike. */
static void describe_step(const struct plan *plan, const struct plan_candidate *item, enum step_kind kind,
                          struct plan_measure *measure)
{
    const struct candidate *candidate = &item->candidate;
    const struct parallelism *sharding = uncertainty_sharding(candidate, kind);
    uint32_t index = uncertainty_pool(candidate, kind);
    const struct pool *pool = &candidate->scenario->pools[index];
    const struct demand *demand = &plan->demand;
    const struct plan_candidate *best = &plan->result->items[plan->result->best];
    uint32_t groups = max_u32(1, sharding->data);
    struct step_group step = {.decode_sequences = 0};
    uint64_t sequences;
    if (kind == STEP_PREFILL) {
        measure->tokens = min_u64(demand->prompt_sum / demand->count, pool->scheduler.token_budget);
        sequences = prompts_of_step(item, index, measure->tokens, groups);
        prompts_step(&step, sequences, measure->tokens);
    } else {
        /* Little's law: requests a second and instance, times how long each decodes. */
        uint64_t rate =
            max_u64(item->rate_micro_per_s, item->limit_micro_per_s[LIMIT_NONE]) / max_u32(1, candidate->decode);
        uint64_t tpot_ns = (uint64_t)max_i64(0, plan_at(best)->tpot_ns[PROBE_P50]);
        uint64_t decode_ns = mul_u64(tpot_ns, demand->output_sum / demand->count);
        uint64_t batch = mul_div_floor_u64(rate, decode_ns, UINT64_C(1000000) * (uint64_t)NS_PER_S);
        measure->tokens = demand_context(demand);
        sequences = min_u64(max_u64(1, batch / groups), pool->scheduler.batch_max);
        step.decode_sequences = (uint32_t)sequences;
        step.decode_context = sequences * measure->tokens;
    }
    measure->step = kind;
    measure->sequences = (uint32_t)sequences * groups;
    measure->gpus = kv_ranks(sharding);
    measure->model_ns = step_ns(candidate, index, &step, groups);
    parallelism_text(sharding, measure->sharding, sizeof measure->sharding);
    snprintf(measure->engine, sizeof measure->engine, "%s", engine_names[pool->engine.kernels]);
}

void uncertainty_measure(const struct uncertainty *uncertainty, const struct plan_candidate *rival, uint32_t limit,
                         uint32_t permille, struct plan_measure *measure)
{
    const struct plan_candidate *best = uncertainty_item(uncertainty, 0);
    describe_step(uncertainty->plan, limit_is_relative(limit) ? rival : best, limit_kind(limit), measure);
    measure->decides_ns = (int64_t)mul_div_floor_u64((uint64_t)measure->model_ns, permille, 1000);
    bool slow = limit == LIMIT_PREFILL_SLOW || limit == LIMIT_DECODE_SLOW;
    snprintf(measure->below, sizeof measure->below, "%s", (slow ? best : rival)->candidate.label);
    snprintf(measure->above, sizeof measure->above, "%s", (slow ? rival : best)->candidate.label);
}
