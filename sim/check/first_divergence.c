/* See divergence.h. */
#include "sim/check/first_divergence.h"

#include "base/arith.h"
#include "base/trace.h"
#include "host/build_info.h"
#include "host/interrupt.h"
#include "run/rerun.h"
#include "sim/check/decision.h"
#include "sim/sim_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 4096u /* records between two hashes that are kept */

/* ---- A run again ------------------------------------------------------------------------------------------------- */

/* The records of one run as they come. */
struct listening {
    uint64_t count;
    uint64_t hash;
    uint64_t *hashes; /* after every piece; of the first run written, of the second one compared with */
    uint64_t hash_count;
    uint64_t hash_capacity;
    bool comparing;
    bool parted;
    uint64_t until;              /* records from here on do not matter */
    struct stamped_record *kept; /* [PIECE], record `keep_from` first; NULL: none is kept */
    uint64_t keep_from;
    uint32_t kept_count;
    struct cluster *cluster; /* sees the records before those; NULL: none */
};

static void end_piece(struct listening *l)
{
    uint64_t piece = l->count / PIECE - 1;
    if (l->comparing) {
        l->parted = l->parted || piece >= l->hash_count || l->hashes[piece] != l->hash;
        if (l->parted && l->until > l->count)
            l->until = l->count;
        return;
    }
    if (l->hash_count == l->hash_capacity) {
        l->hash_capacity = max_u64(256, 2 * l->hash_capacity);
        l->hashes = realloc(l->hashes, l->hash_capacity * sizeof *l->hashes);
        CHECK(l->hashes != NULL);
    }
    l->hashes[l->hash_count++] = l->hash;
}

static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct listening *l = self;
    if (l->count >= l->until)
        return;
    if (l->kept != NULL && l->count >= l->keep_from && l->kept_count < 2 * PIECE)
        l->kept[l->kept_count++] = (struct stamped_record){now_ns, *record};
    if (l->cluster != NULL && l->count < l->keep_from)
        cluster_trace(l->cluster, record);
    l->hash = trace_hash_fold(l->hash, now_ns, record);
    l->count++;
    if (l->kept == NULL && l->count % PIECE == 0)
        end_piece(l);
}

static bool on_row(void *self, const struct request_row *row, bool met_all_targets)
{
    (void)row;
    (void)met_all_targets;
    const struct listening *l = self;
    return l->count < l->until && !interrupt_requested();
}

/* Simulates the run again. A run that is heard to its end has to come out as it is stored. */
static bool listen_to(const struct rerun *rerun, struct listening *l, struct user_error *error)
{
    struct run_config config = rerun_config(rerun);
    struct run_result result;
    config.listener = (struct run_listener){.self = l, .trace = on_trace, .row = on_row};
    run_play(&sim_backend, &config, &result);
    if (interrupt_requested())
        user_error_set(error, NULL, 0, NULL, "interrupted");
    else if (result.status != RUN_COMPLETE && result.status != RUN_STOPPED)
        user_error_set(error, NULL, 0, NULL, "run %" PRId64 ", simulated again: %s", rerun->report.run, result.text);
    else if (result.status == RUN_COMPLETE && result.summary.trace_hash != rerun->report.trace_hash)
        user_error_set(error, NULL, 0, NULL,
                       "run %" PRId64 ", simulated again, has trace hash %016" PRIx64 " and not %016" PRIx64
                       " as stored: the simulation is not deterministic",
                       rerun->report.run, result.summary.trace_hash, rerun->report.trace_hash);
    run_result_free(&result);
    return !error->set;
}

/* False where the run cannot be had again; `why` says so. */
static bool load(struct rerun *rerun, struct results *store, char *why, size_t size)
{
    struct user_error error = {.set = false};
    int64_t run = rerun->report.run;
    if (strcmp(rerun->report.backend, "sim") != 0)
        snprintf(why, size, "run %" PRId64 " was not simulated", run);
    else if (strcmp(rerun->report.build, build_identity) != 0)
        snprintf(why, size, "run %" PRId64 " is of build %.12s, this is build %.12s", run, rerun->report.build,
                 build_identity);
    else if (!rerun_load(rerun, store, NULL, 0, &error))
        snprintf(why, size, "run %" PRId64 " cannot be had again: %s", run, error.text);
    return why[0] == '\0';
}

/* ---- Where they part --------------------------------------------------------------------------------------------- */

/* By node, the front first; the caller's. */
static char (*node_names(const struct rerun *rerun))[48]
{
    char(*names)[48] = calloc((size_t)rerun->report.instance_count + 1, sizeof *names);
    CHECK(names != NULL);
    snprintf(names[0], sizeof names[0], "front");
    for (uint32_t i = 0; i < rerun->report.instance_count; i++)
        memcpy(names[i + 1], rerun->report.instances[i].name, sizeof names[0]);
    return names;
}

static void describe(const struct rerun reruns[2], const struct listening heard[2], struct divergence *divergence)
{
    struct trace_side sides[2];
    char(*names[2])[48];
    for (uint32_t i = 0; i < 2; i++) {
        names[i] = node_names(&reruns[i]);
        sides[i] = (struct trace_side){.items = heard[i].kept,
                                       .count = heard[i].kept_count,
                                       .names = (const char(*)[48])names[i],
                                       .name_count = reruns[i].report.instance_count + 1};
    }
    decision_first(&sides[0], &sides[1], heard[0].keep_from, heard[0].cluster, divergence);
    free(names[0]);
    free(names[1]);
}

static bool find(const struct rerun reruns[2], struct divergence *divergence, struct user_error *error)
{
    struct listening first = {.until = UINT64_MAX};
    if (!listen_to(&reruns[0], &first, error)) {
        free(first.hashes);
        return false;
    }
    struct listening second = {
        .until = UINT64_MAX, .comparing = true, .hashes = first.hashes, .hash_count = first.hash_count};
    bool good = listen_to(&reruns[1], &second, error);
    free(first.hashes);
    /* The piece that ended differently, or what follows the last whole one; and the one before, for what led to it. */
    uint64_t piece = (second.parted ? second.until : min_u64(first.count, second.count)) / PIECE;
    piece -= second.parted ? 1 : 0;
    uint64_t from = piece > 0 ? (piece - 1) * PIECE : 0;
    struct listening heard[2];
    memset(heard, 0, sizeof heard);
    struct cluster *cluster = cluster_make();
    for (uint32_t i = 0; i < 2; i++) {
        heard[i] =
            (struct listening){.until = (piece + 1) * PIECE, .keep_from = from, .cluster = i == 0 ? cluster : NULL};
        heard[i].kept = calloc(2 * PIECE, sizeof *heard[i].kept);
        CHECK(heard[i].kept != NULL);
        good = good && listen_to(&reruns[i], &heard[i], error);
    }
    if (good)
        describe(reruns, heard, divergence);
    cluster_free(heard[0].cluster);
    free(heard[0].kept);
    free(heard[1].kept);
    return good;
}

bool sim_divergence(struct results *store, int64_t run_a, int64_t run_b, struct divergence *divergence,
                    struct user_error *error)
{
    struct rerun reruns[2];
    memset(reruns, 0, sizeof reruns);
    memset(divergence, 0, sizeof *divergence);
    bool good = rerun_read(&reruns[0], store, run_a, error) && rerun_read(&reruns[1], store, run_b, error);
    if (good && load(&reruns[0], store, divergence->unknown, sizeof divergence->unknown) &&
        load(&reruns[1], store, divergence->unknown, sizeof divergence->unknown))
        good = find(reruns, divergence, error);
    rerun_free(&reruns[0]);
    rerun_free(&reruns[1]);
    return good;
}
