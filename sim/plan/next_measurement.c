/* The step whose time decides between two candidates of a plan: its shape, the engine's command that measures it, and
 * what the plan says of the model's error. */
#include "sim/plan/doubt.h"

#include "base/arith.h"
#include "world/scenario/scenario.h"

#include <stdio.h>
#include <string.h>

/* ---- What to measure --------------------------------------------------------------------------------------------- */

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
    uint64_t instances = candidate->mixed ? candidate->decode : candidate->prefill;
    uint64_t rate = max_u64(item->rate_micro_per_s, item->end_micro_per_s[END_NONE]) / (instances * groups);
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
    const struct parallelism *sharding = doubt_sharding(candidate, kind);
    uint32_t index = doubt_pool(candidate, kind);
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
            max_u64(item->rate_micro_per_s, item->end_micro_per_s[END_NONE]) / max_u32(1, candidate->decode);
        uint64_t tpot_ns = (uint64_t)max_i64(0, best->at[best->worst_seed].tpot_ns[PROBE_P50]);
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

void doubt_measure(const struct doubt *doubt, const struct plan_candidate *rival, uint32_t end, uint32_t permille,
                   struct plan_measure *measure)
{
    const struct plan_candidate *best = doubt_item(doubt, 0);
    describe_step(doubt->plan, end_is_apart(end) ? rival : best, end_kind(end), measure);
    measure->decides_ns = (int64_t)mul_div_floor_u64((uint64_t)measure->model_ns, permille, 1000);
    bool slow = end == END_PREFILL_SLOW || end == END_DECODE_SLOW;
    snprintf(measure->below, sizeof measure->below, "%s", (slow ? best : rival)->candidate.label);
    snprintf(measure->above, sizeof measure->above, "%s", (slow ? rival : best)->candidate.label);
}

/* ---- In words ---------------------------------------------------------------------------------------------------- */

void plan_measure_how(const struct plan_measure *measure, char *text, size_t size)
{
    bool prefill = measure->step == STEP_PREFILL;
    if (strcmp(measure->engine, "sglang") == 0)
        snprintf(
            text, size,
            "python -m sglang.bench_one_batch --batch-size %u --input-len %llu --output-len %u, as the instance is "
            "started: the %s latency",
            measure->sequences, (unsigned long long)measure->tokens, prefill ? 2 : 32,
            prefill ? "prefill" : "median decode");
    else if (strcmp(measure->engine, "trtllm") == 0)
        snprintf(
            text, size,
            "trtllm-bench throughput --concurrency %u with that many requests of %llu tokens in and %u out: the mean "
            "%s",
            measure->sequences, (unsigned long long)measure->tokens, prefill ? 1 : 32,
            prefill ? "time to the first token" : "time per output token");
    else
        snprintf(text, size,
                 "vllm bench latency --batch-size %u --input-len %llu --output-len %u, as the instance is started%s",
                 measure->sequences, (unsigned long long)measure->tokens, prefill ? 1 : 33,
                 prefill ? "" : ": 1/32 of what it takes more than with --output-len 1");
}

static void explain_measure(const struct plan_measure *measure, char *text, size_t size)
{
    bool prefill = measure->step == STEP_PREFILL;
    char shape[160];
    snprintf(shape, sizeof shape,
             prefill ? "the prefill step of %u prompt%s of %llu tokens"
                     : "the decode step of %u sequence%s of %llu tokens",
             measure->sequences, measure->sequences == 1 ? "" : "s", (unsigned long long)measure->tokens);
    size_t length = strlen(text);
    snprintf(text + length, size - length,
             " Measure %s on one %s instance (%u GPUs; the model says %.1f ms): below %.1f ms %s is best, above it %s.",
             shape, measure->sharding, measure->gpus, (double)measure->model_ns / 1e6,
             (double)measure->decides_ns / 1e6, measure->below, measure->above);
}

static bool colocated_is_better(const struct plan_result *result)
{
    if (result->colocated == NO_CANDIDATE)
        return false;
    const struct plan_candidate *mixed = &result->items[result->colocated];
    const struct plan_candidate *best = &result->items[result->best];
    return plan_better(mixed->rate_micro_per_s, &mixed->candidate, best->rate_micro_per_s, &best->candidate);
}

void plan_explain_doubt(const struct plan *plan, char *why, size_t size)
{
    const struct plan_result *result = plan->result;
    const struct plan_doubt *doubt = &result->doubt;
    const struct plan_candidate *best = &result->items[result->best];
    const struct step_error *prefill = &doubt->error[STEP_PREFILL];
    const struct step_error *decode = &doubt->error[STEP_DECODE];
    size_t length = strlen(why);
    snprintf(why + length, size - length,
             " Validated, prefill steps take %.2f to %.2f of what the model says (%s: %u cases), decode steps %.2f to "
             "%.2f (%s: %u cases): it serves %.2f to %.2f/s.",
             prefill->fast_permille / 1000.0, prefill->slow_permille / 1000.0, prefill->class_name, prefill->rows,
             decode->fast_permille / 1000.0, decode->slow_permille / 1000.0, decode->class_name, decode->rows,
             (double)best->rate_model_low_micro_per_s / 1e6, (double)best->rate_model_high_micro_per_s / 1e6);
    length = strlen(why);
    if (doubt->tie_count == 0 && !doubt->colocated_may_win) {
        snprintf(why + length, size - length, " Nothing within that error makes another one better.");
        return;
    }
    if (doubt->tie_count > 0)
        snprintf(why + length, size - length, " Within the error of the model it ties with");
    for (uint32_t t = 0; t < doubt->tie_count; t++) {
        length = strlen(why);
        snprintf(why + length, size - length, "%s %s%s", t > 0 ? "," : "",
                 result->items[doubt->ties[t]].candidate.label, t + 1 == doubt->tie_count ? "." : "");
    }
    length = strlen(why);
    if (doubt->colocated_may_win && !colocated_is_better(result))
        snprintf(why + length, size - length, " Within that error colocated serving may be better too.");
    for (uint32_t m = 0; m < doubt->measure_count; m++)
        explain_measure(&doubt->measures[m], why, size);
    length = strlen(why);
    if (doubt->measure_count == 0 && doubt->tie_count > 0)
        snprintf(why + length, size - length,
                 " No time of a step decides between them: they serve as much as each other.");
}
