/* The bytes of a user's file, plain or compressed with xz, gzip or zstd, which is told from the bytes and not from the
 * name; and bytes that the program itself packs. Nothing else in the product knows libarchive.
 *
 * Only regular files are read: a directory, a FIFO or a device is refused by name and never waited for. Every reading
 * has a bound on the bytes that come out, so that neither an endless file nor a small one that unpacks to an enormous
 * one takes the machine. Errors are described as `file: what`.
 */
#ifndef TANDEM_HOST_INPUT_H
#define TANDEM_HOST_INPUT_H

#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A regular file, open for reading. NULL and described otherwise. */
FILE *input_file(const char *path, struct user_error *error);

struct input;

/* Opens a file of at most `bytes_max` bytes once unpacked. NULL and described when it cannot be. */
struct input *input_open(const char *path, uint64_t bytes_max, struct user_error *error);

/* Likewise of bytes in memory, which outlive the reading; `name` stands for the file in errors. */
struct input *input_open_memory(const void *bytes, size_t size, const char *name, struct user_error *error);

/* Up to `size` bytes into `buffer`. 0 at the end, below 0 when no more can be read, described at `line` (0: none). */
int64_t input_read(struct input *input, void *buffer, size_t size, int line, struct user_error *error);

void input_close(struct input *input); /* NULL is allowed */

/* All bytes of a file, unpacked, with a NUL behind them that `size` does not count. The caller frees. NULL:
 * described. */
char *input_all(const char *path, size_t bytes_max, size_t *size, struct user_error *error);

/* ---- Packed by the program itself ------------------------------------------------------------------------------ */

struct input_part {
    const void *bytes;
    size_t size;
};

/* The parts one behind the other, compressed with zstd at `level` into `room` bytes. False: `room` is too small. */
bool input_pack(const struct input_part *parts, size_t count, unsigned level, void *packed, size_t room, size_t *used);

/* Unpacks what must be exactly `size` bytes. Memory follows what comes out, not `size`. The caller frees; NULL:
 * damaged, truncated or of another length. */
void *input_unpack(const void *packed, size_t packed_size, size_t size);

#endif
