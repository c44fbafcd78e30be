/* Real time: the runtime behind runtime.h of one node in one process.
 *
 * One thread, the loop, owns it and alone enters the node. It waits on one epoll for the control sockets, the fabric
 * thread, the stepper, a timer, and whatever else its owner watches; what comes is handed to the node one event at a
 * time, at the monotonic time of that moment. What an operation would answer at once (a message to oneself, a peer lost
 * while sending) waits until the node has returned.
 *
 * A write that has failed is told only when its bytes cannot land any more. Rails of it are closed at this end, but
 * what was posted may lie in a kernel or in shared memory: the receiver is asked to close its ends, too, and the node
 * hears of the failure when that has been done, or when the receiver is lost.
 *
 * Ordering of an armed count and the message that lets a peer write: immediate_expect() is a command to the fabric
 * thread, and no byte leaves for any peer while such a command is not in effect (the control sockets are corked, not
 * the loop).
 */
#ifndef TANDEM_REAL_RUNTIME_REAL_RUNTIME_H
#define TANDEM_REAL_RUNTIME_REAL_RUNTIME_H

#include "base/limits.h"
#include "real/control/mesh.h"
#include "real/runtime/answers.h"
#include "real/fabric/fabric_thread.h"
#include "real/runtime/ledger.h"
#include "real/executor/stepper.h"

struct real_runtime;

/* Any may be NULL. */
struct real_listener {
    void *self;
    void (*trace)(void *self, int64_t now_ns, const struct trace_record *record);
    void (*before_send)(void *self, uint32_t node); /* something is about to be queued for that node */
    /* A launch is over; `outcome` has the tokens that are news. The row's times are the node's, from the call to the
     * event, as in simulation; the outcome's are those of the steps alone. */
    void (*steps)(void *self, const struct step_row *row, const struct steps_outcome *outcome);
    void (*transfer)(void *self, const struct transfer_row *row);
    void (*after)(void *self, const struct event *event); /* the node has handled it */
    /* Of a write that has completed well, before the node knows: its bytes are still in place. */
    void (*written)(void *self, const struct paged_write *write);
    /* Bytes of an immediate are here, but not yet in the device: says where they go. False: nobody awaits them. */
    bool (*landing)(void *self, uint32_t immediate, struct fabric_landing *landing);
    /* Bytes of an immediate are here. True: it may be told; false: real_runtime_immediate() will tell it. */
    bool (*landed)(void *self, uint32_t immediate, uint64_t count);
    void (*expected)(void *self, uint32_t immediate, uint64_t count);
    void (*trouble)(void *self, const char *text); /* the node cannot go on */
};

struct real_config {
    uint32_t node;
    struct runtime_limits limits;
    void (*handle)(void *self, const struct event *event); /* the node */
    void *self;
    struct mesh *mesh;            /* NULL: alone */
    struct fabric_thread *fabric; /* NULL: the node neither writes nor is written to */
    struct stepper stepper;
    struct answers *answers; /* NULL: messages and launches carry no tokens */
    int64_t itl_from_ns;
    bool produces_first_token;
    struct real_listener listener;
};

struct real_runtime *real_runtime_make(const struct real_config *config);
void real_runtime_free(struct real_runtime *real);

/* The node's side. */
struct runtime *real_runtime_seam(struct real_runtime *real);

/* Time 0 of the run on CLOCK_MONOTONIC; may lie ahead. Until it is set, time stands at 0. */
void real_runtime_origin(struct real_runtime *real, int64_t monotonic_ns);
int64_t real_runtime_now_ns(const struct real_runtime *real);

/* Gaps between tokens count from then on, not from config.itl_from_ns; of steps that are reported from now on. */
void real_runtime_itl_from(struct real_runtime *real, int64_t from_ns);

/* Gives the node an event; not from within the node. */
void real_runtime_deliver(struct real_runtime *real, const struct event *event);

/* What the owner's listener of the mesh hears. A FRAME_MESSAGE or FRAME_ANSWERS is given to the node, FRAME_CLOSE and
 * FRAME_CLOSED are the runtimes' own; false: it makes no sense, and the node does not hear of it. */
bool real_runtime_frame(struct real_runtime *real, uint32_t source, const struct frame *frame);
void real_runtime_peer_down(struct real_runtime *real, uint32_t node);

/* A connection with that incarnation of the peer is there; the node hears of a replacement by its HELLO. */
void real_runtime_peer_up(struct real_runtime *real, uint32_t node, uint32_t incarnation);

/* For a node that begins when a peer is a replacement already: its predecessors are gone, and could never write
 * here. */
void real_runtime_peer_replaced(struct real_runtime *real, uint32_t node);
void real_runtime_immediate(struct real_runtime *real, uint32_t immediate, uint64_t count);

/* Calls `ready` in a turn whenever `fd` is readable. */
#define REAL_WATCHES_MAX 1600 /* a process for every node or rank, and a few of the owner's own */
void real_runtime_watch(struct real_runtime *real, int fd, void (*ready)(void *self, uint32_t argument), void *self,
                        uint32_t argument);
void real_runtime_unwatch(struct real_runtime *real, int fd);

/* Takes reports of the fabric thread that are not for the node: cards, peers learnt. */
void real_runtime_on_report(struct real_runtime *real, void (*report)(void *self, struct fabric_report *report),
                            void *self);

/* Waits for at most `timeout_ns` and handles what there is. Returns early on a signal. */
void real_runtime_turn(struct real_runtime *real, int64_t timeout_ns);

/* Nothing is launched, written, or waiting to be told. */
bool real_runtime_quiet(const struct real_runtime *real);

struct ledger *real_runtime_ledger(struct real_runtime *real);

#endif
