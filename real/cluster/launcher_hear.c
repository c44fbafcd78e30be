/* What the launcher hears from the other processes. */
#include "real/cluster/launcher_internal.h"

#include "base/arith.h"
#include "real/cluster/rows.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Meeting ----------------------------------------------------------------------------------------------------- */

static void name_peers(struct launcher *launcher, uint32_t node)
{
    for (uint32_t i = 1; i < launcher->node_count; i++) {
        if (!real_world_acquainted(&launcher->world, node, i) || !launcher->remotes[i].up)
            continue;
        unsigned char bytes[CONTROL_ADDRESS_BYTES + 16];
        struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
        struct peer_place place = {.node = i, .port = launcher->remotes[i].place.port};
        memcpy(place.address, launcher->remotes[i].place.address, sizeof place.address);
        peer_place_write(&writer, &place);
        mesh_send(launcher->mesh, node, FRAME_PEER, bytes, writer.used);
    }
    mesh_send(launcher->mesh, node, FRAME_PEERS_END, NULL, 0);
}

static void ask_clock(struct launcher *launcher, uint32_t node)
{
    unsigned char bytes[8];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u64(&writer, (uint64_t)clock_now_ns());
    mesh_send(launcher->mesh, node, FRAME_CLOCK_ASK, bytes, writer.used);
    mesh_flush(launcher->mesh);
}

void launcher_up(void *self, uint32_t node, const struct hello *hello)
{
    struct launcher *launcher = self;
    struct remote *remote = &launcher->remotes[node];
    CHECK(hello != NULL);
    remote->up = true;
    remote->ready = false;
    remote->place = *hello;
    real_runtime_peer_up(launcher->real, node, hello->incarnation);
    struct hello own;
    real_world_hello(&launcher->world, 0, launcher->token, &own);
    /* Where there is one clock, there is nothing to estimate. */
    remote->clock_apart = own.clock[0] == '\0' || strcmp(own.clock, hello->clock) != 0;
    if (remote->clock_apart) {
        remote->clock_asks = CLOCK_ASKS;
        remote->clock = clock_estimate_none();
        remote->clock_after = clock_estimate_none();
        ask_clock(launcher, node);
    }
    /* A replacement learns who is there; those who come after it learn of it. */
    if (launcher->started) {
        name_peers(launcher, node);
        return;
    }
    for (uint32_t i = 1; i < launcher->node_count; i++)
        if (!launcher->remotes[i].up)
            return;
    for (uint32_t i = 1; i < launcher->node_count; i++)
        name_peers(launcher, i);
}

static bool clock_answer(struct launcher *launcher, uint32_t node, const struct frame *frame)
{
    struct remote *remote = &launcher->remotes[node];
    struct frame_reader reader = frame_read(frame);
    int64_t asked_ns = (int64_t)read_u64(&reader);
    int64_t stamp_ns = (int64_t)read_u64(&reader);
    bool after = launcher->started && !remote->replacing;
    struct clock_estimate *estimate = after ? &remote->clock_after : &remote->clock;
    if (!read_end(&reader) || remote->clock_asks == 0 ||
        !clock_estimate_add(estimate, asked_ns, stamp_ns, clock_now_ns()))
        return false;
    if (--remote->clock_asks > 0)
        ask_clock(launcher, node);
    return true;
}

void launcher_ask_clocks(struct launcher *launcher)
{
    for (uint32_t i = 1; i < launcher->node_count; i++) {
        struct remote *remote = &launcher->remotes[i];
        if (!remote->clock_apart || remote->lost)
            continue;
        remote->clock_asks = CLOCK_ASKS;
        ask_clock(launcher, i);
    }
}

static bool ready(struct launcher *launcher, uint32_t node, const struct frame *frame)
{
    struct remote *remote = &launcher->remotes[node];
    char text[NICS_TEXT_BYTES];
    if (remote->ready || !ready_read(frame, &remote->nics, text))
        return false;
    remote->ready = true;
    /* Worth a line to whoever looks at transfers. */
    if (launcher->transfers != NULL && remote->nics.ranks > 0)
        run_notice(launcher->run, "%s over %s", launcher_name(launcher, node), text);
    return true;
}

/* ---- While it runs ----------------------------------------------------------------------------------------------- */

static bool trace_batch(struct launcher *launcher, uint32_t node, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    int64_t complete_ns = (int64_t)read_u64(&reader);
    uint32_t count = read_u32(&reader);
    for (uint32_t i = 0; i < count && !reader.bad; i++) {
        struct timed_record record;
        timed_record_read(&reader, (uint16_t)node, &record);
        if (!reader.bad && record.time_ns >= 0)
            trace_merge_add(launcher->merge, node, &record);
    }
    if (!read_end(&reader) || complete_ns < 0 || complete_ns == INT64_MAX)
        return false;
    trace_merge_promise(launcher->merge, node, complete_ns);
    return true;
}

static bool token_batch(struct launcher *launcher, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    while (!reader.bad && reader.at < reader.length) {
        struct device_token token;
        token_row_read(&reader, &token);
        if (!reader.bad && launcher->tokens != NULL && !token_book_add(launcher->tokens, &token))
            run_break(launcher->run, RUN_INVARIANT, "request %u: token %u was produced twice, and not alike",
                      token.request, token.position);
    }
    return read_end(&reader);
}

static bool rows(struct launcher *launcher, uint32_t node, const struct frame *frame)
{
    const struct run_listener *listener = &launcher->run->config->listener;
    struct step_row step;
    struct transfer_row transfer;
    if (frame->kind == FRAME_STEPS) {
        if (!step_row_read(frame, (uint16_t)node, &step))
            return false;
        if (listener->steps != NULL)
            listener->steps(listener->self, &step);
        return true;
    }
    if (!transfer_row_read(frame, (uint16_t)node, &transfer))
        return false;
    if (launcher->transfers != NULL)
        transfer_book_add(launcher->transfers, &transfer);
    return true;
}

static bool finished(struct launcher *launcher, uint32_t node, const struct frame *frame)
{
    struct remote *remote = &launcher->remotes[node];
    if (remote->end != NULL)
        return false;
    remote->end = calloc(1, sizeof *remote->end);
    CHECK(remote->end != NULL);
    remote->finished = instance_end_read(frame, remote->end);
    trace_merge_promise(launcher->merge, node, INT64_MAX);
    return remote->finished;
}

void launcher_frame(void *self, uint32_t node, const struct frame *frame)
{
    struct launcher *launcher = self;
    bool sense = true;
    switch (frame->kind) {
    case FRAME_READY:
        sense = ready(launcher, node, frame);
        break;
    case FRAME_CLOCK_ANSWER:
        sense = clock_answer(launcher, node, frame);
        break;
    case FRAME_MESSAGE:
    case FRAME_ANSWERS:
        sense = !launcher->started || real_runtime_frame(launcher->real, node, frame);
        break;
    case FRAME_TRACE:
        sense = trace_batch(launcher, node, frame);
        break;
    case FRAME_TOKENS:
        sense = token_batch(launcher, frame);
        break;
    case FRAME_STEPS:
    case FRAME_TRANSFER:
        sense = rows(launcher, node, frame);
        break;
    case FRAME_FINISHED:
        sense = finished(launcher, node, frame);
        break;
    case FRAME_TROUBLE:
        if (!launcher->started)
            run_break(launcher->run, RUN_REFUSED, "%s: %.*s", launcher_name(launcher, node), (int)frame->length,
                      (const char *)frame->body);
        else
            run_notice(launcher->run, "%s: %.*s", launcher_name(launcher, node), (int)min_u32(frame->length, 400),
                       (const char *)frame->body);
        break;
    default:
        sense = false;
        break;
    }
    if (!sense)
        run_break(launcher->run, RUN_REFUSED, "%s sent a frame that makes no sense (kind %u)",
                  launcher_name(launcher, node), frame->kind);
}

void launcher_down(void *self, uint32_t node, const char *why)
{
    struct launcher *launcher = self;
    struct remote *remote = &launcher->remotes[node];
    if (remote->finished)
        return;
    remote->up = false;
    if (remote->replacing) {
        launcher_in_vain(launcher, node);
        return;
    }
    remote->lost = true;
    if (!launcher->started) {
        run_break(launcher->run, RUN_REFUSED, "%s: %s", launcher_name(launcher, node), why);
        return;
    }
    run_notice(launcher->run, "%s is lost: %s", launcher_name(launcher, node), why);
    trace_merge_promise(launcher->merge, node, INT64_MAX);
    real_runtime_peer_down(launcher->real, node);
    launcher_lost(launcher, node);
}
