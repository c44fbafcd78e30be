/* Random small deployments under random loads and losses. Each is run fast (repeated decode launches, transfers in
 * closed form) and plainly (a launch a step, an event a layer): the same decisions at the same times. Shuffled orders
 * of equal times may decide otherwise, but break nothing. The oracle of cluster.h watches all of them. */
#include "base/arith.h"
#include "base/rng.h"
#include "support/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SEEDS 150
#define SHUFFLES 4

static struct cluster cluster;

/* Trace records by kind, over all plays: a storm in which nothing happens proves nothing. */
static uint64_t kinds[CLUSTER_KINDS];

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static bool one_in(struct rng *rng, uint32_t n)
{
    return rng_below(rng, n) == 0;
}

/* ---- Deployments ---------------------------------------------------------------------------------------------------
 */

static void draw_geometry(struct rng *rng, struct kv_geometry *geometry)
{
    static const uint16_t tensor[] = {1, 1, 2, 4};
    static const uint16_t pages[] = {16, 16, 16, 8, 32};
    geometry->parallelism.tensor = tensor[rng_below(rng, 4)];
    geometry->page_tokens = pages[rng_below(rng, 5)];
    geometry->parallelism.data = one_in(rng, 3) ? 2 : 1;
}

static struct cluster_config draw_config(struct rng *rng)
{
    bool aggregated = one_in(rng, 4);
    uint32_t prefill = aggregated ? 0 : between(rng, 1, 2), decode = aggregated ? 0 : between(rng, 1, 2);
    struct cluster_config config = cluster_config_of(prefill, decode, aggregated ? between(rng, 1, 3) : 0);
    bool tail = one_in(rng, 3), cached = one_in(rng, 2), tight = one_in(rng, 2);
    uint32_t queue = between(rng, QUEUE_FCFS, QUEUE_EARLIEST_DEADLINE);
    struct kv_geometry geometry[ROLE_MIXED + 1];
    for (uint32_t role = 0; role <= ROLE_MIXED; role++) {
        geometry[role] = config.nodes[0].geometry;
        draw_geometry(rng, &geometry[role]);
    }
    uint32_t drafts = one_in(rng, 4) ? between(rng, 1, 5) : 0, acceptance = between(rng, 0, 1000);
    int64_t deadline_ns = one_in(rng, 4) ? (int64_t)between(rng, 200, 900) * NS_PER_US : 100 * NS_PER_MS;
    for (uint32_t i = 0; i < config.node_count; i++) {
        struct node_config *node = &config.nodes[i];
        node->geometry = geometry[node->role];
        node->group_count = node->geometry.parallelism.data;
        node->pages_per_group = between(rng, tight ? 10 : 40, tight ? 16 : 80) * 16 / node->geometry.page_tokens;
        node->tail_writes = tail ? 2 : 0;
        node->tail_bytes = tail ? 8192 : 0;
        node->scheduler.queue = (enum queue_policy)queue;
        node->scheduler.prefix_cache = cached;
        node->scheduler.chunk_tokens = one_in(rng, 2) ? between(rng, 1, 40) : 0;
        node->scheduler.batch_max = between(rng, 1, 8);
        node->scheduler.token_budget = between(rng, 9, 80);
        node->scheduler.headroom_tokens = between(rng, 0, 64);
        node->scheduler.reserve_output = one_in(rng, 4);
        node->scheduler.draft_tokens = drafts;
        node->scheduler.acceptance_permille = acceptance;
        node->requests_max = i > 0 && one_in(rng, 4) ? 3 : node->requests_max;
        node->messenger.handoffs_max = between(rng, 1, 8);
        node->messenger.deadline_ns = deadline_ns;
    }
    config.nodes[0].decode_router = router_built_in(between(rng, 1, ROUTER_BUILT_IN_COUNT));
    config.nodes[0].prefill_router = router_built_in(between(rng, 1, ROUTER_BUILT_IN_COUNT));
    config.cost.slope_q32 = one_in(rng, 2) ? UINT64_C(1) << 36 : 0;
    config.watcher_ns = (int64_t)between(rng, 0, 3000);
    return config;
}

/* ---- Loads
 * ------------------------------------------------------------------------------------------------------------ */

static const uint64_t chain[2][16] = {{11, 12, 13, 14, 15, 16, 17, 18}, {11, 12, 23, 24, 25, 26, 27, 28}};

static uint32_t draw_load(struct rng *rng)
{
    uint32_t count = between(rng, 4, 40), spread_us = between(rng, 50, 6000);
    for (uint32_t id = 0; id < count; id++) {
        int64_t at_us = between(rng, 0, spread_us);
        struct request_spec request = {
            .id = id,
            .prompt_tokens = one_in(rng, 8) ? between(rng, 1, 2) : between(rng, 1, 150),
            .output_tokens = one_in(rng, 5) ? 1 : between(rng, 1, 60),
            .deadline_ns = (int64_t)between(rng, 1, 1000) * NS_PER_US,
        };
        if (one_in(rng, 2)) {
            request.block_tokens = 32;
            request.block_count = min_u32(8, ceil_div_u32(request.prompt_tokens, 32));
            request.blocks = chain[rng_below(rng, 2)];
        }
        cluster_arrives(&cluster, at_us, &request);
        if (one_in(rng, 6))
            cluster_aborts(&cluster, at_us + between(rng, 0, 1500), id);
    }
    return count;
}

static void draw_losses(struct rng *rng, const struct cluster_config *config)
{
    uint32_t losses = one_in(rng, 3) ? between(rng, 1, 2) : 0;
    for (uint32_t i = 0; i < losses; i++) {
        uint32_t node = between(rng, 1, config->node_count - 1);
        int64_t at_us = between(rng, 0, 3000);
        cluster_dies(&cluster, at_us, node);
        /* Before it is suspected, between that and the fence, and after. */
        if (one_in(rng, 2))
            cluster_returns(&cluster, at_us + between(rng, 1, 1000), node);
    }
}

/* What goes wrong is a function of what it happens to, so that both ways meet the same. */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    struct trace_record record = {.kind = 1, .request = (uint32_t)b, .a = b, .b = c};
    return trace_hash_fold(a, (int64_t)a, &record) >> 7;
}

static struct message_fault late_or_twice(void *self, int64_t now_ns, uint32_t source, uint32_t destination,
                                          const void *bytes, size_t length)
{
    (void)self;
    (void)bytes;
    uint64_t drawn = mix((uint64_t)now_ns, source * 100 + destination, length);
    return (struct message_fault){
        .copies = drawn % 16 == 0 ? 2 : 1,
        .delay_ns = drawn / 16 % 8 == 0 ? (int64_t)(drawn / 128 % 50000) : 0,
    };
}

static struct write_fault late_write(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write)
{
    (void)self;
    (void)now_ns;
    (void)source;
    uint64_t drawn = mix(write->request, write->epoch, write->unit_first);
    return (struct write_fault){.delay_ns = drawn % 6 == 0 ? (int64_t)(drawn / 6 % 700000) : 0};
}

struct played {
    uint64_t hash;
    uint64_t queue_count;
    int64_t end_ns;
};

static struct played play(uint64_t seed, bool plain, uint64_t shuffle_seed)
{
    struct rng rng = rng_stream(seed, 1, RNG_ROUTING);
    struct cluster_config config = draw_config(&rng);
    char label[64];
    snprintf(label, sizeof label, "seed %u%s, shuffle %u", (unsigned)seed, plain ? ", plain" : "",
             (unsigned)shuffle_seed);
    config.label = label;
    config.plain = plain;
    config.shuffle_seed = shuffle_seed;
    cluster_make(&cluster, &config);
    uint32_t count = draw_load(&rng);
    draw_losses(&rng, &config);
    if (one_in(&rng, 2))
        sim_set_faults(cluster.sim, &(struct sim_faults){.message = late_or_twice, .write = late_write});
    cluster_run(&cluster);
    for (uint32_t id = 0; id < count; id++)
        assert_true(cluster.ends[id] >= 1); /* 12: every request ends */
    for (uint32_t kind = 0; kind < CLUSTER_KINDS; kind++)
        kinds[kind] += cluster.kinds[kind];
    struct played outcome = {
        .hash = sim_trace_hash(cluster.sim),
        .queue_count = sim_queue_count(cluster.sim),
        .end_ns = sim_now_ns(cluster.sim),
    };
    cluster_free(&cluster);
    return outcome;
}

static void fast_and_plain_decide_alike(void **state)
{
    (void)state;
    uint64_t fast_events = 0, plain_events = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct played fast = play(seed, false, 0);
        struct played plain = play(seed, true, 0);
        if (fast.hash != plain.hash)
            fail_msg("seed %u: the short cuts change decisions or times", (unsigned)seed);
        fast_events += fast.queue_count;
        plain_events += plain.queue_count;
    }
    assert_true(fast_events < plain_events);
}

static void the_order_of_equal_times_breaks_nothing(void **state)
{
    (void)state;
    uint32_t differ = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t hash = play(seed, false, 0).hash;
        for (uint64_t shuffle = 1; shuffle <= SHUFFLES; shuffle++)
            differ += play(seed, false, shuffle).hash != hash;
    }
    assert_true(differ > 0); /* else nothing was shuffled */
}

static void everything_happened(void **state)
{
    (void)state;
    static const uint16_t expected[] = {
        TRACE_FINISHED,   TRACE_REJECTED,  TRACE_FAILED,      TRACE_ABORTED,     TRACE_PREEMPTED,
        TRACE_ADMIT_WAIT, TRACE_EVICTED,   TRACE_PREFIX_HIT,  TRACE_NACKED,      TRACE_TAIL,
        TRACE_CANCELLING, TRACE_QUIESCED,  TRACE_RELEASED,    TRACE_QUARANTINED, TRACE_FENCED,
        TRACE_DEADLINE,   TRACE_PEER_LOST, TRACE_PEER_JOINED, TRACE_LATE,
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (kinds[expected[i]] < 10)
            fail_msg("only %u records of %s", (unsigned)kinds[expected[i]], trace_kind_name(expected[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_and_plain_decide_alike),
        cmocka_unit_test(the_order_of_equal_times_breaks_nothing),
        cmocka_unit_test(everything_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
