/* Measured tables in CSV, in two forms; either may be compressed with xz, gzip or zstd.
 *
 * A benchmark's rows, as `tandem pack` reads them: a measurement a row. The columns that the kind of table names must
 * be there (kernel_kind.h); others are ignored. Numbers are decimal; times are positive.
 *
 * A table, as `tandem pack` writes it and models read it: a series a row.
 *
 *     # table: gemm
 *     # gpu: H200
 *     # engine: vllm
 *     # version: 0.24.0
 *     # source: ai-dynamo/aiconfigurator@095f58a h200_sxm/gemm
 *     # licence: Apache-2.0
 *     gemm_dtype,n,k,1,2,4,8
 *     bfloat16,32,128,6.81,,6.79,6.8
 *
 * The columns are the keys of the kind, in its order, then the points of its axis (here m), ascending; a cell is the
 * time there in microseconds, or empty. Rows are in ascending order of their keys, texts as strcmp() orders them. Other
 * comments are for people. Times are kept as codes (base/log2.h), within 0.07 %; a written time has as many digits as
 * give its code again.
 *
 * Everything else is refused as `file:line: column: what, expected`.
 */
#ifndef TANDEM_WORLD_KERNELS_KERNEL_CSV_H
#define TANDEM_WORLD_KERNELS_KERNEL_CSV_H

#include "world/kernels/csv_table.h"
#include "world/kernels/kernel_table.h"

/* A table's file is KIND.ENGINE-VERSION and one of these, in a folder named after the GPU. The list ends with NULL. */
extern const char *const kernel_csv_suffixes[];

/* The rows of `count` files as one table with that origin. NULL: `error` says why. */
struct kernel_table *kernel_rows_read(const struct csv_table *files, size_t count, const struct kernel_kind *kind,
                                      const struct kernel_origin *origin, struct user_error *error);

/* A table of its file; NULL: `error` says why. */
struct kernel_table *kernel_table_read(const char *path, struct user_error *error);
struct kernel_table *kernel_table_parse(const struct csv_table *file, struct user_error *error);

/* Writes a file, not compressed, through a temporary one beside it. */
bool kernel_table_write(const struct kernel_table *table, const char *path, struct user_error *error);

#endif
