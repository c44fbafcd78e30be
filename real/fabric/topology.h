/* Which NICs are near to which rank.
 *
 * The rule. A rank has a place in the machine: of a GPU its PCI device, of a host executor the NUMA node that it is
 * confined to. A NIC has a place too, that of its PCI device, or none that is known (loopback, virtual devices, shared
 * memory). The distance of the two is 0 under a common PCI switch or bridge below the root, 1 under the same NUMA node,
 * 2 in the same package, 3 within the machine; where either place is unknown it is 3. Of the NICs a rank gets those at
 * the least distance it has to any. Ranks that have the same nearest NICs share them out: with at least as many NICs as
 * such ranks, the k-th of n ranks gets the NICs [k * count / n, (k + 1) * count / n) of them in the order of their
 * numbers, so that no NIC has two masters and none idles; with fewer, the NIC k * count / n. On a machine that tells
 * nothing all NICs are equally near to all ranks, and that is the plain sharing by number.
 */
#ifndef TANDEM_REAL_FABRIC_TOPOLOGY_H
#define TANDEM_REAL_FABRIC_TOPOLOGY_H

#include "base/limits.h"

#include <hwloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TOPOLOGY_NICS_MAX 16

/* A place as its system names it. */
enum place_kind {
    PLACE_UNKNOWN = 0,
    PLACE_PCI = 1,  /* domain:bus:device.function */
    PLACE_NUMA = 2, /* number of a NUMA node, as the operating system counts */
};

struct place {
    enum place_kind kind;
    uint32_t number; /* of a node */
    uint16_t domain;
    uint8_t bus;
    uint8_t device;
    uint8_t function;
};

enum nic_distance { NIC_SAME_SWITCH = 0, NIC_SAME_NUMA = 1, NIC_SAME_PACKAGE = 2, NIC_ANYWHERE = 3 };
extern const char *const nic_distance_names[]; /* "same PCI switch", ... */

/* The NICs of each rank, at least one. */
struct nic_choice {
    uint32_t ranks;
    uint8_t count[RANKS_MAX];
    uint8_t distance[RANKS_MAX]; /* enum nic_distance */
    uint8_t nics[RANKS_MAX][TOPOLOGY_NICS_MAX];
};

/* Bit n: NIC n is the rank's. */
static inline uint32_t nic_choice_set(const struct nic_choice *choice, uint32_t rank)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < choice->count[rank]; i++)
        set |= UINT32_C(1) << choice->nics[rank][i];
    return set;
}

enum nic_distance topology_distance(hwloc_topology_t topology, const struct place *rank, const struct place *nic);

/* By the rule above. There is at least one NIC, and at most TOPOLOGY_NICS_MAX. */
void topology_choose(hwloc_topology_t topology, const struct place *ranks, uint32_t rank_count,
                     const struct place *nics, uint32_t nic_count, struct nic_choice *choice);

/* This machine's, with its PCI devices. NULL: it cannot be told. */
hwloc_topology_t topology_load(void);

/* Of a PCI device by "domain:bus:device.function"; unknown when the text is not one. */
struct place place_of_device(const char *pci);

/* The NUMA node that a process is confined to; unknown when it may run on several. */
struct place place_of_process(hwloc_topology_t topology, pid_t process);

#endif
