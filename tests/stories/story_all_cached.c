/* A prompt of which everything is cached at the prefiller: no forward pass, and all of its pages are sent. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void everything_is_cached(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101, 102};
    struct request_spec request = {.prompt_tokens = 65,
                                   .output_tokens = 2,
                                   .block_count = 2,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[1].scheduler.prefix_cache = 1;
    cluster_make(&cluster, &config);
    cluster_arrives(&cluster, 0, &request);
    cluster_until(&cluster, 900);
    expect_trace(&cluster, "     0.000 front     arrived r0 65 2\n"
                           "     0.000 front     routed r0 2 1\n"
                           "     5.000 decode-2  received r0 0 0\n"
                           "     5.000 decode-2  armed r0 0x00100000 32\n"
                           "     5.000 decode-2  dispatched r0 1 32\n"
                           "    10.000 prefill-1 accepted r0 1 0\n"
                           "    10.000 prefill-1 prefill_started r0 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r0 0+64\n"
                           "    10.000 prefill-1 write r0 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 prefill_finished r0 1 0\n"
                           "    84.148 decode-2  ready r0 1 0\n"
                           "    84.148 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    84.148 decode-2  decode_started r0 0 0\n"
                           "    85.148 prefill-1 drained r0 1 0\n"
                           "   104.148 decode-2  first_token r0 0 0\n"
                           "   124.148 decode-2  finished r0 2 0\n");
    /* The same prompt again. */
    request.id = 1;
    cluster_arrives(&cluster, 1000, &request);
    cluster_run(&cluster);
    expect_trace(&cluster, "  1000.000 front     arrived r1 65 2\n"
                           "  1000.000 front     routed r1 2 1\n"
                           "  1005.000 decode-2  received r1 0 0\n"
                           "  1005.000 decode-2  armed r1 0x00200000 32\n"
                           "  1005.000 decode-2  dispatched r1 1 32\n"
                           "  1010.000 prefill-1 accepted r1 2 0\n"
                           "  1010.000 prefill-1 prefix_hit r1 64 0\n"
                           "  1010.000 prefill-1 prefill_started r1 2 64\n"
                           "  1010.000 prefill-1 write r1 units 0+4 epoch 2\n"
                           "  1010.000 prefill-1 prefill_finished r1 2 0\n"
                           "  1039.091 decode-2  ready r1 2 0\n"
                           "  1039.091 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1039.091 decode-2  decode_started r1 0 0\n"
                           "  1040.091 prefill-1 drained r1 2 0\n"
                           "  1059.091 decode-2  first_token r1 0 0\n"
                           "  1079.091 decode-2  finished r1 2 0\n");
    cluster_free(&cluster);
}

static void everything_is_cached_at_the_decoder(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101, 102};
    struct request_spec request = {.prompt_tokens = 65,
                                   .output_tokens = 1,
                                   .block_count = 2,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[2].scheduler.prefix_cache = 1;
    cluster_make(&cluster, &config);
    cluster_arrives(&cluster, 0, &request);
    cluster_until(&cluster, 900);
    expect_trace(&cluster, "     0.000 front     arrived r0 65 1\n"
                           "     0.000 front     routed r0 2 1\n"
                           "     5.000 decode-2  received r0 0 0\n"
                           "     5.000 decode-2  armed r0 0x00100000 32\n"
                           "     5.000 decode-2  dispatched r0 1 32\n"
                           "    10.000 prefill-1 accepted r0 1 0\n"
                           "    10.000 prefill-1 prefill_started r0 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r0 0+64\n"
                           "    10.000 prefill-1 write r0 units 0+4 epoch 1\n"
                           "    74.000 prefill-1 prefill_finished r0 1 0\n"
                           "    84.148 decode-2  ready r0 1 0\n"
                           "    84.148 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    84.148 decode-2  decode_started r0 0 0\n"
                           "    85.148 prefill-1 drained r0 1 0\n"
                           "   104.148 decode-2  first_token r0 0 0\n"
                           "   104.148 decode-2  finished r0 1 0\n");
    /* The same prompt again: nobody is asked. */
    request.id = 1;
    cluster_arrives(&cluster, 1000, &request);
    cluster_run(&cluster);
    expect_trace(&cluster, "  1000.000 front     arrived r1 65 1\n"
                           "  1000.000 front     routed r1 2 1\n"
                           "  1005.000 decode-2  received r1 0 0\n"
                           "  1005.000 decode-2  prefix_hit r1 64 0\n"
                           "  1005.000 decode-2  dispatched r1 1 0\n"
                           "  1005.000 decode-2  ready r1 0 0\n"
                           "  1005.000 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1005.000 decode-2  decode_started r1 0 0\n"
                           "  1025.000 decode-2  first_token r1 0 0\n"
                           "  1025.000 decode-2  finished r1 1 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_cached),
        cmocka_unit_test(everything_is_cached_at_the_decoder),
    };
    return run_stories(argc, argv, tests);
}
