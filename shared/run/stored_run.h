/* A run whose rows go to the results database, in one transaction: begun, streamed, committed, or as if it had never
 * been.
 */
#ifndef TANDEM_RUN_STORED_RUN_H
#define TANDEM_RUN_STORED_RUN_H

#include "run/backend.h"

#include <pthread.h>

struct stored_run {
    struct results *store;
    const struct run_backend *backend;
    const struct run_config *config; /* its scenario's identity is the run's, and what was set its parameters: of a path
                                        set twice the last one counts. Of its listener, notices alone */
    enum results_kind kind;
    int64_t replay_of;     /* the run whose arrivals it has; 0: none */
    uint32_t record;       /* enum results_record */
    pthread_mutex_t *lock; /* of the store, where several threads run: rows are then kept until the run is over. NULL:
                              rows stream to the store, and memory does not grow with the number of requests */
};

/* Runs and stores. *run is the id; *summary, where it is not NULL, is filled from the run itself. Where the
 * run does not complete, storing fails or an interrupt is requested (RUN_STOPPED), nothing is stored, and but for the
 * latter `error` says why. */
enum run_status stored_run(const struct stored_run *what, int64_t *run, struct run_summary *summary,
                           struct user_error *error);

#endif
