/* The engine: making it, one round of progress, what it tells. Peers are in peers.c, writes in tickets.c. */
#define _POSIX_C_SOURCE 200809L

#include "real/fabric/stage.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/fabric/leftovers.h"
#include "host/clock.h"

#include <rdma/fi_errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void immediate_arrived(void *owner, uint32_t immediate)
{
    struct fabric *fabric = owner;
    fabric->counters.immediates++;
    immediates_count(&fabric->immediates, immediate);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static int register_source(struct fabric *fabric, uint32_t nic, uint32_t rank, struct fid_mr **source)
{
    const struct fabric_rank *region = &fabric->ranks[rank];
    size_t bytes = region->bytes;
    if (fabric->stages == NULL)
        return region_register(fabric, nic, region->memory, bytes, region->reach, FI_WRITE, source);
    void *memory = stage_buffer(fabric, rank, &bytes);
    return region_register(fabric, nic, memory, bytes, NULL, FI_WRITE, source);
}

/* Registers every rank's region for reading, where the provider wants local memory registered. */
static bool register_sources(struct fabric *fabric, struct user_error *error)
{
    uint32_t ranks = fabric->config.rank_count;
    if (!region_wants_local(fabric, 0))
        return true;
    fabric->sources = calloc((size_t)fabric->config.nics * ranks, sizeof *fabric->sources);
    int rc = fabric->sources == NULL ? -FI_ENOMEM : 0;
    for (uint32_t i = 0; rc == 0 && i < fabric->config.nics * ranks; i++)
        rc = register_source(fabric, i / ranks, i % ranks, &fabric->sources[i]);
    if (rc != 0)
        user_error_set(error, NULL, 0, NULL, "fabric %s: registering memory to write from: %s", fabric->provider->name,
                       fi_strerror(-rc));
    return rc == 0;
}

/* Gives each rank its NICs. */
static void choose_nics(struct fabric *fabric)
{
    struct place nics[FABRIC_NICS_MAX];
    bool known = false;
    for (uint32_t n = 0; n < fabric->config.nics; n++) {
        nics[n] = nic_place(&fabric->nics[n]);
        known = known || nics[n].kind != PLACE_UNKNOWN;
    }
    /* Looking at the machine takes a while; it has nothing to say about NICs that are nowhere. */
    hwloc_topology_t topology = known ? topology_load() : NULL;
    topology_choose(topology, fabric->places, fabric->config.rank_count, nics, fabric->config.nics, &fabric->choice);
    if (topology != NULL)
        hwloc_topology_destroy(topology);
}

static bool open_nics_for(struct fabric *fabric, const struct provider *provider, bool devices,
                          struct user_error *error)
{
    struct fabric_config *config = &fabric->config;
    uint32_t wanted = config->nics;
    uint32_t opened = 0;
    bool good = true;
    fabric->provider = provider;
    while (good && (opened == 0 || opened < wanted)) {
        uint32_t turn = opened / (1 + config->more_count);
        uint32_t which = opened % (1 + config->more_count);
        good = (devices ? nic_open_devices : nic_open)(
            &fabric->nics[opened], provider, which == 0 ? config->address : config->more[which - 1], turn, error);
        if (good && ++opened == 1 && wanted == 0)
            wanted = min_u32(max_u32(config->rank_count, nic_domains(&fabric->nics[0]) + config->more_count),
                             FABRIC_NICS_MAX);
    }
    for (uint32_t n = 0; !good && n < opened; n++)
        nic_close(&fabric->nics[n]);
    if (good) {
        config->nics = opened;
        choose_nics(fabric);
    }
    return good;
}

static bool open_nics(struct fabric *fabric, const struct provider *provider, struct user_error *error)
{
    return open_nics_for(fabric, provider, false, error);
}

static void close_nics(struct fabric *fabric)
{
    for (uint32_t n = 0; fabric->nics != NULL && n < fabric->config.nics; n++)
        nic_close(&fabric->nics[n]);
}

/* Every rank at the NIC that its writes go to first. */
static bool probe_all(struct fabric *fabric, struct user_error *why)
{
    const struct fabric_config *config = &fabric->config;
    for (uint32_t r = 0; r < config->rank_count; r++)
        if (!region_probe(fabric, fabric->choice.nics[r][0], r, why))
            return false;
    return true;
}

/* Finds out whether the NICs that are open reach the memory of devices; else makes what stages it. */
static bool reach_devices(struct fabric *fabric, struct user_error *error)
{
    const char *provider = fabric->provider->name;
    struct user_error why = {.set = false};
    if (fabric->ranks[0].reach == NULL)
        return true;
    bool special = fabric->ranks[0].reach->kind != DEVICE_REACH_HOST; /* needs NICs that are asked for it */
    bool direct = !special;
    if (special) {
        struct user_error unused = {.set = false};
        close_nics(fabric);
        direct = open_nics_for(fabric, fabric->provider, true, &unused);
        if (!direct)
            user_error_set(&why, NULL, 0, NULL, "it does not offer to take it");
    }
    direct = direct && probe_all(fabric, &why);
    if (direct) {
        snprintf(fabric->path, sizeof fabric->path,
                 "NICs of %s reach the memory of devices: a write that was tried arrived", provider);
        return true;
    }
    snprintf(fabric->path, sizeof fabric->path,
             "memory of devices goes through pinned memory, not to NICs of %s: %.150s", provider, why.text);
    if (special) {
        close_nics(fabric);
        if (!open_nics(fabric, fabric->provider, error))
            return false;
    }
    return stages_make(fabric, error);
}

/* The named provider; or the first that opens: on loopback what serves one host best, else what is between hosts. */
static bool open_provider(struct fabric *fabric, struct user_error *error)
{
    const struct fabric_config *config = &fabric->config;
    if (config->provider != NULL && strcmp(config->provider, "auto") != 0) {
        const struct provider *provider = provider_named(config->provider, error);
        return provider != NULL && open_nics(fabric, provider, error);
    }
    bool loopback = config->address == NULL || strncmp(config->address, "127.", 4) == 0;
    struct user_error first = {.set = false};
    for (const struct provider *p = providers; loopback && p->name != NULL; p++)
        if (p->one_host && open_nics(fabric, p, &first))
            return true;
    for (const struct provider *p = providers; p->name != NULL; p++)
        if (!p->one_host && open_nics(fabric, p, &first))
            return true;
    user_error_set(error, NULL, 0, NULL, "%s", first.text);
    return false;
}

bool fabric_here(const char *name, const char *address, struct user_error *error)
{
    struct nic nic;
    if (name == NULL || strcmp(name, "auto") == 0)
        return true;
    const struct provider *provider = provider_named(name, error);
    if (provider == NULL || !nic_open(&nic, provider, address, 0, error))
        return false;
    nic_close(&nic);
    return true;
}

static bool config_good(const struct fabric_config *config, struct user_error *error)
{
    CHECK(config->rank_count == kv_ranks(&config->memory.geometry.parallelism));
    CHECK(config->rank_count <= RANKS_MAX && config->tickets_max > 0);
    for (uint32_t r = 0; r < config->rank_count; r++) /* all of one kind */
        CHECK((config->ranks[r].reach == NULL) == (config->ranks[0].reach == NULL));
    for (uint32_t r = 0; r < config->rank_count; r++)
        CHECK(config->ranks[r].bytes >= kv_memory_bytes(&config->memory, r));
    if (config->nics > FABRIC_NICS_MAX || config->window == 0) {
        user_error_set(error, NULL, 0, NULL,
                       "fabric: %u NICs with a window of %u; NICs are at most %u, the window at least 1", config->nics,
                       config->window, FABRIC_NICS_MAX);
        return false;
    }
    return true;
}

struct fabric *fabric_make(const struct fabric_config *config, struct user_error *error)
{
    _Static_assert(FABRIC_NICS_MAX <= CARD_NICS_MAX && FABRIC_NICS_MAX <= TOPOLOGY_NICS_MAX,
                   "NICs have a place in cards and masks");
    if (!config_good(config, error))
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
        fabric->next_key = (uint64_t)clock_now_ns() << 8;
        fabric->nics = calloc(FABRIC_NICS_MAX, sizeof *fabric->nics);
        fabric->ranks = calloc(config->rank_count, sizeof *fabric->ranks);
        good = fabric->nics != NULL && fabric->ranks != NULL && tickets_make(fabric) &&
               immediates_make(&fabric->immediates, config->handoffs_max);
    }
    if (!good) {
        user_error_set(error, NULL, 0, NULL, "fabric: out of memory");
    } else {
        memcpy(fabric->ranks, config->ranks, config->rank_count * sizeof *fabric->ranks);
        fabric->config.ranks = fabric->ranks;
        if (config->places != NULL)
            memcpy(fabric->places, config->places, config->rank_count * sizeof *config->places);
        fabric->config.places = NULL;
        good = open_provider(fabric, error) && reach_devices(fabric, error) && register_sources(fabric, error);
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
    close_nics(fabric);
    stages_free(fabric);
    tickets_free(fabric);
    immediates_free(&fabric->immediates);
    free(fabric->sources);
    free(fabric->nics);
    free(fabric->ranks);
    free(fabric);
}

uint32_t fabric_tickets_max(const struct fabric *fabric)
{
    return fabric->config.tickets_max;
}

const char *fabric_provider(const struct fabric *fabric)
{
    return fabric->provider->name;
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

const char *fabric_path(const struct fabric *fabric)
{
    return fabric->path;
}

bool fabric_staged(const struct fabric *fabric)
{
    return fabric->stages != NULL;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

void fabric_expect(struct fabric *fabric, uint32_t immediate, uint64_t count)
{
    if (fabric->stages != NULL)
        stage_land_stop(fabric, immediate);
    immediates_expect(&fabric->immediates, immediate, count);
}

void fabric_land(struct fabric *fabric, uint32_t immediate, uint64_t count, const struct fabric_landing *landing)
{
    CHECK(fabric->stages != NULL && landing->group < fabric->config.memory.geometry.parallelism.data);
    stage_land(fabric, immediate, count, landing);
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
        *event =
            (struct fabric_event){.kind = FABRIC_IMMEDIATE, .id = immediate, .count = count, .done_ns = clock_now_ns()};
        return true;
    }
    if (stage_landed(fabric, &immediate, &count)) {
        *event = (struct fabric_event){.kind = FABRIC_LANDED, .id = immediate, .count = count};
        return true;
    }
    return tickets_next_done(fabric, event) || next_peer_error(fabric, event);
}

uint32_t fabric_poll(struct fabric *fabric, struct fabric_event *events, uint32_t max, bool *idle)
{
    bool progress = false;
    uint32_t count = 0;
    fabric->now_ns = clock_now_ns();
    peers_poll(fabric, &progress);
    stage_poll(fabric, &progress);
    tickets_post(fabric, &progress);
    peers_close_broken(fabric);
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

struct device_reach_statistics fabric_staging(const struct fabric *fabric)
{
    struct device_reach_statistics sum = {0};
    for (uint32_t r = 0; fabric->stages != NULL && r < fabric->config.rank_count; r++) {
        const struct device_reach *reach = fabric->ranks[r].reach;
        struct device_reach_statistics one = reach->ops->statistics(reach);
        sum.batches += one.batches;
        sum.bytes += one.bytes;
        sum.copy_ns += one.copy_ns;
    }
    return sum;
}

bool fabric_quiet(const struct fabric *fabric)
{
    return fabric->tickets_live == 0 && !stage_landing(fabric);
}

bool fabric_awaits(const struct fabric *fabric)
{
    return fabric->immediates.awaited > 0;
}
