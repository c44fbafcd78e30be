/* SHA-256 gives one digest however the input is cut. The first bytes of the input say where. */
#include "base/check.h"
#include "host/sha256.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char whole[SHA256_HEX_SIZE], pieces[SHA256_HEX_SIZE];
    struct sha256 hash;
    sha256_start(&hash);
    sha256_add(&hash, data, size);
    sha256_hex(&hash, whole);

    sha256_start(&hash);
    size_t done = 0;
    for (size_t cut = 0; done < size; cut = (cut + 1) % size) {
        size_t length = data[cut] < size - done ? data[cut] : size - done;
        /* An input of zeros would not get on. */
        if (length == 0 && cut == size - 1)
            length = 1;
        sha256_add(&hash, data + done, length);
        done += length;
    }
    sha256_hex(&hash, pieces);
    CHECK(strcmp(whole, pieces) == 0);
    return 0;
}
