/* The first decision that differs, planted at a known place of made-up traces; and the cluster around it. */
#define _POSIX_C_SOURCE 200809L

#include "sim/check/decision.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char names[][48] = {"front", "prefill-0", "decode-0", "decode-1"};

/* Two requests, one after the other, over one prefiller and two decoders. */
static uint64_t life(struct stamped_record *items)
{
    uint64_t count = 0;
    for (uint32_t r = 0; r < 2; r++) {
        int64_t t = 1000 * (r + 1);
        uint16_t decoder = (uint16_t)(2 + r);
        const struct stamped_record records[] = {
            {t, {TRACE_ARRIVED, 0, r, 64, 3}},
            {t, {TRACE_ROUTED, 0, r, decoder, 1}},
            {t + 10, {TRACE_RECEIVED, decoder, r, 0, 0}},
            {t + 10, {TRACE_ARMED, decoder, r, 1, 8}},
            {t + 10, {TRACE_DISPATCHED, decoder, r, 1, 8}},
            {t + 20, {TRACE_ACCEPTED, 1, r, 1, 0}},
            {t + 20, {TRACE_BATCH, 1, TRACE_NO_REQUEST, 0, 64}},
            {t + 20, {TRACE_PREFILL_STARTED, 1, r, 1, 0}},
            {t + 90, {TRACE_PREFILL_FINISHED, 1, r, 1, 0}},
            {t + 95, {TRACE_READY, decoder, r, 1, 0}},
            {t + 95, {TRACE_BATCH, decoder, TRACE_NO_REQUEST, 1, 0}},
            {t + 95, {TRACE_DECODE_STARTED, decoder, r, 0, 0}},
            {t + 99, {TRACE_DRAINED, 1, r, 1, 0}},
            {t + 2000, {TRACE_FIRST_TOKEN, decoder, r, 0, 0}},
            {t + 2400, {TRACE_FINISHED, decoder, r, 3, 0}},
        };
        memcpy(&items[count], records, sizeof records);
        count += sizeof records / sizeof *records;
    }
    return count;
}

#define PER_REQUEST 15

static struct trace_side side(const struct stamped_record *items, uint64_t count)
{
    return (struct trace_side){.items = items, .count = count, .names = names, .name_count = 4};
}

static void compare(const struct stamped_record *a, uint64_t count_a, const struct stamped_record *b, uint64_t count_b,
                    struct divergence *found)
{
    struct trace_side left = side(a, count_a);
    struct trace_side right = side(b, count_b);
    struct cluster *cluster = cluster_make();
    memset(found, 0, sizeof *found);
    decision_first(&left, &right, 0, cluster, found);
    cluster_free(cluster);
}

/* Each record in turn is changed in each of its parts, and found there. */
static void every_planted_difference_is_found(void **state)
{
    (void)state;
    struct stamped_record a[2 * PER_REQUEST];
    struct stamped_record b[2 * PER_REQUEST];
    struct divergence found;
    uint64_t count = life(a);
    assert_int_equal(count, 2 * PER_REQUEST);
    life(b);
    compare(a, count, b, count, &found);
    assert_false(found.found);
    for (uint64_t i = 0; i < count; i++) {
        for (int part = 0; part < 6; part++) {
            life(b);
            b[i].at_ns += part == 0;
            b[i].record.kind = (uint16_t)(b[i].record.kind + (part == 1));
            b[i].record.node ^= part == 2;
            b[i].record.request ^= part == 3 && b[i].record.request != TRACE_NO_REQUEST;
            b[i].record.a += part == 4;
            b[i].record.b += part == 5;
            if (part == 3 && b[i].record.request == TRACE_NO_REQUEST)
                continue;
            compare(a, count, b, count, &found);
            assert_true(found.found);
            assert_int_equal(found.record, i);
            assert_int_equal(found.times_alone, part == 0);
            assert_int_equal(found.before_count, min_u64(i, DIVERGENCE_BEFORE_MAX));
            assert_string_equal(found.node, names[a[i].record.node]);
        }
    }
}

static void a_trace_that_ends_differs_there(void **state)
{
    (void)state;
    struct stamped_record a[2 * PER_REQUEST];
    struct divergence found;
    uint64_t count = life(a);
    compare(a, count, a, count - 1, &found);
    assert_true(found.found);
    assert_int_equal(found.record, count - 1);
    assert_string_equal(found.b, "has ended");
    assert_int_equal(found.time_b_ns, -1);
    assert_string_equal(found.a, "decode-1 finished request 1 tokens=3");
    compare(a, count - 1, a, count, &found);
    assert_string_equal(found.a, "has ended");
    assert_string_equal(found.node, "decode-1");
}

/* At the routing of request 1, request 0 is being decoded and its prefiller has let go of it. */
static void the_state_around_it_is_told(void **state)
{
    (void)state;
    struct stamped_record a[2 * PER_REQUEST];
    struct stamped_record b[2 * PER_REQUEST];
    struct divergence found;
    char text[4096] = "";
    uint64_t count = life(a);
    life(b);
    /* In order of time request 1 arrives while request 0 is decoded: its last two records come later. */
    struct stamped_record *const traces[] = {a, b};
    for (int t = 0; t < 2; t++) {
        struct stamped_record late[2];
        memcpy(late, &traces[t][PER_REQUEST - 2], sizeof late);
        memmove(&traces[t][PER_REQUEST - 2], &traces[t][PER_REQUEST], 5 * sizeof late[0]);
        memcpy(&traces[t][PER_REQUEST + 3], late, sizeof late);
    }
    b[PER_REQUEST - 1].record.a = 2; /* to the decoder that is busy */
    compare(a, count, b, count, &found);
    assert_int_equal(found.record, PER_REQUEST - 1);
    assert_string_equal(found.node, "front");
    assert_int_equal(found.request, 1);
    assert_string_equal(found.a, "front routed request 1 decoder=3 prefiller=1");
    assert_string_equal(found.b, "front routed request 1 decoder=2 prefiller=1");
    assert_string_equal(found.before[DIVERGENCE_BEFORE_MAX - 1].text, "front arrived request 1 prompt=64 output=3");
    assert_int_equal(found.about_count, 0); /* there is nothing about it before that */
    assert_int_equal(found.node_count, 3);
    assert_string_equal(found.nodes[1].name, "decode-0");
    assert_int_equal(found.nodes[1].decoding, 1);
    assert_int_equal(found.nodes[1].waiting + found.nodes[1].filling + found.nodes[1].ready, 0);
    assert_int_equal(found.nodes[0].queued + found.nodes[0].prefilling + found.nodes[0].draining, 0);
    FILE *file = fmemopen(text, sizeof text, "w");
    divergence_write(file, &found, "before", "after", "");
    fclose(file);
    assert_non_null(strstr(text, "first difference at trace record 14, front, request 1:\n"));
    assert_non_null(strstr(text, "  before at 2000 ns: front routed request 1 decoder=3 prefiller=1\n"
                                 "  after at 2000 ns: front routed request 1 decoder=2 prefiller=1\n"));
}

/* All of request 1 comes later, and its chunk goes elsewhere: the times are the first difference, the batch on the
 * other decoder the first decision. */
static void times_aside_the_decision_is_found(void **state)
{
    (void)state;
    struct stamped_record a[2 * PER_REQUEST];
    struct stamped_record b[2 * PER_REQUEST];
    struct divergence found;
    uint64_t count = life(a);
    life(b);
    for (uint64_t i = 3; i < count; i++)
        b[i].at_ns += 7;
    struct trace_side left = side(a, count);
    struct trace_side right = side(b, count);
    memset(&found, 0, sizeof found);
    decision_first_timeless(&left, &right, &found);
    assert_false(found.found);
    b[PER_REQUEST + 6].record.b = 32;
    decision_first_timeless(&left, &right, &found);
    assert_true(found.found);
    assert_false(found.times_alone);
    assert_int_equal(found.record, PER_REQUEST + 6);
    assert_string_equal(found.a, "prefill-0 batch group=0 decoding=0 prefill_tokens=64");
    assert_string_equal(found.b, "prefill-0 batch group=0 decoding=0 prefill_tokens=32");
    assert_int_equal(found.time_b_ns - found.time_a_ns, 7);
    assert_int_equal(found.about_count, 0); /* a batch is about no request */
    /* A decision that is left out shifts those after it on its node: it is the first. */
    memmove(&b[PER_REQUEST + 1], &b[PER_REQUEST + 2], (count - PER_REQUEST - 2) * sizeof b[0]);
    right.count = count - 1;
    memset(&found, 0, sizeof found);
    decision_first_timeless(&left, &right, &found);
    assert_int_equal(found.record, PER_REQUEST + 1);
    assert_string_equal(found.a, "front routed request 1 decoder=3 prefiller=1");
    assert_string_equal(found.b, "has ended");
    assert_int_equal(found.about_count, 1);
    assert_string_equal(found.about[0].text, "front arrived request 1 prompt=64 output=3");
}

/* More nodes than are shown: the emptiest are left out. */
static void of_a_large_cluster_the_fullest_are_shown(void **state)
{
    (void)state;
    static char many[64][48];
    struct cluster *cluster = cluster_make();
    struct divergence found;
    memset(&found, 0, sizeof found);
    for (uint32_t n = 0; n < 64; n++)
        snprintf(many[n], sizeof many[n], "node-%u", n);
    for (uint32_t r = 0; r < 100; r++) {
        struct trace_record received = {.kind = TRACE_RECEIVED, .node = (uint16_t)(1 + r % 20), .request = r};
        cluster_trace(cluster, &received);
    }
    cluster_describe(cluster, (const char(*)[48])many, 64, &found);
    assert_true(found.node_count <= DIVERGENCE_NODES_MAX);
    assert_int_equal(found.node_count + found.nodes_left_out, 63);
    cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_planted_difference_is_found),
        cmocka_unit_test(a_trace_that_ends_differs_there),
        cmocka_unit_test(the_state_around_it_is_told),
        cmocka_unit_test(times_aside_the_decision_is_found),
        cmocka_unit_test(of_a_large_cluster_the_fullest_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
