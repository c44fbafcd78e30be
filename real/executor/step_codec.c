/* See step_codec.h. */
#include "real/executor/step_codec.h"

#include "real/control/frame.h"

size_t step_change_encode(const struct step_change *change, unsigned char *bytes)
{
    struct frame_writer writer = {.bytes = bytes, .size = step_change_bytes(change)};
    write_u16(&writer, change->kind);
    write_u16(&writer, change->group);
    write_u32(&writer, change->sequence);
    write_u32(&writer, change->request);
    write_u32(&writer, change->start);
    write_u32(&writer, change->tokens);
    write_u32(&writer, change->page_first);
    write_u32(&writer, change->page_count);
    write_u32(&writer, 0);
    write_u64(&writer, change->token_seed);
    for (uint32_t i = 0; i < change->page_count; i++)
        write_u32(&writer, change->pages[i]);
    return writer.used;
}

size_t step_given_encode(const struct step_given *given, unsigned char *bytes)
{
    return step_change_encode(&(struct step_change){.kind = STEP_GIVEN,
                                                    .sequence = given->sequence,
                                                    .start = given->first,
                                                    .page_count = given->count,
                                                    .pages = given->tokens},
                              bytes);
}

static bool sensible(const struct step_change *change, const struct step_bounds *bounds, uint32_t zero)
{
    if (change->kind == STEP_GIVEN)
        return zero == 0 && change->group < bounds->groups && change->sequence < bounds->sequences &&
               change->start <= bounds->request_tokens_max &&
               change->page_count <= bounds->request_tokens_max - change->start;
    bool known = change->kind >= STEP_CHUNK && change->kind <= STEP_LEAVE;
    bool pages_fit = change->page_count <= bounds->request_pages_max &&
                     change->page_first <= bounds->request_pages_max - change->page_count;
    /* Of a chunk they follow its start; of a join they are those produced so far, which lie before it. */
    bool tokens_fit = change->start <= bounds->request_tokens_max &&
                      change->tokens <= bounds->request_tokens_max - (change->kind == STEP_CHUNK ? change->start : 0);
    return known && zero == 0 && change->group < bounds->groups && change->sequence < bounds->sequences && pages_fit &&
           tokens_fit;
}

enum step_decode step_change_decode(const unsigned char *bytes, size_t length, size_t *at,
                                    const struct step_bounds *bounds, uint32_t *pages, uint32_t pages_max,
                                    struct step_change *change)
{
    if (*at == length)
        return STEP_DECODE_END;
    struct frame_reader reader = {.bytes = bytes, .length = length, .at = *at};
    *change = (struct step_change){.pages = pages};
    change->kind = read_u16(&reader);
    change->group = read_u16(&reader);
    change->sequence = read_u32(&reader);
    change->request = read_u32(&reader);
    change->start = read_u32(&reader);
    change->tokens = read_u32(&reader);
    change->page_first = read_u32(&reader);
    change->page_count = read_u32(&reader);
    uint32_t zero = read_u32(&reader);
    change->token_seed = read_u64(&reader);
    if (reader.bad || !sensible(change, bounds, zero) || change->page_count > pages_max)
        return STEP_DECODE_BAD;
    uint32_t limit = change->kind == STEP_GIVEN ? bounds->vocab : bounds->pages_per_group;
    for (uint32_t i = 0; i < change->page_count; i++) {
        pages[i] = read_u32(&reader);
        if (reader.bad || pages[i] >= limit)
            return STEP_DECODE_BAD;
    }
    *at = reader.at;
    return STEP_DECODED;
}
