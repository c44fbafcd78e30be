/* How measured servers were started, as the rows of serving.csv.xz and the files beside it say, and what that does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/validate/serving.h"

#include <string.h>

/* What a row is found by. */
struct wanted {
    const char *engine;
    const char *version; /* how it begins */
    const char *model;
    const char *system;
    const char *precision;
    uint32_t prompt;
    uint32_t output;
    uint32_t concurrency;
    bool disaggregated;
};

static struct serving serving;

static int load(void **state)
{
    (void)state;
    struct user_error error = {0};
    return serving_load(&serving, &error) ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    serving_free(&serving);
    return 0;
}

static struct serving_row *find(const struct wanted *wanted)
{
    for (uint32_t i = 0; i < serving.row_count; i++) {
        struct serving_row *row = &serving.rows[i];
        if (row->rule == SERVING_KEPT && strcmp(row->engine_name, wanted->engine) == 0 &&
            strncmp(row->version, wanted->version, strlen(wanted->version)) == 0 &&
            strcmp(row->model, wanted->model) == 0 && strcmp(row->system, wanted->system) == 0 &&
            strcmp(row->precision, wanted->precision) == 0 && row->prompt == wanted->prompt &&
            row->output == wanted->output && row->concurrency == wanted->concurrency &&
            row->disaggregated == wanted->disaggregated)
            return row;
    }
    fail_msg("no row of %s %s %s", wanted->engine, wanted->version, wanted->model);
    return NULL;
}

/* vLLM takes the format of the cache from NVIDIA's checkpoints in fp4, which name fp8; from others it does not. */
static void test_formats_of_caches(void **state)
{
    (void)state;
    const struct wanted nvfp4 = {"vllm", "0.17.0", "Kimi-K2.5", "b200_sxm", "fp4", 1024, 8192, 64, false};
    const struct wanted int4 = {"vllm", "0.16.0", "Kimi-K2.5", "h200_sxm", "int4", 8192, 1024, 8, false};
    const struct wanted told = {"sglang", "nightly", "GLM-5", "b200_sxm", "fp8", 8192, 1024, 128, false};
    assert_int_equal(find(&nvfp4)->kv, FORMAT_FP8);
    assert_int_equal(find(&int4)->kv, FORMAT_BF16);
    assert_int_equal(find(&told)->kv, FORMAT_FP8);
}

/* 64 sequences of 9,216 tokens fit into Kimi-K2.5's cache beside its weights: nobody waits for another to end. */
static void test_caches_that_are_large_enough(void **state)
{
    (void)state;
    const struct wanted wanted = {"vllm", "0.17.0", "Kimi-K2.5", "b200_sxm", "fp4", 1024, 8192, 64, false};
    struct serving_row row = *find(&wanted);
    struct serving_constants constants = serving_neutral(&serving, &row);
    struct serving_prediction prediction = serving_predict(&serving, &row, &constants);
    assert_true(prediction.fits);
    assert_true(prediction.ttft_ns < 20 * prediction.tpot_ns);
}

/* Labels of SGLang 0.5.5 name one expert rank of 32 that attention is spread over. */
static void test_labels_without_experts(void **state)
{
    (void)state;
    const struct wanted wide = {"sglang", "0.5.5", "DeepSeek-V3", "gb200", "fp4", 1024, 1024, 8192, true};
    const struct wanted low = {"sglang", "0.5.5", "DeepSeek-V3", "gb200", "fp4", 1024, 1024, 8, true};
    assert_int_equal(find(&wide)->decode.parallelism.expert, 32);
    assert_int_equal(find(&wide)->prefill.parallelism.expert, 4);
    assert_int_equal(find(&low)->decode.parallelism.tensor, 4);
    assert_int_equal(find(&low)->decode.parallelism.data, 1);
}

/* Three decoders that take one sequence each serve six clients: each waits as long as it is served. */
static void test_fewer_places_than_clients(void **state)
{
    (void)state;
    const struct wanted wanted = {"trtllm", "0.8.1", "DeepSeek-V3", "h100_sxm", "fp8", 1024, 1024, 6, true};
    struct serving_row row = *find(&wanted);
    assert_int_equal(row.decode_batch_max, 1);
    assert_int_equal(row.decode.workers, 3);
    struct serving_constants constants = serving_neutral(&serving, &row);
    struct serving_prediction prediction = serving_predict(&serving, &row, &constants);
    int64_t served_ns = prediction.tpot_ns * 920;
    assert_true(prediction.fits);
    assert_true(prediction.ttft_ns > served_ns * 8 / 10 && prediction.ttft_ns < served_ns * 12 / 10);
    row.decode_batch_max = 2;
    prediction = serving_predict(&serving, &row, &constants);
    assert_true(prediction.ttft_ns < 60 * prediction.tpot_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_of_caches),
        cmocka_unit_test(test_caches_that_are_large_enough),
        cmocka_unit_test(test_labels_without_experts),
        cmocka_unit_test(test_fewer_places_than_clients),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
