/* An endpoint as a backend of runs (run/backend.h): the load's requests are sent to it when their time has come, as
 * streamed completions, and their rows are what a client saw.
 *
 * Of a row the boundaries are: arrived, when the load has it; received, when it was sent (so that the first span is how
 * late this client was); first token; finished, its last token. Latencies count from the arrival of the load, not from
 * the sending. A chunk with several tokens brought the others at once.
 *
 * The run is told, as notices and samples, how late the client was, how long it did not listen, and what the endpoint
 * said otherwise than was asked for.
 */
#ifndef TANDEM_LIVE_LIVE_BACKEND_H
#define TANDEM_LIVE_LIVE_BACKEND_H

#include "live/prompt.h"
#include "run/backend.h"

extern const struct run_backend live_backend; /* its options are struct live_options, which it needs */

struct live_options {
    const char *endpoint; /* http://host:port/v1 */
    const char *api_key;
    const char *model; /* NULL: the first of /models */
    const char *authority;
    enum prompt_kind prompt;
    uint64_t salt;
    uint32_t vocabulary; /* 0: the model's */
    uint32_t idle_max_s;
};

#endif
