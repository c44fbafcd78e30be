/* The baseline of a suite: what its scenarios decided when somebody last said that this was right, in one SQLite file
 * that is small enough to be committed beside the suite.
 *
 * A run is stored as its whole packed trace and hardly anything else: rows of requests, spans and percentiles follow
 * from the trace by the recorder that every run goes through, and the first decision that differs can be named without
 * the build that made it. Blessings, each with its reason, are kept from the first one on.
 *
 * A file is never changed in place. A new one is written beside it and takes its name when it is whole, so that an
 * update that is interrupted, at whatever instant, leaves the old baseline as it was.
 *
 * Functions return false or NULL on failure and describe it in `error`, which starts with the file's name.
 */
#ifndef TANDEM_RUN_BASELINE_H
#define TANDEM_RUN_BASELINE_H

#include "run/trace_log.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stdint.h>

#define BASELINE_NODE_NAME_SIZE 48

/* One run of one case. */
struct baseline_run {
    char identity[65]; /* of the scenario as it was resolved */
    uint64_t trace_hash;
    uint64_t event_count;
    uint64_t final_draw;
    int64_t start_ns; /* end of the warm-up */
    int64_t end_ns;   /* last event */
    uint32_t node_count;
    char (*nodes)[BASELINE_NODE_NAME_SIZE]; /* by node, the front first; owned */
    uint64_t *itl;                          /* ITL_BUCKETS counts; owned */
    struct trace_log log;                   /* owned */
};

void baseline_run_free(struct baseline_run *run);

/* A reason that was given, and what it covered. */
struct baseline_blessing {
    char reason[512];
    char version[32]; /* of tandem */
    char build[65];
    char at[24]; /* UTC, "2026-11-29 21:50" */
    int64_t cases;
    int64_t changed; /* against the baseline before */
    int64_t worse;   /* of them */
};

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

struct baseline;

/* Refused: what is no baseline, what a newer tandem wrote, what is damaged. */
struct baseline *baseline_open(const char *path, struct user_error *error);
void baseline_close(struct baseline *baseline);

/* The number of blessings, and the one at `index` from 0, the oldest, on. */
uint32_t baseline_blessing_count(const struct baseline *baseline);
const struct baseline_blessing *baseline_blessing(const struct baseline *baseline, uint32_t index);

/* Runs of all cases together. */
uint64_t baseline_run_count(const struct baseline *baseline);

/* Fills *run; *found is false where the baseline has no such run. */
bool baseline_run_read(struct baseline *baseline, const char *name, uint64_t seed, struct baseline_run *run,
                       bool *found, struct user_error *error);

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

struct baseline_writer;

/* Starts a new file beside `path`. */
struct baseline_writer *baseline_create(const char *path, struct user_error *error);
bool baseline_add_blessing(struct baseline_writer *writer, const struct baseline_blessing *blessing,
                           struct user_error *error);
bool baseline_add_run(struct baseline_writer *writer, const char *name, uint64_t seed, const struct baseline_run *run,
                      struct user_error *error);

/* Both free the writer: the file takes its name, or is gone. */
bool baseline_commit(struct baseline_writer *writer, struct user_error *error);
void baseline_abandon(struct baseline_writer *writer);

#endif
