/* A decoder dies. The prefiller stops writing to it, and the front hands its requests to the other one. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void a_decoder_dies(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 2, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 100, 2);
    cluster_dies(&cluster, 50, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 100 2\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 56\n"
                           "     5.000 decode-2  dispatched r7 1 56\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "    74.000 prefill-1 chunk r7 64+35\n"
                           "    74.000 prefill-1 write r7 units 4+3 epoch 1\n"
                           "   109.000 prefill-1 prefill_finished r7 1 0\n"
                           "   350.000 front     peer_lost 2 0\n"
                           "   350.000 front     routed r7 3 1\n"
                           "   350.000 prefill-1 peer_lost 2 0\n"
                           "   355.000 decode-3  received r7 1 0\n"
                           "   355.000 decode-3  armed r7 0x00100000 56\n"
                           "   355.000 decode-3  dispatched r7 1 56\n"
                           "   360.000 prefill-1 accepted r7 1 0\n"
                           "   360.000 prefill-1 prefill_started r7 1 0\n"
                           "   360.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "   360.000 prefill-1 chunk r7 0+64\n"
                           "   360.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "   424.000 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "   424.000 prefill-1 chunk r7 64+35\n"
                           "   424.000 prefill-1 write r7 units 4+3 epoch 1\n"
                           "   459.000 prefill-1 prefill_finished r7 1 0\n"
                           "   467.486 decode-3  ready r7 1 0\n"
                           "   467.486 decode-3  batch group 0 decode 1 prefill 0\n"
                           "   467.486 decode-3  decode_started r7 0 0\n"
                           "   468.486 prefill-1 drained r7 1 0\n"
                           "   487.486 decode-3  first_token r7 0 0\n"
                           "   507.486 decode-3  finished r7 2 0\n");
    cluster_free(&cluster);
}

static void a_decoder_dies_after_the_first_token(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 2, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 17, 40);
    cluster_dies(&cluster, 100, 2);
    cluster_run(&cluster);
    /* The client keeps what it has: the first token is not told twice. */
    expect_trace(&cluster, "     0.000 front     arrived r7 17 40\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 8\n"
                           "     5.000 decode-2  dispatched r7 1 8\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    10.000 prefill-1 chunk r7 0+16\n"
                           "    10.000 prefill-1 write r7 units 0+1 epoch 1\n"
                           "    26.000 prefill-1 prefill_finished r7 1 0\n"
                           "    31.162 decode-2  ready r7 1 0\n"
                           "    31.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    31.162 decode-2  decode_started r7 0 0\n"
                           "    32.162 prefill-1 drained r7 1 0\n"
                           "    51.162 decode-2  first_token r7 0 0\n"
                           "   400.000 front     peer_lost 2 0\n"
                           "   400.000 front     routed r7 3 1\n"
                           "   400.000 prefill-1 peer_lost 2 0\n"
                           "   405.000 decode-3  received r7 1 0\n"
                           "   405.000 decode-3  armed r7 0x00100000 8\n"
                           "   405.000 decode-3  dispatched r7 1 8\n"
                           "   410.000 prefill-1 accepted r7 1 0\n"
                           "   410.000 prefill-1 prefill_started r7 1 0\n"
                           "   410.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "   410.000 prefill-1 chunk r7 0+16\n"
                           "   410.000 prefill-1 write r7 units 0+1 epoch 1\n"
                           "   426.000 prefill-1 prefill_finished r7 1 0\n"
                           "   431.162 decode-3  ready r7 1 0\n"
                           "   431.162 decode-3  batch group 0 decode 1 prefill 0\n"
                           "   432.162 prefill-1 drained r7 1 0\n"
                           "  1231.162 decode-3  finished r7 40 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoder_dies),
        cmocka_unit_test(a_decoder_dies_after_the_first_token),
    };
    return run_stories(argc, argv, tests);
}
