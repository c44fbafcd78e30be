/* Frames of the control plane: what two processes of a run say to each other over TCP.
 *
 * A frame is a header of eight bytes (length of the body, kind, zero) and a body; all integers are little-endian. Every
 * byte is from a peer until proven otherwise: lengths are checked against limits before anything is stored, and a body
 * is read through a cursor that cannot leave it.
 */
#ifndef TANDEM_REAL_CONTROL_FRAME_H
#define TANDEM_REAL_CONTROL_FRAME_H

#include "base/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEADER_BYTES 8
#define FRAME_BODY_BYTES_MAX (1u << 20)
#define FRAME_GREETING_BYTES_MAX 1024u /* of a body, until a connection has shown the token */

enum frame_kind {
    FRAME_HELLO = 1,     /* who dials: struct hello */
    FRAME_WELCOME = 2,   /* who is dialled agrees */
    FRAME_REFUSED = 3,   /* or not: a sentence */
    FRAME_CARD = 4,      /* between instances: what the other needs to write here */
    FRAME_PEER = 5,      /* front to instance: where a peer listens, struct peer_place */
    FRAME_PEERS_END = 6, /* all peers are named */
    FRAME_READY = 7,     /* instance to front: connected with all its peers */
    FRAME_START = 8,     /* front to instance: start of the run on the instance's clock */
    FRAME_STOP = 9,      /* front to instance: nothing more will arrive */
    FRAME_FINISHED = 10, /* instance to front: what it came to (process/summary.h) */
    FRAME_HEARTBEAT = 11,
    FRAME_CLOCK_ASK = 12,    /* asker's time */
    FRAME_CLOCK_ANSWER = 13, /* asker's time, answerer's time */
    FRAME_MESSAGE = 14,      /* of the nodes: rt_send() */
    FRAME_TRACE = 15,        /* trace records up to a time */
    FRAME_TOKENS = 16,       /* tokens that were produced */
    FRAME_STEPS = 17,        /* a launch's row */
    FRAME_TRANSFER = 18,     /* a transfer's row */
    FRAME_DIGESTS = 19,      /* sender to receiver: digests of the pieces it wrote */
    FRAME_TROUBLE = 20,      /* instance to front: a sentence about why it ends */
    FRAME_ANSWERS = 21,      /* of the nodes: how many tokens, tokens, rt_send() with what its reader needs to go on */
    FRAME_CLOSE = 22,        /* a writer whose ticket failed: the ticket, and its rails that are closed */
    FRAME_CLOSED = 23,       /* the answer: nothing that was on its way there lands any more; the ticket */
    FRAME_COUNT = 24,        /* front to instance: since when gaps between tokens count, on the run's clock */
    FRAME_KIND_END = 25,
};

struct frame {
    uint16_t kind;
    uint32_t length;
    const unsigned char *body;
};

enum frame_result {
    FRAME_MORE = 1, /* the bytes end before the frame does */
    FRAME_WHOLE = 2,
    FRAME_BAD = 3, /* too long, of no known kind, or with a header that makes no sense */
};

/* Finds the frame at the start of `bytes`. */
enum frame_result frame_next(const unsigned char *bytes, size_t length, uint32_t body_max, struct frame *frame);

void frame_header(unsigned char *header, uint16_t kind, uint32_t length);

/* ---- Writing and reading bodies ---------------------------------------------------------------------------------- */

struct frame_writer {
    unsigned char *bytes;
    size_t size;
    size_t used;
    bool full; /* something did not fit */
};

void write_bytes(struct frame_writer *writer, const void *bytes, size_t length);
void write_u16(struct frame_writer *writer, uint16_t value);
void write_u32(struct frame_writer *writer, uint32_t value);
void write_u64(struct frame_writer *writer, uint64_t value);

struct frame_reader {
    const unsigned char *bytes;
    size_t length;
    size_t at;
    bool bad; /* something reached past the end: all that was read since is 0 */
};

static inline struct frame_reader frame_read(const struct frame *frame)
{
    return (struct frame_reader){.bytes = frame->body, .length = frame->length};
}

bool read_bytes(struct frame_reader *reader, void *bytes, size_t length); /* zeroes `bytes` where they are missing */
uint16_t read_u16(struct frame_reader *reader);
uint32_t read_u32(struct frame_reader *reader);
uint64_t read_u64(struct frame_reader *reader);

/* All was read, and nothing was missing. */
static inline bool read_end(const struct frame_reader *reader)
{
    return !reader->bad && reader->at == reader->length;
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

#define CONTROL_PROTOCOL 3
#define CONTROL_TOKEN_BYTES 16
#define CONTROL_ADDRESS_BYTES 64
#define CONTROL_CLOCK_BYTES 64

struct hello {
    uint32_t protocol;
    unsigned char token[CONTROL_TOKEN_BYTES];
    char scenario[65]; /* identity, 64 hex digits */
    char build[65];
    uint32_t node;
    uint32_t incarnation; /* of a node that was lost and started again */
    uint16_t port;        /* where the sender listens */
    char address[CONTROL_ADDRESS_BYTES];
    char clock[CONTROL_CLOCK_BYTES]; /* its identity: equal on both sides means one clock */
};

void hello_write(struct frame_writer *writer, const struct hello *hello);
bool hello_read(const struct frame *frame, struct hello *hello);

struct peer_place {
    uint32_t node;
    uint16_t port;
    char address[CONTROL_ADDRESS_BYTES];
};

void peer_place_write(struct frame_writer *writer, const struct peer_place *place);
bool peer_place_read(const struct frame *frame, struct peer_place *place);

/* A trace record with its time; the node is the connection's. */
struct timed_record {
    int64_t time_ns;
    struct trace_record record;
};
#define TIMED_RECORD_BYTES 30

void timed_record_write(struct frame_writer *writer, const struct timed_record *record);
void timed_record_read(struct frame_reader *reader, uint16_t node, struct timed_record *record);

#endif
