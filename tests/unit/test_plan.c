/* The planner on small loads: the space, bounds and what they leave out, the search and its repetition, and the
 * verdict, each with a scenario in which only one thing can be the cause.
 */
#include "base/arith.h"
#include "sim/plan/plan_internal.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Instances of four GPUs on machines of four: what goes from a prefiller to a decoder always takes the NICs. */
static struct scenario *make_scenario(uint32_t prefill_max, uint32_t decode_max, uint32_t requests)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    assert_non_null(scenario);
    scenario_llama_70b(scenario, 1, 1, 4, requests);
    scenario->pools[0].count_max = prefill_max;
    scenario->pools[1].count_max = decode_max;
    for (uint32_t p = 0; p < 2; p++)
        scenario->pools[p].hardware.gpus_per_node = 4;
    scenario->plan = (struct plan_space){.goal = PLAN_HIGHEST_RATE, .requests = requests, .seeds = 2};
    return scenario;
}

static void search(const struct scenario *scenario, const struct plan_options *options, struct plan_result *result)
{
    struct user_error error = {.set = false};
    enum plan_status status = plan_search(scenario, NULL, options, result, &error);
    if (status != PLAN_DONE)
        fail_msg("plan: %s", error.text);
}

static void search_plain(const struct scenario *scenario, struct plan_result *result)
{
    search(scenario, &(struct plan_options){.threads = 1}, result);
}

static const struct plan_candidate *named(const struct plan_result *result, const char *label)
{
    for (uint32_t i = 0; i < result->count; i++)
        if (strcmp(result->items[i].candidate.label, label) == 0)
            return &result->items[i];
    fail_msg("no candidate %s", label);
    return NULL;
}

/* ---- Space ------------------------------------------------------------------------------------------------------- */

static void space_make(struct plan *plan, struct plan_result *result, const struct plan_options *options,
                       const struct scenario *scenario)
{
    struct user_error error = {.set = false};
    memset(result, 0, sizeof *result);
    *plan = (struct plan){.scenario = scenario, .options = options, .result = result, .priced = plan_priced(scenario)};
    assert_true(demand_make(&plan->demand, scenario, NULL, 200, &error));
    plan->sizes = deployment_sizes(&scenario->load);
}

static void space_free(struct plan *plan)
{
    demand_free(&plan->demand);
    plan_space_free(plan);
    plan_result_free(plan->result);
}

static void labels_are_unique(const struct plan_result *result)
{
    for (uint32_t i = 0; i < result->count; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_string_not_equal(result->items[i].candidate.label, result->items[j].candidate.label);
}

static void the_space_is_counts_times_shardings_within_the_nodes(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(3, 4, 200);
    struct plan_options options = {.threads = 1};
    struct plan_result result;
    struct plan plan;
    scenario->pools[1].sharding_count = 2;
    scenario->pools[1].shardings[1] = (struct parallelism){.tensor = 2, .data = 1, .expert = 1, .pipeline = 1};
    space_make(&plan, &result, &options, scenario);
    assert_true(plan_enumerate(&plan));
    assert_int_equal(result.count, 3 * 4 * 2);
    labels_are_unique(&result);
    space_free(&plan);

    scenario->plan.nodes_max = 3; /* two decoders of two GPUs share a machine */
    uint32_t expected = 0;
    for (uint32_t p = 1; p <= 3; p++)
        for (uint32_t d = 1; d <= 4; d++)
            expected += (p + d <= 3 ? 1u : 0u) + (p + (d + 1) / 2 <= 3 ? 1u : 0u);
    space_make(&plan, &result, &options, scenario);
    assert_true(plan_enumerate(&plan));
    assert_int_equal(result.count, expected);
    for (uint32_t i = 0; i < result.count; i++) {
        const struct candidate *c = &result.items[i].candidate;
        assert_in_range(c->machines, 1, 3);
        assert_in_range(c->prefill, 1, 3);
        assert_in_range(c->decode, 1, 4);
        assert_int_equal(c->usd_micros_per_hour, (uint64_t)c->machines * 4 * 2500000);
    }
    space_free(&plan);

    scenario->plan.nodes_max = 1;
    space_make(&plan, &result, &options, scenario);
    assert_false(plan_enumerate(&plan)); /* one of each takes two */
    space_free(&plan);
    free(scenario);
}

/* Two instances of three GPUs do not fill a machine of four: the deployment says so, and its word counts. */
static void instances_that_do_not_fill_machines_count_whole_ones(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 2, 200);
    struct plan_options options = {.threads = 1};
    struct plan_result result;
    struct plan plan;
    for (uint32_t p = 0; p < 2; p++) {
        scenario->pools[p].hardware.gpus_per_node = 8;
        scenario->pools[p].placement.kind = PLACEMENT_PACKED;
        scenario->pools[p].shardings[0] = (struct parallelism){.tensor = 2, .data = 1, .expert = 1, .pipeline = 1};
    }
    scenario->pools[1].shardings[0].pipeline = 3; /* six GPUs: 2 + 6 fill a machine, the second decoder takes another */
    scenario->plan.nodes_max = 1;
    space_make(&plan, &result, &options, scenario);
    assert_true(plan_enumerate(&plan));
    for (uint32_t i = 0; i < result.count; i++)
        assert_true(result.items[i].candidate.machines <= 1);
    space_free(&plan);
    free(scenario);
}

static void pools_may_differ_in_hardware_and_in_anything_else(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 1, 200);
    struct plan_options options = {.threads = 1};
    struct plan_result result;
    struct plan plan;
    scenario->pool_count = 3;
    scenario->pools[2] = scenario->pools[1];
    scenario->pools[1] = scenario->pools[0];
    snprintf(scenario->pools[1].name, sizeof scenario->pools[1].name, "patient");
    scenario->pools[1].scheduler.token_budget = 2048; /* same machine, same sharding */
    snprintf(scenario->pools[2].hardware.name, sizeof scenario->pools[2].hardware.name, "h200");
    snprintf(scenario->pools[2].hardware.gpu, sizeof scenario->pools[2].hardware.gpu, "H200");
    space_make(&plan, &result, &options, scenario);
    assert_true(plan_enumerate(&plan));
    assert_int_equal(result.count, 2);
    labels_are_unique(&result); /* their probes are kept by label */
    assert_string_equal(result.items[0].candidate.label, "1P1D TP4 in prefill / TP4 on H200");
    assert_string_equal(result.items[1].candidate.label, "1P1D TP4 in patient / TP4 on H200");
    assert_int_equal(result.items[0].candidate.machines, 2);

    space_free(&plan);

    scenario->plan.compare_mixed = 1;
    scenario->plan.nodes_max = 3;
    space_make(&plan, &result, &options, scenario);
    assert_true(plan_enumerate(&plan));
    assert_int_equal(result.count, 2 + 2 * 3); /* two kinds of machine, three budgets */
    labels_are_unique(&result);
    for (uint32_t i = 2; i < result.count; i++) {
        assert_true(result.items[i].candidate.aggregated);
        assert_int_equal(result.items[i].candidate.decode, 3);
    }
    space_free(&plan);
    free(scenario);
}

/* Where a rate is to be served, fewer workers may do: all counts are candidates. */
static void aggregated_workers_are_candidates_of_every_count(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 1, 200);
    struct plan_options options = {.threads = 1};
    struct plan_result result;
    struct plan plan;
    scenario->plan.compare_mixed = 1;
    scenario->plan.nodes_max = 4;
    scenario->plan.goal = PLAN_SERVE_RATE;
    scenario->pools[0].sharding_count = 2;
    scenario->pools[0].shardings[1] = (struct parallelism){.tensor = 2, .data = 1, .expert = 1, .pipeline = 1};
    space_make(&plan, &result, &options, scenario);
    assert_true(plan_enumerate(&plan));
    assert_int_equal(result.count, 2 + 3 * (4 + 8)); /* TP4 up to 4, TP2 up to 8 */
    labels_are_unique(&result);
    space_free(&plan);

    /* A pool that is mixed has its own counts, and its own budget among those tried. */
    scenario_llama_70b_mixed(scenario, 1, 4, 200);
    scenario->plan = (struct plan_space){.goal = PLAN_SERVE_RATE, .nodes_max = 8, .requests = 200, .seeds = 2};
    scenario->pools[0].count_min = 2;
    scenario->pools[0].count_max = 5;
    scenario->pools[0].scheduler.token_budget = 1000;
    space_make(&plan, &result, &options, scenario);
    assert_true(plan_enumerate(&plan));
    assert_int_equal(result.count, 4 * 4);
    labels_are_unique(&result);
    space_free(&plan);
    free(scenario);
}

/* ---- Bounds ------------------------------------------------------------------------------------------------------ */

static void variant_of(struct scenario *scenario, uint32_t which)
{
    switch (which) {
    case 1: /* long outputs */
        scenario->load.output = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 400, .high = 800};
        break;
    case 2: /* little memory */
        scenario->pools[1].memory_utilization_permille = 300;
        break;
    case 3: /* slow NICs */
        scenario->pools[0].hardware.nic.bytes_per_s = 500000000;
        scenario->pools[1].hardware.nic.bytes_per_s = 500000000;
        break;
    case 4: /* long prompts, no chance to batch them */
        scenario->load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 4096, .high = 12000};
        scenario->targets.item[0].limit_ns = 8 * NS_PER_S;
        break;
    default:
        break;
    }
}

/* No candidate does better than its bound says, within the slack that is granted; and the answer of a search that
 * leaves out is the answer of one that does not. */
static void bounds_hold_and_leave_out_no_winner(void **state)
{
    (void)state;
    uint32_t left_out = 0;
    for (uint32_t which = 0; which < 5; which++) {
        struct scenario *scenario = make_scenario(2, 3, 600);
        struct plan_result pruned;
        struct plan_result whole;
        variant_of(scenario, which);
        search_plain(scenario, &pruned);
        search(scenario, &(struct plan_options){.threads = 1, .exhaustive = true}, &whole);
        for (uint32_t i = 0; i < whole.count; i++) {
            const struct plan_candidate *item = &whole.items[i];
            assert_true(item->searched);
            uint64_t most = plan_with_slack(item->candidate.bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE);
            for (uint32_t s = 0; s < item->seeds; s++)
                assert_true(item->seed_micro_per_s[s] <= most);
        }
        assert_int_not_equal(whole.best, NO_CANDIDATE);
        assert_string_equal(pruned.items[pruned.best].candidate.label, whole.items[whole.best].candidate.label);
        assert_int_equal(pruned.items[pruned.best].rate_micro_per_s, whole.items[whole.best].rate_micro_per_s);
        for (uint32_t i = 0; i < pruned.count; i++)
            left_out += !pruned.items[i].searched && pruned.items[i].dismissed_micro_per_s == 0;
        plan_result_free(&pruned);
        plan_result_free(&whole);
        free(scenario);
    }
    assert_true(left_out > 0); /* else nothing was shown */
}

/* ---- Determinism ------------------------------------------------------------------------------------------------- */

struct memory_store {
    struct {
        char candidate[320];
        struct probe probe;
    } kept[2000];
    uint32_t count;
    uint32_t asked;
    uint32_t fail_at; /* the so-manieth probe cannot be kept; 0: all can */
};

static bool find(void *self, const char *candidate, uint64_t rate_micro_per_s, uint64_t seed, struct probe *probe)
{
    struct memory_store *store = self;
    store->asked++;
    for (uint32_t i = 0; i < store->count; i++)
        if (store->kept[i].probe.rate_micro_per_s == rate_micro_per_s && store->kept[i].probe.seed == seed &&
            strcmp(store->kept[i].candidate, candidate) == 0) {
            *probe = store->kept[i].probe;
            return true;
        }
    return false;
}

static bool keep(void *self, const char *candidate, const struct probe *probe, struct user_error *error)
{
    struct memory_store *store = self;
    if (store->count + 1 == store->fail_at) {
        user_error_set(error, NULL, 0, NULL, "the disk is full");
        return false;
    }
    assert_true(store->count < 2000);
    snprintf(store->kept[store->count].candidate, sizeof store->kept[0].candidate, "%s", candidate);
    store->kept[store->count++].probe = *probe;
    return true;
}

static void assert_same_plan(const struct plan_result *a, const struct plan_result *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->best, b->best);
    assert_int_equal(a->alternative, b->alternative);
    assert_int_equal(a->runner_up, b->runner_up);
    assert_int_equal(a->outcome, b->outcome);
    assert_memory_equal(a->order, b->order, a->count * sizeof *a->order);
    assert_int_equal(a->frontier_count, b->frontier_count);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct plan_candidate *x = &a->items[i];
        const struct plan_candidate *y = &b->items[i];
        assert_string_equal(x->candidate.label, y->candidate.label);
        assert_int_equal(x->searched, y->searched);
        assert_int_equal(x->rate_micro_per_s, y->rate_micro_per_s);
        assert_int_equal(x->rate_low_micro_per_s, y->rate_low_micro_per_s);
        assert_int_equal(x->bound_by, y->bound_by);
        assert_int_equal(x->saturation_permille, y->saturation_permille);
        assert_int_equal(x->at[0].trace_hash, y->at[0].trace_hash);
    }
    for (uint32_t i = 0; i < a->frontier_count; i++)
        assert_string_equal(a->frontier[i].label, b->frontier[i].label);
}

static void threads_repetition_and_stored_probes_change_nothing(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(2, 2, 300);
    struct memory_store *store = calloc(1, sizeof *store);
    assert_non_null(store);
    scenario->plan.compare_mixed = 1;
    scenario->plan.seeds = 3;
    struct plan_options options = {.threads = 1, .store = {.self = store, .find = find, .keep = keep}};
    struct plan_result first;
    struct plan_result threaded;
    struct plan_result resumed;
    search(scenario, &options, &first);
    assert_int_equal(first.probes_found, 0);
    assert_int_equal(first.probes_run, store->count);
    search(scenario, &(struct plan_options){.threads = 3}, &threaded);
    assert_same_plan(&first, &threaded);
    search(scenario, &options, &resumed);
    assert_int_equal(resumed.probes_run, 0);
    assert_int_equal(resumed.probes_found, first.probes_run);
    assert_same_plan(&first, &resumed);
    plan_result_free(&resumed);

    store->count /= 2; /* as an interrupted search leaves it */
    search(scenario, &options, &resumed);
    assert_int_equal(resumed.probes_found, first.probes_run / 2);
    assert_same_plan(&first, &resumed);
    plan_result_free(&resumed);
    plan_result_free(&first);
    plan_result_free(&threaded);
    free(store);
    free(scenario);
}

static void a_store_that_fails_ends_the_search(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(2, 2, 200);
    struct memory_store *store = calloc(1, sizeof *store);
    assert_non_null(store);
    store->fail_at = 7;
    struct plan_options options = {.threads = 2, .store = {.self = store, .find = find, .keep = keep}};
    struct plan_result result;
    struct user_error error = {.set = false};
    assert_int_equal(plan_search(scenario, NULL, &options, &result, &error), PLAN_REFUSED);
    assert_non_null(strstr(error.text, "the disk is full"));
    assert_int_equal(store->count, 6);
    plan_result_free(&result);
    free(store);
    free(scenario);
}

/* ---- Intervals --------------------------------------------------------------------------------------------------- */

static void intervals_are_students(void **state)
{
    (void)state;
    /* Any table of Student's t: 0.975 points with 1, 2, 4 and 15 degrees of freedom. */
    assert_int_equal(plan_student_t_milli(2), 12706);
    assert_int_equal(plan_student_t_milli(3), 4303);
    assert_int_equal(plan_student_t_milli(5), 2776);
    assert_int_equal(plan_student_t_milli(16), 2131);

    struct plan_candidate *item = calloc(1, sizeof *item);
    assert_non_null(item);
    /* 8, 10, 12: mean 10, deviation 2, standard error 2 / sqrt(3), half width 4.303 * 1.1547 = 4.9687. */
    item->seeds = 3;
    item->seed_micro_per_s[0] = 10000000;
    item->seed_micro_per_s[1] = 8000000;
    item->seed_micro_per_s[2] = 12000000;
    plan_sum_up_rate(item, true);
    assert_true(item->reachable);
    assert_int_equal(item->worst_seed, 1);
    assert_int_equal(item->rate_micro_per_s, 10000000);
    assert_in_range(item->rate_high_micro_per_s, 14968000, 14969000);
    assert_in_range(item->rate_low_micro_per_s, 5031000, 5032000);

    /* Equal rates: the bracket's own width is left. */
    memset(item, 0, sizeof *item);
    item->seeds = 2;
    item->seed_micro_per_s[0] = item->seed_micro_per_s[1] = 6400000;
    plan_sum_up_rate(item, true);
    assert_int_equal(item->rate_low_micro_per_s, 6300000);
    assert_int_equal(item->rate_high_micro_per_s, 6500000);

    /* A seed under which no rate meets the targets is not averaged away. */
    item->seed_micro_per_s[1] = 0;
    item->rate_micro_per_s = 0;
    plan_sum_up_rate(item, true);
    assert_false(item->reachable);
    assert_int_equal(item->rate_micro_per_s, 0);
    free(item);
}

/* ---- Serving a rate ---------------------------------------------------------------------------------------------- */

static void the_cheapest_that_serves_is_picked(void **state)
{
    (void)state;
    for (uint32_t priced = 0; priced < 2; priced++) {
        struct scenario *scenario = make_scenario(3, 3, 600);
        struct plan_result highest;
        struct plan_result serving;
        for (uint32_t p = 0; p < 2 && !priced; p++)
            scenario->pools[p].hardware.usd_micros_per_gpu_hour = 0;
        search(scenario, &(struct plan_options){.threads = 1, .exhaustive = true}, &highest);
        scenario->plan.goal = PLAN_SERVE_RATE;
        scenario->plan.rate_micro_per_s = named(&highest, "1P1D TP4 / TP4")->rate_high_micro_per_s + 1000000;
        search_plain(scenario, &serving);
        uint32_t least = UINT32_MAX; /* by hand, from what all of them reach */
        for (uint32_t i = 0; i < highest.count; i++)
            if (highest.items[i].rate_low_micro_per_s >= scenario->plan.rate_micro_per_s)
                least = min_u32(least, highest.items[i].candidate.machines);
        assert_in_range(least, 3, 6);
        assert_int_not_equal(serving.best, NO_CANDIDATE);
        const struct plan_candidate *best = &serving.items[serving.best];
        assert_int_equal(best->candidate.machines, least);
        assert_true(best->rate_low_micro_per_s >= scenario->plan.rate_micro_per_s);
        assert_int_equal(best->usd_micros_per_mtok > 0, priced);
        assert_int_equal(serving.order[0], serving.best);
        plan_result_free(&serving);

        scenario->plan.rate_micro_per_s *= 100;
        search_plain(scenario, &serving);
        assert_int_equal(serving.best, NO_CANDIDATE);
        assert_int_equal(serving.outcome, PLAN_BOUNDS_TOO_LOW);
        plan_result_free(&serving);
        plan_result_free(&highest);
        free(scenario);
    }
}

/* ---- What binds -------------------------------------------------------------------------------------------------- */

static void assert_bound(const struct plan_candidate *item, enum bound bound)
{
    if (item->bound_by != bound)
        fail_msg("%s is bound by %s, expected %s", item->candidate.label, bound_name(item->bound_by),
                 bound_name(bound));
}

/* Plans 1P1D after `change` and checks what is said to bind it. */
static void expect_bound(void (*change)(struct scenario *scenario), enum bound bound)
{
    struct scenario *scenario = make_scenario(1, 1, 1500);
    struct plan_result result;
    scenario->targets.item[0].limit_ns = 2 * NS_PER_S;
    scenario->targets.item[1].limit_ns = 200 * NS_PER_MS;
    change(scenario);
    search_plain(scenario, &result);
    const struct plan_candidate *item = &result.items[0];
    assert_true(item->searched);
    assert_true(item->reachable);
    assert_bound(item, bound);
    plan_result_free(&result);
    free(scenario);
}

static struct length_distribution tokens(uint32_t low, uint32_t high)
{
    return (struct length_distribution){.kind = LENGTH_UNIFORM, .low = low, .high = high};
}

static void long_prompts_short_outputs(struct scenario *scenario)
{
    scenario->load.prompt = tokens(3000, 5000);
    scenario->load.output = tokens(2, 8);
}

static void the_prefiller_is_too_slow(void **state)
{
    (void)state;
    expect_bound(long_prompts_short_outputs, BOUND_PREFILL_COMPUTE);
}

/* A decoder asks for one transfer at a time per slot, and the prefiller is what keeps them busy: not the slots'
 * fault. */
static void few_slots_before_a_slow_prefiller(struct scenario *scenario)
{
    long_prompts_short_outputs(scenario);
    scenario->messenger.handoffs_max = 4;
}

static void slots_are_not_blamed_for_a_slow_prefiller(void **state)
{
    (void)state;
    expect_bound(few_slots_before_a_slow_prefiller, BOUND_PREFILL_COMPUTE);
}

static void weights_and_long_contexts(struct scenario *scenario)
{
    scenario->load.prompt = tokens(2000, 4000);
    scenario->load.output = tokens(500, 1000);
    scenario->targets.item[1].limit_ns = 14 * NS_PER_MS;
}

static void the_decoder_reads_too_much(void **state)
{
    (void)state;
    expect_bound(weights_and_long_contexts, BOUND_DECODE_BANDWIDTH);
}

static void thousands_of_short_contexts(struct scenario *scenario)
{
    scenario->load.prompt = tokens(8, 16);
    scenario->load.output = tokens(100, 200);
    scenario->pools[1].scheduler.batch_max = 8192;
    scenario->pools[1].scheduler.headroom_tokens = 32;
    scenario->messenger.handoffs_max = 2048;
    scenario->plan.requests = 12000;
    scenario->targets.item[1].limit_ns = 60 * NS_PER_MS;
}

static void the_decoder_computes_too_much(void **state)
{
    (void)state;
    expect_bound(thousands_of_short_contexts, BOUND_DECODE_COMPUTE);
}

static void hardly_any_pages(struct scenario *scenario)
{
    scenario->pools[1].memory_utilization_permille = 250;
    scenario->load.output = tokens(200, 400);
}

static void the_decoder_has_too_few_pages(void **state)
{
    (void)state;
    expect_bound(hardly_any_pages, BOUND_KV_CAPACITY);
}

static void one_slot(struct scenario *scenario)
{
    scenario->messenger.handoffs_max = 1;
    scenario->load.prompt = tokens(200, 400);
    scenario->load.output = tokens(8, 16);
}

static void one_transfer_at_a_time_is_too_few(void **state)
{
    (void)state;
    expect_bound(one_slot, BOUND_HANDOFFS);
}

static void thin_nics(struct scenario *scenario)
{
    for (uint32_t p = 0; p < 2; p++)
        scenario->pools[p].hardware.nic.bytes_per_s = 300000000;
    scenario->load.output = tokens(8, 16);
}

static void the_nics_are_too_thin(void **state)
{
    (void)state;
    expect_bound(thin_nics, BOUND_NIC_BANDWIDTH);
}

static void slow_to_post(struct scenario *scenario)
{
    for (uint32_t p = 0; p < 2; p++) {
        scenario->pools[p].hardware.nic.gap_ps = 4000000; /* 4 us a write */
        scenario->pools[p].hardware.nic.posting_ps = 16000000;
        scenario->pools[p].page_tokens = 16;
    }
    scenario->load.output = tokens(8, 16);
}

static void the_nics_post_too_slowly(void **state)
{
    (void)state;
    expect_bound(slow_to_post, BOUND_NIC_OP_RATE);
}

static void small_batch(struct scenario *scenario)
{
    scenario->pools[1].scheduler.batch_max = 4;
}

static void the_batch_is_limited(void **state)
{
    (void)state;
    expect_bound(small_batch, BOUND_BATCH_LIMIT);
}

/* An end-to-end target is missed where the time goes. */
static void end_to_end(struct scenario *scenario)
{
    scenario->targets = (struct targets){
        .count = 1, .item = {{.metric = TARGET_E2E, .percentile_permille = 950, .limit_ns = 12 * NS_PER_S}}};
    weights_and_long_contexts(scenario);
}

static void an_end_to_end_target_looks_at_every_span(void **state)
{
    (void)state;
    expect_bound(end_to_end, BOUND_DECODE_BANDWIDTH);
}

static void prompts_disturb_aggregated_decoding(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 1, 1000);
    struct plan_result result;
    scenario->plan.compare_mixed = 1;
    scenario->targets.item[1].limit_ns = 30 * NS_PER_MS; /* a chunk of thousands takes longer than that */
    scenario->load.prompt = tokens(3000, 5000);
    search_plain(scenario, &result);
    assert_int_not_equal(result.alternative, NO_CANDIDATE);
    assert_int_not_equal(result.items[result.alternative].candidate.aggregated,
                         result.items[result.best].candidate.aggregated);
    const struct plan_candidate *item = named(&result, "2 x TP4 aggregated, budget 8192");
    assert_true(item->searched);
    assert_bound(item, BOUND_PREFILL_INTERFERENCE);
    plan_result_free(&result);
    free(scenario);
}

/* ---- No answer --------------------------------------------------------------------------------------------------- */

static void expect_none(struct scenario *scenario, enum plan_outcome outcome, enum bound bound)
{
    struct plan_result result;
    search_plain(scenario, &result);
    assert_int_equal(result.best, NO_CANDIDATE);
    assert_int_equal(result.outcome, outcome);
    const struct plan_candidate *closest = &result.items[result.closest];
    assert_int_equal(closest->searched ? closest->bound_by : closest->candidate.bound_by, bound);
    plan_result_free(&result);
    free(scenario);
}

static void a_model_that_does_not_fit_is_said_to(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 1, 200);
    for (uint32_t p = 0; p < 2; p++)
        scenario->pools[p].hardware.memory_bytes = UINT64_C(12) << 30; /* 17 GiB of weights a rank */
    expect_none(scenario, PLAN_NONE_DEPLOYABLE, BOUND_DOES_NOT_FIT);
}

static void targets_out_of_reach_say_why(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 1, 200);
    scenario->targets.item[1].limit_ns = 2 * NS_PER_MS; /* reading the weights alone takes longer */
    expect_none(scenario, PLAN_NONE_FAST_ENOUGH, BOUND_DECODE_BANDWIDTH);

    scenario = make_scenario(1, 1, 200);
    scenario->targets.item[0].limit_ns = 10 * NS_PER_MS; /* a prompt of 2048 takes longer */
    expect_none(scenario, PLAN_NONE_MEETS, BOUND_PREFILL_COMPUTE);

    scenario = make_scenario(1, 1, 200); /* without any load, the transfer alone takes too long */
    thin_nics(scenario);
    scenario->targets.item[0].limit_ns = 300 * NS_PER_MS;
    expect_none(scenario, PLAN_NONE_MEETS, BOUND_NIC_BANDWIDTH);
}

/* Its bound carries the rate, its queues do not: what comes closest is told with its own rate. */
static void what_comes_closest_has_a_rate(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 1, 1500);
    struct plan_result result;
    scenario->targets.item[0].limit_ns = 300 * NS_PER_MS; /* queues miss it long before prefillers are full */
    search_plain(scenario, &result);
    uint64_t most = result.items[0].rate_high_micro_per_s;
    uint64_t bound = plan_with_slack(result.items[0].candidate.bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE);
    assert_true(bound > most + most / 20); /* else nothing is shown */
    plan_result_free(&result);
    scenario->plan.goal = PLAN_SERVE_RATE;
    scenario->plan.rate_micro_per_s = most + (bound - most) / 2;
    search_plain(scenario, &result);
    assert_int_equal(result.outcome, PLAN_NONE_SERVES);
    const struct plan_candidate *closest = &result.items[result.closest];
    assert_true(closest->searched && closest->reachable);
    assert_true(closest->rate_micro_per_s > 0 && closest->rate_low_micro_per_s < scenario->plan.rate_micro_per_s);
    plan_result_free(&result);
    free(scenario);
}

/* A finite load never misses a target that is longer than itself: the search has to end all the same. */
static void lax_targets_end_at_the_bound(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(1, 1, 200);
    struct plan_result result;
    scenario->targets.item[0].limit_ns = 3600 * NS_PER_S;
    scenario->targets.item[1].limit_ns = 3600 * NS_PER_S;
    search_plain(scenario, &result);
    const struct plan_candidate *item = &result.items[0];
    assert_int_equal(result.best, 0);
    assert_true(item->capped);
    assert_true(item->rate_micro_per_s <=
                plan_with_slack(item->candidate.bound_micro_per_s, PLAN_BOUND_SLACK_PERMILLE));
    assert_bound(item, item->candidate.bound_by);
    plan_result_free(&result);
    free(scenario);
}

static void what_cannot_be_planned_is_refused(void **state)
{
    (void)state;
    struct plan_result result;
    struct user_error error = {.set = false};
    struct plan_options options = {.threads = 1};
    struct scenario *scenario = make_scenario(1, 1, 200);
    scenario->load.arrivals = ARRIVAL_CLOSED;
    assert_int_equal(plan_search(scenario, NULL, &options, &result, &error), PLAN_REFUSED);
    assert_non_null(strstr(error.text, "closed loop"));
    plan_result_free(&result);
    scenario->load.arrivals = ARRIVAL_POISSON;
    scenario->targets = (struct targets){.count = 0};
    error.set = false;
    assert_int_equal(plan_search(scenario, NULL, &options, &result, &error), PLAN_REFUSED);
    assert_non_null(strstr(error.text, "needs targets"));
    plan_result_free(&result);
    scenario->targets.count = 2;
    scenario->plan.nodes_max = 1; /* one of each takes two */
    error.set = false;
    assert_int_equal(plan_search(scenario, NULL, &options, &result, &error), PLAN_REFUSED);
    assert_non_null(strstr(error.text, "role"));
    plan_result_free(&result);
    free(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_space_is_counts_times_shardings_within_the_nodes),
        cmocka_unit_test(instances_that_do_not_fill_machines_count_whole_ones),
        cmocka_unit_test(pools_may_differ_in_hardware_and_in_anything_else),
        cmocka_unit_test(aggregated_workers_are_candidates_of_every_count),
        cmocka_unit_test(bounds_hold_and_leave_out_no_winner),
        cmocka_unit_test(threads_repetition_and_stored_probes_change_nothing),
        cmocka_unit_test(a_store_that_fails_ends_the_search),
        cmocka_unit_test(intervals_are_students),
        cmocka_unit_test(the_cheapest_that_serves_is_picked),
        cmocka_unit_test(the_prefiller_is_too_slow),
        cmocka_unit_test(slots_are_not_blamed_for_a_slow_prefiller),
        cmocka_unit_test(the_decoder_reads_too_much),
        cmocka_unit_test(the_decoder_computes_too_much),
        cmocka_unit_test(the_decoder_has_too_few_pages),
        cmocka_unit_test(one_transfer_at_a_time_is_too_few),
        cmocka_unit_test(the_nics_are_too_thin),
        cmocka_unit_test(the_nics_post_too_slowly),
        cmocka_unit_test(the_batch_is_limited),
        cmocka_unit_test(an_end_to_end_target_looks_at_every_span),
        cmocka_unit_test(prompts_disturb_aggregated_decoding),
        cmocka_unit_test(a_model_that_does_not_fit_is_said_to),
        cmocka_unit_test(targets_out_of_reach_say_why),
        cmocka_unit_test(what_comes_closest_has_a_rate),
        cmocka_unit_test(lax_targets_end_at_the_bound),
        cmocka_unit_test(what_cannot_be_planned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
