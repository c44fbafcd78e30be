/* A brute-force oracle for the shard map: every write of a plan is executed on tagged memory, and every byte on the
 * other side is looked at.
 *
 * Both instances are laid out here from first principles (which rank holds which heads of which layers, where a token
 * of a head lies in a page), not from the plan's formulas. Each 4-byte element of source memory that a rank of the
 * sending group really holds carries its (layer, plane, head, token); everything else carries poison. After the writes
 * of a prompt, each destination byte that should have been written has been written exactly once and holds the right
 * tag, and no other byte was touched.
 */
#include "model/transfer_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD_BYTES 4 /* one tag a head and token; of the first of two unlike planes: two */
#define UNLIKE 3     /* planes of a shape: a latent and an indexer's key */
#define POISON 0xEE
#define SIDE_RANKS_MAX 16
#define MEMORY_MAX ((size_t)1 << 21)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct side {
    const struct kv_geometry *geometry;
    uint32_t group;
    uint32_t pages;      /* of the prompt */
    uint32_t pool_pages; /* physical pages, one more than needed */
    size_t plane_bytes;
    unsigned char *memory; /* [rank][physical page][global layer][plane][plane_bytes] */
    size_t size;
};

static unsigned char source_memory[MEMORY_MAX];
static unsigned char destination_memory[MEMORY_MAX];
static unsigned char written[MEMORY_MAX]; /* how often each destination byte was */
static struct transfer_plan plan;
static uint64_t prompts_checked;
static uint64_t writes_executed;

/* Heads of a rank by the definition: with at most as many ranks as heads, head h belongs to rank h * T / H; with more
 * ranks than heads, rank t holds head t * H / T. */
static bool rank_holds_head(uint32_t heads, uint32_t tensor, uint32_t t, uint32_t head)
{
    return tensor <= heads ? head * tensor / heads == t : t * heads / tensor == head;
}

static uint32_t heads_held(uint32_t heads, uint32_t tensor, uint32_t t, uint32_t *held)
{
    uint32_t count = 0;
    for (uint32_t head = 0; head < heads; head++)
        if (rank_holds_head(heads, tensor, t, head))
            held[count++] = head;
    return count;
}

static uint32_t tag_of(uint32_t layer, uint32_t plane, uint32_t head, uint32_t token)
{
    return layer << 24 | plane << 22 | head << 16 | token;
}

/* Pages of a prompt lie scattered over the pool: backwards, with one page never used. */
static uint32_t page_physical(const struct side *side, uint32_t page)
{
    return side->pool_pages - 1 - page;
}

static struct side side_make(const struct kv_geometry *geometry, uint32_t group, uint32_t tokens, unsigned char *memory)
{
    uint32_t held[KV_HEADS_MAX];
    struct side side = {.geometry = geometry, .group = group, .memory = memory};
    side.pages = (tokens + geometry->page_tokens - 1) / geometry->page_tokens;
    side.pool_pages = side.pages + 1;
    side.plane_bytes = (size_t)heads_held(geometry->kv_heads, geometry->parallelism.tensor, 0, held) *
                       geometry->page_tokens * geometry->head_bytes;
    side.size = (size_t)kv_ranks(&geometry->parallelism) * side.pool_pages * geometry->layers * geometry->planes *
                side.plane_bytes;
    assert_true(side.size <= MEMORY_MAX);
    return side;
}

static size_t plane_at(const struct side *side, uint32_t rank, uint32_t physical, uint32_t layer, uint32_t plane)
{
    const struct kv_geometry *g = side->geometry;
    return ((((size_t)rank * side->pool_pages + physical) * g->layers + layer) * g->planes + plane) * side->plane_bytes;
}

static size_t element_at(const struct side *side, uint32_t plane, uint32_t heads, uint32_t local,
                         uint32_t token_in_page)
{
    uint32_t index = side->geometry->layout == LAYOUT_HND ? local * side->geometry->page_tokens + token_in_page
                                                          : token_in_page * heads + local;
    return (size_t)index * kv_plane_head_bytes(side->geometry, plane);
}

static bool rank_holds_layer(const struct kv_geometry *g, uint32_t stage, uint32_t layer)
{
    return layer >= g->stage_layer_first[stage] && layer < g->stage_layer_first[stage + 1];
}

/* Tags every element that a rank of the side's own group holds; all else is poison. */
static void side_fill(const struct side *side)
{
    const struct kv_geometry *g = side->geometry;
    const struct parallelism *p = &g->parallelism;
    uint32_t held[KV_HEADS_MAX];

    memset(side->memory, POISON, side->size);
    for (uint32_t stage = 0; stage < p->pipeline; stage++) {
        for (uint32_t t = 0; t < p->tensor; t++) {
            uint32_t rank = (stage * p->data + side->group) * p->tensor + t;
            uint32_t heads = heads_held(g->kv_heads, p->tensor, t, held);
            for (uint32_t page = 0; page < side->pages; page++)
                for (uint32_t layer = g->stage_layer_first[stage]; layer < g->stage_layer_first[stage + 1]; layer++)
                    for (uint32_t plane = 0; plane < g->planes; plane++) {
                        unsigned char *at =
                            side->memory + plane_at(side, rank, page_physical(side, page), layer, plane);
                        for (uint32_t local = 0; local < heads; local++)
                            for (uint32_t i = 0; i < g->page_tokens; i++) {
                                uint32_t tag = tag_of(layer, plane, held[local], page * g->page_tokens + i);
                                for (size_t b = 0; b < kv_plane_head_bytes(g, plane); b += sizeof tag)
                                    memcpy(at + element_at(side, plane, heads, local, i) + b, &tag, sizeof tag);
                            }
                    }
        }
    }
}

/* One element of destination memory: written once with its tag where expected, else never. */
static void element_check(size_t at, bool expected, uint32_t tag)
{
    unsigned char count[HEAD_BYTES];
    uint32_t value;
    memset(count, expected, sizeof count);
    if (memcmp(written + at, count, sizeof count) != 0)
        fail_msg("byte %zu was written %u times, expected %u", at, written[at], (unsigned)expected);
    memcpy(&value, destination_memory + at, sizeof value);
    if (expected && value != tag)
        fail_msg("byte %zu holds tag %08x, expected %08x", at, value, tag);
}

static void destination_check(const struct side *side, uint32_t token_first, uint32_t token_end)
{
    const struct kv_geometry *g = side->geometry;
    const struct parallelism *p = &g->parallelism;
    uint32_t held[KV_HEADS_MAX];

    for (uint32_t rank = 0; rank < kv_ranks(p); rank++) {
        uint32_t stage = rank / (p->data * p->tensor);
        bool in_group = rank / p->tensor % p->data == side->group;
        uint32_t heads = heads_held(g->kv_heads, p->tensor, rank % p->tensor, held);
        for (uint32_t physical = 0; physical < side->pool_pages; physical++)
            for (uint32_t layer = 0; layer < g->layers; layer++) {
                bool layer_here = in_group && physical > 0 && rank_holds_layer(g, stage, layer);
                uint32_t page = side->pool_pages - 1 - physical;
                for (uint32_t plane = 0; plane < g->planes; plane++) {
                    size_t at = plane_at(side, rank, physical, layer, plane);
                    for (uint32_t local = 0; local < heads; local++)
                        for (uint32_t i = 0; i < g->page_tokens; i++) {
                            uint32_t token = page * g->page_tokens + i;
                            bool expected = layer_here && token >= token_first && token < token_end;
                            for (size_t b = 0; b < kv_plane_head_bytes(g, plane); b += HEAD_BYTES)
                                element_check(at + element_at(side, plane, heads, local, i) + b, expected,
                                              tag_of(layer, plane, held[local], token));
                        }
                }
            }
    }
}

/* Executes the plan's writes of units [unit_first, unit_end); returns how many there were. */
static uint64_t units_write(const struct side *source, const struct side *destination, uint32_t unit_first,
                            uint32_t unit_end)
{
    uint64_t writes = 0;
    for (uint32_t unit = unit_first; unit < unit_end; unit++)
        for (uint32_t index = 0; index < plan.pair_count; index++) {
            const struct transfer_pair *pair = &plan.pairs[index];
            uint32_t source_page = page_physical(source, unit / plan.source_units_per_page);
            uint32_t destination_page = page_physical(destination, unit / plan.destination_units_per_page);
            for (uint32_t l = 0; l < pair->layer_count; l++)
                for (uint32_t plane = pair->plane_first; plane < pair->plane_first + plan.planes; plane++)
                    for (uint32_t run = 0; run < pair->runs; run++) {
                        uint64_t from = transfer_source_offset(&plan, pair, unit, run);
                        uint64_t to = transfer_destination_offset(&plan, pair, unit, run);
                        assert_true(from + pair->run_bytes <= source->plane_bytes);
                        assert_true(to + pair->run_bytes <= destination->plane_bytes);
                        uint32_t layer = pair->layer_first + l;
                        from += plane_at(source, pair->source_rank, source_page, layer, plane);
                        to += plane_at(destination, pair->destination_rank, destination_page, layer, plane);
                        memcpy(destination_memory + to, source_memory + from, pair->run_bytes);
                        for (uint32_t i = 0; i < pair->run_bytes; i++)
                            written[to + i]++;
                        writes++;
                    }
        }
    return writes;
}

/* Streams tokens [cached, tokens) in chunks of `chunk` tokens under the page rule: a middle chunk sends the units it
 * completes, the last one the rest. chunk == 0: all in one. Returns the writes. */
static uint64_t prompt_stream(const struct side *source, const struct side *destination, uint32_t cached,
                              uint32_t tokens, uint32_t chunk)
{
    uint32_t sent = cached / plan.unit_tokens;
    uint64_t writes = 0;
    for (uint32_t done = cached; done < tokens;) {
        uint32_t end = chunk == 0 || tokens - done <= chunk ? tokens : done + chunk;
        uint32_t unit_end = end == tokens ? transfer_units(&plan, tokens) : end / plan.unit_tokens;
        writes += units_write(source, destination, sent, unit_end);
        sent = unit_end;
        done = end;
    }
    return writes;
}

/* Checks one prompt; `cached` tokens are already at the destination (whole pages of its own). */
static void prompt_check(const struct kv_geometry *from, uint32_t from_group, const struct kv_geometry *to,
                         uint32_t to_group, uint32_t cached, uint32_t tokens, uint32_t chunk)
{
    struct side source = side_make(from, from_group, tokens, source_memory);
    struct side destination = side_make(to, to_group, tokens, destination_memory);
    uint32_t units = transfer_units(&plan, tokens) - cached / plan.unit_tokens;
    uint64_t bytes = 0;

    side_fill(&source);
    memset(destination_memory, POISON, destination.size);
    memset(written, 0, destination.size);
    uint64_t writes = prompt_stream(&source, &destination, cached, tokens, chunk);
    destination_check(&destination, cached, transfer_units(&plan, tokens) * plan.unit_tokens);

    assert_true(writes == transfer_expected(&plan, units, 0));
    assert_true(writes + 3 == transfer_expected(&plan, units, 3));
    for (size_t i = 0; i < destination.size; i++)
        bytes += written[i];
    assert_true(bytes == plan.bytes_per_unit * units);
    prompts_checked++;
    writes_executed += writes;
}

/* HND with equal pages: at most planes * k writes a page, layer and destination rank. */
static void writes_bound_check(const struct kv_geometry *from, const struct kv_geometry *to)
{
    if (from->layout != LAYOUT_HND || from->page_tokens != to->page_tokens)
        return;
    uint32_t hp = kv_rank_heads(from);
    uint32_t hd = kv_rank_heads(to);
    if (hp % hd != 0 && hd % hp != 0)
        return;
    uint64_t k = hd > hp ? hd / hp : 1;
    assert_true(plan.writes_per_unit == (uint64_t)to->parallelism.tensor * to->layers * to->planes * k);
}

static bool sources_differ(const struct transfer_plan *a, const struct transfer_plan *b)
{
    for (uint32_t i = 0; i < a->pair_count; i++)
        if (a->pairs[i].source_rank == b->pairs[i].source_rank)
            return false;
    return a->pair_count == b->pair_count;
}

/* All replica choices between two geometries. Lengths hit the edges of both page sizes: 1, one unit, one token less and
 * one more than a larger page, and several pages with a ragged end. */
static void geometries_check(const struct kv_geometry *from, const struct kv_geometry *to, uint32_t variant)
{
    static struct transfer_plan first;
    uint32_t page_max = from->page_tokens > to->page_tokens ? from->page_tokens : to->page_tokens;
    const uint32_t lengths[] = {
        1, page_max, page_max + 1, 2 * page_max - 1, 2 * page_max, page_max - 1, 2 * page_max + 1};
    const uint32_t chunks[] = {0, 3, 5, 1};
    uint32_t choices = transfer_replica_choices(from);

    for (uint32_t choice = 0; choice < choices; choice++) {
        uint32_t from_group = (variant + choice) % from->parallelism.data;
        uint32_t to_group = (variant / 2 + choice) % to->parallelism.data;
        assert_int_equal(transfer_plan_make(from, from_group, to, to_group, choice, &plan), GEOMETRY_OK);
        writes_bound_check(from, to);
        if (choice == 0)
            first = plan;
        else if (from->parallelism.data == 1)
            assert_true(sources_differ(&first, &plan));

        /* Several choices share the lengths out among them; a single one takes every second length, so that two
         * neighbouring variants cover all. */
        uint32_t start = choices == 1 ? variant % 2 : choice;
        uint32_t stride = choices == 1 ? 2 : choices;
        for (uint32_t i = start; i < COUNT(lengths); i += stride)
            if (lengths[i] > 0)
                prompt_check(from, from_group, to, to_group, 0, lengths[i], chunks[(variant + i) % COUNT(chunks)]);
        if (choice >= COUNT(lengths))
            prompt_check(from, from_group, to, to_group, 0, page_max + 1, chunks[variant % COUNT(chunks)]);
    }
    /* A local prefix of one destination page. */
    prompt_check(from, (variant + choices - 1) % from->parallelism.data, to,
                 (variant / 2 + choices - 1) % to->parallelism.data, to->page_tokens, 2 * page_max + 1,
                 chunks[variant % COUNT(chunks)]);
}

struct shape {
    uint16_t heads;
    uint16_t planes;
    uint16_t tensor;
    uint16_t data;
    uint16_t pipeline;
    uint16_t page_tokens;
    enum kv_layout layout;
    uint16_t split; /* layers of the first of two stages */
};

#define LAYERS 3

static struct kv_geometry geometry_of(struct shape shape)
{
    struct kv_geometry g = {
        .layers = LAYERS,
        .kv_heads = shape.heads,
        .planes = shape.planes,
        .page_tokens = shape.page_tokens,
        .head_bytes = HEAD_BYTES,
        .layout = shape.layout,
        .parallelism = {.tensor = shape.tensor, .data = shape.data, .expert = 1, .pipeline = shape.pipeline},
    };
    if (shape.planes == UNLIKE) {
        g.planes = 2;
        g.head_bytes = 2 * HEAD_BYTES;
        g.index_bytes = HEAD_BYTES;
    }
    if (shape.pipeline == 2)
        g.stage_layer_first[1] = shape.split;
    g.stage_layer_first[shape.pipeline] = LAYERS;
    return g;
}

static bool divides(uint32_t a, uint32_t b)
{
    return a % b == 0 || b % a == 0;
}

static void shapes_check(struct shape from_shape, struct shape to_shape, uint32_t variant)
{
    struct kv_geometry from = geometry_of(from_shape);
    struct kv_geometry to = geometry_of(to_shape);
    if (kv_ranks(&from.parallelism) > SIDE_RANKS_MAX || kv_ranks(&to.parallelism) > SIDE_RANKS_MAX)
        return;
    if (divides(from.kv_heads, from_shape.tensor) && divides(to.kv_heads, to_shape.tensor))
        geometries_check(&from, &to, variant);
    else
        assert_int_equal(transfer_plan_make(&from, 0, &to, 0, 0, &plan), GEOMETRY_HEADS);
}

/* Groups and stages of the two sides, taken in turn by the variants of a (heads, T, T) triple. */
static const struct {
    uint16_t from_data, from_pipeline, from_split, to_data, to_pipeline, to_split;
} spreads[] = {
    {1, 1, 0, 1, 1, 0}, {2, 1, 0, 1, 2, 1}, {1, 2, 2, 4, 1, 0}, {1, 2, 1, 1, 2, 2}, {4, 1, 0, 2, 1, 0},
    {2, 2, 1, 2, 2, 1}, {1, 1, 0, 1, 2, 2}, {1, 2, 1, 1, 1, 0}, {1, 1, 0, 4, 2, 1}, {4, 2, 2, 1, 1, 0},
};

static const uint16_t page_sizes[][2] = {{4, 4}, {2, 8}, {8, 2}, {4, 8}, {8, 4}, {1, 4}};

static void head_counts_check(const uint16_t *head_counts, size_t head_count, const uint16_t *tensors,
                              size_t tensor_count, uint16_t planes)
{
    uint32_t variant = 0;
    for (size_t h = 0; h < head_count; h++)
        for (size_t a = 0; a < tensor_count; a++)
            for (size_t b = 0; b < tensor_count; b++)
                for (size_t p = 0; p < COUNT(page_sizes); p++)
                    for (size_t layout = LAYOUT_HND; layout <= LAYOUT_NHD; layout++)
                        for (size_t s = 0; s < COUNT(spreads); s++, variant++) {
                            struct shape from = {head_counts[h],
                                                 planes,
                                                 tensors[a],
                                                 spreads[s].from_data,
                                                 spreads[s].from_pipeline,
                                                 page_sizes[p][0],
                                                 (enum kv_layout)layout,
                                                 spreads[s].from_split};
                            struct shape to = {head_counts[h],
                                               planes,
                                               tensors[b],
                                               spreads[s].to_data,
                                               spreads[s].to_pipeline,
                                               page_sizes[p][1],
                                               (enum kv_layout)layout,
                                               spreads[s].to_split};
                            shapes_check(from, to, variant);
                        }
}

static void test_grouped_query_heads(void **state)
{
    (void)state;
    static const uint16_t heads[] = {1, 2, 4, 8, 16};
    static const uint16_t tensors[] = {1, 2, 4, 8, 16};
    prompts_checked = 0;
    head_counts_check(heads, COUNT(heads), tensors, COUNT(tensors), 2);
    assert_true(prompts_checked > 10000);
    print_message("%llu prompts, %llu writes\n", (unsigned long long)prompts_checked,
                  (unsigned long long)writes_executed);
}

/* Head counts and ranks that are no powers of two: some refused, some with heads a rank that do not divide. */
static void test_odd_heads(void **state)
{
    (void)state;
    static const uint16_t heads[] = {3, 6, 12};
    static const uint16_t tensors[] = {1, 2, 3, 4, 6, 12};
    prompts_checked = 0;
    head_counts_check(heads, COUNT(heads), tensors, COUNT(tensors), 2);
    assert_true(prompts_checked > 5000);
}

static void test_latent(void **state)
{
    (void)state;
    static const uint16_t heads[] = {1};
    static const uint16_t tensors[] = {1, 2, 3, 4, 8, 16};
    prompts_checked = 0;
    head_counts_check(heads, COUNT(heads), tensors, COUNT(tensors), 1);
    assert_true(prompts_checked > 2000);
}

/* Sparse attention: an indexer's keys are a region of their own beside the latent, and a write of their own. */
static void test_latent_and_index(void **state)
{
    (void)state;
    static const uint16_t heads[] = {1};
    static const uint16_t tensors[] = {1, 2, 3, 4, 8};
    prompts_checked = 0;
    head_counts_check(heads, COUNT(heads), tensors, COUNT(tensors), UNLIKE);
    assert_true(prompts_checked > 1000);
}

/* The count and the bytes of one prompt under every chunk size there is. */
static void test_every_chunking(void **state)
{
    (void)state;
    for (uint16_t layout = LAYOUT_HND; layout <= LAYOUT_NHD; layout++)
        for (size_t p = 0; p < COUNT(page_sizes); p++) {
            struct kv_geometry from =
                geometry_of((struct shape){4, 2, 2, 2, 1, page_sizes[p][0], (enum kv_layout)layout, 0});
            struct kv_geometry to =
                geometry_of((struct shape){4, 2, 4, 1, 2, page_sizes[p][1], (enum kv_layout)layout, 1});
            assert_int_equal(transfer_plan_make(&from, 1, &to, 0, 0, &plan), GEOMETRY_OK);
            for (uint32_t tokens = 1; tokens <= 20; tokens++)
                for (uint32_t chunk = 1; chunk <= tokens; chunk++)
                    prompt_check(&from, 1, &to, 0, 0, tokens, chunk);
        }
}

/* The windowed layers' tokens [0, tokens) that the token after them reads: those less than `window` before it. A unit
 * none of whose tokens is read by windowed layers goes without them, any other with all layers. */
static void window_check(const struct kv_geometry *from, const struct kv_geometry *to, uint32_t tokens)
{
    struct side source = side_make(from, 0, tokens, source_memory);
    struct side destination = side_make(to, 0, tokens, destination_memory);
    assert_int_equal(transfer_plan_make(from, 0, to, 0, 0, &plan), GEOMETRY_OK);
    uint32_t unit_tokens = plan.unit_tokens;
    uint32_t units = transfer_units(&plan, tokens);
    uint32_t behind = 0;
    while ((behind + 1) * unit_tokens - 1 + to->window <= tokens)
        behind++;
    assert_int_equal(transfer_units_behind(to->window, unit_tokens, tokens), behind);
    side_fill(&source);
    memset(destination_memory, POISON, destination.size);
    memset(written, 0, destination.size);
    uint64_t each = plan.writes_per_unit;
    assert_int_equal(units_write(&source, &destination, behind, units), (units - behind) * each);
    assert_int_equal(transfer_plan_make_behind(from, 0, to, 0, 0, &plan), GEOMETRY_OK);
    assert_int_equal(plan.writes_per_unit * from->layers, each * from->full_layers);
    assert_int_equal(units_write(&source, &destination, 0, behind), behind * plan.writes_per_unit);

    uint32_t held[KV_HEADS_MAX];
    for (uint32_t rank = 0; rank < kv_ranks(&to->parallelism); rank++) {
        uint32_t heads = heads_held(to->kv_heads, to->parallelism.tensor, rank % to->parallelism.tensor, held);
        for (uint32_t token = 0; token < destination.pages * to->page_tokens; token++)
            for (uint32_t layer = 0; layer < to->layers; layer++) {
                bool full = (layer + 1) * to->full_layers / to->layers > layer * to->full_layers / to->layers;
                bool here = rank_holds_layer(to, rank / to->parallelism.tensor, layer) && token < units * unit_tokens;
                size_t at =
                    plane_at(&destination, rank, page_physical(&destination, token / to->page_tokens), layer, 0);
                at += element_at(&destination, 0, heads, 0, token % to->page_tokens);
                element_check(at, here && (full || token >= behind * unit_tokens), tag_of(layer, 0, held[0], token));
            }
    }
}

static void test_windows(void **state)
{
    (void)state;
    for (uint16_t full = 1; full < LAYERS; full++)
        for (size_t p = 0; p < COUNT(page_sizes); p++)
            for (uint32_t window = 1; window <= 12; window++) {
                struct kv_geometry from = geometry_of((struct shape){4, 2, 2, 1, 1, page_sizes[p][0], LAYOUT_HND, 0});
                struct kv_geometry to = geometry_of((struct shape){4, 2, 4, 1, 2, page_sizes[p][1], LAYOUT_HND, 1});
                from.window = to.window = window;
                from.full_layers = to.full_layers = full;
                for (uint32_t tokens = 1; tokens <= 24; tokens++)
                    window_check(&from, &to, tokens);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grouped_query_heads),
        cmocka_unit_test(test_odd_heads),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_latent_and_index),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_every_chunking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
