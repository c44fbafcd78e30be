/* See scaled_device.h. */
#include "sim/plan/scaled_device.h"

#include "base/arith.h"
#include "base/limits.h"

static int64_t scaled_ns(int64_t ns, uint32_t permille)
{
    return (int64_t)mul_div_floor_u64((uint64_t)ns, permille, 1000);
}

static int64_t scaled_fixed_ns(const void *model, const struct step_group *groups, uint32_t group_count)
{
    const struct scaled_device *scaled = model;
    int64_t fixed_ns = scaled->under.ops->decode_fixed_ns(scaled->under.model, groups, group_count);
    return scaled_ns(fixed_ns, scaled->scale.decode_permille);
}

static void scaled_line(const void *model, uint32_t sequences, uint64_t context, struct decode_line *line)
{
    const struct scaled_device *scaled = model;
    scaled->under.ops->decode_line(scaled->under.model, sequences, context, line);
    /* A base may lie below 0, where a table's steeper part goes on towards no context. */
    line->base_ns = line->base_ns * (int64_t)scaled->scale.decode_permille / 1000;
    line->slope_q32 = mul_div_floor_u64(line->slope_q32, scaled->scale.decode_permille, 1000);
}

/* The decoding part by itself, by `device`'s own split; 0 where nothing decodes. */
static int64_t decoding_ns(struct device device, const struct step_group *groups, uint32_t group_count)
{
    struct step_group alone[GROUPS_MAX];
    bool any = false;
    int64_t slowest_ns = 0;
    CHECK(group_count <= GROUPS_MAX);
    for (uint32_t g = 0; g < group_count; g++) {
        alone[g] = (struct step_group){.decode_sequences = groups[g].decode_sequences,
                                       .decode_context = groups[g].decode_context};
        if (alone[g].decode_sequences == 0)
            continue;
        struct decode_line line;
        device.ops->decode_line(device.model, alone[g].decode_sequences, alone[g].decode_context, &line);
        slowest_ns = max_i64(slowest_ns, decode_line_ns(&line, alone[g].decode_context));
        any = true;
    }
    return any ? device.ops->decode_fixed_ns(device.model, alone, group_count) + slowest_ns : 0;
}

static void scaled_step(const void *model, const struct step_group *groups, uint32_t group_count,
                        struct step_time *time)
{
    const struct scaled_device *scaled = model;
    struct device self = scaled_device_of(scaled);
    scaled->under.ops->step(scaled->under.model, groups, group_count, time);
    uint64_t prompts = 0;
    for (uint32_t g = 0; g < group_count; g++)
        prompts += groups[g].prefill_sequences;
    int64_t total_ns = decoding_ns(self, groups, group_count);
    if (prompts > 0) {
        int64_t added_ns = time->total_ns - decoding_ns(scaled->under, groups, group_count);
        total_ns += scaled_ns(max_i64(0, added_ns), scaled->scale.prefill_permille);
    }
    total_ns = max_i64(1, total_ns);
    uint64_t before_ns = (uint64_t)max_i64(1, time->total_ns);
    time->first_layer_ns = (int64_t)mul_div_floor_u64((uint64_t)time->first_layer_ns, (uint64_t)total_ns, before_ns);
    time->layer_ns = (int64_t)mul_div_floor_u64((uint64_t)time->layer_ns, (uint64_t)total_ns, before_ns);
    int64_t *const parts[] = {&time->stage_ns, &time->entry_ns, &time->exit_ns, &time->hop_ns};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i] = (int64_t)mul_div_floor_u64((uint64_t)*parts[i], (uint64_t)total_ns, before_ns);
    time->total_ns = total_ns;
}

struct device scaled_device_of(const struct scaled_device *scaled)
{
    static const struct device_ops ops = {scaled_step, scaled_fixed_ns, scaled_line};
    if (step_scale_is_none(scaled->scale))
        return scaled->under;
    return (struct device){
        .ops = &ops, .model = scaled, .launch_ns = scaled->under.launch_ns, .stages = scaled->under.stages};
}
