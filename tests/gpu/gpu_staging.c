/* Staging between device memory and pinned host memory: bytes and speed, by piece size and number of batches under
 * way. */
#include "gpu/gpu_check.h"
#include "real/device/cuda/cuda_staging.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define REGION ((size_t)64 << 20)
#define BATCH_BYTES ((uint64_t)4 << 20)
#define ROUNDS 8

/* Moves the region once; piece i of the region to place i * 7 mod n of the buffer, so that a mistaken order shows. */
static bool move_region(struct cuda_staging *staging, enum device_reach_direction direction, uint64_t piece,
                        struct device_reach_piece *pieces)
{
    uint64_t all = REGION / piece;
    uint64_t each = BATCH_BYTES / piece;
    uint64_t target = cuda_staging_done(staging) + all / each;
    struct user_error error = {.set = false};
    for (uint64_t first = 0; first < all; first += each) {
        for (uint64_t i = 0; i < each; i++)
            pieces[i] = (struct device_reach_piece){
                .device_offset = (first + i) * piece, .host_offset = (first + i) * 7 % all * piece, .bytes = piece};
        while (!cuda_staging_submit(staging, direction, pieces, (uint32_t)each))
            if (cuda_staging_done(staging) == UINT64_MAX || !cuda_staging_healthy(staging, &error))
                return false;
    }
    while (cuda_staging_done(staging) < target)
        if (!cuda_staging_healthy(staging, &error))
            return false;
    return true;
}

/* There and back: the region must be what it was. */
static bool there_and_back(struct cuda_staging *staging, uint8_t *device, const uint8_t *original, uint8_t *copy,
                           uint64_t piece, struct device_reach_piece *pieces)
{
    return cudaMemcpy(device, original, REGION, cudaMemcpyHostToDevice) == cudaSuccess &&
           move_region(staging, DEVICE_REACH_TO_HOST, piece, pieces) && cudaMemset(device, 0, REGION) == cudaSuccess &&
           cudaDeviceSynchronize() == cudaSuccess && move_region(staging, DEVICE_REACH_TO_DEVICE, piece, pieces) &&
           cudaMemcpy(copy, device, REGION, cudaMemcpyDeviceToHost) == cudaSuccess &&
           memcmp(copy, original, REGION) == 0;
}

static double speed(struct cuda_staging *staging, enum device_reach_direction direction, uint64_t piece,
                    struct device_reach_piece *pieces)
{
    double start = now_ms();
    for (int i = 0; i < ROUNDS; i++)
        if (!move_region(staging, direction, piece, pieces))
            return 0;
    return (double)ROUNDS * (double)REGION / (now_ms() - start) * 1e-6;
}

static void check_piece(uint8_t *device, const uint8_t *original, uint8_t *copy, uint64_t piece, uint32_t batches)
{
    struct user_error error = {.text = "no memory"};
    uint32_t each = (uint32_t)(BATCH_BYTES / piece);
    struct device_reach_piece *pieces = malloc(each * sizeof *pieces);
    struct cuda_staging *staging = pieces == NULL ? NULL : cuda_staging_make(0, device, REGION, batches, each, &error);
    if (staging == NULL) {
        report(false, "staging", "%s", error.text);
        free(pieces);
        return;
    }
    bool equal = there_and_back(staging, device, original, copy, piece, pieces);
    double out = speed(staging, DEVICE_REACH_TO_HOST, piece, pieces);
    double in = speed(staging, DEVICE_REACH_TO_DEVICE, piece, pieces);
    report(equal && out > 0 && in > 0, "staging", "%3u KiB pieces, %u batches under way: %.1f GB/s out, %.1f GB/s in",
           (uint32_t)(piece >> 10), batches, out, in);
    cuda_staging_free(staging);
    free(pieces);
}

void check_staging(void)
{
    uint8_t *device = NULL;
    uint8_t *original = malloc(REGION), *copy = malloc(REGION);
    if (original == NULL || copy == NULL || cudaMalloc((void **)&device, REGION) != cudaSuccess) {
        report(false, "staging", "no memory");
    } else {
        for (size_t i = 0; i < REGION; i++)
            original[i] = (uint8_t)(i * 131 + (i >> 12));
        check_piece(device, original, copy, 4096, 1);
        check_piece(device, original, copy, 32768, 1);
        check_piece(device, original, copy, 32768, 4);
        check_piece(device, original, copy, 262144, 4);
    }
    cudaFree(device);
    free(original);
    free(copy);
}
