/* Measured transfers beside the network model: single writes and streams of them, the KV of whole prompts, and the
 * table of layer-wise transfer, which is also a table of times to the first token. */
#include "sim/validate/validate.h"

#include "base/arith.h"
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"
#include "sim/net/network.h"
#include "sim/sim_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERCENT INT64_C(10000)
#define SEED 1

/* ---- One flow between two instances ----------------------------------------------------------------------------- */

/* `units` writes a rank, layer and plane of `run_bytes`, rank i to rank i; when the last byte is counted, and when it
 * has left. */
struct flow_time {
    int64_t landed_ns;
    int64_t sent_ns;
};

static struct flow_time flow_time(const struct nic *nic, uint16_t ranks, uint16_t layers, uint16_t planes,
                                  uint32_t units, uint32_t run_bytes)
{
    struct network_node nodes[2];
    struct transfer_plan *plan = calloc(1, sizeof *plan);
    CHECK(plan != NULL);
    *plan = (struct transfer_plan){.planes = planes, .layers = layers, .pair_count = ranks};
    for (uint16_t i = 0; i < ranks; i++)
        plan->pairs[i] = (struct transfer_pair){
            .source_rank = i, .destination_rank = i, .layer_count = layers, .runs = 1, .run_bytes = run_bytes};
    plan->writes_per_unit = (uint64_t)ranks * layers * planes;
    plan->bytes_per_unit = plan->writes_per_unit * run_bytes;
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] = (struct network_node){.ranks = ranks, .nvlink_domain = i, .hardware = {.nic = *nic}};
    struct network *network = network_make(nodes, 2, false);
    network_start(network, 0, &(struct flow_spec){.destination = 1, .plan = plan, .units = units});
    struct flow_done done;
    int64_t now_ns;
    do {
        now_ns = network_next_ns(network);
        CHECK(now_ns != TIME_NEVER);
    } while (!network_advance(network, now_ns, &done));
    network_free(network);
    free(plan);
    return (struct flow_time){.landed_ns = done.landed_ns, .sent_ns = now_ns};
}

/* The NIC of a shipped machine. */
static bool nic_of(const char *machine, struct nic *nic, struct user_error *error)
{
    char path[1200];
    char value[64];
    snprintf(path, sizeof path, "%s/validation/serving.lua", scenario_library_root());
    snprintf(value, sizeof value, "require \"hardware.%s\"", machine);
    const struct scenario_override set = {"pools.mixed.machine", value};
    struct scenario *scenario = scenario_load(path, &set, 1, error);
    if (scenario == NULL)
        return false;
    *nic = scenario->pools[0].hardware.nic;
    scenario_free(scenario);
    return true;
}

/* ---- Writes of one NIC ------------------------------------------------------------------------------------------ */

bool validate_nics(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    static const uint32_t stream = 10000; /* writes */
    (void)options;
    struct csv_table table;
    struct nic nics[2];
    if (!nic_of("h200", &nics[0], error) || !nic_of("h200-efa", &nics[1], error) ||
        !csv_table_load("validation/nics.csv", &table, error))
        return false;
    struct validation *v = validation_add(
        set, "nics", "NIC tables, single and paged writes (the profiles were fitted to them)", 3 * PERCENT, 0);
    for (uint32_t i = 0; i < table.row_count; i++) {
        const char *name = csv_text(&table, i, 0);
        bool single = strcmp(csv_text(&table, i, 1), "single") == 0;
        uint32_t bytes = (uint32_t)csv_integer(&table, i, 2, 0);
        int64_t mbit_s = csv_integer(&table, i, 3, 0);
        uint32_t writes = single ? 1 : stream;
        const struct nic *nic = &nics[strcmp(name, "efa") == 0];
        struct flow_time time = flow_time(nic, 1, 1, 1, writes, bytes);
        int64_t measured_ns = (int64_t)((uint64_t)bytes * writes * 8000 / (uint64_t)mbit_s);
        validation_case(v, measured_ns, single ? time.landed_ns : time.sent_ns, "%s, %s writes of %u KiB", name,
                        single ? "single" : "paged", bytes / 1024);
    }
    v->fitted = v->rows;
    v->constants = 8;
    validation_finish(v);
    csv_table_free(&table);
    return true;
}

/* ---- The KV of whole prompts ------------------------------------------------------------------------------------ */

/* Two constants a setup, from its shortest and its longest prompt: a time before the first byte, and the rate that the
 * NICs of a node reach. They go into a NIC profile, and the network says the rest. */
static void one_setup(struct validation *v, const struct csv_table *table, uint32_t first, uint32_t count)
{
    static const uint16_t ranks = 8;
    static const uint32_t run_bytes = 1 << 20; /* blocks that lie next to one another go together */
    uint32_t kv = csv_column(table, "kv_mb");
    uint32_t transfer = csv_column(table, "transfer_us");
    double bytes[2];
    double ns[2];
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t row = k == 0 ? first : first + count - 1;
        bytes[k] = (double)csv_integer(table, row, kv, 0) * 1e6;
        ns[k] = (double)csv_integer(table, row, transfer, 0) * 1e3;
    }
    double rate = (bytes[1] - bytes[0]) / (ns[1] - ns[0]);
    double before = ns[0] - bytes[0] / rate;
    struct nic nic = {.base_ns = before > 0.0 ? (int64_t)before : 0,
                      .bytes_per_s = (uint64_t)(rate * 1e9 / ranks),
                      .knee_permille = 1000,
                      .queue_depth = 0};
    v->fitted += 2;
    v->constants += 2;
    for (uint32_t i = first + 1; i + 1 < first + count; i++) {
        uint64_t all = (uint64_t)csv_integer(table, i, kv, 0) * 1000000;
        uint32_t units = (uint32_t)max_u64(1, all / ranks / run_bytes);
        struct flow_time time = flow_time(&nic, ranks, 1, 1, units, (uint32_t)(all / ranks / units));
        validation_case(v, csv_integer(table, i, transfer, 0) * 1000, time.landed_ns, "%s, %s tokens",
                        csv_text(table, i, 0), csv_text(table, i, csv_column(table, "prompt")));
    }
}

bool validate_transfers(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    (void)options;
    struct csv_table table;
    if (!csv_table_load("validation/kv-transfers.csv", &table, error))
        return false;
    struct validation *v =
        validation_add(set, "kv-transfers", "KV transfers by prompt length, two constants a setup", 10 * PERCENT, 0);
    for (uint32_t first = 0; first < table.row_count;) {
        uint32_t count = 1;
        while (first + count < table.row_count &&
               strcmp(csv_text(&table, first + count, 0), csv_text(&table, first, 0)) == 0)
            count++;
        one_setup(v, &table, first, count);
        first += count;
    }
    validation_finish(v);
    csv_table_free(&table);
    return true;
}

/* ---- Layer by layer --------------------------------------------------------------------------------------------- */

struct ttft {
    uint32_t count;
    int64_t sum_ns;
};

static bool on_row(void *self, const struct request_row *row, bool met)
{
    (void)met;
    struct ttft *ttft = self;
    ttft->count++;
    ttft->sum_ns += row->boundary_ns[BOUNDARY_FIRST_TOKEN] - row->boundary_ns[BOUNDARY_ARRIVED];
    return true;
}

/* Mean time to the first token of one request at a time, as the shipped scenario describes it, its prefill scaled. */
static int64_t ttft_ns(const char *name, uint32_t prompt, uint32_t prefill_permille, struct user_error *error)
{
    char path[1200];
    char value[32];
    snprintf(path, sizeof path, "%s/%s.lua", scenario_library_root(), name);
    snprintf(value, sizeof value, "%u", prompt);
    const struct scenario_override set = {"load.prompt", value};
    struct scenario *scenario = scenario_load(path, &set, 1, error);
    if (scenario == NULL)
        return 0;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        scenario->pools[p].engine.prefill_permille = prefill_permille;
    struct deployment_choice choice = deployment_default(scenario);
    struct ttft ttft = {0};
    struct run_config config = {
        .scenario = scenario, .choice = &choice, .seed = SEED, .listener = {.self = &ttft, .row = on_row}};
    struct run_result result;
    run_play(&sim_backend, &config, &result);
    if (result.status != RUN_COMPLETE || ttft.count == 0)
        user_error_set(error, path, 0, NULL, "%s", result.text);
    run_result_free(&result);
    scenario_free(scenario);
    return ttft.count == 0 ? 0 : ttft.sum_ns / ttft.count;
}

/* A layer of the last chunk: pages of one KV head a rank, 32 KiB each, keys and values. */
static int64_t layer_ns(const struct nic *nic, uint32_t prompt)
{
    uint32_t chunk = min_u32(prompt, 16384);
    return flow_time(nic, 4, 1, 2, chunk / 128, 32768).landed_ns;
}

/* Two constants from the rows of 4096 and 16384 tokens: a time before the first byte, and what the thread that posts
 * for a rank takes for a write. With them the NIC is asked about the others. */
static struct nic fitted_nic(const struct nic *nic, const struct csv_table *table)
{
    uint32_t transfer = csv_column(table, "transfer_us");
    double writes[2];
    double ns[2];
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t row = 2 * k;
        writes[k] = 2.0 * (double)(csv_integer(table, row, 0, 0) / 128);
        ns[k] = (double)csv_integer(table, row, transfer, 0) * 1e3;
    }
    double posting = (ns[1] - ns[0]) / (writes[1] - writes[0]);
    struct nic fitted = *nic;
    fitted.posting_ps = (int64_t)(posting * 1e3);
    fitted.base_ns = (int64_t)(ns[0] - posting * writes[0]);
    fitted.queue_depth = 0;
    return fitted;
}

static void layer_transfers(struct validation_set *set, const struct csv_table *table, const struct nic *nic)
{
    struct nic fitted = fitted_nic(nic, table);
    for (int k = 0; k < 2; k++) {
        struct validation *v = k == 0 ? validation_add(set, "layerwise-transfer",
                                                       "layer-wise transfer: one layer, no fitted constant", 0, 0)
                                      : validation_add(set, "layerwise-transfer-fit",
                                                       "layer-wise transfer: one layer, two constants", 5 * PERCENT, 0);
        for (uint32_t i = 0; i < table->row_count; i++)
            if (k == 0 || (i != 0 && i != 2))
                validation_case(v, csv_integer(table, i, csv_column(table, "transfer_us"), 0) * 1000,
                                layer_ns(k == 0 ? nic : &fitted, (uint32_t)csv_integer(table, i, 0, 0)),
                                "a layer of %s tokens", csv_text(table, i, 0));
        v->fitted = k == 0 ? 0 : 2;
        v->constants = v->fitted;
        validation_finish(v);
    }
}

/* One of the two tables of TTFT. With `fit`, a scale of prefill and an offset are chosen on two of its rows: 4096 and
 * 65536 tokens. TTFT grows in proportion to the scale but for the decode steps in it, which the offset takes up. */
static void ttft_table(struct validation *v, const struct csv_table *table, const char *name, const char *column,
                       bool fit, struct user_error *error)
{
    static const uint32_t fit_rows[2] = {0, 4};
    uint32_t measured = csv_column(table, column);
    uint32_t scale = 1000;
    int64_t offset_ns = 0;
    if (fit) {
        double ours[2];
        double theirs[2];
        for (int k = 0; k < 2; k++) {
            ours[k] = (double)ttft_ns(name, (uint32_t)csv_integer(table, fit_rows[k], 0, 0), 1000, error);
            theirs[k] = (double)csv_integer(table, fit_rows[k], measured, 0) * 1e3;
        }
        if (error->set)
            return;
        scale = (uint32_t)((theirs[1] - theirs[0]) / (ours[1] - ours[0]) * 1000.0 + 0.5);
        offset_ns = (int64_t)(theirs[0] - ours[0] * scale / 1000.0);
        v->fitted = v->constants = 2;
    }
    for (uint32_t i = 0; i < table->row_count && !error->set; i++) {
        if (fit && (i == fit_rows[0] || i == fit_rows[1]))
            continue;
        uint32_t prompt = (uint32_t)csv_integer(table, i, 0, 0);
        int64_t ours = ttft_ns(name, prompt, scale, error) + offset_ns;
        if (!error->set)
            validation_case(v, csv_integer(table, i, measured, 0) * 1000, ours, "%u tokens", prompt);
    }
    validation_finish(v);
}

bool validate_layerwise(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    static const char *const names[2] = {"layerwise-qwen3-235b-aggregated", "layerwise-qwen3-235b"};
    static const char *const columns[2] = {"colocated_us", "disaggregated_us"};
    static const char *const keys[2][2] = {{"layerwise-colocated", "layerwise-colocated-fit"},
                                           {"layerwise-disaggregated", "layerwise-disaggregated-fit"}};
    static const char *const sources[2][2] = {{"layer-wise transfer: TTFT aggregated, no fitted constant",
                                               "layer-wise transfer: TTFT aggregated, prefill scale and offset"},
                                              {"layer-wise transfer: TTFT disaggregated, no fitted constant",
                                               "layer-wise transfer: TTFT disaggregated, prefill scale and offset"}};
    (void)options;
    struct csv_table table;
    struct nic nic;
    if (!nic_of("h200-efa", &nic, error) || !csv_table_load("validation/layerwise.csv", &table, error))
        return false;
    for (int k = 0; k < 2; k++)
        for (int fit = 0; fit < 2 && !error->set; fit++)
            ttft_table(validation_add(set, keys[k][fit], sources[k][fit], 5 * PERCENT, 0), &table, names[k], columns[k],
                       fit == 1, error);
    layer_transfers(set, &table, &nic);
    csv_table_free(&table);
    return !error->set;
}
