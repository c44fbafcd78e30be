/* See run_real.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/real/run_real.h"

#include "host/interrupt.h"
#include "real/control/bind_address.h"
#include "real/cluster/children.h"
#include "real/fabric/fabric.h"
#include "real/fabric/lifeline.h"
#include "real/executor/executor.h"
#include "real/cluster/instance_process.h"
#include "real/cluster/launcher.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
static bool read_addresses(struct real_options *options, struct user_error *why)
{
    const char *at = options->bind;
    for (uint32_t i = 0;; i++) {
        char text[CONTROL_ADDRESS_BYTES];
        size_t length = strcspn(at, ",");
        if (i == FABRIC_NICS_MAX || length >= sizeof text) {
            user_error_set(why, NULL, 0, NULL, "at most %u addresses, and none of more than %zu letters",
                           FABRIC_NICS_MAX, sizeof text - 1);
            return false;
        }
        memcpy(text, at, length);
        text[length] = '\0';
        if (!bind_address(text, i == 0 ? options->address : options->more[i - 1], why))
            return false;
        options->more_count = i;
        if (at[length] == '\0')
            return true;
        at += length + 1;
    }
}

static bool read_row(const struct arguments *arguments, const struct real_option *row, struct real_options *options,
                     struct user_error *error)
{
    char *field = (char *)options + row->offset;
    int64_t value;
    switch (row->kind) {
    case REAL_OPTION_TEXT: {
        const char *text = argument_text(arguments, row->name);
        *(const char **)field = text == NULL ? row->text : text;
        return true;
    }
    case REAL_OPTION_NUMBER:
        if (!number(arguments, row->name, row->least, row->most, row->number, &value, error))
            return false;
        *(uint32_t *)field = (uint32_t)value;
        return true;
    case REAL_OPTION_FLAG:
        break;
    }
    *(bool *)field = argument_flag(arguments, row->name);
    return true;
}

static bool read_options(const struct arguments *arguments, struct real_options *options, struct user_error *error)
{
    *options = (struct real_options){.more_count = 0};
    for (const struct real_option *row = real_option_rows; row->name != NULL; row++)
        if (!read_row(arguments, row, options, error))
            return false;
    struct user_error why = {.set = false};
    if (!read_addresses(options, &why)) {
        user_error_set(error, NULL, 0, NULL, "--bind: %s", why.text);
        return false;
    }
    /* Said once here, and not by every instance. */
    if (!fabric_here(options->provider, options->address, &why)) {
        user_error_set(error, NULL, 0, NULL, "--provider: %s", why.text);
        return false;
    }
    if (executor_device(options->device, &why) == NULL) {
        user_error_set(error, NULL, 0, NULL, "--device: %s", why.text);
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
    struct user_error why = {.set = false};
    const struct device_ops *ops = executor_device(options->device, &why);
    if (ops != NULL && ops->count != NULL && ops->count(&why) == 0)
        user_error_set(error, NULL, 0, NULL, "--device: %s: %s", options->device, why.text);
    return !error->set;
}

/* ---- Processes of a job ------------------------------------------------------------------------------------------ */

/* What a run on this backend is given: there is one at a time in a process. */
static struct real_options given;
static struct pmix_wire wire;
static struct launcher_options launcher;

/* Ranks and instances on this machine, of the job's processes before `end`. */
struct neighbours {
    uint32_t ranks;
    uint32_t instances;
};

static struct neighbours neighbours_before(const struct real_world *world, uint32_t end)
{
    struct neighbours here = {0};
    for (uint32_t i = 1; i < end; i++) {
        if (!pmix_wire_near(&wire, i))
            continue;
        here.ranks += world->deployment->instances[i].ranks;
        here.instances++;
    }
    return here;
}

/* A process of somebody else's job, and not its first: an instance. */
static int run_as_instance(const struct command_context *command, const struct arguments *arguments,
                           const struct scenario_sets *sets, struct user_error *error)
{
    struct real_world world;
    struct user_error why = {.set = false};
    struct instance_start start = {.world = &world, .options = &given, .node = wire.rank};
    bool good = real_world_load(&world, operand(arguments, 0), sets->sets, sets->count,
                                argument_integer(arguments, "seed", -1), error);
    if (good && wire.size != world.deployment->node_count) {
        real_world_free(&world);
        return EXIT_OK; /* the launcher says so to the user, and must not be ended before it has */
    }
    if (good) {
        struct neighbours all = neighbours_before(&world, world.deployment->node_count);
        start.device_first = neighbours_before(&world, start.node).ranks;
        start.crowded = real_world_crowded(all.ranks, all.instances);
        good = pmix_wire_receive(&wire, start.front_address, &start.front_port, start.token, &why) &&
               instance_run(&start, &why);
        if (!good)
            fprintf(command->err, "%s: %s\n", world.deployment->instances[start.node].name, why.text);
    }
    real_world_free(&world);
    return good ? EXIT_OK : EXIT_USER;
}

/* ---- The backend ------------------------------------------------------------------------------------------------- */

static bool prepare(const struct command_context *command, const struct arguments *arguments,
                    const struct scenario_sets *sets, const void **options, int *exit, struct user_error *error)
{
    if (!read_options(arguments, &given, error))
        return false;
    if (sets != NULL && !pmix_wire_join(&wire, error))
        return false;
    if (wire.joined && wire.rank > 0) {
        *exit = run_as_instance(command, arguments, sets, error);
        return false;
    }
    launcher = (struct launcher_options){.options = &given, .wire = wire.joined ? &wire : NULL};
    *options = &launcher;
    return wire.joined || devices_there(&given, error);
}

static bool joined(void)
{
    return wire.joined;
}

static void release(void)
{
    pmix_wire_leave(&wire);
}

#define NAME_TEXT(field, name, argument, help, otherwise) name,
#define NAME_NUMBER(field, name, argument, help, least, most, otherwise) name,
#define NAME_FLAG(field, name, help) name,

const struct backend backend_real = {
    .name = "real",
    .run = &real_backend,
    .alone = (const char *const[]){REAL_OPTIONS(NAME_TEXT, NAME_TEXT, NAME_NUMBER, NAME_FLAG) NULL},
    .prepare = prepare,
    .release = release,
    .one_at_most = joined,
};

/* ---- Roles ------------------------------------------------------------------------------------------------------- */

#define GIVEN "as given to the launcher"
#define GIVEN_TEXT(field, name, argument, help, otherwise) {name, argument, GIVEN, OPTION_TEXT},
#define GIVEN_CHOICE(field, name, argument, help, otherwise) {name, argument, GIVEN, OPTION_CHOICE},
#define GIVEN_NUMBER(field, name, argument, help, least, most, otherwise) {name, argument, GIVEN, OPTION_INTEGER},
#define GIVEN_FLAG(field, name, help) {name, NULL, GIVEN, OPTION_FLAG},

static const struct option instance_options[] = {
    {"node", "N", "which one", OPTION_INTEGER},
    {"incarnation", "N", "how many were lost before it", OPTION_INTEGER},
    {"front", "ADDRESS:PORT", "of the front", OPTION_TEXT},
    {"set", "PATH=VALUE", GIVEN, OPTION_LIST},
    {"seed", "N", GIVEN, OPTION_INTEGER},
    REAL_OPTIONS(GIVEN_TEXT, GIVEN_CHOICE, GIVEN_NUMBER, GIVEN_FLAG){NULL, NULL, NULL, OPTION_FLAG},
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
        struct user_error why = {.set = false};
        start.node = (uint32_t)node;
        start.incarnation = (uint32_t)incarnation;
        uint32_t nodes = world.deployment->node_count;
        start.device_first = real_world_ranks_before(&world, start.node);
        start.crowded = real_world_crowded(real_world_ranks_before(&world, nodes), nodes - 1);
        if (start.node >= world.deployment->node_count || !read_front(argument_text(arguments, "front"), &start))
            user_error_set(error, NULL, 0, NULL, "an instance is started by `tandem run --backend real`");
        else if (!(good = instance_run(&start, &why)))
            fprintf(command->err, "%s: %s\n", world.deployment->instances[start.node].name, why.text);
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
