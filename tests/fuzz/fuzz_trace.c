/* Trace files from anyone: whatever the bytes, the reader gives a trace that keeps its promises or says what is wrong.
 *
 * The first byte picks the format ('A'zure, 'M'ooncake, anything else plain CSV), the rest is the file, compressed or
 * not. A trace that was read is also played, the window and the rate taken from its own rows.
 */
#include "world/load/trace_reader.h"
#include "world/load/workload.h"

#include "base/arith.h"
#include "base/limits.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_blocks(const struct trace_file *trace)
{
    CHECK(trace->block_first[0] == 0);
    for (uint32_t i = 0; i < trace->count; i++) {
        uint64_t first = trace->block_first[i];
        CHECK(trace->block_first[i + 1] - first == ceil_div_u32(trace->prompt_tokens[i], trace->block_tokens));
        for (uint64_t block = first; block < trace->block_first[i + 1]; block++)
            CHECK(trace->blocks[block] != 0);
    }
}

static void check_trace(const struct trace_file *trace)
{
    CHECK(trace->count >= 1 && trace->arrival_ns[0] == 0);
    uint64_t prompts = 0;
    for (uint32_t i = 0; i < trace->count; i++) {
        CHECK(i == 0 || trace->arrival_ns[i] >= trace->arrival_ns[i - 1]);
        CHECK(trace->prompt_tokens[i] >= 1 && trace->output_tokens[i] >= 1);
        CHECK((uint64_t)trace->prompt_tokens[i] + trace->output_tokens[i] <= REQUEST_TOKENS_MAX);
        prompts += trace->prompt_tokens[i];
    }
    CHECK(prompts == trace->prompt_tokens_sum);
    CHECK((trace->format == TRACE_FORMAT_MOONCAKE_JSONL) == (trace->block_tokens != 0));
    if (trace->block_tokens != 0)
        check_blocks(trace);
}

static void play(const struct trace_file *trace, const struct load *load, uint64_t seed)
{
    struct user_error error = {.set = false};
    struct workload *workload = workload_create(load, seed, trace, &error);
    CHECK((workload == NULL) == error.set);
    if (workload == NULL)
        return;
    struct workload_summary summary;
    workload_describe(workload, &summary);
    struct workload_item item;
    uint32_t requests = 0;
    int64_t last_ns = 0;
    while (workload_next(workload, &item)) {
        CHECK(item.arrival_ns >= last_ns);
        last_ns = item.arrival_ns;
        if (item.is_abort)
            continue;
        CHECK(item.spec.id == requests);
        requests++;
        CHECK(item.arrival_ns <= summary.span_ns);
        CHECK(load->duration_ns == 0 || item.arrival_ns < load->duration_ns);
    }
    CHECK(requests == summary.requests);
    workload_free(workload);
}

static void play_all(const struct trace_file *trace)
{
    struct load load = {.arrivals = ARRIVAL_TRACE, .trace.format = trace->format, .trace_repeat = 2};
    play(trace, &load, 1);
    load.requests = trace->count;
    load.rate_micro_per_s = 1 + trace->prompt_tokens_sum;
    load.trace_window_start_ns = trace->arrival_ns[trace->count / 2];
    load.abort_permille = 500;
    load.abort_after_ns = NS_PER_S;
    play(trace, &load, trace->fingerprint);
    load.trace_window_ns = 1 + trace->arrival_ns[trace->count - 1] / 2;
    load.duration_ns = NS_PER_S * trace->prompt_tokens[0];
    play(trace, &load, 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return 0;
    enum trace_format format = bytes[0] == 'A'   ? TRACE_FORMAT_AZURE_CSV
                               : bytes[0] == 'M' ? TRACE_FORMAT_MOONCAKE_JSONL
                                                 : TRACE_FORMAT_CSV;
    struct user_error error = {.set = false};
    struct trace_file *trace =
        trace_file_read_memory(bytes + 1, size - 1, "fuzz", &(struct trace_options){.format = format}, &error);
    CHECK((trace == NULL) == error.set);
    if (trace == NULL) {
        CHECK(strncmp(error.text, "fuzz:", 5) == 0);
        return 0;
    }
    check_trace(trace);
    play_all(trace);
    trace_file_free(trace);
    return 0;
}
