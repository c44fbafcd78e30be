/* See connection.h. */
#define _POSIX_C_SOURCE 200809L
#include "real/control/connection.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE_BYTES 65536u

void connection_open(struct connection *connection, int fd)
{
    *connection = (struct connection){.fd = fd};
}

void connection_close(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection->in);
    free(connection->out);
    *connection = (struct connection){.fd = -1};
}

static void reserve(unsigned char **bytes, size_t *size, size_t need)
{
    if (need <= *size)
        return;
    size_t grown = *size == 0 ? PIECE_BYTES : *size;
    while (grown < need)
        grown *= 2;
    unsigned char *moved = realloc(*bytes, grown);
    CHECK(moved != NULL);
    *bytes = moved;
    *size = grown;
}

/* Makes room for a frame at `place`, where the frames behind it move on, and writes it there. */
static bool insert(struct connection *connection, size_t place, uint16_t kind, const void *body, size_t length)
{
    size_t bytes = FRAME_HEADER_BYTES + length;
    CHECK(length <= FRAME_BODY_BYTES_MAX);
    if (connection->out_used - connection->out_first + length > CONNECTION_BACKLOG_MAX)
        return false;
    reserve(&connection->out, &connection->out_size, connection->out_used + bytes);
    unsigned char *at = connection->out + place;
    memmove(at + bytes, at, connection->out_used - place);
    frame_header(at, kind, (uint32_t)length);
    if (length > 0)
        memcpy(at + FRAME_HEADER_BYTES, body, length);
    connection->out_used += bytes;
    return true;
}

/* Where everything has been sent the buffer begins anew. */
static void rewind_out(struct connection *connection)
{
    if (connection->out_first == connection->out_used)
        connection->out_first = connection->out_released = connection->out_used = 0;
}

bool connection_put(struct connection *connection, uint16_t kind, const void *body, size_t length)
{
    rewind_out(connection);
    return insert(connection, connection->out_used, kind, body, length);
}

bool connection_put_ahead(struct connection *connection, uint16_t kind, const void *body, size_t length)
{
    rewind_out(connection);
    if (!insert(connection, connection->out_released, kind, body, length))
        return false;
    connection->out_released += FRAME_HEADER_BYTES + length;
    return true;
}

bool connection_flush(struct connection *connection)
{
    while (connection_pending(connection)) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_first,
                            connection->out_released - connection->out_first, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN || errno == EINPROGRESS;
        connection->out_first += (size_t)sent;
    }
    return true;
}

bool connection_fill(struct connection *connection)
{
    reserve(&connection->in, &connection->in_size, connection->in_used + PIECE_BYTES);
    ssize_t got = recv(connection->fd, connection->in + connection->in_used, PIECE_BYTES, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    connection->in_used += (size_t)got;
    return got > 0;
}

enum frame_result connection_take(struct connection *connection, uint32_t body_max, size_t *cursor, struct frame *frame)
{
    enum frame_result result = frame_next(connection->in + *cursor, connection->in_used - *cursor, body_max, frame);
    if (result == FRAME_WHOLE)
        *cursor += FRAME_HEADER_BYTES + frame->length;
    return result;
}

void connection_drop(struct connection *connection, size_t cursor)
{
    if (cursor == 0)
        return;
    memmove(connection->in, connection->in + cursor, connection->in_used - cursor);
    connection->in_used -= cursor;
}
