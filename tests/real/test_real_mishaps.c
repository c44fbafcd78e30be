/* Whole real runs in which much goes wrong at once, drawn by seed: late, repeated and lost messages, completions that
 * pass each other, steps that are reported late, writes that fail, an instance that is killed, over shm and tcp in
 * turn. Whatever happens every request has an end, tokens and bytes are right, and nothing is held or left.
 *
 * TANDEM_MISHAP_RUNS runs (2; with TANDEM_LONG 40) from seed TANDEM_MISHAP_FIRST (1) on; every run prints its seed.
 */
#define _GNU_SOURCE
#include "real/mishap_runtime.h"
#include "real/process/commands.h"
#include "support/real_run.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SCENARIO "tests/data/real-kills.lua"
#define REQUESTS 24
#define INSTANCES 4

static const char *const names[MISHAP_BITS] = {
    "late messages", "messages twice", "lost messages", "late completions", "late steps", "writes in error", "a kill",
};

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void tell(uint64_t seed, const char *provider, const struct mishaps *mishaps)
{
    printf("TANDEM_MISHAP_RUNS=1 TANDEM_MISHAP_FIRST=%" PRIu64 ": %s", seed, provider);
    for (uint32_t i = 0; i < MISHAP_BITS; i++)
        if ((mishaps->bits >> i & 1) != 0)
            printf(", %s", names[i]);
    if ((mishaps->bits & MISHAP_KILL) != 0)
        printf(" of node %" PRIu32 " at event %" PRIu32, mishaps->victim, mishaps->victim_at);
    printf("\n");
    fflush(stdout);
}

/* Who lives to the end wrote down what it was told: told again, its node makes the same calls. */
static void replay_survivors(const struct real_run *run, const char *const *options, const struct mishaps *mishaps)
{
    for (uint32_t node = 0; node <= INSTANCES; node++)
        if ((mishaps->bits & MISHAP_KILL) == 0 || node != mishaps->victim)
            assert_true(real_run_replay(run, SCENARIO, options, node, NULL, NULL) > 0);
}

static void play(void **state)
{
    uint64_t seed = *(const uint64_t *)*state;
    struct mishaps mishaps = mishaps_of(seed, INSTANCES);
    const char *const options[] = {seed % 2 == 0 ? "--provider=shm" : "--provider=tcp",
                                   "--verify",
                                   "--limit=120",
                                   "--set=messenger.deadline=ms(500)",
                                   "--set=messenger.attempts_max=5",
                                   NULL};
    struct real_run run;
    struct run_report report;
    char text[24];
    tell(seed, options[0] + 11, &mishaps);
    snprintf(text, sizeof text, "%" PRIu64, seed);
    assert_int_equal(setenv("TANDEM_MISHAP_SEED", text, 1), 0);
    real_run_start(&run, SCENARIO, options);
    real_run_processes(&run, INSTANCES);
    assert_int_equal(real_run_wait(&run, 0), 0);
    unsetenv("TANDEM_MISHAP_SEED");
    real_run_read(&run, &report);
    assert_int_equal(report.requests, REQUESTS);
    assert_int_equal(report.completed + report.failed + report.rejected + report.aborted, REQUESTS);
    assert_int_equal(real_run_query(&run, "SELECT count(*) FROM request WHERE outcome <> 1 AND reason = 0"), 0);
    if ((mishaps.bits & (MISHAP_KILL | MISHAP_LOST_MESSAGES | MISHAP_WRITES_IN_ERROR)) == 0)
        assert_int_equal(report.completed, REQUESTS); /* slow is not wrong */
    assert_true(report.completed > 0);
    real_run_check_tokens(&run, SCENARIO, options);
    replay_survivors(&run, options, &mishaps);
    real_run_database_sound(&run);
    real_run_left_nothing(&run);
    run_report_free(&report);
    real_run_free(&run);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    uint64_t first = number("TANDEM_MISHAP_FIRST", 1);
    size_t count = (size_t)number("TANDEM_MISHAP_RUNS", getenv("TANDEM_LONG") != NULL ? 40 : 2);
    uint64_t *seeds = calloc(count, sizeof *seeds);
    char(*labels)[32] = calloc(count, sizeof *labels);
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    if (count == 0 || seeds == NULL || labels == NULL || tests == NULL)
        return 2;
    for (size_t i = 0; i < count; i++) {
        seeds[i] = first + i;
        snprintf(labels[i], sizeof labels[i], "mishaps_%" PRIu64, seeds[i]);
        tests[i] = (struct CMUnitTest){.name = labels[i], .test_func = play, .initial_state = &seeds[i]};
    }
    int failed = _cmocka_run_group_tests("mishaps", tests, count, NULL, NULL);
    free(tests);
    free(labels);
    free(seeds);
    return failed;
}
