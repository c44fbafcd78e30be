/* What is told to the user when a file, a value or a flag is wrong:
 *
 *     plan.lua:14: pools.prefill.count: must be at least 1, not 0
 *
 * A function that can fail for the user's sake takes a `struct user_error *`, describes the first thing that is wrong
 * in it and returns false or NULL. The caller prints the text and exits with status 2.
 */
#ifndef TANDEM_HOST_USER_ERROR_H
#define TANDEM_HOST_USER_ERROR_H

#include <stdbool.h>
#include <stddef.h>

struct user_error {
    bool set;
    char text[2048]; /* one message, no newline at its end; longer ones are cut */
};

#if defined(__GNUC__) || defined(__clang__)
#define USER_ERROR_FORMAT(form, first) __attribute__((format(printf, form, first)))
#else
#define USER_ERROR_FORMAT(form, first)
#endif

/* Describes what is wrong, unless something has been described already: the first error is the one that explains the
 * others. `file` may be NULL, `line` 0 (unknown), `path` (of a key or a column) NULL; what is absent is left out. */
void user_error_set(struct user_error *error, const char *file, int line, const char *path, const char *format, ...)
    USER_ERROR_FORMAT(5, 6);

/* The known name that `name` was most likely meant to be: the fewest insertions, deletions, substitutions and swaps of
 * neighbours, upper case counting as lower case, the first of equals. NULL where nothing is near: more than a third of
 * the longer name, and more than one letter, would have to change. */
const char *nearest_name(const char *name, const char *const *known, size_t count);

#endif
