/* Kill -9 an instance, or one of its executors, at a random point of a run; or stop it, as a machine that hangs would.
 * The others finish; requests that were lost fail with a reason or run again elsewhere, and what they produce is right;
 * nobody who lived holds anything at the end (the launcher judges that); no process and no shared memory is left; the
 * database is sound.
 *
 * A few in the tests; TANDEM_KILLS=N makes N of them (scripts/kills). Each prints its seed; TANDEM_KILL_SEED=S starts
 * there.
 */
#define _GNU_SOURCE
#include "base/rng.h"
#include "real/process/commands.h"
#include "support/real_run.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define SCENARIO "scenarios/real-gqa-2p2d.lua"
#define REQUESTS 40
#define SPAN_MS 2200 /* from the first arrivals: the load takes two seconds, and on a slow machine longer */

static const char *const options_shm[] = {
    "--provider=shm", "--set=load.requests=40", "--set=expect=nil", "--heartbeats=8", "--limit=180", NULL};
static const char *const options_tcp[] = {
    "--provider=tcp", "--set=load.requests=40", "--set=expect=nil", "--heartbeats=8", "--limit=180", NULL};

static int64_t number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoll(text, NULL, 10);
}

/* One run with one victim. */
static void kill_one(uint64_t seed, int signal_number)
{
    struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
    const char *const *options = seed % 2 == 0 ? options_shm : options_tcp;
    struct real_run run;
    real_run_start(&run, SCENARIO, options);
    assert_true(real_run_processes(&run, 4));
    assert_true(real_run_started(&run));
    uint64_t wait_ms = rng_below(&rng, SPAN_MS);
    bool executor = signal_number == SIGKILL && rng_below(&rng, 4) == 0;
    uint32_t first = executor ? run.instance_count : 0;
    uint32_t end = executor ? run.process_count : run.instance_count;
    uint32_t victim = first + (uint32_t)rng_below(&rng, end - first);
    printf("seed %" PRIu64 ": %s %s %" PRIu32 " after %" PRIu64 " ms, %s\n", seed,
           signal_number == SIGKILL ? "kill -9" : "stop", executor ? "executor" : "instance", victim, wait_ms,
           options[0]);
    fflush(stdout);
    usleep((useconds_t)wait_ms * 1000);
    assert_int_equal(kill(run.processes[victim], signal_number), 0);
    struct run_report report;
    assert_int_equal(real_run_wait(&run, 0), 0);
    real_run_read(&run, &report);
    printf("  %" PRIu64 " completed, %" PRIu64 " failed, %" PRIu64 " rejected\n", report.completed, report.failed,
           report.rejected);
    assert_int_equal(report.requests, REQUESTS);
    assert_int_equal(report.completed + report.failed + report.rejected, REQUESTS);
    assert_true(report.completed > 0);
    run_report_free(&report);
    assert_true(real_run_check_tokens(&run, SCENARIO, options) > 0);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

static void kills(void **state)
{
    (void)state;
    uint64_t first = (uint64_t)number("TANDEM_KILL_SEED", 1);
    uint64_t count = (uint64_t)number("TANDEM_KILLS", 4);
    for (uint64_t i = 0; i < count; i++)
        kill_one(first + i, SIGKILL);
}

/* Before the run has begun it cannot go on without one: then it says so, leaves nothing, and is as if it had never
 * been. */
static void killed_before_the_start(void **state)
{
    (void)state;
    struct real_run run;
    real_run_start(&run, SCENARIO, options_shm);
    assert_true(real_run_processes(&run, 4));
    assert_int_equal(kill(run.processes[1], SIGKILL), 0);
    assert_int_equal(real_run_wait(&run, 2), 2);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

static void stopped_peer(void **state)
{
    (void)state;
    kill_one(1001, SIGSTOP);
    kill_one(1002, SIGSTOP);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kills),
        cmocka_unit_test(killed_before_the_start),
        cmocka_unit_test(stopped_peer),
    };
    return cmocka_run_group_tests_name("kills", tests, NULL, NULL);
}
