/* See rows.h. */
#include "real/cluster/rows.h"

void step_row_write(struct frame_writer *writer, const struct step_row *row)
{
    write_u32(writer, row->steps);
    write_u32(writer, row->decode_sequences);
    write_u64(writer, row->prefill_tokens);
    write_u64(writer, row->decode_context);
    write_u64(writer, (uint64_t)row->start_ns);
    write_u64(writer, (uint64_t)row->end_ns);
}

bool step_row_read(const struct frame *frame, uint16_t node, struct step_row *row)
{
    struct frame_reader reader = frame_read(frame);
    *row = (struct step_row){.node = node};
    row->steps = read_u32(&reader);
    row->decode_sequences = read_u32(&reader);
    row->prefill_tokens = read_u64(&reader);
    row->decode_context = read_u64(&reader);
    row->start_ns = (int64_t)read_u64(&reader);
    row->end_ns = (int64_t)read_u64(&reader);
    return read_end(&reader);
}

void transfer_row_write(struct frame_writer *writer, const struct transfer_row *row)
{
    write_u32(writer, row->request);
    write_u32(writer, row->epoch);
    write_u32(writer, row->destination);
    write_u32(writer, row->layers);
    write_u64(writer, row->bytes);
    write_u64(writer, row->writes);
    write_u64(writer, (uint64_t)row->posted_ns);
    write_u64(writer, (uint64_t)row->landed_ns);
    write_u64(writer, (uint64_t)row->confirmed_ns);
}

bool transfer_row_read(const struct frame *frame, uint16_t node, struct transfer_row *row)
{
    struct frame_reader reader = frame_read(frame);
    *row = (struct transfer_row){.source = node};
    row->request = read_u32(&reader);
    row->epoch = read_u32(&reader);
    uint32_t destination = read_u32(&reader);
    row->destination = (uint16_t)destination;
    row->layers = read_u32(&reader);
    row->bytes = read_u64(&reader);
    row->writes = read_u64(&reader);
    row->posted_ns = (int64_t)read_u64(&reader);
    row->landed_ns = (int64_t)read_u64(&reader);
    row->confirmed_ns = (int64_t)read_u64(&reader);
    return read_end(&reader) && destination <= UINT16_MAX;
}

void token_row_write(struct frame_writer *writer, const struct device_token *token)
{
    write_u32(writer, token->request);
    write_u32(writer, token->position);
    write_u32(writer, token->token);
}

void token_row_read(struct frame_reader *reader, struct device_token *token)
{
    *token = (struct device_token){0};
    token->request = read_u32(reader);
    token->position = read_u32(reader);
    token->token = read_u32(reader);
}
