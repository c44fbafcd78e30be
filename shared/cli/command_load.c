/* tandem load: the requests of a scenario's load as a file that load testers read. */
#include "base/arith.h"
#include "base/index_map.h"
#include "cli/commands.h"
#include "host/memory.h"
#include "run/run.h"
#include "world/load/workload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One pass over the load, as if every request were answered at once: what follows an answer then comes after its delay.
 * `file` NULL: counts alone. */
struct passing {
    FILE *file;
    struct index_map names; /* of prefix blocks, by hash: numbers from 0 on, as they appear */
    uint64_t requests;
    uint64_t blocks;
    uint64_t aborts;
    uint32_t block_tokens;
    int64_t *turn_ns; /* by conversation: when its last turn came; -1: there was none */
    uint32_t conversations;
};

static void write_ms(FILE *file, const char *key, int64_t ns)
{
    fprintf(file, "\"%s\": %" PRId64, key, ns / NS_PER_MS);
    if (ns % NS_PER_MS != 0)
        fprintf(file, ".%06" PRId64, ns % NS_PER_MS);
}

static void write_blocks(struct passing *passing, const struct request_spec *spec)
{
    fprintf(passing->file, ", \"hash_ids\": [");
    for (uint32_t b = 0; b < spec->block_count; b++) {
        uint32_t name = index_map_get(&passing->names, spec->blocks[b]);
        if (name == INDEX_NONE) {
            name = passing->names.count;
            index_map_put(&passing->names, spec->blocks[b], name);
        }
        fprintf(passing->file, "%s%" PRIu32, b == 0 ? "" : ", ", name);
    }
    fputc(']', passing->file);
}

/* Of a conversation the first turn has a time, the others their delay after the answer. */
static void write_request(struct passing *passing, const struct workload_item *item, uint32_t conversation)
{
    FILE *file = passing->file;
    fputc('{', file);
    int64_t before_ns = conversation < passing->conversations ? passing->turn_ns[conversation] : -1;
    if (conversation > 0)
        fprintf(file, "\"session_id\": \"%" PRIu32 "\", ", conversation);
    if (before_ns >= 0)
        write_ms(file, "delay", item->arrival_ns - before_ns);
    else
        write_ms(file, "timestamp", item->arrival_ns);
    fprintf(file, ", \"input_length\": %" PRIu32 ", \"output_length\": %" PRIu32, item->spec.prompt_tokens,
            item->spec.output_tokens);
    if (item->spec.block_count > 0)
        write_blocks(passing, &item->spec);
    fputs("}\n", file);
}

static void note_turn(struct passing *passing, uint32_t conversation, int64_t arrival_ns)
{
    if (conversation >= passing->conversations) {
        uint32_t count = max_u32(conversation + 1, 2 * passing->conversations);
        passing->turn_ns = memory_resized(passing->turn_ns, count * sizeof *passing->turn_ns);
        for (uint32_t c = passing->conversations; c < count; c++)
            passing->turn_ns[c] = -1;
        passing->conversations = count;
    }
    passing->turn_ns[conversation] = arrival_ns;
}

static bool pass(struct passing *passing, const struct scenario *scenario, uint64_t seed,
                 const struct trace_file *recorded, struct user_error *error)
{
    struct workload *workload = workload_create(&scenario->load, seed, recorded, error);
    struct workload_item item;
    if (workload == NULL)
        return false;
    bool sessions = scenario->load.arrivals == ARRIVAL_SESSIONS;
    while (workload_next(workload, &item)) {
        passing->aborts += item.is_abort;
        if (item.is_abort)
            continue;
        uint32_t conversation = sessions ? workload_conversation(workload, item.spec.id) : 0;
        passing->requests++;
        passing->blocks += item.spec.block_count;
        passing->block_tokens = item.spec.block_count > 0 ? item.spec.block_tokens : passing->block_tokens;
        if (passing->file != NULL) {
            write_request(passing, &item, conversation);
            if (conversation > 0)
                note_turn(passing, conversation, item.arrival_ns);
        }
        workload_answered(workload, item.spec.id, item.arrival_ns);
    }
    workload_free(workload);
    return true;
}

static void tell(const struct passing *passing, const struct command_context *command)
{
    fprintf(command->err, "%" PRIu64 " requests", passing->requests);
    if (passing->block_tokens != 0)
        fprintf(command->err, "; prefix blocks have %" PRIu32 " tokens, which the file does not say",
                passing->block_tokens);
    if (passing->turn_ns != NULL)
        fprintf(command->err, "; a turn's input_length is of all its prompt, what was said before included");
    if (passing->aborts > 0)
        fprintf(command->err, "; nor that %" PRIu64 " clients go away", passing->aborts);
    fputc('\n', command->err);
}

static bool write_all(const struct scenario *scenario, uint64_t seed, const struct trace_file *recorded,
                      const struct command_context *command, const char *path, struct user_error *error)
{
    struct passing passing = {.file = NULL};
    if (!pass(&passing, scenario, seed, recorded, error))
        return false;
    FILE *file = path == NULL ? command->out : fopen(path, "w");
    if (file == NULL) {
        user_error_set(error, path, 0, NULL, "%s", strerror(errno));
        return false;
    }
    struct arena measure = arena_measure();
    uint32_t capacity = (uint32_t)min_u64(passing.blocks + 1, INDEX_NONE / 4);
    index_map_make(&passing.names, &measure, capacity);
    void *memory = memory_aligned(measure.used);
    struct arena arena = arena_over(memory, measure.used);
    index_map_make(&passing.names, &arena, capacity);
    struct passing second = {.file = file, .names = passing.names};
    bool good = pass(&second, scenario, seed, recorded, error);
    if ((path != NULL ? fclose(file) : fflush(file)) != 0)
        user_error_set(error, path, 0, NULL, "%s", strerror(errno));
    if (good && !error->set)
        tell(&second, command);
    free(second.turn_ns);
    free(memory);
    return !error->set;
}

static int load(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct scenario_sets sets = {.count = 0};
    struct scenario *scenario = NULL;
    struct trace_file *recorded = NULL;
    if (scenario_sets_read(arguments, &sets, error))
        scenario = scenario_load(operand(arguments, 0), sets.sets, sets.count, error);
    if (scenario != NULL) {
        int64_t seed = argument_integer(arguments, "seed", (int64_t)scenario->seed);
        const struct load *what = &scenario->load;
        recorded = scenario_trace(scenario, error);
        if (load_is_closed(what))
            user_error_set(error, scenario->path, 0, "load", "a closed loop has no times that a file could hold");
        else if (!error->set)
            write_all(scenario, (uint64_t)seed, recorded, command, argument_text(arguments, "out"), error);
        trace_file_free(recorded);
        scenario_free(scenario);
    }
    scenario_sets_free(&sets);
    return error->set ? EXIT_USER : EXIT_OK;
}

static const struct option load_options[] = {
    {"out", "FILE", "where to write them (the answer)", OPTION_TEXT},
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    HARDWARE_OPTION,
    {"seed", "N", "of the load (the scenario's)", OPTION_INTEGER},
    {NULL, NULL, NULL, OPTION_FLAG},
};

const struct command command_load = {
    .name = "load",
    .operands = "SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "the requests of the scenario's load, as a file that load testers read",
    .description =
        "JSON lines as Mooncake's traces have them, which AIPerf (mooncake_trace), GuideLLM (trace_synthetic) and\n"
        "tandem's own trace loads read: times in milliseconds, lengths, prefix blocks as hash_ids, and of a\n"
        "conversation's later turns the delay after the answer. What the file cannot say is told.",
    .options = load_options,
    .run = load,
};
