/* Probes of the planner's search, kept so that a search that was interrupted goes on where it was. See results.h. */
#include "run/results/results_internal.h"

#include "base/check.h"

#include <stdlib.h>

static const char *text_of(sqlite3_stmt *statement, int column)
{
    return (const char *)sqlite3_column_text(statement, column);
}

bool results_probe_add(struct results *store, int64_t scenario, int64_t build, const char *candidate,
                       uint64_t rate_micro_per_s, uint64_t seed, const json_t *measured, struct user_error *error)
{
    CHECK(!store->run.open);
    sqlite3_stmt *statement = results_prepare(
        store,
        "INSERT OR REPLACE INTO probe (scenario_id, build_id, candidate, rate_micro_per_s, seed, measured)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        error);
    if (statement == NULL)
        return false;
    char *text = json_dumps(measured, JSON_COMPACT);
    CHECK(text != NULL);
    sqlite3_bind_int64(statement, 1, scenario);
    sqlite3_bind_int64(statement, 2, build);
    sqlite3_bind_text(statement, 3, candidate, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(statement, 4, (int64_t)rate_micro_per_s);
    sqlite3_bind_int64(statement, 5, (int64_t)seed);
    sqlite3_bind_text(statement, 6, text, -1, SQLITE_TRANSIENT);
    free(text);
    bool done = results_step_done(store, statement, error);
    sqlite3_finalize(statement);
    return done;
}

json_t *results_probes_json(struct results *store, int64_t scenario, int64_t build, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store,
                                              "SELECT candidate, rate_micro_per_s, seed, measured FROM probe"
                                              " WHERE scenario_id = ? AND build_id = ?"
                                              " ORDER BY candidate, rate_micro_per_s, seed",
                                              error);
    if (statement == NULL)
        return NULL;
    sqlite3_bind_int64(statement, 1, scenario);
    sqlite3_bind_int64(statement, 2, build);
    json_t *probes = json_array();
    int step;
    while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
        json_t *measured = json_loads(text_of(statement, 3), 0, NULL);
        json_t *probe = json_object();
        json_object_set_new(probe, "candidate", json_string(text_of(statement, 0)));
        json_object_set_new(probe, "rate_micro_per_s", json_integer(sqlite3_column_int64(statement, 1)));
        json_object_set_new(probe, "seed", json_integer(sqlite3_column_int64(statement, 2)));
        json_object_set_new(probe, "measured", measured == NULL ? json_null() : measured);
        json_array_append_new(probes, probe);
    }
    sqlite3_finalize(statement);
    if (step == SQLITE_DONE)
        return probes;
    json_decref(probes);
    results_fail(store, error, "reading probes");
    return NULL;
}
