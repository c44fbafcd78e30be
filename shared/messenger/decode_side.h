/* The decoder's half of the KV messenger: from a routed request to KV that is complete, or to an end that leaves
 * nothing behind.
 *
 *     ALLOC -> DISPATCHED -> FILLING -> READY      and      CANCELLING -> QUARANTINE -> (free)
 *
 * Rules kept here, in the words of the protocol: pages, hand-off slot and immediate are taken all or nothing; the count
 * is armed before any message leaves; the deadline runs from the dispatch; what a prefiller may still write to is given
 * back only after that prefiller has confirmed that it will not, or has been fenced. A timer is never a fence.
 */
#ifndef TANDEM_MESSENGER_DECODE_SIDE_H
#define TANDEM_MESSENGER_DECODE_SIDE_H

#include "messenger/peers.h"
#include "messenger/wire.h"
#include "serve/instance.h"

/* The timer slot of the transfer deadline. */
#define TIMER_TRANSFER_DEADLINE 0

struct handoff {
    uint32_t owner; /* sequence */
    uint32_t generation;
};

struct decode_side {
    struct instance *instance;
    struct peers peers;             /* the prefillers */
    struct sequence_list waiting;   /* ALLOC, by age */
    struct sequence_list transfers; /* DISPATCHED and FILLING, by dispatch, so by deadline */
    struct handoff *handoffs;
    uint32_t *unused_handoffs; /* a stack */
    uint32_t unused_handoff_count;
    uint32_t next_epoch;
    bool timer_armed;
    unsigned char *buffer; /* for outgoing messages */
    uint64_t *blocks;      /* scratch, of a request; only where prompts are computed */
    uint64_t late;         /* messages and immediates of epochs that have ended */
};

void decode_side_make(struct decode_side *side, struct arena *arena, struct instance *instance);

/* Whether the request's prompt is to be computed here: the front says so, or so much of it is cached that what is left
 * is short (struct conditional_policy). It is a mixed instance's then, and not this side's, until it is ready. */
bool decode_side_prefills(struct decode_side *side, const struct message *message);
void decode_side_request(struct decode_side *side, const struct message *message);
void decode_side_abort(struct decode_side *side, uint32_t request);
void decode_side_accepted(struct decode_side *side, uint32_t source, const struct message *message);
void decode_side_nack(struct decode_side *side, uint32_t source, const struct message *message);
void decode_side_quiesced(struct decode_side *side, uint32_t source, const struct message *message);
void decode_side_immediate(struct decode_side *side, uint32_t immediate);
bool decode_side_landing(const struct decode_side *side, uint32_t immediate, struct node_landing *landing);
void decode_side_timer(struct decode_side *side);
void decode_side_peer_lost(struct decode_side *side, uint32_t node, enum peer_status status, uint32_t incarnation);

/* True when the sender was not known to be there. */
bool decode_side_hello(struct decode_side *side, uint32_t source, const struct message *message);

/* Starts what can be started: called whenever pages or hand-off slots may have become free. */
void decode_side_admit(struct decode_side *side);

/* The sequence's first decode step is done: its tail has been read. */
void decode_side_tail_read(struct decode_side *side, uint32_t slot);

/* A preempted sequence (out of the batch, holding pages) gives them up and asks for its KV again. */
void decode_side_preempted(struct decode_side *side, uint32_t slot);

/* The request is over for this decoder: frees pages and slot. The sequence is out of the batch. */
void decode_side_end(struct decode_side *side, uint32_t slot);

#endif
