/* See slots.h. */
#include "real/device/slots.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/device/seeded.h"

#include <stdlib.h>
#include <string.h>

bool slots_make(struct slots *slots, const struct slots_config *config)
{
    uint32_t sequences = config->sequences_max;
    *slots = (struct slots){
        .config = *config,
        .slot = calloc(sequences, sizeof *slots->slot),
        .decoding = calloc(sequences, sizeof *slots->decoding),
        .chunks = calloc(sequences, sizeof *slots->chunks),
    };
    return slots->slot != NULL && slots->decoding != NULL && slots->chunks != NULL;
}

void slots_free(struct slots *slots)
{
    for (uint32_t i = 0; slots->slot != NULL && i < slots->config.sequences_max; i++) {
        free(slots->slot[i].pages);
        free(slots->slot[i].given);
    }
    free(slots->slot);
    free(slots->decoding);
    free(slots->chunks);
    *slots = (struct slots){.slot = NULL};
}

/* Room for `count` entries; out of memory is the machine's fault, but nothing can be done about it in mid-run. */
static void reserve(uint32_t **array, uint32_t *room, uint32_t count)
{
    if (count <= *room)
        return;
    uint32_t wanted = max_u32(count, max_u32(8, *room * 2));
    uint32_t *grown = realloc(*array, wanted * sizeof *grown);
    CHECK(grown != NULL);
    *array = grown;
    *room = wanted;
}

static struct slot *slot_at(struct slots *slots, uint32_t sequence)
{
    CHECK(sequence < slots->config.sequences_max);
    return &slots->slot[sequence];
}

/* Names a slot for a request; the first change that does so makes it live. */
static struct slot *name(struct slots *slots, const struct step_change *change)
{
    struct slot *slot = slot_at(slots, change->sequence);
    CHECK(change->group < slots->config.groups);
    if (!slot->live) {
        slot->live = true;
        slot->group = change->group;
        slot->request = change->request;
        slot->token_seed = change->token_seed;
        slot->context = 0;
        slot->page_count = 0;
        slot->given_count = 0;
        slot->sampled = false;
    }
    CHECK(slot->request == change->request && slot->group == change->group);
    return slot;
}

static void add_pages(struct slots *slots, struct slot *slot, const struct step_change *change)
{
    if (change->page_count == 0 || slot->group != slots->config.group)
        return;
    CHECK(change->page_first <= slot->page_count);
    uint32_t count = change->page_first + change->page_count;
    reserve(&slot->pages, &slot->page_room, count);
    for (uint32_t i = 0; i < change->page_count; i++) {
        CHECK(change->pages[i] < slots->config.pages);
        slot->pages[change->page_first + i] = change->pages[i];
    }
    slot->page_count = max_u32(slot->page_count, count);
    slot->pages_changed = true;
    slots->pages_changed = true;
}

static void leave(struct slots *slots, uint32_t sequence)
{
    struct slot *slot = slot_at(slots, sequence);
    /* Its slot may be named again by the same list of changes. */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < slots->chunk_count; i++)
        if (slots->chunks[i].sequence != sequence)
            slots->chunks[kept++] = slots->chunks[i];
    slots->chunk_count = kept;
    if (slot->decoding) {
        uint32_t last = slots->decoding[--slots->decoding_count];
        slots->decoding[slot->decode_index] = last;
        slots->slot[last].decode_index = slot->decode_index;
        slots->decoding_changed = true;
    }
    slot->decoding = false;
    slot->live = false;
}

static void add_chunk(struct slots *slots, const struct step_change *change)
{
    struct slot *slot = name(slots, change);
    add_pages(slots, slot, change);
    CHECK(!slot->decoding && slots->chunk_count < slots->config.sequences_max && change->tokens > 0);
    slots->chunks[slots->chunk_count++] =
        (struct slot_chunk){.sequence = change->sequence, .start = change->start, .tokens = change->tokens};
}

static void join(struct slots *slots, const struct step_change *change)
{
    struct slot *slot = name(slots, change);
    add_pages(slots, slot, change);
    CHECK(!slot->decoding && slots->decoding_count < slots->config.sequences_max);
    slot->decoding = true;
    slot->microbatch = slots->microbatch;
    slot->context = change->start;
    slot->decode_index = slots->decoding_count;
    slots->decoding[slots->decoding_count++] = change->sequence;
    slots->decoding_changed = true;
}

void slots_change(struct slots *slots, uint32_t microbatch, const struct step_change *changes, uint32_t count)
{
    slots->microbatch = (uint16_t)microbatch;
    for (uint32_t i = 0; i < count; i++) {
        const struct step_change *change = &changes[i];
        if (change->group != slots->config.group && !slots->config.every_group)
            continue;
        switch ((enum step_change_kind)change->kind) {
        case STEP_CHUNK:
            add_chunk(slots, change);
            break;
        case STEP_JOIN:
            join(slots, change);
            break;
        case STEP_PAGES:
            /* Pages of a sequence that no step has named yet come again, all of them, when one does. */
            if (slot_at(slots, change->sequence)->live)
                add_pages(slots, slot_at(slots, change->sequence), change);
            break;
        case STEP_LEAVE:
            leave(slots, change->sequence);
            break;
        }
    }
}

void slots_given(struct slots *slots, uint32_t sequence, uint32_t first, const uint32_t *tokens, uint32_t count)
{
    struct slot *slot = slot_at(slots, sequence);
    CHECK(slot->live || !slots->config.every_group);
    if (!slot->live)
        return;
    reserve(&slot->given, &slot->given_room, count);
    if (count > 0)
        memcpy(slot->given, tokens, count * sizeof *tokens);
    slot->given_first = first;
    slot->given_count = count;
}

uint32_t slots_token(const struct slots *slots, const struct slot *slot, uint32_t position)
{
    /* What followed a chunk in the middle of a prompt was not the prompt's next token. */
    if (slot->decoding && slot->sampled && slot->sampled_position == position)
        return slot->sampled_token;
    if (position >= slot->given_first && position - slot->given_first < slot->given_count)
        return slot->given[position - slot->given_first];
    return seeded_prompt_token(slot->token_seed, position, slots->config.vocab);
}

void slot_sampled(struct slot *slot, uint32_t token, uint32_t position)
{
    slot->sampled = true;
    slot->sampled_token = token;
    slot->sampled_position = position;
}

void slots_stepped(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->decoding_count; i++)
        if (slots->slot[slots->decoding[i]].microbatch == slots->microbatch)
            slots->slot[slots->decoding[i]].context++;
    for (uint32_t i = 0; i < slots->chunk_count; i++)
        slots->slot[slots->chunks[i].sequence].context = slots->chunks[i].start + slots->chunks[i].tokens;
    slots->chunk_count = 0;
}
