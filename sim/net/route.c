/* Nodes, and what a transfer plan costs between two of them.
 *
 * A write of b bytes takes nic_transmit_ps(b) of the sender's NIC and nic_stream_ps(b) of the receiver's; each takes
 * posting_ps of the thread that posts for the sending rank: engines have one a rank (or, says the hardware, one for all
 * ranks of the instance). Summed over a plan's pairs this gives, per unit and over all layers, the
 * time that every rank's NIC is busy. A transfer is taken to load them in these proportions from beginning to end; with
 * pipeline stages, whose NICs really take turns, that spreads each stage's part over the whole transfer.
 *
 * Over NVLink a byte takes 1 / nvlink_bytes_per_s on each side, whatever the size of the writes: copies go through the
 * memory system, and no thread posts them one by one.
 *
 * Most plans load all ranks of an instance, or of one attention group, alike. Ranks of a side that no plan so far tells
 * apart share one resource; a plan that does splits it. So the usual transfer has three loads, not three per rank. A
 * NIC that GPUs share is one place for all ranks of an instance beside it, and one resource for all instances.
 */
#include "sim/net/network_internal.h"

#include "sim/net/nic.h"
#include "host/memory.h"

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

/* ---- NICs that GPUs share ---------------------------------------------------------------------------------------- */

#define NIC_OWN UINT64_MAX

/* A number of the NIC beside the rank among all that GPUs share; NIC_OWN: it shares none. */
static uint64_t shared_nic(const struct network_node *node, uint32_t rank)
{
    uint32_t gpus = node->hardware.gpus_per_node;
    if (gpus == 0 || hardware_nics(&node->hardware) >= gpus)
        return NIC_OWN;
    uint32_t gpu = node->gpu + rank;
    return (uint64_t)(node->machine + gpu / gpus) << 32 | hardware_nic_of(&node->hardware, gpu % gpus);
}

/* The lowest rank of the node beside the NIC; NONE: no rank is. */
static uint32_t rank_beside(const struct network_node *node, uint64_t nic)
{
    for (uint32_t rank = 0; rank < node->ranks; rank++)
        if (shared_nic(node, rank) == nic)
            return rank;
    return NONE;
}

static bool share_a_nic(const struct network_node *a, const struct network_node *b)
{
    for (uint32_t rank = 0; rank < a->ranks; rank++) {
        uint64_t nic = shared_nic(a, rank);
        if (nic != NIC_OWN && rank_beside(b, nic) != NONE)
            return true;
    }
    return false;
}

/* Which rank stands for the NIC of each, and whose port instances that share one use. */
static void nics_make(struct network *network, const struct network_node *nodes)
{
    for (uint32_t i = 0; i < network->node_count; i++) {
        struct fabric_node *node = &network->nodes[i];
        node->nic_port = i;
        node->nic_of = memory_zeroed((size_t)node->ranks + 1, sizeof *node->nic_of);
        for (uint32_t rank = 0; rank < node->ranks; rank++) {
            uint64_t nic = shared_nic(&nodes[i], rank);
            node->nic_of[rank] = nic == NIC_OWN ? rank : rank_beside(&nodes[i], nic);
        }
        for (uint32_t j = 0; j < i; j++) {
            uint32_t port = network->nodes[j].nic_port;
            if (port == node->nic_port || !share_a_nic(&nodes[j], &nodes[i]))
                continue;
            uint32_t old = max_u32(port, node->nic_port);
            for (uint32_t k = 0; k <= i; k++)
                if (network->nodes[k].nic_port == old)
                    network->nodes[k].nic_port = min_u32(port, node->nic_port);
        }
    }
}

/* The resource of the NIC that stands for `rank`, if an earlier node has it; else NONE. */
static uint32_t resource_known(const struct network *network, const struct network_node *nodes, uint32_t index,
                               uint32_t rank, enum side side)
{
    uint64_t nic = shared_nic(&nodes[index], rank);
    for (uint32_t i = 0; nic != NIC_OWN && i < index; i++) {
        uint32_t beside =
            network->nodes[i].nic_port == network->nodes[index].nic_port ? rank_beside(&nodes[i], nic) : NONE;
        if (beside != NONE)
            return network->nodes[i].resource_of[side][beside];
    }
    return NONE;
}

/* The resources of one side of a node: NICs that GPUs share one each, everything else one for all until a plan tells
 * its ranks apart. */
static void resources_make(struct network *network, const struct network_node *nodes, uint32_t index, enum side side)
{
    const struct fabric_node *node = &network->nodes[index];
    bool nics = side == NIC_OUT || side == NIC_IN;
    uint32_t alike = NONE;
    for (uint32_t rank = 0; rank < node->ranks; rank++) {
        uint32_t *resource = &node->resource_of[side][rank];
        if (nics && shared_nic(&nodes[index], rank) != NIC_OWN) {
            *resource = node->nic_of[rank] < rank ? node->resource_of[side][node->nic_of[rank]]
                                                  : resource_known(network, nodes, index, rank, side);
            if (*resource == NONE)
                *resource = resource_add(network, 1);
            continue;
        }
        if (alike == NONE)
            alike = resource_add(network, side == POSTING && node->nic.posts_together ? 1 : node->ranks);
        *resource = alike;
    }
}

void fabric_nodes_make(struct network *network, const struct network_node *nodes, uint32_t node_count)
{
    network->node_count = node_count;
    network->nodes = memory_zeroed(node_count, sizeof *network->nodes);
    network->ports = memory_zeroed((size_t)node_count * SIDES, sizeof *network->ports);
    network->reached_ports = memory_zeroed((size_t)node_count * SIDES, sizeof *network->reached_ports);
    for (uint32_t i = 0; i < node_count * SIDES; i++)
        network->ports[i].first_flow = NONE;
    for (uint32_t i = 0; i < node_count; i++) {
        struct fabric_node *node = &network->nodes[i];
        node->ranks = nodes[i].ranks;
        node->nvlink_domain = nodes[i].nvlink_domain;
        node->nic = nodes[i].hardware.nic;
        node->nvlink_bytes_per_s = nodes[i].hardware.nvlink_bytes_per_s;
        node->poll_ns = nodes[i].hardware.poll_ns;
        node->down = memory_zeroed((size_t)node->ranks + 1, sizeof *node->down);
        uint32_t *table = memory_zeroed((size_t)node->ranks * SIDES + 1, sizeof *table);
        for (uint32_t side = 0; side < SIDES; side++)
            node->resource_of[side] = table + (size_t)side * node->ranks;
    }
    nics_make(network, nodes);
    for (uint32_t i = 0; i < node_count; i++)
        for (uint32_t side = 0; side < SIDES; side++)
            resources_make(network, nodes, i, (enum side)side);
}

void fabric_nodes_free(struct network *network)
{
    for (uint32_t i = 0; i < network->node_count; i++) {
        free(network->nodes[i].resource_of[0]);
        free(network->nodes[i].down);
        free(network->nodes[i].nic_of);
    }
    for (uint32_t i = 0; i < network->route_count; i++) {
        for (uint32_t c = 0; c < ROUTE_COSTS; c++)
            free(network->routes[i].costs[c]);
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
    } else if (side == POSTING) {
        cost.ps = cost.wire_ps = (uint64_t)node->nic.posting_ps;
    } else {
        cost.wire_ps = nic_wire_ps(node->nic.bytes_per_s, bytes);
        cost.ps = side == NIC_OUT ? nic_transmit_ps(&node->nic, bytes) : nic_stream_ps(&node->nic, bytes);
        cost.wire_ps = min_u64(cost.wire_ps, cost.ps);
    }
    return cost;
}

/* The rank that stands for what `rank` uses of a side. */
static uint32_t place_of(const struct fabric_node *node, enum side side, uint32_t rank)
{
    if (side == NIC_OUT || side == NIC_IN)
        return node->nic_of[rank];
    return side == POSTING && node->nic.posts_together ? 0 : rank;
}

/* Adds up what a plan's pairs cost the ranks of one end; `end` is 1 at the destination, else at the source. Returns the
 * number of ranks touched, in order of first appearance. */
static uint32_t sum_costs(const struct fabric_node *node, const struct transfer_plan *plan, int end, enum side side,
                          struct cost *costs)
{
    uint32_t count = 0;
    uint32_t bytes = 0;
    struct cost one = {0};
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        const struct transfer_pair *pair = &plan->pairs[i];
        uint32_t rank = end == 1 ? pair->destination_rank : pair->source_rank;
        CHECK(rank < node->ranks && pair->run_bytes > 0);
        rank = place_of(node, side, rank);
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
    static const int order[ROUTE_COSTS] = {COSTS_POSTING, 0, 1};
    route->load_count = 0;
    for (uint32_t o = 0; o < ROUTE_COSTS; o++) {
        int end = order[o];
        const struct fabric_node *node = &network->nodes[end == 1 ? route->destination : route->source];
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
    uint32_t *wanted = memory_zeroed((size_t)count + 1, sizeof *wanted);
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
    for (int end = 0; end < ROUTE_COSTS; end++) {
        const struct fabric_node *node = &network->nodes[end == 1 ? route->destination : route->source];
        if (end == COSTS_POSTING && (route->side[0] != NIC_OUT || node->nic.posting_ps == 0))
            continue;
        uint32_t most = min_u32(plan->pair_count, node->ranks);
        struct cost *costs = memory_zeroed((size_t)most + 1, sizeof *costs);
        route->costs[end] = costs;
        route->cost_count[end] = sum_costs(node, plan, end, route->side[end], costs);
        for (uint32_t i = 0; i < route->cost_count[end]; i++)
            route->busiest_ps = max_u64(route->busiest_ps, costs[i].ps);
    }
    route->busiest_ps = max_u64(route->busiest_ps, 1);
    /* bytes per picosecond * 1e9 = kB/s */
    uint128 rate = (uint128)plan->bytes_per_unit * 1000000000u / route->busiest_ps;
    route->full_rate = rate < 1 ? 1 : rate > RATE_MAX ? RATE_MAX : (uint64_t)rate;
}

static uint32_t route_add(struct network *network, const struct transfer_plan *plan, uint32_t source,
                          uint32_t destination)
{
    const struct fabric_node *from = &network->nodes[source];
    const struct fabric_node *to = &network->nodes[destination];
    bool nvlink =
        from->nvlink_domain == to->nvlink_domain && from->nvlink_bytes_per_s > 0 && to->nvlink_bytes_per_s > 0;
    network->routes =
        fabric_grow(network->routes, &network->route_capacity, network->route_count + 1, sizeof *network->routes);
    struct route *route = &network->routes[network->route_count];
    *route = (struct route){
        .plan = plan,
        .source = source,
        .destination = destination,
        .side = {nvlink ? NVLINK_OUT : NIC_OUT, nvlink ? NVLINK_IN : NIC_IN, POSTING},
        .base_ns = nvlink ? NVLINK_BASE_NS : max_i64(from->nic.base_ns, to->nic.base_ns),
        .poll_ns = to->poll_ns,
        .tail_gap_ps = nvlink ? 0 : (uint64_t)max_i64(from->nic.gap_ps, from->nic.posting_ps),
        .tail_bytes_per_s = nvlink ? from->nvlink_bytes_per_s : from->nic.bytes_per_s,
    };
    route->port[0] = (nvlink ? source : from->nic_port) * SIDES + (uint32_t)route->side[0];
    route->port[1] = (nvlink ? destination : to->nic_port) * SIDES + (uint32_t)route->side[1];
    cost_ends(network, route);
    size_t loads = 1;
    bool changed = false;
    for (int end = 0; end < ROUTE_COSTS; end++) {
        uint32_t *resource_of = network->nodes[end == 1 ? destination : source].resource_of[route->side[end]];
        changed |= split(network, resource_of, route->costs[end], route->cost_count[end]);
        loads += route->cost_count[end];
    }
    route->loads = memory_zeroed(loads, sizeof *route->loads);
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
    network->route_table = memory_get(size * sizeof *network->route_table);
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
