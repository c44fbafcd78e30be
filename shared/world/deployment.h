/* From a scenario and a choice of counts and shardings to the nodes of a run: who is who, where each stands, how many
 * KV pages it has, whom it knows. The same deployment is simulated and launched.
 *
 * Node 0 is the front; the instances follow in the order of the scenario's pools. placement.h says where each stands.
 */
#ifndef TANDEM_WORLD_DEPLOYMENT_H
#define TANDEM_WORLD_DEPLOYMENT_H

#include "world/placement.h"
#include "world/scenario/scenario.h"
#include "world/load/trace_reader.h"
#include "model/footprint.h"
#include "node.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct deployment_choice {
    uint32_t pool_count; /* equal to the scenario's */
    struct {
        uint32_t count;    /* instances; 0 leaves the pool out */
        uint32_t sharding; /* index in the pool's shardings */
    } pool[SCENARIO_POOLS_MAX];
};

/* What `run` uses: the pools' own counts, the first sharding of each. */
struct deployment_choice deployment_default(const struct scenario *scenario);

/* What may come, which sizes every node. */
struct deployment_sizes {
    uint32_t requests_together;   /* that may arrive at one instant: a burst, the clients of a closed loop */
    uint32_t request_tokens_max;  /* prompt and output */
    uint32_t request_blocks_max;  /* prefix blocks; 0: none */
    uint32_t prefix_block_tokens; /* 0: none */
    bool windows_in_pages;        /* as the real runtime lays KV out: pages hold windowed layers whole, everywhere */
};
struct deployment_sizes deployment_sizes(const struct load *load);

/* The same where the load is a trace, of its rows; `trace` is NULL where it is not. */
struct deployment_sizes deployment_sizes_traced(const struct load *load, const struct trace_file *trace);

#define DEPLOYMENT_NO_MACHINE UINT32_MAX

/* Requests that may wait at an instance beyond those it works on and those that arrive together, unless its pool says
 * otherwise. An open load above what the deployment can serve fills any queue; past this it is turned away instead of
 * growing memory. */
#define DEPLOYMENT_QUEUE_MAX 2048u

struct deployment_instance {
    char name[48];               /* "prefill-0"; "front" */
    uint32_t pool;               /* index in the scenario; UINT32_MAX for the front */
    uint32_t ranks;              /* 0 for the front */
    struct instance_place place; /* DEPLOYMENT_NO_MACHINE for the front */
    struct parallelism parallelism;
    struct footprint footprint;
};

struct deployment {
    uint32_t node_count;
    struct node_config *configs;           /* [node_count]; peers point into `peers` */
    struct deployment_instance *instances; /* [node_count] */
    struct peer_config *peers;
    uint32_t machines;
    uint32_t gpus;                /* that instances use */
    uint64_t usd_micros_per_hour; /* of whole machines, as they are rented */
};

/* NULL with a sentence in `error` when an instance does not fit its machines (with the numbers), a layout is refused,
 * or a limit is exceeded. Immutable once made; may be shared by threads. */
struct deployment *deployment_make(const struct scenario *scenario, const struct deployment_choice *choice,
                                   const struct deployment_sizes *sizes, uint64_t seed, struct user_error *error);
void deployment_free(struct deployment *deployment);

/* How much KV an instance of a pool holds, and what is left beside weights and activations for it. */
struct kv_capacity {
    struct footprint footprint; /* of its tightest rank */
    uint64_t tokens;            /* of the instance: all its attention groups */
};

/* The capacity under one of the pool's shardings if the pool's memory share were `change_permille` larger: 30 and -30
 * tell how much of an answer hangs on a share that nobody measured. A share stays within 0.1 and 100 %. False with a
 * sentence where the instance does not fit; *capacity says by how much, and its tokens are 0. */
bool deployment_kv_capacity(const struct scenario *scenario, const struct pool *pool, uint32_t sharding,
                            int32_t change_permille, struct kv_capacity *capacity, struct user_error *error);

/* Pairs of a prefiller and a decoder that the front makes, by what joins them; of all pools, or of two. */
#define DEPLOYMENT_ANY_POOL UINT32_MAX
struct deployment_paths {
    uint64_t by_nvlink;
    uint64_t by_nic;
};
struct deployment_paths deployment_paths(const struct deployment *deployment, uint32_t prefill_pool,
                                         uint32_t decode_pool);

/* "NVLink", "NIC", "NVLink, NIC"; "none" where nothing is handed over. */
const char *deployment_paths_name(const struct deployment_paths *paths);

/* "TP8", "DP8 EP8", "TP4 PP2": as the field writes it. */
void parallelism_text(const struct parallelism *parallelism, char *text, size_t size);

#endif
