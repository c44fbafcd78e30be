/* See results_fixture.h. */
#define _POSIX_C_SOURCE 200809L

#include "support/results_fixture.h"

#include "base/arith.h"
#include "base/rng.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char fixture_scenario_identity[65] = "5ce4a210000000000000000000000000000000000000000000000000000000aa";
const char fixture_build_identity[65] = "b1d0000000000000000000000000000000000000000000000000000000000bb0";

const struct instance_summary fixture_instances[2] = {
    {
        .name = "prefill-0",
        .node = 1,
        .role = ROLE_PREFILL,
        .ranks = 8,
        .requests = 40,
        .busy_ns = 3 * NS_PER_S,
        .compute_bound_ns = 2 * NS_PER_S,
        .bandwidth_bound_ns = NS_PER_S / 2,
        .overhead_bound_ns = NS_PER_S / 2,
        .steps = 40,
        .prefill_tokens = 40000,
        .pages_total = 1000,
        .pages_held_peak = 250,
        .nic_bytes = 1 << 30,
    },
    {
        .name = "decode-0",
        .node = 2,
        .role = ROLE_DECODE,
        .ranks = 16,
        .requests = 40,
        .busy_ns = 9 * NS_PER_S,
        .compute_bound_ns = NS_PER_S,
        .bandwidth_bound_ns = 7 * NS_PER_S,
        .communication_bound_ns = NS_PER_S,
        .steps = 900,
        .decode_tokens = 8000,
        .pages_total = 2000,
        .pages_held_peak = 1999,
        .preemptions = 3,
    },
};

char *fixture_path(void)
{
    const char *base = getenv("TMPDIR");
    char folder[256];
    snprintf(folder, sizeof folder, "%s/tandem-results-XXXXXX", base == NULL ? "/tmp" : base);
    assert_non_null(mkdtemp(folder));
    size_t size = strlen(folder) + sizeof "/t.db";
    char *path = malloc(size);
    assert_non_null(path);
    snprintf(path, size, "%s/t.db", folder);
    return path;
}

void fixture_remove(char *path)
{
    char *slash = strrchr(path, '/');
    *slash = '\0';
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
    free(path);
}

struct results *fixture_open(const char *path, enum results_mode mode)
{
    struct user_error error = {.set = false};
    struct results *store = results_open(path, mode, &error);
    if (store == NULL)
        fail_msg("%s", error.text);
    return store;
}

void fixture_close(struct results *store)
{
    struct user_error error = {.set = false};
    if (!results_close(store, &error))
        fail_msg("%s", error.text);
}

struct request_row fixture_request(uint64_t seed, uint32_t request)
{
    struct rng rng = rng_stream(seed, request, RNG_GENERATE);
    struct request_row row = {.request = request, .decoder = 2, .prefiller = 1, .attempts = 1};
    row.prompt_tokens = (uint32_t)rng_between(&rng, 1, 4096);
    row.output_tokens = (uint32_t)rng_between(&rng, 1, 6);
    row.warmup = request < 5;
    row.outcome = (uint8_t)(request % 11 == 7 ? rng_between(&rng, OUTCOME_REJECTED, OUTCOME_ABORTED)
                                              : (uint64_t)OUTCOME_COMPLETED);
    int64_t now_ns = (int64_t)request * 50 * NS_PER_MS;
    for (int k = 0; k < BOUNDARY_COUNT; k++) {
        row.boundary_ns[k] = now_ns;
        /* Few distinct values, so that equal ones meet in every percentile. */
        now_ns += (int64_t)rng_below(&rng, 8) * (k == BOUNDARY_READY ? 1 : 3333333);
    }
    /* Some ends come early: a boundary is skipped and the last ones are never reached. */
    if (row.outcome != OUTCOME_COMPLETED) {
        row.reason = 2;
        row.boundary_ns[BOUNDARY_DISPATCHED] = INT64_MIN;
        for (int k = BOUNDARY_READY; k < BOUNDARY_FINISHED; k++)
            row.boundary_ns[k] = -1;
    }
    return row;
}

struct run_summary fixture_summary(uint64_t seed, uint32_t requests)
{
    struct run_summary summary = {.seed = seed, .trace_hash = seed * UINT64_C(0x9e3779b97f4a7c15), .final_draw = ~seed};
    summary.event_count = (uint64_t)requests * 9;
    summary.start_ns = 5 * 50 * NS_PER_MS;
    for (uint32_t k = 0; k < requests; k++) {
        struct request_row row = fixture_request(seed, k);
        summary.arrived++;
        summary.completed += row.outcome == OUTCOME_COMPLETED;
        summary.rejected += row.outcome == OUTCOME_REJECTED;
        summary.failed += row.outcome == OUTCOME_FAILED;
        summary.aborted += row.outcome == OUTCOME_ABORTED;
        bool counts = row.outcome == OUTCOME_COMPLETED && !row.warmup;
        summary.met_all_targets += counts && k % 2 == 0;
        summary.counted += !row.warmup && row.outcome != OUTCOME_ABORTED;
        summary.prompt_tokens += counts ? row.prompt_tokens : 0;
        summary.output_tokens += counts ? row.output_tokens : 0;
        summary.end_ns = max_i64(summary.end_ns, row.boundary_ns[BOUNDARY_FINISHED]);
    }
    /* Longer than the fixture's instances are busy. */
    summary.end_ns = max_i64(summary.end_ns, 12 * NS_PER_S);
    return summary;
}

uint64_t *fixture_itl(void)
{
    uint64_t *tokens = calloc(ITL_BUCKETS, sizeof *tokens);
    assert_non_null(tokens);
    for (int64_t gap_ns = NS_PER_MS; gap_ns <= 30 * NS_PER_MS; gap_ns += NS_PER_MS)
        tokens[itl_bucket(gap_ns)] += 10;
    return tokens;
}

const struct targets fixture_targets = {
    .count = 1, .item = {{.metric = TARGET_TTFT, .percentile_permille = 950, .limit_ns = NS_PER_S}}};

struct results_begin fixture_begin(struct results *store, uint64_t seed)
{
    struct user_error error = {.set = false};
    struct results_begin begin = {
        .key = {.seed = seed, .backend = RESULTS_SIM},
        .kind = RESULTS_RUN,
        .targets = &fixture_targets,
        .compiler = "a compiler",
    };
    begin.key.scenario = results_scenario_add(store, fixture_scenario_identity, "small", "scenarios/small.lua",
                                              "load.rate 16\n", &error);
    begin.key.build = results_build_add(store, fixture_build_identity, "0.1.0", &error);
    if (error.set)
        fail_msg("%s", error.text);
    return begin;
}

int64_t fixture_run(struct results *store, uint64_t seed, uint32_t requests, struct user_error *error)
{
    struct results_begin begin = fixture_begin(store, seed);
    return fixture_run_begun(store, &begin, requests, error);
}

int64_t fixture_run_begun(struct results *store, const struct results_begin *begin, uint32_t requests,
                          struct user_error *error)
{
    uint64_t seed = begin->key.seed;
    int64_t run = results_run_begin(store, begin, error);
    if (run == 0)
        return 0;
    for (uint32_t k = 0; k < requests; k++) {
        struct request_row row = fixture_request(seed, k);
        if (!results_add_request(store, &row, error)) {
            results_run_abort(store);
            return 0;
        }
    }
    struct run_summary summary = fixture_summary(seed, requests);
    uint64_t *itl = fixture_itl();
    bool done = results_run_commit(store, &summary, 0, fixture_instances, 2, itl, error);
    free(itl);
    return done ? run : 0;
}
