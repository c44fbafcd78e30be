/* See step_plan.h. */
#include "real/calibrate/step_plan.h"

#include "base/arith.h"
#include "real/cluster/real_world.h"

#include <stdio.h>
#include <string.h>

/* Decode steps of a launch are timed in repetitions as a run makes them: long enough that the wake-up of the loop is
 * shared as it is there, short enough that the context does not move. */
#define REPEAT_MAX 8u

static struct step_limits limits_of(const struct node_config *config)
{
    const struct scheduler_policy *scheduler = &config->scheduler;
    bool prefills = node_prefills(config);
    bool decodes = config->role != ROLE_PREFILL;
    uint32_t chunk = scheduler->chunk_tokens == 0 ? scheduler->token_budget
                                                  : min_u32(scheduler->chunk_tokens, scheduler->token_budget);
    return (struct step_limits){
        .prefill_tokens = prefills ? scheduler->token_budget : 0,
        .chunk_tokens = prefills ? chunk : 0,
        .batch_max = decodes ? scheduler->batch_max : 0,
        .repeat = min_u32(scheduler->repeat_max, REPEAT_MAX),
        .request_tokens_max = config->request_tokens_max,
        .page_tokens = config->geometry.page_tokens,
        .pages = config->pages_per_group,
    };
}

/* The executors get room for batches that the axes ask for and a run would not make: one sequence more or longer. */
static void make_room(struct step_job *job)
{
    const struct step_limits *limits = &job->limits;
    struct executor_setup *setup = &job->setup;
    uint32_t chunks =
        limits->chunk_tokens == 0
            ? 0
            : (uint32_t)ceil_div_u64(limits->prefill_tokens, min_u32(limits->chunk_tokens, limits->request_tokens_max));
    setup->sequences_max = max_u32(setup->sequences_max, setup->groups * max_u32(chunks, limits->batch_max));
    setup->tokens_max = max_u32(limits->prefill_tokens, limits->batch_max);
    setup->request_tokens_max = limits->request_tokens_max + limits->chunk_tokens + limits->repeat;
    setup->request_pages_max = min_u32(limits->pages, kv_pages(&setup->memory.geometry, setup->request_tokens_max) + 1);
    setup->memory.pages = limits->pages;
    memset(&job->table.prefill, 0, sizeof job->table.prefill);
    memset(&job->table.decode, 0, sizeof job->table.decode);
    breakpoints_prefill(limits, &job->table.prefill);
    breakpoints_decode(limits, &job->table.decode);
}

static bool add_node(struct step_plan *plan, const struct real_world *world, uint32_t node, const char *device,
                     struct user_error *error)
{
    const struct scenario *scenario = world->scenario;
    const struct node_config *config = &world->deployment->configs[node];
    const struct parallelism *parallelism = &world->deployment->instances[node].parallelism;
    struct step_limits limits = limits_of(config);
    uint32_t place = 0;
    while (place < plan->count && (strcmp(plan->item[place].table.model, scenario->model.name) != 0 ||
                                   !parallelism_same(&plan->item[place].table.parallelism, parallelism)))
        place++;
    if (place == STEP_TABLES_MAX) {
        user_error_set(error, scenario->path, 0, "pools", "more than %d models and shardings in one profile",
                       STEP_TABLES_MAX);
        return false;
    }
    struct step_job *job = &plan->item[place];
    bool known = place < plan->count;
    if (known && memcmp(&job->setup.architecture, &scenario->model, sizeof scenario->model) != 0) {
        user_error_set(error, scenario->path, 0, "model", "'%s' is not the model of that name in an earlier scenario",
                       scenario->model.name);
        return false;
    }
    job->limits = known ? step_limits_union(&job->limits, &limits) : limits;
    /* Of a prefiller's pool and a decoder's, the prefiller's executors know both kinds of step and store tails. */
    if (!known || job->setup.memory.tail_slots == 0 || config->role == ROLE_PREFILL)
        job->setup = real_world_executor_setup(world, node, device);
    snprintf(job->table.model, sizeof job->table.model, "%s", scenario->model.name);
    job->table.parallelism = *parallelism;
    job->table.in_flight = job->setup.lanes;
    char sharding[32];
    parallelism_text(parallelism, sharding, sizeof sharding);
    snprintf(job->name, sizeof job->name, "%s %s", scenario->model.name, sharding);
    make_room(job);
    plan->count += !known;
    if (step_job_launches(job) == 0)
        user_error_set(error, scenario->path, 0, NULL, "%s: its KV pages hold no step that could be timed", job->name);
    return !error->set;
}

/* One instance of every pool, each with its `sharding`-th sharding or the last it has. False where the shardings do not
 * go together, or with an error. */
static bool add_choice(struct step_plan *plan, struct real_world *world, uint32_t sharding, const char *device,
                       struct user_error *error)
{
    const struct scenario *scenario = world->scenario;
    struct deployment_choice choice = deployment_default(scenario);
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        choice.pool[p].count = 1;
        choice.pool[p].sharding = min_u32(sharding, scenario->pools[p].sharding_count - 1);
    }
    struct deployment_sizes sizes = deployment_sizes_traced(&scenario->load, world->recorded);
    sizes.windows_in_pages = true;
    struct user_error why = {.set = false};
    deployment_free(world->own_deployment);
    world->deployment = world->own_deployment = deployment_make(scenario, &choice, &sizes, world->seed, &why);
    if (world->deployment == NULL) {
        user_error_set(error, scenario->path, 0, NULL, "%s", why.text);
        return false;
    }
    for (uint32_t node = 1; node < world->deployment->node_count; node++)
        if (!add_node(plan, world, node, device, error))
            return false;
    return true;
}

bool step_plan_add(struct step_plan *plan, const char *scenario, const struct scenario_override *sets, size_t set_count,
                   const char *device, struct user_error *error)
{
    struct real_world world;
    bool good = real_world_load(&world, scenario, sets, set_count, -1, error);
    uint32_t most = 1;
    uint32_t nodes = good ? world.deployment->node_count : 0;
    if (good && real_world_crowded(real_world_ranks_before(&world, nodes), nodes - 1))
        plan->crowded = true;
    for (uint32_t p = 0; good && p < world.scenario->pool_count; p++)
        most = max_u32(most, world.scenario->pools[p].sharding_count);
    for (uint32_t sharding = 0; good && sharding < most; sharding++)
        good = add_choice(plan, &world, sharding, device, error);
    real_world_free(&world);
    return good;
}

uint32_t step_job_launches(const struct step_job *job)
{
    const struct step_grid *prefill = &job->table.prefill;
    const struct step_grid *decode = &job->table.decode;
    return prefill->row_count * prefill->column_count + decode->row_count * decode->column_count;
}
