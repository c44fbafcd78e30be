/* A rail: the endpoint that serves one peer at one NIC, in both directions, with its own completion queue, window and
 * count of writes in flight.
 *
 * Endpoints are not shared between peers, for three reasons. Closing the rails of a peer is a fence that needs nothing
 * of the provider: what was half received has no endpoint to go on with, and what waits in a shared region is unmapped.
 * An error or an immediate on a rail's queue has one possible author, which providers otherwise do not name. And writes
 * that a silent provider never completes are given up with their endpoint, instead of using up a shared one. The price
 * is an endpoint and a queue per peer and NIC (16 MiB of address space each over shm), and a poll of each.
 */
#ifndef TANDEM_REAL_FABRIC_RAIL_H
#define TANDEM_REAL_FABRIC_RAIL_H

#include "real/fabric/provider.h"
#include "host/user_error.h"

#include <rdma/fi_rma.h>

#include <stdbool.h>
#include <stdint.h>

/* One write in flight. */
struct write_op {
    struct fi_context2 context; /* the provider's, and first: a completion names it */
    uint32_t ticket;            /* slot */
    uint32_t next_unused;       /* plus one; of an operation in flight: OP_BUSY */
};

#define OP_BUSY UINT32_MAX

struct rail {
    struct fid_ep *endpoint; /* NULL: closed, for good */
    struct fid_av *addresses;
    struct fid_cq *queue;
    fi_addr_t remote;
    bool connected; /* `remote` is known */
    bool broken;    /* is to be closed: nothing more is posted */
    struct write_op *ops;
    uint32_t window;
    uint32_t unused_first; /* of ops, plus one */
    uint32_t in_flight;
    int64_t progress_ns; /* when something last completed, or the first write in flight was posted */
    int64_t refused_ns;  /* since when the provider takes no write though none is in flight; 0: it does */
};

/* One remote write: where from, where to. */
struct rail_write {
    void *source;
    void *descriptor; /* of the source region, where the provider wants one */
    size_t bytes;
    uint64_t address;
    uint64_t key;
    uint32_t immediate;
    uint32_t ticket;
};

enum rail_result { RAIL_POSTED = 1, RAIL_AGAIN = 2, RAIL_FAILED = 3 };

/* What a rail tells while it is polled. */
struct rail_listener {
    void *owner;
    void (*completed)(void *owner, uint32_t ticket, bool good);
    void (*immediate)(void *owner, uint32_t immediate);
};

/* The window is at most what the provider's queue takes. False with a sentence. */
bool rail_open(struct rail *rail, const struct nic *nic, uint32_t window, struct user_error *error);

/* Own address, for the card: at most `size` bytes; 0 when it is longer. */
size_t rail_address(const struct rail *rail, void *address, size_t size);

bool rail_connect(struct rail *rail, const void *address);

/* Open, and not about to be closed. */
static inline bool rail_whole(const struct rail *rail)
{
    return rail->endpoint != NULL && !rail->broken;
}

static inline bool rail_usable(const struct rail *rail)
{
    return rail_whole(rail) && rail->connected;
}

static inline bool rail_has_room(const struct rail *rail)
{
    return rail->in_flight < rail->window;
}

/* The rail has room. */
enum rail_result rail_post(struct rail *rail, const struct rail_write *write, int64_t now_ns);

/* Reads the completion queue. Returns false when the rail is broken: then it should be closed. */
bool rail_poll(struct rail *rail, const struct rail_listener *listener, int64_t now_ns, bool *progress);

/* Whether it has stood still for `stall_ns` though it has work. */
bool rail_stalled(const struct rail *rail, int64_t now_ns, int64_t stall_ns);

/* Reads what has completed, then tears down: what is still in flight is reported as failed, and neither side can use
 * this rail any more. Nothing happens to a closed one. */
void rail_close(struct rail *rail, const struct rail_listener *listener);

#endif
