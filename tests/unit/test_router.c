/* Which member of a pool serves the next request: every policy, ties, lost members, what is remembered of prefixes. */
#include "serve/router.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arith.h"
#include "support/lone_node.h"

#define NOBODY UINT32_MAX
#define MEMBERS 4

/* Nodes 1, 3, 5, 7 prefill; 2, 4, 6, 8 decode; 100 pages each. */
static struct {
    struct node_config config;
    struct peer_config peers[2 * MEMBERS];
    void *memory[2];
    struct router prefillers;
    struct router decoders;
} bench;

static void make_router(struct router *router, void **memory, enum node_role role, enum router_policy policy)
{
    struct arena arena = arena_measure();
    router_make(router, &arena, &bench.config, role, policy);
    size_t size = (arena.used + 63) & ~(size_t)63;
    *memory = aligned_alloc(64, size > 0 ? size : 64);
    assert_non_null(*memory);
    memset(*memory, 0, size);
    arena = arena_over(*memory, size);
    router_make(router, &arena, &bench.config, role, policy);
}

static void make(enum router_policy policy)
{
    memset(&bench, 0, sizeof bench);
    for (uint32_t i = 0; i < 2 * MEMBERS; i++)
        bench.peers[i] = (struct peer_config){
            .node = i + 1,
            .role = i % 2 == 0 ? ROLE_PREFILL : ROLE_DECODE,
            .group_count = 2,
            .pages_per_group = 50,
            .geometry = small_geometry(1, 2, 16),
        };
    bench.config = (struct node_config){.role = ROLE_FRONT, .seed = 7, .peers = bench.peers, .peer_count = 2 * MEMBERS};
    make_router(&bench.prefillers, &bench.memory[0], ROLE_PREFILL, policy);
    make_router(&bench.decoders, &bench.memory[1], ROLE_DECODE, policy);
}

static int tear_down(void **state)
{
    (void)state;
    free(bench.memory[0]);
    free(bench.memory[1]);
    return 0;
}

static const struct request_spec plain = {.prompt_tokens = 100, .output_tokens = 10};

static uint32_t choose(void)
{
    return router_choose(&bench.decoders, &plain, NOBODY);
}

static void set_queued(const uint64_t *tokens)
{
    for (uint32_t m = 0; m < MEMBERS; m++)
        bench.decoders.members[m].queued_tokens = bench.decoders.members[m].tokens_to_compute = tokens[m];
}

static void lose(uint32_t member)
{
    bench.decoders.members[member].lost = true;
}

static const enum router_policy policies[] = {
    ROUTER_ROUND_ROBIN,         ROUTER_RANDOM,   ROUTER_POWER_OF_TWO,
    ROUTER_LEAST_QUEUED_TOKENS, ROUTER_LEAST_KV, ROUTER_PREFIX_AWARE,
};

static void test_members_are_the_peers_of_a_role(void **state)
{
    (void)state;
    make(ROUTER_ROUND_ROBIN);
    assert_int_equal(bench.decoders.count, MEMBERS);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        assert_int_equal(bench.decoders.members[m].node, 2 * m + 2);
        assert_int_equal(router_member_of(&bench.decoders, 2 * m + 2), m);
        assert_int_equal(router_member_of(&bench.decoders, 2 * m + 1), NOBODY);
        assert_int_equal(bench.decoders.members[m].pages_available, 100);
    }
    assert_int_equal(router_member_of(&bench.decoders, 0), NOBODY);
    assert_int_equal(router_member_of(&bench.decoders, 1000), NOBODY);
}

static void test_round_robin_has_a_counter_per_pool(void **state)
{
    (void)state;
    make(ROUTER_ROUND_ROBIN);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(choose(), i % MEMBERS);
        if (i % 3 == 0) /* the other pool's turns come at their own pace */
            assert_int_equal(router_choose(&bench.prefillers, &plain, NOBODY), i / 3 % MEMBERS);
    }
}

static void test_round_robin_passes_over_the_lost(void **state)
{
    (void)state;
    make(ROUTER_ROUND_ROBIN);
    lose(1);
    static const uint32_t order[] = {0, 2, 3, 0, 2, 3};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        assert_int_equal(choose(), order[i]);
    router_rejoin(&bench.decoders, 1, 1);
    assert_int_equal(choose(), 0);
    assert_int_equal(choose(), 1);
}

static void test_no_policy_chooses_the_lost(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        make(policies[p]);
        lose(0);
        lose(2);
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t member = choose();
            assert_true(member == 1 || member == 3);
        }
        lose(1);
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(choose(), 3);
        assert_int_equal(router_least_to_compute(&bench.decoders, NULL), 0);
        lose(3);
        assert_int_equal(choose(), NOBODY);
        assert_true(router_least_to_compute(&bench.decoders, NULL) == UINT64_MAX);
        tear_down(NULL);
    }
    make(ROUTER_ROUND_ROBIN);
}

static void test_no_policy_chooses_whom_to_avoid_unless_alone(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        make(policies[p]);
        bool chosen[MEMBERS] = {false};
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t member = router_choose(&bench.decoders, &plain, 2);
            assert_true(member < MEMBERS && member != 2);
            chosen[member] = true;
        }
        assert_true(chosen[0] && chosen[1] && chosen[3]);
        lose(0);
        lose(1);
        lose(3);
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(router_choose(&bench.decoders, &plain, 2), 2);
        lose(2);
        assert_int_equal(router_choose(&bench.decoders, &plain, 2), NOBODY);
        tear_down(NULL);
    }
    make(ROUTER_ROUND_ROBIN);
}

static void test_a_pool_of_nobody(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        make(policies[p]);
        struct router nobody;
        void *memory;
        make_router(&nobody, &memory, ROLE_MIXED, policies[p]);
        assert_int_equal(router_choose(&nobody, &plain, NOBODY), NOBODY);
        assert_true(router_least_to_compute(&nobody, NULL) == UINT64_MAX);
        free(memory);
        tear_down(NULL);
    }
    make(ROUTER_ROUND_ROBIN);
}

static void test_random_reaches_all_evenly_and_again_the_same(void **state)
{
    (void)state;
    uint32_t counts[MEMBERS] = {0}, chosen[400];
    make(ROUTER_RANDOM);
    for (uint32_t i = 0; i < 400; i++)
        counts[chosen[i] = choose()]++;
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_in_range(counts[m], 60, 140); /* 100 and 4.6 standard deviations */
    tear_down(NULL);
    make(ROUTER_RANDOM);
    for (uint32_t i = 0; i < 400; i++)
        assert_int_equal(choose(), chosen[i]);
}

static void test_power_of_two_takes_the_emptier_of_two(void **state)
{
    (void)state;
    uint32_t counts[MEMBERS] = {0};
    make(ROUTER_POWER_OF_TWO);
    set_queued((const uint64_t[]){40, 30, 20, 10});
    for (uint32_t i = 0; i < 1600; i++)
        counts[choose()]++;
    /* With replacement: 1, 3, 5 and 7 of 16 pairs have it as the emptier. */
    for (uint32_t m = 0; m < MEMBERS; m++)
        assert_in_range(counts[m], 100 * (2 * m + 1) - 80, 100 * (2 * m + 1) + 80);
}

static void test_least_queued_tokens(void **state)
{
    (void)state;
    make(ROUTER_LEAST_QUEUED_TOKENS);
    set_queued((const uint64_t[]){40, 30, 20, 10});
    assert_int_equal(choose(), 3);
    assert_int_equal(router_least_to_compute(&bench.decoders, NULL), 10);
    assert_int_equal(choose(), 3); /* it counts what it is told, not its own choices */
    lose(3);
    assert_int_equal(choose(), 2);
    assert_int_equal(router_least_to_compute(&bench.decoders, NULL), 20);
    set_queued((const uint64_t[]){0, 0, 0, 0});
    static const uint32_t turns[] = {0, 1, 2, 0, 1}; /* a tie goes round, from behind the last chosen */
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        assert_int_equal(choose(), turns[i]);
    set_queued((const uint64_t[]){5, 9, 5, 0});
    assert_int_equal(choose(), 2);
    assert_int_equal(choose(), 0);
}

static void test_least_kv_takes_the_roomiest(void **state)
{
    (void)state;
    make(ROUTER_LEAST_KV);
    struct router_member *m = bench.decoders.members;
    m[2].pages_available = 101;
    assert_int_equal(choose(), 2);
    m[2].pages_promised = 2;
    assert_int_equal(choose(), 3); /* 100 each but for one of 99: by turn */
    assert_int_equal(choose(), 0);
    m[1].pages_available = 150;
    m[1].pages_wanted = 49;
    assert_int_equal(choose(), 1);
    m[1].pages_wanted = 51;
    assert_int_equal(choose(), 3);
    /* Where all have promised more than they have, less of it is still better. */
    for (uint32_t i = 0; i < MEMBERS; i++)
        m[i] = (struct router_member){.pages_available = 10, .pages_promised = 50 - i, .config = m[i].config};
    assert_int_equal(choose(), 3);
    m[0].pages_wanted = 1;
    m[1].pages_promised = 11;
    assert_int_equal(choose(), 1);
}

static void remember(uint32_t member, const uint64_t *blocks, uint32_t count)
{
    const struct request_spec spec = {
        .prompt_tokens = 512, .block_count = count, .block_tokens = 128, .blocks = blocks};
    router_remember(&bench.decoders, member, &spec);
}

static uint32_t choose_blocks(const uint64_t *blocks, uint32_t count)
{
    const struct request_spec spec = {
        .prompt_tokens = 512, .block_count = count, .block_tokens = 128, .blocks = blocks};
    return router_choose(&bench.decoders, &spec, NOBODY);
}

static void test_prefix_aware_weighs_what_is_cached_against_the_queue(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {11, 22, 33, 44}, other[] = {99, 22, 33, 44};
    make(ROUTER_PREFIX_AWARE);
    remember(2, blocks, 3);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(choose_blocks(blocks, 4), 2); /* 384 of 512 tokens are there */
    set_queued((const uint64_t[]){500, 500, 383, 0});
    assert_int_equal(choose_blocks(blocks, 4), 2);
    set_queued((const uint64_t[]){500, 500, 385, 0});
    assert_int_equal(choose_blocks(blocks, 4), 3); /* too long a queue for it */
    /* A later block says nothing without those before it. */
    set_queued((const uint64_t[]){1, 1, 1, 0});
    assert_int_equal(choose_blocks(other, 4), 3);
    /* The longest prefix counts, member by member. */
    set_queued((const uint64_t[]){0, 0, 0, 0});
    remember(1, blocks, 4);
    assert_int_equal(choose_blocks(blocks, 4), 1);
    assert_int_equal(choose_blocks(blocks, 3), 2); /* both have these: by turn */
    assert_int_equal(choose_blocks(blocks, 3), 1);
    set_queued((const uint64_t[]){0, 200, 0, 0});
    assert_int_equal(choose_blocks(blocks, 4), 2);
}

static void test_a_replacement_has_nothing_cached(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {11, 22};
    make(ROUTER_PREFIX_AWARE);
    remember(2, blocks, 2);
    remember(3, blocks, 1);
    bench.decoders.members[2].pages_available = 3;
    bench.decoders.members[2].number = 17;
    lose(2);
    assert_int_equal(choose_blocks(blocks, 2), 3);
    router_rejoin(&bench.decoders, 2, 1);
    assert_false(bench.decoders.members[2].lost);
    assert_int_equal(bench.decoders.members[2].incarnation, 1);
    assert_int_equal(bench.decoders.members[2].pages_available, 100);
    assert_int_equal(bench.decoders.members[2].number, 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(choose_blocks(blocks, 2), 3);
}

static void test_what_a_member_evicted_is_forgotten(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {11, 22, 33};
    make(ROUTER_PREFIX_AWARE);
    remember(1, blocks, 3);
    remember(2, blocks, 3);
    router_forget(&bench.decoders, 1, &blocks[1], 1);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(choose_blocks(blocks, 3), 2); /* block 33 of member 1 cannot be reached any more */
    router_forget(&bench.decoders, 2, blocks, 3);
    assert_int_equal(choose_blocks(blocks, 3), 1); /* the first block of it still is */
}

/* More members than the bits of a word, more blocks than the smallest table: each member finds its own again. */
#define MANY 130

static void test_no_two_members_share_a_bit(void **state)
{
    (void)state;
    static struct peer_config peers[MANY];
    memset(&bench, 0, sizeof bench);
    for (uint32_t i = 0; i < MANY; i++)
        peers[i] = (struct peer_config){.node = i + 1,
                                        .role = ROLE_DECODE,
                                        .group_count = 1,
                                        .pages_per_group = 4096,
                                        .geometry = small_geometry(1, 2, 16)};
    bench.config =
        (struct node_config){.role = ROLE_FRONT, .peers = peers, .peer_count = MANY, .prefix_block_tokens = 64};
    make_router(&bench.decoders, &bench.memory[1], ROLE_DECODE, ROUTER_PREFIX_AWARE);
    enum { BLOCKS = 500 };
    for (uint32_t m = 0; m < MANY; m++) {
        uint64_t blocks[BLOCKS];
        for (uint64_t b = 0; b < BLOCKS; b++)
            blocks[b] = ((uint64_t)m << 32 | b) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        remember(m, blocks, BLOCKS);
    }
    for (uint32_t m = 0; m < MANY; m++) {
        uint64_t blocks[BLOCKS];
        for (uint64_t b = 0; b < BLOCKS; b++)
            blocks[b] = ((uint64_t)m << 32 | b) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        assert_int_equal(choose_blocks(blocks, BLOCKS), m);
        for (uint32_t other = 0; other < MANY; other++)
            assert_int_equal(bench.decoders.matched[other], other == m ? BLOCKS * 128 : 0);
    }
}

/* Two members to an NVLink domain: whatever the policy, one of the domain asked for is chosen, each as often; where
 * none of it lives, or there is none, any other. */
static void test_members_of_a_domain(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        make(policies[p]);
        for (uint32_t i = 0; i < 2 * MEMBERS; i++)
            bench.peers[i].nvlink_domain = 7 + i / 4;
        free(bench.memory[1]);
        make_router(&bench.decoders, &bench.memory[1], ROLE_DECODE, policies[p]);
        uint32_t counts[MEMBERS] = {0};
        for (uint32_t i = 0; i < 400; i++)
            counts[router_choose_near(&bench.decoders, &plain, 7 + i % 2)]++;
        for (uint32_t m = 0; m < MEMBERS; m++)
            assert_in_range(counts[m], 70, 130);
        lose(2);
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(router_choose_near(&bench.decoders, &plain, 8), 3);
        lose(3);
        assert_in_range(router_choose_near(&bench.decoders, &plain, 8), 0, 1);
        assert_in_range(router_choose_near(&bench.decoders, &plain, 9), 0, 1);
        lose(0);
        lose(1);
        assert_int_equal(router_choose_near(&bench.decoders, &plain, 7), NOBODY);
        tear_down(NULL);
    }
    make(ROUTER_ROUND_ROBIN);
}

static void test_only_prefix_aware_remembers(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {11, 22};
    make(ROUTER_LEAST_QUEUED_TOKENS);
    remember(2, blocks, 2);
    for (uint32_t i = 0; i < 2 * MEMBERS; i++)
        assert_int_equal(choose_blocks(blocks, 2), i % MEMBERS);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, NULL, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_members_are_the_peers_of_a_role),
        CASE(test_round_robin_has_a_counter_per_pool),
        CASE(test_round_robin_passes_over_the_lost),
        CASE(test_no_policy_chooses_the_lost),
        CASE(test_no_policy_chooses_whom_to_avoid_unless_alone),
        CASE(test_a_pool_of_nobody),
        CASE(test_random_reaches_all_evenly_and_again_the_same),
        CASE(test_power_of_two_takes_the_emptier_of_two),
        CASE(test_least_queued_tokens),
        CASE(test_least_kv_takes_the_roomiest),
        CASE(test_prefix_aware_weighs_what_is_cached_against_the_queue),
        CASE(test_a_replacement_has_nothing_cached),
        CASE(test_what_a_member_evicted_is_forgotten),
        CASE(test_no_two_members_share_a_bit),
        CASE(test_only_prefix_aware_remembers),
        CASE(test_members_of_a_domain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
