/* See network_fixture.h. */
#include "support/network_fixture.h"

#include "base/check.h"

#include <stdlib.h>

struct hardware simple_hardware(void)
{
    return (struct hardware){
        .nic = {.bytes_per_s = GB, .knee_permille = 1000},
        .nvlink_bytes_per_s = 8 * GB,
    };
}

struct network *network_of(const struct hardware *hardware, uint32_t nodes, uint32_t ranks, bool per_layer)
{
    struct network_node list[16];
    CHECK(nodes <= 16);
    for (uint32_t i = 0; i < nodes; i++)
        list[i] = (struct network_node){.ranks = ranks, .nvlink_domain = i, .hardware = *hardware};
    return network_make(list, nodes, per_layer);
}

struct transfer_plan *plan_straight(uint32_t ranks, uint16_t layers, uint16_t planes, uint32_t run_bytes)
{
    struct transfer_plan *plan = calloc(1, sizeof *plan);
    CHECK(plan != NULL);
    plan->planes = planes;
    plan->layers = layers;
    plan->pair_count = ranks;
    for (uint32_t i = 0; i < ranks; i++)
        plan->pairs[i] = (struct transfer_pair){.source_rank = (uint16_t)i,
                                                .destination_rank = (uint16_t)i,
                                                .layer_count = layers,
                                                .runs = 1,
                                                .run_bytes = run_bytes};
    plan->writes_per_unit = (uint64_t)ranks * layers * planes;
    plan->bytes_per_unit = plan->writes_per_unit * run_bytes;
    return plan;
}
