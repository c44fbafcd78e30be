/* The KV pages of one attention group, and the index of prefixes cached in them.
 *
 * A page is free, held by live requests, or cached: part of a prefix block that no request holds at the moment. Blocks
 * are shared: each counts its holders (pins) and leaves the pool of evictable blocks while it has any. Allocation is
 * all or nothing: it takes free pages, then evicts unpinned blocks, least recently used first, or takes nothing.
 *
 * Prefix blocks are named by chained hashes: equal hash means equal tokens in the block and before it. A block is
 * `pages_per_block` pages. When the last holder lets go, blocks enter the eviction order tail first, so that what can
 * be found only through its predecessors goes before them.
 */
#ifndef TANDEM_SERVE_PAGE_POOL_H
#define TANDEM_SERVE_PAGE_POOL_H

#include "base/arena.h"
#include "base/index_map.h"
#include "runtime.h"

#include <stdbool.h>
#include <stdint.h>

struct prefix_block {
    uint64_t hash;
    uint32_t pins;
    uint32_t older; /* neighbours in eviction order; `older` also links the list of unused blocks */
    uint32_t newer;
};

/* Blocks that were evicted and that nobody has been told of yet. When it is full later ones are left out: whoever is
 * told knows the cache as it was, a little, as of any cache that is not its own. */
#define EVICTIONS_MAX REQUEST_BLOCKS_MAX /* what a message carries */

struct eviction_list {
    uint64_t *hashes; /* EVICTIONS_MAX */
    uint32_t count;
};

struct page_pool {
    struct runtime *rt;              /* evictions are traced */
    struct eviction_list *evictions; /* and noted here; NULL: nobody asks */
    uint32_t group;
    uint32_t pages_total;
    uint32_t free_count;
    uint32_t *free_pages; /* a stack */

    uint32_t pages_per_block; /* 0: no prefix index */
    uint32_t blocks_max;
    uint32_t block_unused; /* head of the list of unused block records */
    uint32_t oldest;
    uint32_t newest;
    uint32_t evictable;    /* blocks without pins */
    uint32_t *page_block;  /* by page: block index plus one; 0: the page is in no block */
    uint32_t *block_pages; /* pages_per_block entries a block */
    struct prefix_block *blocks;
    struct index_map index; /* hash -> block */
};

void page_pool_make(struct page_pool *pool, struct arena *arena, struct runtime *rt, uint32_t group, uint32_t pages,
                    uint32_t pages_per_block);

/* Pages that an allocation could get: free ones and those of unpinned blocks. */
static inline uint32_t page_pool_available(const struct page_pool *pool)
{
    return pool->free_count + pool->evictable * pool->pages_per_block;
}

/* Takes `count` pages into `pages`, or nothing and returns false. */
bool page_pool_take(struct page_pool *pool, uint32_t count, uint32_t *pages);

/* Finds the longest cached prefix of `hashes`, pins its blocks and writes their pages; returns the number of blocks.
 * The caller then holds those pages like any others. */
uint32_t page_pool_match(struct page_pool *pool, const uint64_t *hashes, uint32_t count, uint32_t *pages);

/* Whether the block is cached. */
bool page_pool_holds(const struct page_pool *pool, uint64_t hash);

/* As page_pool_match(), but only counts. */
uint32_t page_pool_peek(const struct page_pool *pool, const uint64_t *hashes, uint32_t count, uint32_t *unpinned);

/* Makes the block whose pages the caller holds findable under `hash`. Does nothing if that hash is known already. */
void page_pool_publish(struct page_pool *pool, uint64_t hash, const uint32_t *pages);

/* Gives up the caller's hold of `count` pages, given in prompt order: pages of blocks stay cached, others become
 * free. */
void page_pool_release(struct page_pool *pool, const uint32_t *pages, uint32_t count);

#endif
