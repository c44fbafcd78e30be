/* The rows of the CUDA device's next step. */
#include "real/device/cuda/cuda_internal.h"

#include "base/arith.h"
#include "base/check.h"

static void put_row(struct device *device, uint32_t row, uint32_t sequence, uint32_t position)
{
    const struct slot *s = &device->slots.slot[sequence];
    CHECK(row < device->rows_max && position < device->config.request_tokens_max);
    CHECK(position / device->pages.page_tokens < s->page_count);
    device->host.token[row] = slots_token(&device->slots, s, position);
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
    for (uint32_t i = 0; i < device->slots.decoding_count; i++) {
        put_row(device, i, device->slots.decoding[i], device->slots.slot[device->slots.decoding[i]].context);
        put_tile(device, i, i, 1);
        device->host.select[i] = i;
    }
}

static void put_chunks(struct device *device, struct cuda_step *step, bool sample_chunks)
{
    uint32_t heads = cuda_attention_block_heads(device->shape.heads, device->shape.kv_heads);
    uint32_t tile_rows = max_u32(1, CUDA_ATTENTION_ITEMS / heads);
    for (uint32_t c = 0; c < device->slots.chunk_count; c++) {
        const struct slot_chunk *chunk = &device->slots.chunks[c];
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
    device->rows_stale = device->rows_stale || device->slots.decoding_changed;
    device->slots.decoding_changed = false;
    struct cuda_step step = {.rows = device->slots.decoding_count,
                             .decode_rows = device->slots.decoding_count,
                             .samples = device->slots.decoding_count,
                             .splits = 1,
                             .graph = device->slots.chunk_count == 0};
    if (device->slots.decoding_count > 0)
        step.splits = splits_for(device, step.decode_rows);
    if (!step.graph) {
        put_decode(device);
        put_chunks(device, &step, sample_chunks);
        return step;
    }
    if (step.rows == 0)
        return step;
    step.rows = (uint32_t)1 << cuda_bucket(device->slots.decoding_count);
    step.decode_rows = step.samples = step.rows;
    step.splits = splits_for(device, step.rows);
    if (device->rows_stale) {
        put_decode(device);
        pad_rows(device, device->slots.decoding_count, step.rows);
    }
    return step;
}

static struct device_token reported(const struct device *device, uint32_t sequence)
{
    const struct slot *s = &device->slots.slot[sequence];
    return (struct device_token){
        .sequence = sequence, .request = s->request, .position = s->sampled_position, .token = s->sampled_token};
}

uint32_t cuda_batch_done(struct device *device, bool prefill_tokens, struct device_token *tokens)
{
    bool lead = device->shape.t == 0 && device->shape.last_stage;
    uint32_t count = 0;
    uint32_t sample = 0;
    for (uint32_t i = 0; i < device->slots.decoding_count; i++) {
        struct slot *s = &device->slots.slot[device->slots.decoding[i]];
        slot_sampled(s, device->sampled_host[sample++], s->context + 1);
        if (lead)
            tokens[count++] = reported(device, device->slots.decoding[i]);
    }
    bool sampled = prefill_tokens || device->config.memory.tail_bytes > 0;
    for (uint32_t c = 0; c < device->slots.chunk_count && sampled; c++) {
        const struct slot_chunk *chunk = &device->slots.chunks[c];
        slot_sampled(&device->slots.slot[chunk->sequence], device->sampled_host[sample++],
                     chunk->start + chunk->tokens);
        if (lead && prefill_tokens)
            tokens[count++] = reported(device, chunk->sequence);
    }
    /* After a step of decode alone the device has moved its rows on by itself; but stages do not sample. */
    device->rows_stale = device->slots.chunk_count > 0 || device->shape.stages > 1;
    slots_stepped(&device->slots);
    return count;
}
