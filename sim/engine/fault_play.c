/* See fault_play.h. */
#include "sim/engine/fault_play.h"

#include "base/arith.h"
#include "messenger/wire.h"
#include "host/memory.h"
#include "host/user_error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY UINT32_MAX

/* One of the faults, as it stands. */
struct played {
    const struct fault *fault;
    uint32_t node;
    uint32_t to;
    uint32_t by;
    uint32_t seen;    /* records of its kind */
    uint32_t request; /* of the record */
    uint32_t passed;  /* messages or writes that it was about, since it began */
    bool begun;
};

struct fault_play {
    struct sim *sim;
    const struct deployment *deployment;
    struct fault_world world;
    int64_t last_ns;
    uint32_t count;
    struct played *items;
};

/* ---- When -------------------------------------------------------------------------------------------------------- */

static void over(struct sim *sim, void *self, uint64_t index)
{
    struct fault_play *play = self;
    const struct played *p = &play->items[index];
    play->last_ns = sim_now_ns(sim);
    if (p->fault->kind == FAULT_NIC)
        sim_nic(sim, p->node, p->fault->rank, true);
    else if (!sim_alive(sim, p->node))
        play->world.restart(play->world.self, p->node);
}

static void kill(struct sim *sim, const struct played *p)
{
    if (!sim_alive(sim, p->node))
        return;
    if (p->fault->lingers)
        sim_kill_lingering(sim, p->node);
    else
        sim_kill(sim, p->node);
}

static void leave(struct sim *sim, uint32_t request)
{
    struct request_spec spec = {.id = request, .deadline_ns = TIME_NEVER};
    sim_deliver(sim, 0, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_ABORT, .id = request, .data = &spec});
}

static void begin(struct sim *sim, void *self, uint64_t index)
{
    struct fault_play *play = self;
    struct played *p = &play->items[index];
    play->last_ns = sim_now_ns(sim);
    p->begun = true;
    switch (p->fault->kind) {
    case FAULT_KILL:
        kill(sim, p);
        break;
    case FAULT_CUT:
        if (sim_alive(sim, p->node) && sim_alive(sim, p->to))
            sim_cut(sim, p->node, p->to);
        break;
    case FAULT_NIC:
        sim_nic(sim, p->node, p->fault->rank, false);
        break;
    case FAULT_LEAVE:
        if (p->fault->request != FAULT_REQUEST_ANY || p->request != TRACE_NO_REQUEST)
            leave(sim, p->fault->request != FAULT_REQUEST_ANY ? p->fault->request : p->request);
        break;
    default:
        return; /* it waits for what it is about */
    }
    int64_t back_ns = p->fault->back_ns;
    if (p->fault->kind == FAULT_KILL && back_ns == TIME_NEVER)
        back_ns = play->world.replaced_ns(play->world.self, p->node);
    if (back_ns != TIME_NEVER)
        sim_call_at(sim, time_add(sim_now_ns(sim), back_ns),
                    (struct sim_call){.run = over, .self = play, .argument = index});
}

static void begin_at(struct fault_play *play, uint32_t index, int64_t at_ns)
{
    sim_call_at(play->sim, at_ns, (struct sim_call){.run = begin, .self = play, .argument = index});
}

static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct fault_play *play = self;
    for (uint32_t i = 0; i < play->count; i++) {
        struct played *p = &play->items[i];
        if (p->fault->record != record->kind || (p->by != ANY && p->by != record->node))
            continue;
        if (++p->seen != p->fault->nth)
            continue;
        p->request = record->request;
        begin_at(play, i, time_add(now_ns, p->fault->at_ns));
    }
}

/* ---- What happens to messages and writes --------------------------------------------------------------------------
 */

/* Whether the fault is about what passes from `source` to `destination`, and its turn has come. */
static bool hits(struct fault_play *play, struct played *p, uint32_t source, uint32_t destination)
{
    if (!p->begun || (p->node != ANY && p->node != source) || (p->to != ANY && p->to != destination))
        return false;
    uint32_t number = p->passed++;
    if (number < p->fault->skip || (p->fault->count != 0 && number - p->fault->skip >= p->fault->count))
        return false;
    play->last_ns = sim_now_ns(play->sim);
    return true;
}

static struct message_fault on_message(void *self, int64_t now_ns, uint32_t source, uint32_t destination,
                                       const void *bytes, size_t length)
{
    struct fault_play *play = self;
    struct message_fault fault = {.copies = 1};
    bool lost = false;
    struct message m;
    bool covered = wire_decode(bytes, length, &m) && message_loss_is_covered(m.kind);
    (void)now_ns;
    for (uint32_t i = 0; i < play->count; i++) {
        struct played *p = &play->items[i];
        bool about =
            p->fault->kind == FAULT_LATE || p->fault->kind == FAULT_TWICE || (p->fault->kind == FAULT_DROP && covered);
        if (!about || !hits(play, p, source, destination))
            continue;
        fault.delay_ns = time_add(fault.delay_ns, p->fault->kind == FAULT_LATE ? p->fault->delay_ns : 0);
        fault.copies = p->fault->kind == FAULT_TWICE ? 2 : fault.copies;
        lost = lost || p->fault->kind == FAULT_DROP;
    }
    fault.copies = lost ? 0 : fault.copies;
    return fault;
}

static struct write_fault on_write(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write)
{
    struct fault_play *play = self;
    struct write_fault fault = {0};
    (void)now_ns;
    for (uint32_t i = 0; i < play->count; i++) {
        struct played *p = &play->items[i];
        bool about = p->fault->kind == FAULT_SLOW || p->fault->kind == FAULT_STALL || p->fault->kind == FAULT_FAIL;
        if (!about || !hits(play, p, source, write->destination))
            continue;
        if (p->fault->kind == FAULT_STALL)
            fault.confirm_ns = time_add(fault.confirm_ns, p->fault->delay_ns);
        else if (p->fault->kind == FAULT_FAIL)
            fault.fails = true;
        else
            fault.delay_ns = time_add(fault.delay_ns, p->fault->delay_ns);
        if (p->fault->pieces > 1) {
            fault.pieces = p->fault->pieces;
            fault.piece_ns = p->fault->delay_ns;
        }
    }
    return fault;
}

static int64_t on_ticks(void *self, int64_t now_ns, uint32_t source, const struct paged_write *write)
{
    struct fault_play *play = self;
    int64_t late_ns = -1;
    (void)now_ns;
    for (uint32_t i = 0; i < play->count; i++) {
        struct played *p = &play->items[i];
        if (p->fault->kind == FAULT_TICKS && hits(play, p, source, write->destination))
            late_ns = max_i64(late_ns, p->fault->delay_ns);
    }
    return late_ns;
}

/* ---- Making one -------------------------------------------------------------------------------------------------- */

static bool find(const struct deployment *deployment, const char *name, uint32_t *node)
{
    *node = ANY;
    for (uint32_t i = 0; i < deployment->node_count && name[0] != '\0'; i++)
        if (strcmp(deployment->instances[i].name, name) == 0)
            *node = i;
    return name[0] == '\0' || *node != ANY;
}

static bool resolve(struct fault_play *play, uint32_t index, struct user_error *error)
{
    struct played *p = &play->items[index];
    const struct fault *fault = p->fault;
    const struct deployment *deployment = play->deployment;
    const char *missing = !find(deployment, fault->node, &p->node) ? fault->node
                          : !find(deployment, fault->to, &p->to)   ? fault->to
                          : !find(deployment, fault->by, &p->by)   ? fault->by
                                                                   : NULL;
    if (missing != NULL)
        user_error_set(error, NULL, 0, NULL, "faults.%" PRIu32 ": there is no instance '%s'", index + 1, missing);
    else if (fault->kind == FAULT_NIC && fault->rank >= deployment->instances[p->node].ranks)
        user_error_set(error, NULL, 0, NULL, "faults.%" PRIu32 ".rank: %s has %" PRIu32 " ranks", index + 1,
                       fault->node, deployment->instances[p->node].ranks);
    else
        return true;
    return false;
}

struct fault_play *fault_play_make(const struct fault_list *faults, struct sim *sim,
                                   const struct deployment *deployment, const struct fault_world *world,
                                   struct user_error *error)
{
    struct fault_play *play = memory_zeroed(1, sizeof *play);
    *play = (struct fault_play){.sim = sim, .deployment = deployment, .world = *world, .count = faults->count};
    play->items = memory_zeroed(max_u32(1, faults->count), sizeof *play->items);
    bool hooked = false;
    for (uint32_t i = 0; i < faults->count; i++) {
        play->items[i] = (struct played){.fault = &faults->item[i], .request = TRACE_NO_REQUEST};
        if (!resolve(play, i, error)) {
            fault_play_free(play);
            return NULL;
        }
        if (faults->item[i].record == 0)
            begin_at(play, i, faults->item[i].at_ns);
        hooked = hooked || faults->item[i].kind >= FAULT_LATE;
    }
    sim_listen(sim, &(struct sim_listener){.self = play, .trace = on_trace});
    if (hooked)
        sim_set_faults(
            sim, &(struct sim_faults){.self = play, .message = on_message, .write = on_write, .ticks_ns = on_ticks});
    return play;
}

void fault_play_free(struct fault_play *play)
{
    if (play == NULL)
        return;
    free(play->items);
    free(play);
}

int64_t fault_play_last_ns(const struct fault_play *play)
{
    return play->last_ns;
}
