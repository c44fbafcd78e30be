/* See device_model.h: what a step is made of, for people. */
#include "base/check.h"
#include "sim/cost/device_model_internal.h"

static void share_add(struct operator_share *shares, uint32_t *count, const char *name, uint32_t times,
                      struct operator_time time)
{
    if (times == 0)
        return;
    CHECK(*count < OPERATORS_MAX);
    bool launch = time.launch_ns * 2.0 > time.ns;
    shares[(*count)++] = (struct operator_share){
        .name = name,
        .source = time.source,
        .estimate = time.estimate,
        .ns = round_ns(time.ns * times),
        .count = times,
        .bound = launch ? BOUND_OVERHEAD : time.bound,
    };
}

/* Of the step, and of no kernel; may be negative. */
static void share_add_rest(struct operator_share *shares, uint32_t *count, const char *name, int64_t ns,
                           const char *source)
{
    if (ns == 0)
        return;
    CHECK(*count < OPERATORS_MAX);
    shares[(*count)++] = (struct operator_share){.name = name,
                                                 .source = source,
                                                 .estimate = ESTIMATE_MODELLED,
                                                 .ns = ns,
                                                 .count = 1,
                                                 .bound = BOUND_OVERHEAD,
                                                 .rest = true};
}

static void share_add_part(const struct device_model *model, const struct model_part *part, const char *const names[4],
                           const struct step_group *group, struct operator_share *shares, uint32_t *count)
{
    const struct attention_shape *shapes[2] = {&part->full, &part->windowed};
    const uint32_t layers[2] = {part->layers_full, part->layers_windowed};
    double decode = group->decode_sequences;
    for (uint32_t i = 0; i < 2; i++) {
        if (group->decode_sequences > 0)
            share_add(shares, count, names[2 * i], layers[i],
                      decode_attention_time(&model->device, shapes[i], decode,
                                            (double)group->decode_context + decode * model->queries));
        if (group->prefill_tokens > 0)
            share_add(shares, count, names[2 * i + 1], layers[i],
                      prefill_attention_time(&model->device, shapes[i], (double)group->prefill_tokens,
                                             (double)group->prefill_pairs));
    }
}

/* The kernels of attention of one pass. */
static void share_add_attention(const struct device_model *model, uint32_t pass, const struct step_group *group,
                                struct operator_share *shares, uint32_t *count)
{
    static const char *const names[2][4] = {
        {"decode attention", "prefill attention", "decode attention, windowed", "prefill attention, windowed"},
        {"draft: decode attention", "draft: prefill attention", "draft: decode attention, windowed",
         "draft: prefill attention, windowed"}};
    static const char *const module_names[2][4] = {
        {"decode attention with projections", "prefill attention with projections", "", ""},
        {"draft: decode attention with projections", "draft: prefill attention with projections", "", ""}};
    const struct model_part *part = pass == 0 ? &model->main : &model->draft;
    double decode = group->decode_sequences;
    if (pass < 2)
        share_add_part(model, part, part->full.module ? module_names[pass] : names[pass], group, shares, count);
    else if (group->decode_sequences > 0)
        share_add(shares, count, "draft again: decode attention", model->drafting.next_layers,
                  decode_attention_time(&model->device, &model->drafting.next, decode,
                                        (double)group->decode_context + decode));
}

uint32_t device_model_breakdown(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                                struct operator_share *shares)
{
    if (model->is_measured) {
        struct step_time time;
        measured_step(&model->measured, groups, group_count, &time);
        shares[0] = (struct operator_share){.name = "whole step",
                                            .source = "measured by tandem calibrate",
                                            .estimate = ESTIMATE_INTERPOLATED,
                                            .ns = time.total_ns,
                                            .count = 1,
                                            .bound = time.bound};
        return 1;
    }
    struct step_counts counts;
    step_count(model, groups, group_count, true, &counts);
    uint32_t slowest = 0;
    int64_t slowest_ns = -1;
    for (uint32_t g = 0; g < group_count; g++) {
        struct decode_line line;
        device_decode_line(model, groups[g].decode_sequences, groups[g].decode_context, &line);
        int64_t ns = decode_line_ns(&line, groups[g].decode_context) +
                     prefill_table_ns(model, groups[g].prefill_tokens, groups[g].prefill_pairs);
        if (ns > slowest_ns) {
            slowest = g;
            slowest_ns = ns;
        }
    }
    uint32_t count = 0;
    uint32_t attention_count = 0;
    int64_t attention_ns = 0;
    share_add(shares, &count, "host", 1,
              (struct operator_time){.ns = (double)host_ns(model, counts.sequences),
                                     .bound = BOUND_OVERHEAD,
                                     .estimate = ESTIMATE_MODELLED,
                                     .source = "the engine"});
    for (uint32_t i = 0; i < model->operator_count; i++) {
        const struct device_operator *o = &model->operators[i];
        for (uint32_t pass = 0; group_count > 0 && pass < (model->drafting.tokens > 0 ? PASSES : 1u); pass++)
            if (i == model->attention_place[pass]) {
                uint32_t first = count;
                share_add_attention(model, pass, &groups[slowest], shares, &count);
                for (; first < count; first++, attention_count++)
                    attention_ns += shares[first].ns;
            }
        if (counts.driver[o->driver] == 0)
            continue;
        share_add(shares, &count, o->name, o->count, operator_evaluate(model, o, (double)counts.driver[o->driver]));
    }
    for (uint32_t i = 0; i < count && model->altered; i++)
        shares[i].estimate = ESTIMATE_MODELLED;
    /* What the step is simulated with beside its kernels at this very shape. */
    struct step_time time;
    device_step(model, groups, group_count, &time);
    int64_t rest = time.total_ns;
    for (uint32_t i = 0; i < count; i++)
        rest -= shares[i].ns;
    int64_t factor = device_prefill_factor_ns(model, groups, group_count, &counts);
    int64_t attention =
        attention_count == 0 ? 0 : counts.decode_attention_ns + counts.prefill_attention_ns - attention_ns;
    share_add_rest(shares, &count, "engine's factor on prompts", factor,
                   "prefill or prefill_experts of the engine, less 100 %");
    share_add_rest(shares, &count, "attention, between shapes", attention,
                   "interpolated, and never less for more sequences or longer ones");
    share_add_rest(shares, &count, "other operators, between shapes", rest - factor - attention,
                   "interpolated, never less for more tokens, and the batch padded to a graph's");
    return count;
}
