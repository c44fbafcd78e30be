/* See mishap.h. */
#include "support/mishap.h"

#include "base/limits.h"
#include "messenger/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const char *mishap_name(enum mishap_kind kind)
{
    static const char *const names[MISHAP_KINDS] = {
        [MISHAP_NONE] = "none",
        [MISHAP_WRITE_FAILED] = "write failed",
        [MISHAP_WRITE_IN_ERROR] = "write in error",
        [MISHAP_WRITE_LATE] = "write late",
        [MISHAP_WRITE_HALF] = "write fails half way",
        [MISHAP_WRITE_IN_PIECES] = "write in pieces",
        [MISHAP_WRITE_UNCONFIRMED] = "write confirmed late",
        [MISHAP_NIC_STALLED] = "NIC stalled",
        [MISHAP_MESSAGE_LATE] = "message late",
        [MISHAP_MESSAGE_TWICE] = "message twice",
        [MISHAP_MESSAGE_LOST] = "message lost",
        [MISHAP_PREFILL_REFUSED] = "prefill refused",
        [MISHAP_GEOMETRY_REFUSED] = "geometry refused",
        [MISHAP_DEATH] = "death",
        [MISHAP_DEATH_LINGERING] = "death with writes under way",
        [MISHAP_DEATH_AND_RETURN] = "death and return",
        [MISHAP_DEATH_LONG_RETURN] = "death and return after the fence",
        [MISHAP_CLIENT_LEAVES] = "client leaves",
    };
    return names[kind];
}

bool mishap_is_late(enum mishap_kind kind)
{
    return kind == MISHAP_WRITE_LATE || kind == MISHAP_WRITE_IN_PIECES || kind == MISHAP_NIC_STALLED ||
           kind == MISHAP_MESSAGE_LATE || kind == MISHAP_MESSAGE_LOST;
}

/* Counts what can go wrong; true for the one that does. */
static bool strikes(struct mishaps *mishaps)
{
    if (++mishaps->seen != mishaps->mishap.nth)
        return false;
    mishaps->struck = true;
    return true;
}

/* ---- What the simulator does wrong by itself -------------------------------------------------------------------- */

static bool deadline_covers(const void *bytes, size_t length)
{
    struct message m;
    assert_true(wire_decode(bytes, length, &m));
    return message_loss_is_covered(m.kind);
}

static struct message_fault message_goes(void *self, int64_t now_ns, uint32_t source, uint32_t destination,
                                         const void *bytes, size_t length)
{
    struct mishaps *mishaps = self;
    (void)now_ns;
    (void)source;
    (void)destination;
    switch (mishaps->mishap.kind) {
    case MISHAP_MESSAGE_LATE:
        return (struct message_fault){.copies = 1, .delay_ns = strikes(mishaps) ? MISHAP_LATE_NS : 0};
    case MISHAP_MESSAGE_TWICE:
        return (struct message_fault){.copies = strikes(mishaps) ? 2 : 1};
    case MISHAP_MESSAGE_LOST:
        return (struct message_fault){.copies = deadline_covers(bytes, length) && strikes(mishaps) ? 0 : 1};
    default:
        return (struct message_fault){.copies = 1};
    }
}

static struct write_fault write_goes(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write)
{
    struct mishaps *mishaps = self;
    (void)now_ns;
    (void)source;
    (void)write;
    switch (mishaps->mishap.kind) {
    case MISHAP_WRITE_LATE:
        return (struct write_fault){.delay_ns = strikes(mishaps) ? MISHAP_LATE_NS : 0};
    case MISHAP_WRITE_HALF:
        return strikes(mishaps) ? (struct write_fault){.pieces = 4, .piece_ns = 20000, .fails = true}
                                : (struct write_fault){.delay_ns = 0};
    case MISHAP_WRITE_IN_PIECES:
        return strikes(mishaps) ? (struct write_fault){.pieces = 8, .piece_ns = MISHAP_LATE_NS / 8}
                                : (struct write_fault){.delay_ns = 0};
    case MISHAP_WRITE_UNCONFIRMED:
        return (struct write_fault){.confirm_ns = strikes(mishaps) ? MISHAP_LATE_NS : 0};
    default:
        return (struct write_fault){.delay_ns = 0};
    }
}

void mishap_make(struct mishaps *mishaps, const struct mishap *mishap, struct sim *sim,
                 const struct mishap_actions *actions)
{
    *mishaps = (struct mishaps){.mishap = *mishap, .actions = *actions, .sim = sim};
    sim_set_faults(sim, &(struct sim_faults){.self = mishaps, .message = message_goes, .write = write_goes});
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

static void nic_recovers(struct sim *sim, void *self, uint64_t node)
{
    (void)self;
    if (sim_alive(sim, (uint32_t)node))
        sim_nic(sim, (uint32_t)node, 0, true);
}

void mishap_post(struct mishaps *mishaps, uint32_t node, struct paged_write *write)
{
    if (mishaps->mishap.kind == MISHAP_WRITE_FAILED && strikes(mishaps))
        write->destination_incarnation = UINT32_MAX; /* the fabric finds nobody there */
    if (mishaps->mishap.kind == MISHAP_NIC_STALLED && strikes(mishaps)) {
        sim_nic(mishaps->sim, node, 0, false);
        sim_call_at(mishaps->sim, sim_now_ns(mishaps->sim) + MISHAP_LATE_NS,
                    (struct sim_call){.run = nic_recovers, .argument = node});
    }
}

void mishap_send(struct mishaps *mishaps, const void **bytes, size_t *length)
{
    static unsigned char buffer[MESSAGE_BYTES_MAX];
    static uint64_t blocks[REQUEST_BLOCKS_MAX];
    static uint32_t pages[REQUEST_PAGES_MAX];
    bool geometry = mishaps->mishap.kind == MISHAP_GEOMETRY_REFUSED;
    struct message m;
    if (!geometry && mishaps->mishap.kind != MISHAP_PREFILL_REFUSED)
        return;
    assert_true(wire_decode(*bytes, *length, &m));
    if (m.kind != MESSAGE_PREFILL || !strikes(mishaps))
        return;
    if (geometry)
        m.geometry_hash++;
    else
        m.produced = m.prompt_tokens + 1;
    wire_blocks(&m, blocks);
    wire_pages(&m, pages);
    *length = wire_encode(&m, blocks, pages, buffer, sizeof buffer);
    *bytes = buffer;
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

/* Nobody dies inside of a call: it happens at the same instant, behind the event. */
static void dies(struct sim *sim, void *self, uint64_t node)
{
    struct mishaps *mishaps = self;
    int64_t delay_ns = mishaps->mishap.kind == MISHAP_DEATH_AND_RETURN ? 50000 : 700000;
    (void)sim;
    mishaps->actions.die(mishaps->actions.self, (uint32_t)node, mishaps->mishap.kind == MISHAP_DEATH_LINGERING);
    if (mishaps->mishap.kind == MISHAP_DEATH_AND_RETURN || mishaps->mishap.kind == MISHAP_DEATH_LONG_RETURN)
        mishaps->actions.come_back(mishaps->actions.self, (uint32_t)node, delay_ns);
}

static void leaves(struct sim *sim, void *self, uint64_t request)
{
    struct mishaps *mishaps = self;
    (void)sim;
    mishaps->actions.leave(mishaps->actions.self, (uint32_t)request);
}

static void soon(struct mishaps *mishaps, void (*run)(struct sim *, void *, uint64_t))
{
    sim_call_at(mishaps->sim, sim_now_ns(mishaps->sim),
                (struct sim_call){.run = run, .self = mishaps, .argument = mishaps->mishap.subject});
}

struct event mishap_event(struct mishaps *mishaps, uint32_t node, const struct event *event)
{
    struct event changed = *event;
    switch (mishaps->mishap.kind) {
    case MISHAP_WRITE_IN_ERROR:
        if (event->kind == EVENT_WRITE_DONE && event->status == WRITE_OK && strikes(mishaps))
            changed.status = WRITE_FAILED;
        break;
    case MISHAP_DEATH:
    case MISHAP_DEATH_LINGERING:
    case MISHAP_DEATH_AND_RETURN:
    case MISHAP_DEATH_LONG_RETURN:
        if (node == mishaps->mishap.subject && strikes(mishaps))
            soon(mishaps, dies);
        break;
    case MISHAP_CLIENT_LEAVES:
        if (event->kind == EVENT_ARRIVAL && event->status == ARRIVAL_NEW &&
            ((const struct request_spec *)event->data)->id == mishaps->mishap.subject)
            mishaps->arrived = true;
        if (mishaps->arrived && strikes(mishaps))
            soon(mishaps, leaves);
        break;
    default:
        break;
    }
    return changed;
}
