/* Nodes, and what a transfer plan costs between two of them.
 *
 * A write of b bytes takes nic_transmit_ps(b) of the sender's NIC and nic_stream_ps(b) of the receiver's; each takes
 * posting_ps of the sender's posting thread. Summed over a plan's pairs this gives, per unit and over all layers, the
 * time that every rank's NIC is busy. A transfer is taken to load them in these proportions from beginning to end; with
 * pipeline stages, whose NICs really take turns, that spreads each stage's part over the whole transfer.
 *
 * Over NVLink a byte takes 1 / nvlink_bytes_per_s on each side, whatever the size of the writes: copies go through the
 * memory system, and no thread posts them one by one.
 *
 * Most plans load all ranks of an instance, or of one attention group, alike. Ranks of a side that no plan so far tells
 * apart share one resource; a plan that does splits it. So the usual transfer has three loads, not two per rank.
 */
#include "sim/net/network_internal.h"

#include "sim/net/nic.h"

#include <stdlib.h>

/* A peer-to-peer copy between two GPUs under NVSwitch: what CUDA's sample p2pBandwidthLatencyTest shows, 2 to 3 us. */
#define NVLINK_BASE_NS 2500

static uint32_t resource_add(struct network *network, uint32_t ranks)
{
    uint32_t capacity = network->resource_capacity;
    network->resources =
        fabric_grow(network->resources, &capacity, network->resource_count + 1, sizeof *network->resources);
    network->touched = fabric_grow(network->touched, &network->resource_capacity, network->resource_count + 1,
                                   sizeof *network->touched);
    CHECK(capacity == network->resource_capacity);
    network->resources[network->resource_count] = (struct resource){.ranks = ranks};
    return network->resource_count++;
}

void fabric_nodes_make(struct network *network, const struct network_node *nodes, uint32_t node_count)
{
    network->node_count = node_count;
    network->nodes = calloc(node_count, sizeof *network->nodes);
    network->ports = calloc((size_t)node_count * SIDES, sizeof *network->ports);
    network->reached_ports = calloc((size_t)node_count * SIDES, sizeof *network->reached_ports);
    CHECK(network->nodes != NULL && network->ports != NULL && network->reached_ports != NULL);
    for (uint32_t i = 0; i < node_count * SIDES; i++)
        network->ports[i].first_flow = NONE;
    for (uint32_t i = 0; i < node_count; i++) {
        struct fabric_node *node = &network->nodes[i];
        node->ranks = nodes[i].ranks;
        node->host = nodes[i].host;
        node->nic = nodes[i].hardware.nic;
        node->nvlink_bytes_per_s = nodes[i].hardware.nvlink_bytes_per_s;
        node->poll_ns = nodes[i].hardware.poll_ns;
        node->posting = resource_add(network, 1);
        node->down = calloc((size_t)node->ranks + 1, sizeof *node->down);
        uint32_t *table = calloc((size_t)node->ranks * SIDES + 1, sizeof *table);
        CHECK(node->down != NULL && table != NULL);
        for (uint32_t side = 0; side < SIDES; side++) {
            node->resource_of[side] = table + (size_t)side * node->ranks;
            uint32_t resource = node->ranks == 0 ? NONE : resource_add(network, node->ranks);
            for (uint32_t rank = 0; rank < node->ranks; rank++)
                node->resource_of[side][rank] = resource;
        }
    }
}

void fabric_nodes_free(struct network *network)
{
    for (uint32_t i = 0; i < network->node_count; i++) {
        free(network->nodes[i].resource_of[0]);
        free(network->nodes[i].down);
    }
    for (uint32_t i = 0; i < network->route_count; i++) {
        free(network->routes[i].costs[0]);
        free(network->routes[i].costs[1]);
        free(network->routes[i].loads);
    }
    free(network->nodes);
    free(network->ports);
    free(network->reached_ports);
    free(network->resources);
    free(network->touched);
    free(network->routes);
    free(network->route_table);
}

/* ---- Costs of a route ------------------------------------------------------------------------------------------ */

static struct cost write_cost(const struct fabric_node *node, enum side side, uint32_t bytes)
{
    struct cost cost = {0};
    if (side == NVLINK_OUT || side == NVLINK_IN) {
        cost.wire_ps = nic_wire_ps(node->nvlink_bytes_per_s, bytes);
        cost.ps = cost.wire_ps;
    } else {
        cost.wire_ps = nic_wire_ps(node->nic.bytes_per_s, bytes);
        cost.ps = side == NIC_OUT ? nic_transmit_ps(&node->nic, bytes) : nic_stream_ps(&node->nic, bytes);
        cost.wire_ps = min_u64(cost.wire_ps, cost.ps);
    }
    return cost;
}

/* Adds up what a plan's pairs cost the ranks of one end; `end` is 0 at the source and 1 at the destination. Returns the
 * number of ranks touched, in order of first appearance. */
static uint32_t sum_costs(const struct fabric_node *node, const struct transfer_plan *plan, int end, enum side side,
                          struct cost *costs)
{
    uint32_t count = 0;
    uint32_t bytes = 0;
    struct cost one = {0};
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        const struct transfer_pair *pair = &plan->pairs[i];
        uint32_t rank = end == 0 ? pair->source_rank : pair->destination_rank;
        CHECK(rank < node->ranks && pair->run_bytes > 0);
        if (pair->run_bytes != bytes) {
            bytes = pair->run_bytes;
            one = write_cost(node, side, bytes);
        }
        uint32_t at = 0;
        while (at < count && costs[at].rank != rank)
            at++;
        if (at == count)
            costs[count++] = (struct cost){.rank = rank};
        uint64_t writes = (uint64_t)pair->layer_count * plan->planes * pair->runs;
        costs[at].ps += mul_u64(writes, one.ps);
        costs[at].wire_ps += mul_u64(writes, one.wire_ps);
    }
    return count;
}

static void add_load(struct route *route, uint32_t resource, uint64_t ps, uint64_t wire_ps)
{
    for (uint32_t i = 0; i < route->load_count; i++)
        if (route->loads[i].resource == resource)
            return;
    route->loads[route->load_count++] = (struct load){
        .resource = resource,
        .share = mul_div_ceil_u64(ps, CAPACITY, route->busiest_ps),
        .ps = ps,
        .gap_ps = ps - wire_ps,
    };
}

static void set_loads(struct network *network, struct route *route)
{
    route->load_count = 0;
    if (route->posting_ps > 0)
        add_load(route, network->nodes[route->source].posting, route->posting_ps, route->posting_ps);
    for (int end = 0; end < 2; end++) {
        const struct fabric_node *node = &network->nodes[end == 0 ? route->source : route->destination];
        for (uint32_t i = 0; i < route->cost_count[end]; i++) {
            const struct cost *cost = &route->costs[end][i];
            add_load(route, node->resource_of[route->side[end]][cost->rank], cost->ps, cost->wire_ps);
        }
    }
}

/* ---- Ranks that are loaded alike share a resource --------------------------------------------------------------- */

static bool alike(const uint32_t *resource_of, const struct cost *a, const struct cost *b)
{
    return resource_of[a->rank] == resource_of[b->rank] && a->ps == b->ps && a->wire_ps == b->wire_ps;
}

/* Splits the resources of one side until each holds either none of the ranks in `costs` or only ranks with one and the
 * same cost. Returns whether anything changed. */
static bool split(struct network *network, uint32_t *resource_of, const struct cost *costs, uint32_t count)
{
    uint32_t *wanted = calloc((size_t)count + 1, sizeof *wanted);
    CHECK(wanted != NULL);
    bool changed = false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t same = 0;
        uint32_t first = i;
        for (uint32_t j = count; j-- > 0;)
            if (alike(resource_of, &costs[i], &costs[j])) {
                first = j;
                same++;
            }
        uint32_t old = resource_of[costs[i].rank];
        if (first < i) {
            wanted[i] = wanted[first];
        } else if (same == network->resources[old].ranks) {
            wanted[i] = old;
        } else {
            wanted[i] = resource_add(network, same);
            network->resources[wanted[i]].busy_ps = network->resources[old].busy_ps;
            network->resources[wanted[i]].gap_ps = network->resources[old].gap_ps;
            changed = true;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t old = resource_of[costs[i].rank];
        if (wanted[i] != old)
            network->resources[old].ranks--;
        resource_of[costs[i].rank] = wanted[i];
    }
    free(wanted);
    return changed;
}

/* ---- Routes ----------------------------------------------------------------------------------------------------- */

static void cost_ends(struct network *network, struct route *route)
{
    const struct transfer_plan *plan = route->plan;
    const struct fabric_node *source = &network->nodes[route->source];
    for (int end = 0; end < 2; end++) {
        const struct fabric_node *node = &network->nodes[end == 0 ? route->source : route->destination];
        uint32_t most = min_u32(plan->pair_count, node->ranks);
        struct cost *costs = calloc((size_t)most + 1, sizeof *costs);
        CHECK(costs != NULL);
        route->costs[end] = costs;
        route->cost_count[end] = sum_costs(node, plan, end, route->side[end], costs);
        for (uint32_t i = 0; i < route->cost_count[end]; i++)
            route->busiest_ps = max_u64(route->busiest_ps, costs[i].ps);
    }
    if (route->side[0] == NIC_OUT)
        route->posting_ps = mul_u64(plan->writes_per_unit, (uint64_t)source->nic.posting_ps);
    route->busiest_ps = max_u64(route->busiest_ps, max_u64(route->posting_ps, 1));
    /* bytes per picosecond * 1e9 = kB/s */
    uint128 rate = (uint128)plan->bytes_per_unit * 1000000000u / route->busiest_ps;
    route->full_rate = rate < 1 ? 1 : rate > RATE_MAX ? RATE_MAX : (uint64_t)rate;
}

static uint32_t route_add(struct network *network, const struct transfer_plan *plan, uint32_t source,
                          uint32_t destination)
{
    const struct fabric_node *from = &network->nodes[source];
    const struct fabric_node *to = &network->nodes[destination];
    bool nvlink = from->host == to->host && from->nvlink_bytes_per_s > 0 && to->nvlink_bytes_per_s > 0;
    network->routes =
        fabric_grow(network->routes, &network->route_capacity, network->route_count + 1, sizeof *network->routes);
    struct route *route = &network->routes[network->route_count];
    *route = (struct route){
        .plan = plan,
        .source = source,
        .destination = destination,
        .side = {nvlink ? NVLINK_OUT : NIC_OUT, nvlink ? NVLINK_IN : NIC_IN},
        .base_ns = nvlink ? NVLINK_BASE_NS : max_i64(from->nic.base_ns, to->nic.base_ns),
        .poll_ns = to->poll_ns,
        .tail_gap_ps = nvlink ? 0 : (uint64_t)max_i64(from->nic.gap_ps, from->nic.posting_ps),
        .tail_bytes_per_s = nvlink ? from->nvlink_bytes_per_s : from->nic.bytes_per_s,
    };
    route->port[0] = source * SIDES + (uint32_t)route->side[0];
    route->port[1] = destination * SIDES + (uint32_t)route->side[1];
    cost_ends(network, route);
    route->loads = calloc((size_t)route->cost_count[0] + route->cost_count[1] + 1, sizeof *route->loads);
    CHECK(route->loads != NULL);
    bool changed = false;
    for (int end = 0; end < 2; end++) {
        uint32_t *resource_of = network->nodes[end == 0 ? source : destination].resource_of[route->side[end]];
        changed |= split(network, resource_of, route->costs[end], route->cost_count[end]);
    }
    network->route_count++;
    for (uint32_t i = changed ? 0 : network->route_count - 1; i < network->route_count; i++)
        set_loads(network, &network->routes[i]);
    return network->route_count - 1;
}

static uint32_t route_hash(const struct transfer_plan *plan, uint32_t source, uint32_t destination)
{
    uint64_t hash = (uint64_t)(uintptr_t)plan ^ ((uint64_t)source << 48) ^ ((uint64_t)destination << 32);
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(hash >> 32);
}

static void rehash(struct network *network)
{
    uint32_t size = network->route_table_size == 0 ? 64 : 2 * network->route_table_size;
    free(network->route_table);
    network->route_table = malloc(size * sizeof *network->route_table);
    CHECK(network->route_table != NULL);
    network->route_table_size = size;
    for (uint32_t i = 0; i < size; i++)
        network->route_table[i] = NONE;
    for (uint32_t i = 0; i < network->route_count; i++) {
        const struct route *route = &network->routes[i];
        uint32_t at = route_hash(route->plan, route->source, route->destination) & (size - 1);
        while (network->route_table[at] != NONE)
            at = (at + 1) & (size - 1);
        network->route_table[at] = i;
    }
}

uint32_t route_find(struct network *network, const struct transfer_plan *plan, uint32_t source, uint32_t destination)
{
    if (2 * (network->route_count + 1) > network->route_table_size)
        rehash(network);
    uint32_t mask = network->route_table_size - 1;
    uint32_t at = route_hash(plan, source, destination) & mask;
    for (; network->route_table[at] != NONE; at = (at + 1) & mask) {
        const struct route *route = &network->routes[network->route_table[at]];
        if (route->plan == plan && route->source == source && route->destination == destination)
            return network->route_table[at];
    }
    network->route_table[at] = route_add(network, plan, source, destination);
    return network->route_table[at];
}

bool route_stalled(const struct network *network, const struct route *route)
{
    if (route->side[0] != NIC_OUT)
        return false;
    for (int end = 0; end < 2; end++) {
        const struct fabric_node *node = &network->nodes[end == 0 ? route->source : route->destination];
        for (uint32_t i = 0; node->down_count > 0 && i < route->cost_count[end]; i++)
            if (node->down[route->costs[end][i].rank])
                return true;
    }
    return false;
}
