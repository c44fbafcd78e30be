/* See device_instance.h. */
#define _POSIX_C_SOURCE 200809L
#include "support/device_instance.h"

#include "base/arith.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COLLECTIVE_FLOATS 1000 /* so that most vectors go in pieces */
#define TAIL_SLOTS 2

struct rank {
    struct device_instance *instance;
    uint32_t index;
    struct device *device;
    struct collective *collective;
    uint8_t *kv;
    _Atomic uint64_t counter;
    pthread_t thread;
    struct device_token *tokens;
    uint32_t token_count;
    bool done; /* what the step returned */
};

struct device_instance {
    struct device_instance_config config;
    struct kv_memory memory;
    uint32_t rank_count;
    struct rank *ranks;
    void *shared;
    _Atomic bool abandon;
    pthread_barrier_t start;
    pthread_barrier_t end;
    bool stopping;
    uint64_t steps;

    /* The step at hand. */
    const struct step_change *changes;
    uint32_t change_count;
    bool prefill_tokens;
};

static void rank_step(struct rank *rank)
{
    struct device_instance *instance = rank->instance;
    const struct device_ops *ops = instance->config.ops;
    ops->change(rank->device, instance->changes, instance->change_count);
    rank->done = ops->step(rank->device, instance->steps * instance->config.architecture->layers,
                           instance->prefill_tokens, rank->tokens, &rank->token_count);
}

static void *rank_main(void *context)
{
    struct rank *rank = context;
    for (;;) {
        pthread_barrier_wait(&rank->instance->start);
        if (rank->instance->stopping)
            return NULL;
        rank_step(rank);
        pthread_barrier_wait(&rank->instance->end);
    }
}

static void rank_make(struct device_instance *instance, uint32_t index)
{
    struct rank *rank = &instance->ranks[index];
    const struct device_instance_config *config = &instance->config;
    size_t bytes = kv_memory_bytes(&instance->memory, index);
    rank->instance = instance;
    rank->index = index;
    rank->kv = malloc(bytes);
    rank->tokens = calloc(config->sequences_max, sizeof *rank->tokens);
    assert_non_null(rank->kv);
    assert_non_null(rank->tokens);
    memset(rank->kv, 0xff, bytes); /* bf16 NaN: what is read before it is written shows */
    struct device_config device = {
        .architecture = config->architecture,
        .memory = instance->memory,
        .rank = index,
        .weight_seed = config->weight_seed,
        .sequences_max = config->sequences_max,
        .tokens_max = config->tokens_max,
        .request_tokens_max = config->pages * config->page_tokens,
        .kv = rank->kv,
        .layer_counter = &rank->counter,
        .abandon = &instance->abandon,
    };
    if (instance->rank_count > 1)
        rank->collective =
            collective_join(instance->shared, index, instance->rank_count, COLLECTIVE_FLOATS, &instance->abandon);
    device.collective = rank->collective;
    struct user_error error = {.set = false};
    rank->device = instance->config.ops->make(&device, &error);
    if (rank->device == NULL)
        fail_msg("device: %s", error.text);
}

/* Tells every rank's device what the others have shared. */
static void ranks_join(struct device_instance *instance)
{
    const struct device_ops *ops = instance->config.ops;
    struct user_error error = {.set = false};
    if (ops->join == NULL)
        return;
    int *descriptors = calloc(instance->rank_count, sizeof *descriptors);
    assert_non_null(descriptors);
    for (uint32_t i = 0; i < instance->rank_count; i++) {
        descriptors[i] = ops->share(instance->ranks[i].device, DEVICE_SHARE_PEERS, &error);
        assert_string_equal(error.text, "");
    }
    for (uint32_t i = 0; i < instance->rank_count; i++)
        assert_true(ops->join(instance->ranks[i].device, descriptors, &error));
    for (uint32_t i = 0; i < instance->rank_count; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    free(descriptors);
}

struct device_instance *device_instance_make(const struct device_instance_config *config)
{
    struct device_instance *instance = calloc(1, sizeof *instance);
    assert_non_null(instance);
    instance->config = *config;
    if (config->ops == NULL)
        instance->config.ops = &device_host;
    instance->memory.pages = config->pages;
    instance->memory.tail_slots = TAIL_SLOTS;
    instance->memory.tail_bytes = config->architecture->tail_bytes;
    assert_int_equal(kv_geometry_make(config->architecture, config->parallelism, config->page_tokens, config->layout,
                                      &instance->memory.geometry),
                     GEOMETRY_OK);
    instance->rank_count = kv_ranks(&config->parallelism);
    instance->ranks = calloc(instance->rank_count, sizeof *instance->ranks);
    assert_non_null(instance->ranks);
    size_t bytes = (collective_bytes(instance->rank_count, COLLECTIVE_FLOATS) + 63) / 64 * 64;
    instance->shared = aligned_alloc(64, bytes);
    assert_non_null(instance->shared);
    memset(instance->shared, 0, bytes);
    for (uint32_t i = 0; i < instance->rank_count; i++)
        rank_make(instance, i);
    ranks_join(instance);
    if (instance->rank_count == 1)
        return instance;
    pthread_barrier_init(&instance->start, NULL, instance->rank_count + 1);
    pthread_barrier_init(&instance->end, NULL, instance->rank_count + 1);
    for (uint32_t i = 0; i < instance->rank_count; i++)
        assert_int_equal(pthread_create(&instance->ranks[i].thread, NULL, rank_main, &instance->ranks[i]), 0);
    return instance;
}

void device_instance_free(struct device_instance *instance)
{
    if (instance->rank_count > 1) {
        instance->stopping = true;
        pthread_barrier_wait(&instance->start);
        for (uint32_t i = 0; i < instance->rank_count; i++)
            pthread_join(instance->ranks[i].thread, NULL);
        pthread_barrier_destroy(&instance->start);
        pthread_barrier_destroy(&instance->end);
    }
    for (uint32_t i = 0; i < instance->rank_count; i++) {
        instance->config.ops->free(instance->ranks[i].device);
        collective_leave(instance->ranks[i].collective);
        free(instance->ranks[i].kv);
        free(instance->ranks[i].tokens);
    }
    free(instance->ranks);
    free(instance->shared);
    free(instance);
}

const struct kv_memory *device_instance_memory(const struct device_instance *instance)
{
    return &instance->memory;
}

uint8_t *device_instance_kv(struct device_instance *instance, uint32_t rank)
{
    return instance->ranks[rank].kv;
}

uint64_t device_instance_counter(struct device_instance *instance, uint32_t rank)
{
    return atomic_load(&instance->ranks[rank].counter);
}

uint32_t device_instance_step(struct device_instance *instance, const struct step_change *changes, uint32_t count,
                              bool prefill_tokens, struct device_token *tokens)
{
    instance->changes = changes;
    instance->change_count = count;
    instance->prefill_tokens = prefill_tokens;
    if (instance->rank_count > 1) {
        pthread_barrier_wait(&instance->start);
        pthread_barrier_wait(&instance->end);
    } else {
        rank_step(&instance->ranks[0]);
    }
    instance->steps++;
    const struct parallelism *p = &instance->config.parallelism;
    uint32_t last_stage = (uint32_t)(p->pipeline - 1) * p->data * p->tensor;
    uint32_t written = 0;
    for (uint32_t i = 0; i < instance->rank_count; i++) {
        const struct rank *rank = &instance->ranks[i];
        assert_true(rank->done);
        if (i < last_stage || i % p->tensor != 0)
            assert_int_equal(rank->token_count, 0);
        for (uint32_t t = 0; t < rank->token_count; t++)
            tokens[written++] = rank->tokens[t];
        if (i % p->tensor == 0) {
            uint32_t stage = i / ((uint32_t)p->data * p->tensor);
            uint64_t before = (instance->steps - 1) * instance->config.architecture->layers;
            assert_int_equal(device_instance_counter(instance, i),
                             before + instance->memory.geometry.stage_layer_first[stage + 1]);
        }
    }
    return written;
}

void device_instance_change(struct device_instance *instance, const struct step_change *changes, uint32_t count)
{
    for (uint32_t i = 0; i < instance->rank_count; i++)
        instance->config.ops->change(instance->ranks[i].device, changes, count);
}

void device_instance_given(struct device_instance *instance, uint32_t sequence, uint32_t first, const uint32_t *tokens,
                           uint32_t count)
{
    for (uint32_t i = 0; i < instance->rank_count; i++)
        instance->config.ops->given(instance->ranks[i].device, sequence, first, tokens, count);
}

void device_instance_tail_store(struct device_instance *instance, uint32_t sequence, uint32_t slot)
{
    for (uint32_t i = 0; i < instance->rank_count; i++)
        instance->config.ops->tail_store(instance->ranks[i].device, sequence, slot);
}

uint64_t device_instance_digest(struct device_instance *instance, uint32_t rank, uint32_t layer, uint32_t plane,
                                uint32_t page)
{
    return instance->config.ops->page_digest(instance->ranks[rank].device, layer, plane, page);
}

/* One unit of one layer and plane of a pair. */
static void move_unit(struct device_instance *source, const uint32_t *source_pages, struct device_instance *destination,
                      const uint32_t *destination_pages, const struct transfer_plan *plan,
                      const struct transfer_pair *pair, uint32_t layer, uint32_t plane, uint32_t unit)
{
    uint32_t from_page = source_pages[unit / plan->source_units_per_page];
    uint32_t to_page = destination_pages[unit / plan->destination_units_per_page];
    const uint8_t *from = source->ranks[pair->source_rank].kv +
                          kv_memory_page_offset(&source->memory, pair->source_rank, layer, plane, from_page);
    uint8_t *to = destination->ranks[pair->destination_rank].kv +
                  kv_memory_page_offset(&destination->memory, pair->destination_rank, layer, plane, to_page);
    for (uint32_t run = 0; run < pair->runs; run++)
        memcpy(to + transfer_destination_offset(plan, pair, unit, run),
               from + transfer_source_offset(plan, pair, unit, run), pair->run_bytes);
}

void device_instance_transfer(struct device_instance *source, uint32_t source_group, const uint32_t *source_pages,
                              struct device_instance *destination, uint32_t destination_group,
                              const uint32_t *destination_pages, uint32_t tokens, uint32_t replica_choice)
{
    device_instance_transfer_from(source, source_group, source_pages, destination, destination_group, destination_pages,
                                  0, tokens, replica_choice);
}

void device_instance_transfer_from(struct device_instance *source, uint32_t source_group, const uint32_t *source_pages,
                                   struct device_instance *destination, uint32_t destination_group,
                                   const uint32_t *destination_pages, uint32_t first, uint32_t tokens,
                                   uint32_t replica_choice)
{
    struct transfer_plan *plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    assert_int_equal(transfer_plan_make(&source->memory.geometry, source_group, &destination->memory.geometry,
                                        destination_group, replica_choice, plan),
                     GEOMETRY_OK);
    uint32_t units = transfer_units(plan, tokens);
    assert_int_equal(first % plan->unit_tokens, 0);
    for (uint32_t p = 0; p < plan->pair_count; p++) {
        const struct transfer_pair *pair = &plan->pairs[p];
        for (uint32_t layer = pair->layer_first; layer < (uint32_t)pair->layer_first + pair->layer_count; layer++)
            for (uint32_t plane = 0; plane < plan->planes; plane++)
                for (uint32_t unit = first / plan->unit_tokens; unit < units; unit++)
                    move_unit(source, source_pages, destination, destination_pages, plan, pair, layer, plane, unit);
    }
    free(plan);
}

void device_reference_of(const struct architecture *architecture, uint64_t weight_seed,
                         const struct device_prompt *prompt, uint32_t output, uint32_t *tokens, uint8_t *tail)
{
    uint32_t pages[512];
    struct device_instance_config config = {
        .architecture = architecture,
        .parallelism = {.tensor = 1, .data = 1, .expert = 1, .pipeline = 1},
        .page_tokens = 16,
        .layout = LAYOUT_HND,
        .pages = (prompt->tokens + output) / 16 + 1,
        .sequences_max = 1,
        .tokens_max = prompt->tokens,
        .weight_seed = weight_seed,
    };
    assert_true(config.pages <= 512);
    for (uint32_t i = 0; i < config.pages; i++)
        pages[i] = i;
    uint32_t *whole = calloc(prompt->tokens, sizeof *whole);
    assert_non_null(whole);
    for (uint32_t i = 0; i < prompt->tokens; i++)
        whole[i] = device_prompt_token_at(prompt, i, architecture->vocab);
    struct device_instance *instance = device_instance_make(&config);
    struct step_change change = {.kind = STEP_CHUNK,
                                 .tokens = prompt->tokens - 1,
                                 .page_count = config.pages,
                                 .pages = pages,
                                 .token_seed = prompt->seed};
    struct device_token token = {0};
    if (prompt->tokens > 1) {
        device_instance_change(instance, &change, 1);
        device_instance_given(instance, 0, 0, whole, prompt->tokens);
        assert_int_equal(device_instance_step(instance, NULL, 0, false, &token), 0);
        device_instance_tail_store(instance, 0, 1);
        if (tail != NULL)
            memcpy(tail, instance->ranks[0].kv + kv_memory_tail_offset(&instance->memory, 0, 1),
                   architecture->tail_bytes);
    }
    change.kind = STEP_JOIN;
    change.start = prompt->tokens - 1;
    change.tokens = 0;
    device_instance_change(instance, &change, 1);
    device_instance_given(instance, 0, 0, whole, prompt->tokens);
    for (uint32_t i = 0; i < output; i++) {
        assert_int_equal(device_instance_step(instance, NULL, 0, false, &token), 1);
        assert_int_equal(token.position, prompt->tokens + i);
        tokens[i] = token.token;
    }
    device_instance_free(instance);
    free(whole);
}

void device_reference(const struct architecture *architecture, uint64_t weight_seed, uint64_t token_seed,
                      uint32_t prompt, uint32_t output, uint32_t *tokens, uint8_t *tail)
{
    device_reference_of(architecture, weight_seed, &(struct device_prompt){.tokens = prompt, .seed = token_seed},
                        output, tokens, tail);
}
