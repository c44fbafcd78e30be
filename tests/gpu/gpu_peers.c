#define _GNU_SOURCE
/* The all-reduce over peers' memory: two processes, each with memory that it exports and the other maps, add up vectors
 * of several lengths; the sums must be those of the host, bit for bit. On GPUs of their own where there are two, and
 * there the time of a call is of interest; on one GPU the processes' kernels take turns, and a call takes as long as
 * the turns of both.
 */
#include "gpu/gpu_check.h"
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/cuda/cuda_memory.h"
#include "real/device/kernels/kernel.h"
#include "real/memory/descriptors.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 2u
#define CAPACITY ((uint64_t)1 << 20)
#define BYTES (CUDA_PEER_FLAGS_BYTES + 2 * CAPACITY * sizeof(float))
#define PATIENCE_MS 30000.0
#define CALLS 200u

static const uint32_t lengths[] = {1, 4096, 65536, 1000003};

struct answer {
    bool equal;
    bool apart; /* each rank on a GPU of its own */
    double call_us[sizeof lengths / sizeof *lengths];
};

/* Of a rank's element: sums depend on their order. */
static float value(uint32_t rank, uint32_t call, uint32_t i)
{
    uint32_t bits = (rank * 7919u + call * 104729u + i) * 2654435761u;
    return (float)(bits >> 8) / (float)(1u << (bits % 20)) - 1000.0f;
}

struct rank {
    uint32_t rank;
    int socket;
    int ordinal;
    struct cuda_driver driver;
    struct cuda_memory own;
    struct cuda_memory other;
    struct cuda_all_reduce all;
    uint8_t *abandon; /* pinned */
    float *host;
    cudaStream_t stream;
};

/* Waits for the stream; lets the kernel go when that takes too long. */
static bool wait_for(struct rank *rank)
{
    double until = now_ms() + PATIENCE_MS;
    cudaError_t status;
    while ((status = cudaStreamQuery(rank->stream)) == cudaErrorNotReady && now_ms() < until)
        usleep(20);
    bool ended = status == cudaSuccess;
    *(volatile uint8_t *)rank->abandon = !ended;
    return cudaStreamSynchronize(rank->stream) == cudaSuccess && ended;
}

static bool make(struct rank *rank)
{
    struct user_error error = {.set = false};
    int count = 0;
    uint32_t number;
    int descriptor = -1;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        return false;
    rank->ordinal = (int)(rank->rank % (uint32_t)count);
    if (cudaSetDevice(rank->ordinal) != cudaSuccess || !cuda_driver_load(&rank->driver, &error) ||
        !cuda_memory_make(&rank->own, &rank->driver, rank->ordinal, BYTES, &error)) {
        printf("peers: %s\n", error.text);
        return false;
    }
    int mine = cuda_memory_export(&rank->own, &error);
    bool exchanged = mine >= 0 && descriptor_send(rank->socket, rank->rank, mine) &&
                     descriptor_receive(rank->socket, &number, &descriptor) && descriptor >= 0;
    if (!exchanged || !cuda_memory_import(&rank->other, &rank->driver, rank->ordinal, descriptor, BYTES, &error)) {
        printf("peers: %s\n", error.text);
        return false;
    }
    close(mine);
    close(descriptor);
    void *mapped = NULL;
    cudaError_t status = cudaHostAlloc((void **)&rank->abandon, 1, cudaHostAllocMapped);
    if (status == cudaSuccess)
        status = cudaHostGetDevicePointer(&mapped, rank->abandon, 0);
    if (status == cudaSuccess)
        status = cudaMalloc((void **)&rank->all.values, CAPACITY * sizeof(float));
    if (status == cudaSuccess)
        status = cudaMalloc((void **)&rank->all.sequence, CUDA_PEER_BLOCKS * sizeof(uint32_t));
    if (status == cudaSuccess)
        status = cudaMemset(rank->all.sequence, 0, CUDA_PEER_BLOCKS * sizeof(uint32_t));
    if (status == cudaSuccess)
        status = cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking);
    rank->host = malloc(CAPACITY * sizeof *rank->host);
    if (status != cudaSuccess || rank->host == NULL)
        return false;
    *rank->abandon = 0;
    rank->all.memory[rank->rank] = cuda_memory_pointer(&rank->own);
    rank->all.memory[1 - rank->rank] = cuda_memory_pointer(&rank->other);
    rank->all.abandon = mapped;
    rank->all.capacity = CAPACITY;
    rank->all.rank = rank->rank;
    rank->all.ranks = RANKS;
    return cudaDeviceSynchronize() == cudaSuccess;
}

static bool call(struct rank *rank, uint32_t number, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        rank->host[i] = value(rank->rank, number, i);
    bool good = cudaMemcpy(rank->all.values, rank->host, n * sizeof *rank->host, cudaMemcpyHostToDevice) == cudaSuccess;
    rank->all.n = n;
    if (good)
        cuda_all_reduce(&rank->all, rank->stream);
    good = good && wait_for(rank) &&
           cudaMemcpy(rank->host, rank->all.values, n * sizeof *rank->host, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (uint32_t i = 0; i < n && good; i++) {
        float expected = value(0, number, i) + value(1, number, i);
        good = kernel_float_bits(expected) == kernel_float_bits(rank->host[i]);
    }
    return good;
}

/* Calls one after another, queued at once. */
static double call_us(struct rank *rank, uint32_t n)
{
    rank->all.n = n;
    double start = now_ms();
    for (uint32_t i = 0; i < CALLS; i++)
        cuda_all_reduce(&rank->all, rank->stream);
    return wait_for(rank) ? (now_ms() - start) * 1e3 / CALLS : -1;
}

static int rank_main(int socket, uint32_t index, int result)
{
    struct rank rank = {.rank = index, .socket = socket};
    int count = 0;
    if (!make(&rank) || cudaGetDeviceCount(&count) != cudaSuccess)
        return 1;
    struct answer answer = {.equal = true, .apart = count >= (int)RANKS};
    for (uint32_t number = 0; number < 3 * sizeof lengths / sizeof *lengths && answer.equal; number++)
        answer.equal = call(&rank, number, lengths[number % (sizeof lengths / sizeof *lengths)]);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && answer.equal && answer.apart; i++)
        answer.call_us[i] = call_us(&rank, lengths[i]);
    cuda_memory_free(&rank.other);
    cuda_memory_free(&rank.own);
    free(rank.host);
    return write(result, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1;
}

void check_peers(void)
{
    int sockets[2], results[2][2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0 || pipe(results[0]) != 0 || pipe(results[1]) != 0) {
        report(false, "peers", "no sockets");
        return;
    }
    fflush(stdout);
    pid_t children[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        children[r] = fork();
        if (children[r] != 0)
            continue;
        close(sockets[1 - r]);
        int status = rank_main(sockets[r], r, results[r][1]);
        fflush(stdout);
        _exit(status);
    }
    struct answer answers[RANKS];
    bool good = true;
    memset(answers, 0, sizeof answers);
    for (uint32_t r = 0; r < RANKS; r++) {
        int status = 0;
        close(sockets[r]);
        close(results[r][1]);
        good &= read(results[r][0], &answers[r], sizeof answers[r]) == (ssize_t)sizeof answers[r] && answers[r].equal;
        close(results[r][0]);
        good &= waitpid(children[r], &status, 0) == children[r] && status == 0;
    }
    if (answers[0].apart)
        report(good, "peers",
               "two ranks' sums over each other's memory are the host's; a call of %u / %u / %u floats: "
               "%.1f / %.1f / %.1f us",
               lengths[1], lengths[2], lengths[3], answers[0].call_us[1], answers[0].call_us[2], answers[0].call_us[3]);
    else
        report(good, "peers", "two ranks' sums over each other's memory %s the host's (one GPU: in turns, not timed)",
               good ? "are" : "are not");
}
