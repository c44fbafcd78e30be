/* The inside of the network: what nic.c, route.c, flow.c, sharing.c and network.c share. Users include network.h.
 *
 * Words. A *resource* is something whose time is shared: the NICs of one side of an instance that are always loaded
 * alike count as one, and so do the threads that post for its ranks. A *route* is what a transfer plan costs between
 * two instances, worked out on first use. A *port* is one side (in or out, NICs or NVLink) of one instance, or of those
 * that share a NIC; flows that can reach one another over ports form a component, and only a component is ever
 * re-rated.
 */
#ifndef TANDEM_SIM_NET_NETWORK_INTERNAL_H
#define TANDEM_SIM_NET_NETWORK_INTERNAL_H

#include "base/arith.h"
#include "sim/time/event_queue.h"
#include "sim/net/network.h"

#include <stdbool.h>
#include <stdint.h>

#define NONE UINT32_MAX

/* All of a resource's time, as the unit of shares; a level is a part of a flow's rate when alone, in 2^-30. With these
 * sizes (free << LEVEL_BITS) and (rate * level) fit 64 bits. */
#define CAPACITY (UINT64_C(1) << 33)
#define LEVEL_BITS 30
#define LEVEL_ONE (UINT32_C(1) << LEVEL_BITS)
#define LEVEL_UNBOUNDED UINT32_MAX

/* kB/s, 8.6 TB/s: no single transfer is faster. */
#define RATE_MAX (CAPACITY - 1)

enum side {
    NIC_OUT,
    NIC_IN,
    NVLINK_OUT,
    NVLINK_IN,
    POSTING, /* threads, of which each rank has one, or the instance; no flow has it as its port */
    SIDES,
};

struct resource {
    uint64_t free;   /* while sharing: what the flows already rated leave */
    uint64_t weight; /* while sharing: shares of the flows not yet rated, at their full rate */
    uint32_t level;  /* while sharing: free / weight */
    uint32_t mark;
    uint32_t ranks;   /* that this resource stands for */
    uint64_t busy_ps; /* of each of them, by flows that have ended */
    uint64_t gap_ps;  /* the part of it not spent on bytes */
};

struct port {
    uint32_t first_flow;
    uint32_t mark;
};

struct fabric_node {
    uint32_t ranks;
    uint32_t nvlink_domain;
    uint32_t nic_port; /* the lowest node that shares a NIC with this one, or with one that does */
    uint32_t *nic_of;  /* by rank: the lowest rank of the node beside the same NIC, whose place stands for it */
    struct nic nic;
    uint64_t nvlink_bytes_per_s;
    int64_t poll_ns;
    uint32_t *resource_of[SIDES]; /* by rank; of NICs, by the rank that stands for one */
    bool *down;                   /* likewise */
    uint32_t down_count;
    uint64_t flows;
    uint64_t bytes;
    uint64_t writes;
};

/* What one unit costs a NIC, by the rank that stands for it, or the thread that posts for a rank. */
struct cost {
    uint32_t rank;
    uint64_t ps;
    uint64_t wire_ps; /* of which for bytes */
};

#define COSTS_POSTING 2 /* beside those of the two ends, 0 and 1 */
#define ROUTE_COSTS 3

struct load {
    uint32_t resource;
    uint64_t share; /* of CAPACITY, at the route's full rate */
    uint64_t ps;    /* per unit */
    uint64_t gap_ps;
};

struct route {
    const struct transfer_plan *plan;
    uint32_t source;
    uint32_t destination;
    uint32_t port[2]; /* out, in */
    enum side side[ROUTE_COSTS];
    uint64_t full_rate;  /* kB/s of a flow that is alone: its busiest resource is always busy */
    uint64_t busiest_ps; /* per unit, on that resource */
    int64_t base_ns;
    int64_t poll_ns;
    uint64_t tail_gap_ps; /* per write of the tail */
    uint64_t tail_bytes_per_s;
    struct cost *costs[ROUTE_COSTS]; /* by rank touched: out, in, posting; the last is empty over NVLink */
    uint32_t cost_count[ROUTE_COSTS];
    struct load *loads;
    uint32_t load_count;
};

enum flow_state {
    FLOW_FREE,
    FLOW_WAITING,   /* for its first layer */
    FLOW_CAUGHT_UP, /* gated, and not behind production: wants no more than the production rate */
    FLOW_BEHIND,    /* gated, and takes all it can get */
    FLOW_DRAINING,  /* everything is available */
    FLOW_DONE,      /* waits to be reported by network_advance() */
};

/* Amounts in millionths of a byte; rates in kB/s, which is millionths of a byte per nanosecond. */
struct flow {
    enum flow_state state;
    uint32_t route;
    uint64_t rate;
    uint64_t served;  /* as of synced_ns */
    uint64_t work;    /* in all: layers and tail, or what was available when it was stopped */
    uint64_t layer;   /* of one layer */
    uint64_t demand;  /* production rate, rounded up */
    int64_t first_ns; /* layer 0 */
    int64_t step_ns;  /* from layer to layer */
    int64_t last_ns;  /* last layer: everything is available */
    int64_t synced_ns;
    uint64_t sequence;  /* of start */
    uint64_t next_rate; /* while sharing */
    uint32_t demand_level;
    uint32_t event;   /* handle in the queue, or NONE */
    uint32_t next[2]; /* flows of the same port: out, in */
    uint32_t previous[2];
    uint32_t units;
    uint32_t tail_writes;
    uint32_t tail_bytes;
    uint32_t layers; /* that will be, or were, posted */
    bool changed;    /* state changed: the next event must be found anew */
    bool stalled;    /* a NIC it needs is down */
    bool stopped;
    uint64_t owner;
};

struct network {
    bool per_layer;
    uint32_t node_count;
    struct fabric_node *nodes;
    struct port *ports; /* node * SIDES + side */

    struct resource *resources;
    uint32_t resource_count;
    uint32_t resource_capacity;

    struct route *routes;
    uint32_t route_count;
    uint32_t route_capacity;
    uint32_t *route_table; /* open addressing by (plan, source, destination); looked up, never walked */
    uint32_t route_table_size;

    struct flow *flows;
    uint32_t flow_count;
    uint32_t flow_capacity;
    uint32_t free_flow;
    uint64_t sequence;
    struct event_queue *queue;

    struct flow_done *done; /* finished and not yet reported: [done_first, done_count) */
    uint32_t done_first;
    uint32_t done_count;
    uint32_t done_capacity;
    int64_t done_ns; /* when they finished */

    uint32_t mark;           /* the current search for a component */
    uint32_t *reached_ports; /* of the component, as a queue; node_count * SIDES */
    uint32_t reached_port_count;
    uint32_t *component; /* its flows; flow_capacity */
    uint32_t component_count;
    uint32_t *rising;  /* those of them not yet rated; flow_capacity */
    uint32_t *batch;   /* flows with an event at this instant; flow_capacity */
    uint32_t *touched; /* resources of the component; resource_capacity */
    uint32_t touched_count;
};

/* network.c: realloc() that cannot fail quietly; `*capacity` doubles until it holds `count`. */
void *fabric_grow(void *array, uint32_t *capacity, uint32_t count, size_t size);

/* route.c */
void fabric_nodes_make(struct network *network, const struct network_node *nodes, uint32_t node_count);
void fabric_nodes_free(struct network *network);
uint32_t route_find(struct network *network, const struct transfer_plan *plan, uint32_t source, uint32_t destination);
bool route_stalled(const struct network *network, const struct route *route);

/* flow.c: one flow between two changes of its rate. */
uint64_t flow_available(const struct flow *flow, int64_t now_ns);
void flow_sync(struct flow *flow, int64_t now_ns, bool per_layer);
bool flow_has_caught_up(const struct flow *flow);
int64_t flow_next_ns(const struct flow *flow, bool per_layer);

/* sharing.c: rates (`next_rate`) for the flows in network->component. */
void sharing_fill(struct network *network);

#endif
