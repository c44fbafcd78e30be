/* Bodies of requests, as anybody on the network may send them: read or refused with a sentence, and never more. */
#include "live/completion.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int chat = 0; chat < 2; chat++) {
        struct completion_ask ask;
        struct user_error error = {.set = false};
        bool good = completion_read((const char *)data, size, chat == 1, &ask, &error);
        CHECK(good ? ask.prompt_tokens > 0 && ask.tokens != NULL : error.set);
        if (good) {
            uint32_t count;
            free(completion_blocks(&ask, 16, &count));
            CHECK(count == (ask.prompt_tokens + 15) / 16);
            struct completion_part part = {.model = "m", .tokens = 3, .last = true, .usage = true};
            char *text = completion_chunk(&ask, &part);
            CHECK(strchr(text, '\n') == NULL);
            free(text);
            free(completion_answer(&ask, &part));
        }
        completion_ask_free(&ask);
    }
    return 0;
}
