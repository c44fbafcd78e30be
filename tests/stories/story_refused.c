/* Prefillers that refuse: the decoder gives back what it held, and the front tries again or tells the client. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

/* The prefiller has a place for one request. */
static void a_full_table_is_tried_again(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(2, 1, 0);
    config.nodes[1].requests_max = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 40, 1);
    cluster_prompt(&cluster, 0, 2, 40, 1);
    cluster_prompt(&cluster, 0, 3, 40, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 40 1\n"
                           "     0.000 front     routed r1 3 1\n"
                           "     0.000 front     arrived r2 40 1\n"
                           "     0.000 front     routed r2 3 2\n"
                           "     0.000 front     arrived r3 40 1\n"
                           "     0.000 front     routed r3 3 1\n"
                           "     5.000 decode-3  received r1 0 0\n"
                           "     5.000 decode-3  armed r1 0x00100000 24\n"
                           "     5.000 decode-3  dispatched r1 1 24\n"
                           "     5.000 decode-3  received r2 0 0\n"
                           "     5.000 decode-3  armed r2 0x00100001 24\n"
                           "     5.000 decode-3  dispatched r2 2 24\n"
                           "     5.000 decode-3  received r3 0 0\n"
                           "     5.000 decode-3  armed r3 0x00100002 24\n"
                           "     5.000 decode-3  dispatched r3 1 24\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 39\n"
                           "    10.000 prefill-1 chunk r1 0+39\n"
                           "    10.000 prefill-1 write r1 units 0+3 epoch 1\n"
                           "    10.000 prefill-2 accepted r2 2 0\n"
                           "    10.000 prefill-2 prefill_started r2 2 0\n"
                           "    10.000 prefill-2 batch group 0 decode 0 prefill 39\n"
                           "    10.000 prefill-2 chunk r2 0+39\n"
                           "    10.000 prefill-2 write r2 units 0+3 epoch 2\n"
                           "    15.000 decode-3  nacked r3 3 3\n"
                           "    15.000 decode-3  released r3 3 0\n"
                           "    20.000 front     routed r3 3 2\n"
                           "    25.000 decode-3  received r3 1 0\n"
                           "    25.000 decode-3  armed r3 0x00200002 24\n"
                           "    25.000 decode-3  dispatched r3 2 24\n"
                           "    30.000 prefill-2 accepted r3 4 0\n"
                           "    49.000 prefill-1 prefill_finished r1 1 0\n"
                           "    49.000 prefill-2 prefill_finished r2 2 0\n"
                           "    49.000 prefill-2 prefill_started r3 4 0\n"
                           "    49.000 prefill-2 batch group 0 decode 0 prefill 39\n"
                           "    49.000 prefill-2 chunk r3 0+39\n"
                           "    49.000 prefill-2 write r3 units 0+3 epoch 4\n"
                           "    63.578 decode-3  ready r1 1 0\n"
                           "    63.578 decode-3  batch group 0 decode 1 prefill 0\n"
                           "    63.578 decode-3  decode_started r1 0 0\n"
                           "    63.578 decode-3  ready r2 2 0\n"
                           "    64.578 prefill-1 drained r1 1 0\n"
                           "    64.578 prefill-2 drained r2 2 0\n"
                           "    83.578 decode-3  first_token r1 0 0\n"
                           "    83.578 decode-3  finished r1 1 0\n"
                           "    83.578 decode-3  batch group 0 decode 1 prefill 0\n"
                           "    83.578 decode-3  decode_started r2 0 0\n"
                           "    88.000 prefill-2 prefill_finished r3 4 0\n"
                           "    96.486 decode-3  ready r3 4 0\n"
                           "    97.486 prefill-2 drained r3 4 0\n"
                           "   103.578 decode-3  first_token r2 0 0\n"
                           "   103.578 decode-3  finished r2 1 0\n"
                           "   103.578 decode-3  batch group 0 decode 1 prefill 0\n"
                           "   103.578 decode-3  decode_started r3 0 0\n"
                           "   123.578 decode-3  first_token r3 0 0\n"
                           "   123.578 decode-3  finished r3 1 0\n");
    cluster_free(&cluster);
}

/* The prefiller does not know the layout that the decoder says it has: the client is told, nobody tries again. */
static void an_unknown_layout_is_the_clients_to_know(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_meets(&cluster, &(struct injected_fault){.kind = INJECT_GEOMETRY_REFUSED, .nth = 1});
    cluster_prompt(&cluster, 0, 1, 40, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 40 1\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 24\n"
                           "     5.000 decode-2  dispatched r1 1 24\n"
                           "    15.000 decode-2  nacked r1 1 1\n"
                           "    15.000 decode-2  released r1 1 0\n"
                           "    20.000 front     rejected r1 5 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_table_is_tried_again),
        cmocka_unit_test(an_unknown_layout_is_the_clients_to_know),
    };
    return run_stories(argc, argv, tests);
}
