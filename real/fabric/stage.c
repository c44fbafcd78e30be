/* See stage.h. */
#include "real/fabric/stage.h"

#include "base/arith.h"
#include "base/check.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pinned memory to send from, of a rank: enough for the pieces under way at 50 GB/s and a millisecond. */
#define SLOTS_BYTES ((uint64_t)64 << 20)
#define SLOTS_LEAST 32u
#define SLOTS_MOST 4096u

#define BATCHES 16u
#define BATCH_PIECES 256u

/* Devices copy multiples of 4 from multiples of 4. */
#define UNIT ((uint64_t)4)

enum slot_state { SLOT_UNUSED = 0, SLOT_COPYING = 1, SLOT_READY = 2, SLOT_POSTED = 3 };

/* A piece on its way. */
struct slot {
    enum slot_state state;
    struct piece piece;
    uint32_t ticket;
    uint32_t node;  /* UINT32_MAX: the peer is gone */
    uint64_t batch; /* that copies it */
    uint32_t next;  /* in the list of its state, plus one */
};

struct slot_list {
    uint32_t first; /* plus one; 0: empty */
    uint32_t last;
};

/* Of one rank. */
struct stage {
    struct device_reach *reach;
    unsigned char *host; /* the copy of the region, where peers write here; then the slots */
    uint64_t host_bytes;
    uint64_t slots_offset;
    struct slot *slots;
    uint32_t unused_first; /* plus one */
    struct slot_list copying;
    struct slot_list ready;
    struct device_reach_piece open[BATCH_PIECES]; /* the batch that is being filled */
    uint32_t open_count;
    uint64_t submitted; /* batches */
    uint64_t done;
};

struct landing {
    struct landing *next;
    uint32_t immediate;
    uint64_t count;
    uint16_t group;
    uint32_t tail_slot;
    uint32_t page_count;
    uint32_t *pages;
    uint64_t *taken; /* pieces of each rank that have been submitted */
    uint64_t *last;  /* batch of each rank that is the last */
};

struct stages {
    struct stage *of; /* [ranks] */
    uint64_t slot_bytes;
    uint32_t slot_count; /* of a rank */
    struct landing *landings;
    struct landing *landed; /* done, not told yet */
};

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static bool stage_make(struct fabric *fabric, struct stage *stage, uint32_t rank, struct user_error *error)
{
    struct stages *stages = fabric->stages;
    stage->reach = fabric->ranks[rank].reach;
    stage->slots_offset = fabric->config.sends_only ? 0 : (fabric->ranks[rank].bytes + 63) / 64 * 64;
    stage->host_bytes = stage->slots_offset + stages->slot_count * stages->slot_bytes;
    stage->slots = calloc(stages->slot_count, sizeof *stage->slots);
    if (stage->slots == NULL) {
        user_error_set(error, NULL, 0, NULL, "fabric: out of memory for staging");
        return false;
    }
    for (uint32_t i = 0; i < stages->slot_count; i++)
        stage->slots[i].next = i + 1 < stages->slot_count ? i + 2 : 0;
    stage->unused_first = 1;
    stage->host = stage->reach->ops->stage(stage->reach, stage->host_bytes, BATCHES, BATCH_PIECES, error);
    return stage->host != NULL;
}

bool stages_make(struct fabric *fabric, struct user_error *error)
{
    const struct kv_memory *memory = &fabric->config.memory;
    uint64_t largest = max_u64(kv_page_plane_bytes(&memory->geometry), memory->tail_bytes);
    struct stages *stages = calloc(1, sizeof *stages);
    if (stages != NULL)
        stages->of = calloc(fabric->config.rank_count, sizeof *stages->of);
    if (stages == NULL || stages->of == NULL) {
        user_error_set(error, NULL, 0, NULL, "fabric: out of memory for staging");
        free(stages);
        return false;
    }
    stages->slot_bytes = (largest + 2 * UNIT + 63) / 64 * 64;
    stages->slot_count = (uint32_t)max_u64(SLOTS_LEAST, min_u64(SLOTS_MOST, SLOTS_BYTES / stages->slot_bytes));
    fabric->stages = stages;
    for (uint32_t r = 0; r < fabric->config.rank_count; r++)
        if (!stage_make(fabric, &stages->of[r], r, error))
            return false;
    return true;
}

static void landing_free(struct landing *landing)
{
    free(landing->pages);
    free(landing->taken);
    free(landing->last);
    free(landing);
}

static void landings_free(struct landing *landing)
{
    while (landing != NULL) {
        struct landing *next = landing->next;
        landing_free(landing);
        landing = next;
    }
}

void stages_free(struct fabric *fabric)
{
    struct stages *stages = fabric->stages;
    if (stages == NULL)
        return;
    for (uint32_t r = 0; r < fabric->config.rank_count; r++)
        free(stages->of[r].slots);
    landings_free(stages->landings);
    landings_free(stages->landed);
    free(stages->of);
    free(stages);
    fabric->stages = NULL;
}

void *stage_target(const struct fabric *fabric, uint32_t rank)
{
    return fabric->stages->of[rank].host;
}

void *stage_buffer(const struct fabric *fabric, uint32_t rank, size_t *bytes)
{
    *bytes = (size_t)fabric->stages->of[rank].host_bytes;
    return fabric->stages->of[rank].host;
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static void append(struct stage *stage, struct slot_list *list, uint32_t index)
{
    stage->slots[index].next = 0;
    if (list->last == 0)
        list->first = index + 1;
    else
        stage->slots[list->last - 1].next = index + 1;
    list->last = index + 1;
}

/* Takes the slot after `before` (0: the first) off the list. */
static void take_off(struct stage *stage, struct slot_list *list, uint32_t before, uint32_t index)
{
    if (before == 0)
        list->first = stage->slots[index].next;
    else
        stage->slots[before - 1].next = stage->slots[index].next;
    if (list->last == index + 1)
        list->last = before;
}

static uint32_t tag_of(const struct fabric *fabric, const struct stage *stage, uint32_t index)
{
    uint32_t rank = (uint32_t)(stage - fabric->stages->of);
    return STAGE_TAG | (rank * fabric->stages->slot_count + index);
}

static void release(struct fabric *fabric, struct stage *stage, uint32_t index)
{
    struct slot *slot = &stage->slots[index];
    if (slot->node != UINT32_MAX)
        fabric->peers[slot->node]->staged--;
    slot->state = SLOT_UNUSED;
    slot->next = stage->unused_first;
    stage->unused_first = index + 1;
}

uint32_t stage_completed(struct fabric *fabric, uint32_t tag)
{
    uint32_t place = tag & ~STAGE_TAG;
    struct stage *stage = &fabric->stages->of[place / fabric->stages->slot_count];
    uint32_t index = place % fabric->stages->slot_count;
    CHECK(stage->slots[index].state != SLOT_UNUSED);
    uint32_t ticket = stage->slots[index].ticket;
    release(fabric, stage, index);
    return ticket;
}

void stage_forget(struct fabric *fabric, uint32_t node)
{
    for (uint32_t r = 0; fabric->stages != NULL && r < fabric->config.rank_count; r++)
        for (uint32_t i = 0; i < fabric->stages->slot_count; i++)
            if (fabric->stages->of[r].slots[i].node == node)
                fabric->stages->of[r].slots[i].node = UINT32_MAX;
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

/* The open batch goes to the device. */
static void submit(struct stage *stage)
{
    if (stage->open_count == 0 ||
        !stage->reach->ops->submit(stage->reach, DEVICE_REACH_TO_HOST, stage->open, stage->open_count))
        return;
    stage->submitted++;
    stage->open_count = 0;
}

enum rail_result stage_take(struct fabric *fabric, struct peer *peer, uint32_t ticket, const struct piece *piece)
{
    struct stages *stages = fabric->stages;
    struct stage *stage = &stages->of[piece->source_rank];
    if (peer->rails_left == 0)
        return RAIL_FAILED;
    if (stage->open_count == BATCH_PIECES)
        submit(stage);
    if (stage->open_count == BATCH_PIECES || stage->unused_first == 0 ||
        peer->staged >= fabric->config.rank_count * stages->slot_count / 2)
        return RAIL_AGAIN;
    uint32_t index = stage->unused_first - 1;
    struct slot *slot = &stage->slots[index];
    uint64_t start = piece->source_offset / UNIT * UNIT;
    uint64_t end = (piece->source_offset + piece->bytes + UNIT - 1) / UNIT * UNIT;
    stage->unused_first = slot->next;
    *slot = (struct slot){
        .state = SLOT_COPYING, .piece = *piece, .ticket = ticket, .node = peer->node, .batch = stage->submitted + 1};
    stage->open[stage->open_count++] = (struct device_reach_piece){
        .device_offset = start, .host_offset = stage->slots_offset + index * stages->slot_bytes, .bytes = end - start};
    CHECK(end - start <= stages->slot_bytes);
    peer->staged++;
    append(stage, &stage->copying, index);
    return RAIL_POSTED;
}

void stage_flush(struct fabric *fabric)
{
    for (uint32_t r = 0; fabric->stages != NULL && r < fabric->config.rank_count; r++)
        submit(&fabric->stages->of[r]);
}

/* Posts a copied piece. RAIL_AGAIN: it has to wait; RAIL_FAILED: its peer, its rails or its ticket are gone. */
static enum rail_result post(struct fabric *fabric, struct stage *stage, uint32_t index)
{
    struct slot *slot = &stage->slots[index];
    struct peer *peer = slot->node == UINT32_MAX ? NULL : fabric->peers[slot->node];
    if (peer == NULL || !peer->known || fabric->tickets[slot->ticket].failed)
        return RAIL_FAILED;
    uint64_t offset = stage->slots_offset + index * fabric->stages->slot_bytes + slot->piece.source_offset % UNIT;
    return piece_post(fabric, peer, slot->ticket, &slot->piece, stage->host + offset, tag_of(fabric, stage, index));
}

static void post_ready(struct fabric *fabric, struct stage *stage, bool *progress)
{
    uint32_t blocked = UINT32_MAX - 1; /* a peer whose rails are full */
    uint32_t before = 0;
    for (uint32_t at = stage->ready.first; at != 0;) {
        uint32_t index = at - 1;
        struct slot *slot = &stage->slots[index];
        uint32_t next = slot->next;
        enum rail_result result = slot->node == blocked ? RAIL_AGAIN : post(fabric, stage, index);
        if (result == RAIL_AGAIN) {
            blocked = slot->node;
            before = at;
        } else {
            take_off(stage, &stage->ready, before, index);
            slot->state = SLOT_POSTED;
            if (result == RAIL_FAILED)
                ticket_completed(fabric, tag_of(fabric, stage, index), false);
            *progress = true;
        }
        at = next;
    }
}

static void poll_one(struct fabric *fabric, struct stage *stage, bool *progress)
{
    uint64_t done = stage->reach->ops->done(stage->reach);
    if (done == UINT64_MAX) { /* the device has failed: nothing more comes from it */
        for (uint32_t at = stage->copying.first; at != 0; at = stage->slots[at - 1].next)
            fabric->tickets[stage->slots[at - 1].ticket].failed = true;
        stage->open_count = 0;
    }
    *progress = *progress || done != stage->done;
    stage->done = done;
    while (stage->copying.first != 0 && stage->slots[stage->copying.first - 1].batch <= done) {
        uint32_t index = stage->copying.first - 1;
        take_off(stage, &stage->copying, 0, index);
        stage->slots[index].state = SLOT_READY;
        append(stage, &stage->ready, index);
    }
    post_ready(fabric, stage, progress);
}

/* ---- Landing ----------------------------------------------------------------------------------------------------- */

static bool in_group(const struct kv_memory *memory, uint32_t rank, uint32_t group)
{
    const struct parallelism *p = &memory->geometry.parallelism;
    return rank / p->tensor % p->data == group;
}

/* Pieces of a rank's landing: its layers, planes and pages; and the tail, where the rank has it. */
static uint64_t piece_total(const struct fabric *fabric, const struct landing *landing, uint32_t rank)
{
    const struct kv_memory *memory = &fabric->config.memory;
    bool tail = memory->tail_bytes > 0 && rank == kv_memory_tail_rank(memory, landing->group);
    if (!in_group(memory, rank, landing->group))
        return 0;
    return (uint64_t)kv_memory_layers(memory, rank) * memory->geometry.planes * landing->page_count + tail;
}

static struct device_reach_piece piece_at(const struct fabric *fabric, const struct landing *landing, uint32_t rank,
                                          uint64_t index)
{
    const struct kv_memory *memory = &fabric->config.memory;
    uint64_t plane = landing->page_count == 0 ? 0 : index / landing->page_count;
    uint32_t layer = (uint32_t)(plane / memory->geometry.planes);
    uint64_t offset;
    uint64_t bytes = kv_page_plane_bytes(&memory->geometry);
    if (layer < kv_memory_layers(memory, rank) && landing->page_count > 0) {
        uint32_t first = memory->geometry.stage_layer_first[kv_memory_stage(memory, rank)];
        offset = kv_memory_page_offset(memory, rank, first + layer, (uint32_t)(plane % memory->geometry.planes),
                                       landing->pages[index % landing->page_count]);
    } else {
        offset = kv_memory_tail_offset(memory, rank, landing->tail_slot);
        bytes = (memory->tail_bytes + UNIT - 1) / UNIT * UNIT;
    }
    return (struct device_reach_piece){.device_offset = offset, .host_offset = offset, .bytes = bytes};
}

/* Submits what the device takes. True when all of the landing is under way. */
static bool land_more(struct fabric *fabric, struct landing *landing)
{
    bool all = true;
    for (uint32_t r = 0; r < fabric->config.rank_count; r++) {
        struct stage *stage = &fabric->stages->of[r];
        uint64_t total = piece_total(fabric, landing, r);
        /* Numbers of batches are given when they are submitted: the open one of writes waits. */
        while (landing->taken[r] < total) {
            struct device_reach_piece pieces[BATCH_PIECES];
            uint32_t count = (uint32_t)min_u64(BATCH_PIECES, total - landing->taken[r]);
            for (uint32_t i = 0; i < count; i++)
                pieces[i] = piece_at(fabric, landing, r, landing->taken[r] + i);
            submit(stage);
            if (stage->open_count > 0 ||
                !stage->reach->ops->submit(stage->reach, DEVICE_REACH_TO_DEVICE, pieces, count))
                break;
            landing->taken[r] += count;
            landing->last[r] = ++stage->submitted;
        }
        all = all && landing->taken[r] == total;
    }
    return all;
}

static bool copied(const struct fabric *fabric, const struct landing *landing)
{
    for (uint32_t r = 0; r < fabric->config.rank_count; r++)
        if (fabric->stages->of[r].done < landing->last[r])
            return false;
    return true;
}

void stage_land(struct fabric *fabric, uint32_t immediate, uint64_t count, const struct fabric_landing *where)
{
    struct landing *landing = calloc(1, sizeof *landing);
    CHECK(landing != NULL);
    *landing = (struct landing){.immediate = immediate,
                                .count = count,
                                .group = where->group,
                                .tail_slot = where->tail_slot,
                                .page_count = where->page_count};
    landing->pages = calloc(max_u32(1, where->page_count), sizeof *landing->pages);
    landing->taken = calloc(fabric->config.rank_count, sizeof *landing->taken);
    landing->last = calloc(fabric->config.rank_count, sizeof *landing->last);
    CHECK(landing->pages != NULL && landing->taken != NULL && landing->last != NULL);
    for (uint32_t i = 0; i < where->page_count; i++) {
        CHECK(where->pages[i] < fabric->config.memory.pages);
        landing->pages[i] = where->pages[i];
    }
    struct landing **end = &fabric->stages->landings;
    while (*end != NULL)
        end = &(*end)->next;
    *end = landing;
}

void stage_land_stop(struct fabric *fabric, uint32_t immediate)
{
    struct stages *stages = fabric->stages;
    struct landing **lists[] = {&stages->landings, &stages->landed};
    for (uint32_t i = 0; i < 2; i++)
        for (struct landing **at = lists[i]; *at != NULL;) {
            struct landing *landing = *at;
            if (landing->immediate != immediate) {
                at = &landing->next;
                continue;
            }
            while (!copied(fabric, landing)) {
                for (uint32_t r = 0; r < fabric->config.rank_count; r++)
                    stages->of[r].done = stages->of[r].reach->ops->done(stages->of[r].reach);
                sched_yield();
            }
            *at = landing->next;
            landing_free(landing);
        }
}

static void land(struct fabric *fabric, bool *progress)
{
    struct stages *stages = fabric->stages;
    bool all = true; /* landings are submitted one after another */
    bool failed = false;
    for (uint32_t r = 0; r < fabric->config.rank_count; r++)
        failed = failed || stages->of[r].done == UINT64_MAX; /* then nobody hears of a landing: its deadline passes */
    for (struct landing **at = &stages->landings; *at != NULL && all;) {
        struct landing *landing = *at;
        all = land_more(fabric, landing);
        if (!all || failed || !copied(fabric, landing)) {
            at = &landing->next;
            continue;
        }
        *at = landing->next;
        struct landing **end = &stages->landed;
        while (*end != NULL)
            end = &(*end)->next;
        landing->next = NULL;
        *end = landing;
        *progress = true;
    }
}

bool stage_landed(struct fabric *fabric, uint32_t *immediate, uint64_t *count)
{
    struct landing *landing = fabric->stages == NULL ? NULL : fabric->stages->landed;
    if (landing == NULL)
        return false;
    *immediate = landing->immediate;
    *count = landing->count;
    fabric->stages->landed = landing->next;
    landing_free(landing);
    return true;
}

bool stage_landing(const struct fabric *fabric)
{
    return fabric->stages != NULL && (fabric->stages->landings != NULL || fabric->stages->landed != NULL);
}

void stage_poll(struct fabric *fabric, bool *progress)
{
    if (fabric->stages == NULL)
        return;
    for (uint32_t r = 0; r < fabric->config.rank_count; r++)
        poll_one(fabric, &fabric->stages->of[r], progress);
    land(fabric, progress);
}
