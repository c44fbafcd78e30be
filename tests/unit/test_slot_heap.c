/* The heap of slots against a search through everything. */
#include "base/rng.h"
#include "serve/slot_heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS 40

static void against_a_search(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char memory[SLOTS * sizeof(struct slot_heap_entry) + 64];
    uint32_t positions[SLOTS] = {0};
    struct arena arena = arena_over(memory, sizeof memory);
    struct slot_heap heap;
    slot_heap_make(&heap, &arena, SLOTS, positions);
    assert_null(slot_heap_top(&heap));
    struct rng rng = rng_stream(3, 0, RNG_ROUTING);
    struct slot_heap_entry in[SLOTS] = {0};
    bool held[SLOTS] = {false};
    uint32_t tie = 0;
    for (uint32_t round = 0; round < 50000; round++) {
        uint32_t slot = (uint32_t)rng_below(&rng, SLOTS);
        if (held[slot]) {
            slot_heap_remove(&heap, slot);
        } else {
            in[slot] = (struct slot_heap_entry){.key = rng_below(&rng, 6), .tie = tie++, .slot = slot};
            slot_heap_push(&heap, slot, in[slot].key, in[slot].tie);
        }
        held[slot] = !held[slot];
        const struct slot_heap_entry *least = NULL;
        uint32_t count = 0;
        for (uint32_t s = 0; s < SLOTS; s++) {
            assert_int_equal(slot_heap_holds(&heap, s), held[s]);
            if (!held[s])
                continue;
            count++;
            if (least == NULL || in[s].key < least->key || (in[s].key == least->key && in[s].tie < least->tie))
                least = &in[s];
        }
        assert_int_equal(heap.count, count);
        if (least == NULL)
            assert_null(slot_heap_top(&heap));
        else
            assert_int_equal(slot_heap_top(&heap)->slot, least->slot);
    }
}

static void equal_keys_leave_in_the_order_of_their_ties(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char memory[SLOTS * sizeof(struct slot_heap_entry) + 64];
    uint32_t positions[SLOTS] = {0};
    struct arena arena = arena_over(memory, sizeof memory);
    struct slot_heap heap;
    slot_heap_make(&heap, &arena, SLOTS, positions);
    for (uint32_t i = 0; i < SLOTS; i++)
        slot_heap_push(&heap, i, 1, (i * 7) % SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(slot_heap_top(&heap)->tie, i);
        slot_heap_remove(&heap, slot_heap_top(&heap)->slot);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_a_search),
        cmocka_unit_test(equal_keys_leave_in_the_order_of_their_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
