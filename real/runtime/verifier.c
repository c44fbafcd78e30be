/* See verifier.h. */
#include "real/runtime/verifier.h"

#include "base/arith.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 32u
#define PIECES_A_FRAME 8192u
#define PLANE_TAIL UINT16_MAX

struct piece {
    uint16_t rank; /* destination rank; of a tail, the destination group */
    uint16_t layer;
    uint16_t plane;
    uint32_t page; /* destination page; of a tail, the slot */
    uint32_t offset;
    uint32_t length;
    uint32_t writes; /* that carried it */
    uint64_t digest;
};

/* An immediate that is expected. */
struct transfer {
    uint32_t immediate;
    uint64_t expected;  /* 0: unused */
    uint64_t landed;    /* the count that was reached; 0: not yet */
    uint64_t described; /* writes whose digest has come */
    struct piece *pieces;
    uint32_t piece_count;
    uint32_t piece_room;
};

struct verifier {
    struct verifier_config config;
    struct fabric_rank *regions;
    unsigned char *copy; /* of bytes in a device */
    struct transfer *transfers;
    uint32_t transfer_count;
    uint32_t transfer_room;
    uint64_t compared;
    uint64_t differed;
    unsigned char frame[8 + PIECES_A_FRAME * PIECE_BYTES];
    struct frame_writer writer;
    uint32_t written; /* pieces in the frame */
};

struct verifier *verifier_make(const struct verifier_config *config)
{
    struct verifier *verifier = calloc(1, sizeof *verifier);
    CHECK(verifier != NULL);
    verifier->config = *config;
    verifier->regions = calloc(config->ranks, sizeof *verifier->regions);
    verifier->copy = malloc(max_u64(kv_page_plane_bytes(&config->memory.geometry), config->memory.tail_bytes));
    CHECK(verifier->regions != NULL && verifier->copy != NULL);
    memcpy(verifier->regions, config->regions, config->ranks * sizeof *verifier->regions);
    return verifier;
}

void verifier_free(struct verifier *verifier)
{
    if (verifier == NULL)
        return;
    for (uint32_t i = 0; i < verifier->transfer_count; i++)
        free(verifier->transfers[i].pieces);
    free(verifier->transfers);
    free(verifier->regions);
    free(verifier->copy);
    free(verifier);
}

static uint64_t digest(const unsigned char *bytes, uint32_t length)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ length;
    for (uint32_t at = 0; at < length; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, length - at < 8 ? length - at : 8);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    return hash;
}

/* Of bytes of a rank's region as they are there now, be it the host's or a device's. At most a page plane or a tail. */
static uint64_t digest_of(struct verifier *verifier, uint32_t rank, uint64_t offset, uint32_t length)
{
    const struct fabric_rank *region = &verifier->regions[rank];
    if (region->reach == NULL)
        return digest((const unsigned char *)region->memory + offset, length);
    bool read = region->reach->ops->read(region->reach, offset, verifier->copy, length);
    return read ? digest(verifier->copy, length) : ~digest(verifier->copy, length); /* equal to nothing */
}

static uint64_t tail_digest(struct verifier *verifier, uint32_t group, uint32_t slot, uint32_t length)
{
    const struct kv_memory *memory = &verifier->config.memory;
    uint32_t rank = kv_memory_tail_rank(memory, group);
    return digest_of(verifier, rank, kv_memory_tail_offset(memory, rank, slot), length);
}

/* ---- Sender ------------------------------------------------------------------------------------------------------ */

static void frame_begin(struct verifier *verifier, uint32_t immediate)
{
    verifier->writer = (struct frame_writer){.bytes = verifier->frame, .size = sizeof verifier->frame};
    verifier->written = 0;
    write_u32(&verifier->writer, immediate);
    write_u32(&verifier->writer, 0);
}

static void frame_end(struct verifier *verifier, uint32_t destination)
{
    if (verifier->written == 0)
        return;
    struct frame_writer count = {.bytes = verifier->frame + 4, .size = 4};
    write_u32(&count, verifier->written);
    verifier->config.send(verifier->config.self, destination, verifier->frame, verifier->writer.used);
}

static void put_piece(struct verifier *verifier, const struct paged_write *write, const struct piece *piece)
{
    struct frame_writer *writer = &verifier->writer;
    write_u16(writer, piece->rank);
    write_u16(writer, piece->layer);
    write_u16(writer, piece->plane);
    write_u16(writer, 0);
    write_u32(writer, piece->page);
    write_u32(writer, piece->offset);
    write_u32(writer, piece->length);
    write_u32(writer, piece->writes);
    write_u64(writer, piece->digest);
    CHECK(!writer->full);
    if (++verifier->written == PIECES_A_FRAME) {
        frame_end(verifier, write->destination);
        frame_begin(verifier, write->immediate);
    }
}

static void put_unit(struct verifier *verifier, const struct paged_write *write, const struct transfer_pair *pair,
                     uint32_t layer, uint32_t plane, uint32_t unit)
{
    const struct transfer_plan *plan = write->plan;
    const struct kv_memory *memory = &verifier->config.memory;
    uint32_t source = unit / plan->source_units_per_page - write->unit_first / plan->source_units_per_page;
    uint32_t destination =
        unit / plan->destination_units_per_page - write->unit_first / plan->destination_units_per_page;
    uint64_t page = kv_memory_page_offset(memory, pair->source_rank, layer, plane, write->source_pages[source]);
    for (uint32_t run = 0; run < pair->runs; run++) {
        struct piece piece = {
            .rank = pair->destination_rank,
            .layer = (uint16_t)layer,
            .plane = (uint16_t)plane,
            .page = write->destination_pages[destination],
            .offset = narrow_u32(transfer_destination_offset(plan, pair, unit, run)),
            .length = pair->run_bytes,
            .writes = 1,
            .digest = digest_of(verifier, pair->source_rank, page + transfer_source_offset(plan, pair, unit, run),
                                pair->run_bytes),
        };
        put_piece(verifier, write, &piece);
    }
}

static void put_pair(struct verifier *verifier, const struct paged_write *write, const struct transfer_pair *pair)
{
    for (uint32_t layer = pair->layer_first; layer < (uint32_t)pair->layer_first + pair->layer_count; layer++)
        for (uint32_t plane = 0; plane < write->plan->planes; plane++)
            for (uint32_t unit = 0; unit < write->unit_count; unit++)
                put_unit(verifier, write, pair, layer, plane, write->unit_first + unit);
}

void verifier_written(struct verifier *verifier, const struct paged_write *write)
{
    frame_begin(verifier, write->immediate);
    for (uint32_t i = 0; i < write->plan->pair_count && write->unit_count > 0; i++)
        put_pair(verifier, write, &write->plan->pairs[i]);
    if (write->tail_writes > 0) {
        struct piece piece = {
            .rank = write->destination_group,
            .plane = PLANE_TAIL,
            .page = write->tail_destination_slot,
            .length = write->tail_bytes,
            .writes = write->tail_writes,
            .digest = tail_digest(verifier, write->source_group, write->tail_source_slot, write->tail_bytes),
        };
        put_piece(verifier, write, &piece);
    }
    frame_end(verifier, write->destination);
}

/* ---- Receiver ---------------------------------------------------------------------------------------------------- */

static struct transfer *find(struct verifier *verifier, uint32_t immediate)
{
    for (uint32_t i = 0; i < verifier->transfer_count; i++)
        if (verifier->transfers[i].expected > 0 && verifier->transfers[i].immediate == immediate)
            return &verifier->transfers[i];
    return NULL;
}

static void forget(struct transfer *transfer)
{
    transfer->expected = 0;
    transfer->piece_count = 0;
}

void verifier_expected(struct verifier *verifier, uint32_t immediate, uint64_t count)
{
    struct transfer *transfer = find(verifier, immediate);
    if (count == 0) {
        if (transfer != NULL)
            forget(transfer);
        return;
    }
    for (uint32_t i = 0; i < verifier->transfer_count && transfer == NULL; i++)
        if (verifier->transfers[i].expected == 0)
            transfer = &verifier->transfers[i];
    if (transfer == NULL) {
        if (verifier->transfer_count == verifier->transfer_room) {
            verifier->transfer_room = verifier->transfer_room == 0 ? 64 : verifier->transfer_room * 2;
            verifier->transfers = realloc(verifier->transfers, verifier->transfer_room * sizeof *verifier->transfers);
            CHECK(verifier->transfers != NULL);
        }
        transfer = &verifier->transfers[verifier->transfer_count++];
        *transfer = (struct transfer){0};
    }
    transfer->immediate = immediate;
    transfer->expected = count;
    transfer->landed = 0;
    transfer->described = 0;
    transfer->piece_count = 0;
}

/* Whether a piece lies in this instance's memory. */
static bool sensible(const struct verifier *verifier, const struct piece *piece)
{
    const struct kv_memory *memory = &verifier->config.memory;
    const struct parallelism *p = &memory->geometry.parallelism;
    if (piece->writes == 0)
        return false;
    if (piece->plane == PLANE_TAIL)
        return piece->rank < p->data && piece->page < memory->tail_slots && piece->length <= memory->tail_bytes;
    if (piece->rank >= verifier->config.ranks || piece->plane >= memory->geometry.planes ||
        piece->page >= memory->pages)
        return false;
    uint32_t stage = kv_memory_stage(memory, piece->rank);
    uint64_t page_bytes = kv_page_plane_bytes(&memory->geometry);
    return piece->layer >= memory->geometry.stage_layer_first[stage] &&
           piece->layer < memory->geometry.stage_layer_first[stage + 1] && piece->offset <= page_bytes &&
           piece->length <= page_bytes - piece->offset;
}

static bool same(struct verifier *verifier, const struct piece *piece)
{
    const struct kv_memory *memory = &verifier->config.memory;
    if (piece->plane == PLANE_TAIL)
        return tail_digest(verifier, piece->rank, piece->page, piece->length) == piece->digest;
    uint64_t page = kv_memory_page_offset(memory, piece->rank, piece->layer, piece->plane, piece->page);
    return digest_of(verifier, piece->rank, page + piece->offset, piece->length) == piece->digest;
}

/* Compares when everything is here. */
static bool settle(struct verifier *verifier, struct transfer *transfer)
{
    if (transfer->landed == 0 || transfer->described < transfer->expected)
        return false;
    for (uint32_t i = 0; i < transfer->piece_count; i++)
        verifier->differed += !same(verifier, &transfer->pieces[i]);
    verifier->compared += transfer->piece_count;
    verifier->differed += transfer->described != transfer->expected;
    forget(transfer);
    return true;
}

bool verifier_landed(struct verifier *verifier, uint32_t immediate, uint64_t count)
{
    struct transfer *transfer = find(verifier, immediate);
    if (transfer == NULL)
        return true;
    transfer->landed = count;
    return settle(verifier, transfer);
}

static bool take_piece(struct verifier *verifier, struct frame_reader *reader, struct transfer *transfer)
{
    struct piece piece = {.rank = read_u16(reader), .layer = 0};
    piece.layer = read_u16(reader);
    piece.plane = read_u16(reader);
    bool zero = read_u16(reader) == 0;
    piece.page = read_u32(reader);
    piece.offset = read_u32(reader);
    piece.length = read_u32(reader);
    piece.writes = read_u32(reader);
    piece.digest = read_u64(reader);
    if (reader->bad || !zero || !sensible(verifier, &piece))
        return false;
    if (transfer == NULL)
        return true; /* of an immediate that was given up */
    if (transfer->piece_count == transfer->piece_room) {
        transfer->piece_room = transfer->piece_room == 0 ? 256 : transfer->piece_room * 2;
        transfer->pieces = realloc(transfer->pieces, transfer->piece_room * sizeof *transfer->pieces);
        CHECK(transfer->pieces != NULL);
    }
    transfer->pieces[transfer->piece_count++] = piece;
    transfer->described += piece.writes;
    return true;
}

bool verifier_digests(struct verifier *verifier, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    uint32_t immediate = read_u32(&reader);
    uint32_t count = read_u32(&reader);
    struct transfer *transfer = find(verifier, immediate);
    for (uint32_t i = 0; i < count; i++)
        if (!take_piece(verifier, &reader, transfer))
            return false;
    if (!read_end(&reader))
        return false;
    if (transfer == NULL)
        return true;
    uint64_t landed = transfer->landed;
    if (settle(verifier, transfer))
        verifier->config.complete(verifier->config.self, immediate, landed);
    return true;
}

uint64_t verifier_compared(const struct verifier *verifier)
{
    return verifier->compared;
}

uint64_t verifier_differed(const struct verifier *verifier)
{
    return verifier->differed;
}
