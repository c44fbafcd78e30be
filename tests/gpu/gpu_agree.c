/* The GPU against the host device: hidden state and logits after prompts of many lengths in chunks, and every decoded
 * token against the host's logits for the same history. The host works in f32 and the GPU multiplies in bf16, so a
 * token may differ where two logits are close.
 */
#include "gpu/gpu_check.h"

#include <math.h>
#include <string.h>

#define SEQUENCES 6
#define OUTPUT 5
#define TOKENS_MAX 192
#define CHUNK 48
#define TAIL_FLOATS (256 + 1000)
#define LOGIT_TOLERANCE 0.2f /* logits have a deviation of 1 */
#define RELATIVE_TOLERANCE 0.05

static const uint32_t prompts[SEQUENCES] = {2, 16, 17, 48, 97, 150};

static double relative_error(const float *values, const float *expected, uint32_t n)
{
    double squares = 0, errors = 0;
    for (uint32_t i = 0; i < n; i++) {
        double error = (double)values[i] - (double)expected[i];
        squares += (double)expected[i] * (double)expected[i];
        errors += error * error;
    }
    return sqrt(errors / squares);
}

/* All prompts but their last tokens, chunk by chunk, all sequences in one step. */
static bool prefill(struct run *run)
{
    for (uint32_t start = 0; start < TOKENS_MAX; start += CHUNK) {
        uint32_t chunks = 0;
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            uint32_t wanted = prompts[s] - 1;
            if (start >= wanted)
                continue;
            run_chunk(run, s, start, wanted - start < CHUNK ? wanted - start : CHUNK);
            chunks++;
        }
        if (chunks > 0 && !run_step(run, false))
            return false;
    }
    return true;
}

/* On the host the history is a prompt and given tokens, all in one chunk; returns how far the token's logit is
 * behind. */
static float behind(struct run *host, uint32_t sequence, const uint32_t *produced, uint32_t count)
{
    float tail[TAIL_FLOATS];
    const float *logits = tail + host->architecture.hidden;
    run_leave(host, sequence);
    run_chunk(host, sequence, 0, prompts[sequence] + count);
    if (count > 0)
        host->ops->given(host->device, sequence, prompts[sequence], produced, count);
    if (!run_step(host, false))
        return INFINITY;
    run_tail(host, sequence, tail);
    float greatest = logits[0];
    for (uint32_t v = 1; v < host->architecture.vocab; v++)
        greatest = logits[v] > greatest ? logits[v] : greatest;
    return greatest - logits[produced[count]];
}

static bool decode(struct run *gpu, uint32_t produced[SEQUENCES][OUTPUT])
{
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        run_leave(gpu, s); /* else it would go on from the token sampled after its chunk, not from its prompt's last */
        run_join(gpu, s, prompts[s] - 1);
    }
    for (uint32_t i = 0; i < OUTPUT; i++) {
        if (!run_step(gpu, false) || gpu->token_count != SEQUENCES)
            return false;
        for (uint32_t t = 0; t < SEQUENCES; t++)
            produced[gpu->tokens[t].sequence][i] = gpu->tokens[t].token;
    }
    return true;
}

static void check_model(uint32_t index)
{
    struct architecture a = small_model(index);
    struct run gpu, host;
    if (!run_make(&gpu, &device_cuda, &a, SEQUENCES, TOKENS_MAX, SEQUENCES * CHUNK) ||
        !run_make(&host, &device_host, &a, SEQUENCES, TOKENS_MAX, SEQUENCES * TOKENS_MAX)) {
        report(false, "agreement", "%s: no device", a.name);
        return;
    }
    uint32_t produced[SEQUENCES][OUTPUT];
    memset(produced, 0, sizeof produced);
    bool ran = prefill(&gpu) && prefill(&host);
    double worst = 0;
    for (uint32_t s = 0; s < SEQUENCES && ran; s++) {
        float tail[TAIL_FLOATS], expected[TAIL_FLOATS];
        run_tail(&gpu, s, tail);
        run_tail(&host, s, expected);
        double error = relative_error(tail, expected, TAIL_FLOATS);
        worst = error > worst || !(error == error) ? error : worst;
    }
    ran = ran && decode(&gpu, produced);
    uint32_t exact = 0;
    float furthest = 0;
    for (uint32_t s = 0; s < SEQUENCES && ran; s++)
        for (uint32_t i = 0; i < OUTPUT; i++) {
            float distance = behind(&host, s, produced[s], i);
            exact += !(distance > 0);
            furthest = distance > furthest ? distance : furthest;
        }
    report(ran && worst < RELATIVE_TOLERANCE && furthest < LOGIT_TOLERANCE, "agreement",
           "%-11s tails within %.1f %%, %u of %u tokens equal, logits at most %.3f behind", a.name, worst * 100, exact,
           (uint32_t)(SEQUENCES * OUTPUT), (double)furthest);
    run_free(&gpu);
    run_free(&host);
}

void check_agreement(void)
{
    for (uint32_t index = 0; index < SMALL_MODELS; index++)
        check_model(index);
}
