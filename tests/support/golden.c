/* See golden.h. */
#include "support/golden.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return false;
    size_t length = strlen(text);
    bool written = fwrite(text, 1, length, file) == length;
    return fclose(file) == 0 && written;
}

/* The whole file, ended by NUL; NULL with errno set when it cannot be read. The caller frees it. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    size_t capacity = 4096, used = 0;
    char *text = malloc(capacity);
    while (text != NULL) {
        used += fread(text + used, 1, capacity - 1 - used, file);
        if (used < capacity - 1)
            break;
        char *larger = realloc(text, capacity *= 2);
        if (larger == NULL)
            free(text);
        text = larger;
    }
    if (text != NULL)
        text[used] = '\0';
    fclose(file);
    return text;
}

static int line_length(const char *line)
{
    return (int)strcspn(line, "\n");
}

bool golden_equal(const char *path, const char *text, bool bless, char *message, size_t size)
{
    if (bless) {
        if (write_text(path, text))
            return true;
        snprintf(message, size, "%s: cannot be written: %s", path, strerror(errno));
        return false;
    }
    char *golden = read_text(path);
    if (golden == NULL) {
        snprintf(message, size, "%s: cannot be read: %s; scripts/bless makes it", path, strerror(errno));
        return false;
    }
    const char *expected = golden, *got = text;
    for (int line = 1;; line++) {
        int expected_length = line_length(expected), got_length = line_length(got);
        /* The byte after the line counts too: a missing last newline is a difference. */
        if (expected_length != got_length || memcmp(expected, got, (size_t)got_length + 1) != 0) {
            snprintf(message, size,
                     "%s:%d: differs (scripts/bless accepts the new text)\n  expected: %.*s\n  got:      %.*s", path,
                     line, expected_length, expected, got_length, got);
            free(golden);
            return false;
        }
        if (expected[expected_length] == '\0')
            break;
        expected += expected_length + 1;
        got += got_length + 1;
    }
    free(golden);
    return true;
}

void assert_golden(const char *name, const char *text)
{
    char path[1024], message[4096];
    snprintf(path, sizeof path, "%s/tests/golden/%s.txt", TANDEM_SOURCE_DIR, name);
    if (!golden_equal(path, text, getenv("TANDEM_BLESS") != NULL, message, sizeof message))
        fail_msg("%s", message);
}
