/* See frame.h. */
#include "real/control/frame.h"

#include <string.h>

/* ---- Integers ---------------------------------------------------------------------------------------------------- */

static void put(unsigned char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

enum frame_result frame_next(const unsigned char *bytes, size_t length, uint32_t body_max, struct frame *frame)
{
    if (length < FRAME_HEADER_BYTES)
        return FRAME_MORE;
    uint32_t body = (uint32_t)get(bytes, 4);
    uint16_t kind = (uint16_t)get(bytes + 4, 2);
    if (body > body_max || body > FRAME_BODY_BYTES_MAX || kind == 0 || kind >= FRAME_KIND_END || get(bytes + 6, 2) != 0)
        return FRAME_BAD;
    if (length - FRAME_HEADER_BYTES < body)
        return FRAME_MORE;
    *frame = (struct frame){.kind = kind, .length = body, .body = bytes + FRAME_HEADER_BYTES};
    return FRAME_WHOLE;
}

void frame_header(unsigned char *header, uint16_t kind, uint32_t length)
{
    put(header, length, 4);
    put(header + 4, kind, 2);
    put(header + 6, 0, 2);
}

void write_bytes(struct frame_writer *writer, const void *bytes, size_t length)
{
    if (writer->full || length > writer->size - writer->used) {
        writer->full = true;
        return;
    }
    if (length > 0)
        memcpy(writer->bytes + writer->used, bytes, length);
    writer->used += length;
}

static void write_integer(struct frame_writer *writer, uint64_t value, size_t bytes)
{
    unsigned char encoded[8];
    put(encoded, value, bytes);
    write_bytes(writer, encoded, bytes);
}

void write_u16(struct frame_writer *writer, uint16_t value)
{
    write_integer(writer, value, 2);
}

void write_u32(struct frame_writer *writer, uint32_t value)
{
    write_integer(writer, value, 4);
}

void write_u64(struct frame_writer *writer, uint64_t value)
{
    write_integer(writer, value, 8);
}

bool read_bytes(struct frame_reader *reader, void *bytes, size_t length)
{
    if (reader->bad || length > reader->length - reader->at) {
        reader->bad = true;
        memset(bytes, 0, length);
        return false;
    }
    if (length > 0)
        memcpy(bytes, reader->bytes + reader->at, length);
    reader->at += length;
    return true;
}

static uint64_t read_integer(struct frame_reader *reader, size_t bytes)
{
    unsigned char encoded[8];
    return read_bytes(reader, encoded, bytes) ? get(encoded, bytes) : 0;
}

uint16_t read_u16(struct frame_reader *reader)
{
    return (uint16_t)read_integer(reader, 2);
}

uint32_t read_u32(struct frame_reader *reader)
{
    return (uint32_t)read_integer(reader, 4);
}

uint64_t read_u64(struct frame_reader *reader)
{
    return read_integer(reader, 8);
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

/* A text of fixed size: what follows its end is zero on both sides. */
static bool read_text(struct frame_reader *reader, char *text, size_t size)
{
    if (!read_bytes(reader, text, size) || text[size - 1] != '\0') {
        reader->bad = true;
        memset(text, 0, size);
    }
    return !reader->bad;
}

void hello_write(struct frame_writer *writer, const struct hello *hello)
{
    write_u32(writer, hello->protocol);
    write_bytes(writer, hello->token, sizeof hello->token);
    write_bytes(writer, hello->scenario, sizeof hello->scenario);
    write_bytes(writer, hello->build, sizeof hello->build);
    write_u32(writer, hello->node);
    write_u32(writer, hello->incarnation);
    write_u16(writer, hello->port);
    write_bytes(writer, hello->address, sizeof hello->address);
    write_bytes(writer, hello->clock, sizeof hello->clock);
}

bool hello_read(const struct frame *frame, struct hello *hello)
{
    struct frame_reader reader = frame_read(frame);
    hello->protocol = read_u32(&reader);
    read_bytes(&reader, hello->token, sizeof hello->token);
    read_text(&reader, hello->scenario, sizeof hello->scenario);
    read_text(&reader, hello->build, sizeof hello->build);
    hello->node = read_u32(&reader);
    hello->incarnation = read_u32(&reader);
    hello->port = read_u16(&reader);
    read_text(&reader, hello->address, sizeof hello->address);
    read_text(&reader, hello->clock, sizeof hello->clock);
    return read_end(&reader);
}

void peer_place_write(struct frame_writer *writer, const struct peer_place *place)
{
    write_u32(writer, place->node);
    write_u16(writer, place->port);
    write_bytes(writer, place->address, sizeof place->address);
}

bool peer_place_read(const struct frame *frame, struct peer_place *place)
{
    struct frame_reader reader = frame_read(frame);
    place->node = read_u32(&reader);
    place->port = read_u16(&reader);
    read_text(&reader, place->address, sizeof place->address);
    return read_end(&reader);
}

void timed_record_write(struct frame_writer *writer, const struct timed_record *record)
{
    write_u64(writer, (uint64_t)record->time_ns);
    write_u16(writer, record->record.kind);
    write_u32(writer, record->record.request);
    write_u64(writer, record->record.a);
    write_u64(writer, record->record.b);
}

void timed_record_read(struct frame_reader *reader, uint16_t node, struct timed_record *record)
{
    record->time_ns = (int64_t)read_u64(reader);
    record->record = (struct trace_record){.node = node};
    record->record.kind = read_u16(reader);
    record->record.request = read_u32(reader);
    record->record.a = read_u64(reader);
    record->record.b = read_u64(reader);
}
