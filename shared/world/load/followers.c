/* See followers.h. */
#include "world/load/followers.h"

#include "base/arith.h"
#include "serve/slot_heap.h"

#include <stdlib.h>
#include <string.h>

struct followers {
    const struct trace_file *trace;
    int64_t recorded_ns;
    int64_t stretched_ns;
    uint32_t next_row; /* the first that may wait for none and is not taken */
    uint32_t *waits;   /* by row: ends still to come */
    int64_t *ready_ns; /* by row: what the ends so far make of its time */
    uint32_t *row_of;  /* by request */
    uint32_t taken;
    void *memory;         /* of the heap */
    struct slot_heap due; /* rows whose waiting is over, by time, then row */
    uint32_t *positions;
};

static void lay_out(struct followers *followers, struct arena *arena)
{
    uint32_t count = followers->trace->count;
    followers->waits = arena_take(arena, count, sizeof *followers->waits);
    followers->ready_ns = arena_take(arena, count, sizeof *followers->ready_ns);
    followers->row_of = arena_take(arena, count, sizeof *followers->row_of);
    followers->positions = arena_take(arena, count, sizeof *followers->positions);
    slot_heap_make(&followers->due, arena, count, followers->positions);
}

static int64_t own_ns(const struct followers *followers, uint32_t row)
{
    int64_t at_ns = followers->trace->arrival_ns[row];
    if (followers->recorded_ns == followers->stretched_ns)
        return at_ns;
    return (int64_t)mul_div_floor_u64((uint64_t)at_ns, (uint64_t)followers->stretched_ns,
                                      (uint64_t)followers->recorded_ns);
}

static void skip_those_that_wait(struct followers *followers)
{
    const struct trace_file *trace = followers->trace;
    while (followers->next_row < trace->count && trace->waits[followers->next_row] > 0)
        followers->next_row++;
}

struct followers *followers_make(const struct trace_file *trace, int64_t recorded_ns, int64_t stretched_ns)
{
    struct followers *followers = calloc(1, sizeof *followers);
    CHECK(followers != NULL);
    *followers = (struct followers){.trace = trace, .recorded_ns = recorded_ns, .stretched_ns = stretched_ns};
    struct arena arena = arena_measure();
    lay_out(followers, &arena);
    size_t size = (arena.used + 63) / 64 * 64;
    followers->memory = aligned_alloc(64, size);
    CHECK(followers->memory != NULL);
    memset(followers->memory, 0, size);
    arena = arena_over(followers->memory, size);
    lay_out(followers, &arena);
    memcpy(followers->waits, trace->waits, trace->count * sizeof *followers->waits);
    skip_those_that_wait(followers);
    return followers;
}

void followers_free(struct followers *followers)
{
    if (followers == NULL)
        return;
    free(followers->memory);
    free(followers);
}

int64_t followers_next_ns(const struct followers *followers)
{
    const struct slot_heap_entry *due = slot_heap_top(&followers->due);
    int64_t due_ns = due == NULL ? TIME_NEVER : (int64_t)due->key;
    bool own = followers->next_row < followers->trace->count;
    return min_i64(due_ns, own ? own_ns(followers, followers->next_row) : TIME_NEVER);
}

uint32_t followers_take(struct followers *followers, uint32_t id)
{
    const struct slot_heap_entry *due = slot_heap_top(&followers->due);
    uint32_t row = followers->next_row;
    CHECK(id == followers->taken && id < followers->trace->count);
    bool own = row < followers->trace->count;
    if (due != NULL && (!own || (int64_t)due->key < own_ns(followers, row) ||
                        ((int64_t)due->key == own_ns(followers, row) && due->slot < row))) {
        row = due->slot;
        slot_heap_remove(&followers->due, row);
    } else {
        CHECK(own);
        followers->next_row++;
        skip_those_that_wait(followers);
    }
    followers->row_of[followers->taken++] = row;
    return row;
}

uint32_t followers_row(const struct followers *followers, uint32_t id)
{
    CHECK(id < followers->taken);
    return followers->row_of[id];
}

void followers_ended(struct followers *followers, uint32_t id, int64_t now_ns)
{
    const struct trace_file *trace = followers->trace;
    uint32_t row = followers_row(followers, id);
    for (uint32_t k = trace->follower_first[row]; k < trace->follower_first[row + 1]; k++) {
        uint32_t after = trace->followers[k];
        int64_t ready_ns = time_add(now_ns, trace->delay_ns[after]);
        followers->ready_ns[after] = max_i64(followers->ready_ns[after], ready_ns);
        CHECK(followers->waits[after] > 0);
        if (--followers->waits[after] > 0)
            continue;
        int64_t due_ns = max_i64(followers->ready_ns[after], own_ns(followers, after));
        slot_heap_push(&followers->due, after, (uint64_t)due_ns, after);
    }
}
