/* The transfer engine of one instance: everything that touches libfabric, owned by one thread.
 *
 * One engine per instance coordinates all of its ranks and NICs. It registers the KV regions of all ranks, exchanges
 * addresses and keys with the engines of peers, posts the gated paged writes that the node asks for, layer by layer as the
 * layer counters pass, counts the immediates that arrive, and reports completions with delivery semantics. The loop thread
 * talks to it through two bounded single-producer rings (real/ring.h): commands in, events out.
 *
 * Rules: a window of writes per endpoint is never exceeded; immediates are 32 bits and counted per (generation, slot); a
 * completion of a ticket is reported when every one of its writes has completed at all NICs, by error or not; a peer that is
 * gone fails its writes and is fenced by tearing down what it could reach (its address, and the keys it was given).
 */
#ifndef TANDEM_REAL_FABRIC_FABRIC_H
#define TANDEM_REAL_FABRIC_FABRIC_H

#include "real/kv_memory.h"
#include "runtime.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric;

struct fabric_rank {
    void *memory; /* the rank's KV region, mapped in this process */
    uint64_t bytes;
};

struct fabric_config {
    const char *provider; /* "shm", "tcp", "net", "verbs", "efa"; NULL: the best that works */
    const char *address;  /* to bind to: "127.0.0.1" unless the user says otherwise */
    uint32_t nics;        /* endpoints; writes of rank r use endpoint r * nics / ranks and its neighbours by a stated rule */
    uint32_t window;      /* writes in flight per endpoint */
    struct kv_memory memory;
    uint32_t rank_count;
    const struct fabric_rank *ranks;
    const _Atomic uint64_t *layer_counters; /* one per attention group */
    uint32_t group_count;
    uint32_t handoffs_max; /* slots of immediates */
    uint32_t tickets_max;  /* writes (of the node) in flight */
};

/* NULL with a sentence in `error` when no provider works. Starts no thread. */
struct fabric *fabric_make(const struct fabric_config *config, char *error, size_t error_size);
void fabric_free(struct fabric *fabric);

const char *fabric_provider(const struct fabric *fabric);

/* What a peer needs to write here: addresses of all endpoints, keys and bases of all regions, pages, layout hash. A blob of
 * fabric_card_bytes() at most; parsed defensively. */
#define FABRIC_CARD_BYTES_MAX 65536
size_t fabric_card(const struct fabric *fabric, void *card);

/* Learns a peer. False with a sentence when the card makes no sense or cannot be reached. */
bool fabric_peer_add(struct fabric *fabric, uint32_t node, const void *card, size_t size, const struct kv_memory *memory,
                     char *error, size_t error_size);

/* The peer is gone: its outstanding writes fail, and what it was given no longer lets it write here. After the return the peer
 * is fenced. */
void fabric_peer_remove(struct fabric *fabric, uint32_t node);

/* ---- What the node asks for; called on the fabric's thread ------------------------------------------------------- */

/* `write` and its arrays are copied. `counter_base`: value of the source group's layer counter before layer 0 of the gating
 * step; a write without a gate passes UINT64_MAX and is posted at once. */
void fabric_write(struct fabric *fabric, const struct paged_write *write, uint64_t counter_base);
void fabric_write_stop(struct fabric *fabric, uint32_t ticket);
void fabric_expect(struct fabric *fabric, uint32_t immediate, uint64_t count);

/* ---- What comes back --------------------------------------------------------------------------------------------- */

struct fabric_event {
    enum { FABRIC_WRITE_DONE = 1, FABRIC_IMMEDIATE = 2, FABRIC_PEER_ERROR = 3 } kind;
    uint32_t id;     /* ticket, immediate, node */
    uint32_t status; /* enum write_status */
    uint64_t count;  /* layers posted; writes counted */
    int64_t posted_ns; /* of a write's first post and last completion, for transfer rows */
    int64_t done_ns;
    uint64_t bytes;
    uint64_t writes;
};

/* Makes progress once: polls completion queues and layer counters, posts what may be posted. Returns the number of events
 * written to `events` (at most `max`), and sets *idle when nothing happened, so that the thread may wait a little. */
uint32_t fabric_poll(struct fabric *fabric, struct fabric_event *events, uint32_t max, bool *idle);

/* Nothing is in flight and nothing is waiting for a layer. */
bool fabric_quiet(const struct fabric *fabric);

#endif
