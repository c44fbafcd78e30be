/* See recording_words.h. */
#include "real/runtime/recording_words.h"

#include "run/compare/divergence.h"
#include "real/control/frame.h"

#include <inttypes.h>
#include <stdio.h>

#define VALUES_MAX 6

static void trace_text(const uint64_t *v, char *text, size_t size)
{
    const struct trace_record record = {
        .kind = (uint16_t)v[0], .node = (uint16_t)v[1], .request = (uint32_t)v[2], .a = v[3], .b = v[4]};
    trace_record_words(&record, text, size);
}

void recording_call_text(const unsigned char *bytes, size_t length, char *text, size_t size)
{
    uint64_t v[VALUES_MAX] = {0};
    struct frame_reader reader = {.bytes = bytes, .length = length};
    uint64_t kind = length == 0 ? 0 : read_u64(&reader);
    for (size_t i = 0; i < VALUES_MAX && reader.at + 8 <= length; i++)
        v[i] = read_u64(&reader);
    switch (kind) {
    case 0:
        snprintf(text, size, "do nothing more");
        break;
    case CALL_TIMER:
        snprintf(text, size, "set timer %" PRIu64 " to %" PRId64 " ns", v[0], (int64_t)v[1]);
        break;
    case CALL_LAUNCH:
        snprintf(text, size, "launch %" PRIu64 ": up to %" PRIu64 " steps of %" PRIu64 " groups, %" PRIu64 " changes",
                 v[0], v[1], v[2], v[3]);
        break;
    case CALL_LAUNCH_END:
        snprintf(text, size, "end launch %" PRIu64, v[0]);
        break;
    case CALL_WRITE:
        snprintf(text, size, "post write %" PRIu64 " of request %" PRIu64 " to node %" PRIu64 ", immediate %" PRIu64,
                 v[0], v[4], v[2], v[3]);
        break;
    case CALL_WRITE_STOP:
        snprintf(text, size, "stop write %" PRIu64, v[0]);
        break;
    case CALL_EXPECT:
        snprintf(text, size, "expect %" PRIu64 " of immediate %" PRIu64, v[1], v[0]);
        break;
    case CALL_SEND:
        snprintf(text, size, "send node %" PRIu64 " a message of %" PRIu64 " bytes", v[0], v[1]);
        break;
    case CALL_TRACE:
        trace_text(v, text, size);
        break;
    default:
        snprintf(text, size, "do what is unknown (%" PRIu64 ")", kind);
        break;
    }
}

uint32_t recording_call_request(const unsigned char *bytes, size_t length)
{
    struct frame_reader reader = {.bytes = bytes, .length = length};
    if (length < 32 || read_u64(&reader) != CALL_TRACE)
        return TRACE_NO_REQUEST;
    read_u64(&reader);
    read_u64(&reader);
    return (uint32_t)read_u64(&reader);
}

void recording_event_text(const struct event *event, char *text, size_t size)
{
    switch (event->kind) {
    case EVENT_START:
        snprintf(text, size, "the start");
        break;
    case EVENT_STOP:
        snprintf(text, size, "the stop");
        break;
    case EVENT_ARRIVAL:
        snprintf(text, size, "%s request %" PRIu32, event->status == ARRIVAL_NEW ? "the arrival of" : "the abort of",
                 event->id);
        break;
    case EVENT_MESSAGE:
        snprintf(text, size, "a message of %" PRIu64 " bytes from node %" PRIu32, event->count, event->id);
        break;
    case EVENT_STEPS_DONE:
        snprintf(text, size, "%" PRIu64 " steps of launch %" PRIu32 " done", event->count, event->id);
        break;
    case EVENT_WRITE_DONE:
        snprintf(text, size, "write %" PRIu32 " done, status %u", event->id, event->status);
        break;
    case EVENT_IMMEDIATE:
        snprintf(text, size, "immediate %" PRIu32 " complete", event->id);
        break;
    case EVENT_TIMER:
        snprintf(text, size, "timer %" PRIu32, event->id);
        break;
    case EVENT_PEER_LOST:
        snprintf(text, size, "node %" PRIu32 " lost, status %u", event->id, event->status);
        break;
    default:
        snprintf(text, size, "an event of kind %u", event->kind);
        break;
    }
}
