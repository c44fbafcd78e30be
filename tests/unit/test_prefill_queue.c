/* A prefiller's queue, its steps and its prefix cache: one event in, the calls out. Numbers in the names are those of
 * the invariants in tests/INVARIANTS.md. */
#include "support/lone_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arith.h"

static struct small_cluster cluster;
static struct lone_node prefiller;

static int set_up(void **state)
{
    (void)state;
    small_cluster_make(&cluster);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lone_free(&prefiller);
    prefiller.memory = NULL;
    return 0;
}

static void begin(void)
{
    small_cluster_link(&cluster);
    lone_make(&prefiller, &cluster.config[PREFILLER]);
}

static void prefill(uint32_t request, uint32_t epoch, uint32_t tokens)
{
    struct message message = lone_prefill_of(&cluster, request, epoch, tokens, 0);
    lone_prefill(&prefiller, &message, NULL);
}

/* Likewise, the prompt being made of blocks of 32 tokens. */
static void prefill_blocks(uint32_t request, uint32_t epoch, uint32_t tokens, uint32_t first, const uint64_t *blocks,
                           uint32_t count)
{
    struct message message = lone_prefill_of(&cluster, request, epoch, tokens, first);
    message.block_tokens = 32;
    message.block_count = count;
    lone_prefill(&prefiller, &message, blocks);
}

static struct node_stats stats(void)
{
    return node_stats(prefiller.node);
}

static const uint64_t blocks[] = {11, 22, 33};

/* ---- The queue --------------------------------------------------------------------------------------------------- */

/* With one prompt under way, three more come; returns in `order` how their chunks follow. */
static void order_of(enum queue_policy policy, uint32_t order[3])
{
    cluster.config[PREFILLER].scheduler.queue = policy;
    begin();
    prefill(1, 1, 64);
    static const struct {
        uint32_t tokens;
        int64_t deadline_ns;
    } three[] = {{50, 900}, {30, 700}, {40, 300}};
    for (uint32_t i = 0; i < 3; i++) {
        struct message message = lone_prefill_of(&cluster, 2 + i, 2 + i, three[i].tokens, 0);
        message.deadline_ns = three[i].deadline_ns;
        lone_prefill(&prefiller, &message, NULL);
    }
    lone_forget(&prefiller);
    lone_run_dry(&prefiller);
    uint32_t found = 0;
    for (const char *at = prefiller.text; (at = strstr(at, " chunk r")) != NULL; at++) {
        uint32_t request, start;
        assert_int_equal(sscanf(at, " chunk r%u %u+", &request, &start), 2);
        if (start == 0) {
            assert_true(found < 3);
            order[found++] = request;
        }
    }
    assert_int_equal(found, 3);
    lone_free(&prefiller);
}

static void test_queue_policies(void **state)
{
    (void)state;
    uint32_t order[3];
    order_of(QUEUE_FCFS, order);
    assert_int_equal(order[0] * 100 + order[1] * 10 + order[2], 234);
    order_of(QUEUE_SHORTEST_FIRST, order);
    assert_int_equal(order[0] * 100 + order[1] * 10 + order[2], 342);
    order_of(QUEUE_EARLIEST_DEADLINE, order);
    assert_int_equal(order[0] * 100 + order[1] * 10 + order[2], 432);
    begin();
}

static void test_a_step_is_filled_up_to_the_budget(void **state)
{
    (void)state;
    cluster.config[PREFILLER].scheduler.chunk_tokens = 40;
    begin();
    prefill(1, 1, 60);
    prefill(2, 2, 50);
    prefill(3, 3, 10);
    lone_run_dry(&prefiller);
    assert_calls(&prefiller, "send n2 accepted r1 e1\n"
                             "launch 1 x1 g0 prefill 1/40+0 chunk r1 0+40\n"
                             "write t0 n2 r1 e1 0x00100001 units 0+2 gate 1 0-1>100-101\n"
                             "send n2 accepted r2 e2\n"
                             "send n2 accepted r3 e3\n"
                             /* r1 goes on, r2 takes 40, and 4 are left for r3: no page is complete, nothing is sent */
                             "launch 2 x1 g0 prefill 3/64+40 chunk r1 40+20 chunk r2 0+40 chunk r3 0+4\n"
                             "write t1 n2 r1 e1 0x00100001 units 2+2 gate 2 2-3>102-103\n"
                             "write t2 n2 r2 e2 0x00100002 units 0+2 gate 2 4-5>100-101\n"
                             "send n0 prefilled r1\n"
                             "launch 3 x1 g0 prefill 2/16+44 chunk r2 40+10 chunk r3 4+6\n"
                             "write t3 n2 r2 e2 0x00100002 units 2+2 gate 3 6-7>102-103\n"
                             "write t4 n2 r3 e3 0x00100003 units 0+1 gate 3 8>100\n"
                             "send n0 prefilled r2\n"
                             "send n0 prefilled r3\n");
}

static void test_11_nobody_overtakes_and_a_full_pool_moves_on(void **state)
{
    (void)state;
    cluster.config[PREFILLER].pages_per_group = 8;
    begin();
    prefill(1, 1, 80); /* five pages */
    prefill(2, 2, 80); /* does not fit yet */
    prefill(3, 3, 16); /* would, but does not overtake */
    lone_forget(&prefiller);
    lone_steps_done(&prefiller, 1);
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "launch 2 x1 g0 prefill 1/16+64 chunk r1 64+16\n"
                             "write t1 n2 r1 e1 0x00100001 units 4+1 gate 2 4>104\n"
                             "send n0 prefilled r1\n");
    assert_int_equal(stats().waiting, 2);
    lone_write_done(&prefiller, 0, WRITE_OK);
    assert_calls(&prefiller, "");
    lone_write_done(&prefiller, 1, WRITE_OK); /* the pages are back: r2 has them at once */
    assert_calls(&prefiller, "launch 3 x1 g0 prefill 1/64+0 leave r1 chunk r2 0+64\n"
                             "write t1 n2 r2 e2 0x00100002 units 0+4 gate 3 0-3>100-103\n");
}

static void test_13_no_more_writes_than_the_runtime_takes(void **state)
{
    (void)state;
    cluster.config[PREFILLER].scheduler.chunk_tokens = 16;
    begin();
    for (uint32_t i = 1; i <= 12; i++)
        prefill(i, i, 16);
    lone_run_dry(&prefiller); /* the node is told nothing of its writes: it stops by itself, at most 8 out */
    assert_true(prefiller.writes >= 7);
    assert_int_equal(stats().waiting, 12 - prefiller.writes);
    lone_forget(&prefiller);
    lone_write_done(&prefiller, 0, WRITE_OK);
    lone_write_done(&prefiller, 1, WRITE_OK);
    assert_true(prefiller.launched);
    while (prefiller.launched || prefiller.writes > 0) {
        lone_all_written(&prefiller);
        lone_run_dry(&prefiller);
    }
    assert_lone_empty(&prefiller);
}

/* Three writes a prompt may be out at once: what was cached, the chunk and the tail, with eight in all. A step that
 * took a third prompt would have nothing left for a tail. */
static void test_13_a_step_leaves_room_for_the_tails(void **state)
{
    (void)state;
    cluster.config[PREFILLER].tail_writes = 1;
    begin();
    for (uint32_t i = 1; i <= 6; i++)
        prefill(i, i, 16);
    assert_true(prefiller.launched);
    lone_forget(&prefiller);
    lone_steps_done(&prefiller, 1); /* of the first prompt alone; 6 are left, for two */
    assert_calls(&prefiller, "send n0 prefilled r1\n"
                             "write t1 n2 r1 e1 0x00100001 units 1+0 no gate tail 1@3\n"
                             "launch 2 x1 g0 prefill 2/32+0 chunk r2 0+16 chunk r3 0+16\n"
                             "write t2 n2 r2 e2 0x00100002 units 0+1 gate 2 1>100\n"
                             "write t3 n2 r3 e3 0x00100003 units 0+1 gate 2 2>100\n");
    lone_steps_done(&prefiller, 1); /* 2 are left: none may start */
    assert_calls(&prefiller, "send n0 prefilled r2\n"
                             "write t4 n2 r2 e2 0x00100002 units 1+0 no gate tail 1@3\n"
                             "send n0 prefilled r3\n"
                             "write t5 n2 r3 e3 0x00100003 units 1+0 no gate tail 1@3\n");
    lone_write_done(&prefiller, 0, WRITE_OK); /* and with a third one may */
    assert_calls(&prefiller, "launch 3 x1 g0 prefill 1/16+0 chunk r4 0+16\n"
                             "write t0 n2 r4 e4 0x00100004 units 0+1 gate 3 3>100\n");
    while (prefiller.launched || prefiller.writes > 0) {
        lone_all_written(&prefiller);
        lone_run_dry(&prefiller);
    }
    assert_lone_empty(&prefiller);
}

static void test_groups_have_a_queue_each(void **state)
{
    (void)state;
    cluster.config[PREFILLER].group_count = 2;
    cluster.config[PREFILLER].geometry.parallelism.data = 2;
    begin();
    prefill(1, 1, 100);
    prefill(2, 2, 30);
    prefill(3, 3, 30);
    prefill(4, 4, 30);
    lone_write_done(&prefiller, 0, WRITE_OK);
    lone_forget(&prefiller);
    lone_steps_done(&prefiller, 1);
    /* r2 and r3 are on group 1, r4 too: group 0 had 100 tokens queued. */
    assert_calls(&prefiller, "launch 2 x1 g0 prefill 1/36+64 g1 prefill 3/64+0 chunk r1 64+36 chunk r2 0+30 chunk r3 "
                             "0+30 chunk r4 0+4\n"
                             "write t0 n2 r1 e1 0x00100001 units 4+3 gate 2 4-6>104-106\n"
                             "write t1 n2 r2 e2 0x00100002 units 0+2 gate 2 0-1>100-101\n"
                             "write t2 n2 r3 e3 0x00100003 units 0+2 gate 2 2-3>100-101\n");
}

/* ---- Prefix cache ------------------------------------------------------------------------------------------------ */

/* Leaves `tokens` tokens of the blocks cached. */
static void warm(uint32_t tokens)
{
    cluster.config[PREFILLER].scheduler.prefix_cache = 1;
    begin();
    prefill_blocks(1, 1, tokens, 0, blocks, 3);
    lone_run_dry(&prefiller);
    lone_all_written(&prefiller);
    assert_lone_empty(&prefiller);
    lone_forget(&prefiller);
}

static void test_cached_units_go_at_once_and_without_a_gate(void **state)
{
    (void)state;
    warm(64);
    assert_int_equal(stats().pages_cached, 4);
    prefill_blocks(2, 2, 80, 0, blocks, 3);
    assert_calls(&prefiller, "send n2 accepted r2 e2\n"
                             "write t0 n2 r2 e2 0x00100002 units 0+4 no gate 0-3>100-103\n"
                             "launch 2 x1 g0 prefill 1/16+64 leave r1 chunk r2 64+16\n"
                             "write t1 n2 r2 e2 0x00100002 units 4+1 gate 2 4>104\n");
    lone_run_dry(&prefiller);
    lone_write_done(&prefiller, 0, WRITE_OK);
    lone_write_done(&prefiller, 1, WRITE_OK);
    assert_lone_empty(&prefiller);
}

static void test_all_cached_needs_no_forward_pass(void **state)
{
    (void)state;
    warm(64);
    prefill_blocks(2, 2, 64, 0, blocks, 2);
    assert_calls(&prefiller, "send n2 accepted r2 e2\n"
                             "write t0 n2 r2 e2 0x00100002 units 0+4 no gate 0-3>100-103\n"
                             "send n0 prefilled r2\n");
    assert_int_equal(stats().pages_held, 4); /* 7: pinned while the write reads them */
    lone_write_done(&prefiller, 0, WRITE_OK);
    assert_lone_empty(&prefiller);
}

static void test_all_cached_with_a_tail_computes_the_last_block(void **state)
{
    (void)state;
    cluster.config[PREFILLER].tail_writes = 1;
    warm(64);
    prefill_blocks(2, 2, 64, 0, blocks, 2);
    assert_calls(&prefiller, "send n2 accepted r2 e2\n"
                             "write t1 n2 r2 e2 0x00100002 units 0+2 no gate 0-1>100-101\n"
                             "launch 2 x1 g0 prefill 1/32+32 leave r1 chunk r2 32+32\n"
                             "write t0 n2 r2 e2 0x00100002 units 2+2 gate 2 4-5>102-103\n");
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "send n0 prefilled r2\n"
                             "write t2 n2 r2 e2 0x00100002 units 4+0 no gate tail 1@3\n");
}

static void test_the_decoder_has_more_than_is_cached_here(void **state)
{
    (void)state;
    warm(32);
    prefill_blocks(2, 2, 96, 64, blocks, 3);
    assert_calls(&prefiller, "send n2 accepted r2 e2\n"
                             "launch 2 x1 g0 prefill 1/64+32 leave r1 chunk r2 32+64\n"
                             "write t0 n2 r2 e2 0x00100002 units 4+2 gate 2 4-5>100-101\n");
}

static void test_more_is_cached_here_than_the_decoder_has(void **state)
{
    (void)state;
    warm(64);
    prefill_blocks(2, 2, 96, 32, blocks, 3);
    assert_calls(&prefiller, "send n2 accepted r2 e2\n"
                             "write t0 n2 r2 e2 0x00100002 units 2+2 no gate 2-3>100-101\n"
                             "launch 2 x1 g0 prefill 1/32+64 leave r1 chunk r2 64+32\n"
                             "write t1 n2 r2 e2 0x00100002 units 4+2 gate 2 4-5>102-103\n");
}

static void test_a_partly_filled_block_is_never_shared(void **state)
{
    (void)state;
    /* A prompt of 40 tokens and 30 tokens of output: its second block's name says nothing of tokens behind the
     * prompt. */
    cluster.config[PREFILLER].scheduler.prefix_cache = 1;
    begin();
    struct message message = lone_prefill_of(&cluster, 1, 1, 69, 0);
    message.produced = 30;
    message.block_tokens = 32;
    message.block_count = 2;
    lone_prefill(&prefiller, &message, blocks);
    lone_run_dry(&prefiller);
    lone_write_done(&prefiller, 0, WRITE_OK);
    lone_write_done(&prefiller, 1, WRITE_OK);
    assert_int_equal(stats().pages_cached, 2);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_queue_policies),
        CASE(test_a_step_is_filled_up_to_the_budget),
        CASE(test_11_nobody_overtakes_and_a_full_pool_moves_on),
        CASE(test_13_no_more_writes_than_the_runtime_takes),
        CASE(test_13_a_step_leaves_room_for_the_tails),
        CASE(test_groups_have_a_queue_each),
        CASE(test_cached_units_go_at_once_and_without_a_gate),
        CASE(test_all_cached_needs_no_forward_pass),
        CASE(test_all_cached_with_a_tail_computes_the_last_block),
        CASE(test_the_decoder_has_more_than_is_cached_here),
        CASE(test_more_is_cached_here_than_the_decoder_has),
        CASE(test_a_partly_filled_block_is_never_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
