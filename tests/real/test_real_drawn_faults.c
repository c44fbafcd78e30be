/* Whole real runs in which much goes wrong at once: what the swarm draws from a seed (sim/swarm/fuzz_draw.h), as far as
 * it can be run for real (real_draw.h), over shm and tcp in turn. Whatever happens every request has an end, tokens and
 * bytes are right, and nothing is held or left.
 *
 * TANDEM_FAULT_RUNS runs (2; with TANDEM_LONG 40) from seed TANDEM_FAULT_FIRST (1) on; every run prints its seed.
 */
#define _GNU_SOURCE
#include "world/scenario/scenario_write.h"
#include "real/faulty_runtime.h"
#include "cli/real/run_real.h"
#include "real/real_draw.h"
#include "support/real_run.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const names[] = {
    [FAULT_KILL] = "kill",   [FAULT_LATE] = "late",   [FAULT_TWICE] = "twice",
    [FAULT_SLOW] = "slow",   [FAULT_STALL] = "stall", [FAULT_FAIL] = "fail",
    [FAULT_TICKS] = "ticks", [FAULT_LEAVE] = "leave", [FAULT_DROP] = "drop",
};

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void tell(uint64_t seed, const char *provider, const struct drawn *drawn)
{
    printf("TANDEM_FAULT_RUNS=1 TANDEM_FAULT_FIRST=%" PRIu64 ": %s, %" PRIu32 " instances, %" PRIu32 " requests", seed,
           provider, real_draw_instances(drawn), drawn->scenario.load.requests);
    for (uint32_t i = 0; i < drawn->faults.count; i++)
        printf(", %s %s", names[drawn->faults.item[i].kind], drawn->faults.item[i].node);
    printf("\n");
    fflush(stdout);
}

static void write_scenario(const struct drawn *drawn, const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(scenario_write(&drawn->scenario, file));
    assert_int_equal(fclose(file), 0);
}

static uint32_t victim_of(const struct drawn *drawn)
{
    for (uint32_t i = 0; i < drawn->faults.count; i++)
        if (drawn->faults.item[i].kind == FAULT_KILL)
            return real_draw_node(drawn, drawn->faults.item[i].node);
    return UINT32_MAX;
}

static void play(void **state)
{
    uint64_t seed = *(const uint64_t *)*state;
    const char *const options[] = {seed % 2 == 0 ? "--provider=shm" : "--provider=tcp", "--verify", "--limit=120",
                                   NULL};
    struct drawn *drawn = calloc(1, sizeof *drawn);
    struct real_run run;
    struct run_report report;
    char text[24];
    char path[] = "/tmp/tandem_fault_XXXXXX";
    int file = mkstemp(path);
    assert_true(drawn != NULL && file >= 0);
    close(file);
    real_draw(seed, drawn);
    tell(seed, options[0] + 11, drawn);
    write_scenario(drawn, path);
    snprintf(text, sizeof text, "%" PRIu64, seed);
    assert_int_equal(setenv(INJECT_SEED, text, 1), 0);
    real_run_start(&run, path, options);
    real_run_processes(&run, real_draw_instances(drawn));
    int status = real_run_wait(&run, 0);
    unsetenv(INJECT_SEED);
    real_run_read(&run, &report);
    assert_int_equal(status, report.completed > 0 ? 0 : 1); /* 1: nothing was served */
    assert_int_equal(report.requests + report.warmup_requests, drawn->scenario.load.requests);
    assert_int_equal(report.completed + report.failed + report.rejected + report.aborted, report.requests);
    assert_int_equal(real_run_query(&run, "SELECT count(*) FROM request WHERE outcome <> 1 AND reason = 0"), 0);
    if (!real_draw_loses(drawn)) /* slow is not wrong */
        assert_int_equal(report.failed, 0);
    real_run_check_tokens(&run, path, options);
    /* Who lives to the end wrote down what it was told: told again, its node makes the same calls. */
    for (uint32_t node = 0; node <= real_draw_instances(drawn); node++) {
        int64_t events = node == victim_of(drawn) ? 1 : real_run_replay(&run, path, options, node, NULL, NULL);
        if (events == 0) {
            real_run_show_log(&run);
            fail_msg("node %u: wrote nothing down", node);
        }
    }
    real_run_database_sound(&run);
    real_run_left_nothing(&run);
    run_report_free(&report);
    real_run_free(&run);
    assert_int_equal(remove(path), 0);
    free(drawn);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    uint64_t first = number("TANDEM_FAULT_FIRST", 1);
    size_t count = (size_t)number("TANDEM_FAULT_RUNS", getenv("TANDEM_LONG") != NULL ? 40 : 2);
    uint64_t *seeds = calloc(count, sizeof *seeds);
    char(*labels)[32] = calloc(count, sizeof *labels);
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    if (count == 0 || seeds == NULL || labels == NULL || tests == NULL)
        return 2;
    for (size_t i = 0; i < count; i++) {
        seeds[i] = first + i;
        snprintf(labels[i], sizeof labels[i], "injection_%" PRIu64, seeds[i]);
        tests[i] = (struct CMUnitTest){.name = labels[i], .test_func = play, .initial_state = &seeds[i]};
    }
    int failed = _cmocka_run_group_tests("faults", tests, count, NULL, NULL);
    free(tests);
    free(labels);
    free(seeds);
    return failed;
}
