/* What the parts of the results database share. Not for its users. */
#ifndef TANDEM_RUN_RESULTS_RESULTS_INTERNAL_H
#define TANDEM_RUN_RESULTS_RESULTS_INTERNAL_H

#include "run/results/results.h"

#include <sqlite3.h>

/* "tndm", in the header of the file. */
#define RESULTS_APPLICATION_ID 0x746e646d

/* One step of the schema: statements that end with NULL. Append-only: a step that has been released never changes. */
struct results_migration {
    const char *const *statements;
};

extern const struct results_migration results_migrations[];
extern const uint32_t results_migration_count;

/* Brings the schema from its version to `count`, one transaction for all of it. `file` is for the error. */
bool results_schema_apply(sqlite3 *db, const char *file, const struct results_migration *migrations, uint32_t count,
                          struct user_error *error);

enum results_statement {
    STATEMENT_REQUEST,
    STATEMENT_TRANSFER,
    STATEMENT_STEP,
    STATEMENT_SAMPLE,
    STATEMENT_INSTANCE,
    STATEMENT_ITL,
    STATEMENT_COUNT,
};

/* The run in progress. */
struct results_open_run {
    bool open;
    bool repeat; /* the key is stored already */
    int64_t id;
    enum results_kind kind;
    uint32_t record;      /* recordings to be written */
    uint32_t record_kept; /* recordings of the stored run */
    char compiler[128];
};

struct results {
    sqlite3 *db;
    char path[1024];
    char lock_path[1040];
    int lock; /* -1: none held */
    struct results_open_run run;
    sqlite3_stmt *statements[STATEMENT_COUNT]; /* prepared at first use */
};

/* Describes the database's last error. Returns false. */
bool results_fail(struct results *store, struct user_error *error, const char *doing);

bool results_execute(struct results *store, const char *sql, struct user_error *error);

/* NULL on failure. */
sqlite3_stmt *results_prepare(struct results *store, const char *sql, struct user_error *error);

/* Runs a statement that returns nothing to its end and resets it. */
bool results_step_done(struct results *store, sqlite3_stmt *statement, struct user_error *error);

#endif
