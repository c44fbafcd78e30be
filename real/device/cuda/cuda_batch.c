/* The sequences of the CUDA device and the rows of its next step. */
#include "real/device/cuda/cuda_internal.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/device/seeded.h"

#include <stdlib.h>
#include <string.h>

static struct cuda_sequence *sequence_at(struct device *device, uint32_t sequence)
{
    CHECK(sequence < device->config.sequences_max);
    return &device->sequences[sequence];
}

/* Names a slot for a request; the first change that does so makes it live. */
static struct cuda_sequence *name(struct device *device, const struct step_change *change)
{
    struct cuda_sequence *s = sequence_at(device, change->sequence);
    if (!s->live) {
        free(s->given);
        *s = (struct cuda_sequence){.live = true, .request = change->request, .token_seed = change->token_seed};
    }
    CHECK(s->request == change->request);
    return s;
}

/* Pages past the longest request are never reached, and not kept. */
static void add_pages(struct device *device, struct cuda_sequence *s, const struct step_change *change)
{
    uint32_t *table = device->page_table_host + (size_t)change->sequence * device->pages_max;
    for (uint32_t i = 0; i < change->page_count; i++) {
        CHECK(change->pages[i] < device->config.memory.pages);
        if (change->page_first + i < device->pages_max)
            table[change->page_first + i] = change->pages[i];
    }
    if (change->page_count == 0)
        return;
    CHECK(change->page_first <= s->page_count || s->page_count == device->pages_max);
    s->page_count = min_u32(device->pages_max, max_u32(s->page_count, change->page_first + change->page_count));
    s->pages_stale = true;
    device->table_stale = true;
}

static void leave(struct device *device, uint32_t sequence)
{
    struct cuda_sequence *s = sequence_at(device, sequence);
    /* Its slot may be named again by the same list of changes. */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < device->chunk_count; i++)
        if (device->chunks[i].sequence != sequence)
            device->chunks[kept++] = device->chunks[i];
    device->chunk_count = kept;
    if (s->decoding) {
        uint32_t at = 0;
        while (device->decoding[at] != sequence)
            at++;
        device->decoding[at] = device->decoding[--device->decoding_count];
        device->rows_stale = true;
    }
    s->decoding = false;
    s->live = false;
}

void cuda_change(struct device *device, const struct step_change *changes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct step_change *change = &changes[i];
        struct cuda_sequence *s;
        if (change->group != device->shape.group)
            continue;
        switch ((enum step_change_kind)change->kind) {
        case STEP_CHUNK:
            s = name(device, change);
            add_pages(device, s, change);
            CHECK(!s->decoding && device->chunk_count < device->config.sequences_max && change->tokens > 0);
            device->chunks[device->chunk_count++] =
                (struct cuda_chunk){.sequence = change->sequence, .start = change->start, .tokens = change->tokens};
            break;
        case STEP_JOIN:
            s = name(device, change);
            add_pages(device, s, change);
            CHECK(!s->decoding && device->decoding_count < device->config.sequences_max);
            s->decoding = true;
            s->context = change->start;
            device->decoding[device->decoding_count++] = change->sequence;
            device->rows_stale = true;
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

void cuda_given(struct device *device, uint32_t sequence, uint32_t first, const uint32_t *tokens, uint32_t count)
{
    struct cuda_sequence *s = sequence_at(device, sequence);
    if (!s->live) /* of another group: its slot is unknown here */
        return;
    free(s->given);
    s->given = NULL;
    s->given_first = first;
    s->given_count = count;
    if (count == 0)
        return;
    s->given = malloc(count * sizeof *tokens);
    CHECK(s->given != NULL);
    memcpy(s->given, tokens, count * sizeof *tokens);
}

static uint32_t input_token(const struct device *device, const struct cuda_sequence *s, uint32_t position)
{
    /* What followed a chunk in the middle of a prompt was not the prompt's next token. */
    if (s->decoding && s->sampled && s->sampled_position == position)
        return s->sampled_token;
    if (position >= s->given_first && position - s->given_first < s->given_count)
        return s->given[position - s->given_first];
    return seeded_prompt_token(s->token_seed, position, device->architecture.vocab);
}

static void put_row(struct device *device, uint32_t row, uint32_t sequence, uint32_t position)
{
    const struct cuda_sequence *s = &device->sequences[sequence];
    CHECK(row < device->rows_max && position < device->config.request_tokens_max);
    CHECK(position / device->pages.page_tokens < s->page_count);
    device->host.token[row] = input_token(device, s, position);
    device->host.position[row] = position;
    device->host.sequence[row] = sequence;
}

static void put_tile(struct device *device, uint32_t tile, uint32_t row, uint32_t rows)
{
    device->host.tile_row[tile] = row;
    device->host.tile_rows[tile] = rows;
}

/* Rows of decode sequences come first, each a tile of its own and a sample. */
static void put_decode(struct device *device)
{
    for (uint32_t i = 0; i < device->decoding_count; i++) {
        put_row(device, i, device->decoding[i], device->sequences[device->decoding[i]].context);
        put_tile(device, i, i, 1);
        device->host.select[i] = i;
    }
}

static void put_chunks(struct device *device, struct cuda_step *step, bool sample_chunks)
{
    uint32_t heads = cuda_attention_block_heads(device->shape.heads, device->shape.kv_heads);
    uint32_t tile_rows = max_u32(1, CUDA_ATTENTION_ITEMS / heads);
    for (uint32_t c = 0; c < device->chunk_count; c++) {
        const struct cuda_chunk *chunk = &device->chunks[c];
        for (uint32_t i = 0; i < chunk->tokens; i++) {
            if (i % tile_rows == 0)
                put_tile(device, step->decode_rows + step->tiles++, step->rows, min_u32(tile_rows, chunk->tokens - i));
            put_row(device, step->rows++, chunk->sequence, chunk->start + i);
        }
        if (sample_chunks)
            device->host.select[step->samples++] = step->rows - 1;
    }
}

static void pad_rows(struct device *device, uint32_t from, uint32_t to)
{
    for (uint32_t row = from; row < to; row++) {
        device->host.token[row] = 0;
        device->host.position[row] = 0;
        device->host.sequence[row] = CUDA_ROW_NONE;
        put_tile(device, row, row, 1);
    }
}

/* Parts that each decode row's context is dealt to. */
static uint32_t splits_for(const struct device *device, uint32_t rows)
{
    const struct cuda_shape *s = &device->shape;
    uint32_t blocks = rows * (s->heads / cuda_attention_block_heads(s->heads, s->kv_heads));
    return max_u32(1, min_u32(CUDA_ATTENTION_SPLITS_MAX, CUDA_ATTENTION_BLOCKS / blocks));
}

struct cuda_step cuda_batch_build(struct device *device, bool sample_chunks)
{
    struct cuda_step step = {.rows = device->decoding_count,
                             .decode_rows = device->decoding_count,
                             .samples = device->decoding_count,
                             .splits = 1,
                             .graph = device->chunk_count == 0};
    if (device->decoding_count > 0)
        step.splits = splits_for(device, step.decode_rows);
    if (!step.graph) {
        put_decode(device);
        put_chunks(device, &step, sample_chunks);
        return step;
    }
    if (step.rows == 0)
        return step;
    step.rows = (uint32_t)1 << cuda_bucket(device->decoding_count);
    step.decode_rows = step.samples = step.rows;
    step.splits = splits_for(device, step.rows);
    if (device->rows_stale) {
        put_decode(device);
        pad_rows(device, device->decoding_count, step.rows);
    }
    return step;
}

static void take_in(struct cuda_sequence *s, uint32_t token, uint32_t position)
{
    s->sampled = true;
    s->sampled_token = token;
    s->sampled_position = position;
}

static struct device_token reported(const struct device *device, uint32_t sequence)
{
    const struct cuda_sequence *s = &device->sequences[sequence];
    return (struct device_token){
        .sequence = sequence, .request = s->request, .position = s->sampled_position, .token = s->sampled_token};
}

uint32_t cuda_batch_done(struct device *device, bool prefill_tokens, struct device_token *tokens)
{
    bool lead = device->shape.t == 0 && device->shape.last_stage;
    uint32_t count = 0;
    uint32_t sample = 0;
    for (uint32_t i = 0; i < device->decoding_count; i++) {
        struct cuda_sequence *s = &device->sequences[device->decoding[i]];
        s->context++;
        take_in(s, device->sampled_host[sample++], s->context);
        if (lead)
            tokens[count++] = reported(device, device->decoding[i]);
    }
    bool sampled = prefill_tokens || device->config.memory.tail_bytes > 0;
    for (uint32_t c = 0; c < device->chunk_count; c++) {
        const struct cuda_chunk *chunk = &device->chunks[c];
        struct cuda_sequence *s = &device->sequences[chunk->sequence];
        s->context = chunk->start + chunk->tokens;
        if (!sampled)
            continue;
        take_in(s, device->sampled_host[sample++], s->context);
        if (lead && prefill_tokens)
            tokens[count++] = reported(device, chunk->sequence);
    }
    /* After a step of decode alone the device has moved its rows on by itself; but stages do not sample. */
    device->rows_stale = device->chunk_count > 0 || device->shape.stages > 1;
    device->chunk_count = 0;
    return count;
}
