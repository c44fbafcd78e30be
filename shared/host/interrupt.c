/* See interrupt.h. Signals belong to the process, and so does this file's one variable. */
#define _POSIX_C_SOURCE 200809L

#include "host/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static atomic_bool requested;

static void on_signal(int number)
{
    atomic_store(&requested, true);
    /* The next one is the default action: the handler was installed for one signal (SA_RESETHAND), of either kind. */
    signal(number == SIGINT ? SIGTERM : SIGINT, SIG_DFL);
}

void interrupt_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    /* SA_RESTART: a write to the database or a pipe that is under way goes on. */
    action.sa_flags = (int)(SA_RESTART | (int)SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupt_requested(void)
{
    return atomic_load(&requested);
}
