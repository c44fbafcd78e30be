/* Whole real runs for tests: the test program is also the launcher, its instances and their executors, since a real run
 * starts its processes from /proc/self/exe. A test's main() begins with run_real_role().
 */
#ifndef TANDEM_TESTS_SUPPORT_REAL_RUN_H
#define TANDEM_TESTS_SUPPORT_REAL_RUN_H

#include "messenger/wire.h"
#include "run/results/results.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct trace_record;

#define REAL_RUN_PROCESSES_MAX 64

struct real_run {
    char folder[64]; /* of its own, with run.db, tokens.csv, events/, log */
    pid_t launcher;
    pid_t processes[REAL_RUN_PROCESSES_MAX]; /* instances first, then executors; filled by real_run_processes() */
    uint32_t owner[REAL_RUN_PROCESSES_MAX];  /* of an executor: the place of its instance; nodes are in order */
    uint32_t instance_count;
    uint32_t process_count;
};

/* Starts `tandem run SCENARIO --backend real` with more options, which end with NULL; --db, --tokens and
 * --record-events are given.
 * The scenario's path is absolute, or relative to the tree. */
void real_run_start(struct real_run *run, const char *scenario, const char *const *options);

/* Waits until the launcher has `instances` instances that have executors. Fails the test after 60 s, false if it ends
 * first. */
bool real_run_processes(struct real_run *run, uint32_t instances);

/* Takes down the processes that are there at this moment. */
void real_run_look(struct real_run *run);

/* Its launcher has ended; real_run_wait() still says how. */
bool real_run_ended(const struct real_run *run);

/* Waits until requests have arrived: the front's recording grows (the run must have --record-events, which is given).
 * Fails the test after 60 s, false if the run ends first. */
bool real_run_started(const struct real_run *run);

/* The same, until the front's recording has `bytes`: a measure of how far a run is, however slow the machine. */
bool real_run_recorded(const struct real_run *run, int64_t bytes);
int64_t real_run_recorded_bytes(const struct real_run *run);

/* Of the messages that `node` was given, as it has been recorded so far, how many `wanted` picks; and of those that it
 * has sent to `to`. Of a run that goes on, too. */
uint32_t real_run_heard(const struct real_run *run, uint32_t node, bool (*wanted)(const struct message *m));
uint32_t real_run_said(const struct real_run *run, uint32_t node, uint32_t to, bool (*wanted)(const struct message *m));

/* Stops a process, and comes back when all its threads stand still. */
void real_run_stop(pid_t process);

/* Whether its output so far has this text. */
bool real_run_logged(const struct real_run *run, const char *text);

/* Its output, on standard error. */
void real_run_show_log(const struct real_run *run);

/* The thread of a process that bears this name; 0: none. */
pid_t real_run_thread(pid_t process, const char *name);

/* Waits for the end; the exit status, or 128 + the signal. Shows the log when it is not `wanted`. */
int real_run_wait(struct real_run *run, int wanted);

/* The newest run of its database. */
void real_run_read(const struct real_run *run, struct run_report *report);

bool real_run_has_database(const struct real_run *run);

/* Complete runs in its database; 0 while there is none, or no schema in it. */
uint64_t real_run_stored(const struct real_run *run);

/* The integer that a query of its database answers with; 0 for none. */
int64_t real_run_query(const struct real_run *run, const char *sql);

/* Fails the test unless the database is whole: pages, indexes, references. */
void real_run_database_sound(const struct real_run *run);

/* Gives the recording of node `node` to a new node, which must make the same calls, and tells `heard` of its trace
 * records. Returns the number of events. */
int64_t real_run_replay(const struct real_run *run, const char *scenario, const char *const *options, uint32_t node,
                        void (*heard)(void *self, int64_t now_ns, const struct trace_record *record), void *self);

/* Nothing of a process that has ended is in /dev/shm. */
bool real_run_in_shared_memory(pid_t process);

/* Nothing is left of it: no process that real_run_processes() saw, nor of its launcher, and nothing of theirs in
 * /dev/shm. Fails the test. */
void real_run_left_nothing(const struct real_run *run);

/* Every token it wrote down is the reference's, and every completed request has all of its tokens. Returns how many
 * were compared. The reference is computed once for runs of the same scenario that follow each other. */
uint32_t real_run_check_tokens(const struct real_run *run, const char *scenario, const char *const *options);

/* The same for devices that do not compute to the bit what the host device does: no token's logit is more than
 * `tolerance` below the greatest that the host device has after the same tokens. *exact: how many are the host's. */
uint32_t real_run_check_tokens_near(const struct real_run *run, const char *scenario, const char *const *options,
                                    float tolerance, uint32_t *exact);

/* Removes its folder. */
void real_run_free(struct real_run *run);

#endif
