/* What an endpoint answers to a streamed completion, event by event: which of it is tokens, how many, what it says of
 * usage, and whether it is an error.
 *
 * A chunk is no token: engines send several in one, and roles without any. Where chunks carry the usage so far
 * (continuous_usage_stats) that counts; elsewhere a chunk that says something, on whatever channel (text, content,
 * reasoning, a refusal, a tool call), is one token until a last usage says how many there were.
 */
#ifndef TANDEM_LIVE_REPLY_H
#define TANDEM_LIVE_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reply_kind {
    REPLY_NOTHING = 1, /* no token: a role, usage alone */
    REPLY_TOKENS = 2,
    REPLY_DONE = 3, /* [DONE] */
    REPLY_ERROR = 4,
    REPLY_UNKNOWN = 5, /* no JSON object, or none of these */
};

struct reply {
    uint32_t tokens;        /* so far */
    uint32_t chunks;        /* with tokens */
    uint32_t prompt_tokens; /* as the endpoint counts them; 0: not said */
    uint32_t usage_tokens;  /* the last count of the answer's tokens that it gave; 0: none */
    uint32_t new_tokens;    /* of the last event */
    bool finished;          /* a choice said why it ended */
    bool done;
    char error[160]; /* of REPLY_ERROR, as the endpoint put it */
};

enum reply_kind reply_event(struct reply *reply, const char *data, size_t length);

/* The text of an error in a body that is no stream, or its beginning. */
void reply_error_text(const char *body, size_t length, char *text, size_t size);

#endif
