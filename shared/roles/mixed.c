/* See mixed.h. */
#include "roles/mixed.h"

#include "base/arith.h"
#include "messenger/report.h"
#include "messenger/request.h"
#include "serve/decode_batch.h"
#include "serve/prefill_batch.h"

void mixed_request(struct instance *instance, const struct message *m)
{
    uint32_t slot = request_take(instance, m, request_check(instance, m));
    if (slot == SLOT_NONE)
        return;
    struct sequence *s = &instance->sequences[slot];
    s->peer = instance->config->node;
    s->wanted = m->prompt_tokens + m->produced;
    rt_trace(instance->rt, TRACE_DISPATCHED, s->request, s->peer, 0);
    prefill_enqueue(instance, slot);
    if (m->peer != s->peer) { /* who was to compute it will not be asked */
        struct report report = report_of(s, MESSAGE_PREFILLED);
        report_to_front(instance, &report);
    }
}

static void end_aborted(struct instance *instance, uint32_t slot)
{
    struct report report = report_of(&instance->sequences[slot], MESSAGE_ABORTED);
    report.reason = FAIL_CLIENT;
    instance_end(instance, slot);
    report_to_front(instance, &report);
}

bool mixed_abort_prompt(struct instance *instance, uint32_t request)
{
    uint32_t slot = index_map_get(&instance->by_key, request);
    uint8_t state = slot == INDEX_NONE ? SEQUENCE_FREE : instance->sequences[slot].state;
    if (state != SEQUENCE_QUEUED && state != SEQUENCE_STREAMING)
        return false;
    if (instance_steps(instance, slot)) {
        instance_abort_after_step(instance, slot);
        return true;
    }
    if (state == SEQUENCE_QUEUED) {
        prefill_dequeue(instance, slot);
    } else {
        prefill_abandon(instance, slot);
        instance->running--;
    }
    end_aborted(instance, slot);
    return true;
}

void mixed_abort(struct instance *instance, uint32_t request)
{
    uint32_t slot = index_map_get(&instance->by_key, request);
    if (slot == INDEX_NONE || mixed_abort_prompt(instance, request))
        return; /* its last message and the abort crossed */
    struct sequence *s = &instance->sequences[slot];
    if (instance_steps(instance, slot)) {
        instance_abort_after_step(instance, slot);
        return;
    }
    if (s->state == SEQUENCE_READY) {
        sequence_list_remove(&instance->groups[s->group].ready, instance->sequences, slot);
    } else {
        CHECK(s->state == SEQUENCE_DECODE);
        decode_leave(instance, slot);
    }
    end_aborted(instance, slot);
}

void mixed_admitted(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    rt_trace(instance->rt, TRACE_PREFILL_STARTED, s->request, 0, s->local);
}

void mixed_launched(struct instance *instance)
{
    for (uint32_t i = 0; i < instance->current->chunk_count; i++) {
        const struct chunk *chunk = &instance->current->chunks[i];
        rt_trace(instance->rt, TRACE_CHUNK, instance->sequences[chunk->slot].request, chunk->start, chunk->tokens);
    }
}

static void prompt_complete(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    struct runtime *rt = instance->rt;
    rt_trace(rt, TRACE_PREFILL_FINISHED, s->request, 0, 0);
    instance_publish(instance, slot, s->prompt_tokens);
    instance->running--;
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
    for (uint32_t i = 0; i < microbatch->chunk_count; i++) {
        uint32_t slot = microbatch->chunks[i].slot;
        bool complete = prefill_chunk_done(instance, &microbatch->chunks[i]);
        if (instance->sequences[slot].aborting) {
            if (instance->sequences[slot].in_step > 0)
                continue;
            prefill_abandon(instance, slot);
            instance->running--;
            end_aborted(instance, slot);
        } else if (complete) {
            prompt_complete(instance, slot);
        }
    }
    microbatch->chunk_count = 0;
    for (uint32_t i = 0; i < microbatch->aborting_count; i++) {
        uint32_t slot = microbatch->aborting[i];
        CHECK(instance->sequences[slot].aborting); /* noted once: nothing else takes it away meanwhile */
        decode_leave(instance, slot);
        end_aborted(instance, slot);
    }
    microbatch->aborting_count = 0;
}

void mixed_preempted(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    instance_release_pages(instance, slot);
    s->peer = instance->config->node;
    s->epoch = 0;
    s->wanted = s->prompt_tokens + s->produced;
    s->local = s->computed = 0;
    rt_trace(instance->rt, TRACE_PREEMPTED, s->request, s->wanted, 0);
    prefill_enqueue(instance, slot);
}
