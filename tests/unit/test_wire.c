/* Messages survive the wire whole, and nothing else gets through: cut at every length, garbled at every byte. */
#include "base/rng.h"
#include "messenger/wire.h"
#include "support/death.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t blocks[] = {UINT64_MAX, 0, UINT64_C(0x0123456789abcdef)};
static const uint32_t pages[] = {0, UINT32_MAX, 0x89abcdef, 7, 8};

/* Every field has bytes that differ, so that two fields in one place would show. */
static struct message full(uint16_t kind)
{
    return (struct message){
        .kind = kind,
        .flags = 0x0102,
        .reason = 0x0304,
        .group = 0x0506,
        .request = 0xfffffffe,
        .epoch = 0x10111213,
        .attempt = 0x14151617,
        .peer = 0x18191a1b,
        .prompt_tokens = 0x1c1d1e1f,
        .output_tokens = 0x20212223,
        .produced = 0x24252627,
        .immediate = 0xffffffff,
        .tail_slot = 0x2c2d2e2f,
        .first_token = 0x30313233,
        .block_tokens = 0x34353637,
        .block_count = 3,
        .page_count = 5,
        .number = 0x28292a2b,
        .token_seed = UINT64_C(0x4041424344454647),
        .geometry_hash = UINT64_C(0x48494a4b4c4d4e4f),
        .deadline_ns = INT64_MAX,
        .incarnation = 0x50515253,
        .peer_incarnation = 0x54555657,
        .load = {.pages_available = UINT64_C(0x58595a5b5c5d5e5f), .pages_wanted = UINT64_C(0x6061626364656667)},
    };
}

static void assert_same(const struct message *a, const struct message *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->group, b->group);
    assert_int_equal(a->request, b->request);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->attempt, b->attempt);
    assert_int_equal(a->peer, b->peer);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->output_tokens, b->output_tokens);
    assert_int_equal(a->produced, b->produced);
    assert_int_equal(a->immediate, b->immediate);
    assert_int_equal(a->tail_slot, b->tail_slot);
    assert_int_equal(a->first_token, b->first_token);
    assert_int_equal(a->block_tokens, b->block_tokens);
    assert_int_equal(a->block_count, b->block_count);
    assert_int_equal(a->page_count, b->page_count);
    assert_int_equal(a->number, b->number);
    assert_true(a->token_seed == b->token_seed && a->geometry_hash == b->geometry_hash);
    assert_true(a->deadline_ns == b->deadline_ns);
    assert_int_equal(a->incarnation, b->incarnation);
    assert_int_equal(a->peer_incarnation, b->peer_incarnation);
    assert_true(a->load.pages_available == b->load.pages_available);
    assert_true(a->load.pages_wanted == b->load.pages_wanted);
}

static void round_trip(void **state)
{
    (void)state;
    for (uint16_t kind = MESSAGE_REQUEST; kind <= MESSAGE_HELLO; kind++) {
        unsigned char bytes[256];
        struct message in = full(kind), out;
        size_t length = wire_encode(&in, blocks, pages, bytes, sizeof bytes);
        assert_int_equal(length, WIRE_HEADER_BYTES + 3 * 8 + 5 * 4);
        assert_true(wire_decode(bytes, length, &out));
        assert_same(&in, &out);
        uint64_t got_blocks[3];
        uint32_t got_pages[5];
        wire_blocks(&out, got_blocks);
        wire_pages(&out, got_pages);
        assert_memory_equal(got_blocks, blocks, sizeof blocks);
        assert_memory_equal(got_pages, pages, sizeof pages);
    }
}

static void every_other_length_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[256];
    struct message in = full(MESSAGE_PREFILL), out;
    size_t length = wire_encode(&in, blocks, pages, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= length + 8; cut++) {
        if (cut == length)
            continue;
        /* On the heap, so that the address sanitizer sees a read behind the end. */
        unsigned char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memset(copy, 0, cut + 1);
        memcpy(copy, bytes, cut < length ? cut : length);
        assert_false(wire_decode(copy, cut, &out));
        free(copy);
    }
}

static void garbage_is_refused_or_consistent(void **state)
{
    (void)state;
    struct rng rng = rng_stream(9, 0, RNG_ROUTING);
    unsigned char bytes[256];
    struct message in = full(MESSAGE_PREFILL), out;
    for (uint32_t round = 0; round < 20000; round++) {
        size_t length = wire_encode(&in, blocks, pages, bytes, sizeof bytes);
        for (uint32_t i = 0; i <= rng_below(&rng, 4); i++)
            bytes[rng_below(&rng, length)] = (unsigned char)rng_below(&rng, 256);
        if (!wire_decode(bytes, length, &out))
            continue;
        assert_in_range(out.kind, MESSAGE_REQUEST, MESSAGE_HELLO);
        assert_int_equal(out.block_count * 8 + out.page_count * 4, 3 * 8 + 5 * 4);
    }
    in.kind = 0;
    size_t length = wire_encode(&in, blocks, pages, bytes, sizeof bytes);
    assert_false(wire_decode(bytes, length, &out));
    in.kind = MESSAGE_HELLO + 1;
    length = wire_encode(&in, blocks, pages, bytes, sizeof bytes);
    assert_false(wire_decode(bytes, length, &out));
}

static void the_largest_message_fits(void **state)
{
    (void)state;
    unsigned char *bytes = malloc(MESSAGE_BYTES_MAX);
    uint64_t *many_blocks = calloc(REQUEST_BLOCKS_MAX, sizeof *many_blocks);
    uint32_t *many_pages = calloc(REQUEST_PAGES_MAX, sizeof *many_pages);
    struct message in = full(MESSAGE_PREFILL), out;
    in.block_count = REQUEST_BLOCKS_MAX;
    in.page_count = REQUEST_PAGES_MAX;
    many_pages[REQUEST_PAGES_MAX - 1] = 99;
    size_t length = wire_encode(&in, many_blocks, many_pages, bytes, MESSAGE_BYTES_MAX);
    assert_true(wire_decode(bytes, length, &out));
    wire_pages(&out, many_pages);
    assert_int_equal(many_pages[REQUEST_PAGES_MAX - 1], 99);
    free(bytes);
    free(many_blocks);
    free(many_pages);
}

static void encode_into_too_little(void *argument)
{
    (void)argument;
    unsigned char bytes[WIRE_HEADER_BYTES + 8];
    struct message in = full(MESSAGE_PREFILL);
    wire_encode(&in, blocks, pages, bytes, sizeof bytes);
}

static void a_message_that_does_not_fit_is_a_bug(void **state)
{
    (void)state;
    assert_check_fails(encode_into_too_little, NULL, "capacity");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(garbage_is_refused_or_consistent),
        cmocka_unit_test(the_largest_message_fits),
        cmocka_unit_test(a_message_that_does_not_fit_is_a_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
