/* Control messages between nodes: their meaning, and their bytes.
 *
 * Every message has the same fixed header, little-endian, followed by 64-bit prefix blocks and 32-bit page indices.
 * Decoding trusts nothing: lengths, kinds and counts are checked before anything is read, and a message that does not
 * parse is reported by wire_decode() and dropped by the receiver.
 */
#ifndef TANDEM_MESSENGER_WIRE_H
#define TANDEM_MESSENGER_WIRE_H

#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Append-only: numbers travel. */
enum message_kind {
    MESSAGE_REQUEST = 1,     /* front -> decoder or mixed: serve this; the prefiller is chosen */
    MESSAGE_ABORT = 2,       /* front -> decoder: the client went away */
    MESSAGE_FIRST_TOKEN = 3, /* decoder -> front */
    MESSAGE_FINISHED = 4,    /* decoder -> front */
    MESSAGE_FAILED = 5,      /* decoder -> front: gave up, holding nothing. reason: enum fail_reason */
    MESSAGE_REJECTED = 6,    /* decoder -> front: never held anything. reason: enum reject_reason */
    MESSAGE_ABORTED = 7,     /* decoder -> front: as asked; everything is back */
    MESSAGE_PREFILLED = 8,   /* prefiller -> front: the prompt is computed (or will never be): load report */
    MESSAGE_PREFILL = 9,     /* decoder -> prefiller: compute and send */
    MESSAGE_ACCEPTED = 10,   /* prefiller -> decoder */
    MESSAGE_NACK = 11,       /* prefiller -> decoder: nothing of this epoch is posted or will be. reason: nack_reason */
    MESSAGE_CANCEL = 12,     /* decoder -> prefiller */
    MESSAGE_QUIESCED = 13,   /* prefiller -> decoder: the answer to CANCEL, once nothing is posted or will be */
    MESSAGE_HELLO = 14,      /* a node that starts, to each peer: incarnation, geometry */
};

/* Whether the deadline of a transfer makes the loss of such a message good: what asks for one, and what answers. */
static inline bool message_loss_is_covered(uint16_t kind)
{
    return kind == MESSAGE_PREFILL || kind == MESSAGE_ACCEPTED || kind == MESSAGE_NACK;
}

enum nack_reason {
    NACK_NONE = 0,
    NACK_GEOMETRY = 1,  /* the decoder's layout is unknown or cannot be mapped */
    NACK_TOO_LARGE = 2, /* the prompt can never fit this pool */
    NACK_FULL = 3,      /* no room for another request */
    NACK_MALFORMED = 4, /* page list and token count disagree */
    NACK_WRITE = 5,     /* the fabric failed part of the transfer; what was posted has ended */
};

enum message_flags {
    FLAG_RESUMED = 1, /* the client already has the first token */
};

/* What an instance reports of itself with every message to the front: the KV of the requests it has been given so far
 * (message.number), be they holding it or waiting for it. */
struct load_report {
    uint64_t pages_available; /* free, or evictable at once */
    uint64_t pages_wanted;    /* by requests that wait for them */
};

struct message {
    uint16_t kind;
    uint16_t flags;
    uint16_t reason;
    uint16_t group; /* PREFILL: the decoder's attention group */
    uint32_t request;
    uint32_t epoch;
    uint32_t attempt;       /* REQUEST, PREFILL and every report: which dispatch of the request it is about */
    uint32_t peer;          /* REQUEST: the prefiller */
    uint32_t prompt_tokens; /* REQUEST; PREFILL: tokens whose KV is wanted, T' */
    uint32_t output_tokens;
    uint32_t produced; /* tokens produced so far */
    uint32_t immediate;
    uint32_t tail_slot;
    uint32_t first_token; /* PREFILL: tokens before this one are at the decoder already */
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t page_count;
    uint32_t number; /* REQUEST: the how-manyth to this instance, from 1; reports: of the newest REQUEST it got */
    uint64_t token_seed;
    uint64_t geometry_hash;
    int64_t deadline_ns;
    uint32_t incarnation;      /* of the sender */
    uint32_t peer_incarnation; /* of the addressee, as the sender knows it. But for HELLO, what is meant for a
                                  predecessor is dropped: a replacement can neither serve nor vouch for it */
    struct load_report load;
    const unsigned char *block_bytes; /* read with wire_blocks(); of a report: blocks that were evicted */
    const unsigned char *page_bytes;  /* read with wire_pages() */
};

#define WIRE_HEADER_BYTES 128

/* Bytes of the encoded message; `blocks` and `pages` may be NULL when the counts are 0. `buffer` holds `capacity`
 * bytes, and the message must fit (CHECK). */
size_t wire_encode(const struct message *message, const uint64_t *blocks, const uint32_t *pages, unsigned char *buffer,
                   size_t capacity);

/* False when the bytes are not a message. The byte pointers of *message point into `bytes`. */
bool wire_decode(const void *bytes, size_t length, struct message *message);

void wire_blocks(const struct message *message, uint64_t *blocks);
void wire_pages(const struct message *message, uint32_t *pages);

#endif
