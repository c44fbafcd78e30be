/* The prefiller's half of the messenger: one event in, the calls out. Numbers in the names are those of the invariants
 * in tests/INVARIANTS.md. */
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

static void cancel(uint32_t request, uint32_t epoch)
{
    lone_about(&prefiller, DECODER, MESSAGE_CANCEL, request, epoch, 0);
}

static struct node_stats stats(void)
{
    return node_stats(prefiller.node);
}

static const uint64_t blocks[] = {11, 22, 33};

/* ---- The straight way ---------------------------------------------------------------------------------------------
 */

static void test_17_pages_are_released_by_completions(void **state)
{
    (void)state;
    begin();
    prefill(7, 1, 99);
    assert_calls(&prefiller, "send n2 accepted r7 e1\n"
                             "launch 1 x1 g0 prefill 1/64+0 chunk r7 0+64\n"
                             "write t0 n2 r7 e1 0x00100001 units 0+4 gate 1 0-3>100-103\n");
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "launch 2 x1 g0 prefill 1/35+64 chunk r7 64+35\n"
                             "write t1 n2 r7 e1 0x00100001 units 4+3 gate 2 4-6>104-106\n");
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "send n0 prefilled r7\n");
    assert_int_equal(stats().pages_held, 7);
    assert_int_equal(stats().queued_tokens, 0);
    prefiller.runtime.now_ns = 3600 * NS_PER_S; /* 3: time frees nothing */
    lone_write_done(&prefiller, 1, WRITE_OK);   /* in any order */
    assert_int_equal(stats().pages_held, 7);
    lone_write_done(&prefiller, 0, WRITE_OK);
    assert_calls(&prefiller, "");
    assert_lone_empty(&prefiller);
}

static void test_a_completion_may_come_before_the_step_ends(void **state)
{
    (void)state;
    begin();
    prefill(7, 1, 64);
    lone_write_done(&prefiller, 0, WRITE_OK);
    assert_int_equal(stats().pages_held, 4);
    lone_forget(&prefiller);
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "send n0 prefilled r7\n");
    assert_lone_empty(&prefiller);
}

/* Runs a prompt through and adds up what was posted; asserts that units come in order and without gaps. */
static void assert_units(uint32_t tokens, uint32_t expected, uint32_t tails)
{
    uint32_t next = 0, tail_count = 0;
    prefill(1, 1, tokens);
    for (;;) {
        for (const char *line = prefiller.text; (line = strstr(line, "write t")) != NULL; line++) {
            uint32_t ticket, first, count;
            assert_int_equal(sscanf(line, "write t%u n2 r1 e1 0x00100001 units %u+%u", &ticket, &first, &count), 3);
            assert_int_equal(first, next);
            next += count;
            const char *tail = strstr(line, " tail ");
            if (tail != NULL && tail < strchr(line, '\n')) {
                tail_count++;
                assert_int_equal(count, 0); /* 22: alone, behind all units, and not before its step has ended */
                assert_int_equal(next, expected);
                assert_non_null(strstr(line, " no gate tail "));
                assert_false(prefiller.launched);
            }
        }
        lone_forget(&prefiller);
        lone_all_written(&prefiller);
        if (!prefiller.launched)
            break;
        lone_steps_done(&prefiller, 1);
    }
    assert_int_equal(next, expected);
    assert_int_equal(tail_count, tails);
    assert_lone_empty(&prefiller);
}

static void test_22_25_26_units_do_not_depend_on_the_chunks(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 99, 128};
    for (uint32_t chunk = 1; chunk <= 64; chunk += chunk < 18 ? 1 : 15) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            for (uint32_t tails = 0; tails <= 1; tails++) {
                cluster.config[PREFILLER].scheduler.chunk_tokens = chunk;
                cluster.config[PREFILLER].tail_writes = tails;
                begin();
                assert_units(lengths[i], ceil_div_u32(lengths[i], 16), tails);
                lone_free(&prefiller);
            }
        }
    }
    begin();
}

static void test_24_lengths_around_a_page_boundary(void **state)
{
    (void)state;
    cluster.config[PREFILLER].scheduler.chunk_tokens = 16;
    begin();
    prefill(1, 1, 17);
    assert_calls(&prefiller, "send n2 accepted r1 e1\n"
                             "launch 1 x1 g0 prefill 1/16+0 chunk r1 0+16\n"
                             "write t0 n2 r1 e1 0x00100001 units 0+1 gate 1 0>100\n");
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "launch 2 x1 g0 prefill 1/1+16 chunk r1 16+1\n"
                             "write t1 n2 r1 e1 0x00100001 units 1+1 gate 2 1>101\n");
    lone_steps_done(&prefiller, 1);
    lone_forget(&prefiller);
    prefill(2, 2, 16);
    assert_calls(&prefiller, "send n2 accepted r2 e2\n"
                             "launch 3 x1 g0 prefill 1/16+0 chunk r2 0+16\n"
                             "write t2 n2 r2 e2 0x00100002 units 0+1 gate 3 2>100\n");
}

static void test_larger_pages_at_the_decoder(void **state)
{
    (void)state;
    cluster.config[DECODER].geometry = small_geometry(1, 2, 32);
    cluster.config[PREFILLER].scheduler.chunk_tokens = 16;
    begin();
    prefill(7, 1, 50); /* units of 16, two to a page of the decoder */
    assert_calls(&prefiller, "send n2 accepted r7 e1\n"
                             "launch 1 x1 g0 prefill 1/16+0 chunk r7 0+16\n"
                             "write t0 n2 r7 e1 0x00100001 units 0+1 gate 1 0>100\n");
    lone_run_dry(&prefiller);
    assert_calls(&prefiller, "launch 2 x1 g0 prefill 1/16+16 chunk r7 16+16\n"
                             "write t1 n2 r7 e1 0x00100001 units 1+1 gate 2 1>100\n"
                             "launch 3 x1 g0 prefill 1/16+32 chunk r7 32+16\n"
                             "write t2 n2 r7 e1 0x00100001 units 2+1 gate 3 2>101\n"
                             "launch 4 x1 g0 prefill 1/2+48 chunk r7 48+2\n"
                             "write t3 n2 r7 e1 0x00100001 units 3+1 gate 4 3>101\n"
                             "send n0 prefilled r7\n");
}

static void test_smaller_pages_at_the_decoder(void **state)
{
    (void)state;
    cluster.config[DECODER].geometry = small_geometry(1, 2, 8);
    cluster.config[PREFILLER].scheduler.chunk_tokens = 20;
    begin();
    prefill(7, 1,
            50); /* units of 8, two to a page of the prefiller: half a page can be sent before the rest is there */
    lone_run_dry(&prefiller);
    assert_calls(&prefiller, "send n2 accepted r7 e1\n"
                             "launch 1 x1 g0 prefill 1/20+0 chunk r7 0+20\n"
                             "write t0 n2 r7 e1 0x00100001 units 0+2 gate 1 0>100-101\n"
                             "launch 2 x1 g0 prefill 1/20+20 chunk r7 20+20\n"
                             "write t1 n2 r7 e1 0x00100001 units 2+3 gate 2 1-2>102-104\n"
                             "launch 3 x1 g0 prefill 1/10+40 chunk r7 40+10\n"
                             "write t2 n2 r7 e1 0x00100001 units 5+2 gate 3 2-3>105-106\n"
                             "send n0 prefilled r7\n");
}

static void test_22_the_tail_goes_alone_when_the_step_has_ended(void **state)
{
    (void)state;
    cluster.config[PREFILLER].tail_writes = 2;
    cluster.config[PREFILLER].tail_bytes = 8192;
    begin();
    prefill(7, 1, 65);
    lone_run_dry(&prefiller);
    assert_calls(&prefiller, "send n2 accepted r7 e1\n"
                             "launch 1 x1 g0 prefill 1/64+0 chunk r7 0+64\n"
                             "write t0 n2 r7 e1 0x00100001 units 0+4 gate 1 0-3>100-103\n"
                             "launch 2 x1 g0 prefill 1/1+64 chunk r7 64+1\n"
                             "write t1 n2 r7 e1 0x00100001 units 4+1 gate 2 4>104\n"
                             "send n0 prefilled r7\n"
                             "write t2 n2 r7 e1 0x00100001 units 5+0 no gate tail 2@3\n");
    assert_int_equal(stats().pages_held, 5); /* 17: the tail is waited for like the rest */
    lone_all_written(&prefiller);
    assert_calls(&prefiller, "");
    assert_lone_empty(&prefiller);
}

static void test_a_tail_alone_where_the_decoder_has_all_the_rest(void **state)
{
    (void)state;
    cluster.config[PREFILLER].tail_writes = 2;
    begin();
    prefill_blocks(7, 1, 64, 64, blocks, 2); /* only a forward pass can make it */
    assert_calls(&prefiller, "send n2 accepted r7 e1\n"
                             "launch 1 x1 g0 prefill 1/64+0 chunk r7 0+64\n");
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "send n0 prefilled r7\n"
                             "write t0 n2 r7 e1 0x00100001 units 4+0 no gate tail 2@3\n");
}

static void test_a_cancel_before_the_tail(void **state)
{
    (void)state;
    cluster.config[PREFILLER].tail_writes = 2;
    begin();
    prefill(7, 1, 64);
    cancel(7, 1);
    lone_write_done(&prefiller, 0, WRITE_OK);
    lone_forget(&prefiller);
    lone_steps_done(&prefiller, 1); /* 4: it was said to be quiet */
    assert_calls(&prefiller, "");
    assert_lone_empty(&prefiller);
    prefill(8, 2, 64); /* and with the tail on its way */
    lone_write_done(&prefiller, 0, WRITE_OK);
    lone_steps_done(&prefiller, 1);
    lone_forget(&prefiller);
    cancel(8, 2);
    assert_calls(&prefiller, "stop t0\n");
    lone_write_done(&prefiller, 0, WRITE_STOPPED);
    assert_calls(&prefiller, "send n2 quiesced r8 e2\n");
    assert_lone_empty(&prefiller);
}

/* ---- Turned away ------------------------------------------------------------------------------------------------- */

static void test_21_29_what_cannot_be_served_is_refused(void **state)
{
    (void)state;
    cluster.config[PREFILLER].pages_per_group = 8;
    begin();
    struct message message = lone_prefill_of(&cluster, 7, 1, 99, 0);
    message.geometry_hash++;
    lone_prefill(&prefiller, &message, NULL);
    assert_calls(&prefiller, "send n2 nack r7 e1 reason 1\n");
    message = lone_prefill_of(&cluster, 7, 2, 99, 0);
    message.group = 1; /* the decoder has one group */
    lone_prefill(&prefiller, &message, NULL);
    assert_calls(&prefiller, "send n2 nack r7 e2 reason 1\n");
    message = lone_prefill_of(&cluster, 7, 3, 129, 0); /* nine pages */
    lone_prefill(&prefiller, &message, NULL);
    message = lone_prefill_of(&cluster, 7, 4, 0, 0);
    lone_prefill(&prefiller, &message, NULL);
    assert_calls(&prefiller, "send n2 nack r7 e3 reason 2\n"
                             "send n2 nack r7 e4 reason 2\n");
    message = lone_prefill_of(&cluster, 7, 5, 99, 0);
    message.page_count--;
    lone_prefill(&prefiller, &message, NULL);
    message = lone_prefill_of(&cluster, 7, 6, 99, 16);
    message.first_token = 17; /* inside a page */
    lone_prefill(&prefiller, &message, NULL);
    message = lone_prefill_of(&cluster, 7, 7, 99, 96);
    message.first_token = 112; /* behind the end */
    lone_prefill(&prefiller, &message, NULL);
    message = lone_prefill_of(&cluster, 7, 8, 99, 0);
    message.produced = 100; /* more output than tokens */
    lone_prefill(&prefiller, &message, NULL);
    assert_calls(&prefiller, "send n2 nack r7 e5 reason 4\n"
                             "send n2 nack r7 e6 reason 4\n"
                             "send n2 nack r7 e7 reason 4\n"
                             "send n2 nack r7 e8 reason 4\n");
    assert_lone_empty(&prefiller);
}

static void test_a_full_table_is_a_refusal(void **state)
{
    (void)state;
    cluster.config[PREFILLER].requests_max = 1;
    begin();
    prefill(7, 1, 99);
    lone_forget(&prefiller);
    prefill(8, 2, 99);
    assert_calls(&prefiller, "send n2 nack r8 e2 reason 3\n");
    cancel(8, 2);
    assert_calls(&prefiller, "send n2 quiesced r8 e2\n");
}

static void test_30_a_duplicate_is_dropped(void **state)
{
    (void)state;
    begin();
    prefill(7, 5, 64);
    lone_forget(&prefiller);
    prefill(7, 5, 64); /* while it is here */
    prefill(6, 4, 64); /* an older one, out of its time */
    assert_calls(&prefiller, "");
    lone_write_done(&prefiller, 0, WRITE_OK);
    lone_steps_done(&prefiller, 1);
    lone_forget(&prefiller);
    prefill(7, 5, 64); /* and when it is gone: its pages at the decoder are others' by now */
    assert_calls(&prefiller, "");
    assert_lone_empty(&prefiller);
}

/* Two attempts at one request, in any order of ending. */
static void test_a_request_is_served_as_long_as_one_of_its_attempts_is(void **state)
{
    (void)state;
    for (uint32_t first = 1; first <= 3; first++) {
        begin();
        assert_false(node_serves(prefiller.node, 7));
        prefill(7, 1, 64); /* its step runs */
        prefill(7, 2, 64); /* these wait */
        prefill(7, 3, 64);
        prefill(8, 4, 64);
        uint32_t order[3] = {first == 1 ? 2 : first, first == 1 ? 3 : first == 2 ? 3 : 2, 1};
        cancel(7, order[0]);
        assert_true(node_serves(prefiller.node, 7));
        cancel(7, order[1]);
        assert_true(node_serves(prefiller.node, 7));
        cancel(7, order[2]);
        lone_write_done(&prefiller, 0, WRITE_STOPPED);
        lone_steps_done(&prefiller, 1);
        assert_false(node_serves(prefiller.node, 7));
        assert_true(node_serves(prefiller.node, 8));
        tear_down(NULL);
    }
    begin();
}

static void test_messages_that_make_no_sense_change_nothing(void **state)
{
    (void)state;
    begin();
    for (uint16_t kind = MESSAGE_REQUEST; kind <= MESSAGE_HELLO; kind++)
        if (kind != MESSAGE_CANCEL && kind != MESSAGE_PREFILL)
            lone_about(&prefiller, DECODER, kind, 7, 0, 0);
    struct message message = lone_prefill_of(&cluster, 7, 1, 16, 0);
    uint32_t page = 0;
    lone_message(&prefiller, FRONT, &message, NULL, &page);
    lone_message(&prefiller, 77, &message, NULL, &page);
    assert_calls(&prefiller, "");
    assert_lone_empty(&prefiller);
}

/* ---- Cancels ----------------------------------------------------------------------------------------------------- */

static void test_4_quiesced_only_when_nothing_is_posted(void **state)
{
    (void)state;
    begin();
    prefill(7, 1, 99);
    lone_forget(&prefiller);
    cancel(7, 1); /* a chunk is in the step and a write is out */
    assert_calls(&prefiller, "stop t0\n");
    cancel(7, 1);
    assert_calls(&prefiller, "");
    lone_write_done(&prefiller, 0, WRITE_STOPPED);
    assert_calls(&prefiller, "send n2 quiesced r7 e1\n"); /* the step only touches this side's pages */
    assert_int_equal(stats().pages_held, 7);
    lone_steps_done(&prefiller, 1); /* 4: the next chunk is not launched, nothing is posted any more */
    assert_calls(&prefiller, "");
    assert_lone_empty(&prefiller);
    cancel(7, 1);
    assert_calls(&prefiller, "send n2 quiesced r7 e1\n");
}

static void test_the_step_may_end_before_the_writes(void **state)
{
    (void)state;
    begin();
    prefill(7, 1, 99);
    cancel(7, 1);
    lone_forget(&prefiller);
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "");
    assert_int_equal(stats().pages_held, 7);
    assert_int_equal(stats().queued_tokens, 0);
    lone_write_done(&prefiller, 0, WRITE_OK);
    assert_calls(&prefiller, "send n2 quiesced r7 e1\n");
    assert_lone_empty(&prefiller);
}

static void test_a_cancel_between_steps(void **state)
{
    (void)state;
    cluster.config[PREFILLER].pages_per_group = 16;
    begin();
    prefill(1, 1, 64);
    prefill(2, 2, 99);
    lone_steps_done(&prefiller, 1); /* r2 starts */
    prefill(3, 3, 99);              /* r3 has no pages */
    lone_forget(&prefiller);
    cancel(3, 3);
    assert_calls(&prefiller, "send n2 quiesced r3 e3\n");
    assert_int_equal(stats().waiting, 0);
    cancel(1, 1); /* all of it is posted */
    assert_calls(&prefiller, "stop t0\n");
    lone_write_done(&prefiller, 0, WRITE_OK);
    assert_calls(&prefiller, "send n2 quiesced r1 e1\n");
    assert_int_equal(stats().requests_live, 1);
    lone_write_done(&prefiller, 1, WRITE_OK);
    cancel(2, 2); /* it is in a step, but nothing is posted */
    assert_calls(&prefiller, "send n2 quiesced r2 e2\n");
    cancel(2, 2);
    assert_calls(&prefiller, "send n2 quiesced r2 e2\n");
    lone_steps_done(&prefiller, 1);
    assert_lone_empty(&prefiller);
}

static void test_a_cancel_of_what_was_never_here(void **state)
{
    (void)state;
    begin();
    cancel(7, 1);
    assert_calls(&prefiller, "send n2 quiesced r7 e1\n");
    assert_lone_empty(&prefiller);
}

static void test_28_a_failed_write_is_told_when_all_have_ended(void **state)
{
    (void)state;
    begin();
    prefill(7, 1, 99);
    lone_steps_done(&prefiller, 1);
    lone_forget(&prefiller);
    lone_write_done(&prefiller, 0, WRITE_FAILED); /* an error on one is no quiescence of the other */
    assert_calls(&prefiller, "stop t1\n");
    lone_write_done(&prefiller, 1, WRITE_STOPPED);
    assert_calls(&prefiller, "send n2 nack r7 e1 reason 5\n");
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "");
    assert_lone_empty(&prefiller);
}

static void test_a_cancel_overtakes_the_refusal_of_a_failed_write(void **state)
{
    (void)state;
    begin();
    prefill(7, 1, 99);
    lone_steps_done(&prefiller, 1);
    lone_write_done(&prefiller, 0, WRITE_FAILED);
    lone_forget(&prefiller);
    cancel(7, 1);
    assert_calls(&prefiller, "");
    lone_write_done(&prefiller, 1, WRITE_FAILED);
    assert_calls(&prefiller, "send n2 quiesced r7 e1\n");
    lone_steps_done(&prefiller, 1);
    assert_lone_empty(&prefiller);
}

static void test_a_write_that_fails_in_the_drain(void **state)
{
    (void)state;
    begin();
    prefill(7, 1, 64);
    lone_steps_done(&prefiller, 1);
    lone_forget(&prefiller);
    lone_write_done(&prefiller, 0, WRITE_FAILED);
    assert_calls(&prefiller, "send n2 nack r7 e1 reason 5\n");
    assert_lone_empty(&prefiller);
}

/* ---- Peers that are lost ----------------------------------------------------------------------------------------- */

static void test_a_lost_decoder_frees_what_no_write_reads(void **state)
{
    (void)state;
    begin();
    prefill(1, 1, 64);
    prefill(2, 2, 99);
    lone_steps_done(&prefiller, 1); /* r1 drains, r2 streams */
    prefill(3, 3, 99);              /* r3 is queued */
    lone_forget(&prefiller);
    lone_peer_lost(&prefiller, DECODER, PEER_SUSPECTED, 0);
    assert_calls(&prefiller, "stop t0\n"
                             "stop t1\n");
    assert_int_equal(stats().requests_live, 2);
    lone_write_done(&prefiller, 0, WRITE_FAILED);
    lone_steps_done(&prefiller, 1);
    assert_int_equal(stats().requests_live, 1);
    lone_write_done(&prefiller, 1, WRITE_FAILED);
    lone_peer_lost(&prefiller, DECODER, PEER_FENCED, 0);
    assert_calls(&prefiller, ""); /* there is nobody to answer */
    assert_lone_empty(&prefiller);
    prefill(4, 4, 99);
    assert_calls(&prefiller, "");
}

static void test_30_a_replacement_numbers_its_epochs_afresh(void **state)
{
    (void)state;
    begin();
    prefill(7, 5, 64);
    lone_forget(&prefiller);
    lone_hello(&prefiller, DECODER, 1);
    assert_calls(&prefiller, "stop t0\n");
    prefill(7, 6, 64); /* late ones from the predecessor */
    cancel(7, 5);
    assert_calls(&prefiller, "");
    struct message message =
        lone_prefill_of(&cluster, 8, 5, 32, 0); /* the same number as its predecessor's that is still here */
    message.incarnation = 1;
    lone_prefill(&prefiller, &message, NULL);
    lone_peer_lost(&prefiller, DECODER, PEER_SUSPECTED, 0);
    lone_peer_lost(&prefiller, DECODER, PEER_FENCED, 0); /* of the predecessor */
    assert_calls(&prefiller, "send n2 accepted r8 e5\n");
    lone_write_done(&prefiller, 0, WRITE_STOPPED);
    lone_steps_done(&prefiller, 1);
    assert_calls(&prefiller, "launch 2 x1 g0 prefill 1/32+0 leave r7 chunk r8 0+32\n"
                             "write t0 n2 r8 e5 0x00100005 units 0+2 gate 2 0-1>100-101\n");
    message = (struct message){.kind = MESSAGE_CANCEL, .request = 8, .epoch = 5, .incarnation = 1};
    lone_message(&prefiller, DECODER, &message, NULL, NULL);
    assert_calls(&prefiller, "stop t0\n");
    lone_write_done(&prefiller, 0, WRITE_STOPPED);
    assert_calls(&prefiller, "send n2 quiesced r8 e5\n");
    lone_steps_done(&prefiller, 1);
    assert_lone_empty(&prefiller);
}

/* A replacement that is lost in its turn before its HELLO is here: what it asked for is nobody's. */
static void test_30_the_hello_of_one_that_is_lost_already_joins_nothing(void **state)
{
    (void)state;
    begin();
    lone_peer_lost(&prefiller, DECODER, PEER_SUSPECTED, 2);
    lone_hello(&prefiller, DECODER, 2);
    struct message message = lone_prefill_of(&cluster, 8, 1, 32, 0);
    message.incarnation = 2;
    lone_forget(&prefiller);
    lone_prefill(&prefiller, &message, NULL);
    assert_calls(&prefiller, "");
    lone_hello(&prefiller, DECODER, 3);
    message.incarnation = 3;
    lone_prefill(&prefiller, &message, NULL);
    assert_calls(&prefiller, "send n2 accepted r8 e1\n"
                             "launch 1 x1 g0 prefill 1/32+0 chunk r8 0+32\n"
                             "write t0 n2 r8 e1 0x00100001 units 0+2 gate 1 0-1>100-101\n");
}

static void test_30_a_replacement_says_hello(void **state)
{
    (void)state;
    begin();
    lone_event(&prefiller, &(struct event){.kind = EVENT_START, .count = 3});
    assert_calls(&prefiller, "send n0 hello 3\n"
                             "send n2 hello 3\n");
    /* It can neither serve nor vouch for what its predecessors were asked. */
    prefill(7, 1, 64);
    cancel(7, 1);
    assert_calls(&prefiller, "");
    struct message message = lone_prefill_of(&cluster, 8, 2, 64, 0);
    message.peer_incarnation = 3;
    lone_prefill(&prefiller, &message, NULL);
    assert_int_equal(stats().requests_live, 1);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_17_pages_are_released_by_completions),
        CASE(test_a_completion_may_come_before_the_step_ends),
        CASE(test_22_25_26_units_do_not_depend_on_the_chunks),
        CASE(test_24_lengths_around_a_page_boundary),
        CASE(test_larger_pages_at_the_decoder),
        CASE(test_smaller_pages_at_the_decoder),
        CASE(test_22_the_tail_goes_alone_when_the_step_has_ended),
        CASE(test_a_cancel_before_the_tail),
        CASE(test_a_tail_alone_where_the_decoder_has_all_the_rest),
        CASE(test_21_29_what_cannot_be_served_is_refused),
        CASE(test_a_full_table_is_a_refusal),
        CASE(test_30_a_duplicate_is_dropped),
        CASE(test_a_request_is_served_as_long_as_one_of_its_attempts_is),
        CASE(test_messages_that_make_no_sense_change_nothing),
        CASE(test_4_quiesced_only_when_nothing_is_posted),
        CASE(test_the_step_may_end_before_the_writes),
        CASE(test_a_cancel_between_steps),
        CASE(test_a_cancel_of_what_was_never_here),
        CASE(test_28_a_failed_write_is_told_when_all_have_ended),
        CASE(test_a_cancel_overtakes_the_refusal_of_a_failed_write),
        CASE(test_a_write_that_fails_in_the_drain),
        CASE(test_a_lost_decoder_frees_what_no_write_reads),
        CASE(test_30_a_replacement_numbers_its_epochs_afresh),
        CASE(test_30_the_hello_of_one_that_is_lost_already_joins_nothing),
        CASE(test_30_a_replacement_says_hello),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
