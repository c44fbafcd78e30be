/* See sse.h. */
#include "live/sse.h"

#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

static bool append(char **text, size_t *length, size_t *room, const char *bytes, size_t count)
{
    if (count > SSE_EVENT_BYTES_MAX || *length + count > SSE_EVENT_BYTES_MAX)
        return false;
    if (*length + count + 1 > *room) {
        *room = 2 * (*length + count + 1);
        *text = memory_resized(*text, *room);
    }
    if (count > 0)
        memcpy(*text + *length, bytes, count);
    *length += count;
    (*text)[*length] = '\0';
    return true;
}

static bool dispatch(struct sse_reader *reader, sse_event *event, void *self)
{
    if (!reader->any_data)
        return true;
    bool goes_on = event(self, reader->data, reader->data_length);
    reader->any_data = false;
    reader->data_length = 0;
    return goes_on;
}

/* Of all fields only data says something here: `event`, `id` and `retry` are passed over. */
static bool end_line(struct sse_reader *reader, sse_event *event, void *self)
{
    const char *line = reader->line;
    size_t length = reader->line_length;
    static const char field[] = "data";
    enum { FIELD = sizeof field - 1 };
    reader->line_length = 0;
    if (length == 0)
        return dispatch(reader, event, self);
    if (length < FIELD || memcmp(line, field, FIELD) != 0 || (length > FIELD && line[FIELD] != ':'))
        return true;
    size_t from = length > FIELD ? FIELD + 1 : FIELD;
    from += from < length && line[from] == ' ';
    bool fits = !reader->any_data || append(&reader->data, &reader->data_length, &reader->data_room, "\n", 1);
    reader->any_data = true;
    return fits && append(&reader->data, &reader->data_length, &reader->data_room, line + from, length - from);
}

static void skip_mark(struct sse_reader *reader)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (!reader->begun && reader->line_length >= 3 && memcmp(reader->line, mark, 3) == 0) {
        reader->line_length -= 3;
        memmove(reader->line, reader->line + 3, reader->line_length + 1);
    }
    reader->begun = true;
}

bool sse_feed(struct sse_reader *reader, const char *bytes, size_t length, sse_event *event, void *self)
{
    for (size_t at = 0; at < length;) {
        if (reader->after_cr && bytes[at] == '\n') {
            reader->after_cr = false;
            at++;
            continue;
        }
        reader->after_cr = false;
        size_t end = at;
        while (end < length && bytes[end] != '\n' && bytes[end] != '\r')
            end++;
        if (!append(&reader->line, &reader->line_length, &reader->line_room, bytes + at, end - at))
            return false;
        if (end == length)
            return true;
        reader->after_cr = bytes[end] == '\r';
        skip_mark(reader);
        if (!end_line(reader, event, self))
            return false;
        at = end + 1;
    }
    return true;
}

bool sse_unfinished(const struct sse_reader *reader)
{
    return reader->line_length > 0 || reader->any_data;
}

void sse_reset(struct sse_reader *reader)
{
    reader->line_length = reader->data_length = 0;
    reader->any_data = reader->after_cr = reader->begun = false;
}

void sse_free(struct sse_reader *reader)
{
    free(reader->line);
    free(reader->data);
}
