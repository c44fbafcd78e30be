/* explain_transfer: stable JSON keys, the grouping of the table's rows, sentences with the right numbers. */
#define _POSIX_C_SOURCE 200809L

#include "cli/explain_transfer.h"
#include "support/known_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct transfer_plan plan;

static struct kv_geometry made(const char *name, struct parallelism parallelism, uint32_t page_tokens)
{
    struct kv_geometry g;
    assert_int_equal(kv_geometry_make(known_model(name), parallelism, page_tokens, LAYOUT_HND, &g), GEOMETRY_OK);
    return g;
}

static void plan_between(struct kv_geometry source, struct kv_geometry destination, uint32_t choice)
{
    assert_int_equal(transfer_plan_make(&source, 0, &destination, 0, choice, &plan), GEOMETRY_OK);
}

static json_int_t integer(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("%s is missing or no integer", key);
    return json_integer_value(value);
}

static void test_json(void **state)
{
    (void)state;
    plan_between(made("Llama-3.1-70B", (struct parallelism){2, 1, 1, 1}, 64),
                 made("Llama-3.1-70B", (struct parallelism){4, 1, 1, 2}, 16), 0);
    json_t *json = explain_transfer_json(&plan, 100, 3);
    assert_non_null(json);
    assert_int_equal(integer(json, "tokens"), 100);
    assert_int_equal(integer(json, "unit_tokens"), 16);
    assert_int_equal(integer(json, "units"), 7);
    assert_int_equal(integer(json, "source_pages"), 2);
    assert_int_equal(integer(json, "pages"), 7);
    assert_int_equal(integer(json, "planes"), 2);
    assert_int_equal(integer(json, "layers"), 80);
    assert_int_equal(integer(json, "tail_writes"), 3);
    /* 4 ranks a stage, two heads each and so two runs, two planes, seven units. */
    assert_int_equal(integer(json, "writes_per_layer"), 4 * 2 * 2 * 7);
    assert_int_equal(integer(json, "n_expected"), 80 * 4 * 2 * 2 * 7 + 3);
    assert_int_equal(integer(json, "bytes"), 7 * 16 * 327680);

    json_t *pairs = json_object_get(json, "pairs");
    assert_int_equal(json_array_size(pairs), 8);
    const json_t *pair = json_array_get(pairs, 5); /* second stage, second rank: heads 2 and 3 of source rank 0 */
    assert_int_equal(integer(pair, "source_rank"), 0);
    assert_int_equal(integer(pair, "destination_rank"), 5);
    assert_int_equal(integer(pair, "layer_first"), 40);
    assert_int_equal(integer(pair, "layer_count"), 40);
    assert_int_equal(integer(pair, "runs"), 2);
    assert_int_equal(integer(pair, "run_bytes"), 16 * 256);
    assert_int_equal(integer(pair, "source_offset"), 2 * 64 * 256);
    assert_int_equal(integer(pair, "destination_offset"), 0);
    assert_int_equal(integer(pair, "source_run_stride"), 64 * 256);
    assert_int_equal(integer(pair, "destination_run_stride"), 16 * 256);
    assert_int_equal(integer(pair, "source_unit_stride"), 16 * 256);
    assert_int_equal(integer(pair, "destination_unit_stride"), 0);
    json_decref(json);
}

/* The worked example with the largest count, through JSON text and back. */
static void test_json_text(void **state)
{
    (void)state;
    struct kv_geometry r1 = made("DeepSeek-R1", (struct parallelism){8, 1, 8, 1}, 64);
    plan_between(r1, r1, 0);
    json_t *json = explain_transfer_json(&plan, 16384, 0);
    char *text = json_dumps(json, JSON_COMPACT);
    json_t *again = json_loads(text, 0, NULL);
    assert_true(json_equal(json, again));
    assert_int_equal(integer(again, "n_expected"), 124928);
    assert_int_equal(integer(again, "pages"), 256);
    assert_int_equal(integer(again, "planes"), 1);
    json_decref(again);
    json_decref(json);
    free(text);
}

static char *printed(uint32_t tokens, uint32_t tail_writes)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    assert_true(explain_transfer_print(stream, &plan, tokens, tail_writes));
    fclose(stream);
    return text;
}

static void test_table_of_equal_shards(void **state)
{
    (void)state;
    struct kv_geometry qwen = made("Qwen3-235B-A22B", (struct parallelism){4, 1, 1, 1}, 128);
    plan_between(qwen, qwen, 0);
    char *text = printed(16384, 2);
    assert_string_equal(
        text, "tokens           16384 in 128 units of 128\n"
              "pages            128 of 128 tokens at the source, 128 of 128 at the destination\n"
              "planes           2 (K and V)\n"
              "layers           94, 1024 writes each\n"
              "bytes            3154116608\n"
              "expected N       96258 writes, of which 2 carry the tail\n"
              "\n"
              "source ranks      destination ranks  layers  runs  run bytes  source offset  destination offset\n"
              "         0-3  ->                0-3    0-93     1      32768              0                   0\n"
              "\n"
              "Runs are per unit, layer and plane; offsets are those of the first page's plane on the rank.\n");
    free(text);
}

/* Rows with steps: two source ranks feed four, each its lower and its upper half. */
static void test_table_of_unequal_shards(void **state)
{
    (void)state;
    plan_between(made("Llama-3.1-70B", (struct parallelism){2, 1, 1, 1}, 16),
                 made("Llama-3.1-70B", (struct parallelism){4, 1, 1, 1}, 16), 0);
    char *text = printed(15, 0);
    assert_non_null(strstr(text, "\n         0-1  ->           0-2 by 2    0-79     1       8192              0 "));
    assert_non_null(strstr(text, "\n         0-1  ->           1-3 by 2    0-79     1       8192           8192 "));
    free(text);
}

/* A choice that wraps around the source ranks, and stages that differ. */
static void test_table_of_latents(void **state)
{
    (void)state;
    plan_between(made("DeepSeek-R1", (struct parallelism){8, 1, 8, 1}, 64),
                 made("DeepSeek-R1", (struct parallelism){4, 1, 4, 2}, 64), 6);
    char *text = printed(1, 0);
    assert_non_null(strstr(text, "\n         6-7  ->                0-1    0-30 "));
    assert_non_null(strstr(text, "\n         0-1  ->                2-3    0-30 "));
    assert_non_null(strstr(text, "\n         6-7  ->                4-5   31-60 "));
    assert_non_null(strstr(text, "\n         0-1  ->                6-7   31-60 "));
    free(text);
}

static void test_refusals(void **state)
{
    (void)state;
    char text[256];
    struct kv_geometry good = made("Llama-3.1-70B", (struct parallelism){4, 1, 1, 1}, 16);
    struct kv_geometry bad = good;
    bad.parallelism.tensor = 3;
    explain_refusal(GEOMETRY_HEADS, &good, &bad, text, sizeof text);
    assert_string_equal(text,
                        "KV heads (8) and tensor-parallel ranks of the destination (3): neither divides the other");
    explain_refusal(GEOMETRY_HEADS, &bad, &good, text, sizeof text);
    assert_non_null(strstr(text, "of the source (3)"));
    bad.page_tokens = 24;
    explain_refusal(GEOMETRY_PAGE_SIZES, &good, &bad, text, sizeof text);
    assert_non_null(strstr(text, "the source (16 tokens) and the destination (24)"));
    bad.layers = 79;
    explain_refusal(GEOMETRY_LAYERS, &good, &bad, text, sizeof text);
    assert_non_null(strstr(text, "the source (80) and the destination (79)"));
    bad.layout = LAYOUT_NHD;
    explain_refusal(GEOMETRY_MODEL, &good, &bad, text, sizeof text);
    assert_non_null(strstr(text, "layout NHD at the destination"));
    explain_refusal(GEOMETRY_LIMIT, &good, &bad, text, sizeof text);
    assert_string_equal(text, geometry_refusal_text(GEOMETRY_LIMIT));
    explain_refusal(GEOMETRY_LIMIT, &good, &bad, text, 5);
    assert_int_equal(strlen(text), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_table_of_equal_shards),
        cmocka_unit_test(test_table_of_unequal_shards),
        cmocka_unit_test(test_table_of_latents),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
