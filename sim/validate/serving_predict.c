/* What the simulator says of a measured row: the project's own scheduler in the closed loop of the benchmark. */
#include "sim/validate/serving.h"

#include "base/arith.h"
#include "sim/sim_run.h"
#include "host/thread_pool.h"

#include <stdlib.h>
#include <string.h>

/* The benchmark sends ten requests a client. */
#define REQUESTS_PER_CLIENT 10
#define SEED 1

struct serving_constants serving_neutral(const struct serving *serving, const struct serving_row *row)
{
    const struct scenario *base = serving->bases[row->base];
    const struct engine *engine = &base->pools[0].engine;
    return (struct serving_constants){.host_ns = engine->host_ns,
                                      .host_sequence_ns = engine->host_sequence_ns,
                                      .prefill_permille = engine_prefill_permille(engine, base->model.experts)};
}

/* ---- The row as a scenario -------------------------------------------------------------------------------------- */

static void set_pool(struct pool *pool, const struct serving_row *row, const struct serving_side *side,
                     const struct serving_constants *constants)
{
    pool->sharding_count = 1;
    pool->shardings[0] = side->parallelism;
    pool->count = side->workers;
    pool->memory_utilization_permille = row->memory_permille;
    pool->scheduler.token_budget = row->budget;
    pool->scheduler.batch_max = row->batch_max;
    pool->engine.host_ns = constants->host_ns;
    pool->engine.host_sequence_ns = constants->host_sequence_ns;
    pool->engine.prefill_permille = pool->engine.prefill_experts_permille = constants->prefill_permille;
    pool->engine.receive_steps = row->receive_steps;
    pool->engine.gather_steps = row->gather_steps;
}

/* Lengths as the benchmark draws them: from 0.8 of the nominal one to all of it. */
static struct length_distribution lengths_of(const struct serving_row *row, uint32_t nominal)
{
    if (row->private_series)
        return (struct length_distribution){.kind = LENGTH_CONSTANT, .low = nominal, .high = nominal};
    return (struct length_distribution){.kind = LENGTH_UNIFORM, .low = nominal * 4 / 5, .high = nominal};
}

static struct scenario *scenario_of(const struct serving *serving, const struct serving_row *row,
                                    const struct serving_constants *constants)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    CHECK(scenario != NULL);
    memcpy(scenario, serving->bases[row->base], sizeof *scenario);
    scenario->model.kv_format = row->kv;
    if (row->disaggregated) {
        set_pool(&scenario->pools[0], row, &row->prefill, constants);
        set_pool(&scenario->pools[1], row, &row->decode, constants);
        if (row->decode_batch_max > 0)
            scenario->pools[1].scheduler.batch_max = row->decode_batch_max;
        if (row->slots > scenario->model.experts)
            scenario->pools[1].experts_redundant = row->slots - scenario->model.experts;
        scenario->messenger.handoffs_max = 1024;
    } else {
        set_pool(&scenario->pools[0], row, &row->mixed, constants);
    }
    scenario->load.concurrency = row->concurrency;
    scenario->load.requests = row->concurrency * REQUESTS_PER_CLIENT;
    scenario->load.prompt = lengths_of(row, row->prompt);
    scenario->load.output = lengths_of(row, row->output);
    return scenario;
}

/* ---- Running it ------------------------------------------------------------------------------------------------- */

struct sums {
    uint64_t requests;
    uint64_t with_tpot;
    double ttft_ns; /* whole numbers below 2^53: sums of them are exact */
    double tpot_ns;
};

static bool on_row(void *self, const struct request_row *row, bool met)
{
    (void)met;
    struct sums *sums = self;
    if (row->outcome != OUTCOME_COMPLETED)
        return true;
    int64_t first = row->boundary_ns[BOUNDARY_FIRST_TOKEN];
    sums->requests++;
    sums->ttft_ns += (double)(first - row->boundary_ns[BOUNDARY_ARRIVED]);
    if (row->output_tokens > 1) {
        sums->with_tpot++;
        sums->tpot_ns += (double)((row->boundary_ns[BOUNDARY_FINISHED] - first) / (int64_t)(row->output_tokens - 1));
    }
    return true;
}

struct serving_prediction serving_predict(const struct serving *serving, const struct serving_row *row,
                                          const struct serving_constants *constants)
{
    struct serving_prediction prediction = {.fits = false};
    struct scenario *scenario = scenario_of(serving, row, constants);
    struct deployment_choice choice = deployment_default(scenario);
    struct sums sums = {0};
    struct run_config config = {
        .scenario = scenario, .choice = &choice, .seed = SEED, .listener = {.self = &sums, .row = on_row}};
    struct run_result result;
    run_play(&sim_backend, &config, &result);
    if (result.status == RUN_COMPLETE && sums.requests == scenario->load.requests && sums.with_tpot > 0) {
        prediction.fits = true;
        prediction.ttft_ns = (int64_t)(sums.ttft_ns / (double)sums.requests) + constants->ttft_offset_ns;
        prediction.tpot_ns = (int64_t)(sums.tpot_ns / (double)sums.with_tpot);
    }
    run_result_free(&result);
    free(scenario);
    return prediction;
}

int64_t serving_one_prefill_ns(const struct serving *serving, const struct serving_row *row)
{
    struct serving_constants constants = serving_neutral(serving, row);
    struct scenario *scenario = scenario_of(serving, row, &constants);
    struct deployment_choice choice = deployment_default(scenario);
    struct run_models models;
    char error[1024];
    int64_t ns = 0;
    if (run_models_make(scenario, &choice, &models, error, sizeof error)) {
        uint64_t tokens = row->private_series ? row->prompt : row->prompt * UINT64_C(9) / 10;
        struct step_group group = {
            .prefill_sequences = 1, .prefill_tokens = tokens, .prefill_pairs = tokens * (tokens + 1) / 2};
        struct step_time time;
        device_step(models.pool[0], &group, 1, &time);
        ns = time.total_ns;
        run_models_free(&models);
    }
    free(scenario);
    return ns;
}

static void sweep_row(void *context, uint32_t index)
{
    const struct serving_sweep *sweep = context;
    const struct serving_row *row = &sweep->serving->rows[index];
    sweep->predictions[index] = (struct serving_prediction){.fits = false};
    if (row->rule != SERVING_KEPT || !sweep->wanted(row))
        return;
    struct serving_constants constants = serving_neutral(sweep->serving, row);
    if (sweep->constants != NULL)
        constants = sweep->constants[row->deployment];
    sweep->predictions[index] = serving_predict(sweep->serving, row, &constants);
}

bool serving_predict_all(const struct serving_sweep *sweep, uint32_t threads)
{
    struct serving_sweep copy = *sweep;
    return workers_run(threads, sweep->serving->row_count, sweep_row, &copy);
}
