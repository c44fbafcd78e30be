/* The results database: every run that was completed, in one SQLite file that outlives the command that wrote it.
 *
 * One writer at a time, one run in one transaction. A run that was interrupted, at whatever instant and however rudely,
 * is not in the file. A simulated run is a function of (scenario, build, seed, parameters) and is stored once: running
 * it again is a check of its fingerprint, and a difference is an error.
 *
 * Times are integer nanoseconds from the start of the run. Means and percentiles exist only as views
 * (results_schema.c); reports compute the same ones in fewer readings of the rows.
 *
 * Functions return false, NULL or 0 on failure and describe it in `error`, which starts with the file's name. A store
 * is not thread-safe: whoever sweeps on several threads hands over one whole run at a time.
 *
 * Memory: rows stream to the file within the transaction. SQLite holds at most RESULTS_CACHE_KIB of pages, changed ones
 * included, and writes the rest to the log as the run goes on, so that memory does not grow with the number of
 * requests.
 */
#ifndef TANDEM_RUN_RESULTS_RESULTS_H
#define TANDEM_RUN_RESULTS_RESULTS_H

#include "run/run_record.h"
#include "host/user_error.h"
#include "world/scenario/scenario.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RESULTS_CACHE_KIB 16384

/* How long a statement waits for another process's lock. Locks of readers and of checkpoints last milliseconds. */
#define RESULTS_BUSY_MS 5000

struct results;

enum results_mode {
    RESULTS_READ = 1,
    RESULTS_WRITE = 2, /* creates the file where there is none, and keeps other writers out until it is closed */
};

/* Opens `path`, bringing an older schema up to date. Refused: a file that is not a database, one of another program,
 * one with a schema newer than this build knows, and, for writing, one that another process is writing. */
struct results *results_open(const char *path, enum results_mode mode, struct user_error *error);

/* Closes and frees the store, dropping a run that was begun and not committed. A writer leaves one file: the log is
 * written back and truncated. */
bool results_close(struct results *store, struct user_error *error);

/* Both return the id of the row, new or old. `identity` is 64 hex digits; a scenario known by its identity keeps its
 * row and takes the name and path it was last called by. */
int64_t results_scenario_add(struct results *store, const char *identity, const char *name, const char *path,
                             const char *canonical, struct user_error *error);
int64_t results_build_add(struct results *store, const char *identity, const char *version, struct user_error *error);

/* ---- Writing a run ---------------------------------------------------------------------------------------------- */

enum results_backend { RESULTS_SIM = 1, RESULTS_REAL = 2, RESULTS_LIVE = 3 /* an endpoint's */ };

enum results_kind {
    RESULTS_RUN = 1,    /* asked for by the user */
    RESULTS_PROBE = 2,  /* a step of a search; `last` does not mean it */
    RESULTS_REPORT = 3, /* the run that a planner's verdict rests on */
};

/* What is stored beside requests, instances and the histogram of token gaps, which always are. Bits. */
enum results_record { RECORD_TRANSFERS = 1, RECORD_STEPS = 2, RECORD_SAMPLES = 4 };

/* A swept value, as `--set path=value` takes it. */
struct results_param {
    const char *path;
    const char *value;
};

struct results_key {
    int64_t scenario;
    int64_t build;
    uint64_t seed; /* at most INT64_MAX */
    enum results_backend backend;
    const struct results_param *params; /* in any order, each path once */
    uint32_t param_count;
};

/* Sets *run to the stored simulated run of this key, or to 0. */
bool results_run_find(struct results *store, const struct results_key *key, int64_t *run, struct user_error *error);

struct results_begin {
    struct results_key key;
    enum results_kind kind;
    int64_t replay_of;             /* the run whose arrivals this one has; 0: none */
    uint32_t record;               /* enum results_record */
    const struct targets *targets; /* where there are any goodput counts requests within every limit, else those that
                                      completed; NULL: none */
    const char *compiler;          /* not part of the key by design; kept to find out where that fails */
};

/* Starts a run and returns its id. Until the commit nobody else sees it. Where the key is already stored this is a
 * repetition: requests are not stored again, recordings that the stored run lacks are added, and the commit compares.
 * What was stored as a probe then becomes what it is begun as. */
int64_t results_run_begin(struct results *store, const struct results_begin *begin, struct user_error *error);

/* Rows of the run in progress, in any order. Boundaries must not decrease; of a request that did not complete, those it
 * did not reach are negative, or smaller than the one before. A recording that was not asked for is ignored. */
bool results_add_request(struct results *store, const struct request_row *row, struct user_error *error);
bool results_add_transfer(struct results *store, const struct transfer_row *row, struct user_error *error);
bool results_add_step(struct results *store, const struct step_row *row, struct user_error *error);
bool results_add_sample(struct results *store, const struct sample_row *row, struct user_error *error);

/* Completes the run. `itl_tokens` has ITL_BUCKETS counts (run_record.h); wall_ns is how long the run took to compute.
 * Of a repetition, trace hash, event count and final draw must equal the stored ones; otherwise nothing is kept and the
 * error shows both. On failure the run is dropped. */
bool results_run_commit(struct results *store, const struct run_summary *summary, int64_t wall_ns,
                        const struct instance_summary *instances, uint32_t instance_count, const uint64_t *itl_tokens,
                        struct user_error *error);

/* Drops the run in progress; nothing where there is none. */
void results_run_abort(struct results *store);

/* ---- Findings of the planner ------------------------------------------------------------------------------------ */

/* A verdict. Numbers that are negative and texts that are NULL are unknown. A finding replaces the one with the same
 * scenario, build, kind and label. */
struct results_finding {
    int64_t scenario;
    int64_t build;
    int64_t run;       /* that it rests on; 0: none */
    const char *kind;  /* "candidate", "colocated", "frontier", "recommendation" */
    const char *label; /* "2P3D tp8/dp8" */
    int64_t prefill;
    int64_t decode;
    const char *sharding;
    int64_t nodes;
    int64_t max_rate_micro_per_s;
    int64_t goodput_per_gpu_micro_per_s;
    int64_t ttft_ns; /* at the percentile of the target */
    int64_t tpot_ns;
    int64_t usd_micros_per_mtok;
    int64_t saturation_permille;
    const char *bound_by;
    const char *why;
    const json_t *detail; /* whatever else; NULL: nothing */
};

/* Not while a run is in progress: it would be dropped with the run. */
bool results_finding_add(struct results *store, const struct results_finding *finding, struct user_error *error);

/* An array of a scenario's findings under this build, in the order they were first added, with the keys of the command
 * line's reference. The caller owns it. */
json_t *results_findings_json(struct results *store, int64_t scenario, int64_t build, struct user_error *error);

#define FINDING_PLAN "plan" /* the kind of finding whose detail is a plan's JSON */

/* The newest plan, as JSON, that rests on a run (0: none), or of the scenarios of a name (NULL: none). NULL without an
 * error where there is none. The caller owns it. */
json_t *results_plan_json(struct results *store, int64_t run, const char *scenario, struct user_error *error);

/* ---- Probes of the planner -------------------------------------------------------------------------------------- */

/* Keeps one probe under its key, in place of what stood there. */
bool results_probe_add(struct results *store, int64_t scenario, int64_t build, const char *candidate,
                       uint64_t rate_micro_per_s, uint64_t seed, const json_t *measured, struct user_error *error);

/* An array of {candidate, rate_micro_per_s, seed, measured}. The caller owns it. */
json_t *results_probes_json(struct results *store, int64_t scenario, int64_t build, struct user_error *error);

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

struct metric_summary {
    uint64_t count; /* requests (token gaps for ITL) it is made of; 0: nothing below means anything */
    int64_t mean_ns;
    int64_t p50_ns;
    int64_t p90_ns;
    int64_t p95_ns;
    int64_t p99_ns;
    int64_t max_ns;
};

/* What became of requests that were not served: so many, for this reason. */
struct ending {
    enum outcome outcome; /* OUTCOME_REJECTED or OUTCOME_FAILED */
    uint8_t reason;       /* enum reject_reason or enum fail_reason */
    uint64_t requests;
};
#define ENDINGS_MAX 24

/* A target beside what the run came to. As the planner counts, a request that was not served misses every target of a
 * latency of its own; gaps between tokens are those of requests that completed. */
struct target_report {
    struct target target;
    bool known; /* false: no completed request has such a latency */
    int64_t value_ns;
    uint64_t missed; /* of the run's counted requests; of a target of gaps 0 */
    bool met;
};

struct instance_report {
    char name[48];
    char role[16];
    uint32_t ranks;
    uint64_t requests;
    uint32_t utilization_permille;   /* share of the run with a step in progress */
    uint32_t kv_used_peak_permille;  /* of its pages */
    uint32_t compute_bound_permille; /* of the busy time, by what bounded the step */
    uint32_t bandwidth_bound_permille;
    uint32_t communication_bound_permille;
    uint32_t overhead_bound_permille;
    uint64_t preemptions;
    uint64_t nic_bytes;
    uint64_t steps;
    int64_t node_ns;         /* CPU time inside the node (scheduler, messenger) over the run; negative: not measured */
    int64_t clock_offset_ns; /* of its host's clock to the front's, as taken out of all times; 0: the same clock */
    int64_t clock_error_ns;  /* at most, of what is left; negative: not a real run */
};

/* A stored run as reports show it. */
struct run_report {
    int64_t run;
    char scenario[64];
    char identity[65];
    char build[65];
    char backend[8];
    char kind[8];
    char params[2048];
    uint64_t seed;
    uint64_t trace_hash;
    uint64_t event_count;
    uint64_t final_draw;
    bool has_warmup;
    uint64_t warmup_requests; /* that arrived before the warm-up ended: in no other number here */
    uint64_t requests;        /* arrived after it */
    uint64_t completed;
    uint64_t rejected;
    uint64_t failed;
    uint64_t aborted;
    uint64_t prompt_tokens; /* of requests that completed after the warm-up */
    uint64_t output_tokens;
    int64_t duration_ns; /* from the end of the warm-up to the last event: what rates are over */
    uint64_t
        served; /* what goodput counts: requests within every target, or where there are none those that completed */
    uint64_t goodput_micro_per_s;
    uint32_t ending_count;
    struct ending endings[ENDINGS_MAX]; /* rejections first, then by reason */
    uint32_t target_count;
    struct target_report targets[SCENARIO_TARGETS_MAX];
    uint32_t attainment_asked_permille; /* of counted requests, within all targets at once; 0: not asked */
    uint64_t counted;                   /* completed, rejected or failed after the warm-up */
    uint64_t met_all_targets;
    struct metric_summary ttft;
    struct metric_summary tpot;
    struct metric_summary itl;
    struct metric_summary e2e;
    struct metric_summary spans[SPAN_COUNT];
    struct metric_summary transfer;    /* first post to last byte; of runs that recorded transfers */
    int32_t transfer_hidden_permille;  /* of the transfers' time, what passed before prefill had ended; -1: unknown */
    uint64_t cached_tokens;            /* of prompt_tokens, those that prefillers had cached */
    struct instance_report *instances; /* ascending by node */
    uint32_t instance_count;
};

/* Fills *report, in two readings of the run's requests; the views, which are for users, say the same. run_report_free()
 * gives back its instances. */
bool results_run_read(struct results *store, int64_t run, struct run_report *report, struct user_error *error);
void run_report_free(struct run_report *report);

/* Share of the prompt tokens that prefillers had cached; output tokens a second in tenths. */
uint32_t run_report_cached_permille(const struct run_report *report);
uint64_t run_report_output_tokens_deci_per_s(const struct run_report *report);

/* Whether every target was met, and the attainment that is asked for. */
bool run_report_met(const struct run_report *report);

/* Time inside the node per step; negative where it was not measured. */
int64_t instance_report_node_ns_per_step(const struct instance_report *instance);

/* What `run --format json` prints and expect(r) reads: scenario, seed, params, requests, ttft_ms, ... A quantity that
 * the run does not have is null. The caller owns it.
 * results_run_json() reads and converts. */
json_t *run_report_json(const struct run_report *report);
json_t *results_run_json(struct results *store, int64_t run, struct user_error *error);

/* What a run was made from: the scenario's file and what was set beside it (--set, and the values of a sweep). */
#define RESULTS_ORIGIN_PARAMS_MAX 128
struct results_origin {
    char path[1024];
    uint32_t param_count;
    struct results_param params[RESULTS_ORIGIN_PARAMS_MAX]; /* by path; owned */
    int64_t replay_of;                                      /* the run whose arrivals it has; 0: none */
};

/* The parameter that tells a run played again from others of its scenario and seed: no path of a scenario, and not
 * among the parameters of an origin. Its value is the number of the other run. */
#define RESULTS_REPLAY_PARAM "replay"

bool results_origin_read(struct results *store, int64_t run, struct results_origin *origin, struct user_error *error);
void results_origin_free(struct results_origin *origin);

/* The requests of a run by id, from 0 on; owned. Every one that arrived is there, however it ended. */
struct results_requests {
    uint32_t count;
    int64_t *arrived_ns;
    uint32_t *prompt_tokens;
    uint32_t *output_tokens;
    uint32_t *conversations; /* 0: of none, or nobody noted it */
};
bool results_requests_read(struct results *store, int64_t run, struct results_requests *requests,
                           struct user_error *error);
void results_requests_free(struct results_requests *requests);

/* ---- Keeping ---------------------------------------------------------------------------------------------------- */

/* Deleting a run deletes all that belongs to it, whoever does it and by whatever program; its number is not used
 * again. */

struct results_filter {
    const char *scenario; /* a name; NULL: all */
    const char *backend;  /* "sim", "real", "live"; NULL: all */
    const char *kind;     /* "run", "probe", "report"; NULL: all */
    int64_t limit;        /* the newest so many; 0: all */
};

struct results_listed {
    int64_t run;
    const char *scenario;
    const char *params; /* path=value lines */
    int64_t seed;
    const char *backend;
    const char *kind;
    const char *build;  /* identity */
    const char *stored; /* UTC, ISO 8601 */
    int64_t requests;
    int64_t completed;
};

/* Calls `take` for each complete run, the newest first; the texts live as long as the call. */
bool results_runs_each(struct results *store, const struct results_filter *filter,
                       void (*take)(void *self, const struct results_listed *run), void *self,
                       struct user_error *error);

/* For a writer. */
bool results_run_delete(struct results *store, int64_t run, struct user_error *error);

struct results_garbage {
    bool probes;                   /* probes and report runs of plans: a plan made again simulates them again */
    int64_t before_unix_s;         /* runs stored before; 0: none */
    const char *other_builds_than; /* simulated runs of other builds than this identity; NULL: none */
};

/* Deletes what is named, scenarios and builds that nothing refers to, and gives the space back to the file system.
 * *runs: how many runs went. For a writer. */
bool results_collect(struct results *store, const struct results_garbage *garbage, uint64_t *runs,
                     struct user_error *error);

/* Turns what a user calls a run into its id: a number; "last" and "last~N" (probes do not count); "NAME/SEED" or
 * "NAME", the newest run of a scenario. 0 and an error that names the nearest when there is none. */
int64_t results_run_lookup(struct results *store, const char *name, struct user_error *error);

#endif
