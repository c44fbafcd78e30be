/* Unequal shards: the heads of a page go where they are needed, whoever holds them, and the count says how many writes
 * that is. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void two_ranks_prefill_for_one(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[1].geometry.parallelism.tensor = 2; /* a head each */
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 65, 2);
    cluster_run(&cluster);
    /* 4 pages, 4 layers, 2 planes, and a write from each of the two ranks: 64. */
    expect_trace(&cluster, "     0.000 front     arrived r7 65 2\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 64\n"
                           "     5.000 decode-2  dispatched r7 1 64\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 prefill_finished r7 1 0\n"
                           "    84.366 decode-2  ready r7 1 0\n"
                           "    84.366 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    84.366 decode-2  decode_started r7 0 0\n"
                           "    85.366 prefill-1 drained r7 1 0\n"
                           "   104.366 decode-2  first_token r7 0 0\n"
                           "   124.366 decode-2  finished r7 2 0\n");
    cluster_free(&cluster);
}

static void one_rank_prefills_for_two(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].geometry.parallelism.tensor = 2;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 65, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 65 2\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 64\n"
                           "     5.000 decode-2  dispatched r7 1 64\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 prefill_finished r7 1 0\n"
                           "    84.366 decode-2  ready r7 1 0\n"
                           "    84.366 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    84.366 decode-2  decode_started r7 0 0\n"
                           "    85.366 prefill-1 drained r7 1 0\n"
                           "   104.366 decode-2  first_token r7 0 0\n"
                           "   124.366 decode-2  finished r7 2 0\n");
    cluster_free(&cluster);
}

static void four_ranks_hold_each_head_twice(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[1].geometry.parallelism.tensor = 4; /* 2 heads: of each head's two copies one is sent */
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 65, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 65 2\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 64\n"
                           "     5.000 decode-2  dispatched r7 1 64\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 prefill_finished r7 1 0\n"
                           "    84.366 decode-2  ready r7 1 0\n"
                           "    84.366 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    84.366 decode-2  decode_started r7 0 0\n"
                           "    85.366 prefill-1 drained r7 1 0\n"
                           "   104.366 decode-2  first_token r7 0 0\n"
                           "   124.366 decode-2  finished r7 2 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_prefill_for_one),
        cmocka_unit_test(one_rank_prefills_for_two),
        cmocka_unit_test(four_ranks_hold_each_head_twice),
    };
    return run_stories(argc, argv, tests);
}
