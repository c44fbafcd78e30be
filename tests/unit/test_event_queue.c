/* The event queue against a plain list searched for its least element: random pushes, pops, cancels and moves, with few
 * distinct times so that ties are the rule, and with shuffled ties. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arith.h"
#include "base/rng.h"
#include "sim/time/event_queue.h"

#include <stdlib.h>
#include <string.h>

#define LIVE_MAX 3000u

struct reference {
    int64_t time_ns;
    uint64_t payload;
    uint64_t sequence;
    uint32_t handle;
};

struct pair {
    struct event_queue *queue;
    struct reference live[LIVE_MAX];
    uint32_t count;
    uint64_t sequence;
    struct rng rng;
};

static uint32_t least(const struct pair *pair)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < pair->count; i++) {
        const struct reference *a = &pair->live[i];
        const struct reference *b = &pair->live[best];
        if (a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->sequence < b->sequence))
            best = i;
    }
    return best;
}

static void check_push(struct pair *pair, int64_t time_ns)
{
    uint64_t payload = rng_next(&pair->rng);
    uint32_t handle = event_queue_push(pair->queue, time_ns, payload);
    for (uint32_t i = 0; i < pair->count; i++)
        assert_int_not_equal(pair->live[i].handle, handle);
    pair->live[pair->count++] = (struct reference){time_ns, payload, pair->sequence++, handle};
}

/* `ordered`: the order among equal times is that of the pushes; otherwise only the time must be the least. */
static void check_pop(struct pair *pair, bool ordered)
{
    int64_t peeked_ns = 0;
    int64_t time_ns = 0;
    uint64_t payload = 0;
    bool some = event_queue_peek(pair->queue, &peeked_ns);
    assert_int_equal(some, pair->count > 0);
    assert_int_equal(event_queue_pop(pair->queue, &time_ns, &payload), some);
    if (!some)
        return;
    assert_int_equal(peeked_ns, time_ns);
    uint32_t expected = least(pair);
    assert_int_equal(time_ns, pair->live[expected].time_ns);
    uint32_t found = expected;
    if (!ordered)
        for (found = 0; found < pair->count && pair->live[found].payload != payload; found++)
            continue;
    assert_true(found < pair->count);
    assert_int_equal(payload, pair->live[found].payload);
    assert_int_equal(time_ns, pair->live[found].time_ns);
    pair->live[found] = pair->live[--pair->count];
}

static void random_operations(uint64_t seed, uint64_t shuffle_seed, uint32_t live_max, uint64_t times, int operations)
{
    static struct pair pair;
    memset(&pair, 0, sizeof pair);
    pair.queue = event_queue_make(shuffle_seed);
    pair.rng = rng_stream(seed, 0, RNG_TIES);
    for (int i = 0; i < operations; i++) {
        uint64_t dice = rng_below(&pair.rng, 10);
        int64_t time_ns = (int64_t)rng_below(&pair.rng, times) - (int64_t)(times / 4);
        if (dice < 4 && pair.count < live_max) {
            check_push(&pair, time_ns);
        } else if (dice < 7 || pair.count == 0) {
            check_pop(&pair, shuffle_seed == 0);
        } else {
            uint32_t i_live = (uint32_t)rng_below(&pair.rng, pair.count);
            struct reference *reference = &pair.live[i_live];
            if (dice == 7) {
                event_queue_cancel(pair.queue, reference->handle);
                *reference = pair.live[--pair.count];
            } else {
                event_queue_move(pair.queue, reference->handle, time_ns);
                reference->time_ns = time_ns;
                reference->sequence = pair.sequence++;
            }
        }
        assert_int_equal(event_queue_length(pair.queue), pair.count);
    }
    while (pair.count > 0)
        check_pop(&pair, shuffle_seed == 0);
    check_pop(&pair, true);
    event_queue_free(pair.queue);
}

static void agrees_with_a_searched_list(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        random_operations(seed, 0, 1 + (uint32_t)seed % 13, 5, 2000);
        random_operations(seed, 0, 400, seed % 2 == 0 ? 3 : UINT64_C(1) << 50, 2000);
        random_operations(seed, 1 + seed, 300, 7, 2000);
    }
}

static void grows_past_its_first_capacity(void **state)
{
    (void)state;
    static struct pair pair;
    memset(&pair, 0, sizeof pair);
    pair.queue = event_queue_make(0);
    pair.rng = rng_stream(9, 0, RNG_TIES);
    while (pair.count < LIVE_MAX)
        check_push(&pair, (int64_t)rng_below(&pair.rng, 1000));
    while (pair.count > 0)
        check_pop(&pair, true);
    event_queue_free(pair.queue);
}

/* The popped payloads of one fixed sequence of pushes: `groups` times, `each` pushes at every one of them. */
static void drained(uint64_t shuffle_seed, uint64_t groups, uint64_t each, uint64_t *out)
{
    struct event_queue *queue = event_queue_make(shuffle_seed);
    for (uint64_t i = 0; i < groups * each; i++)
        event_queue_push(queue, (int64_t)(i % groups), i);
    int64_t time_ns;
    for (uint64_t i = 0; i < groups * each; i++) {
        assert_true(event_queue_pop(queue, &time_ns, &out[i]));
        assert_int_equal(time_ns, i / each);
        assert_int_equal(out[i] % groups, i / each);
    }
    assert_false(event_queue_pop(queue, &time_ns, &out[0]));
    event_queue_free(queue);
}

static void shuffling_permutes_equal_times_only(void **state)
{
    (void)state;
    enum { GROUPS = 50, EACH = 40, TOTAL = GROUPS * EACH };
    static uint64_t plain[TOTAL], again[TOTAL], shuffled[TOTAL], other[TOTAL];
    drained(0, GROUPS, EACH, plain);
    drained(7, GROUPS, EACH, shuffled);
    drained(7, GROUPS, EACH, again);
    drained(8, GROUPS, EACH, other);
    for (uint64_t i = 1; i < TOTAL; i++)
        assert_true(i % EACH == 0 || plain[i - 1] < plain[i]);
    assert_memory_equal(shuffled, again, sizeof again);
    assert_memory_not_equal(shuffled, plain, sizeof plain);
    assert_memory_not_equal(shuffled, other, sizeof other);
    /* drained() has checked the groups; each of them must hold exactly its own payloads. */
    for (uint64_t group = 0; group < GROUPS; group++) {
        bool seen[EACH] = {false};
        for (uint64_t i = 0; i < EACH; i++) {
            uint64_t index = shuffled[group * EACH + i] / GROUPS;
            assert_true(index < EACH && !seen[index]);
            seen[index] = true;
        }
    }
}

/* Every one of the six orders of three equal times must turn up, about equally often, over the seeds. */
static void shuffling_reaches_every_order(void **state)
{
    (void)state;
    uint32_t counts[3][3] = {{0}};
    for (uint64_t seed = 1; seed <= 6000; seed++) {
        uint64_t out[3];
        drained(seed, 1, 3, out);
        counts[out[0]][out[1]]++;
    }
    for (uint32_t a = 0; a < 3; a++)
        for (uint32_t b = 0; b < 3; b++)
            assert_true(a == b ? counts[a][b] == 0 : counts[a][b] > 850 && counts[a][b] < 1150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_searched_list),
        cmocka_unit_test(grows_past_its_first_capacity),
        cmocka_unit_test(shuffling_permutes_equal_times_only),
        cmocka_unit_test(shuffling_reaches_every_order),
    };
    return cmocka_run_group_tests_name("event_queue", tests, NULL, NULL);
}
