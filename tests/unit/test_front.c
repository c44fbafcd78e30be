/* The front: one event in, the messages and decisions out. Prefillers are nodes 1 and 3, decoders 2 and 5. */
#include "support/lone_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/arith.h"

#define DECODER_TOO 5

static struct small_cluster cluster;
static struct peer_config peers[4];
static struct lone_node front;

static int set_up(void **state)
{
    (void)state;
    small_cluster_make(&cluster);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lone_free(&front);
    front.memory = NULL;
    return 0;
}

static void begin(void)
{
    small_cluster_link(&cluster);
    for (uint32_t i = 0; i < 3; i++)
        peers[i] = cluster.peers_of_front[i];
    peers[3] = peers[1]; /* a second decoder like the first */
    peers[3].node = DECODER_TOO;
    cluster.config[FRONT].peers = peers;
    cluster.config[FRONT].peer_count = 4;
    lone_make(&front, &cluster.config[FRONT]);
    front.traces = true;
}

/* One prefiller (1) and one decoder (2). */
static void begin_with_one_each(void)
{
    small_cluster_link(&cluster);
    cluster.config[FRONT].peer_count = 2;
    lone_make(&front, &cluster.config[FRONT]);
    front.traces = true;
}

static void arrive(uint32_t id, uint32_t prompt)
{
    struct request_spec spec = {.id = id, .prompt_tokens = prompt, .output_tokens = 3, .deadline_ns = TIME_NEVER};
    lone_event(&front, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_NEW, .data = &spec});
}

static void leave(uint32_t id)
{
    struct request_spec spec = {.id = id};
    lone_event(&front, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_ABORT, .data = &spec});
}

static void report(uint32_t source, enum message_kind kind, uint32_t request, uint32_t attempt, uint32_t reason)
{
    struct message message = {
        .kind = (uint16_t)kind,
        .request = request,
        .attempt = attempt,
        .reason = (uint16_t)reason,
    };
    lone_message(&front, source, &message, NULL, NULL);
}

/* A report with the load it carries. */
static void report_load(uint32_t source, enum message_kind kind, uint32_t request, uint32_t number, uint64_t available)
{
    struct message message = {
        .kind = (uint16_t)kind,
        .request = request,
        .number = number,
        .load = {.pages_available = available},
    };
    lone_message(&front, source, &message, NULL, NULL);
}

static void assert_live(uint32_t count)
{
    assert_int_equal(node_stats(front.node).requests_live, count);
}

/* ---- Routing -------------------------------------------------------------------------------------------------------
 */

static void test_a_decoder_then_a_prefiller(void **state)
{
    (void)state;
    begin();
    arrive(1, 100);
    arrive(2, 50);
    arrive(3, 20);
    assert_calls(&front, "trace arrived r1 100 3\n"
                         "trace routed r1 2 1\n"
                         "send n2 request r1 to n1 attempt 0 produced 0\n"
                         "trace arrived r2 50 3\n"
                         "trace routed r2 5 3\n"
                         "send n5 request r2 to n3 attempt 0 produced 0\n"
                         "trace arrived r3 20 3\n"
                         "trace routed r3 2 1\n"
                         "send n2 request r3 to n1 attempt 0 produced 0\n");
    report(1, MESSAGE_PREFILLED, 1, 0, 0);
    report(2, MESSAGE_FIRST_TOKEN, 1, 0, 0);
    report(2, MESSAGE_FINISHED, 1, 0, 0);
    assert_calls(&front, ""); /* the decoder has traced it */
    assert_live(2);
    report(1, MESSAGE_PREFILLED, 1, 0, 0); /* slower than all the rest: nothing to say */
    assert_calls(&front, "");
    report(2, MESSAGE_FINISHED, 1, 0, 0);
    assert_calls(&front, "trace late r1 0 4\n");
    assert_live(2);
}

static void test_a_mixed_instance_is_both(void **state)
{
    (void)state;
    small_cluster_link(&cluster);
    cluster.config[FRONT].peers = cluster.peers_of_mixed_front;
    cluster.config[FRONT].peer_count = 1;
    cluster.config[FRONT].admission.queued_tokens_max = 99;
    lone_make(&front, &cluster.config[FRONT]);
    arrive(1, 100);
    arrive(2, 10); /* 100 are queued */
    assert_calls(&front, "send n4 request r1 to n4 attempt 0 produced 0\n");
    report(MIXED, MESSAGE_FIRST_TOKEN, 1, 0, 0);
    arrive(3, 10);
    assert_calls(&front, "send n4 request r3 to n4 attempt 0 produced 0\n");
    report(MIXED, MESSAGE_FINISHED, 1, 0, 0);
    report(MIXED, MESSAGE_FINISHED, 3, 0, 0);
    assert_live(0);
}

/* ---- Pages that are promised
 * ----------------------------------------------------------------------------------------- */

static void test_pages_are_not_counted_twice(void **state)
{
    (void)state;
    cluster.config[FRONT].decode_router = ROUTER_LEAST_KV;
    begin();
    front.traces = false;
    arrive(1, 16);  /* a page of node 2 */
    arrive(2, 16);  /* and of 5 */
    arrive(3, 320); /* 20 of node 2 */
    arrive(4, 320); /* and of 5: 43 are left of each */
    lone_forget(&front);
    /* Node 2 is done with the first, has the third and has given it its pages: what it reports is what there is. */
    report_load(2, MESSAGE_FINISHED, 1, 2, 44);
    arrive(5, 80);
    assert_calls(&front, "send n2 request r5 to n1 attempt 0 produced 0\n"); /* 44 of node 2, 43 of 5 */
    /* A report from before it got the fifth: 39. */
    report_load(2, MESSAGE_FIRST_TOKEN, 3, 2, 44);
    arrive(6, 16);
    assert_calls(&front, "send n5 request r6 to n3 attempt 0 produced 0\n");
    /* And from after that; node 5 is at 42. */
    report_load(2, MESSAGE_FIRST_TOKEN, 5, 3, 43);
    arrive(7, 16);
    assert_calls(&front, "send n2 request r7 to n1 attempt 0 produced 0\n");
}

static void test_a_report_about_a_request_shows_that_it_came(void **state)
{
    (void)state;
    cluster.config[FRONT].decode_router = ROUTER_LEAST_KV;
    begin();
    front.traces = false;
    arrive(1, 320);
    arrive(2, 320);
    lone_forget(&front);
    report_load(2, MESSAGE_REJECTED, 1, 0, 64); /* with a number that says less: it ends, and its promise with it */
    assert_live(1);
    for (uint32_t i = 0; i < 15; i++) /* its place is used again */
        arrive(10 + i, 16);
    assert_live(16);
    for (uint32_t i = 0; i < 15; i++)
        report_load(2, MESSAGE_FINISHED, 10 + i, 16, 64);
    report_load(DECODER_TOO, MESSAGE_FINISHED, 2, 1, 64);
    assert_live(0);
}

static void test_what_was_promised_to_the_lost_is_forgotten(void **state)
{
    (void)state;
    cluster.config[FRONT].decode_router = ROUTER_LEAST_KV;
    begin();
    front.traces = false;
    arrive(1, 480);
    arrive(2, 16);
    lone_forget(&front);
    lone_hello(&front, 2, 1); /* its replacement is empty: the first is routed again, to node 5 */
    assert_calls(&front, "send n5 request r1 to n1 attempt 1 produced 0\n");
    arrive(3, 480);
    arrive(4, 16);
    assert_calls(&front, "send n2 request r3 to n3 attempt 0 produced 0\n"
                         "send n2 request r4 to n1 attempt 0 produced 0\n"); /* 34 of node 2, 33 of 5 */
    struct message message = {
        .kind = MESSAGE_FIRST_TOKEN, .request = 3, .number = 2, .incarnation = 1, .load = {.pages_available = 33}};
    lone_message(&front, 2, &message, NULL, NULL);
    arrive(5, 32);
    assert_calls(&front, "send n5 request r5 to n3 attempt 0 produced 0\n"); /* 33 and 33, by turn; it has 31 now */
    arrive(6, 16);
    assert_calls(&front, "send n2 request r6 to n1 attempt 0 produced 0\n"); /* numbers count afresh: its third */
}

/* ---- Attempts
 * -------------------------------------------------------------------------------------------------------- */

static void test_every_failure_is_tried_again(void **state)
{
    (void)state;
    static const enum fail_reason reasons[] = {FAIL_PEER_LOST, FAIL_DEADLINE, FAIL_WRITE, FAIL_REFUSED};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        begin();
        arrive(7, 100);
        lone_forget(&front);
        report(2, MESSAGE_FAILED, 7, 0, reasons[i]);
        assert_calls(&front, "trace routed r7 5 3\n"
                             "send n5 request r7 to n3 attempt 1 produced 0\n");
        assert_live(1);
        lone_free(&front);
    }
    begin();
}

static void test_attempts_are_exhausted(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    report(2, MESSAGE_FAILED, 7, 0, FAIL_WRITE);
    report(5, MESSAGE_FAILED, 7, 1, FAIL_WRITE);
    lone_forget(&front);
    report(2, MESSAGE_FAILED, 7, 2, FAIL_DEADLINE); /* the third of three */
    assert_calls(&front, "trace failed r7 2 0\n");
    assert_live(0);
}

/* A decoder knew of the prefiller's loss before the front does: not there again, idle as it looks, while there is
 * another. */
static void test_not_to_the_prefiller_that_failed(void **state)
{
    (void)state;
    begin();
    arrive(7, 10);
    arrive(8, 100);
    lone_forget(&front);
    report(2, MESSAGE_FAILED, 7, 0, FAIL_PEER_LOST);
    assert_calls(&front, "trace routed r7 2 3\n"
                         "send n2 request r7 to n3 attempt 1 produced 0\n");
    lone_free(&front);
    begin_with_one_each();
    arrive(7, 10);
    lone_forget(&front);
    report(2, MESSAGE_FAILED, 7, 0, FAIL_PEER_LOST);
    assert_calls(&front, "trace routed r7 2 1\n"
                         "send n2 request r7 to n1 attempt 1 produced 0\n");
}

static void test_what_was_produced_is_kept(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    report(2, MESSAGE_FIRST_TOKEN, 7, 0, 0);
    lone_forget(&front);
    struct message message = {.kind = MESSAGE_FAILED, .request = 7, .reason = FAIL_PEER_LOST, .produced = 2};
    lone_message(&front, 2, &message, NULL, NULL);
    assert_calls(&front, "trace routed r7 5 3\n"
                         "send n5 request r7 to n3 attempt 1 produced 2 resumed\n");
}

static void test_a_duplicated_failure_uses_up_no_attempt(void **state)
{
    (void)state;
    begin_with_one_each(); /* the second attempt goes where the first went */
    arrive(7, 100);
    report(2, MESSAGE_FAILED, 7, 0, FAIL_WRITE);
    lone_forget(&front);
    for (uint32_t i = 0; i < 5; i++)
        report(2, MESSAGE_FAILED, 7, 0, FAIL_WRITE);
    assert_calls(&front, "trace late r7 0 5\n"
                         "trace late r7 0 5\n"
                         "trace late r7 0 5\n"
                         "trace late r7 0 5\n"
                         "trace late r7 0 5\n");
    report(2, MESSAGE_FAILED, 7, 1, FAIL_WRITE);
    assert_calls(&front, "trace routed r7 2 1\n"
                         "send n2 request r7 to n1 attempt 2 produced 0\n");
    report(2, MESSAGE_FINISHED, 7, 1, 0); /* nor does anything else of another attempt count */
    report(2, MESSAGE_REJECTED, 7, 3, REJECT_QUEUE_FULL);
    report(2, MESSAGE_ABORTED, 7, 0, FAIL_CLIENT);
    assert_calls(&front, "trace late r7 1 4\n"
                         "trace late r7 3 6\n"
                         "trace late r7 0 7\n");
    assert_int_equal(node_stats(front.node).messages_late, 8);
    assert_live(1);
}

static void test_a_late_prefilled_does_not_empty_the_queue(void **state)
{
    (void)state;
    cluster.config[FRONT].admission.queued_tokens_max = 99;
    begin_with_one_each();
    arrive(7, 100);
    report(2, MESSAGE_FAILED, 7, 0, FAIL_WRITE); /* and again, to the same prefiller */
    lone_forget(&front);
    report(1, MESSAGE_PREFILLED, 7, 0, 0); /* of the first attempt */
    arrive(8, 10);
    assert_calls(&front, "trace late r7 0 8\n"
                         "trace arrived r8 10 3\n"
                         "trace rejected r8 4 0\n");
    report(1, MESSAGE_PREFILLED, 7, 1, 0);
    arrive(9, 10);
    assert_calls(&front, "trace arrived r9 10 3\n"
                         "trace routed r9 2 1\n"
                         "send n2 request r9 to n1 attempt 0 produced 0\n");
    report(1, MESSAGE_PREFILLED, 7, 1, 0); /* twice is once */
    arrive(10, 95);
    lone_forget(&front);
    arrive(11, 1); /* 105 are queued */
    assert_calls(&front, "trace arrived r11 1 3\n"
                         "trace rejected r11 4 0\n");
}

/* ---- Turned away
 * ----------------------------------------------------------------------------------------------------- */

static void test_a_duplicate_arrival(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    lone_forget(&front);
    arrive(7, 100);
    assert_calls(&front, "trace arrived r7 100 3\n"
                         "trace rejected r7 7 0\n");
    assert_live(1);
    report(2, MESSAGE_REJECTED, 7, 0, REJECT_DUPLICATE); /* of a message that came twice */
    assert_calls(&front, "trace late r7 0 6\n");
    assert_live(1);
}

static void test_a_rejection_is_final(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    lone_forget(&front);
    report(2, MESSAGE_REJECTED, 7, 0, REJECT_TOO_LARGE_DECODE);
    assert_calls(&front, "trace rejected r7 2 0\n");
    assert_live(0);
}

static void test_a_full_table(void **state)
{
    (void)state;
    cluster.config[FRONT].requests_max = 2;
    begin();
    arrive(1, 100);
    arrive(2, 100);
    lone_forget(&front);
    arrive(3, 100);
    assert_calls(&front, "trace arrived r3 100 3\n"
                         "trace rejected r3 3 0\n");
    report(2, MESSAGE_FINISHED, 1, 0, 0);
    lone_forget(&front);
    arrive(4, 100);
    assert_calls(&front, "trace arrived r4 100 3\n"
                         "trace routed r4 2 1\n"
                         "send n2 request r4 to n1 attempt 0 produced 0\n");
}

static void test_no_instance_of_a_role(void **state)
{
    (void)state;
    for (uint32_t lost = PREFILLER; lost <= DECODER; lost++) {
        begin_with_one_each();
        lone_peer_lost(&front, lost, PEER_SUSPECTED, 0);
        lone_forget(&front);
        arrive(1, 100);
        assert_calls(&front, "trace arrived r1 100 3\n"
                             "trace rejected r1 6 0\n");
        assert_live(0);
        lone_free(&front);
    }
    begin();
}

static void test_the_admission_policy(void **state)
{
    (void)state;
    cluster.config[FRONT].admission =
        (struct admission_policy){.ttft_limit_ns = NS_PER_S, .prefill_tokens_per_s = 1000};
    begin();
    front.traces = false;
    arrive(1, 600);
    arrive(2, 600);
    lone_forget(&front);
    front.traces = true;
    arrive(3, 401); /* behind 600 of either prefiller */
    assert_calls(&front, "trace arrived r3 401 3\n"
                         "trace rejected r3 4 0\n");
    arrive(4, 400);
    assert_calls(&front, "trace arrived r4 400 3\n"
                         "trace routed r4 2 1\n"
                         "send n2 request r4 to n1 attempt 0 produced 0\n");
}

/* What is cached where a prompt would go takes nothing: its wait is that of the rest. */
static void test_admission_counts_what_is_cached(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {11, 12, 13};
    cluster.config[FRONT].admission =
        (struct admission_policy){.ttft_limit_ns = NS_PER_S, .prefill_tokens_per_s = 1000};
    cluster.config[FRONT].request_blocks_max = 3;
    cluster.config[FRONT].prefix_block_tokens = 256;
    begin();
    peers[0].caches = peers[2].caches = true; /* a prompt is found where it went before */
    front.traces = false;
    struct request_spec spec = {
        .id = 1,
        .prompt_tokens = 900,
        .output_tokens = 3,
        .deadline_ns = TIME_NEVER,
        .block_tokens = 256,
        .block_count = 3,
        .blocks = blocks,
    };
    const struct event event = {.kind = EVENT_ARRIVAL, .status = ARRIVAL_NEW, .data = &spec};
    lone_event(&front, &event); /* to node 1 */
    spec.id = 2;
    spec.block_count = 0;
    lone_event(&front, &event); /* to node 3 */
    lone_forget(&front);
    front.traces = true;
    spec.id = 3;
    lone_event(&front, &event);
    assert_calls(&front, "trace arrived r3 900 3\n"
                         "trace rejected r3 4 0\n");
    report(1, MESSAGE_PREFILLED, 1, 0, 0);
    spec = (struct request_spec){.id = 4,
                                 .prompt_tokens = 1700,
                                 .output_tokens = 3,
                                 .deadline_ns = TIME_NEVER,
                                 .block_tokens = 256,
                                 .block_count = 3,
                                 .blocks = blocks};
    lone_event(&front, &event); /* 932 to compute at node 1 */
    assert_calls(&front, "trace arrived r4 1700 3\n"
                         "trace routed r4 2 1\n"
                         "send n2 request r4 to n1 attempt 0 produced 0\n");
    report(3, MESSAGE_PREFILLED, 2, 0, 0);
    spec.id = 7;
    spec.prompt_tokens = 1001; /* 233 more there, all of it at node 3 */
    lone_event(&front, &event);
    assert_calls(&front, "trace arrived r7 1001 3\n"
                         "trace rejected r7 4 0\n");
    front.traces = false;
    spec.id = 8;
    spec.prompt_tokens = 1000;
    spec.block_count = 0;
    lone_event(&front, &event); /* to node 3 */
    lone_forget(&front);
    front.traces = true;
    spec.block_count = 3;
    spec.id = 5;
    spec.prompt_tokens = 836; /* 68 more */
    lone_event(&front, &event);
    assert_calls(&front, "trace arrived r5 836 3\n"
                         "trace routed r5 2 1\n"
                         "send n2 request r5 to n1 attempt 0 produced 0\n");
    spec.id = 6;
    spec.prompt_tokens = 837;
    lone_event(&front, &event);
    assert_calls(&front, "trace arrived r6 837 3\n"
                         "trace rejected r6 4 0\n");
}

/* What decoders hold, and what they have been sent since they said so. */
static void test_admission_looks_at_decoders(void **state)
{
    (void)state;
    cluster.config[FRONT].admission = (struct admission_policy){.decode_load_max_permille = 500};
    begin_with_one_each();
    uint32_t pages = cluster.peers_of_front[1].pages_per_group * cluster.peers_of_front[1].group_count;
    uint32_t page = cluster.peers_of_front[1].geometry.page_tokens;
    front.traces = false;
    arrive(1, pages / 2 * page);
    lone_forget(&front);
    front.traces = true;
    arrive(2, 1);
    assert_calls(&front, "trace arrived r2 1 3\n"
                         "trace rejected r2 4 0\n");
    report_load(2, MESSAGE_FINISHED, 1, 1, pages - 1); /* one is kept by others */
    arrive(3, (pages / 2 - 1) * page);
    assert_calls(&front, "trace arrived r3 496 3\n"
                         "trace routed r3 2 1\n"
                         "send n2 request r3 to n1 attempt 0 produced 0\n");
}

/* ---- Aborts
 * ---------------------------------------------------------------------------------------------------------- */

static void test_an_abort_goes_to_the_decoder(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    lone_forget(&front);
    leave(7);
    leave(7);
    assert_calls(&front, "send n2 abort r7\n");
    assert_live(1);
    report(2, MESSAGE_ABORTED, 7, 0, FAIL_CLIENT);
    assert_calls(&front, "trace aborted r7 4 0\n");
    assert_live(0);
    leave(7);
    leave(99); /* never here */
    assert_calls(&front, "");
}

static void test_an_abort_crosses_the_end(void **state)
{
    (void)state;
    begin();
    arrive(1, 100);
    arrive(2, 100);
    arrive(3, 100);
    leave(1);
    leave(2);
    leave(3);
    lone_forget(&front);
    report(2, MESSAGE_FINISHED, 1, 0, 0); /* it was done before it heard */
    assert_calls(&front, "");
    report(5, MESSAGE_FAILED, 2, 0, FAIL_WRITE); /* nobody waits for another attempt */
    assert_calls(&front, "trace aborted r2 4 0\n");
    report(2, MESSAGE_REJECTED, 3, 0, REJECT_QUEUE_FULL);
    assert_calls(&front, "trace aborted r3 4 0\n");
    assert_live(0);
}

static void test_an_abort_follows_the_request(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    report(2, MESSAGE_FAILED, 7, 0, FAIL_WRITE);
    lone_forget(&front);
    leave(7);
    assert_calls(&front, "send n5 abort r7\n");
    lone_peer_lost(&front, 5, PEER_SUSPECTED, 0); /* which cannot answer any more */
    assert_calls(&front, "trace peer_lost 5 0\n"
                         "trace aborted r7 4 0\n");
    assert_live(0);
}

/* ---- Instances that come and go
 * -------------------------------------------------------------------------------------- */

static void test_a_lost_decoder(void **state)
{
    (void)state;
    begin();
    arrive(1, 100);
    arrive(2, 100);
    report(2, MESSAGE_FIRST_TOKEN, 1, 0, 0);
    lone_forget(&front);
    lone_peer_lost(&front, 2, PEER_SUSPECTED, 0);
    lone_peer_lost(&front, 2, PEER_FENCED, 0);
    /* How far it was is not known; that its client has the first token is. */
    assert_calls(&front, "trace peer_lost 2 0\n"
                         "trace routed r1 5 1\n"
                         "send n5 request r1 to n1 attempt 1 produced 0 resumed\n");
    report(2, MESSAGE_FINISHED, 1, 0, 0); /* it was only slow */
    assert_calls(&front, "trace late r1 0 4\n");
    report(2, MESSAGE_FINISHED, 1, 1, 0); /* whatever it says, the request is another's */
    assert_calls(&front, "trace late r1 1 4\n");
    arrive(3, 100);
    assert_calls(&front, "trace arrived r3 100 3\n"
                         "trace routed r3 5 3\n"
                         "send n5 request r3 to n3 attempt 0 produced 0\n");
}

static void test_the_last_decoder_is_lost(void **state)
{
    (void)state;
    begin_with_one_each();
    arrive(7, 100);
    lone_forget(&front);
    lone_peer_lost(&front, DECODER, PEER_SUSPECTED, 0);
    assert_calls(&front, "trace peer_lost 2 0\n"
                         "trace failed r7 1 0\n");
    assert_live(0);
}

static void test_a_lost_prefiller(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    lone_forget(&front);
    lone_peer_lost(&front, PREFILLER, PEER_SUSPECTED, 0);
    assert_calls(&front, "trace peer_lost 1 0\n"); /* its decoder sees it too, and holds the pages */
    assert_live(1);
    report(2, MESSAGE_FAILED, 7, 0, FAIL_PEER_LOST);
    arrive(8, 100);
    assert_calls(&front, "trace routed r7 5 3\n"
                         "send n5 request r7 to n3 attempt 1 produced 0\n"
                         "trace arrived r8 100 3\n"
                         "trace routed r8 2 3\n"
                         "send n2 request r8 to n3 attempt 0 produced 0\n");
    lone_hello(&front, PREFILLER, 1);
    arrive(9, 100);
    assert_calls(&front, "trace peer_joined 1 1\n"
                         "trace arrived r9 100 3\n"
                         "trace routed r9 5 1\n"
                         "send n5 request r9 to n1 attempt 0 produced 0\n");
}

static void test_a_replacement_says_hello_before_the_loss_is_known(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    lone_forget(&front);
    lone_hello(&front, 2, 1);
    assert_calls(&front, "trace peer_lost 2 0\n"
                         "trace routed r7 5 3\n"
                         "send n5 request r7 to n3 attempt 1 produced 0\n"
                         "trace peer_joined 2 1\n");
    lone_peer_lost(&front, 2, PEER_SUSPECTED, 0); /* the predecessor's */
    lone_peer_lost(&front, 2, PEER_FENCED, 0);
    lone_hello(&front, 2, 1); /* twice */
    lone_hello(&front, 2, 0); /* and what cannot be */
    lone_hello(&front, 77, 1);
    assert_calls(&front, "");
    report(2, MESSAGE_FAILED, 7, 1, FAIL_WRITE); /* from before it was replaced */
    assert_calls(&front, "trace late r7 1 5\n");
    arrive(8, 100);
    assert_calls(&front, "trace arrived r8 100 3\n"
                         "trace routed r8 2 1\n"
                         "send n2 request r8 to n1 attempt 0 produced 0\n");
    lone_peer_lost(&front, 2, PEER_SUSPECTED, 1); /* and now itself */
    assert_calls(&front, "trace peer_lost 2 0\n"
                         "trace routed r8 5 3\n"
                         "send n5 request r8 to n3 attempt 1 produced 0\n");
    /* Another replacement came and went before its HELLO is here: that one joins nothing. */
    lone_peer_lost(&front, 2, PEER_SUSPECTED, 2);
    lone_hello(&front, 2, 2);
    assert_calls(&front, "");
    lone_hello(&front, 2, 3);
    assert_calls(&front, "trace peer_joined 2 3\n");
}

static void test_messages_that_make_no_sense_change_nothing(void **state)
{
    (void)state;
    begin();
    arrive(7, 100);
    front.traces = false;
    lone_forget(&front);
    for (uint16_t kind = MESSAGE_REQUEST; kind <= MESSAGE_HELLO; kind++)
        lone_about(&front, 77, kind, 7, 0, 0);
    for (uint16_t kind = MESSAGE_REQUEST; kind <= MESSAGE_HELLO; kind++)
        if (kind < MESSAGE_FIRST_TOKEN || kind > MESSAGE_PREFILLED)
            lone_about(&front, 2, kind, 7, 0, 0);
    for (uint16_t kind = MESSAGE_REQUEST; kind <= MESSAGE_HELLO; kind++)
        lone_about(&front, 1, kind, 7, 0, 0); /* a prefiller does not speak for a decoder */
    lone_event(&front, &(struct event){.kind = EVENT_MESSAGE, .id = 2, .count = 3, .data = "abc"});
    assert_int_equal(node_stats(front.node).messages_malformed, 1);
    assert_calls(&front, "");
    assert_live(1);
}

/* Two prompts of 1,000 tokens that took two seconds together are 1,000 a second; idle time is none. */
static void test_the_rate_is_learned(void **state)
{
    (void)state;
    cluster.config[FRONT].admission = (struct admission_policy){.ttft_limit_ns = 2 * NS_PER_S};
    begin_with_one_each();
    front.runtime.now_ns = NS_PER_S;
    arrive(1, 1000);
    arrive(2, 1000);
    front.runtime.now_ns = 2 * NS_PER_S;
    report(PREFILLER, MESSAGE_PREFILLED, 1, 0, 0);
    front.runtime.now_ns = 3 * NS_PER_S;
    report(PREFILLER, MESSAGE_PREFILLED, 2, 0, 0);
    report(DECODER, MESSAGE_FINISHED, 1, 0, 0);
    report(DECODER, MESSAGE_FINISHED, 2, 0, 0);
    front.runtime.now_ns = 100 * NS_PER_S;
    lone_forget(&front);
    arrive(3, 2001);
    arrive(4, 2000);
    assert_calls(&front, "trace arrived r3 2001 3\n"
                         "trace rejected r3 4 0\n"
                         "trace arrived r4 2000 3\n"
                         "trace routed r4 2 1\n"
                         "send n2 request r4 to n1 attempt 0 produced 0\n");
    front.runtime.now_ns = 102 * NS_PER_S;
    report(PREFILLER, MESSAGE_PREFILLED, 4, 0, 0);
    front.runtime.now_ns = 200 * NS_PER_S;
    arrive(5, 2001);
    arrive(6, 2000);
    assert_calls(&front, "trace arrived r5 2001 3\n"
                         "trace rejected r5 4 0\n"
                         "trace arrived r6 2000 3\n"
                         "trace routed r6 2 1\n"
                         "send n2 request r6 to n1 attempt 0 produced 0\n");
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_decoder_then_a_prefiller),
        CASE(test_a_mixed_instance_is_both),
        CASE(test_pages_are_not_counted_twice),
        CASE(test_a_report_about_a_request_shows_that_it_came),
        CASE(test_what_was_promised_to_the_lost_is_forgotten),
        CASE(test_every_failure_is_tried_again),
        CASE(test_attempts_are_exhausted),
        CASE(test_not_to_the_prefiller_that_failed),
        CASE(test_what_was_produced_is_kept),
        CASE(test_a_duplicated_failure_uses_up_no_attempt),
        CASE(test_a_late_prefilled_does_not_empty_the_queue),
        CASE(test_a_duplicate_arrival),
        CASE(test_a_rejection_is_final),
        CASE(test_a_full_table),
        CASE(test_no_instance_of_a_role),
        CASE(test_the_admission_policy),
        CASE(test_admission_counts_what_is_cached),
        CASE(test_admission_looks_at_decoders),
        CASE(test_the_rate_is_learned),
        CASE(test_an_abort_goes_to_the_decoder),
        CASE(test_an_abort_crosses_the_end),
        CASE(test_an_abort_follows_the_request),
        CASE(test_a_lost_decoder),
        CASE(test_the_last_decoder_is_lost),
        CASE(test_a_lost_prefiller),
        CASE(test_a_replacement_says_hello_before_the_loss_is_known),
        CASE(test_messages_that_make_no_sense_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
