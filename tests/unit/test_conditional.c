/* Prompts that a decoder computes itself, and a mixed instance beside a pair. One event in, the calls out. */
#include "support/lone_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/arith.h"

static struct small_cluster cluster;
static struct peer_config peers[3];
static struct lone_node node;

static int set_up(void **state)
{
    (void)state;
    small_cluster_make(&cluster);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lone_free(&node);
    node.memory = NULL;
    return 0;
}

static void begin_decoder(uint32_t max_local_prefill_length)
{
    cluster.config[DECODER].conditional.max_local_prefill_length = max_local_prefill_length;
    small_cluster_link(&cluster);
    lone_make(&node, &cluster.config[DECODER]);
}

/* A front with one prefiller, one decoder and, where asked for, a mixed instance. */
static void begin_front(struct conditional_policy policy, bool mixed)
{
    small_cluster_link(&cluster);
    peers[0] = cluster.peers_of_front[0];
    peers[1] = cluster.peers_of_front[1];
    peers[2] = cluster.peers_of_mixed_front[0];
    cluster.config[FRONT].conditional = policy;
    cluster.config[FRONT].peers = peers;
    cluster.config[FRONT].peer_count = mixed ? 3 : 2;
    lone_make(&node, &cluster.config[FRONT]);
    node.traces = true;
}

static void request(uint32_t id, uint32_t prompt, uint32_t output, const uint64_t *blocks, uint32_t count)
{
    struct message message = lone_request_of(id, prompt, output);
    message.block_tokens = count > 0 ? 32 : 0;
    message.block_count = count;
    lone_message(&node, FRONT, &message, blocks, NULL);
}

static void arrive(uint32_t id, uint32_t prompt)
{
    struct request_spec spec = {.id = id, .prompt_tokens = prompt, .output_tokens = 3, .deadline_ns = TIME_NEVER};
    lone_event(&node, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_NEW, .data = &spec});
}

static void report(uint32_t source, enum message_kind kind, uint32_t request)
{
    struct message message = {.kind = (uint16_t)kind, .request = request, .load = {.pages_available = 64}};
    lone_message(&node, source, &message, NULL, NULL);
}

/* ---- The decoder ------------------------------------------------------------------------------------------------- */

static void test_what_is_short_is_computed_here(void **state)
{
    (void)state;
    begin_decoder(20);
    request(1, 20, 3, NULL, 0);
    assert_calls(&node, "send n0 prefilled r1\n"
                        "launch 1 x1 g0 prefill 1/20+0 chunk r1 0+20\n");
    request(2, 21, 3, NULL, 0);
    assert_calls(&node, "expect 0x00100000 8\n"
                        "send n1 prefill r2 e1 tokens 20 first 0 pages 2-3 0x00100000 tail 0 group 0\n"
                        "timer 0 at 1000000\n");
    lone_run_dry(&node);
    assert_calls(&node, "send n0 first_token r1 produced 1\n"
                        "launch 2 x2 g0 decode 1/20 join r1 @20\n"
                        "send n0 finished r1 produced 3\n");
}

static void test_what_is_cached_counts_as_nothing(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {7, 8};
    cluster.config[DECODER].scheduler.prefix_cache = 1;
    begin_decoder(10);
    request(1, 70, 1, blocks, 2);
    lone_immediate(&node, 0x00100000, 20);
    lone_run_dry(&node);
    lone_forget(&node);
    request(2, 74, 1, blocks, 2); /* 10 beyond the blocks */
    assert_calls(&node, "send n0 prefilled r2\n"
                        "launch 2 x1 g0 prefill 1/10+64 leave r1 chunk r2 64+10\n");
    request(3, 75, 1, blocks, 2);
    assert_calls(&node, "expect 0x00200000 4\n"
                        "send n1 prefill r3 e2 tokens 74 first 64 pages 5 0x00200000 tail 0 group 0\n");
}

/* Nine pages. The older is served first, in whichever line it waits: r3, which would have room, does not overtake r2,
 * nor r5 r4. */
static void test_neither_line_overtakes(void **state)
{
    (void)state;
    cluster.config[DECODER].pages_per_group = 9;
    begin_decoder(50);
    request(1, 60, 20, NULL, 0); /* five pages */
    lone_immediate(&node, 0x00100000, 16);
    request(2, 50, 40, NULL, 0); /* five, here */
    lone_steps_done(&node, 1);
    request(3, 51, 2, NULL, 0); /* four */
    assert_calls(&node, "expect 0x00100000 16\n"
                        "send n1 prefill r1 e1 tokens 59 first 0 pages 0-3 0x00100000 tail 0 group 0\n"
                        "timer 0 at 1000000\n"
                        "launch 1 x1 g0 decode 1/59 join r1 @59\n"
                        "send n0 prefilled r2\n"
                        "send n0 first_token r1 produced 1\n"
                        "launch 2 x19 g0 decode 1/60\n");
    lone_steps_done(&node, 19); /* r1 ends */
    assert_calls(&node, "send n0 finished r1 produced 20\n"
                        "launch 3 x1 g0 prefill 1/50+0 leave r1 chunk r2 0+50\n");
    request(4, 60, 20, NULL, 0); /* five */
    request(5, 10, 1, NULL, 0);  /* one, here */
    lone_immediate(&node, 0x00200000, 16);
    lone_steps_done(&node, 1);
    lone_steps_done(&node, 1);
    lone_steps_done(&node, 1); /* r3 ends */
    assert_calls(&node, "expect 0x00200000 16\n"
                        "send n1 prefill r3 e2 tokens 50 first 0 pages 5-8 0x00200000 tail 0 group 0\n"
                        "send n0 prefilled r5\n"
                        "send n0 first_token r2 produced 1\n"
                        "launch 4 x1 g0 decode 2/100 join r3 @50 join r2 @50\n"
                        "send n0 first_token r3 produced 1\n"
                        "launch 5 x1 g0 decode 2/102\n"
                        "send n0 finished r3 produced 2\n"
                        "launch 6 x28 g0 decode 1/52 leave r3\n");
    lone_run_dry(&node); /* r2 */
    assert_calls(&node, "launch 7 x9 g0 decode 1/80 pages r2 5+1\n"
                        "send n0 finished r2 produced 40\n"
                        "expect 0x00300000 16\n"
                        "send n1 prefill r4 e3 tokens 59 first 0 pages 0-3 0x00300000 tail 0 group 0\n"
                        "launch 8 x1 g0 prefill 1/10+0 leave r2 chunk r5 0+10\n"
                        "send n0 first_token r5 produced 1\n"
                        "send n0 finished r5 produced 1\n");
}

static void test_what_is_preempted_is_computed_here(void **state)
{
    (void)state;
    cluster.config[DECODER].tail_writes = 1; /* whose slot is taken until the first step */
    cluster.config[DECODER].tail_bytes = 64;
    cluster.config[DECODER].pages_per_group = 5;
    cluster.config[DECODER].scheduler.batch_max = 1;
    cluster.config[DECODER].messenger.handoffs_max = 2;
    begin_decoder(1);
    request(1, 17, 40, NULL, 0);
    request(2, 17, 2, NULL, 0);
    lone_immediate(&node, 0x00100000, 5);
    lone_immediate(&node, 0x00100001, 5);
    lone_run_dry(&node);
    lone_forget(&node);
    request(3, 17, 2, NULL, 0); /* both slots are free again */
    request(4, 17, 2, NULL, 0);
    assert_calls(&node, "expect 0x00200001 5\n"
                        "send n1 prefill r3 e3 tokens 16 first 0 pages 0 0x00200001 tail 1 group 0\n"
                        "expect 0x00200000 5\n"
                        "send n1 prefill r4 e4 tokens 16 first 0 pages 4 0x00200000 tail 0 group 0\n");
}

/* ---- The front --------------------------------------------------------------------------------------------------- */

static void test_a_queue_as_long_as_the_threshold_is_long(void **state)
{
    (void)state;
    begin_front((struct conditional_policy){.max_prefill_queue_size = 2}, false);
    arrive(1, 100);
    arrive(2, 100);
    arrive(3, 100);
    report(PREFILLER, MESSAGE_PREFILLED, 1);
    arrive(4, 100);
    assert_calls(&node, "trace arrived r1 100 3\n"
                        "trace routed r1 2 1\n"
                        "send n2 request r1 to n1 attempt 0 produced 0\n"
                        "trace arrived r2 100 3\n"
                        "trace routed r2 2 1\n"
                        "send n2 request r2 to n1 attempt 0 produced 0\n"
                        "trace arrived r3 100 3\n"
                        "trace routed r3 2 2\n"
                        "send n2 request r3 to n2 attempt 0 produced 0\n"
                        "trace arrived r4 100 3\n"
                        "trace routed r4 2 1\n"
                        "send n2 request r4 to n1 attempt 0 produced 0\n");
}

static void test_what_a_decoder_keeps_waits_nowhere(void **state)
{
    (void)state;
    begin_front((struct conditional_policy){.max_local_prefill_length = 10, .max_prefill_queue_size = 1}, false);
    arrive(1, 10);
    arrive(2, 100);
    report(DECODER, MESSAGE_PREFILLED, 2);
    arrive(3, 100);
    assert_calls(&node, "trace arrived r1 10 3\n"
                        "trace routed r1 2 2\n"
                        "send n2 request r1 to n2 attempt 0 produced 0\n"
                        "trace arrived r2 100 3\n"
                        "trace routed r2 2 1\n"
                        "send n2 request r2 to n1 attempt 0 produced 0\n"
                        "trace arrived r3 100 3\n"
                        "trace routed r3 2 1\n"
                        "send n2 request r3 to n1 attempt 0 produced 0\n");
}

static void test_without_a_prefiller_decoders_are_alone(void **state)
{
    (void)state;
    begin_front((struct conditional_policy){.max_local_prefill_length = 10}, false);
    lone_peer_lost(&node, PREFILLER, PEER_FENCED, 0);
    arrive(1, 100);
    lone_peer_lost(&node, DECODER, PEER_FENCED, 0);
    arrive(2, 100);
    assert_calls(&node, "trace peer_lost 1 0\n"
                        "trace arrived r1 100 3\n"
                        "trace routed r1 2 2\n"
                        "send n2 request r1 to n2 attempt 0 produced 0\n"
                        "trace peer_lost 2 0\n"
                        "trace failed r1 1 0\n"
                        "trace arrived r2 100 3\n"
                        "trace rejected r2 6 0\n");
}

static void test_mixed_instances_take_what_is_too_much(void **state)
{
    (void)state;
    cluster.config[FRONT].pending_tokens_max = 150;
    begin_front((struct conditional_policy){0}, true);
    arrive(1, 100);
    arrive(2, 50);
    arrive(3, 1);   /* 151 where it would be computed */
    arrive(4, 200); /* too much everywhere: where less waits */
    report(PREFILLER, MESSAGE_PREFILLED, 1);
    arrive(5, 100);
    assert_calls(&node, "trace arrived r1 100 3\n"
                        "trace routed r1 2 1\n"
                        "send n2 request r1 to n1 attempt 0 produced 0\n"
                        "trace arrived r2 50 3\n"
                        "trace routed r2 2 1\n"
                        "send n2 request r2 to n1 attempt 0 produced 0\n"
                        "trace arrived r3 1 3\n"
                        "trace routed r3 4 4\n"
                        "send n4 request r3 to n4 attempt 0 produced 0\n"
                        "trace arrived r4 200 3\n"
                        "trace routed r4 4 4\n"
                        "send n4 request r4 to n4 attempt 0 produced 0\n"
                        "trace arrived r5 100 3\n"
                        "trace routed r5 2 1\n"
                        "send n2 request r5 to n1 attempt 0 produced 0\n");
    report(MIXED, MESSAGE_FINISHED, 3);
    report(MIXED, MESSAGE_FINISHED, 4);
    arrive(6, 900); /* all pages are free there, but some are promised at the decoder */
    assert_calls(&node, "trace arrived r6 900 3\n"
                        "trace routed r6 4 4\n"
                        "send n4 request r6 to n4 attempt 0 produced 0\n");
    lone_peer_lost(&node, MIXED, PEER_FENCED, 0);
    lone_forget(&node);
    arrive(7, 900);
    assert_calls(&node, "trace arrived r7 900 3\n"
                        "trace routed r7 2 1\n"
                        "send n2 request r7 to n1 attempt 0 produced 0\n");
    lone_peer_lost(&node, PREFILLER, PEER_FENCED, 0);
    lone_hello(&node, MIXED, 1);
    lone_forget(&node);
    arrive(8, 10);
    assert_calls(&node, "trace arrived r8 10 3\n"
                        "trace routed r8 4 4\n"
                        "send n4 request r8 to n4 attempt 0 produced 0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_short_is_computed_here, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_cached_counts_as_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_neither_line_overtakes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_preempted_is_computed_here, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_queue_as_long_as_the_threshold_is_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_decoder_keeps_waits_nowhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_prefiller_decoders_are_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mixed_instances_take_what_is_too_much, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
