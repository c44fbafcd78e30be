/* Golden files: text that a test produced, as somebody once read and approved it. They change only by scripts/bless. */
#ifndef TANDEM_TESTS_SUPPORT_GOLDEN_H
#define TANDEM_TESTS_SUPPORT_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>

/* Fails the test unless `text` equals tests/golden/NAME.txt, and shows the first line that differs. With TANDEM_BLESS
 * in the environment it writes the file instead. */
void assert_golden(const char *name, const char *text);

/* The comparison by itself: true when the file at `path` holds `text` (or `bless` and it was written). Otherwise
 * `message` says why, in at most size - 1 bytes. */
bool golden_equal(const char *path, const char *text, bool bless, char *message, size_t size);

#endif
