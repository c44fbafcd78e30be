/* See collective.h.
 *
 * The memory holds a table of rank sets, found by (first, count) and claimed by whoever uses one first. Each set has a
 * barrier and two buffers of floats_max floats a member, used in turn: a member that writes the first buffer again has
 * passed the barrier of the second, so every member has finished reading the first. Sets do not share buffers, because
 * that argument holds within one set alone.
 */
#define _GNU_SOURCE
#include "real/device/collective.h"

#include "base/arith.h"
#include "base/check.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* About one microsecond: a peer that runs on another processor is often there within it; any other needs this one. */
#define SPINS 100

/* How long a rank that waits takes to see that its instance is being abandoned. */
#define WAIT_NS (5 * NS_PER_MS)

struct rank_set {
    _Alignas(64) _Atomic uint64_t key; /* first << 32 | count; 0: free */
    _Atomic uint64_t buffer;           /* 1 + index of the first float of its buffers; 0: being claimed */
    _Alignas(64) _Atomic uint32_t arrived;
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t generation; /* the futex */
};

struct board {
    _Alignas(64) _Atomic uint32_t count; /* of posts: the futex */
};

struct shared {
    _Alignas(64) _Atomic uint64_t floats_taken;
    struct rank_set sets[];
    /* behind them: a board a rank, the sets' floats, the boards' words */
};

struct collective {
    struct shared *shared;
    struct board *boards;
    float *floats;
    uint32_t *words; /* floats_max a board */
    size_t floats_max;
    size_t floats_total;
    uint32_t rank;
    uint32_t ranks;
    uint32_t set_count;
    const _Atomic bool *abandon;
    uint8_t *turn; /* which buffer is next, by set */
};

/* A partition has at most `ranks` sets. */
static uint32_t sets_of(uint32_t ranks)
{
    return COLLECTIVE_PARTITIONS_MAX * ranks;
}

static size_t floats_of(uint32_t ranks, size_t floats_max)
{
    return (size_t)2 * COLLECTIVE_PARTITIONS_MAX * ranks * floats_max;
}

size_t collective_bytes(uint32_t ranks, size_t floats_max)
{
    return sizeof(struct shared) + sets_of(ranks) * sizeof(struct rank_set) + ranks * sizeof(struct board) +
           floats_of(ranks, floats_max) * sizeof(float) + ranks * floats_max * sizeof(uint32_t);
}

struct collective *collective_join(void *memory, uint32_t rank, uint32_t ranks, size_t floats_max,
                                   const _Atomic bool *abandon)
{
    CHECK(rank < ranks && floats_max > 0 && (uintptr_t)memory % 64 == 0);
    struct collective *collective = calloc(1, sizeof *collective);
    if (collective == NULL)
        return NULL;
    *collective = (struct collective){
        .shared = memory,
        .floats_max = floats_max,
        .floats_total = floats_of(ranks, floats_max),
        .rank = rank,
        .ranks = ranks,
        .set_count = sets_of(ranks),
        .abandon = abandon,
        .turn = calloc(sets_of(ranks), 1),
    };
    collective->boards = (struct board *)(void *)&collective->shared->sets[collective->set_count];
    collective->floats = (float *)(void *)&collective->boards[ranks];
    collective->words = (uint32_t *)(void *)(collective->floats + collective->floats_total);
    if (collective->turn == NULL) {
        free(collective);
        return NULL;
    }
    return collective;
}

void collective_leave(struct collective *collective)
{
    if (collective == NULL)
        return;
    free(collective->turn);
    free(collective);
}

static bool abandoned(const struct collective *collective)
{
    return atomic_load_explicit(collective->abandon, memory_order_relaxed);
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Waits for the word to differ from `value`; returns after a while in any case. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    struct timespec limit = {.tv_nsec = WAIT_NS};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* The set (first, count), claimed when new. NULL when abandoned meanwhile. */
static struct rank_set *find_set(struct collective *collective, uint32_t first, uint32_t count)
{
    uint64_t key = (uint64_t)first << 32 | count;
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % collective->set_count;
    for (uint32_t probes = 0; probes < collective->set_count; probes++, at = (at + 1) % collective->set_count) {
        struct rank_set *set = &collective->shared->sets[at];
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&set->key, &found, key)) {
            uint64_t taken = (uint64_t)2 * count * collective->floats_max;
            uint64_t start = atomic_fetch_add(&collective->shared->floats_taken, taken);
            CHECK(start + taken <= collective->floats_total);
            atomic_store(&set->buffer, start + 1);
            return set;
        }
        if (found != key)
            continue;
        while (atomic_load(&set->buffer) == 0) {
            if (abandoned(collective))
                return NULL;
            sched_yield();
        }
        return set;
    }
    check_failed("no more sets of ranks than COLLECTIVE_PARTITIONS_MAX partitions have", __FILE__, __LINE__);
}

/* The last to arrive opens the barrier for all. */
static bool set_barrier(struct collective *collective, struct rank_set *set, uint32_t count)
{
    uint32_t generation = atomic_load_explicit(&set->generation, memory_order_relaxed);
    if (atomic_fetch_add(&set->arrived, 1) + 1 == count) {
        atomic_store_explicit(&set->arrived, 0, memory_order_relaxed);
        atomic_store(&set->generation, generation + 1);
        if (atomic_load(&set->sleepers) > 0)
            futex_wake_all(&set->generation);
        return !abandoned(collective);
    }
    for (uint32_t i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&set->generation, memory_order_acquire) != generation)
            return !abandoned(collective);
        pause_briefly();
    }
    atomic_fetch_add(&set->sleepers, 1);
    bool open;
    while (!(open = atomic_load(&set->generation) != generation) && !abandoned(collective))
        futex_wait(&set->generation, generation);
    atomic_fetch_sub(&set->sleepers, 1);
    return open && !abandoned(collective);
}

/* A call's set of ranks, and this rank's place in it. */
struct call {
    struct rank_set *set;
    float *buffers; /* of this turn: floats_max a member */
    uint32_t member;
    uint32_t count;
};

static bool call_begin(struct collective *collective, uint32_t first, uint32_t count, struct call *call)
{
    CHECK(count > 0 && first <= collective->rank && collective->rank - first < count);
    CHECK(first + count <= collective->ranks);
    call->set = find_set(collective, first, count);
    call->member = collective->rank - first;
    call->count = count;
    return call->set != NULL;
}

/* Takes the buffer whose turn it is. */
static void call_turn(struct collective *collective, struct call *call)
{
    uint8_t *turn = &collective->turn[call->set - collective->shared->sets];
    size_t start = atomic_load_explicit(&call->set->buffer, memory_order_relaxed) - 1;
    call->buffers = collective->floats + start + *turn * call->count * collective->floats_max;
    *turn ^= 1;
}

/* values[i] = sum of column i over members [first, first + count), by bisection. */
static void sum_members(const struct call *call, size_t stride, uint32_t first, uint32_t count, float *values, size_t n)
{
    if (count == 1) {
        memcpy(values, call->buffers + first * stride, n * sizeof *values);
        return;
    }
    if (count == 2) {
        const float *a = call->buffers + first * stride;
        const float *b = a + stride;
        for (size_t i = 0; i < n; i++)
            values[i] = a[i] + b[i];
        return;
    }
    float second[256];
    for (size_t done = 0; done < n; done += 256) {
        size_t piece = min_u64(256, n - done);
        struct call part = *call;
        part.buffers += done;
        sum_members(&part, stride, first, count / 2, values + done, piece);
        sum_members(&part, stride, first + count / 2, count - count / 2, second, piece);
        for (size_t i = 0; i < piece; i++)
            values[done + i] += second[i];
    }
}

bool collective_all_reduce(struct collective *collective, uint32_t first, uint32_t count, float *values, size_t n)
{
    struct call call;
    if (count == 1 || n == 0)
        return true;
    if (!call_begin(collective, first, count, &call))
        return false;
    size_t stride = collective->floats_max;
    for (size_t done = 0; done < n; done += stride) {
        size_t piece = min_u64(stride, n - done);
        call_turn(collective, &call);
        memcpy(call.buffers + call.member * stride, values + done, piece * sizeof *values);
        if (!set_barrier(collective, call.set, count))
            return false;
        sum_members(&call, stride, 0, count, values + done, piece);
    }
    return true;
}

/* Member i contributes counts[i] floats, or n where counts is NULL. */
static bool gather(struct collective *collective, uint32_t first, uint32_t count, const float *values,
                   const size_t *counts, size_t n, float *all)
{
    size_t longest = n;
    for (uint32_t i = 0; counts != NULL && i < count; i++)
        longest = max_u64(longest, counts[i]);
    struct call call;
    if (longest == 0)
        return true;
    if (count == 1) {
        memcpy(all, values, longest * sizeof *all);
        return true;
    }
    if (!call_begin(collective, first, count, &call))
        return false;
    size_t stride = collective->floats_max;
    for (size_t done = 0; done < longest; done += stride) {
        call_turn(collective, &call);
        size_t mine = counts != NULL ? counts[call.member] : n;
        if (mine > done)
            memcpy(call.buffers + call.member * stride, values + done, min_u64(stride, mine - done) * sizeof *values);
        if (!set_barrier(collective, call.set, count))
            return false;
        size_t start = 0;
        for (uint32_t i = 0; i < count; i++) {
            size_t theirs = counts != NULL ? counts[i] : n;
            if (theirs > done)
                memcpy(all + start + done, call.buffers + i * stride, min_u64(stride, theirs - done) * sizeof *all);
            start += theirs;
        }
    }
    return true;
}

bool collective_all_gather(struct collective *collective, uint32_t first, uint32_t count, const float *values, size_t n,
                           float *all)
{
    return gather(collective, first, count, values, NULL, n, all);
}

bool collective_all_gather_counts(struct collective *collective, uint32_t first, uint32_t count, const float *values,
                                  const size_t *counts, float *all)
{
    return gather(collective, first, count, values, counts, 0, all);
}

void collective_post(struct collective *collective, uint32_t board, const uint32_t *words, size_t n)
{
    CHECK(board < collective->ranks && n <= collective->floats_max);
    memcpy(collective->words + board * collective->floats_max, words, n * sizeof *words);
    atomic_fetch_add_explicit(&collective->boards[board].count, 1, memory_order_release);
    futex_wake_all(&collective->boards[board].count);
}

bool collective_read(struct collective *collective, uint32_t board, uint32_t count, bool wait, uint32_t *words,
                     size_t n)
{
    _Atomic uint32_t *posted = &collective->boards[board].count;
    CHECK(board < collective->ranks && n <= collective->floats_max);
    uint32_t now;
    while ((now = atomic_load_explicit(posted, memory_order_acquire)) != count) {
        CHECK(now == count - 1);
        if (!wait || abandoned(collective))
            return false;
        futex_wait(posted, now);
    }
    memcpy(words, collective->words + board * collective->floats_max, n * sizeof *words);
    return true;
}

bool collective_barrier(struct collective *collective, uint32_t first, uint32_t count)
{
    struct call call;
    if (count == 1)
        return true;
    return call_begin(collective, first, count, &call) && set_barrier(collective, call.set, count);
}
