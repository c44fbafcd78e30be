/* Measured serving runs: rows of InferenceX's closed-loop benchmarks and of a private series, and what the simulator
 * says of each.
 *
 * A row's times are means over 10 x concurrency requests, the initial burst of `concurrency` included, lengths uniform
 * in [0.8, 1] of the nominal ones. Rows of the private series have fixed lengths.
 */
#ifndef TANDEM_SIM_VALIDATE_SERVING_H
#define TANDEM_SIM_VALIDATE_SERVING_H

#include "world/kernels/csv_table.h"
#include "world/scenario/scenario.h"
#include "sim/validate/validate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A row that is not left out; others have the number of their rule, from 1 (validation/rules.csv). */
#define SERVING_KEPT 0

struct serving_side {
    uint32_t workers;
    struct parallelism parallelism;
};

struct serving_row {
    const char *engine_name;
    const char *version;
    const char *model; /* as the row names it */
    const char *system;
    const char *precision;
    enum engine_kind engine;
    bool private_series;
    bool disaggregated;
    uint32_t prompt;
    uint32_t output;
    uint32_t concurrency;
    struct serving_side mixed;
    struct serving_side prefill;
    struct serving_side decode;
    int64_t ttft_ns;
    int64_t tpot_ns;

    uint8_t rule;      /* why it is left out, for both quantities */
    uint8_t ttft_rule; /* the same, for the TTFT */
    bool quoted;       /* false: constants may be chosen on it */
    uint32_t base;     /* index of its scenario in the bases; UINT32_MAX: it is left out */
    uint32_t deployment;

    /* The server's settings. */
    enum number_format kv;
    uint32_t budget;
    uint32_t batch_max;
    uint32_t memory_permille;
    uint32_t receive_steps;
    uint32_t gather_steps;
    uint32_t decode_batch_max; /* of a decoder, for each group; 0: as above */
    uint32_t slots;            /* of the decoders' expert load balancer; 0: none */
};

/* Rows of one model and precision on one system and engine version, and of one kind of sharding: what constants are
 * chosen for. Each row left out and predicted from the others of its deployment, of those that are not quoted, told
 * that the kind of sharding belongs to it: the median error of the TTFT fell from 10.7 to 8.7 %, the p90 from 42 to 32
 * %. */
struct serving_deployment {
    uint32_t first;  /* row that names it */
    uint32_t fitted; /* rows that constants may be chosen on */
};

struct serving {
    struct csv_table table; /* what the texts of rows point into */
    struct csv_table rules;
    struct serving_row *rows;
    uint32_t row_count;
    struct scenario **bases;
    uint32_t base_count;
    struct serving_deployment *deployments;
    uint32_t deployment_count;
};

/* serving_rows.c: reads the rows and their scenarios. */
bool serving_load(struct serving *serving, struct user_error *error);
void serving_free(struct serving *serving);

/* What is alike in tables of measured rows (scripts/validation-rows): a format; the scenario of what a row's columns
 * module, machine, engine, weights and experts say (NULL: `error` says why); the number of a rule in a table of letters
 * and texts, from 1, of "" SERVING_KEPT; and how many rows each leaves out, rows[its number], told. */
enum number_format serving_format(const char *name);
struct scenario *serving_base_make(const struct csv_table *table, uint32_t row, const char *name, bool disaggregated,
                                   struct user_error *error);
uint8_t serving_rule(const struct csv_table *rules, const char *letter);
void serving_excluded(struct validation *validation, const struct csv_table *rules, const uint32_t *rows);

/* What is chosen for a deployment. */
struct serving_constants {
    int64_t host_ns;
    int64_t host_sequence_ns;
    uint32_t prefill_permille;
    int64_t ttft_offset_ns; /* added to what the simulator says */
};

/* The engine's own profile. */
struct serving_constants serving_neutral(const struct serving *serving, const struct serving_row *row);

struct serving_prediction {
    bool fits;
    int64_t ttft_ns; /* means */
    int64_t tpot_ns;
};

/* serving_predict.c: simulates the row; thread-safe. */
struct serving_prediction serving_predict(const struct serving *serving, const struct serving_row *row,
                                          const struct serving_constants *constants);

/* Rows of a sweep over constants, on `threads` threads: predictions[i] of the rows that `wanted` says yes to, with
 * constants[deployment of the row], or the engine's own where `constants` is NULL. False: interrupted. */
struct serving_sweep {
    const struct serving *serving;
    const struct serving_constants *constants;
    bool (*wanted)(const struct serving_row *row);
    struct serving_prediction *predictions; /* row_count */
};
bool serving_predict_all(const struct serving_sweep *sweep, uint32_t threads);

/* serving_fit.c: constants for every deployment, chosen on its rows that are not quoted. `chosen` says whether there
 * were enough of them; the others keep the engine's own. False: interrupted. */
#define SERVING_FIT_ROWS_MIN 3
bool serving_fit_host(const struct serving *serving, const struct serving_prediction *neutral, uint32_t threads,
                      struct serving_constants *constants, bool *chosen);
bool serving_fit_ttft(const struct serving *serving, uint32_t threads, struct serving_constants *constants,
                      bool *chosen);

#endif
