/* Which member of a pool serves the next request.
 *
 * The router knows what the front knows: what it has sent and what instances have reported since. One router per pool,
 * each with its own counter, so that pools do not disturb one another's turns. Members that are lost are never chosen.
 */
#ifndef TANDEM_SERVE_ROUTER_H
#define TANDEM_SERVE_ROUTER_H

#include "base/arena.h"
#include "base/rng.h"
#include "node.h"
#include "serve/policy.h"

#include <stdbool.h>

struct router_member {
    uint32_t node;
    const struct peer_config *config;
    bool lost;
    uint32_t incarnation;     /* of its last HELLO */
    uint64_t queued_tokens;   /* prefillers and mixed: prompt tokens sent and not yet computed; decoders: prompt tokens
                                 of the requests it is serving */
    uint32_t queued_requests; /* of those, requests whose prompts are not yet computed */
    uint64_t tokens_to_compute; /* of the queued tokens, those that were not expected to be cached; only where admission
                                   looks at them */
    uint64_t computed_tokens;   /* of the tokens to compute, those that have been */
    int64_t busy_ns;            /* how long there was something to compute, up to */
    int64_t busy_since_ns;      /* when there last began to be; only while there is */
    uint64_t pages_available;   /* as last reported */
    uint64_t pages_wanted;      /* likewise: by requests that wait there */
    uint64_t pages_promised;    /* to requests sent that the last report does not know of */
    uint32_t number;            /* of the last request sent */
    uint32_t domain_first;      /* the first member in the same NVLink domain, */
    uint32_t domain_turn;       /* and there, where a choice among these alone goes on */
    uint32_t unseen_first;      /* the front's requests that pages are promised to, in the order of their numbers */
    uint32_t unseen_last;
};

/* Which members have probably cached a prefix block: a table of buckets, a bit a member in each cell. A block is there
 * until all its members have evicted it, or until a full bucket needs its cell. Only for policies that look
 * at it and where admission counts what is cached. */
struct prefix_memory {
    uint64_t *hashes;
    uint64_t *members; /* `words` a cell */
    uint32_t words;
    uint32_t mask;      /* cells less one */
    uint32_t overwrite; /* counts cells that were taken from others */
    uint64_t *alive;    /* scratch, `words`: members that have cached all blocks so far */
};

struct router {
    enum router_policy policy;
    struct router_member *members;
    uint32_t count;
    uint16_t *by_node; /* node id -> member plus one; 0: not a member */
    uint32_t node_limit;
    uint32_t turn;
    struct rng rng;
    struct prefix_memory memory;
    uint64_t *matched; /* scratch, tokens by member */

    /* Of ROUTER_FUNCTION, set by the owner. */
    const struct runtime *rt;
    enum policy_kind decides;
    uint32_t *eligible; /* scratch */
    bool refused;       /* its last answer was nobody, although there was somebody */
};

/* Whether such a router keeps what members have probably cached. */
bool router_remembers(const struct node_config *config, enum node_role role, enum router_policy policy);

/* Members are the peers of `role`, in the order of `config->peers`. */
void router_make(struct router *router, struct arena *arena, const struct node_config *config, enum node_role role,
                 enum router_policy policy);

/* Index of the chosen member; UINT32_MAX when none is alive. `avoid` is chosen only where no other lives; UINT32_MAX:
 * nobody is to be avoided. */
uint32_t router_choose(struct router *router, const struct request_spec *request, uint32_t avoid);

/* The same among the members of an NVLink domain alone, if any of them lives. */
uint32_t router_choose_near(struct router *router, const struct request_spec *request, uint32_t nvlink_domain);

/* Prompt tokens that a member computes in a second while it has some, as far as has been seen of all of them, or of
 * one; 0: nothing has. */
uint64_t router_prefill_rate(const struct router *router, int64_t now_ns);
uint64_t router_member_rate(const struct router_member *member, int64_t now_ns);

/* Whether the policy lets the request enter, by the live members. */
bool router_admits(struct router *router, struct policy *policy, const struct request_spec *request);

/* The request was sent to this member: its prefix will be cached there. */
void router_remember(struct router *router, uint32_t member, const struct request_spec *request);

/* The member says that it holds these blocks no more. */
void router_forget(struct router *router, uint32_t member, const uint64_t *blocks, uint32_t count);

/* The member is back, empty: nothing is cached or held there. */
void router_rejoin(struct router *router, uint32_t member, uint32_t incarnation);

/* UINT32_MAX when the node is not a member. */
uint32_t router_member_of(const struct router *router, uint32_t node);

/* Tokens of the request that the member would have to compute, as far as is known here. */
uint32_t router_uncached(const struct router *router, uint32_t member, const struct request_spec *request);

/* The least that a live member has to compute, the request's own tokens included where there is one (not NULL);
 * UINT64_MAX when none is alive. */
uint64_t router_least_to_compute(const struct router *router, const struct request_spec *request);

/* The smallest share of a live member's KV that would be held, waited for or promised, in thousandths, if it were given
 * the request; UINT64_MAX when none is alive. */
uint64_t router_least_load(const struct router *router, const struct request_spec *request);

#endif
