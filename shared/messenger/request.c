/* See request.h. */
#include "messenger/request.h"

#include "messenger/report.h"

enum reject_reason request_check(const struct instance *instance, const struct message *m)
{
    const struct node_config *config = instance->config;
    if (index_map_get(&instance->by_key, m->request) != INDEX_NONE)
        return REJECT_DUPLICATE;
    if (m->prompt_tokens == 0 || m->output_tokens == 0 || m->produced >= m->output_tokens ||
        m->prompt_tokens > config->request_tokens_max ||
        m->output_tokens > config->request_tokens_max - m->prompt_tokens)
        return REJECT_TOO_LARGE_DECODE;
    if (kv_pages(&config->geometry, m->prompt_tokens + m->output_tokens - 1) > instance->pages_max)
        return REJECT_TOO_LARGE_DECODE;
    return REJECT_NONE;
}

void request_reject(struct instance *instance, uint32_t request, uint32_t attempt, enum reject_reason reason)
{
    report_to_front(instance, &(struct report){
                                  .kind = MESSAGE_REJECTED,
                                  .request = request,
                                  .attempt = attempt,
                                  .reason = reason,
                              });
}

uint32_t request_take(struct instance *instance, const struct message *m, enum reject_reason reason)
{
    uint32_t slot = reason == REJECT_NONE ? instance_take_slot(instance) : SLOT_NONE;
    if (slot == SLOT_NONE) {
        request_reject(instance, m->request, m->attempt, reason == REJECT_NONE ? REJECT_QUEUE_FULL : reason);
        return SLOT_NONE;
    }
    struct sequence *s = &instance->sequences[slot];
    s->request = m->request;
    s->attempt = m->attempt;
    s->peer = m->peer;
    s->token_seed = m->token_seed;
    s->deadline_ns = m->deadline_ns;
    s->prompt_tokens = m->prompt_tokens;
    s->output_tokens = m->output_tokens;
    s->produced = m->produced;
    s->resumed = (m->flags & FLAG_RESUMED) != 0;
    s->block_tokens = m->block_tokens;
    if (m->block_count <= instance->config->request_blocks_max) {
        s->block_count = m->block_count;
        wire_blocks(m, instance_blocks(instance, slot));
    }
    index_map_put(&instance->by_key, s->request, slot);
    rt_trace(instance->rt, TRACE_RECEIVED, s->request, s->attempt, 0);
    return slot;
}
