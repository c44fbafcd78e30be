/* Constants that no kernel table holds, one set for each deployment, chosen on those of its rows that are not quoted:
 * host time a step and a sequence for the TPOT; then the scale of prefill and an offset for the TTFT.
 *
 * What is made small is the mean absolute relative error, each error counted as at most one half, so that a row that is
 * wrong for another reason does not decide. TPOT is nearly linear in the host's times: it is simulated at three points,
 * the best on a grid is taken, simulated, and corrected once with the same slopes. TTFT is simulated at a few scales
 * and interpolated between them.
 */
#include "sim/validate/serving.h"

#include "base/arith.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

#define ERROR_MAX 0.5

#define HOST_STEP_NS INT64_C(25000)
#define HOST_STEPS 200 /* to 5 ms */
#define SEQUENCE_STEP_NS INT64_C(1000)
#define SEQUENCE_STEPS 100 /* to 100 us */
#define HOST_PROBE_NS INT64_C(1000000)
#define SEQUENCE_PROBE_NS INT64_C(20000)

#define SCALES 6
static const uint32_t scale_permille[SCALES] = {600, 800, 1000, 1300, 1700, 2400};
#define SCALE_STEP 50
#define OFFSET_STEP_NS INT64_C(5000000)
#define OFFSET_STEPS 400 /* to 2 s */

static double clipped(double predicted, double measured)
{
    double error = predicted / measured - 1.0;
    error = error < 0.0 ? -error : error;
    return error < ERROR_MAX ? error : ERROR_MAX;
}

static bool fit_row(const struct serving_row *row)
{
    return !row->quoted;
}

static bool ttft_fit_row(const struct serving_row *row)
{
    return !row->quoted && row->ttft_rule == SERVING_KEPT;
}

static struct serving_prediction *predictions_make(const struct serving *serving)
{
    struct serving_prediction *predictions = memory_zeroed(serving->row_count, sizeof *predictions);
    return predictions;
}

/* ---- Host ------------------------------------------------------------------------------------------------------- */

/* Of one row: what it takes at a base, and what a nanosecond of each constant adds. */
struct host_line {
    double measured;
    double base;
    double by_host;
    double by_sequence;
};

/* The point of the grid, as differences from the base constants, with the least mean error; of equal ones the
 * smallest. */
static void best_host(const struct host_line *lines, uint32_t count, const struct serving_constants *base,
                      struct serving_constants *best)
{
    double least = (double)count;
    *best = *base;
    for (int64_t h = 0; h <= HOST_STEPS; h++) {
        for (int64_t s = 0; s <= SEQUENCE_STEPS; s++) {
            double host = (double)(h * HOST_STEP_NS - base->host_ns);
            double sequence = (double)(s * SEQUENCE_STEP_NS - base->host_sequence_ns);
            double error = 0.0;
            for (uint32_t i = 0; i < count && error < least; i++)
                error += clipped(lines[i].base + lines[i].by_host * host + lines[i].by_sequence * sequence,
                                 lines[i].measured);
            if (error < least) {
                least = error;
                best->host_ns = h * HOST_STEP_NS;
                best->host_sequence_ns = s * SEQUENCE_STEP_NS;
            }
        }
    }
}

struct host_fit {
    const struct serving *serving;
    const struct serving_prediction *base;
    const struct serving_prediction *more_host;
    const struct serving_prediction *more_sequence;
    const struct serving_prediction *origin; /* that the two above are compared with */
    struct host_line *lines;
};

static void fit_deployment(struct host_fit *fit, uint32_t deployment, struct serving_constants *constants)
{
    const struct serving *serving = fit->serving;
    uint32_t count = 0;
    for (uint32_t i = 0; i < serving->row_count; i++) {
        const struct serving_row *row = &serving->rows[i];
        if (row->rule != SERVING_KEPT || row->quoted || row->deployment != deployment || !fit->base[i].fits ||
            !fit->more_host[i].fits || !fit->more_sequence[i].fits)
            continue;
        double origin = (double)fit->origin[i].tpot_ns;
        fit->lines[count++] = (struct host_line){
            .measured = (double)row->tpot_ns,
            .base = (double)fit->base[i].tpot_ns,
            .by_host = ((double)fit->more_host[i].tpot_ns - origin) / (double)HOST_PROBE_NS,
            .by_sequence = ((double)fit->more_sequence[i].tpot_ns - origin) / (double)SEQUENCE_PROBE_NS,
        };
    }
    if (count < SERVING_FIT_ROWS_MIN)
        return;
    struct serving_constants base = *constants;
    best_host(fit->lines, count, &base, constants);
}

bool serving_fit_host(const struct serving *serving, const struct serving_prediction *neutral, uint32_t threads,
                      struct serving_constants *constants, bool *chosen)
{
    uint32_t count = serving->deployment_count;
    struct serving_constants *probe = memory_zeroed(count, sizeof *probe);
    struct serving_prediction *more[3];
    for (int k = 0; k < 3; k++)
        more[k] = predictions_make(serving);
    struct host_fit fit = {.serving = serving,
                           .base = neutral,
                           .more_host = more[0],
                           .more_sequence = more[1],
                           .origin = neutral,
                           .lines = memory_zeroed(serving->row_count, sizeof *fit.lines)};
    CHECK(fit.lines != NULL);
    for (uint32_t d = 0; d < count; d++) {
        constants[d] = serving_neutral(serving, &serving->rows[serving->deployments[d].first]);
        chosen[d] = serving->deployments[d].fitted >= SERVING_FIT_ROWS_MIN;
    }
    struct serving_sweep sweep = {.serving = serving, .constants = probe, .wanted = fit_row};
    bool whole = true;
    for (int k = 0; k < 2 && whole; k++) {
        memcpy(probe, constants, count * sizeof *probe);
        for (uint32_t d = 0; d < count; d++)
            *(k == 0 ? &probe[d].host_ns : &probe[d].host_sequence_ns) += k == 0 ? HOST_PROBE_NS : SEQUENCE_PROBE_NS;
        sweep.predictions = more[k];
        whole = serving_predict_all(&sweep, threads);
    }
    for (uint32_t d = 0; d < count && whole; d++)
        if (chosen[d])
            fit_deployment(&fit, d, &constants[d]);
    memcpy(probe, constants, count * sizeof *probe);
    sweep.predictions = more[2];
    whole = whole && serving_predict_all(&sweep, threads);
    fit.base = more[2];
    for (uint32_t d = 0; d < count && whole; d++)
        if (chosen[d])
            fit_deployment(&fit, d, &constants[d]);
    for (int k = 0; k < 3; k++)
        free(more[k]);
    free(fit.lines);
    free(probe);
    return whole;
}

/* ---- TTFT ------------------------------------------------------------------------------------------------------- */

/* Of one row: what it takes at each of the scales. */
struct scale_line {
    double measured;
    double at[SCALES];
};

static double at_scale(const struct scale_line *line, uint32_t permille)
{
    uint32_t k = 1;
    while (k + 1 < SCALES && scale_permille[k] < permille)
        k++;
    double from = scale_permille[k - 1];
    double share = (permille - from) / (scale_permille[k] - from);
    return line->at[k - 1] + (line->at[k] - line->at[k - 1]) * share;
}

static void best_ttft(const struct scale_line *lines, uint32_t count, struct serving_constants *best)
{
    double least = (double)count;
    for (uint32_t scale = scale_permille[0]; scale <= scale_permille[SCALES - 1]; scale += SCALE_STEP) {
        for (int64_t o = 0; o <= OFFSET_STEPS; o++) {
            double error = 0.0;
            for (uint32_t i = 0; i < count && error < least; i++)
                error += clipped(at_scale(&lines[i], scale) + (double)(o * OFFSET_STEP_NS), lines[i].measured);
            if (error < least) {
                least = error;
                best->prefill_permille = scale;
                best->ttft_offset_ns = o * OFFSET_STEP_NS;
            }
        }
    }
}

bool serving_fit_ttft(const struct serving *serving, uint32_t threads, struct serving_constants *constants,
                      bool *chosen)
{
    uint32_t count = serving->deployment_count;
    struct serving_constants *probe = memory_zeroed(count, sizeof *probe);
    struct scale_line *lines = memory_zeroed(serving->row_count, sizeof *lines);
    struct serving_prediction *at[SCALES];
    struct serving_sweep sweep = {.serving = serving, .constants = probe, .wanted = ttft_fit_row};
    bool whole = true;
    for (int k = 0; k < SCALES; k++) {
        at[k] = predictions_make(serving);
        memcpy(probe, constants, count * sizeof *probe);
        for (uint32_t d = 0; d < count; d++)
            probe[d].prefill_permille = scale_permille[k];
        sweep.predictions = at[k];
        whole = whole && serving_predict_all(&sweep, threads);
    }
    for (uint32_t d = 0; d < count && whole; d++) {
        uint32_t used = 0;
        for (uint32_t i = 0; i < serving->row_count; i++) {
            const struct serving_row *row = &serving->rows[i];
            if (row->ttft_rule != SERVING_KEPT || row->quoted || row->deployment != d || !at[0][i].fits)
                continue;
            lines[used].measured = (double)row->ttft_ns;
            for (int k = 0; k < SCALES; k++)
                lines[used].at[k] = (double)at[k][i].ttft_ns;
            used++;
        }
        chosen[d] = used >= SERVING_FIT_ROWS_MIN;
        if (chosen[d])
            best_ttft(lines, used, &constants[d]);
    }
    for (int k = 0; k < SCALES; k++)
        free(at[k]);
    free(lines);
    free(probe);
    return whole;
}
