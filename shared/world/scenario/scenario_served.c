/* See scenario.h: what a model becomes where it is served. */
#include "world/scenario/scenario.h"

#include "base/arith.h"

const struct pool *scenario_drafter(const struct scenario *scenario, const struct pool *pool)
{
    if (pool->role != ROLE_PREFILL)
        return pool->scheduler.draft_tokens > 0 ? pool : NULL;
    for (uint32_t i = 0; i < scenario->pool_count; i++)
        if (scenario->pools[i].role == ROLE_DECODE && scenario->pools[i].scheduler.draft_tokens > 0)
            return &scenario->pools[i];
    return NULL;
}

/* Draft layers that cache KV: of one head all pools hold the same, be they of those that draft least. */
static uint32_t layers_drafting(const struct scenario *scenario, enum node_role role)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < scenario->pool_count; i++) {
        const struct pool *pool = &scenario->pools[i];
        bool mixed = pool->role == ROLE_MIXED;
        if (pool->scheduler.draft_tokens > 0 && pool->draft.head == DRAFT_MTP && mixed == (role == ROLE_MIXED))
            most = max_u32(most, min_u32(pool->scheduler.draft_tokens, scenario->model.draft_layers));
    }
    return most;
}

struct architecture scenario_served(const struct scenario *scenario, const struct pool *pool)
{
    struct architecture served = scenario->model;
    served.layers_drafting = layers_drafting(scenario, pool->role);
    served.layers += served.layers_drafting;
    served.experts_redundant = pool->experts_redundant;
    if (served.window > 0)
        served.full_layers += served.layers_drafting;
    else
        served.full_layers = served.layers;
    /* A draft head starts from the hidden state of the last position. */
    if (served.layers_drafting > 0 && served.tail_bytes == 0) {
        served.tail_bytes = served.hidden * 2;
        served.tail_writes = 1;
    }
    return served;
}
