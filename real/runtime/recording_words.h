/* Recorded calls and events in words, for whoever looks for the first one that differs. */
#ifndef TANDEM_REAL_RUNTIME_RECORDING_WORDS_H
#define TANDEM_REAL_RUNTIME_RECORDING_WORDS_H

#include "runtime.h"

#include <stddef.h>

/* A call in a recording: its kind, then integers of eight bytes. Stored: append, never renumber. */
enum call {
    CALL_TIMER = 1,
    CALL_LAUNCH,
    CALL_LAUNCH_END,
    CALL_WRITE,
    CALL_WRITE_STOP,
    CALL_EXPECT,
    CALL_SEND,
    CALL_TRACE
};

/* The call that begins at `bytes`: "expect 192 of immediate 7", "dispatched request 17
 * prefiller=3 writes=96256" of a trace record; "do nothing more" where there is none. */
void recording_call_text(const unsigned char *bytes, size_t length, char *text, size_t size);

/* The request that a trace record is about; TRACE_NO_REQUEST (base/trace.h) where it is about none, or another call. */
uint32_t recording_call_request(const unsigned char *bytes, size_t length);

/* "a message from node 3". */
void recording_event_text(const struct event *event, char *text, size_t size);

#endif
