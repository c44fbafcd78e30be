/* See placement.h. */
#include "world/placement.h"

#include "base/arith.h"
#include "base/check.h"
#include "host/memory.h"
#include "host/user_error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct machine {
    const struct hardware *hardware; /* NULL: nobody stands here */
    uint32_t used;                   /* GPUs, from the first */
    uint32_t pools;                  /* a bit for each that stands here */
};

struct builder {
    const struct scenario *scenario;
    const struct placement_demand *demand;
    struct machine *machines;
    uint32_t machine_count; /* of the list, that anybody has stood on */
};

/* Machines that pools may share: of one name, unless a scenario changed for one of them what instances share. */
static bool same_hardware(const struct hardware *a, const struct hardware *b)
{
    return strcmp(a->name, b->name) == 0 && a->gpus_per_node == b->gpus_per_node &&
           a->nics_per_node == b->nics_per_node && memcmp(a->gpu_nics, b->gpu_nics, sizeof a->gpu_nics) == 0 &&
           a->nvlink_gpus == b->nvlink_gpus && a->nvlink_bytes_per_s == b->nvlink_bytes_per_s &&
           a->instances_by_nic == b->instances_by_nic && a->nic.bytes_per_s == b->nic.bytes_per_s &&
           a->nic.base_ns == b->nic.base_ns && a->nic.gap_ps == b->nic.gap_ps && strcmp(a->nic.name, b->nic.name) == 0;
}

/* Whether KV is handed over between instances of the two. */
static bool exchange(const struct pool *a, const struct pool *b)
{
    return (a->role == ROLE_PREFILL && b->role == ROLE_DECODE) || (a->role == ROLE_DECODE && b->role == ROLE_PREFILL);
}

/* Whether instances of `pool` keep off machines with instances of `other`, says the placement of `pool`. */
static bool keeps_off(const struct pool *pool, const struct pool *other)
{
    switch (pool->placement.kind) {
    case PLACEMENT_APART:
        return exchange(pool, other);
    case PLACEMENT_APART_FROM:
        return strcmp(pool->placement.pool, other->name) == 0;
    case PLACEMENT_SPREAD:
        return pool == other;
    case PLACEMENT_PACKED:
    case PLACEMENT_BESIDE:
    case PLACEMENT_LISTED:
        break;
    }
    return false;
}

/* Pools with which an instance of this one shares no machine, says either of them. */
static uint32_t pools_avoided(const struct scenario *scenario, uint32_t index)
{
    const struct pool *pool = &scenario->pools[index];
    uint32_t avoided = 0;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        if (keeps_off(pool, &scenario->pools[p]) || keeps_off(&scenario->pools[p], pool))
            avoided |= 1u << p;
    return avoided;
}

/* Beside another pool: the machine that has room, one of its instances, and the fewest of this pool. */
static uint32_t machine_beside(const struct builder *builder, uint32_t index, uint32_t ranks)
{
    const struct scenario *scenario = builder->scenario;
    uint32_t wanted = 0;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        if (strcmp(scenario->pools[p].name, scenario->pools[index].placement.pool) == 0)
            wanted = 1u << p;
    uint32_t best = UINT32_MAX;
    for (uint32_t m = 0; m < builder->machine_count; m++) {
        const struct machine *machine = &builder->machines[m];
        if (machine->hardware == NULL || (machine->pools & wanted) == 0 ||
            !same_hardware(machine->hardware, &scenario->pools[index].hardware) ||
            machine->used + ranks > machine->hardware->gpus_per_node)
            continue;
        if (best == UINT32_MAX || machine->used < builder->machines[best].used)
            best = m;
    }
    return best;
}

/* The first machine with room that the placements allow, UINT32_MAX where there is none. */
static uint32_t machine_shared(const struct builder *builder, uint32_t index, uint32_t ranks)
{
    const struct pool *pool = &builder->scenario->pools[index];
    uint32_t avoided = pools_avoided(builder->scenario, index);
    for (uint32_t m = 0; m < builder->machine_count; m++) {
        const struct machine *machine = &builder->machines[m];
        if (machine->hardware != NULL && same_hardware(machine->hardware, &pool->hardware) &&
            (machine->pools & avoided) == 0 && machine->used + ranks <= machine->hardware->gpus_per_node)
            return m;
    }
    return UINT32_MAX;
}

/* The first of `count` machines in a row that nobody stands on. */
static uint32_t machines_empty(const struct builder *builder, uint32_t count)
{
    uint32_t row = 0;
    uint32_t m = 0;
    for (; row < count; m++)
        row = m >= builder->machine_count || builder->machines[m].hardware == NULL ? row + 1 : 0;
    return m - count;
}

static void stand(struct builder *builder, uint32_t index, uint32_t machine, struct instance_place *place)
{
    const struct hardware *hardware = &builder->scenario->pools[index].hardware;
    uint32_t ranks = builder->demand[index].ranks;
    place->machine = machine;
    place->machines = ceil_div_u32(ranks, hardware->gpus_per_node);
    place->gpu = builder->machines[machine].used;
    for (uint32_t m = machine; m < machine + place->machines; m++) {
        builder->machines[m].hardware = hardware;
        builder->machines[m].pools |= 1u << index;
        builder->machines[m].used = place->machines > 1 ? hardware->gpus_per_node : builder->machines[m].used + ranks;
    }
    builder->machine_count = max_u32(builder->machine_count, machine + place->machines);
}

static void place_freely(struct builder *builder, uint32_t index, struct instance_place *places)
{
    const struct pool *pool = &builder->scenario->pools[index];
    uint32_t ranks = builder->demand[index].ranks;
    uint32_t needed = ceil_div_u32(ranks, pool->hardware.gpus_per_node);
    for (uint32_t i = 0; i < builder->demand[index].count; i++) {
        uint32_t machine = UINT32_MAX;
        if (needed == 1 && pool->placement.kind == PLACEMENT_BESIDE)
            machine = machine_beside(builder, index, ranks);
        if (needed == 1 && machine == UINT32_MAX)
            machine = machine_shared(builder, index, ranks);
        if (machine == UINT32_MAX)
            machine = machines_empty(builder, needed);
        stand(builder, index, machine, &places[i]);
    }
}

static bool place_listed(struct builder *builder, uint32_t index, struct instance_place *places,
                         struct user_error *error)
{
    const struct pool *pool = &builder->scenario->pools[index];
    const struct placement *list = &pool->placement;
    uint32_t ranks = builder->demand[index].ranks;
    uint32_t gpus = pool->hardware.gpus_per_node;
    uint32_t needed = ceil_div_u32(ranks, gpus);
    if (builder->demand[index].count > list->machine_count) {
        user_error_set(error, NULL, 0, NULL, "pool %s: placement lists %" PRIu32 " machines for %" PRIu32 " instances",
                       pool->name, list->machine_count, builder->demand[index].count);
        return false;
    }
    for (uint32_t i = 0; i < builder->demand[index].count; i++) {
        uint32_t first = list->machines[i] - 1u;
        for (uint32_t m = first; m < first + needed; m++) {
            const struct machine *machine = &builder->machines[m];
            bool other = machine->hardware != NULL && !same_hardware(machine->hardware, &pool->hardware);
            if (!other && machine->used + (needed > 1 ? gpus : ranks) <= gpus)
                continue;
            if (other)
                user_error_set(error, NULL, 0, NULL,
                               "pool %s: placement puts %s-%" PRIu32 " on machine %" PRIu32
                               ", which is another pool's %s",
                               pool->name, pool->name, i, m + 1, machine->hardware->name);
            else
                user_error_set(error, NULL, 0, NULL,
                               "pool %s: placement puts %s-%" PRIu32 " on machine %" PRIu32 ", where %" PRIu32
                               " of %" PRIu32 " GPUs are left for %" PRIu32 " ranks",
                               pool->name, pool->name, i, m + 1, gpus - machine->used, gpus, ranks);
            return false;
        }
        stand(builder, index, first, &places[i]);
    }
    return true;
}

/* The first machine of the domain that the machine lies in. Where NVLink joins several machines, those of one hardware
 * make up domains in the order of their numbers. */
static uint32_t domain_of(const struct builder *builder, uint32_t machine)
{
    const struct hardware *hardware = builder->machines[machine].hardware;
    uint32_t size = hardware->nvlink_gpus / hardware->gpus_per_node;
    uint32_t before = 0;
    uint32_t first = machine;
    if (size <= 1)
        return machine;
    for (uint32_t m = 0; m <= machine; m++) {
        const struct machine *other = &builder->machines[m];
        if (other->hardware == NULL || !same_hardware(other->hardware, hardware))
            continue;
        if (before++ % size == 0)
            first = m;
    }
    return first;
}

static void join_by_nvlink(const struct builder *builder, struct instance_place *places, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct instance_place *place = &places[i];
        place->nvlink_domain = domain_of(builder, place->machine);
        bool whole = domain_of(builder, place->machine + place->machines - 1) == place->nvlink_domain;
        if (!whole || builder->machines[place->machine].hardware->instances_by_nic)
            place->nvlink_domain = builder->machine_count + i;
    }
}

static void sum_up(const struct builder *builder, struct placement_totals *totals)
{
    *totals = (struct placement_totals){.machines = 0};
    for (uint32_t m = 0; m < builder->machine_count; m++) {
        const struct hardware *hardware = builder->machines[m].hardware;
        if (hardware == NULL)
            continue;
        totals->machines++;
        totals->usd_micros_per_hour += (uint64_t)hardware->gpus_per_node * hardware->usd_micros_per_gpu_hour;
    }
    for (uint32_t p = 0; p < builder->scenario->pool_count; p++)
        totals->gpus += builder->demand[p].count * builder->demand[p].ranks;
}

bool placement_make(const struct scenario *scenario, const struct placement_demand *demand,
                    struct instance_place *places, struct placement_totals *totals, struct user_error *error)
{
    struct builder builder = {.scenario = scenario, .demand = demand};
    uint32_t first[SCENARIO_POOLS_MAX + 1] = {0};
    size_t most = 0;
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        uint32_t needed = ceil_div_u32(demand[p].ranks, scenario->pools[p].hardware.gpus_per_node);
        first[p + 1] = first[p] + demand[p].count;
        most += 2 * (size_t)demand[p].count * needed; /* and gaps between listed ones that are too short */
        for (uint32_t i = 0; i < scenario->pools[p].placement.machine_count; i++)
            most = max_u64(most, (uint64_t)scenario->pools[p].placement.machines[i] + needed);
    }
    most *= 2;
    builder.machines = memory_zeroed(most + 1, sizeof *builder.machines);
    bool good = true;
    for (int listed = 1; listed >= 0; listed--)
        for (uint32_t p = 0; good && p < scenario->pool_count; p++) {
            if ((scenario->pools[p].placement.kind == PLACEMENT_LISTED) != (listed == 1))
                continue;
            if (listed)
                good = place_listed(&builder, p, &places[first[p]], error);
            else
                place_freely(&builder, p, &places[first[p]]);
        }
    if (good) {
        join_by_nvlink(&builder, places, first[scenario->pool_count]);
        sum_up(&builder, totals);
    }
    free(builder.machines);
    return good;
}
