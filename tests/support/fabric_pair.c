/* See fabric_pair.h. */
#define _DEFAULT_SOURCE

#include "support/fabric_pair.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct kv_geometry fabric_geometry(uint16_t layers, uint16_t heads, uint16_t planes, uint32_t head_bytes,
                                   uint16_t page_tokens, enum kv_layout layout, struct parallelism parallelism)
{
    struct kv_geometry geometry = {
        .layers = layers,
        .kv_heads = heads,
        .planes = planes,
        .page_tokens = page_tokens,
        .head_bytes = head_bytes,
        .layout = layout,
        .parallelism = parallelism,
    };
    uint32_t stages = parallelism.pipeline;
    for (uint32_t s = 0; s <= stages; s++)
        geometry.stage_layer_first[s] = (uint16_t)((s * layers + stages - 1) / stages);
    CHECK(kv_geometry_check(&geometry) == GEOMETRY_OK);
    return geometry;
}

void fabric_side_make(struct fabric_side *side, uint32_t node, const char *provider, const struct kv_geometry *geometry,
                      uint32_t pages)
{
    memset(side, 0, sizeof *side);
    side->node = node;
    side->memory = (struct kv_memory){.geometry = *geometry, .pages = pages, .tail_slots = 4, .tail_bytes = 1000};
    side->rank_count = kv_ranks(&geometry->parallelism);
    CHECK(side->rank_count <= FABRIC_RANKS && geometry->parallelism.data <= FABRIC_GROUPS);
    for (uint32_t r = 0; r < side->rank_count; r++) {
        size_t bytes = (size_t)kv_memory_bytes(&side->memory, r);
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        side->ranks[r] = (struct fabric_rank){.memory = memory, .bytes = bytes};
    }
    fabric_side_paint(side, FABRIC_BLANK);
    side->config = (struct fabric_config){
        .provider = provider,
        .address = "127.0.0.1",
        .nics = 1,
        .window = 32,
        .memory = side->memory,
        .rank_count = side->rank_count,
        .ranks = side->ranks,
        .layer_counters = side->counters,
        .group_count = geometry->parallelism.data,
        .handoffs_max = 64,
        .tickets_max = 64,
    };
}

bool fabric_side_open(struct fabric_side *side, struct user_error *error)
{
    side->fabric = fabric_make(&side->config, error);
    return side->fabric != NULL;
}

void fabric_side_free(struct fabric_side *side)
{
    fabric_free(side->fabric);
    for (uint32_t r = 0; r < side->rank_count; r++)
        munmap(side->ranks[r].memory, side->ranks[r].bytes);
    memset(side, 0, sizeof *side);
}

static void learn(struct fabric_side *a, struct fabric_side *b)
{
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    struct user_error error = {.set = false};
    size_t size = fabric_card(b->fabric, a->node, card, &error);
    if (size == 0 || !fabric_peer_add(a->fabric, b->node, card, size, &b->memory, &error)) {
        fprintf(stderr, "joining: %s\n", error.text);
        abort();
    }
}

void fabric_side_join(struct fabric_side *a, struct fabric_side *b)
{
    learn(a, b);
    learn(b, a);
}

/* ---- Tagged memory ----------------------------------------------------------------------------------------------- */

static unsigned char tag(uint32_t layer, uint32_t plane, uint32_t head, uint32_t token, uint32_t byte)
{
    uint64_t x = ((((uint64_t)layer * 2 + plane) * 256 + head) * 65536 + token) * 65536 + byte;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return (unsigned char)(x >> 56);
}

/* Calls `visit` with the address and the value of each byte of a prompt on one rank. */
typedef uint64_t (*visit_byte)(unsigned char *at, unsigned char value);

static uint64_t visit_token(const struct kv_geometry *g, unsigned char *page, uint32_t layer, uint32_t plane,
                            uint32_t head_first, uint32_t token, visit_byte visit)
{
    uint32_t heads = kv_rank_heads(g);
    uint32_t slot = token % g->page_tokens;
    uint64_t sum = 0;
    for (uint32_t h = 0; h < heads; h++) {
        size_t place = g->layout == LAYOUT_HND ? (size_t)h * g->page_tokens + slot : (size_t)slot * heads + h;
        for (uint32_t b = 0; b < g->head_bytes; b++)
            sum += visit(page + place * g->head_bytes + b, tag(layer, plane, head_first + h, token, b));
    }
    return sum;
}

static uint64_t visit_prompt(const struct fabric_side *side, uint32_t group, const uint32_t *pages, uint32_t tokens,
                             visit_byte visit)
{
    const struct kv_geometry *g = &side->memory.geometry;
    uint64_t sum = 0;
    for (uint32_t r = 0; r < side->rank_count; r++) {
        if (r / g->parallelism.tensor % g->parallelism.data != group)
            continue;
        uint32_t stage = kv_memory_stage(&side->memory, r);
        uint32_t head_first = r % g->parallelism.tensor / kv_replicas(g) * kv_rank_heads(g);
        for (uint32_t layer = g->stage_layer_first[stage]; layer < g->stage_layer_first[stage + 1]; layer++)
            for (uint32_t plane = 0; plane < g->planes; plane++)
                for (uint32_t t = 0; t < tokens; t++) {
                    uint64_t offset = kv_memory_page_offset(&side->memory, r, layer, plane, pages[t / g->page_tokens]);
                    unsigned char *page = (unsigned char *)side->ranks[r].memory + offset;
                    sum += visit_token(g, page, layer, plane, head_first, t, visit);
                }
    }
    return sum;
}

static uint64_t put(unsigned char *at, unsigned char value)
{
    *at = value;
    return 0;
}

static uint64_t take_right(unsigned char *at, unsigned char value)
{
    uint64_t wrong = *at != value;
    *at = FABRIC_BLANK;
    return wrong;
}

void fabric_side_fill(struct fabric_side *side, uint32_t group, const uint32_t *pages, uint32_t tokens)
{
    visit_prompt(side, group, pages, tokens, put);
}

uint64_t fabric_side_wrong(struct fabric_side *side, uint32_t group, const uint32_t *pages, uint32_t tokens)
{
    uint64_t wrong = visit_prompt(side, group, pages, tokens, take_right);
    for (uint32_t r = 0; r < side->rank_count; r++) {
        const unsigned char *memory = side->ranks[r].memory;
        for (uint64_t i = 0; i < kv_memory_pages_bytes(&side->memory, r); i++)
            wrong += memory[i] != FABRIC_BLANK;
    }
    return wrong;
}

void fabric_side_paint(struct fabric_side *side, unsigned char byte)
{
    for (uint32_t r = 0; r < side->rank_count; r++)
        memset(side->ranks[r].memory, byte, (size_t)side->ranks[r].bytes);
}

uint64_t fabric_side_other(const struct fabric_side *side, unsigned char byte)
{
    uint64_t other = 0;
    for (uint32_t r = 0; r < side->rank_count; r++) {
        const unsigned char *memory = side->ranks[r].memory;
        for (uint64_t i = 0; i < side->ranks[r].bytes; i++)
            other += memory[i] != byte;
    }
    return other;
}
