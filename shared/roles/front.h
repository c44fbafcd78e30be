/* The front: where requests and client aborts enter, where they are routed, and where their ends are known.
 *
 * It chooses a decoder and a prefiller for each request and hands it to the decoder. If that fails for a reason that
 * another attempt may not meet, it routes again, as often as the policy allows.
 */
#ifndef TANDEM_ROLES_FRONT_H
#define TANDEM_ROLES_FRONT_H

#include "base/index_map.h"
#include "messenger/wire.h"
#include "node.h"
#include "serve/router.h"

struct front_request {
    uint32_t id;
    bool live;
    uint32_t decoder;   /* member of the decode (or mixed) router */
    uint32_t prefiller; /* member of the prefill router; UINT32_MAX when mixed */
    uint32_t attempt;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t produced;
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t number; /* how-manyth request to its decoder this attempt was */
    uint32_t pages_promised;
    uint32_t uncached;    /* of its prompt, on the member that computes it, as expected when it was sent */
    uint32_t unseen_next; /* in its decoder's list */
    bool queued;          /* counted in the prefiller's queued tokens */
    bool first_token;     /* the client has it */
    bool aborted;         /* the client went away; the end will be reported as an abort */
    int64_t deadline_ns;
    uint64_t token_seed;
};

struct front {
    const struct node_config *config;
    struct runtime *rt;
    bool mixed; /* no decoders: instances do both */
    struct router decoders;
    struct router prefillers;
    struct front_request *requests;
    uint64_t *blocks;
    uint32_t *unused;
    uint32_t unused_count;
    struct index_map by_id;
    unsigned char *buffer;
    uint64_t *evicted; /* scratch: what a report tells; only where the router looks at prefixes */
    uint64_t late;
};

void front_make(struct front *front, struct arena *arena, const struct node_config *config, struct runtime *rt);
void front_arrival(struct front *front, const struct request_spec *spec);
void front_abort(struct front *front, uint32_t id);
void front_message(struct front *front, uint32_t source, const struct message *message);
void front_peer_lost(struct front *front, uint32_t node, uint32_t incarnation);

static inline uint32_t front_live(const struct front *front)
{
    return front->config->requests_max - front->unused_count;
}

#endif
