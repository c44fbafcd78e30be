/* The all-reduce kernel over peers' memory: ranks as threads over the emulation, its sums against those of the host's
 * collective, bit for bit, over calls of changing length.
 */
#include "cuda/cuda_emulation.h"
#include "real/device/collective.h"
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/kernels/kernel.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAPACITY 1000u
#define CALLS 12u

struct all {
    uint32_t ranks;
    uint8_t *memory[CUDA_PEERS_MAX];
    void *shared;
    _Atomic bool abandon;
};

struct rank {
    struct all *all;
    uint32_t index;
    uint32_t differ;
    pthread_t thread;
};

/* Values of which no sum in another order is the same: exponents differ. */
static float value(uint32_t rank, uint32_t call, uint32_t i)
{
    uint32_t bits = (rank * 7919u + call * 104729u + i) * 2654435761u;
    return (float)(bits >> 8) / (float)(1u << (bits % 20)) - 1000.0f;
}

static struct cuda_all_reduce arguments(const struct all *all, uint32_t rank, uint32_t *sequence, float *values,
                                        uint32_t n)
{
    struct cuda_all_reduce a = {.sequence = sequence,
                                .values = values,
                                .abandon = (const uint8_t *)(uintptr_t)&all->abandon,
                                .capacity = CAPACITY,
                                .n = n,
                                .rank = rank,
                                .ranks = all->ranks};
    memcpy(a.memory, all->memory, sizeof a.memory);
    return a;
}

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct all *all = rank->all;
    struct collective *collective = collective_join(all->shared, rank->index, all->ranks, CAPACITY, &all->abandon);
    uint32_t sequence[CUDA_PEER_BLOCKS] = {0};
    float values[CAPACITY];
    float expected[CAPACITY];
    for (uint32_t call = 0; call < CALLS; call++) {
        uint32_t n = 1 + call * 379 % CAPACITY;
        for (uint32_t i = 0; i < n; i++)
            values[i] = expected[i] = value(rank->index, call, i);
        struct cuda_all_reduce a = arguments(all, rank->index, sequence, values, n);
        cuda_all_reduce(&a, NULL);
        rank->differ += !collective_all_reduce(collective, 0, all->ranks, expected, n);
        for (uint32_t i = 0; i < n; i++)
            rank->differ += kernel_float_bits(values[i]) != kernel_float_bits(expected[i]);
    }
    collective_leave(collective);
    return NULL;
}

static void make(struct all *all, uint32_t ranks)
{
    size_t bytes = CUDA_PEER_FLAGS_BYTES + 2 * CAPACITY * sizeof(float);
    size_t shared = (collective_bytes(ranks, CAPACITY) + 63) / 64 * 64;
    *all = (struct all){.ranks = ranks, .shared = aligned_alloc(64, shared)};
    assert_non_null(all->shared);
    memset(all->shared, 0, shared);
    for (uint32_t r = 0; r < ranks; r++) {
        all->memory[r] = calloc(1, bytes);
        assert_non_null(all->memory[r]);
    }
}

static void unmake(struct all *all)
{
    for (uint32_t r = 0; r < all->ranks; r++)
        free(all->memory[r]);
    free(all->shared);
}

static void sums_are_the_collectives(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= CUDA_PEERS_MAX; ranks *= 2) {
        struct all all;
        struct rank rank[CUDA_PEERS_MAX];
        make(&all, ranks);
        for (uint32_t r = 0; r < ranks; r++) {
            rank[r] = (struct rank){.all = &all, .index = r};
            assert_int_equal(pthread_create(&rank[r].thread, NULL, rank_main, &rank[r]), 0);
        }
        for (uint32_t r = 0; r < ranks; r++) {
            pthread_join(rank[r].thread, NULL);
            assert_int_equal(rank[r].differ, 0);
        }
        unmake(&all);
    }
}

/* A rank whose peer is gone is let go by the flag of the instance. */
static void abandoned_waits_for_nobody(void **state)
{
    (void)state;
    struct all all;
    uint32_t sequence[CUDA_PEER_BLOCKS] = {0};
    float values[8] = {0};
    make(&all, 2);
    atomic_store(&all.abandon, true);
    struct cuda_all_reduce a = arguments(&all, 1, sequence, values, 8);
    cuda_all_reduce(&a, NULL);
    assert_int_equal(sequence[0], 1);
    unmake(&all);
}

/* Calls are counted modulo 2^32. */
static void counting_wraps(void **state)
{
    (void)state;
    struct all all;
    uint32_t sequence[CUDA_PEER_BLOCKS];
    float values[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    make(&all, 1);
    memset(all.memory[0], 0xff, CUDA_PEER_FLAGS_BYTES);
    memset(sequence, 0xff, sizeof sequence);
    struct cuda_all_reduce a = arguments(&all, 0, sequence, values, 4);
    cuda_all_reduce(&a, NULL);
    assert_int_equal(sequence[0], 0);
    assert_true(values[3] > 3.5f && values[3] < 4.5f);
    unmake(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_collectives),
        cmocka_unit_test(abandoned_waits_for_nobody),
        cmocka_unit_test(counting_wraps),
    };
    return cmocka_run_group_tests_name("cuda_peers", tests, NULL, NULL);
}
