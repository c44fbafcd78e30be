/* See report.h. */
#include "messenger/report.h"

struct load_report instance_load(const struct instance *instance)
{
    struct load_report load = {.pages_wanted = instance->pages_wanted};
    for (uint32_t g = 0; g < instance->config->group_count; g++)
        load.pages_available += page_pool_available(&instance->groups[g].pool);
    return load;
}

struct report report_of(const struct sequence *sequence, enum message_kind kind)
{
    return (struct report){
        .kind = kind,
        .request = sequence->request,
        .attempt = sequence->attempt,
        .produced = sequence->produced,
    };
}

void report_to_front(struct instance *instance, const struct report *report)
{
    struct message message = {
        .kind = (uint16_t)report->kind,
        .reason = (uint16_t)report->reason,
        .request = report->request,
        .attempt = report->attempt,
        .produced = report->produced,
        .number = instance->newest_number,
        .incarnation = instance->incarnation,
        .load = instance_load(instance),
    };
    unsigned char header[WIRE_HEADER_BYTES];
    unsigned char *bytes = header;
    size_t capacity = sizeof header;
    if (instance->evictions.count > 0) {
        message.block_count = instance_evicted(instance);
        bytes = instance->report_bytes;
        capacity = MESSAGE_BYTES_MAX;
    }
    size_t length = wire_encode(&message, instance->evictions.hashes, NULL, bytes, capacity);
    rt_send(instance->rt, instance->config->front, bytes, length);
}
