#define _GNU_SOURCE
/* A prefiller and a decoder, two processes on one GPU. The prefiller computes a prompt and exports its KV memory; the
 * decoder imports it, copies the pages into its own, compares digests that the prefiller took, and decodes. Its tokens
 * must be those of one process that does both.
 */
#include "gpu/gpu_check.h"
#include "real/device/cuda/cuda_memory.h"
#include "real/memory/descriptors.h"

#include <cuda_runtime_api.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROMPT 401u /* 400 tokens are computed: 25 pages of 16 */
#define OUTPUT 16u
#define CHUNK 160u
#define PAGES_MAX 64
#define DIGESTS_MAX 512

/* What the prefiller says beside the descriptor. */
struct handoff {
    uint32_t digest_count;
    uint32_t pages[PAGES_MAX];
    uint64_t digests[DIGESTS_MAX]; /* [layer][plane][page] */
};

struct answer {
    bool digests_match;
    uint32_t tokens[OUTPUT];
};

static bool make(struct run *run, uint32_t model)
{
    struct architecture a = small_model(model);
    return run_make(run, &device_cuda, &a, 1, PROMPT + OUTPUT, CHUNK);
}

static bool prefill(struct run *run)
{
    bool ran = true;
    for (uint32_t start = 0; start < PROMPT - 1 && ran; start += CHUNK) {
        run_chunk(run, 0, start, PROMPT - 1 - start < CHUNK ? PROMPT - 1 - start : CHUNK);
        ran = run_step(run, false);
    }
    return ran;
}

static bool decode(struct run *run, uint32_t *tokens)
{
    bool ran = true;
    run_leave(run, 0); /* a sequence that joins right after its chunk would go on from the token sampled there */
    run_join(run, 0, PROMPT - 1);
    for (uint32_t i = 0; i < OUTPUT && ran; i++) {
        ran = run_step(run, false) && run->token_count == 1;
        tokens[i] = run->tokens[0].token;
    }
    return ran;
}

static uint32_t prompt_pages(void)
{
    return (PROMPT - 1 + RUN_PAGE_TOKENS - 1) / RUN_PAGE_TOKENS;
}

static int prefiller(int socket, uint32_t model)
{
    struct run run;
    struct user_error error = {.set = false};
    if (!make(&run, model) || !prefill(&run))
        return 1;
    struct handoff handoff = {0};
    const struct kv_geometry *g = &run.config.memory.geometry;
    for (uint32_t i = 0; i < prompt_pages(); i++)
        handoff.pages[i] = run.pages[i];
    for (uint32_t layer = 0; layer < g->layers; layer++)
        for (uint32_t plane = 0; plane < g->planes; plane++)
            for (uint32_t i = 0; i < prompt_pages(); i++)
                handoff.digests[handoff.digest_count++] = run.ops->page_digest(run.device, layer, plane, run.pages[i]);
    int descriptor = run.ops->share(run.device, DEVICE_SHARE_KV, &error);
    if (descriptor < 0 || !descriptor_send(socket, 0, descriptor) ||
        send(socket, &handoff, sizeof handoff, 0) != (ssize_t)sizeof handoff)
        return 1;
    char done;
    (void)!recv(socket, &done, 1, 0); /* the memory must outlive the copy; also when the decoder dies */
    close(descriptor);
    run_free(&run);
    return 0;
}

/* Copies every page of the prompt into the decoder's region; page i of the request to its own page i. */
static bool fetch(struct run *run, const struct handoff *handoff, const struct cuda_memory *from)
{
    const struct kv_memory *memory = &run->config.memory;
    const uint8_t *source = cuda_memory_pointer(from);
    uint8_t *destination = cuda_device_kv(run->device);
    bool copied = true;
    for (uint32_t layer = 0; layer < memory->geometry.layers; layer++)
        for (uint32_t plane = 0; plane < memory->geometry.planes; plane++)
            for (uint32_t i = 0; i < prompt_pages(); i++)
                copied &= cudaMemcpy(destination + kv_memory_page_offset(memory, 0, layer, plane, run->pages[i]),
                                     source + kv_memory_page_offset(memory, 0, layer, plane, handoff->pages[i]),
                                     kv_page_plane_bytes(&memory->geometry), cudaMemcpyDefault) == cudaSuccess;
    return copied && cudaDeviceSynchronize() == cudaSuccess;
}

static int decoder(int socket, int result, uint32_t model)
{
    struct run run;
    struct handoff handoff;
    struct cuda_driver driver;
    struct cuda_memory memory;
    struct answer answer = {.digests_match = true};
    struct user_error error = {.set = false};
    uint32_t number;
    int descriptor;
    if (!descriptor_receive(socket, &number, &descriptor) || descriptor < 0 ||
        recv(socket, &handoff, sizeof handoff, MSG_WAITALL) != (ssize_t)sizeof handoff || !make(&run, model))
        return 1;
    if (!cuda_driver_load(&driver, &error) ||
        !cuda_memory_import(&memory, &driver, 0, descriptor, kv_memory_bytes(&run.config.memory, 0), &error)) {
        printf("decoder: %s\n", error.text);
        return 1;
    }
    close(descriptor);
    if (!fetch(&run, &handoff, &memory))
        return 1;
    cuda_memory_free(&memory);
    (void)!send(socket, "d", 1, MSG_NOSIGNAL);
    const struct kv_geometry *g = &run.config.memory.geometry;
    uint32_t at = 0;
    for (uint32_t layer = 0; layer < g->layers; layer++)
        for (uint32_t plane = 0; plane < g->planes; plane++)
            for (uint32_t i = 0; i < prompt_pages(); i++)
                answer.digests_match &=
                    handoff.digests[at++] == run.ops->page_digest(run.device, layer, plane, run.pages[i]);
    if (!decode(&run, answer.tokens))
        return 1;
    run_free(&run);
    return write(result, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1;
}

/* The same in one process. Also a child: the parent must not touch the GPU before it has forked all. */
static int alone(int result, uint32_t model)
{
    struct run run;
    struct answer answer = {.digests_match = true};
    if (!make(&run, model) || !prefill(&run) || !decode(&run, answer.tokens))
        return 1;
    run_free(&run);
    return write(result, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1;
}

static bool read_answer(int pipe_end, struct answer *answer)
{
    return read(pipe_end, answer, sizeof *answer) == (ssize_t)sizeof *answer;
}

static void check_model(uint32_t model)
{
    struct answer pair = {0}, single = {0};
    int sockets[2], results[2], singles[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || pipe(results) != 0 || pipe(singles) != 0) {
        report(false, "two processes", "no sockets");
        return;
    }
    fflush(stdout);
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        close(sockets[i == 0 ? 1 : 0]); /* so that each sees the other's end */
        int status = i == 0   ? prefiller(sockets[0], model)
                     : i == 1 ? decoder(sockets[1], results[1], model)
                              : alone(singles[1], model);
        fflush(stdout);
        _exit(status);
    }
    close(sockets[0]);
    close(sockets[1]);
    close(results[1]);
    close(singles[1]);
    bool answered = read_answer(results[0], &pair) && read_answer(singles[0], &single);
    bool ended = true;
    for (int i = 0; i < 3; i++) {
        int status = 0;
        ended &= waitpid(children[i], &status, 0) == children[i] && status == 0;
    }
    close(results[0]);
    close(singles[0]);
    uint32_t equal = 0;
    for (uint32_t i = 0; i < OUTPUT; i++)
        equal += answered && pair.tokens[i] == single.tokens[i];
    report(answered && ended && pair.digests_match && equal == OUTPUT, "two processes",
           "%-11s prefiller to decoder through an exported handle: pages %s, %u of %u tokens as in one process",
           small_model(model).name, answered && pair.digests_match ? "equal" : "differ", equal, OUTPUT);
}

void check_pair(void)
{
    check_model(1);
    check_model(5);
}
