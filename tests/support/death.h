/* Death tests: run a function in a child process and look at how it ended and what it said. */
#ifndef TANDEM_TESTS_SUPPORT_DEATH_H
#define TANDEM_TESTS_SUPPORT_DEATH_H

#include <stddef.h>

/* Runs body(argument) in a forked child with stderr captured. Returns the exit status (0 when the body returned), or
 * 128 and the signal's number; at most size - 1 bytes of its stderr are in `text`, ended by NUL. Fails the test when
 * the process cannot be made. The child never returns into the test program. */
int death_status(void (*body)(void *argument), void *argument, char *text, size_t size);

/* Fails the test unless body(argument) ends in a failed CHECK whose report contains `expected`. */
void assert_check_fails(void (*body)(void *argument), void *argument, const char *expected);

#endif
