/* The control plane of one process: a listener, and one TCP connection with each process it works with.
 *
 * Whoever dials shows the run's join token, the protocol's version, and the identities of scenario and build; who does
 * not fit is told why and hung up on, and until then may send no more than a greeting. Of two nodes the one with the
 * higher id dials. A connection that ends, or on which nothing was heard for several heartbeats, is a lost peer, once
 * and for all: what comes back is another one, with a higher incarnation, and dials everybody.
 *
 * One thread owns a mesh. Nothing blocks: whoever waits on mesh_fd() calls mesh_turn() when it is readable, mesh_tick()
 * from time to time, and mesh_flush() at the end of its round.
 */
#ifndef TANDEM_REAL_CONTROL_MESH_H
#define TANDEM_REAL_CONTROL_MESH_H

#include "real/control/frame.h"
#include "host/user_error.h"

#define HEARTBEAT_NS_DEFAULT INT64_C(200000000)
#define HEARTBEATS_MISSED_DEFAULT 10 /* then a peer is suspected: busy machines are late, and a suspicion is final */

struct mesh;

struct mesh_listener {
    void *self;
    void (*up)(void *self, uint32_t node, const struct hello *hello); /* hello: what the peer said of itself */
    void (*frame)(void *self, uint32_t node, const struct frame *frame);
    void (*down)(void *self, uint32_t node, const char *why); /* of a node that was up, or that was being dialled */
};

struct mesh_config {
    struct hello own; /* what this process says when it dials; port is filled in */
    uint32_t node_count;
    const char *bind; /* address to listen on */
    int64_t heartbeat_ns;
    uint32_t heartbeats_missed;
    struct mesh_listener listener;
};

/* NULL with a sentence in `error` when the address cannot be bound. */
struct mesh *mesh_make(const struct mesh_config *config, struct user_error *error);
void mesh_free(struct mesh *mesh);

int mesh_fd(const struct mesh *mesh);
uint16_t mesh_port(const struct mesh *mesh);

/* Starts a connection with a node. What goes wrong, now or later, is reported by down(). */
void mesh_dial(struct mesh *mesh, uint32_t node, const char *address, uint16_t port);

void mesh_turn(struct mesh *mesh, int64_t now_ns);

/* Heartbeats and deadlines; to be called at least as often as the heartbeat. Silence counts from the first call on.
 * Heartbeats leave at once, before what is queued. */
void mesh_tick(struct mesh *mesh, int64_t now_ns);

bool mesh_up(const struct mesh *mesh, uint32_t node);
uint32_t mesh_incarnation(const struct mesh *mesh, uint32_t node); /* of the newest that was up */

/* Queues a frame; dropped where the node is not up. */
void mesh_send(struct mesh *mesh, uint32_t node, uint16_t kind, const void *body, size_t length);

/* Sends what is queued. Nothing that is queued leaves before it. */
void mesh_flush(struct mesh *mesh);

/* Hangs up on a node, without a report. */
void mesh_drop(struct mesh *mesh, uint32_t node);

/* Bytes queued and not yet taken by the sockets, of all peers. */
size_t mesh_pending(const struct mesh *mesh);

/* Names the clock of this process (CLOCK_MONOTONIC): the kernel's boot and the time namespace. Equal names, one clock.
 * Empty where the kernel does not tell. `text` has CONTROL_CLOCK_BYTES. */
void control_clock_identity(char *text);

#endif
