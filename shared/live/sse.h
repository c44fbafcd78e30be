/* Server-sent events (HTML Living Standard, "Server-sent events"), read as bytes come: lines that end in LF, CR or
 * CRLF, wherever a read cuts them; comments; several data lines of one event; a byte order mark. What follows the last
 * blank line is no event. */
#ifndef TANDEM_LIVE_SSE_H
#define TANDEM_LIVE_SSE_H

#include <stdbool.h>
#include <stddef.h>

/* An event with more than that is none that anybody sends: the reader gives up. */
#define SSE_EVENT_BYTES_MAX (16u << 20)

struct sse_reader {
    char *line;
    size_t line_length;
    size_t line_room;
    char *data;
    size_t data_length;
    size_t data_room;
    bool any_data;
    bool after_cr;
    bool begun; /* beyond the byte order mark */
};

/* Data of one event, `length` bytes and a NUL behind them; false ends the reading. */
typedef bool sse_event(void *self, const char *data, size_t length);

/* False: too long, or the callback said so. Nothing may be fed after that. */
bool sse_feed(struct sse_reader *reader, const char *bytes, size_t length, sse_event *event, void *self);

/* Whether bytes came that belong to no event. */
bool sse_unfinished(const struct sse_reader *reader);

/* Empties it for another stream, keeping its memory; gives that back. A reader begins zeroed. */
void sse_reset(struct sse_reader *reader);
void sse_free(struct sse_reader *reader);

#endif
