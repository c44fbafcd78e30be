/* Requests of a load as bodies for an endpoint. A prompt is token ids, so that its length is exact: of a prefix block
 * they follow from the block's hash, which stands for all before it too, so that what the load shares is shared and
 * nothing else is. A salt makes all of them new, so that nothing an earlier run left in a cache is found.
 *
 * Ids are drawn from the middle of the vocabulary, [n/8, 7n/8): special tokens stand at its ends. */
#ifndef TANDEM_LIVE_PROMPT_H
#define TANDEM_LIVE_PROMPT_H

#include "runtime.h"

#include <stddef.h>

enum prompt_kind {
    PROMPT_IDS = 1,  /* completions, token ids */
    PROMPT_TEXT = 2, /* completions, a word for each token: about as long; usage tells how long */
    PROMPT_CHAT = 3, /* chat completions, the same words in one message */
};

struct prompt_format {
    enum prompt_kind kind;
    const char *model;
    uint32_t vocabulary;
    uint64_t salt;
};

uint32_t prompt_token(const struct prompt_format *format, const struct request_spec *spec, uint32_t index);

/* The body, streamed, with usage in every chunk; the caller's to free. */
char *prompt_body(const struct prompt_format *format, const struct request_spec *spec, size_t *length);

#endif
