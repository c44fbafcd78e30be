/* Max-min fair sharing by progressive filling.
 *
 * All flows of a component rise together, each by the same part ("level") of the rate that it would have alone, so that
 * flows that meet at a NIC get equal parts of its time. A flow stops rising when it has all that it wants (a caught-up
 * gated flow: its production rate) or when one of its resources is full; the rest go on with what is left. The result
 * is the one allocation in which no flow can get more but at the cost of one that has no more: work-conserving, because
 * a flow that wants more has a resource without free time.
 *
 * Levels round down and usage rounds up, so no resource is promised more than all of its time.
 */
#include "sim/net/network_internal.h"

static void set_weights(struct network *network, uint32_t count)
{
    network->touched_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct route *route = &network->routes[network->flows[network->rising[i]].route];
        for (uint32_t j = 0; j < route->load_count; j++) {
            struct resource *resource = &network->resources[route->loads[j].resource];
            if (resource->mark != network->mark) {
                resource->mark = network->mark;
                resource->free = CAPACITY;
                resource->weight = 0;
                network->touched[network->touched_count++] = route->loads[j].resource;
            }
            resource->weight += route->loads[j].share;
        }
    }
}

/* The level at which the first resource is full if no flow stops before. */
static uint32_t full_level(struct network *network)
{
    uint32_t least = LEVEL_ONE;
    for (uint32_t i = 0; i < network->touched_count; i++) {
        struct resource *resource = &network->resources[network->touched[i]];
        if (resource->weight == 0)
            continue;
        resource->level = (uint32_t)min_u64((resource->free << LEVEL_BITS) / resource->weight, LEVEL_ONE);
        least = min_u32(least, resource->level);
    }
    return least;
}

static bool is_full(const struct network *network, const struct route *route, uint32_t level)
{
    for (uint32_t i = 0; i < route->load_count; i++)
        if (network->resources[route->loads[i].resource].level == level)
            return true;
    return false;
}

static void settle(struct network *network, struct flow *flow, const struct route *route, uint32_t level, uint64_t rate)
{
    flow->next_rate = rate;
    for (uint32_t i = 0; i < route->load_count; i++) {
        const struct load *load = &route->loads[i];
        struct resource *resource = &network->resources[load->resource];
        uint64_t used = (load->share * level + (LEVEL_ONE - 1)) >> LEVEL_BITS;
        resource->free -= min_u64(used, resource->free);
        resource->weight -= load->share;
    }
}

/* Settles the flows that want no more than `level`; whatever they leave only lifts the others, so all of them can go at
 * once. Returns how many are left. */
static uint32_t settle_satisfied(struct network *network, uint32_t *rising, uint32_t count, uint32_t level)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct flow *flow = &network->flows[rising[i]];
        if (flow->state == FLOW_CAUGHT_UP && flow->demand_level <= level)
            settle(network, flow, &network->routes[flow->route], flow->demand_level, flow->demand);
        else
            rising[kept++] = rising[i];
    }
    return kept;
}

static uint32_t settle_full(struct network *network, uint32_t *rising, uint32_t count, uint32_t level)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct flow *flow = &network->flows[rising[i]];
        const struct route *route = &network->routes[flow->route];
        if (!is_full(network, route, level)) {
            rising[kept++] = rising[i];
            continue;
        }
        uint64_t rate = max_u64((route->full_rate * level) >> LEVEL_BITS, 1);
        settle(network, flow, route, level, rate);
    }
    return kept;
}

void sharing_fill(struct network *network)
{
    uint32_t *rising = network->rising;
    uint32_t count = 0;
    for (uint32_t i = 0; i < network->component_count; i++) {
        struct flow *flow = &network->flows[network->component[i]];
        flow->next_rate = 0;
        if (!flow->stalled)
            rising[count++] = network->component[i];
    }
    if (count == 1) {
        /* The usual case, and what the filling below comes to: its busiest resource is full at LEVEL_ONE. */
        struct flow *flow = &network->flows[rising[0]];
        bool satisfied = flow->state == FLOW_CAUGHT_UP && flow->demand_level <= LEVEL_ONE;
        flow->next_rate = satisfied ? flow->demand : network->routes[flow->route].full_rate;
        return;
    }
    set_weights(network, count);
    while (count > 0) {
        uint32_t level = full_level(network);
        uint32_t left = settle_satisfied(network, rising, count, level);
        if (left == count)
            left = settle_full(network, rising, count, level);
        CHECK(left < count);
        count = left;
    }
}
