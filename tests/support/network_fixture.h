/* Machines and transfer plans for tests of the network. */
#ifndef TANDEM_TESTS_SUPPORT_NETWORK_FIXTURE_H
#define TANDEM_TESTS_SUPPORT_NETWORK_FIXTURE_H

#include "sim/net/network.h"

#include <stdbool.h>
#include <stdint.h>

#define GB UINT64_C(1000000000)

/* A NIC of 1 GB/s without any cost per write: transfer times can be worked out by hand. */
struct hardware simple_hardware(void);

/* `nodes` instances of `ranks` ranks, each on a host of its own. */
struct network *network_of(const struct hardware *hardware, uint32_t nodes, uint32_t ranks, bool per_layer);

/* One write a unit, layer, plane and rank, rank i to rank i. The caller frees it. */
struct transfer_plan *plan_straight(uint32_t ranks, uint16_t layers, uint16_t planes, uint32_t run_bytes);

#endif
