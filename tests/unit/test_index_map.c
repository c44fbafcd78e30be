/* The map from keys to indices against a naive one, full and empty, with keys that collide. */
#include "base/index_map.h"
#include "base/rng.h"
#include "support/death.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAPACITY 1000 /* cells double five times on the way there */
#define KEYS 1500

static void *memory;

static void make(struct index_map *map, uint32_t capacity)
{
    struct arena measure = arena_measure();
    index_map_make(map, &measure, capacity);
    size_t size = (measure.used + 63) & ~(size_t)63;
    memory = aligned_alloc(64, size);
    assert_non_null(memory);
    memset(memory, 0, size);
    struct arena arena = arena_over(memory, size);
    index_map_make(map, &arena, capacity);
}

static void against_a_naive_map(void **state)
{
    (void)state;
    struct index_map map;
    uint32_t naive[KEYS];
    uint64_t keys[KEYS];
    for (uint64_t seed = 0; seed < 20; seed++) {
        make(&map, CAPACITY);
        struct rng rng = rng_stream(seed, 0, RNG_ROUTING);
        /* Neighbouring counters, counters in the upper half, and anything. */
        for (uint32_t k = 0; k < KEYS; k++) {
            keys[k] = seed % 3 == 0 ? k : seed % 3 == 1 ? (uint64_t)k << 32 | 7 : rng_next(&rng);
            naive[k] = INDEX_NONE;
        }
        uint32_t count = 0;
        for (uint32_t round = 0; round < 5000; round++) {
            uint32_t k = (uint32_t)rng_below(&rng, KEYS);
            assert_int_equal(index_map_get(&map, keys[k]), naive[k]);
            if (naive[k] != INDEX_NONE) {
                index_map_remove(&map, keys[k]);
                naive[k] = INDEX_NONE;
                count--;
            } else if (count < CAPACITY) {
                naive[k] = (uint32_t)rng_below(&rng, INDEX_NONE);
                index_map_put(&map, keys[k], naive[k]);
                count++;
            }
            assert_int_equal(map.count, count);
        }
        for (uint32_t k = 0; k < KEYS; k++) {
            assert_int_equal(index_map_get(&map, keys[k]), naive[k]);
            if (naive[k] != INDEX_NONE)
                index_map_remove(&map, keys[k]);
        }
        assert_int_equal(map.count, 0);
        free(memory);
    }
}

static void no_room_at_all(void **state)
{
    (void)state;
    struct index_map map;
    make(&map, 0);
    assert_int_equal(index_map_get(&map, 1), INDEX_NONE);
    free(memory);
}

static void put_twice(void *map)
{
    index_map_put(map, 5, 1);
    index_map_put(map, 5, 2);
}

static void overfill(void *map)
{
    for (uint32_t i = 0; i <= CAPACITY; i++)
        index_map_put(map, i, i);
}

static void remove_absent(void *map)
{
    index_map_remove(map, 5);
}

static void misuse_is_a_bug(void **state)
{
    (void)state;
    struct index_map map;
    make(&map, CAPACITY);
    assert_check_fails(put_twice, &map, "");
    assert_check_fails(overfill, &map, "");
    assert_check_fails(remove_absent, &map, "");
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_a_naive_map),
        cmocka_unit_test(no_room_at_all),
        cmocka_unit_test(misuse_is_a_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
