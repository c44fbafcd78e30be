/* One instance prefills and decodes: a long prompt is cut into chunks that share their steps with the tokens of
 * another. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void a_long_prompt_beside_decode(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(0, 0, 1);
    config.nodes[1].scheduler.token_budget = 33;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 20, 5);
    cluster_prompt(&cluster, 10, 2, 90, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 20 5\n"
                           "     0.000 front     routed r1 1 1\n"
                           "     5.000 mixed-1   received r1 0 0\n"
                           "     5.000 mixed-1   dispatched r1 1 0\n"
                           "     5.000 mixed-1   prefill_started r1 0 0\n"
                           "     5.000 mixed-1   batch group 0 decode 0 prefill 20\n"
                           "     5.000 mixed-1   chunk r1 0+20\n"
                           "    10.000 front     arrived r2 90 2\n"
                           "    10.000 front     routed r2 1 1\n"
                           "    15.000 mixed-1   received r2 0 0\n"
                           "    15.000 mixed-1   dispatched r2 1 0\n"
                           "    25.000 mixed-1   prefill_finished r1 0 0\n"
                           "    25.000 mixed-1   ready r1 0 0\n"
                           "    25.000 mixed-1   decode_started r1 0 0\n"
                           "    25.000 mixed-1   first_token r1 0 0\n"
                           "    25.000 mixed-1   prefill_started r2 0 0\n"
                           "    25.000 mixed-1   batch group 0 decode 1 prefill 32\n"
                           "    25.000 mixed-1   chunk r2 0+32\n"
                           "    77.000 mixed-1   batch group 0 decode 1 prefill 32\n"
                           "    77.000 mixed-1   chunk r2 32+32\n"
                           "   129.000 mixed-1   batch group 0 decode 1 prefill 26\n"
                           "   129.000 mixed-1   chunk r2 64+26\n"
                           "   175.000 mixed-1   prefill_finished r2 0 0\n"
                           "   175.000 mixed-1   ready r2 0 0\n"
                           "   175.000 mixed-1   decode_started r2 0 0\n"
                           "   175.000 mixed-1   first_token r2 0 0\n"
                           "   175.000 mixed-1   batch group 0 decode 2 prefill 0\n"
                           "   195.000 mixed-1   finished r1 5 0\n"
                           "   195.000 mixed-1   finished r2 2 0\n");
    cluster_free(&cluster);
}

static void an_output_of_one_token_never_decodes(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(0, 0, 1);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 20, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 20 1\n"
                           "     0.000 front     routed r1 1 1\n"
                           "     5.000 mixed-1   received r1 0 0\n"
                           "     5.000 mixed-1   dispatched r1 1 0\n"
                           "     5.000 mixed-1   prefill_started r1 0 0\n"
                           "     5.000 mixed-1   batch group 0 decode 0 prefill 20\n"
                           "     5.000 mixed-1   chunk r1 0+20\n"
                           "    25.000 mixed-1   prefill_finished r1 0 0\n"
                           "    25.000 mixed-1   ready r1 0 0\n"
                           "    25.000 mixed-1   decode_started r1 0 0\n"
                           "    25.000 mixed-1   first_token r1 0 0\n"
                           "    25.000 mixed-1   finished r1 1 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_beside_decode),
        cmocka_unit_test(an_output_of_one_token_never_decodes),
    };
    return run_stories(argc, argv, tests);
}
