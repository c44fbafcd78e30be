/* See instance.h. */
#include "serve/instance.h"

#include "serve/token_clock.h"

#include "base/arith.h"

#include <string.h>

/* Changes between two launches: each sequence at most joins, gets pages, has a chunk and leaves. */
#define CHANGES_PER_SEQUENCE 4

static void make_groups(struct instance *instance, struct arena *arena)
{
    const struct node_config *config = instance->config;
    uint32_t block_pages = config->prefix_block_tokens / config->geometry.page_tokens;
    if (!config->scheduler.prefix_cache)
        block_pages = 0;
    bool prefills = node_prefills(config);
    for (uint32_t g = 0; g < config->group_count; g++) {
        struct group scratch;
        struct group *group = arena->memory == NULL ? &scratch : &instance->groups[g];
        memset(group, 0, sizeof *group);
        page_pool_make(&group->pool, arena, instance->rt, g, config->pages_per_group, block_pages);
        if (config->scheduler.tell_evictions)
            group->pool.evictions = &instance->evictions;
        slot_heap_make(&group->waiting, arena, prefills ? config->requests_max : 0, instance->waiting_positions);
        sequence_list_make(&group->streaming);
        sequence_list_make(&group->ready);
    }
}

static void make_microbatch(struct instance *instance, struct arena *arena, struct microbatch *microbatch)
{
    const struct node_config *config = instance->config;
    uint32_t slots = config->requests_max;
    bool decodes = config->role != ROLE_PREFILL;
    *microbatch = (struct microbatch){.stepping = false};
    microbatch->groups = arena_take(arena, config->group_count, sizeof *microbatch->groups);
    microbatch->attention = arena_take(arena, config->group_count, sizeof *microbatch->attention);
    microbatch->changed = arena_take(arena, config->group_count, sizeof *microbatch->changed);
    microbatch->joined = arena_take(arena, slots, sizeof *microbatch->joined);
    microbatch->chunks = arena_take(arena, slots, sizeof *microbatch->chunks);
    microbatch->aborting = arena_take(arena, slots, sizeof *microbatch->aborting);
    for (uint32_t g = 0; g < config->group_count; g++) {
        struct slot_heap scratch;
        slot_heap_make(arena->memory == NULL ? &scratch : &microbatch->attention[g], arena,
                       decodes ? config->scheduler.batch_max : 0, instance->attention_positions);
    }
}

/* One a stage, as far as the runtime takes that many launches. */
static void make_microbatches(struct instance *instance, struct arena *arena)
{
    uint32_t stages = max_u32(1, instance->config->geometry.parallelism.pipeline);
    instance->microbatch_count = min_u32(stages, max_u32(1, instance->rt->limits.launches_in_flight));
    instance->microbatches = arena_take(arena, instance->microbatch_count, sizeof *instance->microbatches);
    for (uint32_t i = 0; i < instance->microbatch_count; i++) {
        struct microbatch scratch;
        make_microbatch(instance, arena, arena->memory == NULL ? &scratch : &instance->microbatches[i]);
    }
    instance->current = instance->microbatches;
}

void instance_make(struct instance *instance, struct arena *arena, const struct node_config *config, struct runtime *rt,
                   uint32_t peer_page_tokens)
{
    CHECK(config->group_count >= 1 && config->group_count <= GROUPS_MAX);
    CHECK(config->request_blocks_max <= REQUEST_BLOCKS_MAX);
    CHECK(config->prefix_block_tokens % config->geometry.page_tokens == 0 || !config->scheduler.prefix_cache);
    uint32_t slots = config->requests_max;
    memset(instance, 0, sizeof *instance);
    instance->config = config;
    instance->rt = rt;
    instance->yield = token_clock_yield(config->scheduler.draft_tokens, config->scheduler.acceptance_permille,
                                        config->scheduler.place_permille);
    instance->pages_max = min_u32(config->pages_per_group, kv_pages(&config->geometry, config->request_tokens_max) + 1);
    if (config->role == ROLE_DECODE) /* a request's pages must fit a message */
        instance->pages_max = min_u32(instance->pages_max, REQUEST_PAGES_MAX);
    instance->peer_pages_max = peer_page_tokens == 0 ? 0 : config->request_tokens_max / peer_page_tokens + 2;
    instance->sequences = arena_take(arena, slots, sizeof *instance->sequences);
    instance->pages = arena_take(arena, (size_t)slots * instance->pages_max, sizeof *instance->pages);
    instance->peer_pages = arena_take(arena, (size_t)slots * instance->peer_pages_max, sizeof *instance->peer_pages);
    instance->blocks = arena_take(arena, (size_t)slots * config->request_blocks_max, sizeof *instance->blocks);
    instance->unused = arena_take(arena, slots, sizeof *instance->unused);
    index_map_make(&instance->by_key, arena, slots);
    if (config->role == ROLE_PREFILL)
        index_map_make(&instance->by_request, arena, slots);
    instance->groups = arena_take(arena, config->group_count, sizeof *instance->groups);
    instance->attention_positions = arena_take(arena, slots, sizeof *instance->attention_positions);
    instance->waiting_positions = arena_take(arena, slots, sizeof *instance->waiting_positions);
    instance->changes = arena_take(arena, (size_t)slots * CHANGES_PER_SEQUENCE, sizeof *instance->changes);
    if (config->scheduler.tell_evictions) {
        instance->evictions.hashes = arena_take(arena, EVICTIONS_MAX, sizeof *instance->evictions.hashes);
        instance->report_bytes = arena_take(arena, MESSAGE_BYTES_MAX, 1);
    }
    make_groups(instance, arena);
    make_microbatches(instance, arena);
    if (arena->memory == NULL)
        return;
    /* Slot 0 is used first: the stack is filled downwards and only as deep as it is used. */
    instance->unused_count = slots;
    for (uint32_t line = 0; line < LINE_COUNT; line++)
        instance->short_age[line] = UINT32_MAX;
    for (uint32_t i = 0; i < slots; i++)
        instance->unused[i] = slots - 1 - i;
}

uint32_t instance_take_slot(struct instance *instance)
{
    if (instance->unused_count == 0)
        return SLOT_NONE;
    uint32_t slot = instance->unused[--instance->unused_count];
    CHECK(instance->next_age < UINT32_MAX);
    instance->sequences[slot] = (struct sequence){
        .age = instance->next_age++,
        .handoff = SLOT_NONE,
        .previous = SLOT_NONE,
        .next = SLOT_NONE,
    };
    return slot;
}

void instance_free_slot(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    CHECK(s->state != SEQUENCE_FREE && s->page_count == 0 && !s->in_step && s->writes_posted == 0);
    CHECK(s->handoff == SLOT_NONE);
    s->state = SEQUENCE_FREE;
    instance->unused[instance->unused_count++] = slot;
}

uint32_t instance_evicted(struct instance *instance)
{
    struct eviction_list *list = &instance->evictions;
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        bool held = false;
        for (uint32_t g = 0; !held && g < instance->config->group_count; g++)
            held = page_pool_holds(&instance->groups[g].pool, list->hashes[i]);
        if (!held)
            list->hashes[count++] = list->hashes[i];
    }
    list->count = 0;
    return count;
}

void instance_wait(struct instance *instance, uint32_t slot, uint32_t tokens)
{
    struct sequence *s = &instance->sequences[slot];
    s->pages_wanted = kv_pages(&instance->config->geometry, tokens);
    instance->pages_wanted += s->pages_wanted;
    instance->waiting_count++;
}

void instance_wait_over(struct instance *instance, uint32_t slot)
{
    const struct sequence *s = &instance->sequences[slot];
    CHECK(instance->waiting_count > 0 && instance->pages_wanted >= s->pages_wanted);
    instance->pages_wanted -= s->pages_wanted;
    instance->waiting_count--;
}

bool instance_received(struct instance *instance, uint32_t number)
{
    if (number_reached(instance->newest_number, number))
        return false;
    instance->newest_number = number;
    return true;
}

uint32_t instance_whole_blocks(const struct instance *instance, const struct sequence *sequence, uint32_t tokens)
{
    const struct node_config *config = instance->config;
    if (!config->scheduler.prefix_cache || sequence->block_tokens != config->prefix_block_tokens ||
        sequence->block_tokens == 0)
        return 0;
    /* A partly filled last block names the prompt's tokens alone, not those produced after them. */
    return min_u32(sequence->block_count, min_u32(tokens, sequence->prompt_tokens) / sequence->block_tokens);
}

bool instance_take_pages(struct instance *instance, uint32_t slot, uint32_t tokens, uint32_t cached_limit)
{
    struct sequence *s = &instance->sequences[slot];
    struct page_pool *pool = &instance->groups[s->group].pool;
    CHECK(s->page_count == 0);
    uint32_t need = kv_pages(&instance->config->geometry, tokens);
    CHECK(need <= instance->pages_max);
    /* Of a block that was moved here, windowed layers may have been left out: what they read now comes again. */
    if (instance->config->role == ROLE_DECODE && instance->config->geometry.window > 0)
        cached_limit = kv_window_first(instance->config->geometry.window, cached_limit);
    uint32_t whole = instance_whole_blocks(instance, s, cached_limit);
    uint32_t unpinned = 0;
    uint32_t blocks = whole == 0 ? 0 : page_pool_peek(pool, instance_blocks(instance, slot), whole, &unpinned);
    uint32_t found_pages = blocks * pool->pages_per_block;
    /* Pinning takes unpinned blocks out of what an allocation could evict. */
    if (need - found_pages > page_pool_available(pool) - unpinned * pool->pages_per_block)
        return false;
    uint32_t *pages = instance_pages(instance, slot);
    if (blocks > 0)
        page_pool_match(pool, instance_blocks(instance, slot), blocks, pages);
    CHECK(page_pool_take(pool, need - found_pages, pages + found_pages));
    s->page_count = need;
    s->local = blocks * s->block_tokens;
    if (blocks > 0)
        rt_trace(instance->rt, TRACE_PREFIX_HIT, s->request, s->local, s->group);
    return true;
}

bool instance_grow_pages(struct instance *instance, uint32_t slot, uint32_t tokens)
{
    struct sequence *s = &instance->sequences[slot];
    uint32_t need = kv_pages(&instance->config->geometry, tokens);
    CHECK(need > s->page_count && need <= instance->pages_max);
    uint32_t *pages = instance_pages(instance, slot) + s->page_count;
    if (!page_pool_take(&instance->groups[s->group].pool, need - s->page_count, pages))
        return false;
    instance_change(instance, &(struct step_change){
                                  .kind = STEP_PAGES,
                                  .group = s->group,
                                  .sequence = slot,
                                  .request = s->request,
                                  .page_first = s->page_count,
                                  .page_count = need - s->page_count,
                                  .pages = pages,
                              });
    s->page_count = need;
    return true;
}

void instance_publish(struct instance *instance, uint32_t slot, uint32_t tokens)
{
    struct sequence *s = &instance->sequences[slot];
    struct page_pool *pool = &instance->groups[s->group].pool;
    uint32_t whole = instance_whole_blocks(instance, s, tokens);
    for (uint32_t b = 0; b < whole; b++)
        page_pool_publish(pool, instance_blocks(instance, slot)[b],
                          instance_pages(instance, slot) + (size_t)b * pool->pages_per_block);
}

void instance_release_pages(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    CHECK(!s->in_step && s->writes_posted == 0);
    page_pool_release(&instance->groups[s->group].pool, instance_pages(instance, slot), s->page_count);
    s->page_count = 0;
    if (s->device_knows) {
        instance_change(instance, &(struct step_change){
                                      .kind = STEP_LEAVE,
                                      .group = s->group,
                                      .sequence = slot,
                                      .request = s->request,
                                  });
        s->device_knows = false;
    }
}

uint32_t instance_roomiest_group(const struct instance *instance)
{
    uint32_t best = 0;
    for (uint32_t g = 1; g < instance->config->group_count; g++)
        if (page_pool_available(&instance->groups[g].pool) > page_pool_available(&instance->groups[best].pool))
            best = g;
    return best;
}

void instance_change(struct instance *instance, const struct step_change *change)
{
    CHECK(instance->change_count < instance->config->requests_max * CHANGES_PER_SEQUENCE);
    instance->changes[instance->change_count++] = *change;
}

void instance_end(struct instance *instance, uint32_t slot)
{
    instance_release_pages(instance, slot);
    index_map_remove(&instance->by_key, instance->sequences[slot].request);
    instance_free_slot(instance, slot);
}

void instance_abort_after_step(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    if (s->aborting)
        return;
    CHECK(instance_steps(instance, slot));
    s->aborting = true;
    struct microbatch *microbatch = instance_microbatch(instance, slot);
    if (s->state == SEQUENCE_DECODE)
        microbatch->aborting[microbatch->aborting_count++] = slot;
}
