/* What the files of the transfer engine share: peers, tickets, the engine. Only the engine's thread sees any of it. */
#ifndef TANDEM_REAL_FABRIC_FABRIC_INTERNAL_H
#define TANDEM_REAL_FABRIC_FABRIC_INTERNAL_H

#include "real/fabric/card.h"
#include "real/fabric/fabric.h"
#include "real/fabric/immediates.h"
#include "real/fabric/provider.h"
#include "real/fabric/rail.h"
#include "host/user_error.h"

/* ---- Peers ------------------------------------------------------------------------------------------------------- */

struct peer {
    uint32_t node;
    bool known; /* its card has come */
    struct kv_memory memory;
    struct card card;     /* what it lets us write */
    struct rail *rails;   /* one per NIC of ours; rail i writes to the peer's rail i modulo their number */
    struct fid_mr **keys; /* [nic * ranks + rank]: what it may write here */
    uint32_t rails_left;  /* not broken */
    uint32_t errors;      /* bit i: rail i broke and has not been reported */
    uint32_t staged;      /* pieces for it in pinned memory */
};

/* ---- Tickets ----------------------------------------------------------------------------------------------------- */

enum ticket_state { TICKET_UNUSED = 0, TICKET_POSTING = 1, TICKET_DRAINING = 2, TICKET_DONE = 3 };

/* The next write of a ticket. Within a layer, pairs turn fastest after runs, so that consecutive writes go to different
 * ranks and NICs. */
struct cursor {
    uint32_t layer;
    uint32_t unit; /* from 0 */
    uint32_t plane;
    uint32_t pair; /* index in the ticket's list */
    uint32_t run;
    uint32_t tail; /* tail writes posted */
};

/* Where a write reads and lands, apart from the rail. */
struct piece {
    uint32_t source_rank;
    uint32_t destination_rank;
    uint64_t source_offset;
    uint64_t destination_offset;
    uint32_t bytes;
};

struct ticket {
    enum ticket_state state;
    struct paged_write write;
    uint64_t counter_base;
    uint32_t *pages; /* source pages, then destination pages */
    size_t pages_room;
    const uint32_t *source_pages;
    const uint32_t *destination_pages;
    struct cursor cursor;
    uint16_t pairs[TRANSFER_PAIRS_MAX]; /* that have the cursor's layer */
    uint32_t pair_count;
    uint32_t turn; /* among the NICs of a rank */
    bool stopping;
    bool failed;
    uint64_t submitted;
    uint64_t completed;
    uint64_t bytes;
    int64_t posted_ns;
    int64_t done_ns;
    uint32_t next; /* in the list of its state, plus one */
    uint32_t previous;
};

struct ticket_list {
    uint32_t first; /* plus one; 0: empty */
    uint32_t last;
};

/* ---- Engine ------------------------------------------------------------------------------------------------------ */

struct fabric {
    struct fabric_config config;
    struct fabric_rank *ranks;
    const struct provider *provider;
    struct nic *nics;
    struct place places[RANKS_MAX];
    struct nic_choice choice;
    struct fid_mr **sources; /* [nic * ranks + rank], where the provider wants local registration; else NULL */
    struct stages *stages;   /* NULL: NICs reach the ranks' memory */
    char path[FABRIC_PATH_BYTES];
    uint64_t next_key;
    struct peer *peers[NODES_MAX];
    uint16_t nodes[NODES_MAX]; /* whose peer is there, in the order of coming */
    uint32_t peer_count;
    bool broken; /* some rail is, and not closed yet */
    struct ticket *tickets;
    uint32_t unused_first; /* of tickets, plus one */
    struct ticket_list posting;
    struct ticket_list done;
    uint32_t tickets_live;
    struct immediates immediates;
    struct fabric_counters counters;
    struct rail_listener listener;
    int64_t now_ns;    /* of the poll under way */
    int64_t polled_ns; /* of the one before it; 0: none yet */
};

/* peers.c */
/* Marks it: nothing more is posted. What was in flight fails when broken rails are closed, in one place of a poll where
 * no ticket is in hand. */
void peer_break_rail(struct fabric *fabric, struct peer *peer, uint32_t nic);
void peers_close_broken(struct fabric *fabric);
uint32_t peer_closed_rails(const struct fabric *fabric, uint32_t node); /* bits, by NIC */
/* The rail that takes the next write of `rank`, or NULL when none has room; *hopeless when none is left. */
struct rail *peer_rail(struct fabric *fabric, struct peer *peer, uint32_t rank, uint32_t turn, uint32_t *nic,
                       bool *hopeless);
void peers_poll(struct fabric *fabric, bool *progress);
void peers_free(struct fabric *fabric);

/* tickets.c */
bool tickets_make(struct fabric *fabric);
void tickets_free(struct fabric *fabric);
void tickets_post(struct fabric *fabric, bool *progress);
/* `tag`: the slot of a ticket, or what stage.h says. */
void ticket_completed(void *owner, uint32_t tag, bool good);
/* Posts one write on whichever rail is its turn, from `source`. A rail that refuses for good is broken, and the next
 * one is tried: in the end one takes it, none has room (RAIL_AGAIN), or none is left (RAIL_FAILED). */
enum rail_result piece_post(struct fabric *fabric, struct peer *peer, uint32_t slot, const struct piece *piece,
                            void *source, uint32_t tag);
/* The peer's tickets that are still posting fail. */
void tickets_fail(struct fabric *fabric, uint32_t node);
bool tickets_next_done(struct fabric *fabric, struct fabric_event *event);

/* region.c: the memory of ranks and the NICs. */

/* Registers memory with a NIC, under a key that is never used again: of a device where `reach` is not NULL. 0, or
 * libfabric's error. */
int region_register(struct fabric *fabric, uint32_t nic, void *memory, uint64_t bytes, const struct device_reach *reach,
                    uint64_t access, struct fid_mr **registration);

/* Whether what is written from must be registered too. */
bool region_wants_local(const struct fabric *fabric, uint32_t nic);

/* Whether a write of a few bytes from one place of the rank's memory to another, through the NIC, arrives. The rank's
 * first bytes, and as many in its middle, are zero after that. False with a sentence. */
bool region_probe(struct fabric *fabric, uint32_t nic, uint32_t rank, struct user_error *why);

#endif
