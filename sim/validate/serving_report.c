/* The tables of measured serving runs: what is compared with what, and which rows each table quotes. */
#include "sim/validate/serving.h"

#include "base/arith.h"
#include "world/deployment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERCENT INT64_C(10000)

/* Everything that was predicted, by row. */
struct results_of_rows {
    struct serving serving;
    uint32_t threads;
    bool chosen_on;                     /* the other half of the rows is quoted */
    struct serving_prediction *neutral; /* the engine's own constants */
    struct serving_prediction *host;    /* two host constants a deployment */
    struct serving_prediction *lent;    /* those of another model */
    struct serving_prediction *ttft;    /* also a scale of prefill and an offset */
    struct serving_constants *constants;
    struct serving_constants *lent_constants;
    bool *host_chosen;
    bool *ttft_chosen;
    bool *lent_found;
};

enum quantity { QUANTITY_TPOT_OF, QUANTITY_TTFT_OF };

/* ---- Which rows ------------------------------------------------------------------------------------------------- */

static bool any_row(const struct serving_row *row)
{
    (void)row;
    return true;
}

static bool test_row(const struct serving_row *row)
{
    return row->test;
}

static bool colocated(const struct serving_row *row)
{
    return !row->disaggregated && !row->private_series;
}

static bool colocated_private(const struct serving_row *row)
{
    return !row->disaggregated && row->private_series;
}

static bool apart(const struct serving_row *row)
{
    return row->disaggregated && !row->private_series;
}

static bool apart_r1_h200(const struct serving_row *row)
{
    return apart(row) && strcmp(row->system, "h200_sxm") == 0 && strncmp(row->model, "DeepSeek", 8) == 0;
}

/* ---- One table -------------------------------------------------------------------------------------------------- */

static void label_of(const struct serving_row *row, char *label, size_t size)
{
    char sharding[48];
    char decode[80] = "";
    parallelism_text(row->disaggregated ? &row->prefill.parallelism : &row->mixed.parallelism, sharding,
                     sizeof sharding);
    if (row->disaggregated) {
        char text[48];
        parallelism_text(&row->decode.parallelism, text, sizeof text);
        snprintf(decode, sizeof decode, " %uP%uD / %s", row->prefill.workers, row->decode.workers, text);
    }
    snprintf(label, size, "%.30s %.8s %.*s %s %s %s%s %u/%u c%u", row->model, row->precision,
             (int)strcspn(row->system, "_"), row->system, row->engine_name, row->version, sharding, decode, row->prompt,
             row->output, row->concurrency);
}

/* What a deployment's constants and a plan's candidates have in common: attention, and whether there are experts. */
static const char *family_of(const struct architecture *a)
{
    if (a->attention == ATTENTION_MLA)
        return a->experts > 0 ? "mla-moe" : "mla-dense";
    return a->experts > 0 ? "gqa-moe" : "gqa-dense";
}

struct view {
    const char *key;
    const char *source;
    enum quantity quantity;
    bool (*rows)(const struct serving_row *row);
    const struct serving_prediction *predictions;
    const bool *chosen; /* by deployment: rows of others are left out; NULL: no constants are chosen */
    uint32_t constants; /* a deployment */
    int64_t target_median;
    int64_t target_p90;
};

static void add_view(struct validation_set *set, const struct results_of_rows *all, const struct view *view)
{
    const struct serving *serving = &all->serving;
    struct validation *v = validation_add(set, view->key, view->source, view->target_median, view->target_p90);
    uint32_t left_out[SERVING_RULES] = {0};
    uint32_t thin = 0;
    uint32_t unserved = 0;
    bool ttft = view->quantity == QUANTITY_TTFT_OF;
    for (uint32_t i = 0; i < serving->row_count; i++) {
        const struct serving_row *row = &serving->rows[i];
        uint8_t rule = ttft ? row->ttft_rule : row->rule;
        if (!view->rows(row))
            continue;
        if (rule != SERVING_KEPT) {
            left_out[rule]++;
            continue;
        }
        if (row->test == all->chosen_on) {
            v->fitted++;
            continue;
        }
        if (view->chosen != NULL && !view->chosen[row->deployment]) {
            thin++;
            continue;
        }
        if (!view->predictions[i].fits) {
            unserved++;
            continue;
        }
        char label[2 * VALIDATION_LABEL_SIZE];
        label_of(row, label, sizeof label);
        validation_case(v, ttft ? row->ttft_ns : row->tpot_ns,
                        ttft ? view->predictions[i].ttft_ns : view->predictions[i].tpot_ns, "%s", label);
        const struct scenario *base = serving->bases[row->base];
        validation_subject(v, row->engine_name, base->pools[0].hardware.gpu, family_of(&base->model));
    }
    for (uint32_t d = 0; view->chosen != NULL && d < serving->deployment_count; d++)
        if (view->chosen[d] && view->rows(&serving->rows[serving->deployments[d].first]))
            v->constants += view->constants;
    for (uint32_t r = 1; r < SERVING_RULES; r++)
        validation_excluded(v, serving_rule_letter(r), serving_rule_text(r), left_out[r]);
    validation_excluded(v, "F", "the run as described does not fit or does not end", unserved);
    validation_excluded(v, "K", "too few rows of the deployment to choose constants on", thin);
    validation_finish(v);
}

/* ---- Constants of another model --------------------------------------------------------------------------------- */

/* The other model of the same engine and version on the same system with the most rows to choose constants on. */
static void lend(struct results_of_rows *all)
{
    const struct serving *serving = &all->serving;
    for (uint32_t d = 0; d < serving->deployment_count; d++) {
        const struct serving_row *row = &serving->rows[serving->deployments[d].first];
        uint32_t most = 0;
        all->lent_constants[d] = all->constants[d];
        for (uint32_t other = 0; other < serving->deployment_count; other++) {
            const struct serving_row *lender = &serving->rows[serving->deployments[other].first];
            if (!all->host_chosen[other] || serving->bases[lender->base] == serving->bases[row->base] ||
                strcmp(serving->bases[lender->base]->model.name, serving->bases[row->base]->model.name) == 0 ||
                lender->engine != row->engine || lender->private_series != row->private_series ||
                lender->disaggregated != row->disaggregated || strcmp(lender->system, row->system) != 0 ||
                strcmp(lender->version, row->version) != 0 || serving->deployments[other].fitted <= most)
                continue;
            most = serving->deployments[other].fitted;
            all->lent_constants[d] = all->constants[other];
            all->lent_found[d] = true;
        }
    }
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

static void *make(uint32_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    CHECK(memory != NULL);
    return memory;
}

static bool predict(struct results_of_rows *all, const struct serving_constants *constants,
                    bool (*wanted)(const struct serving_row *row), struct serving_prediction *into)
{
    struct serving_sweep sweep = {
        .serving = &all->serving, .constants = constants, .wanted = wanted, .predictions = into};
    return serving_predict_all(&sweep, all->threads);
}

static void add_plain(struct validation_set *set, const struct results_of_rows *all)
{
    const struct view views[] = {
        {"tpot-colocated", "TPOT, aggregated, no constant of a deployment", QUANTITY_TPOT_OF, colocated, all->neutral,
         NULL, 0, 7 * PERCENT, 20 * PERCENT},
        {"ttft-colocated", "TTFT, aggregated, no constant of a deployment", QUANTITY_TTFT_OF, colocated, all->neutral,
         NULL, 0, 0, 0},
        {"tpot-private", "TPOT, aggregated, private series in lock step, no constant of a deployment", QUANTITY_TPOT_OF,
         colocated_private, all->neutral, NULL, 0, 0, 0},
        {"tpot-disaggregated", "TPOT, disaggregated with known worker counts, no constant of a deployment",
         QUANTITY_TPOT_OF, apart, all->neutral, NULL, 0, 0, 0},
        {"ttft-disaggregated", "TTFT, disaggregated with known worker counts, no constant of a deployment",
         QUANTITY_TTFT_OF, apart, all->neutral, NULL, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        add_view(set, all, &views[i]);
}

static void add_fitted(struct validation_set *set, const struct results_of_rows *all)
{
    const struct view views[] = {
        {"tpot-colocated-host", "TPOT, aggregated, two host constants a deployment", QUANTITY_TPOT_OF, colocated,
         all->host, all->host_chosen, 2, 7 * PERCENT / 2, 10 * PERCENT},
        {"tpot-colocated-lent", "TPOT, aggregated, host constants of another model on the same engine version",
         QUANTITY_TPOT_OF, colocated, all->lent, all->lent_found, 0, 8 * PERCENT, 0},
        {"ttft-colocated-fit", "TTFT, aggregated, prefill scale and one offset a deployment", QUANTITY_TTFT_OF,
         colocated, all->ttft, all->ttft_chosen, 2, 10 * PERCENT, 25 * PERCENT},
        {"tpot-r1-h200-disaggregated", "TPOT, R1 disaggregated on H200, host constants", QUANTITY_TPOT_OF,
         apart_r1_h200, all->host, all->host_chosen, 2, 3 * PERCENT, 0},
        {"ttft-disaggregated-fit", "TTFT, disaggregated with known worker counts, prefill scale and one offset",
         QUANTITY_TTFT_OF, apart, all->ttft, all->ttft_chosen, 2, 10 * PERCENT, 0},
        {"tpot-private-host", "TPOT, private series, two host constants a deployment", QUANTITY_TPOT_OF,
         colocated_private, all->host, all->host_chosen, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        add_view(set, all, &views[i]);
}

static bool fit(struct results_of_rows *all)
{
    uint32_t deployments = all->serving.deployment_count;
    if (!serving_fit_host(&all->serving, all->neutral, all->threads, all->constants, all->host_chosen))
        return false;
    lend(all);
    bool (*wanted)(const struct serving_row *row) = all->chosen_on ? any_row : test_row;
    if (!predict(all, all->constants, wanted, all->host) || !predict(all, all->lent_constants, wanted, all->lent))
        return false;
    struct serving_constants *with_ttft = make(deployments, sizeof *with_ttft);
    memcpy(with_ttft, all->constants, deployments * sizeof *with_ttft);
    bool whole = serving_fit_ttft(&all->serving, all->threads, with_ttft, all->ttft_chosen) &&
                 predict(all, with_ttft, wanted, all->ttft);
    free(with_ttft);
    return whole;
}

bool validate_serving(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    struct results_of_rows all = {.threads = options->threads, .chosen_on = options->chosen_on};
    if (!serving_load(&all.serving, error)) {
        serving_free(&all.serving);
        return false;
    }
    serving_choose(&all.serving);
    uint32_t rows = all.serving.row_count;
    uint32_t deployments = all.serving.deployment_count;
    struct serving_prediction **predictions[] = {&all.neutral, &all.host, &all.lent, &all.ttft};
    for (size_t i = 0; i < 4; i++)
        *predictions[i] = make(rows, sizeof **predictions[i]);
    bool **flags[] = {&all.host_chosen, &all.ttft_chosen, &all.lent_found};
    for (size_t i = 0; i < 3; i++)
        *flags[i] = make(deployments, sizeof **flags[i]);
    all.constants = make(deployments, sizeof *all.constants);
    all.lent_constants = make(deployments, sizeof *all.lent_constants);
    bool quick = options->quick;
    bool whole = predict(&all, NULL, quick && !all.chosen_on ? test_row : any_row, all.neutral);
    if (whole)
        add_plain(set, &all);
    whole = whole && (quick || fit(&all));
    if (whole && !quick)
        add_fitted(set, &all);
    for (size_t i = 0; i < 4; i++)
        free(*predictions[i]);
    for (size_t i = 0; i < 3; i++)
        free(*flags[i]);
    free(all.constants);
    free(all.lent_constants);
    serving_free(&all.serving);
    return whole;
}
