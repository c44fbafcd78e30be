/* Whole real runs in which something goes wrong that is not a death (test_kills.c): a peer that is stopped, and goes on
 * later; KV pools that are full; clients who leave in every state of a request; connections of one NIC that break; a
 * provider that does not come back. After each of them every request has an end, the tokens are right, and nothing is
 * held or left.
 *
 * TANDEM_LONG=1 repeats what is drawn at random, over more seeds.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/rng.h"
#include "base/trace.h"
#include "cli/real/run_real.h"
#include "real/memory/shared_memory.h"
#include "support/real_run.h"
#include "support/sockets.h"
#include "host/clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SCENARIO "tests/data/real-kills.lua"
#define REQUESTS 24
#define INSTANCES 4
#define PATIENCE_NS (60 * NS_PER_S)

/* Places among the processes of a run. */
enum { PREFILL_0, PREFILL_1, DECODE_0, DECODE_1 };

static const char *const providers[] = {"--provider=shm", "--provider=tcp"};

static uint32_t rounds(uint32_t otherwise, uint32_t when_long)
{
    return getenv("TANDEM_LONG") != NULL ? when_long : otherwise;
}

static void start(struct real_run *run, const char *const *options)
{
    real_run_start(run, SCENARIO, options);
    assert_true(real_run_processes(run, INSTANCES));
}

/* Ends with `status`, everything right and nothing left; the counts are for the caller to judge. */
static void finish(struct real_run *run, const char *const *options, struct run_report *report)
{
    assert_int_equal(real_run_wait(run, 0), 0);
    real_run_read(run, report);
    assert_int_equal(report->completed + report->failed + report->rejected + report->aborted, report->requests);
    assert_int_equal(real_run_query(run, "SELECT count(*) FROM request WHERE outcome <> 1 AND reason = 0"), 0);
    real_run_check_tokens(run, SCENARIO, options);
    real_run_database_sound(run);
    real_run_left_nothing(run);
}

static void done(struct real_run *run, struct run_report *report)
{
    run_report_free(report);
    real_run_free(run);
}

/* ---- Stopped peers ----------------------------------------------------------------------------------------------- */

/* Stopped for good: to its peers it is dead. The launcher ends it. */
static void stopped_for_ever(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < rounds(2, 8); round++) {
        struct rng rng = rng_stream(round, 1, RNG_FAULTS);
        const char *const options[] = {providers[round % 2], "--heartbeats=8", "--limit=120", NULL};
        struct real_run run;
        struct run_report report;
        start(&run, options);
        assert_true(real_run_recorded(&run, 1024 + (int64_t)rng_below(&rng, 8000)));
        uint32_t victim = (uint32_t)rng_below(&rng, INSTANCES);
        assert_int_equal(kill(run.processes[victim], SIGSTOP), 0);
        finish(&run, options, &report);
        assert_true(real_run_logged(&run, "is lost: nothing was heard of it"));
        assert_int_equal(report.requests, REQUESTS);
        assert_true(report.completed > 0);
        done(&run, &report);
    }
}

/* Held up for less than the heartbeats allow: nobody is given up, nothing is done twice. */
static void held_up(void **state)
{
    (void)state;
    const char *const options[] = {providers[0], "--heartbeats=100", "--limit=120", NULL};
    struct real_run run;
    struct run_report report;
    start(&run, options);
    assert_true(real_run_started(&run));
    for (uint32_t i = 0; i < INSTANCES; i++) {
        assert_int_equal(kill(run.processes[i], SIGSTOP), 0);
        usleep(100000);
        assert_int_equal(kill(run.processes[i], SIGCONT), 0);
    }
    finish(&run, options, &report);
    assert_int_equal(report.completed, REQUESTS);
    assert_int_equal(real_run_query(&run, "SELECT max(attempts) FROM request"), 1);
    assert_false(real_run_logged(&run, "is lost"));
    done(&run, &report);
}

/* A prefiller stopped in the middle of its writes, given up, fenced, its pages used again by others, and only then let
 * go on: what it still writes must land nowhere. Pools of a few prompts make sure that pages are used again at once,
 * digests and tokens would tell. */
static void late_writes(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < rounds(2, 10); round++) {
        struct rng rng = rng_stream(round, 2, RNG_FAULTS);
        const char *const options[] = {providers[round % 2],
                                       "--heartbeats=5",
                                       "--verify",
                                       "--limit=120",
                                       "--set=load.requests=120",
                                       "--set=pools.decode.reserve_output=true",
                                       "--set=pools.decode.memory_utilization=percent(2.5)",
                                       NULL};
        struct real_run run;
        struct run_report report;
        start(&run, options);
        assert_true(real_run_recorded(&run, 1500 + (int64_t)rng_below(&rng, 6000)));
        assert_int_equal(kill(run.processes[PREFILL_1], SIGSTOP), 0);
        int64_t until_ns = clock_now_ns() + PATIENCE_NS;
        while (!real_run_logged(&run, "is lost") && clock_now_ns() < until_ns)
            usleep(2000);
        assert_true(real_run_logged(&run, "prefill-1 is lost"));
        int64_t bytes = real_run_recorded_bytes(&run);
        bool goes_on = real_run_recorded(&run, bytes + 2000); /* others have its pages by now */
        if (goes_on)
            kill(run.processes[PREFILL_1], SIGCONT);
        finish(&run, options, &report);
        assert_true(goes_on);
        assert_true(report.completed > 60);
        done(&run, &report);
    }
}

static bool is_cancel(const struct message *m)
{
    return m->kind == MESSAGE_CANCEL;
}

static bool is_quiesced(const struct message *m)
{
    return m->kind == MESSAGE_QUIESCED;
}

static bool is_accepted(const struct message *m)
{
    return m->kind == MESSAGE_ACCEPTED;
}

/* Cancels that decoders have sent to prefiller 0. */
static uint32_t cancels(const struct real_run *run)
{
    return real_run_said(run, 3, 1, is_cancel) + real_run_said(run, 4, 1, is_cancel);
}

/* Every client leaves, and a prefiller is stopped with what it has accepted: cancels are sent that it cannot answer.
 * The decoders keep the pages meanwhile. Let go on, it answers each; stopped for good, it is lost, and the pages go
 * through quarantine. The launcher judges that all are free at the end. */
static void stopped_with_a_cancel_pending(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < rounds(2, 12); round++) {
        bool goes_on = round % 2 == 0;
        const char *const options[] = {providers[round / 2 % 2],
                                       goes_on ? "--heartbeats=200" : "--heartbeats=20",
                                       "--verify",
                                       "--limit=120",
                                       "--set=load.requests=60",
                                       "--set=load.rate=per_second(100)",
                                       "--set=load.abort_share=percent(100)",
                                       "--set=load.abort_within=ms(900)",
                                       NULL};
        struct real_run run;
        struct run_report report;
        start(&run, options);
        int64_t until_ns = clock_now_ns() + PATIENCE_NS;
        while (real_run_said(&run, 1, 3, is_accepted) + real_run_said(&run, 1, 4, is_accepted) == 0 &&
               clock_now_ns() < until_ns)
            usleep(1000);
        real_run_stop(run.processes[PREFILL_0]);
        uint32_t before = cancels(&run);
        while (cancels(&run) == before && !real_run_ended(&run) && clock_now_ns() < until_ns)
            usleep(1000);
        uint32_t pending = cancels(&run) - before;
        if (goes_on)
            kill(run.processes[PREFILL_0], SIGCONT);
        finish(&run, options, &report);
        assert_true(pending > 0);
        assert_int_equal(report.requests, 60);
        if (goes_on) {
            assert_false(real_run_logged(&run, "is lost"));
            assert_true(real_run_said(&run, 1, 3, is_quiesced) + real_run_said(&run, 1, 4, is_quiesced) >= pending);
        } else {
            assert_true(real_run_logged(&run, "prefill-0 is lost: nothing was heard of it"));
        }
        done(&run, &report);
    }
}

/* ---- Full pools -------------------------------------------------------------------------------------------------- */

struct events {
    uint32_t count[64]; /* by enum trace_kind */
};

static void hear(void *self, int64_t now_ns, const struct trace_record *record)
{
    (void)now_ns;
    struct events *events = self;
    if (record->kind < 64)
        events->count[record->kind]++;
}

static void replay_all(const struct real_run *run, const char *const *options, struct events *events)
{
    memset(events, 0, sizeof *events);
    for (uint32_t node = 0; node <= INSTANCES; node++)
        assert_true(real_run_replay(run, SCENARIO, options, node, hear, events) > 0);
}

/* Decoders of a score of pages: requests wait for pages, running ones are preempted and fetch their KV again. */
static void full_pool_waits(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",
                                          "--limit=120",
                                          "--set=load.requests=40",
                                          "--set=load.rate=per_second(400)",
                                          "--set=pools.decode.headroom=1",
                                          "--set=pools.decode.memory_utilization=percent(2.3)",
                                          NULL};
    struct real_run run;
    struct run_report report;
    struct events events;
    start(&run, options);
    finish(&run, options, &report);
    assert_int_equal(report.completed, 40);
    replay_all(&run, options, &events);
    assert_true(events.count[TRACE_ADMIT_WAIT] > 0);
    assert_true(events.count[TRACE_PREEMPTED] > 0);
    assert_true(real_run_query(&run, "SELECT sum(page_wait_ns) FROM instance") > 0);
    done(&run, &report);
}

/* A request that no decoder could ever hold is refused by name, and holds nobody up. */
static void full_pool_rejects(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm",
                                          "--limit=120",
                                          "--set=load.prompt=quantiles{[0]=10,[800]=100,[1000]=700}",
                                          "--set=pools.decode.reserve_output=true",
                                          "--set=pools.decode.memory_utilization=percent(2.5)",
                                          NULL};
    struct real_run run;
    struct run_report report;
    start(&run, options);
    finish(&run, options, &report);
    assert_true(report.rejected > 0);
    assert_int_equal(report.completed + report.rejected, REQUESTS);
    assert_int_equal(real_run_query(&run, "SELECT count(*) FROM request WHERE outcome = 2 AND reason <> 2"), 0);
    done(&run, &report);
}

/* ---- Clients ----------------------------------------------------------------------------------------------------- */

/* Where its client left a request: the first boundary that it did not reach. */
static const struct {
    const char *name;
    const char *reached;
    const char *missed;
} stations[] = {
    {"waiting for pages", "received_ns", "dispatched_ns"},
    {"queued at the prefiller", "dispatched_ns", "prefill_started_ns"},
    {"streaming", "prefill_started_ns", "prefill_finished_ns"},
    {"draining", "prefill_finished_ns", "ready_ns"},
    {"ready", "ready_ns", "decode_started_ns"},
    {"first step", "decode_started_ns", "first_token_ns"},
    {"decoding", "first_token_ns", "NULL"},
};
#define STATIONS (sizeof stations / sizeof *stations)

static void count_stations(const struct real_run *run, int64_t *counts)
{
    for (size_t i = 0; i < STATIONS; i++) {
        char sql[256];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM request WHERE outcome = 4 AND %s IS NOT NULL AND %s IS NULL",
                 stations[i].reached, stations[i].missed);
        counts[i] += real_run_query(run, sql);
    }
}

/* Every client leaves, at a moment drawn by seed, from a system with a queue before every station. */
static void clients_leave(void **state)
{
    (void)state;
    int64_t counts[STATIONS] = {0};
    uint32_t aborted = 0;
    for (uint32_t round = 0; round < rounds(2, 12); round++) {
        char seed[32];
        snprintf(seed, sizeof seed, "--set=seed=%" PRIu32, 100 + round);
        const char *const options[] = {providers[round % 2],
                                       seed,
                                       "--limit=120",
                                       "--set=load.requests=60",
                                       "--set=load.rate=per_second(200)",
                                       "--set=load.abort_share=percent(100)",
                                       "--set=load.abort_within=ms(700)",
                                       "--set=pools.decode.batch_max=2",
                                       "--set=messenger.handoffs_max=6",
                                       NULL};
        struct real_run run;
        struct run_report report;
        start(&run, options);
        finish(&run, options, &report);
        assert_int_equal(report.completed + report.aborted, 60);
        aborted += (uint32_t)report.aborted;
        count_stations(&run, counts);
        done(&run, &report);
    }
    uint32_t seen = 0;
    for (size_t i = 0; i < STATIONS; i++) {
        printf("%-24s %" PRId64 "\n", stations[i].name, counts[i]);
        seen += counts[i] > 0;
    }
    assert_true(aborted > 0);
    assert_true(seen >= rounds(4, STATIONS));
}

/* ---- NICs -------------------------------------------------------------------------------------------------------- */

/* Of two NICs, the connections of one break, as those of a NIC that fails do: the prefiller's to one port of each
 * decoder. What was under way there fails and is tried again, the rest goes over the other NIC; nobody is given up. */
static void nic_breaks(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < rounds(1, 6); round++) {
        struct rng rng = rng_stream(round, 3, RNG_FAULTS);
        const char *const options[] = {"--provider=tcp",         "--nics=2", "--verify", "--limit=120",
                                       "--set=load.requests=60", NULL};
        struct real_run run;
        struct run_report report;
        start(&run, options);
        uint32_t broken[2] = {0, 0};
        int64_t bytes = 2000 + (int64_t)rng_below(&rng, 8000);
        while ((broken[0] == 0 || broken[1] == 0) && real_run_recorded(&run, bytes)) {
            for (uint32_t i = 0; i < 2; i++)
                if (broken[i] == 0)
                    broken[i] = sockets_break_one(run.processes[PREFILL_0], run.processes[DECODE_0 + i]);
            bytes += 200; /* not every pair may have met yet */
        }
        finish(&run, options, &report);
        assert_true(broken[0] + broken[1] > 0);
        assert_int_equal(report.completed, 60);
        assert_false(real_run_logged(&run, "is lost"));
        done(&run, &report);
    }
}

/* ---- A provider that does not come back -------------------------------------------------------------------------- */

/* Stops the prefiller's fabric thread alone, as a lock of a dead peer in shared memory does, and kills a decoder: it
 * cannot be fenced, so the prefiller says so and ends, and the other two serve everybody. */
static void fabric_thread_is_stuck(void **state)
{
    (void)state;
    if (rounds(0, 1) == 0)
        return; /* patience with the provider is long */
    static const char *const options[] = {"--provider=shm", "--limit=120", "--set=load.requests=60",
                                          "--set=load.rate=per_second(10)", NULL};
    struct real_run run;
    struct run_report report;
    start(&run, options);
    assert_true(real_run_started(&run));
    pid_t thread = real_run_thread(run.processes[PREFILL_0], "fabric");
    assert_true(thread > 0);
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0) {
        print_message("left out: threads cannot be stopped here\n");
        kill(run.launcher, SIGKILL);
        real_run_wait(&run, 128 + SIGKILL);
        real_run_free(&run);
        return;
    }
    assert_int_equal(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
    assert_int_equal(kill(run.processes[DECODE_0], SIGKILL), 0);
    int status = 0;
    int64_t until_ns = clock_now_ns() + PATIENCE_NS;
    while (clock_now_ns() < until_ns && (waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status))) {
    }
    assert_true(WIFEXITED(status) || WIFSIGNALED(status));
    finish(&run, options, &report);
    assert_true(real_run_logged(&run, "cannot be fenced"));
    assert_int_equal(report.completed, 60);
    done(&run, &report);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_for_ever),
        cmocka_unit_test(held_up),
        cmocka_unit_test(stopped_with_a_cancel_pending),
        cmocka_unit_test(late_writes),
        cmocka_unit_test(full_pool_waits),
        cmocka_unit_test(full_pool_rejects),
        cmocka_unit_test(clients_leave),
        cmocka_unit_test(nic_breaks),
        cmocka_unit_test(fabric_thread_is_stuck),
    };
    return cmocka_run_group_tests_name("real_faults", tests, NULL, NULL);
}
