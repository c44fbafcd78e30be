/* Writing runs and findings. See results.h. */
#define _POSIX_C_SOURCE 200809L

#include "base/check.h"
#include "run/results/results_internal.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const backend_names[] = {[RESULTS_SIM] = "sim", [RESULTS_REAL] = "real", [RESULTS_LIVE] = "live"};
static const char *const kind_names[] = {[RESULTS_RUN] = "run", [RESULTS_PROBE] = "probe", [RESULTS_REPORT] = "report"};

static void bind_text(sqlite3_stmt *statement, int index, const char *text)
{
    if (text == NULL)
        sqlite3_bind_null(statement, index);
    else
        sqlite3_bind_text(statement, index, text, -1, SQLITE_TRANSIENT);
}

/* Counts and bytes of a run stay far below 2^63; one that does not is a bug in its recorder. */
static void bind_count(sqlite3_stmt *statement, int index, uint64_t value)
{
    CHECK(value <= INT64_MAX);
    sqlite3_bind_int64(statement, index, (int64_t)value);
}

static void bind_hex(sqlite3_stmt *statement, int index, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    bind_text(statement, index, text);
}

/* ---- Scenarios and builds --------------------------------------------------------------------------------------- */

/* Runs an upsert that returns the id of its row. */
static int64_t returning_id(struct results *store, sqlite3_stmt *statement, struct user_error *error)
{
    int64_t id = 0;
    if (sqlite3_step(statement) == SQLITE_ROW)
        id = sqlite3_column_int64(statement, 0);
    /* The row is there only once the statement has run to its end. */
    if (id == 0 || sqlite3_step(statement) != SQLITE_DONE) {
        results_fail(store, error, "writing results");
        id = 0;
    }
    sqlite3_finalize(statement);
    return id;
}

int64_t results_scenario_add(struct results *store, const char *identity, const char *name, const char *path,
                             const char *canonical, struct user_error *error)
{
    sqlite3_stmt *statement =
        results_prepare(store,
                        "INSERT INTO scenario (identity, name, path, canonical) VALUES (?1, ?2, ?3, ?4)"
                        " ON CONFLICT (identity) DO UPDATE SET name = ?2, path = ?3 RETURNING id",
                        error);
    if (statement == NULL)
        return 0;
    bind_text(statement, 1, identity);
    bind_text(statement, 2, name);
    bind_text(statement, 3, path);
    bind_text(statement, 4, canonical);
    return returning_id(store, statement, error);
}

int64_t results_build_add(struct results *store, const char *identity, const char *version, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store,
                                              "INSERT INTO build (identity, version) VALUES (?1, ?2)"
                                              " ON CONFLICT (identity) DO UPDATE SET version = ?2 RETURNING id",
                                              error);
    if (statement == NULL)
        return 0;
    bind_text(statement, 1, identity);
    bind_text(statement, 2, version);
    return returning_id(store, statement, error);
}

/* ---- The key of a run ------------------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    const struct results_param *left = a;
    const struct results_param *right = b;
    return strcmp(left->path, right->path);
}

/* The parameters as one text, in the order of their paths: what tells two runs of a scenario and seed apart. The
 * caller's to free. */
static char *params_text(const struct results_key *key)
{
    size_t length = 1;
    for (uint32_t k = 0; k < key->param_count; k++)
        length += strlen(key->params[k].path) + strlen(key->params[k].value) + 2;
    char *text = memory_zeroed(1, length);
    struct results_param *sorted = memory_zeroed(key->param_count + (size_t)1, sizeof *sorted);
    if (key->param_count > 0)
        memcpy(sorted, key->params, key->param_count * sizeof *sorted);
    qsort(sorted, key->param_count, sizeof *sorted, by_path);
    size_t used = 0;
    for (uint32_t k = 0; k < key->param_count; k++) {
        CHECK(k == 0 || strcmp(sorted[k - 1].path, sorted[k].path) != 0);
        used += (size_t)snprintf(text + used, length - used, "%s%s=%s", k == 0 ? "" : "\n", sorted[k].path,
                                 sorted[k].value);
    }
    free(sorted);
    return text;
}

static bool find_simulated(struct results *store, const struct results_key *key, const char *params, int64_t *run,
                           uint32_t *record, struct user_error *error)
{
    *run = 0;
    *record = 0;
    if (key->backend != RESULTS_SIM)
        return true;
    sqlite3_stmt *statement =
        results_prepare(store,
                        "SELECT id, record FROM run WHERE scenario_id = ? AND build_id = ? AND seed = ? AND params = ?"
                        " AND backend = 'sim' AND status = 'complete'",
                        error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, key->scenario);
    sqlite3_bind_int64(statement, 2, key->build);
    bind_count(statement, 3, key->seed);
    bind_text(statement, 4, params);
    int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *run = sqlite3_column_int64(statement, 0);
        *record = (uint32_t)sqlite3_column_int64(statement, 1);
    } else if (code != SQLITE_DONE) {
        results_fail(store, error, "looking for a run");
    }
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE;
}

bool results_run_find(struct results *store, const struct results_key *key, int64_t *run, struct user_error *error)
{
    uint32_t record;
    char *params = params_text(key);
    bool found = find_simulated(store, key, params, run, &record, error);
    free(params);
    return found;
}

/* ---- Beginning a run -------------------------------------------------------------------------------------------- */

static bool insert_params(struct results *store, const struct results_key *key, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store, "INSERT INTO run_param VALUES (?, ?, ?)", error);
    bool good = statement != NULL;
    for (uint32_t k = 0; good && k < key->param_count; k++) {
        sqlite3_bind_int64(statement, 1, store->run.id);
        bind_text(statement, 2, key->params[k].path);
        bind_text(statement, 3, key->params[k].value);
        good = results_step_done(store, statement, error);
    }
    sqlite3_finalize(statement);
    return good;
}

static bool insert_targets(struct results *store, const struct targets *targets, struct user_error *error)
{
    static const char *const metrics[] = {
        [TARGET_TTFT] = "ttft", [TARGET_TPOT] = "tpot", [TARGET_E2E] = "e2e", [TARGET_ITL] = "itl"};
    if (targets == NULL || targets->count == 0)
        return true;
    sqlite3_stmt *statement = results_prepare(store, "INSERT INTO run_target VALUES (?, ?, ?, ?, ?)", error);
    bool good = statement != NULL;
    for (uint32_t k = 0; good && k < targets->count; k++) {
        sqlite3_bind_int64(statement, 1, store->run.id);
        sqlite3_bind_int64(statement, 2, k);
        bind_text(statement, 3, metrics[targets->item[k].metric]);
        sqlite3_bind_int64(statement, 4, targets->item[k].percentile_permille);
        sqlite3_bind_int64(statement, 5, targets->item[k].limit_ns);
        good = results_step_done(store, statement, error);
    }
    sqlite3_finalize(statement);
    return good;
}

static bool insert_run(struct results *store, const struct results_begin *begin, const char *params,
                       struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(
        store,
        "INSERT INTO run (id, scenario_id, build_id, compiler, seed, backend, kind, params, has_targets,"
        " record, status, stored_unix_s, replay_of, attainment_permille, recency)"
        " VALUES ((SELECT last + 1 FROM run_number), ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?, ?,"
        " (SELECT coalesce(max(recency), 0) + 1 FROM run)) RETURNING id",
        error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, begin->key.scenario);
    sqlite3_bind_int64(statement, 2, begin->key.build);
    bind_text(statement, 3, begin->compiler);
    bind_count(statement, 4, begin->key.seed);
    bind_text(statement, 5, backend_names[begin->key.backend]);
    bind_text(statement, 6, kind_names[begin->kind]);
    bind_text(statement, 7, params);
    sqlite3_bind_int(statement, 8, begin->targets != NULL && begin->targets->count > 0);
    sqlite3_bind_int64(statement, 9, begin->record);
    sqlite3_bind_int64(statement, 10, (int64_t)time(NULL));
    if (begin->replay_of != 0)
        sqlite3_bind_int64(statement, 11, begin->replay_of);
    sqlite3_bind_int64(statement, 12, begin->targets == NULL ? 0 : begin->targets->attainment_permille);
    store->run.id = returning_id(store, statement, error);
    return store->run.id != 0 && insert_params(store, &begin->key, error) &&
           insert_targets(store, begin->targets, error);
}

int64_t results_run_begin(struct results *store, const struct results_begin *begin, struct user_error *error)
{
    CHECK(!store->run.open);
    if (begin->key.seed > INT64_MAX) {
        user_error_set(error, store->path, 0, NULL, "seed %" PRIu64 ": must be at most %" PRId64, begin->key.seed,
                       INT64_MAX);
        return 0;
    }
    char *params = params_text(&begin->key);
    if (!results_execute(store, "BEGIN IMMEDIATE", error)) {
        free(params);
        return 0;
    }
    store->run = (struct results_open_run){.open = true, .record = begin->record, .kind = begin->kind};
    snprintf(store->run.compiler, sizeof store->run.compiler, "%s", begin->compiler);
    bool begun = find_simulated(store, &begin->key, params, &store->run.id, &store->run.record_kept, error);
    if (begun && store->run.id != 0) {
        store->run.repeat = true;
        store->run.record &= ~store->run.record_kept;
    } else if (begun) {
        begun = insert_run(store, begin, params, error);
    }
    free(params);
    if (!begun)
        results_run_abort(store);
    return begun ? store->run.id : 0;
}

void results_run_abort(struct results *store)
{
    if (!store->run.open)
        return;
    store->run.open = false;
    for (uint32_t k = 0; k < STATEMENT_COUNT; k++)
        if (store->statements[k] != NULL)
            sqlite3_reset(store->statements[k]);
    /* Some errors (a full disk) have already rolled back, and then this fails without harm. */
    sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static const char *const statement_texts[STATEMENT_COUNT] = {
    [STATEMENT_REQUEST] = "INSERT INTO request VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,nullif(?,0))",
    [STATEMENT_TRANSFER] = "INSERT INTO transfer (run_id, request, epoch, source, destination, layers,"
                           " bytes, writes, posted_ns, landed_ns, confirmed_ns, ticket)"
                           " VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
    [STATEMENT_STEP] = "INSERT INTO step VALUES (?,?,?,?,?,?,?,?)",
    [STATEMENT_SAMPLE] = "INSERT INTO sample VALUES (?,?,?,?,?)",
    [STATEMENT_INSTANCE] = "INSERT INTO instance VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [STATEMENT_ITL] = "INSERT INTO itl_histogram VALUES (?,?,?)",
};

/* The statement with the run's id bound as its first value. NULL on failure. */
static sqlite3_stmt *row_statement(struct results *store, enum results_statement which, struct user_error *error)
{
    CHECK(store->run.open);
    if (store->statements[which] == NULL) {
        unsigned flags = SQLITE_PREPARE_PERSISTENT;
        if (sqlite3_prepare_v3(store->db, statement_texts[which], -1, flags, &store->statements[which], NULL) !=
            SQLITE_OK) {
            results_fail(store, error, "writing results");
            return NULL;
        }
    }
    sqlite3_bind_int64(store->statements[which], 1, store->run.id);
    return store->statements[which];
}

/* A completed request went through all boundaries in order, so that its spans are not negative and add up. One that
 * ended early may have skipped some; those are NULL. */
static void bind_boundaries(sqlite3_stmt *statement, int index, const struct request_row *row)
{
    int64_t last = row->boundary_ns[BOUNDARY_ARRIVED];
    CHECK(last >= 0);
    for (int k = 0; k < BOUNDARY_COUNT; k++) {
        bool reached = row->boundary_ns[k] >= last;
        CHECK(reached || (row->outcome != OUTCOME_COMPLETED && k != BOUNDARY_FINISHED));
        if (reached) {
            last = row->boundary_ns[k];
            sqlite3_bind_int64(statement, index + k, last);
        } else {
            sqlite3_bind_null(statement, index + k);
        }
    }
}

bool results_add_request(struct results *store, const struct request_row *row, struct user_error *error)
{
    CHECK(store->run.open);
    if (store->run.repeat)
        return true;
    sqlite3_stmt *statement = row_statement(store, STATEMENT_REQUEST, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 2, row->request);
    sqlite3_bind_int64(statement, 3, row->prompt_tokens);
    sqlite3_bind_int64(statement, 4, row->output_tokens);
    sqlite3_bind_int64(statement, 5, row->cached_tokens);
    sqlite3_bind_int(statement, 6, row->decoder);
    sqlite3_bind_int(statement, 7, row->prefiller);
    sqlite3_bind_int(statement, 8, row->outcome);
    sqlite3_bind_int(statement, 9, row->reason);
    sqlite3_bind_int(statement, 10, row->attempts);
    sqlite3_bind_int(statement, 11, row->preemptions);
    sqlite3_bind_int(statement, 12, row->warmup);
    bind_boundaries(statement, 13, row);
    sqlite3_bind_int64(statement, 13 + BOUNDARY_COUNT, row->conversation);
    return results_step_done(store, statement, error);
}

bool results_add_transfer(struct results *store, const struct transfer_row *row, struct user_error *error)
{
    CHECK(store->run.open);
    if ((store->run.record & RECORD_TRANSFERS) == 0)
        return true;
    sqlite3_stmt *statement = row_statement(store, STATEMENT_TRANSFER, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 2, row->request);
    sqlite3_bind_int64(statement, 3, row->epoch);
    sqlite3_bind_int(statement, 4, row->source);
    sqlite3_bind_int(statement, 5, row->destination);
    sqlite3_bind_int64(statement, 6, row->layers);
    bind_count(statement, 7, row->bytes);
    bind_count(statement, 8, row->writes);
    sqlite3_bind_int64(statement, 9, row->posted_ns);
    sqlite3_bind_int64(statement, 10, row->landed_ns);
    sqlite3_bind_int64(statement, 11, row->confirmed_ns);
    bind_count(statement, 12, row->ticket);
    return results_step_done(store, statement, error);
}

bool results_add_step(struct results *store, const struct step_row *row, struct user_error *error)
{
    CHECK(store->run.open);
    if ((store->run.record & RECORD_STEPS) == 0)
        return true;
    sqlite3_stmt *statement = row_statement(store, STATEMENT_STEP, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int(statement, 2, row->node);
    sqlite3_bind_int64(statement, 3, row->start_ns);
    sqlite3_bind_int64(statement, 4, row->end_ns);
    sqlite3_bind_int64(statement, 5, row->steps);
    sqlite3_bind_int64(statement, 6, row->decode_sequences);
    bind_count(statement, 7, row->prefill_tokens);
    bind_count(statement, 8, row->decode_context);
    return results_step_done(store, statement, error);
}

bool results_add_sample(struct results *store, const struct sample_row *row, struct user_error *error)
{
    CHECK(store->run.open);
    if ((store->run.record & RECORD_SAMPLES) == 0)
        return true;
    sqlite3_stmt *statement = row_statement(store, STATEMENT_SAMPLE, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int(statement, 2, row->node);
    bind_text(statement, 3, row->counter);
    sqlite3_bind_int64(statement, 4, row->at_ns);
    sqlite3_bind_int64(statement, 5, row->value);
    return results_step_done(store, statement, error);
}

/* ---- Completing a run ------------------------------------------------------------------------------------------- */

static bool insert_instance(struct results *store, const struct instance_summary *row, struct user_error *error)
{
    sqlite3_stmt *statement = row_statement(store, STATEMENT_INSTANCE, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int(statement, 2, row->node);
    bind_text(statement, 3, row->name);
    sqlite3_bind_int(statement, 4, (int)row->role);
    sqlite3_bind_int64(statement, 5, row->ranks);
    bind_count(statement, 6, row->requests);
    sqlite3_bind_int64(statement, 7, row->busy_ns);
    sqlite3_bind_int64(statement, 8, row->compute_bound_ns);
    sqlite3_bind_int64(statement, 9, row->bandwidth_bound_ns);
    sqlite3_bind_int64(statement, 10, row->communication_bound_ns);
    sqlite3_bind_int64(statement, 11, row->overhead_bound_ns);
    bind_count(statement, 12, row->steps);
    bind_count(statement, 13, row->prefill_tokens);
    bind_count(statement, 14, row->decode_tokens);
    bind_count(statement, 15, row->pages_total);
    bind_count(statement, 16, row->pages_held_peak);
    bind_count(statement, 17, row->page_wait_ns);
    bind_count(statement, 18, row->handoff_wait_ns);
    bind_count(statement, 19, row->preemptions);
    sqlite3_bind_int64(statement, 20, row->nic_transmit_busy_ns);
    sqlite3_bind_int64(statement, 21, row->nic_receive_busy_ns);
    sqlite3_bind_int64(statement, 22, row->nic_op_bound_ns);
    bind_count(statement, 23, row->nic_bytes);
    return results_step_done(store, statement, error);
}

static bool insert_itl(struct results *store, const uint64_t *tokens, struct user_error *error)
{
    for (uint32_t bucket = 0; bucket < ITL_BUCKETS; bucket++) {
        if (tokens[bucket] == 0)
            continue;
        sqlite3_stmt *statement = row_statement(store, STATEMENT_ITL, error);
        if (statement == NULL)
            return false;
        sqlite3_bind_int64(statement, 2, bucket);
        bind_count(statement, 3, tokens[bucket]);
        if (!results_step_done(store, statement, error))
            return false;
    }
    return true;
}

static bool complete_run(struct results *store, const struct run_summary *summary, int64_t wall_ns,
                         struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(
        store,
        "UPDATE run SET status = 'complete', trace_hash = ?2, event_count = ?3, final_draw = ?4,"
        " arrived = ?5, completed = ?6, rejected = ?7, failed = ?8, aborted = ?9, met_all_targets = ?10,"
        " counted = ?11, prompt_tokens = ?12, output_tokens = ?13, start_ns = ?14, end_ns = ?15,"
        " wall_ns = ?16 WHERE id = ?1",
        error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, store->run.id);
    bind_hex(statement, 2, summary->trace_hash);
    bind_count(statement, 3, summary->event_count);
    bind_hex(statement, 4, summary->final_draw);
    bind_count(statement, 5, summary->arrived);
    bind_count(statement, 6, summary->completed);
    bind_count(statement, 7, summary->rejected);
    bind_count(statement, 8, summary->failed);
    bind_count(statement, 9, summary->aborted);
    bind_count(statement, 10, summary->met_all_targets);
    bind_count(statement, 11, summary->counted);
    bind_count(statement, 12, summary->prompt_tokens);
    bind_count(statement, 13, summary->output_tokens);
    sqlite3_bind_int64(statement, 14, summary->start_ns);
    sqlite3_bind_int64(statement, 15, summary->end_ns);
    sqlite3_bind_int64(statement, 16, wall_ns);
    bool done = results_step_done(store, statement, error);
    sqlite3_finalize(statement);
    return done;
}

static void report_difference(struct results *store, sqlite3_stmt *stored, const struct run_summary *summary,
                              struct user_error *error)
{
    user_error_set(
        error, store->path, 0, NULL,
        "run %" PRId64 " (scenario %s, seed %" PRId64 ") is not reproduced. stored: trace hash %s, %" PRId64
        " events, final draw %s, compiled by %s; now: trace hash %016" PRIx64 ", %" PRIu64
        " events, final draw %016" PRIx64
        ", compiled by %s. A simulated run is a function of its scenario, build and seed: if nobody has changed "
        "the database, please report this",
        store->run.id, (const char *)sqlite3_column_text(stored, 0), (int64_t)sqlite3_column_int64(stored, 1),
        (const char *)sqlite3_column_text(stored, 2), (int64_t)sqlite3_column_int64(stored, 3),
        (const char *)sqlite3_column_text(stored, 4), (const char *)sqlite3_column_text(stored, 5), summary->trace_hash,
        summary->event_count, summary->final_draw, store->run.compiler);
}

/* A repetition: the fingerprints must agree; then the recordings that are new stay, what
 * was a probe is whatever it was asked for now, and the run is the last one again. */
static bool check_repeat(struct results *store, const struct run_summary *summary, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store,
                                              "SELECT scenario, seed, trace_hash, event_count, final_draw, compiler"
                                              " FROM complete_run WHERE run_id = ?",
                                              error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, store->run.id);
    bool same = false;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        char hash[17];
        char draw[17];
        snprintf(hash, sizeof hash, "%016" PRIx64, summary->trace_hash);
        snprintf(draw, sizeof draw, "%016" PRIx64, summary->final_draw);
        same = strcmp((const char *)sqlite3_column_text(statement, 2), hash) == 0 &&
               (uint64_t)sqlite3_column_int64(statement, 3) == summary->event_count &&
               strcmp((const char *)sqlite3_column_text(statement, 4), draw) == 0;
        if (!same)
            report_difference(store, statement, summary, error);
    } else {
        results_fail(store, error, "reading a stored run");
    }
    sqlite3_finalize(statement);
    if (!same)
        return false;
    statement = results_prepare(store,
                                "UPDATE run SET record = record | ?2, kind = iif(kind = 'probe', ?3, kind),"
                                " recency = (SELECT max(recency) + 1 FROM run) WHERE id = ?1",
                                error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, store->run.id);
    sqlite3_bind_int64(statement, 2, store->run.record);
    bind_text(statement, 3, kind_names[store->run.kind]);
    bool done = results_step_done(store, statement, error);
    sqlite3_finalize(statement);
    return done;
}

bool results_run_commit(struct results *store, const struct run_summary *summary, int64_t wall_ns,
                        const struct instance_summary *instances, uint32_t instance_count, const uint64_t *itl_tokens,
                        struct user_error *error)
{
    CHECK(store->run.open);
    bool good = true;
    if (store->run.repeat) {
        good = check_repeat(store, summary, error);
    } else {
        for (uint32_t k = 0; good && k < instance_count; k++)
            good = insert_instance(store, &instances[k], error);
        good = good && insert_itl(store, itl_tokens, error) && complete_run(store, summary, wall_ns, error);
    }
    if (!good || !results_execute(store, "COMMIT", error)) {
        results_run_abort(store);
        return false;
    }
    store->run.open = false;
    return true;
}

/* ---- Findings --------------------------------------------------------------------------------------------------- */

static void bind_known(sqlite3_stmt *statement, int index, int64_t value)
{
    if (value < 0)
        sqlite3_bind_null(statement, index);
    else
        sqlite3_bind_int64(statement, index, value);
}

bool results_finding_add(struct results *store, const struct results_finding *finding, struct user_error *error)
{
    CHECK(!store->run.open);
    sqlite3_stmt *statement = results_prepare(
        store,
        "INSERT INTO finding (scenario_id, build_id, run_id, kind, label, prefill, decode, sharding, nodes,"
        " max_rate_micro_per_s, goodput_per_gpu_micro_per_s, ttft_ns, tpot_ns, usd_micros_per_mtok,"
        " saturation_permille, bound_by, why, detail) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,"
        "?17,?18) ON CONFLICT (scenario_id, build_id, kind, label) DO UPDATE SET run_id = ?3, prefill = ?6, decode = "
        "?7,"
        " sharding = ?8, nodes = ?9, max_rate_micro_per_s = ?10, goodput_per_gpu_micro_per_s = ?11, ttft_ns = ?12,"
        " tpot_ns = ?13, usd_micros_per_mtok = ?14, saturation_permille = ?15, bound_by = ?16, why = ?17, detail = ?18",
        error);
    if (statement == NULL)
        return false;
    char *detail = finding->detail == NULL ? NULL : json_dumps(finding->detail, JSON_COMPACT | JSON_REAL_PRECISION(15));
    CHECK((detail != NULL) == (finding->detail != NULL));
    sqlite3_bind_int64(statement, 1, finding->scenario);
    sqlite3_bind_int64(statement, 2, finding->build);
    bind_known(statement, 3, finding->run == 0 ? -1 : finding->run);
    bind_text(statement, 4, finding->kind);
    bind_text(statement, 5, finding->label);
    bind_known(statement, 6, finding->prefill);
    bind_known(statement, 7, finding->decode);
    bind_text(statement, 8, finding->sharding);
    bind_known(statement, 9, finding->nodes);
    bind_known(statement, 10, finding->max_rate_micro_per_s);
    bind_known(statement, 11, finding->goodput_per_gpu_micro_per_s);
    bind_known(statement, 12, finding->ttft_ns);
    bind_known(statement, 13, finding->tpot_ns);
    bind_known(statement, 14, finding->usd_micros_per_mtok);
    bind_known(statement, 15, finding->saturation_permille);
    bind_text(statement, 16, finding->bound_by);
    bind_text(statement, 17, finding->why);
    bind_text(statement, 18, detail);
    free(detail);
    bool done = results_step_done(store, statement, error);
    sqlite3_finalize(statement);
    return done;
}
