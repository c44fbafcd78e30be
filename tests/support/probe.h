/* Probes (probe_events.h) in a small simulated world, whose devices take as long as the test says. */
#ifndef TANDEM_TESTS_SUPPORT_PROBE_H
#define TANDEM_TESTS_SUPPORT_PROBE_H

#include "sim/engine/sim.h"
#include "support/probe_events.h"

/* A decode step takes decode_fixed_ns and the line of the slowest group: decode_base_ns + (context * slope >> 32), the
 * slope doubling from bend_context on. Prefill adds prefill_token_ns a token; layers share a step evenly. */
struct probe_cost {
    int64_t decode_fixed_ns;
    int64_t decode_base_ns;
    uint64_t slope_q32;
    uint64_t bend_context; /* 0: none */
    int64_t prefill_token_ns;
    uint32_t layers;
};

struct device probe_device(const struct probe_cost *cost);

#define WORLD_NODES_MAX 8

struct world_config {
    uint32_t nodes;
    bool plain;
    bool poison;
    uint64_t shuffle_seed;
    int64_t message_ns;
    int64_t arm_ns;
    int64_t launch_ns; /* of every device */
    int64_t watcher_ns;
    uint32_t groups; /* of every node; 0: one */
    uint32_t ranks;  /* of every node; 0: one */
    struct sim_detection detection;
};

/* Every node has a NIC (46.8 GB/s, 86 ns between writes), a machine of its own and the same costs. */
struct world {
    struct sim *sim;
    struct probe_cost cost;
    uint32_t nodes;
    struct probe probe[WORLD_NODES_MAX];
};

void world_make(struct world *world, const struct world_config *config, const struct probe_cost *cost);
void world_free(struct world *world);

#endif
