/* The file that carries one measured table: a readable head, and a compressed body.
 *
 *     tandem kernel pack 1
 *     table gemm
 *     gpu H200
 *     engine vllm
 *     version 0.24.0
 *     source ai-dynamo/aiconfigurator@095f58a h200_sxm/gemm_perf
 *     licence Apache-2.0
 *     source_sha256 <of the CSV, decompressed>
 *     columns gemm_dtype n k | m
 *     series 1452
 *     rows 107225
 *     merged 0
 *     dropped 0
 *     body_bytes 230112
 *     body_sha256 <of the body, decompressed>
 *     <an empty line, then the body as a zstd or xz stream to the end of the file>
 *
 * The lines stand in this order, each once. In the body, column by column, integers are LEB128 (seven bits a byte, the
 * low ones first):
 *
 *     of each text column: the number of its texts; each text's length and bytes, in ascending order
 *     the number of ladders; of each its length, its first knot, and the differences between its knots
 *     of each key column: of every series the difference to the series before (0 before the first), zigzag-coded
 *     of every series its ladder
 *     the times: of every row the difference between its code and that of the row before in its series, or, at the
 *         first, that of the series before, zigzag-coded in 16 bits: the low bytes of all rows, then the high ones
 *
 * Zigzag: 0, -1, 1, -2, 2, ... are 0, 1, 2, 3, 4, ... A code is 512 * log2 of nanoseconds (base/log2.h), hence within
 * 0.07 % of the measurement.
 *
 * A reader trusts nothing: every count, index, order and length is checked, as is the digest.
 */
#ifndef TANDEM_WORLD_KERNELS_KERNEL_PACK_H
#define TANDEM_WORLD_KERNELS_KERNEL_PACK_H

#include "world/kernels/kernel_table.h"
#include "host/user_error.h"

/* A file's name: KIND.ENGINE-VERSION.kernels, in a folder named after the GPU. */
#define KERNEL_PACK_SUFFIX ".kernels"

/* Bytes of one file and of one body. The largest shipped body has 0.5 MB. */
#define KERNEL_PACK_BYTES_MAX ((size_t)32 << 20)

/* NULL with `error` described when the file cannot be read or is not a good pack. */
struct kernel_table *kernel_pack_read(const char *path, struct user_error *error);

/* Likewise from memory; `name` stands for the file in errors. */
struct kernel_table *kernel_pack_read_memory(const void *bytes, size_t size, const char *name,
                                             struct user_error *error);

/* The body alone, decompressed, as that of a pack whose head announces so many series and rows: for tests. NULL where
 * it is not one. */
struct kernel_table *kernel_pack_read_body(const struct kernel_kind *kind, const void *bytes, size_t size,
                                           uint32_t series_count, uint32_t row_count);

/* Writes a file, through a temporary one beside it; fills content_sha256. */
bool kernel_pack_write(struct kernel_table *table, const char *path, struct user_error *error);

#endif
