/* A shim over the seam: one fault in one run: the n-th of something that the world does goes wrong, and everything
 * else goes well.
 *
 * A cluster (cluster.h) passes its operations and events through here; support/story.h plays a story with the first of
 * a kind of fault, then the second, until a run reaches none. The kinds are the menu of the protocol: failed, lost and
 * late writes, late, duplicated, lost and refused messages, a NIC that stalls, instances that die at every event and
 * come back before they are suspected or after, clients that leave at every event.
 */
#ifndef TANDEM_TESTS_SUPPORT_FAULT_INJECTION_H
#define TANDEM_TESTS_SUPPORT_FAULT_INJECTION_H

#include "sim/engine/sim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum injected_fault_kind {
    INJECT_NONE,
    INJECT_WRITE_FAILED,      /* nothing of it lands, and its sender learns that it failed */
    INJECT_WRITE_IN_ERROR,    /* it has landed, but its sender is told that it failed */
    INJECT_WRITE_LATE,        /* it lands, and is confirmed, long after the transfer's deadline */
    INJECT_WRITE_HALF,        /* the fabric gives up half way, and its sender learns of it */
    INJECT_WRITE_IN_PIECES,   /* it lands piece by piece, the last first, beyond the deadline */
    INJECT_WRITE_UNCONFIRMED, /* it has landed long before its sender learns of it */
    INJECT_NIC_STALLED,       /* when it is posted the NIC of its sender stops for longer than the deadline */
    INJECT_MESSAGE_LATE,      /* and with it what follows on the same pair of nodes, for longer than the deadline */
    INJECT_MESSAGE_TWICE,     /* it comes again at once */
    INJECT_MESSAGE_LOST,      /* one of those whose loss the deadline makes good: PREFILL and what answers it */
    INJECT_PREFILL_REFUSED,   /* the prefiller cannot make sense of it */
    INJECT_GEOMETRY_REFUSED,  /* the prefiller knows no such layout: the client is told */
    INJECT_DEATH,             /* `subject`, a node, dies when it has handled its n-th event */
    INJECT_DEATH_LINGERING,   /* and its NICs go on with the writes they have until it is fenced */
    INJECT_DEATH_AND_RETURN,  /* and its replacement is there before anybody suspects the loss */
    INJECT_DEATH_LONG_RETURN, /* and its replacement comes when the dead one is fenced */
    INJECT_CLIENT_LEAVES,     /* `subject`, a request, is aborted at the n-th event after its arrival, whoever's */
    INJECT_KINDS,
};

struct injected_fault {
    enum injected_fault_kind kind;
    uint32_t subject;
    uint32_t nth; /* from 1 */
};

/* Deadlines of transfers while something is late, and how late that is. */
#define INJECT_DEADLINE_NS INT64_C(1000000)
#define INJECT_LATE_NS INT64_C(3000000)

/* What dies, returns or leaves is the cluster's affair. */
struct injection_actions {
    void *self;
    void (*die)(void *self, uint32_t node, bool lingering);
    void (*come_back)(void *self, uint32_t node, int64_t delay_ns);
    void (*leave)(void *self, uint32_t request);
};

struct fault_injection {
    struct injected_fault fault;
    struct injection_actions actions;
    struct sim *sim;
    uint32_t seen; /* of what can go wrong */
    bool struck;
    bool arrived; /* the request that is to leave */
};

/* "write failed", ... */
const char *injection_name(enum injected_fault_kind kind);

/* True where the fault is one of time: transfers then have INJECT_DEADLINE_NS. */
bool injection_is_late(enum injected_fault_kind kind);

void injection_make(struct fault_injection *injection, const struct injected_fault *fault, struct sim *sim,
                    const struct injection_actions *actions);

/* Before the write is passed on: `*write` may be changed. */
void injection_post(struct fault_injection *injection, uint32_t node, struct paged_write *write);

/* Before the message is passed on: may point `*bytes` to others, which live until the next call. */
void injection_send(struct fault_injection *injection, const void **bytes, size_t *length);

/* Before the node gets the event: what it gets instead. */
struct event injection_event(struct fault_injection *injection, uint32_t node, const struct event *event);

#endif
