/* See network.h. The life of a flow, and when what is re-rated.
 *
 * Exact: the times of every flow given the rates; the rates as the max-min allocation of the component at the instants
 * when a flow starts (at its first layer), catches up with production, gets its last layer, ends, is stopped or killed,
 * or a NIC goes down or up.
 * Approximated: a caught-up gated flow takes its production rate evenly, where a real one sends each layer in a burst
 * and then pauses; at any instant it is behind the real one by less than a layer, and its last layer, which is what
 * counts, goes at the full share. A flow that falls behind takes all it can get, until it has caught up. Loads are
 * spread as route.c says. The tail's writes are charged one after another, gap and bytes, to the busiest NIC of the
 * transfer. Base latency is paid once, after the last byte, because the writes before it overlap.
 */
#include "sim/net/network_internal.h"

#include <stdlib.h>

#define MICRO UINT64_C(1000000)

void *fabric_grow(void *array, uint32_t *capacity, uint32_t count, size_t size)
{
    if (count <= *capacity)
        return array;
    while (*capacity < count) {
        CHECK(*capacity < NONE / 2);
        *capacity = *capacity == 0 ? 16 : 2 * *capacity;
    }
    array = realloc(array, *capacity * size);
    CHECK(array != NULL);
    return array;
}

struct network *network_make(const struct network_node *nodes, uint32_t node_count, bool per_layer)
{
    struct network *network = calloc(1, sizeof *network);
    CHECK(network != NULL);
    network->per_layer = per_layer;
    network->free_flow = NONE;
    network->queue = event_queue_make(0);
    fabric_nodes_make(network, nodes, node_count);
    return network;
}

void network_free(struct network *network)
{
    if (network == NULL)
        return;
    fabric_nodes_free(network);
    event_queue_free(network->queue);
    free(network->flows);
    free(network->component);
    free(network->rising);
    free(network->batch);
    free(network->done);
    free(network);
}

/* ---- Ports and components --------------------------------------------------------------------------------------- */

static void attach(struct network *network, uint32_t id)
{
    struct flow *flow = &network->flows[id];
    const struct route *route = &network->routes[flow->route];
    for (int end = 0; end < 2; end++) {
        struct port *port = &network->ports[route->port[end]];
        flow->previous[end] = NONE;
        flow->next[end] = port->first_flow;
        if (port->first_flow != NONE)
            network->flows[port->first_flow].previous[end] = id;
        port->first_flow = id;
    }
}

static void detach(struct network *network, uint32_t id)
{
    const struct flow *flow = &network->flows[id];
    const struct route *route = &network->routes[flow->route];
    for (int end = 0; end < 2; end++) {
        if (flow->previous[end] == NONE)
            network->ports[route->port[end]].first_flow = flow->next[end];
        else
            network->flows[flow->previous[end]].next[end] = flow->next[end];
        if (flow->next[end] != NONE)
            network->flows[flow->next[end]].previous[end] = flow->previous[end];
    }
}

static void component_begin(struct network *network)
{
    CHECK(network->mark < NONE);
    network->mark++;
    network->reached_port_count = 0;
    network->component_count = 0;
}

static void component_reach(struct network *network, uint32_t port)
{
    if (network->ports[port].mark == network->mark)
        return;
    network->ports[port].mark = network->mark;
    network->reached_ports[network->reached_port_count++] = port;
}

static void component_reach_route(struct network *network, const struct flow *flow)
{
    component_reach(network, network->routes[flow->route].port[0]);
    component_reach(network, network->routes[flow->route].port[1]);
}

/* Every flow has one out port and one in port; it is gathered at its out port. */
static void component_gather(struct network *network)
{
    for (uint32_t i = 0; i < network->reached_port_count; i++) {
        uint32_t side = network->reached_ports[i] % SIDES;
        int end = side == NIC_OUT || side == NVLINK_OUT ? 0 : 1;
        uint32_t id = network->ports[network->reached_ports[i]].first_flow;
        while (id != NONE) {
            const struct flow *flow = &network->flows[id];
            component_reach(network, network->routes[flow->route].port[1 - end]);
            if (end == 0)
                network->component[network->component_count++] = id;
            id = flow->next[end];
        }
    }
}

/* ---- Events and rates ------------------------------------------------------------------------------------------- */

static void schedule(struct network *network, uint32_t id)
{
    struct flow *flow = &network->flows[id];
    int64_t at_ns = flow_next_ns(flow, network->per_layer);
    if (flow->event == NONE && at_ns != TIME_NEVER) {
        flow->event = event_queue_push(network->queue, at_ns, id);
    } else if (flow->event != NONE && at_ns != TIME_NEVER) {
        event_queue_move(network->queue, flow->event, at_ns);
    } else if (flow->event != NONE) {
        event_queue_cancel(network->queue, flow->event);
        flow->event = NONE;
    }
}

static void unschedule(struct network *network, struct flow *flow)
{
    if (flow->event != NONE)
        event_queue_cancel(network->queue, flow->event);
    flow->event = NONE;
}

static void apply_rate(struct network *network, uint32_t id, int64_t now_ns)
{
    struct flow *flow = &network->flows[id];
    if (flow->next_rate == flow->rate && !flow->changed)
        return;
    flow_sync(flow, now_ns, network->per_layer);
    flow->rate = flow->next_rate;
    flow->changed = false;
    if (flow->state == FLOW_CAUGHT_UP && flow->rate < flow->demand)
        flow->state = FLOW_BEHIND;
    schedule(network, id);
}

static void apply_rates(struct network *network, int64_t now_ns)
{
    for (uint32_t i = 0; i < network->component_count; i++)
        apply_rate(network, network->component[i], now_ns);
}

/* Re-rates everything that can be reached from the ports named since component_begin(). */
static void rerate(struct network *network, int64_t now_ns)
{
    component_gather(network);
    sharing_fill(network);
    apply_rates(network, now_ns);
}

static void rerate_around(struct network *network, const struct flow *flow, int64_t now_ns)
{
    component_begin(network);
    component_reach_route(network, flow);
    rerate(network, now_ns);
}

/* ---- Life of a flow --------------------------------------------------------------------------------------------- */

static struct flow *flow_at(struct network *network, uint32_t id)
{
    CHECK(id < network->flow_count && network->flows[id].state != FLOW_FREE);
    return &network->flows[id];
}

static uint32_t take_flow(struct network *network)
{
    uint32_t id = network->free_flow;
    if (id != NONE) {
        network->free_flow = network->flows[id].next[0];
        return id;
    }
    id = network->flow_count++;
    uint32_t capacity = network->flow_capacity;
    network->component = fabric_grow(network->component, &capacity, network->flow_count, sizeof *network->component);
    capacity = network->flow_capacity;
    network->rising = fabric_grow(network->rising, &capacity, network->flow_count, sizeof *network->rising);
    capacity = network->flow_capacity;
    network->batch = fabric_grow(network->batch, &capacity, network->flow_count, sizeof *network->batch);
    network->flows = fabric_grow(network->flows, &network->flow_capacity, network->flow_count, sizeof *network->flows);
    return id;
}

static void release_flow(struct network *network, uint32_t id)
{
    network->flows[id].state = FLOW_FREE;
    network->flows[id].next[0] = network->free_flow;
    network->free_flow = id;
}

/* The tail, as work at the route's full rate. */
static uint64_t tail_work(const struct route *route, uint32_t writes, uint32_t bytes)
{
    if (writes == 0)
        return 0;
    uint64_t ps =
        mul_u64(writes, route->tail_gap_ps) + mul_div_ceil_u64(bytes, 1000000 * MICRO, route->tail_bytes_per_s);
    return mul_div_ceil_u64(ps, route->full_rate, 1000);
}

/* The flow's first bytes are available: from here on it shares. */
static void activate(struct network *network, uint32_t id, int64_t now_ns)
{
    struct flow *flow = &network->flows[id];
    flow->synced_ns = now_ns;
    flow->changed = true;
    flow->stalled = route_stalled(network, &network->routes[flow->route]);
    if (now_ns >= flow->last_ns)
        flow->state = FLOW_DRAINING;
    else
        flow->state = flow_has_caught_up(flow) ? FLOW_CAUGHT_UP : FLOW_BEHIND;
    attach(network, id);
}

static void set_gate(struct flow *flow, const struct flow_spec *spec, uint32_t layers, int64_t now_ns)
{
    CHECK(spec->gate_layer_ns >= 0);
    flow->first_ns = spec->gate_layer_ns == 0 ? max_i64(spec->gate_first_ns, now_ns) : spec->gate_first_ns;
    flow->step_ns = max_i64(spec->gate_layer_ns, 1);
    flow->last_ns = time_add(flow->first_ns, (int64_t)(layers - 1) * spec->gate_layer_ns);
    /* Nothing to gate: a tail alone goes when the last layer would. */
    if (flow->layer == 0)
        flow->first_ns = flow->last_ns;
}

static void set_demand(struct flow *flow, const struct route *route)
{
    flow->demand = ceil_div_u64(flow->layer, (uint64_t)flow->step_ns);
    flow->demand_level = LEVEL_UNBOUNDED;
    if (flow->demand < route->full_rate)
        flow->demand_level = (uint32_t)ceil_div_u64(flow->demand << LEVEL_BITS, route->full_rate);
}

uint32_t network_start(struct network *network, int64_t now_ns, const struct flow_spec *spec)
{
    CHECK(spec->source < network->node_count && spec->destination < network->node_count);
    CHECK(spec->plan->layers > 0 && spec->plan->bytes_per_unit > 0);
    uint32_t route_index = route_find(network, spec->plan, spec->source, spec->destination);
    const struct route *route = &network->routes[route_index];
    uint32_t id = take_flow(network);
    struct flow *flow = &network->flows[id];
    uint64_t bytes = mul_u64(spec->plan->bytes_per_unit, spec->units);
    *flow = (struct flow){
        .state = FLOW_WAITING,
        .route = route_index,
        .layer = mul_u64(bytes, MICRO) / spec->plan->layers,
        .sequence = network->sequence++,
        .event = NONE,
        .units = spec->units,
        .tail_writes = spec->tail_writes,
        .tail_bytes = spec->tail_bytes,
        .layers = spec->plan->layers,
        .owner = spec->owner,
    };
    flow->work = add_u64(mul_u64(bytes, MICRO), tail_work(route, spec->tail_writes, spec->tail_bytes));
    CHECK(flow->work <= INT64_MAX);
    set_gate(flow, spec, spec->plan->layers, now_ns);
    set_demand(flow, route);
    network->nodes[spec->source].flows++;
    if (now_ns < flow->first_ns) {
        schedule(network, id);
        return id;
    }
    activate(network, id, now_ns);
    rerate_around(network, flow, now_ns);
    return id;
}

/* Books what a flow has sent with the resources that carried it; the time of a tail is left out. */
static void book(struct network *network, const struct flow *flow, uint64_t bytes, uint64_t writes)
{
    const struct route *route = &network->routes[flow->route];
    struct fabric_node *source = &network->nodes[route->source];
    source->bytes += bytes;
    source->writes += writes;
    uint64_t whole = mul_u64(route->plan->bytes_per_unit, flow->units);
    uint64_t paged = min_u64(flow->served / MICRO, whole);
    for (uint32_t i = 0; whole > 0 && i < route->load_count; i++) {
        const struct load *load = &route->loads[i];
        struct resource *resource = &network->resources[load->resource];
        resource->busy_ps += mul_div_floor_u64(mul_u64(load->ps, flow->units), paged, whole);
        resource->gap_ps += mul_div_floor_u64(mul_u64(load->gap_ps, flow->units), paged, whole);
    }
}

/* `per_unit` writes or bytes of all layers, of which `layers` count; all layers that a plan carries are alike, and they
 * are spread evenly over those that it is about. */
static uint64_t whole_layers(uint64_t per_unit, const struct flow *flow, const struct transfer_plan *plan,
                             uint64_t layers)
{
    uint64_t whole = mul_u64(per_unit, flow->units);
    if (plan->layers_carried < plan->layers && plan->layers_carried > 0)
        return whole / plan->layers_carried * (layers * plan->layers_carried / plan->layers);
    return mul_u64(whole, layers) / plan->layers;
}

static void finish(struct network *network, uint32_t id, int64_t now_ns)
{
    struct flow *flow = &network->flows[id];
    const struct route *route = &network->routes[flow->route];
    const struct transfer_plan *plan = route->plan;
    struct flow_done done = {
        .owner = flow->owner,
        .flow = id,
        .layers = flow->layers,
        .stopped = flow->stopped,
        .writes = whole_layers(plan->writes_per_unit, flow, plan, flow->layers),
        .bytes = whole_layers(plan->bytes_per_unit, flow, plan, flow->layers),
        .landed_ns = now_ns,
        .confirmed_ns = now_ns,
    };
    if (!flow->stopped) {
        done.writes += flow->tail_writes;
        done.bytes += flow->tail_bytes;
    }
    if (done.writes > 0) {
        done.landed_ns = now_ns + route->base_ns + route->poll_ns;
        done.confirmed_ns = done.landed_ns + route->base_ns / 2;
    }
    book(network, flow, done.bytes, done.writes);
    detach(network, id);
    flow->state = FLOW_DONE;
    network->done = fabric_grow(network->done, &network->done_capacity, network->done_count + 1, sizeof *network->done);
    network->done[network->done_count++] = done;
    network->done_ns = now_ns;
}

void network_stop(struct network *network, int64_t now_ns, uint32_t id)
{
    struct flow *flow = flow_at(network, id);
    if (flow->state == FLOW_DONE || flow->state == FLOW_DRAINING || now_ns >= flow->last_ns)
        return;
    flow->stopped = true;
    if (flow->state == FLOW_WAITING) {
        unschedule(network, flow);
        activate(network, id, now_ns);
        flow->layers = 0;
        flow->work = 0;
    } else {
        flow_sync(flow, now_ns, network->per_layer);
        flow->work = flow_available(flow, now_ns);
        flow->layers = (uint32_t)((now_ns - flow->first_ns) / flow->step_ns) + 1;
    }
    flow->last_ns = now_ns;
    flow->state = FLOW_DRAINING;
    flow->changed = true;
    rerate_around(network, flow, now_ns);
}

static void forget_done(struct network *network, uint32_t id)
{
    uint32_t kept = network->done_first;
    for (uint32_t i = network->done_first; i < network->done_count; i++)
        if (network->done[i].flow != id)
            network->done[kept++] = network->done[i];
    network->done_count = kept;
    if (network->done_first == network->done_count)
        network->done_first = network->done_count = 0;
}

void network_kill(struct network *network, int64_t now_ns, uint32_t id)
{
    struct flow *flow = flow_at(network, id);
    if (flow->state == FLOW_DONE) {
        forget_done(network, id);
    } else if (flow->state == FLOW_WAITING) {
        unschedule(network, flow);
    } else {
        unschedule(network, flow);
        flow_sync(flow, now_ns, network->per_layer);
        uint64_t layers = flow->layer == 0 ? 0 : min_u64(flow->served / flow->layer, flow->layers);
        const struct transfer_plan *plan = network->routes[flow->route].plan;
        uint64_t writes = whole_layers(plan->writes_per_unit, flow, plan, layers);
        book(network, flow, min_u64(flow->served / MICRO, mul_u64(plan->bytes_per_unit, flow->units)), writes);
        detach(network, id);
        rerate_around(network, flow, now_ns);
    }
    release_flow(network, id);
}

static void mark_nic(struct fabric_node *node, uint32_t place, bool up)
{
    if (node->down[place] == !up)
        return;
    node->down[place] = !up;
    node->down_count = up ? node->down_count - 1 : node->down_count + 1;
}

void network_nic(struct network *network, int64_t now_ns, uint32_t node, uint32_t rank, bool up)
{
    CHECK(node < network->node_count && rank < network->nodes[node].ranks);
    uint32_t port = network->nodes[node].nic_port;
    uint32_t nic = network->nodes[node].resource_of[NIC_IN][network->nodes[node].nic_of[rank]];
    mark_nic(&network->nodes[node], network->nodes[node].nic_of[rank], up);
    for (uint32_t i = 0; i < network->node_count; i++)
        for (uint32_t r = 0; i != node && network->nodes[i].nic_port == port && r < network->nodes[i].ranks; r++)
            if (network->nodes[i].resource_of[NIC_IN][r] == nic)
                mark_nic(&network->nodes[i], network->nodes[i].nic_of[r], up);
    component_begin(network);
    component_reach(network, port * SIDES + NIC_OUT);
    component_reach(network, port * SIDES + NIC_IN);
    component_gather(network);
    for (uint32_t i = 0; i < network->component_count; i++) {
        struct flow *flow = &network->flows[network->component[i]];
        flow->stalled = route_stalled(network, &network->routes[flow->route]);
    }
    sharing_fill(network);
    apply_rates(network, now_ns);
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

int64_t network_next_ns(const struct network *network)
{
    int64_t next_ns;
    if (network->done_first < network->done_count)
        return network->done_ns;
    return event_queue_peek(network->queue, &next_ns) ? next_ns : TIME_NEVER;
}

/* What is due for one flow; true if its component must be re-rated. */
static bool flow_event(struct network *network, uint32_t id, int64_t now_ns)
{
    struct flow *flow = &network->flows[id];
    if (flow->state == FLOW_WAITING) {
        activate(network, id, now_ns);
        return true;
    }
    flow_sync(flow, now_ns, network->per_layer);
    if (flow->state == FLOW_DRAINING) {
        CHECK(flow->served == flow->work);
        finish(network, id, now_ns);
        return true;
    }
    if (now_ns >= flow->last_ns)
        flow->state = FLOW_DRAINING;
    else if (flow->state == FLOW_BEHIND && flow->rate >= flow->demand && flow_has_caught_up(flow))
        flow->state = FLOW_CAUGHT_UP;
    else {
        schedule(network, id); /* the plain form's tick */
        return false;
    }
    flow->changed = true;
    return true;
}

/* Takes everything that is due at `now_ns`, in the order in which the flows were started, so that the order does not
 * depend on how often events were moved; then re-rates once. */
static void process_instant(struct network *network, int64_t now_ns)
{
    uint32_t count = 0;
    int64_t time_ns;
    uint64_t id;
    while (event_queue_peek(network->queue, &time_ns) && time_ns == now_ns) {
        event_queue_pop(network->queue, &time_ns, &id);
        network->flows[id].event = NONE;
        uint32_t at = count++;
        while (at > 0 && network->flows[network->batch[at - 1]].sequence > network->flows[id].sequence) {
            network->batch[at] = network->batch[at - 1];
            at--;
        }
        network->batch[at] = (uint32_t)id;
    }
    component_begin(network);
    for (uint32_t i = 0; i < count; i++)
        if (flow_event(network, network->batch[i], now_ns))
            component_reach_route(network, &network->flows[network->batch[i]]);
    rerate(network, now_ns);
}

bool network_advance(struct network *network, int64_t now_ns, struct flow_done *done)
{
    for (;;) {
        if (network->done_first < network->done_count) {
            *done = network->done[network->done_first++];
            if (network->done_first == network->done_count)
                network->done_first = network->done_count = 0;
            release_flow(network, done->flow);
            return true;
        }
        int64_t time_ns;
        if (!event_queue_peek(network->queue, &time_ns) || time_ns > now_ns)
            return false;
        process_instant(network, time_ns);
    }
}

/* ---- Totals ----------------------------------------------------------------------------------------------------- */

static uint64_t busiest_ps(const struct network *network, const struct fabric_node *node, enum side side,
                           uint64_t *gap_ps)
{
    uint64_t most = 0;
    *gap_ps = 0;
    for (uint32_t rank = 0; rank < node->ranks; rank++) {
        const struct resource *resource = &network->resources[node->resource_of[side][rank]];
        if (resource->busy_ps > most) {
            most = resource->busy_ps;
            *gap_ps = resource->gap_ps;
        }
    }
    return most;
}

struct network_totals network_node_totals(const struct network *network, uint32_t node)
{
    CHECK(node < network->node_count);
    const struct fabric_node *at = &network->nodes[node];
    uint64_t gap_ps;
    uint64_t receive_gap_ps;
    uint64_t posting_gap_ps;
    uint64_t transmit_ps = busiest_ps(network, at, NIC_OUT, &gap_ps);
    return (struct network_totals){
        .flows = at->flows,
        .bytes = at->bytes,
        .writes = at->writes,
        .transmit_busy_ns = (int64_t)(transmit_ps / 1000),
        .receive_busy_ns = (int64_t)(busiest_ps(network, at, NIC_IN, &receive_gap_ps) / 1000),
        .posting_busy_ns = (int64_t)(busiest_ps(network, at, POSTING, &posting_gap_ps) / 1000),
        .op_bound_ns = (int64_t)(gap_ps / 1000),
    };
}
