/* How processes of a run end with whoever started them, at any moment from their first instruction, however that one
 * ends.
 *
 * A process that leaves nothing behind has itself killed (end_with_parent). An instance leaves regions in /dev/shm: it
 * holds the reading end of a pipe whose writing end its launcher alone has, and a thread of it waits for that end to
 * close. When it does, the instance becomes another program (role "leftovers"), which ends its threads whatever they
 * are doing, removes what the process has left, and ends; and its executors with it.
 */
#ifndef TANDEM_REAL_FABRIC_LIFELINE_H
#define TANDEM_REAL_FABRIC_LIFELINE_H

#include <stdbool.h>
#include <sys/types.h>

/* In a child, right after the fork in `parent`: SIGKILL when the parent's thread that forked ends, and at once where it
 * has ended already. Holds through exec. Safe after a fork in a process with threads. */
void end_with_parent(pid_t parent);

/* The launcher's side. */
struct lifeline {
    int held;  /* reading end: goes to instances */
    int owned; /* writing end: stays */
};

bool lifeline_make(struct lifeline *line);
void lifeline_free(struct lifeline *line);

/* Around the fork of an instance: where it will find the line, and in the child that it stays open in the program that
 * follows. */
void lifeline_offer(const struct lifeline *line);
void lifeline_pass(const struct lifeline *line);
void lifeline_withdraw(void);

/* In an instance, before anything else. Nothing happens where no launcher on this machine has started it. */
void lifeline_hold(void);

/* From now on the instance hears by itself that its launcher is gone, and is left some seconds to end in order. */
void lifeline_ends_in_order(void);

/* The role. */
int leftovers_main(void);

#endif
