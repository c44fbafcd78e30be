/* The frame of the command line: what reaches a command, what the help says, and what is refused. */
#define _POSIX_C_SOURCE 200809L

#include "host/build_info.h"
#include "cli/command.h"
#include "support/death.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct option measure_options[] = {
    {"seed", "N", "of the run", OPTION_INTEGER},
    {"format", "json|csv|md", "of the answer", OPTION_CHOICE},
    {"set", "PATH=VALUE", "change a value", OPTION_LIST},
    {"db", "FILE", "the database", OPTION_TEXT},
    {"fast", NULL, "leave out what takes long", OPTION_FLAG},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* Writes what it was given. */
static int measure(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    const char *format = argument_text(arguments, "format");
    const char *db = argument_text(arguments, "db");
    fprintf(context->out, "seed %lld format %s db %s fast %d", (long long)argument_integer(arguments, "seed", -1),
            format == NULL ? "-" : format, db == NULL ? "-" : db, argument_flag(arguments, "fast"));
    size_t cursor = 0;
    const char *set;
    while ((set = argument_next(arguments, "set", &cursor)) != NULL)
        fprintf(context->out, " set %s", set);
    for (size_t k = 0; k < operand_count(arguments); k++)
        fprintf(context->out, " operand %s", operand(arguments, k));
    fputc('\n', context->out);
    if (strcmp(operand(arguments, 0), "wrong.lua") == 0) {
        user_error_set(error, "wrong.lua", 3, "load.rate", "must be more than 0");
        return EXIT_OK;
    }
    return strcmp(operand(arguments, 0), "worse.lua") == 0 ? EXIT_WORSE : EXIT_OK;
}

static int ask_for_what_is_not_there(const struct command_context *context, const struct arguments *arguments,
                                     struct user_error *error)
{
    (void)context;
    (void)error;
    return argument_flag(arguments, "slow");
}

static const struct command command_measure = {
    .name = "measure",
    .operands = "SCENARIO [OTHER]",
    .operands_min = 1,
    .operands_max = 2,
    .summary = "measures a scenario",
    .description = "Twice, to be sure.",
    .options = measure_options,
    .run = measure,
};
static const struct command command_broken = {
    .name = "broken",
    .operands = "",
    .summary = "asks wrongly",
    .options = measure_options,
    .run = ask_for_what_is_not_there,
};
static const struct command *const list[] = {&command_measure, &command_broken, NULL};

#define WORDS_MAX 16

/* Runs a line of words; what it wrote is in *out and *err, the caller's. */
static int run_line(const char *line, char **out, char **err)
{
    char text[512];
    char *words[WORDS_MAX + 1];
    int count = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < WORDS_MAX);
        words[count++] = word;
    }
    words[count] = NULL;
    size_t out_size;
    size_t err_size;
    FILE *out_file = open_memstream(out, &out_size);
    FILE *err_file = open_memstream(err, &err_size);
    int status = command_main(count, words, list, out_file, err_file);
    fclose(out_file);
    fclose(err_file);
    return status;
}

static void options_reach_the_command(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int status;
        const char *out;
    } cases[] = {
        {"tandem measure a.lua", 0, "seed -1 format - db - fast 0 operand a.lua\n"},
        {"tandem measure --seed 7 a.lua --fast --format=csv", 0, "seed 7 format csv db - fast 1 operand a.lua\n"},
        {"tandem measure --set a=1 a.lua --set b=2 --db= b.lua", 0,
         "seed -1 format - db  fast 0 set a=1 set b=2 operand a.lua operand b.lua\n"},
        {"tandem measure -- --seed", 0, "seed -1 format - db - fast 0 operand --seed\n"},
        {"tandem measure - --seed 9223372036854775807", 0, "seed 9223372036854775807 format - db - fast 0 operand -\n"},
        {"tandem measure worse.lua", EXIT_WORSE, "seed -1 format - db - fast 0 operand worse.lua\n"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *out;
        char *err;
        int status = run_line(cases[k].line, &out, &err);
        assert_string_equal(err, "");
        assert_string_equal(out, cases[k].out);
        assert_int_equal(status, cases[k].status);
        free(out);
        free(err);
    }
}

static void what_is_wrong_is_said_in_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *err;
    } cases[] = {
        {"tandem mesure a.lua", "no command 'mesure'; nearest: 'measure'\n"},
        {"tandem xyzzy", "no command 'xyzzy'; tandem help lists them\n"},
        {"tandem help xyzzy", "no command 'xyzzy'; tandem help lists them\n"},
        {"tandem hlep", "no command 'hlep'; nearest: 'help'\n"},
        {"tandem measure a.lua --sed 7", "tandem measure has no option --sed; nearest: --seed\n"},
        {"tandem measure a.lua --formta=md", "tandem measure has no option --formta; nearest: --format\n"},
        {"tandem measure a.lua --quux", "tandem measure has no option --quux; tandem help measure lists them\n"},
        {"tandem measure a.lua -x", "no option '-x'; options begin with --\n"},
        {"tandem measure a.lua --seed", "--seed wants a value: N\n"},
        {"tandem measure a.lua --seed=", "--seed: '' is not a whole number from 0 to 9223372036854775807\n"},
        {"tandem measure a.lua --seed -1", "--seed: '-1' is not a whole number from 0 to 9223372036854775807\n"},
        {"tandem measure a.lua --seed 9223372036854775808",
         "--seed: '9223372036854775808' is not a whole number from 0 to 9223372036854775807\n"},
        {"tandem measure a.lua --seed 1 --seed 2", "--seed is given twice\n"},
        {"tandem measure a.lua --format xml", "--format: 'xml' is none of json|csv|md\n"},
        {"tandem measure a.lua --format js", "--format: 'js' is none of json|csv|md\n"},
        {"tandem measure a.lua --fast=1", "--fast takes no value\n"},
        {"tandem measure", "tandem measure wants SCENARIO [OTHER]; tandem help measure explains\n"},
        {"tandem measure a b c", "tandem measure: 'c' is too much; usage: tandem measure SCENARIO [OTHER]\n"},
        {"tandem measure wrong.lua", "wrong.lua:3: load.rate: must be more than 0\n"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *out;
        char *err;
        int status = run_line(cases[k].line, &out, &err);
        assert_string_equal(err, cases[k].err);
        assert_int_equal(status, EXIT_USER);
        free(out);
        free(err);
    }
}

static void help_lists_commands_and_options(void **state)
{
    (void)state;
    char usage[512];
    snprintf(usage, sizeof usage,
             "tandem %s: capacity planning and testing of disaggregated LLM serving\n\n"
             "usage: tandem COMMAND [options]\n\n"
             "  measure    SCENARIO [OTHER]     measures a scenario\n"
             "  broken                          asks wrongly\n"
             "  help       [COMMAND]            this text, or the options of a command\n\n"
             "tandem --version names the build.\n",
             build_version);
    static const char options[] = "usage: tandem measure [options] SCENARIO [OTHER]\n\n"
                                  "measures a scenario\n\n"
                                  "Twice, to be sure.\n\n"
                                  "options:\n"
                                  "  --seed N                     of the run\n"
                                  "  --format json|csv|md         of the answer\n"
                                  "  --set PATH=VALUE             change a value (may be repeated)\n"
                                  "  --db FILE                    the database\n"
                                  "  --fast                       leave out what takes long\n"
                                  "  --help                       this text\n";
    static const struct {
        const char *line;
        bool of_command;
    } cases[] = {
        {"tandem help", false},
        {"tandem --help", false},
        {"tandem -h", false},
        {"tandem help help", false},
        {"tandem help measure", true},
        {"tandem measure --help", true},
        {"tandem measure a b c -h", true},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *out;
        char *err;
        assert_int_equal(run_line(cases[k].line, &out, &err), EXIT_OK);
        assert_string_equal(out, cases[k].of_command ? options : usage);
        assert_string_equal(err, "");
        free(out);
        free(err);
    }
    /* Nothing asked is a mistake: the help goes to the errors. */
    char *out;
    char *err;
    assert_int_equal(run_line("tandem", &out, &err), EXIT_USER);
    assert_string_equal(out, "");
    assert_string_equal(err, usage);
    free(out);
    free(err);
}

static void version_names_the_build(void **state)
{
    (void)state;
    char *out;
    char *err;
    assert_int_equal(run_line("tandem --version", &out, &err), EXIT_OK);
    assert_int_equal(strncmp(out, "tandem ", 7), 0);
    assert_non_null(strstr(out, build_identity));
    assert_non_null(strstr(out, build_compiler));
    free(out);
    free(err);
}

static void run_broken(void *argument)
{
    char *out;
    char *err;
    (void)argument;
    run_line("tandem broken", &out, &err);
}

static void asking_for_an_unknown_option_is_a_bug(void **state)
{
    (void)state;
    assert_check_fails(run_broken, NULL, "no such option");
}

/* An answer that cannot be written is not a success. */
static void a_full_disk_behind_the_answer_is_an_error(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) {
        print_message("skipped: no /dev/full here\n");
        skip();
    }
    char *err;
    size_t size;
    FILE *err_file = open_memstream(&err, &size);
    char *words[] = {(char[]){"tandem"}, (char[]){"help"}, NULL};
    assert_int_equal(command_main(2, words, list, full, err_file), EXIT_USER);
    fclose(err_file);
    assert_string_equal(err, "the answer could not be written\n");
    free(err);
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_reach_the_command),
        cmocka_unit_test(what_is_wrong_is_said_in_a_line),
        cmocka_unit_test(help_lists_commands_and_options),
        cmocka_unit_test(version_names_the_build),
        cmocka_unit_test(asking_for_an_unknown_option_is_a_bug),
        cmocka_unit_test(a_full_disk_behind_the_answer_is_an_error),
    };
    return cmocka_run_group_tests_name("command", tests, NULL, NULL);
}
