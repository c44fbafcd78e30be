/* See csv.h. */
#include "host/csv.h"

#include <inttypes.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Reads a quoted cell that begins at `*at`, in place, and leaves `*at` on the separator or the end. NULL, or what is
 * wrong; `*at` is then where. */
static const char *split_quoted(char **at, struct csv_cell *cell)
{
    char *from = *at + 1;
    char *to = from;
    cell->text = to;
    while (*from != '\0' && (*from != '"' || from[1] == '"')) {
        from += *from == '"';
        *to++ = *from++;
    }
    *at = from;
    if (*from == '\0')
        return "end";
    from++;
    while (is_blank(*from))
        from++;
    *at = from;
    if (*from != ',' && *from != '\0')
        return "more";
    cell->length = (size_t)(to - cell->text);
    return NULL;
}

bool csv_split(char *record, struct csv_cell *cells, uint32_t max, uint32_t *count, const char *file, int line,
               struct user_error *error)
{
    *count = 0;
    for (char *at = record;; at++) {
        if (*count == max) {
            user_error_set(error, file, line, NULL, "more than %" PRIu32 " columns", max);
            return false;
        }
        struct csv_cell *cell = &cells[(*count)++];
        while (is_blank(*at))
            at++;
        if (*at == '"') {
            const char *wrong = split_quoted(&at, cell);
            if (wrong != NULL && *at == '\0')
                user_error_set(error, file, line, NULL,
                               "a quoted field does not end on its line, expected a closing '\"'");
            else if (wrong != NULL)
                user_error_set(error, file, line, NULL,
                               "'%c' follows a quoted field, expected ',' or the end of the line", *at);
            if (wrong != NULL)
                return false;
        } else {
            cell->text = at;
            while (*at != ',' && *at != '\0') /* cells are short: faster than strcspn() */
                at++;
            char *last = at;
            while (last > cell->text && is_blank(last[-1]))
                last--;
            cell->length = (size_t)(last - cell->text);
        }
        bool more = *at == ',';
        /* At or before a closing quote or the separator: nothing unread is overwritten. */
        cell->text[cell->length] = '\0';
        if (!more)
            return true;
    }
}

/* Where a quoted cell that begins at `at` has its closing quote; SIZE_MAX: nowhere. */
static size_t quoted_end(const char *text, size_t at, size_t length)
{
    at++;
    while (at < length) {
        const char *quote = memchr(text + at, '"', length - at);
        if (quote == NULL)
            return SIZE_MAX;
        at = (size_t)(quote - text);
        if (at + 1 == length || text[at + 1] != '"')
            return at;
        at += 2;
    }
    return SIZE_MAX;
}

size_t csv_record(const char *text, size_t length)
{
    const char *end = memchr(text, '\n', length);
    if (end == NULL)
        return SIZE_MAX;
    if (memchr(text, '"', (size_t)(end - text)) == NULL)
        return (size_t)(end - text);
    bool start = true; /* of a cell */
    for (size_t at = 0; at < length; at++) {
        if (text[at] == '\n')
            return at;
        if (start && text[at] == '"') {
            at = quoted_end(text, at, length);
            if (at == SIZE_MAX)
                return SIZE_MAX;
        }
        start = text[at] == ',' || (start && is_blank(text[at]));
    }
    return SIZE_MAX;
}
