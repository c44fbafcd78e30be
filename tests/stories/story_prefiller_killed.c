/* A prefiller dies in the middle of a transfer. Its decoder keeps the pages until it is fenced; then the request is
 * tried again with the other prefiller. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void a_prefiller_dies(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(2, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 200, 2);
    cluster_dies(&cluster, 100, 1);
    cluster_until(&cluster, 99);
    expect_trace(&cluster, "     0.000 front     arrived r7 200 2\n"
                           "     0.000 front     routed r7 3 1\n"
                           "     5.000 decode-3  received r7 0 0\n"
                           "     5.000 decode-3  armed r7 0x00100000 104\n"
                           "     5.000 decode-3  dispatched r7 1 104\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    74.000 prefill-1 chunk r7 64+64\n"
                           "    74.000 prefill-1 write r7 units 4+4 epoch 1\n");
    /* Suspected after 300 us: quarantine. Fenced 200 us later: the pages come back and the front learns of it. */
    cluster_until(&cluster, 610);
    expect_trace(&cluster, "   400.000 front     peer_lost 1 0\n"
                           "   400.000 decode-3  peer_lost 1 0\n"
                           "   400.000 decode-3  quarantined r7 1 1\n"
                           "   600.000 decode-3  fenced r7 1 1\n"
                           "   600.000 decode-3  released r7 1 0\n"
                           "   605.000 front     routed r7 3 2\n"
                           "   610.000 decode-3  received r7 1 0\n"
                           "   610.000 decode-3  armed r7 0x00200000 104\n"
                           "   610.000 decode-3  dispatched r7 2 104\n");
    cluster_run(&cluster);
    expect_trace(&cluster, "   615.000 prefill-2 accepted r7 2 0\n"
                           "   615.000 prefill-2 prefill_started r7 2 0\n"
                           "   615.000 prefill-2 batch group 0 decode 0 prefill 64\n"
                           "   615.000 prefill-2 chunk r7 0+64\n"
                           "   615.000 prefill-2 write r7 units 0+4 epoch 2\n"
                           "   679.000 prefill-2 batch group 0 decode 0 prefill 64\n"
                           "   679.000 prefill-2 chunk r7 64+64\n"
                           "   679.000 prefill-2 write r7 units 4+4 epoch 2\n"
                           "   743.000 prefill-2 batch group 0 decode 0 prefill 64\n"
                           "   743.000 prefill-2 chunk r7 128+64\n"
                           "   743.000 prefill-2 write r7 units 8+4 epoch 2\n"
                           "   807.000 prefill-2 batch group 0 decode 0 prefill 7\n"
                           "   807.000 prefill-2 chunk r7 192+7\n"
                           "   807.000 prefill-2 write r7 units 12+1 epoch 2\n"
                           "   814.000 prefill-2 prefill_finished r7 2 0\n"
                           "   823.796 decode-3  ready r7 2 0\n"
                           "   823.796 decode-3  batch group 0 decode 1 prefill 0\n"
                           "   823.796 decode-3  decode_started r7 0 0\n"
                           "   824.796 prefill-2 drained r7 2 0\n"
                           "   843.796 decode-3  first_token r7 0 0\n"
                           "   863.796 decode-3  finished r7 2 0\n");
    cluster_free(&cluster);
}

static void its_replacement_is_there_before_the_fence(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 40, 1);
    cluster_dies(&cluster, 20, 1);
    cluster_returns(&cluster, 50, 1);
    cluster_prompt(&cluster, 100, 8, 17, 1); /* served by the replacement while its predecessor may still write */
    cluster_until(&cluster, 250);
    expect_trace(&cluster, "     0.000 front     arrived r7 40 1\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 24\n"
                           "     5.000 decode-2  dispatched r7 1 24\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 39\n"
                           "    10.000 prefill-1 chunk r7 0+39\n"
                           "    10.000 prefill-1 write r7 units 0+3 epoch 1\n"
                           "    55.000 front     peer_lost 1 0\n"
                           "    55.000 front     peer_joined 1 2\n"
                           "    55.000 decode-2  quarantined r7 1 1\n"
                           "    55.000 decode-2  peer_joined 1 2\n"
                           "   100.000 front     arrived r8 17 1\n"
                           "   100.000 front     routed r8 2 1\n"
                           "   105.000 decode-2  received r8 0 0\n"
                           "   105.000 decode-2  armed r8 0x00100001 8\n"
                           "   105.000 decode-2  dispatched r8 1 8\n"
                           "   110.000 prefill-1 accepted r8 2 0\n"
                           "   110.000 prefill-1 prefill_started r8 2 0\n"
                           "   110.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "   110.000 prefill-1 chunk r8 0+16\n"
                           "   110.000 prefill-1 write r8 units 0+1 epoch 2\n"
                           "   126.000 prefill-1 prefill_finished r8 2 0\n"
                           "   131.162 decode-2  ready r8 2 0\n"
                           "   131.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   131.162 decode-2  decode_started r8 0 0\n"
                           "   132.162 prefill-1 drained r8 2 0\n"
                           "   151.162 decode-2  first_token r8 0 0\n"
                           "   151.162 decode-2  finished r8 1 0\n");
    cluster_run(&cluster);
    expect_trace(&cluster, "   520.000 decode-2  fenced r7 1 1\n"
                           "   520.000 decode-2  released r7 1 0\n"
                           "   525.000 front     routed r7 2 1\n"
                           "   530.000 decode-2  received r7 1 0\n"
                           "   530.000 decode-2  armed r7 0x00200000 24\n"
                           "   530.000 decode-2  dispatched r7 1 24\n"
                           "   535.000 prefill-1 accepted r7 3 0\n"
                           "   535.000 prefill-1 prefill_started r7 3 0\n"
                           "   535.000 prefill-1 batch group 0 decode 0 prefill 39\n"
                           "   535.000 prefill-1 chunk r7 0+39\n"
                           "   535.000 prefill-1 write r7 units 0+3 epoch 3\n"
                           "   574.000 prefill-1 prefill_finished r7 3 0\n"
                           "   582.486 decode-2  ready r7 3 0\n"
                           "   582.486 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   582.486 decode-2  decode_started r7 0 0\n"
                           "   583.486 prefill-1 drained r7 3 0\n"
                           "   602.486 decode-2  first_token r7 0 0\n"
                           "   602.486 decode-2  finished r7 1 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefiller_dies),
        cmocka_unit_test(its_replacement_is_there_before_the_fence),
    };
    return run_stories(argc, argv, tests);
}
