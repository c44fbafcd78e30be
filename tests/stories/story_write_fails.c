/* Writes that fail: the prefiller stops, tells the decoder when nothing is posted any more, and both give back all. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void the_first_write_fails(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_meets(&cluster, &(struct injected_fault){.kind = INJECT_WRITE_FAILED, .nth = 1});
    cluster_prompt(&cluster, 0, 7, 100, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 100 1\n"
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
                           "   315.000 decode-2  nacked r7 1 5\n"
                           "   315.000 decode-2  released r7 1 0\n"
                           "   320.000 front     routed r7 2 1\n"
                           "   325.000 decode-2  received r7 1 0\n"
                           "   325.000 decode-2  armed r7 0x00200000 56\n"
                           "   325.000 decode-2  dispatched r7 1 56\n"
                           "   330.000 prefill-1 accepted r7 2 0\n"
                           "   330.000 prefill-1 prefill_started r7 2 0\n"
                           "   330.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "   330.000 prefill-1 chunk r7 0+64\n"
                           "   330.000 prefill-1 write r7 units 0+4 epoch 2\n"
                           "   394.000 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "   394.000 prefill-1 chunk r7 64+35\n"
                           "   394.000 prefill-1 write r7 units 4+3 epoch 2\n"
                           "   429.000 prefill-1 prefill_finished r7 2 0\n"
                           "   437.486 decode-2  ready r7 2 0\n"
                           "   437.486 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   437.486 decode-2  decode_started r7 0 0\n"
                           "   438.486 prefill-1 drained r7 2 0\n"
                           "   457.486 decode-2  first_token r7 0 0\n"
                           "   457.486 decode-2  finished r7 1 0\n");
    cluster_free(&cluster);
}

/* All bytes have landed, and the prefiller is told that the last write failed: the count decides, the refusal is
 * late. */
static void the_last_write_landed_and_failed(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_meets(&cluster, &(struct injected_fault){.kind = INJECT_WRITE_IN_ERROR, .nth = 1});
    cluster_prompt(&cluster, 0, 7, 40, 1);
    cluster_run(&cluster);
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
                           "    49.000 prefill-1 prefill_finished r7 1 0\n"
                           "    57.486 decode-2  ready r7 1 0\n"
                           "    57.486 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    57.486 decode-2  decode_started r7 0 0\n"
                           "    63.486 decode-2  late r7 1 11\n"
                           "    77.486 decode-2  first_token r7 0 0\n"
                           "    77.486 decode-2  finished r7 1 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_write_fails),
        cmocka_unit_test(the_last_write_landed_and_failed),
    };
    return run_stories(argc, argv, tests);
}
