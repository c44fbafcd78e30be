/* See report.h. */
#include "messenger/report.h"

#include "base/arith.h"

struct load_report instance_load(const struct instance *instance)
{
    uint64_t available = 0;
    for (uint32_t g = 0; g < instance->config->group_count; g++)
        available += page_pool_available(&instance->groups[g].pool);
    return (struct load_report){
        .queued_tokens = instance->queued_tokens,
        .running = narrow_u32(instance->running + instance->decode_sequences),
        .waiting = instance->waiting_count,
        .pages_available = narrow_u32(available),
        .pages_total = instance->config->pages_per_group * instance->config->group_count,
    };
}

void report_to_front(struct instance *instance, enum message_kind kind, uint32_t request, uint32_t reason,
                     uint32_t produced)
{
    struct message message = {
        .kind = (uint16_t)kind,
        .reason = (uint16_t)reason,
        .request = request,
        .produced = produced,
        .incarnation = instance->incarnation,
        .load = instance_load(instance),
    };
    unsigned char bytes[WIRE_HEADER_BYTES];
    size_t length = wire_encode(&message, NULL, NULL, bytes, sizeof bytes);
    rt_send(instance->rt, instance->config->front, bytes, length);
}
