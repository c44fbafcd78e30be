/* Which runs are kept: listing them, and deleting them. See results.h. */
#include "run/results/results_internal.h"

#include <inttypes.h>
#include <string.h>

bool results_runs_each(struct results *store, const struct results_filter *filter,
                       void (*take)(void *self, const struct results_listed *run), void *self, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(
        store,
        "SELECT run_id, scenario, params, seed, backend, kind, build_identity,"
        " strftime('%Y-%m-%dT%H:%M:%SZ', stored_unix_s, 'unixepoch'), arrived, completed FROM complete_run"
        " WHERE (?1 IS NULL OR scenario = ?1) AND (?2 IS NULL OR backend = ?2) AND (?3 IS NULL OR kind = ?3)"
        " ORDER BY recency DESC LIMIT ?4",
        error);
    if (statement == NULL)
        return false;
    sqlite3_bind_text(statement, 1, filter->scenario, -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(statement, 2, filter->backend, -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(statement, 3, filter->kind, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(statement, 4, filter->limit == 0 ? -1 : filter->limit);
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *texts[6];
        static const int columns[6] = {1, 2, 4, 5, 6, 7};
        for (int k = 0; k < 6; k++) {
            texts[k] = (const char *)sqlite3_column_text(statement, columns[k]);
            texts[k] = texts[k] == NULL ? "" : texts[k];
        }
        take(self, &(struct results_listed){.run = sqlite3_column_int64(statement, 0),
                                            .scenario = texts[0],
                                            .params = texts[1],
                                            .seed = sqlite3_column_int64(statement, 3),
                                            .backend = texts[2],
                                            .kind = texts[3],
                                            .build = texts[4],
                                            .stored = texts[5],
                                            .requests = sqlite3_column_int64(statement, 8),
                                            .completed = sqlite3_column_int64(statement, 9)});
    }
    if (code != SQLITE_DONE)
        results_fail(store, error, "listing runs");
    sqlite3_finalize(statement);
    return code == SQLITE_DONE;
}

bool results_run_delete(struct results *store, int64_t run, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store, "DELETE FROM run WHERE id = ?", error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, run);
    bool good = sqlite3_step(statement) == SQLITE_DONE;
    if (!good)
        results_fail(store, error, "deleting a run");
    sqlite3_finalize(statement);
    return good;
}

/* Runs a deletion and adds what it deleted. */
static bool delete_counted(struct results *store, const char *sql, int64_t number, const char *text, uint64_t *deleted,
                           struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store, sql, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, number);
    sqlite3_bind_text(statement, 2, text, -1, SQLITE_TRANSIENT);
    bool good = sqlite3_step(statement) == SQLITE_DONE;
    if (good)
        *deleted += (uint64_t)sqlite3_changes64(store->db);
    else
        results_fail(store, error, "deleting runs");
    sqlite3_finalize(statement);
    return good;
}

bool results_collect(struct results *store, const struct results_garbage *garbage, uint64_t *runs,
                     struct user_error *error)
{
    *runs = 0;
    bool good = results_execute(store, "BEGIN IMMEDIATE", error);
    if (!good)
        return false;
    if (garbage->probes)
        good = delete_counted(store, "DELETE FROM run WHERE kind IN ('probe', 'report') AND ?1 = 0 AND ?2 IS NULL", 0,
                              NULL, runs, error) &&
               results_execute(store, "DELETE FROM probe", error);
    if (good && garbage->before_unix_s > 0)
        good = delete_counted(store, "DELETE FROM run WHERE stored_unix_s < ?1 AND ?2 IS NULL", garbage->before_unix_s,
                              NULL, runs, error);
    if (good && garbage->other_builds_than != NULL)
        good = delete_counted(store,
                              "DELETE FROM run WHERE backend = 'sim' AND ?1 = 0"
                              " AND build_id IN (SELECT id FROM build WHERE identity <> ?2)",
                              0, garbage->other_builds_than, runs, error) &&
               delete_counted(store,
                              "DELETE FROM probe WHERE ?1 = 0 AND build_id IN"
                              " (SELECT id FROM build WHERE identity <> ?2)",
                              0, garbage->other_builds_than, &(uint64_t){0}, error);
    /* Texts of scenarios and names of builds that nothing refers to any more. */
    good = good &&
           results_execute(store,
                           "DELETE FROM scenario WHERE id NOT IN (SELECT scenario_id FROM run UNION"
                           " SELECT scenario_id FROM finding UNION SELECT scenario_id FROM probe UNION"
                           " SELECT scenario_id FROM baseline)",
                           error) &&
           results_execute(store,
                           "DELETE FROM build WHERE id NOT IN (SELECT build_id FROM run UNION"
                           " SELECT build_id FROM finding UNION SELECT build_id FROM probe)",
                           error);
    if (!good) {
        struct user_error ignored = {.set = false};
        results_execute(store, "ROLLBACK", &ignored);
        return false;
    }
    return results_execute(store, "COMMIT", error) && results_execute(store, "VACUUM", error);
}
