/* Real nodes in a world that goes wrong: instances die and come back, messages and writes are late, clients leave,
 * pools are short. Everything is drawn from the seed, the configuration too. Whatever happens, every request ends,
 * pages are accounted for after every event, and at the end nobody holds anything.
 */
#include "base/arith.h"
#include "base/rng.h"
#include "sim/run.h"
#include "support/scenarios.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEEDS 60
#define REQUESTS 200
#define FAULTS_MAX 8

static struct message_fault late_message(void *self, int64_t now_ns, uint32_t source, uint32_t destination,
                                         const void *bytes, size_t length)
{
    (void)now_ns;
    (void)source;
    (void)destination;
    (void)bytes;
    (void)length;
    struct message_fault fault = {.copies = 1};
    if (rng_chance(self, 1, 100))
        fault.delay_ns = (int64_t)rng_below(self, 100 * NS_PER_MS);
    return fault;
}

static int64_t late_write(void *self, int64_t now_ns, const struct paged_write *write)
{
    (void)now_ns;
    (void)write;
    return rng_chance(self, 1, 100) ? (int64_t)rng_below(self, 30 * NS_PER_S) : 0;
}

static uint32_t draw_faults(struct rng *rng, uint32_t nodes, struct run_fault *faults)
{
    uint32_t count = 0;
    uint32_t kills = (uint32_t)rng_below(rng, FAULTS_MAX / 2);
    for (uint32_t i = 0; i < kills; i++) {
        uint32_t node = 1 + (uint32_t)rng_below(rng, nodes);
        int64_t at_ns = (int64_t)rng_below(rng, 20 * NS_PER_S);
        faults[count++] = (struct run_fault){.at_ns = at_ns, .kind = FAULT_KILL, .node = node};
        if (rng_chance(rng, 1, 2))
            faults[count++] = (struct run_fault){
                .at_ns = at_ns + 1 + (int64_t)rng_below(rng, 8 * NS_PER_S), .kind = FAULT_RESTART, .node = node};
    }
    return count;
}

static void draw_scenario(struct rng *rng, struct scenario *scenario)
{
    uint32_t prefill = 2 + (uint32_t)rng_below(rng, 2);
    uint32_t decode = 2 + (uint32_t)rng_below(rng, 2);
    scenario_llama_70b(scenario, prefill, decode, 4 + (uint32_t)rng_below(rng, 40), REQUESTS);
    scenario->load.abort_permille = (uint32_t)rng_below(rng, 200);
    scenario->load.abort_after_ns = 5 * NS_PER_S;
    scenario->messenger.deadline_ns = 100 * NS_PER_MS + (int64_t)rng_below(rng, 3 * NS_PER_S);
    if (rng_chance(rng, 1, 2)) {
        scenario->pools[1].memory_utilization_permille = 240; /* a few hundred pages beside the weights */
        scenario->pools[1].scheduler.headroom_tokens = 16;
    }
}

static void every_request_ends_and_everything_comes_back(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    uint64_t completed = 0;
    uint64_t unserved = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
        struct rng moments = rng_stream(seed, 1, RNG_FAULTS);
        struct run_fault faults[FAULTS_MAX];
        draw_scenario(&rng, scenario);
        struct sim_faults hooks = {.self = &moments, .message = late_message, .write_delay_ns = late_write};
        struct run_options options = {
            .shuffle_seed = seed % 2 == 0 ? 0 : seed,
            .check_every = 1,
            .faults = faults,
            .fault_count = draw_faults(&rng, scenario->pools[0].count + scenario->pools[1].count, faults),
            .hooks = &hooks,
        };
        struct deployment_choice choice = deployment_default(scenario);
        struct run_result result;
        sim_run(scenario, &choice, seed, &options, &result);
        const struct run_summary *s = &result.summary;
        if (result.status != RUN_COMPLETE)
            fail_msg("seed %" PRIu64 ": %s", seed, result.text);
        assert_int_equal(s->completed + s->rejected + s->failed + s->aborted, REQUESTS);
        completed += s->completed;
        unserved += s->rejected + s->failed;
        run_result_free(&result);
    }
    /* The world was bad enough to matter and good enough to serve in. */
    assert_true(completed > SEEDS * REQUESTS / 2);
    assert_true(unserved > 100);
    free(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_ends_and_everything_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
