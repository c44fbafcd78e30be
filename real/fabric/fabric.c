/* The engine: making it, one round of progress, what it tells. Peers are in peers.c, writes in tickets.c. */
#define _POSIX_C_SOURCE 200809L

#include "real/fabric/fabric_internal.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/fabric/leftovers.h"

#include <rdma/fi_errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t fabric_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void immediate_arrived(void *owner, uint32_t immediate)
{
    struct fabric *fabric = owner;
    fabric->counters.immediates++;
    immediates_count(&fabric->immediates, immediate);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

/* Registers every rank's region for reading, where the provider wants local memory registered. */
static bool register_sources(struct fabric *fabric, char *error, size_t error_size)
{
    uint32_t ranks = fabric->config.rank_count;
    if (!nic_mr(&fabric->nics[0], FI_MR_LOCAL))
        return true;
    fabric->sources = calloc((size_t)fabric->config.nics * ranks, sizeof *fabric->sources);
    int rc = fabric->sources == NULL ? -FI_ENOMEM : 0;
    for (uint32_t i = 0; rc == 0 && i < fabric->config.nics * ranks; i++)
        rc = fi_mr_reg(fabric->nics[i / ranks].domain, fabric->ranks[i % ranks].memory, fabric->ranks[i % ranks].bytes,
                       FI_WRITE, 0, fabric->next_key++, 0, &fabric->sources[i], NULL);
    if (rc != 0)
        snprintf(error, error_size, "fabric %s: registering memory to write from: %s", fabric->provider->name,
                 fi_strerror(-rc));
    return rc == 0;
}

static bool open_nics(struct fabric *fabric, const struct provider *provider, char *error, size_t error_size)
{
    struct fabric_config *config = &fabric->config;
    uint32_t wanted = config->nics;
    uint32_t opened = 0;
    bool good = true;
    fabric->provider = provider;
    while (good && (opened == 0 || opened < wanted)) {
        good = nic_open(&fabric->nics[opened], provider, config->address, opened, error, error_size);
        if (good && ++opened == 1 && wanted == 0)
            wanted = min_u32(max_u32(config->rank_count, nic_domains(&fabric->nics[0])), FABRIC_NICS_MAX);
    }
    for (uint32_t n = 0; !good && n < opened; n++)
        nic_close(&fabric->nics[n]);
    if (good)
        config->nics = opened;
    return good;
}

/* Gives each rank its NICs. */
static void choose_nics(struct fabric *fabric)
{
    struct place nics[FABRIC_NICS_MAX];
    struct place ranks[RANKS_MAX];
    bool known = false;
    memset(ranks, 0, sizeof ranks);
    if (fabric->config.places != NULL)
        memcpy(ranks, fabric->config.places, fabric->config.rank_count * sizeof *ranks);
    fabric->config.places = NULL;
    for (uint32_t n = 0; n < fabric->config.nics; n++) {
        nics[n] = nic_place(&fabric->nics[n]);
        known = known || nics[n].kind != PLACE_UNKNOWN;
    }
    /* Looking at the machine takes a while; it has nothing to say about NICs that are nowhere. */
    hwloc_topology_t topology = known ? topology_load() : NULL;
    topology_choose(topology, ranks, fabric->config.rank_count, nics, fabric->config.nics, &fabric->choice);
    if (topology != NULL)
        hwloc_topology_destroy(topology);
}

const struct nic_choice *fabric_choice(const struct fabric *fabric)
{
    return &fabric->choice;
}

void fabric_choice_text(const struct fabric *fabric, char *text, size_t size)
{
    const struct nic_choice *choice = &fabric->choice;
    int used = snprintf(text, size, "%s:", fabric->provider->name);
    for (uint32_t r = 0; r < choice->ranks && used > 0 && (size_t)used < size; r++) {
        used += snprintf(text + used, size - (size_t)used, "%s rank %u by", r == 0 ? "" : ",", r);
        for (uint32_t i = 0; i < choice->count[r] && (size_t)used < size; i++) {
            uint32_t n = choice->nics[r][i];
            used +=
                snprintf(text + used, size - (size_t)used, " NIC %u %s", n, fabric->nics[n].info->domain_attr->name);
        }
        if ((size_t)used < size)
            used += snprintf(text + used, size - (size_t)used, " (%s)", nic_distance_names[choice->distance[r]]);
    }
}

/* The named provider; or the first that opens: on loopback what serves one host best, else what is between hosts. */
static bool open_provider(struct fabric *fabric, char *error, size_t error_size)
{
    const struct fabric_config *config = &fabric->config;
    if (config->provider != NULL) {
        const struct provider *provider = provider_find(config->provider);
        if (provider == NULL) {
            snprintf(error, error_size, "fabric: no provider \"%s\"; known: efa, verbs, tcp, net, shm",
                     config->provider);
            return false;
        }
        return open_nics(fabric, provider, error, error_size);
    }
    bool loopback = config->address == NULL || strncmp(config->address, "127.", 4) == 0;
    for (const struct provider *p = providers; loopback && p->name != NULL; p++)
        if (p->one_host && open_nics(fabric, p, error, error_size))
            return true;
    for (const struct provider *p = providers; p->name != NULL; p++)
        if (!p->one_host && open_nics(fabric, p, error, error_size))
            return true;
    return false;
}

static bool config_good(const struct fabric_config *config, char *error, size_t error_size)
{
    CHECK(config->rank_count == kv_ranks(&config->memory.geometry.parallelism));
    CHECK(config->rank_count <= RANKS_MAX && config->tickets_max > 0);
    for (uint32_t r = 0; r < config->rank_count; r++)
        CHECK(config->ranks[r].bytes >= kv_memory_bytes(&config->memory, r));
    if (config->nics > FABRIC_NICS_MAX || config->window == 0) {
        snprintf(error, error_size, "fabric: %u NICs with a window of %u; NICs are at most %u, the window at least 1",
                 config->nics, config->window, FABRIC_NICS_MAX);
        return false;
    }
    return true;
}

struct fabric *fabric_make(const struct fabric_config *config, char *error, size_t error_size)
{
    _Static_assert(FABRIC_NICS_MAX <= CARD_NICS_MAX && FABRIC_NICS_MAX <= TOPOLOGY_NICS_MAX,
                   "NICs have a place in cards and masks");
    if (!config_good(config, error, error_size))
        return NULL;
    leftovers_remove();
    struct fabric *fabric = calloc(1, sizeof *fabric);
    bool good = fabric != NULL;
    if (good) {
        fabric->config = *config;
        if (config->stall_ns == 0)
            fabric->config.stall_ns = FABRIC_STALL_NS;
        fabric->listener = (struct rail_listener){fabric, ticket_completed, immediate_arrived};
        /* Far from the keys of an engine that had this address before. */
        fabric->next_key = (uint64_t)fabric_clock_ns() << 8;
        fabric->nics = calloc(FABRIC_NICS_MAX, sizeof *fabric->nics);
        fabric->ranks = calloc(config->rank_count, sizeof *fabric->ranks);
        good = fabric->nics != NULL && fabric->ranks != NULL && tickets_make(fabric) &&
               immediates_make(&fabric->immediates, config->handoffs_max);
    }
    if (!good) {
        snprintf(error, error_size, "fabric: out of memory");
    } else {
        memcpy(fabric->ranks, config->ranks, config->rank_count * sizeof *fabric->ranks);
        fabric->config.ranks = fabric->ranks;
        good = open_provider(fabric, error, error_size) && register_sources(fabric, error, error_size);
        if (good)
            choose_nics(fabric);
    }
    if (!good) {
        fabric_free(fabric);
        return NULL;
    }
    return fabric;
}

void fabric_free(struct fabric *fabric)
{
    if (fabric == NULL)
        return;
    if (fabric->tickets != NULL)
        peers_free(fabric);
    for (uint32_t i = 0; fabric->sources != NULL && i < fabric->config.nics * fabric->config.rank_count; i++)
        if (fabric->sources[i] != NULL)
            fi_close(&fabric->sources[i]->fid);
    for (uint32_t n = 0; fabric->nics != NULL && n < FABRIC_NICS_MAX; n++)
        nic_close(&fabric->nics[n]);
    tickets_free(fabric);
    immediates_free(&fabric->immediates);
    free(fabric->sources);
    free(fabric->nics);
    free(fabric->ranks);
    free(fabric);
}

const char *fabric_provider(const struct fabric *fabric)
{
    return fabric->provider->name;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

void fabric_expect(struct fabric *fabric, uint32_t immediate, uint64_t count)
{
    immediates_expect(&fabric->immediates, immediate, count);
}

static bool next_peer_error(struct fabric *fabric, struct fabric_event *event)
{
    for (uint32_t i = 0; i < fabric->peer_count; i++) {
        struct peer *peer = fabric->peers[fabric->nodes[i]];
        uint32_t nic = 0;
        if (peer->errors == 0)
            continue;
        while ((peer->errors >> nic & 1) == 0)
            nic++;
        peer->errors &= ~(UINT32_C(1) << nic);
        *event = (struct fabric_event){
            .kind = FABRIC_PEER_ERROR, .id = peer->node, .status = nic, .count = peer->rails_left};
        return true;
    }
    return false;
}

/* Immediates go first: a node that hears of a write's end and of a count in one round has the count sooner. */
static bool next_event(struct fabric *fabric, struct fabric_event *event)
{
    uint32_t immediate;
    uint64_t count;
    if (immediates_next(&fabric->immediates, &immediate, &count)) {
        *event = (struct fabric_event){
            .kind = FABRIC_IMMEDIATE, .id = immediate, .count = count, .done_ns = fabric_clock_ns()};
        return true;
    }
    return tickets_next_done(fabric, event) || next_peer_error(fabric, event);
}

uint32_t fabric_poll(struct fabric *fabric, struct fabric_event *events, uint32_t max, bool *idle)
{
    bool progress = false;
    uint32_t count = 0;
    fabric->now_ns = fabric_clock_ns();
    peers_poll(fabric, &progress);
    tickets_post(fabric, &progress);
    while (count < max && next_event(fabric, &events[count]))
        count++;
    *idle = !progress && count == 0;
    return count;
}

struct fabric_counters fabric_counters(const struct fabric *fabric)
{
    struct fabric_counters counters = fabric->counters;
    counters.late = fabric->immediates.late;
    return counters;
}

bool fabric_quiet(const struct fabric *fabric)
{
    return fabric->tickets_live == 0;
}
