/* See plan_decision.h. */
#include "cli/plan_decision.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One fact: a candidate's name may be long. */
struct text {
    char at[2048];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(text->at + text->used, sizeof text->at - text->used, format, arguments);
    va_end(arguments);
    text->used += more < 0 ? 0 : (size_t)more;
    text->used = text->used < sizeof text->at ? text->used : sizeof text->at - 1;
}

static void put(json_t *decision, const char *key, const struct text *text)
{
    json_object_set_new(decision, key, json_string(text->at));
}

static double per_s(uint64_t micro)
{
    return (double)micro / 1e6;
}

static double usd(uint64_t micros)
{
    return (double)micros / 1e6;
}

static bool serves_rate(const struct scenario *scenario)
{
    return scenario->plan.goal == PLAN_SERVE_RATE;
}

const char *plan_rule(const struct scenario *scenario)
{
    bool priced = true;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        priced = priced && scenario->pools[p].hardware.usd_micros_per_gpu_hour > 0;
    if (serves_rate(scenario))
        return priced ? "the fewest dollars an hour whose interval lies above the rate; of equals, the most requests/s"
                      : "the fewest GPUs whose interval lies above the rate; of equals, the most requests/s";
    return priced ? "the most requests/s for its dollars an hour, within the targets"
                  : "the most requests/s for its GPUs, within the targets";
}

/* ---- Nothing to deploy ------------------------------------------------------------------------------------------- */

static void say_nothing(const struct scenario *scenario, const struct plan_result *result, struct text *text)
{
    const struct plan_candidate *closest = result->closest == NO_CANDIDATE ? NULL : &result->items[result->closest];
    double asked = per_s(scenario->plan.rate_micro_per_s);
    say(text, "nothing. ");
    if (closest == NULL || result->outcome == PLAN_INTERRUPTED) {
        say(text, "Interrupted before there was an answer.");
        return;
    }
    const struct candidate *candidate = &closest->candidate;
    switch (result->outcome) {
    case PLAN_NONE_DEPLOYABLE:
        say(text, "No candidate can be deployed. %s: %s", candidate->label, candidate->refusal);
        break;
    case PLAN_BOUNDS_TOO_LOW:
        say(text, "No candidate can serve %.2f requests/s: at its bound, %s carries %.2f/s (%s). Allow more instances.",
            asked, candidate->label, per_s(candidate->bound_micro_per_s), bound_name(candidate->bound_by));
        break;
    case PLAN_NONE_HOLDS_ONE:
        say(text,
            "No candidate can decode one request of the load: the memory that the model leaves to %s is less than its "
            "KV. What binds is %s.",
            candidate->label, bound_name(BOUND_KV_CAPACITY));
        break;
    case PLAN_NONE_FAST_ENOUGH:
        say(text,
            "No candidate meets the target on output tokens at any rate: alone in the batch, a request on %s gets one "
            "every %.1f ms. What binds is %s.",
            candidate->label, (double)candidate->token_ns / 1e6, bound_name(candidate->bound_by));
        break;
    case PLAN_NONE_SERVES:
        say(text,
            "No candidate serves %.2f requests/s: the most is %.2f/s (%.2f to %.2f) by %s, %.1f %% too little, bound "
            "by "
            "%s. Allow more instances.",
            asked, per_s(closest->rate_micro_per_s), per_s(closest->rate_low_micro_per_s),
            per_s(closest->rate_high_micro_per_s), candidate->label,
            asked > 0 ? 100 * (1 - per_s(closest->rate_low_micro_per_s) / asked) : 0, bound_name(closest->bound_by));
        break;
    default:
        say(text,
            "No candidate meets the targets at any rate. Unloaded, %s has TTFT p95 %.0f ms and TPOT p95 %.1f ms; what "
            "binds it is %s.",
            candidate->label, (double)closest->light.ttft_ns[PROBE_P95] / 1e6,
            (double)closest->light.tpot_ns[PROBE_P95] / 1e6, bound_name(closest->bound_by));
    }
}

/* ---- What is deployed -------------------------------------------------------------------------------------------- */

static void say_deploy(const struct candidate *candidate, struct text *text)
{
    say(text, "%s: ", candidate->label);
    if (candidate->aggregated)
        say(text, "%u workers that prefill and decode", candidate->decode);
    else
        say(text, "%u prefill and %u decode workers", candidate->prefill, candidate->decode);
    say(text, ", %u GPUs on %u node%s", candidate->gpus, candidate->machines, candidate->machines == 1 ? "" : "s");
}

static void say_serves(const struct plan_result *result, const struct plan_candidate *best, struct text *text)
{
    say(text, "%.2f requests/s within the targets, %.2f to %.2f (%s)", per_s(best->rate_micro_per_s),
        per_s(best->rate_low_micro_per_s), per_s(best->rate_high_micro_per_s),
        result->whole_trace ? "the whole trace, as finely as it was searched" : "95 % over seeds");
    if (best->uncertainty_known)
        say(text, "; %.2f to %.2f with the model's error", per_s(best->rate_model_low_micro_per_s),
            per_s(best->rate_model_high_micro_per_s));
    if (best->capped)
        say(text, "; its runs ended before their queues reached the targets");
}

static void say_price(const struct scenario *scenario, const struct plan_candidate *item, struct text *text)
{
    const struct candidate *candidate = &item->candidate;
    if (candidate->usd_micros_per_hour == 0) {
        say(text, "%u GPUs; the price of a machine is not known", candidate->gpus);
        return;
    }
    bool asked = serves_rate(scenario);
    say(text, "$%.2f/h, $%.2f/Mtok of output at %.2f requests/s", usd(candidate->usd_micros_per_hour),
        usd(asked ? item->asked_usd_micros_per_mtok : item->usd_micros_per_mtok),
        per_s(asked ? scenario->plan.rate_micro_per_s : item->rate_micro_per_s));
}

/* ---- How sure ---------------------------------------------------------------------------------------------------- */

static void say_error(const char *what, const struct step_error *error, struct text *text)
{
    say(text, "%s steps take %.2f to %.2f of what the model says (%s: %u cases)", what, error->fast_permille / 1000.0,
        error->slow_permille / 1000.0, error->class_name, error->rows);
}

static void say_sure(const struct scenario *scenario, const struct plan_result *result, struct text *text)
{
    const struct plan_candidate *best = &result->items[result->best];
    const struct plan_uncertainty *uncertainty = &result->uncertainty;
    if (!uncertainty->known) {
        say(text, "not known: nothing is validated of the error of the model here");
        return;
    }
    bool ties = uncertainty->tie_count > 0;
    if (serves_rate(scenario) && best->rate_model_low_micro_per_s < scenario->plan.rate_micro_per_s)
        say(text, "no: where steps take the most that the error allows, it serves less than is asked; ");
    if (!ties && uncertainty->certain)
        say(text, "%snothing is better within the model's error", text->used == 0 ? "yes: " : "");
    else if (uncertainty->certain)
        say(text, "of the counts, yes; within the model's error as good or better for the money:");
    else
        say(text, "no: within the model's error as good or better for the money:");
    for (uint32_t t = 0; t < uncertainty->tie_count; t++)
        say(text, "%s %s", t > 0 ? "," : "", result->items[uncertainty->ties[t]].candidate.label);
    say(text, ". Validated, ");
    say_error("prefill", &uncertainty->error[STEP_PREFILL], text);
    say(text, ", ");
    say_error("decode", &uncertainty->error[STEP_DECODE], text);
}

void plan_measure_how(const struct plan_measure *measure, char *text, size_t size)
{
    bool prefill = measure->step == STEP_PREFILL;
    unsigned long long tokens = measure->tokens;
    if (strcmp(measure->engine, "sglang") == 0)
        snprintf(
            text, size,
            "python -m sglang.bench_one_batch --batch-size %u --input-len %llu --output-len %u, as the instance is "
            "started: the %s latency",
            measure->sequences, tokens, prefill ? 2 : 32, prefill ? "prefill" : "median decode");
    else if (strcmp(measure->engine, "trtllm") == 0)
        snprintf(text, size,
                 "trtllm-bench throughput --concurrency %u with that many requests of %llu tokens in and %u out: the "
                 "mean %s",
                 measure->sequences, tokens, prefill ? 1 : 32,
                 prefill ? "time to the first token" : "time per output token");
    else
        snprintf(text, size,
                 "vllm bench latency --batch-size %u --input-len %llu --output-len %u, as the instance is started%s",
                 measure->sequences, tokens, prefill ? 1 : 33,
                 prefill ? "" : ": 1/32 of what it takes more than with --output-len 1");
}

static void say_measures(const struct plan_uncertainty *uncertainty, struct text *text)
{
    for (uint32_t m = 0; m < uncertainty->measure_count; m++) {
        const struct plan_measure *measure = &uncertainty->measures[m];
        char how[256];
        plan_measure_how(measure, how, sizeof how);
        say(text, "%s%s, on one %s worker of %u GPU%s (the model says %.1f ms): below %.1f ms %s is best, above it %s.",
            m > 0 ? " Then " : "", how, measure->sharding, measure->gpus, measure->gpus == 1 ? "" : "s",
            (double)measure->model_ns / 1e6, (double)measure->decides_ns / 1e6, measure->below, measure->above);
    }
    if (uncertainty->measure_count > 0)
        return;
    if (!uncertainty->known || uncertainty->tie_count > 0)
        say(text, "no single step decides: compare them on the machines, under this load");
    else
        say(text, "nothing");
}

/* ---- What else --------------------------------------------------------------------------------------------------- */

/* "29.63/s for $156.00/h: 3 % less for the money". */
static void say_beside(const struct scenario *scenario, const struct plan_candidate *item,
                       const struct plan_candidate *best, struct text *text)
{
    bool priced = item->candidate.usd_micros_per_hour > 0 && best->candidate.usd_micros_per_hour > 0;
    say(text, "%s serves %.2f requests/s", item->candidate.label, per_s(item->rate_micro_per_s));
    if (priced)
        say(text, " for $%.2f/h", usd(item->candidate.usd_micros_per_hour));
    else
        say(text, " on %u GPUs", item->candidate.gpus);
    double worth = (double)plan_worth_permille(item, best) / 10 - 100;
    if (serves_rate(scenario) && item->candidate.cost != best->candidate.cost)
        say(text, ": %.0f %% dearer", 100.0 * ((double)item->candidate.cost / (double)best->candidate.cost - 1));
    else if (worth > -0.5 && worth < 0.5)
        say(text, ": as much for its %s", priced ? "money" : "GPUs");
    else
        say(text, ": %.0f %% %s for its %s", worth < 0 ? -worth : worth, worth < 0 ? "less" : "more",
            priced ? "money" : "GPUs");
}

static void say_alternative(const struct scenario *scenario, const struct plan_result *result, struct text *text)
{
    const struct plan_candidate *best = &result->items[result->best];
    bool aggregated = !best->candidate.aggregated;
    if (result->alternative != NO_CANDIDATE) {
        say_beside(scenario, &result->items[result->alternative], best, text);
        if (result->uncertainty.known && result->uncertainty.alternative_may_win)
            say(text, "; within the model's error it may be better");
    } else if (!(aggregated ? result->aggregated_searched : result->disaggregated_searched)) {
        say(text, "not among the candidates");
    } else if (serves_rate(scenario)) {
        say(text, "none of the candidates serves %.2f requests/s", per_s(scenario->plan.rate_micro_per_s));
    } else {
        say(text, "none of the candidates meets the targets");
    }
}

json_t *plan_decision(const struct scenario *scenario, const struct plan_result *result)
{
    json_t *decision = json_object();
    struct text deploy = {.used = 0};
    if (result->best == NO_CANDIDATE) {
        say_nothing(scenario, result, &deploy);
        put(decision, "deploy", &deploy);
        return decision;
    }
    const struct plan_candidate *best = &result->items[result->best];
    struct text serves = {.used = 0};
    struct text costs = {.used = 0};
    struct text bound = {.used = 0};
    struct text sure = {.used = 0};
    struct text measure = {.used = 0};
    struct text next = {.used = 0};
    struct text instead = {.used = 0};
    say_deploy(&best->candidate, &deploy);
    say_serves(result, best, &serves);
    say_price(scenario, best, &costs);
    say(&bound, "%s", bound_name(best->bound_by));
    say_sure(scenario, result, &sure);
    say_measures(&result->uncertainty, &measure);
    if (result->runner_up == NO_CANDIDATE)
        say(&next, "none: no other candidate %s", serves_rate(scenario) ? "serves the rate" : "came near");
    else
        say_beside(scenario, &result->items[result->runner_up], best, &next);
    say_alternative(scenario, result, &instead);
    put(decision, "deploy", &deploy);
    put(decision, "serves", &serves);
    put(decision, "costs", &costs);
    put(decision, "bound_by", &bound);
    put(decision, "sure", &sure);
    put(decision, "measure_next", &measure);
    put(decision, "runner_up", &next);
    put(decision, best->candidate.aggregated ? "disaggregated_instead" : "aggregated_instead", &instead);
    return decision;
}
