/* What a client of an OpenAI-compatible endpoint asks for, read from the body of its request, and what it is answered:
 * completions and chat completions, streamed and not (the OpenAI API's reference; vLLM's fields ignore_eos, min_tokens
 * and stream_options.continuous_usage_stats).
 *
 * There is no tokenizer. A prompt of token ids has as many tokens as ids; of text, each four bytes are one token, and
 * what an answer says is one word a token. Fields that are not known are passed over, as engines do.
 */
#ifndef TANDEM_LIVE_COMPLETION_H
#define TANDEM_LIVE_COMPLETION_H

#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct completion_ask {
    bool chat;
    bool stream;
    bool include_usage;
    bool continuous_usage;
    char model[256]; /* "": not said */
    uint32_t prompt_tokens;
    uint32_t *tokens;       /* [prompt_tokens]; owned */
    uint32_t output_tokens; /* 0: not said */
};

/* False with a sentence for the client, for status 400. completion_ask_free() in either case. */
bool completion_read(const char *body, size_t length, bool chat, struct completion_ask *ask, struct user_error *error);
void completion_ask_free(struct completion_ask *ask);

/* Chained hashes of the prompt's blocks of `block_tokens`: equal where the blocks and all before them are. Owned by the
 * caller; *count of them. */
uint64_t *completion_blocks(const struct completion_ask *ask, uint32_t block_tokens, uint32_t *count);

/* Part of an answer. */
struct completion_part {
    uint64_t id;
    int64_t created_unix_s;
    const char *model;
    uint32_t first;  /* tokens before this part */
    uint32_t tokens; /* of this part */
    bool last;       /* with the reason why it ends */
    bool usage;      /* with the usage so far */
    uint32_t cached_tokens;
};

/* JSON texts without line feeds, the caller's to free. A chunk of a stream; with no token and not the last, the usage
 * alone; the whole answer; an error, as in the body of one or in a stream. */
char *completion_chunk(const struct completion_ask *ask, const struct completion_part *part);
char *completion_usage_chunk(const struct completion_ask *ask, const struct completion_part *part);
char *completion_answer(const struct completion_ask *ask, const struct completion_part *part);
char *completion_error(int status, const char *type, const char *message);

#endif
