/* An OpenAI-compatible server in front of whatever serves requests (struct server_engine): completions and chat
 * completions, streamed and not, /v1/models, /health, /metrics.
 *
 * One thread of libmicrohttpd reads and writes all connections; requests under way are suspended and cost nothing until
 * they have something to say. An answer's head is sent when its first token is there or it has ended without one, so
 * that a request that is turned away gets its status. A client that reads slowly gets what has come meanwhile in one
 * chunk: what waits for it is a number, not text. A client that goes away, or shuts down its side of the connection,
 * aborts its request within GONE_POLL_MS.
 *
 * No request is lost: each ends in an answer, an error, or its client's absence.
 */
#ifndef TANDEM_LIVE_SERVER_H
#define TANDEM_LIVE_SERVER_H

#include "live/metrics.h"
#include "run/run_record.h"
#include "host/user_error.h"
#include "runtime.h"

#include <stdbool.h>
#include <stdint.h>

/* Called with the server's lock held, by its threads: they return at once and do not call back. */
struct server_engine {
    void *self;
    uint32_t (*submit)(void *self, const struct request_spec *spec); /* its id */
    void (*abort)(void *self, uint32_t request);
    void (*read)(void *self, struct live_metrics *metrics); /* fills in what is now */
};

struct server_config {
    const char *host; /* a name or an address; the port of its own to be chosen is 0 */
    uint16_t port;
    const char *model;
    const char *api_key; /* NULL: anybody */
    uint32_t connections_max;
    uint64_t body_bytes_max;
    uint32_t request_tokens_max;
    uint32_t block_tokens; /* of a prefix block; 0: nothing is shared */
    struct server_engine engine;
};

struct server;

/* Listens and answers from now on. NULL with an error. */
struct server *server_start(const struct server_config *config, struct user_error *error);

uint16_t server_port(const struct server *server);

/* What an engine tells, by any one thread at a time. */
void server_tokens(struct server *server, uint32_t request, uint32_t count);
void server_first(struct server *server, uint32_t request); /* it has at least one token */
void server_ended(struct server *server, const struct request_row *row);

/* No connection is accepted any more. */
void server_quiesce(struct server *server);

/* What has been counted so far. */
void server_count(struct server *server, struct live_metrics *metrics);

/* The engine will tell nothing more. What is written is written, up to a second; then connections are closed. */
void server_stop(struct server *server);

#endif
