/* See command.h. */
#include "cli/command.h"

#include "base/check.h"
#include "host/build_info.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

struct given {
    const struct option *option;
    const char *text; /* NULL for a flag */
    int64_t integer;
};

/* Room for everything a command line holds, taken once: neither count exceeds argc. */
struct arguments {
    const struct command *command;
    struct given *given;
    size_t given_count;
    const char **operands;
    size_t operand_count;
    bool help;
};

#define NAMES_MAX 64

/* ---- Help ------------------------------------------------------------------------------------------------------- */

static void print_usage(FILE *file, const struct command *const *list)
{
    fprintf(file, "tandem %s: capacity planning and testing of disaggregated LLM serving\n\n", build_version);
    fputs("usage: tandem COMMAND [options]\n\n", file);
    for (size_t k = 0; list[k] != NULL; k++)
        fprintf(file, "  %-10s %-20s %s\n", list[k]->name, list[k]->operands, list[k]->summary);
    fprintf(file, "  %-10s %-20s %s\n", "help", "[COMMAND]", "this text, or the options of a command");
    fputs("\ntandem --version names the build.\n", file);
}

static void print_option(FILE *file, const struct option *option)
{
    char left[64];
    if (option->argument == NULL)
        snprintf(left, sizeof left, "--%s", option->name);
    else
        snprintf(left, sizeof left, "--%s %s", option->name, option->argument);
    fprintf(file, "  %-28s %s%s\n", left, option->help, option->kind == OPTION_LIST ? " (may be repeated)" : "");
}

static void print_help(FILE *file, const struct command *command)
{
    fprintf(file, "usage: tandem %s [options]%s%s\n\n%s\n", command->name, command->operands[0] == '\0' ? "" : " ",
            command->operands, command->summary);
    if (command->description != NULL)
        fprintf(file, "\n%s\n", command->description);
    fputs("\noptions:\n", file);
    for (const struct option *option = command->options; option->name != NULL; option++)
        print_option(file, option);
    static const struct option help = {.name = "help", .help = "this text", .kind = OPTION_FLAG};
    print_option(file, &help);
}

/* ---- Finding the command ---------------------------------------------------------------------------------------- */

static const struct command *find_command(const struct command *const *list, const char *name, struct user_error *error)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (size_t k = 0; list[k] != NULL; k++) {
        if (strcmp(list[k]->name, name) == 0 || (list[k]->formerly != NULL && strcmp(list[k]->formerly, name) == 0))
            return list[k];
        CHECK(count < NAMES_MAX - 1);
        names[count++] = list[k]->name;
    }
    names[count++] = "help";
    const char *nearest = nearest_name(name, names, count);
    if (nearest == NULL)
        user_error_set(error, NULL, 0, NULL, "no command '%s'; tandem help lists them", name);
    else
        user_error_set(error, NULL, 0, NULL, "no command '%s'; nearest: '%s'", name, nearest);
    return NULL;
}

/* ---- Reading options -------------------------------------------------------------------------------------------- */

static const struct option *find_option(const struct command *command, const char *name, size_t length,
                                        struct user_error *error)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (const struct option *option = command->options; option->name != NULL; option++) {
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return option;
        CHECK(count < NAMES_MAX - 1);
        names[count++] = option->name;
    }
    names[count++] = "help";
    char wanted[128];
    snprintf(wanted, sizeof wanted, "%.*s", (int)(length < sizeof wanted ? length : sizeof wanted - 1), name);
    const char *nearest = nearest_name(wanted, names, count);
    if (nearest == NULL)
        user_error_set(error, NULL, 0, NULL, "tandem %s has no option --%s; tandem help %s lists them", command->name,
                       wanted, command->name);
    else
        user_error_set(error, NULL, 0, NULL, "tandem %s has no option --%s; nearest: --%s", command->name, wanted,
                       nearest);
    return NULL;
}

static bool read_integer(struct given *given, struct user_error *error)
{
    const char *text = given->text;
    int64_t value = 0;
    bool good = *text != '\0';
    for (; good && *text != '\0'; text++) {
        good = *text >= '0' && *text <= '9' && value <= (INT64_MAX - (*text - '0')) / 10;
        if (good)
            value = value * 10 + (*text - '0');
    }
    given->integer = value;
    if (!good)
        user_error_set(error, NULL, 0, NULL, "--%s: '%s' is not a whole number from 0 to %lld", given->option->name,
                       given->text, (long long)INT64_MAX);
    return good;
}

static bool read_choice(const struct given *given, struct user_error *error)
{
    size_t length = strlen(given->text);
    const char *choice = given->option->argument;
    while (choice != NULL) {
        const char *bar = strchr(choice, '|');
        size_t choice_length = bar == NULL ? strlen(choice) : (size_t)(bar - choice);
        if (choice_length == length && memcmp(choice, given->text, length) == 0)
            return true;
        choice = bar == NULL ? NULL : bar + 1;
    }
    user_error_set(error, NULL, 0, NULL, "--%s: '%s' is none of %s", given->option->name, given->text,
                   given->option->argument);
    return false;
}

static bool already_given(const struct arguments *arguments, const struct option *option)
{
    for (size_t k = 0; k < arguments->given_count; k++)
        if (arguments->given[k].option == option)
            return true;
    return false;
}

/* Reads the option at argv[*at] and moves past its value. */
static bool read_option(struct arguments *arguments, int argc, char **argv, int *at, struct user_error *error)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals == NULL ? strlen(name) : (size_t)(equals - name);
    if (strcmp(name, "help") == 0) {
        arguments->help = true;
        return true;
    }
    const struct option *option = find_option(arguments->command, name, length, error);
    if (option == NULL)
        return false;
    if (option->kind != OPTION_LIST && already_given(arguments, option)) {
        user_error_set(error, NULL, 0, NULL, "--%s is given twice", option->name);
        return false;
    }
    struct given *given = &arguments->given[arguments->given_count++];
    *given = (struct given){.option = option};
    if (option->kind == OPTION_FLAG) {
        if (equals != NULL)
            user_error_set(error, NULL, 0, NULL, "--%s takes no value", option->name);
        return equals == NULL;
    }
    if (equals != NULL) {
        given->text = equals + 1;
    } else if (*at + 1 < argc) {
        given->text = argv[++*at];
    } else {
        user_error_set(error, NULL, 0, NULL, "--%s wants a value: %s", option->name, option->argument);
        return false;
    }
    if (option->kind == OPTION_INTEGER)
        return read_integer(given, error);
    return option->kind != OPTION_CHOICE || read_choice(given, error);
}

static bool read_arguments(struct arguments *arguments, int argc, char **argv, struct user_error *error)
{
    const struct command *command = arguments->command;
    bool options = true;
    for (int k = 2; k < argc; k++) {
        if (options && strcmp(argv[k], "--") == 0) {
            options = false;
        } else if (options && strcmp(argv[k], "-h") == 0) {
            arguments->help = true;
        } else if (options && argv[k][0] == '-' && argv[k][1] == '-') {
            if (!read_option(arguments, argc, argv, &k, error))
                return false;
        } else if (options && argv[k][0] == '-' && argv[k][1] != '\0') {
            user_error_set(error, NULL, 0, NULL, "no option '%s'; options begin with --", argv[k]);
            return false;
        } else {
            arguments->operands[arguments->operand_count++] = argv[k];
        }
    }
    if (arguments->help)
        return true;
    if (arguments->operand_count < command->operands_min)
        user_error_set(error, NULL, 0, NULL, "tandem %s wants %s; tandem help %s explains", command->name,
                       command->operands, command->name);
    else if (arguments->operand_count > command->operands_max)
        user_error_set(error, NULL, 0, NULL, "tandem %s: '%s' is too much; usage: tandem %s %s", command->name,
                       arguments->operands[command->operands_max], command->name, command->operands);
    return !error->set;
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

static int run_command(const struct command *command, int argc, char **argv, const struct command_context *context,
                       struct user_error *error)
{
    struct arguments arguments = {.command = command};
    arguments.given = memory_zeroed((size_t)argc, sizeof *arguments.given);
    arguments.operands = memory_zeroed((size_t)argc, sizeof *arguments.operands);
    int status = EXIT_OK;
    if (read_arguments(&arguments, argc, argv, error) && arguments.help)
        print_help(context->out, command);
    else if (!error->set)
        status = command->run(context, &arguments, error);
    free(arguments.given);
    free(arguments.operands);
    return status;
}

static int run_help(const struct command *const *list, const char *name, FILE *out, struct user_error *error)
{
    if (name == NULL || strcmp(name, "help") == 0) {
        print_usage(out, list);
        return EXIT_OK;
    }
    const struct command *command = find_command(list, name, error);
    if (command != NULL)
        print_help(out, command);
    return EXIT_OK;
}

int command_main(int argc, char **argv, const struct command *const *list, FILE *out, FILE *err)
{
    struct command_context context = {.out = out, .err = err};
    struct user_error error = {.set = false};
    int status = EXIT_OK;
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        print_usage(err, list);
        return EXIT_USER;
    }
    if (strcmp(name, "--version") == 0) {
        fprintf(out, "tandem %s\nbuild %s\ncompiler %s\n", build_version, build_identity, build_compiler);
    } else if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        status = run_help(list, argc > 2 ? argv[2] : NULL, out, &error);
    } else {
        const struct command *command = find_command(list, name, &error);
        if (command != NULL)
            status = run_command(command, argc, argv, &context, &error);
    }
    if (error.set) {
        fprintf(err, "%s\n", error.text);
        status = status > EXIT_USER ? status : EXIT_USER;
    }
    /* An answer that did not arrive (a full disk behind a redirection) is not a success. */
    if (fflush(out) != 0 || ferror(out)) {
        fputs("the answer could not be written\n", err);
        status = EXIT_USER;
    }
    return status;
}

/* ---- What was given --------------------------------------------------------------------------------------------- */

bool argument_offered(const struct arguments *arguments, const char *name)
{
    const struct option *option = arguments->command->options;
    while (option->name != NULL && strcmp(option->name, name) != 0)
        option++;
    return option->name != NULL;
}

static void check_asked(const struct arguments *arguments, const char *name, enum option_kind kind)
{
    for (const struct option *option = arguments->command->options; option->name != NULL; option++)
        if (strcmp(option->name, name) == 0 &&
            (option->kind == kind || (kind == OPTION_TEXT && option->kind == OPTION_CHOICE)))
            return;
    CHECK(false && "the command's table has no such option");
}

static const struct given *find_given(const struct arguments *arguments, const char *name)
{
    for (size_t k = 0; k < arguments->given_count; k++)
        if (strcmp(arguments->given[k].option->name, name) == 0)
            return &arguments->given[k];
    return NULL;
}

bool argument_given(const struct arguments *arguments, const char *name)
{
    return find_given(arguments, name) != NULL;
}

bool argument_flag(const struct arguments *arguments, const char *name)
{
    check_asked(arguments, name, OPTION_FLAG);
    return find_given(arguments, name) != NULL;
}

const char *argument_text(const struct arguments *arguments, const char *name)
{
    check_asked(arguments, name, OPTION_TEXT);
    const struct given *given = find_given(arguments, name);
    return given == NULL ? NULL : given->text;
}

int64_t argument_integer(const struct arguments *arguments, const char *name, int64_t otherwise)
{
    check_asked(arguments, name, OPTION_INTEGER);
    const struct given *given = find_given(arguments, name);
    return given == NULL ? otherwise : given->integer;
}

uint32_t argument_workers(const struct arguments *arguments, const char *name, uint32_t otherwise,
                          struct user_error *error)
{
    int64_t wanted = argument_integer(arguments, name, otherwise > WORKERS_MOST ? WORKERS_MOST : otherwise);
    if (wanted >= 1 && wanted <= WORKERS_MOST)
        return (uint32_t)wanted;
    char option[64];
    snprintf(option, sizeof option, "--%s", name);
    user_error_set(error, NULL, 0, option, "must be 1 to %d, not %lld", WORKERS_MOST, (long long)wanted);
    return 0;
}

const char *argument_next(const struct arguments *arguments, const char *name, size_t *cursor)
{
    check_asked(arguments, name, OPTION_LIST);
    while (*cursor < arguments->given_count) {
        const struct given *given = &arguments->given[(*cursor)++];
        if (strcmp(given->option->name, name) == 0)
            return given->text;
    }
    return NULL;
}

size_t operand_count(const struct arguments *arguments)
{
    return arguments->operand_count;
}

const char *operand(const struct arguments *arguments, size_t index)
{
    CHECK(index < arguments->operand_count);
    return arguments->operands[index];
}
