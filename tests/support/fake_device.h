/* A device whose memory is a piece of this process's, for tests of what reaches devices: copies are made when somebody
 * asks whether they are done, after as many questions as the test likes.
 */
#ifndef TANDEM_TESTS_SUPPORT_FAKE_DEVICE_H
#define TANDEM_TESTS_SUPPORT_FAKE_DEVICE_H

#include "real/device/device_reach.h"

struct fake_device {
    struct device_reach reach; /* first */
    unsigned char *memory;
    uint64_t bytes;
    unsigned char *decoy; /* NULL: NICs reach the memory itself */
    unsigned char *host;
    uint32_t batches_max;
    uint32_t pieces_max;
    struct device_reach_piece *pieces; /* [batches_max][pieces_max] */
    uint32_t *counts;
    enum device_reach_direction *directions;
    uint64_t submitted;
    uint64_t done;
    uint32_t patience; /* questions before a batch is copied */
    uint32_t asked;
    bool broken;
};

/* Where not `direct`, a NIC that registers and writes the device's address changes other memory: as providers do that
 * take device memory without knowing it. */
void fake_device_make(struct fake_device *fake, void *memory, uint64_t bytes, bool direct, uint32_t patience);
void fake_device_free(struct fake_device *fake);

#endif
