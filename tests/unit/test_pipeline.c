/* Launches over pipeline stages: chunks of a prompt follow each other, decoding sequences are dealt to microbatches,
 * and no prefill is faster than its operations at peak. */
#include "base/arith.h"
#include "sim/checkers/prefill_peak.h"
#include "sim/sim_run.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- A device that takes round times ----------------------------------------------------------------------------- */

#define CHUNK 512u
#define STAGE_NS NS_PER_MS /* of a chunk of CHUNK tokens, or of a decode batch of any size */
#define HOP_NS (100 * NS_PER_US)

struct round_device {
    uint32_t stages;
};

static uint64_t pairs_seen; /* of queries and keys, over all steps */

static void round_step(const void *model, const struct step_group *groups, uint32_t group_count, struct step_time *time)
{
    const struct round_device *device = model;
    uint64_t tokens = 0;
    uint64_t decode = 0;
    for (uint32_t g = 0; g < group_count; g++) {
        tokens += groups[g].prefill_tokens;
        decode += groups[g].decode_sequences;
        pairs_seen += groups[g].prefill_pairs;
    }
    *time = (struct step_time){.bound = BOUND_COMPUTE, .hop_ns = HOP_NS};
    time->stage_ns = (int64_t)(tokens * (uint64_t)STAGE_NS / CHUNK) + (decode > 0 ? STAGE_NS : 0);
    time->total_ns = device->stages * time->stage_ns + (device->stages - 1) * HOP_NS;
}

static int64_t round_fixed(const void *model, const struct step_group *groups, uint32_t group_count)
{
    struct step_time time;
    round_step(model, groups, group_count, &time);
    return time.total_ns;
}

static void round_line(const void *model, uint32_t sequences, uint64_t context, struct decode_line *line)
{
    (void)model;
    (void)sequences;
    (void)context;
    *line = (struct decode_line){.context_max = UINT64_MAX};
}

static struct device device_with(struct round_device *device, uint32_t stages)
{
    static const struct device_ops ops = {round_step, round_fixed, round_line};
    device->stages = stages;
    return (struct device){.ops = &ops, .model = device, .stages = stages};
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

#define ROWS_MAX 8192

struct watched {
    uint32_t node;
    uint32_t count;
    struct step_row rows[ROWS_MAX];
};

static struct watched watched;

static void watch_steps(void *self, const struct step_row *row)
{
    (void)self;
    if (row->node == watched.node && watched.count < ROWS_MAX)
        watched.rows[watched.count++] = *row;
}

/* `stages` of the pool `role` is in; the other pool has one. Steps of node `watch` are kept. */
static void run_round(struct scenario *scenario, uint32_t stages, enum node_role role, uint32_t watch)
{
    struct round_device devices[2];
    struct device made[SCENARIO_POOLS_MAX] = {{0}};
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        uint32_t here = scenario->pools[p].role == role ? stages : 1;
        scenario->pools[p].shardings[0].pipeline = (uint16_t)here;
        made[p] = device_with(&devices[p], here);
    }
    struct deployment_choice choice = deployment_default(scenario);
    struct run_result result;
    watched.node = watch;
    watched.count = 0;
    run_play(&sim_backend,
             &(struct run_config){.scenario = scenario,
                                  .choice = &choice,
                                  .seed = 1,
                                  .options = &(struct sim_options){.devices = made, .check_every = 1},
                                  .listener = {.steps = watch_steps}},
             &result);
    if (result.status != RUN_COMPLETE)
        fail_msg("%s", result.text);
    run_result_free(&result);
}

static struct scenario *one_prompt(uint32_t chunks)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    scenario_llama_70b(scenario, 1, 1, 1, 1);
    scenario->load.prompt =
        (struct length_distribution){.kind = LENGTH_CONSTANT, .low = chunks * CHUNK + 1, .high = chunks * CHUNK + 1};
    scenario->load.output = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 4, .high = 4};
    scenario->pools[0].scheduler.token_budget = CHUNK;
    return scenario;
}

/* m chunks of one prompt through P stages: m + P - 1 stage times, and the hand-overs of the last. */
static void chunks_follow_each_other(void **state)
{
    (void)state;
    for (uint32_t stages = 1; stages <= 8; stages *= 2) {
        for (uint32_t chunks = 1; chunks <= 9; chunks += 2) {
            struct scenario *scenario = one_prompt(chunks);
            pairs_seen = 0;
            run_round(scenario, stages, ROLE_PREFILL, 1);
            uint64_t tokens = chunks * CHUNK;
            assert_int_equal(pairs_seen, tokens * (tokens + 1) / 2); /* each sees all before it */
            assert_int_equal(watched.count, chunks);
            int64_t took_ns = watched.rows[chunks - 1].end_ns - watched.rows[0].start_ns;
            int64_t expected_ns = (int64_t)(chunks + stages - 1) * STAGE_NS + (int64_t)(stages - 1) * HOP_NS;
            /* The launch after those P waits until one has left the last stage, and has come over all hand-overs. */
            int64_t late_ns = (int64_t)((chunks - 1) / stages) * (int64_t)(stages - 1) * HOP_NS;
            if (took_ns < expected_ns || took_ns > expected_ns + late_ns)
                fail_msg("%u chunks over %u stages: %.3f ms, expected %.3f to %.3f", chunks, stages,
                         (double)took_ns / 1e6, (double)expected_ns / 1e6, (double)(expected_ns + late_ns) / 1e6);
            free(scenario);
        }
    }
}

/* Sequences that come together are dealt to all microbatches; each takes a token when its own has passed all stages,
 * and with as many microbatches as stages all stages work. */
static void decoding_sequences_fill_the_stages(void **state)
{
    (void)state;
    const uint32_t stages = 4;
    for (uint32_t sequences = 1; sequences <= 16; sequences *= 4) {
        struct scenario *scenario = one_prompt(1);
        scenario->load.requests = sequences;
        scenario->load.arrivals = ARRIVAL_BURST;
        scenario->load.burst_size = sequences;
        scenario->load.output = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 200, .high = 200};
        scenario->pools[0].scheduler.token_budget = 16 * CHUNK;
        run_round(scenario, stages, ROLE_DECODE, 2);
        uint32_t together = sequences < stages ? 1 : sequences / stages;
        uint32_t in_round = sequences < stages ? sequences : stages;
        int64_t latency_ns = stages * STAGE_NS + (stages - 1) * HOP_NS;
        uint32_t middle = watched.count / 2;
        assert_int_equal(watched.rows[middle].decode_sequences, together);
        assert_int_equal(watched.rows[middle].end_ns - watched.rows[middle].start_ns, latency_ns);
        /* A microbatch's next step follows its last one; in between all others had one. */
        assert_int_equal(watched.rows[middle + in_round].end_ns - watched.rows[middle].end_ns, latency_ns);
        free(scenario);
    }
}

/* Short answers of many, and a pool too small for all: sequences end, are preempted and join again in all microbatches,
 * beside chunks, and every account is right after every event. */
static void mixed_instances_under_pressure(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    for (uint32_t stages = 1; stages <= 4; stages *= 2) {
        scenario_llama_70b_mixed(scenario, 1, 30, 200);
        scenario->pools[0].shardings[0].pipeline = (uint16_t)stages;
        scenario->pools[0].memory_utilization_permille = stages == 1 ? 260 : stages == 2 ? 130 : 70;
        scenario->pools[0].scheduler.headroom_tokens = 16;
        scenario->load.abort_permille = 100;
        scenario->load.abort_after_ns = 5 * NS_PER_S;
        struct deployment_choice choice = deployment_default(scenario);
        struct run_result result;
        run_play(
            &sim_backend,
            &(struct run_config){
                .scenario = scenario, .choice = &choice, .seed = 1, .options = &(struct sim_options){.check_every = 1}},
            &result);
        if (result.status != RUN_COMPLETE)
            fail_msg("%u stages: %s", stages, result.text);
        assert_true(result.summary.completed > 150);
        if (stages > 1)
            assert_true(result.instances[0].preemptions > 0);
        run_result_free(&result);
    }
    free(scenario);
}

/* Clients leave while chunks of their prompts are in several stages, and pages wait for the last of them. */
static void prompts_are_cancelled_in_the_stages(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    scenario_llama_70b(scenario, 1, 1, 40, 300);
    scenario->load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1000, .high = 4000};
    scenario->load.output = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 4, .high = 4};
    scenario->load.abort_permille = 600;
    scenario->load.abort_after_ns = NS_PER_S / 2;
    scenario->pools[0].scheduler.token_budget = 256;
    scenario->pools[0].shardings[0].pipeline = 4;
    struct deployment_choice choice = deployment_default(scenario);
    struct run_result result;
    run_play(
        &sim_backend,
        &(struct run_config){
            .scenario = scenario, .choice = &choice, .seed = 1, .options = &(struct sim_options){.check_every = 1}},
        &result);
    if (result.status != RUN_COMPLETE)
        fail_msg("%s", result.text);
    assert_true(result.summary.completed > 50);
    run_result_free(&result);
    free(scenario);
}

/* ---- Operations at peak ------------------------------------------------------------------------------------------ */

static struct {
    const struct scenario *scenario;
    struct deployment *deployment;
    struct checkers *checkers;
    struct prefill_peak *peak;
} under_watch;

static void watch_peak(void *self, struct sim *sim, const struct run_nodes *nodes)
{
    (void)self;
    static const bool modelled[SCENARIO_POOLS_MAX] = {true, true};
    under_watch.checkers = checkers_make(sim, nodes->count, UINT32_MAX);
    under_watch.peak =
        prefill_peak_make(sim, under_watch.scenario, under_watch.deployment, modelled, under_watch.checkers);
}

/* A stage that takes a millisecond for 512 tokens of a 70B model is beyond any GPU; ten of its times are not. */
static void steps_beyond_peak_are_found(void **state)
{
    (void)state;
    for (uint32_t scale = 1; scale <= 1000; scale *= 1000) {
        struct scenario *scenario = one_prompt(2);
        struct round_device devices[2];
        struct device made[SCENARIO_POOLS_MAX] = {device_with(&devices[0], 2), device_with(&devices[1], 1)};
        char error[256];
        scenario->pools[0].shardings[0] = (struct parallelism){.tensor = 1, .data = 1, .expert = 1, .pipeline = 2};
        scenario->pools[0].scheduler.token_budget = scale == 1 ? CHUNK : 1; /* a token takes 2 us */
        if (scale > 1)
            scenario->load.prompt.low = scenario->load.prompt.high = 3;
        scenario->pools[0].hardware.fp8_flops = scale == 1 ? UINT64_C(1979000000000000) : UINT64_C(1) << 62;
        struct deployment_choice choice = deployment_default(scenario);
        struct deployment_sizes sizes = deployment_sizes(&scenario->load);
        under_watch.scenario = scenario;
        under_watch.deployment = deployment_make(scenario, &choice, &sizes, 1, error, sizeof error);
        if (under_watch.deployment == NULL)
            fail_msg("%s", error);
        struct run_result result;
        run_play(&sim_backend,
                 &(struct run_config){.scenario = scenario,
                                      .choice = &choice,
                                      .seed = 1,
                                      .options = &(struct sim_options){.devices = made, .ready = watch_peak}},
                 &result);
        const char *failure = checkers_failure(under_watch.checkers);
        if (scale == 1 && (failure == NULL || strstr(failure, "their operations at peak take") == NULL))
            fail_msg("said: %s", failure == NULL ? "nothing" : failure);
        if (scale > 1 && failure != NULL)
            fail_msg("said: %s", failure);
        run_result_free(&result);
        prefill_peak_free(under_watch.peak);
        checkers_free(under_watch.checkers);
        deployment_free(under_watch.deployment);
        free(scenario);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_follow_each_other),       cmocka_unit_test(decoding_sequences_fill_the_stages),
        cmocka_unit_test(mixed_instances_under_pressure), cmocka_unit_test(prompts_are_cancelled_in_the_stages),
        cmocka_unit_test(steps_beyond_peak_are_found),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
