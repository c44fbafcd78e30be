/* A writer is killed at many moments: the file opens, is sound, holds only complete runs, and the writer resumes. Also
 * runs that fail on the way to the disk, and the speed of streaming, printed.
 */
#define _POSIX_C_SOURCE 200809L

#include "base/arith.h"
#include "run/results/results_internal.h"
#include "support/results_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define REQUESTS 200
#define KILLS 24

static int64_t ask(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

/* Stores runs one after another, resuming behind those that are there, until it is killed. After each commit it says so
 * through the pipe. */
static _Noreturn void write_until_killed(const char *path, int pipe_end)
{
    struct user_error error = {.set = false};
    struct results *store = results_open(path, RESULTS_WRITE, &error);
    struct results_begin begin = {.record = 0};
    if (store != NULL)
        begin = fixture_begin(store, 0);
    while (!error.set) {
        int64_t run;
        begin.key.seed++;
        if (!results_run_find(store, &begin.key, &run, &error) || run != 0)
            continue;
        if (fixture_run_begun(store, &begin, REQUESTS, &error) != 0 &&
            write(pipe_end, &begin.key.seed, sizeof begin.key.seed) < 0)
            break;
    }
    fprintf(stderr, "%s\n", error.text);
    _exit(9);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void pause_ns(int64_t duration_ns)
{
    struct timespec wait = {.tv_sec = 0, .tv_nsec = (long)duration_ns};
    nanosleep(&wait, NULL);
}

/* Lets a writer commit once and kills it `delay_ns` later. Returns the last run it said was committed. */
static uint64_t kill_once(const char *path, int64_t delay_ns)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        write_until_killed(path, ends[1]);
    }
    close(ends[1]);
    uint64_t committed = 0;
    assert_int_equal(read(ends[0], &committed, sizeof committed), sizeof committed);
    pause_ns(delay_ns);
    assert_int_equal(kill(child, SIGKILL), 0);
    uint64_t more;
    while (read(ends[0], &more, sizeof more) == sizeof more)
        committed = more;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    return committed;
}

static void a_killed_writer_leaves_complete_runs(void **state)
{
    (void)state;
    char *path = fixture_path();
    uint64_t committed = 0;
    /* How long a run takes here, to spread the kills over all moments of one. */
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    committed = kill_once(path, 0);
    int64_t run_ns = (clock_ns(CLOCK_MONOTONIC) - start_ns) / (int64_t)committed;
    for (int k = 0; k < KILLS; k++) {
        committed = kill_once(path, run_ns * k / KILLS);
        /* A commit that was announced has lasted; the one under way at the kill may have too. */
        if (k % 4 == 0)
            assert_int_equal(ask(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
        int64_t runs = ask(path, "SELECT count(*) FROM run");
        if (runs < (int64_t)committed || runs > (int64_t)committed + 1)
            fail_msg("%ld runs, announced %lu", (long)runs, (unsigned long)committed);
        assert_int_equal(ask(path, "SELECT count(*) FROM run WHERE status <> 'complete'"), 0);
        assert_int_equal(ask(path, "SELECT count(*) FROM request"), runs * REQUESTS);
        assert_int_equal(ask(path, "SELECT count(*) FROM instance"), runs * 2);
        assert_int_equal(ask(path, "SELECT max(seed) FROM run"), runs);
        assert_int_equal(ask(path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    }
    struct user_error error = {.set = false};
    struct run_report report;
    struct results *store = fixture_open(path, RESULTS_READ);
    assert_true(results_run_read(store, 1, &report, &error));
    assert_int_equal(report.requests + report.warmup_requests, REQUESTS);
    run_report_free(&report);
    fixture_close(store);
    fixture_remove(path);
}

/* The disk fills up in the middle of a run: the run fails with a reason, is gone, and the store goes on when there is
 * room again. A limit on the size of files stands for the disk. */
static void a_full_disk_loses_only_the_run(void **state)
{
    (void)state;
    char *path = fixture_path();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct user_error error = {.set = false};
        signal(SIGXFSZ, SIG_IGN);
        struct results *store = results_open(path, RESULTS_WRITE, &error);
        bool first = store != NULL && fixture_run(store, 1, 100, &error) != 0;
        struct rlimit limit = {.rlim_cur = 400000, .rlim_max = RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
        bool second = first && fixture_run(store, 2, 100000, &error) != 0;
        bool told = !second && strstr(error.text, "t.db: ") != NULL;
        limit.rlim_cur = RLIM_INFINITY;
        setrlimit(RLIMIT_FSIZE, &limit);
        struct user_error none = {.set = false};
        bool third = first && fixture_run(store, 3, 100, &none) != 0 && results_close(store, &none);
        if (!told || !third)
            fprintf(stderr, "%s\n%s\n", error.text, none.text);
        _exit(first && told && third ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(ask(path, "SELECT sum(seed) FROM complete_run"), 1 + 3);
    assert_int_equal(ask(path, "SELECT count(*) FROM request"), 200);
    assert_int_equal(ask(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    fixture_remove(path);
}

/* TANDEM_TEST_ROWS sets the size: the figures for a million are made with it. */
static void streaming_speed(void **state)
{
    (void)state;
    const char *rows_text = getenv("TANDEM_TEST_ROWS");
    uint32_t rows = rows_text == NULL ? 20000 : (uint32_t)strtoul(rows_text, NULL, 10);
    char *path = fixture_path();
    struct user_error error = {.set = false};
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct results_begin begin = fixture_begin(store, 1);
    assert_int_not_equal(results_run_begin(store, &begin, &error), 0);
    struct request_row row = fixture_request(1, 6);
    uint64_t *itl = fixture_itl();
    struct run_summary summary = fixture_summary(1, 10);
    int64_t start_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (uint32_t k = 0; k < rows; k++) {
        row.request = k;
        for (int boundary = 0; boundary < BOUNDARY_COUNT; boundary++)
            row.boundary_ns[boundary] += 1000000 + (int64_t)(k * 2654435761u % 1000003) * boundary / 8;
        row.boundary_ns[BOUNDARY_FINISHED] = max_i64(row.boundary_ns[BOUNDARY_FINISHED], row.boundary_ns[7]);
        assert_true(results_add_request(store, &row, &error));
    }
    assert_true(results_run_commit(store, &summary, 0, fixture_instances, 2, itl, &error));
    int64_t stored_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    struct run_report report;
    assert_true(results_run_read(store, 1, &report, &error));
    int64_t read_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    fixture_close(store);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    print_message("%u requests: %.0f rows/s of processor time, report in %.3f s of it, %ld KiB peak\n", rows,
                  (double)rows * 1e9 / (double)(stored_ns - start_ns), (double)(read_ns - stored_ns) / 1e9,
                  usage.ru_maxrss);
    run_report_free(&report);
    free(itl);
    fixture_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_writer_leaves_complete_runs),
        cmocka_unit_test(a_full_disk_loses_only_the_run),
        cmocka_unit_test(streaming_speed),
    };
    return cmocka_run_group_tests_name("results: kills and speed", tests, NULL, NULL);
}
