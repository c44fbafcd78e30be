/* See router.h. */
#include "serve/router.h"

#include "base/arith.h"
#include "serve/routers/router_kind.h"
#include "serve/sequence.h"

#include <string.h>

/* Cells of the table: twice the prefix blocks that all members can hold, so that few overwrite one another, within what
 * a router would spend (members are a bit a cell, hashes eight bytes). */
#define MEMORY_CELLS_MIN (UINT32_C(1) << 16)
#define MEMORY_CELLS_MAX (UINT32_C(1) << 22)
#define BUCKET_CELLS 8u /* hashes of a cache line */
#define NO_CELL SIZE_MAX

#define ROUTER_KIND_LISTED(name, word) [ROUTER_##name] = &router_##word,
static const struct router_kind *const kinds[ROUTER_KIND_COUNT] = {ROUTER_KINDS(ROUTER_KIND_LISTED)};

static uint64_t pages_total(const struct peer_config *peer)
{
    return (uint64_t)peer->pages_per_group * peer->group_count;
}

static uint32_t memory_cells(const struct node_config *config, enum node_role role)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; config->prefix_block_tokens > 0 && i < config->peer_count; i++) {
        const struct peer_config *peer = &config->peers[i];
        if (peer->role == role)
            blocks += pages_total(peer) * peer->geometry.page_tokens / config->prefix_block_tokens;
    }
    uint32_t cells = MEMORY_CELLS_MIN;
    while (cells < 2 * blocks && cells < MEMORY_CELLS_MAX)
        cells *= 2;
    return cells;
}

static void memory_make(struct prefix_memory *memory, struct arena *arena, uint32_t cells, uint32_t members)
{
    memory->words = (members + 63) / 64;
    memory->mask = cells - 1;
    memory->hashes = arena_take(arena, cells, sizeof *memory->hashes);
    memory->members = arena_take(arena, (size_t)cells * memory->words, sizeof *memory->members);
    memory->alive = arena_take(arena, memory->words, sizeof *memory->alive);
}

static uint32_t domain_first(const struct router *router, uint32_t count, uint32_t domain)
{
    uint32_t m = 0;
    while (m < count && router->members[m].config->nvlink_domain != domain)
        m++;
    return m;
}

bool router_remembers(const struct node_config *config, enum node_role role, enum router_policy policy)
{
    bool counts = config->prefix_block_tokens > 0 && admission_counts_cached(&config->admission);
    return kinds[policy]->matches || (counts && role != ROLE_DECODE);
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
    router->eligible = arena_take(arena, router->count, sizeof *router->eligible);
    if (router->count > 0 && router_remembers(config, role, policy))
        memory_make(&router->memory, arena, memory_cells(config, role), router->count);
    if (arena->memory == NULL)
        return;
    router->rng = rng_stream(config->seed, (uint64_t)config->node << 8 | role, RNG_ROUTING);
    uint16_t index = 0;
    for (uint32_t i = 0; i < config->peer_count; i++) {
        const struct peer_config *peer = &config->peers[i];
        if (peer->role != role)
            continue;
        router->by_node[peer->node] = (uint16_t)(index + 1);
        router->members[index] = (struct router_member){
            .node = peer->node,
            .config = peer,
            .pages_available = pages_total(peer),
            .domain_first = domain_first(router, index, peer->nvlink_domain),
            .unseen_first = SLOT_NONE,
            .unseen_last = SLOT_NONE,
        };
        index++;
    }
}

static uint64_t *members_at(const struct prefix_memory *memory, size_t cell)
{
    return &memory->members[cell * memory->words];
}

/* The first cell of the bucket that a block belongs to. */
static size_t bucket_of(const struct prefix_memory *memory, uint64_t hash)
{
    return (hash * UINT64_C(0x9fb21c651e98df25)) >> 40 & memory->mask & ~(size_t)(BUCKET_CELLS - 1);
}

/* The cell of a block, or NO_CELL. */
static size_t cell_of(const struct prefix_memory *memory, uint64_t hash)
{
    size_t first = bucket_of(memory, hash);
    for (size_t cell = first; cell < first + BUCKET_CELLS; cell++)
        if (memory->hashes[cell] == hash)
            return cell;
    return NO_CELL;
}

static bool empty(const struct prefix_memory *memory, size_t cell)
{
    uint64_t any = 0;
    for (uint32_t w = 0; w < memory->words; w++)
        any |= members_at(memory, cell)[w];
    return any == 0;
}

/* A cell for a block that has none: one that no member's block is in, or else one of the bucket in turn. */
static size_t take_cell(struct prefix_memory *memory, uint64_t hash)
{
    size_t first = bucket_of(memory, hash);
    size_t cell = first;
    while (cell < first + BUCKET_CELLS && !empty(memory, cell))
        cell++;
    if (cell == first + BUCKET_CELLS)
        cell = first + memory->overwrite++ % BUCKET_CELLS;
    memory->hashes[cell] = hash;
    memset(members_at(memory, cell), 0, memory->words * sizeof *memory->members);
    return cell;
}

void router_remember(struct router *router, uint32_t member, const struct request_spec *request)
{
    struct prefix_memory *memory = &router->memory;
    for (uint32_t b = 0; memory->hashes != NULL && b < request->block_count; b++) {
        size_t cell = cell_of(memory, request->blocks[b]);
        if (cell == NO_CELL)
            cell = take_cell(memory, request->blocks[b]);
        members_at(memory, cell)[member / 64] |= UINT64_C(1) << member % 64;
    }
}

void router_forget(struct router *router, uint32_t member, const uint64_t *blocks, uint32_t count)
{
    struct prefix_memory *memory = &router->memory;
    for (uint32_t b = 0; memory->hashes != NULL && b < count; b++) {
        size_t cell = cell_of(memory, blocks[b]);
        if (cell != NO_CELL)
            members_at(memory, cell)[member / 64] &= ~(UINT64_C(1) << member % 64);
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
    for (size_t cell = 0; router->memory.hashes != NULL && cell <= router->memory.mask; cell++)
        if (router->memory.hashes[cell] != 0) /* untouched cells stay so */
            members_at(&router->memory, cell)[member / 64] &= ~(UINT64_C(1) << member % 64);
}

/* Tokens of the request that each member has probably cached: its blocks before the first that it lacks. */
static void match(struct router *router, const struct request_spec *request)
{
    const struct prefix_memory *memory = &router->memory;
    bool known = memory->hashes != NULL;
    for (uint32_t m = 0; m < router->count; m++)
        router->matched[m] = known ? request->block_count * request->block_tokens : 0;
    for (uint32_t w = 0; w < memory->words; w++)
        memory->alive[w] = w < router->count / 64 ? UINT64_MAX : (UINT64_C(1) << router->count % 64) - 1;
    bool any = known;
    for (uint32_t b = 0; any && b < request->block_count; b++) {
        size_t cell = cell_of(memory, request->blocks[b]);
        any = false;
        for (uint32_t w = 0; w < memory->words; w++) {
            uint64_t have = cell == NO_CELL ? 0 : memory->alive[w] & members_at(memory, cell)[w];
            uint64_t gone = memory->alive[w] ^ have;
            for (uint32_t m = 64 * w; gone != 0; m++, gone >>= 1)
                if (gone & 1)
                    router->matched[m] = b * request->block_tokens;
            memory->alive[w] = have;
            any = any || have != 0;
        }
    }
}

bool router_eligible(const struct router *router, uint32_t member, const struct router_choice *choice)
{
    const struct router_member *m = &router->members[member];
    return !m->lost && member != choice->avoid && (choice->near == NO_MEMBER || m->domain_first == choice->near);
}

/* The one of the smallest cost; equal ones are taken in turn, so that idle pools are used evenly. */
static uint32_t cheapest(struct router *router, const struct request_spec *request, const struct router_choice *choice)
{
    uint32_t best = NO_MEMBER;
    uint64_t best_cost = UINT64_MAX;
    uint32_t member = *choice->turn;
    for (uint32_t i = 0; i < router->count; i++, member++) {
        if (member == router->count)
            member = 0;
        if (!router_eligible(router, member, choice))
            continue;
        uint64_t c = kinds[router->policy]->cost(router, request, member);
        if (best == NO_MEMBER || c < best_cost) {
            best = member;
            best_cost = c;
        }
    }
    return best;
}

uint32_t router_next(const struct router *router, uint32_t start, const struct router_choice *choice)
{
    uint32_t member = start;
    for (uint32_t i = 0; i < router->count; i++, member++) {
        if (member == router->count)
            member = 0;
        if (router_eligible(router, member, choice))
            return member;
    }
    return NO_MEMBER;
}

uint32_t router_any(struct router *router, const struct router_choice *choice)
{
    if (choice->near == NO_MEMBER)
        return router_next(router, (uint32_t)rng_below(&router->rng, router->count), choice);
    uint32_t members = 0;
    for (uint32_t m = 0; m < router->count; m++)
        members += router->members[m].domain_first == choice->near;
    uint32_t passed = (uint32_t)rng_below(&router->rng, members);
    uint32_t start = choice->near;
    for (; router->members[start].domain_first != choice->near || passed-- > 0; start++)
        continue;
    return router_next(router, start, choice);
}

static uint32_t choose(struct router *router, const struct request_spec *request, const struct router_choice *choice)
{
    const struct router_kind *kind = kinds[router->policy];
    if (kind->matches)
        match(router, request);
    uint32_t chosen = kind->choose != NULL ? kind->choose(router, request, choice) : cheapest(router, request, choice);
    if (chosen != NO_MEMBER)
        *choice->turn = (chosen + 1) % router->count;
    return chosen;
}

uint32_t router_choose(struct router *router, const struct request_spec *request, uint32_t avoid)
{
    struct router_choice choice = {.avoid = avoid, .near = NO_MEMBER, .turn = &router->turn};
    if (router->count == 0)
        return NO_MEMBER;
    if (avoid != NO_MEMBER && router_next(router, 0, &choice) == NO_MEMBER)
        choice.avoid = NO_MEMBER;
    return choose(router, request, &choice);
}

uint32_t router_choose_near(struct router *router, const struct request_spec *request, uint32_t nvlink_domain)
{
    uint32_t first = domain_first(router, router->count, nvlink_domain);
    if (first < router->count) {
        const struct router_choice choice = {
            .avoid = NO_MEMBER, .near = first, .turn = &router->members[first].domain_turn};
        if (router_next(router, 0, &choice) != NO_MEMBER)
            return choose(router, request, &choice);
    }
    return router_choose(router, request, NO_MEMBER);
}

static int64_t busy_ns(const struct router_member *m, int64_t now_ns)
{
    return m->busy_ns + (m->queued_requests > 0 ? now_ns - m->busy_since_ns : 0);
}

static uint64_t rate(uint64_t tokens, int64_t ns)
{
    return ns <= 0 ? 0 : mul_div_floor_u64(tokens, (uint64_t)NS_PER_S, (uint64_t)ns);
}

uint64_t router_member_rate(const struct router_member *m, int64_t now_ns)
{
    return rate(m->computed_tokens, busy_ns(m, now_ns));
}

uint64_t router_prefill_rate(const struct router *router, int64_t now_ns)
{
    uint64_t tokens = 0;
    int64_t ns = 0;
    for (uint32_t m = 0; m < router->count; m++) {
        tokens += router->members[m].computed_tokens;
        ns += busy_ns(&router->members[m], now_ns);
    }
    return rate(tokens, ns);
}

bool router_admits(struct router *router, struct policy *policy, const struct request_spec *request)
{
    const struct router_choice anybody = {.avoid = NO_MEMBER, .near = NO_MEMBER};
    struct policy_question question = {
        .request = request, .router = router, .eligible = router->eligible, .now_ns = router->rt->now_ns};
    for (uint32_t m = 0; m < router->count; m++)
        if (router_eligible(router, m, &anybody))
            router->eligible[question.count++] = m;
    match(router, request);
    return policy->ops->admit(policy, &question);
}

uint32_t router_member_of(const struct router *router, uint32_t node)
{
    return node < router->node_limit && router->by_node[node] != 0 ? router->by_node[node] - 1u : NO_MEMBER;
}

uint32_t router_uncached(const struct router *router, uint32_t member, const struct request_spec *request)
{
    const struct prefix_memory *memory = &router->memory;
    uint32_t b = 0;
    bool caches = memory->hashes != NULL && router->members[member].config->caches;
    for (; caches && b < request->block_count; b++) {
        size_t cell = cell_of(memory, request->blocks[b]);
        if (cell == NO_CELL || (members_at(memory, cell)[member / 64] >> member % 64 & 1) == 0)
            break;
    }
    return request->prompt_tokens - min_u32(request->prompt_tokens, b * request->block_tokens);
}

uint64_t router_least_to_compute(const struct router *router, const struct request_spec *request)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t m = 0; m < router->count; m++) {
        if (router->members[m].lost)
            continue;
        uint64_t own = request == NULL ? 0 : router_uncached(router, m, request);
        least = min_u64(least, router->members[m].tokens_to_compute + own);
    }
    return least;
}

uint64_t router_least_load(const struct router *router, const struct request_spec *request)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < router->count; i++) {
        const struct router_member *m = &router->members[i];
        uint64_t total = pages_total(m->config);
        uint64_t held = total - min_u64(total, m->pages_available);
        uint64_t asked = m->pages_wanted + m->pages_promised + kv_pages(&m->config->geometry, request->prompt_tokens);
        if (!m->lost)
            least = min_u64(least, mul_div_ceil_u64(held + asked, 1000, total));
    }
    return least;
}
