/* See oracle.h. */
#include "support/oracle.h"

#include "base/limits.h"
#include "messenger/wire.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRITES_MAX 4096
#define PAGES_MAX 256
#define EPOCHS_MAX 65536

struct open_write {
    bool open;    /* posted and not answered */
    bool landing; /* some of it may still land */
    uint32_t source;
    uint32_t ticket;
    uint32_t destination;
    uint16_t source_group;
    uint16_t destination_group;
    uint32_t immediate;
    uint32_t request;
    uint32_t epoch;
    uint32_t source_pages[PAGES_MAX];
    uint32_t source_count;
    uint32_t destination_pages[PAGES_MAX];
    uint32_t destination_count;
};

struct pair_epoch {
    uint32_t prefiller;
    uint32_t decoder;
    uint32_t epoch;
};

struct oracle {
    const char *label;
    struct open_write writes[WRITES_MAX];
    uint32_t used;
    struct pair_epoch quiet[EPOCHS_MAX]; /* QUIESCED or refused: nothing may be posted any more */
    uint32_t quiet_count;
    struct {
        uint32_t node;
        uint32_t immediate;
    } armed[WRITES_MAX];
    uint32_t armed_count;
    uint32_t incarnation[NODES_MAX]; /* UINT32_MAX while it is dead */
};

struct oracle *oracle_make(const char *label)
{
    struct oracle *oracle = calloc(1, sizeof *oracle);
    assert_non_null(oracle);
    oracle->label = label;
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    free(oracle);
}

static bool intersect(const uint32_t *a, uint32_t a_count, const uint32_t *b, uint32_t b_count)
{
    for (uint32_t i = 0; i < a_count; i++)
        for (uint32_t j = 0; j < b_count; j++)
            if (a[i] == b[j])
                return true;
    return false;
}

/* Nobody but `request` may be given pages that a write may still land in. */
static void assert_no_write_into(const struct oracle *oracle, uint32_t node, uint32_t group, uint32_t request,
                                 uint32_t epoch, const uint32_t *pages, uint32_t count)
{
    for (uint32_t i = 0; i < oracle->used; i++) {
        const struct open_write *write = &oracle->writes[i];
        if (!write->landing || write->destination != node || write->destination_group != group)
            continue;
        if (write->request == request && (epoch == 0 || write->epoch == epoch))
            continue;
        if (intersect(write->destination_pages, write->destination_count, pages, count))
            fail_msg("%s: pages of node %" PRIu32 " go to request %" PRIu32 " while a write for request %" PRIu32
                     " (epoch %" PRIu32 ") may land in them",
                     oracle->label, node, request, write->request, write->epoch);
    }
}

/* ---- Operations ------------------------------------------------------------------------------------------------- */

void oracle_expect(struct oracle *oracle, uint32_t node, uint32_t immediate, uint64_t count)
{
    for (uint32_t i = 0; i < oracle->armed_count; i++) {
        if (oracle->armed[i].node == node && oracle->armed[i].immediate == immediate) {
            oracle->armed[i] = oracle->armed[--oracle->armed_count];
            break;
        }
    }
    if (count == 0)
        return;
    assert_true(oracle->armed_count < WRITES_MAX);
    oracle->armed[oracle->armed_count].node = node;
    oracle->armed[oracle->armed_count++].immediate = immediate;
}

static bool is_armed(const struct oracle *oracle, uint32_t node, uint32_t immediate)
{
    for (uint32_t i = 0; i < oracle->armed_count; i++)
        if (oracle->armed[i].node == node && oracle->armed[i].immediate == immediate)
            return true;
    return false;
}

static bool is_quiet(const struct oracle *oracle, uint32_t prefiller, uint32_t decoder, uint32_t epoch)
{
    for (uint32_t i = 0; i < oracle->quiet_count; i++)
        if (oracle->quiet[i].prefiller == prefiller && oracle->quiet[i].decoder == decoder &&
            oracle->quiet[i].epoch == epoch)
            return true;
    return false;
}

void oracle_send(struct oracle *oracle, uint32_t node, uint32_t destination, const void *bytes, size_t length)
{
    struct message m;
    uint32_t pages[PAGES_MAX];
    assert_true(wire_decode(bytes, length, &m));
    if (m.kind == MESSAGE_PREFILL) {
        if (!is_armed(oracle, node, m.immediate)) /* 18 */
            fail_msg("%s: node %" PRIu32 " asks for request %" PRIu32 " before it is armed", oracle->label, node,
                     m.request);
        assert_true(m.page_count <= PAGES_MAX);
        wire_pages(&m, pages);
        assert_no_write_into(oracle, node, m.group, m.request, m.epoch, pages, m.page_count); /* 1, 2 */
    }
    bool current = m.peer_incarnation == oracle->incarnation[destination];
    if (current && (m.kind == MESSAGE_QUIESCED || m.kind == MESSAGE_NACK)) {
        for (uint32_t i = 0; i < oracle->used; i++) {
            const struct open_write *write = &oracle->writes[i];
            if (write->open && write->source == node && write->destination == destination && write->epoch == m.epoch)
                fail_msg("%s: node %" PRIu32 " says that epoch %" PRIu32 " is quiet, which it is not", oracle->label,
                         node, m.epoch); /* 4 */
        }
        assert_true(oracle->quiet_count < EPOCHS_MAX);
        oracle->quiet[oracle->quiet_count++] = (struct pair_epoch){node, destination, m.epoch};
    }
}

static void copy_pages(uint32_t *to, uint32_t *count, const uint32_t *from, uint32_t first, uint32_t end,
                       uint32_t units_per_page)
{
    *count = end == first ? 0 : (end - 1) / units_per_page - first / units_per_page + 1;
    assert_true(*count <= PAGES_MAX);
    if (*count > 0)
        memcpy(to, from, *count * sizeof *to);
}

void oracle_post(struct oracle *oracle, uint32_t node, const struct paged_write *write)
{
    if (is_quiet(oracle, node, write->destination, write->epoch)) /* 4 */
        fail_msg("%s: node %" PRIu32 " writes for epoch %" PRIu32 ", which it said was quiet", oracle->label, node,
                 write->epoch);
    uint32_t index = 0;
    while (index < oracle->used && (oracle->writes[index].open || oracle->writes[index].landing))
        index++;
    assert_true(index < WRITES_MAX);
    if (index == oracle->used)
        oracle->used++;
    struct open_write *open = &oracle->writes[index];
    *open = (struct open_write){
        .open = true,
        .landing = write->destination_incarnation == oracle->incarnation[write->destination],
        .source = node,
        .ticket = write->ticket,
        .destination = write->destination,
        .source_group = write->source_group,
        .destination_group = write->destination_group,
        .immediate = write->immediate,
        .request = write->request,
        .epoch = write->epoch,
    };
    uint32_t end = write->unit_first + write->unit_count;
    copy_pages(open->source_pages, &open->source_count, write->source_pages, write->unit_first, end,
               write->plan->source_units_per_page);
    copy_pages(open->destination_pages, &open->destination_count, write->destination_pages, write->unit_first, end,
               write->plan->destination_units_per_page);
}

void oracle_launch(struct oracle *oracle, uint32_t node, uint32_t page_tokens, const struct step_launch *launch)
{
    for (uint32_t c = 0; c < launch->change_count; c++) {
        const struct step_change *change = &launch->changes[c];
        if (change->page_count == 0)
            continue;
        assert_no_write_into(oracle, node, change->group, change->request, 0, change->pages, change->page_count);
        if (change->kind == STEP_PAGES)
            continue;
        /* 7: a page that a write still reads may be shared with others as part of a prefix, but is written by nobody:
         * the chunk starts behind what is shared. */
        for (uint32_t i = 0; i < oracle->used && change->kind == STEP_CHUNK; i++) {
            const struct open_write *write = &oracle->writes[i];
            if (!write->open || write->source != node || write->source_group != change->group ||
                write->request == change->request)
                continue;
            uint32_t shared = change->start / page_tokens;
            assert_true(shared < change->page_count);
            if (intersect(write->source_pages, write->source_count, change->pages + shared,
                          change->page_count - shared))
                fail_msg("%s: node %" PRIu32 " computes request %" PRIu32
                         " into pages that a write for request %" PRIu32 " still reads",
                         oracle->label, node, change->request, write->request);
        }
    }
}

/* ---- Events ----------------------------------------------------------------------------------------------------- */

void oracle_event(struct oracle *oracle, uint32_t node, const struct event *event)
{
    if (event->kind == EVENT_START)
        oracle->incarnation[node] = (uint32_t)event->count;
    for (uint32_t i = 0; i < oracle->used; i++) {
        struct open_write *write = &oracle->writes[i];
        if (event->kind == EVENT_WRITE_DONE && write->open && write->source == node && write->ticket == event->id)
            write->open = write->landing = false;
        /* All that was agreed has landed: of this transfer nothing more can. */
        if (event->kind == EVENT_IMMEDIATE && write->destination == node && write->immediate == event->id)
            write->landing = false;
        if (event->kind == EVENT_PEER_LOST && event->status == PEER_FENCED && write->source == event->id)
            write->landing = write->open && write->landing; /* a replacement's writes are open */
    }
}

void oracle_died(struct oracle *oracle, uint32_t node)
{
    oracle->incarnation[node] = UINT32_MAX;
    for (uint32_t i = 0; i < oracle->used; i++) {
        struct open_write *write = &oracle->writes[i];
        if (write->source == node)
            write->open = false; /* it may land until the fence */
        if (write->destination == node)
            write->landing = false;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < oracle->quiet_count; i++)
        if (oracle->quiet[i].prefiller != node && oracle->quiet[i].decoder != node)
            oracle->quiet[kept++] = oracle->quiet[i];
    oracle->quiet_count = kept;
}

uint32_t oracle_open(const struct oracle *oracle)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < oracle->used; i++)
        count += oracle->writes[i].open;
    return count;
}
