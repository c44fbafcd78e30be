/* Measured tables from CSV: what `tandem pack` reads.
 *
 * A file is UTF-8 text whose first line names the columns; it may be compressed with xz, gzip or zstd. The columns that
 * the kind of table names must be there (kernel_kind.h); others are ignored. Numbers are decimal; times are positive.
 * Fields may be quoted, on one line. Everything else is refused as `file:line: column: what, expected`.
 */
#ifndef TANDEM_WORLD_KERNELS_KERNEL_CSV_H
#define TANDEM_WORLD_KERNELS_KERNEL_CSV_H

#include "world/kernels/kernel_table.h"
#include "host/user_error.h"

/* The rows of all files as one table. `origin` is taken over; its digest is filled in. NULL: `error` says why. */
struct kernel_table *kernel_csv_read(const char *const *paths, size_t path_count, const struct kernel_kind *kind,
                                     const struct kernel_origin *origin, struct user_error *error);

#endif
