/* See mixed.h. */
#include "roles/mixed.h"

#include "base/arith.h"
#include "messenger/report.h"
#include "serve/decode_batch.h"
#include "serve/prefill_batch.h"

static enum reject_reason check_request(const struct instance *instance, const struct message *m)
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

void mixed_request(struct instance *instance, const struct message *m)
{
    enum reject_reason reason = check_request(instance, m);
    uint32_t slot = reason == REJECT_NONE ? instance_take_slot(instance) : SLOT_NONE;
    if (slot == SLOT_NONE) {
        report_to_front(instance, &(struct report){
                                      .kind = MESSAGE_REJECTED,
                                      .request = m->request,
                                      .attempt = m->attempt,
                                      .reason = reason == REJECT_NONE ? REJECT_QUEUE_FULL : reason,
                                  });
        return;
    }
    struct sequence *s = &instance->sequences[slot];
    s->request = m->request;
    s->attempt = m->attempt;
    s->token_seed = m->token_seed;
    s->deadline_ns = m->deadline_ns;
    s->prompt_tokens = m->prompt_tokens;
    s->output_tokens = m->output_tokens;
    s->produced = m->produced;
    s->resumed = (m->flags & FLAG_RESUMED) != 0;
    s->wanted = m->prompt_tokens + m->produced;
    s->block_tokens = m->block_tokens;
    if (m->block_count <= instance->config->request_blocks_max) {
        s->block_count = m->block_count;
        wire_blocks(m, instance_blocks(instance, slot));
    }
    index_map_put(&instance->by_key, s->request, slot);
    rt_trace(instance->rt, TRACE_RECEIVED, s->request, s->attempt, 0);
    rt_trace(instance->rt, TRACE_DISPATCHED, s->request, instance->config->node, 0);
    prefill_enqueue(instance, slot);
}

static void end_aborted(struct instance *instance, uint32_t slot)
{
    struct report report = report_of(&instance->sequences[slot], MESSAGE_ABORTED);
    report.reason = FAIL_CLIENT;
    instance_end(instance, slot);
    report_to_front(instance, &report);
}

void mixed_abort(struct instance *instance, uint32_t request)
{
    uint32_t slot = index_map_get(&instance->by_key, request);
    if (slot == INDEX_NONE)
        return; /* its last message and the abort crossed */
    struct sequence *s = &instance->sequences[slot];
    if (instance_steps(instance, slot)) {
        instance_abort_after_step(instance, slot);
        return;
    }
    switch (s->state) {
    case SEQUENCE_QUEUED:
        prefill_dequeue(instance, slot);
        break;
    case SEQUENCE_STREAMING:
        prefill_abandon(instance, slot);
        instance->running--;
        break;
    case SEQUENCE_READY:
        sequence_list_remove(&instance->groups[s->group].ready, instance->sequences, slot);
        break;
    default:
        CHECK(s->state == SEQUENCE_DECODE);
        decode_leave(instance, slot);
        break;
    }
    end_aborted(instance, slot);
}

void mixed_admitted(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    rt_trace(instance->rt, TRACE_PREFILL_STARTED, s->request, 0, s->local);
}

static void aborted(void *context, uint32_t slot)
{
    end_aborted(context, slot);
}

static void prompt_complete(void *context, uint32_t slot)
{
    struct instance *instance = context;
    struct sequence *s = &instance->sequences[slot];
    struct runtime *rt = instance->rt;
    rt_trace(rt, TRACE_PREFILL_FINISHED, s->request, 0, 0);
    instance_publish(instance, slot, s->prompt_tokens);
    s->produced++;
    s->state = SEQUENCE_READY;
    struct report report = report_of(s, s->resumed ? MESSAGE_PREFILLED : MESSAGE_FIRST_TOKEN);
    if (!s->resumed) {
        rt_trace(rt, TRACE_READY, s->request, 0, 0);
        rt_trace(rt, TRACE_DECODE_STARTED, s->request, s->group, 0);
        rt_trace(rt, TRACE_FIRST_TOKEN, s->request, 0, 0);
        s->resumed = true;
    }
    report_to_front(instance, &report);
    if (s->produced == s->output_tokens) {
        rt_trace(rt, TRACE_FINISHED, s->request, s->produced, 0);
        report.kind = MESSAGE_FINISHED;
        instance_end(instance, slot);
        report_to_front(instance, &report);
    } else {
        sequence_list_append(&instance->groups[s->group].ready, instance->sequences, slot);
    }
}

void mixed_step_done(struct instance *instance)
{
    struct microbatch *microbatch = instance->current;
    prefill_chunks_done(instance, prompt_complete, aborted, instance);
    for (uint32_t i = 0; i < microbatch->aborting_count; i++) {
        uint32_t slot = microbatch->aborting[i];
        if (instance->sequences[slot].state == SEQUENCE_DECODE && instance->sequences[slot].aborting) {
            decode_leave(instance, slot);
            end_aborted(instance, slot);
        }
    }
    microbatch->aborting_count = 0;
}

void mixed_preempted(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    instance_release_pages(instance, slot);
    s->wanted = s->prompt_tokens + s->produced;
    s->local = s->computed = 0;
    rt_trace(instance->rt, TRACE_PREEMPTED, s->request, s->wanted, 0);
    prefill_enqueue(instance, slot);
}
