/* See page_pool.h. */
#include "serve/page_pool.h"

#include "base/check.h"

#include <string.h>

#define NO_BLOCK UINT32_MAX

void page_pool_make(struct page_pool *pool, struct arena *arena, struct runtime *rt, uint32_t group, uint32_t pages,
                    uint32_t pages_per_block)
{
    pool->rt = rt;
    pool->group = group;
    pool->pages_total = pages;
    pool->pages_per_block = pages_per_block;
    pool->blocks_max = pages_per_block == 0 ? 0 : pages / pages_per_block;
    pool->free_pages = arena_take(arena, pages, sizeof *pool->free_pages);
    if (pool->blocks_max > 0) {
        pool->page_block = arena_take(arena, pages, sizeof *pool->page_block);
        pool->block_pages = arena_take(arena, (size_t)pool->blocks_max * pages_per_block, sizeof *pool->block_pages);
        pool->blocks = arena_take(arena, pool->blocks_max, sizeof *pool->blocks);
        index_map_make(&pool->index, arena, pool->blocks_max);
    }
    if (arena->memory == NULL)
        return;
    pool->free_count = pages;
    for (uint32_t i = 0; i < pages; i++)
        pool->free_pages[i] = pages - 1 - i; /* page 0 on top */
    pool->oldest = pool->newest = NO_BLOCK;
    pool->block_unused = pool->blocks_max > 0 ? 0 : NO_BLOCK;
    for (uint32_t b = 0; b < pool->blocks_max; b++)
        pool->blocks[b].older = b + 1 < pool->blocks_max ? b + 1 : NO_BLOCK;
}

static void order_append(struct page_pool *pool, uint32_t block)
{
    pool->blocks[block].older = pool->newest;
    pool->blocks[block].newer = NO_BLOCK;
    if (pool->newest == NO_BLOCK)
        pool->oldest = block;
    else
        pool->blocks[pool->newest].newer = block;
    pool->newest = block;
    pool->evictable++;
}

static void order_remove(struct page_pool *pool, uint32_t block)
{
    struct prefix_block *b = &pool->blocks[block];
    if (b->older == NO_BLOCK)
        pool->oldest = b->newer;
    else
        pool->blocks[b->older].newer = b->newer;
    if (b->newer == NO_BLOCK)
        pool->newest = b->older;
    else
        pool->blocks[b->newer].older = b->older;
    pool->evictable--;
}

static void evict_oldest(struct page_pool *pool)
{
    uint32_t block = pool->oldest;
    CHECK(block != NO_BLOCK && pool->blocks[block].pins == 0);
    order_remove(pool, block);
    index_map_remove(&pool->index, pool->blocks[block].hash);
    const uint32_t *pages = &pool->block_pages[(size_t)block * pool->pages_per_block];
    for (uint32_t i = pool->pages_per_block; i-- > 0;) {
        pool->page_block[pages[i]] = 0;
        pool->free_pages[pool->free_count++] = pages[i];
    }
    if (pool->evictions != NULL && pool->evictions->count < EVICTIONS_MAX)
        pool->evictions->hashes[pool->evictions->count++] = pool->blocks[block].hash;
    rt_trace(pool->rt, TRACE_EVICTED, TRACE_NO_REQUEST, pool->blocks[block].hash, pool->group);
    pool->blocks[block].older = pool->block_unused;
    pool->block_unused = block;
}

bool page_pool_take(struct page_pool *pool, uint32_t count, uint32_t *pages)
{
    if (count > page_pool_available(pool))
        return false;
    while (pool->free_count < count)
        evict_oldest(pool);
    pool->free_count -= count;
    const uint32_t *top = &pool->free_pages[pool->free_count];
    for (uint32_t i = 0; i < count; i++)
        pages[i] = top[count - 1 - i];
    return true;
}

uint32_t page_pool_match(struct page_pool *pool, const uint64_t *hashes, uint32_t count, uint32_t *pages)
{
    if (pool->blocks_max == 0)
        return 0;
    uint32_t found = 0;
    for (; found < count; found++) {
        uint32_t block = index_map_get(&pool->index, hashes[found]);
        if (block == INDEX_NONE)
            break;
        if (pool->blocks[block].pins++ == 0)
            order_remove(pool, block);
        memcpy(&pages[(size_t)found * pool->pages_per_block], &pool->block_pages[(size_t)block * pool->pages_per_block],
               pool->pages_per_block * sizeof *pages);
    }
    return found;
}

bool page_pool_holds(const struct page_pool *pool, uint64_t hash)
{
    return pool->blocks_max > 0 && index_map_get(&pool->index, hash) != INDEX_NONE;
}

uint32_t page_pool_peek(const struct page_pool *pool, const uint64_t *hashes, uint32_t count, uint32_t *unpinned)
{
    uint32_t found = 0;
    *unpinned = 0;
    if (pool->blocks_max == 0)
        return 0;
    for (; found < count; found++) {
        uint32_t block = index_map_get(&pool->index, hashes[found]);
        if (block == INDEX_NONE)
            break;
        *unpinned += pool->blocks[block].pins == 0;
    }
    return found;
}

void page_pool_publish(struct page_pool *pool, uint64_t hash, const uint32_t *pages)
{
    if (pool->blocks_max == 0 || pool->page_block[pages[0]] != 0 || index_map_get(&pool->index, hash) != INDEX_NONE)
        return;
    uint32_t block = pool->block_unused;
    CHECK(block != NO_BLOCK); /* blocks_max blocks would be all pages, and this one's are in none */
    pool->block_unused = pool->blocks[block].older;
    pool->blocks[block] = (struct prefix_block){.hash = hash, .pins = 1, .older = NO_BLOCK, .newer = NO_BLOCK};
    for (uint32_t i = 0; i < pool->pages_per_block; i++) {
        CHECK(pool->page_block[pages[i]] == 0);
        pool->page_block[pages[i]] = block + 1;
        pool->block_pages[(size_t)block * pool->pages_per_block + i] = pages[i];
    }
    index_map_put(&pool->index, hash, block);
}

void page_pool_release(struct page_pool *pool, const uint32_t *pages, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) {
        uint32_t block = pool->blocks_max == 0 ? 0 : pool->page_block[pages[i]];
        if (block == 0) {
            CHECK(pool->free_count < pool->pages_total);
            pool->free_pages[pool->free_count++] = pages[i];
        } else if (pool->block_pages[(size_t)(block - 1) * pool->pages_per_block] == pages[i]) {
            CHECK(pool->blocks[block - 1].pins > 0);
            if (--pool->blocks[block - 1].pins == 0)
                order_append(pool, block - 1);
        }
    }
}
