/* See prefill_batch.h. */
#include "serve/prefill_batch.h"

#include "base/arith.h"
#include "serve/decode_batch.h"
#include "serve/policy.h"

/* A prompt with this many KV tokens to fill has at most this many left to compute. */
static uint32_t left(const struct sequence *s)
{
    return s->wanted - s->computed;
}

/* Of these, those that no launch has yet. */
static uint32_t unlaunched(const struct sequence *s)
{
    return s->wanted - s->launched;
}

/* Who decodes here needs headroom for it. */
static uint32_t tokens_to_hold(const struct instance *instance, const struct sequence *s)
{
    if (instance->config->role == ROLE_PREFILL)
        return s->wanted;
    return max_u32(decode_reserve_tokens(instance, s, s->wanted), s->wanted);
}

/* How much of a prompt may be found cached. A first token is the output of a step that computes at least one token of
 * the prompt, and so is a tail. Of what was handed over to a decoder, windowed layers hold too little to go on from. */
static uint32_t cached_limit(const struct instance *instance, uint32_t wanted)
{
    const struct node_config *config = instance->config;
    if (config->role == ROLE_DECODE && config->geometry.window > 0)
        return 0;
    return config->role != ROLE_PREFILL || config->tail_writes > 0 ? wanted - 1 : wanted;
}

static uint64_t order(const struct instance *instance, const struct sequence *s)
{
    struct policy *policy = instance->rt->policy;
    const struct request_spec request = {
        .id = s->request,
        .prompt_tokens = s->wanted,
        .output_tokens = s->output_tokens,
        .block_count = s->block_count,
        .block_tokens = s->block_tokens,
        .deadline_ns = s->deadline_ns,
        .blocks = &instance->blocks[(size_t)(s - instance->sequences) * instance->config->request_blocks_max]};
    CHECK(policy != NULL && policy->decides[POLICY_QUEUE]);
    return policy->ops->order(policy, &request);
}

static uint64_t queue_key(const struct instance *instance, const struct sequence *s)
{
    switch (instance->config->scheduler.queue) {
    case QUEUE_SHORTEST_FIRST:
        return s->wanted;
    case QUEUE_EARLIEST_DEADLINE:
        return (uint64_t)s->deadline_ns;
    case QUEUE_FUNCTION:
        return order(instance, s);
    case QUEUE_FCFS:
        break;
    }
    return 0;
}

/* The group with the fewest queued tokens; of a decoder's, which fill up with hand-overs too, the roomiest of these. */
static uint32_t least_queued_group(const struct instance *instance)
{
    uint32_t best = 0;
    for (uint32_t g = 1; g < instance->config->group_count; g++) {
        const struct group *a = &instance->groups[g];
        const struct group *b = &instance->groups[best];
        bool roomier =
            instance->config->role == ROLE_DECODE && page_pool_available(&a->pool) > page_pool_available(&b->pool);
        if (a->queued_tokens < b->queued_tokens || (a->queued_tokens == b->queued_tokens && roomier))
            best = g;
    }
    return best;
}

void prefill_enqueue(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    uint32_t best = least_queued_group(instance);
    s->state = SEQUENCE_QUEUED;
    s->group = (uint16_t)best;
    instance->groups[best].queued_tokens += left(s);
    instance->queued_tokens += left(s);
    instance_wait(instance, slot, tokens_to_hold(instance, s));
    slot_heap_push(&instance->groups[best].waiting, slot, queue_key(instance, s), s->age);
}

static void forget_tokens(struct instance *instance, struct sequence *s, uint32_t tokens)
{
    struct group *group = &instance->groups[s->group];
    CHECK(group->queued_tokens >= tokens && instance->queued_tokens >= tokens);
    group->queued_tokens -= tokens;
    instance->queued_tokens -= tokens;
}

void prefill_dequeue(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    CHECK(s->state == SEQUENCE_QUEUED);
    slot_heap_remove(&instance->groups[s->group].waiting, slot);
    forget_tokens(instance, s, left(s));
    instance_wait_over(instance, slot);
    instance->short_age[LINE_PREFILL] = UINT32_MAX; /* it may have been the one that was short */
}

static void add_chunk(struct instance *instance, uint32_t slot, uint32_t tokens)
{
    struct sequence *s = &instance->sequences[slot];
    struct microbatch *microbatch = instance->current;
    struct step_group *sums = &microbatch->groups[s->group];
    uint64_t q = tokens;
    uint64_t k = s->launched;
    CHECK(s->in_step < UINT8_MAX);
    s->in_step++;
    sums->prefill_sequences++;
    sums->prefill_tokens += q;
    sums->prefill_context += k;
    sums->prefill_pairs += q * k + q * (q + 1) / 2;
    microbatch->changed[s->group] = true;
    instance_change(instance, &(struct step_change){
                                  .kind = STEP_CHUNK,
                                  .group = s->group,
                                  .sequence = slot,
                                  .request = s->request,
                                  .start = s->launched,
                                  .tokens = tokens,
                                  .page_count = s->device_knows ? 0 : s->page_count,
                                  .pages = instance_pages(instance, slot),
                                  .token_seed = s->token_seed,
                              });
    s->device_knows = true;
    microbatch->chunks[microbatch->chunk_count++] = (struct chunk){slot, s->launched, tokens};
    s->launched += tokens;
}

/* Gives the first of the queue its pages; false when it has to wait. */
static bool admit_first(struct instance *instance, struct group *group, prefill_admitted *admitted, void *context)
{
    uint32_t slot = group->waiting.entries[0].slot;
    struct sequence *s = &instance->sequences[slot];
    if (instance->short_age[LINE_TRANSFER] < s->age)
        return false;
    if (!instance_take_pages(instance, slot, tokens_to_hold(instance, s), cached_limit(instance, s->wanted))) {
        instance->short_age[LINE_PREFILL] = min_u32(instance->short_age[LINE_PREFILL], s->age);
        return false;
    }
    slot_heap_remove(&group->waiting, slot);
    instance_wait_over(instance, slot);
    instance->running++;
    forget_tokens(instance, s, s->local);
    s->computed = s->launched = s->local;
    s->state = SEQUENCE_STREAMING;
    if (left(s) > 0)
        sequence_list_append(&group->streaming, instance->sequences, slot);
    admitted(context, slot);
    return true;
}

/* Where prompts become decoding sequences of the same instance, they are counted among its batch from their admission
 * on, as engines count them. */
static bool batch_full(const struct instance *instance, uint32_t g)
{
    const struct group *group = &instance->groups[g];
    uint32_t under_way = group->streaming.count + group->ready.count + group->decode_sequences;
    return instance->config->role != ROLE_PREFILL && under_way >= instance->config->scheduler.batch_max;
}

static uint32_t chunk_limit(const struct instance *instance, const struct sequence *s, uint32_t budget)
{
    uint32_t tokens = min_u32(unlaunched(s), budget);
    if (instance->config->scheduler.chunk_tokens > 0)
        tokens = min_u32(tokens, instance->config->scheduler.chunk_tokens);
    return tokens;
}

static void schedule_group(struct instance *instance, uint32_t g, uint32_t *write_budget, prefill_admitted *admitted,
                           void *context)
{
    struct group *group = &instance->groups[g];
    struct step_group *sums = &instance->current->groups[g];
    instance->current->changed[g] |= sums->prefill_sequences > 0;
    sums->prefill_sequences = 0;
    sums->prefill_tokens = sums->prefill_context = sums->prefill_pairs = 0;
    uint32_t budget = instance->config->scheduler.token_budget;
    uint64_t decode_tokens = (uint64_t)sums->decode_sequences * (1 + instance->config->scheduler.draft_tokens);
    budget -= (uint32_t)min_u64(budget, decode_tokens);
    uint32_t writes = prefill_writes_max(instance->config);
    for (uint32_t slot = group->streaming.head; slot != SLOT_NONE && budget > 0 && *write_budget >= writes;
         slot = instance->sequences[slot].next) {
        const struct sequence *s = &instance->sequences[slot];
        if (unlaunched(s) == 0 || s->state != SEQUENCE_STREAMING || s->aborting)
            continue; /* its last chunks are in other stages */
        uint32_t tokens = chunk_limit(instance, s, budget);
        add_chunk(instance, slot, tokens);
        budget -= tokens;
        *write_budget -= writes;
    }
    bool closed = instance->held_steps > 0;
    while (!closed && budget > 0 && group->waiting.count > 0 && *write_budget >= writes && !batch_full(instance, g)) {
        uint32_t slot = group->waiting.entries[0].slot;
        if (!admit_first(instance, group, admitted, context))
            break;
        *write_budget -= writes;
        struct sequence *s = &instance->sequences[slot];
        if (s->state != SEQUENCE_STREAMING || left(s) == 0)
            continue;
        uint32_t tokens = chunk_limit(instance, s, budget);
        add_chunk(instance, slot, tokens);
        budget -= tokens;
    }
}

/* Steps for which prompts that wait are still held back, seen at waiting_step: until the next look for new ones, and
 * then until every group has one or they have waited long enough. */
static uint64_t hold(struct instance *instance)
{
    const struct scheduler_policy *policy = &instance->config->scheduler;
    bool holds = policy->receive_steps > 1 || policy->gather_steps > 0;
    bool anywhere = false;
    bool everywhere = true;
    for (uint32_t g = 0; holds && g < instance->config->group_count; g++) {
        anywhere = anywhere || instance->groups[g].waiting.count > 0;
        everywhere = everywhere && instance->groups[g].waiting.count > 0;
    }
    if (!anywhere || instance->config->role == ROLE_PREFILL || instance->decode_sequences == 0) {
        instance->waiting_step = UINT64_MAX;
        return 0;
    }
    if (instance->waiting_step == UINT64_MAX)
        instance->waiting_step = instance->step_counter;
    uint64_t due = instance->waiting_step;
    if (policy->receive_steps > 1)
        due += (policy->receive_steps - due % policy->receive_steps) % policy->receive_steps;
    if (!everywhere)
        due = max_u64(due, instance->waiting_step + policy->gather_steps);
    if (due > instance->step_counter)
        return due - instance->step_counter;
    instance->waiting_step = UINT64_MAX;
    return 0;
}

void prefill_schedule(struct instance *instance, uint32_t write_budget, prefill_admitted *admitted, void *context)
{
    CHECK(!instance->current->stepping);
    instance->current->chunk_count = 0;
    instance->held_steps = hold(instance);
    instance->short_age[LINE_PREFILL] = UINT32_MAX;
    for (uint32_t g = 0; g < instance->config->group_count; g++)
        schedule_group(instance, g, &write_budget, admitted, context);
}

bool prefill_chunk_done(struct instance *instance, const struct chunk *chunk)
{
    struct sequence *s = &instance->sequences[chunk->slot];
    CHECK(s->in_step > 0 && s->computed == chunk->start);
    s->in_step--;
    s->computed += chunk->tokens;
    forget_tokens(instance, s, chunk->tokens);
    if (left(s) > 0)
        return false;
    sequence_list_remove(&instance->groups[s->group].streaming, instance->sequences, chunk->slot);
    return true;
}

void prefill_abandon(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    CHECK(!s->in_step);
    if (left(s) > 0) {
        sequence_list_remove(&instance->groups[s->group].streaming, instance->sequences, slot);
        forget_tokens(instance, s, left(s));
    }
}

uint32_t prefill_cached(const struct instance *instance, const uint64_t *blocks, uint32_t block_count,
                        uint32_t block_tokens, uint32_t tokens)
{
    const struct sequence prompt = {.block_count = block_count, .block_tokens = block_tokens, .prompt_tokens = tokens};
    uint32_t whole = instance_whole_blocks(instance, &prompt, cached_limit(instance, tokens));
    uint32_t unpinned = 0;
    if (whole == 0)
        return 0;
    const struct page_pool *pool = &instance->groups[least_queued_group(instance)].pool;
    return page_pool_peek(pool, blocks, whole, &unpinned) * block_tokens;
}
