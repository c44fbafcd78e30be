/* See server.h. */
#define _POSIX_C_SOURCE 200809L
#include "live/server.h"

#include "base/arith.h"
#include "base/limits.h"
#include "host/memory.h"
#include "live/completion.h"
#include "host/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Between two looks for clients that went away. libmicrohttpd does not look at suspended connections. */
#define GONE_POLL_MS 100

/* A connection on which nothing moves so long, while it could, is closed: its client has stopped reading. */
#define IDLE_MAX_S 120u

#define TABLE_SIZE 4096u

/* One request of a client, from its head to the end of its answer. */
struct call {
    struct server *server;
    struct MHD_Connection *connection;
    bool completion;
    bool chat;
    bool too_large;
    char *body;
    size_t body_length;

    /* From here on under the server's lock. */
    struct completion_ask ask;
    bool asked;
    bool ended;
    bool suspended;
    bool gone;
    uint8_t outcome;
    uint8_t reason;
    uint32_t request;
    uint32_t limit; /* tokens of its answer */
    uint32_t produced;
    uint32_t sent;
    uint32_t cached_tokens;
    uint32_t stage; /* of the end of a stream: 0 tokens, 1 usage, 2 [DONE], 3 over */
    int64_t asked_ns;
    int64_t token_ns; /* of the last token */
    int64_t created_unix_s;
    char *pending; /* text on its way */
    size_t pending_at;
    size_t pending_length;
    struct call *next;     /* in the table's row */
    struct call *all_next; /* of all */
    struct call *all_before;
};

struct server {
    struct server_config config;
    struct MHD_Daemon *daemon;
    uint16_t port;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* `count` is 0, or `over` */
    struct call *table[TABLE_SIZE];
    struct call *all;
    uint32_t count;
    bool over;
    pthread_t watcher;
    int listener; /* after server_quiesce() */
    struct live_metrics metrics;
};

static void lock(struct server *server)
{
    CHECK(pthread_mutex_lock(&server->lock) == 0);
}

static void unlock(struct server *server)
{
    CHECK(pthread_mutex_unlock(&server->lock) == 0);
}

/* ---- Calls, under the lock --------------------------------------------------------------------------------------- */

static struct call **place(struct server *server, uint32_t request)
{
    struct call **at = &server->table[request % TABLE_SIZE];
    while (*at != NULL && (*at)->request != request)
        at = &(*at)->next;
    return at;
}

static void suspend(struct call *call)
{
    call->suspended = true;
    MHD_suspend_connection(call->connection);
}

static void resume(struct call *call)
{
    if (!call->suspended)
        return;
    call->suspended = false;
    MHD_resume_connection(call->connection);
}

static void grow_to(struct server *server, struct call *call, uint32_t produced)
{
    produced = min_u32(produced, call->limit);
    if (produced <= call->produced)
        return;
    int64_t now_ns = clock_now_ns();
    uint32_t more = produced - call->produced;
    if (call->produced == 0)
        histogram_add(&server->metrics.ttft, now_ns - call->asked_ns, 1);
    else
        histogram_add(&server->metrics.itl, now_ns - call->token_ns, 1);
    if (more > 1)
        histogram_add(&server->metrics.itl, 0, more - 1);
    server->metrics.generation_tokens += more;
    call->token_ns = now_ns;
    call->produced = produced;
    if (call->ask.stream)
        resume(call);
}

void server_tokens(struct server *server, uint32_t request, uint32_t count)
{
    lock(server);
    struct call *call = *place(server, request);
    if (call != NULL && !call->ended)
        grow_to(server, call, call->produced + count);
    unlock(server);
}

void server_first(struct server *server, uint32_t request)
{
    lock(server);
    struct call *call = *place(server, request);
    if (call != NULL && !call->ended)
        grow_to(server, call, 1);
    unlock(server);
}

void server_ended(struct server *server, const struct request_row *row)
{
    struct live_metrics *metrics = &server->metrics;
    lock(server);
    struct call *call = *place(server, row->request);
    metrics->completed += row->outcome == OUTCOME_COMPLETED;
    metrics->aborted += row->outcome == OUTCOME_ABORTED;
    metrics->failed += row->outcome == OUTCOME_FAILED || row->outcome == OUTCOME_REJECTED;
    if (row->outcome == OUTCOME_COMPLETED) {
        metrics->prompt_tokens += row->prompt_tokens;
        metrics->prefix_queries += row->prompt_tokens;
        metrics->prefix_hits += row->cached_tokens;
    }
    if (call != NULL) {
        if (row->outcome == OUTCOME_COMPLETED) {
            grow_to(server, call, call->limit);
            histogram_add(&metrics->e2e, clock_now_ns() - call->asked_ns, 1);
        }
        call->ended = true;
        call->outcome = row->outcome;
        call->reason = row->reason;
        call->cached_tokens = row->cached_tokens;
        resume(call);
    }
    unlock(server);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type, char *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_json(struct MHD_Connection *connection, unsigned status, char *text)
{
    return answer(connection, status, "application/json", text);
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status, const char *type, const char *why)
{
    return answer_json(connection, status, completion_error((int)status, type, why));
}

static struct completion_part part_of(const struct call *call, uint32_t first, uint32_t tokens, bool last)
{
    return (struct completion_part){
        .id = call->request,
        .created_unix_s = call->created_unix_s,
        .model = call->server->config.model,
        .first = first,
        .tokens = tokens,
        .last = last,
        .usage = call->ask.continuous_usage,
        .cached_tokens = call->cached_tokens,
    };
}

/* Why a request did not complete, as a status. */
static unsigned status_of(const struct call *call, char *why, size_t size)
{
    bool rejected = call->outcome == OUTCOME_REJECTED;
    if (call->outcome == OUTCOME_ABORTED) {
        snprintf(why, size, "the server is shutting down");
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    snprintf(why, size, "%s", outcome_reason_text((enum outcome)call->outcome, call->reason));
    if (rejected && (call->reason == REJECT_TOO_LARGE_PREFILL || call->reason == REJECT_TOO_LARGE_DECODE))
        return MHD_HTTP_BAD_REQUEST;
    return rejected ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_INTERNAL_SERVER_ERROR;
}

static void set_pending(struct call *call, char *json)
{
    size_t size = strlen(json) + 16;
    call->pending = memory_get(size);
    call->pending_at = 0;
    call->pending_length = (size_t)snprintf(call->pending, size, "data: %s\n\n", json);
    free(json);
}

/* The next event of the stream, if there is something to say. */
static bool fill(struct call *call)
{
    bool failed = call->ended && call->outcome != OUTCOME_COMPLETED;
    if (call->stage == 0 && call->produced > call->sent) {
        bool last = call->ended && !failed;
        struct completion_part part = part_of(call, call->sent, call->produced - call->sent, last);
        call->sent = call->produced;
        call->stage = last ? 1 : 0;
        set_pending(call, completion_chunk(&call->ask, &part));
    } else if (call->stage == 0 && failed) {
        char why[256];
        unsigned status = status_of(call, why, sizeof why);
        call->stage = 2;
        set_pending(call, completion_error((int)status, "InternalServerError", why));
    } else if (call->stage == 0 && call->ended) {
        struct completion_part part = part_of(call, call->sent, 0, true);
        call->stage = 1;
        set_pending(call, completion_chunk(&call->ask, &part));
    } else if (call->stage == 1 && call->ask.include_usage) {
        struct completion_part part = part_of(call, call->sent, 0, true);
        call->stage = 2;
        set_pending(call, completion_usage_chunk(&call->ask, &part));
    } else if (call->stage == 1 || call->stage == 2) {
        call->stage = 3;
        set_pending(call, memory_copy("[DONE]"));
    } else {
        return false;
    }
    return true;
}

static ssize_t read_stream(void *self, uint64_t position, char *buffer, size_t size)
{
    (void)position;
    struct call *call = self;
    struct server *server = call->server;
    ssize_t got = 0;
    lock(server);
    if (call->gone) {
        got = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (call->pending != NULL || fill(call)) {
        size_t some = min_u64(size, call->pending_length - call->pending_at);
        memcpy(buffer, call->pending + call->pending_at, some);
        call->pending_at += some;
        got = (ssize_t)some;
        if (call->pending_at == call->pending_length) {
            free(call->pending);
            call->pending = NULL;
        }
    } else if (call->stage == 3) {
        got = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        suspend(call);
    }
    unlock(server);
    return got;
}

static enum MHD_Result start_stream(struct call *call)
{
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, call, NULL);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream; charset=utf-8");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    enum MHD_Result result = MHD_queue_response(call->connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

/* Resumed: there is something to say, or nobody to say it to. */
static enum MHD_Result answer_call(struct call *call)
{
    struct server *server = call->server;
    char why[256];
    char *text = NULL;
    unsigned status = MHD_HTTP_OK;
    lock(server);
    bool gone = call->gone;
    bool ready = call->ended || (call->ask.stream && call->produced > 0);
    bool stream = call->ask.stream && call->produced > 0;
    if (!gone && !ready) {
        suspend(call);
    } else if (!gone && !stream && call->outcome == OUTCOME_COMPLETED) {
        struct completion_part part = part_of(call, 0, call->produced, true);
        text = completion_answer(&call->ask, &part);
    } else if (!gone && !stream) {
        status = status_of(call, why, sizeof why);
        text = completion_error((int)status, status == MHD_HTTP_BAD_REQUEST ? "BadRequestError" : "ServiceUnavailable",
                                why);
    }
    unlock(server);
    if (gone)
        return MHD_NO;
    if (!ready)
        return MHD_YES;
    return stream ? start_stream(call) : answer_json(call->connection, status, text);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static void submit(struct call *call)
{
    struct server *server = call->server;
    struct request_spec spec = {
        .prompt_tokens = call->ask.prompt_tokens,
        .output_tokens = call->limit,
        .block_tokens = server->config.block_tokens,
    };
    uint64_t *blocks = NULL;
    if (spec.block_tokens != 0)
        blocks = completion_blocks(&call->ask, spec.block_tokens, &spec.block_count);
    spec.blocks = blocks;
    call->created_unix_s = (int64_t)time(NULL);
    lock(server);
    call->asked = true;
    call->asked_ns = clock_now_ns();
    call->request = server->config.engine.submit(server->config.engine.self, &spec);
    call->next = server->table[call->request % TABLE_SIZE];
    server->table[call->request % TABLE_SIZE] = call;
    suspend(call);
    unlock(server);
    free(blocks);
    completion_ask_free(&call->ask);
}

static enum MHD_Result ask(struct call *call)
{
    struct MHD_Connection *connection = call->connection;
    const struct server_config *config = &call->server->config;
    struct user_error error = {.set = false};
    if (call->too_large)
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "BadRequestError", "the body is too large");
    bool good =
        completion_read(call->body == NULL ? "" : call->body, call->body_length, call->chat, &call->ask, &error);
    free(call->body);
    call->body = NULL;
    if (!good)
        return refuse(connection, MHD_HTTP_BAD_REQUEST, "BadRequestError", error.text);
    if (call->ask.model[0] != '\0' && strcmp(call->ask.model, config->model) != 0) {
        user_error_set(&error, NULL, 0, NULL, "the model %.100s does not exist; %.100s is served", call->ask.model,
                       config->model);
        return refuse(connection, MHD_HTTP_NOT_FOUND, "NotFoundError", error.text);
    }
    uint32_t prompt = call->ask.prompt_tokens;
    uint32_t output = call->ask.output_tokens;
    if (output == 0 && prompt < config->request_tokens_max)
        output = config->request_tokens_max - prompt;
    if (output == 0 || (uint64_t)prompt + output > config->request_tokens_max) {
        user_error_set(&error, NULL, 0, NULL,
                       "a request may have %" PRIu32 " tokens here, and this one has %" PRIu32
                       " in its prompt and asks for "
                       "%" PRIu32,
                       config->request_tokens_max, prompt, output);
        return refuse(connection, MHD_HTTP_BAD_REQUEST, "BadRequestError", error.text);
    }
    call->limit = output;
    submit(call);
    return MHD_YES;
}

/* The time that it takes says nothing of where they differ. */
static bool same_text(const char *a, const char *b)
{
    size_t length = strlen(b);
    unsigned char differ = strlen(a) != length;
    for (size_t i = 0; i < length && i < strlen(a); i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}

static bool allowed(const struct server *server, struct MHD_Connection *connection)
{
    static const char scheme[] = "Bearer ";
    const char *given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (server->config.api_key == NULL)
        return true;
    return given != NULL && strncmp(given, scheme, sizeof scheme - 1) == 0 &&
           same_text(given + sizeof scheme - 1, server->config.api_key);
}

static enum MHD_Result models(const struct server *server, struct MHD_Connection *connection)
{
    json_t *json = json_pack("{s:s,s:[{s:s,s:s,s:i,s:s,s:s,s:i}]}", "object", "list", "data", "id",
                             server->config.model, "object", "model", "created", 0, "owned_by", "tandem", "root",
                             server->config.model, "max_model_len", (int)server->config.request_tokens_max);
    char *text = memory_given(json_dumps(json, JSON_COMPACT));
    json_decref(json);
    return answer_json(connection, MHD_HTTP_OK, text);
}

void server_count(struct server *server, struct live_metrics *metrics)
{
    lock(server);
    server->config.engine.read(server->config.engine.self, &server->metrics);
    *metrics = server->metrics;
    unlock(server);
}

static enum MHD_Result get(struct server *server, struct MHD_Connection *connection, const char *url)
{
    struct live_metrics metrics;
    if (strcmp(url, "/health") == 0)
        return answer(connection, MHD_HTTP_OK, "text/plain", memory_copy(""));
    if (strcmp(url, "/v1/models") == 0)
        return models(server, connection);
    if (strcmp(url, "/metrics") != 0)
        return refuse(connection, MHD_HTTP_NOT_FOUND, "NotFoundError", "no such page");
    server_count(server, &metrics);
    return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4", metrics_text(&metrics, server->config.model));
}

static void keep_body(struct call *call, const char *data, size_t length)
{
    if (call->too_large || call->body_length + length > call->server->config.body_bytes_max) {
        call->too_large = true;
        return;
    }
    call->body = memory_resized(call->body, call->body_length + length);
    memcpy(call->body + call->body_length, data, length);
    call->body_length += length;
}

static struct call *make_call(struct server *server, struct MHD_Connection *connection, const char *url)
{
    struct call *call = memory_zeroed(1, sizeof *call);
    call->server = server;
    call->connection = connection;
    call->chat = strcmp(url, "/v1/chat/completions") == 0;
    call->completion = call->chat || strcmp(url, "/v1/completions") == 0;
    lock(server);
    call->all_next = server->all;
    if (server->all != NULL)
        server->all->all_before = call;
    server->all = call;
    server->count++;
    unlock(server);
    return call;
}

static enum MHD_Result handle(void *self, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *length, void **state)
{
    (void)version;
    struct server *server = self;
    struct call *call = *state;
    if (call == NULL) {
        *state = make_call(server, connection, url);
        return MHD_YES;
    }
    if (*length > 0) {
        keep_body(call, data, *length);
        *length = 0;
        return MHD_YES;
    }
    if (call->asked)
        return answer_call(call);
    bool posts = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    if (strncmp(url, "/v1/", 4) == 0 && !allowed(server, connection))
        return refuse(connection, MHD_HTTP_UNAUTHORIZED, "AuthenticationError", "the API key is missing or wrong");
    if (call->completion != posts || (!posts && strcmp(method, MHD_HTTP_METHOD_GET) != 0))
        return refuse(connection, call->completion || !posts ? MHD_HTTP_METHOD_NOT_ALLOWED : MHD_HTTP_NOT_FOUND,
                      "BadRequestError", "no such method here");
    return posts ? ask(call) : get(server, connection, url);
}

static void completed(void *self, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode how)
{
    (void)connection;
    (void)how;
    struct server *server = self;
    struct call *call = *state;
    if (call == NULL)
        return;
    *state = NULL;
    lock(server);
    if (call->asked) {
        *place(server, call->request) = call->next;
        if (!call->ended)
            server->config.engine.abort(server->config.engine.self, call->request);
    }
    if (call->all_next != NULL)
        call->all_next->all_before = call->all_before;
    if (call->all_before != NULL)
        call->all_before->all_next = call->all_next;
    else
        server->all = call->all_next;
    server->count--;
    if (server->count == 0)
        CHECK(pthread_cond_broadcast(&server->changed) == 0);
    unlock(server);
    completion_ask_free(&call->ask);
    free(call->pending);
    free(call->body);
    free(call);
}

/* ---- Clients that go away ---------------------------------------------------------------------------------------- */

static bool went_away(const struct call *call)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(call->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    if (info == NULL)
        return false;
    ssize_t got = recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void *watch(void *self)
{
    struct server *server = self;
    lock(server);
    while (!server->over) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += GONE_POLL_MS * 1000000L;
        until.tv_sec += until.tv_nsec / NS_PER_S;
        until.tv_nsec %= NS_PER_S;
        while (!server->over && pthread_cond_timedwait(&server->changed, &server->lock, &until) == 0)
            continue;
        for (struct call *call = server->all; call != NULL; call = call->all_next) {
            if (!call->suspended || !went_away(call))
                continue;
            call->gone = true;
            resume(call);
        }
    }
    unlock(server);
    return NULL;
}

/* ---- Start and stop ---------------------------------------------------------------------------------------------- */

/* Each connection is a descriptor; some are for everything else. */
static bool room_for_connections(uint32_t connections, struct user_error *error)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)connections + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return true;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > need ? need : limit.rlim_max;
    if (limit.rlim_cur >= need && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return true;
    user_error_set(error, NULL, 0, NULL, "--connections %" PRIu32 ": this process may open %ju files (ulimit -n)",
                   connections, (uintmax_t)limit.rlim_max);
    return false;
}

static bool listen_at(struct server *server, struct user_error *error)
{
    const struct server_config *config = &server->config;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)config->port);
    int failure = getaddrinfo(config->host, port, &hints, &found);
    if (failure != 0) {
        user_error_set(error, NULL, 0, NULL, "--host %s: %s", config->host, gai_strerror(failure));
        return false;
    }
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    if (found->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    errno = 0;
    server->daemon = MHD_start_daemon(flags, config->port, NULL, NULL, handle, server, MHD_OPTION_SOCK_ADDR,
                                      found->ai_addr, MHD_OPTION_CONNECTION_LIMIT, (unsigned)config->connections_max,
                                      MHD_OPTION_CONNECTION_TIMEOUT, IDLE_MAX_S, MHD_OPTION_NOTIFY_COMPLETED, completed,
                                      server, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
    freeaddrinfo(found);
    if (server->daemon == NULL) {
        user_error_set(error, NULL, 0, NULL, "%s port %u: cannot listen there: %s", config->host,
                       (unsigned)config->port, strerror(errno));
        return false;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    server->port = info == NULL ? config->port : info->port;
    return true;
}

struct server *server_start(const struct server_config *config, struct user_error *error)
{
    struct server *server = memory_zeroed(1, sizeof *server);
    pthread_condattr_t attributes;
    server->config = *config;
    server->listener = -1;
    CHECK(pthread_mutex_init(&server->lock, NULL) == 0 && pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&server->changed, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
    if (room_for_connections(config->connections_max, error) && listen_at(server, error)) {
        CHECK(pthread_create(&server->watcher, NULL, watch, server) == 0);
        return server;
    }
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    free(server);
    return NULL;
}

uint16_t server_port(const struct server *server)
{
    return server->port;
}

void server_quiesce(struct server *server)
{
    if (server->listener < 0)
        server->listener = MHD_quiesce_daemon(server->daemon);
}

void server_stop(struct server *server)
{
    struct timespec until;
    server_quiesce(server);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 1;
    lock(server);
    while (server->count > 0 && pthread_cond_timedwait(&server->changed, &server->lock, &until) == 0)
        continue;
    server->over = true;
    for (struct call *call = server->all; call != NULL; call = call->all_next) {
        call->gone = true;
        call->ended = true;
        resume(call);
    }
    CHECK(pthread_cond_broadcast(&server->changed) == 0);
    unlock(server);
    CHECK(pthread_join(server->watcher, NULL) == 0);
    MHD_stop_daemon(server->daemon);
    if (server->listener >= 0)
        close(server->listener);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
