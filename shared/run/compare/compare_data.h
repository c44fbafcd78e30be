/* What a comparison of two stored runs reads from their rows: errors request by request, step by step and transfer by
 * transfer, and where their decisions part.
 *
 * Errors are relative to the reference: the run that was real where the other was simulated, else the first. All are in
 * tenths of a percent, rounded half away from zero.
 */
#ifndef TANDEM_RUN_COMPARE_COMPARE_DATA_H
#define TANDEM_RUN_COMPARE_COMPARE_DATA_H

#include "run/results/results.h"

#include <stdbool.h>
#include <stdint.h>

/* Of requests that completed in both runs after the warm-up. */
struct paired_metric {
    const char *name; /* "ttft", "tpot", a span, "transfer" */
    uint64_t pairs;   /* 0: nothing below means anything */
    int64_t p50_ns[2];
    int64_t error_p50_ns;       /* median of the absolute differences */
    bool relative;              /* some pair has a reference that is not 0: */
    int64_t error_p50_permille; /* median and 90th percentile of the absolute errors */
    int64_t error_p90_permille;
    int64_t bias_permille; /* sum of the differences over the sum of the references */
};

#define PAIRED_METRICS (2 + SPAN_COUNT + 1)

/* Steps, or transfers, of one shape in both runs. A number of the shape stands for those up to its next power. */
struct shape_error {
    uint16_t role;      /* enum node_role; 0: of transfers */
    uint64_t tokens;    /* prompt tokens of a step, powers of two; of a transfer its bytes */
    uint64_t sequences; /* decoding, powers of two */
    uint64_t context;   /* cached tokens that they read, powers of four */
    uint64_t count[2];
    int64_t p50_ns[2]; /* a step's, of a repetition the mean one; a transfer's from the post to the last byte */
    bool relative;
    int64_t error_permille;
};

struct shape_errors {
    uint32_t count;
    struct shape_error *items; /* ascending by shape; only those that both runs have */
    uint64_t matched;          /* of the reference's, those whose shape both have */
    uint64_t total;
    int64_t error_p50_permille; /* median over the matched, each with the error of its shape */
};

/* Where requests went, and how they were batched. */
struct decision_difference {
    bool found;
    int64_t at_ns; /* in the first run */
    char text[360];
};

struct decisions {
    uint64_t requests;  /* in both runs */
    uint64_t alike;     /* of them, sent to the same instances, with the same end, in as many attempts */
    bool batches_known; /* both recorded their steps */
    struct decision_difference route;
    struct decision_difference batch;
};

struct comparison_data {
    uint32_t reference; /* 0 or 1 */
    bool paired;        /* both have the same requests: as many, of the same lengths */
    struct paired_metric metrics[PAIRED_METRICS];
    struct shape_errors steps;
    struct shape_errors transfers;
    struct decisions decisions;
};

/* Fills *data; comparison_data_free() in either case. */
bool comparison_data_read(struct results *store, const struct run_report *a, const struct run_report *b,
                          struct comparison_data *data, struct user_error *error);

/* Its part that looks for decisions; nothing where the requests are not the same. */
bool compare_decisions(struct results *store, const struct run_report *a, const struct run_report *b, bool paired,
                       struct decisions *decisions, struct user_error *error);
void comparison_data_free(struct comparison_data *data);

#endif
