/* The client goes away at every station of a request. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void while_it_waits_for_pages(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 10;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 100, 2);
    cluster_prompt(&cluster, 1, 2, 100, 2);
    cluster_aborts(&cluster, 50, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 100 2\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 100 2\n"
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
                           "    60.000 front     aborted r2 4 0\n"
                           "    74.000 prefill-1 batch group 0 decode 0 prefill 35\n"
                           "    74.000 prefill-1 chunk r1 64+35\n"
                           "    74.000 prefill-1 write r1 units 4+3 epoch 1\n"
                           "   109.000 prefill-1 prefill_finished r1 1 0\n"
                           "   117.486 decode-2  ready r1 1 0\n"
                           "   117.486 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   117.486 decode-2  decode_started r1 0 0\n"
                           "   118.486 prefill-1 drained r1 1 0\n"
                           "   137.486 decode-2  first_token r1 0 0\n"
                           "   157.486 decode-2  finished r1 2 0\n");
    cluster_free(&cluster);
}

/* The cancel crosses the acceptance. */
static void before_the_prefiller_has_answered(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 40, 1);
    cluster_aborts(&cluster, 6, 7);
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
                           "    11.000 decode-2  cancelling r7 1 4\n"
                           "    16.000 prefill-1 quiesced r7 1 0\n"
                           "    21.000 decode-2  released r7 1 0\n"
                           "    26.000 front     aborted r7 4 0\n");
    cluster_free(&cluster);
}

/* It never had a page at the prefiller. */
static void while_it_is_queued(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 65, 1);
    cluster_prompt(&cluster, 1, 2, 65, 1);
    cluster_aborts(&cluster, 30, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 65 1\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 65 1\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 32\n"
                           "     5.000 decode-2  dispatched r1 1 32\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  armed r2 0x00100001 32\n"
                           "     6.000 decode-2  dispatched r2 1 32\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r1 0+64\n"
                           "    10.000 prefill-1 write r1 units 0+4 epoch 1\n"
                           "    11.000 prefill-1 accepted r2 2 0\n"
                           "    35.000 decode-2  cancelling r2 2 4\n"
                           "    40.000 prefill-1 quiesced r2 2 0\n"
                           "    45.000 decode-2  released r2 2 0\n"
                           "    50.000 front     aborted r2 4 0\n"
                           "    74.000 prefill-1 prefill_finished r1 1 0\n"
                           "    84.148 decode-2  ready r1 1 0\n"
                           "    84.148 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    84.148 decode-2  decode_started r1 0 0\n"
                           "    85.148 prefill-1 drained r1 1 0\n"
                           "   104.148 decode-2  first_token r1 0 0\n"
                           "   104.148 decode-2  finished r1 1 0\n");
    cluster_free(&cluster);
}

/* The prefiller has no tickets for another chunk of the second prompt, whose first has landed: it is in no step, and
 * nothing of it is posted. */
static void while_it_waits_for_its_next_chunk(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[1].scheduler.chunk_tokens = 32;
    config.writes_in_flight = 5;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 97, 1);
    cluster_prompt(&cluster, 0, 2, 97, 1);
    cluster_aborts(&cluster, 110, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 97 1\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     0.000 front     arrived r2 97 1\n"
                           "     0.000 front     routed r2 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 48\n"
                           "     5.000 decode-2  dispatched r1 1 48\n"
                           "     5.000 decode-2  received r2 0 0\n"
                           "     5.000 decode-2  armed r2 0x00100001 48\n"
                           "     5.000 decode-2  dispatched r2 1 48\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "    10.000 prefill-1 chunk r1 0+32\n"
                           "    10.000 prefill-1 write r1 units 0+2 epoch 1\n"
                           "    10.000 prefill-1 accepted r2 2 0\n"
                           "    42.000 prefill-1 prefill_started r2 2 0\n"
                           "    42.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    42.000 prefill-1 chunk r1 32+32\n"
                           "    42.000 prefill-1 write r1 units 2+2 epoch 1\n"
                           "    42.000 prefill-1 chunk r2 0+32\n"
                           "    42.000 prefill-1 write r2 units 0+2 epoch 2\n"
                           "   106.000 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "   106.000 prefill-1 chunk r1 64+32\n"
                           "   106.000 prefill-1 write r1 units 4+2 epoch 1\n"
                           "   115.000 decode-2  cancelling r2 2 4\n"
                           "   120.000 prefill-1 quiesced r2 2 0\n"
                           "   125.000 decode-2  released r2 2 0\n"
                           "   130.000 front     aborted r2 4 0\n"
                           "   138.000 prefill-1 prefill_finished r1 1 0\n"
                           "   144.824 decode-2  ready r1 1 0\n"
                           "   144.824 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   144.824 decode-2  decode_started r1 0 0\n"
                           "   145.824 prefill-1 drained r1 1 0\n"
                           "   164.824 decode-2  first_token r1 0 0\n"
                           "   164.824 decode-2  finished r1 1 0\n");
    cluster_free(&cluster);
}

/* Everything is computed and posted, and not everything has landed. */
static void while_its_pages_drain(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 65, 1);
    cluster_aborts(&cluster, 65, 7);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 65 1\n"
                           "     0.000 front     routed r7 2 1\n"
                           "     5.000 decode-2  received r7 0 0\n"
                           "     5.000 decode-2  armed r7 0x00100000 32\n"
                           "     5.000 decode-2  dispatched r7 1 32\n"
                           "    10.000 prefill-1 accepted r7 1 0\n"
                           "    10.000 prefill-1 prefill_started r7 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 64\n"
                           "    10.000 prefill-1 chunk r7 0+64\n"
                           "    10.000 prefill-1 write r7 units 0+4 epoch 1\n"
                           "    70.000 decode-2  cancelling r7 1 4\n"
                           "    74.000 prefill-1 prefill_finished r7 1 0\n"
                           "    85.148 prefill-1 quiesced r7 1 0\n"
                           "    90.148 decode-2  released r7 1 0\n"
                           "    95.148 front     aborted r7 4 0\n");
    cluster_free(&cluster);
}

/* Its KV is here, the batch is full. */
static void while_it_waits_for_a_place_in_the_batch(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].scheduler.batch_max = 1;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 12);
    cluster_prompt(&cluster, 1, 2, 17, 12);
    cluster_aborts(&cluster, 100, 2);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 12\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 12\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 8\n"
                           "     5.000 decode-2  dispatched r1 1 8\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  armed r2 0x00100001 8\n"
                           "     6.000 decode-2  dispatched r2 1 8\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    10.000 prefill-1 chunk r1 0+16\n"
                           "    10.000 prefill-1 write r1 units 0+1 epoch 1\n"
                           "    11.000 prefill-1 accepted r2 2 0\n"
                           "    26.000 prefill-1 prefill_finished r1 1 0\n"
                           "    26.000 prefill-1 prefill_started r2 2 0\n"
                           "    26.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    26.000 prefill-1 chunk r2 0+16\n"
                           "    26.000 prefill-1 write r2 units 0+1 epoch 2\n"
                           "    31.162 decode-2  ready r1 1 0\n"
                           "    31.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    31.162 decode-2  decode_started r1 0 0\n"
                           "    32.162 prefill-1 drained r1 1 0\n"
                           "    42.000 prefill-1 prefill_finished r2 2 0\n"
                           "    47.162 decode-2  ready r2 2 0\n"
                           "    48.162 prefill-1 drained r2 2 0\n"
                           "    51.162 decode-2  first_token r1 0 0\n"
                           "   110.000 front     aborted r2 4 0\n"
                           "   271.162 decode-2  finished r1 12 0\n");
    cluster_free(&cluster);
}

/* It leaves with the end of the step. */
static void while_it_decodes(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 7, 17, 12);
    cluster_aborts(&cluster, 100, 7);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r7 17 12\n"
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
                           "   116.162 front     aborted r7 4 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_it_waits_for_pages), cmocka_unit_test(before_the_prefiller_has_answered),
        cmocka_unit_test(while_it_is_queued),       cmocka_unit_test(while_it_waits_for_its_next_chunk),
        cmocka_unit_test(while_its_pages_drain),    cmocka_unit_test(while_it_waits_for_a_place_in_the_batch),
        cmocka_unit_test(while_it_decodes),
    };
    return run_stories(argc, argv, tests);
}
