/* A rank's KV memory in a device, as the process of its instance reaches it: mapped for the device, but not for the
 * processor. What is read and written here is copied; NICs either take the device's addresses or are served through
 * pinned memory of the host, between which and the device batches of pieces are copied without anybody waiting.
 */
#ifndef TANDEM_REAL_DEVICE_DEVICE_REACH_H
#define TANDEM_REAL_DEVICE_DEVICE_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/user_error.h"

struct device_reach_config {
    int descriptor;  /* as the rank's device has shared it; stays the caller's */
    uint64_t bytes;  /* kv_memory_bytes() */
    uint32_t number; /* device_config.device_first + rank */
};

/* Offsets in the device's region and in the host buffer; multiples of 4, fastest as multiples of 16. */
struct device_reach_piece {
    uint64_t device_offset;
    uint64_t host_offset;
    uint64_t bytes;
};

enum device_reach_direction {
    DEVICE_REACH_TO_HOST = 1,
    DEVICE_REACH_TO_DEVICE = 2,
};

/* Of the batches that are done: their bytes, and the time from start to end of their copies, summed. */
struct device_reach_statistics {
    uint64_t batches;
    uint64_t bytes;
    int64_t copy_ns;
};

enum device_reach_kind {
    DEVICE_REACH_HOST = 1, /* ordinary memory after all: for tests */
    DEVICE_REACH_CUDA = 2,
};

struct device_reach;

struct device_reach_ops {
    void (*free)(struct device_reach *reach);

    /* Copies bytes and waits; callable on any thread. False when the device fails. */
    bool (*read)(struct device_reach *reach, uint64_t offset, void *to, size_t bytes);
    bool (*write)(struct device_reach *reach, uint64_t offset, const void *from, size_t bytes);

    /* Staging; one thread uses it. Makes the pinned buffer, of host_bytes; batches of at most `pieces` may be under
     * way, at most `batches` of them. The buffer, or NULL with a sentence. Once. */
    void *(*stage)(struct device_reach *reach, size_t host_bytes, uint32_t batches, uint32_t pieces,
                   struct user_error *error);
    /* Starts a batch; false when as many as allowed are under way. Batches are done in the order of submission. */
    bool (*submit)(struct device_reach *reach, enum device_reach_direction direction,
                   const struct device_reach_piece *pieces, uint32_t count);
    /* The number of batches done since the beginning; UINT64_MAX after an error of the device: none will ever be. */
    uint64_t (*done)(struct device_reach *reach);
    struct device_reach_statistics (*statistics)(const struct device_reach *reach);
};

struct device_reach {
    const struct device_reach_ops *ops;
    void *address; /* as the device knows it, and a NIC that can be told of it */
    enum device_reach_kind kind;
    int ordinal;  /* the device's number among those of its kind that this process sees */
    char pci[16]; /* "domain:bus:device.function", in hexadecimal digits; empty: not known */
};

#endif
