/* How a real run ends when it does not end well: the exit statuses 129 and 130, what is kept, and that nothing is left.
 * (128, a run that makes no progress in its time, is in test_real_run.c.)
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/rng.h"
#include "cli/real/run_real.h"
#include "real/memory/shared_memory.h"
#include "support/real_run.h"
#include "host/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SCENARIO "tests/data/real-kills.lua"
#define INSTANCES 4
#define PATIENCE_NS (180 * NS_PER_S)

static void gone_without_a_run(struct real_run *run, int wanted)
{
    assert_int_equal(real_run_wait(run, wanted), wanted);
    real_run_left_nothing(run);
    assert_int_equal(real_run_stored(run), 0);
    if (real_run_has_database(run))
        real_run_database_sound(run);
    real_run_free(run);
}

/* ---- 130 --------------------------------------------------------------------------------------------------------- */

/* Ctrl-C, or a job that is told to end, while requests are under way. */
static void interrupted(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    static const char *const options[] = {"--provider=tcp", "--set=load.requests=2000", NULL};
    for (size_t i = 0; i < 2; i++) {
        struct real_run run;
        real_run_start(&run, SCENARIO, options);
        assert_true(real_run_processes(&run, INSTANCES));
        assert_true(real_run_started(&run));
        assert_int_equal(kill(run.launcher, signals[i]), 0);
        gone_without_a_run(&run, 130);
    }
}

/* Before anybody is ready. */
static void interrupted_at_the_start(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", NULL};
    struct real_run run;
    real_run_start(&run, SCENARIO, options);
    int64_t until_ns = clock_now_ns() + PATIENCE_NS;
    while (run.instance_count == 0 && clock_now_ns() < until_ns)
        real_run_look(&run);
    assert_int_equal(kill(run.launcher, SIGINT), 0);
    gone_without_a_run(&run, 130);
}

/* The second Ctrl-C takes the launcher away at once; the others find themselves without a front. */
static void interrupted_twice(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", "--set=load.requests=2000", NULL};
    struct real_run run;
    real_run_start(&run, SCENARIO, options);
    assert_true(real_run_processes(&run, INSTANCES));
    assert_true(real_run_started(&run));
    assert_int_equal(kill(run.launcher, SIGINT), 0);
    usleep(1000);
    assert_int_equal(kill(run.launcher, SIGINT), 0);
    gone_without_a_run(&run, 128 + SIGINT);
}

/* Processes of a killed launcher become children of this one: all of them are heard of. */
static uint32_t collect_orphans(void)
{
    uint32_t count = 0;
    int64_t until_ns = clock_now_ns() + PATIENCE_NS;
    for (;;) {
        pid_t process = waitpid(-1, NULL, WNOHANG);
        if (process < 0)
            return count;
        if (process > 0) {
            assert_false(real_run_in_shared_memory(process));
            count++;
        } else if (clock_now_ns() < until_ns) {
            usleep(2000);
        } else {
            fail_msg("a process has outlived its launcher");
        }
    }
}

/* Kill -9 of the launcher at every size that the run passes through while it starts, at once or a little later: while
 * instances are forked, start, make executors, map memory, open endpoints, wait for one another. */
static void killed_while_starting(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", NULL};
    const uint64_t seed = (uint64_t)clock_now_ns();
    struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
    uint32_t orphans = 0;
    printf("seed %" PRIu64 "\n", seed);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (uint32_t point = 0; point < 24; point++) {
        struct real_run run;
        real_run_start(&run, SCENARIO, options);
        int64_t until_ns = clock_now_ns() + PATIENCE_NS;
        uint32_t processes = 1 + point % 12;
        while (run.process_count < processes && !real_run_ended(&run) && clock_now_ns() < until_ns)
            real_run_look(&run);
        if (point >= 12)
            usleep((useconds_t)rng_below(&rng, 40000));
        kill(run.launcher, SIGKILL);
        orphans += collect_orphans();
        real_run_free(&run);
    }
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    assert_true(orphans > 24 * 4); /* launchers, and those they had started */
}

/* A sweep that is interrupted keeps the runs that are complete. */
static void interrupted_sweep(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", "--set=vary={[\"load.requests\"]={8,2000}}", NULL};
    struct real_run run;
    real_run_start(&run, SCENARIO, options);
    int64_t until_ns = clock_now_ns() + PATIENCE_NS;
    while (clock_now_ns() < until_ns && real_run_stored(&run) == 0)
        usleep(5000);
    assert_true(real_run_processes(&run, INSTANCES));
    assert_int_equal(kill(run.launcher, SIGINT), 0);
    assert_int_equal(real_run_wait(&run, 130), 130);
    real_run_left_nothing(&run);
    real_run_database_sound(&run);
    assert_int_equal(real_run_query(&run, "SELECT count(*) FROM run"), 1);
    assert_int_equal(real_run_query(&run, "SELECT completed FROM run"), 8);
    real_run_free(&run);
}

/* ---- 129 --------------------------------------------------------------------------------------------------------- */

/* The KV memory of a process, through the descriptor that it has of it. */
static unsigned char *map_kv(pid_t process, size_t *bytes)
{
    char path[300];
    unsigned char *at = NULL;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && at == NULL && (entry = readdir(folder)) != NULL;) {
        char target[300];
        struct stat status;
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)process, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = '\0';
        if (strstr(target, "memfd:tandem kv") == NULL)
            continue;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0 && fstat(fd, &status) == 0);
        *bytes = (size_t)status.st_size;
        at = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(at != MAP_FAILED);
        close(fd);
    }
    if (folder != NULL)
        closedir(folder);
    assert_non_null(at);
    return at;
}

/* Memory that changes under a decoder's hands: --verify finds that what arrived is not what was sent, and the run is
 * not kept. */
static void bytes_differ(void **state)
{
    (void)state;
    static const char *const options[] = {"--provider=shm", "--verify", "--limit=120", "--set=load.requests=40", NULL};
    struct real_run run;
    size_t bytes[2];
    unsigned char *memory[2];
    real_run_start(&run, SCENARIO, options);
    assert_true(real_run_processes(&run, INSTANCES));
    assert_true(real_run_started(&run));
    for (uint32_t i = 0; i < 2; i++)
        memory[i] = map_kv(run.processes[2 + i], &bytes[i]);
    while (!real_run_ended(&run)) {
        for (uint32_t i = 0; i < 2; i++)
            for (size_t at = 0; at < bytes[i]; at += 256)
                memory[i][at] ^= 0x10;
        usleep(500);
    }
    for (uint32_t i = 0; i < 2; i++)
        munmap(memory[i], bytes[i]);
    assert_true(real_run_logged(&run, "of transferred KV differ from what was sent"));
    gone_without_a_run(&run, 129);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupted),       cmocka_unit_test(interrupted_at_the_start),
        cmocka_unit_test(interrupted_twice), cmocka_unit_test(interrupted_sweep),
        cmocka_unit_test(bytes_differ),      cmocka_unit_test(killed_while_starting),
    };
    return cmocka_run_group_tests_name("real_exits", tests, NULL, NULL);
}
