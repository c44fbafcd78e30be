/* Loads whose requests follow answers, and warm-ups, in whole real runs: what the front feeds, what counts, and that
 * every token is the one that a single process computes.
 */
#define _GNU_SOURCE
#include "cli/real/run_real.h"
#include "support/real_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PREFIX "scenarios/real-prefix.lua"

/* Gaps between tokens of requests that counted, by the rows: every token but the first has one. */
#define GAPS "(SELECT sum(output_tokens - 1) FROM request WHERE outcome = 1 AND warmup = 0)"

static void finish(struct real_run *run, const char *const *options, uint64_t requests)
{
    struct run_report report;
    assert_int_equal(real_run_wait(run, 0), 0);
    real_run_read(run, &report);
    assert_int_equal(report.completed + report.warmup_requests, requests);
    run_report_free(&report);
    assert_true(real_run_check_tokens(run, PREFIX, options) >= requests);
    real_run_database_sound(run);
    real_run_left_nothing(run);
}

/* Every turn comes after the answer to the one before it and holds all that was said; what was said is found in the
 * prefiller's cache. The first requests count for nothing. */
static void conversations_with_a_warm_up(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--provider=shm",
        "--verify",
        "--set=load=sessions{rate=per_second(40),requests=24,turns=uniform(2,5),think=ms(20),system=48,block=16,"
        "prompt=uniform(1,40),output=uniform(1,20),warmup_requests=8}",
        "--set=pools.prefill.memory_utilization=percent(30)",
        "--set=expect=nil",
        "--limit=120",
        NULL};
    struct real_run run;
    real_run_start(&run, PREFIX, options);
    finish(&run, options, 24);
    assert_int_equal(real_run_query(&run, "SELECT count(*) FROM request WHERE conversation > 0"), 24);
    assert_true(real_run_query(&run, "SELECT count(DISTINCT conversation) FROM request") >= 4);
    const char *pairs = "SELECT count(*) FROM request AS a JOIN request AS b USING (conversation)"
                        " WHERE a.request < b.request";
    assert_true(real_run_query(&run, pairs) >= 12);
    assert_int_equal(real_run_query(&run, "SELECT count(*) FROM request AS a JOIN request AS b USING (conversation)"
                                          " WHERE a.request < b.request AND (b.arrived_ns < a.finished_ns"
                                          " OR b.prompt_tokens <= a.prompt_tokens + a.output_tokens)"),
                     0);
    assert_true(real_run_query(&run, "SELECT sum(cached_tokens) FROM request") > 0);
    /* The warm-up is over when the ninth request comes, and tokens count from then on: all of those that count as
     * requests, and of the others those that came late. */
    assert_int_equal(real_run_query(&run, "SELECT sum(warmup) FROM request WHERE request < 8"), 8);
    assert_int_equal(real_run_query(&run, "SELECT sum(warmup) FROM request WHERE request >= 8"), 0);
    assert_int_equal(real_run_query(&run, "SELECT start_ns <= (SELECT arrived_ns FROM request WHERE request = 8) AND"
                                          " start_ns >= (SELECT arrived_ns FROM request WHERE request = 7) FROM run"),
                     1);
    assert_int_equal(real_run_query(&run, "SELECT (SELECT sum(tokens) FROM itl_histogram) >= " GAPS), 1);
    assert_int_equal(real_run_query(&run, "SELECT (SELECT sum(tokens) FROM itl_histogram) <"
                                          " (SELECT sum(output_tokens - 1) FROM request)"),
                     1);
    real_run_free(&run);
}

/* Whoever goes away goes on with the next turn, as in simulation. */
static void users_who_go_away_come_back(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--provider=tcp",
        "--set=load=sessions{rate=per_second(30),requests=20,turns=4,block=16,prompt=uniform(20,90),"
        "output=uniform(5,30),abort_share=percent(60),abort_within=ms(60)}",
        "--set=expect=nil", "--limit=120", NULL};
    struct real_run run;
    struct run_report report;
    real_run_start(&run, PREFIX, options);
    assert_int_equal(real_run_wait(&run, 0), 0);
    real_run_read(&run, &report);
    assert_int_equal(report.requests, 20);
    assert_int_equal(report.completed + report.aborted, 20);
    assert_true(report.aborted > 0);
    run_report_free(&report);
    real_run_check_tokens(&run, PREFIX, options);
    assert_true(real_run_query(&run, "SELECT count(*) FROM request AS a JOIN request AS b USING (conversation)"
                                     " WHERE a.outcome = 4 AND a.request < b.request") > 0);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

/* A closed loop with a warm-up: as many requests at a time as there are clients, no more. */
static void closed_loop_with_a_warm_up(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--provider=shm",
        "--set=load=closed{concurrency=3,requests=15,prompt=uniform(1,100),output=uniform(1,20),warmup_requests=5}",
        "--set=expect=nil", "--limit=120", NULL};
    struct real_run run;
    real_run_start(&run, PREFIX, options);
    finish(&run, options, 15);
    assert_int_equal(real_run_query(&run, "SELECT sum(warmup) FROM request"), 5);
    assert_int_equal(real_run_query(&run, "SELECT count(*) FROM request WHERE conversation IS NOT NULL"), 0);
    assert_int_equal(real_run_query(&run, "SELECT max(n) FROM (SELECT (SELECT count(*) FROM request AS b"
                                          " WHERE b.arrived_ns <= a.arrived_ns AND b.finished_ns > a.arrived_ns) AS n"
                                          " FROM request AS a)"),
                     3);
    real_run_free(&run);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_with_a_warm_up),
        cmocka_unit_test(users_who_go_away_come_back),
        cmocka_unit_test(closed_loop_with_a_warm_up),
    };
    return cmocka_run_group_tests_name("real_loads", tests, NULL, NULL);
}
