/* What goes wrong in the world: instances that die and come back, NICs that fail, messages and writes that are lost or
 * late. */
#include "sim/engine/sim_internal.h"

/* Takes back everything that is pending for the node itself. Its messages on their way are no longer its own; those to
 * it and what its peers' writes have to tell it are dropped when they come up, by their incarnation. */
static void silence(struct sim *sim, struct sim_node *node)
{
    for (uint32_t slot = 0; slot < TIMERS_MAX; slot++) {
        if (node->timer[slot] != HANDLE_NONE)
            event_queue_cancel(sim->queue, node->timer[slot]);
        node->timer[slot] = HANDLE_NONE;
    }
    for (uint32_t i = 0; i < node->stages; i++) {
        struct launch *launch = &node->launches[i];
        node->stage_free_ns[i] = 0;
        if (!launch->running)
            continue;
        CHECK(launch->handle != HANDLE_NONE);
        event_queue_cancel(sim->queue, launch->handle);
        launch->running = false;
    }
    for (uint32_t slot = 0; slot < node->expectation_count; slot++)
        node->expectations[slot].armed = false;
}

/* The queue entry keeps the ticket: what it is about must not be another write by then. */
void sim_write_fence(struct sim *sim, uint32_t index, int64_t fence_ns)
{
    struct write *write = &sim->writes[index];
    if (fence_ns >= write->fence_ns)
        return;
    write->fence_ns = fence_ns;
    write->pending++;
    sim_push(sim, fence_ns, pending_pack(PENDING_FENCE, write->source, 0, index));
}

void sim_fence(struct sim *sim, uint32_t index)
{
    struct write *write = &sim->writes[index];
    write->pending--;
    if (write->flowing) {
        network_kill(sim->network, sim->now_ns, write->flow);
        write->flowing = false;
        if (write->linked)
            sim_write_fail(sim, index);
    }
    sim_write_release(sim, index);
}

static void kill_flows(struct sim *sim, uint32_t dead, bool lingers, int64_t fence_ns)
{
    for (uint32_t index = 0; index < sim->write_used; index++) {
        struct write *write = &sim->writes[index];
        bool from = write->linked && write->source == dead;
        bool to = write->linked && write->spec.destination == dead;
        if (from)
            sim_write_fence(sim, index, fence_ns);
        if (write->flowing && (to || (from && !lingers))) {
            network_kill(sim->network, sim->now_ns, write->flow);
            write->flowing = false;
            if (to && !from)
                sim_write_fail(sim, index);
        }
        if (from) {
            sim_write_unlink(sim, index);
            sim_write_release(sim, index);
        }
    }
}

/* `lost`: the node that is lost, and its incarnation << 16. */
static void tell_of_loss(struct sim *sim, uint32_t peer, uint32_t lost, uint32_t how)
{
    int64_t suspect_ns = time_add(sim->now_ns, sim->detection.suspect_ns);
    int64_t fence_ns = time_add(suspect_ns, sim->detection.fence_ns);
    sim_push(sim, suspect_ns, pending_pack(PENDING_LOST, peer, PEER_SUSPECTED | how, lost));
    sim_push(sim, fence_ns, pending_pack(PENDING_LOST, peer, PEER_FENCED | how, lost));
}

/* A connection that was lost may be there again by the time that it is missed: one of its ends was replaced. */
void sim_lost(struct sim *sim, struct sim_node *node, uint32_t aux, uint32_t index)
{
    uint32_t peer = index & 0xffff;
    uint32_t status = aux & ~LOST_BY_CUT;
    int64_t left_ns = status == PEER_FENCED ? 0 : sim->detection.fence_ns;
    int64_t cut_ns = sim->cut_fence_ns[(size_t)node->runtime.node * sim->node_count + peer];
    if ((aux & LOST_BY_CUT) != 0 && cut_ns != time_add(sim->now_ns, left_ns))
        return;
    sim_hand_over(
        sim, node,
        &(struct event){.kind = EVENT_PEER_LOST, .status = (uint16_t)status, .id = peer, .count = index >> 16});
}

static void kill_node(struct sim *sim, uint32_t dead, bool lingers)
{
    CHECK(dead < sim->node_count);
    struct sim_node *node = &sim->nodes[dead];
    CHECK(node->alive && !node->inside);
    uint32_t lost = dead | node->incarnation << 16;
    int64_t fence_ns = time_add(sim->now_ns, sim->detection.suspect_ns + sim->detection.fence_ns);
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].died != NULL)
            sim->listeners[i].died(sim->listeners[i].self, dead);
    node->alive = false;
    node->incarnation++;
    CHECK(node->incarnation <= UINT16_MAX);
    silence(sim, node);
    kill_flows(sim, dead, lingers, fence_ns);
    for (uint32_t peer = 0; peer < sim->node_count; peer++)
        if (peer != dead && sim->nodes[peer].alive)
            tell_of_loss(sim, peer, lost, 0);
}

void sim_kill(struct sim *sim, uint32_t dead)
{
    kill_node(sim, dead, false);
}

void sim_kill_lingering(struct sim *sim, uint32_t dead)
{
    kill_node(sim, dead, true);
}

bool sim_is_cut(const struct sim *sim, uint32_t a, uint32_t b)
{
    return sim->cut_fence_ns[(size_t)a * sim->node_count + b] != TIME_NEVER;
}

void sim_cut(struct sim *sim, uint32_t a, uint32_t b)
{
    CHECK(a < sim->node_count && b < sim->node_count && a != b && sim->nodes[a].alive && sim->nodes[b].alive);
    if (sim_is_cut(sim, a, b))
        return;
    int64_t fence_ns = time_add(sim->now_ns, sim->detection.suspect_ns + sim->detection.fence_ns);
    sim->cut_fence_ns[(size_t)a * sim->node_count + b] = fence_ns;
    sim->cut_fence_ns[(size_t)b * sim->node_count + a] = fence_ns;
    for (uint32_t index = 0; index < sim->write_used; index++) {
        const struct write *write = &sim->writes[index];
        if (write->linked && ((write->source == a && write->spec.destination == b) ||
                              (write->source == b && write->spec.destination == a)))
            sim_write_fence(sim, index, fence_ns);
    }
    tell_of_loss(sim, a, b | sim->nodes[b].incarnation << 16, LOST_BY_CUT);
    tell_of_loss(sim, b, a | sim->nodes[a].incarnation << 16, LOST_BY_CUT);
}

void sim_restart(struct sim *sim, uint32_t index, struct participant participant)
{
    CHECK(index < sim->node_count && participant.handle != NULL);
    struct sim_node *node = &sim->nodes[index];
    CHECK(!node->alive);
    node->alive = true;
    node->incarnation++; /* what was sent to it while it was dead is lost too */
    node->step_end_ns = -1;
    for (uint32_t i = 0; i < node->stages; i++)
        node->launches[i].decode_end_ns = -1;
    node->participant = participant;
    sim_push(sim, sim->now_ns, pending_pack(PENDING_START, index, 0, 0));
    for (uint32_t peer = 0; peer < sim->node_count; peer++) {
        sim->cut_fence_ns[(size_t)index * sim->node_count + peer] = TIME_NEVER;
        sim->cut_fence_ns[(size_t)peer * sim->node_count + index] = TIME_NEVER;
    }
    /* It was not there when others were lost, and finds out now. */
    for (uint32_t peer = 0; peer < sim->node_count; peer++)
        if (peer != index && sim->nodes[peer].incarnation > 0)
            tell_of_loss(sim, index, peer | (sim->nodes[peer].incarnation - 1) << 16, 0);
}

bool sim_alive(const struct sim *sim, uint32_t node)
{
    CHECK(node < sim->node_count);
    return sim->nodes[node].alive;
}

void sim_nic(struct sim *sim, uint32_t node, uint32_t rank, bool up)
{
    network_nic(sim->network, sim->now_ns, node, rank, up);
}

void sim_set_faults(struct sim *sim, const struct sim_faults *faults)
{
    sim->faults = *faults;
}
