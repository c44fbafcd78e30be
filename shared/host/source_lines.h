/* Finds the line on which a key of a table constructor is written. Lua keeps no lines for the fields of a table, so an
 * error about one would otherwise point at the constructor, a page above. Reads the text; runs nothing.
 */
#ifndef TANDEM_HOST_SOURCE_LINES_H
#define TANDEM_HOST_SOURCE_LINES_H

#include <stddef.h>

/* `constructor` is called, with a table constructor, on line `line` of `text`. keys[0] is a field of that table,
 * keys[1] one of keys[0]'s own table constructor, and so on; positional fields are "1", "2", ... Returns the line of
 * the last key, or of the deepest one that is written there, or `line` when none is. */
int source_line_find(const char *text, size_t length, const char *constructor, int line, const char *const *keys,
                     size_t key_count);

#endif
