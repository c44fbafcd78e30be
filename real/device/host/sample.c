/* Logits, greedy sampling and tails on the host device.
 *
 * A rank of the last stage computes the logits of its part of the vocabulary and keeps the largest; then its ranks
 * learn all candidates, and the stages before read the tokens when they go on with the microbatch: the first embeds
 * them.
 */
#include "real/device/host/host_device.h"

#include "base/arith.h"
#include "real/device/host/linear.h"

#include <stdlib.h>
#include <string.h>

/* A candidate is two floats: the logit, and the token's bits. */
static void candidate_put(float *pair, float logit, uint32_t token)
{
    pair[0] = logit;
    memcpy(&pair[1], &token, sizeof token);
}

static uint32_t candidate_token(const float *pair)
{
    uint32_t token;
    memcpy(&token, &pair[1], sizeof token);
    return token;
}

static void keep_best(const struct host_device *device, const float *logits, float *pair)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < device->shape.vocab_count; i++)
        if (logits[i] > logits[best])
            best = i;
    candidate_put(pair, logits[best], device->shape.vocab_first + best);
}

/* The lead rank keeps hidden state and logits of the last position of a chunk. */
static bool keep_tail(struct host_device *device, const struct host_span *span, const float *logits)
{
    const struct host_shape *shape = &device->shape;
    const struct architecture *a = &device->architecture;
    float **tail = &device->tails[span->sequence];
    for (uint32_t t = 0; t < shape->tensor; t++)
        device->counts[t] = host_vocab_first(a, shape->tensor, t + 1) - host_vocab_first(a, shape->tensor, t);
    if (*tail == NULL) {
        *tail = malloc(((size_t)a->hidden + a->vocab) * sizeof **tail);
        if (*tail == NULL)
            return false;
    }
    memcpy(*tail, device->x + (size_t)(span->row_first + span->rows - 1) * a->hidden, a->hidden * sizeof **tail);
    return collective_all_gather_counts(device->config.collective, shape->group_first, shape->tensor, logits,
                                        device->counts, *tail + a->hidden);
}

/* Computes the logits of spans [first, first + count), all of which are sampled. */
static bool spans_logits(struct host_device *device, const struct host_span *const *spans, uint32_t count, float *pairs)
{
    const struct architecture *a = &device->architecture;
    for (uint32_t i = 0; i < count; i++)
        linear_rms_norm(device->x + (size_t)(spans[i]->row_first + spans[i]->rows - 1) * a->hidden,
                        device->weights.norm_final, device->normed_last + (size_t)i * a->hidden, a->hidden);
    linear_product(&(struct product){.x = device->normed_last,
                                     .x_stride = a->hidden,
                                     .weights = device->weights.lm_head,
                                     .y = device->logits,
                                     .y_stride = device->shape.vocab_count,
                                     .rows = count,
                                     .outputs = device->shape.vocab_count,
                                     .units = 1,
                                     .width = a->hidden});
    for (uint32_t i = 0; i < count; i++) {
        const float *logits = device->logits + (size_t)i * device->shape.vocab_count;
        keep_best(device, logits, pairs + (size_t)i * 2);
        if (spans[i]->chunk && device->config.memory.tail_bytes > 0 && !keep_tail(device, spans[i], logits))
            return false;
    }
    return true;
}

static bool group_logits(struct host_device *device)
{
    const struct host_span *tile[HOST_LOGIT_ROWS];
    uint32_t filled = 0;
    uint32_t done = 0;
    for (uint32_t i = 0; i < device->batch.span_count; i++) {
        if (device->batch.spans[i].sample)
            tile[filled++] = &device->batch.spans[i];
        bool last = i + 1 == device->batch.span_count;
        if (filled == 0 || (filled < HOST_LOGIT_ROWS && !last))
            continue;
        if (!spans_logits(device, tile, filled, device->pairs + (size_t)done * 2))
            return false;
        done += filled;
        filled = 0;
    }
    return true;
}

/* Which token the group's ranks agree on for sample `sample`: equal logits go to the lowest id, and ranks hold
 * ascending parts of the vocabulary. */
static uint32_t best_of_group(const struct host_device *device, const float *group_pairs, uint32_t sample)
{
    const float *best = group_pairs + (size_t)sample * 2;
    for (uint32_t t = 1; t < device->shape.tensor; t++) {
        const float *other = group_pairs + ((size_t)t * device->batch.samples + sample) * 2;
        if (other[0] > best[0])
            best = other;
    }
    return candidate_token(best);
}

static uint32_t board_of(const struct host_device *device, uint32_t microbatch)
{
    return microbatch * device->shape.data + device->shape.group;
}

bool host_take_sampled(struct host_device *device)
{
    for (uint32_t m = 0; m < device->shape.stages; m++) {
        struct host_awaited *awaited = &device->awaited[m];
        bool wait = m == device->slots.microbatch;
        if (awaited->count == 0)
            continue;
        if (!collective_read(device->config.collective, board_of(device, m), awaited->posts, wait, device->words,
                             awaited->count)) {
            if (wait)
                return false;
            continue;
        }
        for (uint32_t i = 0; i < awaited->count; i++) {
            const struct device_token *item = &awaited->items[i];
            struct slot *s = &device->slots.slot[item->sequence];
            if (s->live && s->request == item->request)
                slot_sampled(s, device->words[i], item->position);
        }
        awaited->count = 0;
    }
    return true;
}

/* Notes what the coming token of a span will be, and where it is known already, takes it. */
static void sampled(struct host_device *device, struct host_awaited *awaited, const struct host_span *span,
                    uint32_t token, bool known)
{
    struct slot *s = &device->slots.slot[span->sequence];
    uint32_t position = span->position + span->rows;
    if (known)
        slot_sampled(s, token, position);
    if (awaited->items == NULL)
        return;
    device->words[awaited->count] = token;
    awaited->items[awaited->count++] =
        (struct device_token){.sequence = span->sequence, .request = s->request, .position = position};
}

/* Ranks of the last stage agree on the tokens, and its leads post them for the stages before, which wait for nobody. */
bool host_sample(struct host_device *device, bool prefill_tokens, struct device_token *tokens, uint32_t *token_count)
{
    const struct host_shape *shape = &device->shape;
    struct host_awaited *awaited = &device->awaited[device->slots.microbatch];
    size_t own = 0; /* where the candidates of this group begin */
    if (shape->last_stage && !group_logits(device))
        return false;
    for (uint32_t rank = 0; rank < shape->stage_ranks; rank++) {
        uint32_t group = rank / shape->tensor;
        device->counts[rank] = (size_t)device->batch.group_samples[group] * 2;
        if (group < shape->group)
            own += device->counts[rank];
    }
    if (shape->last_stage &&
        !collective_all_gather_counts(device->config.collective, shape->stage_first, shape->stage_ranks, device->pairs,
                                      device->counts, device->pairs_all))
        return false;
    uint32_t sample = 0;
    for (uint32_t i = 0; i < device->batch.span_count; i++) {
        const struct host_span *span = &device->batch.spans[i];
        if (!span->sample)
            continue;
        uint32_t token = shape->last_stage ? best_of_group(device, device->pairs_all + own, sample) : 0;
        sample++;
        if (span->chunk && !prefill_tokens)
            continue;
        sampled(device, awaited, span, token, shape->last_stage);
        if (shape->last_stage && shape->t == 0)
            tokens[(*token_count)++] = (struct device_token){.sequence = span->sequence,
                                                             .request = device->slots.slot[span->sequence].request,
                                                             .position = span->position + span->rows,
                                                             .token = token};
    }
    if (awaited->count == 0)
        return true;
    awaited->posts++;
    if (!shape->last_stage)
        return true;
    if (shape->t == 0)
        collective_post(device->config.collective, board_of(device, device->slots.microbatch), device->words,
                        awaited->count);
    awaited->count = 0;
    return true;
}

void host_tail_store(struct host_device *device, uint32_t sequence, uint32_t slot)
{
    const struct kv_memory *memory = &device->config.memory;
    const float *tail = device->tails[sequence];
    if (tail == NULL || device->shape.t != 0)
        return;
    size_t bytes = ((size_t)device->architecture.hidden + device->architecture.vocab) * sizeof *tail;
    uint8_t *to = device->kv + kv_memory_tail_offset(memory, device->config.rank, slot);
    memset(to, 0, memory->tail_bytes);
    memcpy(to, tail, min_u64(bytes, memory->tail_bytes));
}
