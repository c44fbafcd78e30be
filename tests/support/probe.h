/* A participant that stands where a node goes: it writes down every event it is given, and acts as a test tells it.
 * With it a device whose steps cost what the test says, and a small simulated world of probes.
 */
#ifndef TANDEM_TESTS_SUPPORT_PROBE_H
#define TANDEM_TESTS_SUPPORT_PROBE_H

#include "runtime.h"
#include "sim/sim.h"

#include <stdbool.h>
#include <stdint.h>

#define PROBE_BYTES 64

struct probe_event {
    int64_t at_ns;
    struct event event;               /* `data` is stale */
    unsigned char bytes[PROBE_BYTES]; /* the first of a message's */
};

struct probe {
    struct runtime *rt;
    void (*act)(struct probe *probe, const struct event *event); /* may be NULL */
    void *context;
    uint32_t depth; /* how often it is entered at this moment */
    uint32_t count;
    uint32_t capacity;
    struct probe_event *log;
};

/* A participant's function. Asserts rules 1 and 2: never re-entered, and time stands still within and never goes
 * back. */
void probe_handle(void *self, const struct event *event);
void probe_free(struct probe *probe);

/* How many events of a kind it has, and the n-th of them (fails the test where there is none). */
uint32_t probe_count(const struct probe *probe, enum event_kind kind);
const struct probe_event *probe_nth(const struct probe *probe, enum event_kind kind, uint32_t n);

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

/* The transfer plan between two one-rank instances of `layers` layers: one write a unit and layer, `bytes` long. */
const struct transfer_plan *probe_plan(uint32_t layers, uint32_t bytes);

#endif
