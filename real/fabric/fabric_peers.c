/* Peers: their rails and keys, cards both ways, breaking and fencing. */
#include "real/fabric/stage.h"

#include "base/check.h"

#include <rdma/fi_errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one -------------------------------------------------------------------------------------------------- */

static void peer_free(struct fabric *fabric, struct peer *peer)
{
    /* Endpoints before keys: with the endpoint gone nothing uses a key that is being closed. */
    for (uint32_t n = 0; peer->rails != NULL && n < fabric->config.nics; n++)
        rail_close(&peer->rails[n], &fabric->listener);
    for (uint32_t i = 0; peer->keys != NULL && i < fabric->config.nics * fabric->config.rank_count; i++)
        if (peer->keys[i] != NULL)
            fi_close(&peer->keys[i]->fid);
    free(peer->rails);
    free(peer->keys);
    card_free(&peer->card);
    free(peer);
}

/* What peers write to. */
static void *target_of(const struct fabric *fabric, uint32_t rank)
{
    return fabric->stages != NULL ? stage_target(fabric, rank) : fabric->ranks[rank].memory;
}

static bool peer_register(struct fabric *fabric, struct peer *peer, struct user_error *error)
{
    uint32_t ranks = fabric->config.rank_count;
    for (uint32_t i = 0; i < fabric->config.nics * ranks && !fabric->config.sends_only; i++) {
        const struct fabric_rank *rank = &fabric->ranks[i % ranks];
        /* A key that is asked for is never asked for again, so a revoked one stays dead. */
        int rc = region_register(fabric, i / ranks, target_of(fabric, i % ranks), rank->bytes,
                                 fabric->stages != NULL ? NULL : rank->reach, FI_REMOTE_WRITE, &peer->keys[i]);
        if (rc != 0) {
            user_error_set(
                error, NULL, 0, NULL, "fabric %s: registering the region of rank %u (%llu bytes) at NIC %u: %s",
                fabric->provider->name, i % ranks, (unsigned long long)rank->bytes, i / ranks, fi_strerror(-rc));
            return false;
        }
    }
    return true;
}

static struct peer *peer_make(struct fabric *fabric, uint32_t node, struct user_error *error)
{
    uint32_t nics = fabric->config.nics;
    struct peer *peer = calloc(1, sizeof *peer);
    if (peer != NULL) {
        peer->rails = calloc(nics, sizeof *peer->rails);
        peer->keys = calloc((size_t)nics * fabric->config.rank_count, sizeof *peer->keys);
    }
    if (peer == NULL || peer->rails == NULL || peer->keys == NULL) {
        user_error_set(error, NULL, 0, NULL, "fabric: out of memory for a peer");
        if (peer != NULL)
            peer_free(fabric, peer);
        return NULL;
    }
    peer->node = node;
    peer->rails_left = nics;
    bool good = true;
    for (uint32_t n = 0; good && n < nics; n++)
        good = rail_open(&peer->rails[n], &fabric->nics[n], fabric->config.window, error);
    if (!good || !peer_register(fabric, peer, error)) {
        peer_free(fabric, peer);
        return NULL;
    }
    fabric->peers[node] = peer;
    fabric->nodes[fabric->peer_count++] = (uint16_t)node;
    return peer;
}

/* The peer, made if it is not there. */
static struct peer *peer_of(struct fabric *fabric, uint32_t node, struct user_error *error)
{
    CHECK(node < NODES_MAX);
    struct peer *peer = fabric->peers[node];
    return peer != NULL ? peer : peer_make(fabric, node, error);
}

/* ---- Cards ------------------------------------------------------------------------------------------------------- */

size_t fabric_card(struct fabric *fabric, uint32_t node, void *card, struct user_error *error)
{
    uint32_t ranks = fabric->config.rank_count;
    struct card mine;
    struct peer *peer = peer_of(fabric, node, error);
    if (peer == NULL)
        return 0;
    if (!card_make(&mine, fabric->config.nics, ranks)) {
        user_error_set(error, NULL, 0, NULL, "fabric: out of memory for a card");
        return 0;
    }
    snprintf(mine.provider, sizeof mine.provider, "%s", fabric->provider->name);
    for (uint32_t n = 0; n < mine.nics; n++) {
        /* A rail that has broken before its card was asked for has no address any more. */
        const struct rail *rail = &peer->rails[n];
        mine.address_bytes[n] = !rail_whole(rail) ? 0 : (uint16_t)rail_address(rail, mine.address[n], CARD_ADDRESS_MAX);
        if (mine.address_bytes[n] == 0) {
            user_error_set(error, NULL, 0, NULL, "fabric %s: NIC %u has no address for node %u", fabric->provider->name,
                           n, node);
            card_free(&mine);
            return 0;
        }
    }
    for (uint32_t r = 0; r < ranks && !fabric->config.sends_only; r++) {
        mine.base[r] = nic_mr(&fabric->nics[0], FI_MR_VIRT_ADDR) ? (uint64_t)(uintptr_t)target_of(fabric, r) : 0;
        mine.bytes[r] = fabric->ranks[r].bytes;
    }
    for (uint32_t i = 0; i < mine.nics * ranks && !fabric->config.sends_only; i++)
        mine.keys[i] = fi_mr_key(peer->keys[i]);
    size_t length = card_write(&mine, &fabric->config.memory, card);
    card_free(&mine);
    return length;
}

bool fabric_peer_add(struct fabric *fabric, uint32_t node, const void *card, size_t size,
                     const struct kv_memory *memory, struct user_error *error)
{
    struct card theirs;
    if (!card_read(&theirs, card, size, memory, fabric->provider->name, error))
        return false;
    struct peer *peer = peer_of(fabric, node, error);
    if (peer == NULL || peer->known) {
        if (peer != NULL)
            user_error_set(error, NULL, 0, NULL, "fabric: node %u has already given its card", node);
        card_free(&theirs);
        return false;
    }
    for (uint32_t n = 0; n < fabric->config.nics; n++) {
        struct rail *rail = &peer->rails[n];
        if (rail_whole(rail) && !rail_connect(rail, theirs.address[n % theirs.nics]))
            peer_break_rail(fabric, peer, n);
    }
    peer->card = theirs;
    peer->memory = *memory;
    peer->known = true;
    return true;
}

/* ---- Rails ------------------------------------------------------------------------------------------------------- */

void peer_break_rail(struct fabric *fabric, struct peer *peer, uint32_t nic)
{
    if (!rail_whole(&peer->rails[nic]))
        return;
    peer->rails[nic].broken = true;
    peer->rails_left--;
    peer->errors |= UINT32_C(1) << nic;
    fabric->broken = true;
    fabric->counters.rails_broken++;
}

void peers_close_broken(struct fabric *fabric)
{
    if (!fabric->broken)
        return;
    fabric->broken = false;
    for (uint32_t i = 0; i < fabric->peer_count; i++) {
        struct peer *peer = fabric->peers[fabric->nodes[i]];
        for (uint32_t n = 0; n < fabric->config.nics; n++)
            if (peer->rails[n].broken)
                rail_close(&peer->rails[n], &fabric->listener);
    }
}

uint32_t peer_closed_rails(const struct fabric *fabric, uint32_t node)
{
    const struct peer *peer = fabric->peers[node];
    uint32_t closed = 0;
    for (uint32_t n = 0; peer != NULL && n < fabric->config.nics; n++)
        closed |= (uint32_t)(peer->rails[n].endpoint == NULL) << n;
    return closed;
}

struct rail *peer_rail(struct fabric *fabric, struct peer *peer, uint32_t rank, uint32_t turn, uint32_t *nic,
                       bool *hopeless)
{
    uint32_t nics = fabric->config.nics;
    const uint8_t *own_nics = fabric->choice.nics[rank];
    uint32_t count = fabric->choice.count[rank];
    bool own = false; /* one of the rank's own NICs is left */
    for (uint32_t i = 0; i < count; i++) {
        *nic = own_nics[(turn + i) % count];
        struct rail *rail = &peer->rails[*nic];
        own = own || rail_usable(rail);
        if (rail_usable(rail) && rail_has_room(rail))
            return rail;
    }
    *hopeless = peer->rails_left == 0;
    for (uint32_t i = 0; !own && i < nics; i++) {
        *nic = (own_nics[0] + i) % nics;
        struct rail *rail = &peer->rails[*nic];
        if (rail_usable(rail) && rail_has_room(rail))
            return rail;
    }
    return NULL;
}

void peers_poll(struct fabric *fabric, bool *progress)
{
    int64_t stall_ns = fabric->config.stall_ns;
    /* Time in which this process did not run is held against nobody. */
    int64_t away_ns = fabric->now_ns - fabric->polled_ns;
    away_ns = fabric->polled_ns != 0 && away_ns > stall_ns / 4 ? away_ns : 0;
    fabric->polled_ns = fabric->now_ns;
    for (uint32_t i = 0; i < fabric->peer_count; i++) {
        struct peer *peer = fabric->peers[fabric->nodes[i]];
        for (uint32_t n = 0; n < fabric->config.nics; n++) {
            struct rail *rail = &peer->rails[n];
            if (!rail_whole(rail))
                continue;
            rail->progress_ns += away_ns;
            rail->refused_ns += rail->refused_ns != 0 ? away_ns : 0;
            if (!rail_poll(rail, &fabric->listener, fabric->now_ns, progress) ||
                rail_stalled(rail, fabric->now_ns, stall_ns))
                peer_break_rail(fabric, peer, n);
        }
    }
}

void fabric_nic_fail(struct fabric *fabric, uint32_t nic)
{
    CHECK(nic < fabric->config.nics);
    for (uint32_t i = 0; i < fabric->peer_count; i++)
        peer_break_rail(fabric, fabric->peers[fabric->nodes[i]], nic);
    peers_close_broken(fabric);
}

/* ---- Fencing ----------------------------------------------------------------------------------------------------- */

/* The peer's rail i ends at ours with the number i modulo how many we have. */
void fabric_peer_close(struct fabric *fabric, uint32_t node, uint32_t rails)
{
    CHECK(node < NODES_MAX);
    for (uint32_t i = 0; i < FABRIC_NICS_MAX && fabric->peers[node] != NULL; i++)
        if ((rails >> i & 1) != 0)
            peer_break_rail(fabric, fabric->peers[node], i % fabric->config.nics);
    peers_close_broken(fabric);
}

void fabric_peer_remove(struct fabric *fabric, uint32_t node)
{
    CHECK(node < NODES_MAX);
    struct peer *peer = fabric->peers[node];
    if (peer == NULL)
        return;
    uint32_t place = 0;
    while (fabric->nodes[place] != node)
        place++;
    fabric->nodes[place] = fabric->nodes[--fabric->peer_count];
    stage_forget(fabric, node);
    fabric->peers[node] = NULL;
    peer_free(fabric, peer);
    tickets_fail(fabric, node);
}

void peers_free(struct fabric *fabric)
{
    while (fabric->peer_count > 0)
        fabric_peer_remove(fabric, fabric->nodes[0]);
}
