/* The ring between threads and processes: order, fullness, indices that wrap, one producer and one consumer at once;
 * and the doorbell of its sleeper. */
#define _DEFAULT_SOURCE

#include "real/memory/ring.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RECORDS 200000

struct record {
    uint64_t number;
    uint64_t square;
    unsigned char filler[24]; /* longer than a word: a torn record would show */
};

static struct record record_of(uint64_t number)
{
    struct record record = {.number = number, .square = number * number};
    memset(record.filler, (int)(number & 0xFF), sizeof record.filler);
    return record;
}

static struct ring *ring_new(uint32_t capacity)
{
    size_t bytes = (ring_bytes(capacity, sizeof(struct record)) + 63) / 64 * 64;
    struct ring *ring = aligned_alloc(64, bytes);
    assert_non_null(ring);
    memset(ring, 0xA5, bytes);
    ring_make(ring, capacity, sizeof(struct record));
    return ring;
}

static void test_full_and_empty(void **state)
{
    (void)state;
    for (uint32_t capacity = 1; capacity <= 8; capacity *= 2) {
        struct ring *ring = ring_new(capacity);
        struct record got;
        assert_false(ring_pop(ring, &got));
        for (uint64_t i = 0; i < capacity; i++) {
            struct record record = record_of(i);
            assert_int_equal(ring_length(ring), i);
            assert_true(ring_push(ring, &record));
        }
        struct record extra = record_of(99);
        assert_false(ring_push(ring, &extra));
        assert_int_equal(ring_length(ring), capacity);
        for (uint64_t i = 0; i < capacity; i++) {
            struct record record = record_of(i);
            assert_true(ring_pop(ring, &got));
            assert_memory_equal(&got, &record, sizeof got);
        }
        assert_false(ring_pop(ring, &got));
        free(ring);
    }
}

/* The free-running indices pass 2^32 in the middle. */
static void test_wrap(void **state)
{
    (void)state;
    struct ring *ring = ring_new(4);
    struct record got;
    atomic_store(&ring->head, UINT32_MAX - 5);
    atomic_store(&ring->tail, UINT32_MAX - 5);
    for (uint64_t i = 0; i < 20; i++) {
        struct record one = record_of(2 * i);
        struct record two = record_of(2 * i + 1);
        assert_true(ring_push(ring, &one));
        assert_true(ring_push(ring, &two));
        assert_int_equal(ring_length(ring), 2);
        assert_true(ring_pop(ring, &got));
        assert_memory_equal(&got, &one, sizeof got);
        assert_true(ring_pop(ring, &got));
        assert_memory_equal(&got, &two, sizeof got);
    }
    free(ring);
}

/* Every record through a ring of one is two changes of thread, which a busy machine makes slowly. */
static uint64_t records_through(const struct ring *ring)
{
    return ring->capacity == 1 ? RECORDS / 20 : RECORDS;
}

static void *produce(void *argument)
{
    struct ring *ring = argument;
    for (uint64_t i = 0; i < records_through(ring); i++) {
        struct record record = record_of(i);
        while (!ring_push(ring, &record))
            sched_yield();
    }
    return NULL;
}

/* Number of records that came wrong. */
static uint32_t consume(struct ring *ring)
{
    uint32_t wrong = 0;
    for (uint64_t i = 0; i < records_through(ring); i++) {
        struct record got;
        while (!ring_pop(ring, &got))
            sched_yield();
        struct record record = record_of(i);
        wrong += memcmp(&got, &record, sizeof got) != 0;
    }
    return wrong;
}

static void test_threads(void **state)
{
    (void)state;
    for (uint32_t capacity = 1; capacity <= 256; capacity *= 16) {
        struct ring *ring = ring_new(capacity);
        pthread_t producer;
        assert_int_equal(pthread_create(&producer, NULL, produce, ring), 0);
        uint32_t wrong = consume(ring);
        pthread_join(producer, NULL);
        assert_int_equal(wrong, 0);
        assert_int_equal(ring_length(ring), 0);
        free(ring);
    }
}

static void test_processes(void **state)
{
    (void)state;
    int status;
    size_t bytes = ring_bytes(64, sizeof(struct record));
    struct ring *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ring != MAP_FAILED);
    ring_make(ring, 64, sizeof(struct record));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        produce(ring);
        _exit(0);
    }
    assert_int_equal(consume(ring), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    munmap(ring, bytes);
}

/* Two that wake one another in turns: a ring that misses its sleeper holds the game up for as long as a sleep lasts. */
#define RALLIES 20000u
#define SLEEP_NS INT64_C(1000000000)

struct rally {
    struct doorbell bells[2];
    _Atomic uint32_t score; /* even: the first one's turn */
    _Atomic uint32_t slept_out;
};

static void play(struct rally *rally, uint32_t me)
{
    for (uint32_t turn = me; turn < 2 * RALLIES; turn += 2) {
        for (;;) {
            uint32_t seen = doorbell_seen(&rally->bells[me]);
            if (atomic_load(&rally->score) == turn)
                break;
            int64_t start_ns = clock_now_ns();
            doorbell_wait(&rally->bells[me], seen, SLEEP_NS);
            if (clock_now_ns() - start_ns >= SLEEP_NS && doorbell_seen(&rally->bells[me]) != seen)
                atomic_fetch_add(&rally->slept_out, 1);
        }
        atomic_store(&rally->score, turn + 1);
        doorbell_ring(&rally->bells[1 - me]);
    }
}

static void *play_second(void *rally)
{
    play(rally, 1);
    return NULL;
}

static void test_doorbell(void **state)
{
    (void)state;
    static struct rally rally;
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, play_second, &rally), 0);
    play(&rally, 0);
    pthread_join(other, NULL);
    assert_int_equal(rally.score, 2 * RALLIES);
    assert_int_equal(rally.slept_out, 0);
    doorbell_wait(&rally.bells[0], doorbell_seen(&rally.bells[0]) - 1, INT64_MAX / 2); /* has rung: returns at once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_and_empty), cmocka_unit_test(test_doorbell),  cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
