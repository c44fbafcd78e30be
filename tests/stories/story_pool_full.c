/* The decoder has no pages for a second request: it waits, holding nothing, and nothing is dropped. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void a_full_pool_makes_a_request_wait(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 10;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 100, 4);
    cluster_prompt(&cluster, 1, 2, 100, 4);
    cluster_until(&cluster, 20);
    expect_trace(&cluster, "     0.000 front     arrived r1 100 4\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 100 4\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 56\n"
                           "     5.000 decode-2  dispatched r1 1 56\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  admit_wait r2 7 3\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r1 0+64\n"
                           "    10.000 prefill-1 write r1 units 0+4 epoch 1\n");
    cluster_run(&cluster);
    expect_trace(&cluster, "    74.000 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "    74.000 prefill-1 chunk r1 64+35\n"
                           "    74.000 prefill-1 write r1 units 4+3 epoch 1\n"
                           "   109.000 prefill-1 prefill_finished r1 1 0\n"
                           "   117.486 decode-2  ready r1 1 0\n"
                           "   117.486 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   117.486 decode-2  decode_started r1 0 0\n"
                           "   118.486 prefill-1 drained r1 1 0\n"
                           "   137.486 decode-2  first_token r1 0 0\n"
                           "   197.486 decode-2  finished r1 4 0\n"
                           "   197.486 decode-2  armed r2 0x00200000 56\n"
                           "   197.486 decode-2  dispatched r2 1 56\n"
                           "   202.486 prefill-1 accepted r2 2 0\n"
                           "   202.486 prefill-1 prefill_started r2 2 0\n"
                           "   202.486 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "   202.486 prefill-1 chunk r2 0+64\n"
                           "   202.486 prefill-1 write r2 units 0+4 epoch 2\n"
                           "   266.486 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "   266.486 prefill-1 chunk r2 64+35\n"
                           "   266.486 prefill-1 write r2 units 4+3 epoch 2\n"
                           "   301.486 prefill-1 prefill_finished r2 2 0\n"
                           "   309.972 decode-2  ready r2 2 0\n"
                           "   309.972 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   309.972 decode-2  decode_started r2 0 0\n"
                           "   310.972 prefill-1 drained r2 2 0\n"
                           "   329.972 decode-2  first_token r2 0 0\n"
                           "   389.972 decode-2  finished r2 4 0\n");
    cluster_free(&cluster);
}

/* The deadline of a transfer runs from its dispatch: what its request waited for pages does not count. */
static void waiting_uses_up_no_deadline(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 10;
    config.nodes[2].messenger.deadline_ns = 150000;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 100, 4);
    cluster_prompt(&cluster, 1, 2, 100, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 100 4\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 100 1\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 56\n"
                           "     5.000 decode-2  dispatched r1 1 56\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  admit_wait r2 7 3\n"
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
                           "   197.486 decode-2  finished r1 4 0\n"
                           "   197.486 decode-2  armed r2 0x00200000 56\n"
                           "   197.486 decode-2  dispatched r2 1 56\n"
                           "   202.486 prefill-1 accepted r2 2 0\n"
                           "   202.486 prefill-1 prefill_started r2 2 0\n"
                           "   202.486 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "   202.486 prefill-1 chunk r2 0+64\n"
                           "   202.486 prefill-1 write r2 units 0+4 epoch 2\n"
                           "   266.486 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "   266.486 prefill-1 chunk r2 64+35\n"
                           "   266.486 prefill-1 write r2 units 4+3 epoch 2\n"
                           "   301.486 prefill-1 prefill_finished r2 2 0\n"
                           "   309.972 decode-2  ready r2 2 0\n"
                           "   309.972 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   309.972 decode-2  decode_started r2 0 0\n"
                           "   310.972 prefill-1 drained r2 2 0\n"
                           "   329.972 decode-2  first_token r2 0 0\n"
                           "   329.972 decode-2  finished r2 1 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_pool_makes_a_request_wait),
        cmocka_unit_test(waiting_uses_up_no_deadline),
    };
    return run_stories(argc, argv, tests);
}
