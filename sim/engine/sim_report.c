/* What a simulation came to, read from outside of it. */
#include "sim/engine/sim_internal.h"

#include <inttypes.h>
#include <stdio.h>

int64_t sim_now_ns(const struct sim *sim)
{
    return sim->now_ns;
}

const struct sim_ledger *sim_ledger(const struct sim *sim, uint32_t node)
{
    CHECK(node < sim->node_count);
    return &sim->nodes[node].ledger;
}

const struct network *sim_network(const struct sim *sim)
{
    return sim->network;
}

uint64_t sim_trace_hash(const struct sim *sim)
{
    return sim->trace_hash;
}

uint64_t sim_event_count(const struct sim *sim)
{
    return sim->event_count;
}

uint64_t sim_queue_count(const struct sim *sim)
{
    return sim->queue_count;
}

uint64_t sim_final_draw(struct sim *sim)
{
    return rng_next(&sim->fingerprint);
}

const uint64_t *sim_itl(const struct sim *sim)
{
    return sim->itl;
}

void sim_itl_from(struct sim *sim, int64_t from_ns)
{
    sim->itl_from_ns = from_ns;
}

void sim_describe(const struct sim *sim, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t i = 0; i < sim->node_count && used < size; i++) {
        const struct sim_node *node = &sim->nodes[i];
        uint32_t timers = 0;
        for (uint32_t slot = 0; slot < TIMERS_MAX; slot++)
            timers += node->timer[slot] != HANDLE_NONE;
        uint32_t armed = 0;
        for (uint32_t slot = 0; slot < node->expectation_count; slot++)
            armed += node->expectations[slot].armed;
        bool stepping = false;
        for (uint32_t m = 0; m < node->stages; m++)
            stepping = stepping || node->launches[m].running;
        int written = snprintf(text + used, size - used,
                               "node %" PRIu32 ": %s, %s, %" PRIu32 " timers set, %" PRIu32
                               " writes in flight, %" PRIu32 " immediates expected, %" PRIu64 " late writes\n",
                               i, node->alive ? "alive" : "dead", stepping ? "stepping" : "idle", timers,
                               node->write_count, armed, node->ledger.writes_late);
        if (written < 0)
            break;
        used += (size_t)written;
    }
}
