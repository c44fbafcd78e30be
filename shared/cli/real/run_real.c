/* See commands.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/real/run_real.h"

#include "base/arith.h"
#include "cli/report_run.h"
#include "host/build_info.h"
#include "host/interrupt.h"
#include "real/control/bind_address.h"
#include "real/control/mesh.h"
#include "real/cluster/children.h"
#include "real/fabric/fabric.h"
#include "real/fabric/lifeline.h"
#include "real/executor/executor.h"
#include "real/cluster/instance_process.h"
#include "real/cluster/launcher.h"
#include "real/cluster/pmix_wire.h"
#include "real/memory/shared_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WINDOW_DEFAULT 64
#define LIMIT_S_DEFAULT 600

const char *const run_real_alone[] = {"provider", "device", "bind",   "nics",          "window", "heartbeats",
                                      "limit",    "verify", "tokens", "record-events", NULL};

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static bool number(const struct arguments *arguments, const char *name, int64_t least, int64_t most, int64_t otherwise,
                   int64_t *value, struct user_error *error)
{
    *value = argument_integer(arguments, name, otherwise);
    if (*value >= least && *value <= most)
        return true;
    user_error_set(error, NULL, 0, NULL, "--%s: %" PRId64 " is not between %" PRId64 " and %" PRId64, name, *value,
                   least, most);
    return false;
}

/* One address or network a NIC, separated by commas; the first is that of the control plane, too. */
static bool read_addresses(struct real_options *options, char *why, size_t why_size)
{
    const char *at = options->bind;
    for (uint32_t i = 0;; i++) {
        char text[CONTROL_ADDRESS_BYTES];
        size_t length = strcspn(at, ",");
        if (i == FABRIC_NICS_MAX || length >= sizeof text) {
            snprintf(why, why_size, "at most %u addresses, and none of more than %zu letters", FABRIC_NICS_MAX,
                     sizeof text - 1);
            return false;
        }
        memcpy(text, at, length);
        text[length] = '\0';
        if (!bind_address(text, i == 0 ? options->address : options->more[i - 1], why, why_size))
            return false;
        options->more_count = i;
        if (at[length] == '\0')
            return true;
        at += length + 1;
    }
}

static bool read_options(const struct arguments *arguments, struct real_options *options, struct user_error *error)
{
    int64_t nics;
    int64_t window;
    int64_t heartbeats;
    int64_t limit_s;
    if (!number(arguments, "nics", 0, FABRIC_NICS_MAX, 0, &nics, error) ||
        !number(arguments, "window", 1, 4096, WINDOW_DEFAULT, &window, error) ||
        !number(arguments, "heartbeats", 1, 10000, HEARTBEATS_MISSED_DEFAULT, &heartbeats, error) ||
        !number(arguments, "limit", 1, 1000000, LIMIT_S_DEFAULT, &limit_s, error))
        return false;
    const char *device = argument_text(arguments, "device");
    const char *bind = argument_text(arguments, "bind");
    *options = (struct real_options){
        .provider = argument_text(arguments, "provider"),
        .device = device == NULL ? "host" : device,
        .bind = bind == NULL ? "127.0.0.1" : bind,
        .nics = (uint32_t)nics,
        .window = (uint32_t)window,
        .heartbeats_missed = (uint32_t)heartbeats,
        .verify = argument_flag(arguments, "verify"),
        .record_events = argument_text(arguments, "record-events"),
        .tokens = argument_text(arguments, "tokens"),
        .limit_ns = limit_s * NS_PER_S,
    };
    char why[512];
    if (!read_addresses(options, why, sizeof why)) {
        user_error_set(error, NULL, 0, NULL, "--bind: %s", why);
        return false;
    }
    /* Said once here, and not by every instance. */
    if (!fabric_here(options->provider, options->address, why, sizeof why)) {
        user_error_set(error, NULL, 0, NULL, "--provider: %s", why);
        return false;
    }
    if (executor_device(options->device, why, sizeof why) == NULL) {
        user_error_set(error, NULL, 0, NULL, "--device: %s", why);
        return false;
    }
    if (options->record_events != NULL && mkdir(options->record_events, 0777) != 0 && errno != EEXIST) {
        user_error_set(error, options->record_events, 0, NULL, "cannot be made: %s", strerror(errno));
        return false;
    }
    return true;
}

/* The devices that the user asked for are there. */
static bool devices_there(const struct real_options *options, struct user_error *error)
{
    char why[256] = "";
    const struct device_ops *ops = executor_device(options->device, why, sizeof why);
    if (ops != NULL && ops->count != NULL && ops->count(why, sizeof why) == 0)
        user_error_set(error, NULL, 0, NULL, "--device: %s: %s", options->device, why);
    return !error->set;
}

/* One line where devices are shared. */
static void tell_sharing(const struct real_options *options, const struct real_world *world, FILE *err)
{
    char why[256];
    const struct device_ops *ops = executor_device(options->device, why, sizeof why);
    uint32_t ranks = real_world_ranks_before(world, world->deployment->node_count);
    uint32_t count = ops->count == NULL ? 0 : ops->count(why, sizeof why);
    if (count > 0 && count < ranks)
        fprintf(err, "%" PRIu32 " ranks on %" PRIu32 " %s device%s: several share one\n", ranks, count, ops->name,
                count == 1 ? "" : "s");
}

/* ---- One stored run ---------------------------------------------------------------------------------------------- */

struct stream {
    struct results *store;
    struct user_error *error;
    FILE *err;
};

static bool on_row(void *self, const struct request_row *row)
{
    struct stream *stream = self;
    return results_add_request(stream->store, row, stream->error);
}

static void on_steps(void *self, const struct step_row *row)
{
    struct stream *stream = self;
    results_add_step(stream->store, row, stream->error);
}

static void on_transfer(void *self, const struct transfer_row *row)
{
    struct stream *stream = self;
    results_add_transfer(stream->store, row, stream->error);
}

static void on_notice(void *self, const char *text)
{
    fprintf(((struct stream *)self)->err, "%s\n", text);
}

static int64_t begin(struct results *store, const struct real_world *world, const struct scenario_override *sets,
                     size_t set_count, uint32_t record, int64_t replay_of, struct user_error *error)
{
    const struct scenario *scenario = world->scenario;
    struct results_param params[RUN_PARAMS_MAX];
    char replayed[24];
    uint32_t param_count = run_params(sets, set_count, params);
    param_count += run_replay_param(replay_of, replayed, &params[param_count]);
    char *canonical = scenario_canonical(scenario);
    int64_t row = results_scenario_add(store, scenario->identity, scenario->name, scenario->path, canonical, error);
    free(canonical);
    int64_t build = row == 0 ? 0 : results_build_add(store, build_identity, build_version, error);
    if (build == 0)
        return 0;
    struct results_begin begin = {
        .key = {.scenario = row,
                .build = build,
                .seed = world->seed,
                .backend = RESULTS_REAL,
                .params = params,
                .param_count = param_count},
        .kind = RESULTS_RUN,
        .replay_of = replay_of,
        .record = record | RECORD_SAMPLES,
        .targets = &scenario->targets,
        .compiler = build_compiler,
    };
    return results_run_begin(store, &begin, error);
}

static bool add_sample(struct results *store, uint16_t node, const char *counter, int64_t at_ns, int64_t value,
                       struct user_error *error)
{
    struct sample_row row = {.node = node, .at_ns = at_ns, .value = value};
    snprintf(row.counter, sizeof row.counter, "%s", counter);
    return results_add_sample(store, &row, error);
}

/* What was measured of each node is stored with the run. */
static bool store_meters(struct results *store, const struct launch_result *result, struct user_error *error)
{
    bool good = true;
    for (uint32_t i = 0; good && i < result->instance_count; i++) {
        uint16_t node = result->instances[i].node;
        const struct node_meter *meter = &result->meters[node];
        good =
            add_sample(store, node, "clock_offset_ns", 0, meter->clock_offset_ns, error) &&
            add_sample(store, node, "clock_error_ns", 0, meter->clock_error_ns, error) &&
            (meter->node_ns < 0 || add_sample(store, node, "node_ns", result->summary.end_ns, meter->node_ns, error)) &&
            (meter->staged_bytes == 0 ||
             (add_sample(store, node, "staged_bytes", 0, (int64_t)meter->staged_bytes, error) &&
              add_sample(store, node, "staged_ns", 0, (int64_t)meter->staged_ns, error)));
        for (uint32_t r = 0; good && r < meter->nics.ranks; r++) {
            char counter[48];
            snprintf(counter, sizeof counter, "rank_%" PRIu32 "_nics", r); /* bit n: NIC n */
            good = add_sample(store, node, counter, 0, nic_choice_set(&meter->nics, r), error);
            snprintf(counter, sizeof counter, "rank_%" PRIu32 "_nic_distance", r); /* enum nic_distance */
            good = good && add_sample(store, node, counter, 0, meter->nics.distance[r], error);
        }
    }
    return good;
}

/* One line, where memory of devices went through pinned memory. */
static void tell_staging(const struct launch_result *result, uint32_t node_count, FILE *err)
{
    uint64_t bytes = 0;
    uint64_t ns = 0;
    for (uint32_t i = 1; i < node_count; i++) {
        bytes += result->meters[i].staged_bytes;
        ns += result->meters[i].staged_ns;
    }
    if (bytes > 0 && ns > 0)
        fprintf(err, "staged: %.1f MB between devices and pinned memory, %.1f GB/s while copying\n",
                (double)bytes * 1e-6, (double)bytes / (double)ns);
}

static int status_exit(enum launch_status status)
{
    switch (status) {
    case LAUNCH_COMPLETE:
        return EXIT_OK;
    case LAUNCH_LIMIT:
        return EXIT_NO_PROGRESS;
    case LAUNCH_UNSOUND:
        return EXIT_INVARIANT;
    case LAUNCH_STOPPED:
        return EXIT_INTERRUPTED;
    case LAUNCH_FAILED:
        break;
    }
    return EXIT_USER;
}

struct one_run {
    const struct command_context *command;
    struct results *store;
    const struct real_world *world;
    const struct real_options *options;
    const struct scenario_override *sets;
    size_t set_count;
    uint32_t record;
    const struct replay *replay; /* NULL: the load's own arrivals */
    struct pmix_wire *wire;
};

/* Runs and stores. Returns an exit status, EXIT_OK with the run's id. */
static int run_one(const struct one_run *what, int64_t *run, struct user_error *error)
{
    struct stream stream = {.store = what->store, .error = error, .err = what->command->err};
    *run = begin(what->store, what->world, what->sets, what->set_count, what->record,
                 what->replay == NULL ? 0 : what->replay->run, error);
    if (*run == 0)
        return EXIT_USER;
    struct launcher_config config = {
        .world = what->world,
        .options = what->options,
        .sets = what->sets,
        .set_count = what->set_count,
        .arrivals = what->replay == NULL ? NULL : &what->replay->arrivals,
        .publish = what->wire->joined ? pmix_wire_publish : NULL,
        .publish_self = what->wire,
        .self = &stream,
        .row = on_row,
        .steps = (what->record & RECORD_STEPS) != 0 ? on_steps : NULL,
        .transfer = (what->record & RECORD_TRANSFERS) != 0 ? on_transfer : NULL,
        .notice = on_notice,
    };
    struct launch_result result;
    int64_t start_ns = clock_now_ns();
    launcher_run(&config, &result);
    int64_t took_ns = clock_now_ns() - start_ns;
    bool stored = result.status == LAUNCH_COMPLETE && !error->set && store_meters(what->store, &result, error) &&
                  results_run_commit(what->store, &result.summary, took_ns, result.instances, result.instance_count,
                                     result.itl, error);
    if (!stored)
        results_run_abort(what->store);
    int exit = status_exit(result.status);
    if (!stored && !error->set && exit != EXIT_INTERRUPTED)
        fprintf(what->command->err, "%s: %s\n", what->world->scenario->path, result.text);
    if (stored)
        tell_staging(&result, what->world->deployment->node_count, what->command->err);
    if (stored && what->options->verify)
        fprintf(what->command->err, "verified: %" PRIu64 " pieces of transferred KV arrived as they were sent\n",
                result.pieces_verified);
    launch_result_free(&result);
    return error->set ? EXIT_USER : exit;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* What one variant is loaded with: --set, then what varies. */
static size_t all_sets(const struct scenario_sets *sets, const struct scenario_override *overrides, size_t count,
                       struct scenario_override *all)
{
    memcpy(all, sets->sets, sets->count * sizeof *all);
    memcpy(all + sets->count, overrides, count * sizeof *all);
    return sets->count + count;
}

struct sweep {
    const struct command_context *command;
    const struct arguments *arguments;
    struct results *store;
    struct real_options options;
    struct pmix_wire wire;
    struct output output;
    uint32_t record;
    json_t *answers;
};

static int run_variant(struct sweep *sweep, const struct scenario *scenario, const struct scenario_sets *sets,
                       size_t index, struct user_error *error)
{
    struct scenario_override overrides[SCENARIO_VARY_MAX];
    struct scenario_override all[SETS_MAX + SCENARIO_VARY_MAX];
    size_t override_count = scenario_variant_overrides(scenario, index, overrides);
    size_t set_count = all_sets(sets, overrides, override_count, all);
    struct real_world world;
    int64_t run = 0;
    int exit = EXIT_USER;
    if (real_world_load(&world, scenario->path, all, set_count, argument_integer(sweep->arguments, "seed", -1),
                        error)) {
        if (sweep->wire.joined && sweep->wire.size != world.deployment->node_count) {
            user_error_set(error, scenario->path, 0, NULL,
                           "the front and %" PRIu32 " instances want %" PRIu32 " processes of the job, not %" PRIu32,
                           world.deployment->node_count - 1, world.deployment->node_count, sweep->wire.size);
        } else {
            if (!sweep->wire.joined)
                tell_sharing(&sweep->options, &world, sweep->command->err);
            exit = run_one(&(struct one_run){.command = sweep->command,
                                             .store = sweep->store,
                                             .world = &world,
                                             .options = &sweep->options,
                                             .sets = all,
                                             .set_count = set_count,
                                             .record = sweep->record,
                                             .wire = &sweep->wire},
                           &run, error);
            if (exit == EXIT_OK)
                exit = run_tell(sweep->store, run, world.scenario, overrides, override_count, sweep->command,
                                &sweep->output, sweep->answers, error);
        }
    }
    real_world_free(&world);
    return exit;
}

static int run_all(struct sweep *sweep, const struct scenario *scenario, const struct scenario_sets *sets,
                   struct user_error *error)
{
    size_t count = scenario_variant_count(scenario);
    int worst = EXIT_OK;
    if (sweep->wire.joined && count > 1) {
        user_error_set(error, scenario->path, 0, NULL,
                       "under a job's launcher one run at a time: fix `vary` with --set");
        return EXIT_USER;
    }
    sweep->answers = json_array();
    for (size_t i = 0; i < count && !error->set && !interrupt_requested(); i++) {
        int exit = run_variant(sweep, scenario, sets, i, error);
        worst = exit > worst ? exit : worst;
    }
    report_runs(sweep->answers, count > 1, &sweep->output);
    json_decref(sweep->answers);
    return worst;
}

/* Ranks and instances on this machine, of the job's processes before `end`. */
struct neighbours {
    uint32_t ranks;
    uint32_t instances;
};

static struct neighbours neighbours_before(const struct real_world *world, const struct pmix_wire *wire, uint32_t end)
{
    struct neighbours here = {0};
    for (uint32_t i = 1; i < end; i++) {
        if (!pmix_wire_near(wire, i))
            continue;
        here.ranks += world->deployment->instances[i].ranks;
        here.instances++;
    }
    return here;
}

/* A process of somebody else's job, and not its first: an instance. */
static int run_as_instance(struct sweep *sweep, const char *path, const struct scenario_sets *sets,
                           struct user_error *error)
{
    struct real_world world;
    char why[512] = "";
    struct instance_start start = {.world = &world, .options = &sweep->options, .node = sweep->wire.rank};
    bool good =
        real_world_load(&world, path, sets->sets, sets->count, argument_integer(sweep->arguments, "seed", -1), error);
    if (good && sweep->wire.size != world.deployment->node_count) {
        real_world_free(&world);
        return EXIT_OK; /* the launcher says so to the user, and must not be ended before it has */
    }
    if (good) {
        struct neighbours all = neighbours_before(&world, &sweep->wire, world.deployment->node_count);
        start.device_first = neighbours_before(&world, &sweep->wire, start.node).ranks;
        start.crowded = real_world_crowded(all.ranks, all.instances);
        good = pmix_wire_receive(&sweep->wire, start.front_address, &start.front_port, start.token, why, sizeof why) &&
               instance_run(&start, why, sizeof why);
        if (!good)
            fprintf(sweep->command->err, "%s: %s\n", world.deployment->instances[start.node].name, why);
    }
    real_world_free(&world);
    return good ? EXIT_OK : EXIT_USER;
}

int run_real(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct scenario_sets sets;
    char why[512] = "";
    struct sweep sweep = {
        .command = command,
        .arguments = arguments,
        .output = output_to(command->out, argument_text(arguments, "format")),
    };
    int exit = EXIT_USER;
    interrupt_install();
    if (!scenario_sets_read(arguments, &sets, error) || !read_options(arguments, &sweep.options, error) ||
        !run_record_read(arguments, &sweep.record, error)) {
        scenario_sets_free(&sets);
        return EXIT_USER;
    }
    struct scenario *scenario = NULL;
    if (!pmix_wire_join(&sweep.wire, why, sizeof why))
        user_error_set(error, NULL, 0, NULL, "%s", why);
    else if (sweep.wire.joined && sweep.wire.rank > 0)
        exit = run_as_instance(&sweep, operand(arguments, 0), &sets, error);
    else if ((sweep.wire.joined || devices_there(&sweep.options, error)) &&
             (scenario = scenario_load(operand(arguments, 0), sets.sets, sets.count, error)) != NULL) {
        sweep.store = results_open(database_path(arguments), RESULTS_WRITE, error);
        if (sweep.store != NULL) {
            exit = run_all(&sweep, scenario, &sets, error);
            if (!results_close(sweep.store, error))
                exit = EXIT_USER;
        }
        scenario_free(scenario);
    }
    pmix_wire_leave(&sweep.wire);
    scenario_sets_free(&sets);
    return exit;
}

int replay_real(const struct replay *replay, const struct command_context *command, const struct arguments *arguments,
                int64_t *run, struct user_error *error)
{
    struct real_options options;
    struct real_world world = {.scenario = NULL};
    struct pmix_wire alone = {.joined = false};
    int exit = EXIT_USER;
    if (read_options(arguments, &options, error) &&
        real_world_load(&world, replay->path, replay->sets, replay->set_count, (int64_t)replay->seed, error)) {
        uint32_t nodes = world.deployment->node_count;
        fprintf(command->err,
                "run %" PRId64 " is played for real: %" PRIu32 " instances of %" PRIu32
                " ranks in processes of this machine (--backend sim simulates it again)\n",
                replay->run, nodes - 1, real_world_ranks_before(&world, nodes));
        exit = run_one(&(struct one_run){.command = command,
                                         .store = replay->store,
                                         .world = &world,
                                         .options = &options,
                                         .sets = replay->sets,
                                         .set_count = replay->set_count,
                                         .record = replay->record,
                                         .replay = replay,
                                         .wire = &alone},
                       run, error);
    }
    real_world_free(&world);
    return exit;
}

/* ---- Roles ------------------------------------------------------------------------------------------------------- */

static const struct option instance_options[] = {
    {"node", "N", "which one", OPTION_INTEGER},
    {"incarnation", "N", "how many were lost before it", OPTION_INTEGER},
    {"front", "ADDRESS:PORT", "of the front", OPTION_TEXT},
    {"set", "PATH=VALUE", "as given to the launcher", OPTION_LIST},
    {"seed", "N", "as given to the launcher", OPTION_INTEGER},
    {"provider", "NAME", "as given to the launcher", OPTION_TEXT},
    {"device", "host|cuda", "as given to the launcher", OPTION_CHOICE},
    {"bind", "ADDRESS", "as given to the launcher", OPTION_TEXT},
    {"nics", "N", "as given to the launcher", OPTION_INTEGER},
    {"window", "N", "as given to the launcher", OPTION_INTEGER},
    {"heartbeats", "N", "as given to the launcher", OPTION_INTEGER},
    {"limit", "SECONDS", "as given to the launcher", OPTION_INTEGER},
    {"verify", NULL, "as given to the launcher", OPTION_FLAG},
    {"tokens", "FILE", "as given to the launcher: tokens are reported", OPTION_TEXT},
    {"record-events", "FOLDER", "as given to the launcher", OPTION_TEXT},
    {NULL, NULL, NULL, OPTION_FLAG},
};

static bool read_front(const char *text, struct instance_start *start)
{
    const char *colon = text == NULL ? NULL : strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof start->front_address)
        return false;
    memcpy(start->front_address, text, (size_t)(colon - text));
    long port = strtol(colon + 1, NULL, 10);
    start->front_port = (uint16_t)port;
    return port > 0 && port <= UINT16_MAX && token_parse(getenv(JOIN_TOKEN_VARIABLE), start->token);
}

static int run_instance(const struct command_context *command, const struct arguments *arguments,
                        struct user_error *error)
{
    struct scenario_sets sets;
    struct real_options options;
    struct real_world world = {0};
    struct instance_start start = {.world = &world, .options = &options};
    int64_t node;
    int64_t incarnation;
    bool good = false;
    if (scenario_sets_read(arguments, &sets, error) && read_options(arguments, &options, error) &&
        number(arguments, "node", 1, NODES_MAX - 1, 0, &node, error) &&
        number(arguments, "incarnation", 0, UINT32_MAX, 0, &incarnation, error) &&
        real_world_load(&world, operand(arguments, 0), sets.sets, sets.count, argument_integer(arguments, "seed", -1),
                        error)) {
        char why[512] = "";
        start.node = (uint32_t)node;
        start.incarnation = (uint32_t)incarnation;
        uint32_t nodes = world.deployment->node_count;
        start.device_first = real_world_ranks_before(&world, start.node);
        start.crowded = real_world_crowded(real_world_ranks_before(&world, nodes), nodes - 1);
        if (start.node >= world.deployment->node_count || !read_front(argument_text(arguments, "front"), &start))
            user_error_set(error, NULL, 0, NULL, "an instance is started by `tandem run --backend real`");
        else if (!(good = instance_run(&start, why, sizeof why)))
            fprintf(command->err, "%s: %s\n", world.deployment->instances[start.node].name, why);
    }
    unsetenv(JOIN_TOKEN_VARIABLE);
    real_world_free(&world);
    scenario_sets_free(&sets);
    return good ? EXIT_OK : EXIT_USER;
}

bool run_real_role(int argc, char **argv, int *status)
{
    static const struct command instance = {
        .name = "instance",
        .operands = "SCENARIO",
        .operands_min = 1,
        .operands_max = 1,
        .summary = "one instance of a real run",
        .options = instance_options,
        .run = run_instance,
    };
    static const struct command *const roles[] = {&instance, NULL};
    const char *role = argc > 1 ? argv[1] : "";
    if (strcmp(role, "executor") == 0) {
        *status = executor_main(argc, argv);
    } else if (strcmp(role, "leftovers") == 0) {
        *status = leftovers_main();
    } else if (strcmp(role, "instance") == 0) {
        lifeline_hold();
        *status = command_main(argc, argv, roles, stdout, stderr);
    } else {
        return false;
    }
    return true;
}
