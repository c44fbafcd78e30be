/* See decode_batch.h. */
#include "serve/decode_batch.h"

#include "base/arith.h"
#include "serve/token_clock.h"

uint32_t decode_reserve_tokens(const struct instance *instance, const struct sequence *s, uint32_t cached)
{
    /* The last token is produced but never cached. */
    uint32_t all = s->prompt_tokens + s->output_tokens - 1;
    if (instance->config->scheduler.reserve_output)
        return all;
    /* One step must fit, whatever it accepts. */
    uint32_t headroom =
        max_u32(1 + instance->config->scheduler.draft_tokens, instance->config->scheduler.headroom_tokens);
    return min_u32(all, cached + headroom);
}

/* Tokens that the steps since it joined have given the sequence; the last step may go beyond its output. */
static uint32_t since_join(const struct instance *instance, const struct sequence *s)
{
    return (uint32_t)(token_clock(instance->yield, instance->microbatches[s->microbatch].step_counter) -
                      token_clock(instance->yield, s->join_step));
}

uint32_t decode_produced(const struct instance *instance, const struct sequence *s)
{
    if (s->state != SEQUENCE_DECODE)
        return s->produced;
    return min_u32(s->output_tokens, s->produced + since_join(instance, s));
}

uint32_t decode_context(const struct instance *instance, const struct sequence *s)
{
    return s->join_context + since_join(instance, s);
}

/* Keys of the heap: the step after which a sequence needs attention, and in that step those that finish before those
 * that need pages: what has finished gives pages back, and must not be preempted with nothing left to do. */
static uint64_t finish_key(uint64_t step)
{
    return step << 1;
}

static uint64_t full_key(uint64_t step)
{
    return step << 1 | 1;
}

static uint64_t step_of_key(uint64_t key)
{
    return key >> 1;
}

/* The step after which the sequence has produced everything, or the next might overflow its pages, whichever comes
 * first. */
static void watch(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    uint64_t joined = token_clock(instance->yield, s->join_step);
    uint64_t finish = token_clock_step(instance->yield, joined + s->output_tokens - s->produced);
    uint64_t held = (uint64_t)s->page_count * instance->config->geometry.page_tokens;
    uint64_t key = finish_key(finish);
    CHECK(held > s->join_context);
    /* Its last token is never cached: pages for all others last to the end. */
    if (held + 1 < (uint64_t)s->prompt_tokens + s->output_tokens)
        key = min_u64(key, full_key(token_clock_step(instance->yield, joined + held - s->join_context + 1) - 1));
    slot_heap_push(&instance_microbatch(instance, slot)->attention[s->group], slot, key, s->age);
}

static void join(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    struct microbatch *microbatch = instance->current;
    s->state = SEQUENCE_DECODE;
    s->in_step = 1;
    s->microbatch = (uint8_t)(microbatch - instance->microbatches);
    s->join_step = microbatch->step_counter;
    s->join_context = s->wanted;
    watch(instance, slot);
    microbatch->changed[s->group] = true;
    microbatch->groups[s->group].decode_sequences++;
    microbatch->groups[s->group].decode_context += s->join_context;
    microbatch->decode_sequences++;
    instance->groups[s->group].decode_sequences++;
    instance->decode_sequences++;
    instance_change(instance, &(struct step_change){
                                  .kind = STEP_JOIN,
                                  .group = s->group,
                                  .sequence = slot,
                                  .request = s->request,
                                  .start = s->join_context,
                                  .tokens = s->produced,
                                  .page_count = s->device_knows ? 0 : s->page_count,
                                  .pages = instance_pages(instance, slot),
                                  .token_seed = s->token_seed,
                              });
    s->device_knows = true;
    microbatch->joined[microbatch->joined_count++] = slot;
}

void decode_join_ready(struct instance *instance)
{
    const struct microbatch *microbatch = instance->current;
    CHECK(!microbatch->stepping);
    for (uint32_t g = 0; g < instance->config->group_count; g++) {
        struct group *group = &instance->groups[g];
        uint32_t share = ceil_div_u32(group->decode_sequences + group->ready.count, instance->microbatch_count);
        while (group->ready.count > 0 && group->decode_sequences < instance->config->scheduler.batch_max &&
               microbatch->groups[g].decode_sequences < share) {
            uint32_t slot = group->ready.head;
            sequence_list_remove(&group->ready, instance->sequences, slot);
            join(instance, slot);
        }
    }
}

void decode_leave(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    struct microbatch *microbatch = instance_microbatch(instance, slot);
    struct step_group *sums = &microbatch->groups[s->group];
    CHECK(!microbatch->stepping && s->state == SEQUENCE_DECODE);
    if (slot_heap_holds(&microbatch->attention[s->group], slot))
        slot_heap_remove(&microbatch->attention[s->group], slot);
    uint32_t context = decode_context(instance, s);
    CHECK(sums->decode_sequences > 0 && sums->decode_context >= context);
    sums->decode_sequences--;
    sums->decode_context -= context;
    microbatch->changed[s->group] = true;
    microbatch->decode_sequences--;
    instance->groups[s->group].decode_sequences--;
    instance->decode_sequences--;
    s->produced = min_u32(s->output_tokens, s->produced + since_join(instance, s));
    s->in_step = 0;
}

uint64_t decode_steps_to_attention(const struct instance *instance)
{
    const struct microbatch *microbatch = instance->current;
    uint64_t first = UINT64_MAX;
    for (uint32_t g = 0; g < instance->config->group_count; g++) {
        const struct slot_heap_entry *top = slot_heap_top(&microbatch->attention[g]);
        if (top != NULL)
            first = min_u64(first, step_of_key(top->key));
    }
    return first == UINT64_MAX ? first : first - microbatch->step_counter;
}

void decode_advance(struct instance *instance, uint32_t steps)
{
    struct microbatch *microbatch = instance->current;
    uint64_t before = token_clock(instance->yield, microbatch->step_counter);
    instance->step_counter += steps;
    microbatch->step_counter += steps;
    uint64_t tokens = token_clock(instance->yield, microbatch->step_counter) - before;
    for (uint32_t g = 0; g < instance->config->group_count; g++) {
        struct step_group *sums = &microbatch->groups[g];
        sums->decode_context += sums->decode_sequences * tokens;
    }
}

/* The youngest sequence of the group that is in the batch or waits for a place in it; looked for only when the pool is
 * short. Sequences still being prefilled or filled cannot be taken: somebody writes to their pages. Nor can those of
 * microbatches that are in the stages. */
static uint32_t youngest(const struct instance *instance, uint32_t g)
{
    const struct group *group = &instance->groups[g];
    const struct slot_heap *attention = &instance->current->attention[g];
    const struct sequence *table = instance->sequences;
    uint32_t best = attention->entries[0].slot;
    for (uint32_t i = 1; i < attention->count; i++)
        if (table[attention->entries[i].slot].age > table[best].age)
            best = attention->entries[i].slot;
    for (uint32_t slot = group->ready.head; slot != SLOT_NONE; slot = table[slot].next)
        if (table[slot].age > table[best].age)
            best = slot;
    return best;
}

static uint32_t preempt_youngest(struct instance *instance, uint32_t g)
{
    uint32_t slot = youngest(instance, g);
    if (instance->sequences[slot].state == SEQUENCE_READY)
        sequence_list_remove(&instance->groups[g].ready, instance->sequences, slot);
    else
        decode_leave(instance, slot);
    return slot;
}

/* More pages for a sequence whose next step might overflow its own: the headroom, or what is left of the pool if that
 * is less. Where tokens are drafted its pages need not be full yet, and one more need not do: what is not enough for
 * the next step is not taken, for the sequence may be the one that has to go. */
static bool grow(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    struct group *group = &instance->groups[s->group];
    uint32_t context = decode_context(instance, s);
    uint32_t page_tokens = instance->config->geometry.page_tokens;
    struct microbatch *microbatch = instance_microbatch(instance, slot);
    uint64_t step = microbatch->step_counter;
    uint64_t next = token_clock(instance->yield, step + 1) - token_clock(instance->yield, step);
    uint64_t room = ((uint64_t)s->page_count + page_pool_available(&group->pool)) * page_tokens;
    uint32_t want = decode_reserve_tokens(instance, s, context);
    if (min_u64(want, context + next) > room)
        return false;
    CHECK(instance_grow_pages(instance, slot, (uint32_t)min_u64(want, room)));
    slot_heap_remove(&microbatch->attention[s->group], slot);
    watch(instance, slot);
    return true;
}

enum decode_due decode_next_due(struct instance *instance, uint32_t *slot)
{
    for (uint32_t g = 0; g < instance->config->group_count; g++) {
        const struct microbatch *microbatch = instance->current;
        const struct slot_heap_entry *top;
        while ((top = slot_heap_top(&microbatch->attention[g])) != NULL &&
               step_of_key(top->key) <= microbatch->step_counter) {
            *slot = top->slot;
            const struct sequence *s = &instance->sequences[*slot];
            if (decode_produced(instance, s) == s->output_tokens) {
                decode_leave(instance, *slot);
                return DECODE_FINISHED;
            }
            if (grow(instance, *slot))
                continue;
            /* The pool is empty: the youngest goes, be it this one. */
            *slot = preempt_youngest(instance, g);
            return DECODE_PREEMPTED;
        }
    }
    return DECODE_NOTHING;
}
