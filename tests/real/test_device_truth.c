/* The truth matrix: tokens of a disaggregated run on the host device equal, bit for bit, those of one unsharded,
 * unchunked process. Prompts are computed on an instance of one sharding, page size and chunking, moved page by page
 * along a transfer plan (memcpy for a fabric), and decoded on an instance of another. Tails are compared byte for byte.
 * In cases with shared prefixes every prompt begins like all shorter ones, and both sides take the whole pages of one
 * of those for their own: neither computed again nor sent.
 *
 * TANDEM_ALL=1 runs every combination; without it a selection that meets each value of each dimension.
 */
#include "support/device_instance.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WEIGHT_SEED 11
#define OUTPUT 7
#define PAGES 97 /* of a group; a prime, so that any stride visits all */

/* Prompts whose T' = prompt - 1 tokens lie around the edges of pages of 4 and 16 tokens; of 1, nothing is computed
 * before the decoder. */
static const uint32_t prompts[] = {1, 2, 5, 16, 17, 18, 33, 45};
#define REQUESTS (sizeof prompts / sizeof *prompts)

enum model { GQA_8, GQA_2, MLA, GQA_8_MOE, GQA_2_MOE, MLA_MOE, GQA_WINDOW, MODELS };

static struct architecture model_of(enum model model)
{
    bool latent = model == MLA || model == MLA_MOE;
    bool sparse = model == GQA_8_MOE || model == GQA_2_MOE || model == MLA_MOE;
    struct architecture a = {
        .attention = latent ? ATTENTION_MLA : ATTENTION_GQA,
        .layers = 3,
        .hidden = 64,
        .heads = 8,
        .kv_heads = latent                                 ? 1
                    : model == GQA_8 || model == GQA_8_MOE ? 8
                                                           : 2,
        .head_dim = latent ? 0 : 16,
        .vocab = 250, /* does not divide over 4 or 8 ranks */
        .intermediate = 96,
        .weight_format = FORMAT_BF16,
        .expert_weight_format = FORMAT_BF16,
        .kv_format = FORMAT_BF16,
        .tail_bytes = (64 + 250) * 4,
        .tail_writes = 1,
    };
    if (latent) {
        a.latent_dim = 24;
        a.rope_dim = 8;
        a.nope_dim = 16;
        a.value_dim = 12;
        a.q_latent_dim = model == MLA ? 0 : 40;
    }
    if (sparse) {
        a.experts = 6;
        a.experts_active = 2;
        a.expert_intermediate = 48;
        a.dense_layers = model == MLA_MOE ? 1 : 0;
        a.shared_experts = model == MLA_MOE ? 1 : 0;
    }
    if (model == GQA_WINDOW) {
        a.window = 9;
        a.full_layers = 1;
        a.tied_embeddings = 1;
    }
    return a;
}

/* What must come out, computed once a model, for prompts that share nothing and for those that share their
 * beginnings. */
struct reference {
    bool known;
    uint32_t tokens[REQUESTS][OUTPUT];
    uint8_t tails[REQUESTS][(64 + 250) * 4];
};
static struct reference references[2][MODELS];

static uint64_t seed_of(uint32_t request, bool shared)
{
    return shared ? 99 : request + 100;
}

static const struct reference *reference_of(enum model model, bool shared)
{
    struct reference *reference = &references[shared][model];
    struct architecture a = model_of(model);
    for (uint32_t i = 0; i < REQUESTS && !reference->known; i++)
        device_reference(&a, WEIGHT_SEED, seed_of(i, shared), prompts[i], OUTPUT, reference->tokens[i],
                         reference->tails[i]);
    reference->known = true;
    return reference;
}

/* One side of a case. */
struct side {
    struct parallelism parallelism;
    uint32_t page_tokens;
    struct device_instance *instance;
    uint32_t pages_used[GROUPS_MAX];
    uint32_t pages[REQUESTS][PAGES];
    uint32_t page_count[REQUESTS];
    uint32_t cached[REQUESTS]; /* tokens, of whole pages, that were there already */
};

struct truth_case {
    enum model model;
    struct parallelism prefill;
    struct parallelism decode;
    uint32_t prefill_page;
    uint32_t decode_page;
    enum kv_layout layout;
    uint32_t chunk; /* tokens; 0: the whole prompt */
    bool shared;
};

static void side_make(struct side *side, const struct truth_case *truth, const struct architecture *architecture,
                      struct parallelism parallelism, uint32_t page_tokens)
{
    memset(side, 0, sizeof *side);
    side->parallelism = parallelism;
    side->page_tokens = page_tokens;
    side->instance = device_instance_make(&(struct device_instance_config){
        .architecture = architecture,
        .parallelism = parallelism,
        .page_tokens = page_tokens,
        .layout = truth->layout,
        .pages = PAGES,
        .sequences_max = REQUESTS,
        .tokens_max = 256,
        .weight_seed = WEIGHT_SEED,
    });
}

/* Pages for `tokens` tokens of a request, from all over its group's pool. Returns the index of the first new one. */
static uint32_t side_grow(struct side *side, uint32_t request, uint32_t group, uint32_t tokens)
{
    uint32_t before = side->page_count[request];
    while (side->page_count[request] * side->page_tokens < tokens) {
        assert_true(side->pages_used[group] < PAGES);
        side->pages[request][side->page_count[request]++] = side->pages_used[group]++ * 31 % PAGES;
    }
    return before;
}

static uint32_t group_of(const struct side *side, uint32_t request, uint32_t shift)
{
    return (request + shift) % side->parallelism.data;
}

/* Takes over the whole pages, of the first `tokens` tokens at most, of the longest shorter prompt in the same group. */
static void side_hit(struct side *side, uint32_t request, uint32_t shift, uint32_t tokens)
{
    uint32_t donor = request;
    while (donor > 0 && (donor == request || group_of(side, donor, shift) != group_of(side, request, shift)))
        donor--;
    if (donor == request || group_of(side, donor, shift) != group_of(side, request, shift))
        return;
    uint32_t pages = min_u32(tokens, prompts[donor] - 1) / side->page_tokens;
    memcpy(side->pages[request], side->pages[donor], pages * sizeof side->pages[donor][0]);
    side->page_count[request] = pages;
    side->cached[request] = pages * side->page_tokens;
}

/* All prompts together, a chunk of each a step; where they share, one after the other. */
static void prefill(struct side *side, const struct truth_case *truth, const struct reference *reference)
{
    uint32_t computed[REQUESTS] = {0};
    for (bool working = true; working;) {
        struct step_change changes[REQUESTS];
        uint32_t count = 0;
        for (uint32_t i = 0; i < REQUESTS && (!truth->shared || count == 0); i++) {
            /* The step of its last token leaves the tail: that one is always computed. */
            if (truth->shared && computed[i] == 0 && prompts[i] > 1 && side->page_count[i] == 0) {
                side_hit(side, i, 0, prompts[i] - 2);
                computed[i] = side->cached[i];
            }
            uint32_t left = prompts[i] - 1 - computed[i];
            uint32_t tokens = truth->chunk == 0 ? left : min_u32(left, truth->chunk);
            if (tokens == 0)
                continue;
            uint32_t group = group_of(side, i, 0);
            side_grow(side, i, group, prompts[i] - 1);
            changes[count++] =
                (struct step_change){.kind = STEP_CHUNK,
                                     .group = (uint16_t)group,
                                     .sequence = i,
                                     .request = i,
                                     .start = computed[i],
                                     .tokens = tokens,
                                     .page_count = computed[i] == side->cached[i] ? side->page_count[i] : 0,
                                     .pages = side->pages[i],
                                     .token_seed = seed_of(i, truth->shared)};
            computed[i] += tokens;
        }
        working = count > 0;
        assert_int_equal(device_instance_step(side->instance, changes, count, false, NULL), 0);
    }
    const struct kv_memory *memory = device_instance_memory(side->instance);
    for (uint32_t i = 1; i < REQUESTS; i++) {
        const struct parallelism *p = &side->parallelism;
        uint32_t lead = ((uint32_t)(p->pipeline - 1) * p->data + group_of(side, i, 0)) * p->tensor;
        device_instance_tail_store(side->instance, i, 1);
        const uint8_t *tail = device_instance_kv(side->instance, lead) + kv_memory_tail_offset(memory, lead, 1);
        assert_memory_equal(tail, reference->tails[i], memory->tail_bytes);
    }
}

/* One change for a request that joins, grows or leaves before step `step`; 0 or 1. */
static uint32_t decode_change(struct side *side, bool shared, uint32_t i, uint32_t produced, uint32_t step,
                              struct step_change *change)
{
    uint32_t group = group_of(side, i, 1);
    *change =
        (struct step_change){.group = (uint16_t)group, .sequence = i, .request = i, .token_seed = seed_of(i, shared)};
    if (step < i / 2 || produced > OUTPUT)
        return 0;
    if (produced == OUTPUT) {
        change->kind = STEP_LEAVE;
        return 1;
    }
    uint32_t first = side_grow(side, i, group, prompts[i] + produced);
    change->kind = step == i / 2 ? STEP_JOIN : STEP_PAGES;
    change->start = prompts[i] - 1;
    change->page_first = change->kind == STEP_JOIN ? 0 : first;
    change->page_count = side->page_count[i] - change->page_first;
    change->pages = &side->pages[i][change->page_first];
    return change->kind == STEP_JOIN || change->page_count > 0;
}

/* Requests join one after the other and leave when they have all their tokens. */
static void decode(struct side *side, bool shared, const struct reference *reference)
{
    uint32_t produced[REQUESTS] = {0};
    for (uint32_t step = 0; step < OUTPUT + REQUESTS / 2 + 1; step++) {
        struct step_change changes[REQUESTS];
        struct device_token tokens[REQUESTS];
        uint32_t count = 0;
        uint32_t running = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            count += decode_change(side, shared, i, produced[i], step, &changes[count]);
            running += step >= i / 2 && produced[i] < OUTPUT;
            produced[i] += produced[i] == OUTPUT;
        }
        assert_int_equal(device_instance_step(side->instance, changes, count, false, tokens), running);
        for (uint32_t t = 0; t < running; t++) {
            uint32_t i = tokens[t].request;
            assert_true(i < REQUESTS);
            assert_int_equal(tokens[t].sequence, i);
            assert_int_equal(tokens[t].position, prompts[i] + produced[i]);
            assert_int_equal(tokens[t].token, reference->tokens[i][produced[i]]);
            produced[i]++;
        }
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        assert_int_equal(produced[i], OUTPUT + 1);
}

static void run_case(const struct truth_case *truth)
{
    const struct parallelism *p = &truth->prefill;
    const struct parallelism *d = &truth->decode;
    struct architecture architecture = model_of(truth->model);
    const struct reference *reference = reference_of(truth->model, truth->shared);
    struct side *source = calloc(1, sizeof *source);
    struct side *destination = calloc(1, sizeof *destination);
    assert_non_null(source);
    assert_non_null(destination);
    print_message(
        "model %d: TP%u DP%u EP%u PP%u, pages of %u -> TP%u DP%u EP%u PP%u, pages of %u; layout %d, chunk %u%s\n",
        (int)truth->model, p->tensor, p->data, p->expert, p->pipeline, truth->prefill_page, d->tensor, d->data,
        d->expert, d->pipeline, truth->decode_page, (int)truth->layout, truth->chunk, truth->shared ? ", shared" : "");
    side_make(source, truth, &architecture, truth->prefill, truth->prefill_page);
    side_make(destination, truth, &architecture, truth->decode, truth->decode_page);
    prefill(source, truth, reference);
    uint32_t hits = 0;
    uint32_t choices = transfer_replica_choices(&device_instance_memory(source->instance)->geometry);
    for (uint32_t i = 1; i < REQUESTS; i++) {
        if (truth->shared)
            side_hit(destination, i, 1, prompts[i] - 1);
        side_grow(destination, i, group_of(destination, i, 1), prompts[i] - 1);
        device_instance_transfer_from(source->instance, group_of(source, i, 0), source->pages[i], destination->instance,
                                      group_of(destination, i, 1), destination->pages[i], destination->cached[i],
                                      prompts[i] - 1, i % choices);
        hits += destination->cached[i] + source->cached[i];
    }
    assert_true(!truth->shared || hits > 0);
    device_instance_free(source->instance);
    decode(destination, truth->shared, reference);
    device_instance_free(destination->instance);
    free(source);
    free(destination);
}

static struct parallelism spread(uint16_t tensor, uint16_t data, uint16_t expert, uint16_t pipeline)
{
    return (struct parallelism){.tensor = tensor, .data = data, .expert = expert, .pipeline = pipeline};
}

static void test_quick(void **state)
{
    (void)state;
    const struct truth_case cases[] = {
        {GQA_8, spread(1, 1, 1, 1), spread(1, 1, 1, 1), 16, 16, LAYOUT_HND, 0, false},
        {GQA_8, spread(2, 1, 1, 1), spread(4, 1, 1, 1), 16, 4, LAYOUT_HND, 7, true},
        {GQA_8, spread(8, 1, 1, 1), spread(1, 2, 1, 1), 4, 4, LAYOUT_NHD, 16, true},
        {GQA_2, spread(4, 1, 1, 1), spread(2, 2, 1, 1), 4, 16, LAYOUT_HND, 1, false},
        {GQA_2, spread(2, 1, 1, 2), spread(8, 1, 1, 1), 16, 16, LAYOUT_NHD, 16, true},
        {MLA, spread(4, 1, 1, 1), spread(1, 2, 1, 2), 16, 4, LAYOUT_HND, 7, false},
        {GQA_8_MOE, spread(4, 1, 1, 1), spread(2, 2, 4, 1), 16, 16, LAYOUT_HND, 16, true},
        {GQA_2_MOE, spread(2, 2, 2, 1), spread(2, 2, 1, 1), 4, 4, LAYOUT_HND, 0, false},
        {MLA_MOE, spread(2, 1, 2, 2), spread(1, 4, 4, 1), 16, 16, LAYOUT_HND, 7, true},
        {MLA_MOE, spread(8, 1, 1, 1), spread(2, 2, 2, 1), 4, 16, LAYOUT_NHD, 16, false},
        {GQA_WINDOW, spread(4, 1, 1, 1), spread(2, 1, 1, 2), 16, 16, LAYOUT_HND, 7, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i]);
}

/* Every sharding of the prefiller with every one of the decoder, for every model; page sizes, chunks and layouts take
 * turns with periods that have no common factor with each other, so that all pairs of values meet. */
static void test_all(void **state)
{
    (void)state;
    static const struct parallelism shardings[] = {
        {1, 1, 1, 1}, {2, 1, 1, 1}, {4, 1, 1, 1}, {8, 1, 1, 1}, {1, 2, 1, 1}, {1, 4, 1, 1},
        {1, 8, 1, 1}, {2, 2, 1, 1}, {4, 2, 1, 1}, {1, 1, 1, 2}, {2, 1, 1, 2}, {2, 2, 1, 2},
    };
    static const uint32_t chunks[] = {1, 7, 16, 0, 5};
    static const uint32_t pages[][2] = {{4, 4}, {4, 16}, {16, 4}};
    const char *all = getenv("TANDEM_ALL");
    if (all == NULL || strcmp(all, "1") != 0) {
        print_message("TANDEM_ALL=1 runs the whole matrix\n");
        skip();
    }
    uint32_t turn = 0;
    uint32_t count = sizeof shardings / sizeof *shardings;
    for (uint32_t model = 0; model < MODELS; model++) {
        for (uint32_t p = 0; p < count; p++) {
            for (uint32_t d = 0; d < count; d++, turn++) {
                struct truth_case truth = {.model = (enum model)model,
                                           .prefill = shardings[p],
                                           .decode = shardings[d],
                                           .prefill_page = pages[turn % 3][0],
                                           .decode_page = pages[turn % 3][1],
                                           .layout = turn % 2 == 0 ? LAYOUT_HND : LAYOUT_NHD,
                                           .chunk = chunks[turn % 5],
                                           .shared = turn % 4 == 1};
                if (model_of(truth.model).experts > 0 && turn % 7 < 5) {
                    truth.prefill.expert = (uint16_t)(truth.prefill.tensor * truth.prefill.data);
                    truth.decode.expert = turn % 7 < 3 ? truth.decode.tensor : truth.decode.data;
                }
                run_case(&truth);
            }
        }
    }
}

/* Different prompts lead to different tokens, which mostly differ from one to the next: else the tests above prove
 * little. (Now and then a small model repeats a token for a while.) */
static void test_references_differ(void **state)
{
    (void)state;
    for (uint32_t model = 0; model < MODELS; model++) {
        const struct reference *reference = reference_of((enum model)model, false);
        uint32_t changes = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            for (uint32_t t = 1; t < OUTPUT; t++)
                changes += reference->tokens[i][t] != reference->tokens[i][t - 1];
            for (uint32_t j = 0; j < i; j++)
                assert_memory_not_equal(reference->tokens[i], reference->tokens[j], sizeof reference->tokens[i]);
        }
        assert_true(changes >= REQUESTS * (OUTPUT - 1) * 3 / 4);
        for (uint32_t other = 0; other < model; other++)
            assert_memory_not_equal(reference->tokens, references[0][other].tokens, sizeof reference->tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references_differ),
        cmocka_unit_test(test_quick),
        cmocka_unit_test(test_all),
    };
    return cmocka_run_group_tests_name("device_truth", tests, NULL, NULL);
}
