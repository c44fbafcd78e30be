/* A node's life as a file: every event that it was given, and every call it made in answer.
 *
 * A recording stands between a node and its runtime. The node is made on recording_seam() and entered through
 * recording_handle(); calls are written down and passed on. Replaying makes the same node on a runtime that answers
 * nothing, gives it the recorded events, and compares every call with the recorded one byte by byte: a failure on
 * hardware becomes a test that needs none.
 *
 * The file: eight bytes of magic, a byte of how many launches may be in flight, then per event one frame of length,
 * time, the event and its data, and the calls.
 */
#ifndef TANDEM_REAL_RUNTIME_RECORDING_H
#define TANDEM_REAL_RUNTIME_RECORDING_H

#include "run/compare/divergence.h"
#include "node.h"
#include "host/user_error.h"

#define RECORDING_HEAD_BYTES 9

struct recording;

/* Starts a file at `path`. NULL with a sentence. */
struct recording *recording_make(const char *path, struct runtime *inner, struct user_error *error);

/* Closes the file; false when it could not be written whole. */
bool recording_free(struct recording *recording);

/* What the node is to be made on, and then told to the recording. */
struct runtime *recording_seam(struct recording *recording);
void recording_node(struct recording *recording, struct node *node);

void recording_handle(struct recording *recording, const struct event *event);

/* Gives the events of a file to a new node. Returns how many; -1 with a sentence when the file makes no sense or a call
 * differs (the sentence names event and call). */
int64_t recording_replay(const char *path, const struct node_config *config, const struct runtime_limits *limits,
                         struct user_error *error);

/* The same, and hears what the node is told and what it calls, each with its time (any may be NULL); and tells of the
 * call that differs as other divergences are told. */
struct recording_listener {
    void (*event)(void *self, int64_t now_ns, const struct event *event); /* before the node does */
    void (*trace)(void *self, int64_t now_ns, const struct trace_record *record);
    void (*launch)(void *self, int64_t now_ns, const struct step_launch *launch);
    void (*expect)(void *self, int64_t now_ns, uint32_t immediate, uint64_t count);
    void (*send)(void *self, int64_t now_ns, uint32_t node);
    void *self;
    struct policy *policy;         /* as the runtime had it; NULL: the scenario decides nothing itself */
    struct divergence *divergence; /* NULL: not wanted; zeroed by the caller, who also names the node in it */
};
int64_t recording_replay_heard(const char *path, const struct node_config *config, const struct runtime_limits *limits,
                               const struct recording_listener *listener, struct user_error *error);

#endif
