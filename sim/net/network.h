/* The fabric between instances: every rank has a NIC with a transmit and a receive side, of its own or shared with the
 * GPUs beside it, and a thread that posts its writes. Transfers that are under way share what they have in common and
 * are re-rated whenever one of them starts or ends (max-min fair, work-conserving), so no link idles while a transfer
 * could use it and none exceeds its line rate.
 *
 * A transfer is one flow. Its bytes become available layer by layer: layer l at gate_first_ns + l * gate_layer_ns.
 * Between changes of the sharing it is served in closed form; the plain form (`per_layer` = true) walks the same
 * recurrence with an event a layer and must give the same times to the nanosecond. All arithmetic is in integers: rates
 * in kB/s rounded down, amounts in millionths of a byte, durations rounded up.
 *
 * What is shared is time. A write of b bytes takes (g^p + (b / B)^p)^(1/p) of the sender's NIC and of the receiver's;
 * of the sender's no less than (a + b / B) / queue_depth, and posting_ps of the thread that posts for the sending rank
 * (or, says the hardware, for all ranks of the instance). Flows that meet get equal parts of the busiest thing that
 * each needs; a gated flow that keeps up with production takes no more than its production rate, and the others share
 * the rest. What is exact and what is approximated is said in network.c.
 *
 * Between instances in one NVLink domain a flow uses the GPUs' NVLink instead: bytes over line rate, no cost per write
 * and no posting thread.
 */
#ifndef TANDEM_SIM_NET_NETWORK_H
#define TANDEM_SIM_NET_NETWORK_H

#include "world/scenario/hardware.h"
#include "model/transfer_plan.h"

#include <stdbool.h>
#include <stdint.h>

struct network;

struct network_node {
    uint32_t ranks;         /* 0: no NICs (the front) */
    uint32_t nvlink_domain; /* instances with equal ones reach each other over NVLink instead of the NICs, if they have
                               it. Instances that share a NIC need not be in one */
    uint32_t machine;       /* the first rank, and its GPU there: where GPUs share NICs, so do the instances */
    uint32_t gpu;
    struct hardware hardware;
};

/* `nodes` is copied. */
struct network *network_make(const struct network_node *nodes, uint32_t node_count, bool per_layer);
void network_free(struct network *network);

struct flow_spec {
    uint32_t source;
    uint32_t destination;
    const struct transfer_plan *plan; /* must stay valid and at one address: shares per rank are cached by it */
    uint32_t units;
    uint32_t tail_writes;
    uint32_t tail_bytes;
    int64_t gate_first_ns; /* when layer 0 may be posted, watcher latency included. May lie in the past: what has become
                              available by now goes at once */
    int64_t gate_layer_ns; /* from layer to layer; 0: all at once */
    uint64_t owner;        /* handed back on completion */
};

/* A flow id, reused after completion. */
uint32_t network_start(struct network *network, int64_t now_ns, const struct flow_spec *spec);

/* No further layer is posted; what is available by now still goes out. The flow completes later, with `stopped`. */
void network_stop(struct network *network, int64_t now_ns, uint32_t id);

/* Everything the flow has not delivered is lost, at once; no completion follows. For killed instances and failed
 * NICs. */
void network_kill(struct network *network, int64_t now_ns, uint32_t id);

/* Rank `rank`'s NIC of `node` carries nothing from now on (up = false) or works again, for everyone who shares it.
 * Flows over it stall meanwhile. */
void network_nic(struct network *network, int64_t now_ns, uint32_t node, uint32_t rank, bool up);

/* The next instant at which network_advance() has something to do; TIME_NEVER when idle. */
int64_t network_next_ns(const struct network *network);

struct flow_done {
    uint64_t owner;
    uint32_t flow;
    uint32_t layers; /* posted and delivered */
    bool stopped;
    uint64_t writes; /* delivered, tail included: what the destination's counter adds */
    uint64_t bytes;
    int64_t landed_ns;    /* when the last byte is visible and counted at the destination: last byte sent + a (once: the
                             writes before it overlap) + the destination's poll_ns */
    int64_t confirmed_ns; /* when the sender knows: half of a later */
};

/* A flow is reported when its last byte has left and its NICs are free; landed_ns and confirmed_ns then lie ahead.
 * Flows that end at the same instant are reported in the order in which they were started.
 *
 * Brings the network to now_ns, which must not be past network_next_ns() by more than its own step; returns one
 * finished flow at a time, false when there is none (left) at this instant. */
bool network_advance(struct network *network, int64_t now_ns, struct flow_done *done);

/* Totals since the start, for utilization, conservation checks and the binding constraint. Flows are counted when they
 * start; all else when they end, a killed one's with what it had delivered. NVLink counts in bytes and writes only. */
struct network_totals {
    uint64_t flows; /* sent by the node, as are bytes and writes */
    uint64_t bytes;
    uint64_t writes;
    int64_t transmit_busy_ns; /* of the busiest NIC's transmit side: time its writes took, gaps included */
    int64_t receive_busy_ns;
    int64_t posting_busy_ns; /* of the node's busiest posting thread */
    int64_t op_bound_ns;     /* part of transmit_busy_ns spent on the per-write gap rather than on bytes */
};
struct network_totals network_node_totals(const struct network *network, uint32_t node);

#endif
