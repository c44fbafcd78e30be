/* See cuda_staging.h. */
#include "real/device/cuda/cuda_staging.h"

#include "base/check.h"
#include "real/device/cuda/cuda_kernels.h"

#include <stdio.h>
#include <stdlib.h>

struct batch {
    cudaEvent_t start;
    cudaEvent_t end;
    struct cuda_piece *pieces; /* mapped host memory, read by the kernel */
    uint64_t bytes;
};

struct cuda_staging {
    int ordinal;
    uint8_t *device;
    uint8_t *host;        /* pinned */
    uint8_t *host_mapped; /* the same as the GPU sees it */
    size_t host_bytes;
    uint32_t batch_max;
    uint32_t piece_max;
    struct batch *batches; /* batch n uses batches[n % batch_max] */
    struct cuda_piece *pieces;
    struct cuda_piece *pieces_mapped;
    cudaStream_t stream;
    uint64_t submitted;
    uint64_t done;
    cudaError_t failure;
    struct device_reach_statistics statistics;
};

static cudaError_t staging_resources(struct cuda_staging *s)
{
    cudaError_t status = cudaSetDevice(s->ordinal);
    if (status == cudaSuccess)
        status = cudaHostAlloc((void **)&s->host, s->host_bytes, cudaHostAllocMapped | cudaHostAllocPortable);
    if (status == cudaSuccess)
        status = cudaHostGetDevicePointer((void **)&s->host_mapped, s->host, 0);
    size_t piece_bytes = (size_t)s->batch_max * s->piece_max * sizeof *s->pieces;
    if (status == cudaSuccess)
        status = cudaHostAlloc((void **)&s->pieces, piece_bytes, cudaHostAllocMapped);
    if (status == cudaSuccess)
        status = cudaHostGetDevicePointer((void **)&s->pieces_mapped, s->pieces, 0);
    if (status == cudaSuccess)
        status = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    for (uint32_t i = 0; i < s->batch_max && status == cudaSuccess; i++) {
        s->batches[i].pieces = s->pieces + (size_t)i * s->piece_max;
        status = cudaEventCreate(&s->batches[i].start);
        if (status == cudaSuccess)
            status = cudaEventCreate(&s->batches[i].end);
    }
    return status;
}

struct cuda_staging *cuda_staging_make(int ordinal, void *device, size_t host_bytes, uint32_t batches, uint32_t pieces,
                                       struct user_error *error)
{
    CHECK(batches > 0 && pieces > 0 && host_bytes > 0);
    struct cuda_staging *s = calloc(1, sizeof *s);
    struct batch *table = calloc(batches, sizeof *table);
    if (s == NULL || table == NULL) {
        user_error_set(error, NULL, 0, NULL, "no memory for staging");
        free(s);
        free(table);
        return NULL;
    }
    *s = (struct cuda_staging){.ordinal = ordinal,
                               .device = device,
                               .host_bytes = host_bytes,
                               .batch_max = batches,
                               .piece_max = pieces,
                               .batches = table};
    cudaError_t status = staging_resources(s);
    if (status != cudaSuccess) {
        user_error_set(error, NULL, 0, NULL, "no pinned memory for staging: %s", cudaGetErrorString(status));
        cuda_staging_free(s);
        return NULL;
    }
    return s;
}

void cuda_staging_free(struct cuda_staging *s)
{
    if (s == NULL)
        return;
    if (s->stream != NULL) {
        cudaStreamSynchronize(s->stream);
        cudaStreamDestroy(s->stream);
    }
    for (uint32_t i = 0; i < s->batch_max; i++) {
        if (s->batches[i].start != NULL)
            cudaEventDestroy(s->batches[i].start);
        if (s->batches[i].end != NULL)
            cudaEventDestroy(s->batches[i].end);
    }
    cudaFreeHost(s->pieces);
    cudaFreeHost(s->host);
    free(s->batches);
    free(s);
}

void *cuda_staging_host(const struct cuda_staging *s)
{
    return s->host;
}

bool cuda_staging_submit(struct cuda_staging *s, enum device_reach_direction direction,
                         const struct device_reach_piece *pieces, uint32_t count)
{
    CHECK(count > 0 && count <= s->piece_max);
    if (s->submitted - s->done == s->batch_max)
        return false;
    struct batch *batch = &s->batches[s->submitted % s->batch_max];
    bool to_host = direction == DEVICE_REACH_TO_HOST;
    batch->bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct device_reach_piece *piece = &pieces[i];
        CHECK(piece->host_offset <= s->host_bytes && piece->bytes <= s->host_bytes - piece->host_offset);
        CHECK((piece->host_offset | piece->device_offset | piece->bytes) % 4 == 0);
        batch->pieces[i] = (struct cuda_piece){.source = to_host ? piece->device_offset : piece->host_offset,
                                               .destination = to_host ? piece->host_offset : piece->device_offset,
                                               .bytes = piece->bytes};
        batch->bytes += piece->bytes;
    }
    struct cuda_copy copy = {.from = to_host ? s->device : s->host_mapped,
                             .to = to_host ? s->host_mapped : s->device,
                             .pieces = s->pieces_mapped + (s->submitted % s->batch_max) * s->piece_max};
    s->submitted++;
    cudaError_t status = cudaSetDevice(s->ordinal); /* the caller's thread may use several */
    if (status == cudaSuccess)
        status = cudaEventRecord(batch->start, s->stream);
    if (status == cudaSuccess) {
        cuda_copy(&copy, count, s->stream);
        status = cudaGetLastError();
    }
    if (status == cudaSuccess)
        status = cudaEventRecord(batch->end, s->stream);
    if (status != cudaSuccess && s->failure == cudaSuccess)
        s->failure = status;
    return true;
}

uint64_t cuda_staging_done(struct cuda_staging *s)
{
    while (s->done < s->submitted && s->failure == cudaSuccess) {
        struct batch *batch = &s->batches[s->done % s->batch_max];
        cudaError_t status = cudaEventQuery(batch->end);
        if (status == cudaErrorNotReady)
            break;
        float ms = 0;
        if (status == cudaSuccess)
            status = cudaEventElapsedTime(&ms, batch->start, batch->end);
        if (status != cudaSuccess) {
            s->failure = status;
            break;
        }
        s->done++;
        s->statistics.batches++;
        s->statistics.bytes += batch->bytes;
        s->statistics.copy_ns += (int64_t)((double)ms * 1e6);
    }
    return s->done;
}

bool cuda_staging_healthy(const struct cuda_staging *s, struct user_error *error)
{
    if (s->failure == cudaSuccess)
        return true;
    user_error_set(error, NULL, 0, NULL, "staging fails: %s", cudaGetErrorString(s->failure));
    return false;
}

struct device_reach_statistics cuda_staging_statistics(const struct cuda_staging *s)
{
    return s->statistics;
}
