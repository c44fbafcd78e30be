/* A mixed instance: prompts and decoding in the same steps. One event in, the calls out. */
#include "support/lone_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/arith.h"

static struct small_cluster cluster;
static struct lone_node mixed;

static int set_up(void **state)
{
    (void)state;
    small_cluster_make(&cluster);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lone_free(&mixed);
    mixed.memory = NULL;
    return 0;
}

static void begin(void)
{
    small_cluster_link(&cluster);
    lone_make(&mixed, &cluster.config[MIXED]);
}

static void request(uint32_t id, uint32_t prompt, uint32_t output)
{
    struct message message = lone_request_of(id, prompt, output);
    message.peer = MIXED;
    lone_message(&mixed, FRONT, &message, NULL, NULL);
}

/* Likewise, the prompt being made of blocks of 32 tokens. */
static void request_blocks(uint32_t id, uint32_t prompt, uint32_t output, const uint64_t *blocks, uint32_t count)
{
    struct message message = lone_request_of(id, prompt, output);
    message.peer = MIXED;
    message.block_tokens = 32;
    message.block_count = count;
    lone_message(&mixed, FRONT, &message, blocks, NULL);
}

static void abort_request(uint32_t id)
{
    lone_about(&mixed, FRONT, MESSAGE_ABORT, id, 0, 0);
}

static struct node_stats stats(void)
{
    return node_stats(mixed.node);
}

/* ---- The straight way ----------------------------------------------------------------------------------------------
 */

static void test_the_end_of_the_prompt_yields_the_first_token(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    assert_calls(&mixed, "launch 1 x1 g0 prefill 1/64+0 chunk r7 0+64\n");
    assert_int_equal(stats().queued_tokens, 100);
    assert_int_equal(stats().pages_held, 7); /* 102 tokens at its end: all it can use */
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "launch 2 x1 g0 prefill 1/36+64 chunk r7 64+36\n");
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 first_token r7 produced 1\n"
                         "launch 3 x2 g0 decode 1/100 join r7 @100\n");
    assert_int_equal(stats().queued_tokens, 0);
    lone_steps_done(&mixed, 2);
    assert_calls(&mixed, "send n0 finished r7 produced 3\n");
    assert_lone_empty(&mixed);
}

static void test_the_boundaries_of_a_request_are_traced(void **state)
{
    (void)state;
    begin();
    mixed.traces = true;
    request(7, 20, 1);
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "trace received r7 0 0\n"
                         "trace dispatched r7 4 0\n"
                         "trace prefill_started r7 0 0\n"
                         "trace batch 0 20\n"
                         "launch 1 x1 g0 prefill 1/20+0 chunk r7 0+20\n"
                         "trace chunk r7 0 20\n"
                         "trace prefill_finished r7 0 0\n"
                         "trace ready r7 0 0\n"
                         "trace decode_started r7 0 0\n"
                         "trace first_token r7 0 0\n"
                         "send n0 first_token r7 produced 1\n"
                         "trace finished r7 1 0\n"
                         "send n0 finished r7 produced 1\n");
    assert_lone_empty(&mixed);
}

static void test_an_output_of_one_token_never_decodes(void **state)
{
    (void)state;
    begin();
    request(7, 1, 1);
    assert_calls(&mixed, "launch 1 x1 g0 prefill 1/1+0 chunk r7 0+1\n");
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 first_token r7 produced 1\n"
                         "send n0 finished r7 produced 1\n");
    assert_lone_empty(&mixed);
}

static void test_chunks_beside_decode_share_the_budget(void **state)
{
    (void)state;
    cluster.config[MIXED].scheduler.token_budget = 32;
    begin();
    request(1, 20, 9);
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    request(2, 90, 2);          /* while the first decodes, in one launch of eight steps */
    lone_steps_done(&mixed, 1); /* which the message has ended */
    assert_calls(&mixed, "launch 3 x1 g0 decode 1/21 prefill 1/31+0 chunk r2 0+31\n");
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "launch 4 x1 g0 decode 1/22 prefill 1/31+31 chunk r2 31+31\n");
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "launch 5 x1 g0 decode 1/23 prefill 1/28+62 chunk r2 62+28\n");
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 first_token r2 produced 1\n"
                         "launch 6 x1 g0 decode 2/114 join r2 @90\n");
    lone_run_dry(&mixed);
    assert_calls(&mixed, "send n0 finished r2 produced 2\n"
                         "launch 7 x3 g0 decode 1/25 leave r2\n"
                         "send n0 finished r1 produced 9\n");
    assert_lone_empty(&mixed);
}

static void test_chunk_tokens_bound_a_prompt_and_the_budget_all(void **state)
{
    (void)state;
    cluster.config[MIXED].scheduler.token_budget = 32;
    cluster.config[MIXED].scheduler.chunk_tokens = 12;
    begin();
    request(1, 4, 1);
    request(2, 30, 1);
    request(3, 12, 1);
    request(4, 30, 1);
    lone_forget(&mixed);
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 first_token r1 produced 1\n"
                         "send n0 finished r1 produced 1\n"
                         "launch 2 x1 g0 prefill 3/32+0 leave r1 chunk r2 0+12 chunk r3 0+12 chunk r4 0+8\n");
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 first_token r3 produced 1\n"
                         "send n0 finished r3 produced 1\n"
                         "launch 3 x1 g0 prefill 2/24+20 leave r3 chunk r2 12+12 chunk r4 8+12\n");
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

static void test_a_budget_full_of_decoding_leaves_prompts_waiting(void **state)
{
    (void)state;
    cluster.config[MIXED].scheduler.token_budget = 2;
    begin();
    request(1, 2, 4);
    lone_steps_done(&mixed, 1);
    request(2, 2, 9);
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    lone_steps_done(&mixed, 1); /* one decodes, one token of the other's prompt */
    assert_calls(&mixed, "launch 4 x1 g0 decode 1/4 prefill 1/1+1 chunk r2 1+1\n");
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    request(3, 2, 1);
    assert_int_equal(stats().waiting, 1);
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

/* ---- Room ----------------------------------------------------------------------------------------------------------
 */

static void test_preempted_and_computed_again(void **state)
{
    (void)state;
    cluster.config[MIXED].pages_per_group = 4;
    begin();
    request(1, 16, 40); /* two pages with headroom */
    request(2, 16, 40);
    lone_steps_done(&mixed, 1);
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    /* Both fill their second page, the older one step before the younger, which is the one to go. */
    uint32_t launches = 0;
    while (stats().waiting == 0) {
        assert_true(mixed.launched && launches++ < 40);
        lone_steps_done(&mixed, 1);
    }
    assert_int_equal(stats().decode_sequences, 1);
    assert_int_equal(stats().requests_live, 2);
    mixed.traces = false;
    lone_forget(&mixed);
    lone_run_dry(&mixed);
    /* The younger comes back when the older is done: it computes prompt and output again, and its client hears no
     * second first token. */
    assert_non_null(strstr(mixed.text, "send n0 finished r1 produced 40\n"));
    assert_non_null(strstr(mixed.text, "chunk r2 0+"));
    assert_non_null(strstr(mixed.text, "send n0 prefilled r2\n"));
    assert_null(strstr(mixed.text, "first_token"));
    assert_non_null(strstr(mixed.text, "send n0 finished r2 produced 40\n"));
    assert_lone_empty(&mixed);
}

static void test_a_prompt_waits_for_pages(void **state)
{
    (void)state;
    cluster.config[MIXED].pages_per_group = 4;
    begin();
    request(1, 33, 16); /* 48 tokens in all: three pages */
    request(2, 16, 2);  /* 17: two pages */
    assert_int_equal(stats().waiting, 1);
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

static void test_a_whole_output_reserved_is_never_preempted(void **state)
{
    (void)state;
    cluster.config[MIXED].pages_per_group = 4;
    cluster.config[MIXED].scheduler.reserve_output = 1;
    begin();
    mixed.traces = true;
    request(1, 16, 40); /* 55 tokens: four pages */
    request(2, 16, 40);
    lone_run_dry(&mixed);
    assert_null(strstr(mixed.text, "preempted"));
    assert_null(strstr(mixed.text, " pages r")); /* nor does it grow */
    assert_lone_empty(&mixed);
}

static void test_what_cannot_fit_is_rejected(void **state)
{
    (void)state;
    cluster.config[MIXED].pages_per_group = 4;
    cluster.config[MIXED].requests_max = 1;
    begin();
    request(1, 60, 6);
    request(2, 0, 5);
    request(3, 5, 0);
    request(4, UINT32_MAX, 2);
    request(5, 2, UINT32_MAX);
    assert_calls(&mixed, "send n0 rejected r1 reason 2\n"
                         "send n0 rejected r2 reason 2\n"
                         "send n0 rejected r3 reason 2\n"
                         "send n0 rejected r4 reason 2\n"
                         "send n0 rejected r5 reason 2\n");
    request(6, 60, 5);
    request(6, 60, 5);
    request(7, 1, 1);
    assert_calls(&mixed, "launch 1 x1 g0 prefill 1/60+0 chunk r6 0+60\n"
                         "send n0 rejected r6 reason 7\n"
                         "send n0 rejected r7 reason 3\n");
}

/* ---- Cached prefixes
 * ------------------------------------------------------------------------------------------------- */

static void test_a_cached_prefix_is_not_computed_again(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {11, 22, 33};
    cluster.config[MIXED].scheduler.prefix_cache = 1;
    cluster.config[MIXED].scheduler.token_budget = 128;
    begin();
    request_blocks(1, 70, 1, blocks, 3); /* the third block is partly filled, and nobody's */
    lone_run_dry(&mixed);
    assert_int_equal(stats().pages_cached, 4);
    lone_forget(&mixed);
    request_blocks(2, 70, 2, blocks, 3);
    assert_calls(&mixed, "launch 2 x1 g0 prefill 1/6+64 leave r1 chunk r2 64+6\n");
    lone_run_dry(&mixed);
    lone_forget(&mixed);
    request_blocks(3, 64, 1, blocks, 2); /* all of it is cached: but a token must be computed to make the first */
    assert_calls(&mixed, "launch 4 x1 g0 prefill 1/32+32 leave r2 chunk r3 32+32\n");
    lone_run_dry(&mixed);
    assert_int_equal(stats().pages_held, 0);
    assert_int_equal(stats().pages_free, stats().pages_total);
    assert_int_equal(stats().pages_cached, 4);
}

/* ---- Aborts
 * ---------------------------------------------------------------------------------------------------------- */

static void test_an_abort_in_the_queue(void **state)
{
    (void)state;
    begin();
    request(1, 64, 1); /* the whole budget */
    request(2, 64, 1);
    lone_forget(&mixed);
    abort_request(2);
    assert_calls(&mixed, "send n0 aborted r2\n");
    assert_int_equal(stats().requests_live, 1);
    assert_int_equal(stats().queued_tokens, 64);
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

static void test_an_abort_in_a_chunk(void **state)
{
    (void)state;
    begin();
    request(1, 100, 5);
    lone_forget(&mixed);
    abort_request(1);
    abort_request(1);
    assert_calls(&mixed, ""); /* the device is at it */
    assert_int_equal(stats().pages_held, 7);
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 aborted r1\n");
    assert_lone_empty(&mixed);
    abort_request(1);
    assert_calls(&mixed, "");
}

static void test_an_abort_in_the_last_chunk(void **state)
{
    (void)state;
    begin();
    request(1, 64, 1);
    lone_forget(&mixed);
    abort_request(1);
    lone_steps_done(&mixed, 1); /* its token is nobody's */
    assert_calls(&mixed, "send n0 aborted r1\n");
    assert_lone_empty(&mixed);
}

static void test_an_abort_between_chunks(void **state)
{
    (void)state;
    cluster.config[MIXED].scheduler.token_budget = 16;
    begin();
    request(1, 20, 9);
    request(2, 30, 9);
    lone_steps_done(&mixed, 1); /* r1: 4 more, r2: 12 of it */
    lone_steps_done(&mixed, 1); /* r1 decodes, r2: 15 more */
    lone_steps_done(&mixed, 1); /* r2: its last 3 */
    request(3, 100, 2);
    lone_forget(&mixed);
    abort_request(2);
    abort_request(3); /* waits for the next step */
    assert_calls(&mixed, "send n0 aborted r3\n");
    lone_run_dry(&mixed);
    assert_null(strstr(mixed.text, "finished r2"));
    assert_non_null(strstr(mixed.text, "send n0 aborted r2\n"));
    assert_non_null(strstr(mixed.text, "send n0 finished r1 produced 9\n"));
    assert_lone_empty(&mixed);
}

static void test_an_abort_in_the_line_for_the_batch(void **state)
{
    (void)state;
    cluster.config[MIXED].scheduler.batch_max = 1;
    begin();
    request(1, 16, 9);
    request(2, 16, 9);
    lone_steps_done(&mixed, 1);
    lone_steps_done(&mixed, 1); /* r1 decodes; r2 has no place in the batch and is not begun */
    lone_forget(&mixed);
    abort_request(2);
    assert_calls(&mixed, "send n0 aborted r2\n");
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

/* A prompt under way counts in the batch: the next one does not come in before its place is free. */
static void test_a_full_batch_admits_no_prompt(void **state)
{
    (void)state;
    cluster.config[MIXED].scheduler.batch_max = 1;
    begin();
    request(1, 16, 3);
    request(2, 16, 3);
    assert_calls(&mixed, "launch 1 x1 g0 prefill 1/16+0 chunk r1 0+16\n");
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 first_token r1 produced 1\n"
                         "launch 2 x2 g0 decode 1/16 join r1 @16\n");
    lone_steps_done(&mixed, 2);
    assert_calls(&mixed, "send n0 finished r1 produced 3\n"
                         "launch 3 x1 g0 prefill 1/16+0 leave r1 chunk r2 0+16\n");
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

/* While r1 decodes, prompts are looked for at steps 4, 8, ...; on an idle instance at once. */
static void test_prompts_are_looked_for_at_every_fourth_step(void **state)
{
    (void)state;
    cluster.config[MIXED].scheduler.receive_steps = 4;
    begin();
    request(1, 16, 9);
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    request(2, 16, 1);
    lone_steps_done(&mixed, 1); /* two steps are done */
    assert_calls(&mixed, "launch 3 x2 g0 decode 1/17\n");
    lone_steps_done(&mixed, 2);
    assert_calls(&mixed, "launch 4 x1 g0 decode 1/19 prefill 1/16+0 chunk r2 0+16\n");
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

/* Two groups: r2 waits for a prompt in the other one, or for three steps. */
static void test_prompts_of_groups_are_gathered(void **state)
{
    (void)state;
    cluster.config[MIXED].group_count = 2;
    cluster.config[MIXED].geometry.parallelism.data = 2;
    cluster.config[MIXED].scheduler.gather_steps = 3;
    begin();
    request(1, 16, 12);
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    request(2, 16, 1);
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "launch 3 x3 g0 decode 1/17\n");
    request(3, 16, 1);
    lone_steps_done(&mixed, 1);
    assert_non_null(strstr(mixed.text, "chunk r2"));
    assert_non_null(strstr(mixed.text, "chunk r3"));
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    request(4, 16, 1);
    lone_steps_done(&mixed, 1);
    assert_non_null(strstr(mixed.text, " x3 "));
    lone_steps_done(&mixed, 3);
    assert_non_null(strstr(mixed.text, "chunk r4"));
    lone_run_dry(&mixed);
    assert_lone_empty(&mixed);
}

static void test_an_abort_in_the_batch(void **state)
{
    (void)state;
    begin();
    request(1, 16, 9);
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    abort_request(1);
    assert_calls(&mixed, ""); /* after the step, when its tokens are known */
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 aborted r1\n");
    assert_lone_empty(&mixed);
}

static void test_an_abort_in_the_step_that_finishes(void **state)
{
    (void)state;
    begin();
    request(1, 16, 2);
    lone_steps_done(&mixed, 1);
    lone_forget(&mixed);
    abort_request(1);
    lone_steps_done(&mixed, 1);
    assert_calls(&mixed, "send n0 aborted r1\n"); /* one end, not two */
    assert_lone_empty(&mixed);
}

static void test_messages_that_make_no_sense_change_nothing(void **state)
{
    (void)state;
    begin();
    for (uint16_t kind = MESSAGE_REQUEST; kind <= MESSAGE_HELLO; kind++)
        if (kind != MESSAGE_REQUEST && kind != MESSAGE_ABORT)
            lone_about(&mixed, FRONT, kind, 7, 0, 0);
    struct message message = lone_request_of(7, 10, 1);
    lone_message(&mixed, DECODER, &message, NULL, NULL); /* only the front asks */
    abort_request(7);
    assert_calls(&mixed, "");
    assert_int_equal(stats().messages_malformed, MESSAGE_HELLO - 2 + 1);
    assert_lone_empty(&mixed);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_the_end_of_the_prompt_yields_the_first_token),
        CASE(test_the_boundaries_of_a_request_are_traced),
        CASE(test_an_output_of_one_token_never_decodes),
        CASE(test_chunks_beside_decode_share_the_budget),
        CASE(test_chunk_tokens_bound_a_prompt_and_the_budget_all),
        CASE(test_a_budget_full_of_decoding_leaves_prompts_waiting),
        CASE(test_preempted_and_computed_again),
        CASE(test_a_prompt_waits_for_pages),
        CASE(test_a_whole_output_reserved_is_never_preempted),
        CASE(test_a_full_batch_admits_no_prompt),
        CASE(test_prompts_are_looked_for_at_every_fourth_step),
        CASE(test_prompts_of_groups_are_gathered),
        CASE(test_what_cannot_fit_is_rejected),
        CASE(test_a_cached_prefix_is_not_computed_again),
        CASE(test_an_abort_in_the_queue),
        CASE(test_an_abort_in_a_chunk),
        CASE(test_an_abort_in_the_last_chunk),
        CASE(test_an_abort_between_chunks),
        CASE(test_an_abort_in_the_line_for_the_batch),
        CASE(test_an_abort_in_the_batch),
        CASE(test_an_abort_in_the_step_that_finishes),
        CASE(test_messages_that_make_no_sense_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
