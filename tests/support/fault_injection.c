/* See fault_injection.h. */
#include "support/fault_injection.h"

#include "base/limits.h"
#include "messenger/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const char *injection_name(enum injected_fault_kind kind)
{
    static const char *const names[INJECT_KINDS] = {
        [INJECT_NONE] = "none",
        [INJECT_WRITE_FAILED] = "write failed",
        [INJECT_WRITE_IN_ERROR] = "write in error",
        [INJECT_WRITE_LATE] = "write late",
        [INJECT_WRITE_HALF] = "write fails half way",
        [INJECT_WRITE_IN_PIECES] = "write in pieces",
        [INJECT_WRITE_UNCONFIRMED] = "write confirmed late",
        [INJECT_NIC_STALLED] = "NIC stalled",
        [INJECT_MESSAGE_LATE] = "message late",
        [INJECT_MESSAGE_TWICE] = "message twice",
        [INJECT_MESSAGE_LOST] = "message lost",
        [INJECT_PREFILL_REFUSED] = "prefill refused",
        [INJECT_GEOMETRY_REFUSED] = "geometry refused",
        [INJECT_DEATH] = "death",
        [INJECT_DEATH_LINGERING] = "death with writes under way",
        [INJECT_DEATH_AND_RETURN] = "death and return",
        [INJECT_DEATH_LONG_RETURN] = "death and return after the fence",
        [INJECT_CLIENT_LEAVES] = "client leaves",
    };
    return names[kind];
}

bool injection_is_late(enum injected_fault_kind kind)
{
    return kind == INJECT_WRITE_LATE || kind == INJECT_WRITE_IN_PIECES || kind == INJECT_NIC_STALLED ||
           kind == INJECT_MESSAGE_LATE || kind == INJECT_MESSAGE_LOST;
}

/* Counts what can go wrong; true for the one that does. */
static bool strikes(struct fault_injection *injection)
{
    if (++injection->seen != injection->fault.nth)
        return false;
    injection->struck = true;
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
    struct fault_injection *injection = self;
    (void)now_ns;
    (void)source;
    (void)destination;
    switch (injection->fault.kind) {
    case INJECT_MESSAGE_LATE:
        return (struct message_fault){.copies = 1, .delay_ns = strikes(injection) ? INJECT_LATE_NS : 0};
    case INJECT_MESSAGE_TWICE:
        return (struct message_fault){.copies = strikes(injection) ? 2 : 1};
    case INJECT_MESSAGE_LOST:
        return (struct message_fault){.copies = deadline_covers(bytes, length) && strikes(injection) ? 0 : 1};
    default:
        return (struct message_fault){.copies = 1};
    }
}

static struct write_fault write_goes(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write)
{
    struct fault_injection *injection = self;
    (void)now_ns;
    (void)source;
    (void)write;
    switch (injection->fault.kind) {
    case INJECT_WRITE_LATE:
        return (struct write_fault){.delay_ns = strikes(injection) ? INJECT_LATE_NS : 0};
    case INJECT_WRITE_HALF:
        return strikes(injection) ? (struct write_fault){.pieces = 4, .piece_ns = 20000, .fails = true}
                                  : (struct write_fault){.delay_ns = 0};
    case INJECT_WRITE_IN_PIECES:
        return strikes(injection) ? (struct write_fault){.pieces = 8, .piece_ns = INJECT_LATE_NS / 8}
                                  : (struct write_fault){.delay_ns = 0};
    case INJECT_WRITE_UNCONFIRMED:
        return (struct write_fault){.confirm_ns = strikes(injection) ? INJECT_LATE_NS : 0};
    default:
        return (struct write_fault){.delay_ns = 0};
    }
}

void injection_make(struct fault_injection *injection, const struct injected_fault *fault, struct sim *sim,
                    const struct injection_actions *actions)
{
    *injection = (struct fault_injection){.fault = *fault, .actions = *actions, .sim = sim};
    sim_set_faults(sim, &(struct sim_faults){.self = injection, .message = message_goes, .write = write_goes});
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

static void nic_recovers(struct sim *sim, void *self, uint64_t node)
{
    (void)self;
    if (sim_alive(sim, (uint32_t)node))
        sim_nic(sim, (uint32_t)node, 0, true);
}

void injection_post(struct fault_injection *injection, uint32_t node, struct paged_write *write)
{
    if (injection->fault.kind == INJECT_WRITE_FAILED && strikes(injection))
        write->destination_incarnation = UINT32_MAX; /* the fabric finds nobody there */
    if (injection->fault.kind == INJECT_NIC_STALLED && strikes(injection)) {
        sim_nic(injection->sim, node, 0, false);
        sim_call_at(injection->sim, sim_now_ns(injection->sim) + INJECT_LATE_NS,
                    (struct sim_call){.run = nic_recovers, .argument = node});
    }
}

void injection_send(struct fault_injection *injection, const void **bytes, size_t *length)
{
    static unsigned char buffer[MESSAGE_BYTES_MAX];
    static uint64_t blocks[REQUEST_BLOCKS_MAX];
    static uint32_t pages[REQUEST_PAGES_MAX];
    bool geometry = injection->fault.kind == INJECT_GEOMETRY_REFUSED;
    struct message m;
    if (!geometry && injection->fault.kind != INJECT_PREFILL_REFUSED)
        return;
    assert_true(wire_decode(*bytes, *length, &m));
    if (m.kind != MESSAGE_PREFILL || !strikes(injection))
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
    struct fault_injection *injection = self;
    int64_t delay_ns = injection->fault.kind == INJECT_DEATH_AND_RETURN ? 50000 : 700000;
    (void)sim;
    injection->actions.die(injection->actions.self, (uint32_t)node, injection->fault.kind == INJECT_DEATH_LINGERING);
    if (injection->fault.kind == INJECT_DEATH_AND_RETURN || injection->fault.kind == INJECT_DEATH_LONG_RETURN)
        injection->actions.come_back(injection->actions.self, (uint32_t)node, delay_ns);
}

static void leaves(struct sim *sim, void *self, uint64_t request)
{
    struct fault_injection *injection = self;
    (void)sim;
    injection->actions.leave(injection->actions.self, (uint32_t)request);
}

static void soon(struct fault_injection *injection, void (*run)(struct sim *, void *, uint64_t))
{
    sim_call_at(injection->sim, sim_now_ns(injection->sim),
                (struct sim_call){.run = run, .self = injection, .argument = injection->fault.subject});
}

struct event injection_event(struct fault_injection *injection, uint32_t node, const struct event *event)
{
    struct event changed = *event;
    switch (injection->fault.kind) {
    case INJECT_WRITE_IN_ERROR:
        if (event->kind == EVENT_WRITE_DONE && event->status == WRITE_OK && strikes(injection))
            changed.status = WRITE_FAILED;
        break;
    case INJECT_DEATH:
    case INJECT_DEATH_LINGERING:
    case INJECT_DEATH_AND_RETURN:
    case INJECT_DEATH_LONG_RETURN:
        if (node == injection->fault.subject && strikes(injection))
            soon(injection, dies);
        break;
    case INJECT_CLIENT_LEAVES:
        if (event->kind == EVENT_ARRIVAL && event->status == ARRIVAL_NEW &&
            ((const struct request_spec *)event->data)->id == injection->fault.subject)
            injection->arrived = true;
        if (injection->arrived && strikes(injection))
            soon(injection, leaves);
        break;
    default:
        break;
    }
    return changed;
}
