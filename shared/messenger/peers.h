/* What a messenger knows of the nodes it exchanges KV with: whether they are alive, and the transfer plans to or from
 * them.
 *
 * Plans are made once, at set-up: one per (source group, destination group, replica choice) and per distinct geometry
 * of the other side, so that peers laid out alike share them.
 */
#ifndef TANDEM_MESSENGER_PEERS_H
#define TANDEM_MESSENGER_PEERS_H

#include "base/arena.h"
#include "node.h"

#include <stdbool.h>

struct peer {
    const struct peer_config *config;
    bool lost;
    enum geometry_refusal refusal; /* why no KV can be exchanged with it; GEOMETRY_OK: it can */
    uint64_t geometry_hash;
    uint32_t incarnation; /* of its last HELLO */
    uint32_t last_epoch;  /* prefiller's view of a decoder: the newest epoch it asked for */
    uint32_t plan_first;  /* index of its plans */
    uint32_t unit_tokens;
    uint64_t writes_per_unit;
    uint64_t writes_behind; /* the same of a unit wholly behind the window of windowed layers */
};

struct peers {
    const struct node_config *config;
    struct peer *peers;
    uint32_t count;
    uint16_t *by_node; /* node id -> index plus one; 0: not a peer */
    uint32_t node_limit;
    uint64_t own_geometry_hash;
    const struct transfer_plan **plans; /* prefillers only */
    uint32_t plan_count;
    uint32_t choices; /* replica choices of this node as a source */
};

/* `role`: the role of the peers that KV is exchanged with; this node is the source for decoders, else the
 * destination. */
void peers_make(struct peers *peers, struct arena *arena, const struct node_config *config, enum node_role role);

/* NULL when the node is not a peer. */
struct peer *peers_find(struct peers *peers, uint32_t node);

/* The plan from this node's group to a peer's. */
const struct transfer_plan *peers_plan(const struct peers *peers, const struct peer *peer, uint32_t source_group,
                                       uint32_t destination_group, uint32_t choice);

#endif
