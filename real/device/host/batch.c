/* The rows of the host device's next step. See host_device.h. */
#include "real/device/host/host_device.h"

#include "base/check.h"

#include <string.h>

/* Counts the rows of a sequence's group, and lists them where the group is this rank's. */
static void add_rows(struct host_device *device, uint32_t sequence, uint32_t position, uint32_t rows, bool chunk,
                     bool sample)
{
    struct host_batch *batch = &device->batch;
    const struct slot *s = &device->slots.slot[sequence];
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
    for (uint32_t i = 0; i < device->slots.decoding_count; i++) {
        uint32_t sequence = device->slots.decoding[i];
        if (device->slots.slot[sequence].microbatch != device->slots.microbatch)
            continue;
        add_rows(device, sequence, device->slots.slot[sequence].context, 1, false, true);
    }
    bool sample = prefill_tokens || device->config.memory.tail_bytes > 0;
    for (uint32_t i = 0; i < device->slots.chunk_count; i++) {
        const struct slot_chunk *chunk = &device->slots.chunks[i];
        add_rows(device, chunk->sequence, chunk->start, chunk->tokens, true, sample);
    }
    for (uint32_t g = 0; g < groups; g++) {
        batch->rows_all += batch->group_rows[g];
        if (g < device->shape.group)
            batch->row_before += batch->group_rows[g];
    }
}
