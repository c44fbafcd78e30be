/* Requests that go on from tokens they have produced before: preempted, retried on another instance, moved off one that
 * died. However often a request starts again, its tokens are those of one unsharded process.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "messenger/wire.h"
#include "real/memory/shared_memory.h"
#include "cli/real/run_real.h"
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
#define PREFIX "scenarios/real-prefix.lua"
#define PIPELINE "scenarios/real-pipeline.lua"
#define CONDITIONAL "scenarios/real-conditional.lua"

static bool goes_on(const struct message *m)
{
    return m->kind == MESSAGE_REQUEST && m->produced > 0;
}

static bool failed_on_the_way(const struct message *m)
{
    return m->kind == MESSAGE_FAILED && m->produced > 0;
}

static bool computes_produced(const struct message *m)
{
    return m->kind == MESSAGE_PREFILL && m->produced > 1;
}

static bool found_at_decoder(const struct message *m)
{
    return m->kind == MESSAGE_PREFILL && m->first_token > 0;
}

static uint32_t preemptions(const struct run_report *report)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < report->instance_count; i++)
        count += report->instances[i].preemptions;
    return (uint32_t)count;
}

static void finish(struct real_run *run, const char *scenario, const char *const *options, struct run_report *report)
{
    assert_int_equal(real_run_wait(run, 0), 0);
    real_run_read(run, report);
    assert_true(real_run_check_tokens(run, scenario, options) > 0);
}

/* A decoder with room for about two requests, and prompts that are computed in chunks of 16: produced tokens are read
 * in the middle of chunks, at their start, and after the last one. */
static void preempted_decoder_and(const char *recompute, bool asks_again)
{
    const char *const options[] = {"--provider=tcp",
                                   recompute,
                                   "--set=pools.decode.token_budget=32",
                                   "--verify",
                                   "--set=load.requests=24",
                                   "--set=load.rate=per_second(200)",
                                   "--set=load.output=uniform(20,60)",
                                   "--set=pools.prefill.chunk=16",
                                   "--set=pools.decode.chunk=16",
                                   "--set=pools.decode.count=1",
                                   "--set=pools.decode.headroom=1",
                                   "--set=pools.decode.memory_utilization=percent(3)",
                                   "--set=expect=nil",
                                   "--limit=120",
                                   NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, GQA, options);
    finish(&run, GQA, options, &report);
    assert_int_equal(report.completed, 24);
    assert_true(preemptions(&report) > 0);
    bool asked = real_run_heard(&run, 1, computes_produced) + real_run_heard(&run, 2, computes_produced) > 0;
    assert_int_equal(asked, asks_again);
    run_report_free(&report);
    real_run_free(&run);
}

static void preempted_decoder(void **state)
{
    (void)state;
    preempted_decoder_and("--set=pools.decode.recompute='prefiller'", true);
}

/* The decoder computes prompt and produced tokens itself, in chunks beside its batch; tails of others stay whole. */
static void preempted_decoder_recomputes(void **state)
{
    (void)state;
    preempted_decoder_and("--set=pools.decode.recompute='decoder'", false);
}

static void preempted_attention_groups_and(const char *recompute, bool asks_again)
{
    const char *const options[] = {"--provider=shm",
                                   recompute,
                                   "--set=pools.decode.token_budget=32",
                                   "--verify",
                                   "--set=load.requests=24",
                                   "--set=load.rate=per_second(200)",
                                   "--set=load.output=uniform(20,60)",
                                   "--set=pools.decode.headroom=1",
                                   "--set=pools.decode.memory_utilization=percent(2)",
                                   "--set=expect=nil",
                                   "--limit=120",
                                   NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, MLA, options);
    finish(&run, MLA, options, &report);
    assert_int_equal(report.completed, 24);
    assert_true(preemptions(&report) > 0);
    assert_int_equal(real_run_heard(&run, 1, computes_produced) > 0, asks_again);
    run_report_free(&report);
    real_run_free(&run);
}

static void preempted_attention_groups(void **state)
{
    (void)state;
    preempted_attention_groups_and("--set=pools.decode.recompute='prefiller'", true);
}

static void preempted_attention_groups_recompute(void **state)
{
    (void)state;
    preempted_attention_groups_and("--set=pools.decode.recompute='decoder'", false);
}

/* Pairs of launches of one instance that were in flight together. */
static int64_t overlaps(const struct real_run *run)
{
    return real_run_query(run, "SELECT count(*) FROM step a JOIN step b ON b.run_id = a.run_id AND b.node = a.node "
                               "AND b.start_ns > a.start_ns AND b.start_ns < a.end_ns");
}

/* Launches follow each other through two stages, chunks of one prompt and microbatches of decode sequences. */
static void pipelines_overlap(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",
                                          "--verify",
                                          "--record=steps",
                                          "--set=load.requests=60",
                                          "--set=load.rate=per_second(100)",
                                          "--set=load.output=uniform(20,60)",
                                          "--set=pools.prefill.chunk=16",
                                          "--set=pools.decode.headroom=1",
                                          "--set=pools.decode.memory_utilization=percent(2)",
                                          "--set=expect=nil",
                                          "--limit=120",
                                          NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, PIPELINE, options);
    finish(&run, PIPELINE, options, &report);
    assert_int_equal(report.completed, 60);
    assert_true(overlaps(&run) > 60);
    run_report_free(&report);
    real_run_free(&run);
}

/* Prompts become decoding sequences in another microbatch than that of their last chunk, and are preempted. */
static void pipelines_of_mixed_instances(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--record=steps",
        "--set=load.requests=60",
        "--set=load.rate=per_second(100)",
        "--set=load.output=uniform(20,60)",
        "--set=pools={both=pool{role='mixed',machine=require 'hardware.host',shardings={{pipeline=4}},page=16,"
        "token_budget=64,chunk=16,batch_max=16,headroom=1,prefix_cache=false,memory_utilization=percent(2)}}",
        "--set=expect=nil",
        "--limit=120",
        NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, PIPELINE, options);
    finish(&run, PIPELINE, options, &report);
    assert_int_equal(report.completed, 60);
    assert_true(overlaps(&run) > 60);
    run_report_free(&report);
    real_run_free(&run);
}

/* Both roles in one: a preempted sequence computes its prompt and its own tokens again. */
static void preempted_mixed(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--set=load.requests=24",
        "--set=load.rate=per_second(200)",
        "--set=load.output=uniform(20,60)",
        "--set=pools={both=pool{role='mixed',machine=require 'hardware.host',shardings={{tensor=2}},page=16,"
        "token_budget=64,chunk=16,batch_max=16,headroom=1,prefix_cache=false,memory_utilization=percent(2.5)}}",
        "--set=expect=nil",
        "--limit=120",
        NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, GQA, options);
    finish(&run, GQA, options, &report);
    assert_int_equal(report.completed, 24);
    assert_true(preemptions(&report) > 0);
    run_report_free(&report);
    real_run_free(&run);
}

/* A prefiller dies while requests that its decoders have preempted wait for it: they fail with tokens produced, which
 * go to the front with the news and from there to whoever goes on. It is stopped when it has computed a few prompts,
 * and killed when a decoder has since asked it for the prompt and the tokens of one that was preempted, which it can no
 * more answer. Whom a decoder preempts is a matter of time: a run in which that does not happen is no test, and another
 * one is. */
#define RUNS_MOST 20

static bool computed(const struct message *m)
{
    return m->kind == MESSAGE_PREFILLED;
}

static uint32_t asked_again(const struct real_run *run)
{
    return real_run_said(run, 3, 1, computes_produced) + real_run_said(run, 4, 1, computes_produced);
}

/* False: it does not happen any more. */
static bool awaits_more(const struct real_run *run, uint32_t asked)
{
    int64_t until_ns = clock_now_ns() + 5 * NS_PER_S;
    while (asked_again(run) <= asked) {
        if (real_run_ended(run) || clock_now_ns() > until_ns)
            return false;
        usleep(2000);
    }
    return true;
}

static void taken_over_with_tokens(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",
                                          "--set=load.requests=32",
                                          "--set=load.rate=per_second(400)",
                                          "--set=load.output=uniform(20,60)",
                                          "--set=pools.decode.headroom=1",
                                          "--set=pools.decode.memory_utilization=percent(2.6)",
                                          "--set=expect=nil",
                                          "--heartbeats=200",
                                          "--limit=120",
                                          NULL};
    bool met = false;
    for (uint32_t i = 0; i < RUNS_MOST && !met; i++) {
        struct real_run run;
        struct run_report report;
        real_run_start(&run, GQA, options);
        assert_true(real_run_processes(&run, 4));
        pid_t prefiller = run.processes[0]; /* instances come in the order of nodes */
        while (real_run_said(&run, 1, 0, computed) < 4 && !real_run_ended(&run))
            usleep(1000);
        if (!real_run_ended(&run)) {
            real_run_stop(prefiller);
            met = awaits_more(&run, asked_again(&run));
            assert_int_equal(kill(prefiller, SIGKILL), 0);
        }
        print_message("run %u: %s\n", i, met ? "met" : "not met");
        finish(&run, GQA, options, &report);
        assert_int_equal(report.completed, 32);
        uint32_t failed = real_run_heard(&run, 0, failed_on_the_way);
        uint32_t taken_over = real_run_heard(&run, 3, goes_on) + real_run_heard(&run, 4, goes_on);
        assert_int_equal(failed, taken_over);
        assert_true(!met || taken_over > 0);
        run_report_free(&report);
        real_run_left_nothing(&run);
        real_run_free(&run);
    }
    assert_true(met);
}

static bool first_token(const struct message *m)
{
    return m->kind == MESSAGE_FIRST_TOKEN;
}

static bool finished(const struct message *m)
{
    return m->kind == MESSAGE_FINISHED;
}

/* A decoder dies while it decodes: it is stopped first, and killed if it then has requests of which it has told the
 * first token and not the end. They run again on the other one, from the start. */
static void killed_decoder(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=tcp",
                                          "--set=load.requests=40",
                                          "--set=load.rate=per_second(40)",
                                          "--set=load.output=uniform(40,80)",
                                          "--set=pools.decode.headroom=1",
                                          "--set=pools.decode.memory_utilization=percent(3)",
                                          "--set=expect=nil",
                                          "--heartbeats=200",
                                          "--limit=120",
                                          NULL};
    struct real_run run;
    struct run_report report;
    uint32_t decoding = 0;
    real_run_start(&run, GQA, options);
    assert_true(real_run_processes(&run, 4));
    pid_t decoder = run.processes[2]; /* node 3 */
    int64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    while (decoding == 0 && clock_now_ns() < until_ns && !real_run_ended(&run)) {
        usleep(2000);
        real_run_stop(decoder);
        decoding = real_run_said(&run, 3, 0, first_token) - real_run_said(&run, 3, 0, finished);
        assert_int_equal(kill(decoder, decoding > 0 ? SIGKILL : SIGCONT), 0);
    }
    assert_true(decoding > 0);
    finish(&run, GQA, options, &report);
    assert_int_equal(report.completed, 40);
    assert_true(real_run_query(&run, "SELECT count(*) FROM request WHERE attempts > 1") >= decoding);
    run_report_free(&report);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

/* Prompts that share blocks: hits in both caches, of whole prompts, of parts of them, and with T' at a block's end;
 * blocks that are evicted and computed again. Without a tail a prompt that is cached whole is sent without a forward
 * pass. */
static void shared_prefixes_with(const char *const *options)
{
    struct real_run run;
    struct run_report report;
    real_run_start(&run, PREFIX, options);
    finish(&run, PREFIX, options, &report);
    assert_int_equal(report.completed, 12);
    assert_true(real_run_heard(&run, 1, found_at_decoder) > 0);
    run_report_free(&report);
    real_run_free(&run);
}

static void shared_prefixes(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", "--verify", "--limit=180", NULL};
    shared_prefixes_with(options);
}

static void shared_prefixes_without_tail(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--provider=tcp", "--verify", "--set=model.tail_writes=0", "--set=model.tail=bytes(0)", "--limit=180", NULL};
    shared_prefixes_with(options);
}

static bool kept(const struct message *m)
{
    return m->kind == MESSAGE_PREFILLED;
}

/* Prompts that a decoder computes itself: because they are short, because the prefiller's queue is long, because enough
 * is cached, and because it has preempted them. Its pool holds about two of them. Tails come and go beside them. */
static void conditional_with(const char *provider)
{
    const char *const options[] = {provider,
                                   "--verify",
                                   "--set=load.rate=per_second(200)",
                                   "--set=load.output=uniform(20,60)",
                                   "--set=pools.decode.memory_utilization=percent(2)",
                                   "--set=expect=nil",
                                   "--limit=180",
                                   NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, CONDITIONAL, options);
    finish(&run, CONDITIONAL, options, &report);
    assert_int_equal(report.completed, 60);
    assert_true(preemptions(&report) > 0);
    assert_true(real_run_said(&run, 2, 0, kept) > 0);
    assert_true(real_run_query(&run, "SELECT count(*) FROM request WHERE prefiller = decoder") > 20);
    assert_true(real_run_query(&run, "SELECT count(*) FROM request WHERE prefiller <> decoder") > 5);
    run_report_free(&report);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

static void conditional(void **state)
{
    (void)state;
    conditional_with("--provider=shm");
}

static void conditional_over_tcp(void **state)
{
    (void)state;
    conditional_with("--provider=tcp");
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preempted_decoder),
        cmocka_unit_test(preempted_decoder_recomputes),
        cmocka_unit_test(preempted_attention_groups),
        cmocka_unit_test(preempted_attention_groups_recompute),
        cmocka_unit_test(preempted_mixed),
        cmocka_unit_test(pipelines_overlap),
        cmocka_unit_test(pipelines_of_mixed_instances),
        cmocka_unit_test(taken_over_with_tokens),
        cmocka_unit_test(killed_decoder),
        cmocka_unit_test(shared_prefixes),
        cmocka_unit_test(shared_prefixes_without_tail),
        cmocka_unit_test(conditional),
        cmocka_unit_test(conditional_over_tcp),
    };
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("real_tokens", tests, NULL, NULL);
}
