/* What a prefiller finds cached, request by request, against a cache of a page of code that knows nothing of the
 * product: a list in the order of last use. The prompts of the Mooncake conversation trace of scenarios/traces, one
 * after the other. A cache that forgets nothing finds what has been there before, exactly. */
#include "sim/sim_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arith.h"
#include "host/memory.h"
#include "run/run.h"
#include "world/deployment.h"
#include "world/load/workload.h"
#include "world/scenario/scenario_lua.h"

#define PAGE 64u
#define BLOCK 512u
#define BLOCK_PAGES (BLOCK / PAGE)

/* ---- The cache --------------------------------------------------------------------------------------------------- */

struct cache {
    uint64_t *blocks; /* least recently used first */
    uint32_t count;
    uint64_t pages;
};

static bool holds(const struct cache *cache, uint64_t block)
{
    for (uint32_t i = cache->count; i-- > 0;)
        if (cache->blocks[i] == block)
            return true;
    return false;
}

static void forget(struct cache *cache, uint64_t block)
{
    for (uint32_t i = 0; i < cache->count; i++)
        if (cache->blocks[i] == block) {
            memmove(&cache->blocks[i], &cache->blocks[i + 1], (cache->count - i - 1) * sizeof *cache->blocks);
            cache->count--;
            return;
        }
}

/* A prompt of so many tokens, of which the last is not computed here; returns the blocks that were there. */
static uint32_t serve(struct cache *cache, const uint64_t *blocks, uint32_t block_count, uint32_t prompt_tokens)
{
    uint32_t tokens = prompt_tokens - 1;
    uint32_t whole = min_u32(block_count, tokens / BLOCK);
    uint32_t found = 0;
    while (found < whole && holds(cache, blocks[found]))
        found++;
    /* Those in use cannot go: they are out of the list meanwhile. */
    for (uint32_t b = 0; b < found; b++)
        forget(cache, blocks[b]);
    uint64_t pages = ceil_div_u32(tokens, PAGE);
    uint64_t room = cache->pages - pages;
    while ((uint64_t)cache->count * BLOCK_PAGES > room) {
        memmove(cache->blocks, &cache->blocks[1], (cache->count - 1) * sizeof *cache->blocks);
        cache->count--;
    }
    /* The end of a prefix is of no use without its beginning, and goes first. What was there behind a gap stays where
     * it was, and its copy is not kept. */
    for (uint32_t b = whole; b-- > 0;)
        if (!holds(cache, blocks[b]))
            cache->blocks[cache->count++] = blocks[b];
    return found;
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

struct seen {
    uint32_t *cached_tokens; /* by request */
    uint32_t count;
};

static bool on_row(void *self, const struct request_row *row, bool met)
{
    struct seen *seen = self;
    (void)met;
    assert_int_equal(row->outcome, OUTCOME_COMPLETED);
    seen->cached_tokens[row->request] = row->cached_tokens;
    seen->count++;
    return true;
}

static void agrees(const char *utilization, uint64_t blocks_wanted)
{
    const struct scenario_override sets[] = {{.path = "vary", .value = "nil"},
                                             {.path = "expect", .value = "nil"},
                                             {.path = "model",
                                              .value = "with(require 'models.tiny-gqa', { tail_writes = "
                                                       "0, tail = bytes(0) })"},
                                             {.path = "pools.prefill.count", .value = "1"},
                                             {.path = "pools.decode.count", .value = "1"},
                                             {.path = "pools.decode.prefix_cache", .value = "false"},
                                             {.path = "pools.prefill.shardings", .value = "{ { tensor = 1 } }"},
                                             {.path = "pools.decode.shardings", .value = "{ { tensor = 1 } }"},
                                             {.path = "pools.prefill.memory_utilization", .value = utilization},
                                             {.path = "routing.prefill", .value = "'round_robin'"}};
    struct user_error error = {.set = false};
    struct scenario *scenario =
        scenario_load(TANDEM_SOURCE_DIR "/scenarios/mooncake-prefix.lua", sets, sizeof sets / sizeof *sets, &error);
    if (scenario == NULL)
        fail_msg("%s", error.text);
    struct trace_file *trace = scenario_trace(scenario, &error);
    assert_non_null(trace);
    struct kv_capacity capacity;
    const struct pool *prefill = &scenario->pools[0];
    assert_int_equal(prefill->role, ROLE_PREFILL);
    assert_true(deployment_kv_capacity(scenario, prefill, 0, 0, &capacity, &error));

    struct seen seen = {.cached_tokens = memory_zeroed(trace->count, sizeof *seen.cached_tokens)};
    const struct deployment_choice choice = deployment_default(scenario);
    struct run_result result;
    /* The trace has several at an instant. */
    int64_t *at_ns = memory_get(trace->count * sizeof *at_ns);
    for (uint32_t i = 0; i < trace->count; i++)
        at_ns[i] = (int64_t)i * 100 * NS_PER_S;
    const struct workload_arrivals arrivals = {.count = trace->count, .at_ns = at_ns};
    run_play(&sim_backend,
             &(struct run_config){.scenario = scenario,
                                  .choice = &choice,
                                  .seed = 1,
                                  .recorded = trace,
                                  .arrivals = &arrivals,
                                  .listener = {.self = &seen, .row = on_row}},
             &result);
    if (result.status != RUN_COMPLETE)
        fail_msg("%s", result.text);
    assert_int_equal(seen.count, trace->count);

    struct cache cache = {.blocks = memory_zeroed(trace->block_first[trace->count] + 1, sizeof *cache.blocks),
                          .pages = capacity.tokens / PAGE};
    uint64_t found = 0;
    for (uint32_t i = 0; i < trace->count; i++) {
        uint64_t first = trace->block_first[i];
        uint32_t blocks = serve(&cache, &trace->blocks[first], (uint32_t)(trace->block_first[i + 1] - first),
                                trace->prompt_tokens[i]);
        if (seen.cached_tokens[i] != blocks * BLOCK)
            fail_msg("request %u: %u tokens are cached, not %u", i, seen.cached_tokens[i], blocks * BLOCK);
        found += blocks;
    }
    print_message("%s of memory, %llu tokens: %llu blocks of %llu are found\n", utilization,
                  (unsigned long long)capacity.tokens, (unsigned long long)found,
                  (unsigned long long)trace->block_first[trace->count]);
    if (blocks_wanted > 0)
        assert_int_equal(found, blocks_wanted);
    run_result_free(&result);
    free(at_ns);
    free(cache.blocks);
    free(seen.cached_tokens);
    trace_file_free(trace);
    scenario_free(scenario);
}

static void block_by_block(void **state)
{
    (void)state;
    agrees("percent(2)", 0);
    agrees("percent(5)", 0);
    agrees("percent(15)", 0);
}

static void nothing_is_forgotten(void **state)
{
    (void)state;
    agrees("percent(90)", 30969);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_by_block),
        cmocka_unit_test(nothing_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
