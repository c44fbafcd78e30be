/* What predictions are worth: measured results beside what the program says of the same case, one table per source.
 *
 * Errors are (predicted - measured) / measured, in millionths. Rows that a source leaves out are left out by rules that
 * never look at a prediction, and each rule is told with its count. Where constants are chosen on measured rows, those
 * rows are counted as `fitted` and none of them is among the cases; which rows they are is decided by a hash of the
 * row's configuration.
 */
#ifndef TANDEM_SIM_VALIDATE_VALIDATE_H
#define TANDEM_SIM_VALIDATE_VALIDATE_H

#include "host/user_error.h"

#include <stdbool.h>
#include <stdint.h>

#define VALIDATION_WORST 5
#define VALIDATION_EXCLUSIONS_MAX 16
#define VALIDATION_LABEL_SIZE 128

/* What was served: `family` is a class of models. */
struct validation_subject {
    char engine[16]; /* "" where a case has no subject */
    char system[16];
    char family[16];
};

struct validation_case {
    char label[VALIDATION_LABEL_SIZE];
    struct validation_subject subject;
    int64_t measured; /* in any unit, the same for both; above 0 */
    int64_t predicted;
    int64_t error_ppm;
};

struct validation_exclusion {
    char rule[4]; /* "D" */
    char why[124];
    uint32_t rows;
};

struct validation {
    const char *key;    /* "tpot-colocated": stable, for machines */
    const char *source; /* for people */
    const char *unit;   /* of a millionth of what was measured; NULL: ms */
    uint32_t rows;      /* cases that are quoted */
    uint32_t fitted;    /* rows that constants were chosen on */
    uint32_t constants; /* that were chosen */
    int64_t median_ppm; /* of absolute errors, as are the p90 and the worst; the nearest rank */
    int64_t p90_ppm;
    int64_t bias_ppm;          /* median of signed errors */
    int64_t target_median_ppm; /* 0: none */
    int64_t target_p90_ppm;
    uint32_t worst_count;
    struct validation_case worst[VALIDATION_WORST];
    uint32_t exclusion_count;
    struct validation_exclusion exclusions[VALIDATION_EXCLUSIONS_MAX];
    struct validation_case *cases;
    uint32_t capacity;
};

/* In the order of their making. */
struct validation_set {
    struct validation *items;
    uint32_t count;
    uint32_t capacity;
};

/* The pointer dies with the next call. */
struct validation *validation_add(struct validation_set *set, const char *key, const char *source,
                                  int64_t target_median_ppm, int64_t target_p90_ppm);
void validation_case(struct validation *validation, int64_t measured, int64_t predicted, const char *format, ...)
    USER_ERROR_FORMAT(4, 5);

/* Of the last case. */
void validation_subject(struct validation *validation, const char *engine, const char *system, const char *family);
void validation_excluded(struct validation *validation, const char *rule, const char *why, uint32_t rows);

/* Computes the figures from the cases. */
void validation_finish(struct validation *validation);
void validation_set_free(struct validation_set *set);

struct validation_options {
    uint32_t threads;
    bool quick;     /* what takes seconds: nothing is fitted */
    bool chosen_on; /* quote the rows that constants may be chosen on in place of the others: for work on the model,
                      which must not look at the rows that its errors are told of */
};

/* A source of measurements. */
struct validation_source {
    const char *name; /* as the command line takes it */
    const char *what;
    bool quick; /* part of --quick */
    /* Adds one or more validations. False: `error` says why. */
    bool (*run)(struct validation_set *set, const struct validation_options *options, struct user_error *error);
};

/* Ends with one without a name. */
extern const struct validation_source validation_sources[];

bool validate_serving(struct validation_set *set, const struct validation_options *options, struct user_error *error);
bool validate_benchmarks(struct validation_set *set, const struct validation_options *options,
                         struct user_error *error);
bool validate_timestamps(struct validation_set *set, const struct validation_options *options,
                         struct user_error *error);
bool validate_layerwise(struct validation_set *set, const struct validation_options *options, struct user_error *error);
bool validate_transfers(struct validation_set *set, const struct validation_options *options, struct user_error *error);
bool validate_nics(struct validation_set *set, const struct validation_options *options, struct user_error *error);
bool validate_operators(struct validation_set *set, const struct validation_options *options, struct user_error *error);
bool validate_steps(struct validation_set *set, const struct validation_options *options, struct user_error *error);

#endif
