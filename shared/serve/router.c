/* See router.h. */
#include "serve/router.h"

#include "base/arith.h"
#include "serve/sequence.h"

#define MEMORY_CELLS (UINT32_C(1) << 16)
#define NO_MEMBER UINT32_MAX

static uint64_t pages_total(const struct peer_config *peer)
{
    return (uint64_t)peer->pages_per_group * peer->group_count;
}

void router_make(struct router *router, struct arena *arena, const struct node_config *config, enum node_role role,
                 enum router_policy policy)
{
    *router = (struct router){.policy = policy};
    for (uint32_t i = 0; i < config->peer_count; i++)
        router->count += config->peers[i].role == role;
    for (uint32_t i = 0; i < config->peer_count; i++)
        router->node_limit = max_u32(router->node_limit, config->peers[i].node + 1);
    router->by_node = arena_take(arena, router->node_limit, sizeof *router->by_node);
    router->members = arena_take(arena, router->count, sizeof *router->members);
    router->matched = arena_take(arena, router->count, sizeof *router->matched);
    if (policy == ROUTER_PREFIX_AWARE) {
        router->memory.mask = MEMORY_CELLS - 1;
        router->memory.hashes = arena_take(arena, MEMORY_CELLS, sizeof *router->memory.hashes);
        router->memory.members = arena_take(arena, MEMORY_CELLS, sizeof *router->memory.members);
    }
    if (arena->memory == NULL)
        return;
    router->rng = rng_stream(config->seed, (uint64_t)config->node << 8 | role, RNG_ROUTING);
    uint16_t index = 0;
    for (uint32_t i = 0; i < config->peer_count; i++) {
        const struct peer_config *peer = &config->peers[i];
        if (peer->role != role)
            continue;
        router->by_node[peer->node] = (uint16_t)(index + 1);
        router->members[index++] = (struct router_member){
            .node = peer->node,
            .config = peer,
            .pages_available = pages_total(peer),
            .unseen_first = SLOT_NONE,
            .unseen_last = SLOT_NONE,
        };
    }
}

static uint64_t cell_of(const struct prefix_memory *memory, uint64_t hash)
{
    return (hash * UINT64_C(0x9fb21c651e98df25)) >> 40 & memory->mask;
}

void router_remember(struct router *router, uint32_t member, const struct request_spec *request)
{
    struct prefix_memory *memory = &router->memory;
    if (memory->hashes == NULL)
        return;
    for (uint32_t b = 0; b < request->block_count; b++) {
        uint64_t cell = cell_of(memory, request->blocks[b]);
        if (memory->hashes[cell] != request->blocks[b]) {
            memory->hashes[cell] = request->blocks[b];
            memory->members[cell] = 0;
        }
        memory->members[cell] |= UINT64_C(1) << (member & 63);
    }
}

void router_rejoin(struct router *router, uint32_t member, uint32_t incarnation)
{
    struct router_member *m = &router->members[member];
    m->lost = false;
    m->incarnation = incarnation;
    m->pages_available = pages_total(m->config);
    m->pages_wanted = 0;
    m->number = 0;
    for (uint32_t cell = 0; router->memory.hashes != NULL && cell <= router->memory.mask; cell++)
        router->memory.members[cell] &= ~(UINT64_C(1) << (member & 63));
}

/* Tokens of the request that each member has probably cached. */
static void match(struct router *router, const struct request_spec *request)
{
    const struct prefix_memory *memory = &router->memory;
    uint64_t alive = UINT64_MAX;
    for (uint32_t m = 0; m < router->count; m++)
        router->matched[m] = 0;
    for (uint32_t b = 0; b < request->block_count; b++) {
        uint64_t cell = cell_of(memory, request->blocks[b]);
        alive &= memory->hashes[cell] == request->blocks[b] ? memory->members[cell] : 0;
        if (alive == 0)
            break;
        for (uint32_t m = 0; m < router->count; m++)
            if (alive >> (m & 63) & 1)
                router->matched[m] += request->block_tokens;
    }
}

/* What a policy minimises; equal costs go to the first member from `turn` on, so that idle pools are used evenly. */
static uint64_t cost(const struct router *router, const struct request_spec *request, uint32_t member)
{
    const struct router_member *m = &router->members[member];
    switch (router->policy) {
    case ROUTER_LEAST_KV:
        /* From 2^63 up or down: a member may have promised more than it has. */
        return (UINT64_C(1) << 63) + m->pages_wanted + m->pages_promised - m->pages_available;
    case ROUTER_PREFIX_AWARE:
        return m->queued_tokens + request->prompt_tokens - min_u64(request->prompt_tokens, router->matched[member]);
    default:
        return m->queued_tokens;
    }
}

static bool eligible(const struct router *router, uint32_t member, uint32_t avoid)
{
    return !router->members[member].lost && member != avoid;
}

static uint32_t cheapest(struct router *router, const struct request_spec *request, uint32_t avoid)
{
    uint32_t best = NO_MEMBER;
    uint64_t best_cost = UINT64_MAX;
    for (uint32_t i = 0; i < router->count; i++) {
        uint32_t member = (router->turn + i) % router->count;
        if (!eligible(router, member, avoid))
            continue;
        uint64_t c = cost(router, request, member);
        if (best == NO_MEMBER || c < best_cost) {
            best = member;
            best_cost = c;
        }
    }
    return best;
}

/* The next eligible member from `start` on. */
static uint32_t next_from(const struct router *router, uint32_t start, uint32_t avoid)
{
    for (uint32_t i = 0; i < router->count; i++) {
        uint32_t member = (start + i) % router->count;
        if (eligible(router, member, avoid))
            return member;
    }
    return NO_MEMBER;
}

uint32_t router_choose(struct router *router, const struct request_spec *request, uint32_t avoid)
{
    uint32_t chosen = NO_MEMBER;
    if (router->count == 0)
        return NO_MEMBER;
    if (avoid != NO_MEMBER && next_from(router, 0, avoid) == NO_MEMBER)
        avoid = NO_MEMBER;
    switch (router->policy) {
    case ROUTER_ROUND_ROBIN:
        chosen = next_from(router, router->turn, avoid);
        break;
    case ROUTER_RANDOM:
        chosen = next_from(router, (uint32_t)rng_below(&router->rng, router->count), avoid);
        break;
    case ROUTER_POWER_OF_TWO: {
        uint32_t a = next_from(router, (uint32_t)rng_below(&router->rng, router->count), avoid);
        uint32_t b = next_from(router, (uint32_t)rng_below(&router->rng, router->count), avoid);
        chosen = a;
        if (a != NO_MEMBER && router->members[b].queued_tokens < router->members[a].queued_tokens)
            chosen = b;
        break;
    }
    case ROUTER_PREFIX_AWARE:
        match(router, request);
        chosen = cheapest(router, request, avoid);
        break;
    case ROUTER_LEAST_QUEUED_TOKENS:
    case ROUTER_LEAST_KV:
        chosen = cheapest(router, request, avoid);
        break;
    }
    if (chosen != NO_MEMBER)
        router->turn = (chosen + 1) % router->count;
    return chosen;
}

uint32_t router_member_of(const struct router *router, uint32_t node)
{
    return node < router->node_limit && router->by_node[node] != 0 ? router->by_node[node] - 1u : NO_MEMBER;
}

uint64_t router_least_queued(const struct router *router)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t m = 0; m < router->count; m++)
        if (!router->members[m].lost)
            least = min_u64(least, router->members[m].queued_tokens);
    return least;
}
