/* What decodes as a message encodes to the same bytes again, but for the header's reserve. */
#include "base/check.h"
#include "messenger/wire.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct message m;
    if (!wire_decode(data, size, &m))
        return 0;
    uint64_t *blocks = malloc(((size_t)m.block_count + 1) * sizeof *blocks);
    uint32_t *pages = malloc(((size_t)m.page_count + 1) * sizeof *pages);
    unsigned char *again = malloc(size);
    CHECK(blocks != NULL && pages != NULL && again != NULL);
    wire_blocks(&m, blocks);
    wire_pages(&m, pages);
    CHECK(wire_encode(&m, blocks, pages, again, size) == size);
    CHECK(memcmp(again, data, 120) == 0);
    CHECK(memcmp(again + WIRE_HEADER_BYTES, data + WIRE_HEADER_BYTES, size - WIRE_HEADER_BYTES) == 0);
    free(blocks);
    free(pages);
    free(again);
    return 0;
}
