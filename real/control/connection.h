/* One TCP connection of the control plane: non-blocking, with what has come in and what has yet to go out.
 *
 * Frames that are put wait until they are released: a message may have to stay until what it speaks of is in effect.
 * One that is put ahead leaves before them: that a process lives must be heard also while its messages wait.
 */
#ifndef TANDEM_REAL_CONTROL_CONNECTION_H
#define TANDEM_REAL_CONTROL_CONNECTION_H

#include "real/control/frame.h"

/* Bytes that may wait for a peer that does not read; then it is given up. */
#define CONNECTION_BACKLOG_MAX (256u << 20)

struct connection {
    int fd; /* -1: closed */
    unsigned char *in;
    size_t in_used;
    size_t in_size;
    unsigned char *out;
    size_t out_first;    /* sent up to here */
    size_t out_released; /* may be sent up to here; the end of a frame */
    size_t out_used;
    size_t out_size;
    bool waits; /* for the socket to take more: watched for writing */
};

void connection_open(struct connection *connection, int fd);
void connection_close(struct connection *connection); /* frees the buffers; may be called twice */

/* Appends a frame to what goes out. False: the backlog is full. */
bool connection_put(struct connection *connection, uint16_t kind, const void *body, size_t length);

/* Appends a frame to those that are released, and is released with them. False: the backlog is full. */
bool connection_put_ahead(struct connection *connection, uint16_t kind, const void *body, size_t length);

/* Lets go of all that was put. */
static inline void connection_release(struct connection *connection)
{
    connection->out_released = connection->out_used;
}

/* Sends what is released and the socket takes. False: the connection is broken. */
bool connection_flush(struct connection *connection);

/* Whether something is released and not yet sent. */
static inline bool connection_pending(const struct connection *connection)
{
    return connection->out_first < connection->out_released;
}

/* Reads what is there, a piece at a time. False: the peer has closed or the connection is broken. */
bool connection_fill(struct connection *connection);

/* Takes the next whole frame out of what has come in; it lives until the next connection_fill(). FRAME_BAD is final. */
enum frame_result connection_take(struct connection *connection, uint32_t body_max, size_t *cursor,
                                  struct frame *frame);

/* Drops what was taken up to `cursor`. */
void connection_drop(struct connection *connection, size_t cursor);

#endif
