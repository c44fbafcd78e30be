/* See python_json.h. */
#include "host/python_json.h"

#include "host/memory.h"

#include <stdbool.h>
#include <string.h>

char *python_json(const char *text, size_t *length)
{
    static const struct {
        const char *word;
        const char *number;
    } words[] = {{"Infinity", "1.0e+308"}, {"NaN", "0.5"}};
    size_t skip = *length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    char *copy = memory_get(*length - skip + 1);
    *length -= skip;
    memcpy(copy, text + skip, *length);
    copy[*length] = '\0';
    bool quoted = false;
    for (size_t at = 0; at < *length; at++) {
        if (quoted && copy[at] == '\\')
            at++;
        else if (copy[at] == '"')
            quoted = !quoted;
        for (size_t k = 0; !quoted && k < sizeof words / sizeof *words; k++) {
            size_t width = strlen(words[k].word);
            if (at + width <= *length && memcmp(copy + at, words[k].word, width) == 0)
                memcpy(copy + at, words[k].number, width);
        }
    }
    return copy;
}
