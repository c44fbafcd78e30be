/* Many streamed completions at once over HTTP/1.1, by one thread: libcurl's multi_socket interface on epoll. Nothing is
 * retried, redirected or hidden: every exchange ends once, and says how.
 *
 * Answers are read as they come; each token is told at the time at which its bytes were read.
 */
#ifndef TANDEM_LIVE_LOAD_CLIENT_H
#define TANDEM_LIVE_LOAD_CLIENT_H

#include "host/user_error.h"
#include "live/reply.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exchange_end {
    EXCHANGE_COMPLETE = 1,  /* [DONE], or an orderly end behind a reason to finish */
    EXCHANGE_OVERLOAD = 2,  /* status 429, 503 or 529 */
    EXCHANGE_REFUSED = 3,   /* any other status than 200 */
    EXCHANGE_ERROR = 4,     /* an error in a stream that began well */
    EXCHANGE_CUT = 5,       /* the stream ended before the answer did */
    EXCHANGE_MALFORMED = 6, /* what came is no such answer */
    EXCHANGE_UNREACHED = 7, /* no connection */
    EXCHANGE_STALLED = 8,   /* nothing came for too long */
    EXCHANGE_EMPTY = 9,     /* complete, without a token */
    EXCHANGE_END_COUNT = 10,
};

struct exchange_result {
    enum exchange_end end;
    long status; /* of HTTP; 0: none */
    const struct reply *reply;
    const char *why; /* of what is not complete */
};

struct load_client_events {
    void *self;
    void (*tokens)(void *self, uint32_t id, uint32_t count, int64_t at_ns);
    /* Nothing more will be heard of it. */
    void (*ended)(void *self, uint32_t id, const struct exchange_result *result, int64_t at_ns);
};

struct load_client_config {
    const char *url; /* of completions */
    const char *api_key;
    uint32_t idle_max_s;   /* an answer of which nothing comes for so long has stalled */
    const char *authority; /* a file of certificates, in place of the system's; NULL: those */
    struct load_client_events events;
};

struct load_client;

/* NULL with an error. */
struct load_client *load_client_make(const struct load_client_config *config, struct user_error *error);
void load_client_free(struct load_client *client);

/* Asks now. Takes the body, which is the client's from then on. */
void load_client_send(struct load_client *client, uint32_t id, char *body, size_t length);

/* Closes the connection: the answer is no longer wanted, and nothing more is told of it. False: it has ended. */
bool load_client_abort(struct load_client *client, uint32_t id);

uint32_t load_client_live(const struct load_client *client);

/* Lets things happen until `until_ns` on CLOCK_MONOTONIC or until something has. Returns how long it was busy with
 * what came, for which it did not look for more. */
int64_t load_client_turn(struct load_client *client, int64_t until_ns);

/* GET, waited for: the body, the caller's; NULL with an error. Other statuses than 200 are errors. */
char *load_client_get(const char *url, const char *api_key, const char *authority, struct user_error *error);

#endif
