/* Tickets: the node's gated paged writes, cut into remote writes and posted layer by layer as the layer counters
 * pass. */
#include "real/fabric/stage.h"

#include "base/arith.h"
#include "base/check.h"
#include "host/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static void list_append(struct fabric *fabric, struct ticket_list *list, uint32_t slot)
{
    struct ticket *ticket = &fabric->tickets[slot];
    ticket->next = 0;
    ticket->previous = list->last;
    if (list->last == 0)
        list->first = slot + 1;
    else
        fabric->tickets[list->last - 1].next = slot + 1;
    list->last = slot + 1;
}

static void list_remove(struct fabric *fabric, struct ticket_list *list, uint32_t slot)
{
    struct ticket *ticket = &fabric->tickets[slot];
    if (ticket->previous == 0)
        list->first = ticket->next;
    else
        fabric->tickets[ticket->previous - 1].next = ticket->next;
    if (ticket->next == 0)
        list->last = ticket->previous;
    else
        fabric->tickets[ticket->next - 1].previous = ticket->previous;
}

bool tickets_make(struct fabric *fabric)
{
    uint32_t count = fabric->config.tickets_max;
    fabric->tickets = calloc(count, sizeof *fabric->tickets);
    if (fabric->tickets == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        fabric->tickets[i].next = i + 1 < count ? i + 2 : 0;
    fabric->unused_first = count > 0 ? 1 : 0;
    return true;
}

void tickets_free(struct fabric *fabric)
{
    for (uint32_t i = 0; fabric->tickets != NULL && i < fabric->config.tickets_max; i++)
        free(fabric->tickets[i].pages);
    free(fabric->tickets);
}

/* ---- Taking a write ---------------------------------------------------------------------------------------------- */

/* Copies both page lists; the array is kept from one use of the slot to the next. */
static void ticket_copy_pages(struct ticket *ticket, const struct paged_write *write)
{
    size_t sources = write->source_page_count;
    size_t destinations = write->destination_page_count;
    if (ticket->pages_room < sources + destinations) {
        uint32_t *pages = realloc(ticket->pages, (sources + destinations) * sizeof *pages);
        CHECK(pages != NULL);
        ticket->pages = pages;
        ticket->pages_room = sources + destinations;
    }
    if (sources > 0)
        memcpy(ticket->pages, write->source_pages, sources * sizeof *ticket->pages);
    if (destinations > 0)
        memcpy(ticket->pages + sources, write->destination_pages, destinations * sizeof *ticket->pages);
    ticket->source_pages = ticket->pages;
    ticket->destination_pages = sources > 0 ? ticket->pages + sources : ticket->pages; /* both NULL for a tail alone */
}

/* Source pages are this node's own numbers; what the peer asked for is checked, and refused by failing. */
static bool ticket_fits(const struct fabric *fabric, const struct ticket *ticket, const struct peer *peer)
{
    const struct paged_write *write = &ticket->write;
    for (uint32_t i = 0; i < write->source_page_count; i++)
        CHECK(ticket->source_pages[i] < fabric->config.memory.pages);
    for (uint32_t i = 0; i < write->destination_page_count; i++)
        if (ticket->destination_pages[i] >= peer->memory.pages)
            return false;
    if (peer->card.bytes[0] == 0) /* it only sends */
        return false;
    if (write->destination_group >= peer->memory.geometry.parallelism.data)
        return false;
    if (write->tail_writes == 0)
        return true;
    CHECK(write->tail_bytes >= write->tail_writes && write->tail_bytes <= fabric->config.memory.tail_bytes);
    CHECK(write->tail_source_slot < fabric->config.memory.tail_slots);
    return write->tail_bytes <= peer->memory.tail_bytes && write->tail_destination_slot < peer->memory.tail_slots;
}

static void ticket_enter_layer(struct ticket *ticket)
{
    const struct transfer_plan *plan = ticket->write.plan;
    ticket->pair_count = 0;
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        const struct transfer_pair *pair = &plan->pairs[i];
        if (ticket->cursor.layer - pair->layer_first < pair->layer_count && ticket->cursor.layer >= pair->layer_first)
            ticket->pairs[ticket->pair_count++] = (uint16_t)i;
    }
}

/* Ends the posting, and the ticket with it when nothing is in flight. */
static void ticket_settle(struct fabric *fabric, uint32_t slot, bool posted)
{
    struct ticket *ticket = &fabric->tickets[slot];
    if (posted && ticket->state == TICKET_POSTING) {
        list_remove(fabric, &fabric->posting, slot);
        ticket->state = TICKET_DRAINING;
    }
    if (ticket->state == TICKET_DRAINING && ticket->completed == ticket->submitted) {
        ticket->state = TICKET_DONE;
        ticket->done_ns = clock_now_ns();
        list_append(fabric, &fabric->done, slot);
    }
}

void fabric_write(struct fabric *fabric, const struct paged_write *write, uint64_t counter_base)
{
    CHECK(fabric->unused_first != 0 && write->destination < NODES_MAX);
    CHECK(counter_base == UINT64_MAX || write->source_group < fabric->config.group_count);
    uint32_t slot = fabric->unused_first - 1;
    struct ticket *ticket = &fabric->tickets[slot];
    fabric->unused_first = ticket->next;
    fabric->tickets_live++;

    uint32_t *pages = ticket->pages;
    size_t pages_room = ticket->pages_room;
    memset(ticket, 0, sizeof *ticket);
    ticket->pages = pages;
    ticket->pages_room = pages_room;
    ticket->state = TICKET_POSTING;
    ticket->write = *write;
    ticket->counter_base = counter_base;
    ticket_copy_pages(ticket, write);
    ticket_enter_layer(ticket);
    list_append(fabric, &fabric->posting, slot);

    const struct peer *peer = fabric->peers[write->destination];
    if (peer == NULL || !peer->known || !ticket_fits(fabric, ticket, peer)) {
        ticket->failed = true;
        ticket_settle(fabric, slot, true);
    }
}

void fabric_write_stop(struct fabric *fabric, uint32_t id)
{
    for (uint32_t at = fabric->posting.first; at != 0; at = fabric->tickets[at - 1].next)
        if (fabric->tickets[at - 1].write.ticket == id)
            fabric->tickets[at - 1].stopping = true;
}

/* ---- Posting ----------------------------------------------------------------------------------------------------- */

static bool at_layer_start(const struct cursor *cursor)
{
    return cursor->unit == 0 && cursor->plane == 0 && cursor->pair == 0 && cursor->run == 0;
}

static void advance(struct ticket *ticket)
{
    const struct transfer_plan *plan = ticket->write.plan;
    struct cursor *cursor = &ticket->cursor;
    if (++cursor->run < plan->pairs[ticket->pairs[cursor->pair]].runs)
        return;
    cursor->run = 0;
    if (++cursor->pair < ticket->pair_count)
        return;
    cursor->pair = 0;
    if (++cursor->plane < plan->planes)
        return;
    cursor->plane = 0;
    if (++cursor->unit < ticket->write.unit_count)
        return;
    cursor->unit = 0;
    cursor->layer++;
    ticket_enter_layer(ticket);
}

static struct piece page_piece(const struct fabric *fabric, const struct peer *peer, const struct ticket *ticket)
{
    const struct paged_write *write = &ticket->write;
    const struct transfer_plan *plan = write->plan;
    const struct cursor *cursor = &ticket->cursor;
    const struct transfer_pair *pair = &plan->pairs[ticket->pairs[cursor->pair]];
    uint32_t unit = write->unit_first + cursor->unit;
    uint32_t source_page =
        ticket->source_pages[unit / plan->source_units_per_page - write->unit_first / plan->source_units_per_page];
    uint32_t destination_page = ticket->destination_pages[unit / plan->destination_units_per_page -
                                                          write->unit_first / plan->destination_units_per_page];
    return (struct piece){
        .source_rank = pair->source_rank,
        .destination_rank = pair->destination_rank,
        .source_offset = kv_memory_page_offset(&fabric->config.memory, pair->source_rank, cursor->layer, cursor->plane,
                                               source_page) +
                         transfer_source_offset(plan, pair, unit, cursor->run),
        .destination_offset = kv_memory_page_offset(&peer->memory, pair->destination_rank, cursor->layer, cursor->plane,
                                                    destination_page) +
                              transfer_destination_offset(plan, pair, unit, cursor->run),
        .bytes = pair->run_bytes,
    };
}

/* Tail write i carries bytes [i * bytes / writes, (i + 1) * bytes / writes). */
static struct piece tail_piece(const struct fabric *fabric, const struct peer *peer, const struct ticket *ticket)
{
    const struct paged_write *write = &ticket->write;
    uint64_t start = (uint64_t)ticket->cursor.tail * write->tail_bytes / write->tail_writes;
    uint64_t end = (uint64_t)(ticket->cursor.tail + 1) * write->tail_bytes / write->tail_writes;
    uint32_t source = kv_memory_tail_rank(&fabric->config.memory, write->source_group);
    uint32_t destination = kv_memory_tail_rank(&peer->memory, write->destination_group);
    return (struct piece){
        .source_rank = source,
        .destination_rank = destination,
        .source_offset = kv_memory_tail_offset(&fabric->config.memory, source, write->tail_source_slot) + start,
        .destination_offset = kv_memory_tail_offset(&peer->memory, destination, write->tail_destination_slot) + start,
        .bytes = (uint32_t)(end - start),
    };
}

enum rail_result piece_post(struct fabric *fabric, struct peer *peer, uint32_t slot, const struct piece *piece,
                            void *source, uint32_t tag)
{
    struct ticket *ticket = &fabric->tickets[slot];
    uint32_t ranks = fabric->config.rank_count;
    struct rail_write write = {
        .source = source,
        .bytes = piece->bytes,
        .address = peer->card.base[piece->destination_rank] + piece->destination_offset,
        .immediate = ticket->write.immediate,
        .ticket = tag,
    };
    for (;;) {
        uint32_t nic;
        bool hopeless = false;
        struct rail *rail = peer_rail(fabric, peer, piece->source_rank, ticket->turn, &nic, &hopeless);
        if (rail == NULL)
            return hopeless ? RAIL_FAILED : RAIL_AGAIN;
        if (fabric->sources != NULL)
            write.descriptor = fi_mr_desc(fabric->sources[nic * ranks + piece->source_rank]);
        write.key = peer->card.keys[nic % peer->card.nics * peer->card.ranks + piece->destination_rank];
        enum rail_result result = rail_post(rail, &write, fabric->now_ns);
        if (result == RAIL_AGAIN)
            fabric->counters.refusals++;
        if (result != RAIL_FAILED) {
            ticket->turn++;
            return result;
        }
        peer_break_rail(fabric, peer, nic);
    }
}

/* A piece of a device that NICs do not reach is taken to be posted later. */
static enum rail_result take_piece(struct fabric *fabric, struct peer *peer, uint32_t slot, const struct piece *piece)
{
    if (fabric->stages != NULL)
        return stage_take(fabric, peer, slot, piece);
    unsigned char *memory = fabric->ranks[piece->source_rank].memory;
    return piece_post(fabric, peer, slot, piece, memory + piece->source_offset, slot);
}

/* Layers whose KV is there, or layers + 1 when the tail is too. */
static uint32_t available(const struct fabric *fabric, const struct ticket *ticket)
{
    uint32_t layers = ticket->write.plan->layers;
    if (ticket->counter_base == UINT64_MAX)
        return layers + 1;
    const struct kv_geometry *geometry = &fabric->config.memory.geometry;
    uint32_t stages = max_u32(1, geometry->parallelism.pipeline);
    for (uint32_t s = 0; s < stages; s++) {
        uint32_t place = s * fabric->config.group_count + ticket->write.source_group;
        uint64_t counter = atomic_load_explicit(&fabric->config.layer_counters[place], memory_order_acquire);
        uint64_t ticks = counter < ticket->counter_base ? 0 : counter - ticket->counter_base;
        uint32_t first = geometry->stage_layer_first[s];
        bool last = s + 1 == stages;
        uint64_t end = last ? (uint64_t)layers + fabric->config.tail_ticks : geometry->stage_layer_first[s + 1];
        if (ticks < end) /* between two launches a counter is where the one before left it */
            return (uint32_t)min_u64(max_u64(ticks, first), layers);
    }
    return layers + 1;
}

/* Posts what may be posted of one ticket. */
static void ticket_post(struct fabric *fabric, uint32_t slot, bool *progress)
{
    struct ticket *ticket = &fabric->tickets[slot];
    struct cursor *cursor = &ticket->cursor;
    struct peer *peer = fabric->peers[ticket->write.destination];
    uint32_t layers = ticket->write.plan->layers;
    uint32_t ready = available(fabric, ticket);
    while (!ticket->failed) {
        bool tail = cursor->layer == layers;
        if (tail ? cursor->tail == ticket->write.tail_writes : at_layer_start(cursor) && ticket->stopping) {
            ticket_settle(fabric, slot, true);
            return;
        }
        if (tail && cursor->tail == 0 && ticket->stopping) {
            ticket_settle(fabric, slot, true);
            return;
        }
        if (cursor->layer >= ready)
            return;
        if (!tail && ticket->write.unit_count == 0) {
            cursor->layer++;
            continue;
        }
        struct piece piece = tail ? tail_piece(fabric, peer, ticket) : page_piece(fabric, peer, ticket);
        enum rail_result result = take_piece(fabric, peer, slot, &piece);
        if (result == RAIL_AGAIN)
            return;
        if (result == RAIL_FAILED)
            break;
        *progress = true;
        if (ticket->submitted++ == 0)
            ticket->posted_ns = clock_now_ns();
        ticket->bytes += piece.bytes;
        fabric->counters.writes_posted++;
        fabric->counters.bytes_posted += piece.bytes;
        if (tail)
            cursor->tail++;
        else
            advance(ticket);
    }
    ticket->failed = true;
    ticket_settle(fabric, slot, true);
}

void tickets_post(struct fabric *fabric, bool *progress)
{
    for (uint32_t at = fabric->posting.first; at != 0;) {
        uint32_t slot = at - 1;
        /* A ticket may leave the list while it is posted. */
        at = fabric->tickets[slot].next;
        ticket_post(fabric, slot, progress);
    }
    stage_flush(fabric);
}

/* ---- Completing -------------------------------------------------------------------------------------------------- */

void ticket_completed(void *owner, uint32_t tag, bool good)
{
    struct fabric *fabric = owner;
    uint32_t slot = (tag & STAGE_TAG) != 0 ? stage_completed(fabric, tag) : tag;
    struct ticket *ticket = &fabric->tickets[slot];
    ticket->completed++;
    if (good) {
        fabric->counters.writes_completed++;
    } else {
        fabric->counters.writes_failed++;
        ticket->failed = true;
    }
    ticket_settle(fabric, slot, false);
}

void tickets_fail(struct fabric *fabric, uint32_t node)
{
    for (uint32_t at = fabric->posting.first; at != 0;) {
        struct ticket *ticket = &fabric->tickets[at - 1];
        uint32_t slot = at - 1;
        at = ticket->next;
        if (ticket->write.destination == node) {
            ticket->failed = true;
            ticket_settle(fabric, slot, true);
        }
    }
}

static enum write_status status_of(const struct ticket *ticket)
{
    if (ticket->failed)
        return WRITE_FAILED;
    bool whole = ticket->cursor.layer == ticket->write.plan->layers && ticket->cursor.tail == ticket->write.tail_writes;
    return whole ? WRITE_OK : WRITE_STOPPED;
}

bool tickets_next_done(struct fabric *fabric, struct fabric_event *event)
{
    if (fabric->done.first == 0)
        return false;
    uint32_t slot = fabric->done.first - 1;
    struct ticket *ticket = &fabric->tickets[slot];
    *event = (struct fabric_event){
        .kind = FABRIC_WRITE_DONE,
        .id = ticket->write.ticket,
        .status = status_of(ticket),
        .closed = ticket->failed && ticket->submitted > 0 ? peer_closed_rails(fabric, ticket->write.destination) : 0,
        .count = ticket->cursor.layer,
        .posted_ns = ticket->posted_ns,
        .done_ns = ticket->done_ns,
        .bytes = ticket->bytes,
        .writes = ticket->submitted,
    };
    list_remove(fabric, &fabric->done, slot);
    ticket->state = TICKET_UNUSED;
    ticket->next = fabric->unused_first;
    fabric->unused_first = slot + 1;
    fabric->tickets_live--;
    return true;
}
