/* See probe.h. */
#include "support/probe.h"

#include "base/arith.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Device ----------------------------------------------------------------------------------------------------- */

static void cost_line(const void *model, uint32_t decode_sequences, uint64_t decode_context, struct decode_line *line)
{
    const struct probe_cost *cost = model;
    (void)decode_sequences;
    uint64_t bend = cost->bend_context;
    *line =
        (struct decode_line){.context_max = UINT64_MAX, .base_ns = cost->decode_base_ns, .slope_q32 = cost->slope_q32};
    if (bend == 0)
        return;
    if (decode_context < bend) {
        line->context_max = bend - 1;
        return;
    }
    line->context_min = bend;
    line->slope_q32 = 2 * cost->slope_q32;
    line->base_ns -= (int64_t)((uint128)bend * cost->slope_q32 >> 32);
}

static int64_t cost_fixed(const void *model, const struct step_group *groups, uint32_t group_count)
{
    (void)groups;
    (void)group_count;
    return ((const struct probe_cost *)model)->decode_fixed_ns;
}

static void cost_step(const void *model, const struct step_group *groups, uint32_t group_count, struct step_time *time)
{
    const struct probe_cost *cost = model;
    int64_t slowest_ns = 0;
    int64_t prefill_ns = 0;
    uint32_t sequences = 0;
    for (uint32_t g = 0; g < group_count; g++) {
        prefill_ns += (int64_t)groups[g].prefill_tokens * cost->prefill_token_ns;
        if (groups[g].decode_sequences == 0)
            continue;
        sequences += groups[g].decode_sequences;
        struct decode_line line;
        cost_line(model, groups[g].decode_sequences, groups[g].decode_context, &line);
        int64_t ns = line.base_ns + (int64_t)((uint128)groups[g].decode_context * line.slope_q32 >> 32);
        slowest_ns = max_i64(slowest_ns, ns);
    }
    *time = (struct step_time){.total_ns = prefill_ns + (sequences > 0 ? cost->decode_fixed_ns + slowest_ns : 0),
                               .bound = prefill_ns > 0 ? BOUND_COMPUTE : BOUND_BANDWIDTH};
    time->layer_ns = time->total_ns / cost->layers;
    time->first_layer_ns = time->layer_ns;
}

struct device probe_device(const struct probe_cost *cost)
{
    static const struct device_ops ops = {cost_step, cost_fixed, cost_line};
    return (struct device){.ops = &ops, .model = cost};
}

/* ---- World ------------------------------------------------------------------------------------------------------ */

void world_make(struct world *world, const struct world_config *config, const struct probe_cost *cost)
{
    struct sim_node_config nodes[WORLD_NODES_MAX];
    assert_true(config->nodes >= 1 && config->nodes <= WORLD_NODES_MAX);
    memset(world, 0, sizeof *world);
    memset(nodes, 0, sizeof nodes);
    world->cost = *cost;
    world->nodes = config->nodes;
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct hardware *hardware = &nodes[i].network.hardware;
        nodes[i].network.ranks = config->ranks == 0 ? 1 : config->ranks;
        nodes[i].network.nvlink_domain = i;
        nodes[i].group_count = config->groups == 0 ? 1 : config->groups;
        nodes[i].device = probe_device(&world->cost);
        hardware->gpus_per_node = 8;
        hardware->nvlink_bytes_per_s = UINT64_C(450000000000);
        nodes[i].device.launch_ns = config->launch_ns;
        hardware->message_ns = config->message_ns;
        hardware->arm_ns = config->arm_ns;
        hardware->watcher_ns = config->watcher_ns;
        hardware->poll_ns = 500;
        hardware->nic = (struct nic){.name = "probe",
                                     .base_ns = 11200,
                                     .bytes_per_s = UINT64_C(46800000000),
                                     .gap_ps = 86000,
                                     .knee_permille = 1750,
                                     .posting_ps = 86000,
                                     .queue_depth = 1024};
    }
    struct sim_config sim = {
        .seed = 1,
        .shuffle_seed = config->shuffle_seed,
        .plain = config->plain,
        .poison = config->poison,
        .node_count = config->nodes,
        .nodes = nodes,
        .limits = {.writes_in_flight = 1024, .message_bytes = MESSAGE_BYTES_MAX},
        .detection = config->detection,
    };
    world->sim = sim_make(&sim);
    for (uint32_t i = 0; i < config->nodes; i++) {
        world->probe[i].rt = sim_runtime(world->sim, i);
        sim_attach(world->sim, i, (struct participant){.handle = probe_handle, .self = &world->probe[i]});
    }
}

void world_free(struct world *world)
{
    for (uint32_t i = 0; i < world->nodes; i++)
        probe_free(&world->probe[i]);
    sim_free(world->sim);
}
