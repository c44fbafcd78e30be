/* A decoder and its pages: who waits, who grows, who is preempted, what is shared. One event in, the calls out. Numbers
 * in the names are those of the invariants in tests/INVARIANTS.md. */
#include "support/lone_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/arith.h"

/* Static, because its text is large. */
static struct small_cluster cluster;
static struct lone_node decoder;

static int set_up(void **state)
{
    (void)state;
    small_cluster_make(&cluster);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lone_free(&decoder);
    decoder.memory = NULL;
    return 0;
}

static void begin(void)
{
    small_cluster_link(&cluster);
    lone_make(&decoder, &cluster.config[DECODER]);
}

static void request(uint32_t id, uint32_t prompt, uint32_t output)
{
    struct message message = lone_request_of(id, prompt, output);
    lone_message(&decoder, FRONT, &message, NULL, NULL);
}

/* A request whose prompt is made of these blocks of 32 tokens. */
static void request_with_blocks(uint32_t id, uint32_t prompt, uint32_t output, const uint64_t *blocks, uint32_t count)
{
    struct message message = lone_request_of(id, prompt, output);
    message.block_tokens = 32;
    message.block_count = count;
    lone_message(&decoder, FRONT, &message, blocks, NULL);
}

static struct node_stats stats(void)
{
    return node_stats(decoder.node);
}

/* ---- Room -------------------------------------------------------------------------------------------------------- */

static void test_34_short_of_pages_waits_and_drops_nothing(void **state)
{
    (void)state;
    cluster.config[DECODER].pages_per_group = 10;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    decoder.traces = true;
    request(8, 100, 3);
    request(9, 1, 1); /* 5 pages are free, but nobody overtakes */
    assert_calls(&decoder, "trace received r8 0 0\n"
                           "trace admit_wait r8 7 3\n"
                           "trace received r9 0 0\n");
    decoder.traces = false;
    assert_int_equal(stats().waiting, 2);
    assert_int_equal(stats().pages_held, 7);
    lone_immediate(&decoder, 0x00100000, 28);
    lone_run_dry(&decoder);
    assert_calls(&decoder, "launch 1 x1 g0 decode 1/99 join r7 @99\n"
                           "send n0 first_token r7 produced 1\n"
                           "launch 2 x2 g0 decode 1/100\n"
                           "send n0 finished r7 produced 3\n"
                           "expect 0x00200000 28\n"
                           "send n1 prefill r8 e2 tokens 99 first 0 pages 0-6 0x00200000 tail 0 group 0\n"
                           "launch 3 x1 g0 decode 1/0 leave r7 join r9 @0\n"
                           "send n0 first_token r9 produced 1\n"
                           "send n0 finished r9 produced 1\n");
}

static void test_pages_grow_by_the_headroom(void **state)
{
    (void)state;
    begin();
    request(7, 33, 40); /* 32 cached, and 16 of headroom */
    lone_immediate(&decoder, 0x00100000, 8);
    assert_int_equal(stats().pages_held, 3);
    lone_forget(&decoder);
    lone_steps_done(&decoder, 1);
    assert_calls(&decoder, "send n0 first_token r7 produced 1\n"
                           "launch 2 x15 g0 decode 1/33\n");
    lone_steps_done(&decoder, 15); /* 48 cached: full */
    assert_calls(&decoder, "launch 3 x16 g0 decode 1/48 pages r7 3+1\n");
    lone_steps_done(&decoder, 10); /* an event cut it short */
    assert_calls(&decoder, "launch 4 x6 g0 decode 1/58\n");
    lone_steps_done(&decoder, 6);
    assert_calls(&decoder, "launch 5 x8 g0 decode 1/64 pages r7 4+1\n");
    lone_steps_done(&decoder, 8);
    assert_calls(&decoder, "send n0 finished r7 produced 40\n");
    assert_lone_empty(&decoder);
}

static void test_reserving_the_output_never_grows(void **state)
{
    (void)state;
    cluster.config[DECODER].scheduler.reserve_output = 1;
    begin();
    request(7, 33, 40); /* 72 tokens are cached at its end */
    assert_int_equal(stats().pages_held, 5);
    lone_immediate(&decoder, 0x00100000, 8);
    lone_steps_done(&decoder, 1);
    lone_forget(&decoder);
    lone_steps_done(&decoder, 39);
    assert_calls(&decoder, "send n0 finished r7 produced 40\n");
}

/* Where tokens are drafted a step may take more than one page. The younger one does not take the last page, which is
 * not enough for its next step, only to leave with it: others may have it before the device hears of that. */
static void test_what_is_not_enough_for_a_step_is_not_taken(void **state)
{
    (void)state;
    struct node_config *config = &cluster.config[DECODER];
    config->geometry = small_geometry(1, 2, 2);
    config->pages_per_group = 13;
    config->scheduler.draft_tokens = 4;
    config->scheduler.acceptance_permille = 1000; /* five tokens a step */
    config->scheduler.headroom_tokens = 0;
    begin();
    request(1, 1, 18);
    lone_steps_done(&decoder, 1);
    request(2, 1, 18);
    lone_steps_done(&decoder, 1);
    lone_forget(&decoder);
    lone_steps_done(&decoder, 1);
    assert_calls(&decoder, "send n0 first_token r2 produced 5\n"
                           "launch 4 x1 g0 decode 1/15 pages r1 8+1 leave r2\n");
}

/* Two requests of two pages each in a pool of five. */
static void two_in_five_pages(uint32_t output)
{
    cluster.config[DECODER].pages_per_group = 5;
    begin();
    request(1, 17, output);
    request(2, 17, output);
    lone_immediate(&decoder, 0x00100000, 4);
    lone_steps_done(&decoder, 1);
    lone_immediate(&decoder, 0x00100001, 4);
    lone_forget(&decoder);
}

static void test_the_youngest_is_preempted_and_the_oldest_goes_on(void **state)
{
    (void)state;
    two_in_five_pages(40);
    lone_steps_done(&decoder, 1); /* r1 alone has 18 tokens, r2 joins */
    lone_steps_done(&decoder, 1);
    lone_forget(&decoder);
    /* r1 fills its 32 tokens after 13 more steps, and gets the fifth page. */
    lone_steps_done(&decoder, 13);
    assert_calls(&decoder, "launch 5 x2 g0 decode 2/62 pages r1 2+1\n");
    decoder.traces = true;
    lone_steps_done(&decoder, 2);
    /* r2 is full, there is no page, and r2 itself is the youngest. It waits, holding nothing, for its KV of 32
     * tokens. */
    assert_calls(&decoder, "trace preempted r2 32 0\n"
                           "trace admit_wait r2 3 2\n"
                           "trace batch 1 0\n"
                           "launch 6 x14 g0 decode 1/34 leave r2\n");
    assert_int_equal(stats().waiting, 1);
    lone_steps_done(&decoder, 14); /* r1 takes the next page, too */
    assert_calls(&decoder, "launch 7 x8 g0 decode 1/48 pages r1 3+1\n");
    decoder.traces = false;
    lone_steps_done(&decoder, 8);
    /* r1 ends; r2 has its KV computed again, and goes on where it was: it had 16 tokens, and 24 are left. */
    assert_calls(&decoder, "send n0 finished r1 produced 40\n"
                           "expect 0x00200001 8\n"
                           "send n1 prefill r2 e3 tokens 32 first 0 pages 0-1 0x00200001 tail 1 group 0\n");
    lone_immediate(&decoder, 0x00200001, 8);
    lone_run_dry(&decoder);
    assert_calls(&decoder, "launch 8 x16 g0 decode 1/32 leave r1 join r2 @32\n"
                           "launch 9 x8 g0 decode 1/48 pages r2 3+1\n"
                           "send n0 finished r2 produced 40\n");
    assert_lone_empty(&decoder);
}

static void test_a_sequence_that_has_finished_is_not_preempted(void **state)
{
    (void)state;
    /* r1 fills its pages in the very step in which r2, the youngest, produces its last token. */
    cluster.config[DECODER].pages_per_group = 4;
    begin();
    request(1, 17, 40);
    request(2, 17, 15);
    lone_immediate(&decoder, 0x00100000, 4);
    lone_immediate(&decoder, 0x00100001, 4);
    lone_steps_done(&decoder, 1); /* r1 alone */
    lone_steps_done(&decoder, 1); /* with r2 */
    assert_int_equal(decoder.repeat_max, 14);
    lone_forget(&decoder);
    lone_steps_done(&decoder, 14);
    assert_calls(&decoder, "send n0 finished r2 produced 15\n"
                           "launch 4 x16 g0 decode 1/32 leave r2 pages r1 2+1\n");
}

static void test_a_client_keeps_its_first_token_through_a_preemption(void **state)
{
    (void)state;
    /* r2 comes after its first decoder was lost: its client has a first token, this decoder has produced none. */
    cluster.config[DECODER].pages_per_group = 4;
    cluster.config[DECODER].scheduler.batch_max = 1;
    begin();
    request(1, 17, 40);
    struct message message = lone_request_of(2, 17, 4);
    message.flags = FLAG_RESUMED;
    lone_message(&decoder, FRONT, &message, NULL, NULL);
    lone_immediate(&decoder, 0x00100000, 4);
    lone_immediate(&decoder, 0x00100001, 4);
    lone_steps_done(&decoder, 1);
    lone_forget(&decoder);
    lone_steps_done(&decoder, 15); /* r1 is full. r2 is complete but has no place in the batch: it goes */
    assert_calls(&decoder, "launch 3 x16 g0 decode 1/32 pages r1 2+1\n");
    assert_int_equal(stats().waiting, 1);
    lone_run_dry(&decoder);
    lone_forget(&decoder);
    lone_immediate(&decoder, 0x00200001, 4);
    lone_run_dry(&decoder);
    assert_calls(&decoder, "launch 5 x4 g0 decode 1/16 leave r1 join r2 @16\n"
                           "send n0 finished r2 produced 4\n");
    assert_lone_empty(&decoder);
}

static void test_growth_takes_what_there_is_before_it_preempts(void **state)
{
    (void)state;
    cluster.config[DECODER].pages_per_group = 7;
    cluster.config[DECODER].scheduler.headroom_tokens = 32; /* two pages at a time */
    begin();
    request(1, 17, 90);
    request(2, 17, 90);
    lone_immediate(&decoder, 0x00100000, 4);
    lone_steps_done(&decoder, 1);
    lone_immediate(&decoder, 0x00100001, 4);
    lone_steps_done(&decoder, 1);
    assert_int_equal(stats().pages_held, 6);
    lone_forget(&decoder);
    while (decoder.launched && stats().pages_held == 6)
        lone_steps_done(&decoder, decoder.repeat_max);
    assert_int_equal(stats().pages_held, 7);
    assert_int_equal(stats().decode_sequences, 2);
}

/* ---- Prefix cache --------------------------------------------------------------------------------------------------
 */

static const uint64_t blocks[] = {11, 22, 33};

static void test_a_prefix_found_here_is_not_asked_for(void **state)
{
    (void)state;
    cluster.config[DECODER].scheduler.prefix_cache = 1;
    begin();
    request_with_blocks(1, 96, 1, blocks, 3);
    lone_immediate(&decoder, 0x00100000, 24);
    lone_run_dry(&decoder);
    struct node_stats s = stats();
    assert_int_equal(s.pages_cached, 6);
    assert_int_equal(s.pages_free, s.pages_total);
    lone_forget(&decoder);
    /* The third block ends with the token that is never fetched: two can be used, and the last two pages are asked
     * for. */
    request_with_blocks(2, 96, 1, blocks, 3);
    assert_calls(&decoder, "expect 0x00200000 8\n"
                           "send n1 prefill r2 e2 tokens 95 first 64 pages 6-7 0x00200000 tail 0 group 0\n");
    /* A prompt of which all but the last token is cached fetches nothing. */
    request_with_blocks(3, 65, 1, blocks, 2);
    assert_calls(&decoder, "launch 2 x1 g0 decode 1/64 leave r1 join r3 @64\n");
}

/* A preempted sequence is computed again from what is cached here; not where layers have windows, for of a block that
 * was handed over these keep the end alone, and of one that comes before, nothing. */
static void test_what_is_cached_need_not_be_computed_again(void **state)
{
    (void)state;
    for (uint32_t window = 0; window <= 7; window += 7) {
        cluster.config[DECODER].scheduler.prefix_cache = 1;
        cluster.config[DECODER].scheduler.recompute = RECOMPUTE_DECODER;
        cluster.config[DECODER].pages_per_group = 6;
        for (uint32_t i = 0; window > 0 && i < MIXED; i++) {
            cluster.config[i].geometry.window = window;
            cluster.config[i].geometry.full_layers = 1;
        }
        begin();
        request_with_blocks(1, 33, 24, blocks, 1); /* leaves its block here when it ends */
        request_with_blocks(2, 33, 40, blocks, 1);
        lone_immediate(&decoder, 0x00100000, window > 0 ? 6 : 8);
        lone_immediate(&decoder, 0x00100001, window > 0 ? 6 : 8);
        lone_run_dry(&decoder);
        assert_non_null(strstr(decoder.text, window > 0 ? "prefill 1/48+0 leave r1 chunk r2 0+48\n"
                                                        : "prefill 1/16+32 leave r1 chunk r2 32+16\n"));
        assert_lone_empty(&decoder);
        tear_down(NULL);
    }
    begin();
}

static void test_all_local_still_fetches_a_tail(void **state)
{
    (void)state;
    cluster.config[DECODER].scheduler.prefix_cache = 1;
    cluster.config[DECODER].tail_writes = 2;
    begin();
    request_with_blocks(1, 65, 1, blocks, 2);
    lone_immediate(&decoder, 0x00100000, 18);
    lone_run_dry(&decoder);
    lone_forget(&decoder);
    request_with_blocks(2, 65, 1, blocks, 2);
    assert_calls(&decoder, "expect 0x00200000 2\n"
                           "send n1 prefill r2 e2 tokens 64 first 64 pages none 0x00200000 tail 0 group 0\n");
}

static void test_a_partly_filled_block_is_never_shared(void **state)
{
    (void)state;
    /* The prompt of 40 tokens has one whole block and 8 tokens of a second. Resumed after 30 tokens of output, 69
     * tokens are wanted, but the second block's name says nothing of the tokens that came after the prompt. */
    cluster.config[DECODER].scheduler.prefix_cache = 1;
    begin();
    struct message message = lone_request_of(1, 40, 60);
    message.block_tokens = 32;
    message.block_count = 2;
    message.produced = 30;
    message.flags = FLAG_RESUMED;
    lone_message(&decoder, FRONT, &message, blocks, NULL);
    lone_immediate(&decoder, 0x00100000, 20);
    lone_run_dry(&decoder);
    assert_int_equal(stats().pages_cached, 2);
    lone_forget(&decoder);
    message.request = 2;
    lone_message(&decoder, FRONT, &message, blocks, NULL);
    assert_calls(&decoder, "expect 0x00200000 12\n"
                           "send n1 prefill r2 e2 tokens 69 first 32 pages 2-4 0x00200000 tail 0 group 0\n");
}

/* ---- Groups --------------------------------------------------------------------------------------------------------
 */

static void test_groups_step_together(void **state)
{
    (void)state;
    cluster.config[DECODER].group_count = 2;
    cluster.config[DECODER].geometry.parallelism.data = 2;
    begin();
    request(1, 17, 20); /* the roomiest group, the lower on a tie */
    request(2, 33, 5);
    assert_calls(&decoder, "expect 0x00100000 4\n"
                           "send n1 prefill r1 e1 tokens 16 first 0 pages 0 0x00100000 tail 0 group 0\n"
                           "timer 0 at 1000000\n"
                           "expect 0x00100001 8\n"
                           "send n1 prefill r2 e2 tokens 32 first 0 pages 0-1 0x00100001 tail 1 group 1\n");
    lone_immediate(&decoder, 0x00100000, 4);
    lone_immediate(&decoder, 0x00100001, 8);
    lone_run_dry(&decoder);
    assert_calls(&decoder, "launch 1 x1 g0 decode 1/16 join r1 @16\n"
                           "send n0 first_token r1 produced 1\n"
                           "launch 2 x1 g0 decode 1/17 g1 decode 1/32 join r2 @32\n"
                           "send n0 first_token r2 produced 1\n"
                           "launch 3 x4 g0 decode 1/18 g1 decode 1/33\n"
                           "send n0 finished r2 produced 5\n"
                           "launch 4 x10 g0 decode 1/22 leave r2\n"
                           "launch 5 x4 g0 decode 1/32 pages r1 2+1\n"
                           "send n0 finished r1 produced 20\n");
    assert_lone_empty(&decoder);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_34_short_of_pages_waits_and_drops_nothing),
        CASE(test_pages_grow_by_the_headroom),
        CASE(test_reserving_the_output_never_grows),
        CASE(test_what_is_not_enough_for_a_step_is_not_taken),
        CASE(test_the_youngest_is_preempted_and_the_oldest_goes_on),
        CASE(test_a_sequence_that_has_finished_is_not_preempted),
        CASE(test_a_client_keeps_its_first_token_through_a_preemption),
        CASE(test_growth_takes_what_there_is_before_it_preempts),
        CASE(test_a_prefix_found_here_is_not_asked_for),
        CASE(test_what_is_cached_need_not_be_computed_again),
        CASE(test_all_local_still_fetches_a_tail),
        CASE(test_a_partly_filled_block_is_never_shared),
        CASE(test_groups_step_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
