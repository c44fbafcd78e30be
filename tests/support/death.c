/* See death.h. */
#define _POSIX_C_SOURCE 200809L

#include "support/death.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static size_t read_all(int file, char *text, size_t size)
{
    size_t used = 0;
    char rest[512];
    for (;;) {
        /* What does not fit is still read, or the child would wait for a reader. */
        char *to = used + 1 < size ? text + used : rest;
        size_t room = used + 1 < size ? size - 1 - used : sizeof rest;
        ssize_t got = read(file, to, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        if (to != rest)
            used += (size_t)got;
    }
    text[used] = '\0';
    return used;
}

int death_status(void (*body)(void *argument), void *argument, char *text, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        body(argument);
        fflush(NULL);
        _Exit(0);
    }
    close(ends[1]);
    read_all(ends[0], text, size);
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void assert_check_fails(void (*body)(void *argument), void *argument, const char *expected)
{
    static char text[1 << 14];
    int status = death_status(body, argument, text, sizeof text);
    if (status != 127 || strstr(text, "CHECK failed") == NULL || strstr(text, expected) == NULL)
        fail_msg("expected a failed CHECK with \"%s\", got exit status %d and:\n%s", expected, status, text);
}
