/* A decoder computes some prompts itself: short ones, those of which enough is cached, those whose prefiller has a long
 * queue or is lost, and what it has preempted. And a mixed instance beside a pair that has too much to do. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static struct cluster_config conditional(uint32_t max_local_prefill_length, uint32_t max_prefill_queue_size)
{
    struct cluster_config config = cluster_config_of(1, 1, 0);
    for (uint32_t i = 0; i < config.node_count; i++)
        config.nodes[i].conditional = (struct conditional_policy){max_local_prefill_length, max_prefill_queue_size};
    return config;
}

static void a_short_prompt_stays(void **state)
{
    (void)state;
    struct cluster_config config = conditional(32, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 20, 3);
    cluster_prompt(&cluster, 1, 2, 40, 2);
    cluster_prompt(&cluster, 2, 3, 10, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 20 3\n"
                           "     0.000 front     routed r1 2 2\n"
                           "     1.000 front     arrived r2 40 2\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     2.000 front     arrived r3 10 1\n"
                           "     2.000 front     routed r3 2 2\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  dispatched r1 2 0\n"
                           "     5.000 decode-2  prefill_started r1 0 0\n"
                           "     5.000 decode-2  batch group 0 decode 0 prefill 20\n"
                           "     5.000 decode-2  chunk r1 0+20\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  armed r2 0x00100000 24\n"
                           "     6.000 decode-2  dispatched r2 1 24\n"
                           "     7.000 decode-2  received r3 0 0\n"
                           "     7.000 decode-2  dispatched r3 2 0\n"
                           "    11.000 prefill-1 accepted r2 1 0\n"
                           "    11.000 prefill-1 prefill_started r2 1 0\n"
                           "    11.000 prefill-1 batch group 0 decode 0 prefill 39\n"
                           "    11.000 prefill-1 chunk r2 0+39\n"
                           "    11.000 prefill-1 write r2 units 0+3 epoch 1\n"
                           "    25.000 decode-2  prefill_finished r1 0 0\n"
                           "    25.000 decode-2  ready r1 0 0\n"
                           "    25.000 decode-2  decode_started r1 0 0\n"
                           "    25.000 decode-2  first_token r1 0 0\n"
                           "    25.000 decode-2  prefill_started r3 0 0\n"
                           "    25.000 decode-2  batch group 0 decode 1 prefill 10\n"
                           "    25.000 decode-2  chunk r3 0+10\n"
                           "    50.000 prefill-1 prefill_finished r2 1 0\n"
                           "    55.000 decode-2  prefill_finished r3 0 0\n"
                           "    55.000 decode-2  ready r3 0 0\n"
                           "    55.000 decode-2  decode_started r3 0 0\n"
                           "    55.000 decode-2  first_token r3 0 0\n"
                           "    55.000 decode-2  finished r3 1 0\n"
                           "    55.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    58.486 decode-2  ready r2 1 0\n"
                           "    59.486 prefill-1 drained r2 1 0\n"
                           "    75.000 decode-2  finished r1 3 0\n"
                           "    75.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    75.000 decode-2  decode_started r2 0 0\n"
                           "    95.000 decode-2  first_token r2 0 0\n"
                           "   115.000 decode-2  finished r2 2 0\n");
    cluster_free(&cluster);
}

static void a_long_queue(void **state)
{
    (void)state;
    struct cluster_config config = conditional(0, 1);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 40, 2);
    cluster_prompt(&cluster, 1, 2, 40, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 40 2\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 40 2\n"
                           "     1.000 front     routed r2 2 2\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 24\n"
                           "     5.000 decode-2  dispatched r1 1 24\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  dispatched r2 2 0\n"
                           "     6.000 decode-2  prefill_started r2 0 0\n"
                           "     6.000 decode-2  batch group 0 decode 0 prefill 40\n"
                           "     6.000 decode-2  chunk r2 0+40\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 39\n"
                           "    10.000 prefill-1 chunk r1 0+39\n"
                           "    10.000 prefill-1 write r1 units 0+3 epoch 1\n"
                           "    46.000 decode-2  prefill_finished r2 0 0\n"
                           "    46.000 decode-2  ready r2 0 0\n"
                           "    46.000 decode-2  decode_started r2 0 0\n"
                           "    46.000 decode-2  first_token r2 0 0\n"
                           "    46.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    49.000 prefill-1 prefill_finished r1 1 0\n"
                           "    57.486 decode-2  ready r1 1 0\n"
                           "    58.486 prefill-1 drained r1 1 0\n"
                           "    66.000 decode-2  finished r2 2 0\n"
                           "    66.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    66.000 decode-2  decode_started r1 0 0\n"
                           "    86.000 decode-2  first_token r1 0 0\n"
                           "   106.000 decode-2  finished r1 2 0\n");
    cluster_free(&cluster);
}

static void enough_is_cached(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {11, 12, 13};
    struct request_spec first = {
        .id = 1, .prompt_tokens = 100, .output_tokens = 2, .block_count = 3, .block_tokens = 32, .blocks = blocks};
    struct request_spec second = first;
    second.id = 2;
    struct cluster_config config = conditional(10, 0);
    for (uint32_t i = 1; i < config.node_count; i++)
        config.nodes[i].scheduler.prefix_cache = 1;
    cluster_make(&cluster, &config);
    cluster_arrives(&cluster, 0, &first);
    cluster_arrives(&cluster, 1000, &second);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 100 2\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 56\n"
                           "     5.000 decode-2  dispatched r1 1 56\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r1 0+64\n"
                           "    10.000 prefill-1 write r1 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "    74.000 prefill-1 chunk r1 64+35\n"
                           "    74.000 prefill-1 write r1 units 4+3 epoch 1\n"
                           "   109.000 prefill-1 prefill_finished r1 1 0\n"
                           "   117.486 decode-2  ready r1 1 0\n"
                           "   117.486 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   117.486 decode-2  decode_started r1 0 0\n"
                           "   118.486 prefill-1 drained r1 1 0\n"
                           "   137.486 decode-2  first_token r1 0 0\n"
                           "   157.486 decode-2  finished r1 2 0\n"
                           "  1000.000 front     arrived r2 100 2\n"
                           "  1000.000 front     routed r2 2 1\n"
                           "  1005.000 decode-2  received r2 0 0\n"
                           "  1005.000 decode-2  dispatched r2 2 0\n"
                           "  1005.000 decode-2  prefix_hit r2 96 0\n"
                           "  1005.000 decode-2  prefill_started r2 0 96\n"
                           "  1005.000 decode-2  batch group 0 decode 0 prefill 4\n"
                           "  1005.000 decode-2  chunk r2 96+4\n"
                           "  1009.000 decode-2  prefill_finished r2 0 0\n"
                           "  1009.000 decode-2  ready r2 0 0\n"
                           "  1009.000 decode-2  decode_started r2 0 0\n"
                           "  1009.000 decode-2  first_token r2 0 0\n"
                           "  1009.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1029.000 decode-2  finished r2 2 0\n");
    cluster_free(&cluster);
}

static void clients_leave(void **state)
{
    (void)state;
    struct cluster_config config = conditional(100, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 100, 2);
    cluster_prompt(&cluster, 1, 2, 100, 2);
    cluster_prompt(&cluster, 2, 3, 100, 2);
    cluster_aborts(&cluster, 20, 3); /* queued */
    cluster_aborts(&cluster, 30, 1); /* in a step */
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 100 2\n"
                           "     0.000 front     routed r1 2 2\n"
                           "     1.000 front     arrived r2 100 2\n"
                           "     1.000 front     routed r2 2 2\n"
                           "     2.000 front     arrived r3 100 2\n"
                           "     2.000 front     routed r3 2 2\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  dispatched r1 2 0\n"
                           "     5.000 decode-2  prefill_started r1 0 0\n"
                           "     5.000 decode-2  batch group 0 decode 0 prefill 64\n"
                           "     5.000 decode-2  chunk r1 0+64\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  dispatched r2 2 0\n"
                           "     7.000 decode-2  received r3 0 0\n"
                           "     7.000 decode-2  dispatched r3 2 0\n"
                           "    30.000 front     aborted r3 4 0\n"
                           "    69.000 decode-2  prefill_started r2 0 0\n"
                           "    69.000 decode-2  batch group 0 decode 0 prefill 64\n"
                           "    69.000 decode-2  chunk r2 0+64\n"
                           "    74.000 front     aborted r1 4 0\n"
                           "   133.000 decode-2  batch group 0 decode 0 prefill 36\n"
                           "   133.000 decode-2  chunk r2 64+36\n"
                           "   169.000 decode-2  prefill_finished r2 0 0\n"
                           "   169.000 decode-2  ready r2 0 0\n"
                           "   169.000 decode-2  decode_started r2 0 0\n"
                           "   169.000 decode-2  first_token r2 0 0\n"
                           "   169.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   189.000 decode-2  finished r2 2 0\n");
    cluster_free(&cluster);
}

static void the_youngest_recomputes_where_it_is(void **state)
{
    (void)state;
    struct cluster_config config = conditional(0, 9);
    config.nodes[2].pages_per_group = 5;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 40);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 40\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 20\n"
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
                           "    51.162 decode-2  batch group 0 decode 2 prefill 0\n"
                           "    51.162 decode-2  decode_started r2 0 0\n"
                           "    71.162 decode-2  first_token r2 0 0\n"
                           "   371.162 decode-2  preempted r2 33 0\n"
                           "   371.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   831.162 decode-2  finished r1 40 0\n"
                           "   831.162 decode-2  prefill_started r2 0 0\n"
                           "   831.162 decode-2  batch group 0 decode 0 prefill 33\n"
                           "   831.162 decode-2  chunk r2 0+33\n"
                           "   864.162 decode-2  prefill_finished r2 0 0\n"
                           "   864.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   924.162 decode-2  finished r2 20 0\n");
    cluster_free(&cluster);
}

/* r1 holds what r2 waits for, and r3, which is younger, does not overtake it from the other line. */
static void neither_line_overtakes(void **state)
{
    (void)state;
    struct cluster_config config = conditional(64, 0);
    config.nodes[2].pages_per_group = 9;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 60, 20);
    cluster_prompt(&cluster, 10, 2, 64, 2);
    cluster_prompt(&cluster, 20, 3, 70, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 60 20\n"
                           "     0.000 front     routed r1 2 2\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  dispatched r1 2 0\n"
                           "     5.000 decode-2  prefill_started r1 0 0\n"
                           "     5.000 decode-2  batch group 0 decode 0 prefill 60\n"
                           "     5.000 decode-2  chunk r1 0+60\n"
                           "    10.000 front     arrived r2 64 2\n"
                           "    10.000 front     routed r2 2 2\n"
                           "    15.000 decode-2  received r2 0 0\n"
                           "    15.000 decode-2  dispatched r2 2 0\n"
                           "    20.000 front     arrived r3 70 2\n"
                           "    20.000 front     routed r3 2 1\n"
                           "    25.000 decode-2  received r3 0 0\n"
                           "    25.000 decode-2  admit_wait r3 5 4\n"
                           "    65.000 decode-2  prefill_finished r1 0 0\n"
                           "    65.000 decode-2  ready r1 0 0\n"
                           "    65.000 decode-2  decode_started r1 0 0\n"
                           "    65.000 decode-2  first_token r1 0 0\n"
                           "    65.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   445.000 decode-2  finished r1 20 0\n"
                           "   445.000 decode-2  prefill_started r2 0 0\n"
                           "   445.000 decode-2  batch group 0 decode 0 prefill 64\n"
                           "   445.000 decode-2  chunk r2 0+64\n"
                           "   509.000 decode-2  prefill_finished r2 0 0\n"
                           "   509.000 decode-2  ready r2 0 0\n"
                           "   509.000 decode-2  decode_started r2 0 0\n"
                           "   509.000 decode-2  first_token r2 0 0\n"
                           "   509.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   529.000 decode-2  finished r2 2 0\n"
                           "   529.000 decode-2  armed r3 0x00100000 40\n"
                           "   529.000 decode-2  dispatched r3 1 40\n"
                           "   534.000 prefill-1 accepted r3 1 0\n"
                           "   534.000 prefill-1 prefill_started r3 1 0\n"
                           "   534.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "   534.000 prefill-1 chunk r3 0+64\n"
                           "   534.000 prefill-1 write r3 units 0+4 epoch 1\n"
                           "   598.000 prefill-1 batch group 0 decode 0 prefill 5\n"
                           "   598.000 prefill-1 chunk r3 64+5\n"
                           "   598.000 prefill-1 write r3 units 4+1 epoch 1\n"
                           "   603.000 prefill-1 prefill_finished r3 1 0\n"
                           "   614.796 decode-2  ready r3 1 0\n"
                           "   614.796 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   614.796 decode-2  decode_started r3 0 0\n"
                           "   615.796 prefill-1 drained r3 1 0\n"
                           "   634.796 decode-2  first_token r3 0 0\n"
                           "   654.796 decode-2  finished r3 2 0\n");
    cluster_free(&cluster);
}

static void the_prefiller_is_lost(void **state)
{
    (void)state;
    struct cluster_config config = conditional(10, 0);
    cluster_make(&cluster, &config);
    cluster_dies(&cluster, 0, 1);
    cluster_prompt(&cluster, 1000, 1, 40, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "   300.000 front     peer_lost 1 0\n"
                           "   300.000 decode-2  peer_lost 1 0\n"
                           "  1000.000 front     arrived r1 40 2\n"
                           "  1000.000 front     routed r1 2 2\n"
                           "  1005.000 decode-2  received r1 0 0\n"
                           "  1005.000 decode-2  dispatched r1 2 0\n"
                           "  1005.000 decode-2  prefill_started r1 0 0\n"
                           "  1005.000 decode-2  batch group 0 decode 0 prefill 40\n"
                           "  1005.000 decode-2  chunk r1 0+40\n"
                           "  1045.000 decode-2  prefill_finished r1 0 0\n"
                           "  1045.000 decode-2  ready r1 0 0\n"
                           "  1045.000 decode-2  decode_started r1 0 0\n"
                           "  1045.000 decode-2  first_token r1 0 0\n"
                           "  1045.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1065.000 decode-2  finished r1 2 0\n");
    cluster_free(&cluster);
}

/* When its prompt is computed, one that came from the prefiller meanwhile has the only place in the batch. */
static void the_batch_is_full(void **state)
{
    (void)state;
    struct cluster_config config = conditional(30, 0);
    config.nodes[2].scheduler.batch_max = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 31, 2);
    cluster_prompt(&cluster, 15, 2, 30, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 31 2\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 16\n"
                           "     5.000 decode-2  dispatched r1 1 16\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 30\n"
                           "    10.000 prefill-1 chunk r1 0+30\n"
                           "    10.000 prefill-1 write r1 units 0+2 epoch 1\n"
                           "    15.000 front     arrived r2 30 2\n"
                           "    15.000 front     routed r2 2 2\n"
                           "    20.000 decode-2  received r2 0 0\n"
                           "    20.000 decode-2  dispatched r2 2 0\n"
                           "    20.000 decode-2  prefill_started r2 0 0\n"
                           "    20.000 decode-2  batch group 0 decode 0 prefill 30\n"
                           "    20.000 decode-2  chunk r2 0+30\n"
                           "    40.000 prefill-1 prefill_finished r1 1 0\n"
                           "    46.824 decode-2  ready r1 1 0\n"
                           "    47.824 prefill-1 drained r1 1 0\n"
                           "    50.000 decode-2  prefill_finished r2 0 0\n"
                           "    50.000 decode-2  ready r2 0 0\n"
                           "    50.000 decode-2  decode_started r2 0 0\n"
                           "    50.000 decode-2  first_token r2 0 0\n"
                           "    50.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    50.000 decode-2  decode_started r1 0 0\n"
                           "    70.000 decode-2  first_token r1 0 0\n"
                           "    90.000 decode-2  finished r1 2 0\n"
                           "    90.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   110.000 decode-2  finished r2 2 0\n");
    cluster_free(&cluster);
}

/* It has its KV from the prefiller, waits for a place in the batch, and loses its pages to an older one. */
static void preempted_before_it_decoded(void **state)
{
    (void)state;
    struct cluster_config config = conditional(0, 9);
    config.nodes[2].pages_per_group = 5;
    config.nodes[2].scheduler.batch_max = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 40);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 40\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 20\n"
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
                           "   671.162 decode-2  preempted r2 17 0\n"
                           "   831.162 decode-2  finished r1 40 0\n"
                           "   831.162 decode-2  prefill_started r2 0 0\n"
                           "   831.162 decode-2  batch group 0 decode 0 prefill 17\n"
                           "   831.162 decode-2  chunk r2 0+17\n"
                           "   848.162 decode-2  prefill_finished r2 0 0\n"
                           "   848.162 decode-2  ready r2 0 0\n"
                           "   848.162 decode-2  decode_started r2 0 0\n"
                           "   848.162 decode-2  first_token r2 0 0\n"
                           "   848.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1228.162 decode-2  finished r2 20 0\n");
    cluster_free(&cluster);
}

static void a_mixed_instance_beside_them(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 1);
    config.nodes[0].pending_tokens_max = 50;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 40, 2);
    cluster_prompt(&cluster, 1, 2, 40, 2); /* too much beside r1 */
    cluster_prompt(&cluster, 2, 3, 10, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 40 2\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 40 2\n"
                           "     1.000 front     routed r2 3 3\n"
                           "     2.000 front     arrived r3 10 2\n"
                           "     2.000 front     routed r3 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 24\n"
                           "     5.000 decode-2  dispatched r1 1 24\n"
                           "     6.000 mixed-3   received r2 0 0\n"
                           "     6.000 mixed-3   dispatched r2 3 0\n"
                           "     6.000 mixed-3   prefill_started r2 0 0\n"
                           "     6.000 mixed-3   batch group 0 decode 0 prefill 40\n"
                           "     6.000 mixed-3   chunk r2 0+40\n"
                           "     7.000 decode-2  received r3 0 0\n"
                           "     7.000 decode-2  armed r3 0x00100001 8\n"
                           "     7.000 decode-2  dispatched r3 1 8\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 39\n"
                           "    10.000 prefill-1 chunk r1 0+39\n"
                           "    10.000 prefill-1 write r1 units 0+3 epoch 1\n"
                           "    12.000 prefill-1 accepted r3 2 0\n"
                           "    46.000 mixed-3   prefill_finished r2 0 0\n"
                           "    46.000 mixed-3   ready r2 0 0\n"
                           "    46.000 mixed-3   decode_started r2 0 0\n"
                           "    46.000 mixed-3   first_token r2 0 0\n"
                           "    46.000 mixed-3   batch group 0 decode 1 prefill 0\n"
                           "    49.000 prefill-1 prefill_finished r1 1 0\n"
                           "    49.000 prefill-1 prefill_started r3 2 0\n"
                           "    49.000 prefill-1 batch group 0 decode 0 prefill 9\n"
                           "    49.000 prefill-1 chunk r3 0+9\n"
                           "    49.000 prefill-1 write r3 units 0+1 epoch 2\n"
                           "    58.000 prefill-1 prefill_finished r3 2 0\n"
                           "    60.222 decode-2  ready r1 1 0\n"
                           "    60.222 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    60.222 decode-2  decode_started r1 0 0\n"
                           "    61.222 prefill-1 drained r1 1 0\n"
                           "    64.134 decode-2  ready r3 2 0\n"
                           "    65.134 prefill-1 drained r3 2 0\n"
                           "    66.000 mixed-3   finished r2 2 0\n"
                           "    80.222 decode-2  first_token r1 0 0\n"
                           "    80.222 decode-2  batch group 0 decode 2 prefill 0\n"
                           "    80.222 decode-2  decode_started r3 0 0\n"
                           "   100.222 decode-2  first_token r3 0 0\n"
                           "   100.222 decode-2  finished r1 2 0\n"
                           "   100.222 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   120.222 decode-2  finished r3 2 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_prompt_stays),
        cmocka_unit_test(a_long_queue),
        cmocka_unit_test(enough_is_cached),
        cmocka_unit_test(clients_leave),
        cmocka_unit_test(the_youngest_recomputes_where_it_is),
        cmocka_unit_test(neither_line_overtakes),
        cmocka_unit_test(the_prefiller_is_lost),
        cmocka_unit_test(the_batch_is_full),
        cmocka_unit_test(preempted_before_it_decoded),
        cmocka_unit_test(a_mixed_instance_beside_them),
    };
    return run_stories(argc, argv, tests);
}
