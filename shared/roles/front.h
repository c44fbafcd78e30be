/* The front: where requests and client aborts enter, where they are routed, and where their ends are known.
 *
 * It chooses a decoder and a prefiller for each request and hands it to the decoder, or to a mixed instance: where
 * there are both, to the pair unless that is overloaded and a mixed instance is not. If that fails for a reason that
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
    enum node_role role; /* of whom it is sent to: ROLE_DECODE or ROLE_MIXED */
    uint32_t decoder;    /* member of that role's router */
    uint32_t prefiller;  /* member of the prefill router; UINT32_MAX: who gets it computes the prompt */
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
    bool queued;          /* counted among what waits for its prompt to be computed */
    bool first_token;     /* the client has it */
    bool aborted;         /* the client went away; the end will be reported as an abort */
    int64_t deadline_ns;
    uint64_t token_seed;
};

struct front {
    const struct node_config *config;
    struct runtime *rt;
    struct router routers[ROLE_MIXED + 1]; /* by role */
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

/* The nodes that have the request, and that compute its prompt as far as the front knows. */
static inline uint32_t front_decoder(const struct front *front, const struct front_request *r)
{
    return front->routers[r->role].members[r->decoder].node;
}

static inline uint32_t front_prefiller(const struct front *front, const struct front_request *r)
{
    return r->prefiller == UINT32_MAX ? front_decoder(front, r)
                                      : front->routers[ROLE_PREFILL].members[r->prefiller].node;
}

static inline uint32_t front_live(const struct front *front)
{
    return front->config->requests_max - front->unused_count;
}

#endif
