/* Virtual time: the runtime behind runtime.h in which every plan is searched and every story is told.
 *
 * One simulation is one `struct sim` with no globals, so that many run on threads. Each node is a participant:
 * something with one function that takes events. The product puts node_handle() there, tests put probes.
 *
 * Order. Events come by (time, sequence of push). Within one instant the network goes first, then what arrives at
 * nodes, and step boundaries last, in order of node: a step that ends at T has seen everything that reached its node by
 * T. With that rule a repetition of steps and a launch per step agree to the nanosecond, also where an event falls on a
 * boundary.
 *
 * Steps. A launch without prefill chunks is not simulated step by step: boundaries are computed in chunks that double,
 * from the device model's split into a fixed part and a line, and nothing is queued but the end of the chunk. An event
 * for the node ends the repetition at the first boundary not before it. `plain` turns both short cuts off: one step a
 * launch, costed whole, and a network with an event per layer; times and decisions must not change.
 */
#ifndef TANDEM_SIM_ENGINE_SIM_H
#define TANDEM_SIM_ENGINE_SIM_H

#include "run/run_record.h"
#include "runtime.h"
#include "sim/cost/device_model.h"
#include "sim/net/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim;

struct participant {
    void (*handle)(void *self, const struct event *event);
    void *self;
};

/* What a launch costs: the device model's functions, or a test's. `model` is immutable and may be shared by threads. */
struct device_ops {
    void (*step)(const void *model, const struct step_group *groups, uint32_t group_count, struct step_time *time);
    int64_t (*decode_fixed_ns)(const void *model, const struct step_group *groups, uint32_t group_count);
    void (*decode_line)(const void *model, uint32_t decode_sequences, uint64_t decode_context,
                        struct decode_line *line);
};

struct device {
    const struct device_ops *ops; /* NULL: the node cannot launch (the front) */
    const void *model;
    int64_t launch_ns; /* of each launch of decode steps, beyond the steps */
    uint32_t stages;   /* that a launch passes one after the other, and launches in flight; 0: one */
};

struct device device_of(const struct device_model *model);

struct sim_node_config {
    struct network_node network; /* hardware.message_ns counts for nodes without NICs too */
    struct device device;
    uint32_t group_count;
    bool produces_first_token; /* a joining sequence got its first token from the step before, not from its first decode
                                  step: decides what its first gap between tokens is */
};

/* How long the world takes to notice a lost node. */
struct sim_detection {
    int64_t suspect_ns; /* from the loss to PEER_SUSPECTED, and to WRITE_FAILED of writes that go there */
    int64_t fence_ns;   /* from PEER_SUSPECTED to PEER_FENCED */
};

struct sim_config {
    uint64_t seed;
    uint64_t shuffle_seed; /* 0: equal times in order of push */
    bool plain;
    bool poison; /* overwrite what an event pointed to when the call returns, for tests of rule 5 */
    uint32_t node_count;
    const struct sim_node_config *nodes; /* copied */
    struct runtime_limits limits;
    struct sim_detection detection;
};

struct sim *sim_make(const struct sim_config *config);
void sim_free(struct sim *sim);

/* The node's side of the seam; lives as long as the simulation. */
struct runtime *sim_runtime(struct sim *sim, uint32_t node);

/* Every node needs a participant before the first sim_advance(). */
void sim_attach(struct sim *sim, uint32_t node, struct participant participant);

/* Queues EVENT_START of every node, in order, for this instant. */
void sim_start(struct sim *sim);

enum sim_status {
    SIM_IDLE = 1,    /* nothing is pending. Whether that is the end or a dead lock the caller knows */
    SIM_TIME = 2,    /* the next event lies after `until_ns` */
    SIM_STOPPED = 3, /* sim_stop() was called */
};

/* Runs until one of the above. Names the simulation's context for CHECK on this thread while it runs. */
enum sim_status sim_advance(struct sim *sim, int64_t until_ns);

/* From a listener or a call: sim_advance() returns after the event in hand. */
void sim_stop(struct sim *sim);

int64_t sim_now_ns(const struct sim *sim);

/* When something happens next; TIME_NEVER: nothing is pending. */
int64_t sim_next_ns(struct sim *sim);

/* `run` is called at `at_ns` (not before now), outside of every node. */
struct sim_call {
    void (*run)(struct sim *sim, void *self, uint64_t argument);
    void *self;
    uint64_t argument;
};
void sim_call_at(struct sim *sim, int64_t at_ns, struct sim_call call);

/* Gives a node an event now, from a call or between two sim_advance(): arrivals, EVENT_STOP. Pointers in it need to
 * live only until the return. A killed node gets nothing. */
void sim_deliver(struct sim *sim, uint32_t node, const struct event *event);

/* ---- Listeners: recorder, checkers, golden stories --------------------------------------------------------------- */

#define SIM_LISTENERS_MAX 10

struct sim_landing;

/* Any may be NULL. What is pointed to lives until the return. */
struct sim_listener {
    void *self;
    void (*trace)(void *self, int64_t now_ns, const struct trace_record *record);
    void (*before)(void *self, int64_t now_ns, uint32_t node, const struct event *event);
    void (*after)(void *self, int64_t now_ns, uint32_t node, const struct event *event);
    void (*steps)(void *self, const struct step_row *row);
    void (*transfer)(void *self, const struct transfer_row *row); /* when the sender knows */
    /* Operations of a node, before they are carried out. */
    void (*launch)(void *self, uint32_t node, const struct step_launch *launch);
    void (*post)(void *self, uint32_t node, const struct paged_write *write);
    void (*expect)(void *self, uint32_t node, uint32_t immediate, uint64_t count);
    void (*send)(void *self, uint32_t node, uint32_t destination, const void *bytes, size_t length);
    /* Part of a write is in its destination's memory, and about to be counted. */
    void (*landed)(void *self, const struct sim_landing *landing);
    void (*died)(void *self, uint32_t node);
};

/* The writes of a ticket are numbered unit by unit, in a unit pair by pair of the plan, in a pair layer by layer, then
 * planes, then runs, those of the tail last. Landed are those whose number is `piece` modulo `pieces`. */
struct sim_landing {
    uint32_t source;
    uint32_t source_incarnation;
    uint32_t destination;
    uint32_t ticket;
    uint32_t layers; /* posted: writes of layers from here on do not exist */
    uint32_t piece;
    uint32_t pieces;
    uint64_t writes; /* of this piece */
};

void sim_listen(struct sim *sim, const struct sim_listener *listener); /* copied; in order of listening */

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

/* The node gets nothing any more and what it has not delivered is lost. Every other node is told: PEER_SUSPECTED, then
 * PEER_FENCED. Messages already on their way from it still arrive. */
void sim_kill(struct sim *sim, uint32_t dead);

/* The same, but its NICs go on with the writes they have, as those of a process that hangs do: until the fence they may
 * land, and no longer. */
void sim_kill_lingering(struct sim *sim, uint32_t dead);

/* The connection of two living instances is lost: no message passes any more, each is told that the other is lost, and
 * their writes to one another land until the fence at most. Ends when one of them is replaced. */
void sim_cut(struct sim *sim, uint32_t a, uint32_t b);

/* A killed node comes back empty, as `participant`, and gets EVENT_START with its incarnation; how peers learn of it is
 * the protocol's affair. */
void sim_restart(struct sim *sim, uint32_t index, struct participant participant);

bool sim_alive(const struct sim *sim, uint32_t node);

void sim_nic(struct sim *sim, uint32_t node, uint32_t rank, bool up);

struct message_fault {
    uint32_t copies;  /* 1; 0: lost; 2: duplicated */
    int64_t delay_ns; /* on top of the latency; order per pair is kept */
};

struct write_fault {
    int64_t delay_ns;   /* of arrival and confirmation */
    int64_t confirm_ns; /* of the confirmation alone: the sender's completion queue stalls */
    uint32_t pieces;    /* at most SIM_PIECES_MAX: it lands in so many, the last first; 0 and 1: as a whole */
    int64_t piece_ns;   /* from piece to piece */
    bool fails;         /* the fabric gives up half way: the last piece never lands, and the sender is told */
};

#define SIM_PIECES_MAX 64

struct sim_faults {
    void *self;
    /* Any may be NULL. */
    struct message_fault (*message)(void *self, int64_t now_ns, uint32_t source, uint32_t destination,
                                    const void *bytes, size_t length);
    /* Asked when the network has carried the write. */
    struct write_fault (*write)(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write);
    /* Of a write behind a step in progress: at least 0 when its layers' ticks are seen together, so long after the
     * last; negative: each at its time. */
    int64_t (*ticks_ns)(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write);
};
void sim_set_faults(struct sim *sim, const struct sim_faults *faults);

/* ---- What it came to ------------------------------------------------------------------------------------------- */

struct sim_ledger {
    int64_t busy_ns;                      /* steps that have ended */
    int64_t bound_ns[BOUND_OVERHEAD + 1]; /* of busy_ns, by enum step_bound */
    uint64_t launches;
    uint64_t steps;
    uint64_t prefill_tokens;
    uint64_t decode_tokens;
    uint64_t messages; /* sent */
    uint64_t message_bytes;
    uint64_t writes;      /* tickets posted */
    uint64_t writes_late; /* single writes whose immediate nobody expected any more */
};

const struct sim_ledger *sim_ledger(const struct sim *sim, uint32_t node);
const struct network *sim_network(const struct sim *sim);

uint64_t sim_trace_hash(const struct sim *sim);
uint64_t sim_event_count(const struct sim *sim); /* delivered to nodes */
uint64_t sim_queue_count(const struct sim *sim); /* taken from the queue, chunk ends and calls included */

/* The next draw of the fingerprint stream, which advances with every event delivered. */
uint64_t sim_final_draw(struct sim *sim);

/* ITL_BUCKETS counts: gap between a token and the one before, weighed by tokens. From the time set here on. */
const uint64_t *sim_itl(const struct sim *sim);
void sim_itl_from(struct sim *sim, int64_t from_ns);

/* For people: what every node holds in flight, one line a node. For the report of a run that makes no progress. */
void sim_describe(const struct sim *sim, char *text, size_t size);

#endif
