/* See user_error.h. */
#include "host/user_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Names longer than this are not compared: no key of a scenario or column of a trace comes near. */
#define NAME_LENGTH_MAX 63

static size_t append(char *text, size_t size, size_t used, const char *piece)
{
    size_t length = strlen(piece);
    size_t room = size - 1 - used;
    if (length > room)
        length = room;
    memcpy(text + used, piece, length);
    text[used + length] = '\0';
    return used + length;
}

void user_error_set(struct user_error *error, const char *file, int line, const char *path, const char *format, ...)
{
    if (error->set)
        return;
    error->set = true;
    size_t used = 0;
    error->text[0] = '\0';
    if (file != NULL) {
        char number[32];
        used = append(error->text, sizeof error->text, used, file);
        if (line > 0) {
            snprintf(number, sizeof number, ":%d", line);
            used = append(error->text, sizeof error->text, used, number);
        }
        used = append(error->text, sizeof error->text, used, ": ");
    }
    if (path != NULL && path[0] != '\0') {
        used = append(error->text, sizeof error->text, used, path);
        used = append(error->text, sizeof error->text, used, ": ");
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text + used, sizeof error->text - used, format, arguments);
    va_end(arguments);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Optimal string alignment distance: three rows of the usual table, since a swap looks two rows back. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][NAME_LENGTH_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t differ = lower(a[i - 1]) != lower(b[j - 1]);
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + differ);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = min3(row[j], two_above[j - 2] + 1, row[j]);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *nearest_name(const char *name, const char *const *known, size_t count)
{
    size_t length = strlen(name);
    const char *nearest = NULL;
    size_t nearest_distance = 0;
    if (length == 0 || length > NAME_LENGTH_MAX)
        return NULL;
    for (size_t k = 0; k < count; k++) {
        size_t known_length = strlen(known[k]);
        if (known_length > NAME_LENGTH_MAX)
            continue;
        size_t longer = length > known_length ? length : known_length;
        size_t limit = longer < 3 ? 1 : longer / 3;
        size_t d = distance(name, length, known[k], known_length);
        if (d <= limit && (nearest == NULL || d < nearest_distance)) {
            nearest = known[k];
            nearest_distance = d;
        }
    }
    return nearest;
}
