/* A peer that begins and dies before another has heard the word to begin: the launcher makes the others wait for it
 * here, and the one that is to die waits for that.
 */
#define _GNU_SOURCE
#include "cli/real/run_real.h"
#include "real/cluster/launcher_internal.h"
#include "support/real_run.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define SCENARIO "tests/data/real-kills.lua"
#define INSTANCES 4
#define VICTIM 2 /* a prefiller */
#define WORD "TANDEM_TEST_WORD"

void __real_launcher_send_start(struct launcher *launcher, uint32_t node, int64_t origin_ns);
void __wrap_launcher_send_start(struct launcher *launcher, uint32_t node, int64_t origin_ns);
void __real_real_runtime_turn(struct real_runtime *real, int64_t timeout_ns);
void __wrap_real_runtime_turn(struct real_runtime *real, int64_t timeout_ns);

/* All are ready. By when the first is told to begin, the victim is gone and everybody knows. */
void __wrap_launcher_send_start(struct launcher *launcher, uint32_t node, int64_t origin_ns)
{
    const char *word = getenv(WORD);
    if (word != NULL && node == 1) {
        int file = open(word, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(file >= 0);
        close(file);
        usleep(500000);
    }
    __real_launcher_send_start(launcher, node, origin_ns);
}

void __wrap_real_runtime_turn(struct real_runtime *real, int64_t timeout_ns)
{
    const char *word = getenv(WORD);
    if (word != NULL && real_runtime_seam(real)->node == VICTIM && access(word, F_OK) == 0)
        raise(SIGKILL);
    __real_real_runtime_turn(real, timeout_ns);
}

static void a_peer_dies_at_the_start(const char *provider)
{
    const char *const options[] = {provider, NULL};
    struct real_run run;
    struct run_report report;
    char word[] = "/tmp/tandem-word-XXXXXX";
    int file = mkstemp(word);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(unlink(word), 0);
    assert_int_equal(setenv(WORD, word, 1), 0);
    real_run_start(&run, SCENARIO, options);
    assert_int_equal(real_run_wait(&run, 0), 0);
    unsetenv(WORD);
    assert_int_equal(unlink(word), 0);
    real_run_read(&run, &report);
    assert_int_equal(report.completed, report.requests); /* by the other prefiller */
    for (uint32_t node = 0; node <= INSTANCES; node++)
        if (node != VICTIM)
            assert_true(real_run_replay(&run, SCENARIO, options, node, NULL, NULL) > 0);
    run_report_free(&report);
    real_run_left_nothing(&run);
    real_run_free(&run);
}

static void over_shm(void **state)
{
    (void)state;
    a_peer_dies_at_the_start("--provider=shm");
}

static void over_tcp(void **state)
{
    (void)state;
    a_peer_dies_at_the_start("--provider=tcp");
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {cmocka_unit_test(over_shm), cmocka_unit_test(over_tcp)};
    return cmocka_run_group_tests_name("real_start", tests, NULL, NULL);
}
