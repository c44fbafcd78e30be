/* Steps measured on a machine: what a table says is what a step takes, at its breakpoints, between and beyond them; and
 * a decode step is its line. */
#include "base/rng.h"
#include "support/known_hardware.h"
#include "support/known_models.h"
#include "sim/cost/measured_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000)

/* Prefill: exactly 100 + 5 tokens + pairs / 10 us. Decode: exactly 200 + 30 sequences + context / 4 us, but for the
 * noise that a test adds. */
static int64_t prefill_us(uint64_t tokens, uint64_t pairs)
{
    return 100 + 5 * (int64_t)tokens + (int64_t)pairs / 10;
}

static int64_t decode_us(uint64_t sequences, uint64_t context)
{
    return 200 + 30 * (int64_t)sequences + (int64_t)context / 4;
}

static struct step_tables tables;
static struct hardware machine;
static const struct parallelism tp2 = {2, 1, 1, 1};

static void make_tables(void)
{
    static const uint32_t tokens[] = {10, 100, 1000};
    static const uint64_t keys[] = {1, 50, 500};
    static const uint32_t sequences[] = {1, 4, 16, 64};
    static const uint64_t context[] = {40, 400, 4000, 40000};
    struct step_table *table = &tables.item[0];
    memset(&tables, 0, sizeof tables);
    tables.count = 1;
    strcpy(table->model, known_model("Llama-3.1-8B")->name);
    table->parallelism = tp2;
    table->first_layer_ns = 60 * US;
    table->launch_ns = 7 * US;
    table->prefill = (struct step_grid){.row_count = 3, .column_count = 3};
    table->decode = (struct step_grid){.row_count = 4, .column_count = 4};
    for (uint32_t r = 0; r < 3; r++) {
        table->prefill.rows[r] = tokens[r];
        for (uint32_t c = 0; c < 3; c++) {
            table->prefill.columns[c] = keys[c];
            table->prefill.ns[r][c] = prefill_us(tokens[r], tokens[r] * keys[c]) * US;
        }
    }
    for (uint32_t r = 0; r < 4; r++) {
        table->decode.rows[r] = sequences[r];
        for (uint32_t c = 0; c < 4; c++) {
            table->decode.columns[c] = context[c];
            table->decode.ns[r][c] = decode_us(sequences[r], context[c]) * US;
        }
    }
    machine = (struct hardware){.name = "measured", .gpus_per_node = 8, .steps = &tables};
}

static struct device_model *make_model(void)
{
    struct user_error error = {.set = false};
    struct device_model *model = device_model_make(known_model("Llama-3.1-8B"), tp2, &machine, NULL, &error);
    assert_string_equal(error.text, "");
    assert_non_null(model);
    return model;
}

static struct step_group prefill_group(uint64_t tokens, uint64_t pairs)
{
    return (struct step_group){.prefill_sequences = 1, .prefill_tokens = tokens, .prefill_pairs = pairs};
}

static struct step_group decode_group(uint32_t sequences, uint64_t context)
{
    return (struct step_group){.decode_sequences = sequences, .decode_context = context};
}

static struct step_time time_of(const struct device_model *model, const struct step_group *groups, uint32_t count)
{
    struct step_time time;
    device_step(model, groups, count, &time);
    return time;
}

static void test_breakpoints_between_and_beyond(void **state)
{
    (void)state;
    static const uint64_t tokens[] = {10, 1000, 57, 640, 3, 1, 2500};
    static const uint64_t keys[] = {1, 500, 23, 311, 4, 900, 700};
    make_tables();
    struct device_model *model = make_model();
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        struct step_group group = prefill_group(tokens[i], tokens[i] * keys[i]);
        int64_t want_ns = (100 + 5 * (int64_t)tokens[i]) * US + (int64_t)(tokens[i] * keys[i]) * US / 10;
        int64_t got_ns = time_of(model, &group, 1).total_ns;
        /* The plane is in the grid, so only rounding lies between: of breakpoints to whole microseconds, of the
         * result. */
        assert_in_range(got_ns, want_ns - 4 * US, want_ns + 4 * US);
    }
    static const uint32_t sequences[] = {1, 16, 64, 7, 40, 100};
    static const uint64_t context[] = {40, 4000, 40000, 39, 1234, 90000};
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        struct step_group group = decode_group(sequences[i], context[i]);
        int64_t want_ns = (200 + 30 * (int64_t)sequences[i]) * US + (int64_t)context[i] * US / 4;
        assert_in_range(time_of(model, &group, 1).total_ns, want_ns - 4 * US, want_ns + 4 * US);
    }
    device_model_free(model);
}

/* At a breakpoint itself nothing is rounded. */
static void test_breakpoints_are_exact(void **state)
{
    (void)state;
    make_tables();
    struct device_model *model = make_model();
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t c = 0; c < 3; c++) {
            const struct step_grid *grid = &tables.item[0].prefill;
            struct step_group group = prefill_group(grid->rows[r], grid->rows[r] * grid->columns[c]);
            assert_int_equal(time_of(model, &group, 1).total_ns, grid->ns[r][c]);
        }
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t c = 0; c < 3; c++) {
            const struct step_grid *grid = &tables.item[0].decode;
            struct step_group group = decode_group(grid->rows[r], grid->columns[c]);
            assert_int_equal(time_of(model, &group, 1).total_ns, grid->ns[r][c]);
        }
    device_model_free(model);
}

static void check_line(const struct device_model *model, const struct step_group *groups, uint32_t count)
{
    int64_t slowest_ns = 0;
    for (uint32_t g = 0; g < count; g++) {
        struct decode_line line;
        device_decode_line(model, groups[g].decode_sequences, groups[g].decode_context, &line);
        assert_true(line.context_min <= groups[g].decode_context && groups[g].decode_context <= line.context_max);
        slowest_ns = max_i64(slowest_ns, decode_line_ns(&line, groups[g].decode_context));
    }
    assert_int_equal(time_of(model, groups, count).total_ns, device_decode_fixed_ns(model, groups, count) + slowest_ns);
    assert_true(slowest_ns > 0);
}

/* Also where measurements are nothing but noise. */
static void test_decode_is_fixed_plus_line(void **state)
{
    (void)state;
    struct rng rng = rng_stream(7, 0, RNG_FINGERPRINT);
    for (uint32_t round = 0; round < 60; round++) {
        make_tables();
        struct step_grid *grid = &tables.item[0].decode;
        for (uint32_t r = 0; round > 0 && r < grid->row_count; r++)
            for (uint32_t c = 0; c < grid->column_count; c++)
                grid->ns[r][c] = (int64_t)rng_between(&rng, 1, 5000000);
        struct device_model *model = make_model();
        for (uint32_t i = 0; i < 200; i++) {
            struct step_group groups[2];
            for (uint32_t g = 0; g < 2; g++)
                groups[g] = decode_group((uint32_t)rng_between(&rng, g == 0, 90), rng_below(&rng, 100000));
            check_line(model, groups, 1);
            check_line(model, groups, 2);
        }
        int64_t before_ns = 0;
        for (uint64_t context = 0; context < 80000; context += 997) {
            struct step_group group = decode_group(9, context);
            int64_t ns = time_of(model, &group, 1).total_ns;
            assert_true(ns >= before_ns);
            before_ns = ns - 1; /* lines are rounded down, each by itself */
        }
        device_model_free(model);
    }
}

static void test_groups_and_kinds(void **state)
{
    (void)state;
    make_tables();
    struct device_model *model = make_model();
    struct step_group groups[2] = {prefill_group(100, 5000), decode_group(16, 4000)};
    int64_t prefill_ns = prefill_us(100, 5000) * US;
    int64_t decode_ns = decode_us(16, 4000) * US;
    assert_int_equal(time_of(model, groups, 2).total_ns, max_i64(prefill_ns, decode_ns));
    struct step_group both = groups[0];
    both.decode_sequences = 16;
    both.decode_context = 4000;
    assert_int_equal(time_of(model, &both, 1).total_ns, prefill_ns + decode_ns - decode_us(1, 40) * US);
    /* The median of the prefill grid is that of 100 tokens with 50 keys; layers share what follows the first. */
    struct step_time time = time_of(model, groups, 1);
    assert_int_equal(time.first_layer_ns, 60 * US);
    assert_int_equal(time.layer_ns, (time.total_ns - 60 * US) / known_model("Llama-3.1-8B")->layers);
    struct operator_share shares[OPERATORS_MAX];
    assert_int_equal(device_model_breakdown(model, &both, 1, shares), 1);
    assert_int_equal(shares[0].ns, time_of(model, &both, 1).total_ns);
    assert_string_equal(shares[0].source, "measured by tandem calibrate");
    device_model_free(model);
}

static void test_refusals(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    make_tables();
    assert_null(
        device_model_make(known_model("Llama-3.1-8B"), (struct parallelism){4, 1, 1, 1}, &machine, NULL, &error));
    assert_string_equal(error.text,
                        "measured: no steps of Llama-3.1-8B with TP4 were measured on it; `tandem calibrate "
                        "SCENARIO --out FILE` measures those that a scenario needs");
    tables.item[0].decode.row_count = 0;
    struct device_model *model = make_model();
    error.set = false;
    assert_true(device_model_serves(model, ROLE_PREFILL, &error));
    assert_false(device_model_serves(model, ROLE_MIXED, &error));
    assert_false(device_model_serves(model, ROLE_DECODE, &error));
    assert_string_equal(error.text, "no decode steps of Llama-3.1-8B with TP2 were measured on the machine; `tandem "
                                    "calibrate SCENARIO --out FILE` measures those that a scenario needs");
    device_model_free(model);
}

/* Steps that draft so many tokens are others than those that draft none. */
static void test_steps_that_draft(void **state)
{
    (void)state;
    struct measured_steps measured;
    make_tables();
    tables.item[0].draft_tokens = 2;
    assert_false(measured_steps_find(&machine, known_model("Llama-3.1-8B"), tp2, 0, &measured));
    assert_false(measured_steps_find(&machine, known_model("Llama-3.1-8B"), tp2, 1, &measured));
    assert_true(measured_steps_find(&machine, known_model("Llama-3.1-8B"), tp2, 2, &measured));
    assert_int_equal(measured.decode.row_count, tables.item[0].decode.row_count);
}

/* Where the machine also has a GPU, shardings without a table keep the roofline. */
static void test_roofline_beside_tables(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    make_tables();
    struct hardware h200 = *known_hardware("H200");
    struct step_group group = decode_group(16, 4000);
    struct device_model *plain =
        device_model_make(known_model("Llama-3.1-8B"), (struct parallelism){4, 1, 1, 1}, &h200, NULL, &error);
    h200.steps = &tables;
    struct device_model *beside =
        device_model_make(known_model("Llama-3.1-8B"), (struct parallelism){4, 1, 1, 1}, &h200, NULL, &error);
    struct device_model *measured = device_model_make(known_model("Llama-3.1-8B"), tp2, &h200, NULL, &error);
    assert_int_equal(time_of(plain, &group, 1).total_ns, time_of(beside, &group, 1).total_ns);
    assert_int_equal(time_of(measured, &group, 1).total_ns, decode_us(16, 4000) * US);
    device_model_free(plain);
    device_model_free(beside);
    device_model_free(measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_breakpoints_between_and_beyond),
        cmocka_unit_test(test_breakpoints_are_exact),
        cmocka_unit_test(test_decode_is_fixed_plus_line),
        cmocka_unit_test(test_groups_and_kinds),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_steps_that_draft),
        cmocka_unit_test(test_roofline_beside_tables),
    };
    return cmocka_run_group_tests_name("measured_steps", tests, NULL, NULL);
}
