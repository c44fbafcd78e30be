/* See real_world.h. */
#define _GNU_SOURCE
#include "real/cluster/real_world.h"

#include "base/arith.h"
#include "host/build_info.h"
#include "real/control/mesh.h"
#include "real/executor/executor.h"
#include "real/fabric/fabric_thread.h"
#include "run/run.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Floats that ranks exchange at a time; longer vectors go in pieces. */
#define COLLECTIVE_FLOATS 65536u

/* Tokens of a request: all of them fit one frame of the control plane beside their message, and one mailbox. */
#define REQUEST_TOKENS_REAL_MAX 131072u

bool real_world_check(const struct real_world *world, const char *file, struct user_error *error)
{
    const struct scenario *scenario = world->scenario;
    if (scenario->faults != NULL)
        user_error_set(error, file, 0, "faults", "they are played in simulation alone (--backend sim)");
    if (scenario->messenger.handoffs_max > FABRIC_REPORTS_MAX / 4)
        user_error_set(error, file, 0, "messenger.handoffs_max", "for a real run at most %u, not %u",
                       FABRIC_REPORTS_MAX / 4, scenario->messenger.handoffs_max);
    if (world->deployment->configs[0].request_tokens_max > REQUEST_TOKENS_REAL_MAX)
        user_error_set(error, file, 0, "load", "for a real run requests of at most %u tokens, not %u",
                       REQUEST_TOKENS_REAL_MAX, world->deployment->configs[0].request_tokens_max);
    for (uint32_t i = 1; i < world->deployment->node_count; i++) {
        const char *name = world->deployment->instances[i].name;
        if (world->deployment->instances[i].ranks > RANKS_MAX)
            user_error_set(error, file, 0, NULL, "%s has more than %d ranks", name, RANKS_MAX);
        if (world->deployment->configs[i].scheduler.draft_tokens > 0)
            user_error_set(error, file, 0, NULL, "%s drafts tokens; in a real run a step yields one", name);
    }
    return !error->set;
}

bool real_world_load(struct real_world *world, const char *path, const struct scenario_override *sets, size_t set_count,
                     int64_t seed, struct user_error *error)
{
    *world = (struct real_world){.own_scenario = scenario_load(path, sets, set_count, error)};
    const struct scenario *scenario = world->scenario = world->own_scenario;
    if (scenario == NULL)
        return false;
    world->seed = seed < 0 ? scenario->seed : (uint64_t)seed;
    world->recorded = world->own_recorded = scenario_trace(scenario, error);
    if (error->set)
        return false;
    struct deployment_choice choice = deployment_default(scenario);
    struct deployment_sizes sizes = deployment_sizes_traced(&scenario->load, world->recorded);
    sizes.windows_in_pages = true;
    struct user_error why = {.set = false};
    world->deployment = world->own_deployment = deployment_make(scenario, &choice, &sizes, world->seed, &why);
    if (world->deployment == NULL) {
        user_error_set(error, scenario->path, 0, NULL, "%s", why.text);
        return false;
    }
    return real_world_check(world, scenario->path, error);
}

void real_world_free(struct real_world *world)
{
    deployment_free(world->own_deployment);
    trace_file_free(world->own_recorded);
    if (world->own_scenario != NULL)
        scenario_free(world->own_scenario);
    *world = (struct real_world){0};
}

bool real_world_acquainted(const struct real_world *world, uint32_t a, uint32_t b)
{
    const struct node_config *config = &world->deployment->configs[a];
    for (uint32_t i = 0; i < config->peer_count; i++)
        if (config->peers[i].node == b)
            return true;
    return false;
}

bool real_world_has_fabric(const struct real_world *world, uint32_t node)
{
    enum node_role role = world->deployment->configs[node].role;
    return role == ROLE_PREFILL || role == ROLE_DECODE;
}

/* A prefiller keeps a tail in the slot of its sequence, a decoder in that of the hand-off. */
struct kv_memory real_world_kv_memory(const struct real_world *world, uint32_t node)
{
    const struct node_config *config = &world->deployment->configs[node];
    struct kv_memory memory = {
        .geometry = config->geometry,
        .pages = config->pages_per_group,
        .tail_bytes = config->tail_writes > 0 ? config->tail_bytes : 0,
    };
    if (memory.tail_bytes > 0 && config->role == ROLE_PREFILL)
        memory.tail_slots = config->requests_max;
    else if (memory.tail_bytes > 0 && config->role == ROLE_DECODE)
        memory.tail_slots = config->messenger.handoffs_max;
    return memory;
}

struct executor_setup real_world_executor_setup(const struct real_world *world, uint32_t node, const char *device)
{
    const struct node_config *config = &world->deployment->configs[node];
    struct executor_setup setup = {
        .architecture = world->scenario->model,
        .memory = real_world_kv_memory(world, node),
        .weight_seed = world->seed,
        .ranks = world->deployment->instances[node].ranks,
        .groups = config->group_count,
        .sequences_max = config->requests_max,
        .tokens_max = max_u32(node_prefills(config) ? config->scheduler.token_budget : 0,
                              config->role == ROLE_PREFILL ? 0 : config->scheduler.batch_max),
        .request_tokens_max = config->request_tokens_max,
        .request_pages_max =
            min_u32(config->pages_per_group, kv_pages(&config->geometry, config->request_tokens_max) + 1),
        .prefill_tokens = config->role != ROLE_PREFILL && node_prefills(config),
        .stores_tails = config->role == ROLE_PREFILL,
        .lanes = executor_overlaps(device) ? config->geometry.parallelism.pipeline : 1,
        .collective_floats = COLLECTIVE_FLOATS,
    };
    snprintf(setup.device, sizeof setup.device, "%s", device);
    return setup;
}

uint32_t real_world_ranks_before(const struct real_world *world, uint32_t node)
{
    uint32_t ranks = 0;
    for (uint32_t i = 1; i < node; i++)
        ranks += world->deployment->instances[i].ranks;
    return ranks;
}

bool real_world_crowded(uint32_t ranks, uint32_t instances)
{
    cpu_set_t allowed;
    uint32_t processors = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (uint32_t)CPU_COUNT(&allowed) : 1;
    return ranks + 2 * instances + 1 > processors;
}

struct runtime_limits real_world_limits(void)
{
    return (struct runtime_limits){.writes_in_flight = REAL_WRITES_IN_FLIGHT, .message_bytes = MESSAGE_BYTES_MAX};
}

void real_world_hello(const struct real_world *world, uint32_t node, const unsigned char *token, struct hello *hello)
{
    *hello = (struct hello){.protocol = CONTROL_PROTOCOL, .node = node};
    memcpy(hello->token, token, sizeof hello->token);
    memcpy(hello->scenario, world->scenario->identity, sizeof hello->scenario);
    snprintf(hello->build, sizeof hello->build, "%s", build_identity);
    control_clock_identity(hello->clock);
}
