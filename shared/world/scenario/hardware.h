/* A machine as the cost and network models see it, filled from scenarios/hardware. Every value there names its
 * source. */
#ifndef TANDEM_WORLD_SCENARIO_HARDWARE_H
#define TANDEM_WORLD_SCENARIO_HARDWARE_H

#include "world/scenario/step_table.h"

#include <stdint.h>

/* A NIC, or the bundle of NICs next to one GPU. One write of b bytes alone takes base_ns + b / bytes_per_s. In a stream
 * of paged writes each of b bytes takes (gap^p + (b / bytes_per_s)^p)^(1/p). */
struct nic {
    char name[32];
    int64_t base_ns;         /* a: latency of a single write */
    uint64_t bytes_per_s;    /* B: one direction */
    int64_t gap_ps;          /* g: least time between writes, picoseconds */
    uint32_t knee_permille;  /* p * 1000 */
    int64_t posting_ps;      /* processor time of a posting thread per write */
    uint32_t posts_together; /* 1: one thread posts for all ranks of an instance; 0: each rank has its own */
    uint32_t queue_depth;    /* writes outstanding per NIC */
};

#define GPU_NICS_MAX 64 /* GPUs of a machine that may list their NICs */

struct hardware {
    char name[64];
    char gpu[16];             /* "H100", "H200", ...: selects the measured kernels; empty: only `steps` */
    char kernel_folder[1024]; /* packs of measured kernels beside the scenario; "": only the library's */
    uint32_t gpus_per_node;
    uint32_t nics_per_node;         /* fewer than GPUs: neighbours share one; 0: one a GPU, or as gpu_nics says */
    uint8_t gpu_nics[GPU_NICS_MAX]; /* of each GPU, the NIC that it uses, from 1; [0] is 0: nics_per_node says */
    uint32_t nvlink_gpus;           /* that NVLink joins, of several machines; 0: those of a machine */
    uint32_t instances_by_nic;      /* 1: instances reach each other over NICs, whatever joins their GPUs */
    uint64_t memory_bytes;          /* per GPU */
    uint64_t memory_bytes_per_s;
    uint64_t bf16_flops;              /* dense, per second */
    uint64_t fp8_flops;               /* 0: no fp8 units; fp8 weights are computed in bf16 */
    uint64_t fp4_flops;               /* 0: none */
    uint64_t nvlink_bytes_per_s;      /* per GPU, one direction */
    struct nic nic;                   /* each */
    int64_t watcher_ns;               /* from a layer's tick to its writes being posted (p50) */
    int64_t poll_ns;                  /* from the last write landing to the engine knowing */
    int64_t message_ns;               /* one-way latency of a control message */
    int64_t arm_ns;                   /* longer: where the sender first arms a count that its message allows to rise */
    uint64_t usd_micros_per_gpu_hour; /* 1e-6 $ */
    char price_basis[96];             /* "on demand, AWS p5en, 2026-03" */
    const struct step_tables *steps;  /* measured on this machine, of some models; NULL: none */
};

/* NICs of a machine, and which of them a GPU uses. */
static inline uint32_t hardware_nics(const struct hardware *hardware)
{
    uint32_t nics = hardware->nics_per_node == 0 ? hardware->gpus_per_node : hardware->nics_per_node;
    if (hardware->gpu_nics[0] == 0)
        return nics;
    nics = 1;
    for (uint32_t g = 0; g < hardware->gpus_per_node; g++)
        if (hardware->gpu_nics[g] > nics)
            nics = hardware->gpu_nics[g];
    return nics;
}

static inline uint32_t hardware_nic_of(const struct hardware *hardware, uint32_t gpu)
{
    if (hardware->gpu_nics[0] != 0)
        return hardware->gpu_nics[gpu] - 1u;
    return (uint32_t)((uint64_t)gpu * hardware_nics(hardware) / hardware->gpus_per_node);
}

/* The most GPUs that share one. */
static inline uint32_t hardware_nic_gpus(const struct hardware *hardware)
{
    uint32_t most = 1;
    for (uint32_t g = 0; g < hardware->gpus_per_node; g++) {
        uint32_t sharing = 0;
        for (uint32_t other = 0; other < hardware->gpus_per_node; other++)
            sharing += hardware_nic_of(hardware, other) == hardware_nic_of(hardware, g);
        most = sharing > most ? sharing : most;
    }
    return most;
}

#endif
