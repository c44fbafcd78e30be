/* Fabric cards from anyone: whatever the bytes, the reader gives a card that keeps its promises, or a sentence, and
 * nothing else.
 *
 * Of a byte string the first byte says how: even, the rest is the card as it is; odd, the rest is put over a good card,
 * a byte of place and a byte of value at a time, so that what lies behind the head is reached too.
 */
#include "real/fabric/card.h"

#include "base/check.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static struct kv_memory memory_of(void)
{
    struct kv_memory memory = {
        .geometry = {.layers = 2,
                     .kv_heads = 2,
                     .planes = 2,
                     .page_tokens = 4,
                     .head_bytes = 8,
                     .layout = LAYOUT_HND,
                     .parallelism = {2, 1, 1, 1},
                     .stage_layer_first = {0, 2}},
        .pages = 3,
        .tail_slots = 2,
        .tail_bytes = 100,
    };
    CHECK(kv_geometry_check(&memory.geometry) == GEOMETRY_OK);
    return memory;
}

static size_t good_card(const struct kv_memory *memory, unsigned char *bytes)
{
    struct card card;
    CHECK(card_make(&card, 2, 2));
    memcpy(card.provider, "tcp", 4);
    for (uint32_t n = 0; n < 2; n++) {
        card.address_bytes[n] = 16;
        memset(card.address[n], 'a' + (int)n, 16);
    }
    for (uint32_t r = 0; r < 2; r++) {
        card.base[r] = 0x7F0000000000 + r;
        card.bytes[r] = kv_memory_bytes(memory, r);
    }
    for (uint32_t i = 0; i < 4; i++)
        card.keys[i] = 1000 + i;
    size_t size = card_write(&card, memory, bytes);
    CHECK(size <= card_bytes_max(2, 2));
    card_free(&card);
    return size;
}

static void check_card(const struct card *card, const struct kv_memory *memory)
{
    CHECK(card->nics >= 1 && card->nics <= CARD_NICS_MAX && card->ranks == kv_ranks(&memory->geometry.parallelism));
    for (uint32_t n = 0; n < card->nics; n++)
        CHECK(card->address_bytes[n] >= 1 && card->address_bytes[n] <= CARD_ADDRESS_MAX);
    for (uint32_t r = 0; r < card->ranks; r++)
        CHECK(card->bytes[r] >= kv_memory_bytes(memory, r) && card->base[r] + card->bytes[r] >= card->base[r]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static unsigned char good[2048];
    struct kv_memory memory = memory_of();
    struct card card;
    struct user_error error = {.set = false};
    const unsigned char *card_bytes = bytes + 1;
    if (size == 0)
        return 0;
    size_t card_size = size - 1;
    if (bytes[0] % 2 == 1) {
        card_bytes = good;
        card_size = good_card(&memory, good);
        CHECK(card_size <= sizeof good);
        for (size_t i = 1; i + 1 < size; i += 2)
            good[bytes[i] % card_size] ^= bytes[i + 1];
    }
    if (card_read(&card, card_bytes, card_size, &memory, "tcp", &error)) {
        check_card(&card, &memory);
        /* What was understood says the same again, byte for byte. */
        static unsigned char again[CARD_NICS_MAX * (CARD_ADDRESS_MAX + 64) + 4096];
        CHECK(card_write(&card, &memory, again) == card_size && memcmp(again, card_bytes, card_size) == 0);
        card_free(&card);
        CHECK(!error.set);
    } else {
        CHECK(strncmp(error.text, "a peer's fabric card: ", 22) == 0 && card.base == NULL);
    }
    return 0;
}
