#define _POSIX_C_SOURCE 200809L
/* One rank of a device for the checks. See gpu_check.h. */
#include "gpu/gpu_check.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

uint32_t run_pages_each(const struct run *run)
{
    return (run->sequence_tokens + RUN_PAGE_TOKENS - 1) / RUN_PAGE_TOKENS;
}

/* Neighbouring pages of a sequence do not neighbour each other in memory: a stride that shares no divisor with their
 * number. */
static void deal_pages(struct run *run)
{
    uint32_t all = run->config.memory.pages;
    uint32_t stride = 7919; /* a prime larger than any divisor that `all` may share with it by accident */
    while (all % stride == 0)
        stride += 2;
    for (uint32_t i = 0; i < all; i++)
        run->pages[i] = (uint32_t)((uint64_t)i * stride % all);
}

bool run_make(struct run *run, const struct device_ops *ops, const struct architecture *architecture,
              uint32_t sequences, uint32_t sequence_tokens, uint32_t tokens_max)
{
    *run = (struct run){.ops = ops, .architecture = *architecture, .sequence_tokens = sequence_tokens};
    struct device_config *config = &run->config;
    *config = (struct device_config){.architecture = &run->architecture,
                                     .weight_seed = 5,
                                     .sequences_max = sequences,
                                     .tokens_max = tokens_max,
                                     .request_tokens_max = sequence_tokens};
    config->memory = (struct kv_memory){.pages = sequences * run_pages_each(run),
                                        .tail_slots = architecture->tail_bytes > 0,
                                        .tail_bytes = architecture->tail_bytes};
    struct parallelism parallelism = {1, 1, 1, 1};
    struct user_error error = {.set = false};
    if (kv_geometry_make(architecture, parallelism, RUN_PAGE_TOKENS, LAYOUT_HND, &config->memory.geometry) !=
        GEOMETRY_OK) {
        printf("%s: the geometry is refused\n", ops->name);
        return false;
    }
    run->pages = malloc(config->memory.pages * sizeof *run->pages);
    run->tokens = malloc(sequences * sizeof *run->tokens);
    run->counter_memory = aligned_alloc(4096, 4096);
    run->counter = run->counter_memory;
    if (ops == &device_host)
        config->kv = run->kv = aligned_alloc(64, (kv_memory_bytes(&config->memory, 0) + 63) / 64 * 64);
    if (run->pages == NULL || run->tokens == NULL || run->counter == NULL) {
        printf("%s: no memory\n", ops->name);
        return false;
    }
    *run->counter = 0;
    config->layer_counter = run->counter;
    deal_pages(run);
    run->device = ops->make(config, &error);
    if (run->device == NULL)
        printf("%s: %s\n", ops->name, error.text);
    return run->device != NULL;
}

void run_free(struct run *run)
{
    if (run->device != NULL)
        run->ops->free(run->device);
    free(run->counter_memory);
    free(run->pages);
    free(run->tokens);
    free(run->kv);
    *run = (struct run){0};
}

static void change(struct run *run, enum step_change_kind kind, uint32_t sequence, uint32_t start, uint32_t tokens)
{
    struct step_change change = {.kind = (uint16_t)kind,
                                 .sequence = sequence,
                                 .request = sequence,
                                 .start = start,
                                 .tokens = tokens,
                                 .page_count = run_pages_each(run),
                                 .pages = run->pages + (size_t)sequence * run_pages_each(run),
                                 .token_seed = 1000 + sequence};
    run->ops->change(run->device, &change, 1);
}

void run_chunk(struct run *run, uint32_t sequence, uint32_t start, uint32_t tokens)
{
    change(run, STEP_CHUNK, sequence, start, tokens);
}

void run_join(struct run *run, uint32_t sequence, uint32_t context)
{
    change(run, STEP_JOIN, sequence, context, 0);
}

void run_leave(struct run *run, uint32_t sequence)
{
    change(run, STEP_LEAVE, sequence, 0, 0);
}

bool run_step(struct run *run, bool prefill_tokens)
{
    uint64_t base = run->steps++ * run->architecture.layers;
    return run->ops->step(run->device, base, prefill_tokens, run->tokens, &run->token_count) &&
           atomic_load(run->counter) == base + run->architecture.layers;
}

void run_page_read(struct run *run, uint64_t offset, void *to, size_t bytes)
{
    if (run->kv != NULL)
        memcpy(to, run->kv + offset, bytes);
    else if (cudaMemcpy(to, (uint8_t *)cuda_device_kv(run->device) + offset, bytes, cudaMemcpyDeviceToHost) !=
             cudaSuccess)
        memset(to, 0xff, bytes);
}

void run_tail(struct run *run, uint32_t sequence, float *tail)
{
    run->ops->tail_store(run->device, sequence, 0);
    run_page_read(run, kv_memory_tail_offset(&run->config.memory, 0, 0), tail, run->architecture.tail_bytes);
}

static struct architecture gqa_of(uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t kv_heads,
                                  uint32_t head_dim, uint32_t intermediate, uint32_t vocab)
{
    return (struct architecture){.attention = ATTENTION_GQA,
                                 .layers = layers,
                                 .hidden = hidden,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = head_dim,
                                 .vocab = vocab,
                                 .intermediate = intermediate,
                                 .weight_format = FORMAT_BF16,
                                 .expert_weight_format = FORMAT_BF16,
                                 .kv_format = FORMAT_BF16};
}

static void make_latent(struct architecture *a, uint32_t latent, uint32_t rope, uint32_t nope, uint32_t value,
                        uint32_t q_latent)
{
    a->attention = ATTENTION_MLA;
    a->kv_heads = 1;
    a->head_dim = 0;
    a->latent_dim = latent;
    a->rope_dim = rope;
    a->nope_dim = nope;
    a->value_dim = value;
    a->q_latent_dim = q_latent;
}

static void add_experts(struct architecture *a, uint32_t experts, uint32_t active, uint32_t intermediate,
                        uint32_t shared)
{
    a->experts = experts;
    a->experts_active = active;
    a->expert_intermediate = intermediate;
    a->shared_experts = shared;
    a->dense_layers = 1;
}

struct architecture small_model(uint32_t index)
{
    static const char *const names[SMALL_MODELS] = {"GQA 8 of 8", "GQA 2 of 8", "GQA window",
                                                    "MLA",        "GQA MoE",    "MLA MoE"};
    uint32_t kv_heads = index == 0 ? 8 : 2;
    struct architecture a = gqa_of(4, 256, 8, kv_heads, 64, 512, 1000);
    snprintf(a.name, sizeof a.name, "%s", names[index]);
    if (index == 2) {
        a.window = 40;
        a.full_layers = 2;
    }
    if (index == 3 || index == 5)
        make_latent(&a, 128, 32, 64, 64, index == 3 ? 0 : 96);
    if (index >= 4)
        add_experts(&a, 16, 4, 128, 1);
    a.tail_bytes = (a.hidden + a.vocab) * 4;
    return a;
}

struct architecture llama_8b(void)
{
    struct architecture a = gqa_of(32, 4096, 32, 8, 128, 14336, 128256);
    snprintf(a.name, sizeof a.name, "Llama-3.1-8B");
    return a;
}

struct architecture deepseek_v3_cut(void)
{
    struct architecture a = gqa_of(3, 7168, 128, 1, 128, 18432, 129280);
    snprintf(a.name, sizeof a.name, "DeepSeek-V3, 3 layers");
    make_latent(&a, 512, 64, 128, 128, 1536);
    add_experts(&a, 256, 8, 2048, 1);
    return a;
}
