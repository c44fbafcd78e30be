/* Which measured rows are left out, and which are quoted. No rule looks at a prediction of the row: P asks the kernels
 * how long one prompt takes, everything else is in the measurements. */
#include "sim/validate/serving.h"

#include "base/arith.h"
#include "host/memory.h"
#include "host/stats.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *letter;
    const char *text;
} rules[SERVING_RULES] = {
    [SERVING_MODEL] = {"A", "architecture or format that is not modelled"},
    [SERVING_SYSTEM] = {"S", "no machine file or measured kernels of the GPU"},
    [SERVING_WORKERS] = {"W", "concurrency or number of workers not given"},
    [SERVING_COPY] = {"D", "the same system, engine and, within 5 us, TTFT and TPOT as another row"},
    [SERVING_MEMORY] = {"F", "weights do not fit as the row says it was sharded"},
    [SERVING_QUEUE] = {"Q", "TPOT x (output - 1) / end to end < 0.6 with prompt / output <= 8: hidden limits, full KV"},
    [SERVING_PREFIX] = {"P", "concurrency / end to end x one prefill > 1: prefixes were cached"},
    [SERVING_DRAFT] = {"M", "draft head, and 1k/8k faster than 1k/1k, or started with it: speculative decoding"},
    [SERVING_EAGER] = {"E", "TPOT flat in the batch and over twice another engine's: eager mode"},
    [SERVING_WARMUP] = {"T", "over 1.6 x the least TTFT among rows equal but for the output: warm-up"},
    [SERVING_PAUSE] = {"H", "TTFT > concurrency x one prefill + 60 x TPOT though all clients fit: the server paused"},
};

const char *serving_rule_letter(enum serving_rule rule)
{
    return rules[rule].letter;
}

const char *serving_rule_text(enum serving_rule rule)
{
    return rules[rule].text;
}

static bool same_sharding(const struct serving_row *a, const struct serving_row *b)
{
    const struct serving_side *const sides[2][3] = {{&a->mixed, &a->prefill, &a->decode},
                                                    {&b->mixed, &b->prefill, &b->decode}};
    for (int i = 0; i < 3; i++)
        if (sides[0][i]->workers != sides[1][i]->workers ||
            !parallelism_same(&sides[0][i]->parallelism, &sides[1][i]->parallelism))
            return false;
    return true;
}

/* The same server: everything but the load. */
static bool same_server(const struct serving_row *a, const struct serving_row *b)
{
    return a->base == b->base && strcmp(a->version, b->version) == 0 && strcmp(a->origin, b->origin) == 0 &&
           same_sharding(a, b);
}

static double end_to_end(const struct serving_row *row)
{
    return (double)row->ttft_ns + (double)row->tpot_ns * (double)(row->output - 1);
}

/* ---- D ---------------------------------------------------------------------------------------------------------- */

/* Some origins round times to 10 us. */
#define COPY_NS INT64_C(5000)

static bool same_time(int64_t a_ns, int64_t b_ns)
{
    return a_ns - b_ns <= COPY_NS && b_ns - a_ns <= COPY_NS;
}

/* The copy that knows the workers, else that whose label names the fewest ranks, else the first. */
static bool better_copy(const struct serving_row *a, const struct serving_row *b)
{
    bool a_knows = a->rule == SERVING_KEPT;
    bool b_knows = b->rule == SERVING_KEPT;
    if (a_knows != b_knows)
        return a_knows;
    return a->ranks_named < b->ranks_named;
}

static void rule_copies(struct serving *serving)
{
    for (uint32_t i = 0; i < serving->row_count; i++) {
        struct serving_row *a = &serving->rows[i];
        for (uint32_t j = i + 1; j < serving->row_count && a->rule != SERVING_COPY; j++) {
            struct serving_row *b = &serving->rows[j];
            if (!same_time(a->ttft_ns, b->ttft_ns) || !same_time(a->tpot_ns, b->tpot_ns) || b->rule == SERVING_COPY ||
                strcmp(a->system, b->system) != 0 || strcmp(a->engine_name, b->engine_name) != 0)
                continue;
            if (better_copy(b, a))
                a->rule = SERVING_COPY;
            else
                b->rule = SERVING_COPY;
        }
    }
}

/* ---- F, Q, P ---------------------------------------------------------------------------------------------------- */

static void rule_single(struct serving *serving, struct serving_row *row)
{
    int64_t prefill_ns = row->prefill_ns = serving_one_prefill_ns(serving, row);
    double all = end_to_end(row);
    uint32_t prefillers = row->disaggregated
                              ? row->prefill.workers * row->prefill.parallelism.data * row->prefill.parallelism.pipeline
                              : row->mixed.parallelism.data;
    if (prefill_ns == 0)
        row->rule = SERVING_MEMORY;
    else if ((double)row->tpot_ns * (double)(row->output - 1) < 0.6 * all && row->prompt <= 8 * row->output &&
             !row->disaggregated)
        row->rule = SERVING_QUEUE;
    else if ((double)row->concurrency / all * (double)prefill_ns > (double)prefillers)
        row->rule = SERVING_PREFIX;
}

/* ---- M ---------------------------------------------------------------------------------------------------------- */

/* The median over concurrency <= 32 of TPOT(1k/8k) / TPOT(1k/1k) of the row's server; 1 where there is none. */
static double long_to_short(const struct serving *serving, const struct serving_row *row)
{
    double ratio[64];
    uint32_t count = 0;
    for (uint32_t i = 0; i < serving->row_count && count < 64; i++) {
        const struct serving_row *a = &serving->rows[i];
        if (a->rule == SERVING_COPY || a->base != row->base || a->prompt != 1024 || a->output != 8192 ||
            a->concurrency > 32 || !same_server(a, row))
            continue;
        for (uint32_t j = 0; j < serving->row_count && count < 64; j++) {
            const struct serving_row *b = &serving->rows[j];
            if (b->rule != SERVING_COPY && b->base == row->base && b->prompt == 1024 && b->output == 1024 &&
                b->concurrency == a->concurrency && same_server(b, row))
                ratio[count++] = (double)a->tpot_ns / (double)b->tpot_ns;
        }
    }
    return count == 0 ? 1.0 : stats_median(ratio, count);
}

/* ---- E ---------------------------------------------------------------------------------------------------------- */

/* The same question put to another engine. */
static bool same_question(const struct serving_row *a, const struct serving_row *b)
{
    return strcmp(a->model, b->model) == 0 && strcmp(a->system, b->system) == 0 &&
           strcmp(a->precision, b->precision) == 0 && a->prompt == b->prompt && a->output == b->output &&
           a->concurrency == b->concurrency && same_sharding(a, b);
}

/* TPOT of the row's server at the largest concurrency over that at the smallest, at these lengths: below 1.15 over at
 * least a factor of 8 is flat. */
static bool flat_in_batch(const struct serving *serving, const struct serving_row *row)
{
    const struct serving_row *least = row;
    const struct serving_row *most = row;
    for (uint32_t i = 0; i < serving->row_count; i++) {
        const struct serving_row *a = &serving->rows[i];
        if (a->rule != SERVING_KEPT || a->prompt != row->prompt || a->output != row->output || !same_server(a, row))
            continue;
        if (a->concurrency < least->concurrency)
            least = a;
        if (a->concurrency > most->concurrency)
            most = a;
    }
    return most->concurrency >= 8 * least->concurrency && (double)most->tpot_ns < 1.15 * (double)least->tpot_ns;
}

static bool eager(const struct serving *serving, const struct serving_row *row)
{
    bool slow = false;
    for (uint32_t i = 0; i < serving->row_count && !slow; i++) {
        const struct serving_row *a = &serving->rows[i];
        slow = a->rule == SERVING_KEPT && a->engine != row->engine && same_question(a, row) &&
               row->tpot_ns > 2 * a->tpot_ns;
    }
    return slow && flat_in_batch(serving, row);
}

/* ---- T ---------------------------------------------------------------------------------------------------------- */

static bool warmed_up(const struct serving *serving, const struct serving_row *row)
{
    if (row->concurrency > 64)
        return true;
    for (uint32_t i = 0; i < serving->row_count; i++) {
        const struct serving_row *a = &serving->rows[i];
        if (a->rule == SERVING_KEPT && a->prompt == row->prompt && a->concurrency == row->concurrency &&
            same_server(a, row) && (double)row->ttft_ns > 1.6 * (double)a->ttft_ns)
            return false;
    }
    return true;
}

/* ---- H ---------------------------------------------------------------------------------------------------------- */

/* No engine looks for new prompts more rarely; see the intervals in deployments.csv. */
#define PAUSE_STEPS 60.0

/* A prompt waits for the prompts of all other clients at most, and for the next time that the engine looks for some,
 * unless there are fewer places for sequences than clients. What waited longer waited for something else: kernels being
 * compiled, graphs being captured, pages of a cache that was full. */
static bool paused(const struct serving_row *row)
{
    const struct serving_side *decode = row->disaggregated ? &row->decode : &row->mixed;
    uint32_t batch = row->decode_batch_max > 0 ? row->decode_batch_max : row->batch_max;
    if ((uint64_t)batch * decode->workers * decode->parallelism.data < row->concurrency)
        return false;
    return (double)row->ttft_ns >
           (double)row->concurrency * (double)row->prefill_ns + PAUSE_STEPS * (double)row->tpot_ns;
}

/* ---- Fit and test ----------------------------------------------------------------------------------------------- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (hash ^ 0xff) * UINT64_C(0x100000001b3);
}

/* FNV-1a over the configuration, not over what was measured; the high bit of a final mix decides. */
static bool is_test(const struct serving_row *row)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = hash_text(hash, row->engine_name);
    hash = hash_text(hash, row->version);
    hash = hash_text(hash, row->model);
    hash = hash_text(hash, row->system);
    hash = hash_text(hash, row->precision);
    const struct serving_side *const sides[3] = {&row->mixed, &row->prefill, &row->decode};
    for (int i = 0; i < 3; i++) {
        const struct parallelism *p = &sides[i]->parallelism;
        const uint32_t parts[5] = {sides[i]->workers, p->tensor, p->data, p->expert, p->pipeline};
        for (int k = 0; k < 5; k++)
            hash = (hash ^ parts[k]) * UINT64_C(0x100000001b3);
    }
    const uint32_t load[3] = {row->prompt, row->output, row->concurrency};
    for (int k = 0; k < 3; k++)
        hash = (hash ^ load[k]) * UINT64_C(0x100000001b3);
    hash ^= hash >> 31;
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return hash >> 63 != 0;
}

/* Attention by tensor or by data parallelism, experts split or spread: other flags, kernels and exchanges. */
static bool same_kind_of_sharding(const struct parallelism *a, const struct parallelism *b)
{
    return (a->data > 1) == (b->data > 1) && (a->expert > 1) == (b->expert > 1);
}

/* An engine's version, or where that is not given the month of the measurement; and where there are enough of them,
 * which is without disaggregation, the kind of sharding. */
static bool same_deployment(const struct serving_row *a, const struct serving_row *b)
{
    return a->base == b->base && a->private_series == b->private_series && strcmp(a->version, b->version) == 0 &&
           (a->version[0] != '\0' || a->date / 100 == b->date / 100) &&
           same_kind_of_sharding(&a->mixed.parallelism, &b->mixed.parallelism);
}

static void group(struct serving *serving)
{
    serving->deployments = memory_zeroed(serving->row_count, sizeof *serving->deployments);
    for (uint32_t i = 0; i < serving->row_count; i++) {
        struct serving_row *row = &serving->rows[i];
        if (row->rule != SERVING_KEPT)
            continue;
        row->test = is_test(row);
        uint32_t d = 0;
        while (d < serving->deployment_count && !same_deployment(row, &serving->rows[serving->deployments[d].first]))
            d++;
        if (d == serving->deployment_count)
            serving->deployments[serving->deployment_count++].first = i;
        row->deployment = d;
        serving->deployments[d].fitted += !row->test;
        serving->deployments[d].tested += row->test;
    }
}

void serving_choose(struct serving *serving)
{
    rule_copies(serving);
    for (uint32_t i = 0; i < serving->row_count; i++)
        if (serving->rows[i].rule == SERVING_KEPT)
            rule_single(serving, &serving->rows[i]);
    /* What M and E find is marked after all rows have been looked at: they compare rows with each other. */
    uint8_t *marks = memory_zeroed(serving->row_count, 1);
    for (uint32_t i = 0; i < serving->row_count; i++) {
        const struct serving_row *row = &serving->rows[i];
        if (row->rule != SERVING_KEPT)
            continue;
        if (row->draft && (row->speculative || long_to_short(serving, row) < 0.91))
            marks[i] = SERVING_DRAFT;
        else if (eager(serving, row))
            marks[i] = SERVING_EAGER;
    }
    for (uint32_t i = 0; i < serving->row_count; i++)
        if (marks[i] != 0)
            serving->rows[i].rule = marks[i];
    free(marks);
    for (uint32_t i = 0; i < serving->row_count; i++) {
        struct serving_row *row = &serving->rows[i];
        row->ttft_rule = row->rule;
        if (row->rule == SERVING_KEPT && !warmed_up(serving, row))
            row->ttft_rule = SERVING_WARMUP;
        else if (row->rule == SERVING_KEPT && paused(row))
            row->ttft_rule = SERVING_PAUSE;
    }
    group(serving);
}
