/* Trace records: the hash depends on every field, on nothing else, and never changes; every kind has its own name. */
#include "base/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct trace_record example = {
    .kind = TRACE_DISPATCHED, .node = 3, .request = 41, .a = 0x0123456789abcdef, .b = 124928};

static void the_hash_is_fixed(void **state)
{
    (void)state;
    assert_true(trace_hash_fold(0, 0, &(struct trace_record){0}) == UINT64_C(0x0000000000000000));
    assert_true(trace_hash_fold(0, 1234567890123, &example) == UINT64_C(0x83fe87aad3b78d2f));
    assert_true(trace_hash_fold(UINT64_MAX, -1, &example) == UINT64_C(0x115c4ace879c303b));
}

static void every_field_counts(void **state)
{
    (void)state;
    struct trace_record records[6];
    for (int i = 0; i < 6; i++)
        records[i] = example;
    records[1].kind++;
    records[2].node++;
    records[3].request++;
    records[4].a ^= UINT64_C(1) << 63;
    records[5].b++;
    uint64_t hashes[8];
    for (int i = 0; i < 6; i++)
        hashes[i] = trace_hash_fold(1, 10, &records[i]);
    hashes[6] = trace_hash_fold(1, 11, &example);
    hashes[7] = trace_hash_fold(2, 10, &example);
    for (int i = 0; i < 8; i++)
        for (int other = 0; other < i; other++)
            assert_true(hashes[i] != hashes[other]);
}

static void order_counts(void **state)
{
    (void)state;
    struct trace_record other = example;
    other.request = 42;
    uint64_t forth = trace_hash_fold(trace_hash_fold(0, 1, &example), 1, &other);
    uint64_t back = trace_hash_fold(trace_hash_fold(0, 1, &other), 1, &example);
    assert_true(forth != back);
}

/* What lies in the memory besides the fields is not hashed. */
static void padding_does_not_count(void **state)
{
    (void)state;
    struct trace_record zeros, ones;
    memset(&zeros, 0, sizeof zeros);
    memset(&ones, 0xff, sizeof ones);
    struct trace_record *const both[] = {&zeros, &ones};
    for (int i = 0; i < 2; i++) {
        both[i]->kind = TRACE_TAIL;
        both[i]->node = 1;
        both[i]->request = 2;
        both[i]->a = 3;
        both[i]->b = 4;
    }
    assert_true(trace_hash_fold(0, 5, &zeros) == trace_hash_fold(0, 5, &ones));
}

/* The compiler asks for a new kind to be added here (-Wswitch). */
static int is_kind(enum trace_kind kind)
{
    switch (kind) {
    case TRACE_ARRIVED:
    case TRACE_RECEIVED:
    case TRACE_DISPATCHED:
    case TRACE_PREFILL_STARTED:
    case TRACE_PREFILL_FINISHED:
    case TRACE_READY:
    case TRACE_DECODE_STARTED:
    case TRACE_FIRST_TOKEN:
    case TRACE_FINISHED:
    case TRACE_REJECTED:
    case TRACE_FAILED:
    case TRACE_ABORTED:
    case TRACE_ROUTED:
    case TRACE_BATCH:
    case TRACE_CHUNK:
    case TRACE_PREEMPTED:
    case TRACE_ADMIT_WAIT:
    case TRACE_EVICTED:
    case TRACE_PREFIX_HIT:
    case TRACE_ARMED:
    case TRACE_ACCEPTED:
    case TRACE_NACKED:
    case TRACE_WRITE:
    case TRACE_TAIL:
    case TRACE_DRAINED:
    case TRACE_CANCELLING:
    case TRACE_QUIESCED:
    case TRACE_RELEASED:
    case TRACE_QUARANTINED:
    case TRACE_FENCED:
    case TRACE_DEADLINE:
    case TRACE_PEER_LOST:
    case TRACE_PEER_JOINED:
    case TRACE_LATE:
        return 1;
    }
    return 0;
}

static void every_kind_has_its_own_name(void **state)
{
    (void)state;
    const char *names[256];
    size_t count = 0;
    for (uint16_t kind = 0; kind < 256; kind++) {
        const char *name = trace_kind_name(kind);
        assert_int_equal(name != NULL, is_kind((enum trace_kind)kind));
        if (name == NULL)
            continue;
        assert_true(name[0] != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz_") == strlen(name));
        for (size_t i = 0; i < count; i++)
            assert_string_not_equal(name, names[i]);
        names[count++] = name;
    }
    assert_true(count > 0);
    assert_null(trace_kind_name(UINT16_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_fixed),
        cmocka_unit_test(every_field_counts),
        cmocka_unit_test(order_counts),
        cmocka_unit_test(padding_does_not_count),
        cmocka_unit_test(every_kind_has_its_own_name),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
