/* See fake_device.h. */
#include "support/fake_device.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

static struct fake_device *of(struct device_reach *reach)
{
    return (struct fake_device *)(void *)reach;
}

static bool fake_read(struct device_reach *reach, uint64_t offset, void *to, size_t bytes)
{
    memcpy(to, of(reach)->memory + offset, bytes);
    return true;
}

static bool fake_write(struct device_reach *reach, uint64_t offset, const void *from, size_t bytes)
{
    memcpy(of(reach)->memory + offset, from, bytes);
    return true;
}

static void *fake_stage(struct device_reach *reach, size_t host_bytes, uint32_t batches, uint32_t pieces,
                        struct user_error *error)
{
    struct fake_device *fake = of(reach);
    (void)error;
    fake->host = calloc(1, host_bytes);
    fake->batches_max = batches;
    fake->pieces_max = pieces;
    fake->pieces = calloc((size_t)batches * pieces, sizeof *fake->pieces);
    fake->counts = calloc(batches, sizeof *fake->counts);
    fake->directions = calloc(batches, sizeof *fake->directions);
    CHECK(fake->host != NULL && fake->pieces != NULL && fake->counts != NULL && fake->directions != NULL);
    return fake->host;
}

static bool fake_submit(struct device_reach *reach, enum device_reach_direction direction,
                        const struct device_reach_piece *pieces, uint32_t count)
{
    struct fake_device *fake = of(reach);
    CHECK(count > 0 && count <= fake->pieces_max);
    if (fake->submitted - fake->done == fake->batches_max)
        return false;
    uint64_t batch = fake->submitted++ % fake->batches_max;
    memcpy(fake->pieces + batch * fake->pieces_max, pieces, count * sizeof *pieces);
    fake->counts[batch] = count;
    fake->directions[batch] = direction;
    return true;
}

static void copy(struct fake_device *fake, uint64_t batch)
{
    for (uint32_t i = 0; i < fake->counts[batch]; i++) {
        const struct device_reach_piece *piece = &fake->pieces[batch * fake->pieces_max + i];
        CHECK(piece->device_offset + piece->bytes <= fake->bytes);
        CHECK(piece->device_offset % 4 == 0 && piece->host_offset % 4 == 0 && piece->bytes % 4 == 0);
        if (fake->directions[batch] == DEVICE_REACH_TO_HOST)
            memcpy(fake->host + piece->host_offset, fake->memory + piece->device_offset, piece->bytes);
        else
            memcpy(fake->memory + piece->device_offset, fake->host + piece->host_offset, piece->bytes);
    }
}

static uint64_t fake_done(struct device_reach *reach)
{
    struct fake_device *fake = of(reach);
    if (fake->broken)
        return UINT64_MAX;
    if (fake->done < fake->submitted && ++fake->asked > fake->patience) {
        copy(fake, fake->done++ % fake->batches_max);
        fake->asked = 0;
    }
    return fake->done;
}

static struct device_reach_statistics fake_statistics(const struct device_reach *reach)
{
    const struct fake_device *fake = (const struct fake_device *)(const void *)reach;
    return (struct device_reach_statistics){.batches = fake->done};
}

static void fake_free(struct device_reach *reach)
{
    fake_device_free(of(reach));
}

void fake_device_make(struct fake_device *fake, void *memory, uint64_t bytes, bool direct, uint32_t patience)
{
    static const struct device_reach_ops ops = {
        .free = fake_free,
        .read = fake_read,
        .write = fake_write,
        .stage = fake_stage,
        .submit = fake_submit,
        .done = fake_done,
        .statistics = fake_statistics,
    };
    *fake = (struct fake_device){.memory = memory, .bytes = bytes, .patience = patience};
    if (!direct) {
        fake->decoy = calloc(1, bytes);
        CHECK(fake->decoy != NULL);
    }
    fake->reach =
        (struct device_reach){.ops = &ops, .address = direct ? memory : (void *)fake->decoy, .kind = DEVICE_REACH_HOST};
}

void fake_device_free(struct fake_device *fake)
{
    free(fake->decoy);
    free(fake->host);
    free(fake->pieces);
    free(fake->counts);
    free(fake->directions);
    *fake = (struct fake_device){.memory = NULL};
}
