/* One request on one instance: its state, what it holds, how far it is.
 *
 * The states are those of the two state machines of the KV messenger (see ARCHITECTURE.md) and of a mixed instance. A
 * sequence is a slot of a flat table; lists and heaps hold slot numbers.
 */
#ifndef TANDEM_SERVE_SEQUENCE_H
#define TANDEM_SERVE_SEQUENCE_H

#include "model/transfer_plan.h"
#include "runtime.h"

#include <stdbool.h>
#include <stdint.h>

#define SLOT_NONE UINT32_MAX

enum sequence_state {
    SEQUENCE_FREE = 0,

    /* Decoder. */
    SEQUENCE_ALLOC,      /* waits for pages and a hand-off slot, all or nothing; holds nothing */
    SEQUENCE_DISPATCHED, /* pages held, immediate armed, prefiller asked */
    SEQUENCE_FILLING,    /* the prefiller accepted; writes are being counted */
    SEQUENCE_CANCELLING, /* the prefiller was told to stop; everything is kept until it confirms */
    SEQUENCE_QUARANTINE, /* the prefiller is lost but may still write */
    SEQUENCE_READY,      /* KV is complete; waits for a place in the batch */
    SEQUENCE_DECODE,     /* in the batch */

    /* Prefiller; mixed instances up to the first token. */
    SEQUENCE_QUEUED,    /* accepted, holds no pages */
    SEQUENCE_STREAMING, /* holds pages; chunks are computed and sent */
    SEQUENCE_DRAIN,     /* everything is posted; waits for the last completions */
    SEQUENCE_CANCELLED, /* nothing more is posted; waits for its step and its writes to end */
};

struct sequence {
    uint8_t state;
    uint8_t in_step;    /* chunks in launches in progress; 1 in a decode batch */
    uint8_t microbatch; /* in whose decode batch it is */
    bool device_knows;  /* a STEP_CHUNK or STEP_JOIN has named it: a STEP_LEAVE is due when it goes */
    bool resumed;       /* the client already has the first token */
    bool aborting;      /* leaves at the end of the launches in progress: its client went away */
    bool answer_due;    /* prefiller: a CANCEL waits for its QUIESCED */
    bool wait_traced;
    bool keyed;     /* prefiller: found by its key; false once its decoder has been replaced */
    uint8_t reason; /* enum fail_reason of a cancel, enum nack_reason of a failed stream */
    uint16_t group;
    uint16_t peer_group;
    uint32_t peer;             /* decoder: the prefiller; prefiller: the decoder */
    uint32_t peer_incarnation; /* of that instance, at the time of the request */
    uint32_t request;
    uint32_t epoch;
    uint32_t attempt;
    uint64_t token_seed;
    int64_t deadline_ns;

    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t produced; /* tokens produced before this sequence joined the batch */
    uint32_t wanted;   /* tokens whose KV must exist before decoding starts, T' */
    uint32_t local;    /* of those, found in this instance's prefix index */
    uint32_t computed; /* of those, computed (prefill), */
    uint32_t launched; /* and computed or in launches in progress */

    uint32_t page_count;
    uint32_t pages_wanted; /* while it waits for pages */
    uint32_t block_count;
    uint32_t block_tokens;
    uint32_t age;      /* order of first arrival here; the youngest is preempted first */
    uint32_t previous; /* neighbours in whatever list the state implies */
    uint32_t next;

    /* Decode. */
    uint64_t join_step;    /* step counter when it joined */
    uint32_t join_context; /* tokens cached then */

    /* Transfer. */
    uint32_t immediate;
    uint32_t twin;    /* prefiller: a slot with another attempt at the same request; SLOT_NONE: none */
    uint32_t handoff; /* decoder: hand-off (tail) slot; SLOT_NONE: none */
    int64_t transfer_deadline_ns;
    uint32_t units_sent; /* prefiller: next unit to post */
    uint32_t units_total;
    uint32_t writes_posted; /* tickets not yet answered */
    uint32_t peer_tail_slot;
    uint32_t peer_first_unit;
    const struct transfer_plan *plan;
};

/* A list of sequences linked through previous and next. */
struct sequence_list {
    uint32_t head;
    uint32_t tail;
    uint32_t count;
};

static inline void sequence_list_make(struct sequence_list *list)
{
    *list = (struct sequence_list){.head = SLOT_NONE, .tail = SLOT_NONE};
}

static inline void sequence_list_append(struct sequence_list *list, struct sequence *table, uint32_t slot)
{
    table[slot].previous = list->tail;
    table[slot].next = SLOT_NONE;
    if (list->tail == SLOT_NONE)
        list->head = slot;
    else
        table[list->tail].next = slot;
    list->tail = slot;
    list->count++;
}

/* Keeps ages ascending; preempted sequences go back among the oldest, so the walk from the head is short. */
static inline void sequence_list_insert_by_age(struct sequence_list *list, struct sequence *table, uint32_t slot)
{
    uint32_t at = list->head;
    while (at != SLOT_NONE && table[at].age < table[slot].age)
        at = table[at].next;
    if (at == SLOT_NONE) {
        sequence_list_append(list, table, slot);
        return;
    }
    table[slot].next = at;
    table[slot].previous = table[at].previous;
    if (table[at].previous == SLOT_NONE)
        list->head = slot;
    else
        table[table[at].previous].next = slot;
    table[at].previous = slot;
    list->count++;
}

static inline void sequence_list_remove(struct sequence_list *list, struct sequence *table, uint32_t slot)
{
    struct sequence *s = &table[slot];
    if (s->previous == SLOT_NONE)
        list->head = s->next;
    else
        table[s->previous].next = s->next;
    if (s->next == SLOT_NONE)
        list->tail = s->previous;
    else
        table[s->next].previous = s->previous;
    list->count--;
}

#endif
