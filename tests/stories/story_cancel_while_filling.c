/* The client goes away while its KV is being sent. The decoder keeps the pages until the prefiller has confirmed that
 * nothing is posted any more; only then is the abort complete. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void a_cancel_while_filling(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 200, 3);
    cluster_aborts(&cluster, 100, 7);
    cluster_until(&cluster, 99);
    expect_trace(&cluster, "     0.000 front     arrived r7 200 3\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 104\n"
                           "     5.000 decode-2  dispatched r7 1 104\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    74.000 prefill-1 chunk r7 64+64\n"
                           "    74.000 prefill-1 write r7 units 4+4 epoch 1\n");
    /* The abort reaches the decoder, its cancel the prefiller, which is in the second chunk: what is posted goes out,
     * the prefiller answers, and the step ends on pages that nobody wants. */
    cluster_run(&cluster);
    expect_trace(&cluster, "   105.000 decode-2  cancelling r7 1 4\n"
                           "   118.902 prefill-1 quiesced r7 1 0\n"
                           "   123.902 decode-2  released r7 1 0\n"
                           "   128.902 front     aborted r7 4 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancel_while_filling),
    };
    return run_stories(argc, argv, tests);
}
