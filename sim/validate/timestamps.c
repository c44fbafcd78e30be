/* Requests of a recorded vLLM server, one by one: the project's scheduler with a device made of a profiler's tables,
 * given the same arrivals. What is compared are the means of TTFT, TPOT and latency. */
#include "sim/validate/validate.h"

#include "base/arith.h"
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"
#include "model/footprint.h"
#include "sim/sim_run.h"
#include "sim/validate/profile_device.h"

#include <stdio.h>
#include <stdlib.h>

#define PERCENT INT64_C(10000)
#define SEED 1

/* As the servers were started and as they say of themselves. */
struct server {
    struct profile_shape shape;
    const char *model;
    uint32_t batch_max;
    uint32_t kv_tokens;    /* num_kv_tokens; 0: from memory */
    uint64_t memory_bytes; /* of the GPU */
};

static const struct server servers[] = {
    {{"rtx4090-llama-8b", 32, 0}, "llama-3.1-8b", 256, 41408, 0},
    {{"rtxpro6000-llama-8b", 32, 0}, "llama-3.1-8b", 128, 0, UINT64_C(96) << 30},
};

struct means {
    uint64_t count;
    uint64_t with_tpot;
    double ttft;
    double tpot;
    double latency;
};

static void add(struct means *means, int64_t arrival_ns, int64_t first_ns, int64_t last_ns, uint32_t output)
{
    means->count++;
    means->ttft += (double)(first_ns - arrival_ns);
    means->latency += (double)(last_ns - arrival_ns);
    if (output > 1) {
        means->with_tpot++;
        means->tpot += (double)((last_ns - first_ns) / (int64_t)(output - 1));
    }
}

static bool on_row(void *self, const struct request_row *row, bool met)
{
    (void)met;
    if (row->outcome == OUTCOME_COMPLETED)
        add(self, row->boundary_ns[BOUNDARY_ARRIVED], row->boundary_ns[BOUNDARY_FIRST_TOKEN],
            row->boundary_ns[BOUNDARY_FINISHED], row->output_tokens);
    return true;
}

/* Memory with which the pool gets exactly so many tokens' pages. */
static void set_memory(struct scenario *scenario, const struct server *server)
{
    struct pool *pool = &scenario->pools[0];
    if (server->kv_tokens == 0) {
        pool->hardware.memory_bytes = server->memory_bytes;
        return;
    }
    struct kv_geometry geometry;
    struct footprint footprint;
    CHECK(kv_geometry_make(&scenario->model, pool->shardings[0], pool->page_tokens, pool->layout, &geometry) ==
          GEOMETRY_OK);
    uint64_t activations = footprint_activation_bytes(&scenario->model, &geometry, pool->scheduler.token_budget,
                                                      pool->scheduler.batch_max);
    footprint_kv_pages(&scenario->model, &geometry, UINT64_C(1) << 40, MEMORY_SHARE_GPU, 1000, activations, &footprint);
    pool->memory_utilization_permille = 1000;
    pool->hardware.memory_bytes =
        footprint.weight_bytes + activations + (uint64_t)(server->kv_tokens / pool->page_tokens) * footprint.page_bytes;
}

static struct scenario *scenario_of(const struct server *server, struct user_error *error)
{
    char path[1200];
    char model[64];
    snprintf(path, sizeof path, "%s/validation/timestamps.lua", scenario_library_root());
    snprintf(model, sizeof model, "require \"models.%s\"", server->model);
    const struct scenario_override set = {.path = "model", .value = model};
    struct scenario *scenario = scenario_load(path, &set, 1, error);
    if (scenario == NULL)
        return NULL;
    scenario->pools[0].scheduler.batch_max = server->batch_max;
    set_memory(scenario, server);
    scenario->load = (struct load){.arrivals = ARRIVAL_TRACE, .trace.format = TRACE_FORMAT_CSV, .trace_repeat = 1};
    snprintf(scenario->load.trace_path, sizeof scenario->load.trace_path, "%s/validation/timestamps-%s.csv.xz",
             scenario_library_root(), server->shape.name);
    return scenario;
}

static bool measured_means(const struct server *server, struct means *means, struct user_error *error)
{
    char name[128];
    struct csv_table table;
    snprintf(name, sizeof name, "validation/timestamps-%s.csv.xz", server->shape.name);
    if (!csv_table_load(name, &table, error))
        return false;
    uint32_t arrival = csv_column(&table, "arrival_us");
    uint32_t first = csv_column(&table, "first_us");
    uint32_t last = csv_column(&table, "last_us");
    uint32_t output = csv_column(&table, "output_tokens");
    for (uint32_t i = 0; i < table.row_count; i++)
        add(means, csv_integer(&table, i, arrival, 0) * 1000, csv_integer(&table, i, first, 0) * 1000,
            csv_integer(&table, i, last, 0) * 1000, (uint32_t)csv_integer(&table, i, output, 0));
    csv_table_free(&table);
    return true;
}

static void compare(struct validation *v, const struct server *server, const struct means *measured,
                    const struct means *ours)
{
    const char *name = server->shape.name;
    double n = (double)measured->count;
    double m = (double)ours->count;
    validation_case(v, (int64_t)(measured->ttft / n), (int64_t)(ours->ttft / m), "%s, mean TTFT", name);
    validation_case(v, (int64_t)(measured->tpot / (double)measured->with_tpot),
                    (int64_t)(ours->tpot / (double)ours->with_tpot), "%s, mean TPOT", name);
    validation_case(v, (int64_t)(measured->latency / n), (int64_t)(ours->latency / m), "%s, mean latency", name);
}

static bool one_server(struct validation *v, const struct server *server, struct user_error *error)
{
    struct means measured = {0};
    struct means ours = {0};
    struct profile_shape shape = server->shape;
    struct scenario *scenario = measured_means(server, &measured, error) ? scenario_of(server, error) : NULL;
    if (scenario == NULL)
        return false;
    shape.host_ns = scenario->pools[0].engine.host_ns;
    struct profile_device *profile = profile_device_make(&shape, error);
    struct trace_file *trace =
        profile == NULL ? NULL : trace_file_read(scenario->load.trace_path, &scenario->load.trace, error);
    if (trace != NULL) {
        struct deployment_choice choice = deployment_default(scenario);
        struct device device = profile_device_of(profile);
        struct run_config config = {.scenario = scenario,
                                    .choice = &choice,
                                    .seed = SEED,
                                    .recorded = trace,
                                    .options = &(struct sim_options){.devices = &device},
                                    .listener = {.self = &ours, .row = on_row}};
        struct run_result result;
        run_play(&sim_backend, &config, &result);
        if (result.status != RUN_COMPLETE || ours.count != measured.count)
            user_error_set(error, scenario->path, 0, NULL, "%s: %s", shape.name, result.text);
        else
            compare(v, server, &measured, &ours);
        run_result_free(&result);
    }
    trace_file_free(trace);
    profile_device_free(profile);
    scenario_free(scenario);
    return !error->set;
}

bool validate_timestamps(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    (void)options;
    struct validation *v = validation_add(
        set, "timestamps", "requests of recorded vLLM servers: mean TTFT, TPOT, latency", 5 * PERCENT, 0);
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++)
        if (!one_server(v, &servers[i], error))
            return false;
    validation_excluded(v, "X", "Qwen3-30B-A3B on two GPUs: what they exchange was not profiled", 3);
    validation_finish(v);
    return true;
}
