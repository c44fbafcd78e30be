/* SHA-256 (FIPS 180-4), for the identity of scenarios. Bytes may come in pieces of any size.
 *
 *     struct sha256 hash;
 *     sha256_start(&hash);
 *     sha256_add(&hash, text, length);
 *     sha256_hex(&hash, hex);
 */
#ifndef TANDEM_HOST_SHA256_H
#define TANDEM_HOST_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_HEX_SIZE 65 /* 64 digits and NUL */

struct sha256 {
    uint32_t state[8];
    uint64_t length;         /* bytes added so far; at most 2^61 - 1 */
    unsigned char block[64]; /* the last length % 64 of them */
};

void sha256_start(struct sha256 *hash);

/* Adds `size` bytes; `data` may be NULL when size is 0. */
void sha256_add(struct sha256 *hash, const void *data, size_t size);

/* The digest of everything added. `hash` is used up: start it again before the next use. */
void sha256_finish(struct sha256 *hash, unsigned char digest[SHA256_BYTES]);

/* As sha256_finish(), in lower-case hexadecimal. */
void sha256_hex(struct sha256 *hash, char hex[SHA256_HEX_SIZE]);

#endif
