/* Requests that go on from tokens they have produced before: preempted, retried on another instance, moved off one that
 * died. However often a request starts again, its tokens are those of one unsharded process.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "messenger/wire.h"
#include "real/control/frame.h"
#include "cli/real/run_real.h"
#include "support/real_run.h"

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

/* Of the messages that a node was given, as it was recorded, how many `wanted` picks. */
static uint32_t messages(const struct real_run *run, uint32_t node, bool (*wanted)(const struct message *m))
{
    char path[160];
    unsigned char header[40];
    uint32_t count = 0;
    snprintf(path, sizeof path, "%s/events/node-%u.events", run->folder, node);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 8, SEEK_SET), 0); /* the magic */
    while (fread(header, sizeof header, 1, file) == 1) {
        struct frame_reader reader = {.bytes = header, .length = sizeof header, .at = 8};
        uint16_t event = read_u16(&reader);
        reader.at = 24;
        uint64_t data_bytes = read_u64(&reader);
        uint64_t call_bytes = read_u64(&reader);
        unsigned char *data = malloc((size_t)data_bytes + 1);
        struct message m;
        assert_non_null(data);
        assert_true(data_bytes == 0 || fread(data, (size_t)data_bytes, 1, file) == 1);
        count += event == EVENT_MESSAGE && wire_decode(data, (size_t)data_bytes, &m) && wanted(&m);
        free(data);
        assert_int_equal(fseek(file, (long)call_bytes, SEEK_CUR), 0);
    }
    fclose(file);
    return count;
}

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
static void preempted_decoder(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=tcp",
                                          "--verify",
                                          "--set=load.requests=24",
                                          "--set=load.rate=per_second(200)",
                                          "--set=load.output=uniform(20,60)",
                                          "--set=pools.prefill.chunk=16",
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
    assert_true(messages(&run, 1, computes_produced) + messages(&run, 2, computes_produced) > 0);
    run_report_free(&report);
    real_run_free(&run);
}

static void preempted_attention_groups(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",
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
    assert_true(messages(&run, 1, computes_produced) > 0);
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
 * go to the front with the news and from there to whoever goes on. Whether some wait at that moment is chance: hence up
 * to TRIES runs. */
#define TRIES 8

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
                                          "--heartbeats=8",
                                          "--limit=120",
                                          NULL};
    uint32_t taken_over = 0;
    for (uint32_t i = 0; i < TRIES && taken_over == 0; i++) {
        struct real_run run;
        struct run_report report;
        real_run_start(&run, GQA, options);
        assert_true(real_run_processes(&run, 4));
        assert_true(real_run_started(&run));
        usleep(400000 + i * 100000);
        assert_int_equal(kill(run.processes[0], SIGKILL), 0); /* instances come in the order of nodes */
        finish(&run, GQA, options, &report);
        assert_int_equal(report.completed, 32);
        uint32_t failed = messages(&run, 0, failed_on_the_way);
        taken_over = messages(&run, 3, goes_on) + messages(&run, 4, goes_on);
        assert_int_equal(failed, taken_over);
        run_report_free(&report);
        real_run_left_nothing(&run);
        real_run_free(&run);
    }
    assert_true(taken_over > 0);
}

/* A decoder dies in the middle: its requests run again on the other one, from the start. */
static void killed_decoder(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=tcp",
                                          "--set=load.requests=40",
                                          "--set=load.rate=per_second(40)",
                                          "--set=pools.decode.headroom=1",
                                          "--set=pools.decode.memory_utilization=percent(3)",
                                          "--set=expect=nil",
                                          "--heartbeats=8",
                                          "--limit=120",
                                          NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, GQA, options);
    assert_true(real_run_processes(&run, 4));
    assert_true(real_run_started(&run));
    usleep(300000);
    assert_int_equal(kill(run.processes[3], SIGKILL), 0); /* instances come in the order of nodes */
    finish(&run, GQA, options, &report);
    assert_int_equal(report.completed, 40);
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
    assert_true(messages(&run, 1, found_at_decoder) > 0);
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

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preempted_decoder),
        cmocka_unit_test(preempted_attention_groups),
        cmocka_unit_test(preempted_mixed),
        cmocka_unit_test(taken_over_with_tokens),
        cmocka_unit_test(killed_decoder),
        cmocka_unit_test(shared_prefixes),
        cmocka_unit_test(shared_prefixes_without_tail),
    };
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("real_tokens", tests, NULL, NULL);
}
