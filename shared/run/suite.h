/* A suite: the scenarios that `tandem check` runs, with their seeds, what is watched of them, and how much worse is
 * worse.
 *
 *     return suite {
 *       question = "Does the router still decide as it did?",
 *       seeds = 5,
 *       tolerance = percent(1),
 *       cases = {
 *         case { scenario = "w1-llama-70b.lua", set = { ["load.requests"] = 300 }, watch = { "ttft.p95", "goodput" } },
 *       },
 *     }
 *
 * The file runs in the scenarios' sandbox, and errors are told as theirs are. A scenario's path is relative to the
 * suite, or to the shipped scenarios.
 */
#ifndef TANDEM_RUN_SUITE_H
#define TANDEM_RUN_SUITE_H

#include "world/scenario/scenario_lua.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stdint.h>

#define SUITE_CASES_MAX 64 /* what a person still reads as one table */
#define SUITE_SEEDS_MAX 64 /* the interval hardly narrows beyond */
#define SUITE_SETS_MAX 16  /* of a case */
#define SUITE_WATCH_MAX 16 /* of a case */

/* What is watched: a latency or a span at a percentile or its mean, or a count of the whole run. */
enum watch_kind {
    WATCH_TTFT = 0,
    WATCH_TPOT = 1,
    WATCH_E2E = 2,
    WATCH_ITL = 3,
    WATCH_SPAN = 4,      /* `span` says which */
    WATCH_GOODPUT = 5,   /* requests within every target (completed ones without targets) a second */
    WATCH_COMPLETED = 6, /* requests that completed */
};

#define WATCH_MEAN 0 /* in place of a percentile */

struct watch {
    char name[32]; /* "ttft.p95", "spans.prefill.mean", "goodput" */
    enum watch_kind kind;
    uint32_t span;                /* enum boundary that it ends at, less one */
    uint32_t percentile_permille; /* 1 to 1000, or WATCH_MEAN */
    bool more_is_better;
};

struct suite_case {
    char name[64];       /* the scenario's file without folder and ending, if not said otherwise */
    char scenario[1024]; /* as found */
    uint64_t seeds;
    uint64_t first_seed;
    int64_t tolerance_permille; /* a change of the mean by no more is neither better nor worse */
    uint32_t set_count;
    struct scenario_override sets[SUITE_SETS_MAX]; /* point into `texts` */
    char texts[SUITE_SETS_MAX][2][96];
    uint32_t watch_count;
    struct watch watch[SUITE_WATCH_MAX];
};

struct suite {
    char path[1024];
    char question[256];
    uint32_t case_count;
    struct suite_case cases[SUITE_CASES_MAX];
};

/* NULL with *error set when anything is wrong. */
struct suite *suite_load(const char *path, struct user_error *error);
void suite_free(struct suite *suite);

/* Reads "ttft.p95" and its like; false with a sentence that names the nearest. */
bool watch_read(const char *text, struct watch *watch, struct user_error *error);

#endif
