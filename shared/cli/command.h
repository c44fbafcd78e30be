/* The frame of the command line: `tandem COMMAND [options] OPERANDS`.
 *
 * A command is a constant table: its name, its options and one function. The frame finds it, reads the options, writes
 * the help, and turns what is wrong with either into one line with the nearest name and exit status 2. It knows no
 * command but `help`; the program brings the list (shared/cli/main.c).
 *
 * Options are written `--name`, `--name value` or `--name=value`, anywhere after the command; `--` ends them. Every
 * command has --help.
 */
#ifndef TANDEM_CLI_COMMAND_H
#define TANDEM_CLI_COMMAND_H

#include "host/exit_status.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {
    OPTION_FLAG = 1, /* takes no value */
    OPTION_TEXT = 2,
    OPTION_INTEGER = 3, /* decimal, 0 to INT64_MAX */
    OPTION_CHOICE = 4,  /* one of `argument`, which lists them: "json|csv|md" */
    OPTION_LIST = 5,    /* text that may be given many times */
};

/* A table of options ends with an entry without a name. */
struct option {
    const char *name;     /* without the dashes */
    const char *argument; /* what the help calls the value; NULL for a flag */
    const char *help;     /* half a sentence */
    enum option_kind kind;
};

/* What was given: read it with the functions below. */
struct arguments;

/* Where a command writes: answers to `out`, everything else to `err`. */
struct command_context {
    FILE *out;
    FILE *err;
};

struct command {
    const char *name;
    const char *formerly; /* an older name that is still understood, and not listed; NULL: none */
    const char *operands; /* as in the help: "SCENARIO", "A B", "[SUITE]"; "" for none */
    unsigned operands_min;
    unsigned operands_max;
    const char *summary;     /* one line */
    const char *description; /* more lines for `tandem help NAME`, without the last newline; NULL: none */
    const struct option *options;

    /* Returns an exit status. Of an error in *error the frame prints the text and makes the status at least
     * EXIT_USER. */
    int (*run)(const struct command_context *context, const struct arguments *arguments, struct user_error *error);
};

/* All commands, in the order of the help; ends with NULL. Defined where the binary is put together. */
extern const struct command *const commands[];

/* Runs the command line and returns the exit status. */
int command_main(int argc, char **argv, const struct command *const *list, FILE *out, FILE *err);

/* Asking for an option that the command's table lacks, or as another kind, is a bug (CHECK). */
/* Whether the command's table has the option. */
bool argument_offered(const struct arguments *arguments, const char *name);

/* Whether the option was given at all, of whatever kind. */
bool argument_given(const struct arguments *arguments, const char *name);

bool argument_flag(const struct arguments *arguments, const char *name);
const char *argument_text(const struct arguments *arguments, const char *name); /* text or choice; NULL: not given */
int64_t argument_integer(const struct arguments *arguments, const char *name, int64_t otherwise);

/* How many threads or processes work at once: 1 to WORKERS_MOST, `otherwise` where the option was not given. 0 and an
 * error where it is another number. */
#define WORKERS_MOST 256
uint32_t argument_workers(const struct arguments *arguments, const char *name, uint32_t otherwise,
                          struct user_error *error);

/* The values of a list in the order given: *cursor starts at 0; NULL after the last. */
const char *argument_next(const struct arguments *arguments, const char *name, size_t *cursor);

size_t operand_count(const struct arguments *arguments);
const char *operand(const struct arguments *arguments, size_t index);

#endif
