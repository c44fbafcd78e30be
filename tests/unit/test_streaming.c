/* Memory of a stored run grows with the requests in flight, not with those that have passed: the same load, ten times
 * as long, in processes of their own, whose peaks the kernel tells.
 */
#define _DEFAULT_SOURCE

#include "base/arith.h"
#include "run/stored_run.h"
#include "sim/sim_run.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define REQUESTS 20000

static const char *program;

/* In the child: one run into a database of its own. */
static int store_run(uint32_t requests, const char *path)
{
    struct user_error error = {.set = false};
    struct scenario *scenario = malloc(sizeof *scenario);
    if (scenario == NULL)
        return 9;
    scenario_llama_70b(scenario, 1, 1, 30, requests);
    scenario->load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 16, .high = 64};
    scenario->load.output = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = 4};
    scenario->plan.goal = PLAN_HIGHEST_RATE;
    memset(scenario->identity, 'a', sizeof scenario->identity - 1);
    snprintf(scenario->path, sizeof scenario->path, "none.lua");
    struct deployment_choice choice = deployment_default(scenario);
    struct run_config config = {.scenario = scenario, .choice = &choice, .seed = 1};
    struct stored_run what = {
        .store = results_open(path, RESULTS_WRITE, &error),
        .backend = &sim_backend,
        .config = &config,
        .kind = RESULTS_RUN,
        .record = RECORD_TRANSFERS | RECORD_STEPS,
    };
    int64_t run = 0;
    struct run_summary summary = {.completed = 0};
    bool whole = what.store != NULL && stored_run(&what, &run, &summary, &error) == RUN_COMPLETE &&
                 summary.completed == requests && results_close(what.store, &error);
    if (!whole)
        fprintf(stderr, "%s\n", error.text);
    free(scenario);
    return whole ? 0 : 9;
}

static int64_t peak_kib(uint32_t requests)
{
    char folder[] = "/tmp/tandem-streaming-XXXXXX";
    char path[64];
    char count[16];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/runs.db", folder);
    snprintf(count, sizeof count, "%u", requests);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* An address sanitizer keeps what is freed from being used again; that is not what is measured. */
        setenv("ASAN_OPTIONS", "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:detect_leaks=0", 1);
        execl(program, program, count, path, (char *)NULL);
        _exit(8);
    }
    int status;
    struct rusage usage;
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    print_message("%u requests: %ld KiB\n", requests, usage.ru_maxrss);
    return usage.ru_maxrss;
}

static void memory_does_not_grow_with_the_requests_that_passed(void **state)
{
    (void)state;
    int64_t once = peak_kib(REQUESTS);
    int64_t long_run = peak_kib(10 * REQUESTS);
    /* The page cache of the database is not full after the short run: it may fill to its bound, and no further. Rows
     * that were kept, of requests, transfers and steps, would take twice of that. */
    assert_true(long_run - RESULTS_CACHE_KIB < once * 12 / 10);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return store_run((uint32_t)strtoul(argv[1], NULL, 10), argv[2]);
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow_with_the_requests_that_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
