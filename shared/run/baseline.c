/* See baseline.h. */
#define _POSIX_C_SOURCE 200809L
#include "run/baseline.h"

#include "base/check.h"
#include "base/limits.h"
#include "run/run_record.h"
#include "host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "tndb", in the header of the file; and the format, which is refused where it is newer. */
#define APPLICATION_ID 0x746e6462
#define FORMAT 1
#define TO_TEXT(value) #value
#define AS_TEXT(value) TO_TEXT(value)

#define PATH_SIZE 1024
#define BLESSINGS_MAX 4096 /* one a day for ten years */

static const char schema[] = "PRAGMA page_size = 1024; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
                             "PRAGMA application_id = " AS_TEXT(APPLICATION_ID) "; PRAGMA user_version = " AS_TEXT(
                                 FORMAT) ";"
                                         "CREATE TABLE blessing (\n"
                                         "  id INTEGER PRIMARY KEY,\n"
                                         "  reason TEXT NOT NULL,\n"
                                         "  version TEXT NOT NULL, -- of tandem\n"
                                         "  build TEXT NOT NULL,\n"
                                         "  blessed_at TEXT NOT NULL, -- UTC\n"
                                         "  cases INTEGER NOT NULL,\n"
                                         "  changed INTEGER NOT NULL, -- against the baseline before\n"
                                         "  worse INTEGER NOT NULL\n"
                                         ") STRICT;"
                                         "CREATE TABLE case_run (\n"
                                         "  id INTEGER PRIMARY KEY,\n"
                                         "  name TEXT NOT NULL, -- of the case\n"
                                         "  seed INTEGER NOT NULL,\n"
                                         "  identity TEXT NOT NULL, -- of the resolved scenario\n"
                                         "  trace_hash INTEGER NOT NULL, -- 64 bits, as a signed number\n"
                                         "  event_count INTEGER NOT NULL,\n"
                                         "  final_draw INTEGER NOT NULL,\n"
                                         "  start_ns INTEGER NOT NULL,\n"
                                         "  end_ns INTEGER NOT NULL,\n"
                                         "  nodes TEXT NOT NULL, -- their names, a line each\n"
                                         "  itl TEXT NOT NULL, -- bucket:tokens of the gaps between tokens\n"
                                         "  trace BLOB NOT NULL, -- packed (trace_log.c)\n"
                                         "  UNIQUE (name, seed)\n"
                                         ") STRICT;"
                                         "BEGIN";

void baseline_run_free(struct baseline_run *run)
{
    free(run->nodes);
    free(run->itl);
    trace_log_free(&run->log);
    *run = (struct baseline_run){.node_count = 0};
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

struct baseline {
    sqlite3 *db;
    sqlite3_stmt *find;
    char path[PATH_SIZE];
    uint32_t blessing_count;
    struct baseline_blessing *blessings;
    uint64_t run_count;
};

static bool damaged(const struct baseline *baseline, struct user_error *error, const char *what)
{
    user_error_set(error, baseline->path, 0, NULL, "the baseline is damaged (%s): restore it, or bless a new one",
                   what);
    return false;
}

static bool failed(const struct baseline *baseline, struct user_error *error)
{
    int code = sqlite3_errcode(baseline->db);
    if (code == SQLITE_NOTADB)
        user_error_set(error, baseline->path, 0, NULL, "not a baseline: the file is not SQLite's");
    else if (code == SQLITE_CANTOPEN)
        user_error_set(error, baseline->path, 0, NULL,
                       "no baseline: %s; `tandem check --update --reason TEXT` makes one", strerror(ENOENT));
    else
        damaged(baseline, error, sqlite3_errmsg(baseline->db));
    return false;
}

static bool pragma(struct baseline *baseline, const char *sql, int64_t *value, struct user_error *error)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(baseline->db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        *value = sqlite3_column_int64(statement, 0);
    else
        failed(baseline, error);
    sqlite3_finalize(statement);
    return code == SQLITE_ROW;
}

static bool identify(struct baseline *baseline, struct user_error *error)
{
    int64_t application;
    int64_t format;
    int64_t runs;
    if (!pragma(baseline, "PRAGMA application_id", &application, error) ||
        !pragma(baseline, "PRAGMA user_version", &format, error))
        return false;
    if (application != APPLICATION_ID) {
        user_error_set(error, baseline->path, 0, NULL,
                       "not a baseline, but another database (application id %" PRId64 ")", application);
        return false;
    }
    if (format < 1 || format > FORMAT) {
        user_error_set(error, baseline->path, 0, NULL,
                       "a baseline of format %" PRId64
                       "; this tandem reads format " AS_TEXT(FORMAT) ": use a newer one, or bless a new baseline",
                       format);
        return false;
    }
    if (!pragma(baseline, "SELECT count(*) FROM case_run", &runs, error))
        return false;
    baseline->run_count = (uint64_t)runs;
    return true;
}

static void column_text(sqlite3_stmt *statement, int column, char *text, size_t size)
{
    const unsigned char *value = sqlite3_column_text(statement, column);
    snprintf(text, size, "%s", value == NULL ? "" : (const char *)value);
}

static bool read_blessings(struct baseline *baseline, struct user_error *error)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(baseline->db,
                                  "SELECT reason, version, build, blessed_at, cases, changed, worse FROM blessing"
                                  " ORDER BY id LIMIT " AS_TEXT(BLESSINGS_MAX),
                                  -1, &statement, NULL);
    while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        uint32_t count = baseline->blessing_count + 1;
        baseline->blessings = memory_resized(baseline->blessings, count * sizeof *baseline->blessings);
        struct baseline_blessing *blessing = &baseline->blessings[baseline->blessing_count++];
        column_text(statement, 0, blessing->reason, sizeof blessing->reason);
        column_text(statement, 1, blessing->version, sizeof blessing->version);
        column_text(statement, 2, blessing->build, sizeof blessing->build);
        column_text(statement, 3, blessing->at, sizeof blessing->at);
        blessing->cases = sqlite3_column_int64(statement, 4);
        blessing->changed = sqlite3_column_int64(statement, 5);
        blessing->worse = sqlite3_column_int64(statement, 6);
        code = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE || failed(baseline, error);
}

struct baseline *baseline_open(const char *path, struct user_error *error)
{
    struct baseline *baseline = memory_zeroed(1, sizeof *baseline);
    snprintf(baseline->path, sizeof baseline->path, "%s", path);
    bool good = sqlite3_open_v2(path, &baseline->db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK;
    if (!good)
        failed(baseline, error);
    good = good && identify(baseline, error) && read_blessings(baseline, error);
    if (good && sqlite3_prepare_v2(baseline->db,
                                   "SELECT identity, trace_hash, event_count, final_draw, start_ns, end_ns, nodes, itl,"
                                   " trace FROM case_run WHERE name = ? AND seed = ?",
                                   -1, &baseline->find, NULL) != SQLITE_OK)
        good = failed(baseline, error);
    if (good)
        return baseline;
    baseline_close(baseline);
    return NULL;
}

void baseline_close(struct baseline *baseline)
{
    sqlite3_finalize(baseline->find);
    sqlite3_close(baseline->db);
    free(baseline->blessings);
    free(baseline);
}

uint32_t baseline_blessing_count(const struct baseline *baseline)
{
    return baseline->blessing_count;
}

const struct baseline_blessing *baseline_blessing(const struct baseline *baseline, uint32_t index)
{
    CHECK(index < baseline->blessing_count);
    return &baseline->blessings[index];
}

uint64_t baseline_run_count(const struct baseline *baseline)
{
    return baseline->run_count;
}

static bool read_nodes(const char *text, struct baseline_run *run)
{
    uint32_t count = 0;
    for (const char *at = text; *at != '\0'; at++)
        count += *at == '\n';
    if (count == 0 || count > NODES_MAX)
        return false;
    run->nodes = memory_zeroed(count, sizeof *run->nodes);
    for (run->node_count = 0; run->node_count < count; run->node_count++) {
        size_t length = strcspn(text, "\n");
        snprintf(run->nodes[run->node_count], sizeof run->nodes[0], "%.*s",
                 (int)(length < BASELINE_NODE_NAME_SIZE ? length : BASELINE_NODE_NAME_SIZE - 1), text);
        text += length + 1;
    }
    return true;
}

static bool read_itl(const char *text, struct baseline_run *run)
{
    run->itl = memory_zeroed(ITL_BUCKETS, sizeof *run->itl);
    while (*text != '\0') {
        char *end;
        unsigned long bucket = strtoul(text, &end, 10);
        if (end == text || *end != ':' || bucket >= ITL_BUCKETS)
            return false;
        text = end + 1;
        run->itl[bucket] = strtoull(text, &end, 10);
        if (end == text || (*end != ' ' && *end != '\0'))
            return false;
        text = *end == ' ' ? end + 1 : end;
    }
    return true;
}

/* A record of a node that is not there could not be told. */
static bool known_nodes(const struct baseline_run *run)
{
    for (uint64_t i = 0; i < run->log.count; i++)
        if (run->log.items[i].record.node >= run->node_count)
            return false;
    return true;
}

static bool read_run(struct baseline *baseline, struct baseline_run *run, struct user_error *error)
{
    sqlite3_stmt *statement = baseline->find;
    column_text(statement, 0, run->identity, sizeof run->identity);
    run->trace_hash = (uint64_t)sqlite3_column_int64(statement, 1);
    run->event_count = (uint64_t)sqlite3_column_int64(statement, 2);
    run->final_draw = (uint64_t)sqlite3_column_int64(statement, 3);
    run->start_ns = sqlite3_column_int64(statement, 4);
    run->end_ns = sqlite3_column_int64(statement, 5);
    const unsigned char *nodes = sqlite3_column_text(statement, 6);
    const unsigned char *itl = sqlite3_column_text(statement, 7);
    const unsigned char *trace = sqlite3_column_blob(statement, 8);
    size_t size = (size_t)sqlite3_column_bytes(statement, 8);
    if (nodes == NULL || itl == NULL || !read_nodes((const char *)nodes, run) || !read_itl((const char *)itl, run))
        return damaged(baseline, error, "a run's names or gaps make no sense");
    if (trace == NULL || !trace_log_unpack(&run->log, trace, size) || !known_nodes(run) ||
        trace_log_hash(&run->log) != run->trace_hash)
        return damaged(baseline, error, "a trace does not have the hash that is stored with it");
    return true;
}

bool baseline_run_read(struct baseline *baseline, const char *name, uint64_t seed, struct baseline_run *run,
                       bool *found, struct user_error *error)
{
    *run = (struct baseline_run){.node_count = 0};
    sqlite3_bind_text(baseline->find, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(baseline->find, 2, (int64_t)seed);
    int code = sqlite3_step(baseline->find);
    *found = code == SQLITE_ROW;
    bool good = code == SQLITE_DONE || (code == SQLITE_ROW && read_run(baseline, run, error));
    if (code != SQLITE_DONE && code != SQLITE_ROW)
        failed(baseline, error);
    sqlite3_reset(baseline->find);
    if (!good)
        baseline_run_free(run);
    return good;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

struct baseline_writer {
    sqlite3 *db;
    char path[PATH_SIZE];
    char part[PATH_SIZE + 8];
};

static bool cannot_write(const struct baseline_writer *writer, struct user_error *error, const char *why)
{
    user_error_set(error, writer->path, 0, NULL, "the baseline cannot be written: %s", why);
    return false;
}

struct baseline_writer *baseline_create(const char *path, struct user_error *error)
{
    struct baseline_writer *writer = memory_zeroed(1, sizeof *writer);
    snprintf(writer->path, sizeof writer->path, "%s", path);
    snprintf(writer->part, sizeof writer->part, "%s.part", writer->path);
    bool good = strlen(path) < sizeof writer->path || cannot_write(writer, error, "the path is too long");
    if (good)
        unlink(writer->part); /* of an update that was killed */
    if (good &&
        (sqlite3_open_v2(writer->part, &writer->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK ||
         sqlite3_exec(writer->db, schema, NULL, NULL, NULL) != SQLITE_OK))
        good = cannot_write(writer, error, sqlite3_errmsg(writer->db));
    if (good)
        return writer;
    baseline_abandon(writer);
    return NULL;
}

/* Runs and ends the statement. */
static bool insert(struct baseline_writer *writer, sqlite3_stmt *statement, struct user_error *error)
{
    bool good = sqlite3_step(statement) == SQLITE_DONE;
    if (!good)
        cannot_write(writer, error, sqlite3_errmsg(writer->db));
    sqlite3_finalize(statement);
    return good;
}

static sqlite3_stmt *prepare(struct baseline_writer *writer, const char *sql, struct user_error *error)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(writer->db, sql, -1, &statement, NULL) != SQLITE_OK)
        cannot_write(writer, error, sqlite3_errmsg(writer->db));
    return statement;
}

static void bind_text(sqlite3_stmt *statement, int place, const char *text)
{
    sqlite3_bind_text(statement, place, text, -1, SQLITE_STATIC);
}

bool baseline_add_blessing(struct baseline_writer *writer, const struct baseline_blessing *blessing,
                           struct user_error *error)
{
    sqlite3_stmt *statement = prepare(writer,
                                      "INSERT INTO blessing (reason, version, build, blessed_at, cases, changed, worse)"
                                      " VALUES (?, ?, ?, ?, ?, ?, ?)",
                                      error);
    if (statement == NULL)
        return false;
    bind_text(statement, 1, blessing->reason);
    bind_text(statement, 2, blessing->version);
    bind_text(statement, 3, blessing->build);
    bind_text(statement, 4, blessing->at);
    sqlite3_bind_int64(statement, 5, blessing->cases);
    sqlite3_bind_int64(statement, 6, blessing->changed);
    sqlite3_bind_int64(statement, 7, blessing->worse);
    return insert(writer, statement, error);
}

static char *nodes_text(const struct baseline_run *run)
{
    char *text = memory_zeroed((size_t)run->node_count + 1, BASELINE_NODE_NAME_SIZE + 1);
    size_t used = 0;
    for (uint32_t i = 0; i < run->node_count; i++)
        used += (size_t)sprintf(text + used, "%s\n", run->nodes[i]);
    return text;
}

static char *itl_text(const struct baseline_run *run)
{
    char *text = memory_zeroed(ITL_BUCKETS + 1, 32);
    size_t used = 0;
    for (uint32_t i = 0; i < ITL_BUCKETS; i++)
        if (run->itl[i] > 0)
            used += (size_t)sprintf(text + used, "%s%" PRIu32 ":%" PRIu64, used == 0 ? "" : " ", i, run->itl[i]);
    return text;
}

bool baseline_add_run(struct baseline_writer *writer, const char *name, uint64_t seed, const struct baseline_run *run,
                      struct user_error *error)
{
    size_t size;
    unsigned char *trace = trace_log_pack(&run->log, &size, error);
    sqlite3_stmt *statement =
        trace == NULL
            ? NULL
            : prepare(writer,
                      "INSERT INTO case_run (name, seed, identity, trace_hash, event_count, final_draw, start_ns,"
                      " end_ns, nodes, itl, trace) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      error);
    bool good = false;
    if (statement != NULL) {
        char *nodes = nodes_text(run);
        char *itl = itl_text(run);
        bind_text(statement, 1, name);
        sqlite3_bind_int64(statement, 2, (int64_t)seed);
        bind_text(statement, 3, run->identity);
        sqlite3_bind_int64(statement, 4, (int64_t)run->trace_hash);
        sqlite3_bind_int64(statement, 5, (int64_t)run->event_count);
        sqlite3_bind_int64(statement, 6, (int64_t)run->final_draw);
        sqlite3_bind_int64(statement, 7, run->start_ns);
        sqlite3_bind_int64(statement, 8, run->end_ns);
        bind_text(statement, 9, nodes);
        bind_text(statement, 10, itl);
        sqlite3_bind_blob64(statement, 11, trace, size, SQLITE_STATIC);
        good = insert(writer, statement, error);
        free(nodes);
        free(itl);
    }
    free(trace);
    return good;
}

/* The bytes must be on the disk before the name is: else a crash could leave a name without them. */
static bool flush(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool good = file >= 0 && fsync(file) == 0;
    if (file >= 0)
        close(file);
    return good;
}

bool baseline_commit(struct baseline_writer *writer, struct user_error *error)
{
    bool good = sqlite3_exec(writer->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK ||
                cannot_write(writer, error, sqlite3_errmsg(writer->db));
    if (sqlite3_close(writer->db) != SQLITE_OK)
        good = cannot_write(writer, error, "it cannot be closed");
    writer->db = NULL;
    if (good && (!flush(writer->part) || rename(writer->part, writer->path) != 0))
        good = cannot_write(writer, error, strerror(errno));
    if (!good)
        unlink(writer->part);
    free(writer);
    return good;
}

void baseline_abandon(struct baseline_writer *writer)
{
    sqlite3_close(writer->db);
    if (writer->part[0] != '\0')
        unlink(writer->part);
    free(writer);
}
