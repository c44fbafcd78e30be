/* Whole real runs on this machine: processes, a real transformer, KV over libfabric; and every token is the one that a
 * single process computes.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "cli/real/run_real.h"
#include "real/memory/shared_memory.h"
#include "real/runtime/recording.h"
#include "real/cluster/real_world.h"
#include "support/real_run.h"
#include "host/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GQA "scenarios/real-gqa-2p2d.lua"
#define MLA "scenarios/real-mla-dp.lua"

/* Runs, expects success and `completed` completed requests, compares all tokens. */
static void run_and_compare(const char *scenario, const char *const *options, uint32_t instances, uint64_t completed)
{
    struct real_run run;
    struct run_report report;
    real_run_start(&run, scenario, options);
    bool seen = real_run_processes(&run, instances);
    assert_int_equal(real_run_wait(&run, 0), 0);
    assert_true(seen);
    real_run_read(&run, &report);
    assert_string_equal(report.backend, "real");
    assert_int_equal(report.completed, completed);
    assert_int_equal(report.requests, completed);
    assert_int_equal(report.instance_count, instances);
    run_report_free(&report);
    assert_true(real_run_check_tokens(&run, scenario, options) >= completed);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

static void gqa_over_shm(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",   "--verify",    "--set=load.requests=24",
                                          "--set=expect=nil", "--limit=120", NULL};
    run_and_compare(GQA, options, 4, 24);
}

static void gqa_over_tcp_on_two_nics(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--provider=tcp",         "--bind=127.0.0.1,127.0.0.2", "--nics=2",    "--verify",
        "--set=load.requests=16", "--set=expect=nil",           "--limit=120", NULL};
    run_and_compare(GQA, options, 4, 16);
}

static void mla_to_attention_groups(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=tcp",   "--verify",    "--set=load.requests=16",
                                          "--set=expect=nil", "--limit=120", NULL};
    run_and_compare(MLA, options, 2, 16);
}

static void experts_spread_over_ranks(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",
                                          "--verify",
                                          "--set=load.requests=12",
                                          "--set=model=require 'models.tiny-moe'",
                                          "--set=pools.prefill.count=1",
                                          "--set=pools.decode.count=1",
                                          "--set=pools.decode.shardings={{data=2,expert=2}}",
                                          "--set=expect=nil",
                                          "--limit=120",
                                          NULL};
    run_and_compare(GQA, options, 2, 12);
}

static void closed_loop(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--provider=shm",
        "--set=load=closed{concurrency=3,requests=12,prompt=uniform(1,100),output=uniform(1,20)}",
        "--set=pools.prefill.count=1",
        "--set=pools.decode.count=1",
        "--set=expect=nil",
        "--limit=120",
        NULL};
    run_and_compare(GQA, options, 2, 12);
}

/* Clients go away at any moment: every request ends, one way or the other, and every instance holds nothing at the end
 * (the launcher judges that). */
static void clients_go_away(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",
                                          "--set=load.requests=30",
                                          "--set=load.abort_share=percent(60)",
                                          "--set=load.abort_within=ms(1500)",
                                          "--set=expect=nil",
                                          "--limit=120",
                                          NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, GQA, options);
    assert_true(real_run_processes(&run, 4));
    assert_int_equal(real_run_wait(&run, 0), 0);
    real_run_read(&run, &report);
    assert_int_equal(report.requests, 30);
    assert_int_equal(report.completed + report.aborted, 30);
    assert_true(report.aborted > 0);
    run_report_free(&report);
    real_run_check_tokens(&run, GQA, options);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

/* What each node was told, told again to a new node: it makes the same calls. */
static void recordings_replay(void **state)
{
    (void)state;
    struct real_run run;
    static const char *const options[] = {"--provider=shm", "--set=load.requests=10", "--set=expect=nil", "--limit=120",
                                          NULL};
    real_run_start(&run, GQA, options);
    assert_int_equal(real_run_wait(&run, 0), 0);
    struct scenario_override sets[] = {{"load.requests", "10"}, {"expect", "nil"}};
    struct user_error error = {.set = false};
    struct real_world world;
    assert_true(real_world_load(&world, TANDEM_SOURCE_DIR "/" GQA, sets, 2, -1, &error));
    struct runtime_limits limits = real_world_limits();
    for (uint32_t i = 0; i < world.deployment->node_count; i++) {
        char path[160];
        struct user_error why = {.set = false};
        snprintf(path, sizeof path, "%s/events/node-%u.events", run.folder, i);
        int64_t events = recording_replay(path, &world.deployment->configs[i], &limits, &why);
        if (events < 0)
            fail_msg("%s: %s", path, why.text);
        assert_true(events > 10 || (i > 0 && events > 1));
        /* A node of another configuration makes other calls: the comparison can fail. */
        struct node_config other = world.deployment->configs[i];
        other.pages_per_group /= 2;
        other.scheduler.chunk_tokens = 16;
        other.seed++;
        if (other.role != ROLE_PREFILL)
            continue;
        struct divergence found = {.node = "prefill"};
        struct recording_listener listener = {.divergence = &found};
        assert_true(recording_replay_heard(path, &other, &limits, &listener, &why) < 0);
        assert_true(found.found);
        assert_string_equal(found.what, "event");
        assert_string_equal(found.node, "prefill");
        assert_true(found.before_count > 0 && found.time_a_ns == found.time_b_ns);
        assert_string_not_equal(found.a, found.b);
    }
    real_world_free(&world);
    real_run_free(&run);
}

/* A run that cannot end in time says where everybody stands, and leaves nothing. */
static void limit_is_kept(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", "--set=load.rate=per_second(0.05)", "--set=expect=nil",
                                          "--limit=8", NULL};
    struct real_run run;
    real_run_start(&run, GQA, options);
    assert_true(real_run_processes(&run, 4));
    assert_int_equal(real_run_wait(&run, 128), 128);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

static bool finished(const struct message *m)
{
    return m->kind == MESSAGE_FINISHED;
}

static void interrupted(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", "--set=load.requests=1000", "--set=expect=nil", NULL};
    struct real_run run;
    real_run_start(&run, GQA, options);
    assert_true(real_run_processes(&run, 4));
    /* Not before some have been served, and long before all have. */
    int64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    while (real_run_heard(&run, 0, finished) < 3 && clock_now_ns() < until_ns)
        usleep(2000);
    assert_false(real_run_ended(&run));
    assert_int_equal(kill(run.launcher, SIGINT), 0);
    assert_int_equal(real_run_wait(&run, 130), 130);
    assert_in_range(real_run_heard(&run, 0, finished), 3, 999);
    assert_int_equal(real_run_stored(&run), 0);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gqa_over_shm),
        cmocka_unit_test(gqa_over_tcp_on_two_nics),
        cmocka_unit_test(mla_to_attention_groups),
        cmocka_unit_test(experts_spread_over_ranks),
        cmocka_unit_test(closed_loop),
        cmocka_unit_test(clients_go_away),
        cmocka_unit_test(recordings_replay),
        cmocka_unit_test(limit_is_kept),
        cmocka_unit_test(interrupted),
    };
    return cmocka_run_group_tests_name("real_run", tests, NULL, NULL);
}
