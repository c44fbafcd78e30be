/* The KV pages of a group and their prefix index: by hand, and at random against a model so plain that it can be seen
 * to be right. */
#include "serve/page_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/death.h"

#define PAGES_MAX 64
#define EVICTED_MAX 4096

static struct {
    struct runtime runtime; /* first: the trace gets a pointer to it */
    struct page_pool pool;
    void *memory;
    uint64_t evicted[EVICTED_MAX];
    uint32_t evicted_count;
} bench;

static void note_trace(struct runtime *rt, const struct trace_record *record)
{
    assert_ptr_equal(rt, &bench.runtime);
    assert_int_equal(record->kind, TRACE_EVICTED);
    assert_int_equal(record->b, bench.pool.group);
    assert_true(bench.evicted_count < EVICTED_MAX);
    bench.evicted[bench.evicted_count++] = record->a;
}

static void make(uint32_t pages, uint32_t pages_per_block)
{
    static const struct runtime_ops ops = {.trace = note_trace};
    free(bench.memory);
    memset(&bench, 0, sizeof bench);
    bench.runtime.ops = &ops;
    struct arena arena = arena_measure();
    page_pool_make(&bench.pool, &arena, &bench.runtime, 3, pages, pages_per_block);
    size_t size = (arena.used + 63) & ~(size_t)63;
    bench.memory = aligned_alloc(64, size);
    assert_non_null(bench.memory);
    memset(bench.memory, 0, size);
    arena = arena_over(bench.memory, size);
    page_pool_make(&bench.pool, &arena, &bench.runtime, 3, pages, pages_per_block);
}

static int tear_down(void **state)
{
    (void)state;
    free(bench.memory);
    bench.memory = NULL;
    return 0;
}

static void assert_evicted(const uint64_t *hashes, uint32_t count)
{
    assert_int_equal(bench.evicted_count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(bench.evicted[i], hashes[i]);
    bench.evicted_count = 0;
}

/* Takes two pages a block, publishes them under the hashes and lets go of them. */
static void cache(const uint64_t *hashes, uint32_t blocks)
{
    uint32_t pages[PAGES_MAX];
    assert_true(page_pool_take(&bench.pool, 2 * blocks, pages));
    for (uint32_t b = 0; b < blocks; b++)
        page_pool_publish(&bench.pool, hashes[b], &pages[(size_t)2 * b]);
    page_pool_release(&bench.pool, pages, 2 * blocks);
}

/* ---- By hand -------------------------------------------------------------------------------------------------------
 */

static void test_all_or_nothing(void **state)
{
    (void)state;
    uint32_t pages[PAGES_MAX];
    make(5, 0);
    memset(pages, 0xff, sizeof pages);
    assert_false(page_pool_take(&bench.pool, 6, pages));
    assert_int_equal(pages[0], UINT32_MAX); /* nothing was written */
    assert_int_equal(page_pool_available(&bench.pool), 5);
    assert_true(page_pool_take(&bench.pool, 3, pages));
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(pages[i], i); /* in order, from the first */
    assert_false(page_pool_take(&bench.pool, 3, pages));
    assert_int_equal(page_pool_available(&bench.pool), 2);
    assert_true(page_pool_take(&bench.pool, 2, pages + 3));
    assert_true(page_pool_take(&bench.pool, 0, pages + 5));
    page_pool_release(&bench.pool, pages, 5);
    assert_int_equal(page_pool_available(&bench.pool), 5);
}

static void test_an_allocation_that_fails_evicts_nothing(void **state)
{
    (void)state;
    static const uint64_t hashes[] = {1, 2};
    uint32_t pages[PAGES_MAX], unpinned;
    make(6, 2);
    cache(hashes, 2);
    assert_false(page_pool_take(&bench.pool, 7, pages));
    assert_evicted(NULL, 0);
    assert_int_equal(page_pool_peek(&bench.pool, hashes, 2, &unpinned), 2);
    assert_int_equal(unpinned, 2);
    assert_true(page_pool_take(&bench.pool, 6, pages));
    assert_evicted((const uint64_t[]){2, 1}, 2);
}

static void test_a_prefix_is_found_up_to_its_first_gap(void **state)
{
    (void)state;
    static const uint64_t hashes[] = {1, 2, 3};
    uint32_t pages[PAGES_MAX];
    make(16, 2);
    cache(hashes, 3);
    assert_int_equal(page_pool_match(&bench.pool, (const uint64_t[]){1, 9, 3}, 3, pages), 1);
    assert_int_equal(pages[0], 0);
    assert_int_equal(pages[1], 1);
    page_pool_release(&bench.pool, pages, 2);
    assert_int_equal(page_pool_match(&bench.pool, (const uint64_t[]){9, 1}, 2, pages), 0);
    assert_int_equal(page_pool_match(&bench.pool, hashes, 3, pages), 3);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(pages[i], i);
    page_pool_release(&bench.pool, pages, 6);
}

static void test_pinned_blocks_are_never_evicted(void **state)
{
    (void)state;
    static const uint64_t hashes[] = {1, 2, 3};
    uint32_t first[PAGES_MAX], second[PAGES_MAX], others[PAGES_MAX], unpinned;
    make(8, 2);
    cache(hashes, 3);
    assert_int_equal(page_pool_match(&bench.pool, hashes, 2, first), 2);
    assert_int_equal(page_pool_match(&bench.pool, hashes, 1, second), 1); /* two hold the first block */
    assert_int_equal(page_pool_peek(&bench.pool, hashes, 3, &unpinned), 3);
    assert_int_equal(unpinned, 1);
    assert_int_equal(page_pool_available(&bench.pool), 4);
    assert_false(page_pool_take(&bench.pool, 5, others));
    assert_true(page_pool_take(&bench.pool, 4, others));
    assert_evicted((const uint64_t[]){3}, 1);
    page_pool_release(&bench.pool, first, 4);
    assert_int_equal(page_pool_available(&bench.pool), 2); /* the first block has its second holder */
    page_pool_release(&bench.pool, second, 2);
    assert_int_equal(page_pool_available(&bench.pool), 4);
    page_pool_release(&bench.pool, others, 4);
}

static void test_the_tail_of_a_prefix_goes_first_and_the_least_recently_used(void **state)
{
    (void)state;
    static const uint64_t a[] = {1, 2, 3}, b[] = {11, 12};
    uint32_t pages[PAGES_MAX], rest[PAGES_MAX];
    make(10, 2);
    cache(a, 3);
    cache(b, 2);
    /* Use of a's first two blocks makes them younger than all of b. */
    assert_int_equal(page_pool_match(&bench.pool, a, 2, pages), 2);
    page_pool_release(&bench.pool, pages, 4);
    static const uint64_t order[] = {3, 12, 11, 2, 1};
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(page_pool_take(&bench.pool, 2, rest + 2 * i));
        assert_evicted(&order[i], 1);
    }
    assert_int_equal(page_pool_match(&bench.pool, a, 3, pages), 0);
}

static void test_a_known_hash_is_not_published_twice(void **state)
{
    (void)state;
    uint32_t first[2], second[2], found[2], unpinned;
    const uint64_t hash = 5;
    make(6, 2);
    assert_true(page_pool_take(&bench.pool, 2, first));
    assert_true(page_pool_take(&bench.pool, 2, second)); /* the same prompt, computed twice at once */
    page_pool_publish(&bench.pool, hash, first);
    page_pool_publish(&bench.pool, hash, second);
    page_pool_publish(&bench.pool, hash + 1, first); /* nor do pages of a block get a second name */
    assert_int_equal(page_pool_peek(&bench.pool, (const uint64_t[]){6}, 1, &unpinned), 0);
    page_pool_release(&bench.pool, second, 2);
    assert_int_equal(bench.pool.free_count, 4); /* the second copy is free, not cached */
    assert_int_equal(page_pool_match(&bench.pool, &hash, 1, found), 1);
    assert_memory_equal(found, first, sizeof found);
    page_pool_release(&bench.pool, found, 2);
    page_pool_release(&bench.pool, first, 2);
    assert_int_equal(page_pool_available(&bench.pool), 6);
    assert_int_equal(bench.pool.evictable, 1);
}

static void test_without_an_index_nothing_is_found(void **state)
{
    (void)state;
    uint32_t pages[PAGES_MAX], unpinned;
    const uint64_t hash = 1;
    static const uint32_t per_block[] = {0, 8}; /* no index, and a block larger than the pool */
    for (size_t i = 0; i < 2; i++) {
        make(4, per_block[i]);
        assert_true(page_pool_take(&bench.pool, 4, pages));
        page_pool_publish(&bench.pool, hash, pages);
        page_pool_release(&bench.pool, pages, 4);
        assert_int_equal(page_pool_match(&bench.pool, &hash, 1, pages), 0);
        assert_int_equal(page_pool_peek(&bench.pool, &hash, 1, &unpinned), 0);
        assert_int_equal(bench.pool.free_count, 4);
    }
}

static void release_too_much(void *argument)
{
    (void)argument;
    uint32_t page = 0;
    page_pool_release(&bench.pool, &page, 1);
}

static void test_a_page_given_back_twice_is_a_bug(void **state)
{
    (void)state;
    make(4, 0);
    assert_check_fails(release_too_much, NULL, "free_count");
}

/* ---- Against a model -----------------------------------------------------------------------------------------------
 */

#define HOLDERS 12
#define CHAIN 6
#define PER_BLOCK 2
#define POOL 40

struct holder {
    bool live;
    uint32_t family; /* its blocks' hashes are family * 100 + 0, 1, ... */
    uint32_t page_count;
    uint32_t pages[PAGES_MAX];
    bool in_block[CHAIN]; /* pages 2b and 2b + 1 are those of the cached block */
};

struct model {
    struct holder holders[HOLDERS];
    uint64_t order[POOL]; /* unpinned blocks, oldest first */
    uint32_t order_count;
    uint64_t cached[POOL]; /* all blocks */
    uint32_t pins[POOL];
    uint32_t block_pages[POOL][PER_BLOCK];
    uint32_t cached_count;
    uint32_t free_count;
};

static uint32_t model_find(const struct model *model, uint64_t hash)
{
    for (uint32_t i = 0; i < model->cached_count; i++)
        if (model->cached[i] == hash)
            return i;
    return UINT32_MAX;
}

static void order_drop(struct model *model, uint64_t hash)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < model->order_count; i++)
        if (model->order[i] != hash)
            model->order[kept++] = model->order[i];
    assert_int_equal(kept + 1, model->order_count);
    model->order_count = kept;
}

static void model_evict(struct model *model, uint64_t hash)
{
    uint32_t i = model_find(model, hash);
    order_drop(model, hash);
    model->cached_count--;
    model->cached[i] = model->cached[model->cached_count];
    model->pins[i] = model->pins[model->cached_count];
    memcpy(model->block_pages[i], model->block_pages[model->cached_count], sizeof *model->block_pages);
    model->free_count += PER_BLOCK;
}

static void begin_holder(struct model *model, struct holder *h, struct rng *rng)
{
    uint64_t hashes[CHAIN];
    uint32_t blocks = (uint32_t)rng_between(rng, 0, CHAIN), expected = 0;
    uint32_t extra = (uint32_t)rng_between(rng, 0, 2 * CHAIN);
    *h = (struct holder){.family = (uint32_t)rng_between(rng, 1, 6)};
    for (uint32_t b = 0; b < blocks; b++)
        hashes[b] = (uint64_t)h->family * 100 + b;
    for (; expected < blocks; expected++) {
        uint32_t i = model_find(model, hashes[expected]);
        if (i == UINT32_MAX)
            break;
        if (model->pins[i]++ == 0)
            order_drop(model, hashes[expected]);
        h->in_block[expected] = true;
    }
    assert_int_equal(page_pool_match(&bench.pool, hashes, blocks, h->pages), expected);
    for (uint32_t b = 0; b < expected; b++)
        assert_memory_equal(&h->pages[(size_t)b * PER_BLOCK], model->block_pages[model_find(model, hashes[b])],
                            sizeof *model->block_pages);
    h->page_count = expected * PER_BLOCK;
    h->live = true;
    bool fits = extra <= model->free_count + model->order_count * PER_BLOCK;
    assert_int_equal(page_pool_take(&bench.pool, extra, h->pages + h->page_count), fits);
    if (!fits)
        return;
    uint32_t evicted = 0;
    while (model->free_count < extra) {
        assert_true(evicted < bench.evicted_count && bench.evicted[evicted] == model->order[0]);
        evicted++;
        model_evict(model, model->order[0]);
    }
    assert_int_equal(bench.evicted_count, evicted);
    bench.evicted_count = 0;
    model->free_count -= extra;
    h->page_count += extra;
}

/* Publishes what it has whole blocks of, in order, as an instance does. */
static void publish_holder(struct model *model, struct holder *h)
{
    for (uint32_t b = 0; b < CHAIN && (b + 1) * PER_BLOCK <= h->page_count; b++) {
        uint64_t hash = (uint64_t)h->family * 100 + b;
        page_pool_publish(&bench.pool, hash, &h->pages[(size_t)b * PER_BLOCK]);
        if (h->in_block[b] || model_find(model, hash) != UINT32_MAX)
            continue;
        h->in_block[b] = true;
        model->cached[model->cached_count] = hash;
        model->pins[model->cached_count] = 1;
        memcpy(model->block_pages[model->cached_count++], &h->pages[(size_t)b * PER_BLOCK], sizeof *model->block_pages);
    }
}

static void end_holder(struct model *model, struct holder *h)
{
    page_pool_release(&bench.pool, h->pages, h->page_count);
    model->free_count += h->page_count;
    for (uint32_t b = CHAIN; b-- > 0;) {
        if (!h->in_block[b])
            continue;
        model->free_count -= PER_BLOCK;
        uint64_t hash = (uint64_t)h->family * 100 + b;
        if (--model->pins[model_find(model, hash)] == 0)
            model->order[model->order_count++] = hash;
    }
    h->live = false;
}

/* Every page is free, in one block or with one holder. */
static void assert_whole(const struct model *model)
{
    uint32_t owners[POOL] = {0}, held = 0;
    for (uint32_t i = 0; i < HOLDERS; i++) {
        const struct holder *h = &model->holders[i];
        for (uint32_t p = 0; h->live && p < h->page_count; p++) {
            if (p / PER_BLOCK < CHAIN && h->in_block[p / PER_BLOCK])
                continue;
            assert_true(h->pages[p] < POOL);
            owners[h->pages[p]]++;
            held++;
        }
    }
    for (uint32_t i = 0; i < model->cached_count; i++)
        for (uint32_t p = 0; p < PER_BLOCK; p++)
            owners[model->block_pages[i][p]]++;
    for (uint32_t i = 0; i < model->free_count; i++)
        owners[bench.pool.free_pages[i]]++;
    for (uint32_t page = 0; page < POOL; page++)
        assert_int_equal(owners[page], 1);
    assert_int_equal(held + model->cached_count * PER_BLOCK + model->free_count, POOL);
    assert_int_equal(bench.pool.free_count, model->free_count);
    assert_int_equal(bench.pool.evictable, model->order_count);
    assert_int_equal(page_pool_available(&bench.pool), model->free_count + model->order_count * PER_BLOCK);
}

static void test_random_use_agrees_with_the_model(void **state)
{
    (void)state;
    uint32_t evictions = 0, refusals = 0, hits = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
        struct model model = {.free_count = POOL};
        make(POOL, PER_BLOCK);
        for (uint32_t round = 0; round < 1000; round++) {
            struct holder *h = &model.holders[rng_below(&rng, HOLDERS)];
            uint32_t cached = model.cached_count;
            if (!h->live) {
                begin_holder(&model, h, &rng);
                evictions += model.cached_count < cached;
                refusals += h->page_count == 0;
                hits += h->in_block[0];
            } else if (rng_below(&rng, 2) == 0) {
                publish_holder(&model, h);
            } else {
                end_holder(&model, h);
            }
            assert_whole(&model);
        }
        for (uint32_t i = 0; i < HOLDERS; i++)
            if (model.holders[i].live)
                end_holder(&model, &model.holders[i]);
        assert_whole(&model);
        assert_int_equal(page_pool_available(&bench.pool), POOL);
    }
    assert_true(evictions > 1000 && refusals > 100 && hits > 1000); /* all of it was met */
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, NULL, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_all_or_nothing),
        CASE(test_an_allocation_that_fails_evicts_nothing),
        CASE(test_a_prefix_is_found_up_to_its_first_gap),
        CASE(test_pinned_blocks_are_never_evicted),
        CASE(test_the_tail_of_a_prefix_goes_first_and_the_least_recently_used),
        CASE(test_a_known_hash_is_not_published_twice),
        CASE(test_without_an_index_nothing_is_found),
        CASE(test_a_page_given_back_twice_is_a_bug),
        CASE(test_random_use_agrees_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
