/* The file itself: what is created, what is refused, how the schema grows, and that nothing is left beside it. */
#define _POSIX_C_SOURCE 200809L

#include "run/results/results_internal.h"
#include "support/results_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool exists(const char *path, const char *suffix)
{
    char full[512];
    struct stat status;
    snprintf(full, sizeof full, "%s%s", path, suffix);
    return stat(full, &status) == 0;
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void execute(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

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

static void assert_refused(const char *path, enum results_mode mode, const char *text)
{
    struct user_error error = {.set = false};
    struct results *store = results_open(path, mode, &error);
    assert_null(store);
    assert_true(error.set);
    assert_int_equal(strncmp(error.text, path, strlen(path)), 0);
    if (strstr(error.text, text) == NULL)
        fail_msg("expected '%s' in '%s'", text, error.text);
    assert_false(exists(path, "-lock"));
}

static void a_new_file_is_ours_and_alone(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    struct results *store = fixture_open(path, RESULTS_WRITE);
    assert_true(exists(path, "-lock"));
    assert_int_not_equal(fixture_run(store, 1, 10, &error), 0);
    assert_true(exists(path, "-wal"));
    fixture_close(store);
    assert_false(exists(path, "-lock"));
    assert_false(exists(path, "-wal"));
    assert_false(exists(path, "-shm"));
    assert_int_equal(ask(path, "PRAGMA application_id"), RESULTS_APPLICATION_ID);
    assert_int_equal(ask(path, "PRAGMA user_version"), results_migration_count);
    assert_int_equal(ask(path, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%STRICT%'"),
                     0);

    store = fixture_open(path, RESULTS_READ);
    assert_int_equal(results_run_lookup(store, "last", &error), 1);
    struct results_begin begin = {
        .key = {.scenario = 1, .build = 1, .seed = 9, .backend = RESULTS_SIM}, .kind = RESULTS_RUN, .compiler = ""};
    assert_int_equal(results_run_begin(store, &begin, &error), 0); /* a reader cannot write */
    fixture_close(store);
    assert_false(exists(path, "-wal"));
    fixture_remove(path);
}

static void what_is_not_ours_is_refused(void **state)
{
    (void)state;
    char *path = fixture_path();
    assert_refused(path, RESULTS_READ, "no results database: No such file");
    static const char text[] = "a letter, long enough to have a header of a hundred bytes, which begins in no way as a "
                               "database would; it must not be touched";
    write_file(path, text, sizeof text);
    assert_refused(path, RESULTS_WRITE, "the file is not SQLite's");
    assert_refused(path, RESULTS_READ, "the file is not SQLite's");
    unlink(path);

    write_file(path, "", 0);
    assert_refused(path, RESULTS_READ, "holds no results yet");
    unlink(path);

    execute(path, "CREATE TABLE letters (text TEXT)");
    assert_refused(path, RESULTS_WRITE, "a database of another program (application id 0)");
    execute(path, "PRAGMA application_id = 77");
    assert_refused(path, RESULTS_WRITE, "a database of another program (application id 77)");
    assert_int_equal(ask(path, "SELECT count(*) FROM sqlite_schema"), 1);
    fixture_remove(path);
}

static void a_newer_schema_is_refused(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct results *store = fixture_open(path, RESULTS_WRITE);
    fixture_close(store);
    execute(path, "PRAGMA user_version = 1000");
    assert_refused(path, RESULTS_WRITE, "written by a newer tandem: its schema is version 1000");
    assert_refused(path, RESULTS_READ, "written by a newer tandem");
    assert_int_equal(ask(path, "PRAGMA user_version"), 1000);
    fixture_remove(path);
}

/* Every page of the file in turn is overwritten: whatever then happens is said, and never a crash. */
static void a_damaged_file_is_reported(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    struct results *store = fixture_open(path, RESULTS_WRITE);
    assert_int_not_equal(fixture_run(store, 1, 200, &error), 0);
    fixture_close(store);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    size_t size = (size_t)status.st_size;
    unsigned char *whole = malloc(size);
    assert_non_null(whole);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(whole, 1, size, file), size);
    fclose(file);
    unsigned failures = 0;
    for (size_t page = 0; page < size; page += 4096) {
        unsigned char saved[4096];
        memcpy(saved, whole + page, sizeof saved);
        /* The first page keeps its header, so that it is known as SQLite's. */
        memset(whole + page + (page == 0 ? 100 : 0), 0xa5, page == 0 ? 3996 : 4096);
        write_file(path, whole, size);
        memcpy(whole + page, saved, sizeof saved);
        struct run_report report;
        memset(&error, 0, sizeof error);
        store = results_open(path, RESULTS_READ, &error);
        bool good = store != NULL && results_run_read(store, 1, &report, &error);
        assert_int_equal(good, !error.set);
        failures += !good;
        if (page == 0)
            assert_non_null(strstr(error.text, "the database is damaged"));
        if (good)
            run_report_free(&report);
        if (store != NULL)
            results_close(store, &error);
    }
    /* Most pages hold the schema or the run's rows. */
    assert_true(failures >= 8);
    write_file(path, whole, size / 2);
    memset(&error, 0, sizeof error);
    store = results_open(path, RESULTS_READ, &error);
    struct run_report report;
    assert_false(store != NULL && results_run_read(store, 1, &report, &error));
    assert_true(error.set);
    if (store != NULL)
        results_close(store, &error);
    free(whole);
    fixture_remove(path);
}

/* ---- Growing the schema ----------------------------------------------------------------------------------------- */

static const char *const test_version_1[] = {"CREATE TABLE a (x INTEGER) STRICT", NULL};
static const char *const test_version_2[] = {"ALTER TABLE a ADD COLUMN y INTEGER", "UPDATE a SET y = x * 2", NULL};
static const char *const test_version_3[] = {"CREATE TABLE b (z INTEGER) STRICT", "this is no statement", NULL};
static const struct results_migration test_migrations[] = {{test_version_1}, {test_version_2}, {test_version_3}};

static void migrations_are_applied_from_where_the_file_is(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_true(results_schema_apply(db, path, test_migrations, 1, &error));
    assert_int_equal(sqlite3_exec(db, "INSERT INTO a VALUES (21)", NULL, NULL, NULL), SQLITE_OK);
    assert_true(results_schema_apply(db, path, test_migrations, 2, &error));
    assert_true(results_schema_apply(db, path, test_migrations, 2, &error));
    assert_int_equal(ask(path, "SELECT y FROM a"), 42);
    assert_int_equal(ask(path, "PRAGMA user_version"), 2);

    /* A step that fails half way leaves the file as it was. */
    assert_false(results_schema_apply(db, path, test_migrations, 3, &error));
    assert_non_null(strstr(error.text, "cannot be brought from schema version"));
    assert_int_equal(ask(path, "PRAGMA user_version"), 2);
    assert_int_equal(ask(path, "SELECT count(*) FROM sqlite_schema"), 1);
    sqlite3_close(db);
    fixture_remove(path);
}

/* Builds the file as each released version would have left it, then opens it. */
static void every_old_version_is_brought_up_to_date(void **state)
{
    (void)state;
    for (uint32_t version = 0; version <= results_migration_count; version++) {
        char *path = fixture_path();
        struct user_error error = {.set = false};
        sqlite3 *db;
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_true(results_schema_apply(db, path, results_migrations, version, &error));
        sqlite3_close(db);
        struct results *store = fixture_open(path, RESULTS_WRITE);
        assert_int_not_equal(fixture_run(store, 1, 10, &error), 0);
        fixture_close(store);
        assert_int_equal(ask(path, "PRAGMA user_version"), results_migration_count);
        fixture_remove(path);
    }
}

static void transfers_of_version_2_are_kept(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_true(results_schema_apply(db, path, results_migrations, 2, &error));
    assert_int_equal(sqlite3_exec(db,
                                  "INSERT INTO run (id, scenario_id, build_id, compiler, seed, backend, kind, params,"
                                  " has_targets, record, status, stored_unix_s, recency)"
                                  " VALUES (1, 1, 1, '', 1, 'sim', 'run', '', 0, 0, 'running', 0, 1);"
                                  "INSERT INTO transfer VALUES (1,2,3,4,5,6,7,8,9,10,11)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_true(results_schema_apply(db, path, results_migrations, results_migration_count, &error));
    sqlite3_close(db);
    assert_int_equal(ask(path, "SELECT count(*) FROM transfer WHERE request = 2 AND epoch = 3 AND layers = 6 AND"
                               " bytes = 7 AND posted_ns = 9 AND confirmed_ns = 11 AND ticket = 0"),
                     1);
    fixture_remove(path);
}

/* ---- Runs that go ---------------------------------------------------------------------------------------------------
 */

static const char *const orphans = "SELECT (SELECT count(*) FROM request WHERE run_id NOT IN (SELECT id FROM run))"
                                   " + (SELECT count(*) FROM instance WHERE run_id NOT IN (SELECT id FROM run))"
                                   " + (SELECT count(*) FROM itl_histogram WHERE run_id NOT IN (SELECT id FROM run))"
                                   " + (SELECT count(*) FROM run_param WHERE run_id NOT IN (SELECT id FROM run))";

/* As sqlite3 does it, for which foreign keys are words. */
static void a_run_deleted_by_hand_leaves_nothing(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    struct results *store = fixture_open(path, RESULTS_WRITE);
    for (uint64_t seed = 1; seed <= 3; seed++)
        assert_int_equal(fixture_run(store, seed, 20, &error), seed);
    fixture_close(store);
    execute(path, "DELETE FROM run WHERE id = 3");
    assert_int_equal(ask(path, "SELECT count(*) FROM request WHERE run_id = 3"), 0);
    assert_int_equal(ask(path, orphans), 0);
    /* Its number is not given again, and what comes next is stored like any other. */
    store = fixture_open(path, RESULTS_WRITE);
    assert_int_equal(fixture_run(store, 4, 20, &error), 4);
    assert_int_equal(fixture_run(store, 3, 20, &error), 5);
    fixture_close(store);
    execute(path, "DELETE FROM scenario");
    assert_int_equal(ask(path, "SELECT count(*) FROM run"), 0);
    assert_int_equal(ask(path, orphans), 0);
    store = fixture_open(path, RESULTS_WRITE);
    assert_int_equal(fixture_run(store, 1, 20, &error), 6);
    fixture_close(store);
    fixture_remove(path);
}

static void orphans_of_older_versions_are_swept(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_true(results_schema_apply(db, path, results_migrations, 7, &error));
    sqlite3_close(db);
    execute(path, "INSERT INTO instance (run_id, node, name, role, ranks, requests, busy_ns, compute_bound_ns,"
                  " bandwidth_bound_ns, communication_bound_ns, overhead_bound_ns, steps, prefill_tokens,"
                  " decode_tokens, pages_total, pages_held_peak, page_wait_ns, handoff_wait_ns, preemptions,"
                  " nic_transmit_busy_ns, nic_receive_busy_ns, nic_op_bound_ns, nic_bytes)"
                  " VALUES (1, 1, 'prefill-0', 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)");
    assert_int_equal(ask(path, orphans), 1);
    struct results *store = fixture_open(path, RESULTS_WRITE);
    assert_int_equal(fixture_run(store, 1, 20, &error), 1); /* it could not be stored while that was there */
    fixture_close(store);
    assert_int_equal(ask(path, orphans), 0);
    fixture_remove(path);
}

/* ---- Two at once ------------------------------------------------------------------------------------------------ */

static void a_second_writer_is_told_who_writes(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    struct results *store = fixture_open(path, RESULTS_WRITE);
    assert_int_not_equal(fixture_run(store, 1, 10, &error), 0);
    char expected[96];
    snprintf(expected, sizeof expected, "process %ld is writing to this database", (long)getpid());
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct user_error refused = {.set = false};
        struct results *second = results_open(path, RESULTS_WRITE, &refused);
        bool told = second == NULL && strstr(refused.text, expected) != NULL;
        /* Reading goes on beside the writer. */
        struct user_error none = {.set = false};
        struct results *reader = results_open(path, RESULTS_READ, &none);
        bool read = reader != NULL && results_run_lookup(reader, "last", &none) == 1;
        if (reader != NULL)
            results_close(reader, &none);
        _exit(told && read && !none.set ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fixture_close(store);

    /* A lock file that a killed process left is no lock. */
    char lock[512];
    snprintf(lock, sizeof lock, "%s-lock", path);
    write_file(lock, "", 0);
    store = fixture_open(path, RESULTS_WRITE);
    fixture_close(store);
    assert_false(exists(path, "-lock"));
    fixture_remove(path);
}

static void a_run_in_progress_is_not_seen(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    struct results *store = fixture_open(path, RESULTS_WRITE);
    assert_int_not_equal(fixture_run(store, 1, 10, &error), 0);
    struct results_begin begin = fixture_begin(store, 2);
    assert_int_equal(results_run_begin(store, &begin, &error), 2);
    struct request_row row = fixture_request(2, 0);
    assert_true(results_add_request(store, &row, &error));
    assert_int_equal(ask(path, "SELECT count(*) FROM run"), 1);
    /* Aborted, it never was; and a store that is closed within a run drops it. */
    results_run_abort(store);
    results_run_abort(store);
    assert_int_equal(results_run_begin(store, &begin, &error), 2);
    assert_true(results_add_request(store, &row, &error));
    fixture_close(store);
    assert_int_equal(ask(path, "SELECT count(*) FROM run"), 1);
    assert_int_equal(ask(path, "SELECT count(*) FROM request WHERE run_id = 2"), 0);
    fixture_remove(path);
}

static void seeds_beyond_the_column_are_refused(void **state)
{
    (void)state;
    char *path = fixture_path();
    struct user_error error = {.set = false};
    struct results *store = fixture_open(path, RESULTS_WRITE);
    struct results_begin begin = fixture_begin(store, UINT64_MAX);
    assert_int_equal(results_run_begin(store, &begin, &error), 0);
    assert_non_null(strstr(error.text, "seed 18446744073709551615: must be at most 9223372036854775807"));
    error.set = false;
    begin.key.seed = INT64_MAX;
    assert_int_not_equal(results_run_begin(store, &begin, &error), 0);
    fixture_close(store);
    fixture_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_is_ours_and_alone),
        cmocka_unit_test(what_is_not_ours_is_refused),
        cmocka_unit_test(a_newer_schema_is_refused),
        cmocka_unit_test(a_damaged_file_is_reported),
        cmocka_unit_test(migrations_are_applied_from_where_the_file_is),
        cmocka_unit_test(every_old_version_is_brought_up_to_date),
        cmocka_unit_test(transfers_of_version_2_are_kept),
        cmocka_unit_test(a_run_deleted_by_hand_leaves_nothing),
        cmocka_unit_test(orphans_of_older_versions_are_swept),
        cmocka_unit_test(a_second_writer_is_told_who_writes),
        cmocka_unit_test(a_run_in_progress_is_not_seen),
        cmocka_unit_test(seeds_beyond_the_column_are_refused),
    };
    return cmocka_run_group_tests_name("results: the file", tests, NULL, NULL);
}
