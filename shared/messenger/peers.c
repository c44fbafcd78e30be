/* See peers.h. */
#include "messenger/peers.h"

#include "base/arith.h"

#include <string.h>

/* Only the pairs in use are kept: a plan with one pair takes a hundred bytes, not fifty thousand. */
static size_t plan_bytes(const struct transfer_plan *plan)
{
    return offsetof(struct transfer_plan, pairs) + plan->pair_count * sizeof plan->pairs[0];
}

static uint32_t plans_to(const struct peers *peers, const struct peer_config *peer)
{
    return peers->config->group_count * peer->group_count * peers->choices;
}

/* NULL while the arena only measures. */
static const struct transfer_plan *keep_plan(struct arena *arena, const struct transfer_plan *plan)
{
    void *kept = arena_take(arena, 1, plan_bytes(plan));
    if (kept != NULL)
        memcpy(kept, plan, plan_bytes(plan));
    return kept;
}

static void make_plans(struct peers *peers, struct arena *arena, const struct peer_config *peer, uint32_t first)
{
    struct transfer_plan plan;
    uint32_t index = first;
    for (uint32_t source = 0; source < peers->config->group_count; source++) {
        for (uint32_t destination = 0; destination < peer->group_count; destination++) {
            for (uint32_t choice = 0; choice < peers->choices; choice++) {
                const struct transfer_plan *behind = NULL;
                if (peer->geometry.window > 0) {
                    CHECK(transfer_plan_make_behind(&peers->config->geometry, source, &peer->geometry, destination,
                                                    choice, &plan) == GEOMETRY_OK);
                    behind = keep_plan(arena, &plan);
                }
                CHECK(transfer_plan_make(&peers->config->geometry, source, &peer->geometry, destination, choice,
                                         &plan) == GEOMETRY_OK);
                plan.behind = behind;
                const struct transfer_plan *kept = keep_plan(arena, &plan);
                if (kept != NULL)
                    peers->plans[index] = kept;
                index++;
            }
        }
    }
}

/* What is known of a peer before the arena has memory: the same code measures and fills. */
struct layout {
    uint64_t geometry_hash;
    uint32_t group_count;
    uint32_t plan_first;
};

static struct peer add_peer(struct peers *peers, struct arena *arena, struct layout *layouts, uint32_t index,
                            const struct peer_config *config, bool source)
{
    struct transfer_plan plan;
    struct peer peer = {.config = config, .geometry_hash = kv_geometry_hash(&config->geometry)};
    const struct kv_geometry *own = &peers->config->geometry;
    layouts[index] = (struct layout){.geometry_hash = peer.geometry_hash, .group_count = config->group_count};
    peer.refusal = source ? transfer_plan_make(own, 0, &config->geometry, 0, 0, &plan)
                          : transfer_plan_make(&config->geometry, 0, own, 0, 0, &plan);
    if (peer.refusal != GEOMETRY_OK)
        return peer;
    peer.unit_tokens = plan.unit_tokens;
    peer.writes_per_unit = peer.writes_behind = plan.writes_per_unit;
    if (plan.window > 0) {
        peer.refusal = source ? transfer_plan_make_behind(own, 0, &config->geometry, 0, 0, &plan)
                              : transfer_plan_make_behind(&config->geometry, 0, own, 0, 0, &plan);
        peer.writes_behind = plan.writes_per_unit;
        if (peer.refusal != GEOMETRY_OK)
            return peer;
    }
    if (!source)
        return peer;
    uint32_t twin = 0;
    while (layouts[twin].geometry_hash != peer.geometry_hash || layouts[twin].group_count != config->group_count)
        twin++;
    if (twin < index) {
        layouts[index].plan_first = layouts[twin].plan_first;
    } else {
        layouts[index].plan_first = peers->plan_count;
        peers->plan_count += plans_to(peers, config);
        make_plans(peers, arena, config, layouts[index].plan_first);
    }
    peer.plan_first = layouts[index].plan_first;
    return peer;
}

void peers_make(struct peers *peers, struct arena *arena, const struct node_config *config, enum node_role role)
{
    struct layout layouts[NODES_MAX];
    bool source = role == ROLE_DECODE;
    *peers = (struct peers){.config = config};
    peers->choices = source ? transfer_replica_choices(&config->geometry) : 1;
    peers->own_geometry_hash = kv_geometry_hash(&config->geometry);
    size_t plans = 0;
    for (uint32_t i = 0; i < config->peer_count; i++) {
        const struct peer_config *peer = &config->peers[i];
        CHECK(peer->node < NODES_MAX);
        peers->node_limit = max_u32(peers->node_limit, peer->node + 1);
        if (peer->role == role) {
            peers->count++;
            plans += source ? plans_to(peers, peer) : 0;
        }
    }
    CHECK(peers->count <= NODES_MAX);
    peers->by_node = arena_take(arena, peers->node_limit, sizeof *peers->by_node);
    peers->peers = arena_take(arena, peers->count, sizeof *peers->peers);
    peers->plans = arena_take(arena, plans, sizeof *peers->plans);
    uint32_t index = 0;
    for (uint32_t i = 0; i < config->peer_count; i++) {
        if (config->peers[i].role != role)
            continue;
        struct peer peer = add_peer(peers, arena, layouts, index, &config->peers[i], source);
        if (arena->memory != NULL) {
            peers->peers[index] = peer;
            peers->by_node[config->peers[i].node] = (uint16_t)(index + 1);
        }
        index++;
    }
}

struct peer *peers_find(struct peers *peers, uint32_t node)
{
    if (node >= peers->node_limit || peers->by_node[node] == 0)
        return NULL;
    return &peers->peers[peers->by_node[node] - 1];
}

const struct transfer_plan *peers_plan(const struct peers *peers, const struct peer *peer, uint32_t source_group,
                                       uint32_t destination_group, uint32_t choice)
{
    CHECK(source_group < peers->config->group_count && destination_group < peer->config->group_count);
    CHECK(choice < peers->choices);
    uint32_t index = (source_group * peer->config->group_count + destination_group) * peers->choices + choice;
    return peers->plans[peer->plan_first + index];
}
