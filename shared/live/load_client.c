/* See load_client.h. */
#define _POSIX_C_SOURCE 200809L
#include "live/load_client.h"

#include "base/arith.h"
#include "host/memory.h"
#include "live/sse.h"
#include "host/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_MAX_S 30L
#define STALL_POLL_NS (NS_PER_S / 4) /* between two looks for answers of which nothing comes */
#define EVENTS_AT_ONCE 256
#define TABLE_SIZE 4096u
#define ERROR_BODY_MAX 2048u
#define GET_BYTES_MAX (4u << 20)

/* One request and its answer. Kept for the next one when it has ended. */
struct exchange {
    struct load_client *client;
    CURL *easy;
    uint32_t id;
    char *body;
    struct sse_reader reader;
    struct reply reply;
    bool streams; /* status 200: events come */
    bool malformed;
    bool error;
    char text[ERROR_BODY_MAX]; /* of a body that is no stream */
    size_t text_length;
    int64_t heard_ns;      /* when something came, or it was sent */
    struct exchange *next; /* in the table's row, or the free ones */
};

struct load_client {
    struct load_client_config config;
    CURLM *multi;
    struct curl_slist *headers;
    int epoll;
    int timer;         /* for the time to return, as exact as the kernel's */
    int64_t curl_ns;   /* when libcurl wants to be called; TIME_NEVER */
    int64_t read_ns;   /* of the events in hand */
    int64_t looked_ns; /* for what has stalled */
    struct exchange *table[TABLE_SIZE];
    struct exchange *free;
    uint32_t live;
};

/* ---- What libcurl asks for --------------------------------------------------------------------------------------- */

static int on_socket(CURL *easy, curl_socket_t socket, int what, void *self, void *known)
{
    (void)easy;
    struct load_client *client = self;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(client->epoll, EPOLL_CTL_DEL, socket, NULL);
        return 0;
    }
    struct epoll_event event = {.data.fd = socket};
    event.events =
        ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0) | ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0);
    bool there = known != NULL;
    if (epoll_ctl(client->epoll, there ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event) != 0)
        epoll_ctl(client->epoll, there ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event);
    curl_multi_assign(client->multi, socket, client);
    return 0;
}

static int on_timer(CURLM *multi, long wait_ms, void *self)
{
    (void)multi;
    struct load_client *client = self;
    client->curl_ns = wait_ms < 0 ? TIME_NEVER : time_add(clock_now_ns(), wait_ms * 1000000);
    return 0;
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static bool on_event(void *self, const char *data, size_t length)
{
    struct exchange *exchange = self;
    struct load_client *client = exchange->client;
    enum reply_kind kind = reply_event(&exchange->reply, data, length);
    exchange->error = exchange->error || kind == REPLY_ERROR;
    exchange->malformed = kind == REPLY_UNKNOWN;
    if (kind == REPLY_TOKENS)
        client->config.events.tokens(client->config.events.self, exchange->id, exchange->reply.new_tokens,
                                     client->read_ns);
    return !exchange->malformed;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *self)
{
    struct exchange *exchange = self;
    size_t length = size * count;
    long status = 0;
    exchange->heard_ns = exchange->client->read_ns;
    if (!exchange->streams && exchange->text_length == 0)
        curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    exchange->streams = exchange->streams || status == 200;
    if (exchange->streams && !sse_feed(&exchange->reader, bytes, length, on_event, exchange)) {
        exchange->malformed = true;
        return 0;
    }
    if (!exchange->streams || (!exchange->reply.done && exchange->reply.chunks == 0)) {
        /* Its beginning, for people: of an error, or of what is no stream. */
        size_t some = min_u64(length, sizeof exchange->text - exchange->text_length);
        memcpy(exchange->text + exchange->text_length, bytes, some);
        exchange->text_length += some;
    }
    return length;
}

static enum exchange_end end_of(struct exchange *exchange, CURLcode code, long status)
{
    const struct reply *reply = &exchange->reply;
    if (status == 429 || status == 503 || status == 529)
        return EXCHANGE_OVERLOAD;
    if (status != 0 && status != 200)
        return EXCHANGE_REFUSED;
    if (exchange->error)
        return EXCHANGE_ERROR;
    if (exchange->malformed)
        return EXCHANGE_MALFORMED;
    if (code == CURLE_OPERATION_TIMEDOUT && status == 200)
        return EXCHANGE_STALLED;
    if (reply->done || (code == CURLE_OK && reply->finished && !sse_unfinished(&exchange->reader)))
        return reply->tokens > 0 || reply->usage_tokens > 0 ? EXCHANGE_COMPLETE : EXCHANGE_EMPTY;
    if (status == 200 && code == CURLE_OK && reply->chunks == 0 && exchange->text_length > 0)
        return EXCHANGE_MALFORMED;
    curl_off_t sent = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    if (status == 0 && sent == 0)
        return EXCHANGE_UNREACHED;
    return code == CURLE_OPERATION_TIMEDOUT ? EXCHANGE_STALLED : EXCHANGE_CUT;
}

static void tell_end(struct exchange *exchange, CURLcode code)
{
    const struct load_client_events *events = &exchange->client->config.events;
    long status = 0;
    char why[192] = "";
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    enum exchange_end end = end_of(exchange, code, status);
    if (end == EXCHANGE_OVERLOAD || end == EXCHANGE_REFUSED || end == EXCHANGE_MALFORMED)
        reply_error_text(exchange->text, exchange->text_length, why, sizeof why);
    else if (end == EXCHANGE_ERROR)
        snprintf(why, sizeof why, "%s", exchange->reply.error);
    else if (end != EXCHANGE_COMPLETE && end != EXCHANGE_EMPTY)
        snprintf(why, sizeof why, "%s", code == CURLE_OK ? "it ended before [DONE]" : curl_easy_strerror(code));
    struct exchange_result result = {.end = end, .status = status, .reply = &exchange->reply, .why = why};
    events->ended(events->self, exchange->id, &result, clock_now_ns());
}

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

static struct exchange **place(struct load_client *client, uint32_t id)
{
    struct exchange **at = &client->table[id % TABLE_SIZE];
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void put_away(struct exchange *exchange)
{
    struct load_client *client = exchange->client;
    curl_multi_remove_handle(client->multi, exchange->easy);
    struct exchange **at = place(client, exchange->id);
    CHECK(*at == exchange);
    *at = exchange->next;
    free(exchange->body);
    exchange->body = NULL;
    exchange->next = client->free;
    client->free = exchange;
    client->live--;
}

static struct exchange *make_exchange(struct load_client *client)
{
    const struct load_client_config *config = &client->config;
    struct exchange *exchange = memory_zeroed(1, sizeof *exchange);
    CURL *easy = memory_given(curl_easy_init());
    exchange->client = client;
    exchange->easy = easy;
    curl_easy_setopt(easy, CURLOPT_URL, config->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    /* A connection a request: libcurl sends a request once more, and does not say so, where one that it has used before
     * is closed without an answer. */
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_MAX_S);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    if (config->authority != NULL)
        curl_easy_setopt(easy, CURLOPT_CAINFO, config->authority);
    return exchange;
}

void load_client_send(struct load_client *client, uint32_t id, char *body, size_t length)
{
    struct exchange *exchange = client->free;
    if (exchange != NULL)
        client->free = exchange->next;
    else
        exchange = make_exchange(client);
    exchange->id = id;
    exchange->body = body;
    exchange->streams = exchange->malformed = exchange->error = false;
    exchange->text_length = 0;
    exchange->heard_ns = clock_now_ns();
    exchange->reply = (struct reply){0};
    sse_reset(&exchange->reader);
    exchange->next = client->table[id % TABLE_SIZE];
    client->table[id % TABLE_SIZE] = exchange;
    client->live++;
    curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
    curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDS, body);
    CHECK(curl_multi_add_handle(client->multi, exchange->easy) == CURLM_OK);
}

bool load_client_abort(struct load_client *client, uint32_t id)
{
    struct exchange *exchange = *place(client, id);
    if (exchange == NULL)
        return false;
    put_away(exchange); /* libcurl closes a connection in the middle of an answer */
    return true;
}

uint32_t load_client_live(const struct load_client *client)
{
    return client->live;
}

static void take_ended(struct load_client *client)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        struct exchange *exchange = NULL;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        tell_end(exchange, code);
        put_away(exchange);
    }
}

static void end_stalled(struct load_client *client)
{
    int64_t now_ns = clock_now_ns();
    int64_t before_ns = now_ns - (int64_t)client->config.idle_max_s * NS_PER_S;
    if (now_ns - client->looked_ns < STALL_POLL_NS)
        return;
    client->looked_ns = now_ns;
    for (uint32_t i = 0; i < TABLE_SIZE; i++)
        for (struct exchange *exchange = client->table[i], *next; exchange != NULL; exchange = next) {
            next = exchange->next;
            if (exchange->heard_ns > before_ns)
                continue;
            tell_end(exchange, CURLE_OPERATION_TIMEDOUT);
            put_away(exchange);
        }
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

static void wait_until(struct load_client *client, int64_t until_ns)
{
    struct itimerspec at = {.it_value = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S}};
    CHECK(timerfd_settime(client->timer, TFD_TIMER_ABSTIME, &at, NULL) == 0);
}

int64_t load_client_turn(struct load_client *client, int64_t until_ns)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    int running;
    wait_until(client, max_i64(1, min_i64(until_ns, client->curl_ns)));
    int count = epoll_wait(client->epoll, events, EVENTS_AT_ONCE, -1);
    client->read_ns = clock_now_ns();
    int64_t began_ns = client->read_ns;
    for (int i = 0; i < count; i++) {
        uint32_t happened = events[i].events;
        if (events[i].data.fd == client->timer)
            continue;
        int what = ((happened & (uint32_t)EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                   ((happened & (uint32_t)EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                   ((happened & (uint32_t)(EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(client->multi, events[i].data.fd, what, &running);
    }
    if (client->curl_ns <= clock_now_ns()) {
        client->curl_ns = TIME_NEVER;
        curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        /* What is not due yet by less than its millisecond stays, and is not told again. */
        long wait_ms = -1;
        if (client->curl_ns == TIME_NEVER && curl_multi_timeout(client->multi, &wait_ms) == CURLM_OK)
            on_timer(client->multi, wait_ms, client);
    }
    take_ended(client);
    end_stalled(client);
    return clock_now_ns() - began_ns;
}

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

static void add_header(struct curl_slist **headers, const char *text)
{
    *headers = memory_given(curl_slist_append(*headers, text));
}

static struct curl_slist *make_headers(const char *api_key)
{
    struct curl_slist *headers = NULL;
    add_header(&headers, "Content-Type: application/json");
    add_header(&headers, "Accept: text/event-stream");
    add_header(&headers, "Expect:"); /* no round trip before a long body */
    if (api_key != NULL) {
        size_t size = strlen(api_key) + 32;
        char *text = memory_get(size);
        snprintf(text, size, "Authorization: Bearer %s", api_key);
        add_header(&headers, text);
        free(text);
    }
    return headers;
}

struct load_client *load_client_make(const struct load_client_config *config, struct user_error *error)
{
    struct rlimit files;
    struct load_client *client = memory_zeroed(1, sizeof *client);
    client->config = *config;
    client->curl_ns = TIME_NEVER;
    client->epoll = epoll_create1(EPOLL_CLOEXEC);
    client->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = client->timer};
    if (client->epoll < 0 || client->timer < 0 || epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->timer, &event) != 0 ||
        curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        user_error_set(error, NULL, 0, NULL, "%s: %s", config->url, strerror(errno));
        load_client_free(client);
        return NULL;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* a connection a stream; what is short is told by those that fail */
    }
    client->multi = memory_given(curl_multi_init());
    client->headers = make_headers(config->api_key);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    return client;
}

static void free_exchange(struct exchange *exchange)
{
    curl_easy_cleanup(exchange->easy);
    sse_free(&exchange->reader);
    free(exchange->body);
    free(exchange);
}

void load_client_free(struct load_client *client)
{
    for (uint32_t i = 0; i < TABLE_SIZE; i++)
        while (client->table[i] != NULL)
            put_away(client->table[i]);
    while (client->free != NULL) {
        struct exchange *next = client->free->next;
        free_exchange(client->free);
        client->free = next;
    }
    if (client->multi != NULL)
        curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    if (client->epoll >= 0)
        close(client->epoll);
    if (client->timer >= 0)
        close(client->timer);
    free(client);
}

/* ---- One answer alone -------------------------------------------------------------------------------------------- */

struct body {
    char *text;
    size_t length;
};

static size_t on_body(char *bytes, size_t size, size_t count, void *self)
{
    struct body *body = self;
    size_t length = size * count;
    if (body->length + length > GET_BYTES_MAX)
        return 0;
    body->text = memory_resized(body->text, body->length + length + 1);
    memcpy(body->text + body->length, bytes, length);
    body->length += length;
    body->text[body->length] = '\0';
    return length;
}

char *load_client_get(const char *url, const char *api_key, const char *authority, struct user_error *error)
{
    struct body body = {.text = memory_copy("")};
    CURL *easy = memory_given(curl_easy_init());
    struct curl_slist *headers = make_headers(api_key);
    long status = 0;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, CONNECT_MAX_S);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &body);
    if (authority != NULL)
        curl_easy_setopt(easy, CURLOPT_CAINFO, authority);
    CURLcode code = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        user_error_set(error, NULL, 0, NULL, "%s: %s", url, curl_easy_strerror(code));
    else if (status != 200)
        user_error_set(error, NULL, 0, NULL, "%s: answers with status %ld", url, status);
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
    if (code == CURLE_OK && status == 200)
        return body.text;
    free(body.text);
    return NULL;
}
