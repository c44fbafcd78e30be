/* See lifeline.h. */
#define _GNU_SOURCE
#include "real/fabric/lifeline.h"

#include "base/check.h"
#include "real/fabric/leftovers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LINE_VARIABLE "TANDEM_LIFELINE"

/* For an instance that ends in order: longer than it takes to hear of the end and to close what is open, unless a
 * provider does not return. */
#define ORDER_S 5

static atomic_bool in_order; /* of the process: there is one line */

void end_with_parent(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

bool lifeline_make(struct lifeline *line)
{
    int ends[2];
    *line = (struct lifeline){.held = -1, .owned = -1};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    *line = (struct lifeline){.held = ends[0], .owned = ends[1]};
    return true;
}

void lifeline_free(struct lifeline *line)
{
    if (line->held >= 0)
        close(line->held);
    if (line->owned >= 0)
        close(line->owned);
    *line = (struct lifeline){.held = -1, .owned = -1};
}

void lifeline_offer(const struct lifeline *line)
{
    char text[16];
    snprintf(text, sizeof text, "%d", line->held);
    CHECK(setenv(LINE_VARIABLE, text, 1) == 0);
}

void lifeline_pass(const struct lifeline *line)
{
    fcntl(line->held, F_SETFD, 0);
}

void lifeline_withdraw(void)
{
    unsetenv(LINE_VARIABLE);
}

/* Nothing is ever written: the line ends when the last process that could has ended. */
static void *watch(void *argument)
{
    int fd = (int)(intptr_t)argument;
    char byte;
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        continue;
    if (atomic_load(&in_order))
        sleep(ORDER_S);
    char name[] = "tandem";
    char role[] = "leftovers";
    char *arguments[] = {name, role, NULL};
    execv("/proc/self/exe", arguments);
    _exit(1);
}

void lifeline_hold(void)
{
    const char *text = getenv(LINE_VARIABLE);
    if (text == NULL)
        return;
    int fd = (int)strtol(text, NULL, 10);
    unsetenv(LINE_VARIABLE);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    /* Signals are for the thread that was there before. */
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    CHECK(pthread_create(&thread, NULL, watch, (void *)(intptr_t)fd) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setname_np(thread, "lifeline");
    pthread_detach(thread);
}

void lifeline_ends_in_order(void)
{
    atomic_store(&in_order, true);
}

int leftovers_main(void)
{
    leftovers_remove_of(getpid());
    return 1;
}
