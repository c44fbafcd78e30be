/* See scripted_server.h. */
#define _GNU_SOURCE
#include "support/scripted_server.h"

#include "base/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256

struct scripted_server {
    int listener;
    uint16_t port;
    const struct script_step *const *scripts;
    pthread_t acceptor;
    pthread_t threads[CONNECTIONS_MAX];
    atomic_uint count;
};

struct connection {
    int socket;
    const struct script_step *script;
};

/* The head and, as it says, the body. */
static void read_request(int socket)
{
    static const char length_name[] = "Content-Length:";
    char head[1 << 16];
    size_t used = 0;
    char *end = NULL;
    while (end == NULL && used < sizeof head - 1) {
        ssize_t got = recv(socket, head + used, sizeof head - 1 - used, 0);
        if (got <= 0)
            return;
        used += (size_t)got;
        head[used] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    const char *length = strcasestr(head, length_name);
    size_t body = length == NULL ? 0 : strtoul(length + sizeof length_name - 1, NULL, 10);
    size_t have = end == NULL ? 0 : used - (size_t)(end + 4 - head);
    while (have < body) {
        ssize_t got = recv(socket, head, sizeof head, 0);
        if (got <= 0)
            return;
        have += (size_t)got;
    }
}

static void pause_ms(uint32_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static void send_all(int socket, const char *text, size_t each)
{
    size_t length = strlen(text);
    for (size_t at = 0; at < length;) {
        size_t some = length - at < each ? length - at : each;
        ssize_t sent = send(socket, text + at, some, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        at += (size_t)sent;
        if (each == 1 && at % 16 == 0)
            pause_ms(1);
    }
}

static void *serve(void *self)
{
    struct connection connection = *(struct connection *)self;
    free(self);
    int on = 1;
    setsockopt(connection.socket, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    if (connection.script->action != SCRIPT_UNREAD)
        read_request(connection.socket);
    for (const struct script_step *step = connection.script; step->action != 0; step++) {
        if (step->action == SCRIPT_SEND)
            send_all(connection.socket, step->text, SIZE_MAX);
        else if (step->action == SCRIPT_DRIP)
            send_all(connection.socket, step->text, 1);
        else if (step->action == SCRIPT_WAIT)
            pause_ms(step->ms);
        else if (step->action == SCRIPT_HALF)
            shutdown(connection.socket, SHUT_WR);
        else if (step->action == SCRIPT_RESET)
            setsockopt(connection.socket, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    }
    close(connection.socket);
    return NULL;
}

static void *accept_all(void *self)
{
    struct scripted_server *server = self;
    const struct script_step *const *script = server->scripts;
    for (;;) {
        int socket = accept(server->listener, NULL, NULL);
        if (socket < 0)
            return NULL;
        unsigned count = atomic_load(&server->count);
        CHECK(count < CONNECTIONS_MAX);
        struct connection *connection = malloc(sizeof *connection);
        CHECK(connection != NULL);
        *connection = (struct connection){.socket = socket, .script = *script};
        if (script[1] != NULL)
            script++;
        CHECK(pthread_create(&server->threads[count], NULL, serve, connection) == 0);
        atomic_store(&server->count, count + 1);
    }
}

struct scripted_server *scripted_server_start(const struct script_step *const *scripts)
{
    struct scripted_server *server = calloc(1, sizeof *server);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    CHECK(server != NULL);
    server->scripts = scripts;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(server->listener, (struct sockaddr *)&address, size) == 0 && listen(server->listener, 128) == 0);
    CHECK(getsockname(server->listener, (struct sockaddr *)&address, &size) == 0);
    server->port = ntohs(address.sin_port);
    CHECK(pthread_create(&server->acceptor, NULL, accept_all, server) == 0);
    return server;
}

uint16_t scripted_server_port(const struct scripted_server *server)
{
    return server->port;
}

uint32_t scripted_server_connections(struct scripted_server *server)
{
    return atomic_load(&server->count);
}

void scripted_server_stop(struct scripted_server *server)
{
    shutdown(server->listener, SHUT_RDWR);
    CHECK(pthread_join(server->acceptor, NULL) == 0);
    close(server->listener);
    for (unsigned i = 0; i < atomic_load(&server->count); i++)
        CHECK(pthread_join(server->threads[i], NULL) == 0);
    free(server);
}
