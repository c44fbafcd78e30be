/* JSON as Python's json module writes it: Infinity, -Infinity and NaN, which JSON has no words for, and a byte order
 * mark. */
#ifndef TANDEM_HOST_PYTHON_JSON_H
#define TANDEM_HOST_PYTHON_JSON_H

#include <stddef.h>

/* A copy of *length bytes, which becomes the length of the copy, in which each of these words is a number that nothing
 * has (1e308; 0.5), on the same line; and without a byte order mark. The caller frees. */
char *python_json(const char *text, size_t *length);

#endif
