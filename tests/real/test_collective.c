/* The collectives: fixed order of sums, sets of ranks that overlap, vectors in pieces, threads and processes, and what
 * happens when a rank dies.
 */
#define _GNU_SOURCE
#include "real/device/collective.h"
#include "real/device/kernels/kernel.h"

#include "base/arith.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS_OF_TEST 8
#define FLOATS 37 /* longer vectors go in pieces */
#define LENGTH_MAX 300

struct cluster {
    void *memory;
    size_t bytes;
    uint32_t ranks;
    _Atomic bool abandon;
};

struct citizen {
    struct cluster *cluster;
    uint32_t rank;
    uint32_t failures;
};

/* A value whose sums depend on the order of addition. */
static float value_of(uint32_t rank, uint32_t round, size_t i)
{
    float magnitude = (float)(1u << ((rank * 7 + round * 3 + (uint32_t)i) % 23));
    return (rank + i) % 3 == 0 ? -magnitude / 3.0f : magnitude * 1.1f;
}

static float expected_sum(uint32_t first, uint32_t count, uint32_t round, size_t i)
{
    if (count == 1)
        return value_of(first, round, i);
    return expected_sum(first, count / 2, round, i) + expected_sum(first + count / 2, count - count / 2, round, i);
}

static uint32_t check_reduce(struct collective *c, const struct citizen *me, uint32_t first, uint32_t count,
                             uint32_t round, size_t n)
{
    float values[LENGTH_MAX];
    uint32_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        values[i] = value_of(me->rank, round, i);
    if (!collective_all_reduce(c, first, count, values, n))
        return 1;
    for (size_t i = 0; i < n; i++) {
        float expected = expected_sum(first, count, round, i);
        wrong += kernel_float_bits(expected) != kernel_float_bits(values[i]);
    }
    return wrong;
}

/* Rank i of the set contributes i * 5 % 4 times a third of n floats: sometimes none, sometimes several pieces. */
static uint32_t check_gather(struct collective *c, const struct citizen *me, uint32_t first, uint32_t count,
                             uint32_t round, size_t n)
{
    float values[LENGTH_MAX];
    float all[RANKS_OF_TEST * LENGTH_MAX];
    size_t counts[RANKS_OF_TEST];
    uint32_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        values[i] = value_of(me->rank, round, i);
    if (!collective_all_gather(c, first, count, values, n, all))
        return 1;
    for (uint32_t r = 0; r < count; r++)
        for (size_t i = 0; i < n; i++)
            wrong += all[r * n + i] != value_of(first + r, round, i);
    for (uint32_t r = 0; r < count; r++)
        counts[r] = (r + round) * 5 % 4 * (n / 3);
    if (!collective_all_gather_counts(c, first, count, values, counts, all))
        return 1;
    size_t at = 0;
    for (uint32_t r = 0; r < count; r++)
        for (size_t i = 0; i < counts[r]; i++)
            wrong += all[at++] != value_of(first + r, round, i);
    return wrong;
}

/* Pairs, halves, all and an uneven set, in an order that leaves some ranks behind others. */
static void live(struct citizen *me)
{
    struct collective *c =
        collective_join(me->cluster->memory, me->rank, me->cluster->ranks, FLOATS, &me->cluster->abandon);
    if (c == NULL) {
        me->failures = 1;
        return;
    }
    for (uint32_t round = 0; round < 40; round++) {
        size_t n = 1 + round * 13 % (LENGTH_MAX - 1);
        uint32_t half = me->rank / 4 * 4;
        me->failures += check_reduce(c, me, me->rank / 2 * 2, 2, round, n);
        if (half == 4)
            me->failures += check_reduce(c, me, 4, 4, round, n);
        me->failures += check_gather(c, me, half, 4, round, n);
        if (me->rank == 0 && round % 8 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 300 * NS_PER_US}, NULL);
        me->failures += check_reduce(c, me, 0, 8, round, n);
        if (me->rank < 3)
            me->failures += check_reduce(c, me, 0, 3, round, n);
        me->failures += check_reduce(c, me, me->rank, 1, round, n);
        me->failures += !collective_barrier(c, 0, 8);
    }
    collective_leave(c);
}

static void *live_thread(void *context)
{
    live(context);
    return NULL;
}

static void cluster_make(struct cluster *cluster, uint32_t ranks)
{
    *cluster = (struct cluster){.ranks = ranks, .bytes = collective_bytes(ranks, FLOATS)};
    int memory = memfd_create("collective", MFD_CLOEXEC);
    assert_true(memory >= 0);
    assert_int_equal(ftruncate(memory, (off_t)cluster->bytes), 0);
    cluster->memory = mmap(NULL, cluster->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert_ptr_not_equal(cluster->memory, MAP_FAILED);
    close(memory);
}

static void cluster_free(struct cluster *cluster)
{
    munmap(cluster->memory, cluster->bytes);
}

static void test_threads(void **state)
{
    (void)state;
    struct cluster cluster;
    struct citizen citizens[RANKS_OF_TEST];
    pthread_t threads[RANKS_OF_TEST];
    cluster_make(&cluster, RANKS_OF_TEST);
    for (uint32_t i = 0; i < RANKS_OF_TEST; i++) {
        citizens[i] = (struct citizen){.cluster = &cluster, .rank = i};
        assert_int_equal(pthread_create(&threads[i], NULL, live_thread, &citizens[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS_OF_TEST; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(citizens[i].failures, 0);
    }
    cluster_free(&cluster);
}

static void test_processes(void **state)
{
    (void)state;
    struct cluster cluster;
    pid_t children[RANKS_OF_TEST];
    cluster_make(&cluster, RANKS_OF_TEST);
    for (uint32_t i = 0; i < RANKS_OF_TEST; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct citizen me = {.cluster = &cluster, .rank = i};
            live(&me);
            _exit(me.failures == 0 ? 0 : 1);
        }
    }
    for (uint32_t i = 0; i < RANKS_OF_TEST; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    cluster_free(&cluster);
}

struct widow {
    struct cluster *cluster;
    struct collective *collective;
    bool returned;
};

static void *wait_for_the_dead(void *context)
{
    struct widow *widow = context;
    float value = 1;
    widow->returned = collective_all_reduce(widow->collective, 0, 2, &value, 1);
    return NULL;
}

/* A process is killed between two calls; the other rank waits, asleep, until its instance is abandoned. */
static void test_dead_rank(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_make(&cluster, 2);
    pid_t child = fork();
    assert_true(child >= 0);
    struct widow widow = {.cluster = &cluster, .returned = true};
    widow.collective = collective_join(cluster.memory, child == 0, 2, FLOATS, &cluster.abandon);
    assert_non_null(widow.collective);
    if (child == 0) {
        (void)collective_barrier(widow.collective, 0, 2);
        (void)kill(getpid(), SIGKILL);
    }
    assert_true(collective_barrier(widow.collective, 0, 2));
    assert_int_equal(waitpid(child, NULL, 0), child);

    pthread_t thread;
    struct timespec before, after;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_the_dead, &widow), 0);
    nanosleep(&(struct timespec){.tv_nsec = 100 * NS_PER_MS}, NULL);
    clockid_t clock;
    assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &before), 0);
    nanosleep(&(struct timespec){.tv_nsec = 100 * NS_PER_MS}, NULL);
    assert_int_equal(clock_gettime(clock, &after), 0);
    int64_t burnt = (after.tv_sec - before.tv_sec) * NS_PER_S + after.tv_nsec - before.tv_nsec;
    assert_true(burnt < 50 * NS_PER_MS);
    cluster.abandon = true;
    pthread_join(thread, NULL);
    assert_false(widow.returned);
    assert_false(collective_barrier(widow.collective, 0, 2));
    collective_leave(widow.collective);
    cluster_free(&cluster);
}

/* What is posted waits to be read, and is read as often as it is wanted; what is not there is waited for, or not. */
static void test_boards(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_make(&cluster, 2);
    struct collective *first = collective_join(cluster.memory, 0, 2, FLOATS, &cluster.abandon);
    struct collective *last = collective_join(cluster.memory, 1, 2, FLOATS, &cluster.abandon);
    uint32_t words[3] = {0};
    assert_false(collective_read(first, 1, 1, false, words, 3));
    collective_post(last, 0, (const uint32_t[]){1, 2, 3}, 3);
    collective_post(last, 1, (const uint32_t[]){7, 8, 9}, 3);
    assert_true(collective_read(first, 1, 1, true, words, 3));
    assert_memory_equal(words, ((const uint32_t[]){7, 8, 9}), sizeof words);
    assert_true(collective_read(first, 0, 1, true, words, 2));
    assert_int_equal(words[1], 2);
    assert_int_equal(words[2], 9);
    assert_false(collective_read(first, 0, 2, false, words, 3));
    collective_post(last, 0, (const uint32_t[]){4, 5, 6}, 3);
    assert_true(collective_read(first, 0, 2, false, words, 3));
    assert_int_equal(words[2], 6);
    cluster.abandon = true;
    assert_false(collective_read(first, 0, 3, true, words, 3));
    collective_leave(first);
    collective_leave(last);
    cluster_free(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_dead_rank),
        cmocka_unit_test(test_boards),
    };
    return cmocka_run_group_tests_name("collective", tests, NULL, NULL);
}
