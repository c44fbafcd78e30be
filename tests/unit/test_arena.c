/* The arena: measuring and carving agree, pieces are aligned and apart, and nothing comes after the seal. */
#include "base/arena.h"
#include "support/death.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static _Alignas(64) unsigned char memory[4096];

static const struct {
    size_t count;
    size_t size;
} pieces[] = {{1, 1}, {3, 8}, {1, 64}, {5, 100}, {0, 8}, {7, 0}, {1, 63}, {2, 33}, {1, 17}};

enum { PIECES = sizeof pieces / sizeof *pieces };

static void measuring_gives_the_size_that_carving_needs(void **state)
{
    (void)state;
    struct arena measure = arena_measure();
    for (int i = 0; i < PIECES; i++)
        assert_null(arena_take(&measure, pieces[i].count, pieces[i].size));
    assert_true(measure.used <= sizeof memory);

    memset(memory, 0, measure.used);
    memset(memory + measure.used, 0xee, sizeof memory - measure.used);
    struct arena arena = arena_over(memory, measure.used);
    unsigned char *last_end = memory;
    for (int i = 0; i < PIECES; i++) {
        size_t bytes = pieces[i].count * pieces[i].size;
        unsigned char *piece = arena_take(&arena, pieces[i].count, pieces[i].size);
        assert_non_null(piece);
        assert_int_equal((uintptr_t)piece % (bytes >= 64 ? 64 : 16), 0);
        assert_true(piece >= last_end);
        /* Zero, as the memory was: no earlier piece reaches in here. */
        for (size_t at = 0; at < bytes; at++)
            assert_int_equal(piece[at], 0);
        memset(piece, 0xff, bytes);
        last_end = piece + bytes;
    }
    assert_int_equal(arena.used, measure.used);
    assert_ptr_equal(last_end, memory + measure.used);
    assert_int_equal(memory[measure.used], 0xee);
}

static void take_from_full(void *argument)
{
    struct arena arena = arena_over(memory, 128);
    arena_take(&arena, 1, 128);
    arena_take(&arena, *(size_t *)argument, 1);
}

static void take_after_seal(void *argument)
{
    struct arena arena = arena_over(memory, 128);
    arena_seal(&arena);
    arena_take(&arena, *(size_t *)argument, 1);
}

static void seal_twice(void *argument)
{
    (void)argument;
    struct arena arena = arena_over(memory, 128);
    arena_seal(&arena);
    arena_seal(&arena);
}

static void take_overflow(void *argument)
{
    struct arena arena = arena_measure();
    arena_take(&arena, SIZE_MAX / *(size_t *)argument, 4);
}

static void carve_unaligned(void *argument)
{
    arena_over(memory + *(size_t *)argument, 64);
}

static void misuse_is_a_bug(void **state)
{
    (void)state;
    size_t one = 1, two = 2;
    assert_check_fails(take_from_full, &one, "arena->capacity");
    assert_check_fails(take_after_seal, &one, "!arena->sealed");
    assert_check_fails(seal_twice, &one, "!arena->sealed");
    assert_check_fails(take_overflow, &two, "SIZE_MAX / 2 / size");
    assert_check_fails(carve_unaligned, &one, "(uintptr_t)memory & 63");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measuring_gives_the_size_that_carving_needs),
        cmocka_unit_test(misuse_is_a_bug),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
