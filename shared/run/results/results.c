/* Opening, locking and closing the results database. See results.h. */
#define _POSIX_C_SOURCE 200809L

#include "run/results/results_internal.h"
#include "host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool results_fail(struct results *store, struct user_error *error, const char *doing)
{
    if (sqlite3_errcode(store->db) == SQLITE_BUSY)
        user_error_set(error, store->path, 0, NULL,
                       "%s: another process holds the database, and has for at least %d s; try again", doing,
                       RESULTS_BUSY_MS / 1000);
    else if (strncmp(sqlite3_errmsg(store->db), "no such ", 8) == 0)
        user_error_set(error, store->path, 0, NULL,
                       "%s: %s: somebody has changed its schema; restore the file or name another", doing,
                       sqlite3_errmsg(store->db));
    else
        user_error_set(error, store->path, 0, NULL, "%s: %s", doing, sqlite3_errmsg(store->db));
    return false;
}

bool results_execute(struct results *store, const char *sql, struct user_error *error)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK || results_fail(store, error, sql);
}

sqlite3_stmt *results_prepare(struct results *store, const char *sql, struct user_error *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) == SQLITE_OK)
        return statement;
    results_fail(store, error, "reading results");
    return NULL;
}

bool results_step_done(struct results *store, sqlite3_stmt *statement, struct user_error *error)
{
    bool done = sqlite3_step(statement) == SQLITE_DONE;
    if (!done)
        results_fail(store, error, "writing results");
    sqlite3_reset(statement);
    return done;
}

/* ---- The writer's lock ------------------------------------------------------------------------------------------ */

/* SQLite's own lock lasts one transaction, and two sweeps that take turns would each undo the other's bookkeeping. So a
 * writer holds a record lock on PATH-lock from open to close; the kernel drops it when the process dies. It is a file
 * of its own because closing any descriptor of the database would drop the locks that SQLite holds there. */
static bool lock_once(struct results *store, bool *retry, struct user_error *error)
{
    *retry = false;
    store->lock = open(store->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (store->lock < 0 && errno == ENOENT) {
        user_error_set(error, store->path, 0, NULL, "cannot be created: its folder does not exist");
        return false;
    }
    if (store->lock < 0) {
        user_error_set(error, store->lock_path, 0, NULL, "cannot be created: %s", strerror(errno));
        return false;
    }
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(store->lock, F_SETLK, &range) != 0) {
        bool known = fcntl(store->lock, F_GETLK, &range) == 0 && range.l_type != F_UNLCK;
        user_error_set(error, store->path, 0, NULL,
                       "process %ld is writing to this database; wait for it or name another file",
                       known ? (long)range.l_pid : 0L);
        close(store->lock);
        store->lock = -1;
        return false;
    }
    /* The holder before us removes the file before it lets go of it: what we locked may have no name any more. */
    struct stat held;
    struct stat named;
    if (fstat(store->lock, &held) == 0 && stat(store->lock_path, &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev)
        return true;
    close(store->lock);
    store->lock = -1;
    *retry = true;
    return true;
}

static bool lock_take(struct results *store, struct user_error *error)
{
    bool retry = true;
    while (retry)
        if (!lock_once(store, &retry, error))
            return false;
    return true;
}

static void lock_release(struct results *store)
{
    if (store->lock < 0)
        return;
    unlink(store->lock_path);
    close(store->lock);
    store->lock = -1;
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

static bool integer_query(struct results *store, const char *sql, int64_t *value, struct user_error *error)
{
    sqlite3_stmt *statement;
    int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        *value = sqlite3_column_int64(statement, 0);
    else if (code == SQLITE_NOTADB)
        user_error_set(error, store->path, 0, NULL, "not a results database: the file is not SQLite's");
    else if (code == SQLITE_CORRUPT)
        user_error_set(error, store->path, 0, NULL, "the database is damaged: %s; restore it or name another file",
                       sqlite3_errmsg(store->db));
    else
        results_fail(store, error, "opening");
    sqlite3_finalize(statement);
    return code == SQLITE_ROW;
}

/* An empty file becomes ours; anything else must say that it is. */
static bool identify(struct results *store, enum results_mode mode, struct user_error *error)
{
    int64_t application;
    int64_t objects;
    if (!integer_query(store, "PRAGMA application_id", &application, error) ||
        !integer_query(store, "SELECT count(*) FROM sqlite_schema", &objects, error))
        return false;
    if (objects == 0 && application == 0) {
        if (mode == RESULTS_WRITE)
            return true;
        user_error_set(error, store->path, 0, NULL, "holds no results yet");
        return false;
    }
    if (application == RESULTS_APPLICATION_ID)
        return true;
    user_error_set(error, store->path, 0, NULL,
                   "a database of another program (application id %" PRId64 "); name another file", application);
    return false;
}

static bool configure(struct results *store, struct user_error *error)
{
    char cache[64];
    snprintf(cache, sizeof cache, "PRAGMA cache_size = -%d", RESULTS_CACHE_KIB);
    return results_execute(store, "PRAGMA journal_mode = WAL", error) &&
           results_execute(store, "PRAGMA synchronous = NORMAL", error) &&
           results_execute(store, "PRAGMA foreign_keys = ON", error) && results_execute(store, cache, error);
}

static bool open_database(struct results *store, enum results_mode mode, struct user_error *error)
{
    /* A reader may write too, for as long as it takes to recover the log of a writer that was killed or to bring the
     * schema up to date. */
    int flags = SQLITE_OPEN_READWRITE | (mode == RESULTS_WRITE ? SQLITE_OPEN_CREATE : 0);
    if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK)
        return results_fail(store, error, "opening");
    sqlite3_busy_timeout(store->db, RESULTS_BUSY_MS);
    if (!identify(store, mode, error) || !configure(store, error) ||
        !results_schema_apply(store->db, store->path, results_migrations, results_migration_count, error))
        return false;
    return mode == RESULTS_WRITE || results_execute(store, "PRAGMA query_only = ON", error);
}

struct results *results_open(const char *path, enum results_mode mode, struct user_error *error)
{
    struct results *store = memory_zeroed(1, sizeof *store);
    if (path[0] == '\0' || strlen(path) >= sizeof store->path) {
        /* SQLite would take an empty one for a database that nobody sees and that is gone at the end. */
        user_error_set(error, path[0] == '\0' ? "--db" : path, 0, NULL,
                       path[0] == '\0' ? "empty, expected the path of a database" : "the path is too long");
        free(store);
        return NULL;
    }
    store->lock = -1;
    snprintf(store->path, sizeof store->path, "%s", path);
    snprintf(store->lock_path, sizeof store->lock_path, "%s-lock", path);
    struct stat status;
    bool opened = false;
    if (mode == RESULTS_READ && stat(path, &status) != 0)
        user_error_set(error, path, 0, NULL, "no results database: %s", strerror(errno));
    else if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        user_error_set(error, path, 0, NULL, "is a %s, expected the path of a database",
                       S_ISDIR(status.st_mode) ? "folder" : "device or pipe");
    else
        opened = (mode == RESULTS_READ || lock_take(store, error)) && open_database(store, mode, error);
    if (opened)
        return store;
    sqlite3_close(store->db);
    lock_release(store);
    free(store);
    return NULL;
}

bool results_close(struct results *store, struct user_error *error)
{
    results_run_abort(store);
    for (uint32_t k = 0; k < STATEMENT_COUNT; k++)
        sqlite3_finalize(store->statements[k]);
    bool closed = true;
    if (store->lock >= 0)
        closed = results_execute(store, "PRAGMA wal_checkpoint(TRUNCATE)", error);
    if (sqlite3_close(store->db) != SQLITE_OK)
        closed = results_fail(store, error, "closing");
    lock_release(store);
    free(store);
    return closed;
}
