/* The decoder runs out of pages while decoding: the youngest gives its pages up and has its KV computed again. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static void the_youngest_recomputes(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 5;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 40);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    cluster_run(&cluster);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 40\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 20\n"
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
                           "    51.162 decode-2  batch group 0 decode 2 prefill 0\n"
                           "    51.162 decode-2  decode_started r2 0 0\n"
                           "    71.162 decode-2  first_token r2 0 0\n"
                           "   371.162 decode-2  preempted r2 32 0\n"
                           "   371.162 decode-2  admit_wait r2 3 2\n"
                           "   371.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   831.162 decode-2  finished r1 40 0\n"
                           "   831.162 decode-2  armed r2 0x00200001 16\n"
                           "   831.162 decode-2  dispatched r2 1 16\n"
                           "   836.162 prefill-1 accepted r2 3 0\n"
                           "   836.162 prefill-1 prefill_started r2 3 0\n"
                           "   836.162 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "   836.162 prefill-1 chunk r2 0+32\n"
                           "   836.162 prefill-1 write r2 units 0+2 epoch 3\n"
                           "   868.162 prefill-1 prefill_finished r2 3 0\n"
                           "   874.986 decode-2  ready r2 3 0\n"
                           "   874.986 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   875.986 prefill-1 drained r2 3 0\n"
                           "   954.986 decode-2  finished r2 20 0\n");
    cluster_free(&cluster);
}

static void run_two_groups(uint32_t batch_max)
{
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].geometry.parallelism.data = 2;
    config.nodes[2].group_count = 2;
    config.nodes[2].pages_per_group = 5;
    config.nodes[2].scheduler.batch_max = batch_max;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 40);
    cluster_prompt(&cluster, 1, 2, 17, 2);
    cluster_prompt(&cluster, 2, 3, 17, 20);
    cluster_run(&cluster);
}

/* The other attention group has room, and takes it at once. */
static void the_other_group_has_room(void **state)
{
    (void)state;
    run_two_groups(8);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 40\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 2\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     2.000 front     arrived r3 17 20\n"
                           "     2.000 front     routed r3 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 8\n"
                           "     5.000 decode-2  dispatched r1 1 8\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  armed r2 0x00100001 8\n"
                           "     6.000 decode-2  dispatched r2 1 8\n"
                           "     7.000 decode-2  received r3 0 0\n"
                           "     7.000 decode-2  armed r3 0x00100002 8\n"
                           "     7.000 decode-2  dispatched r3 1 8\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    10.000 prefill-1 chunk r1 0+16\n"
                           "    10.000 prefill-1 write r1 units 0+1 epoch 1\n"
                           "    11.000 prefill-1 accepted r2 2 0\n"
                           "    12.000 prefill-1 accepted r3 3 0\n"
                           "    26.000 prefill-1 prefill_finished r1 1 0\n"
                           "    26.000 prefill-1 prefill_started r2 2 0\n"
                           "    26.000 prefill-1 prefill_started r3 3 0\n"
                           "    26.000 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "    26.000 prefill-1 chunk r2 0+16\n"
                           "    26.000 prefill-1 write r2 units 0+1 epoch 2\n"
                           "    26.000 prefill-1 chunk r3 0+16\n"
                           "    26.000 prefill-1 write r3 units 0+1 epoch 3\n"
                           "    31.162 decode-2  ready r1 1 0\n"
                           "    31.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    31.162 decode-2  decode_started r1 0 0\n"
                           "    32.162 prefill-1 drained r1 1 0\n"
                           "    51.162 decode-2  first_token r1 0 0\n"
                           "    58.000 prefill-1 prefill_finished r2 2 0\n"
                           "    58.000 prefill-1 prefill_finished r3 3 0\n"
                           "    64.824 decode-2  ready r2 2 0\n"
                           "    64.824 decode-2  ready r3 3 0\n"
                           "    65.824 prefill-1 drained r2 2 0\n"
                           "    65.824 prefill-1 drained r3 3 0\n"
                           "    71.162 decode-2  batch group 0 decode 2 prefill 0\n"
                           "    71.162 decode-2  batch group 1 decode 1 prefill 0\n"
                           "    71.162 decode-2  decode_started r3 0 0\n"
                           "    71.162 decode-2  decode_started r2 1 0\n"
                           "    91.162 decode-2  first_token r3 0 0\n"
                           "    91.162 decode-2  first_token r2 0 0\n"
                           "   111.162 decode-2  finished r2 2 0\n"
                           "   111.162 decode-2  batch group 1 decode 0 prefill 0\n"
                           "   391.162 decode-2  preempted r3 32 0\n"
                           "   391.162 decode-2  armed r3 0x00200002 16\n"
                           "   391.162 decode-2  dispatched r3 1 16\n"
                           "   391.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   396.162 prefill-1 accepted r3 4 0\n"
                           "   396.162 prefill-1 prefill_started r3 4 0\n"
                           "   396.162 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "   396.162 prefill-1 chunk r3 0+32\n"
                           "   396.162 prefill-1 write r3 units 0+2 epoch 4\n"
                           "   428.162 prefill-1 prefill_finished r3 4 0\n"
                           "   434.986 decode-2  ready r3 4 0\n"
                           "   435.986 prefill-1 drained r3 4 0\n"
                           "   451.162 decode-2  batch group 1 decode 1 prefill 0\n"
                           "   531.162 decode-2  finished r3 20 0\n"
                           "   531.162 decode-2  batch group 1 decode 0 prefill 0\n"
                           "   831.162 decode-2  finished r1 40 0\n");
    cluster_free(&cluster);
}

/* Who was here before the one that waits gets its pages back before it. The rest is as always. */
static void the_preempted_keeps_its_place(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 5;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 24);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    cluster_prompt(&cluster, 300, 3, 64, 1);
    cluster_until(&cluster, 515);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 24\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 20\n"
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
                           "    51.162 decode-2  batch group 0 decode 2 prefill 0\n"
                           "    51.162 decode-2  decode_started r2 0 0\n"
                           "    71.162 decode-2  first_token r2 0 0\n"
                           "   300.000 front     arrived r3 64 1\n"
                           "   300.000 front     routed r3 2 1\n"
                           "   305.000 decode-2  received r3 0 0\n"
                           "   305.000 decode-2  admit_wait r3 4 1\n"
                           "   371.162 decode-2  preempted r2 32 0\n"
                           "   371.162 decode-2  admit_wait r2 3 2\n"
                           "   371.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   511.162 decode-2  finished r1 24 0\n"
                           "   511.162 decode-2  armed r2 0x00200001 16\n"
                           "   511.162 decode-2  dispatched r2 1 16\n");
    cluster_run(&cluster);
    cluster_free(&cluster);
}

/* The same where it has not decoded yet, for the batch of its own group is full. */
static void the_other_group_has_room_and_a_place(void **state)
{
    (void)state;
    run_two_groups(1);
    expect_trace(&cluster, "     0.000 front     arrived r1 17 40\n"
                           "     0.000 front     routed r1 2 1\n"
                           "     1.000 front     arrived r2 17 2\n"
                           "     1.000 front     routed r2 2 1\n"
                           "     2.000 front     arrived r3 17 20\n"
                           "     2.000 front     routed r3 2 1\n"
                           "     5.000 decode-2  received r1 0 0\n"
                           "     5.000 decode-2  armed r1 0x00100000 8\n"
                           "     5.000 decode-2  dispatched r1 1 8\n"
                           "     6.000 decode-2  received r2 0 0\n"
                           "     6.000 decode-2  armed r2 0x00100001 8\n"
                           "     6.000 decode-2  dispatched r2 1 8\n"
                           "     7.000 decode-2  received r3 0 0\n"
                           "     7.000 decode-2  armed r3 0x00100002 8\n"
                           "     7.000 decode-2  dispatched r3 1 8\n"
                           "    10.000 prefill-1 accepted r1 1 0\n"
                           "    10.000 prefill-1 prefill_started r1 1 0\n"
                           "    10.000 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "    10.000 prefill-1 chunk r1 0+16\n"
                           "    10.000 prefill-1 write r1 units 0+1 epoch 1\n"
                           "    11.000 prefill-1 accepted r2 2 0\n"
                           "    12.000 prefill-1 accepted r3 3 0\n"
                           "    26.000 prefill-1 prefill_finished r1 1 0\n"
                           "    26.000 prefill-1 prefill_started r2 2 0\n"
                           "    26.000 prefill-1 prefill_started r3 3 0\n"
                           "    26.000 prefill-1 batch group 0 decode 0 prefill 32\n"
                           "    26.000 prefill-1 chunk r2 0+16\n"
                           "    26.000 prefill-1 write r2 units 0+1 epoch 2\n"
                           "    26.000 prefill-1 chunk r3 0+16\n"
                           "    26.000 prefill-1 write r3 units 0+1 epoch 3\n"
                           "    31.162 decode-2  ready r1 1 0\n"
                           "    31.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "    31.162 decode-2  decode_started r1 0 0\n"
                           "    32.162 prefill-1 drained r1 1 0\n"
                           "    51.162 decode-2  first_token r1 0 0\n"
                           "    58.000 prefill-1 prefill_finished r2 2 0\n"
                           "    58.000 prefill-1 prefill_finished r3 3 0\n"
                           "    64.824 decode-2  ready r2 2 0\n"
                           "    64.824 decode-2  ready r3 3 0\n"
                           "    65.824 prefill-1 drained r2 2 0\n"
                           "    65.824 prefill-1 drained r3 3 0\n"
                           "    71.162 decode-2  batch group 1 decode 1 prefill 0\n"
                           "    71.162 decode-2  decode_started r2 1 0\n"
                           "    91.162 decode-2  first_token r2 0 0\n"
                           "   111.162 decode-2  finished r2 2 0\n"
                           "   111.162 decode-2  batch group 1 decode 0 prefill 0\n"
                           "   671.162 decode-2  preempted r3 16 0\n"
                           "   671.162 decode-2  armed r3 0x00200002 8\n"
                           "   671.162 decode-2  dispatched r3 1 8\n"
                           "   676.162 prefill-1 accepted r3 4 0\n"
                           "   676.162 prefill-1 prefill_started r3 4 0\n"
                           "   676.162 prefill-1 batch group 0 decode 0 prefill 16\n"
                           "   676.162 prefill-1 chunk r3 0+16\n"
                           "   676.162 prefill-1 write r3 units 0+1 epoch 4\n"
                           "   692.162 prefill-1 prefill_finished r3 4 0\n"
                           "   697.324 decode-2  ready r3 4 0\n"
                           "   698.324 prefill-1 drained r3 4 0\n"
                           "   711.162 decode-2  batch group 1 decode 1 prefill 0\n"
                           "   711.162 decode-2  decode_started r3 1 0\n"
                           "   731.162 decode-2  first_token r3 0 0\n"
                           "   831.162 decode-2  finished r1 40 0\n"
                           "   831.162 decode-2  batch group 0 decode 0 prefill 0\n"
                           "  1111.162 decode-2  finished r3 20 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_youngest_recomputes),
        cmocka_unit_test(the_preempted_keeps_its_place),
        cmocka_unit_test(the_other_group_has_room),
        cmocka_unit_test(the_other_group_has_room_and_a_place),
    };
    return run_stories(argc, argv, tests);
}
