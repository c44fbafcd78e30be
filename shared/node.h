/* One participant of a deployment: the front, or an instance that prefills, decodes or does both.
 *
 * node_handle() is the only way in. A node has no clock, no thread and no memory of its own: it lives in an arena sized
 * by node_size() and asks everything else of its runtime. The configuration must outlive the node.
 */
#ifndef TANDEM_NODE_H
#define TANDEM_NODE_H

#include "base/arena.h"
#include "model/kv_geometry.h"
#include "runtime.h"
#include "serve/router_kinds.h"

enum node_role {
    ROLE_FRONT = 1,
    ROLE_PREFILL = 2,
    ROLE_DECODE = 3,
    ROLE_MIXED = 4,
};

enum queue_policy {
    QUEUE_FCFS = 1,
    QUEUE_SHORTEST_FIRST = 2, /* fewest prompt tokens to compute */
    QUEUE_EARLIEST_DEADLINE = 3,
    QUEUE_FUNCTION = 4, /* what the scenario says in Lua (serve/policy.h) */
};

/* Why a request was turned away before it held anything. Append-only: stored. */
enum reject_reason {
    REJECT_NONE = 0,
    REJECT_TOO_LARGE_PREFILL = 1, /* its KV can never fit the prefiller's pool */
    REJECT_TOO_LARGE_DECODE = 2,
    REJECT_QUEUE_FULL = 3,     /* the instance's request table is full */
    REJECT_ADMISSION = 4,      /* the admission policy expects the target to be missed */
    REJECT_GEOMETRY = 5,       /* the two instances' KV layouts cannot be mapped */
    REJECT_NO_INSTANCE = 6,    /* no live instance of a role */
    REJECT_DUPLICATE = 7,      /* an id that is already in flight */
    REJECT_COUNT_OVERFLOW = 8, /* N or an index does not fit its field */
};

/* Why a request that was under way ended without an answer; after the last attempt, why that one failed.
 * Append-only. */
enum fail_reason {
    FAIL_NONE = 0,
    FAIL_PEER_LOST = 1,
    FAIL_DEADLINE = 2,
    FAIL_WRITE = 3,
    FAIL_CLIENT = 4,  /* the client went away; an abort, not a failure */
    FAIL_REFUSED = 5, /* the prefiller had no room for it */
};

/* Who computes the KV of a decode sequence again that was preempted. */
enum recompute_policy {
    RECOMPUTE_PREFILLER = 0, /* its prefiller, which hands it over again */
    RECOMPUTE_DECODER = 1,   /* the decoder itself, in chunks beside its batch, as engines do that prefill and decode */
};

struct scheduler_policy {
    enum queue_policy queue;
    enum recompute_policy recompute; /* of a decoder */
    uint32_t token_budget;           /* tokens one step may hold per group, decode tokens included */
    uint32_t chunk_tokens;           /* most tokens of one prompt in one step; 0: as many as the budget allows */
    uint32_t batch_max;              /* most decode sequences per group */
    uint32_t headroom_tokens;        /* KV held for output beyond what is needed now; allocation grows in this step */
    uint32_t reserve_output;         /* 1: hold KV for the whole output at admission: no growth, no preemption */
    uint32_t prefix_cache;           /* 1: keep and look up prefix blocks */
    uint32_t tell_evictions;         /* 1: and tell the front which are no longer kept, with the next report */
    uint32_t repeat_max;             /* most steps of one decode launch; 1: a launch per step */
    uint32_t receive_steps; /* mixed: while sequences decode, new prompts are looked for at every so many steps; 0: at
                               every one */
    uint32_t gather_steps;  /* mixed, several groups: while sequences decode, new prompts wait until every group has
                               one, but no longer than so many steps: their groups step together, and a prompt in one
                               holds up all. 0: they do not wait */
    /* Speculative decoding: a step verifies one token and this many drafted ones of every decode sequence; 0: none. */
    uint32_t draft_tokens;
    uint32_t acceptance_permille;              /* of a drafted token whose predecessors were all accepted */
    uint16_t place_permille[DRAFT_TOKENS_MAX]; /* shares of steps that accept the token of each place, none larger than
                                                  the one before; the first 0: acceptance_permille holds for all */
};

struct messenger_policy {
    int64_t deadline_ns;   /* of a transfer, from its dispatch; TIME_NEVER: none */
    uint32_t attempts_max; /* dispatches of one request before it fails */
    uint32_t handoffs_max; /* transfers in flight per decoder (tail slots); at least 1 */
};

struct admission_policy {
    int64_t ttft_limit_ns;         /* reject when the expected wait for prefill exceeds this; 0: admit all */
    uint32_t queued_tokens_max;    /* reject when every prefiller has more queued; 0: no such limit */
    uint64_t prefill_tokens_per_s; /* what the expectation is computed with; 0: what prefillers have been seen to do */
    uint32_t decode_load_max_permille; /* reject when this share of every decoder's KV would be held, waited for or
                                          promised; 0: no such limit */
};

/* When a decoder computes a prompt itself instead of asking a prefiller: Dynamo's conditional disaggregation, under its
 * names. Either threshold suffices. */
struct conditional_policy {
    uint32_t max_local_prefill_length; /* tokens of the prompt that the decoder has not cached; 0: none are so short */
    uint32_t max_prefill_queue_size;   /* requests at the prefiller whose prompts are not computed, from which on
                                          its queue is long; 0: none is */
};

static inline bool conditional_is_on(const struct conditional_policy *policy)
{
    return policy->max_local_prefill_length > 0 || policy->max_prefill_queue_size > 0;
}

/* Whether admission has to know what prompts find cached: their expected wait is that of the rest. */
static inline bool admission_counts_cached(const struct admission_policy *policy)
{
    return policy->ttft_limit_ns > 0 || policy->queued_tokens_max > 0;
}

/* What a node knows of another at set-up. */
struct peer_config {
    uint32_t node;
    enum node_role role;
    bool caches;            /* keeps prefixes of prompts */
    uint32_t nvlink_domain; /* those with equal ones reach each other by NVLink */
    uint32_t group_count;
    uint32_t pages_per_group;
    struct kv_geometry geometry; /* unused for the front */
};

struct node_config {
    uint32_t node; /* id, equal to runtime.node */
    enum node_role role;
    uint64_t seed;
    uint32_t front; /* id of the front */

    /* Instances. */
    struct kv_geometry geometry;
    uint32_t group_count;
    uint32_t pages_per_group;     /* 0 for the front */
    uint32_t requests_max;        /* live at once on this node */
    uint32_t request_tokens_max;  /* prompt and output of the largest request that may enter; sizes its page list */
    uint32_t request_blocks_max;  /* most prefix blocks a request may name; 0: none do */
    uint32_t prefix_block_tokens; /* tokens of a prefix block, a multiple of the page's; 0: no prefix cache */
    uint32_t tail_bytes;
    uint32_t tail_writes;
    struct scheduler_policy scheduler;
    struct messenger_policy messenger;
    struct conditional_policy conditional; /* decoders, and the front */

    /* Front. */
    enum router_policy decode_router;
    enum router_policy prefill_router; /* also of mixed instances */
    bool node_affinity; /* a request decodes in the NVLink domain in which it was prefilled, where there are decoders */
    struct admission_policy admission;
    uint32_t pending_tokens_max; /* of a prefiller beyond which requests go to mixed instances, where there are both */

    /* All other nodes of the deployment this one may talk to, in ascending id. */
    const struct peer_config *peers;
    uint32_t peer_count;
};

/* Whether steps of such an instance may hold tokens of prompts. */
static inline bool role_prefills(enum node_role role, const struct conditional_policy *conditional,
                                 const struct scheduler_policy *scheduler)
{
    return role != ROLE_DECODE || conditional_is_on(conditional) || scheduler->recompute == RECOMPUTE_DECODER;
}

static inline bool node_prefills(const struct node_config *config)
{
    return role_prefills(config->role, &config->conditional, &config->scheduler);
}

struct node;

/* Bytes of memory a node of this configuration needs on a runtime with these limits, a multiple of 64. */
size_t node_size(const struct node_config *config, const struct runtime_limits *limits);

/* Makes a node in `memory` (node_size() bytes, aligned to 64, zero). Nothing is freed: the memory is the caller's. */
struct node *node_make(const struct node_config *config, struct runtime *rt, void *memory, size_t size);

/* The only way in. */
void node_handle(struct node *node, const struct event *event);

/* What a node holds, for checkers and reports; reads only. */
struct node_stats {
    uint32_t requests_live;
    uint32_t waiting;       /* requests that hold no KV yet */
    uint32_t running;       /* requests in prefill or decode */
    uint32_t transfers;     /* hand-offs in flight (decoder) or streaming (prefiller) */
    uint32_t quarantined;   /* transfers whose pages wait for a fence */
    uint64_t queued_tokens; /* prompt tokens not yet computed */
    uint64_t pages_total;
    uint64_t pages_free;   /* unused, or evictable at once: the cached ones are among these */
    uint64_t pages_held;   /* by live requests */
    uint64_t pages_cached; /* by the prefix index alone */
    uint64_t decode_sequences;
    uint64_t decode_context;
    uint64_t messages_late;      /* dropped: of an epoch, an attempt or an incarnation that is over */
    uint64_t messages_malformed; /* dropped: they do not parse, or make no sense here */
};

/* Whether the request lives here: at the front until its end is known, elsewhere while its sequence does. */
bool node_serves(const struct node *node, uint32_t request);

struct node_stats node_stats(const struct node *node);

/* What lives here of requests, for checkers and tables of what was reached; reads only. */
struct node_sequence {
    uint32_t request;
    uint32_t epoch; /* front: attempt */
    uint32_t peer;  /* decoder: the prefiller; prefiller: the decoder; front: the decoder */
    uint32_t other; /* front: the prefiller */
    uint32_t peer_incarnation;
    uint32_t immediate; /* decoder: of the transfer under way */
    uint8_t state;      /* enum sequence_state; front: enum front_state */
    bool in_step;
};

enum front_state {
    FRONT_WAITING = 1,   /* for the first token */
    FRONT_ANSWERING = 2, /* the client has it */
    FRONT_ABORTED = 3,   /* the client went away; the end is not known yet */
};

/* Fills up to `max`, in the order of the node's table, and returns how many there are. */
uint32_t node_sequences(const struct node *node, struct node_sequence *sequences, uint32_t max);

/* Where the bytes of a hand-off in progress land here: for runtimes that must move them on when its count is reached,
 * before the node hears of it. Reads only. False when the immediate is not awaited (any more). */
struct node_landing {
    uint16_t group;
    uint32_t page_count;
    const uint32_t *pages; /* the node's own, until it is entered again */
    uint32_t tail_slot;
};
bool node_landing(const struct node *node, uint32_t immediate, struct node_landing *landing);

#endif
