/* Checks of parts against each other: what no single key can be blamed for alone. */
#include "world/scenario/scenario_internal.h"

#include "base/limits.h"

#include <stdio.h>
#include <string.h>

/* Fails for a key of the model at `path`. */
#define fail_in(root, path, key, ...)                                                                                  \
    do {                                                                                                               \
        char full[READ_PATH_SIZE];                                                                                     \
        snprintf(full, sizeof full, "%.120s.%s", path, key);                                                           \
        scenario_fail_at(root, full, __VA_ARGS__);                                                                     \
    } while (0)

static void check_experts(const struct cursor *root, const char *path, const struct architecture *model)
{
    if (model->experts == 0) {
        if (model->experts_active != 0 || model->expert_intermediate != 0 || model->shared_experts != 0)
            fail_in(root, path, "experts", "missing; the model has other keys of a mixture of experts");
        if (model->dense_layers != 0)
            fail_in(root, path, "dense_layers", "has a meaning only beside experts");
    } else {
        if (model->experts_active == 0 || model->experts_active > model->experts)
            fail_in(root, path, "experts_active", "must be from 1 to experts (%u), not %u", model->experts,
                    model->experts_active);
        if (model->expert_intermediate == 0)
            fail_in(root, path, "expert_intermediate", "missing; the model has experts");
        if (model->dense_layers > model->layers)
            fail_in(root, path, "dense_layers", "must be at most layers (%u), not %u", model->layers,
                    model->dense_layers);
    }
    if (architecture_dense_before(model, model->layers) > 0 && model->intermediate == 0)
        fail_in(root, path, "intermediate", "missing; the model has dense layers");
}

/* `path` is "model", or where a draft model stands. */
static void check_model(const struct cursor *root, const char *path, const struct architecture *model)
{
    if (model->fp4_block != 16 && model->fp4_block != 32)
        fail_in(root, path, "fp4_block", "must be 16 or 32, not %u", model->fp4_block);
    if (model->attention == ATTENTION_MLA) {
        if (model->latent_dim == 0 || model->rope_dim == 0 || model->nope_dim == 0 || model->value_dim == 0)
            fail_in(root, path, "attention", "mla needs latent_dim, rope_dim, nope_dim and value_dim");
        if (model->kv_heads != 1)
            fail_in(root, path, "kv_heads", "must be 1 with mla, whose heads share one latent, not %u",
                    model->kv_heads);
    } else {
        if (model->head_dim == 0)
            fail_in(root, path, "head_dim", "missing; a whole number is wanted");
        if (model->heads % model->kv_heads != 0)
            fail_in(root, path, "kv_heads", "must divide heads (%u), not %u", model->heads, model->kv_heads);
        if (model->latent_dim != 0 || model->rope_dim != 0 || model->nope_dim != 0 || model->q_latent_dim != 0)
            fail_in(root, path, "attention", "gqa has no latent_dim, rope_dim, nope_dim or q_latent_dim");
    }
    if (model->index_topk > 0 && (model->attention != ATTENTION_MLA || model->window > 0))
        fail_in(root, path, "index_topk", "sparse attention is known over mla without a window");
    if ((model->index_topk > 0) != (model->index_heads > 0) || (model->index_topk > 0) != (model->index_dim > 0))
        fail_in(root, path, "index_topk", "index_topk, index_heads and index_dim belong together");
    if (model->full_layers > model->layers)
        fail_in(root, path, "full_layers", "must be at most layers (%u), not %u", model->layers, model->full_layers);
    if ((model->tail_bytes == 0) != (model->tail_writes == 0))
        fail_in(root, path, "tail_writes", "a tail needs both its size and the number of its writes");
    check_experts(root, path, model);
}

static void check_sharding(const struct cursor *root, const struct scenario *scenario, const struct pool *pool,
                           uint32_t index)
{
    const struct parallelism *p = &pool->shardings[index];
    const struct architecture model = scenario_served(scenario, pool);
    struct kv_geometry geometry;
    char path[READ_PATH_SIZE];
    snprintf(path, sizeof path, "pools.%s.shardings.%u", pool->name, index + 1);
    uint64_t ranks = (uint64_t)p->tensor * p->data * p->pipeline;
    if (ranks > RANKS_MAX)
        scenario_fail_at(root, path, "tensor * data * pipeline must be at most %d (RANKS_MAX), not %llu", RANKS_MAX,
                         (unsigned long long)ranks);
    if (p->pipeline > model.layers)
        scenario_fail_at(root, path, "pipeline must be at most the model's layers (%u), not %u", model.layers,
                         p->pipeline);
    if (model.heads % p->tensor != 0)
        scenario_fail_at(root, path, "tensor must divide the model's heads (%u), not be %u", model.heads, p->tensor);
    if (p->expert > 1 && model.experts == 0)
        scenario_fail_at(root, path, "the model has no experts to spread over %u ranks", p->expert);
    if ((uint32_t)p->tensor * p->data % p->expert != 0)
        scenario_fail_at(root, path, "expert must divide tensor * data (%u), not be %u", (uint32_t)p->tensor * p->data,
                         p->expert);
    enum geometry_refusal refusal = kv_geometry_make(&model, *p, pool->page_tokens, pool->layout, &geometry);
    if (refusal != GEOMETRY_OK)
        scenario_fail_at(root, path, "%s", geometry_refusal_text(refusal));
}

/* What one request may hold at most must fit the protocol's fields. Lengths of a trace are checked as it is read. */
static void check_lengths(const struct cursor *root, const struct scenario *scenario, const struct pool *pool)
{
    const struct load *load = &scenario->load;
    char path[READ_PATH_SIZE];
    if (load->arrivals == ARRIVAL_TRACE)
        return;
    uint64_t tokens = (uint64_t)load->prompt.high + load->output.high; /* listed: of the longest */
    if (load->arrivals == ARRIVAL_SESSIONS) {
        tokens = load_session_tokens_max(load);
        if (tokens / load->session_block_tokens >= REQUEST_BLOCKS_MAX)
            scenario_fail_at(root, "load.block",
                             "the last turn of %llu tokens would have more prefix blocks than a request may have (%d, "
                             "REQUEST_BLOCKS_MAX)",
                             (unsigned long long)tokens, REQUEST_BLOCKS_MAX);
    }
    if (tokens > REQUEST_TOKENS_MAX)
        scenario_fail_at(root, "load.prompt",
                         "prompt and output together may have %d tokens (REQUEST_TOKENS_MAX), not "
                         "%llu",
                         REQUEST_TOKENS_MAX, (unsigned long long)tokens);
    snprintf(path, sizeof path, "pools.%s.page", pool->name);
    if (tokens / pool->page_tokens > REQUEST_PAGES_MAX)
        scenario_fail_at(root, path,
                         "a request of %llu tokens needs more pages of %u than it may have (%d, "
                         "REQUEST_PAGES_MAX)",
                         (unsigned long long)tokens, pool->page_tokens, REQUEST_PAGES_MAX);
}

/* A draft model's own KV is not handed over, nor made again where it is missing; and a prefill pool drafts nothing. */
static void check_draft(const struct cursor *root, const struct scenario *scenario, const struct pool *pool)
{
    const struct draft *draft = &pool->draft;
    uint32_t tokens = pool->scheduler.draft_tokens;
    uint32_t layers = scenario->model.draft_layers;
    char path[READ_PATH_SIZE];
    if (tokens == 0)
        return;
    snprintf(path, sizeof path, "pools.%s.draft", pool->name);
    if (pool->role == ROLE_PREFILL)
        scenario_fail_at(root, path, "has a meaning where tokens are decoded, in decode and mixed pools");
    for (uint32_t k = 0; k < pool->sharding_count; k++)
        if (pool->shardings[k].pipeline > 1)
            scenario_fail_at(root, path, "drafting over pipeline stages is not modelled (shardings.%u)", k + 1);
    snprintf(path, sizeof path, "pools.%s.draft.head", pool->name);
    if (draft->head == DRAFT_MODEL) {
        if (pool->role == ROLE_DECODE)
            scenario_fail_at(root, path,
                             "the KV of a draft model is not handed over: a draft model is known in mixed "
                             "pools, \"mtp\" in all");
        if (draft->reuse)
            scenario_fail_at(root, path, "reuse is said of draft layers, not of a draft model");
        if (draft->model.vocab != scenario->model.vocab)
            scenario_fail_at(root, path, "the draft model must have the model's vocab (%u), not %u",
                             scenario->model.vocab, draft->model.vocab);
        check_model(root, path, &draft->model);
        return;
    }
    if (layers == 0)
        scenario_fail_at(root, path, "%s has no draft layers (model.draft_layers)", scenario->model.name);
    snprintf(path, sizeof path, "pools.%s.draft.tokens", pool->name);
    if (tokens > layers && !draft->reuse)
        scenario_fail_at(root, path, "%u draft layer%s for %u tokens: reuse = true lets the last run again", layers,
                         layers == 1 ? "" : "s", tokens);
}

static void check_pool(const struct cursor *root, const struct scenario *scenario, const struct pool *pool)
{
    char path[READ_PATH_SIZE];
    check_draft(root, scenario, pool);
    for (uint32_t k = 0; k < pool->sharding_count; k++)
        check_sharding(root, scenario, pool, k);
    snprintf(path, sizeof path, "pools.%s.token_budget", pool->name);
    uint32_t verified = 1 + pool->scheduler.draft_tokens;
    uint64_t batch_tokens = (uint64_t)pool->scheduler.batch_max * verified;
    if (pool->role != ROLE_PREFILL && pool->scheduler.token_budget < batch_tokens && verified == 1)
        scenario_fail_at(root, path, "must hold a token of every sequence of a batch (batch_max, %u), not %u",
                         pool->scheduler.batch_max, pool->scheduler.token_budget);
    if (pool->role != ROLE_PREFILL && pool->scheduler.token_budget < batch_tokens)
        scenario_fail_at(root, path,
                         "must hold the %u tokens that each sequence of a batch (batch_max, %u) verifies, "
                         "not %u",
                         verified, pool->scheduler.batch_max, pool->scheduler.token_budget);
    snprintf(path, sizeof path, "pools.%s.recompute", pool->name);
    if (pool->role != ROLE_DECODE && pool->scheduler.recompute == RECOMPUTE_DECODER)
        scenario_fail_at(root, path, "has a meaning in decode pools; a mixed instance recomputes itself");
    snprintf(path, sizeof path, "pools.%s.redundant_experts", pool->name);
    if (pool->experts_redundant > scenario->model.experts)
        scenario_fail_at(root, path, "must be at most the model's experts (%u), not %u", scenario->model.experts,
                         pool->experts_redundant);
    snprintf(path, sizeof path, "pools.%s.chunk", pool->name);
    if (pool->scheduler.chunk_tokens > pool->scheduler.token_budget)
        scenario_fail_at(root, path, "must be at most token_budget (%u), not %u", pool->scheduler.token_budget,
                         pool->scheduler.chunk_tokens);
    check_lengths(root, scenario, pool);
}

/* A pool that another is placed by has to be there, and not to be placed by that one in its turn. */
static void check_placement(const struct cursor *root, const struct scenario *scenario, const struct pool *pool)
{
    const struct placement *placement = &pool->placement;
    char path[READ_PATH_SIZE];
    snprintf(path, sizeof path, "pools.%s.placement", pool->name);
    if (placement->kind == PLACEMENT_LISTED && placement->machine_count < pool->count)
        scenario_fail_at(root, path, "lists %u machines for %u instances", placement->machine_count, pool->count);
    if (placement->pool[0] == '\0')
        return;
    const struct pool *other = NULL;
    for (uint32_t k = 0; k < scenario->pool_count; k++)
        if (strcmp(scenario->pools[k].name, placement->pool) == 0)
            other = &scenario->pools[k];
    if (other == NULL || other == pool)
        scenario_fail_at(root, path, other == pool ? "'%s' is this pool itself" : "there is no pool '%s'",
                         placement->pool);
    if (placement->kind != PLACEMENT_BESIDE)
        return;
    if (strcmp(other->hardware.name, pool->hardware.name) != 0)
        scenario_fail_at(root, path, "%s is on other machines", other->name);
    if (other->placement.kind == PLACEMENT_BESIDE)
        scenario_fail_at(root, path, "%s is placed beside a pool itself", other->name);
}

static void check_pair(const struct cursor *root, const struct pool *prefill, const struct pool *decode)
{
    char path[READ_PATH_SIZE];
    uint32_t a = prefill->page_tokens;
    uint32_t b = decode->page_tokens;
    snprintf(path, sizeof path, "pools.%s.page", decode->name);
    if (a % b != 0 && b % a != 0)
        scenario_fail_at(root, path, "%u tokens here and %u in %s: one must divide the other", b, a, prefill->name);
    snprintf(path, sizeof path, "pools.%s.layout", decode->name);
    if (prefill->layout != decode->layout)
        scenario_fail_at(root, path, "must be that of %s", prefill->name);
}

static void check_pools(const struct cursor *root, const struct scenario *scenario)
{
    uint32_t prefill = 0;
    uint32_t decode = 0;
    uint32_t mixed = 0;
    uint64_t nodes = 1; /* the front */
    for (uint32_t k = 0; k < scenario->pool_count; k++) {
        const struct pool *pool = &scenario->pools[k];
        check_pool(root, scenario, pool);
        check_placement(root, scenario, pool);
        prefill += pool->role == ROLE_PREFILL;
        decode += pool->role == ROLE_DECODE;
        mixed += pool->role == ROLE_MIXED;
        nodes += pool->count > pool->count_max ? pool->count : pool->count_max;
        for (uint32_t other = 0; other < k && pool->role == ROLE_DECODE; other++) {
            if (scenario->pools[other].role == ROLE_PREFILL)
                check_pair(root, &scenario->pools[other], pool);
        }
    }
    bool alone = conditional_is_on(&scenario->conditional); /* decoders do without prefillers */
    if (mixed == 0 && (decode == 0 || (prefill == 0 && !alone)))
        scenario_fail_at(root, "pools", "a pool of role '%s' is missing: prefill and decode, or mixed",
                         prefill == 0 ? "prefill" : "decode");
    if (mixed != 0 && (prefill != 0) != (decode != 0) && !(alone && decode != 0))
        scenario_fail_at(root, "pools", "a pool of role '%s' is missing beside the mixed ones",
                         prefill == 0 ? "prefill" : "decode");
    if (nodes > NODES_MAX)
        scenario_fail_at(root, "pools", "at most %d instances in all (NODES_MAX, the front included), not %llu",
                         NODES_MAX - 1, (unsigned long long)nodes - 1);
}

static void check_load(const struct cursor *root, const struct load *load)
{
    bool ends = load->arrivals == ARRIVAL_TRACE || load->arrivals == ARRIVAL_LISTED;
    if (!ends && load->requests == 0 && load->duration_ns == 0)
        scenario_fail_at(root, "load.requests", "missing, or 0; requests, 1 at least, or duration ends a load");
    if (load->duration_ns > 0 && load->warmup_ns >= load->duration_ns)
        scenario_fail_at(root, "load.warmup", "must be shorter than duration");
}

void scenario_check(const struct cursor *root, const struct scenario *scenario)
{
    check_model(root, "model", &scenario->model);
    check_pools(root, scenario);
    check_load(root, &scenario->load);
    scenario_check_faults(root, scenario);
    if (scenario->plan.goal == PLAN_SERVE_RATE && scenario->plan.rate_micro_per_s == 0)
        scenario_fail_at(root, "plan.rate", "missing; the goal is to serve a rate, as in per_second(10)");
    if (scenario->plan.goal != PLAN_SERVE_RATE && scenario->plan.rate_micro_per_s != 0)
        scenario_fail_at(root, "plan.rate", "has a meaning only with goal = \"serve_rate\"");
}
