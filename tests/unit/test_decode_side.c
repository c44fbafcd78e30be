/* The decoder's half of the messenger: one event in, the calls out. Numbers in the names are those of the invariants in
 * tests/INVARIANTS.md. */
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

static struct node_stats stats(void)
{
    return node_stats(decoder.node);
}

/* ---- The straight way ---------------------------------------------------------------------------------------------
 */

static void test_18_arming_comes_before_dispatch(void **state)
{
    (void)state;
    begin();
    decoder.traces = true;
    decoder.runtime.now_ns = 500;
    request(7, 100, 3);
    assert_calls(&decoder, "trace received r7 0 0\n"
                           "expect 0x00100000 28\n"
                           "trace armed r7 1048576 28\n"
                           "send n1 prefill r7 e1 tokens 99 first 0 pages 0-6 0x00100000 tail 0 group 0\n"
                           "trace dispatched r7 1 28\n"
                           "timer 0 at 1000500\n"); /* 27: the deadline runs from the dispatch */
    assert_int_equal(stats().transfers, 1);
    assert_int_equal(stats().pages_held, 7);
}

static void test_a_request_is_served_in_full(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    lone_about(&decoder, PREFILLER, MESSAGE_ACCEPTED, 7, 1, 0);
    assert_calls(&decoder, "");
    lone_immediate(&decoder, 0x00100000, 28);
    /* One step, because somebody waits for its token; then as many as are left. */
    assert_calls(&decoder, "launch 1 x1 g0 decode 1/99 join r7 @99\n");
    assert_int_equal(stats().transfers, 0);
    lone_steps_done(&decoder, 1);
    assert_calls(&decoder, "send n0 first_token r7 produced 1\n"
                           "launch 2 x2 g0 decode 1/100\n");
    lone_steps_done(&decoder, 2);
    assert_calls(&decoder, "send n0 finished r7 produced 3\n");
    assert_lone_empty(&decoder);
    lone_timer(&decoder, 0); /* it was set for a transfer that has long ended */
    assert_calls(&decoder, "");
}

static void test_where_bytes_land_is_known_while_they_are_awaited(void **state)
{
    (void)state;
    struct node_landing landing;
    begin();
    assert_false(node_landing(decoder.node, 0x00100000, &landing));
    request(7, 100, 3);
    assert_true(node_landing(decoder.node, 0x00100000, &landing));
    assert_int_equal(landing.group, 0);
    assert_int_equal(landing.page_count, 7); /* those of the 99 tokens that are asked for */
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(landing.pages[i], i);
    assert_int_equal(landing.tail_slot, 0);
    assert_false(node_landing(decoder.node, 0x00200000, &landing)); /* of another generation */
    lone_immediate(&decoder, 0x00100000, 28);
    assert_false(node_landing(decoder.node, 0x00100000, &landing));
}

static void test_the_count_may_come_before_the_acceptance(void **state)
{
    (void)state;
    begin();
    request(7, 100, 1);
    lone_forget(&decoder);
    lone_immediate(&decoder, 0x00100000, 28);
    assert_calls(&decoder, "launch 1 x1 g0 decode 1/99 join r7 @99\n");
    lone_about(&decoder, PREFILLER, MESSAGE_ACCEPTED, 7, 1, 0);
    assert_calls(&decoder, "");
    lone_steps_done(&decoder, 1);
    assert_calls(&decoder, "send n0 first_token r7 produced 1\n"
                           "send n0 finished r7 produced 1\n");
    assert_lone_empty(&decoder);
}

static void test_16_nothing_to_fetch_completes_at_once(void **state)
{
    (void)state;
    begin();
    request(7, 1, 2); /* the last prompt token is this side's own first step */
    assert_calls(&decoder, "launch 1 x1 g0 decode 1/0 join r7 @0\n");
    lone_run_dry(&decoder);
    assert_calls(&decoder, "send n0 first_token r7 produced 1\n"
                           "launch 2 x1 g0 decode 1/1\n"
                           "send n0 finished r7 produced 2\n");
    assert_lone_empty(&decoder);
}

static void test_24_prompts_around_a_page_boundary(void **state)
{
    (void)state;
    begin();
    request(1, 16, 1); /* 15 tokens wanted: a partial page */
    assert_calls(&decoder, "expect 0x00100000 4\n"
                           "send n1 prefill r1 e1 tokens 15 first 0 pages 0 0x00100000 tail 0 group 0\n"
                           "timer 0 at 1000000\n");
    request(2, 17, 1); /* exactly a page, and the page of the prompt's last token is not asked for */
    assert_calls(&decoder, "expect 0x00100001 4\n"
                           "send n1 prefill r2 e2 tokens 16 first 0 pages 1 0x00100001 tail 1 group 0\n");
    request(3, 18, 1);
    assert_calls(&decoder, "expect 0x00100002 8\n"
                           "send n1 prefill r3 e3 tokens 17 first 0 pages 3-4 0x00100002 tail 2 group 0\n");
    assert_int_equal(stats().pages_held, 1 + 2 + 2);
}

static void test_unequal_pages_are_counted_in_the_smaller(void **state)
{
    (void)state;
    cluster.config[PREFILLER].geometry = small_geometry(1, 2, 8);
    begin();
    request(7, 28, 1); /* 27 tokens: two pages of 16 here, four units of 8. A unit that is part of a page has its two
                          heads apart: 4 units of 2 layers, 2 planes and 2 heads */
    assert_calls(&decoder, "expect 0x00100000 32\n"
                           "send n1 prefill r7 e1 tokens 27 first 0 pages 0-1 0x00100000 tail 0 group 0\n"
                           "timer 0 at 1000000\n");
}

static void test_a_tail_holds_its_slot_until_it_is_read(void **state)
{
    (void)state;
    cluster.config[DECODER].tail_writes = 1;
    cluster.config[DECODER].tail_bytes = 4096;
    cluster.config[DECODER].messenger.handoffs_max = 1;
    begin();
    request(7, 17, 1);
    request(8, 17, 1);
    assert_calls(&decoder, "expect 0x00100000 5\n"
                           "send n1 prefill r7 e1 tokens 16 first 0 pages 0 0x00100000 tail 0 group 0\n"
                           "timer 0 at 1000000\n"); /* 35: hand-offs are bounded, the second waits */
    lone_immediate(&decoder, 0x00100000, 5);
    assert_calls(&decoder, "launch 1 x1 g0 decode 1/16 join r7 @16\n");
    lone_steps_done(&decoder, 1); /* 31: the slot comes back with a new generation */
    assert_calls(&decoder, "send n0 first_token r7 produced 1\n"
                           "send n0 finished r7 produced 1\n"
                           "expect 0x00200000 5\n"
                           "send n1 prefill r8 e2 tokens 16 first 0 pages 0 0x00200000 tail 0 group 0\n");
}

static void test_35_without_a_tail_the_slot_is_free_at_the_count(void **state)
{
    (void)state;
    cluster.config[DECODER].messenger.handoffs_max = 1;
    begin();
    request(7, 17, 9);
    request(8, 17, 9);
    lone_forget(&decoder);
    lone_immediate(&decoder, 0x00100000, 4);
    assert_calls(&decoder, "expect 0x00200000 4\n"
                           "send n1 prefill r8 e2 tokens 16 first 0 pages 2 0x00200000 tail 0 group 0\n"
                           "launch 1 x1 g0 decode 1/16 join r7 @16\n");
}

/* ---- Turned away ------------------------------------------------------------------------------------------------- */

static void test_32_larger_than_the_pool_is_rejected(void **state)
{
    (void)state;
    cluster.config[DECODER].pages_per_group = 4;
    begin();
    request(7, 60, 6); /* 65 tokens are cached at its end */
    assert_calls(&decoder, "send n0 rejected r7 reason 2\n");
    request(8, 60, 5);
    assert_calls(&decoder, "expect 0x00100000 16\n"
                           "send n1 prefill r8 e1 tokens 59 first 0 pages 0-3 0x00100000 tail 0 group 0\n"
                           "timer 0 at 1000000\n");
    request(9, 0, 5);
    request(10, 5, 0);
    request(11, 1024, 1);
    request(12, UINT32_MAX, 2);
    request(13, 2, UINT32_MAX);
    assert_calls(&decoder, "send n0 rejected r9 reason 2\n"
                           "send n0 rejected r10 reason 2\n"
                           "send n0 rejected r11 reason 2\n"
                           "send n0 rejected r12 reason 2\n"
                           "send n0 rejected r13 reason 2\n");
    assert_int_equal(stats().requests_live, 1);
}

static void test_32_larger_than_the_prefillers_pool_is_rejected(void **state)
{
    (void)state;
    cluster.config[PREFILLER].pages_per_group = 4;
    begin();
    request(7, 80, 2);
    assert_calls(&decoder, "send n0 rejected r7 reason 1\n");
    assert_lone_empty(&decoder);
}

static void test_30_a_duplicate_id_is_an_error_reply(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    request(7, 100, 3);
    assert_calls(&decoder, "send n0 rejected r7 reason 7\n");
    assert_int_equal(stats().requests_live, 1);
    assert_int_equal(stats().pages_held, 7);
}

/* It may have ended meanwhile: then nobody waits for its answer, and serving it again would leave a ghost. */
static void test_30_a_request_that_comes_again_is_dropped(void **state)
{
    (void)state;
    begin();
    struct message message = lone_request_of(7, 100, 3);
    message.number = 1;
    lone_message(&decoder, FRONT, &message, NULL, NULL);
    lone_message(&decoder, FRONT, &message, NULL, NULL); /* while it is served */
    assert_int_equal(stats().messages_late, 1);
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_lone_empty(&decoder);
    lone_forget(&decoder);
    lone_message(&decoder, FRONT, &message, NULL, NULL); /* after its FAILED */
    assert_calls(&decoder, "");
    assert_lone_empty(&decoder);
    assert_int_equal(stats().messages_late, 2);
    message.attempt = 1;
    message.number = 2;
    message.peer = PREFILLER_TOO;
    lone_message(&decoder, FRONT, &message, NULL, NULL); /* the front's own second attempt */
    assert_int_equal(stats().requests_live, 1);
}

static void test_21_geometry_that_cannot_be_mapped_is_refused(void **state)
{
    (void)state;
    cluster.config[PREFILLER].geometry = small_geometry(1, 2, 12);
    begin();
    request(7, 100, 3);
    assert_calls(&decoder, "send n0 rejected r7 reason 5\n");
    struct message message = lone_request_of(8, 100, 3);
    message.peer = 99;
    lone_message(&decoder, FRONT, &message, NULL, NULL);
    assert_calls(&decoder, "send n0 rejected r8 reason 6\n");
    assert_lone_empty(&decoder);
}

static void test_14_a_count_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    /* One token a page, heads before tokens against a page of 64 Ki tokens: a write for every token, head, layer,
     * plane. */
    for (uint32_t i = PREFILLER; i <= PREFILLER_TOO; i++) {
        struct kv_geometry *geometry = &cluster.config[i].geometry;
        *geometry = small_geometry(1, 256, i == DECODER ? 32768 : 1);
        geometry->head_bytes = 2;
        geometry->layers = 256;
        geometry->stage_layer_first[1] = 256;
        cluster.config[i].request_tokens_max = 1 << 17;
        cluster.config[i].pages_per_group = 1 << 17;
        cluster.config[i].requests_max = 2;
    }
    begin();
    request(7, 32767, 1);
    assert_calls(&decoder, "send n0 rejected r7 reason 8\n");
    request(8, 32766, 1); /* at 131072 writes a token, the most that may ever be asked for is below 2^32 */
    assert_calls(&decoder, "expect 0x00100000 4294574080\n"
                           "send n1 prefill r8 e1 tokens 32765 first 0 pages 0 0x00100000 tail 0 group 0\n"
                           "timer 0 at 1000000\n");
}

static void test_15_generations_wrap(void **state)
{
    (void)state;
    cluster.config[DECODER].messenger.deadline_ns = TIME_NEVER;
    begin();
    for (uint32_t generation = 1; generation <= 4096; generation++) {
        request(generation, 17, 1);
        lone_immediate(&decoder, (generation & 4095) << 20, 4);
        lone_run_dry(&decoder);
        lone_forget(&decoder);
        assert_lone_empty(&decoder); /* 4096 generations through, 0xFFF and 0 included */
    }
}

static void test_a_full_table_is_a_rejection(void **state)
{
    (void)state;
    cluster.config[DECODER].requests_max = 1;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    request(8, 100, 3);
    assert_calls(&decoder, "send n0 rejected r8 reason 3\n");
}

/* ---- Cancels -------------------------------------------------------------------------------------------------------
 */

static void test_2_pages_come_back_only_after_confirmation(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 7, 0, 0);
    assert_calls(&decoder, "send n1 cancel r7 e1\n");
    assert_int_equal(stats().pages_held, 7);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 7, 0, 0);
    lone_immediate(&decoder, 0x00100000, 28); /* 8: the cancel decides alone */
    lone_about(&decoder, PREFILLER, MESSAGE_ACCEPTED, 7, 1, 0);
    lone_about(&decoder, PREFILLER, MESSAGE_NACK, 7, 1, NACK_FULL);
    lone_about(&decoder, PREFILLER_TOO, MESSAGE_QUIESCED, 7, 1, 0); /* not the one that was asked */
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 7, 2, 0);     /* not the epoch */
    assert_calls(&decoder, "");
    assert_int_equal(stats().pages_held, 7);
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 7, 1, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 aborted r7\n");
    assert_lone_empty(&decoder);
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 7, 1, 0); /* 5: once is enough */
    assert_calls(&decoder, "");
    assert_lone_empty(&decoder);
}

static void test_27_a_deadline_is_no_fence(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    decoder.runtime.now_ns = 400 * NS_PER_US;
    request(8, 100, 3);
    lone_forget(&decoder);
    decoder.runtime.now_ns = 999999;
    lone_timer(&decoder, 0); /* early */
    assert_calls(&decoder, "timer 0 at 1000000\n");
    decoder.runtime.now_ns = 1000000;
    lone_timer(&decoder, 0);
    assert_calls(&decoder, "send n1 cancel r7 e1\n"
                           "timer 0 at 1400000\n");
    /* 3: however long it takes, the pages stay. */
    decoder.runtime.now_ns = 3600 * NS_PER_S;
    lone_timer(&decoder, 0);
    assert_calls(&decoder, "send n1 cancel r8 e2\n");
    assert_int_equal(stats().pages_held, 14);
    assert_int_equal(stats().transfers, 2);
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 8, 2, 0);
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 7, 1, 0);
    assert_calls(&decoder, "expect 0x00100001 0\n"
                           "send n0 failed r8 reason 2 produced 0\n"
                           "expect 0x00100000 0\n"
                           "send n0 failed r7 reason 2 produced 0\n");
    assert_lone_empty(&decoder);
}

static void test_an_abort_overrules_the_deadlines_reason(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    decoder.runtime.now_ns = 1000000;
    lone_timer(&decoder, 0);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 7, 0, 0);
    lone_forget(&decoder);
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 7, 1, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 aborted r7\n");
}

static void test_28_a_refusal_ends_it_and_reaches_the_front(void **state)
{
    (void)state;
    static const struct {
        enum nack_reason reason;
        const char *answer;
    } cases[] = {
        {NACK_FULL, "send n0 failed r7 reason 5 produced 0\n"},
        {NACK_WRITE, "send n0 failed r7 reason 3 produced 0\n"},
        {NACK_GEOMETRY, "send n0 rejected r7 reason 5\n"},
        {NACK_TOO_LARGE, "send n0 rejected r7 reason 1\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        request(7, 100, 3);
        lone_about(&decoder, PREFILLER, MESSAGE_ACCEPTED, 7, 1, 0);
        lone_forget(&decoder);
        lone_about(&decoder, PREFILLER, MESSAGE_NACK, 7, 1, cases[i].reason);
        char lines[128] = "expect 0x00100000 0\n";
        strcat(lines, cases[i].answer);
        assert_calls(&decoder, lines);
        assert_lone_empty(&decoder);
        lone_about(&decoder, PREFILLER, MESSAGE_NACK, 7, 1, cases[i].reason);
        assert_calls(&decoder, "");
        lone_free(&decoder);
    }
    begin();
}

static void test_an_abort_in_every_other_state(void **state)
{
    (void)state;
    cluster.config[DECODER].messenger.handoffs_max = 1;
    cluster.config[DECODER].scheduler.batch_max = 1;
    begin();
    request(1, 17, 100);
    request(2, 17, 100);
    lone_immediate(&decoder, 0x00100000, 4); /* 1 decodes */
    lone_immediate(&decoder, 0x00200000, 4); /* 2 is complete, without a place */
    request(3, 17, 100);                     /* 3 is being filled */
    request(4, 17, 100);                     /* 4 waits for a hand-off slot */
    lone_forget(&decoder);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 4, 0, 0);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 2, 0, 0);
    assert_calls(&decoder, "send n0 aborted r4\n"
                           "send n0 aborted r2\n");
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 1, 0, 0);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 1, 0, 0);
    assert_calls(&decoder, ""); /* it is in a launch */
    assert_int_equal(stats().decode_sequences, 1);
    lone_steps_done(&decoder, 1);
    assert_calls(&decoder, "send n0 aborted r1\n");
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 1, 0, 0);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 99, 0, 0);
    assert_calls(&decoder, "");
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 3, 0, 0);
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 3, 3, 0);
    assert_lone_empty(&decoder);
}

static void test_an_abort_in_the_step_that_finishes(void **state)
{
    (void)state;
    begin();
    request(1, 17, 1);
    lone_immediate(&decoder, 0x00100000, 4);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 1, 0, 0);
    lone_forget(&decoder);
    lone_steps_done(&decoder, 1);
    assert_calls(&decoder, "send n0 aborted r1\n");
    assert_lone_empty(&decoder);
}

/* ---- Peers that are lost
 * --------------------------------------------------------------------------------------------- */

static void test_a_lost_prefiller_is_fenced_before_pages_come_back(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_about(&decoder, PREFILLER, MESSAGE_ACCEPTED, 7, 1, 0);
    request(8, 17, 30);
    lone_immediate(&decoder, 0x00100001, 4); /* 8 has all it needs, and goes on */
    lone_forget(&decoder);
    decoder.traces = true;
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 0);
    assert_calls(&decoder, "trace peer_lost 1 0\n"
                           "trace quarantined r7 1 1\n");
    decoder.traces = false;
    assert_int_equal(stats().quarantined, 1);
    assert_int_equal(stats().pages_held, 7 + 2);
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 0);
    lone_immediate(&decoder, 0x00100000, 28);
    lone_about(&decoder, PREFILLER, MESSAGE_QUIESCED, 7, 1, 0);
    decoder.runtime.now_ns = 3600 * NS_PER_S; /* 3: a timer frees nothing */
    lone_timer(&decoder, 0);
    assert_calls(&decoder, "");
    assert_int_equal(stats().pages_held, 7 + 2);
    request(9, 100, 3); /* nobody to ask */
    assert_calls(&decoder, "send n0 failed r9 reason 1 produced 0\n");
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 failed r7 reason 1 produced 0\n");
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_calls(&decoder, "");
    lone_run_dry(&decoder);
    assert_lone_empty(&decoder);
}

static void test_cancelling_becomes_quarantine_when_the_peer_is_lost(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 7, 0, 0);
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 0);
    assert_int_equal(stats().quarantined, 1);
    lone_forget(&decoder);
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 aborted r7\n");
    assert_lone_empty(&decoder);
}

static void test_an_abort_in_quarantine_waits_for_the_fence(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 0);
    lone_forget(&decoder);
    lone_about(&decoder, FRONT, MESSAGE_ABORT, 7, 0, 0);
    assert_calls(&decoder, "");
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 aborted r7\n");
}

static void test_a_fence_without_suspicion_does_both(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 failed r7 reason 1 produced 0\n");
    assert_lone_empty(&decoder);
}

static void test_11_waiting_requests_learn_that_their_prefiller_is_gone(void **state)
{
    (void)state;
    cluster.config[DECODER].pages_per_group = 7;
    begin();
    request(7, 100, 3);
    request(8, 100, 3); /* the pool is full */
    lone_forget(&decoder);
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 0);
    assert_calls(&decoder, "send n0 failed r8 reason 1 produced 0\n");
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 failed r7 reason 1 produced 0\n");
    assert_lone_empty(&decoder);
}

static void test_30_a_replacement_joins_before_its_predecessor_is_fenced(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    lone_hello(&decoder, PREFILLER, 1);
    assert_int_equal(stats().quarantined, 1); /* what the first one was doing it may still be doing */
    request(8, 17, 3);
    assert_calls(&decoder, "expect 0x00100001 4\n"
                           "send n1 prefill r8 e2 tokens 16 first 0 pages 7 0x00100001 tail 1 group 0\n");
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 0);
    assert_calls(&decoder, "");
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    assert_calls(&decoder, "expect 0x00100000 0\n"
                           "send n0 failed r7 reason 1 produced 0\n");
    lone_hello(&decoder, PREFILLER, 1); /* again: nothing new */
    lone_immediate(&decoder, 0x00100001, 4);
    lone_forget(&decoder);
    request(9, 17, 3); /* the replacement is not lost */
    assert_calls(&decoder, "expect 0x00200001 4\n"
                           "send n1 prefill r9 e3 tokens 16 first 0 pages 0 0x00200001 tail 1 group 0\n");
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 1);
    assert_calls(&decoder, "expect 0x00200001 0\n"
                           "send n0 failed r9 reason 1 produced 0\n");
    lone_run_dry(&decoder);
    assert_lone_empty(&decoder);
}

/* A replacement that is lost in its turn before its HELLO is here joins nothing: nobody would say again that it is
 * gone, and what is asked of it would never end. */
static void test_30_the_hello_of_one_that_is_lost_already_joins_nothing(void **state)
{
    (void)state;
    begin();
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 0);
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 0);
    lone_peer_lost(&decoder, PREFILLER, PEER_SUSPECTED, 2);
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 2);
    lone_forget(&decoder);
    lone_hello(&decoder, PREFILLER, 2);
    request(7, 17, 3);
    assert_calls(&decoder, "send n0 failed r7 reason 1 produced 0\n");
    lone_hello(&decoder, PREFILLER, 4);
    request(8, 17, 3);
    assert_calls(&decoder, "expect 0x00100000 4\n"
                           "send n1 prefill r8 e1 tokens 16 first 0 pages 0 0x00100000 tail 0 group 0\n"
                           "timer 0 at 1000000\n");
    lone_peer_lost(&decoder, PREFILLER, PEER_FENCED, 4);
    lone_forget(&decoder);
    lone_run_dry(&decoder);
    assert_lone_empty(&decoder);
}

/* ---- What makes no sense
 * --------------------------------------------------------------------------------------------- */

static void test_messages_that_make_no_sense_change_nothing(void **state)
{
    (void)state;
    begin();
    request(7, 100, 3);
    lone_forget(&decoder);
    struct message message = lone_request_of(8, 100, 3);
    lone_message(&decoder, PREFILLER, &message, NULL, NULL); /* prefillers send no requests */
    lone_about(&decoder, PREFILLER, MESSAGE_ABORT, 7, 0, 0);
    lone_about(&decoder, FRONT, MESSAGE_QUIESCED, 7, 1, 0);
    lone_hello(&decoder, FRONT, 1);
    for (uint16_t kind = MESSAGE_REQUEST; kind <= MESSAGE_HELLO; kind++)
        lone_about(&decoder, 77, kind, 7, 1, 0); /* a stranger */
    unsigned char garbage[WIRE_HEADER_BYTES];
    memset(garbage, 0xff, sizeof garbage);
    lone_event(&decoder,
               &(struct event){.kind = EVENT_MESSAGE, .id = PREFILLER, .count = sizeof garbage, .data = garbage});
    lone_event(&decoder, &(struct event){.kind = EVENT_MESSAGE, .id = PREFILLER, .count = 0, .data = NULL});
    lone_event(&decoder, &(struct event){.kind = EVENT_STOP});
    assert_calls(&decoder, "");
    assert_int_equal(stats().transfers, 1);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_18_arming_comes_before_dispatch),
        CASE(test_a_request_is_served_in_full),
        CASE(test_where_bytes_land_is_known_while_they_are_awaited),
        CASE(test_the_count_may_come_before_the_acceptance),
        CASE(test_16_nothing_to_fetch_completes_at_once),
        CASE(test_24_prompts_around_a_page_boundary),
        CASE(test_unequal_pages_are_counted_in_the_smaller),
        CASE(test_a_tail_holds_its_slot_until_it_is_read),
        CASE(test_35_without_a_tail_the_slot_is_free_at_the_count),
        CASE(test_32_larger_than_the_pool_is_rejected),
        CASE(test_32_larger_than_the_prefillers_pool_is_rejected),
        CASE(test_30_a_duplicate_id_is_an_error_reply),
        CASE(test_30_a_request_that_comes_again_is_dropped),
        CASE(test_21_geometry_that_cannot_be_mapped_is_refused),
        CASE(test_14_a_count_that_does_not_fit_is_refused),
        CASE(test_15_generations_wrap),
        CASE(test_a_full_table_is_a_rejection),
        CASE(test_2_pages_come_back_only_after_confirmation),
        CASE(test_27_a_deadline_is_no_fence),
        CASE(test_an_abort_overrules_the_deadlines_reason),
        CASE(test_28_a_refusal_ends_it_and_reaches_the_front),
        CASE(test_an_abort_in_every_other_state),
        CASE(test_an_abort_in_the_step_that_finishes),
        CASE(test_a_lost_prefiller_is_fenced_before_pages_come_back),
        CASE(test_cancelling_becomes_quarantine_when_the_peer_is_lost),
        CASE(test_an_abort_in_quarantine_waits_for_the_fence),
        CASE(test_a_fence_without_suspicion_does_both),
        CASE(test_11_waiting_requests_learn_that_their_prefiller_is_gone),
        CASE(test_30_a_replacement_joins_before_its_predecessor_is_fenced),
        CASE(test_30_the_hello_of_one_that_is_lost_already_joins_nothing),
        CASE(test_messages_that_make_no_sense_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
