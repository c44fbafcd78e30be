/* Lost instances of a real run are replaced where their pool says so: the only prefiller and the only decoder are
 * killed one after the other, and later requests are served by those in their place, with the right tokens.
 *
 * TANDEM_LONG=1 kills more.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/rng.h"
#include "cli/real/run_real.h"
#include "real/memory/shared_memory.h"
#include "support/real_run.h"
#include "host/clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SCENARIO "tests/data/real-kills.lua"
#define PATIENCE_NS (60 * NS_PER_S)

/* A prefiller and a decoder alone, and arrivals for so long that who comes in their place finds some left to serve. */
#define ALONE "--set=pools.prefill.count=1", "--set=pools.decode.count=1", "--limit=120", "--heartbeats=25"
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || defined __clang__
#define RATE "4" /* processes take seconds to start */
#else
#define RATE "15"
#endif
#define LONG "--set=load=evenly{rate=per_second(" RATE "),requests=150,prompt=uniform(1,120),output=uniform(1,30)}"
#define LONG_REQUESTS 150

static void await_log(const struct real_run *run, const char *text)
{
    int64_t until_ns = clock_now_ns() + PATIENCE_NS;
    while (!real_run_logged(run, text) && clock_now_ns() < until_ns)
        usleep(5000);
    if (!real_run_logged(run, text)) {
        real_run_show_log(run);
        fail_msg("'%s' is not in the log", text);
    }
}

/* Requests whose end the front has written down, in time to be served by whoever is there now. */
static uint64_t recorded(const struct real_run *run)
{
    return (uint64_t)real_run_recorded_bytes(run);
}

static void finish(struct real_run *run, const char *const *options, struct run_report *report)
{
    int exit = real_run_wait(run, 0);
    real_run_read(run, report);
    assert_int_equal(exit, report->completed > 0 ? 0 : 1); /* nothing served is no success */
    assert_int_equal(report->completed + report->failed + report->rejected, report->requests);
    assert_int_equal(real_run_query(run, "SELECT count(*) FROM request WHERE outcome <> 1 AND reason = 0"), 0);
    real_run_check_tokens(run, SCENARIO, options); /* as many as were written down */
    real_run_database_sound(run);
    real_run_left_nothing(run);
}

/* The last tenth of the requests came when both were replaced. */
static void expect_served(const struct real_run *run)
{
    assert_int_equal(real_run_query(run, "SELECT count(*) FROM request WHERE request >= 135 AND outcome <> 1"), 0);
    assert_true(real_run_query(run, "SELECT count(*) FROM request WHERE outcome <> 1 OR attempts > 1") > 0);
}

static void killed(const char *provider)
{
    const char *const options[] = {
        provider, ALONE, LONG, "--verify", "--set=pools.prefill.replace=ms(20)", "--set=pools.decode.replace=ms(20)",
        NULL};
    struct real_run run;
    struct run_report report;
    char path[160];
    struct stat status;
    real_run_start(&run, SCENARIO, options);
    assert_true(real_run_processes(&run, 2));
    assert_true(real_run_recorded(&run, 4000));
    pid_t prefiller = run.processes[0];
    assert_int_equal(kill(run.processes[1], SIGKILL), 0);
    await_log(&run, "decode-0 is lost");
    await_log(&run, "decode-0 is replaced");
    assert_true(real_run_recorded(&run, (int64_t)recorded(&run) + 4000));
    assert_int_equal(kill(prefiller, SIGKILL), 0);
    await_log(&run, "prefill-0 is lost");
    await_log(&run, "prefill-0 is replaced");
    real_run_look(&run);
    finish(&run, options, &report);
    assert_int_equal(report.requests, LONG_REQUESTS);
    expect_served(&run);
    run_report_free(&report);
    /* What each of the two was told is on record beside what their predecessors were. */
    for (uint32_t node = 1; node <= 2; node++) {
        snprintf(path, sizeof path, "%s/events/node-%" PRIu32 ".1.events", run.folder, node);
        assert_int_equal(stat(path, &status), 0);
        assert_true(status.st_size > 2000);
    }
    real_run_free(&run);
}

static void killed_over_shm(void **state)
{
    (void)state;
    killed("--provider=shm");
}

static void killed_over_tcp(void **state)
{
    (void)state;
    killed("--provider=tcp");
}

/* A decoder that is stopped is given up, replaced and ended: it cannot come back beside its successor. The successor is
 * lost as well, and has one of its own. */
static void stopped_and_killed_again(void **state)
{
    (void)state;
    const char *const options[] = {"--provider=tcp",
                                   "--heartbeats=8",
                                   "--set=pools.prefill.count=1",
                                   "--set=pools.decode.count=1",
                                   "--set=pools.decode.replace=ms(20)",
                                   "--limit=120",
                                   LONG,
                                   NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, SCENARIO, options);
    assert_true(real_run_processes(&run, 2));
    assert_true(real_run_recorded(&run, 4000));
    pid_t stopped = run.processes[1];
    assert_int_equal(kill(stopped, SIGSTOP), 0);
    await_log(&run, "decode-0 is replaced");
    assert_int_not_equal(kill(stopped, SIGCONT), 0); /* it is no more */
    real_run_look(&run);
    assert_int_equal(run.instance_count, 2);
    int64_t bytes = real_run_recorded_bytes(&run);
    assert_int_equal(kill(run.processes[1], SIGKILL), 0);
    if (real_run_recorded(&run, bytes + 1000))
        real_run_look(&run);
    finish(&run, options, &report);
    assert_true(report.completed > 0);
    run_report_free(&report);
    real_run_free(&run);
}

/* Anybody is killed at any moment, those in place of others as they start: whatever happens, every request has an end,
 * what was answered is right, and nothing is left. */
static void anybody_at_any_moment(void **state)
{
    (void)state;
    uint32_t rounds = getenv("TANDEM_LONG") != NULL ? 20 : 1;
    for (uint32_t round = 0; round < rounds; round++) {
        struct rng rng = rng_stream(round, 3, RNG_FAULTS);
        const char *const options[] = {round % 2 == 0 ? "--provider=tcp" : "--provider=shm",
                                       "--heartbeats=25",
                                       "--verify",
                                       "--set=load.requests=200",
                                       "--set=load.rate=per_second(30)",
                                       "--set=pools.prefill.replace=ms(1)",
                                       "--set=pools.decode.replace=ms(1)",
                                       "--limit=120",
                                       NULL};
        struct real_run run;
        struct run_report report;
        real_run_start(&run, SCENARIO, options);
        assert_true(real_run_processes(&run, 4));
        assert_true(real_run_started(&run));
        for (uint32_t kills = 0; kills < 6; kills++) {
            usleep((useconds_t)rng_below(&rng, 700000));
            real_run_look(&run);
            /* Nobody has waited for it yet, so its number is nobody else's. */
            if (run.instance_count > 0)
                kill(run.processes[rng_below(&rng, run.instance_count)], SIGKILL);
        }
        finish(&run, options, &report);
        printf("  round %" PRIu32 ": %" PRIu64 " of %" PRIu64 " completed\n", round, report.completed, report.requests);
        assert_true(report.completed > 0);
        run_report_free(&report);
        real_run_free(&run);
    }
}

/* Without the policy nobody comes. */
static void nobody_comes(void **state)
{
    (void)state;
    const char *const options[] = {"--provider=tcp", ALONE, NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, SCENARIO, options);
    assert_true(real_run_processes(&run, 2));
    assert_true(real_run_started(&run));
    assert_int_equal(kill(run.processes[1], SIGKILL), 0);
    finish(&run, options, &report);
    assert_false(real_run_logged(&run, "is replaced"));
    assert_true(report.failed + report.rejected > 0);
    run_report_free(&report);
    real_run_free(&run);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_over_shm),
        cmocka_unit_test(killed_over_tcp),
        cmocka_unit_test(stopped_and_killed_again),
        cmocka_unit_test(anybody_at_any_moment),
        cmocka_unit_test(nobody_comes),
    };
    return cmocka_run_group_tests_name("real_replaced", tests, NULL, NULL);
}
