/* SHA-256 against the examples that NIST publishes with FIPS 180-4, and against itself for every way to cut the
 * input. */
#include "host/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_digest(const void *data, size_t size, const char *expected)
{
    struct sha256 hash;
    char hex[SHA256_HEX_SIZE];
    sha256_start(&hash);
    sha256_add(&hash, data, size);
    sha256_hex(&hash, hex);
    assert_string_equal(hex, expected);
}

static void known_answers(void **state)
{
    (void)state;
    assert_digest(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_digest(two_blocks, strlen(two_blocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    const char *four = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
                       "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    assert_digest(four, strlen(four), "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    const unsigned char one_byte = 0xbd;
    assert_digest(&one_byte, 1, "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
}

static void a_million_letters(void **state)
{
    (void)state;
    struct sha256 hash;
    char hex[SHA256_HEX_SIZE];
    char letters[1000];
    memset(letters, 'a', sizeof letters);
    sha256_start(&hash);
    for (int i = 0; i < 1000; i++)
        sha256_add(&hash, letters, sizeof letters);
    sha256_hex(&hash, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Digests of the first n bytes of 0, 1, 2, ... around the edges where padding starts a new block. */
static void padding_at_the_edge_of_a_block(void **state)
{
    (void)state;
    static const struct {
        size_t size;
        const char *digest;
    } cases[] = {
        {55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59"},
        {56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562"},
        {63, "29af2686fd53374a36b0846694cc342177e428d1647515f078784d69cdb9e488"},
        {64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108"},
        {65, "4bfd2c8b6f1eec7a2afeb48b934ee4b2694182027e6d0fc075074f2fabb31781"},
        {119, "da18797ed7c3a777f0847f429724a2d8cd5138e6ed2895c3fa1a6d39d18f7ec6"},
        {120, "f52b23db1fbb6ded89ef42a23ce0c8922c45f25c50b568a93bf1c075420bbb7c"},
        {128, "471fb943aa23c511f6f72f8d1652d9c880cfa392ad80503120547703e56a2be5"},
    };
    unsigned char bytes[160];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_digest(bytes, cases[i].size, cases[i].digest);
}

static void pieces_do_not_matter(void **state)
{
    (void)state;
    unsigned char bytes[200];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 + 11);
    unsigned char whole[SHA256_BYTES];
    struct sha256 hash;
    sha256_start(&hash);
    sha256_add(&hash, bytes, sizeof bytes);
    sha256_finish(&hash, whole);
    for (size_t first = 0; first <= sizeof bytes; first++) {
        for (size_t second = first; second <= sizeof bytes; second += 13) {
            unsigned char pieces[SHA256_BYTES];
            sha256_start(&hash);
            sha256_add(&hash, bytes, first);
            sha256_add(&hash, bytes + first, second - first);
            sha256_add(&hash, bytes + second, sizeof bytes - second);
            sha256_finish(&hash, pieces);
            assert_memory_equal(pieces, whole, SHA256_BYTES);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(a_million_letters),
        cmocka_unit_test(padding_at_the_edge_of_a_block),
        cmocka_unit_test(pieces_do_not_matter),
    };
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
