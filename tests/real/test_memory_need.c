/* What a real run takes of the machine: counted by what it then has, and refused before anything is started. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "real/cluster/memory_need.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GQA TANDEM_SOURCE_DIR "/scenarios/real-gqa-2p2d.lua"
#define MLA TANDEM_SOURCE_DIR "/scenarios/real-mla-dp.lua"
#define GIB (UINT64_C(1) << 30)

/* A sanitizer has its own allocator: glibc's counts stay at nothing under it, and this symbol is there. */
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void);

static uint64_t taken(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 info = mallinfo2();
    return (uint64_t)info.uordblks + (uint64_t)info.hblkhd;
}

/* A rank's device takes what was said: to a few percent, for small lists are left out. */
static void a_device_takes_what_was_said(void **state)
{
    (void)state;
    static const char *const scenarios[] = {GQA, MLA};
    for (size_t s = 0; s < 2; s++) {
        struct real_world world;
        struct user_error error = {.set = false};
        struct user_error why = {.set = false};
        if (!real_world_load(&world, scenarios[s], NULL, 0, -1, &error))
            fail_msg("%s", error.text);
        struct executor_setup setup = real_world_executor_setup(&world, 1, "host");
        static _Atomic uint64_t counter;
        struct device_config config = {
            .architecture = &setup.architecture,
            .memory = setup.memory,
            .weight_seed = 1,
            .sequences_max = setup.sequences_max,
            .tokens_max = setup.tokens_max,
            .request_tokens_max = setup.request_tokens_max,
            .kv = calloc(1, kv_memory_bytes(&setup.memory, 0)),
            .collective = (struct collective *)(void *)&why, /* is not called before a step */
            .layer_counter = &counter,
        };
        uint64_t weights;
        uint64_t buffers;
        assert_true(device_host.bytes(&config, &weights, &buffers, &why));
        uint64_t before = taken();
        struct device *device = device_host.make(&config, &why);
        if (device == NULL)
            fail_msg("%s", why.text);
        uint64_t took = taken() - before;
        print_message("%s: %" PRIu64 " + %" PRIu64 " said, %" PRIu64 " taken\n", setup.architecture.name, weights,
                      buffers, took);
        assert_true(weights > 0 && buffers > 0);
        assert_in_range(took, (weights + buffers) * 95 / 100, (weights + buffers) * 105 / 100 + 262144);
        device_host.free(device);
        free(config.kv);
        real_world_free(&world);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const struct memory_need need = {.weights = 15 * GIB, .kv = 2 * GIB, .buffers = GIB, .regions = 64 << 20};
    struct memory_there there = {
        .bytes = 20 * GIB, .limit = "are available", .shared = 64 << 20, .shared_matters = true};
    struct user_error error = {.set = false};
    assert_true(memory_suffices(&need, &there, &error));
    there.bytes = 16 * GIB;
    assert_false(memory_suffices(&need, &there, &error));
    assert_string_equal(error.text,
                        "the run takes 18.1 GiB of this machine's memory: weights 15.0, KV 2.0, buffers 1.0, "
                        "processes 0.1; 16.0 GiB are available. Fewer instances, a smaller model or smaller KV "
                        "pools take less");
    there.bytes = 20 * GIB;
    there.shared = 63 << 20;
    error.set = false;
    assert_false(memory_suffices(&need, &there, &error));
    assert_string_equal(error.text, "the fabric takes 64 MiB of /dev/shm, which has 63 left: make it larger, or take "
                                    "--provider tcp");
    there.shared_matters = false;
    assert_true(memory_suffices(&need, &there, &error));
}

/* All instances, their ranks, and a region for each rail and peer. */
static void a_world_is_the_sum_of_its_ranks(void **state)
{
    (void)state;
    struct real_world world;
    struct user_error error = {.set = false};
    struct memory_need need;
    struct user_error why = {.set = false};
    assert_true(real_world_load(&world, GQA, NULL, 0, -1, &error));
    struct real_options options = {.device = "host", .provider = "shm", .address = "127.0.0.1", .nics = 2};
    assert_true(memory_need_of(&world, &options, &need, &why));
    uint64_t kv = 0;
    for (uint32_t i = 1; i < world.deployment->node_count; i++) {
        struct kv_memory memory = real_world_kv_memory(&world, i);
        for (uint32_t r = 0; r < world.deployment->instances[i].ranks; r++)
            kv += kv_memory_bytes(&memory, r);
    }
    assert_int_equal(need.kv, kv);
    /* Two prefillers and two decoders: each has two peers, and two rails to each. */
    assert_int_equal(need.regions, UINT64_C(4) * 2 * 2 * 5 << 20);
    options.provider = "tcp";
    assert_true(memory_need_of(&world, &options, &need, &why));
    assert_int_equal(need.regions, 0);
    struct memory_there there = memory_there_now(&options);
    assert_true(there.bytes > 0 && there.bytes < UINT64_MAX && !there.shared_matters);
    real_world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_takes_what_was_said),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_world_is_the_sum_of_its_ranks),
    };
    return cmocka_run_group_tests_name("memory_need", tests, NULL, NULL);
}
