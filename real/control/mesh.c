/* See mesh.h. */
#define _POSIX_C_SOURCE 200809L
#include "real/control/mesh.h"

#include "base/check.h"
#include "base/limits.h"
#include "real/control/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections that have not yet said who they are. */
#define GUESTS_MAX 64u
#define GREETING_NS INT64_C(5000000000)

/* What epoll hands back: a node's link, or GUEST + the place of a guest, or the listener. */
#define TAG_GUEST (UINT64_C(1) << 32)
#define TAG_LISTENER (UINT64_C(1) << 33)

enum link_state {
    LINK_NONE = 0,
    LINK_DIALLED = 1, /* hello is on its way */
    LINK_UP = 2,
    LINK_LOST = 3,
};

struct link {
    enum link_state state;
    uint32_t incarnation; /* of the newest that was up */
    struct connection connection;
    int64_t heard_ns;
    int64_t spoke_ns;
};

struct guest {
    bool used;
    bool ending; /* refused: closed once it has been told */
    struct connection connection;
    int64_t since_ns;
};

struct mesh {
    struct mesh_config config;
    int epoll;
    int listener;
    struct link *links;
    struct guest guests[GUESTS_MAX];
    int64_t tick_ns; /* of the last mesh_tick(); 0: none yet */
};

void control_clock_identity(char *text)
{
    char boot[37] = "";
    char space[CONTROL_CLOCK_BYTES - sizeof boot] = "";
    text[0] = '\0';
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file == NULL)
        return;
    bool good = fread(boot, 1, sizeof boot - 1, file) == sizeof boot - 1;
    fclose(file);
    /* "time:[4026531834]"; kernels without such namespaces have one clock. */
    if (readlink("/proc/self/ns/time", space, sizeof space - 1) < 0)
        space[0] = '\0';
    if (good)
        snprintf(text, CONTROL_CLOCK_BYTES, "%s%s", boot, space);
}

/* ---- Sockets ----------------------------------------------------------------------------------------------------- */

static bool address_of(const char *text, uint16_t port, struct sockaddr_in *address)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    return inet_pton(AF_INET, text, &address->sin_addr) == 1;
}

static int open_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    return fd;
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void watch(const struct mesh *mesh, int fd, uint64_t tag, uint32_t events, int operation)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    CHECK(epoll_ctl(mesh->epoll, operation, fd, &event) == 0);
}

static bool listen_at(struct mesh *mesh, struct user_error *error)
{
    struct sockaddr_in address;
    if (!address_of(mesh->config.bind, 0, &address)) {
        user_error_set(error, NULL, 0, NULL, "'%s' is not an IPv4 address", mesh->config.bind);
        return false;
    }
    mesh->listener = open_socket();
    socklen_t size = sizeof address;
    if (bind(mesh->listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(mesh->listener, 128) != 0 || getsockname(mesh->listener, (struct sockaddr *)&address, &size) != 0) {
        user_error_set(error, NULL, 0, NULL, "%s cannot be listened on: %s", mesh->config.bind, strerror(errno));
        return false;
    }
    mesh->config.own.port = ntohs(address.sin_port);
    watch(mesh, mesh->listener, TAG_LISTENER, EPOLLIN, EPOLL_CTL_ADD);
    return true;
}

struct mesh *mesh_make(const struct mesh_config *config, struct user_error *error)
{
    CHECK(config->node_count <= NODES_MAX && config->own.node < config->node_count);
    struct mesh *mesh = calloc(1, sizeof *mesh);
    CHECK(mesh != NULL);
    mesh->config = *config;
    mesh->config.own.protocol = CONTROL_PROTOCOL;
    mesh->listener = -1;
    mesh->epoll = epoll_create1(EPOLL_CLOEXEC);
    mesh->links = calloc(config->node_count, sizeof *mesh->links);
    CHECK(mesh->epoll >= 0 && mesh->links != NULL);
    for (uint32_t i = 0; i < config->node_count; i++)
        mesh->links[i].connection.fd = -1;
    for (uint32_t i = 0; i < GUESTS_MAX; i++)
        mesh->guests[i].connection.fd = -1;
    if (!listen_at(mesh, error)) {
        mesh_free(mesh);
        return NULL;
    }
    snprintf(mesh->config.own.address, sizeof mesh->config.own.address, "%s", config->bind);
    return mesh;
}

void mesh_free(struct mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (uint32_t i = 0; i < mesh->config.node_count; i++)
        connection_close(&mesh->links[i].connection);
    for (uint32_t i = 0; i < GUESTS_MAX; i++)
        connection_close(&mesh->guests[i].connection);
    if (mesh->listener >= 0)
        close(mesh->listener);
    close(mesh->epoll);
    free(mesh->links);
    free(mesh);
}

int mesh_fd(const struct mesh *mesh)
{
    return mesh->epoll;
}

uint16_t mesh_port(const struct mesh *mesh)
{
    return mesh->config.own.port;
}

bool mesh_up(const struct mesh *mesh, uint32_t node)
{
    return node < mesh->config.node_count && mesh->links[node].state == LINK_UP;
}

uint32_t mesh_incarnation(const struct mesh *mesh, uint32_t node)
{
    CHECK(node < mesh->config.node_count);
    return mesh->links[node].incarnation;
}

/* ---- Links ------------------------------------------------------------------------------------------------------- */

static void lose(struct mesh *mesh, uint32_t node, const char *why)
{
    struct link *link = &mesh->links[node];
    if (link->state != LINK_DIALLED && link->state != LINK_UP)
        return;
    connection_close(&link->connection);
    link->state = LINK_LOST;
    mesh->config.listener.down(mesh->config.listener.self, node, why);
}

void mesh_drop(struct mesh *mesh, uint32_t node)
{
    connection_close(&mesh->links[node].connection);
    mesh->links[node].state = LINK_LOST;
}

static void put_hello(const struct mesh *mesh, struct connection *connection, uint16_t kind)
{
    unsigned char bytes[FRAME_GREETING_BYTES_MAX];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    hello_write(&writer, &mesh->config.own);
    CHECK(!writer.full && connection_put_ahead(connection, kind, bytes, writer.used));
}

void mesh_dial(struct mesh *mesh, uint32_t node, const char *address, uint16_t port)
{
    CHECK(node < mesh->config.node_count && mesh->links[node].state == LINK_NONE);
    struct link *link = &mesh->links[node];
    connection_open(&link->connection, open_socket());
    link->state = LINK_DIALLED;
    no_delay(link->connection.fd);
    /* From the same address as it listens on, so that a wrong route does not find another way. */
    struct sockaddr_in own;
    struct sockaddr_in to;
    bool known = address_of(mesh->config.bind, 0, &own) && address_of(address, port, &to);
    if (!known || bind(link->connection.fd, (const struct sockaddr *)&own, sizeof own) != 0 ||
        (connect(link->connection.fd, (const struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS)) {
        lose(mesh, node, known ? strerror(errno) : "its address is not an IPv4 address");
        return;
    }
    put_hello(mesh, &link->connection, FRAME_HELLO);
    link->connection.waits = true;
    watch(mesh, link->connection.fd, node, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD);
}

void mesh_send(struct mesh *mesh, uint32_t node, uint16_t kind, const void *body, size_t length)
{
    CHECK(node < mesh->config.node_count);
    struct link *link = &mesh->links[node];
    if (link->state == LINK_UP && !connection_put(&link->connection, kind, body, length))
        lose(mesh, node, "it does not take what is sent to it");
}

/* Sends and watches for the socket to take the rest. False: broken. */
static bool push(const struct mesh *mesh, struct connection *connection, uint64_t tag)
{
    if (!connection_flush(connection))
        return false;
    bool waits = connection_pending(connection);
    if (waits != connection->waits) {
        connection->waits = waits;
        watch(mesh, connection->fd, tag, waits ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
    }
    return true;
}

void mesh_flush(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->config.node_count; i++) {
        struct link *link = &mesh->links[i];
        if (link->state != LINK_UP)
            continue;
        connection_release(&link->connection);
        if (link->connection.waits || !connection_pending(&link->connection))
            continue;
        link->spoke_ns = mesh->tick_ns;
        if (!push(mesh, &link->connection, i))
            lose(mesh, i, "the connection broke");
    }
}

size_t mesh_pending(const struct mesh *mesh)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < mesh->config.node_count; i++)
        bytes += mesh->links[i].connection.out_used - mesh->links[i].connection.out_first;
    return bytes;
}

/* ---- Greetings --------------------------------------------------------------------------------------------------- */

/* In a time that does not depend on where they differ. */
static bool same_token(const unsigned char *a, const unsigned char *b)
{
    unsigned char differ = 0;
    for (size_t i = 0; i < CONTROL_TOKEN_BYTES; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}

/* NULL: welcome. A stranger without the token learns nothing else. */
static const char *objection(const struct mesh *mesh, const struct hello *hello)
{
    const struct hello *own = &mesh->config.own;
    if (!same_token(hello->token, own->token))
        return "the join token is not this run's";
    if (hello->protocol != own->protocol)
        return "the control protocol has another version";
    if (strcmp(hello->build, own->build) != 0)
        return "the program is another build";
    if (strcmp(hello->scenario, own->scenario) != 0)
        return "the scenario is not the same";
    if (hello->node >= mesh->config.node_count || hello->node == own->node)
        return "there is no such node";
    const struct link *link = &mesh->links[hello->node];
    if (link->state != LINK_NONE && (hello->node == 0 || hello->incarnation <= link->incarnation))
        return "this node has been connected before";
    return NULL;
}

static void guest_end(struct guest *guest)
{
    connection_close(&guest->connection);
    guest->used = false;
}

static void refuse(const struct mesh *mesh, struct guest *guest, uint32_t place, const char *why)
{
    connection_put_ahead(&guest->connection, FRAME_REFUSED, why, strlen(why));
    guest->ending = true;
    if (!push(mesh, &guest->connection, TAG_GUEST | place) || !connection_pending(&guest->connection))
        guest_end(guest);
}

/* The guest becomes a link. What it sent after its hello stays in the buffer and is read as the link's. */
static void admit(struct mesh *mesh, struct guest *guest, const struct hello *hello, int64_t now_ns)
{
    struct link *link = &mesh->links[hello->node];
    struct connection connection = guest->connection;
    *guest = (struct guest){.connection.fd = -1};
    lose(mesh, hello->node, "another has taken its place"); /* where nobody has noticed yet */
    link->connection = connection;
    link->state = LINK_UP;
    link->incarnation = hello->incarnation;
    link->heard_ns = now_ns;
    put_hello(mesh, &link->connection, FRAME_WELCOME);
    watch(mesh, link->connection.fd, hello->node, EPOLLIN, EPOLL_CTL_MOD);
    link->connection.waits = false;
    mesh->config.listener.up(mesh->config.listener.self, hello->node, hello);
}

static void take_frames(struct mesh *mesh, uint32_t node, int64_t now_ns);

static void guest_turn(struct mesh *mesh, uint32_t place, int64_t now_ns)
{
    struct guest *guest = &mesh->guests[place];
    if (!guest->used)
        return;
    if (!connection_flush(&guest->connection) || (guest->ending && !connection_pending(&guest->connection)) ||
        !connection_fill(&guest->connection)) {
        guest_end(guest);
        return;
    }
    struct frame frame;
    struct hello hello;
    size_t cursor = 0;
    enum frame_result result = connection_take(&guest->connection, FRAME_GREETING_BYTES_MAX, &cursor, &frame);
    if (guest->ending || result == FRAME_MORE)
        return;
    if (result == FRAME_BAD || frame.kind != FRAME_HELLO || !hello_read(&frame, &hello)) {
        guest_end(guest);
        return;
    }
    const char *why = objection(mesh, &hello);
    if (why != NULL) {
        refuse(mesh, guest, place, why);
        return;
    }
    connection_drop(&guest->connection, cursor);
    admit(mesh, guest, &hello, now_ns);
    take_frames(mesh, hello.node, now_ns);
}

static void accept_guests(struct mesh *mesh, int64_t now_ns)
{
    int fd;
    while ((fd = accept(mesh->listener, NULL, NULL)) >= 0) {
        uint32_t place = 0;
        while (place < GUESTS_MAX && mesh->guests[place].used)
            place++;
        if (place == GUESTS_MAX || fcntl(fd, F_SETFL, O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
            close(fd);
            continue;
        }
        no_delay(fd);
        mesh->guests[place] = (struct guest){.used = true, .since_ns = now_ns};
        connection_open(&mesh->guests[place].connection, fd);
        watch(mesh, fd, TAG_GUEST | place, EPOLLIN, EPOLL_CTL_ADD);
    }
}

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

/* The first answer of a node that was dialled. False: it is over. */
static bool answered(struct mesh *mesh, uint32_t node, const struct frame *frame)
{
    struct link *link = &mesh->links[node];
    struct hello hello;
    if (frame->kind == FRAME_REFUSED) {
        struct user_error why = {.set = false};
        user_error_set(&why, NULL, 0, NULL, "it refused: %.*s", (int)(frame->length < 200 ? frame->length : 200),
                       (const char *)frame->body);
        lose(mesh, node, why.text);
        return false;
    }
    if (frame->kind != FRAME_WELCOME || !hello_read(frame, &hello) || hello.node != node ||
        !same_token(hello.token, mesh->config.own.token)) {
        lose(mesh, node, "it is not a node of this run");
        return false;
    }
    link->state = LINK_UP;
    link->incarnation = hello.incarnation;
    mesh->config.listener.up(mesh->config.listener.self, node, &hello);
    return true;
}

static void take_frames(struct mesh *mesh, uint32_t node, int64_t now_ns)
{
    struct link *link = &mesh->links[node];
    struct frame frame;
    size_t cursor = 0;
    enum frame_result result = FRAME_MORE;
    link->heard_ns = now_ns;
    while (link->state == LINK_UP || link->state == LINK_DIALLED) {
        uint32_t body_max = link->state == LINK_UP ? FRAME_BODY_BYTES_MAX : FRAME_GREETING_BYTES_MAX;
        result = connection_take(&link->connection, body_max, &cursor, &frame);
        if (result != FRAME_WHOLE)
            break;
        if (link->state == LINK_DIALLED) {
            if (!answered(mesh, node, &frame))
                return;
        } else if (frame.kind != FRAME_HEARTBEAT) {
            mesh->config.listener.frame(mesh->config.listener.self, node, &frame);
        }
    }
    if (link->state != LINK_UP && link->state != LINK_DIALLED)
        return; /* lost or dropped on the way, and its buffers with it */
    if (result == FRAME_BAD)
        lose(mesh, node, "it sent bytes that are no frame");
    else
        connection_drop(&link->connection, cursor);
}

/* What came before the end of a connection is still read: a peer that says why it ends is heard. */
static void link_turn(struct mesh *mesh, uint32_t node, uint32_t events, int64_t now_ns)
{
    struct link *link = &mesh->links[node];
    if (link->connection.fd < 0)
        return;
    bool whole = true;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        whole = connection_fill(&link->connection);
        take_frames(mesh, node, now_ns);
    }
    if (link->state != LINK_UP && link->state != LINK_DIALLED)
        return;
    if (!whole)
        lose(mesh, node, link->state == LINK_DIALLED ? "nobody answers there" : "the connection ended");
    else if ((events & EPOLLOUT) && !push(mesh, &link->connection, node))
        lose(mesh, node, "the connection broke");
}

void mesh_turn(struct mesh *mesh, int64_t now_ns)
{
    struct epoll_event events[64];
    int count = epoll_wait(mesh->epoll, events, 64, 0);
    for (int i = 0; i < count; i++) {
        uint64_t tag = events[i].data.u64;
        if (tag == TAG_LISTENER)
            accept_guests(mesh, now_ns);
        else if (tag & TAG_GUEST)
            guest_turn(mesh, (uint32_t)(tag & UINT32_MAX), now_ns);
        else
            link_turn(mesh, (uint32_t)tag, events[i].events, now_ns);
    }
}

void mesh_tick(struct mesh *mesh, int64_t now_ns)
{
    bool first = mesh->tick_ns == 0;
    /* A process that was itself held up must not take its own silence for that of its peers: a late tick only
     * listens. */
    bool late = !first && now_ns - mesh->tick_ns > 2 * mesh->config.heartbeat_ns;
    mesh->tick_ns = now_ns;
    for (uint32_t i = 0; i < mesh->config.node_count; i++) {
        struct link *link = &mesh->links[i];
        if (link->state != LINK_UP)
            continue;
        if (first || late)
            link->heard_ns = now_ns;
        int64_t silent_ns = now_ns - link->heard_ns;
        if (silent_ns > mesh->config.heartbeat_ns * (int64_t)mesh->config.heartbeats_missed) {
            struct user_error why = {.set = false};
            user_error_set(&why, NULL, 0, NULL, "nothing was heard of it for %lld ms",
                           (long long)(silent_ns / 1000000));
            lose(mesh, i, why.text);
        } else if (now_ns - link->spoke_ns >= mesh->config.heartbeat_ns) {
            link->spoke_ns = now_ns;
            if (!connection_put_ahead(&link->connection, FRAME_HEARTBEAT, NULL, 0))
                lose(mesh, i, "it does not take what is sent to it");
            else if (!link->connection.waits && !push(mesh, &link->connection, i))
                lose(mesh, i, "the connection broke");
        }
    }
    for (uint32_t i = 0; i < GUESTS_MAX; i++)
        if (mesh->guests[i].used && now_ns - mesh->guests[i].since_ns > GREETING_NS)
            guest_end(&mesh->guests[i]);
}
