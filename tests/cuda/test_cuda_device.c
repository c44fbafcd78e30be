#define _POSIX_C_SOURCE 200809L
/* The CUDA device without a GPU: its host code and its kernels' sources over the emulation, against the host device.
 * Prompts are computed on one CUDA instance, moved page by page, and decoded on another of a different sharding and
 * page size; steps of decode are graphs. The host device works in f32 and the CUDA device multiplies in bf16, so a
 * token may differ where two logits are close: each is held against the host's logits for the same history.
 */
#include "cuda/cuda_emulation.h"
#include "support/device_instance.h"

#include "real/device/cuda/cuda_device.h"
#include "real/device/cuda/cuda_memory.h"
#include "real/device/cuda/cuda_staging.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WEIGHT_SEED 23
#define HIDDEN 64
#define VOCAB 128
#define TAIL_FLOATS (HIDDEN + VOCAB)
#define OUTPUT 4
#define PAGES 41
#define CHUNK 7
/* How far below the greatest a chosen logit may be; their standard deviation is 1. Seen: 0.04. */
#define LOGIT_TOLERANCE 0.15f

static const uint32_t prompts[] = {1, 5, 17, 33, 20};
#define REQUESTS ((uint32_t)(sizeof prompts / sizeof *prompts))

static struct architecture gqa(uint32_t kv_heads)
{
    return (struct architecture){.attention = ATTENTION_GQA,
                                 .layers = 2,
                                 .hidden = HIDDEN,
                                 .heads = 8,
                                 .kv_heads = kv_heads,
                                 .head_dim = 16,
                                 .vocab = VOCAB,
                                 .intermediate = 96,
                                 .weight_format = FORMAT_BF16,
                                 .expert_weight_format = FORMAT_BF16,
                                 .kv_format = FORMAT_BF16,
                                 .tail_bytes = TAIL_FLOATS * 4,
                                 .tail_writes = 1};
}

static struct architecture mla(uint32_t q_latent_dim)
{
    struct architecture a = gqa(1);
    a.attention = ATTENTION_MLA;
    a.head_dim = 0;
    a.latent_dim = 24;
    a.rope_dim = 8;
    a.nope_dim = 16;
    a.value_dim = 12;
    a.q_latent_dim = q_latent_dim;
    return a;
}

static struct architecture with_experts(struct architecture a)
{
    a.experts = 6;
    a.experts_active = 2;
    a.expert_intermediate = 48;
    a.dense_layers = 1;
    a.shared_experts = 1;
    return a;
}

/* The host's hidden state and logits after a prompt and the tokens that followed it. */
static void host_tail(const struct architecture *architecture, uint32_t request, const uint32_t *produced,
                      uint32_t count, float *tail)
{
    uint32_t pages[PAGES];
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    struct device_instance *host = device_instance_make(&(struct device_instance_config){
        .architecture = architecture,
        .parallelism = {.tensor = 1, .data = 1, .expert = 1, .pipeline = 1},
        .page_tokens = 4,
        .layout = LAYOUT_HND,
        .pages = PAGES,
        .sequences_max = 1,
        .tokens_max = PAGES * 4,
        .weight_seed = WEIGHT_SEED,
    });
    /* Tokens are given after the change that names the sequence: so the prompt is one step, and what follows
     * another. */
    struct step_change change = {.kind = STEP_CHUNK,
                                 .tokens = prompts[request],
                                 .page_count = PAGES,
                                 .pages = pages,
                                 .token_seed = request + 100};
    struct device_token token;
    device_instance_step(host, &change, 1, false, &token);
    if (count > 0) {
        device_instance_given(host, 0, prompts[request], produced, count);
        change.start = prompts[request];
        change.tokens = count;
        change.page_count = 0;
        device_instance_step(host, &change, 1, false, &token);
    }
    device_instance_tail_store(host, 0, 0);
    const struct kv_memory *memory = device_instance_memory(host);
    memcpy(tail, device_instance_kv(host, 0) + kv_memory_tail_offset(memory, 0, 0), TAIL_FLOATS * sizeof *tail);
    device_instance_free(host);
}

struct side {
    struct device_instance *instance;
    uint32_t pages[REQUESTS][PAGES];
    uint32_t page_count; /* of a request */
    uint32_t groups;     /* requests go to them in turn */
};

static void side_make(struct side *side, const struct architecture *architecture, struct parallelism parallelism,
                      uint32_t page_tokens)
{
    side->groups = parallelism.data;
    side->page_count = (64 + page_tokens - 1) / page_tokens;
    uint32_t all = side->page_count * REQUESTS + (side->page_count * REQUESTS % 3 == 0 ? 1 : 0);
    for (uint32_t r = 0; r < REQUESTS; r++)
        for (uint32_t i = 0; i < side->page_count; i++)
            side->pages[r][i] = (r + i * REQUESTS) * 3 % all; /* scattered; 3 does not divide `all` */
    assert_true(side->page_count <= PAGES);
    side->instance = device_instance_make(&(struct device_instance_config){
        .ops = &device_cuda,
        .architecture = architecture,
        .parallelism = parallelism,
        .page_tokens = page_tokens,
        .layout = LAYOUT_HND,
        .pages = all,
        .sequences_max = REQUESTS,
        .tokens_max = 64,
        .weight_seed = WEIGHT_SEED,
    });
}

static struct step_change change_of(const struct side *side, enum step_change_kind kind, uint32_t request, bool pages)
{
    return (struct step_change){.kind = (uint16_t)kind,
                                .group = (uint16_t)(request % side->groups),
                                .sequence = request,
                                .request = 7 + request,
                                .page_count = pages ? side->page_count : 0,
                                .pages = side->pages[request],
                                .token_seed = request + 100};
}

/* All prompts but their last tokens, in chunks, several requests a step. */
static void prefill(struct side *side)
{
    for (uint32_t start = 0; start < 40; start += CHUNK) {
        struct step_change changes[REQUESTS];
        struct device_token tokens[REQUESTS];
        uint32_t count = 0;
        for (uint32_t r = 0; r < REQUESTS; r++) {
            if (start + 1 >= prompts[r])
                continue;
            uint32_t left = prompts[r] - 1 - start;
            changes[count] = change_of(side, STEP_CHUNK, r, start == 0);
            changes[count].start = start;
            changes[count++].tokens = left < CHUNK ? left : CHUNK;
        }
        if (count > 0)
            assert_int_equal(device_instance_step(side->instance, changes, count, false, tokens), 0);
    }
}

/* Decodes all requests, one joining at each step, and checks each token against the host. Returns exact agreements. */
static uint32_t decode(const struct architecture *architecture, struct side *side)
{
    uint32_t produced[REQUESTS][OUTPUT], counts[REQUESTS] = {0}, exact = 0;
    for (uint32_t step = 0; step < REQUESTS + OUTPUT; step++) {
        struct step_change changes[2];
        struct device_token tokens[REQUESTS];
        uint32_t count = 0;
        if (step < REQUESTS) {
            changes[count] = change_of(side, STEP_JOIN, step, true);
            changes[count++].start = prompts[step] - 1;
        }
        if (step >= OUTPUT && step - OUTPUT < REQUESTS)
            changes[count++] = change_of(side, STEP_LEAVE, step - OUTPUT, false);
        uint32_t written = device_instance_step(side->instance, changes, count, false, tokens);
        for (uint32_t i = 0; i < written; i++) {
            uint32_t r = tokens[i].sequence;
            assert_int_equal(tokens[i].request, 7 + r);
            assert_int_equal(tokens[i].position, prompts[r] + counts[r]);
            assert_true(tokens[i].token < VOCAB && counts[r] < OUTPUT);
            produced[r][counts[r]++] = tokens[i].token;
        }
    }
    for (uint32_t r = 0; r < REQUESTS; r++) {
        assert_int_equal(counts[r], OUTPUT);
        for (uint32_t i = 0; i < OUTPUT; i++) {
            float tail[TAIL_FLOATS];
            host_tail(architecture, r, produced[r], i, tail);
            uint32_t best = 0;
            for (uint32_t v = 1; v < VOCAB; v++)
                if (tail[HIDDEN + v] > tail[HIDDEN + best])
                    best = v;
            float behind = tail[HIDDEN + best] - tail[HIDDEN + produced[r][i]];
            if (behind > LOGIT_TOLERANCE)
                fail_msg("request %u, token %u: the host's logit of %u is %f below its greatest, of %u", r, i,
                         produced[r][i], (double)behind, best);
            exact += best == produced[r][i];
        }
    }
    return exact;
}

/* The tail that the CUDA device stores after a request's last chunk equals the host's, within bf16. */
static void check_tail(const struct architecture *architecture, struct side *side, uint32_t request)
{
    float expected[TAIL_FLOATS], tail[TAIL_FLOATS];
    struct step_change change = change_of(side, STEP_CHUNK, request, false);
    struct device_token tokens[REQUESTS];
    change.start = prompts[request] - 1;
    change.tokens = 1;
    assert_int_equal(device_instance_step(side->instance, &change, 1, true, tokens), 1);
    assert_int_equal(tokens[0].position, prompts[request]);
    device_instance_tail_store(side->instance, request, 1);
    const struct kv_memory *memory = device_instance_memory(side->instance);
    const struct parallelism *p = &memory->geometry.parallelism;
    uint32_t rank = ((uint32_t)(p->pipeline - 1) * p->data + request % p->data) * p->tensor;
    memcpy(tail, device_instance_kv(side->instance, rank) + kv_memory_tail_offset(memory, rank, 1), sizeof tail);
    host_tail(architecture, request, NULL, 0, expected);
    double squares = 0, errors = 0;
    for (uint32_t i = 0; i < TAIL_FLOATS; i++) {
        double error = (double)tail[i] - (double)expected[i];
        squares += (double)expected[i] * (double)expected[i];
        errors += error * error;
    }
    assert_true(isfinite(errors) && sqrt(errors / squares) < 0.02);
}

static struct parallelism split(uint16_t tensor, uint16_t data, uint16_t expert, uint16_t pipeline)
{
    return (struct parallelism){.tensor = tensor, .data = data, .expert = expert, .pipeline = pipeline};
}

static void agree(struct architecture architecture, struct parallelism prefill_split, struct parallelism decode_split,
                  uint32_t prefill_page, uint32_t decode_page)
{
    struct side from, to;
    side_make(&from, &architecture, prefill_split, prefill_page);
    side_make(&to, &architecture, decode_split, decode_page);
    prefill(&from);
    uint32_t choices = transfer_replica_choices(&device_instance_memory(from.instance)->geometry);
    for (uint32_t r = 0; r < REQUESTS; r++)
        if (prompts[r] > 1)
            device_instance_transfer(from.instance, r % from.groups, from.pages[r], to.instance, r % to.groups,
                                     to.pages[r], prompts[r] - 1, r % choices);
    uint64_t graphs = emulated_graph_launches;
    uint32_t exact = decode(&architecture, &to);
    if (decode_split.data == 1)
        assert_int_equal(emulated_graph_launches - graphs, (REQUESTS + OUTPUT - 1) * kv_ranks(&decode_split));
    print_message("%u of %u tokens are the host's\n", exact, REQUESTS * OUTPUT);
    assert_true(exact * 10 >= REQUESTS * OUTPUT * 8);
    check_tail(&architecture, &from, 2);
    device_instance_free(from.instance);
    device_instance_free(to.instance);
}

static void gqa_agrees(void **state)
{
    (void)state;
    agree(gqa(2), split(1, 1, 1, 1), split(1, 1, 1, 1), 4, 8);
}

static void gqa_agrees_over_ranks(void **state)
{
    (void)state;
    agree(gqa(8), split(2, 1, 1, 1), split(1, 1, 1, 1), 4, 16);
}

static void kv_heads_fewer_than_ranks_agree(void **state)
{
    (void)state;
    agree(gqa(2), split(4, 1, 1, 1), split(2, 1, 1, 1), 4, 4);
}

static void windows_agree(void **state)
{
    (void)state;
    struct architecture a = gqa(2);
    a.window = 9;
    a.full_layers = 1;
    a.tied_embeddings = 1;
    agree(a, split(1, 1, 1, 1), split(1, 1, 1, 1), 8, 4);
}

static void mla_agrees(void **state)
{
    (void)state;
    agree(mla(0), split(1, 1, 1, 1), split(2, 1, 1, 1), 8, 4);
}

static void mla_with_experts_agrees(void **state)
{
    (void)state;
    agree(with_experts(mla(40)), split(2, 1, 2, 1), split(1, 1, 1, 1), 4, 4);
}

static void gqa_with_experts_agrees(void **state)
{
    (void)state;
    struct architecture a = with_experts(gqa(2));
    a.experts = 3; /* so that prefill has enough rows an expert for cuBLAS */
    agree(a, split(1, 1, 1, 1), split(2, 1, 1, 1), 4, 4);
}

static void peers_on_gpus_of_their_own_agree(void **state)
{
    (void)state;
    uint64_t calls = emulated_host_calls;
    setenv(EMULATED_GPUS_VARIABLE, "4", 1);
    agree(gqa(2), split(4, 1, 1, 1), split(2, 1, 1, 1), 4, 4);
    assert_true(emulated_host_calls == calls); /* no sum has gone through the host */
    setenv(EMULATED_GPUS_VARIABLE, "3", 1);    /* one too few for four ranks */
    agree(gqa(2), split(4, 1, 1, 1), split(1, 1, 1, 1), 4, 4);
    assert_true(emulated_host_calls > calls);
    unsetenv(EMULATED_GPUS_VARIABLE);
}

static void pipeline_stages_agree(void **state)
{
    (void)state;
    struct architecture a = gqa(2);
    a.layers = 3;
    agree(a, split(2, 1, 1, 2), split(1, 1, 1, 3), 4, 4);
}

static void attention_groups_with_experts_agree(void **state)
{
    (void)state;
    agree(with_experts(mla(40)), split(1, 2, 2, 1), split(2, 2, 4, 2), 4, 8);
}

static struct device_config config_of(const struct architecture *architecture, struct parallelism parallelism)
{
    struct device_config config = {
        .architecture = architecture, .weight_seed = 1, .sequences_max = 4, .tokens_max = 16, .request_tokens_max = 64};
    config.memory.pages = 9;
    assert_int_equal(kv_geometry_make(architecture, parallelism, 4, LAYOUT_HND, &config.memory.geometry), GEOMETRY_OK);
    return config;
}

static void memory_of_the_device_is_exported(void **state)
{
    (void)state;
    struct architecture a = gqa(2);
    struct device_config config = config_of(&a, (struct parallelism){1, 1, 1, 1});
    struct user_error error = {.set = false};
    struct device *device = device_cuda.make(&config, &error);
    assert_string_equal(error.text, "");
    int descriptor = device_cuda.share(device, DEVICE_SHARE_KV, &error);
    assert_true(descriptor >= 0);
    uint64_t before = device_cuda.page_digest(device, 1, 1, 3);
    pid_t child = fork();
    if (child == 0) {
        struct cuda_driver driver;
        struct cuda_memory memory;
        if (!cuda_driver_load(&driver, &error) ||
            !cuda_memory_import(&memory, &driver, 0, descriptor, kv_memory_bytes(&config.memory, 0), &error))
            _exit(1);
        uint8_t *kv = cuda_memory_pointer(&memory);
        memset(kv + kv_memory_page_offset(&config.memory, 0, 1, 1, 3), 0x5a,
               kv_page_plane_bytes(&config.memory.geometry));
        cuda_memory_free(&memory);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(descriptor);
    uint64_t after = device_cuda.page_digest(device, 1, 1, 3);
    assert_true(before != after);
    uint8_t expected[2 * 4 * 32];
    assert_int_equal(sizeof expected, kv_page_plane_bytes(&config.memory.geometry));
    memset(expected, 0x5a, sizeof expected);
    assert_true(after == device_digest(expected, sizeof expected));
    assert_true(device_cuda.page_digest(device, 1, 1, 2) == before);
    device_cuda.free(device);
}

static void staging_moves_pieces_both_ways(void **state)
{
    (void)state;
    enum { BYTES = 4096 };
    uint8_t device[BYTES], original[BYTES];
    struct user_error error = {.set = false};
    for (uint32_t i = 0; i < BYTES; i++)
        device[i] = original[i] = (uint8_t)(i * 37 + i / 256);
    struct cuda_staging *staging = cuda_staging_make(0, device, BYTES, 2, 3, &error);
    assert_non_null(staging);
    uint8_t *host = cuda_staging_host(staging);
    const struct device_reach_piece out[] = {{.device_offset = 256, .host_offset = 0, .bytes = 64},
                                             {.device_offset = 1024, .host_offset = 128, .bytes = 260},
                                             {.device_offset = 4092, .host_offset = 64, .bytes = 4}};
    assert_true(cuda_staging_submit(staging, DEVICE_REACH_TO_HOST, out, 3));
    assert_int_equal(cuda_staging_done(staging), 1);
    assert_memory_equal(host, original + 256, 64);
    assert_memory_equal(host + 128, original + 1024, 260);
    assert_memory_equal(host + 64, original + 4092, 4);
    const struct device_reach_piece back[] = {{.device_offset = 2048, .host_offset = 128, .bytes = 260}};
    assert_true(cuda_staging_submit(staging, DEVICE_REACH_TO_DEVICE, back, 1));
    assert_true(cuda_staging_submit(staging, DEVICE_REACH_TO_DEVICE, back, 1));
    assert_false(cuda_staging_submit(staging, DEVICE_REACH_TO_DEVICE, back, 1)); /* two are under way */
    assert_int_equal(cuda_staging_done(staging), 3);
    memcpy(original + 2048, original + 1024, 260);
    assert_memory_equal(device, original, BYTES);
    assert_true(cuda_staging_healthy(staging, &error));
    assert_int_equal(cuda_staging_statistics(staging).bytes, 328 + 2 * 260);
    cuda_staging_free(staging);
}

static void refused(struct architecture a, struct parallelism parallelism, const char *sentence)
{
    struct device_config config = config_of(&a, parallelism);
    struct user_error error = {.set = false};
    assert_null(device_cuda.make(&config, &error));
    assert_string_equal(error.text, sentence);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct architecture wide = gqa(1);
    wide.head_dim = 1024;
    struct architecture odd = with_experts(gqa(2));
    odd.expert_intermediate = 50;
    refused(odd, split(2, 2, 1, 1), "the CUDA device cannot split experts of 50 columns over 2 ranks");
    refused(wide, (struct parallelism){1, 1, 1, 1}, "the CUDA device attends to values of 1 to 512 elements, not 1024");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gqa_agrees),
        cmocka_unit_test(gqa_agrees_over_ranks),
        cmocka_unit_test(kv_heads_fewer_than_ranks_agree),
        cmocka_unit_test(windows_agree),
        cmocka_unit_test(mla_agrees),
        cmocka_unit_test(mla_with_experts_agrees),
        cmocka_unit_test(gqa_with_experts_agrees),
        cmocka_unit_test(peers_on_gpus_of_their_own_agree),
        cmocka_unit_test(pipeline_stages_agree),
        cmocka_unit_test(attention_groups_with_experts_agree),
        cmocka_unit_test(memory_of_the_device_is_exported),
        cmocka_unit_test(staging_moves_pieces_both_ways),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name("cuda_device", tests, NULL, NULL);
}
