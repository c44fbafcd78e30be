/* Prefillers that are lost at other moments than in the middle of their writes. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

/* Before it has answered: it may have begun to write. */
static void lost_before_it_has_answered(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 40, 1);
    cluster_dies(&cluster, 8, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 40 1\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 24\n"
                           "     5.000 decode-2  dispatched r7 1 24\n"
                           "   308.000 front     peer_lost 1 0\n"
                           "   308.000 decode-2  peer_lost 1 0\n"
                           "   308.000 decode-2  quarantined r7 1 1\n"
                           "   508.000 decode-2  fenced r7 1 1\n"
                           "   508.000 decode-2  released r7 1 0\n"
                           "   513.000 front     failed r7 1 0\n");
    cluster_free(&cluster);
}

/* With a cancel that it will never confirm. */
static void lost_before_it_has_confirmed(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 200, 1);
    cluster_dies(&cluster, 100, 1);
    cluster_aborts(&cluster, 150, 7);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 200 1\n"
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
                           "    74.000 prefill-1 write r7 units 4+4 epoch 1\n"
                           "   155.000 decode-2  cancelling r7 1 4\n"
                           "   400.000 front     peer_lost 1 0\n"
                           "   400.000 decode-2  peer_lost 1 0\n"
                           "   400.000 decode-2  quarantined r7 1 1\n"
                           "   600.000 decode-2  fenced r7 1 1\n"
                           "   600.000 decode-2  released r7 1 0\n"
                           "   605.000 front     aborted r7 4 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_before_it_has_answered),
        cmocka_unit_test(lost_before_it_has_confirmed),
    };
    return run_stories(argc, argv, tests);
}
