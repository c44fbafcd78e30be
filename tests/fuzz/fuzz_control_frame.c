/* Bytes from a peer of the control plane: frames, every body, and the changes of a step. Whatever is read lies within
 * the input, and what reads back is written alike.
 */
#include "base/check.h"
#include "real/control/frame.h"
#include "real/cluster/rows.h"
#include "real/executor/step_codec.h"
#include "real/cluster/summary.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_bodies(const struct frame *frame)
{
    struct hello hello;
    struct peer_place place;
    struct step_row step;
    struct transfer_row transfer;
    static struct instance_end end;
    unsigned char again[FRAME_GREETING_BYTES_MAX];
    struct frame_writer writer = {.bytes = again, .size = sizeof again};
    if (hello_read(frame, &hello)) {
        hello_write(&writer, &hello);
        CHECK(!writer.full && writer.used == frame->length);
        CHECK(memchr(hello.address, '\0', sizeof hello.address) != NULL);
    }
    if (peer_place_read(frame, &place))
        CHECK(memchr(place.address, '\0', sizeof place.address) != NULL);
    if (step_row_read(frame, 1, &step))
        CHECK(frame->length == STEP_ROW_BYTES && step.node == 1);
    if (transfer_row_read(frame, 1, &transfer))
        CHECK(frame->length == TRANSFER_ROW_BYTES && transfer.source == 1);
    if (instance_end_read(frame, &end))
        CHECK(end.ledger.busy_ns >= 0);
}

static void read_changes(const uint8_t *data, size_t size)
{
    const struct step_bounds bounds = {4, 64, 4096, 256, 32, 512};
    uint32_t pages[32];
    struct step_change change;
    size_t at = 0;
    for (;;) {
        size_t before = at;
        if (step_change_decode(data, size, &at, &bounds, pages, 32, &change) != STEP_DECODED)
            return;
        CHECK(at - before == step_change_bytes(&change) && at <= size);
        CHECK(change.group < bounds.groups && change.sequence < bounds.sequences);
        unsigned char again[STEP_CHANGE_BYTES + sizeof pages];
        CHECK(step_change_encode(&change, again) == at - before);
        CHECK(memcmp(again, data + before, at - before) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy of exactly this size, so that a sanitizer sees a read past its end. */
    uint8_t *copy = malloc(size + (size == 0));
    CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    struct frame frame;
    size_t at = 0;
    while (frame_next(copy + at, size - at, FRAME_BODY_BYTES_MAX, &frame) == FRAME_WHOLE) {
        CHECK(frame.body + frame.length <= copy + size);
        read_bodies(&frame);
        at += FRAME_HEADER_BYTES + frame.length;
    }
    read_bodies(&(struct frame){.kind = FRAME_HELLO, .length = (uint32_t)size, .body = copy});
    read_changes(copy, size);
    free(copy);
    return 0;
}
