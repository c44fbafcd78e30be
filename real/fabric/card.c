/* See card.h. */
#include "real/fabric/card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARD_MAGIC UINT32_C(0x31434654) /* "TFC1" */
#define HEAD_BYTES (4 + 2 + 2 + 4 + 4 + 4 + 4 + 8 + CARD_PROVIDER_BYTES)

size_t card_bytes_max(uint32_t nics, uint32_t ranks)
{
    return HEAD_BYTES + (size_t)nics * (2 + CARD_ADDRESS_MAX) + (size_t)ranks * 16 + (size_t)nics * ranks * 8;
}

bool card_make(struct card *card, uint32_t nics, uint32_t ranks)
{
    memset(card, 0, sizeof *card);
    card->nics = nics;
    card->ranks = ranks;
    card->base = calloc((size_t)ranks * (2 + nics), sizeof *card->base);
    if (card->base == NULL)
        return false;
    card->bytes = card->base + ranks;
    card->keys = card->bytes + ranks;
    return true;
}

void card_free(struct card *card)
{
    free(card->base);
    memset(card, 0, sizeof *card);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *at++ = (unsigned char)(value >> (8 * i));
    return at;
}

size_t card_write(const struct card *card, const struct kv_memory *memory, void *bytes)
{
    unsigned char *at = bytes;
    at = put(at, CARD_MAGIC, 4);
    at = put(at, CARD_VERSION, 2);
    at = put(at, card->nics, 2);
    at = put(at, card->ranks, 4);
    at = put(at, memory->pages, 4);
    at = put(at, memory->tail_slots, 4);
    at = put(at, memory->tail_bytes, 4);
    at = put(at, kv_geometry_hash(&memory->geometry), 8);
    memcpy(at, card->provider, CARD_PROVIDER_BYTES);
    at += CARD_PROVIDER_BYTES;
    for (uint32_t n = 0; n < card->nics; n++) {
        at = put(at, card->address_bytes[n], 2);
        memcpy(at, card->address[n], card->address_bytes[n]);
        at += card->address_bytes[n];
    }
    for (uint32_t r = 0; r < card->ranks; r++) {
        at = put(at, card->base[r], 8);
        at = put(at, card->bytes[r], 8);
    }
    for (uint32_t i = 0; i < card->nics * card->ranks; i++)
        at = put(at, card->keys[i], 8);
    return (size_t)(at - (unsigned char *)bytes);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

struct reader {
    const unsigned char *at;
    size_t left;
    bool bad; /* ran out of bytes */
};

static uint64_t take(struct reader *reader, unsigned bytes)
{
    if (reader->left < bytes) {
        reader->bad = true;
        reader->left = 0;
        return 0;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)reader->at[i] << (8 * i);
    reader->at += bytes;
    reader->left -= bytes;
    return value;
}

static void take_bytes(struct reader *reader, void *bytes, size_t count)
{
    if (reader->left < count) {
        reader->bad = true;
        reader->left = 0;
        return;
    }
    memcpy(bytes, reader->at, count);
    reader->at += count;
    reader->left -= count;
}

/* What is wrong with the head, or NULL. */
static const char *read_head(struct reader *reader, const struct kv_memory *memory, const char *provider,
                             uint32_t *nics, uint32_t *ranks, char *provider_read)
{
    if (take(reader, 4) != CARD_MAGIC || reader->bad)
        return "it is not a card";
    if (take(reader, 2) != CARD_VERSION)
        return "it is of another version";
    *nics = (uint32_t)take(reader, 2);
    *ranks = (uint32_t)take(reader, 4);
    uint64_t pages = take(reader, 4);
    uint64_t tail_slots = take(reader, 4);
    uint64_t tail_bytes = take(reader, 4);
    uint64_t hash = take(reader, 8);
    take_bytes(reader, provider_read, CARD_PROVIDER_BYTES);
    if (reader->bad)
        return "it is cut short";
    if (hash != kv_geometry_hash(&memory->geometry))
        return "its KV geometry is not the deployment's";
    if (*nics == 0 || *nics > CARD_NICS_MAX)
        return "its number of NICs is out of range";
    if (*ranks != kv_ranks(&memory->geometry.parallelism))
        return "its number of ranks is not the deployment's";
    if (pages != memory->pages || tail_slots != memory->tail_slots || tail_bytes != memory->tail_bytes)
        return "its pages or tail slots are not the deployment's";
    if (provider_read[CARD_PROVIDER_BYTES - 1] != '\0' || strcmp(provider_read, provider) != 0)
        return "it is of another provider";
    return NULL;
}

static const char *read_body(struct reader *reader, const struct kv_memory *memory, struct card *card)
{
    for (uint32_t n = 0; n < card->nics; n++) {
        card->address_bytes[n] = (uint16_t)take(reader, 2);
        if (card->address_bytes[n] == 0 || card->address_bytes[n] > CARD_ADDRESS_MAX)
            return "the length of an address is out of range";
        take_bytes(reader, card->address[n], card->address_bytes[n]);
    }
    for (uint32_t r = 0; r < card->ranks; r++) {
        card->base[r] = take(reader, 8);
        card->bytes[r] = take(reader, 8);
        if (reader->bad)
            return "it is cut short";
        if (card->bytes[r] == 0 && card->bytes[0] == 0)
            continue; /* it only sends */
        if (card->bytes[r] < kv_memory_bytes(memory, r) || card->bytes[0] == 0 ||
            card->base[r] > UINT64_MAX - card->bytes[r])
            return "a rank's region is smaller than its pages, or wraps";
    }
    for (uint32_t i = 0; i < card->nics * card->ranks; i++)
        card->keys[i] = take(reader, 8);
    if (reader->bad)
        return "it is cut short";
    if (reader->left != 0)
        return "bytes are left over";
    return NULL;
}

bool card_read(struct card *card, const void *bytes, size_t size, const struct kv_memory *memory, const char *provider,
               struct user_error *error)
{
    struct reader reader = {.at = bytes, .left = size};
    char provider_read[CARD_PROVIDER_BYTES] = "";
    uint32_t nics = 0;
    uint32_t ranks = 0;
    memset(card, 0, sizeof *card);
    const char *wrong = read_head(&reader, memory, provider, &nics, &ranks, provider_read);
    if (wrong == NULL) {
        if (!card_make(card, nics, ranks)) {
            wrong = "out of memory";
        } else {
            memcpy(card->provider, provider_read, CARD_PROVIDER_BYTES);
            wrong = read_body(&reader, memory, card);
        }
    }
    if (wrong != NULL) {
        user_error_set(error, NULL, 0, NULL, "a peer's fabric card: %s", wrong);
        card_free(card);
        return false;
    }
    return true;
}
