/* What a table of errors says of known cases, and what an engine adds to its kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "world/kernels/csv_table.h"
#include "world/scenario/engine.h"
#include "sim/cost/device_model.h"
#include "sim/validate/subjects.h"
#include "sim/validate/validate.h"
#include "support/known_hardware.h"
#include "support/known_models.h"

#include <stdio.h>
#include <string.h>

/* ---- Figures ---------------------------------------------------------------------------------------------------- */

static void test_figures(void **state)
{
    (void)state;
    struct validation_set set = {0};
    struct validation *v = validation_add(&set, "key", "a source", 0, 0);
    /* Errors of -10, -9, ... 10 % without 0: the median of absolute errors is 5, the p90 9, of signed ones -1 %. */
    for (int64_t percent = -10; percent <= 10; percent++)
        if (percent != 0)
            validation_case(v, 1000, 1000 + 10 * percent, "%d", (int)percent);
    validation_finish(v);
    assert_int_equal(v->rows, 20);
    assert_int_equal(v->median_ppm, 50000);
    assert_int_equal(v->p90_ppm, 90000);
    assert_int_equal(v->bias_ppm, -10000);
    assert_int_equal(v->worst_count, VALIDATION_WORST);
    /* The largest first; of equal ones that which came first. */
    static const char *const worst[VALIDATION_WORST] = {"-10", "10", "-9", "9", "-8"};
    for (int i = 0; i < VALIDATION_WORST; i++)
        assert_string_equal(v->worst[i].label, worst[i]);
    validation_set_free(&set);
}

static void test_no_rows_and_one(void **state)
{
    (void)state;
    struct validation_set set = {0};
    struct validation *v = validation_add(&set, "none", "nothing", 0, 0);
    validation_finish(v);
    assert_int_equal(v->worst_count, 0);
    v = validation_add(&set, "one", "one row", 0, 0);
    validation_case(v, 4, 3, "alone");
    validation_excluded(v, "D", "copies", 2);
    validation_excluded(v, "Q", "queues", 0); /* nothing to tell */
    validation_finish(v);
    assert_int_equal(v->median_ppm, 250000);
    assert_int_equal(v->p90_ppm, 250000);
    assert_int_equal(v->bias_ppm, -250000);
    assert_int_equal(v->exclusion_count, 1);
    assert_int_equal(v->exclusions[0].rows, 2);
    validation_set_free(&set);
}

/* ---- Shipped tables --------------------------------------------------------------------------------------------- */

static bool read_text(const char *text, struct csv_table *table, struct user_error *error)
{
    static const char path[] = "test_validate.csv";
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    bool read = csv_table_read(path, table, error);
    remove(path);
    return read;
}

/* Cases of which nobody said what they are about are in no class, whatever their memory was before. */
static void test_subjects(void **state)
{
    (void)state;
    struct validation_set set = {0};
    struct validation *v = validation_add(&set, "key", "a source", 0, 0);
    for (int i = 0; i < 2; i++) {
        validation_case(v, 1000, 1100, "%d", i);
        validation_subject(v, "sglang", "B200", "mla-moe");
    }
    v->rows = 0;
    for (int i = 0; i < 3; i++)
        validation_case(v, 1000, 1100, "%d", i);
    validation_subject(v, "vllm", "H200", "gqa-moe");
    FILE *file = tmpfile();
    assert_non_null(file);
    subjects_print(file, v);
    rewind(file);
    char line[256];
    uint32_t lines = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        assert_non_null(strstr(line, ",key,1,100000,100000,100000\n"));
        lines++;
    }
    fclose(file);
    assert_int_equal(lines, 8); /* pooled over any of three parts */
    validation_set_free(&set);
}

static void test_csv(void **state)
{
    (void)state;
    struct csv_table table;
    struct user_error error = {0};
    assert_true(read_text("# a comment, with commas\nname,value\na,1\n\n# another\nb,\n", &table, &error));
    assert_int_equal(table.row_count, 2);
    assert_string_equal(csv_text(&table, 1, csv_column(&table, "name")), "b");
    assert_int_equal(csv_integer(&table, 0, csv_column(&table, "value"), 7), 1);
    assert_int_equal(csv_integer(&table, 1, csv_column(&table, "value"), 7), 7);
    csv_table_free(&table);
    assert_false(read_text("name,value\na\n", &table, &error));
    assert_non_null(strstr(error.text, "1 cells, expected 2"));
    error = (struct user_error){0};
    assert_false(read_text("# nothing\n", &table, &error));
    assert_non_null(strstr(error.text, "holds no table"));
    error = (struct user_error){0};
    assert_false(csv_table_read("there/is/no/such.csv", &table, &error));
    assert_true(error.set);
}

/* ---- Engines ---------------------------------------------------------------------------------------------------- */

static void test_batches_of_graphs(void **state)
{
    (void)state;
    const struct engine engine = {.graph_step = 8, .graph_max = 20};
    static const uint64_t padded[24] = {0,  1,  2,  4,  4,  8,  8,  8,  8,  16, 16, 16,
                                        16, 16, 16, 16, 16, 20, 20, 20, 20, 21, 22, 23};
    for (uint64_t batch = 0; batch < 24; batch++)
        assert_int_equal(engine_batch(&engine, batch), padded[batch]);
    const struct engine none = {.graph_step = 0, .graph_max = 512};
    assert_int_equal(engine_batch(&none, 17), 17);
}

static struct device_model *model_with(const struct engine *engine)
{
    struct user_error error = {.set = false};
    struct device_model *model = device_model_make(known_model("Llama-3.1-8B"), (struct parallelism){1, 1, 1, 1},
                                                   known_hardware("H200"), engine, &error);
    assert_non_null(model);
    return model;
}

static int64_t step_ns(const struct engine *engine, const struct step_group *group)
{
    struct device_model *model = model_with(engine);
    struct step_time time;
    device_step(model, group, 1, &time);
    assert_true(time.first_layer_ns + 31 * time.layer_ns <= time.total_ns);
    device_model_free(model);
    return time.total_ns;
}

/* Each constant moves a step by what it says, and the neutral engine is the default. */
static void test_what_an_engine_adds(void **state)
{
    (void)state;
    const struct step_group decode = {.decode_sequences = 5, .decode_context = 5000};
    const struct step_group prompt = {
        .prefill_sequences = 1, .prefill_tokens = 2000, .prefill_pairs = UINT64_C(2000) * 2001 / 2};
    const struct step_group both = {.decode_sequences = 5,
                                    .decode_context = 5000,
                                    .prefill_sequences = 1,
                                    .prefill_tokens = 2000,
                                    .prefill_pairs = UINT64_C(2000) * 2001 / 2};
    const struct engine neutral = engine_neutral();
    const struct engine unnamed = {0};
    assert_int_equal(step_ns(NULL, &both), step_ns(&neutral, &both));
    assert_int_equal(step_ns(&unnamed, &both), step_ns(&neutral, &both));

    struct engine engine = neutral;
    engine.host_ns += 1000;
    engine.host_sequence_ns = 10;
    assert_int_equal(step_ns(&engine, &decode), step_ns(&neutral, &decode) + 1000 + 5 * 10);
    assert_int_equal(step_ns(&engine, &both), step_ns(&neutral, &both) + 1000 + 6 * 10);

    engine = neutral;
    engine.prefill_permille = 2000;
    assert_int_equal(step_ns(&engine, &decode), step_ns(&neutral, &decode));
    assert_int_equal(step_ns(&engine, &prompt), 2 * (step_ns(&neutral, &prompt) - ENGINE_HOST_NS) + ENGINE_HOST_NS);
    assert_int_equal(step_ns(&engine, &both) - step_ns(&neutral, &both),
                     step_ns(&neutral, &both) - step_ns(&neutral, &decode));

    /* The model of these steps has no experts. */
    engine.prefill_experts_permille = 3000;
    assert_int_equal(step_ns(&engine, &both) - step_ns(&neutral, &both),
                     step_ns(&neutral, &both) - step_ns(&neutral, &decode));
    assert_int_equal(engine_prefill_permille(&engine, 0), 2000);
    assert_int_equal(engine_prefill_permille(&engine, 8), 3000);
    assert_int_equal(engine_prefill_permille(&neutral, 8), 1000);

    engine = neutral;
    engine.mixes = 0;
    assert_int_equal(step_ns(&engine, &prompt), step_ns(&neutral, &prompt));
    assert_int_equal(step_ns(&engine, &both), step_ns(&neutral, &decode) + step_ns(&neutral, &prompt));

    engine = neutral;
    engine.graph_step = engine.graph_max = 8;
    const struct step_group padded = {.decode_sequences = 8, .decode_context = 5000};
    assert_true(step_ns(&engine, &decode) >= step_ns(&neutral, &decode));
    assert_true(step_ns(&engine, &decode) <= step_ns(&neutral, &padded));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),           cmocka_unit_test(test_no_rows_and_one),
        cmocka_unit_test(test_subjects),          cmocka_unit_test(test_csv),
        cmocka_unit_test(test_batches_of_graphs), cmocka_unit_test(test_what_an_engine_adds),
    };
    return cmocka_run_group_tests_name("validate", tests, NULL, NULL);
}
