/* A transfer hides behind prefill: while a chunk is computed, the pages of the one before it travel. What is exposed of
 * the transfer is no more than the last layer of the last chunk takes. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void a_transfer_hides_behind_prefill(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 200, 3);
    /* Decoder first: it takes pages for 199 tokens and some headroom, arms the count (13 pages, 4 layers, 2 planes),
     * and only then asks. */
    cluster_until(&cluster, 10);
    expect_trace(&cluster, "     0.000 front     arrived r7 200 3\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 104\n"
                           "     5.000 decode-2  dispatched r7 1 104\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n");
    /* Four chunks of 64, 64, 64 and 7 tokens; the first three send 4 pages each, the last the page that is not full. */
    cluster_until(&cluster, 208);
    expect_trace(&cluster, "    74.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    74.000 prefill-1 chunk r7 64+64\n"
                           "    74.000 prefill-1 write r7 units 4+4 epoch 1\n"
                           "   138.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "   138.000 prefill-1 chunk r7 128+64\n"
                           "   138.000 prefill-1 write r7 units 8+4 epoch 1\n"
                           "   202.000 prefill-1 batch group 0 decode 0 prefill 7\n"
                           "   202.000 prefill-1 chunk r7 192+7\n"
                           "   202.000 prefill-1 write r7 units 12+1 epoch 1\n");
    /* The decoder is ready while the prefiller's last completion is still on its way. The last prompt token is the
     * decoder's own first step. */
    cluster_run(&cluster);
    expect_trace(&cluster, "   209.000 prefill-1 prefill_finished r7 1 0\n"
                           "   218.796 decode-2  ready r7 1 0\n"
                           "   218.796 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   218.796 decode-2  decode_started r7 0 0\n"
                           "   219.796 prefill-1 drained r7 1 0\n"
                           "   238.796 decode-2  first_token r7 0 0\n"
                           "   278.796 decode-2  finished r7 3 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_hides_behind_prefill),
    };
    return run_stories(argc, argv, tests);
}
