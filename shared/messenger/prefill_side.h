/* The prefiller's half of the KV messenger: from a decoder's request to pages that are free again.
 *
 *     QUEUED -> STREAMING -> DRAIN -> (free)      and      CANCELLED -> (free)
 *
 * Rules kept here, in the words of the protocol: a middle chunk sends only the units it completes, the last chunk sends
 * the rest, the partial one included, so that the count does not depend on the chunking; cached units get no tick and
 * are sent at once; the tail is a write of its own, posted when the step of the last chunk has ended; source pages are
 * freed by completions, never by a timer; a cancel is answered only when nothing of that epoch is posted or ever will
 * be.
 */
#ifndef TANDEM_MESSENGER_PREFILL_SIDE_H
#define TANDEM_MESSENGER_PREFILL_SIDE_H

#include "messenger/peers.h"
#include "messenger/wire.h"
#include "serve/instance.h"

struct prefill_side {
    struct instance *instance;
    struct peers peers; /* the decoders */
    struct rng replica_rng;
    uint32_t *write_owner;   /* by ticket: sequence plus one; 0: the ticket is free */
    uint32_t *unused_writes; /* a stack of tickets */
    uint32_t unused_write_count;
    uint32_t writes_max;
    uint64_t late;
};

void prefill_side_make(struct prefill_side *side, struct arena *arena, struct instance *instance);

void prefill_side_prefill(struct prefill_side *side, uint32_t source, const struct message *message);
void prefill_side_cancel(struct prefill_side *side, uint32_t source, const struct message *message);
void prefill_side_write_done(struct prefill_side *side, uint32_t ticket, enum write_status status);
void prefill_side_peer_lost(struct prefill_side *side, uint32_t node, uint32_t incarnation);

/* True when the sender was not known to be there. */
bool prefill_side_hello(struct prefill_side *side, uint32_t source, const struct message *message);

/* The scheduler has given the sequence its pages: sends what was cached. */
void prefill_side_admitted(struct prefill_side *side, uint32_t slot);

/* The current microbatch has been launched: posts each chunk's writes behind its gate. */
void prefill_side_launched(struct prefill_side *side);

/* That launch is done. */
void prefill_side_step_done(struct prefill_side *side);

#endif
