/* What every process of a run makes for itself from the same scenario file and the same options: scenario, deployment,
 * layouts. Nothing of it travels; the identities of scenario and build are compared when processes meet.
 */
#ifndef TANDEM_REAL_CLUSTER_REAL_WORLD_H
#define TANDEM_REAL_CLUSTER_REAL_WORLD_H

#include "world/deployment.h"
#include "world/scenario/scenario_lua.h"
#include "world/load/trace_reader.h"
#include "real/control/frame.h"
#include "real/cluster/real_options.h"
#include "real/fabric/fabric.h"
#include "real/memory/kv_memory.h"
#include "real/executor/mailbox.h"

/* Tickets of one node in flight. */
#define REAL_WRITES_IN_FLIGHT 1024u

struct real_world {
    const struct scenario *scenario;
    const struct trace_file *recorded; /* of a trace load, else NULL */
    const struct deployment *deployment;
    uint64_t seed;
    /* What real_world_load() made; NULL where it is borrowed. */
    struct scenario *own_scenario;
    struct trace_file *own_recorded;
    struct deployment *own_deployment;
};

/* Whether the world can be run for real: not everything that can be simulated. `file` is named in the error. */
bool real_world_check(const struct real_world *world, const char *file, struct user_error *error);

/* Loads the scenario and deploys it. False with an error; free in either case. */
bool real_world_load(struct real_world *world, const char *path, const struct scenario_override *sets, size_t set_count,
                     int64_t seed, struct user_error *error);
void real_world_free(struct real_world *world);

/* Two nodes that work with each other, and hence are connected. */
bool real_world_acquainted(const struct real_world *world, uint32_t a, uint32_t b);

/* The node reads or writes remote KV. */
bool real_world_has_fabric(const struct real_world *world, uint32_t node);

struct kv_memory real_world_kv_memory(const struct real_world *world, uint32_t node);
struct executor_setup real_world_executor_setup(const struct real_world *world, uint32_t node, const char *device);

/* Ranks of all instances before `node`; of all instances where it is the number of nodes. */
uint32_t real_world_ranks_before(const struct real_world *world, uint32_t node);

/* Whether so many ranks and instances have more to run at a time on this machine than it has processors for: an
 * executor a rank, a loop and a fabric thread an instance, and the front. */
bool real_world_crowded(uint32_t ranks, uint32_t instances);

/* Limits of every node's runtime. */
struct runtime_limits real_world_limits(void);

/* What a process says when it dials. */
void real_world_hello(const struct real_world *world, uint32_t node, const unsigned char *token, struct hello *hello);

#endif
