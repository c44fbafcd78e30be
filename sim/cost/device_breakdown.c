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

static void share_add_attention(const struct device_model *model, const struct step_group *group,
                                struct operator_share *shares, uint32_t *count)
{
    const struct attention_shape *shapes[2] = {&model->full, &model->windowed};
    const uint32_t layers[2] = {model->layers_full, model->layers_windowed};
    double stages = model->stages;
    for (uint32_t i = 0; i < 2; i++) {
        if (group->decode_sequences > 0)
            share_add(shares, count, i == 0 ? "decode attention" : "decode attention, windowed", layers[i],
                      decode_attention_time(&model->device, shapes[i], group->decode_sequences / stages,
                                            (double)(group->decode_context + group->decode_sequences) / stages));
        if (group->prefill_tokens > 0)
            share_add(shares, count, i == 0 ? "prefill attention" : "prefill attention, windowed", layers[i],
                      prefill_attention_time(&model->device, shapes[i], (double)group->prefill_tokens / stages,
                                             (double)group->prefill_pairs / stages));
    }
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
    share_add(shares, &count, "host", 1,
              (struct operator_time){.ns = (double)host_ns(model, counts.driver[DRIVER_SEQUENCES]),
                                     .bound = BOUND_OVERHEAD,
                                     .estimate = ESTIMATE_MODELLED,
                                     .source = "the engine"});
    for (uint32_t i = 0; i < model->operator_count; i++) {
        const struct operator* o = & model->operators[i];
        if (group_count > 0 && i == model->attention_place)
            share_add_attention(model, &groups[slowest], shares, &count);
        if (counts.driver[o->driver] == 0)
            continue;
        share_add(shares, &count, o->name, o->count,
                  operator_evaluate(model, o, (double)counts.driver[o->driver] / model->stages));
    }
    return count;
}
