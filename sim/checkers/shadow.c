/* See shadow.h. */
#include "sim/checkers/shadow.h"

#include "base/arith.h"
#include "messenger/wire.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One token's place in a page. Behind it stand bits, one for each (rank, plane, head, layer) that holds a part of it:
 * whether that part is there. Layers are next to each other, for most of what lands is the same of every one. */
struct cell {
    uint64_t tag;    /* 0: nothing was ever here */
    uint32_t epoch;  /* of the transfer that fills it; 0: a step did */
    uint32_t ticket; /* of the launch that computed it */
    uint64_t parts;  /* that are there: as many as there are bits set */
    uint64_t there[];
};

struct shadow_page {
    uint32_t holders; /* sequences of the device that were launched with it */
    uint32_t owner;   /* epoch of the transfer that it was named for; 0: none */
    uint32_t request; /* of that transfer */
    unsigned char *cells;
};

/* A sequence as the device knows it. */
struct holding {
    bool live;
    uint32_t request;
    uint32_t group;
    uint32_t count;
    uint32_t capacity;
    uint32_t *pages;
};

struct memory {
    const struct kv_geometry *geometry;
    uint32_t pages_per_group;
    uint32_t page_count;
    uint32_t places; /* parts of a token */
    uint32_t words;  /* of 64 bits that hold them */
    size_t stride;   /* bytes of a cell */
    uint32_t newest; /* ticket of the newest launch, and of the newest that has ended: those between are in progress */
    uint32_t ended;
    struct shadow_page *pages;
    struct holding *holdings;
    uint32_t holding_count;
};

/* A transfer, from its arming to the count or to its end without. */
struct transfer {
    uint32_t node;
    uint32_t immediate;
    uint64_t expected;
    uint64_t counted;
    uint32_t request;
    uint32_t epoch; /* 0: armed, and the prefiller not asked yet */
    uint32_t group;
    uint32_t first; /* token */
    uint32_t wanted;
    uint32_t tail_slot;
    uint64_t tails; /* landed */
    uint32_t page_count;
    uint32_t capacity;
    uint32_t *pages;
};

/* What a request's tokens are. */
struct prompt {
    uint32_t tokens;
    uint32_t block_tokens;
    uint32_t block_count;
    uint64_t *blocks;
};

struct shadow {
    struct sim *sim;
    struct checkers *checkers;
    const struct oracle *oracle;
    const struct node_config *configs;
    uint32_t node_count;
    struct memory *memory;
    struct transfer *transfers;
    uint32_t transfer_count;
    uint32_t transfer_capacity;
    struct prompt *prompts; /* by request */
    uint32_t prompt_capacity;
};

static void *grown(void *array, uint32_t *capacity, uint32_t wanted, size_t size)
{
    if (wanted <= *capacity)
        return array;
    uint32_t to = max_u32(wanted, max_u32(16, *capacity * 2));
    array = memory_resized(array, to * size);
    memset((char *)array + *capacity * size, 0, (to - *capacity) * size);
    *capacity = to;
    return array;
}

/* ---- Tokens and cells -------------------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0x9fb21c651e98df25);
    return (x ^ x >> 32) | 1;
}

/* Whose KV the token at `position` of a request has. */
static uint64_t tag_of(const struct shadow *shadow, uint32_t request, uint32_t position)
{
    const struct prompt *prompt = request < shadow->prompt_capacity ? &shadow->prompts[request] : NULL;
    if (prompt != NULL && prompt->block_tokens != 0 && position < prompt->tokens &&
        position / prompt->block_tokens < prompt->block_count)
        return mixed(prompt->blocks[position / prompt->block_tokens], position % prompt->block_tokens);
    return mixed(UINT64_C(1) << 40 | request, position);
}

static struct cell *cell_at(struct memory *memory, uint32_t group, uint32_t page, uint32_t token)
{
    CHECK(page < memory->pages_per_group);
    struct shadow_page *p = &memory->pages[group * memory->pages_per_group + page];
    if (p->cells == NULL) {
        p->cells = memory_zeroed(memory->geometry->page_tokens, memory->stride);
    }
    return (struct cell *)(void *)(p->cells + token * memory->stride);
}

static void fill(const struct memory *memory, struct cell *cell, uint64_t tag, uint32_t ticket)
{
    cell->tag = tag;
    cell->epoch = 0;
    cell->ticket = ticket;
    cell->parts = memory->places;
    memset(cell->there, 0xff, memory->words * sizeof cell->there[0]);
    if (memory->places % 64 != 0)
        cell->there[memory->words - 1] = (UINT64_C(1) << memory->places % 64) - 1;
}

static bool whole(const struct memory *memory, const struct cell *cell)
{
    return cell->parts == memory->places;
}

/* The same for what a sequence of `tokens` tokens still reads: of windowed layers, tokens in the window. */
static bool read_whole(const struct memory *memory, const struct cell *cell, uint32_t position, uint32_t tokens)
{
    const struct kv_geometry *g = memory->geometry;
    if (position >= kv_window_first(g->window, tokens))
        return whole(memory, cell);
    for (uint32_t place = 0; place < memory->places; place++) {
        uint32_t layer = place % g->layers;
        bool full = kv_full_layers(g, layer + 1) > kv_full_layers(g, layer);
        if (full && (cell->there[place / 64] >> place % 64 & 1) == 0)
            return false;
    }
    return true;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* Tokens [0, end) of the sequence are where its pages are, whole. */
static void expect_tokens(struct shadow *shadow, uint32_t node, const struct holding *h, uint32_t end)
{
    struct memory *memory = &shadow->memory[node];
    uint32_t page_tokens = memory->geometry->page_tokens;
    if (end > h->count * page_tokens) {
        checkers_fail(shadow->checkers, node,
                      "request %" PRIu32 " goes on behind %" PRIu32 " tokens in %" PRIu32 " pages", h->request, end,
                      h->count);
        return;
    }
    for (uint32_t t = 0; t < end; t++) {
        const struct cell *cell = cell_at(memory, h->group, h->pages[t / page_tokens], t % page_tokens);
        if (cell->tag == tag_of(shadow, h->request, t) && read_whole(memory, cell, t, end))
            continue;
        checkers_fail(shadow->checkers, node,
                      "a step of request %" PRIu32 " begins behind %" PRIu32 " tokens, but token %" PRIu32
                      " in page %" PRIu32 " is %s",
                      h->request, end, t, h->pages[t / page_tokens],
                      cell->tag == 0                               ? "nothing"
                      : cell->tag == tag_of(shadow, h->request, t) ? "not all there"
                                                                   : "another's");
        return;
    }
}

static void write_tokens(struct shadow *shadow, uint32_t node, const struct holding *h, uint32_t from, uint32_t to,
                         uint32_t ticket)
{
    struct memory *memory = &shadow->memory[node];
    uint32_t page_tokens = memory->geometry->page_tokens;
    for (uint32_t t = from; t < to && t < h->count * page_tokens; t++)
        fill(memory, cell_at(memory, h->group, h->pages[t / page_tokens], t % page_tokens),
             tag_of(shadow, h->request, t), ticket);
}

static struct holding *holding_of(struct memory *memory, uint32_t sequence)
{
    memory->holdings = grown(memory->holdings, &memory->holding_count, sequence + 1, sizeof *memory->holdings);
    return &memory->holdings[sequence];
}

static void let_go(struct memory *memory, struct holding *h)
{
    for (uint32_t i = 0; h->live && i < h->count; i++)
        memory->pages[h->group * memory->pages_per_group + h->pages[i]].holders--;
    h->live = false;
    h->count = 0;
}

/* The sequence has more pages. Those from `own` on are written by it: nobody else may have them. */
static void take_pages(struct shadow *shadow, uint32_t node, struct holding *h, const struct step_change *change,
                       uint32_t own)
{
    struct memory *memory = &shadow->memory[node];
    h->pages = grown(h->pages, &h->capacity, change->page_first + change->page_count, sizeof *h->pages);
    for (uint32_t i = 0; i < change->page_count; i++) {
        uint32_t page = change->pages[i];
        if (page >= memory->pages_per_group) {
            checkers_fail(shadow->checkers, node,
                          "request %" PRIu32 " is launched with page %" PRIu32 ", there are %" PRIu32, change->request,
                          page, memory->pages_per_group);
            return;
        }
        struct shadow_page *p = &memory->pages[h->group * memory->pages_per_group + page];
        if (p->holders > 0 && change->page_first + i >= own)
            checkers_fail(shadow->checkers, node,
                          "request %" PRIu32 " is launched to write page %" PRIu32 ", which another sequence has",
                          change->request, page);
        p->holders++;
        p->owner = 0;
        h->pages[change->page_first + i] = page;
    }
    h->count = change->page_first + change->page_count;
}

static void change_sequence(struct shadow *shadow, uint32_t node, const struct step_change *change, uint32_t ticket)
{
    struct memory *memory = &shadow->memory[node];
    struct holding *h = holding_of(memory, change->sequence);
    uint32_t page_tokens = memory->geometry->page_tokens;
    if (change->kind == STEP_LEAVE) {
        let_go(memory, h);
        return;
    }
    if (!h->live) {
        h->live = true;
        h->request = change->request;
        h->group = change->group;
        h->count = 0;
    }
    if (change->page_count > 0 && change->page_first != h->count)
        checkers_fail(shadow->checkers, node,
                      "request %" PRIu32 " gets pages behind the first %" PRIu32 ", but has %" PRIu32, change->request,
                      change->page_first, h->count);
    if (h->request != change->request)
        checkers_fail(shadow->checkers, node, "slot %" PRIu32 " of request %" PRIu32 " is used for %" PRIu32,
                      change->sequence, h->request, change->request);
    if (change->page_count > 0)
        take_pages(shadow, node, h, change, change->kind == STEP_PAGES ? 0 : change->start / page_tokens);
    if (change->kind == STEP_PAGES) {
        write_tokens(shadow, node, h, change->page_first * page_tokens, UINT32_MAX, 0);
        return;
    }
    expect_tokens(shadow, node, h, change->start);
    if (change->kind == STEP_CHUNK)
        write_tokens(shadow, node, h, change->start, change->start + change->tokens, ticket);
    else
        write_tokens(shadow, node, h, change->start, UINT32_MAX, 0);
}

static void on_launch(void *self, uint32_t node, const struct step_launch *launch)
{
    struct shadow *shadow = self;
    shadow->memory[node].newest = launch->ticket;
    /* All that leave have left before anybody comes: the order of a list says nothing about its pages. */
    for (uint32_t c = 0; c < launch->change_count && checkers_failure(shadow->checkers) == NULL; c++)
        change_sequence(shadow, node, &launch->changes[c], launch->ticket);
}

/* ---- Transfers --------------------------------------------------------------------------------------------------- */

static struct transfer *transfer_of(struct shadow *shadow, uint32_t node, uint32_t immediate)
{
    for (uint32_t i = 0; i < shadow->transfer_count; i++)
        if (shadow->transfers[i].node == node && shadow->transfers[i].immediate == immediate)
            return &shadow->transfers[i];
    return NULL;
}

static void forget(struct shadow *shadow, struct transfer *transfer)
{
    struct transfer gone = *transfer;
    *transfer = shadow->transfers[--shadow->transfer_count];
    /* The list of pages is kept for the next. */
    shadow->transfers[shadow->transfer_count] = (struct transfer){.pages = gone.pages, .capacity = gone.capacity};
}

static void on_expect(void *self, uint32_t node, uint32_t immediate, uint64_t count)
{
    struct shadow *shadow = self;
    struct transfer *transfer = transfer_of(shadow, node, immediate);
    if (count == 0) {
        if (transfer != NULL)
            forget(shadow, transfer);
        return;
    }
    shadow->transfers =
        grown(shadow->transfers, &shadow->transfer_capacity, shadow->transfer_count + 1, sizeof *shadow->transfers);
    transfer = &shadow->transfers[shadow->transfer_count++];
    *transfer = (struct transfer){.node = node,
                                  .immediate = immediate,
                                  .expected = count,
                                  .pages = transfer->pages,
                                  .capacity = transfer->capacity};
}

/* A decoder names the pages of a transfer. */
static void on_send(void *self, uint32_t node, uint32_t destination, const void *bytes, size_t length)
{
    struct shadow *shadow = self;
    struct message m;
    (void)destination;
    if (!wire_decode(bytes, length, &m) || m.kind != MESSAGE_PREFILL)
        return;
    struct transfer *transfer = transfer_of(shadow, node, m.immediate);
    if (transfer == NULL)
        return; /* the oracle has said so */
    struct memory *memory = &shadow->memory[node];
    transfer->request = m.request;
    transfer->epoch = m.epoch;
    transfer->group = m.group;
    transfer->first = m.first_token;
    transfer->wanted = m.prompt_tokens;
    transfer->tail_slot = m.tail_slot;
    transfer->page_count = m.page_count;
    transfer->pages = grown(transfer->pages, &transfer->capacity, m.page_count, sizeof *transfer->pages);
    wire_pages(&m, transfer->pages);
    for (uint32_t i = 0; i < m.page_count; i++) {
        if (transfer->pages[i] >= memory->pages_per_group) {
            checkers_fail(shadow->checkers, node, "a transfer of request %" PRIu32 " names page %" PRIu32, m.request,
                          transfer->pages[i]);
            return;
        }
        struct shadow_page *page = &memory->pages[m.group * memory->pages_per_group + transfer->pages[i]];
        page->owner = m.epoch;
        page->request = m.request;
    }
}

/* Where a byte offset into a page's plane on a rank lies: head of the rank and token of the page. False: between. */
static bool take_apart(const struct kv_geometry *g, uint32_t plane, uint64_t offset, uint32_t *head, uint32_t *token)
{
    uint32_t head_bytes = kv_plane_head_bytes(g, plane);
    uint64_t index = offset / head_bytes;
    uint32_t heads = kv_rank_heads(g);
    if (offset % head_bytes != 0 || index >= (uint64_t)heads * g->page_tokens)
        return false;
    *head = (uint32_t)(g->layout == LAYOUT_HND ? index / g->page_tokens : index % heads);
    *token = (uint32_t)(g->layout == LAYOUT_HND ? index % g->page_tokens : index / heads);
    return true;
}

/* The rank's number within its attention group. */
static uint32_t tensor_rank(const struct kv_geometry *g, uint32_t rank)
{
    return rank % g->parallelism.tensor;
}

/* Which of the model's heads is head `head` of a rank. */
static uint32_t global_head(const struct kv_geometry *g, uint32_t rank, uint32_t head)
{
    return tensor_rank(g, rank) / kv_replicas(g) * kv_rank_heads(g) + head;
}

static bool holds_layer(const struct kv_geometry *g, uint32_t rank, uint32_t layer)
{
    uint32_t stage = rank / (g->parallelism.tensor * g->parallelism.data);
    return layer >= g->stage_layer_first[stage] && layer < g->stage_layer_first[stage + 1];
}

static bool in_group(const struct kv_geometry *g, uint32_t rank, uint32_t group)
{
    return rank / g->parallelism.tensor % g->parallelism.data == group;
}

/* A run of a write, all that is needed to say where one of its pieces goes. */
struct run {
    const struct oracle_write *write;
    const struct transfer_pair *pair;
    uint32_t unit;
    uint32_t layer; /* the first of */
    uint32_t layers;
    uint32_t plane;
    uint64_t source_offset; /* of every layer */
    uint64_t destination_offset;
};

static void wrong(struct shadow *shadow, const struct run *run, const char *what, uint32_t a, uint32_t b)
{
    const struct paged_write *spec = &run->write->spec;
    checkers_fail(shadow->checkers, spec->destination,
                  "a write of node %" PRIu32 " for request %" PRIu32 " (epoch %" PRIu32 ", unit %" PRIu32
                  ", layer %" PRIu32 ", plane %" PRIu32 ", rank %u to %u): %s (%" PRIu32 ", %" PRIu32 ")",
                  run->write->source, spec->request, spec->epoch, run->unit, run->layer, run->plane,
                  run->pair->source_rank, run->pair->destination_rank, what, a, b);
}

/* The source's cell must hold what the destination is to get, unless its process is gone: its memory is then what it
 * was. */
static void read_cell(struct shadow *shadow, const struct run *run, uint32_t token, uint32_t position)
{
    const struct oracle_write *write = run->write;
    struct memory *memory = &shadow->memory[write->source];
    const struct transfer_plan *plan = write->spec.plan;
    uint32_t first = write->spec.unit_first / plan->source_units_per_page;
    uint32_t page = write->spec.source_pages[run->unit / plan->source_units_per_page - first];
    if (!write->open)
        return;
    const struct cell *cell = cell_at(memory, write->spec.source_group, page, token);
    if (cell->tag != tag_of(shadow, write->spec.request, position) || !whole(memory, cell))
        wrong(shadow, run, "the source's page holds another token than (position, page)", position, page);
}

/* False: one of them was there. */
static bool set_parts(struct cell *cell, uint32_t place, uint32_t count)
{
    bool none = true;
    cell->parts += count;
    while (count > 0) {
        uint32_t bits = min_u32(count, 64 - place % 64);
        uint64_t mask = (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1) << place % 64;
        none = none && (cell->there[place / 64] & mask) == 0;
        cell->there[place / 64] |= mask;
        place += bits;
        count -= bits;
    }
    return none;
}

static void land_cell(struct shadow *shadow, const struct run *run, struct transfer *transfer, uint32_t within)
{
    const struct paged_write *spec = &run->write->spec;
    const struct transfer_plan *plan = spec->plan;
    struct memory *memory = &shadow->memory[spec->destination];
    const struct kv_geometry *from = shadow->memory[run->write->source].geometry;
    const struct kv_geometry *to = memory->geometry;
    uint32_t head, token, source_head, source_token;
    uint64_t step = (uint64_t)within * kv_plane_head_bytes(to, run->plane);
    if (!take_apart(to, run->plane, run->destination_offset + step, &head, &token) ||
        !take_apart(from, run->plane, run->source_offset + step, &source_head, &source_token)) {
        wrong(shadow, run, "it lies between heads or outside of a page", within, kv_plane_head_bytes(to, run->plane));
        return;
    }
    uint32_t position = run->unit / plan->destination_units_per_page * to->page_tokens + token;
    uint32_t source_position = run->unit / plan->source_units_per_page * from->page_tokens + source_token;
    if (position != source_position)
        wrong(shadow, run, "the token goes to another's place", source_position, position);
    if (global_head(from, run->pair->source_rank, source_head) != global_head(to, run->pair->destination_rank, head))
        wrong(shadow, run, "the head goes to another's place", source_head, head);
    uint32_t first = spec->unit_first / plan->destination_units_per_page;
    uint32_t page = spec->destination_pages[run->unit / plan->destination_units_per_page - first];
    struct shadow_page *p = &memory->pages[spec->destination_group * memory->pages_per_group + page];
    if (p->owner != spec->epoch || p->request != spec->request)
        wrong(shadow, run, "the page is not this transfer's (page, owner's epoch)", page, p->owner);
    if (position >= transfer->wanted)
        return; /* the rest of the last unit holds nothing yet */
    read_cell(shadow, run, source_token, position);
    struct cell *cell = cell_at(memory, spec->destination_group, page, token);
    if (cell->epoch != spec->epoch) {
        cell->epoch = spec->epoch;
        cell->tag = tag_of(shadow, spec->request, position);
        cell->parts = 0;
        memset(cell->there, 0, memory->words * sizeof cell->there[0]);
    }
    uint32_t place =
        ((tensor_rank(to, run->pair->destination_rank) * to->planes + run->plane) * kv_rank_heads(to) + head) *
            to->layers +
        run->layer;
    if (!set_parts(cell, place, run->layers))
        wrong(shadow, run, "it lands twice in one place (position, head)", position, head);
}

static void land_run(struct shadow *shadow, const struct run *run, struct transfer *transfer)
{
    const struct paged_write *spec = &run->write->spec;
    const struct kv_geometry *from = shadow->memory[run->write->source].geometry;
    const struct kv_geometry *to = shadow->memory[spec->destination].geometry;
    uint32_t last = run->layer + run->layers - 1;
    if (!holds_layer(from, run->pair->source_rank, run->layer) ||
        !holds_layer(to, run->pair->destination_rank, run->layer) || !holds_layer(from, run->pair->source_rank, last) ||
        !holds_layer(to, run->pair->destination_rank, last) ||
        !in_group(from, run->pair->source_rank, spec->source_group) ||
        !in_group(to, run->pair->destination_rank, spec->destination_group))
        wrong(shadow, run, "a rank of it does not hold that layer, or is of another group (groups)", spec->source_group,
              spec->destination_group);
    for (uint32_t within = 0; within < run->pair->run_bytes / kv_plane_head_bytes(to, run->plane); within++)
        land_cell(shadow, run, transfer, within);
}

/* Run `part` of a unit and pair, of the layers from `first` on that are of this piece: all at once where a ticket lands
 * whole, which they then do alike. `number` is the place of the first layer's write among those of the ticket, in the
 * order of struct sim_landing, in which the next layer's is `step` further on. Returns how many were of the piece. */
static uint32_t land_part(struct shadow *shadow, const struct sim_landing *landing, struct transfer *transfer,
                          struct run run, uint32_t layers, uint64_t number, uint32_t step)
{
    uint32_t landed = 0;
    run.layers = landing->pieces == 1 ? layers : 1;
    for (uint32_t k = 0; k < layers; k += run.layers, number += step, run.layer += run.layers) {
        if (number % landing->pieces != landing->piece)
            continue;
        land_run(shadow, &run, transfer);
        landed += run.layers;
    }
    return landed;
}

/* Goes through a ticket's writes. Returns how many were of this piece. */
static uint64_t land_units(struct shadow *shadow, const struct oracle_write *write, const struct sim_landing *landing,
                           struct transfer *transfer, uint64_t *number)
{
    const struct transfer_plan *plan = write->spec.plan;
    uint64_t landed = 0;
    for (uint32_t unit = write->spec.unit_first; unit < write->spec.unit_first + write->spec.unit_count; unit++) {
        for (uint32_t p = 0; p < plan->pair_count; p++) {
            const struct transfer_pair *pair = &plan->pairs[p];
            uint32_t last = min_u32(pair->layer_first + pair->layer_count, landing->layers);
            uint32_t layers = last > pair->layer_first ? last - pair->layer_first : 0;
            uint32_t parts = plan->planes * pair->runs;
            for (uint32_t part = 0; part < parts; part++) {
                uint32_t piece = part % pair->runs;
                struct run run = {.write = write,
                                  .pair = pair,
                                  .unit = unit,
                                  .layer = pair->layer_first,
                                  .plane = pair->plane_first + part / pair->runs,
                                  .source_offset = transfer_source_offset(plan, pair, unit, piece),
                                  .destination_offset = transfer_destination_offset(plan, pair, unit, piece)};
                landed += land_part(shadow, landing, transfer, run, layers, *number + part, parts);
            }
            *number += (uint64_t)layers * parts;
        }
    }
    return landed;
}

static uint64_t land_tail(struct shadow *shadow, const struct oracle_write *write, const struct sim_landing *landing,
                          struct transfer *transfer, uint64_t *number)
{
    uint64_t landed = 0;
    for (uint32_t t = 0; t < write->spec.tail_writes; t++, (*number)++)
        landed += *number % landing->pieces == landing->piece;
    if (landed > 0 && write->spec.tail_destination_slot != transfer->tail_slot)
        checkers_fail(shadow->checkers, landing->destination,
                      "the tail of request %" PRIu32 " lands in slot %" PRIu32 ", which is not its own (%" PRIu32 ")",
                      write->spec.request, write->spec.tail_destination_slot, transfer->tail_slot);
    transfer->tails += landed;
    return landed;
}

static void on_landed(void *self, const struct sim_landing *landing)
{
    struct shadow *shadow = self;
    const struct oracle_write *write = oracle_landing(shadow->oracle);
    if (write == NULL || landing->writes == 0 || checkers_failure(shadow->checkers) != NULL)
        return;
    struct transfer *transfer = transfer_of(shadow, landing->destination, write->spec.immediate);
    if (transfer == NULL || transfer->epoch != write->spec.epoch) {
        checkers_fail(shadow->checkers, landing->destination,
                      "a write for request %" PRIu32 " (epoch %" PRIu32 ") lands under an immediate of another",
                      write->spec.request, write->spec.epoch);
        return;
    }
    uint64_t number = 0;
    uint64_t landed = land_units(shadow, write, landing, transfer, &number);
    landed += land_tail(shadow, write, landing, transfer, &number);
    transfer->counted += landing->writes;
    if (landed != landing->writes)
        checkers_fail(shadow->checkers, landing->destination,
                      "the fabric carries %" PRIu64 " writes of a ticket of request %" PRIu32 ", the plan has %" PRIu64,
                      landing->writes, write->spec.request, landed);
}

/* The count is reached: everything is there. */
static void complete(struct shadow *shadow, uint32_t node, uint32_t immediate, uint64_t count)
{
    struct transfer *transfer = transfer_of(shadow, node, immediate);
    if (transfer == NULL || checkers_failure(shadow->checkers) != NULL)
        return;
    struct memory *memory = &shadow->memory[node];
    uint32_t page_tokens = memory->geometry->page_tokens;
    if (transfer->counted != transfer->expected || count != transfer->expected ||
        transfer->tails != shadow->configs[node].tail_writes)
        checkers_fail(shadow->checkers, node,
                      "request %" PRIu32 " is complete with %" PRIu64 " writes of %" PRIu64 ", %" PRIu64 " of a tail",
                      transfer->request, transfer->counted, transfer->expected, transfer->tails);
    for (uint32_t t = transfer->first; t < transfer->wanted; t++) {
        uint32_t page = transfer->pages[t / page_tokens - transfer->first / page_tokens];
        struct cell *cell = cell_at(memory, transfer->group, page, t % page_tokens);
        if (cell->epoch != transfer->epoch || !read_whole(memory, cell, t, transfer->wanted)) {
            checkers_fail(shadow->checkers, node,
                          "request %" PRIu32 " is complete, but not all of token %" PRIu32 " is there",
                          transfer->request, t);
            return;
        }
    }
    forget(shadow, transfer);
}

/* What a write reads is there already, or is computed by the step that it waits for. */
static void on_post(void *self, uint32_t node, const struct paged_write *write)
{
    struct shadow *shadow = self;
    struct memory *memory = &shadow->memory[node];
    uint32_t page_tokens = memory->geometry->page_tokens;
    const struct transfer_plan *plan = write->plan;
    uint32_t first_page = write->unit_first / plan->source_units_per_page;
    for (uint32_t unit = write->unit_first; unit < write->unit_first + write->unit_count; unit++) {
        uint32_t page = write->source_pages[unit / plan->source_units_per_page - first_page];
        uint32_t position = unit * plan->unit_tokens;
        const struct cell *cell = cell_at(memory, write->source_group, page, position % page_tokens);
        bool computing = cell->ticket > memory->ended && cell->ticket <= memory->newest;
        if (cell->tag != tag_of(shadow, write->request, position))
            checkers_fail(shadow->checkers, node,
                          "a write for request %" PRIu32 " is posted from page %" PRIu32
                          ", which holds another's token",
                          write->request, page); /* 7 */
        else if (computing && (write->gate == STEP_NONE || write->gate < cell->ticket))
            checkers_fail(shadow->checkers, node,
                          "a write for request %" PRIu32 " does not wait for the step that computes its unit %" PRIu32,
                          write->request, unit);
    }
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void learn(struct shadow *shadow, const struct request_spec *spec)
{
    shadow->prompts = grown(shadow->prompts, &shadow->prompt_capacity, spec->id + 1, sizeof *shadow->prompts);
    struct prompt *prompt = &shadow->prompts[spec->id];
    if (prompt->tokens != 0)
        return; /* a duplicate */
    *prompt = (struct prompt){
        .tokens = spec->prompt_tokens, .block_tokens = spec->block_tokens, .block_count = spec->block_count};
    if (spec->block_count == 0)
        return;
    prompt->blocks = memory_get(spec->block_count * sizeof *prompt->blocks);
    memcpy(prompt->blocks, spec->blocks, spec->block_count * sizeof *prompt->blocks);
}

static void on_event(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    struct shadow *shadow = self;
    (void)now_ns;
    if (event->kind == EVENT_ARRIVAL && event->status == ARRIVAL_NEW)
        learn(shadow, event->data);
    else if (event->kind == EVENT_STEPS_DONE)
        shadow->memory[node].ended = event->id;
    else if (event->kind == EVENT_IMMEDIATE)
        complete(shadow, node, event->id, event->count);
}

static void empty(struct memory *memory)
{
    for (uint32_t i = 0; i < memory->page_count; i++)
        free(memory->pages[i].cells);
    for (uint32_t i = 0; i < memory->holding_count; i++)
        free(memory->holdings[i].pages);
    free(memory->holdings);
    memory->holdings = NULL;
    memory->holding_count = 0;
    memory->newest = memory->ended = 0;
    if (memory->page_count > 0)
        memset(memory->pages, 0, memory->page_count * sizeof *memory->pages);
}

static void on_death(void *self, uint32_t node)
{
    struct shadow *shadow = self;
    empty(&shadow->memory[node]);
    for (uint32_t i = shadow->transfer_count; i-- > 0;)
        if (shadow->transfers[i].node == node)
            forget(shadow, &shadow->transfers[i]);
}

/* ---- Making one -------------------------------------------------------------------------------------------------- */

static void make_memory(struct memory *memory, const struct node_config *config)
{
    if (config->role == ROLE_FRONT)
        return;
    const struct kv_geometry *g = &config->geometry;
    memory->geometry = g;
    memory->pages_per_group = config->pages_per_group;
    memory->page_count = config->pages_per_group * config->group_count;
    memory->places = (uint32_t)g->parallelism.tensor * g->layers * g->planes * kv_rank_heads(g);
    memory->words = ceil_div_u32(memory->places, 64);
    memory->stride = sizeof(struct cell) + memory->words * sizeof(uint64_t);
    memory->pages = memory_zeroed(max_u32(1, memory->page_count), sizeof *memory->pages);
}

struct shadow *shadow_make(struct sim *sim, const struct node_config *configs, uint32_t node_count,
                           const struct oracle *oracle, struct checkers *checkers)
{
    struct shadow *shadow = memory_zeroed(1, sizeof *shadow);
    shadow->sim = sim;
    shadow->checkers = checkers;
    shadow->oracle = oracle;
    shadow->configs = configs;
    shadow->node_count = node_count;
    shadow->memory = memory_zeroed(node_count, sizeof *shadow->memory);
    for (uint32_t i = 0; i < node_count; i++)
        make_memory(&shadow->memory[i], &configs[i]);
    sim_listen(sim, &(struct sim_listener){.self = shadow,
                                           .before = on_event,
                                           .launch = on_launch,
                                           .post = on_post,
                                           .expect = on_expect,
                                           .send = on_send,
                                           .landed = on_landed,
                                           .died = on_death});
    return shadow;
}

void shadow_free(struct shadow *shadow)
{
    if (shadow == NULL)
        return;
    for (uint32_t i = 0; i < shadow->node_count; i++) {
        empty(&shadow->memory[i]);
        free(shadow->memory[i].pages);
    }
    for (uint32_t i = 0; i < shadow->transfer_capacity; i++)
        free(shadow->transfers[i].pages);
    for (uint32_t i = 0; i < shadow->prompt_capacity; i++)
        free(shadow->prompts[i].blocks);
    free(shadow->memory);
    free(shadow->transfers);
    free(shadow->prompts);
    free(shadow);
}
