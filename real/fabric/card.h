/* The card: what one peer needs to write into this instance, as bytes. Made for one peer alone, so that revoking what
 * it was given disturbs nobody else.
 *
 *     magic u32, version u16, NICs u16, ranks u32, pages u32, tail slots u32, tail bytes u32, geometry hash u64,
 *     provider name (16 bytes, zero-padded)
 *     per NIC: address length u16, address
 *     per rank: base u64, bytes u64
 *     per NIC and rank: key u64
 *
 * All numbers little-endian. A card may come from anyone: it is taken only whole, with nothing left over, and only when
 * it agrees with what the deployment says of the peer.
 */
#ifndef TANDEM_REAL_FABRIC_CARD_H
#define TANDEM_REAL_FABRIC_CARD_H

#include "real/memory/kv_memory.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CARD_VERSION 1
#define CARD_NICS_MAX 16
#define CARD_ADDRESS_MAX 256
#define CARD_PROVIDER_BYTES 16

struct card {
    uint32_t nics;
    uint32_t ranks;
    char provider[CARD_PROVIDER_BYTES];
    uint16_t address_bytes[CARD_NICS_MAX];
    unsigned char address[CARD_NICS_MAX][CARD_ADDRESS_MAX];
    uint64_t *base;  /* per rank: what a remote address is counted from */
    uint64_t *bytes; /* per rank */
    uint64_t *keys;  /* [nic * ranks + rank] */
};

/* Bytes of a card, addresses at their longest. */
size_t card_bytes_max(uint32_t nics, uint32_t ranks);

/* Room for base, bytes and keys; false: out of memory. */
bool card_make(struct card *card, uint32_t nics, uint32_t ranks);
void card_free(struct card *card);

/* Returns the length. `bytes` holds card_bytes_max(). */
size_t card_write(const struct card *card, const struct kv_memory *memory, void *bytes);

/* Reads a peer's card; `memory` and `provider` are what the deployment says of it. False with a sentence; then *card
 * holds nothing. */
bool card_read(struct card *card, const void *bytes, size_t size, const struct kv_memory *memory, const char *provider,
               struct user_error *error);

#endif
