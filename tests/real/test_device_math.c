/* The host device against a naive transformer: double precision, no cache, no pages, no shards, keys and values of MLA
 * decompressed for every head, every matrix element asked of its seed when it is used. What they share is the
 * definition of the weights and the rounding of cached elements. Compared are the hidden state and the logits of a
 * prompt's tail.
 */
#include "support/device_instance.h"

#include "base/arith.h"
#include "real/device/kernels/kernel.h"
#include "real/device/kernels/model.h"
#include "real/device/seeded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 21
#define WIDTH_MAX 512
#define WEIGHT_SEED 5
#define TOKEN_SEED 9

static const struct architecture *model;
static double hidden[TOKENS][WIDTH_MAX];

static double weight(enum seeded_kind kind, uint32_t layer, uint32_t expert, uint32_t row, uint32_t column,
                     uint32_t inputs, float gain)
{
    uint64_t matrix = seeded_matrix(WEIGHT_SEED, (uint32_t)kind, layer, expert);
    float value = seeded_weight(matrix, row, column, model_weight_scale(inputs, gain));
    return (double)kernel_bf16_float(kernel_bf16(value));
}

/* y[rows] = rows [row, row + rows) of a matrix times x[inputs]. */
static void multiply(enum seeded_kind kind, uint32_t layer, uint32_t expert, uint32_t row, uint32_t rows,
                     const double *x, uint32_t inputs, float gain, double *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t c = 0; c < inputs; c++)
            y[r] += weight(kind, layer, expert, row + r, c, inputs, gain) * x[c];
    }
}

static void normalise(enum seeded_kind kind, uint32_t layer, const double *x, uint32_t n, double *y)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    double scale = 1 / sqrt(squares / n + 1e-5);
    uint64_t matrix = seeded_matrix(WEIGHT_SEED, (uint32_t)kind, layer, 0);
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * scale * (double)seeded_gain(matrix, i);
}

static void rope(double *x, uint32_t n, uint32_t position)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        double angle = position / pow(10000, 2.0 * i / n);
        double a = x[i];
        double b = x[i + n / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + n / 2] = a * sin(angle) + b * cos(angle);
    }
}

/* As the cache keeps it. */
static void cached(double *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = (double)(model->kv_format == FORMAT_BF16 ? kernel_bf16_float(kernel_bf16((float)x[i]))
                                                        : kernel_fp8_float(kernel_fp8((float)x[i])));
}

/* Attention of one query over keys and values of tokens [first, count). */
static void attend(const double *query, double keys_of[][WIDTH_MAX], double values_of[][WIDTH_MAX], uint32_t first,
                   uint32_t count, uint32_t key_dim, uint32_t value_dim, double *y)
{
    double weights[TOKENS];
    double sum = 0;
    for (uint32_t j = first; j < count; j++) {
        double score = 0;
        for (uint32_t d = 0; d < key_dim; d++)
            score += query[d] * keys_of[j][d];
        weights[j] = exp(score / sqrt(key_dim));
        sum += weights[j];
    }
    for (uint32_t d = 0; d < value_dim; d++) {
        y[d] = 0;
        for (uint32_t j = first; j < count; j++)
            y[d] += weights[j] / sum * values_of[j][d];
    }
}

static double normed[TOKENS][WIDTH_MAX];
static double keys[TOKENS][WIDTH_MAX];
static double values[TOKENS][WIDTH_MAX];
static double outputs[TOKENS][WIDTH_MAX];

static uint32_t first_seen(uint32_t layer, uint32_t position)
{
    /* Of 3 layers with 1 full one, the last sees everything. */
    bool windowed = model->window > 0 && layer + 1 < model->layers;
    return windowed && position >= model->window ? position + 1 - model->window : 0;
}

static void gqa(uint32_t layer)
{
    uint32_t dim = model->head_dim;
    for (uint32_t h = 0; h < model->heads; h++) {
        uint32_t kv = h / (model->heads / model->kv_heads);
        for (uint32_t t = 0; t < TOKENS; t++) {
            multiply(SEEDED_K, layer, 0, kv * dim, dim, normed[t], model->hidden, MODEL_GAIN, keys[t]);
            multiply(SEEDED_V, layer, 0, kv * dim, dim, normed[t], model->hidden, MODEL_GAIN, values[t]);
            rope(keys[t], dim, t);
            cached(keys[t], dim);
            cached(values[t], dim);
        }
        for (uint32_t t = 0; t < TOKENS; t++) {
            double query[WIDTH_MAX];
            multiply(SEEDED_Q, layer, 0, h * dim, dim, normed[t], model->hidden, MODEL_GAIN_QUERY, query);
            rope(query, dim, t);
            attend(query, keys, values, first_seen(layer, t), t + 1, dim, dim, outputs[t] + (size_t)h * dim);
        }
    }
}

static void mla_query(uint32_t layer, uint32_t h, uint32_t t, double *query)
{
    uint32_t dim = model->nope_dim + model->rope_dim;
    double latent[WIDTH_MAX];
    if (model->q_latent_dim > 0) {
        multiply(SEEDED_Q_LATENT, layer, 0, 0, model->q_latent_dim, normed[t], model->hidden, MODEL_GAIN, latent);
        normalise(SEEDED_NORM_Q_LATENT, layer, latent, model->q_latent_dim, latent);
        multiply(SEEDED_Q, layer, 0, h * dim, dim, latent, model->q_latent_dim, MODEL_GAIN_QUERY, query);
    } else {
        multiply(SEEDED_Q, layer, 0, h * dim, dim, normed[t], model->hidden, MODEL_GAIN_QUERY, query);
    }
    rope(query + model->nope_dim, model->rope_dim, t);
}

static void mla(uint32_t layer)
{
    uint32_t latent_dim = model->latent_dim;
    double latents[TOKENS][WIDTH_MAX];
    for (uint32_t t = 0; t < TOKENS; t++) {
        multiply(SEEDED_KV_LATENT, layer, 0, 0, latent_dim + model->rope_dim, normed[t], model->hidden, MODEL_GAIN,
                 latents[t]);
        normalise(SEEDED_NORM_KV_LATENT, layer, latents[t], latent_dim, latents[t]);
        rope(latents[t] + latent_dim, model->rope_dim, t);
        cached(latents[t], latent_dim + model->rope_dim);
    }
    for (uint32_t h = 0; h < model->heads; h++) {
        for (uint32_t t = 0; t < TOKENS; t++) {
            multiply(SEEDED_KV_UP_K, layer, 0, h * model->nope_dim, model->nope_dim, latents[t], latent_dim, MODEL_GAIN,
                     keys[t]);
            memcpy(keys[t] + model->nope_dim, latents[t] + latent_dim, model->rope_dim * sizeof(double));
            multiply(SEEDED_KV_UP_V, layer, 0, h * model->value_dim, model->value_dim, latents[t], latent_dim,
                     MODEL_GAIN, values[t]);
        }
        for (uint32_t t = 0; t < TOKENS; t++) {
            double query[WIDTH_MAX];
            mla_query(layer, h, t, query);
            attend(query, keys, values, 0, t + 1, model->nope_dim + model->rope_dim, model->value_dim,
                   outputs[t] + (size_t)h * model->value_dim);
        }
    }
}

/* y += share * MLP(x). */
static void mlp(enum seeded_kind gate_kind, uint32_t layer, uint32_t expert, uint32_t columns, const double *x,
                double share, double *y)
{
    double gate[WIDTH_MAX];
    double up[WIDTH_MAX];
    double down[WIDTH_MAX];
    multiply(gate_kind, layer, expert, 0, columns, x, model->hidden, MODEL_GAIN, gate);
    multiply((enum seeded_kind)(gate_kind + 1), layer, expert, 0, columns, x, model->hidden, MODEL_GAIN, up);
    for (uint32_t i = 0; i < columns; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    multiply((enum seeded_kind)(gate_kind + 2), layer, expert, 0, model->hidden, gate, columns, MODEL_GAIN_TO_RESIDUAL,
             down);
    for (uint32_t i = 0; i < model->hidden; i++)
        y[i] += share * down[i];
}

/* Experts in the order of their scores; softmax over the chosen. */
static void mixture(uint32_t layer, const double *x, double *y)
{
    double scores[WIDTH_MAX] = {0};
    double sum = 0;
    multiply(SEEDED_ROUTER, layer, 0, 0, model->experts, x, model->hidden, MODEL_GAIN, scores);
    bool chosen[WIDTH_MAX] = {false};
    for (uint32_t k = 0; k < model->experts_active; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < model->experts; e++)
            if (!chosen[e] && (best == UINT32_MAX || scores[e] > scores[best]))
                best = e;
        if (best == UINT32_MAX) /* never: there are more experts than are active */
            break;
        chosen[best] = true;
        sum += exp(scores[best]);
    }
    for (uint32_t e = 0; e < model->experts; e++)
        if (chosen[e])
            mlp(SEEDED_GATE, layer, e, model->expert_intermediate, x, exp(scores[e]) / sum, y);
    if (model->shared_experts > 0)
        mlp(SEEDED_SHARED_GATE, layer, 0, model->shared_experts * model->expert_intermediate, x, 1, y);
}

static void naive_forward(double *logits)
{
    uint32_t embedded = model->tied_embeddings ? model->hidden : 1;
    float gain = model->tied_embeddings ? MODEL_GAIN_EMBEDDING_TIED : MODEL_GAIN_EMBEDDING;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t i = 0; i < model->hidden; i++)
            hidden[t][i] = (double)seeded_weight(seeded_matrix(WEIGHT_SEED, SEEDED_EMBEDDING, 0, 0),
                                                 device_prompt_token(TOKEN_SEED, t, model->vocab), i,
                                                 model_weight_scale(embedded, gain));
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        uint32_t width = model->heads * (model->attention == ATTENTION_MLA ? model->value_dim : model->head_dim);
        double projected[WIDTH_MAX];
        for (uint32_t t = 0; t < TOKENS; t++)
            normalise(SEEDED_NORM_ATTENTION, layer, hidden[t], model->hidden, normed[t]);
        if (model->attention == ATTENTION_MLA)
            mla(layer);
        else
            gqa(layer);
        for (uint32_t t = 0; t < TOKENS; t++) {
            multiply(SEEDED_O, layer, 0, 0, model->hidden, outputs[t], width, MODEL_GAIN_TO_RESIDUAL, projected);
            for (uint32_t i = 0; i < model->hidden; i++)
                hidden[t][i] += projected[i];
            normalise(SEEDED_NORM_MLP, layer, hidden[t], model->hidden, normed[t]);
            if (model->experts == 0 || layer < model->dense_layers)
                mlp(SEEDED_GATE, layer, 0, model->intermediate, normed[t], 1, hidden[t]);
            else
                mixture(layer, normed[t], hidden[t]);
        }
    }
    normalise(SEEDED_NORM_FINAL, 0, hidden[TOKENS - 1], model->hidden, normed[0]);
    multiply(model->tied_embeddings ? SEEDED_EMBEDDING : SEEDED_LM_HEAD, 0, 0, 0, model->vocab, normed[0],
             model->hidden, MODEL_GAIN, logits);
}

static void compare(const struct architecture *architecture)
{
    double logits[WIDTH_MAX];
    float tail[2 * WIDTH_MAX];
    uint32_t token;
    model = architecture;
    assert_true(architecture->tail_bytes == (architecture->hidden + architecture->vocab) * sizeof(float));
    naive_forward(logits);
    device_reference(architecture, WEIGHT_SEED, TOKEN_SEED, TOKENS + 1, 1, &token, (uint8_t *)tail);
    double largest = 0;
    for (uint32_t i = 0; i < model->hidden; i++)
        largest = fmax(largest, fabs(hidden[TOKENS - 1][i] - (double)tail[i]));
    for (uint32_t i = 0; i < model->vocab; i++)
        largest = fmax(largest, fabs(logits[i] - (double)tail[model->hidden + i]));
    /* Logits have deviation 1, hidden states a few. What remains is f32 rounding, about 1e-5, as long as it moves no
     * cached element to the neighbouring bf16 or fp8 value. */
    if (!(largest < 1e-3))
        fail_msg("largest difference %f", largest);
}

static const struct architecture gqa_model = {
    .attention = ATTENTION_GQA,
    .layers = 3,
    .hidden = 48,
    .heads = 6,
    .kv_heads = 2,
    .head_dim = 10, /* not a multiple of the lanes */
    .vocab = 97,
    .intermediate = 72,
    .kv_format = FORMAT_BF16,
    .tail_bytes = (48 + 97) * 4,
};

static struct architecture mla_model(void)
{
    struct architecture a = gqa_model;
    a.attention = ATTENTION_MLA;
    a.kv_heads = 1;
    a.head_dim = 0;
    a.latent_dim = 20;
    a.rope_dim = 6;
    a.nope_dim = 12;
    a.value_dim = 9;
    a.q_latent_dim = 28;
    return a;
}

static void add_experts(struct architecture *a)
{
    a->experts = 5;
    a->experts_active = 3;
    a->expert_intermediate = 24;
    a->shared_experts = 2;
    a->dense_layers = 1;
}

static void test_gqa(void **state)
{
    (void)state;
    struct architecture a = gqa_model;
    compare(&a);
    a.window = 6;
    a.full_layers = 1;
    a.tied_embeddings = 1;
    compare(&a);
    a.kv_format = FORMAT_FP8;
    compare(&a);
}

static void test_mla(void **state)
{
    (void)state;
    struct architecture a = mla_model();
    compare(&a);
    a.q_latent_dim = 0;
    compare(&a);
}

static void test_experts(void **state)
{
    (void)state;
    struct architecture a = gqa_model;
    add_experts(&a);
    compare(&a);
    a = mla_model();
    add_experts(&a);
    a.shared_experts = 0;
    compare(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gqa),
        cmocka_unit_test(test_mla),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests_name("device_math", tests, NULL, NULL);
}
