/* The decoder computes the KV of what it has preempted again itself, in chunks of its own steps; no prefiller is
 * asked, and the last chunk gives the next token. */
#include "support/story.h"
#include "support/cluster.h"

static struct cluster cluster;

static struct cluster_config recomputing(uint32_t pages)
{
    struct cluster_config config = cluster_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = pages;
    config.nodes[2].scheduler.recompute = RECOMPUTE_DECODER;
    return config;
}

/* What comes before is story_preemption's. */
static void told_until(int64_t at_us)
{
    cluster_until(&cluster, at_us);
    cluster.text_used = 0;
    cluster.text[0] = '\0';
}

static void the_youngest_waits_and_recomputes(void **state)
{
    (void)state;
    struct cluster_config config = recomputing(5);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 40);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    told_until(360);
    cluster_run(&cluster);
    expect_trace(&cluster, "   371.162 decode-2  preempted r2 33 0\n"
                           "   371.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   831.162 decode-2  finished r1 40 0\n"
                           "   831.162 decode-2  prefill_started r2 0 0\n"
                           "   831.162 decode-2  batch group 0 decode 0 prefill 33\n"
                           "   831.162 decode-2  chunk r2 0+33\n"
                           "   864.162 decode-2  prefill_finished r2 0 0\n"
                           "   864.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   924.162 decode-2  finished r2 20 0\n");
    cluster_free(&cluster);
}

/* As in story_preemption. Two prompts recompute beside a third that decodes. */
static void run_two_groups(uint32_t batch_max)
{
    struct cluster_config config = recomputing(5);
    config.nodes[2].geometry.parallelism.data = 2;
    config.nodes[2].group_count = 2;
    config.nodes[2].scheduler.batch_max = batch_max;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 40);
    cluster_prompt(&cluster, 1, 2, 17, 2);
    cluster_prompt(&cluster, 2, 3, 17, 20);
    told_until(390);
    cluster_run(&cluster);
}

static void the_other_group_has_room(void **state)
{
    (void)state;
    run_two_groups(8);
    expect_trace(&cluster, "   391.162 decode-2  preempted r3 33 0\n"
                           "   391.162 decode-2  prefill_started r3 0 0\n"
                           "   391.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   391.162 decode-2  batch group 1 decode 0 prefill 33\n"
                           "   391.162 decode-2  chunk r3 0+33\n"
                           "   444.162 decode-2  prefill_finished r3 0 0\n"
                           "   444.162 decode-2  batch group 1 decode 1 prefill 0\n"
                           "   504.162 decode-2  finished r3 20 0\n"
                           "   504.162 decode-2  batch group 1 decode 0 prefill 0\n"
                           "   864.162 decode-2  finished r1 40 0\n");
    cluster_free(&cluster);
}

static void the_other_group_has_room_and_a_place(void **state)
{
    (void)state;
    run_two_groups(1);
    expect_trace(&cluster, "   671.162 decode-2  preempted r3 17 0\n"
                           "   671.162 decode-2  prefill_started r3 0 0\n"
                           "   671.162 decode-2  batch group 1 decode 0 prefill 17\n"
                           "   671.162 decode-2  chunk r3 0+17\n"
                           "   708.162 decode-2  prefill_finished r3 0 0\n"
                           "   708.162 decode-2  ready r3 0 0\n"
                           "   708.162 decode-2  decode_started r3 1 0\n"
                           "   708.162 decode-2  first_token r3 0 0\n"
                           "   708.162 decode-2  batch group 1 decode 1 prefill 0\n"
                           "   848.162 decode-2  finished r1 40 0\n"
                           "   848.162 decode-2  batch group 0 decode 0 prefill 0\n"
                           "  1088.162 decode-2  finished r3 20 0\n");
    cluster_free(&cluster);
}

/* Its chunks are under way: it goes with the step. */
static void its_client_leaves(void **state)
{
    (void)state;
    struct cluster_config config = recomputing(5);
    config.nodes[2].scheduler.chunk_tokens = 8;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 24);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    cluster_aborts(&cluster, 515, 2);
    told_until(360);
    cluster_run(&cluster);
    expect_trace(&cluster, "   371.162 decode-2  preempted r2 33 0\n"
                           "   371.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   511.162 decode-2  finished r1 24 0\n"
                           "   511.162 decode-2  prefill_started r2 0 0\n"
                           "   511.162 decode-2  batch group 0 decode 0 prefill 8\n"
                           "   511.162 decode-2  chunk r2 0+8\n"
                           "   519.162 decode-2  batch group 0 decode 0 prefill 8\n"
                           "   519.162 decode-2  chunk r2 8+8\n"
                           "   532.162 front     aborted r2 4 0\n");
    cluster_free(&cluster);
}

/* Somebody who needs nothing takes the one place in the batch meanwhile. */
static void the_batch_is_full_when_it_is_done(void **state)
{
    (void)state;
    struct cluster_config config = recomputing(5);
    config.nodes[2].scheduler.batch_max = 1;
    config.nodes[2].scheduler.chunk_tokens = 8;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 40);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    cluster_prompt(&cluster, 820, 3, 1, 3);
    told_until(360);
    cluster_run(&cluster);
    expect_trace(&cluster, "   671.162 decode-2  preempted r2 17 0\n"
                           "   820.000 front     arrived r3 1 3\n"
                           "   820.000 front     routed r3 2 1\n"
                           "   825.000 decode-2  received r3 0 0\n"
                           "   825.000 decode-2  dispatched r3 1 0\n"
                           "   825.000 decode-2  ready r3 0 0\n"
                           "   831.162 decode-2  finished r1 40 0\n"
                           "   831.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   831.162 decode-2  decode_started r3 0 0\n"
                           "   851.162 decode-2  first_token r3 0 0\n"
                           "   891.162 decode-2  finished r3 3 0\n"
                           "   891.162 decode-2  prefill_started r2 0 0\n"
                           "   891.162 decode-2  batch group 0 decode 0 prefill 8\n"
                           "   891.162 decode-2  chunk r2 0+8\n"
                           "   899.162 decode-2  batch group 0 decode 0 prefill 8\n"
                           "   899.162 decode-2  chunk r2 8+8\n"
                           "   907.162 decode-2  batch group 0 decode 0 prefill 1\n"
                           "   907.162 decode-2  chunk r2 16+1\n"
                           "   908.162 decode-2  prefill_finished r2 0 0\n"
                           "   908.162 decode-2  ready r2 0 0\n"
                           "   908.162 decode-2  decode_started r2 0 0\n"
                           "   908.162 decode-2  first_token r2 0 0\n"
                           "   908.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1288.162 decode-2  finished r2 20 0\n");
    cluster_free(&cluster);
}

/* An older one needs a page at the very step that ends its last chunk. */
static void preempted_again_when_it_is_done(void **state)
{
    (void)state;
    struct cluster_config config = recomputing(6);
    config.nodes[2].scheduler.chunk_tokens = 4;
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 26);
    cluster_prompt(&cluster, 0, 2, 17, 50);
    cluster_prompt(&cluster, 1, 3, 17, 20);
    told_until(530);
    cluster_until(&cluster, 760);
    expect_trace(&cluster, "   551.162 decode-2  finished r1 26 0\n"
                           "   551.162 decode-2  prefill_started r3 0 0\n"
                           "   551.162 decode-2  batch group 0 decode 1 prefill 4\n"
                           "   551.162 decode-2  chunk r3 0+4\n"
                           "   575.162 decode-2  batch group 0 decode 1 prefill 4\n"
                           "   575.162 decode-2  chunk r3 4+4\n"
                           "   599.162 decode-2  batch group 0 decode 1 prefill 4\n"
                           "   599.162 decode-2  chunk r3 8+4\n"
                           "   623.162 decode-2  batch group 0 decode 1 prefill 4\n"
                           "   623.162 decode-2  chunk r3 12+4\n"
                           "   647.162 decode-2  batch group 0 decode 1 prefill 4\n"
                           "   647.162 decode-2  chunk r3 16+4\n"
                           "   671.162 decode-2  batch group 0 decode 1 prefill 4\n"
                           "   671.162 decode-2  chunk r3 20+4\n"
                           "   695.162 decode-2  batch group 0 decode 1 prefill 4\n"
                           "   695.162 decode-2  chunk r3 24+4\n"
                           "   719.162 decode-2  batch group 0 decode 1 prefill 3\n"
                           "   719.162 decode-2  chunk r3 28+3\n"
                           "   742.162 decode-2  prefill_finished r3 0 0\n"
                           "   742.162 decode-2  preempted r3 32 0\n"
                           "   742.162 decode-2  batch group 0 decode 1 prefill 0\n");
    cluster_run(&cluster);
    cluster_free(&cluster);
}

/* Nobody needs it any more. */
static void its_prefiller_is_gone(void **state)
{
    (void)state;
    struct cluster_config config = recomputing(5);
    cluster_make(&cluster, &config);
    cluster_prompt(&cluster, 0, 1, 17, 60);
    cluster_prompt(&cluster, 1, 2, 17, 20);
    cluster_dies(&cluster, 100, 1);
    told_until(360);
    cluster_run(&cluster);
    expect_trace(&cluster, "   371.162 decode-2  preempted r2 33 0\n"
                           "   371.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "   400.000 front     peer_lost 1 0\n"
                           "   400.000 decode-2  peer_lost 1 0\n"
                           "  1231.162 decode-2  finished r1 60 0\n"
                           "  1231.162 decode-2  prefill_started r2 0 0\n"
                           "  1231.162 decode-2  batch group 0 decode 0 prefill 33\n"
                           "  1231.162 decode-2  chunk r2 0+33\n"
                           "  1264.162 decode-2  prefill_finished r2 0 0\n"
                           "  1264.162 decode-2  batch group 0 decode 1 prefill 0\n"
                           "  1324.162 decode-2  finished r2 20 0\n");
    cluster_free(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_youngest_waits_and_recomputes),
        cmocka_unit_test(the_other_group_has_room),
        cmocka_unit_test(the_other_group_has_room_and_a_place),
        cmocka_unit_test(its_client_leaves),
        cmocka_unit_test(the_batch_is_full_when_it_is_done),
        cmocka_unit_test(preempted_again_when_it_is_done),
        cmocka_unit_test(its_prefiller_is_gone),
    };
    return run_stories(argc, argv, tests);
}
