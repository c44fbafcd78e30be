/* A backend: one way to make time pass for the nodes of a run. The run (run.h) says what arrives and decides when it is
 * over; the backend delivers, waits, and says what its nodes did.
 *
 * A backend has a row of functions, and calls those below. A run goes
 *
 *     make, turn until it is over, end, summarize, free
 *
 * with run_begin() called by the first turn in which all nodes have begun: time 0.
 */
#ifndef TANDEM_RUN_BACKEND_H
#define TANDEM_RUN_BACKEND_H

#include "run/recorder.h"
#include "run/results/results.h"
#include "run/run.h"

struct run;

struct run_backend {
    enum results_backend stored_as;
    uint32_t record; /* enum results_record: stored beside what was asked for */
    /* Several runs may go on at once, one a thread. */
    bool concurrent;
    /* A request's row comes at the instant at which it ends, and tells it. Otherwise rows come later, and the backend
     * calls run_ended() where run_answers(). */
    bool rows_at_once;
    bool windows_in_pages; /* of struct deployment_sizes */

    /* What carries out the run. NULL with an error. */
    void *(*make)(struct run *run, struct user_error *error);
    void (*free)(void *self);
    int64_t (*now_ns)(const void *self);
    /* Requests that have arrived and not ended. */
    uint32_t (*live)(const void *self);
    /* To the front, now. The event dies with the return. */
    void (*arrive)(void *self, const struct event *event);
    /* run_feed() at that time, or TIME_NEVER; in place of what was said before. */
    void (*wake)(void *self, int64_t at_ns);
    /* run_answer() of the request at this instant, outside of every node. */
    void (*answer_soon)(void *self, uint32_t request);
    /* Tokens later than this count for gaps between tokens. */
    void (*count_from)(void *self, int64_t from_ns);
    /* Lets time pass. False: nothing more would come of it; where requests are live the backend has said why with
     * run_break(). */
    bool (*turn)(void *self);
    /* The run is over: a turn in hand ends soon. NULL: turns are short. */
    void (*stop)(void *self);
    /* Every request has ended: lets what is left come to rest, and judges it. May break the run. */
    void (*end)(void *self);
    /* What it alone knows of result->summary, result->instances[0..] (node 1 is the first) and result->itl, beside what
     * the run has filled in; samples go to the listener. */
    void (*summarize)(void *self, struct run_result *result);
};

/* For backends to read. */
struct run {
    const struct run_backend *backend;
    const struct run_config *config;
    const struct load *load;
    struct deployment *deployment;
    struct recorder *recorder;
    int64_t last_record_ns;  /* of a record about a request */
    int64_t last_arrival_ns; /* of a request or an abort */
    bool stopped;            /* the listener or an interrupt ended it */
    bool broken;             /* run_break() */

    /* The run's own. */
    void *self;
    struct run_result *result;
    struct workload *workload;
    uint32_t answering;      /* clients that are to be answered at this instant */
    int64_t counted_ns;      /* arrival of the first request behind a warm-up of so many; TIME_NEVER: not yet */
    uint32_t *conversations; /* by request; NULL: there are none */
    uint32_t conversation_room;
    bool done; /* every request has ended */
};

/* Time 0: the first arrival is asked for. */
void run_begin(struct run *run);

/* What is due. One arrival at a time; then the backend is told when the next one is. */
void run_feed(struct run *run);

/* Whether a client sends its next request when one has ended. Where a run is played again, all comes when it came. */
bool run_answers(const struct run *run);

/* A request has ended and its client is to be answered. */
void run_ended(struct run *run, uint32_t request);

/* A client whose request has ended sends its next one at once (closed loop) or when it has thought (conversation). */
void run_answer(struct run *run, uint32_t request);

/* Nothing more is to arrive, and nobody is to be answered. */
bool run_fed(const struct run *run);

/* Records of all nodes, in order of time. */
void run_trace(struct run *run, int64_t now_ns, const struct trace_record *record);

/* Ends the run as that. The first thing that goes wrong is the one that is told. */
void run_break(struct run *run, enum run_status status, const char *format, ...) USER_ERROR_FORMAT(3, 4);

/* A line for people. */
void run_notice(const struct run *run, const char *format, ...) USER_ERROR_FORMAT(2, 3);

#endif
