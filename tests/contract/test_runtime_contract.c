/* The contract (support/contract.h) over the runtimes of one process: the fake brings pending things about in random
 * orders, the simulator in virtual time, also in its plain form and with the order of equal times shuffled. The real
 * runtime is put to it in tests/real.
 */
#include "base/limits.h"
#include "support/contract.h"
#include "support/fake_runtime.h"
#include "support/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct bench {
    struct world world; /* its probes serve both */
    struct fake_runtime *fake;
};

static const struct probe_cost cost = {
    .decode_fixed_ns = CONTRACT_DECODE_NS,
    .decode_base_ns = 100,
    .slope_q32 = UINT64_C(1) << 31,
    .prefill_token_ns = CONTRACT_PREFILL_TOKEN_NS,
    .layers = CONTRACT_LAYERS,
};

static void *sim_bench(const struct contract_runtime *runtime, uint32_t nodes, uint64_t seed, struct probe **probes)
{
    struct bench *bench = calloc(1, sizeof *bench);
    assert_non_null(bench);
    struct world_config config = {
        .nodes = nodes,
        .plain = runtime->plain,
        .poison = true,
        .shuffle_seed = runtime->seeds > 1 ? seed + 1 : 0,
        .message_ns = 3000,
        .watcher_ns = 6200,
    };
    world_make(&bench->world, &config, &cost);
    *probes = bench->world.probe;
    return bench;
}

static void sim_run(void *world)
{
    struct bench *bench = world;
    sim_start(bench->world.sim);
    assert_int_equal(sim_advance(bench->world.sim, TIME_NEVER / 4), SIM_IDLE);
}

static void *fake_bench(const struct contract_runtime *runtime, uint32_t nodes, uint64_t seed, struct probe **probes)
{
    (void)runtime;
    struct bench *bench = calloc(1, sizeof *bench);
    assert_non_null(bench);
    bench->fake = fake_make(nodes, seed);
    bench->world.nodes = nodes;
    for (uint32_t i = 0; i < nodes; i++) {
        bench->world.probe[i].rt = fake_runtime_of(bench->fake, i);
        fake_attach(bench->fake, i, (struct participant){.handle = probe_handle, .self = &bench->world.probe[i]});
    }
    *probes = bench->world.probe;
    return bench;
}

static void fake_run_all(void *world)
{
    struct bench *bench = world;
    for (uint32_t i = 0; i < bench->world.nodes; i++)
        fake_deliver(bench->fake, i, &(struct event){.kind = EVENT_START});
    fake_run(bench->fake);
}

static void bench_free(void *world)
{
    struct bench *bench = world;
    world_free(&bench->world);
    if (bench->fake != NULL)
        fake_free(bench->fake);
    free(bench);
}

#define SIM .exact = true, .poisons = true, .make = sim_bench, .run = sim_run, .free = bench_free

int main(void)
{
    static struct contract_runtime fake = {
        .name = "fake", .seeds = 20, .poisons = true, .make = fake_bench, .run = fake_run_all, .free = bench_free};
    static struct contract_runtime sim = {.name = "sim", .seeds = 1, SIM};
    static struct contract_runtime plain = {.name = "sim, plain", .seeds = 1, .plain = true, SIM};
    static struct contract_runtime shuffled = {.name = "sim, shuffled", .seeds = 4, SIM};
    const struct CMUnitTest tests[] = {
        CONTRACT_TESTS("fake", &fake),
        CONTRACT_TESTS("sim", &sim),
        CONTRACT_TESTS("sim, plain", &plain),
        CONTRACT_TESTS("sim, shuffled", &shuffled),
    };
    return cmocka_run_group_tests_name("runtime_contract", tests, NULL, NULL);
}
