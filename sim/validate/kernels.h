/* Leave-one-out errors of the measured tables: each row is predicted from the others of its table, by the interpolation
 * that the cost model uses.
 */
#ifndef TANDEM_SIM_VALIDATE_KERNELS_H
#define TANDEM_SIM_VALIDATE_KERNELS_H

#include "world/kernels/kernel_table.h"
#include "host/user_error.h"
#include "sim/validate/validate.h"

struct kernel_prediction {
    const struct kernel_table *table;
    uint32_t series;
    uint32_t row; /* of the table */
    int64_t measured_ns;
    int64_t predicted_ns;
};

/* What stands in the row's columns: "gemm_dtype fp8, n 512, k 7168, m 64". */
void kernel_row_text(const struct kernel_prediction *prediction, char *text, size_t size);

/* Predicts rows of one table, at most about `rows_max` of them, chosen by a hash of their place; 0: all. A row that
 * stands alone, with nothing to predict it from, is left out and counted in *alone. */
void kernel_leave_one_out(const struct kernel_table *table, uint32_t rows_max,
                          void (*each)(void *context, const struct kernel_prediction *prediction), void *context,
                          uint32_t *alone);

#define KERNEL_WORST 5

struct kernel_errors {
    const struct kernel_table *table;
    uint32_t tested;
    uint32_t alone;
    uint32_t median_permille; /* of absolute errors */
    uint32_t p90_permille;
    int32_t bias_permille; /* median of signed errors */
    uint32_t worst_count;
    struct kernel_prediction worst[KERNEL_WORST];
    int64_t worst_ppm[KERNEL_WORST];
};

/* The summary of one table. */
void kernel_errors_of(const struct kernel_table *table, uint32_t rows_max, struct kernel_errors *errors);

/* As a source of validations: one a kind of table, over the tables of all GPUs and engines, some thousand rows of
 * each table, chosen by a hash. */
bool validate_kernels(struct validation_set *set, const struct validation_options *options, struct user_error *error);

#endif
