/* --verify finds what differs: any byte of a page that was transferred, and of a tail. Two verifiers over two memories,
 * with memcpy for a fabric.
 */
#include "real/runtime/verifier.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS 2
#define PAGES 4
#define TAIL_BYTES 50
#define IMMEDIATE 0x100003u

static struct kv_memory memory;
static struct transfer_plan plan;
static unsigned char *source;
static unsigned char *destination;
static struct verifier *sender;
static struct verifier *receiver;
static uint64_t completed;
static struct fabric_rank regions[2];

static void send(void *self, uint32_t node, const void *body, size_t length)
{
    (void)self;
    assert_int_equal(node, 1);
    struct frame frame = {.kind = FRAME_DIGESTS, .length = (uint32_t)length, .body = body};
    assert_true(verifier_digests(receiver, &frame));
}

static void complete(void *self, uint32_t immediate, uint64_t count)
{
    (void)self;
    assert_int_equal(immediate, IMMEDIATE);
    completed += count;
}

/* `region` outlives the verifier. */
static struct verifier *make(struct fabric_rank *region, void *bytes)
{
    *region = (struct fabric_rank){.memory = bytes, .bytes = kv_memory_bytes(&memory, 0)};
    return verifier_make(
        &(struct verifier_config){.memory = memory, .ranks = 1, .regions = region, .send = send, .complete = complete});
}

static int set_up(void **state)
{
    (void)state;
    memory = (struct kv_memory){
        .geometry = {.layers = LAYERS,
                     .kv_heads = 1,
                     .planes = 2,
                     .page_tokens = 4,
                     .head_bytes = 16,
                     .layout = LAYOUT_HND,
                     .parallelism = {.tensor = 1, .data = 1, .expert = 1, .pipeline = 1},
                     .stage_layer_first = {0, LAYERS}},
        .pages = PAGES,
        .tail_slots = 2,
        .tail_bytes = TAIL_BYTES,
    };
    assert_int_equal(transfer_plan_make(&memory.geometry, 0, &memory.geometry, 0, 0, &plan), GEOMETRY_OK);
    size_t bytes = kv_memory_bytes(&memory, 0);
    source = malloc(bytes);
    destination = malloc(bytes);
    assert_non_null(source);
    assert_non_null(destination);
    for (size_t i = 0; i < bytes; i++)
        source[i] = destination[i] = (unsigned char)(i * 31 + i / 251);
    sender = make(&regions[0], source);
    receiver = make(&regions[1], destination);
    completed = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    verifier_free(sender);
    verifier_free(receiver);
    free(source);
    free(destination);
    return 0;
}

/* Two pages and a tail of two writes, from the slots of one side to the same of the other. */
static void transfer(void)
{
    static const uint32_t pages[] = {3, 1};
    verifier_expected(receiver, IMMEDIATE, 2 * 2 * LAYERS + 2);
    struct paged_write write = {.destination = 1,
                                .immediate = IMMEDIATE,
                                .unit_count = 2,
                                .source_page_count = 2,
                                .destination_page_count = 2,
                                .source_pages = pages,
                                .destination_pages = pages,
                                .plan = &plan};
    verifier_written(sender, &write);
    assert_false(verifier_landed(receiver, IMMEDIATE, 10)); /* the tail's digest is still to come */
    write.unit_count = write.source_page_count = write.destination_page_count = 0;
    write.tail_writes = 2;
    write.tail_bytes = TAIL_BYTES;
    write.tail_source_slot = write.tail_destination_slot = 1;
    verifier_written(sender, &write);
    assert_int_equal(completed, 10);
    assert_int_equal(verifier_compared(receiver), 2 * 2 * LAYERS + 1);
}

static void what_is_the_same_is_found_so(void **state)
{
    (void)state;
    transfer();
    assert_int_equal(verifier_differed(receiver), 0);
}

static void a_byte_of_a_page(void **state)
{
    (void)state;
    destination[kv_memory_page_offset(&memory, 0, 1, 1, 3) + 63] ^= 1;
    transfer();
    assert_int_equal(verifier_differed(receiver), 1);
}

static void a_byte_of_a_page_that_was_not_sent(void **state)
{
    (void)state;
    destination[kv_memory_page_offset(&memory, 0, 1, 1, 2)] ^= 1;
    transfer();
    assert_int_equal(verifier_differed(receiver), 0);
}

static void the_last_byte_of_a_tail(void **state)
{
    (void)state;
    destination[kv_memory_tail_offset(&memory, 0, 1) + TAIL_BYTES - 1] ^= 0x80;
    transfer();
    assert_int_equal(verifier_differed(receiver), 1);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_the_same_is_found_so),
        CASE(a_byte_of_a_page),
        CASE(a_byte_of_a_page_that_was_not_sent),
        CASE(the_last_byte_of_a_tail),
    };
    return cmocka_run_group_tests_name("verifier", tests, NULL, NULL);
}
