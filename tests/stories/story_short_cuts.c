/* Requests that need less than others, and pass over states. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

/* One token to prefill is none to fetch: it needs no prefiller, only a place in the batch. */
static void nothing_to_fetch_and_a_step_is_running(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].scheduler.batch_max = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 1, 3);
    cluster_prompt(&cluster, 10, 2, 1, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 1 3\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  dispatched r1 1 0\n"
                           "     5.000 decode-2  ready r1 0 0\n"
                           "     5.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "     5.000 decode-2  decode_started r1 0 0\n"
                           "    10.000 front     arrived r2 1 1\n"
                           "    10.000 front     routed r2 2 1\n"
                           "    15.000 decode-2  received r2 0 0\n"
                           "    15.000 decode-2  dispatched r2 1 0\n"
                           "    15.000 decode-2  ready r2 0 0\n"
                           "    25.000 decode-2  first_token r1 0 0\n"
                           "    65.000 decode-2  finished r1 3 0\n"
                           "    65.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    65.000 decode-2  decode_started r2 0 0\n"
                           "    85.000 decode-2  first_token r2 0 0\n"
                           "    85.000 decode-2  finished r2 1 0\n");
    cluster_free(&cluster);
}

/* ... or pages, when the first has given them back. */
static void nothing_to_fetch_and_no_pages(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 1, 3);
    cluster_prompt(&cluster, 10, 2, 1, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 1 3\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  dispatched r1 1 0\n"
                           "     5.000 decode-2  ready r1 0 0\n"
                           "     5.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "     5.000 decode-2  decode_started r1 0 0\n"
                           "    10.000 front     arrived r2 1 1\n"
                           "    10.000 front     routed r2 2 1\n"
                           "    15.000 decode-2  received r2 0 0\n"
                           "    15.000 decode-2  admit_wait r2 1 0\n"
                           "    25.000 decode-2  first_token r1 0 0\n"
                           "    65.000 decode-2  finished r1 3 0\n"
                           "    65.000 decode-2  dispatched r2 1 0\n"
                           "    65.000 decode-2  ready r2 0 0\n"
                           "    65.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    65.000 decode-2  decode_started r2 0 0\n"
                           "    85.000 decode-2  first_token r2 0 0\n"
                           "    85.000 decode-2  finished r2 1 0\n");
    cluster_free(&cluster);
}

/* ... and when it has a page there is still no place in the batch. */
static void nothing_to_fetch_no_pages_and_a_full_batch(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 2;
    config.nodes[2].scheduler.batch_max = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 1, 3);
    cluster_prompt(&cluster, 10, 2, 1, 1);
    cluster_prompt(&cluster, 20, 3, 1, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 1 3\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  dispatched r1 1 0\n"
                           "     5.000 decode-2  ready r1 0 0\n"
                           "     5.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "     5.000 decode-2  decode_started r1 0 0\n"
                           "    10.000 front     arrived r2 1 1\n"
                           "    10.000 front     routed r2 2 1\n"
                           "    15.000 decode-2  received r2 0 0\n"
                           "    15.000 decode-2  dispatched r2 1 0\n"
                           "    15.000 decode-2  ready r2 0 0\n"
                           "    20.000 front     arrived r3 1 1\n"
                           "    20.000 front     routed r3 2 1\n"
                           "    25.000 decode-2  received r3 0 0\n"
                           "    25.000 decode-2  admit_wait r3 1 0\n"
                           "    25.000 decode-2  first_token r1 0 0\n"
                           "    65.000 decode-2  finished r1 3 0\n"
                           "    65.000 decode-2  dispatched r3 1 0\n"
                           "    65.000 decode-2  ready r3 0 0\n"
                           "    65.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    65.000 decode-2  decode_started r2 0 0\n"
                           "    85.000 decode-2  first_token r2 0 0\n"
                           "    85.000 decode-2  finished r2 1 0\n"
                           "    85.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    85.000 decode-2  decode_started r3 0 0\n"
                           "   105.000 decode-2  first_token r3 0 0\n"
                           "   105.000 decode-2  finished r3 1 0\n");
    cluster_free(&cluster);
}

/* The same prompt three times, and messages that are slower than writes. */
static void make_slow_messages(void)
{
    struct cluster_config config = cluster_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101};
    struct request_spec request = {.prompt_tokens = 33,
                                   .output_tokens = 3,
                                   .block_count = 1,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[1].scheduler.prefix_cache = 1;
    config.message_ns = 100000;
    cluster_make(&cluster, &config);
    cluster_arrives(&cluster, 0, &request);
    request.id = 1;
    cluster_arrives(&cluster, 1000, &request);
    request.id = 2;
    cluster_arrives(&cluster, 1020, &request);
}

/* All of the prompt is cached at the prefiller: the count is reached before the acceptance is heard. */
static void ready_before_accepted(void **state)
{
    (void)state;
    make_slow_messages();
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r0 33 3\n"
                           "     0.000 front     routed r0 2 1\n"
                           "   100.000 decode-2  received r0 0 0\n"
                           "   100.000 decode-2  armed r0 0x00100000 16\n"
                           "   100.000 decode-2  dispatched r0 1 16\n"
                           "   200.000 prefill-1 accepted r0 1 0\n"
                           "   200.000 prefill-1 prefill_started r0 1 0\n"
                           "   200.000 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "   200.000 prefill-1 chunk r0 0+32\n"
                           "   200.000 prefill-1 write r0 units 0+2 epoch 1\n"
                           "   232.000 prefill-1 prefill_finished r0 1 0\n"
                           "   238.824 decode-2  ready r0 1 0\n"
                           "   238.824 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   238.824 decode-2  decode_started r0 0 0\n"
                           "   239.824 prefill-1 drained r0 1 0\n"
                           "   258.824 decode-2  first_token r0 0 0\n"
                           "   298.824 decode-2  finished r0 3 0\n"
                           "   300.000 decode-2  late r0 1 10\n"
                           "  1000.000 front     arrived r1 33 3\n"
                           "  1000.000 front     routed r1 2 1\n"
                           "  1020.000 front     arrived r2 33 3\n"
                           "  1020.000 front     routed r2 2 1\n"
                           "  1100.000 decode-2  received r1 0 0\n"
                           "  1100.000 decode-2  armed r1 0x00200000 16\n"
                           "  1100.000 decode-2  dispatched r1 1 16\n"
                           "  1120.000 decode-2  received r2 0 0\n"
                           "  1120.000 decode-2  armed r2 0x00100001 16\n"
                           "  1120.000 decode-2  dispatched r2 1 16\n"
                           "  1200.000 prefill-1 accepted r1 2 0\n"
                           "  1200.000 prefill-1 prefix_hit r1 32 0\n"
                           "  1200.000 prefill-1 prefill_started r1 2 32\n"
                           "  1200.000 prefill-1 write r1 units 0+2 epoch 2\n"
                           "  1200.000 prefill-1 prefill_finished r1 2 0\n"
                           "  1215.796 decode-2  ready r1 2 0\n"
                           "  1215.796 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1215.796 decode-2  decode_started r1 0 0\n"
                           "  1216.796 prefill-1 drained r1 2 0\n"
                           "  1220.000 prefill-1 accepted r2 3 0\n"
                           "  1220.000 prefill-1 prefix_hit r2 32 0\n"
                           "  1220.000 prefill-1 prefill_started r2 3 32\n"
                           "  1220.000 prefill-1 write r2 units 0+2 epoch 3\n"
                           "  1220.000 prefill-1 prefill_finished r2 3 0\n"
                           "  1235.796 decode-2  ready r2 3 0\n"
                           "  1235.796 decode-2  first_token r1 0 0\n"
                           "  1235.796 decode-2  batch group 0 decode 2 prefill 0\n"
                           "  1235.796 decode-2  decode_started r2 0 0\n"
                           "  1236.796 prefill-1 drained r2 3 0\n"
                           "  1255.796 decode-2  first_token r2 0 0\n"
                           "  1275.796 decode-2  finished r1 3 0\n"
                           "  1275.796 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1295.796 decode-2  finished r2 3 0\n"
                           "  1300.000 decode-2  late r1 2 10\n"
                           "  1320.000 decode-2  late r2 3 10\n");
    cluster_free(&cluster);
}

/* Cached, too, but accepted while a step is running. */
static void cached_and_queued(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101};
    struct request_spec request = {.prompt_tokens = 33,
                                   .output_tokens = 1,
                                   .block_count = 1,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[1].scheduler.prefix_cache = 1;
    cluster_make(&cluster, &config);
    cluster_arrives(&cluster, 0, &request);
    cluster_prompt(&cluster, 200, 1, 65, 1);
    request.id = 2;
    cluster_arrives(&cluster, 220, &request);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r0 33 1\n"
                           "     0.000 front     routed r0 2 1\n"
                           "     5.000 decode-2  received r0 0 0\n"
                           "     5.000 decode-2  armed r0 0x00100000 16\n"
                           "     5.000 decode-2  dispatched r0 1 16\n"
                           "    10.000 prefill-1 accepted r0 1 0\n"
                           "    10.000 prefill-1 prefill_started r0 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "    10.000 prefill-1 chunk r0 0+32\n"
                           "    10.000 prefill-1 write r0 units 0+2 epoch 1\n"
                           "    42.000 prefill-1 prefill_finished r0 1 0\n"
                           "    48.824 decode-2  ready r0 1 0\n"
                           "    48.824 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    48.824 decode-2  decode_started r0 0 0\n"
                           "    49.824 prefill-1 drained r0 1 0\n"
                           "    68.824 decode-2  first_token r0 0 0\n"
                           "    68.824 decode-2  finished r0 1 0\n"
                           "   200.000 front     arrived r1 65 1\n"
                           "   200.000 front     routed r1 2 1\n"
                           "   205.000 decode-2  received r1 0 0\n"
                           "   205.000 decode-2  armed r1 0x00200000 32\n"
                           "   205.000 decode-2  dispatched r1 1 32\n"
                           "   210.000 prefill-1 accepted r1 2 0\n"
                           "   210.000 prefill-1 prefill_started r1 2 0\n"
                           "   210.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "   210.000 prefill-1 chunk r1 0+64\n"
                           "   210.000 prefill-1 write r1 units 0+4 epoch 2\n"
                           "   220.000 front     arrived r2 33 1\n"
                           "   220.000 front     routed r2 2 1\n"
                           "   225.000 decode-2  received r2 0 0\n"
                           "   225.000 decode-2  armed r2 0x00100001 16\n"
                           "   225.000 decode-2  dispatched r2 1 16\n"
                           "   230.000 prefill-1 accepted r2 3 0\n"
                           "   274.000 prefill-1 prefill_finished r1 2 0\n"
                           "   274.000 prefill-1 prefix_hit r2 32 0\n"
                           "   274.000 prefill-1 prefill_started r2 3 32\n"
                           "   274.000 prefill-1 write r2 units 0+2 epoch 3\n"
                           "   274.000 prefill-1 prefill_finished r2 3 0\n"
                           "   290.796 decode-2  ready r1 2 0\n"
                           "   290.796 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   290.796 decode-2  decode_started r1 0 0\n"
                           "   291.796 prefill-1 drained r1 2 0\n"
                           "   296.859 decode-2  ready r2 3 0\n"
                           "   297.859 prefill-1 drained r2 3 0\n"
                           "   310.796 decode-2  first_token r1 0 0\n"
                           "   310.796 decode-2  finished r1 1 0\n"
                           "   310.796 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   310.796 decode-2  decode_started r2 0 0\n"
                           "   330.796 decode-2  first_token r2 0 0\n"
                           "   330.796 decode-2  finished r2 1 0\n");
    cluster_free(&cluster);
}

/* The pool is short, and the youngest has its KV but no place in the batch yet. */
static void preempted_before_it_decoded(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 4;
    config.nodes[2].scheduler.batch_max = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 30);
    cluster_prompt(&cluster, 1, 2, 17, 4);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 30\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 4\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 8\n"
                           "     5.000 decode-2  dispatched r1 1 8\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  armed r2 0x00100001 8\n"
                           "     6.000 decode-2  dispatched r2 1 8\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    10.000 prefill-1 chunk r1 0+16\n"
                           "    10.000 prefill-1 write r1 units 0+1 epoch 1\n"
                           "    11.000 prefill-1 accepted r2 2 0\n"
                           "    26.000 prefill-1 prefill_finished r1 1 0\n"
                           "    26.000 prefill-1 prefill_started r2 2 0\n"
                           "    26.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    26.000 prefill-1 chunk r2 0+16\n"
                           "    26.000 prefill-1 write r2 units 0+1 epoch 2\n"
                           "    31.162 decode-2  ready r1 1 0\n"
                           "    31.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    31.162 decode-2  decode_started r1 0 0\n"
                           "    32.162 prefill-1 drained r1 1 0\n"
                           "    42.000 prefill-1 prefill_finished r2 2 0\n"
                           "    47.162 decode-2  ready r2 2 0\n"
                           "    48.162 prefill-1 drained r2 2 0\n"
                           "    51.162 decode-2  first_token r1 0 0\n"
                           "   351.162 decode-2  preempted r2 16 0\n"
                           "   351.162 decode-2  admit_wait r2 2 1\n"
                           "   631.162 decode-2  finished r1 30 0\n"
                           "   631.162 decode-2  armed r2 0x00200001 8\n"
                           "   631.162 decode-2  dispatched r2 1 8\n"
                           "   636.162 prefill-1 accepted r2 3 0\n"
                           "   636.162 prefill-1 prefill_started r2 3 0\n"
                           "   636.162 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "   636.162 prefill-1 chunk r2 0+16\n"
                           "   636.162 prefill-1 write r2 units 0+1 epoch 3\n"
                           "   652.162 prefill-1 prefill_finished r2 3 0\n"
                           "   657.324 decode-2  ready r2 3 0\n"
                           "   657.324 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   657.324 decode-2  decode_started r2 0 0\n"
                           "   658.324 prefill-1 drained r2 3 0\n"
                           "   677.324 decode-2  first_token r2 0 0\n"
                           "   737.324 decode-2  finished r2 4 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_fetch_and_a_step_is_running),
        cmocka_unit_test(nothing_to_fetch_and_no_pages),
        cmocka_unit_test(nothing_to_fetch_no_pages_and_a_full_batch),
        cmocka_unit_test(ready_before_accepted),
        cmocka_unit_test(cached_and_queued),
        cmocka_unit_test(preempted_before_it_decoded),
    };
    return run_stories(argc, argv, tests);
}
