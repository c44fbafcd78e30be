/* Prompts whose KV just fills a page, and just does not: 15, 16 and 17 tokens are fetched, and none at all. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void one_token_short_of_a_page(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 16, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 16 1\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 8\n"
                           "     5.000 decode-2  dispatched r1 1 8\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 15\n"
                           "    10.000 prefill-1 chunk r1 0+15\n"
                           "    10.000 prefill-1 write r1 units 0+1 epoch 1\n"
                           "    25.000 prefill-1 prefill_finished r1 1 0\n"
                           "    30.162 decode-2  ready r1 1 0\n"
                           "    30.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    30.162 decode-2  decode_started r1 0 0\n"
                           "    31.162 prefill-1 drained r1 1 0\n"
                           "    50.162 decode-2  first_token r1 0 0\n"
                           "    50.162 decode-2  finished r1 1 0\n");
    cluster_free(&cluster);
}

static void exactly_a_page(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 1\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 8\n"
                           "     5.000 decode-2  dispatched r1 1 8\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    10.000 prefill-1 chunk r1 0+16\n"
                           "    10.000 prefill-1 write r1 units 0+1 epoch 1\n"
                           "    26.000 prefill-1 prefill_finished r1 1 0\n"
                           "    31.162 decode-2  ready r1 1 0\n"
                           "    31.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    31.162 decode-2  decode_started r1 0 0\n"
                           "    32.162 prefill-1 drained r1 1 0\n"
                           "    51.162 decode-2  first_token r1 0 0\n"
                           "    51.162 decode-2  finished r1 1 0\n");
    cluster_free(&cluster);
}

static void one_token_more(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[1].scheduler.chunk_tokens = 16; /* the last chunk is one token, and completes nothing but the prompt */
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 18, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 18 1\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 16\n"
                           "     5.000 decode-2  dispatched r1 1 16\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    10.000 prefill-1 chunk r1 0+16\n"
                           "    10.000 prefill-1 write r1 units 0+1 epoch 1\n"
                           "    26.000 prefill-1 batch group 0 decode 0 prefill 1\n"
                           "    26.000 prefill-1 chunk r1 16+1\n"
                           "    26.000 prefill-1 write r1 units 1+1 epoch 1\n"
                           "    27.000 prefill-1 prefill_finished r1 1 0\n"
                           "    37.810 decode-2  ready r1 1 0\n"
                           "    37.810 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    37.810 decode-2  decode_started r1 0 0\n"
                           "    38.810 prefill-1 drained r1 1 0\n"
                           "    57.810 decode-2  first_token r1 0 0\n"
                           "    57.810 decode-2  finished r1 1 0\n");
    cluster_free(&cluster);
}

static void a_prompt_of_one_token(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 1, 1);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 1 1\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  dispatched r1 1 0\n"
                           "     5.000 decode-2  ready r1 0 0\n"
                           "     5.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "     5.000 decode-2  decode_started r1 0 0\n"
                           "    25.000 decode-2  first_token r1 0 0\n"
                           "    25.000 decode-2  finished r1 1 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token_short_of_a_page),
        cmocka_unit_test(exactly_a_page),
        cmocka_unit_test(one_token_more),
        cmocka_unit_test(a_prompt_of_one_token),
    };
    return run_stories(argc, argv, tests);
}
