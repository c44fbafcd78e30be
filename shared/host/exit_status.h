/* What the program's exit status tells a script. 127 (a failed CHECK) never passes through here. */
#ifndef TANDEM_HOST_EXIT_STATUS_H
#define TANDEM_HOST_EXIT_STATUS_H

enum exit_status {
    EXIT_OK = 0,
    EXIT_WORSE = 1,         /* a regression, an `expect` or a target was missed */
    EXIT_USER = 2,          /* the scenario, the trace, the database or the command line is wrong */
    EXIT_MACHINE = 3,       /* the machine gave no memory */
    EXIT_NO_PROGRESS = 128, /* a simulation that stands still */
    EXIT_INVARIANT = 129,   /* a checker failed */
    EXIT_INTERRUPTED = 130, /* Ctrl-C, SIGTERM: what was complete is kept */
};

#endif
