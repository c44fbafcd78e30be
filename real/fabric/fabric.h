/* The transfer engine of one instance: everything that touches libfabric, owned by one thread.
 *
 * One engine per instance coordinates all of its ranks and NICs. It registers the KV regions of all ranks, exchanges
 * addresses and keys with the engines of peers, posts the gated paged writes that the node asks for, layer by layer as
 * the layer counters pass, counts the immediates that arrive, and reports completions with delivery semantics. The loop
 * thread talks to it through two bounded single-producer rings (real/memory/ring.h): commands in, events out.
 *
 * Rules: a window of writes per rail is never exceeded; immediates are 32 bits and counted per (generation, slot); a
 * completion of a ticket is reported when every one of its writes has completed at all NICs, by error or not; a peer
 * that is gone fails its writes and is fenced by tearing down what it could reach.
 *
 * A rail is the endpoint that serves one peer at one NIC (real/fabric/rail.h). Endpoints and keys are made per peer, so
 * a peer is fenced by closing its own, and no other peer needs a new card. The price: an endpoint and a completion
 * queue per peer and NIC, and a registration of each rank's region per peer and NIC (memory is pinned once; a NIC's
 * translation tables hold an entry more).
 *
 * Which NIC: a rank's writes go in turn over the NICs that are nearest to it (real/fabric/topology.h); ranks with the
 * same nearest NICs share them out evenly. Rail i writes to the peer's rail i modulo their number. When all NICs of a
 * rank are broken its writes go over any rail that is left.
 *
 * When a rail breaks (a completion in error, a refusal, no progress for stall_ns) it is closed at once: its writes in
 * flight fail, and their tickets with them, which post nothing more and end when their writes on the other rails have
 * completed too. Tickets with nothing in flight there go on over the rails that are left; with none left they fail.
 * Closing one end does not call back what is on its way: before the pages that a failed ticket was to fill are used
 * again, the receiver closes its ends too (fabric_peer_close).
 */
#ifndef TANDEM_REAL_FABRIC_FABRIC_H
#define TANDEM_REAL_FABRIC_FABRIC_H

#include "real/device/device_reach.h"
#include "real/fabric/topology.h"
#include "real/memory/kv_memory.h"
#include "runtime.h"
#include "host/user_error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ten seconds: longer than any pause of a healthy peer's fabric thread, shorter than people's patience. */
#define FABRIC_STALL_NS (10 * INT64_C(1000000000))

#define FABRIC_NICS_MAX 16

struct fabric;

struct fabric_rank {
    void *memory; /* the rank's KV region, mapped in this process; of a device: as it knows it */
    uint64_t bytes;
    struct device_reach *reach; /* of a device; outlives the engine. NULL: memory of the host */
};

/* How the bytes of a hand-off lie: for memory that NICs do not reach. */
struct fabric_landing {
    uint16_t group;
    uint32_t page_count;
    const uint32_t *pages;
    uint32_t tail_slot; /* where there are tails */
};

struct fabric_config {
    const char *provider; /* "shm", "tcp", "net", "verbs", "efa"; NULL or "auto": the best that works: shm on loopback,
                             else efa, verbs, tcp, net in this order */
    const char *address;  /* to bind to: "127.0.0.1" unless the user says otherwise */
    const char *const *more; /* addresses of further NICs, for providers that know NICs by address: rail n has the n-th
                                of all addresses, beginning again after the last. Read by fabric_make() alone */
    uint32_t more_count;
    uint32_t nics; /* rails a peer; more than there are share the hardware. 0: as many as the provider shows, and at
                      least one a rank and one an address */
    const struct place *places; /* of the ranks; NULL: unknown. Read by fabric_make() alone */
    uint32_t window;            /* writes in flight per rail: 64 is enough for loopback, 32 is what EFA wants */
    int64_t stall_ns;           /* a rail with work that stands still for so long is broken; 0: FABRIC_STALL_NS */
    struct kv_memory memory;
    uint32_t rank_count;
    const struct fabric_rank *ranks;
    const _Atomic uint64_t *layer_counters; /* one per attention group */
    uint32_t group_count;
    uint32_t tail_ticks; /* a gated tail is posted at counter_base + layers + tail_ticks: 1 where the counter ticks once
                            more when the step's tails are in their slots, 0 where they are there by the last layer */
    bool sends_only;     /* nobody writes here: nothing is registered for peers, and cards say so */
    uint32_t handoffs_max; /* slots of immediates */
    uint32_t tickets_max;  /* writes (of the node) in flight */
};

/* The provider can be had on this host; NULL and "auto" always. False with a sentence. */
bool fabric_here(const char *provider, const char *address, struct user_error *error);

/* NULL with a sentence in `error` when no provider works. Starts no thread. */
struct fabric *fabric_make(const struct fabric_config *config, struct user_error *error);
void fabric_free(struct fabric *fabric);

uint32_t fabric_tickets_max(const struct fabric *fabric);
const char *fabric_provider(const struct fabric *fabric);

/* The NICs of each rank, and the same for people: "tcp: rank 0 by NIC 0 lo (place unknown), rank 1 by ...". */
const struct nic_choice *fabric_choice(const struct fabric *fabric);
void fabric_choice_text(const struct fabric *fabric, char *text, size_t size);

/* How NICs reach the memory of devices, in a sentence: directly, where a write that was tried has arrived, or through
 * pinned memory, and why. Empty where ranks have memory of the host. */
#define FABRIC_PATH_BYTES 240
const char *fabric_path(const struct fabric *fabric);

/* Bytes of devices go through pinned memory: then FABRIC_IMMEDIATE says that they have come as far as there, and
 * fabric_land() takes them on. */
bool fabric_staged(const struct fabric *fabric);

/* What `node` needs to write here: addresses of the rails made for it, keys made for it, bases of all regions, pages,
 * layout hash (real/fabric/card.h). `card` has room for FABRIC_CARD_BYTES_MAX. Returns the length; 0 with a sentence
 * when it cannot be made. The same card until the peer is removed; a new one, with other keys, after that. */
#define FABRIC_CARD_BYTES_MAX 131072
size_t fabric_card(struct fabric *fabric, uint32_t node, void *card, struct user_error *error);

/* Learns a peer by the card that it made for this node; before or after making one for it. False with a sentence when
 * the card makes no sense; then nothing has changed. Connecting is left to the first write: a peer that cannot be
 * reached breaks its rails after stall_ns. */
bool fabric_peer_add(struct fabric *fabric, uint32_t node, const void *card, size_t size,
                     const struct kv_memory *memory, struct user_error *error);

/* The peer is gone: outstanding writes to it fail, and what it was given no longer lets it write here. After the return
 * the peer is fenced: its rails are closed and its keys revoked, so nothing that it has sent or will send changes
 * memory here or is counted, even if it was only stopped and goes on. Nothing happens for a node that is not known. */
void fabric_peer_remove(struct fabric *fabric, uint32_t node);

/* The peer's ends of these rails (bits, by its NICs) are closed. Ours are closed too: after the return nothing that was
 * under way on them changes memory here or is counted. */
void fabric_peer_close(struct fabric *fabric, uint32_t node, uint32_t rails);

/* Takes a NIC out of service: the rails of all peers at it break. For tests and for whoever watches NICs. */
void fabric_nic_fail(struct fabric *fabric, uint32_t nic);

/* ---- What the node asks for; called on the fabric's thread ------------------------------------------------------- */

/* `write` and its arrays are copied, its plan is not. Tickets in flight differ and are at most tickets_max. A
 * destination that is unknown, or was told pages that it does not have, fails by an event. `counter_base`: value of the
 * source group's layer counter before layer 0 of the gating step; a write without a gate passes UINT64_MAX and is
 * posted at once. */
void fabric_write(struct fabric *fabric, const struct paged_write *write, uint64_t counter_base);
void fabric_write_stop(struct fabric *fabric, uint32_t id);
void fabric_expect(struct fabric *fabric, uint32_t immediate, uint64_t count);

/* Of an immediate that was told: FABRIC_LANDED follows when its bytes are in the device, unless the immediate is armed
 * anew or forgotten, which waits until the device is not being written to. */
void fabric_land(struct fabric *fabric, uint32_t immediate, uint64_t count, const struct fabric_landing *landing);

/* ---- What comes back --------------------------------------------------------------------------------------------- */

struct fabric_event {
    enum { FABRIC_WRITE_DONE = 1, FABRIC_IMMEDIATE = 2, FABRIC_PEER_ERROR = 3, FABRIC_LANDED = 4 } kind;
    uint32_t id;     /* ticket, immediate, node */
    uint32_t status; /* enum write_status; of a peer error, the NIC whose rail broke */
    /* Of a failed write: rails to its destination, by our NICs, that are closed. What was posted on them is in nobody's
     * hands: bytes may still lie in a kernel or in shared memory, and land there as long as the other end is open. */
    uint32_t closed;
    uint64_t count; /* layers posted whole; writes counted; rails to the peer that are left (0: it cannot be reached) */
    int64_t posted_ns; /* of a write: of its first post */
    int64_t done_ns;   /* of a write: of its last completion; of an immediate: when the last was counted */
    uint64_t bytes;
    uint64_t writes;
};

/* Makes progress once: polls completion queues and layer counters, posts what may be posted. Returns the number of
 * events written to `events` (at most `max`), and sets *idle when nothing happened, so that the thread may wait a
 * little. */
uint32_t fabric_poll(struct fabric *fabric, struct fabric_event *events, uint32_t max, bool *idle);

struct fabric_counters {
    uint64_t writes_posted;
    uint64_t writes_completed; /* well */
    uint64_t writes_failed;
    uint64_t bytes_posted;
    uint64_t immediates; /* that arrived, late ones included */
    uint64_t late;       /* of a released generation, of a slot that expects nothing, or too many: dropped */
    uint64_t rails_broken;
    uint64_t refusals; /* posts that the provider put off (EAGAIN) */
};

struct fabric_counters fabric_counters(const struct fabric *fabric);

/* Copies between devices and pinned memory, of all ranks. */
struct device_reach_statistics fabric_staging(const struct fabric *fabric);

/* Nothing is in flight and nothing is waiting for a layer. */
bool fabric_quiet(const struct fabric *fabric);

/* Immediates are expected that have not all arrived: peers may write here at any moment. */
bool fabric_awaits(const struct fabric *fabric);

#endif
