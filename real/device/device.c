/* What all devices share. See device.h. */
#include "real/device/device.h"

#include "real/device/seeded.h"

#include <string.h>

uint32_t device_prompt_token(uint64_t token_seed, uint32_t position, uint32_t vocab)
{
    return seeded_prompt_token(token_seed, position, vocab);
}

uint32_t device_prompt_token_at(const struct device_prompt *prompt, uint32_t position, uint32_t vocab)
{
    if (prompt->block_tokens > 0 && position / prompt->block_tokens < prompt->block_count)
        return device_prompt_token(prompt->blocks[position / prompt->block_tokens], position, vocab);
    return device_prompt_token(prompt->seed, position, vocab);
}

uint64_t device_digest(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t digest = seeded_mix(count);
    for (; count >= sizeof(uint64_t); at += sizeof(uint64_t), count -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        digest = seeded_mix(digest ^ word);
    }
    uint64_t rest = 0;
    memcpy(&rest, at, count);
    return seeded_mix(digest ^ rest);
}
