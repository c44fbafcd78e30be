/* What the error of the device model leaves of a plan: spans of errors, devices whose steps are scaled, a winner that
 * no error touches, and one that an error may undo, with the measurement that decides. */
#define _POSIX_C_SOURCE 200809L

#include "base/arith.h"
#include "sim/plan/plan_internal.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static struct model_errors *errors_of(const char *rows)
{
    char path[] = "/tmp/tandem-errors-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    assert_non_null(file);
    fprintf(file, "# by hand\nengine,system,family,metric,rows,median_ppm,p90_ppm,bias_ppm\n%s", rows);
    assert_int_equal(fclose(file), 0);
    struct user_error error = {.set = false};
    struct model_errors *errors = model_errors_load(path, &error);
    unlink(path);
    if (errors == NULL)
        fail_msg("%s", error.text);
    return errors;
}

static void an_error_spans_what_steps_take(void **state)
{
    (void)state;
    struct step_error error;
    step_error_span(0, 100000, &error); /* 1 / 1.1, 1 / 0.9, and 1 / (1 + 0.1 x 1.414) */
    assert_int_equal(error.fast_permille, 909);
    assert_int_equal(error.slow_permille, 1111);
    assert_int_equal(error.relative_permille, 876);

    /* Always too fast by 15 to 25 %: the bias is shared, only the scatter of 5 % sets shardings apart. */
    step_error_span(-200000, 250000, &error);
    assert_int_equal(error.fast_permille, 1176);
    assert_int_equal(error.slow_permille, 1333);
    assert_int_equal(error.relative_permille, 919);

    step_error_span(0, 3000000, &error);
    assert_int_equal(error.fast_permille, 250);
    assert_int_equal(error.slow_permille, 1000 * MODEL_ERROR_FACTOR_MAX);
}

static void the_closest_class_with_rows_enough_is_asked(void **state)
{
    (void)state;
    struct model_errors *errors = errors_of("*,*,*,tpot-colocated,500,1,90000,0\n"
                                            "*,H200,gqa-dense,tpot-colocated,40,1,80000,0\n"
                                            "vllm,H200,gqa-dense,tpot-colocated,30,1,70000,0\n"
                                            "sglang,H200,gqa-dense,tpot-colocated,5,1,60000,0\n");
    struct architecture dense = {.attention = ATTENTION_GQA};
    struct architecture sparse = {.attention = ATTENTION_MLA, .experts = 256};
    struct step_error found;
    assert_true(model_error_find(errors, STEP_DECODE, ENGINE_VLLM, "H200", &dense, &found));
    assert_int_equal(found.p90_permille, 70);
    assert_string_equal(found.class_name, "vllm, H200, gqa-dense");
    assert_true(model_error_find(errors, STEP_DECODE, ENGINE_SGLANG, "H200", &dense, &found)); /* 5 rows say little */
    assert_int_equal(found.p90_permille, 80);
    assert_true(model_error_find(errors, STEP_DECODE, ENGINE_NEUTRAL, "H200", &dense, &found));
    assert_int_equal(found.p90_permille, 80);
    assert_true(model_error_find(errors, STEP_DECODE, ENGINE_VLLM, "B200", &sparse, &found));
    assert_string_equal(found.class_name, "any engine, any GPU, any model");
    assert_false(model_error_find(errors, STEP_PREFILL, ENGINE_VLLM, "H200", &dense, &found));
    model_errors_free(errors);
}

/* What is shipped covers every engine, GPU and model. */
static void the_shipped_errors_are_of_use(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    struct model_errors *errors = model_errors_load(TANDEM_SOURCE_DIR "/scenarios/validation/errors.csv", &error);
    struct architecture model = {.attention = ATTENTION_MLA, .experts = 256};
    struct step_error found;
    if (errors == NULL)
        fail_msg("%s", error.text);
    for (enum engine_kind engine = ENGINE_NEUTRAL; engine <= ENGINE_TRTLLM; engine++)
        for (uint32_t kind = 0; kind < STEP_KINDS; kind++) {
            assert_true(model_error_find(errors, (enum step_kind)kind, engine, "unheard of", &model, &found));
            assert_true(found.fast_permille < found.slow_permille);
            assert_true(found.rows >= MODEL_ERROR_ROWS_MIN);
        }
    model_errors_free(errors);
}

/* ---- Scaled devices ---------------------------------------------------------------------------------------------- */

#define DECODE_HOST_NS (12 * NS_PER_MS)

static struct scenario *make_scenario(uint32_t requests)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    assert_non_null(scenario);
    scenario_llama_70b(scenario, 1, 1, 4, requests);
    for (uint32_t p = 0; p < 2; p++) {
        scenario->pools[p].count_max = 2;
        scenario->pools[p].hardware.gpus_per_node = 4;
    }
    scenario->plan = (struct plan_space){.goal = PLAN_HIGHEST_RATE, .requests = requests, .seeds = 2, .nodes_max = 3};
    return scenario;
}

static int64_t total_of(struct device device, struct step_group group)
{
    struct step_time time;
    device.ops->step(device.model, &group, 1, &time);
    assert_true(time.first_layer_ns >= 0 && time.layer_ns >= 0);
    assert_true(time.first_layer_ns + 79 * time.layer_ns <= time.total_ns); /* 80 layers */
    return time.total_ns;
}

static void steps_are_scaled_by_what_they_do(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(100);
    struct deployment_choice choice = deployment_default(scenario);
    struct run_models models;
    struct user_error error = {.set = false};
    assert_true(run_models_make(scenario, &choice, &models, &error));
    struct device plain = device_of(models.pool[1]);
    const struct step_group decode = {.decode_sequences = 32, .decode_context = 40000};
    const struct step_group prompt = {.prefill_sequences = 1, .prefill_tokens = 1000, .prefill_pairs = 500500};
    struct step_group both = prompt;
    both.decode_sequences = decode.decode_sequences;
    both.decode_context = decode.decode_context;
    int64_t decode_ns = total_of(plain, decode);
    int64_t prompt_ns = total_of(plain, prompt);
    int64_t both_ns = total_of(plain, both);

    struct scaled_device slow_decode = {.under = plain, .scale = {.prefill_permille = 1000, .decode_permille = 1500}};
    struct scaled_device slow_prompts = {.under = plain, .scale = {.prefill_permille = 2000, .decode_permille = 1000}};
    struct scaled_device same = {.under = plain, .scale = STEP_SCALE_NONE};
    assert_ptr_equal(scaled_device_of(&same).model, plain.model);
    assert_in_range(total_of(scaled_device_of(&slow_decode), decode), decode_ns * 3 / 2 - 2, decode_ns * 3 / 2 + 2);
    assert_int_equal(total_of(scaled_device_of(&slow_decode), prompt), prompt_ns);
    assert_int_equal(total_of(scaled_device_of(&slow_prompts), decode), decode_ns);
    assert_int_equal(total_of(scaled_device_of(&slow_prompts), prompt), 2 * prompt_ns);
    assert_int_equal(total_of(scaled_device_of(&slow_prompts), both), 2 * both_ns - decode_ns);

    /* A decode step is the sum of its two parts, as the simulator takes them. */
    struct device device = scaled_device_of(&slow_decode);
    struct decode_line line;
    device.ops->decode_line(device.model, 32, 40000, &line);
    assert_int_equal(total_of(device, decode),
                     device.ops->decode_fixed_ns(device.model, &decode, 1) + decode_line_ns(&line, 40000));
    run_models_free(&models);
    free(scenario);
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

static void search(const struct scenario *scenario, const struct model_errors *errors, struct plan_result *result)
{
    struct user_error error = {.set = false};
    struct plan_options options = {.threads = 2, .errors = errors};
    if (plan_search(scenario, NULL, &options, result, &error) != PLAN_DONE)
        fail_msg("plan: %s", error.text);
    assert_int_not_equal(result->best, NO_CANDIDATE);
}

static const char *best_label(const struct plan_result *result)
{
    return result->items[result->best].candidate.label;
}

static struct model_errors *errors_of_percent(uint32_t percent)
{
    char rows[256];
    snprintf(rows, sizeof rows, "*,*,*,tpot-colocated,100,1,%u0000,0\n*,*,*,ttft-colocated,100,1,%u0000,0\n", percent,
             percent);
    return errors_of(rows);
}

/* Answers of a thousand tokens: two decoders serve nearly twice what one does, whatever prefill takes. */
static void a_clear_winner_is_recommended(void **state)
{
    (void)state;
    struct scenario *scenario = make_scenario(600);
    struct model_errors *errors = errors_of_percent(8);
    struct plan_result result;
    scenario->load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 200, .high = 400};
    scenario->load.output = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 400, .high = 800};
    search(scenario, errors, &result);
    const struct plan_candidate *best = &result.items[result.best];
    assert_string_equal(best_label(&result), "1P2D TP4 / TP4");
    assert_true(result.uncertainty.known);
    assert_true(result.uncertainty.certain);
    assert_int_equal(result.uncertainty.measure_count, 0);
    assert_int_equal(result.uncertainty.tie_count, 0);
    assert_true(best->uncertainty_known);
    assert_true(best->rate_model_low_micro_per_s < best->rate_micro_per_s);
    assert_true(best->rate_model_high_micro_per_s > best->rate_micro_per_s);
    plan_result_free(&result);

    /* Without errors nothing is said of them. */
    search(scenario, NULL, &result);
    assert_false(result.uncertainty.known);
    plan_result_free(&result);
    model_errors_free(errors);
    free(scenario);
}

/* Makes the steps of a kind truly take so much of what they took. A decode step is mostly its host time here, so that
 * more of that is more of all of it, whatever the batch. */
static void make_true(struct scenario *scenario, const struct plan_measure *measure, uint64_t permille)
{
    if (measure->step == STEP_PREFILL)
        scenario->pools[0].engine.prefill_permille = (uint32_t)permille;
    else
        scenario->pools[1].engine.host_ns =
            DECODE_HOST_NS + (measure->model_ns * (int64_t)permille - measure->model_ns * 1000) / 1000;
}

/* What binds the best one is near to what binds another, so that the time of a step decides between them. Steps that
 * truly take a little less than the time named, and a little more, have the winners that it names. */
static void expect_decisive(enum step_kind kind, uint32_t prompt, uint32_t output)
{
    struct scenario *scenario = make_scenario(1200);
    struct model_errors *errors = errors_of_percent(kind == STEP_PREFILL ? 35 : 25);
    struct plan_result result;
    scenario->load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = prompt, .high = 2 * prompt};
    scenario->load.output = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = output, .high = 2 * output};
    if (kind == STEP_DECODE)
        scenario->pools[1].engine.host_ns = DECODE_HOST_NS;
    search(scenario, errors, &result);
    assert_true(result.uncertainty.known);
    assert_false(result.uncertainty.certain);
    assert_true(result.uncertainty.tie_count > 0);
    const struct plan_measure *measure = NULL;
    for (uint32_t m = 0; m < result.uncertainty.measure_count; m++)
        if (result.uncertainty.measures[m].step == kind)
            measure = &result.uncertainty.measures[m];
    assert_non_null(measure);
    assert_string_not_equal(measure->below, measure->above);
    assert_string_equal(measure->sharding, "TP4");

    uint64_t permille = mul_div_floor_u64((uint64_t)measure->decides_ns, 1000, (uint64_t)measure->model_ns);
    for (uint32_t slower = 0; slower < 2; slower++) {
        struct plan_result moved;
        make_true(scenario, measure, permille * (slower ? 106 : 94) / 100);
        search(scenario, NULL, &moved);
        assert_string_equal(best_label(&moved), slower ? measure->above : measure->below);
        plan_result_free(&moved);
    }
    plan_result_free(&result);
    model_errors_free(errors);
    free(scenario);
}

static void a_tie_says_which_measurement_decides(void **state)
{
    (void)state;
    expect_decisive(STEP_PREFILL, 1500, 200); /* the best one loses where prefill is faster */
    expect_decisive(STEP_PREFILL, 1000, 200); /* ... slower */
    expect_decisive(STEP_PREFILL, 2000, 400);
    expect_decisive(STEP_DECODE, 1200, 120);
    expect_decisive(STEP_DECODE, 1200, 240);
    expect_decisive(STEP_DECODE, 400, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_spans_what_steps_take), cmocka_unit_test(the_closest_class_with_rows_enough_is_asked),
        cmocka_unit_test(the_shipped_errors_are_of_use),  cmocka_unit_test(steps_are_scaled_by_what_they_do),
        cmocka_unit_test(a_clear_winner_is_recommended),  cmocka_unit_test(a_tie_says_which_measurement_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
