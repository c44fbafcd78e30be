/* See wire.h. */
#include "messenger/wire.h"

#include "base/check.h"

#include <string.h>

#define WIRE_FIELD_BYTES 112 /* of the header; the rest is zero */

/* Fields are put and got byte by byte; compilers make single moves of it on little-endian machines. */
static void put16(unsigned char *at, uint16_t v)
{
    at[0] = (unsigned char)v;
    at[1] = (unsigned char)(v >> 8);
}

static void put32(unsigned char *at, uint32_t v)
{
    put16(at, (uint16_t)v);
    put16(at + 2, (uint16_t)(v >> 16));
}

static void put64(unsigned char *at, uint64_t v)
{
    put32(at, (uint32_t)v);
    put32(at + 4, (uint32_t)(v >> 32));
}

static uint16_t get16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get64(const unsigned char *at)
{
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

size_t wire_encode(const struct message *m, const uint64_t *blocks, const uint32_t *pages, unsigned char *buffer,
                   size_t capacity)
{
    size_t length = WIRE_HEADER_BYTES + (size_t)m->block_count * 8 + (size_t)m->page_count * 4;
    CHECK(m->block_count <= REQUEST_BLOCKS_MAX && m->page_count <= REQUEST_PAGES_MAX && length <= capacity);
    put16(buffer, m->kind);
    put16(buffer + 2, m->flags);
    put16(buffer + 4, m->reason);
    put16(buffer + 6, m->group);
    put32(buffer + 8, m->request);
    put32(buffer + 12, m->epoch);
    put32(buffer + 16, m->attempt);
    put32(buffer + 20, m->peer);
    put32(buffer + 24, m->prompt_tokens);
    put32(buffer + 28, m->output_tokens);
    put32(buffer + 32, m->produced);
    put32(buffer + 36, m->immediate);
    put32(buffer + 40, m->tail_slot);
    put32(buffer + 44, m->first_token);
    put32(buffer + 48, m->block_tokens);
    put32(buffer + 52, m->block_count);
    put32(buffer + 56, m->page_count);
    put32(buffer + 60, m->number);
    put64(buffer + 64, m->token_seed);
    put64(buffer + 72, m->geometry_hash);
    put64(buffer + 80, (uint64_t)m->deadline_ns);
    put64(buffer + 88, m->load.pages_available);
    put64(buffer + 96, m->load.pages_wanted);
    put32(buffer + 104, m->incarnation);
    put32(buffer + 108, m->peer_incarnation);
    memset(buffer + WIRE_FIELD_BYTES, 0, WIRE_HEADER_BYTES - WIRE_FIELD_BYTES);
    unsigned char *at = buffer + WIRE_HEADER_BYTES;
    for (uint32_t i = 0; i < m->block_count; i++)
        put64(at + (size_t)i * 8, blocks[i]);
    at += (size_t)m->block_count * 8;
    for (uint32_t i = 0; i < m->page_count; i++)
        put32(at + (size_t)i * 4, pages[i]);
    return length;
}

bool wire_decode(const void *bytes, size_t length, struct message *m)
{
    const unsigned char *at = bytes;
    if (length < WIRE_HEADER_BYTES || length > MESSAGE_BYTES_MAX)
        return false;
    m->kind = get16(at);
    m->flags = get16(at + 2);
    m->reason = get16(at + 4);
    m->group = get16(at + 6);
    m->request = get32(at + 8);
    m->epoch = get32(at + 12);
    m->attempt = get32(at + 16);
    m->peer = get32(at + 20);
    m->prompt_tokens = get32(at + 24);
    m->output_tokens = get32(at + 28);
    m->produced = get32(at + 32);
    m->immediate = get32(at + 36);
    m->tail_slot = get32(at + 40);
    m->first_token = get32(at + 44);
    m->block_tokens = get32(at + 48);
    m->block_count = get32(at + 52);
    m->page_count = get32(at + 56);
    m->number = get32(at + 60);
    m->token_seed = get64(at + 64);
    m->geometry_hash = get64(at + 72);
    m->deadline_ns = (int64_t)get64(at + 80);
    m->load.pages_available = get64(at + 88);
    m->load.pages_wanted = get64(at + 96);
    m->incarnation = get32(at + 104);
    m->peer_incarnation = get32(at + 108);
    if (m->kind < MESSAGE_REQUEST || m->kind > MESSAGE_HELLO)
        return false;
    if (m->block_count > REQUEST_BLOCKS_MAX || m->page_count > REQUEST_PAGES_MAX)
        return false;
    m->block_bytes = at + WIRE_HEADER_BYTES;
    m->page_bytes = m->block_bytes + (size_t)m->block_count * 8;
    return length == WIRE_HEADER_BYTES + (size_t)m->block_count * 8 + (size_t)m->page_count * 4;
}

void wire_blocks(const struct message *message, uint64_t *blocks)
{
    for (uint32_t i = 0; i < message->block_count; i++)
        blocks[i] = get64(message->block_bytes + (size_t)i * 8);
}

void wire_pages(const struct message *message, uint32_t *pages)
{
    for (uint32_t i = 0; i < message->page_count; i++)
        pages[i] = get32(message->page_bytes + (size_t)i * 4);
}
