/* The host device: a decoder-only transformer on the CPU, one rank of it. See device.h and host_device.h. */
#include "real/device/host/host_device.h"

#include "base/arith.h"
#include "base/check.h"
#include "real/device/host/linear.h"
#include "real/device/kernels/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct host_device *host_of(struct device *device)
{
    return (struct host_device *)(void *)device;
}

static void host_free(struct device *device)
{
    struct host_device *host = host_of(device);
    if (host == NULL)
        return;
    slots_free(&host->slots);
    for (uint32_t i = 0; host->tails != NULL && i < host->config.sequences_max; i++)
        free(host->tails[i]);
    void *const owned[] = {
        host->tails,
        host->batch.spans,
        host->batch.group_rows,
        host->batch.group_samples,
        host->x,
        host->normed,
        host->partial,
        host->q,
        host->kv_new,
        host->o,
        host->latent,
        host->sums,
        host->frequencies,
        host->cosines,
        host->sines,
        host->keys,
        host->values,
        host->scores,
        host->gate,
        host->up,
        host->logits,
        host->normed_last,
        host->pairs,
        host->pairs_all,
        host->rows_all,
        host->counts,
        host->kv_owned,
    };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    host_moe_free(host->moe);
    host_weights_free(&host->weights);
    free(host);
}

/* Makes arrays, or only counts what they would take. */
struct room {
    bool counting;
    bool enough; /* there was memory for all so far */
    uint64_t bytes;
};

static void *array(size_t count, size_t size, struct room *room)
{
    room->bytes += (uint64_t)count * size;
    if (count == 0 || room->counting)
        return NULL;
    void *memory = calloc(count, size);
    room->enough &= memory != NULL;
    return memory;
}

static float *floats(size_t a, size_t b, struct room *room)
{
    return array(a * b, sizeof(float), room);
}

static void make_lists(struct host_device *host, struct room *room)
{
    const struct host_shape *shape = &host->shape;
    size_t sequences = host->config.sequences_max;
    if (!room->counting)
        room->enough &= slots_make(&host->slots, &(struct slots_config){.sequences_max = host->config.sequences_max,
                                                                        .pages = host->config.memory.pages,
                                                                        .vocab = host->architecture.vocab,
                                                                        .groups = (uint16_t)shape->data,
                                                                        .group = (uint16_t)shape->group,
                                                                        .every_group = true});
    host->tails = array(sequences, sizeof *host->tails, room);
    host->batch.spans = array(sequences, sizeof *host->batch.spans, room);
    host->batch.group_rows = array(shape->data, sizeof *host->batch.group_rows, room);
    host->batch.group_samples = array(shape->data, sizeof *host->batch.group_samples, room);
    host->counts = array(shape->ranks, sizeof *host->counts, room);
    host->pairs = floats(sequences, 2, room);
    host->pairs_all = floats(sequences * shape->stage_ranks, 2, room);
}

static void make_buffers(struct host_device *host, struct room *room)
{
    const struct architecture *a = &host->architecture;
    const struct host_shape *shape = &host->shape;
    bool latent = a->attention == ATTENTION_MLA;
    size_t rows = host->config.tokens_max;
    size_t context = host->config.request_tokens_max;
    size_t columns =
        max_u32(shape->dense_units * shape->dense_width,
                max_u32(shape->expert_units * shape->expert_width, shape->shared_units * shape->shared_width));
    host->x = floats(rows, a->hidden, room);
    host->normed = floats(rows, a->hidden, room);
    host->partial = floats(rows, a->hidden, room);
    host->q = floats(rows, (size_t)shape->heads * shape->query_dim, room);
    host->kv_new = floats(rows, latent ? shape->cache_dim : (size_t)2 * shape->kv_heads * shape->cache_dim, room);
    host->o = floats(rows, (size_t)shape->heads * shape->value_dim, room);
    host->latent = floats(latent ? rows : 0, max_u32(a->q_latent_dim, shape->cache_dim), room);
    host->sums = floats(latent ? rows : 0, a->latent_dim, room);
    host->frequencies = array(shape->rotated / 2, sizeof *host->frequencies, room);
    host->cosines = floats(rows, shape->rotated / 2, room);
    host->sines = floats(rows, shape->rotated / 2, room);
    host->keys = array(context * shape->cache_dim, sizeof *host->keys, room);
    host->values = array(latent ? 0 : context * shape->cache_dim, sizeof *host->values, room);
    host->scores = floats(context, 1, room);
    host->gate = floats(HOST_MLP_ROWS, columns, room);
    host->up = floats(HOST_MLP_ROWS, columns, room);
    host->logits = floats(shape->last_stage ? HOST_LOGIT_ROWS : 0, shape->vocab_count, room);
    host->normed_last = floats(shape->last_stage ? HOST_LOGIT_ROWS : 0, a->hidden, room);
    host->rows_all = floats(shape->data > 1 || shape->stages > 1 ? shape->data * rows : 0, a->hidden, room);
    for (uint32_t i = 0; host->frequencies != NULL && i < shape->rotated / 2; i++)
        host->frequencies[i] = pow(MODEL_ROPE_BASE, -2.0 * i / shape->rotated);
    if (a->experts > 0) {
        room->bytes += host_moe_bytes(host);
        host->moe = room->counting ? NULL : host_moe_make(host);
        room->enough &= room->counting || host->moe != NULL;
    }
}

static struct device *host_make(const struct device_config *config, struct user_error *error)
{
    struct host_device *host = calloc(1, sizeof *host);
    bool enough = host != NULL;
    if (enough) {
        host->config = *config;
        host->architecture = *config->architecture;
        host->config.architecture = &host->architecture;
        if (!host_shape_make(&host->shape, config, error)) {
            host_free((struct device *)(void *)host);
            return NULL;
        }
        struct room room = {.enough = true};
        host->kv = config->kv;
        if (host->kv == NULL)
            host->kv = host->kv_owned = array(1, kv_memory_bytes(&config->memory, config->rank), &room);
        make_lists(host, &room);
        make_buffers(host, &room);
        enough =
            room.enough && host_weights_make(&host->weights, &host->architecture, &host->shape, config->weight_seed);
    }
    if (!enough) {
        user_error_set(error, NULL, 0, NULL, "the host device of rank %u does not fit this machine's memory",
                       config->rank);
        host_free((struct device *)(void *)host);
        return NULL;
    }
    CHECK(host->shape.ranks == 1 || config->collective != NULL);
    return (struct device *)(void *)host;
}

static bool host_bytes(const struct device_config *config, uint64_t *weights, uint64_t *buffers,
                       struct user_error *error)
{
    struct host_device *host = calloc(1, sizeof *host);
    struct room room = {.counting = true, .enough = true};
    CHECK(host != NULL);
    host->config = *config;
    host->architecture = *config->architecture;
    bool good = host_shape_make(&host->shape, config, error);
    if (good) {
        make_lists(host, &room);
        make_buffers(host, &room);
        *weights = host_weights_bytes(&host->architecture, &host->shape);
        *buffers = room.bytes;
    }
    free(host);
    return good;
}

static void host_change_op(struct device *device, const struct step_change *changes, uint32_t count)
{
    slots_change(&host_of(device)->slots, changes, count);
}

static void host_given_op(struct device *device, uint32_t sequence, uint32_t first, const uint32_t *tokens,
                          uint32_t count)
{
    slots_given(&host_of(device)->slots, sequence, first, tokens, count);
}

static void embed(struct host_device *host)
{
    for (uint32_t i = 0; i < host->batch.span_count; i++) {
        const struct host_span *span = &host->batch.spans[i];
        const struct slot *s = &host->slots.slot[span->sequence];
        for (uint32_t r = 0; r < span->rows; r++)
            host_embedding(&host->weights, &host->architecture, slots_token(&host->slots, s, span->position + r),
                           host->x + (size_t)(span->row_first + r) * host->architecture.hidden);
    }
}

static void angles(struct host_device *host)
{
    uint32_t n = host->shape.rotated;
    for (uint32_t i = 0; i < host->batch.span_count; i++) {
        const struct host_span *span = &host->batch.spans[i];
        for (uint32_t r = 0; r < span->rows; r++) {
            size_t at = (size_t)(span->row_first + r) * (n / 2);
            linear_angles(span->position + r, host->frequencies, n, host->cosines + at, host->sines + at);
        }
    }
}

static bool run_layers(struct host_device *host, uint64_t counter_base)
{
    for (uint32_t l = 0; l < host->shape.layer_count; l++) {
        uint32_t layer = host->shape.layer_first + l;
        if (!host_attention(host, layer))
            return false;
        if (host->shape.t == 0 && host->config.layer_counter != NULL)
            atomic_store_explicit(host->config.layer_counter, counter_base + layer + 1, memory_order_release);
        if (host->batch.rows_all > 0 && !host_mlp_layer(host, layer))
            return false;
    }
    return true;
}

/* The leads of `stage` hand their rows to everyone; the next stage takes its group's. */
static bool hand_over(struct host_device *host, uint32_t stage)
{
    const struct host_shape *shape = &host->shape;
    size_t hidden = host->architecture.hidden;
    for (uint32_t rank = 0; rank < shape->ranks; rank++) {
        bool lead = rank / shape->stage_ranks == stage && rank % shape->tensor == 0;
        host->counts[rank] = lead ? host->batch.group_rows[rank / shape->tensor % shape->data] * hidden : 0;
    }
    if (!collective_all_gather_counts(host->config.collective, 0, shape->ranks, host->x, host->counts, host->rows_all))
        return false;
    if (stage + 1 == shape->stage)
        memcpy(host->x, host->rows_all + host->batch.row_before * hidden, host->batch.rows * hidden * sizeof *host->x);
    return true;
}

static bool host_step(struct device *device, uint64_t counter_base, bool prefill_tokens, struct device_token *tokens,
                      uint32_t *token_count)
{
    struct host_device *host = host_of(device);
    *token_count = 0;
    host_batch_build(host, prefill_tokens);
    angles(host);
    if (host->shape.stage == 0)
        embed(host);
    for (uint32_t stage = 0; stage < host->shape.stages; stage++) {
        if (stage == host->shape.stage && !run_layers(host, counter_base))
            return false;
        if (stage + 1 < host->shape.stages && !hand_over(host, stage))
            return false;
    }
    if (!host_sample(host, prefill_tokens, tokens, token_count))
        return false;
    slots_stepped(&host->slots);
    return true;
}

static void host_tail_store_op(struct device *device, uint32_t sequence, uint32_t slot)
{
    struct host_device *host = host_of(device);
    CHECK(sequence < host->config.sequences_max && slot < host->config.memory.tail_slots);
    host_tail_store(host, sequence, slot);
}

static uint64_t host_page_digest(struct device *device, uint32_t layer, uint32_t plane, uint32_t page)
{
    const struct host_device *host = host_of(device);
    const struct kv_memory *memory = &host->config.memory;
    CHECK(page < memory->pages && plane < memory->geometry.planes);
    const uint8_t *at = host->kv + kv_memory_page_offset(memory, host->config.rank, layer, plane, page);
    return device_digest(at, kv_page_plane_bytes(&memory->geometry));
}

const struct device_ops device_host = {
    .name = "host",
    .bytes = host_bytes,
    .make = host_make,
    .free = host_free,
    .change = host_change_op,
    .given = host_given_op,
    .step = host_step,
    .tail_store = host_tail_store_op,
    .page_digest = host_page_digest,
};
