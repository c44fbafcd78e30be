/* See oracle.h. */
#include "sim/checkers/oracle.h"

#include "base/arith.h"
#include "messenger/wire.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct pair_epoch {
    uint32_t prefiller;
    uint32_t decoder;
    uint32_t epoch;
};

struct armed {
    uint32_t node;
    uint32_t immediate;
    bool counted; /* all of it has landed: a cancel that was under way may still let go of it, once */
};

#define DEAD UINT32_MAX

struct oracle {
    struct sim *sim;
    struct checkers *checkers;
    const struct node_config *configs;
    uint32_t node_count;
    uint32_t *incarnation; /* DEAD while it is */
    struct oracle_write *writes;
    uint32_t used;
    uint32_t capacity;
    struct pair_epoch *quiet; /* QUIESCED or refused: nothing may be posted any more */
    uint32_t quiet_count;
    uint32_t quiet_capacity;
    struct armed *armed;
    uint32_t armed_count;
    uint32_t armed_capacity;
    unsigned char *ends; /* of requests: the front has ended it */
    uint32_t ends_capacity;
    const struct oracle_write *landing; /* in hand */
    uint32_t *pages;                    /* of a message in hand */
    uint32_t pages_capacity;
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

static bool intersect(const uint32_t *a, uint32_t a_count, const uint32_t *b, uint32_t b_count)
{
    for (uint32_t i = 0; i < a_count; i++)
        for (uint32_t j = 0; j < b_count; j++)
            if (a[i] == b[j])
                return true;
    return false;
}

/* Nobody but `request` may be given pages that a write may still land in. epoch 0: whatever the epoch. */
static void no_write_into(const struct oracle *oracle, uint32_t node, uint32_t group, uint32_t request, uint32_t epoch,
                          const uint32_t *pages, uint32_t count)
{
    for (uint32_t i = 0; i < oracle->used; i++) {
        const struct oracle_write *write = &oracle->writes[i];
        const struct paged_write *spec = &write->spec;
        if (!write->landing || spec->destination != node || spec->destination_group != group)
            continue;
        if (spec->request == request && (epoch == 0 || spec->epoch == epoch))
            continue;
        if (intersect(spec->destination_pages, write->spec.destination_page_count, pages, count))
            checkers_fail(oracle->checkers, node,
                          "pages go to request %" PRIu32 " while a write for request %" PRIu32 " (epoch %" PRIu32
                          ") may land in them",
                          request, spec->request, spec->epoch);
    }
}

/* ---- Operations ------------------------------------------------------------------------------------------------- */

static uint32_t find_armed(const struct oracle *oracle, uint32_t node, uint32_t immediate)
{
    uint32_t i = 0;
    while (i < oracle->armed_count && (oracle->armed[i].node != node || oracle->armed[i].immediate != immediate))
        i++;
    return i;
}

static void disarm(struct oracle *oracle, uint32_t index)
{
    oracle->armed[index] = oracle->armed[--oracle->armed_count];
}

/* Writes may land for it. */
static bool is_awaited(const struct oracle *oracle, uint32_t node, uint32_t immediate)
{
    uint32_t index = find_armed(oracle, node, immediate);
    return index < oracle->armed_count && !oracle->armed[index].counted;
}

/* The slot is used again: what was counted in it was not let go of, and need not be. */
static void forget_counted(struct oracle *oracle, uint32_t node, uint32_t immediate)
{
    const uint32_t mask = (UINT32_C(1) << IMMEDIATE_SLOT_BITS) - 1;
    for (uint32_t i = oracle->armed_count; i-- > 0;)
        if (oracle->armed[i].node == node && oracle->armed[i].counted &&
            (oracle->armed[i].immediate & mask) == (immediate & mask))
            disarm(oracle, i);
}

static void on_expect(void *self, uint32_t node, uint32_t immediate, uint64_t count)
{
    struct oracle *oracle = self;
    if (count > 0)
        forget_counted(oracle, node, immediate);
    uint32_t index = find_armed(oracle, node, immediate);
    bool armed = index < oracle->armed_count;
    if (count == 0 && armed) {
        disarm(oracle, index);
    } else if (count == 0) {
        checkers_fail(oracle->checkers, node, "immediate 0x%08" PRIx32 " is let go of, but it is not awaited",
                      immediate); /* 5, 10 */
    } else if (armed) {
        checkers_fail(oracle->checkers, node, "immediate 0x%08" PRIx32 " is armed twice", immediate);
    } else {
        oracle->armed = grown(oracle->armed, &oracle->armed_capacity, oracle->armed_count + 1, sizeof *oracle->armed);
        oracle->armed[oracle->armed_count++] = (struct armed){.node = node, .immediate = immediate};
    }
}

static bool is_quiet(const struct oracle *oracle, uint32_t prefiller, uint32_t decoder, uint32_t epoch)
{
    for (uint32_t i = 0; i < oracle->quiet_count; i++)
        if (oracle->quiet[i].prefiller == prefiller && oracle->quiet[i].decoder == decoder &&
            oracle->quiet[i].epoch == epoch)
            return true;
    return false;
}

static void on_prefill(struct oracle *oracle, uint32_t node, const struct message *m)
{
    if (!is_awaited(oracle, node, m->immediate)) /* 18 */
        checkers_fail(oracle->checkers, node, "a prefiller is asked for request %" PRIu32 " before it is armed",
                      m->request);
    oracle->pages = grown(oracle->pages, &oracle->pages_capacity, m->page_count, sizeof *oracle->pages);
    wire_pages(m, oracle->pages);
    no_write_into(oracle, node, m->group, m->request, m->epoch, oracle->pages, m->page_count); /* 1, 2, 3 */
}

static void on_send(void *self, uint32_t node, uint32_t destination, const void *bytes, size_t length)
{
    struct oracle *oracle = self;
    struct message m;
    if (!wire_decode(bytes, length, &m)) {
        checkers_fail(oracle->checkers, node, "a message of %zu bytes to node %" PRIu32 " does not parse", length,
                      destination);
        return;
    }
    if (m.kind == MESSAGE_PREFILL)
        on_prefill(oracle, node, &m);
    bool current = m.peer_incarnation == oracle->incarnation[destination];
    if (!current || (m.kind != MESSAGE_QUIESCED && m.kind != MESSAGE_NACK))
        return;
    for (uint32_t i = 0; i < oracle->used; i++) {
        const struct oracle_write *write = &oracle->writes[i];
        if (write->open && write->source == node && write->spec.destination == destination &&
            write->spec.epoch == m.epoch && write->spec.destination_incarnation == m.peer_incarnation)
            checkers_fail(oracle->checkers, node, "it says that epoch %" PRIu32 " is quiet while a write is open",
                          m.epoch); /* 4 */
    }
    oracle->quiet = grown(oracle->quiet, &oracle->quiet_capacity, oracle->quiet_count + 1, sizeof *oracle->quiet);
    oracle->quiet[oracle->quiet_count++] = (struct pair_epoch){node, destination, m.epoch};
}

static struct oracle_write *take_write(struct oracle *oracle)
{
    uint32_t index = 0;
    while (index < oracle->used && (oracle->writes[index].open || oracle->writes[index].landing))
        index++;
    oracle->writes = grown(oracle->writes, &oracle->capacity, index + 1, sizeof *oracle->writes);
    oracle->used = max_u32(oracle->used, index + 1);
    return &oracle->writes[index];
}

static void on_post(void *self, uint32_t node, const struct paged_write *write)
{
    struct oracle *oracle = self;
    bool current = write->destination_incarnation == oracle->incarnation[write->destination];
    if (current && is_quiet(oracle, node, write->destination, write->epoch)) /* 4 */
        checkers_fail(oracle->checkers, node, "it writes for epoch %" PRIu32 ", which it said was quiet", write->epoch);
    const struct transfer_plan *plan = write->plan;
    if (write->source_page_count != transfer_pages(write->unit_first, write->unit_count, plan->source_units_per_page) ||
        write->destination_page_count !=
            transfer_pages(write->unit_first, write->unit_count, plan->destination_units_per_page))
        checkers_fail(oracle->checkers, node, "its write for request %" PRIu32 " names other pages than its units need",
                      write->request);
    struct oracle_write *open = take_write(oracle);
    uint32_t sources = write->source_page_count;
    uint32_t destinations = write->destination_page_count;
    uint32_t capacity = open->capacity;
    uint32_t *pages = grown(open->pages, &capacity, max_u32(1, sources + destinations), sizeof *pages);
    memcpy(pages, write->source_pages, sources * sizeof *pages);
    memcpy(pages + sources, write->destination_pages, destinations * sizeof *pages);
    *open = (struct oracle_write){
        .open = true,
        .landing = current,
        .source = node,
        .source_incarnation = oracle->incarnation[node],
        .capacity = capacity,
        .pages = pages,
        .spec = *write,
    };
    open->spec.source_pages = pages;
    open->spec.destination_pages = pages + sources;
}

/* 7: a page that a write still reads may be shared with others as part of a prefix, but is written by nobody: the chunk
 * starts behind what is shared. */
static void no_read_from(const struct oracle *oracle, uint32_t node, const struct step_change *change)
{
    uint32_t start_page = change->start / oracle->configs[node].geometry.page_tokens;
    uint32_t shared =
        start_page > change->page_first ? min_u32(start_page - change->page_first, change->page_count) : 0;
    for (uint32_t i = 0; i < oracle->used; i++) {
        const struct oracle_write *write = &oracle->writes[i];
        if (!write->open || write->source != node || write->spec.source_group != change->group ||
            write->spec.request == change->request)
            continue;
        if (intersect(write->spec.source_pages, write->spec.source_page_count, change->pages + shared,
                      change->page_count - shared))
            checkers_fail(oracle->checkers, node,
                          "request %" PRIu32 " is computed into pages that a write for request %" PRIu32 " still reads",
                          change->request, write->spec.request);
    }
}

static void on_launch(void *self, uint32_t node, const struct step_launch *launch)
{
    struct oracle *oracle = self;
    for (uint32_t c = 0; c < launch->change_count; c++) {
        const struct step_change *change = &launch->changes[c];
        if (change->page_count == 0)
            continue;
        no_write_into(oracle, node, change->group, change->request, 0, change->pages, change->page_count);
        if (change->kind == STEP_CHUNK)
            no_read_from(oracle, node, change);
    }
}

/* ---- Events ----------------------------------------------------------------------------------------------------- */

const struct oracle_write *oracle_landing(const struct oracle *oracle)
{
    return oracle->landing;
}

/* A ticket may be in use again while its last write is about to be counted: that one goes first. */
static struct oracle_write *write_of(struct oracle *oracle, const struct sim_landing *landing)
{
    struct oracle_write *found = NULL;
    for (uint32_t i = 0; i < oracle->used; i++) {
        struct oracle_write *write = &oracle->writes[i];
        if (write->source == landing->source && write->spec.ticket == landing->ticket &&
            write->spec.destination == landing->destination &&
            write->source_incarnation == landing->source_incarnation && (write->open || write->landing) &&
            (found == NULL || !write->open))
            found = write;
    }
    return found;
}

static void on_landed(void *self, const struct sim_landing *landing)
{
    struct oracle *oracle = self;
    oracle->landing = NULL;
    if (landing->layers == 0)
        return; /* stopped before its first layer: it lands nothing */
    struct oracle_write *write = write_of(oracle, landing);
    oracle->landing = write;
    if (write == NULL) {
        checkers_fail(oracle->checkers, landing->destination,
                      "a write of node %" PRIu32 " (ticket %" PRIu32 ") lands after it was answered or fenced",
                      landing->source, landing->ticket);
        return;
    }
    write->pieces_landed++;
    if (write->pieces_landed == landing->pieces)
        write->landing = false;
    if (landing->writes > 0 && !is_awaited(oracle, landing->destination, write->spec.immediate))
        checkers_fail(oracle->checkers, landing->destination,
                      "a write for request %" PRIu32 " (epoch %" PRIu32 ") lands, but its transfer is over",
                      write->spec.request, write->spec.epoch);
}

/* It is on its way to the sender that the write has ended. What has not landed yet is counted within the time that the
 * receiver's thread takes to look, unless the fabric failed. */
static void answered(struct oracle_write *write, const struct event *event)
{
    write->open = false;
    if (event->status == WRITE_FAILED || (event->status == WRITE_STOPPED && event->count == 0))
        write->landing = false;
}

static void on_event(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    struct oracle *oracle = self;
    (void)now_ns;
    if (event->kind == EVENT_START)
        oracle->incarnation[node] = (uint32_t)event->count;
    if (event->kind == EVENT_IMMEDIATE && find_armed(oracle, node, event->id) < oracle->armed_count)
        oracle->armed[find_armed(oracle, node, event->id)].counted = true;
    for (uint32_t i = 0; i < oracle->used; i++) {
        struct oracle_write *write = &oracle->writes[i];
        if (event->kind == EVENT_WRITE_DONE && write->open && write->source == node && write->spec.ticket == event->id)
            answered(write, event);
        /* All that was agreed has landed: of this transfer nothing more can. */
        if (event->kind == EVENT_IMMEDIATE && write->spec.destination == node && write->spec.immediate == event->id)
            write->landing = false;
        if (event->kind == EVENT_PEER_LOST && event->status == PEER_FENCED && write->spec.destination == node &&
            write->source == event->id && write->source_incarnation <= event->count)
            write->landing = false;
    }
}

static void on_death(void *self, uint32_t node)
{
    struct oracle *oracle = self;
    oracle->incarnation[node] = DEAD;
    for (uint32_t i = 0; i < oracle->used; i++) {
        struct oracle_write *write = &oracle->writes[i];
        if (write->source == node)
            write->open = false; /* it may land until the fence */
        if (write->spec.destination == node)
            write->landing = false;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < oracle->quiet_count; i++)
        if (oracle->quiet[i].prefiller != node && oracle->quiet[i].decoder != node)
            oracle->quiet[kept++] = oracle->quiet[i];
    oracle->quiet_count = kept;
    kept = 0;
    for (uint32_t i = 0; i < oracle->armed_count; i++)
        if (oracle->armed[i].node != node)
            oracle->armed[kept++] = oracle->armed[i];
    oracle->armed_count = kept;
}

/* A request ends once, for its client: rejected, failed or aborted at the front, or finished. */
static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct oracle *oracle = self;
    bool end = record->kind == TRACE_REJECTED || record->kind == TRACE_FAILED || record->kind == TRACE_ABORTED;
    (void)now_ns;
    if (!end || record->node != 0)
        return;
    oracle->ends = grown(oracle->ends, &oracle->ends_capacity, record->request + 1, sizeof *oracle->ends);
    if (oracle->ends[record->request]++ != 0)
        checkers_fail(oracle->checkers, 0, "request %" PRIu32 " ends a second time", record->request);
}

/* ---- Making one -------------------------------------------------------------------------------------------------- */

struct oracle *oracle_make(struct sim *sim, const struct node_config *configs, uint32_t node_count,
                           struct checkers *checkers)
{
    struct oracle *oracle = memory_zeroed(1, sizeof *oracle);
    oracle->sim = sim;
    oracle->checkers = checkers;
    oracle->configs = configs;
    oracle->node_count = node_count;
    oracle->incarnation = memory_zeroed(node_count, sizeof *oracle->incarnation);
    sim_listen(sim, &(struct sim_listener){.self = oracle,
                                           .before = on_event,
                                           .trace = on_trace,
                                           .launch = on_launch,
                                           .post = on_post,
                                           .expect = on_expect,
                                           .send = on_send,
                                           .landed = on_landed,
                                           .died = on_death});
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    if (oracle == NULL)
        return;
    for (uint32_t i = 0; i < oracle->capacity; i++)
        free(oracle->writes[i].pages);
    free(oracle->writes);
    free(oracle->quiet);
    free(oracle->armed);
    free(oracle->pages);
    free(oracle->ends);
    free(oracle->incarnation);
    free(oracle);
}

void oracle_drained(struct oracle *oracle)
{
    for (uint32_t i = 0; i < oracle->used; i++)
        if (oracle->writes[i].open)
            checkers_fail(oracle->checkers, oracle->writes[i].source,
                          "a write for request %" PRIu32 " (epoch %" PRIu32 ") was never answered",
                          oracle->writes[i].spec.request, oracle->writes[i].spec.epoch);
}
