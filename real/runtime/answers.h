/* What the requests of a node have answered so far, token by token.
 *
 * The node deals in counts alone: after a preemption, or on another instance, it lets a request go on from tokens that
 * were produced before. Here are their values. They travel in one frame with the message that needs them:
 *
 *     REQUEST, produced > 0    all of them, to the decoder that goes on from there
 *     PREFILL, produced > 1    all but the last, to the prefiller that computes their KV (the decoder runs the last)
 *     FAILED,  produced > 0    all of them, to the front, which hands them to whoever it asks next
 *
 * and a launch comes with those tokens of its chunks and joins that a device cannot know: produced ones, and the
 * prompt's where it shares prefix blocks with others, which the request's own seed does not give.
 *
 * A request is kept while it lives on the node; those that do not any more are swept out now and then, so that memory
 * follows the requests in flight. Only the loop's thread comes here.
 */
#ifndef TANDEM_REAL_RUNTIME_ANSWERS_H
#define TANDEM_REAL_RUNTIME_ANSWERS_H

#include "real/executor/step_codec.h"
#include "real/device/device.h"

struct answers;

struct answers_config {
    uint32_t vocab;
    bool (*serves)(void *self, uint32_t request); /* whether the request lives on the node */
    void *self;
};

struct answers *answers_make(const struct answers_config *config);
void answers_free(struct answers *answers);

/* A message is leaving: the tokens that go with it, `*tokens` valid until the next call. Mostly none. */
uint32_t answers_sent(struct answers *answers, const void *message, size_t length, const uint32_t **tokens);

/* A message has come, with these tokens, and is about to be given to the node. False: the one does not go with the
 * other. */
bool answers_heard(struct answers *answers, const void *message, size_t length, const uint32_t *tokens, uint32_t count);

/* A step has produced these. Writes those that are news to `fresh`, which has room for `count`, and returns their
 * number: what follows a chunk in the middle of a prompt is no answer, and what was known already is none either. */
uint32_t answers_produced(struct answers *answers, const struct device_token *tokens, uint32_t count,
                          struct device_token *fresh);

/* What the devices must be given with a launch; valid until the next call. */
const struct step_given *answers_given(struct answers *answers, const struct step_launch *launch, uint32_t *count);

/* Requests that are kept. */
uint32_t answers_kept(const struct answers *answers);

#endif
