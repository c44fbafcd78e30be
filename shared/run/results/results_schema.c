/* The schema of the results database and how it came to be: every released step stays here as it was.
 *
 * Statistics live in views, over completed requests that arrived after the warm-up:
 *   TTFT  first token - arrival, which is the sum of the first seven spans.
 *   TPOT  (end - first token) / (output tokens - 1), rounded down to a nanosecond; a request with one output token has
 *         none.
 *   E2E   end - arrival.
 *   ITL   the gap between a token and the one before it, weighed by tokens, from the histogram of the run. A percentile
 *         is the upper end of its bucket (0.8 % wide), the mean takes every gap at the middle of its bucket.
 * A percentile p of n values is the nearest rank: the value at place ceil(n * p / 100) in ascending order. Means are
 * rounded down to a nanosecond. Integers throughout, so that a report does not depend on the order of a sum.
 *
 * The percentile views have one row a percentile and no aggregate above the window function: only so does SQLite move
 * `run_id = ?` down into a search by primary key.
 */
#include "run/results/results_internal.h"

/* ---- Version 1 -------------------------------------------------------------------------------------------------- */

/* The percentiles of column COLUMN of request_latency, as metric NAME, over COUNT of run_counted values. The sorted
 * rows come first in the join, so that they stream past the few wanted places and are never kept. */
#define LATENCY_PERCENTILES(name, column, count)                                                                       \
    "SELECT sorted.run_id AS run_id, '" name "' AS metric, percentile, " column " AS value_ns FROM ("                  \
    "SELECT run_id, " column ", row_number() OVER (PARTITION BY run_id ORDER BY " column ") AS place"                  \
    " FROM request_latency WHERE " column " IS NOT NULL) AS sorted CROSS JOIN run_counted AS counted"                  \
    " CROSS JOIN reported_percentile WHERE counted.run_id = sorted.run_id"                                             \
    " AND place = (" count " * percentile + 99) / 100"

/* floor(sum(VALUE) / COUNT) in two parts: the sum of a million queueing times of hours leaves 64 bits. */
#define MEAN_NS(value, count)                                                                                          \
    "sum(" value " / 1000000) / " count " * 1000000 + (sum(" value " / 1000000) % " count " * 1000000 +"               \
    " sum(" value " % 1000000)) / " count

#define LATENCY_MEAN(name, column)                                                                                     \
    "SELECT run_id, '" name "' AS metric, count(" column                                                               \
    ") AS count, " MEAN_NS(column, "count(" column ")") " AS mean_ns, max(" column                                     \
                                                        ") AS max_ns FROM request_latency GROUP BY run_id"

#define UNION_ALL " UNION ALL "

static const char *const version_1[] = {
    "PRAGMA application_id = 1953391725",

    "CREATE TABLE scenario (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  identity TEXT NOT NULL UNIQUE CHECK (length(identity) = 64), -- SHA-256 of the canonical text\n"
    "  name TEXT NOT NULL,\n"
    "  path TEXT NOT NULL,\n"
    "  canonical TEXT NOT NULL -- the resolved scenario\n"
    ") STRICT",

    "CREATE TABLE build (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  identity TEXT NOT NULL UNIQUE CHECK (length(identity) = 64), -- SHA-256 of the sources\n"
    "  version TEXT NOT NULL\n"
    ") STRICT",

    "CREATE TABLE run (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  scenario_id INTEGER NOT NULL REFERENCES scenario(id),\n"
    "  build_id INTEGER NOT NULL REFERENCES build(id),\n"
    "  compiler TEXT NOT NULL,\n"
    "  seed INTEGER NOT NULL CHECK (seed >= 0),\n"
    "  backend TEXT NOT NULL CHECK (backend IN ('sim', 'real')),\n"
    "  kind TEXT NOT NULL CHECK (kind IN ('run', 'probe', 'report')),\n"
    "  params TEXT NOT NULL, -- path=value lines, by path\n"
    "  has_targets INTEGER NOT NULL CHECK (has_targets IN (0, 1)),\n"
    "  record INTEGER NOT NULL, -- bits: 1 transfers, 2 steps, 4 samples\n"
    "  status TEXT NOT NULL CHECK (status IN ('running', 'complete')),\n"
    "  stored_unix_s INTEGER NOT NULL,\n"
    "  recency INTEGER NOT NULL, -- grows with every run and repetition: the greatest is the last one\n"
    "  wall_ns INTEGER,\n"
    "  trace_hash TEXT,\n"
    "  event_count INTEGER,\n"
    "  final_draw TEXT,\n"
    "  arrived INTEGER, -- this and the next four include the warm-up\n"
    "  completed INTEGER,\n"
    "  rejected INTEGER,\n"
    "  failed INTEGER,\n"
    "  aborted INTEGER,\n"
    "  met_all_targets INTEGER, -- completed, after the warm-up, within every limit\n"
    "  counted INTEGER, -- completed, rejected or failed after the warm-up\n"
    "  prompt_tokens INTEGER,\n"
    "  output_tokens INTEGER,\n"
    "  start_ns INTEGER, -- end of the warm-up\n"
    "  end_ns INTEGER, -- last event\n"
    "  CHECK (status = 'running' OR (trace_hash IS NOT NULL AND event_count IS NOT NULL AND final_draw IS NOT NULL\n"
    "    AND arrived IS NOT NULL AND completed IS NOT NULL AND end_ns >= start_ns))\n"
    ") STRICT",

    "CREATE UNIQUE INDEX run_simulated ON run(scenario_id, build_id, seed, params) WHERE backend = 'sim'",

    "CREATE INDEX run_recent ON run(recency)",

    "CREATE TABLE run_param (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  path TEXT NOT NULL,\n"
    "  value TEXT NOT NULL,\n"
    "  PRIMARY KEY (run_id, path)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE TABLE request (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  request INTEGER NOT NULL,\n"
    "  prompt_tokens INTEGER NOT NULL,\n"
    "  output_tokens INTEGER NOT NULL,\n"
    "  cached_tokens INTEGER NOT NULL,\n"
    "  decoder INTEGER NOT NULL,\n"
    "  prefiller INTEGER NOT NULL,\n"
    "  outcome INTEGER NOT NULL, -- 1 completed, 2 rejected, 3 failed, 4 aborted\n"
    "  reason INTEGER NOT NULL,\n"
    "  attempts INTEGER NOT NULL,\n"
    "  preemptions INTEGER NOT NULL,\n"
    "  warmup INTEGER NOT NULL,\n"
    "  arrived_ns INTEGER NOT NULL, -- a boundary that was not reached is NULL\n"
    "  received_ns INTEGER,\n"
    "  dispatched_ns INTEGER,\n"
    "  prefill_started_ns INTEGER,\n"
    "  prefill_finished_ns INTEGER,\n"
    "  ready_ns INTEGER,\n"
    "  decode_started_ns INTEGER,\n"
    "  first_token_ns INTEGER,\n"
    "  finished_ns INTEGER NOT NULL, -- the end, whatever the outcome\n"
    "  PRIMARY KEY (run_id, request)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE TABLE transfer (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  request INTEGER NOT NULL,\n"
    "  epoch INTEGER NOT NULL,\n"
    "  source INTEGER NOT NULL,\n"
    "  destination INTEGER NOT NULL,\n"
    "  layers INTEGER NOT NULL,\n"
    "  bytes INTEGER NOT NULL,\n"
    "  writes INTEGER NOT NULL,\n"
    "  posted_ns INTEGER NOT NULL,\n"
    "  landed_ns INTEGER NOT NULL,\n"
    "  confirmed_ns INTEGER NOT NULL,\n"
    "  PRIMARY KEY (run_id, request, epoch)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE TABLE step (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  node INTEGER NOT NULL,\n"
    "  start_ns INTEGER NOT NULL,\n"
    "  end_ns INTEGER NOT NULL,\n"
    "  steps INTEGER NOT NULL, -- a repetition is one row\n"
    "  decode_sequences INTEGER NOT NULL,\n"
    "  prefill_tokens INTEGER NOT NULL,\n"
    "  decode_context INTEGER NOT NULL,\n"
    "  PRIMARY KEY (run_id, node, start_ns)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE TABLE sample (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  node INTEGER NOT NULL,\n"
    "  counter TEXT NOT NULL,\n"
    "  at_ns INTEGER NOT NULL,\n"
    "  value INTEGER NOT NULL,\n"
    "  PRIMARY KEY (run_id, node, counter, at_ns)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE TABLE instance (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  node INTEGER NOT NULL,\n"
    "  name TEXT NOT NULL,\n"
    "  role INTEGER NOT NULL, -- 2 prefill, 3 decode, 4 mixed\n"
    "  ranks INTEGER NOT NULL,\n"
    "  requests INTEGER NOT NULL,\n"
    "  busy_ns INTEGER NOT NULL,\n"
    "  compute_bound_ns INTEGER NOT NULL, -- of busy_ns, by what bounded the step\n"
    "  bandwidth_bound_ns INTEGER NOT NULL,\n"
    "  communication_bound_ns INTEGER NOT NULL,\n"
    "  overhead_bound_ns INTEGER NOT NULL,\n"
    "  steps INTEGER NOT NULL,\n"
    "  prefill_tokens INTEGER NOT NULL,\n"
    "  decode_tokens INTEGER NOT NULL,\n"
    "  pages_total INTEGER NOT NULL,\n"
    "  pages_held_peak INTEGER NOT NULL,\n"
    "  page_wait_ns INTEGER NOT NULL, -- request-nanoseconds\n"
    "  handoff_wait_ns INTEGER NOT NULL,\n"
    "  preemptions INTEGER NOT NULL,\n"
    "  nic_transmit_busy_ns INTEGER NOT NULL,\n"
    "  nic_receive_busy_ns INTEGER NOT NULL,\n"
    "  nic_op_bound_ns INTEGER NOT NULL,\n"
    "  nic_bytes INTEGER NOT NULL,\n"
    "  PRIMARY KEY (run_id, node)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE TABLE itl_histogram (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  bucket INTEGER NOT NULL, -- 128 to an octave\n"
    "  tokens INTEGER NOT NULL CHECK (tokens > 0),\n"
    "  PRIMARY KEY (run_id, bucket)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE TABLE finding (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  scenario_id INTEGER NOT NULL REFERENCES scenario(id),\n"
    "  build_id INTEGER NOT NULL REFERENCES build(id),\n"
    "  run_id INTEGER REFERENCES run(id),\n"
    "  kind TEXT NOT NULL,\n"
    "  label TEXT NOT NULL,\n"
    "  prefill INTEGER,\n"
    "  decode INTEGER,\n"
    "  sharding TEXT,\n"
    "  nodes INTEGER,\n"
    "  max_rate_micro_per_s INTEGER,\n"
    "  goodput_per_gpu_micro_per_s INTEGER,\n"
    "  ttft_ns INTEGER,\n"
    "  tpot_ns INTEGER,\n"
    "  usd_micros_per_mtok INTEGER,\n"
    "  saturation_permille INTEGER,\n"
    "  bound_by TEXT,\n"
    "  why TEXT,\n"
    "  detail TEXT CHECK (detail IS NULL OR json_valid(detail)),\n"
    "  UNIQUE (scenario_id, build_id, kind, label)\n"
    ") STRICT",

    "CREATE TABLE baseline (\n"
    "  suite TEXT NOT NULL,\n"
    "  scenario_id INTEGER NOT NULL REFERENCES scenario(id),\n"
    "  metric TEXT NOT NULL,\n"
    "  value INTEGER NOT NULL,\n"
    "  tolerance_permille INTEGER NOT NULL CHECK (tolerance_permille >= 0),\n"
    "  run_id INTEGER REFERENCES run(id), -- that was blessed\n"
    "  PRIMARY KEY (suite, scenario_id, metric)\n"
    ") STRICT, WITHOUT ROWID",

    "CREATE VIEW complete_run AS\n"
    "SELECT run.id AS run_id, scenario.name AS scenario, scenario.identity AS scenario_identity, build.identity AS\n"
    "  build_identity, build.version AS version, compiler, seed, backend, kind, params, record, stored_unix_s, "
    "recency, wall_ns,\n"
    "  trace_hash, event_count, final_draw, arrived, completed, rejected, failed, aborted, met_all_targets, counted,\n"
    "  prompt_tokens, output_tokens, start_ns, end_ns, has_targets\n"
    "FROM run JOIN scenario ON scenario.id = scenario_id JOIN build ON build.id = build_id WHERE status = 'complete'",

    "CREATE VIEW request_latency AS\n"
    "SELECT run_id, request,\n"
    "  first_token_ns - arrived_ns AS ttft_ns,\n"
    "  (finished_ns - first_token_ns) / nullif(output_tokens - 1, 0) AS tpot_ns,\n"
    "  finished_ns - arrived_ns AS e2e_ns,\n"
    "  received_ns - arrived_ns AS route_ns,\n"
    "  dispatched_ns - received_ns AS admission_wait_ns,\n"
    "  prefill_started_ns - dispatched_ns AS prefill_queue_ns,\n"
    "  prefill_finished_ns - prefill_started_ns AS prefill_ns,\n"
    "  ready_ns - prefill_finished_ns AS exposed_transfer_ns,\n"
    "  decode_started_ns - ready_ns AS decode_queue_ns,\n"
    "  first_token_ns - decode_started_ns AS first_decode_ns,\n"
    "  finished_ns - first_token_ns AS decode_ns\n"
    "FROM request WHERE outcome = 1 AND warmup = 0",

    "CREATE VIEW run_counted AS\n"
    "SELECT run_id, count(*) AS requests, count(tpot_ns) AS with_tpot FROM request_latency GROUP BY run_id",

    "CREATE VIEW reported_percentile AS\n"
    "SELECT 50 AS percentile UNION ALL SELECT 90 UNION ALL SELECT 95 UNION ALL SELECT 99",

    "CREATE VIEW run_latency_mean AS " LATENCY_MEAN("ttft", "ttft_ns") UNION_ALL LATENCY_MEAN("tpot", "tpot_ns")
        UNION_ALL LATENCY_MEAN("e2e", "e2e_ns"),

    "CREATE VIEW run_latency_percentile AS " LATENCY_PERCENTILES("ttft", "ttft_ns", "requests")
        UNION_ALL LATENCY_PERCENTILES("tpot", "tpot_ns", "with_tpot")
            UNION_ALL LATENCY_PERCENTILES("e2e", "e2e_ns", "requests"),

    "CREATE VIEW run_span_mean AS " LATENCY_MEAN("route", "route_ns")
        UNION_ALL LATENCY_MEAN("admission_wait", "admission_wait_ns")
            UNION_ALL LATENCY_MEAN("prefill_queue", "prefill_queue_ns") UNION_ALL LATENCY_MEAN("prefill", "prefill_ns")
                UNION_ALL LATENCY_MEAN("exposed_transfer", "exposed_transfer_ns")
                    UNION_ALL LATENCY_MEAN("decode_queue", "decode_queue_ns")
                        UNION_ALL LATENCY_MEAN("first_decode", "first_decode_ns")
                            UNION_ALL LATENCY_MEAN("decode", "decode_ns"),

    "CREATE VIEW run_span_percentile AS " LATENCY_PERCENTILES("route", "route_ns", "requests")
        UNION_ALL LATENCY_PERCENTILES("admission_wait", "admission_wait_ns", "requests")
            UNION_ALL LATENCY_PERCENTILES("prefill_queue", "prefill_queue_ns", "requests")
                UNION_ALL LATENCY_PERCENTILES("prefill", "prefill_ns", "requests")
                    UNION_ALL LATENCY_PERCENTILES("exposed_transfer", "exposed_transfer_ns", "requests")
                        UNION_ALL LATENCY_PERCENTILES("decode_queue", "decode_queue_ns", "requests")
                            UNION_ALL LATENCY_PERCENTILES("first_decode", "first_decode_ns", "requests")
                                UNION_ALL LATENCY_PERCENTILES("decode", "decode_ns", "requests"),

    "CREATE VIEW itl_bucket AS\n"
    "SELECT run_id, bucket, tokens,\n"
    "  CASE WHEN bucket < 128 THEN bucket ELSE (bucket % 128 + 128) << (bucket / 128 - 1) END AS lower_ns,\n"
    "  CASE WHEN bucket < 128 THEN bucket ELSE ((bucket % 128 + 129) << (bucket / 128 - 1)) - 1 END AS upper_ns\n"
    "FROM itl_histogram",

    "CREATE VIEW run_itl_mean AS\n"
    "SELECT run_id, 'itl' AS metric, sum(tokens) AS count,\n"
    "  " MEAN_NS("(tokens * ((lower_ns + upper_ns) / 2))", "sum(tokens)") " AS mean_ns, max(upper_ns) AS max_ns\n"
                                                                          "FROM itl_bucket GROUP BY run_id",

    "CREATE VIEW run_itl_percentile AS\n"
    "SELECT run_id, 'itl' AS metric, percentile, upper_ns AS value_ns FROM (\n"
    "  SELECT run_id, upper_ns, tokens, sum(tokens) OVER (PARTITION BY run_id ORDER BY bucket) AS place,\n"
    "    sum(tokens) OVER (PARTITION BY run_id) AS n\n"
    "  FROM itl_bucket)\n"
    "CROSS JOIN reported_percentile\n"
    "WHERE place >= (n * percentile + 99) / 100 AND place - tokens < (n * percentile + 99) / 100",

    "CREATE VIEW run_rate AS\n"
    "SELECT run_id, duration_ns, served, 1e9 * served / nullif(duration_ns, 0) AS goodput_per_s FROM (\n"
    "  SELECT id AS run_id, end_ns - start_ns AS duration_ns, CASE has_targets WHEN 1 THEN met_all_targets\n"
    "    ELSE (SELECT count(*) FROM request_latency WHERE request_latency.run_id = run.id) END AS served\n"
    "  FROM run WHERE status = 'complete')",

    "CREATE VIEW run_instance AS\n"
    "SELECT run_id, node, name, CASE role WHEN 1 THEN 'front' WHEN 2 THEN 'prefill' WHEN 3 THEN 'decode'\n"
    "    WHEN 4 THEN 'mixed' END AS role, ranks, requests,\n"
    "  coalesce(busy_ns * 1000 / nullif(end_ns, 0), 0) AS utilization_permille,\n"
    "  coalesce(pages_held_peak * 1000 / nullif(pages_total, 0), 0) AS kv_used_peak_permille,\n"
    "  coalesce(compute_bound_ns * 1000 / nullif(busy_ns, 0), 0) AS compute_bound_permille,\n"
    "  coalesce(bandwidth_bound_ns * 1000 / nullif(busy_ns, 0), 0) AS bandwidth_bound_permille,\n"
    "  coalesce(communication_bound_ns * 1000 / nullif(busy_ns, 0), 0) AS communication_bound_permille,\n"
    "  coalesce(overhead_bound_ns * 1000 / nullif(busy_ns, 0), 0) AS overhead_bound_permille,\n"
    "  instance.prefill_tokens AS prefill_tokens, decode_tokens, page_wait_ns, handoff_wait_ns, preemptions,\n"
    "  nic_transmit_busy_ns, nic_receive_busy_ns, nic_op_bound_ns, nic_bytes\n"
    "FROM instance JOIN run ON run.id = run_id WHERE status = 'complete'",

    "CREATE VIEW plan_finding AS\n"
    "SELECT finding.id AS finding_id, scenario_id, build_id, run_id, scenario.name AS scenario, finding.kind AS kind,\n"
    "  label, prefill, decode, sharding, nodes, max_rate_micro_per_s, goodput_per_gpu_micro_per_s, ttft_ns, tpot_ns,\n"
    "  usd_micros_per_mtok, saturation_permille, bound_by, why, detail\n"
    "FROM finding JOIN scenario ON scenario.id = scenario_id",

    NULL,
};

/* ---- Version 2: probes of the planner's search ------------------------------------------------------------------- */

static const char *const version_2[] = {
    /* A probe is a function of its key, like a run; it is kept so that an interrupted search goes on where it was.
     * `measured` is the planner's own record: integers by name. */
    "CREATE TABLE probe (\n"
    "  scenario_id INTEGER NOT NULL REFERENCES scenario (id),\n"
    "  build_id INTEGER NOT NULL REFERENCES build (id),\n"
    "  candidate TEXT NOT NULL,\n"
    "  rate_micro_per_s INTEGER NOT NULL CHECK (rate_micro_per_s > 0),\n"
    "  seed INTEGER NOT NULL,\n"
    "  measured TEXT NOT NULL CHECK (json_valid(measured)),\n"
    "  PRIMARY KEY (scenario_id, build_id, candidate, rate_micro_per_s, seed)\n"
    ") STRICT, WITHOUT ROWID",

    NULL,
};

/* ---- Version 3: transfers of prompts in several chunks; what of the prompts was cached --------------------------- */

/* Of a completed request, from the first post to the last byte: most of it beneath the prefill. Its row count is that
 * of run_transfer_mean. Three statements. */
#define TRANSFER_VIEWS                                                                                                 \
    "CREATE VIEW request_transfer AS\n"                                                                                \
    "SELECT transfer.run_id AS run_id, transfer.request AS request, max(landed_ns) - min(posted_ns) AS transfer_ns,\n" \
    "  sum(bytes) AS bytes, sum(writes) AS writes\n"                                                                   \
    "FROM transfer JOIN request USING (run_id, request)\n"                                                             \
    "WHERE outcome = 1 AND warmup = 0 GROUP BY transfer.run_id, transfer.request",                                     \
        "CREATE VIEW run_transfer_mean AS\n"                                                                           \
        "SELECT run_id, 'transfer' AS metric, count(*) AS count, " MEAN_NS(                                            \
            "transfer_ns", "count(*)") " AS mean_ns,\n"                                                                \
                                       "  max(transfer_ns) AS max_ns FROM request_transfer GROUP BY run_id",           \
        "CREATE VIEW run_transfer_percentile AS\n"                                                                     \
        "SELECT run_id, 'transfer' AS metric, percentile, transfer_ns AS value_ns FROM (\n"                            \
        "  SELECT run_id, transfer_ns, row_number() OVER (PARTITION BY run_id ORDER BY transfer_ns) AS place,\n"       \
        "    count(*) OVER (PARTITION BY run_id) AS n\n"                                                               \
        "  FROM request_transfer)\n"                                                                                   \
        "CROSS JOIN reported_percentile WHERE place = (n * percentile + 99) / 100"

static const char *const version_3[] = {
    /* A request has one row a chunk. Up to version 2 a second one could not be stored, so that no ticket is missed. */
    "ALTER TABLE transfer RENAME TO transfer_2",

    "CREATE TABLE transfer (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  request INTEGER NOT NULL,\n"
    "  epoch INTEGER NOT NULL,\n"
    "  source INTEGER NOT NULL,\n"
    "  destination INTEGER NOT NULL,\n"
    "  layers INTEGER NOT NULL,\n"
    "  bytes INTEGER NOT NULL,\n"
    "  writes INTEGER NOT NULL,\n"
    "  posted_ns INTEGER NOT NULL,\n"
    "  landed_ns INTEGER NOT NULL,\n"
    "  confirmed_ns INTEGER NOT NULL,\n"
    "  ticket INTEGER NOT NULL, -- the sender's; free again once confirmed\n"
    "  PRIMARY KEY (run_id, request, epoch, posted_ns, ticket)\n"
    ") STRICT, WITHOUT ROWID",

    "INSERT INTO transfer SELECT *, 0 FROM transfer_2",

    "DROP TABLE transfer_2",

    TRANSFER_VIEWS,

    /* Prompt tokens of completed requests, and those of them that the prefiller had cached. */
    "CREATE VIEW run_prefix AS\n"
    "SELECT run_id, sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens FROM request\n"
    "WHERE outcome = 1 AND warmup = 0 GROUP BY run_id",

    NULL,
};

/* ---- Version 4: runs that are played again ----------------------------------------------------------------------- */

static const char *const version_4[] = {
    /* The run whose arrivals it has. */
    "ALTER TABLE run ADD COLUMN replay_of INTEGER REFERENCES run(id)",

    NULL,
};

/* ---- Version 5: what real runs measure of themselves; transfers beneath prefill --------------------------------- */

#define TRANSFER_HIDDEN_VIEW                                                                                           \
    "CREATE VIEW run_transfer_hidden AS\n"                                                                             \
    "SELECT run_id, sum(transfer_ns) AS transfer_ns, sum(max(0, min(transfer_ns, beneath_ns))) AS hidden_ns FROM (\n"  \
    "  SELECT transfer.run_id AS run_id, max(landed_ns) - min(posted_ns) AS transfer_ns,\n"                            \
    "    prefill_finished_ns - min(posted_ns) AS beneath_ns\n"                                                         \
    "  FROM transfer JOIN request USING (run_id, request)\n"                                                           \
    "  WHERE outcome = 1 AND warmup = 0 GROUP BY transfer.run_id, transfer.request)\n"                                 \
    "GROUP BY run_id"

static const char *const version_5[] = {
    /* A real run keeps samples of its nodes: node_ns (CPU time inside the node, all told), clock_offset_ns (its clock
     * less the front's, as estimated) and clock_error_ns (of that, at most). */
    "CREATE VIEW run_instance_real AS\n"
    "SELECT instance.run_id AS run_id, instance.node AS node, steps,\n"
    "  max(CASE counter WHEN 'node_ns' THEN value END) AS node_ns,\n"
    "  max(CASE counter WHEN 'clock_offset_ns' THEN value END) AS clock_offset_ns,\n"
    "  max(CASE counter WHEN 'clock_error_ns' THEN value END) AS clock_error_ns\n"
    "FROM instance LEFT JOIN sample USING (run_id, node) GROUP BY instance.run_id, instance.node",

    /* Of a request's time from the first post to the last byte, what passed before its prefill had ended. */
    TRANSFER_HIDDEN_VIEW,

    NULL,
};

/* ---- Version 6: the same transfers, the columns of their key first ---------------------------------------------- */

static const char *const version_6[] = {
    /* The columns of the key come first: SQLite's own integrity_check (3.40) finds fault with a table without row ids
     * whose do not. */
    "DROP VIEW run_transfer_percentile",

    "DROP VIEW run_transfer_mean",

    "DROP VIEW request_transfer",

    "DROP VIEW run_transfer_hidden",

    "ALTER TABLE transfer RENAME TO transfer_5",

    "CREATE TABLE transfer (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  request INTEGER NOT NULL,\n"
    "  epoch INTEGER NOT NULL,\n"
    "  posted_ns INTEGER NOT NULL,\n"
    "  ticket INTEGER NOT NULL, -- the sender's; free again once confirmed\n"
    "  source INTEGER NOT NULL,\n"
    "  destination INTEGER NOT NULL,\n"
    "  layers INTEGER NOT NULL,\n"
    "  bytes INTEGER NOT NULL,\n"
    "  writes INTEGER NOT NULL,\n"
    "  landed_ns INTEGER NOT NULL,\n"
    "  confirmed_ns INTEGER NOT NULL,\n"
    "  PRIMARY KEY (run_id, request, epoch, posted_ns, ticket)\n"
    ") STRICT, WITHOUT ROWID",

    "INSERT INTO transfer SELECT run_id, request, epoch, posted_ns, ticket, source, destination, layers, bytes,\n"
    "  writes, landed_ns, confirmed_ns FROM transfer_5",

    "DROP TABLE transfer_5",

    TRANSFER_VIEWS,

    TRANSFER_HIDDEN_VIEW,

    NULL,
};

/* ---- Version 7: conversations ------------------------------------------------------------------------------------ */

static const char *const version_7[] = {
    /* Whose turn the request was, from 1 on: what a run needs to be played again. NULL: of none. */
    "ALTER TABLE request ADD COLUMN conversation INTEGER CHECK (conversation > 0)",

    NULL,
};

/* ---- Version 8: runs that are deleted ---------------------------------------------------------------------------- */

/* What is left of runs that were deleted before there were triggers. */
#define DELETE_ORPHANS(table) "DELETE FROM " table " WHERE run_id NOT IN (SELECT id FROM run)"

static const char *const version_8[] = {
    /* The greatest number that a run has had: none is given twice, or what somebody wrote down means another run. */
    "CREATE TABLE run_number (last INTEGER NOT NULL) STRICT",

    "INSERT INTO run_number SELECT coalesce(max(id), 0) FROM run",

    "CREATE TRIGGER run_numbered AFTER INSERT ON run BEGIN\n"
    "  UPDATE run_number SET last = NEW.id WHERE last < NEW.id;\n"
    "END",

    DELETE_ORPHANS("run_param"),
    DELETE_ORPHANS("request"),
    DELETE_ORPHANS("transfer"),
    DELETE_ORPHANS("step"),
    DELETE_ORPHANS("sample"),
    DELETE_ORPHANS("instance"),
    DELETE_ORPHANS("itl_histogram"),

    /* Whoever deletes a run, by whatever means, deletes all of it. Triggers, because foreign keys are looked at only
     * where a program turns them on, and sqlite3 does not. */
    "CREATE TRIGGER run_deleted BEFORE DELETE ON run BEGIN\n"
    "  DELETE FROM run_param WHERE run_id = OLD.id;\n"
    "  DELETE FROM request WHERE run_id = OLD.id;\n"
    "  DELETE FROM transfer WHERE run_id = OLD.id;\n"
    "  DELETE FROM step WHERE run_id = OLD.id;\n"
    "  DELETE FROM sample WHERE run_id = OLD.id;\n"
    "  DELETE FROM instance WHERE run_id = OLD.id;\n"
    "  DELETE FROM itl_histogram WHERE run_id = OLD.id;\n"
    "  UPDATE finding SET run_id = NULL WHERE run_id = OLD.id;\n"
    "  UPDATE baseline SET run_id = NULL WHERE run_id = OLD.id;\n"
    "  UPDATE run SET replay_of = NULL WHERE replay_of = OLD.id;\n"
    "END",

    "CREATE TRIGGER scenario_deleted BEFORE DELETE ON scenario BEGIN\n"
    "  DELETE FROM run WHERE scenario_id = OLD.id;\n"
    "  DELETE FROM finding WHERE scenario_id = OLD.id;\n"
    "  DELETE FROM probe WHERE scenario_id = OLD.id;\n"
    "  DELETE FROM baseline WHERE scenario_id = OLD.id;\n"
    "END",

    "CREATE TRIGGER build_deleted BEFORE DELETE ON build BEGIN\n"
    "  DELETE FROM run WHERE build_id = OLD.id;\n"
    "  DELETE FROM finding WHERE build_id = OLD.id;\n"
    "  DELETE FROM probe WHERE build_id = OLD.id;\n"
    "END",

    /* As before, with the tokens that were found cached: a report reads a run's requests once. */
    "DROP VIEW request_latency",

    "CREATE VIEW request_latency AS\n"
    "SELECT run_id, request,\n"
    "  first_token_ns - arrived_ns AS ttft_ns,\n"
    "  (finished_ns - first_token_ns) / nullif(output_tokens - 1, 0) AS tpot_ns,\n"
    "  finished_ns - arrived_ns AS e2e_ns,\n"
    "  received_ns - arrived_ns AS route_ns,\n"
    "  dispatched_ns - received_ns AS admission_wait_ns,\n"
    "  prefill_started_ns - dispatched_ns AS prefill_queue_ns,\n"
    "  prefill_finished_ns - prefill_started_ns AS prefill_ns,\n"
    "  ready_ns - prefill_finished_ns AS exposed_transfer_ns,\n"
    "  decode_started_ns - ready_ns AS decode_queue_ns,\n"
    "  first_token_ns - decode_started_ns AS first_decode_ns,\n"
    "  finished_ns - first_token_ns AS decode_ns,\n"
    "  prompt_tokens, output_tokens, cached_tokens\n"
    "FROM request WHERE outcome = 1 AND warmup = 0",

    NULL,
};

/* ---- Version 9: what a run was to keep within -------------------------------------------------------------------- */

static const char *const version_9[] = {
    "CREATE TABLE run_target (\n"
    "  run_id INTEGER NOT NULL REFERENCES run(id),\n"
    "  place INTEGER NOT NULL, -- as the scenario names them\n"
    "  metric TEXT NOT NULL CHECK (metric IN ('ttft', 'tpot', 'e2e', 'itl')),\n"
    "  percentile_permille INTEGER NOT NULL,\n"
    "  limit_ns INTEGER NOT NULL,\n"
    "  PRIMARY KEY (run_id, place)\n"
    ") STRICT, WITHOUT ROWID",

    /* Share of the requests that were to be within all targets at once; 0: not asked. */
    "ALTER TABLE run ADD COLUMN attainment_permille INTEGER NOT NULL DEFAULT 0",

    "CREATE TRIGGER run_target_deleted BEFORE DELETE ON run BEGIN\n"
    "  DELETE FROM run_target WHERE run_id = OLD.id;\n"
    "END",

    NULL,
};

/* ---- Version 10: runs of endpoints ------------------------------------------------------------------------------- */

/* A constraint cannot be altered, and a table that others refer to not be made again within a transaction: its text is
 * changed in place, as SQLite's documentation of ALTER TABLE has it for constraints that are lifted. */
static const char *const version_10[] = {
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (backend IN (''sim'', ''real''))',"
    " 'CHECK (backend IN (''sim'', ''real'', ''live''))') WHERE type = 'table' AND name = 'run'",
    "PRAGMA writable_schema = RESET",

    NULL,
};

const struct results_migration results_migrations[] = {
    {version_1}, {version_2}, {version_3}, {version_4}, {version_5},
    {version_6}, {version_7}, {version_8}, {version_9}, {version_10},
};
const uint32_t results_migration_count = sizeof results_migrations / sizeof *results_migrations;

/* ---- Applying --------------------------------------------------------------------------------------------------- */

static bool fail(sqlite3 *db, const char *file, struct user_error *error, const char *doing)
{
    user_error_set(error, file, 0, NULL, "%s: %s", doing, sqlite3_errmsg(db));
    return false;
}

static bool version_read(sqlite3 *db, const char *file, uint32_t *version, struct user_error *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &statement, NULL) != SQLITE_OK)
        return fail(db, file, error, "reading the schema version");
    bool got = sqlite3_step(statement) == SQLITE_ROW;
    int number = got ? sqlite3_column_int(statement, 0) : 0;
    *version = (uint32_t)number;
    sqlite3_finalize(statement);
    if (!got)
        return fail(db, file, error, "reading the schema version");
    if (number < 0)
        user_error_set(error, file, 0, NULL,
                       "the schema version is %d: somebody has changed it; restore the file or name another", number);
    return number >= 0;
}

static bool apply_within(sqlite3 *db, const char *file, const struct results_migration *migrations, uint32_t count,
                         struct user_error *error)
{
    /* Read again under the lock: another process may have come first. */
    uint32_t version;
    if (!version_read(db, file, &version, error))
        return false;
    for (uint32_t step = version; step < count; step++) {
        for (const char *const *statement = migrations[step].statements; *statement != NULL; statement++)
            if (sqlite3_exec(db, *statement, NULL, NULL, NULL) != SQLITE_OK) {
                user_error_set(error, file, 0, NULL,
                               "cannot be brought from schema version %u to %u: %s; if somebody has changed its schema "
                               "or version, restore the file or name another",
                               version, count, sqlite3_errmsg(db));
                return false;
            }
    }
    char pragma[64];
    sqlite3_snprintf(sizeof pragma, pragma, "PRAGMA user_version = %u", version > count ? version : count);
    return sqlite3_exec(db, pragma, NULL, NULL, NULL) == SQLITE_OK || fail(db, file, error, "changing the schema");
}

bool results_schema_apply(sqlite3 *db, const char *file, const struct results_migration *migrations, uint32_t count,
                          struct user_error *error)
{
    uint32_t version;
    if (!version_read(db, file, &version, error))
        return false;
    if (version == count)
        return true;
    if (version > count) {
        user_error_set(error, file, 0, NULL,
                       "written by a newer tandem: its schema is version %u and this build knows %u; update tandem or "
                       "name another file",
                       version, count);
        return false;
    }
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return fail(db, file, error, "changing the schema");
    if (!apply_within(db, file, migrations, count, error)) {
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        return false;
    }
    return sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK || fail(db, file, error, "changing the schema");
}
