/* Answers of endpoints, as anybody may send them: cut anywhere they are the same events, and no event is worse than
 * unknown. */
#include "live/reply.h"
#include "live/sse.h"

#include "base/check.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct heard {
    struct reply reply;
    uint64_t hash;
};

static bool on_event(void *self, const char *data, size_t length)
{
    struct heard *heard = self;
    for (size_t i = 0; i <= length; i++)
        heard->hash = heard->hash * 1099511628211u + (unsigned char)data[i];
    CHECK(data[length] == '\0');
    enum reply_kind kind = reply_event(&heard->reply, data, length);
    CHECK((kind == REPLY_TOKENS) == (heard->reply.new_tokens > 0));
    return true;
}

static struct heard hear(const uint8_t *data, size_t size, size_t step)
{
    struct sse_reader reader = {0};
    struct heard heard = {.hash = 7};
    for (size_t at = 0; at < size; at += step)
        CHECK(sse_feed(&reader, (const char *)data + at, size - at < step ? size - at : step, on_event, &heard));
    sse_free(&reader);
    return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct heard whole = hear(data, size, size > 0 ? size : 1);
    struct heard drops = hear(data, size, 1);
    CHECK(whole.hash == drops.hash && whole.reply.tokens == drops.reply.tokens);
    char text[64];
    reply_error_text((const char *)data, size, text, sizeof text);
    CHECK(strlen(text) < sizeof text);
    return 0;
}
