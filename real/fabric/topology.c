/* See topology.h. */
#include "real/fabric/topology.h"

#include <stdlib.h>
#include <string.h>

const char *const nic_distance_names[] = {"same PCI switch", "same NUMA node", "same package", "anywhere"};

hwloc_topology_t topology_load(void)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return NULL;
    /* Bridges matter, not only devices; what else I/O is made of does not. */
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology) == 0)
        return topology;
    hwloc_topology_destroy(topology);
    return NULL;
}

/* NULL: unknown here. */
static hwloc_obj_t object_of(hwloc_topology_t topology, const struct place *place)
{
    if (topology == NULL)
        return NULL;
    switch (place->kind) {
    case PLACE_PCI:
        return hwloc_get_pcidev_by_busid(topology, place->domain, place->bus, place->device, place->function);
    case PLACE_NUMA:
        return hwloc_get_numanode_obj_by_os_index(topology, place->number);
    case PLACE_UNKNOWN:
        break;
    }
    return NULL;
}

/* A bridge below the host's that both hang from. Under the host bridge itself everything of a root complex meets, and
 * that says no more than the NUMA node does. */
static bool same_switch(hwloc_obj_t a, hwloc_obj_t b)
{
    for (hwloc_obj_t over = a->parent; over != NULL; over = over->parent) {
        if (over->type != HWLOC_OBJ_BRIDGE || over->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI)
            continue;
        for (hwloc_obj_t at = b->parent; at != NULL; at = at->parent)
            if (at == over)
                return true;
    }
    return false;
}

/* Where a device, or a core, sits among cores. */
static hwloc_obj_t seat_of(hwloc_topology_t topology, hwloc_obj_t object)
{
    return object->cpuset != NULL ? object : hwloc_get_non_io_ancestor_obj(topology, object);
}

enum nic_distance topology_distance(hwloc_topology_t topology, const struct place *rank, const struct place *nic)
{
    hwloc_obj_t a = object_of(topology, rank);
    hwloc_obj_t b = object_of(topology, nic);
    if (a == NULL || b == NULL)
        return NIC_ANYWHERE;
    if (a == b || same_switch(a, b))
        return NIC_SAME_SWITCH;
    hwloc_obj_t seat = seat_of(topology, a);
    hwloc_obj_t other = seat_of(topology, b);
    hwloc_const_nodeset_t nodes = hwloc_topology_get_topology_nodeset(topology);
    /* A device that hangs from the whole machine has no seat: its node set is everybody's. */
    bool whole = hwloc_bitmap_weight(nodes) > 1 &&
                 (hwloc_bitmap_isequal(seat->nodeset, nodes) || hwloc_bitmap_isequal(other->nodeset, nodes));
    if (whole)
        return NIC_ANYWHERE;
    if (hwloc_bitmap_isequal(seat->nodeset, other->nodeset) && hwloc_bitmap_weight(nodes) > 1)
        return NIC_SAME_NUMA;
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, seat);
    hwloc_obj_t package_other = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, other);
    if (seat->type == HWLOC_OBJ_PACKAGE)
        package = seat;
    if (other->type == HWLOC_OBJ_PACKAGE)
        package_other = other;
    return package != NULL && package == package_other ? NIC_SAME_PACKAGE : NIC_ANYWHERE;
}

/* The nearest NICs, as bits. */
static uint32_t nearest(hwloc_topology_t topology, const struct place *rank, const struct place *nics,
                        uint32_t nic_count, uint8_t *distance)
{
    uint32_t set = 0;
    *distance = NIC_ANYWHERE;
    for (uint32_t n = 0; n < nic_count; n++) {
        enum nic_distance here = topology_distance(topology, rank, &nics[n]);
        if (here < *distance)
            set = 0;
        if (here <= *distance)
            set |= UINT32_C(1) << n;
        *distance = here < *distance ? (uint8_t)here : *distance;
    }
    return set;
}

void topology_choose(hwloc_topology_t topology, const struct place *ranks, uint32_t rank_count,
                     const struct place *nics, uint32_t nic_count, struct nic_choice *choice)
{
    uint32_t sets[RANKS_MAX];
    memset(choice, 0, sizeof *choice);
    choice->ranks = rank_count;
    for (uint32_t r = 0; r < rank_count; r++)
        sets[r] = nearest(topology, &ranks[r], nics, nic_count, &choice->distance[r]);
    for (uint32_t r = 0; r < rank_count; r++) {
        uint8_t members[TOPOLOGY_NICS_MAX];
        uint32_t count = 0;
        uint32_t sharers = 0;
        uint32_t place = 0;
        for (uint32_t n = 0; n < nic_count; n++)
            if ((sets[r] >> n & 1) != 0)
                members[count++] = (uint8_t)n;
        for (uint32_t other = 0; other < rank_count; other++) {
            place += sets[other] == sets[r] && other < r;
            sharers += sets[other] == sets[r];
        }
        uint32_t first = place * count / sharers;
        uint32_t mine = (place + 1) * count / sharers - first;
        choice->count[r] = (uint8_t)(mine == 0 ? 1 : mine);
        memcpy(choice->nics[r], members + first, choice->count[r]);
    }
}

struct place place_of_device(const char *pci)
{
    static const char ends[] = {':', ':', '.', '\0'};
    unsigned long numbers[4] = {0};
    for (uint32_t i = 0; i < 4; i++) {
        char *end;
        numbers[i] = strtoul(pci, &end, 16);
        if (end == pci || *end != ends[i] || numbers[i] > (i == 0 ? UINT16_MAX : UINT8_MAX))
            return (struct place){.kind = PLACE_UNKNOWN};
        pci = end + 1;
    }
    return (struct place){.kind = PLACE_PCI,
                          .domain = (uint16_t)numbers[0],
                          .bus = (uint8_t)numbers[1],
                          .device = (uint8_t)numbers[2],
                          .function = (uint8_t)numbers[3]};
}

struct place place_of_process(hwloc_topology_t topology, pid_t process)
{
    struct place place = {.kind = PLACE_UNKNOWN};
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    if (topology != NULL && cores != NULL && nodes != NULL &&
        hwloc_get_proc_cpubind(topology, process, cores, HWLOC_CPUBIND_PROCESS) == 0 &&
        hwloc_cpuset_to_nodeset(topology, cores, nodes) == 0 && hwloc_bitmap_weight(nodes) == 1)
        place = (struct place){.kind = PLACE_NUMA, .number = (uint32_t)hwloc_bitmap_first(nodes)};
    hwloc_bitmap_free(cores);
    hwloc_bitmap_free(nodes);
    return place;
}
