/* The sequences of the host device and the rows of its next step. See host_device.h. */
#include "real/device/host/host_device.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/device/seeded.h"

#include <stdlib.h>
#include <string.h>

/* Room for `count` entries; out of memory is the machine's fault, but nothing can be done about it in mid-run. */
static void reserve(uint32_t **array, uint32_t *capacity, uint32_t count)
{
    if (count <= *capacity)
        return;
    uint32_t wanted = max_u32(count, max_u32(8, *capacity * 2));
    uint32_t *grown = realloc(*array, wanted * sizeof *grown);
    CHECK(grown != NULL);
    *array = grown;
    *capacity = wanted;
}

static struct host_sequence *sequence_at(struct host_device *device, uint32_t sequence)
{
    CHECK(sequence < device->config.sequences_max);
    return &device->sequences[sequence];
}

/* Names a slot for a request; the first change that does so makes it live. */
static struct host_sequence *name(struct host_device *device, const struct step_change *change)
{
    struct host_sequence *s = sequence_at(device, change->sequence);
    CHECK(change->group < device->shape.data);
    if (!s->live) {
        s->live = true;
        s->group = change->group;
        s->request = change->request;
        s->token_seed = change->token_seed;
        s->context = 0;
        s->page_count = 0;
        s->given_count = 0;
        s->sampled = false;
    }
    CHECK(s->request == change->request && s->group == change->group);
    return s;
}

static void add_pages(struct host_device *device, struct host_sequence *s, const struct step_change *change)
{
    if (change->page_count == 0 || s->group != device->shape.group)
        return;
    CHECK(change->page_first <= s->page_count);
    uint32_t count = change->page_first + change->page_count;
    reserve(&s->pages, &s->page_capacity, count);
    for (uint32_t i = 0; i < change->page_count; i++) {
        CHECK(change->pages[i] < device->config.memory.pages);
        s->pages[change->page_first + i] = change->pages[i];
    }
    s->page_count = max_u32(s->page_count, count);
}

static void leave(struct host_device *device, uint32_t sequence)
{
    struct host_sequence *s = sequence_at(device, sequence);
    /* Its slot may be named again by the same list of changes. */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < device->chunk_count; i++)
        if (device->chunks[i].sequence != sequence)
            device->chunks[kept++] = device->chunks[i];
    device->chunk_count = kept;
    if (s->decoding) {
        uint32_t last = device->decoding[--device->decoding_count];
        device->decoding[s->decode_index] = last;
        device->sequences[last].decode_index = s->decode_index;
    }
    s->decoding = false;
    s->live = false;
}

void host_sequence_release(struct host_sequence *sequence)
{
    free(sequence->pages);
    free(sequence->given);
    free(sequence->tail);
}

void host_change(struct host_device *device, const struct step_change *changes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct step_change *change = &changes[i];
        struct host_sequence *s;
        switch ((enum step_change_kind)change->kind) {
        case STEP_CHUNK:
            s = name(device, change);
            add_pages(device, s, change);
            CHECK(!s->decoding && device->chunk_count < device->config.sequences_max && change->tokens > 0);
            device->chunks[device->chunk_count++] =
                (struct host_chunk){.sequence = change->sequence, .start = change->start, .tokens = change->tokens};
            break;
        case STEP_JOIN:
            s = name(device, change);
            add_pages(device, s, change);
            CHECK(!s->decoding);
            s->decoding = true;
            s->context = change->start;
            s->decode_index = device->decoding_count;
            device->decoding[device->decoding_count++] = change->sequence;
            break;
        case STEP_PAGES:
            s = sequence_at(device, change->sequence);
            /* Pages of a sequence that no step has named yet come again, all of them, when one does. */
            if (s->live)
                add_pages(device, s, change);
            break;
        case STEP_LEAVE:
            leave(device, change->sequence);
            break;
        }
    }
}

void host_given(struct host_device *device, uint32_t sequence, uint32_t first, const uint32_t *tokens, uint32_t count)
{
    struct host_sequence *s = sequence_at(device, sequence);
    CHECK(s->live);
    reserve(&s->given, &s->given_capacity, count);
    if (count > 0)
        memcpy(s->given, tokens, count * sizeof *tokens);
    s->given_first = first;
    s->given_count = count;
}

uint32_t host_input_token(const struct host_device *device, const struct host_sequence *s, uint32_t position)
{
    /* What followed a chunk in the middle of a prompt was not the prompt's next token. */
    if (s->decoding && s->sampled && s->sampled_position == position)
        return s->sampled_token;
    if (position >= s->given_first && position - s->given_first < s->given_count)
        return s->given[position - s->given_first];
    return seeded_prompt_token(s->token_seed, position, device->architecture.vocab);
}

/* Counts the rows of a sequence's group, and lists them where the group is this rank's. */
static void add_rows(struct host_device *device, uint32_t sequence, uint32_t position, uint32_t rows, bool chunk,
                     bool sample)
{
    struct host_batch *batch = &device->batch;
    const struct host_sequence *s = &device->sequences[sequence];
    batch->group_rows[s->group] += rows;
    batch->group_samples[s->group] += sample;
    if (s->group != device->shape.group)
        return;
    CHECK(batch->rows + rows <= device->config.tokens_max);
    CHECK(position + rows <= device->config.request_tokens_max);
    CHECK((uint64_t)s->page_count * device->config.memory.geometry.page_tokens >= position + rows);
    batch->spans[batch->span_count++] = (struct host_span){.sequence = sequence,
                                                           .position = position,
                                                           .row_first = batch->rows,
                                                           .rows = rows,
                                                           .chunk = chunk,
                                                           .sample = sample};
    batch->rows += rows;
    batch->samples += sample;
}

void host_batch_build(struct host_device *device, bool prefill_tokens)
{
    struct host_batch *batch = &device->batch;
    uint32_t groups = device->shape.data;
    batch->span_count = batch->rows = batch->samples = batch->row_before = batch->rows_all = 0;
    memset(batch->group_rows, 0, groups * sizeof *batch->group_rows);
    memset(batch->group_samples, 0, groups * sizeof *batch->group_samples);
    for (uint32_t i = 0; i < device->decoding_count; i++) {
        uint32_t sequence = device->decoding[i];
        add_rows(device, sequence, device->sequences[sequence].context, 1, false, true);
    }
    bool sample = prefill_tokens || device->config.memory.tail_bytes > 0;
    for (uint32_t i = 0; i < device->chunk_count; i++) {
        const struct host_chunk *chunk = &device->chunks[i];
        add_rows(device, chunk->sequence, chunk->start, chunk->tokens, true, sample);
    }
    for (uint32_t g = 0; g < groups; g++) {
        batch->rows_all += batch->group_rows[g];
        if (g < device->shape.group)
            batch->row_before += batch->group_rows[g];
    }
}

void host_batch_done(struct host_device *device)
{
    for (uint32_t i = 0; i < device->decoding_count; i++)
        device->sequences[device->decoding[i]].context++;
    for (uint32_t i = 0; i < device->chunk_count; i++)
        device->sequences[device->chunks[i].sequence].context = device->chunks[i].start + device->chunks[i].tokens;
    device->chunk_count = 0;
}
