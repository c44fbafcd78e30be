/* Where a stored run came from: the file of its scenario and what was set beside it. */
#include "host/results_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static char *copy_column(sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    size_t size = strlen(text == NULL ? "" : text) + 1;
    char *copy = malloc(size);
    return copy == NULL ? NULL : memcpy(copy, text == NULL ? "" : text, size);
}

bool results_origin_read(struct results *store, int64_t run, struct results_origin *origin, struct user_error *error)
{
    memset(origin, 0, sizeof *origin);
    sqlite3_stmt *path = results_prepare(
        store,
        "SELECT path FROM scenario WHERE id = (SELECT scenario_id FROM run WHERE id = ? AND status = 'complete')",
        error);
    sqlite3_stmt *params =
        path == NULL
            ? NULL
            : results_prepare(store, "SELECT path, value FROM run_param WHERE run_id = ? ORDER BY path", error);
    bool good = params != NULL;
    if (good) {
        sqlite3_bind_int64(path, 1, run);
        sqlite3_bind_int64(params, 1, run);
        good = sqlite3_step(path) == SQLITE_ROW;
        if (good)
            snprintf(origin->path, sizeof origin->path, "%s", (const char *)sqlite3_column_text(path, 0));
        else
            user_error_set(error, store->path, 0, NULL, "holds no run %" PRId64, run);
        while (good && origin->param_count < RESULTS_ORIGIN_PARAMS_MAX && sqlite3_step(params) == SQLITE_ROW) {
            struct results_param *param = &origin->params[origin->param_count++];
            *param = (struct results_param){copy_column(params, 0), copy_column(params, 1)};
            if (param->path == NULL || param->value == NULL) {
                user_error_set(error, NULL, 0, NULL, "out of memory");
                good = false;
            }
        }
    }
    sqlite3_finalize(path);
    sqlite3_finalize(params);
    return good;
}

void results_origin_free(struct results_origin *origin)
{
    for (uint32_t p = 0; p < origin->param_count; p++) {
        free((void *)(uintptr_t)origin->params[p].path);
        free((void *)(uintptr_t)origin->params[p].value);
    }
    memset(origin, 0, sizeof *origin);
}
