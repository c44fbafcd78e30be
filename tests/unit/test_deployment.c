/* A scenario and a choice become nodes: names, machines, pages, peers; what does not fit is refused with numbers. */
#include "base/arith.h"
#include "world/deployment.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct scenario scenario;

static struct deployment *make(const struct deployment_choice *choice, struct user_error *error)
{
    struct deployment_sizes sizes = deployment_sizes(&scenario.load);
    error->set = false;
    return deployment_make(&scenario, choice, &sizes, 3, error);
}

static void nodes_follow_the_pools(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    scenario_llama_70b(&scenario, 1, 2, 4, 10);
    struct deployment_choice choice = deployment_default(&scenario);
    struct deployment *d = make(&choice, &error);
    assert_non_null(d);
    assert_int_equal(d->node_count, 4);
    static const char *const names[] = {"front", "prefill-0", "decode-0", "decode-1"};
    static const enum node_role roles[] = {ROLE_FRONT, ROLE_PREFILL, ROLE_DECODE, ROLE_DECODE};
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(d->instances[i].name, names[i]);
        assert_int_equal(d->configs[i].role, roles[i]);
        assert_int_equal(d->configs[i].node, i);
        assert_int_equal(d->configs[i].seed, 3);
        assert_int_equal(d->configs[i].request_tokens_max, 2048 + 256);
    }
    /* Two TP4 decoders fill a machine of eight; the prefiller keeps off it. */
    assert_int_equal(d->instances[1].place.machine, 0);
    assert_int_equal(d->instances[2].place.machine, 1);
    assert_int_equal(d->instances[3].place.machine, 1);
    assert_int_equal(d->instances[3].place.gpu, 4);
    assert_int_equal(d->instances[0].place.machine, DEPLOYMENT_NO_MACHINE);
    assert_int_equal(d->machines, 2);
    assert_int_equal(d->gpus, 12);
    assert_int_equal(d->usd_micros_per_hour, 16 * UINT64_C(2500000));
    /* 80 GiB * 0.9 less 16.9 GiB of fp8 weights and activations, in pages of 64 tokens and 80 KiB a token and rank. */
    assert_in_range(d->configs[1].pages_per_group, 10000, 11500);
    assert_int_equal(d->configs[1].pages_per_group, d->instances[1].footprint.pages);
    deployment_free(d);
}

/* Machines and paths of 2 prefillers and 3 decoders of two GPUs on machines of eight, as each placement has them. */
static void placements_decide_the_path(void **state)
{
    (void)state;
    static const struct {
        struct placement prefill, decode;
        uint32_t machine[5];
        uint32_t gpu[5];
        uint32_t machines;
        uint64_t by_nvlink;
    } cases[] = {
        {{PLACEMENT_APART, 0, "", {0}}, {PLACEMENT_APART, 0, "", {0}}, {0, 0, 1, 1, 1}, {0, 2, 0, 2, 4}, 2, 0},
        {{PLACEMENT_PACKED, 0, "", {0}}, {PLACEMENT_PACKED, 0, "", {0}}, {0, 0, 0, 0, 1}, {0, 2, 4, 6, 0}, 2, 4},
        /* One pool that keeps off is enough. */
        {{PLACEMENT_PACKED, 0, "", {0}}, {PLACEMENT_APART, 0, "", {0}}, {0, 0, 1, 1, 1}, {0, 2, 0, 2, 4}, 2, 0},
        {{PLACEMENT_APART_FROM, 0, "decode", {0}},
         {PLACEMENT_PACKED, 0, "", {0}},
         {0, 0, 1, 1, 1},
         {0, 2, 0, 2, 4},
         2,
         0},
        {{PLACEMENT_SPREAD, 0, "", {0}}, {PLACEMENT_PACKED, 0, "", {0}}, {0, 1, 0, 0, 0}, {0, 0, 2, 4, 6}, 2, 3},
        {{PLACEMENT_SPREAD, 0, "", {0}}, {PLACEMENT_BESIDE, 0, "prefill", {0}}, {0, 1, 0, 1, 0}, {0, 0, 2, 2, 4}, 2, 3},
        {{PLACEMENT_SPREAD, 0, "", {0}}, {PLACEMENT_SPREAD, 0, "", {0}}, {0, 1, 0, 1, 2}, {0, 0, 2, 2, 0}, 3, 2},
        {{PLACEMENT_LISTED, 2, "", {2, 4}},
         {PLACEMENT_LISTED, 3, "", {2, 4, 4}},
         {1, 3, 1, 3, 3},
         {0, 0, 2, 2, 4},
         2,
         3},
        {{PLACEMENT_PACKED, 0, "", {0}}, {PLACEMENT_LISTED, 3, "", {1, 1, 2}}, {0, 0, 0, 0, 1}, {4, 6, 0, 2, 0}, 2, 4},
    };
    struct user_error error = {.set = false};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        scenario_llama_70b(&scenario, 2, 3, 4, 10);
        for (uint32_t p = 0; p < 2; p++)
            scenario.pools[p].shardings[0].tensor = 2;
        scenario.pools[0].placement = cases[c].prefill;
        scenario.pools[1].placement = cases[c].decode;
        struct deployment_choice choice = deployment_default(&scenario);
        struct deployment *d = make(&choice, &error);
        if (d == NULL)
            fail_msg("case %zu: %s", c, error.text);
        for (uint32_t i = 0; i < 5; i++)
            if (d->instances[i + 1].place.machine != cases[c].machine[i] ||
                d->instances[i + 1].place.gpu != cases[c].gpu[i])
                fail_msg("case %zu: %s on machine %u, GPU %u, expected %u, %u", c, d->instances[i + 1].name,
                         d->instances[i + 1].place.machine, d->instances[i + 1].place.gpu, cases[c].machine[i],
                         cases[c].gpu[i]);
        struct deployment_paths paths = deployment_paths(d, 0, 1);
        assert_int_equal(d->machines, cases[c].machines);
        assert_int_equal(paths.by_nvlink, cases[c].by_nvlink);
        assert_int_equal(paths.by_nic, 6 - cases[c].by_nvlink);
        deployment_free(d);
    }
}

/* Two machines in one NVLink domain, the third in the next; and machines whose instances do not use it. */
static void nvlink_may_join_machines(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    for (int by_nic = 0; by_nic < 2; by_nic++) {
        scenario_llama_70b(&scenario, 1, 2, 4, 10);
        for (uint32_t p = 0; p < 2; p++) {
            scenario.pools[p].hardware.gpus_per_node = 4;
            scenario.pools[p].hardware.nvlink_gpus = 8;
            scenario.pools[p].hardware.instances_by_nic = (uint32_t)by_nic;
        }
        struct deployment_choice choice = deployment_default(&scenario);
        struct deployment *d = make(&choice, &error);
        assert_non_null(d);
        assert_int_equal(d->machines, 3);
        struct deployment_paths paths = deployment_paths(d, DEPLOYMENT_ANY_POOL, DEPLOYMENT_ANY_POOL);
        assert_int_equal(paths.by_nvlink, by_nic ? 0 : 1);
        assert_int_equal(paths.by_nic, by_nic ? 2 : 1);
        deployment_free(d);
    }
}

static void lists_that_do_not_go_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct placement placement;
        const char *why;
    } cases[] = {
        {{PLACEMENT_LISTED, 2, "", {1, 2}}, "pool decode: placement lists 2 machines for 3 instances"},
        {{PLACEMENT_LISTED, 3, "", {3, 3, 3}}, "puts decode-2 on machine 3, where 0 of 8 GPUs are left for 4 ranks"},
        {{PLACEMENT_LISTED, 3, "", {1, 2, 2}}, "puts decode-0 on machine 1, which is another pool's other"},
    };
    struct user_error error = {.set = false};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        scenario_llama_70b(&scenario, 1, 3, 4, 10);
        scenario.pools[1].placement = cases[c].placement;
        scenario.pools[0].placement = (struct placement){PLACEMENT_LISTED, 1, "", {1}};
        snprintf(scenario.pools[0].hardware.name, sizeof scenario.pools[0].hardware.name, "other");
        struct deployment_choice choice = deployment_default(&scenario);
        assert_null(make(&choice, &error));
        if (strstr(error.text, cases[c].why) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[c].why);
    }
}

static void everyone_knows_whom_it_talks_to(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    scenario_llama_70b(&scenario, 2, 3, 4, 10);
    struct deployment_choice choice = deployment_default(&scenario);
    struct deployment *d = make(&choice, &error);
    assert_non_null(d);
    static const uint32_t peers[6][6] = {{5, 1, 2, 3, 4, 5}, {4, 0, 3, 4, 5}, {4, 0, 3, 4, 5},
                                         {3, 0, 1, 2},       {3, 0, 1, 2},    {3, 0, 1, 2}};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(d->configs[i].peer_count, peers[i][0]);
        for (uint32_t p = 0; p < peers[i][0]; p++) {
            const struct peer_config *peer = &d->configs[i].peers[p];
            assert_int_equal(peer->node, peers[i][p + 1]);
            assert_int_equal(peer->role, d->configs[peer->node].role);
            assert_int_equal(peer->pages_per_group, d->configs[peer->node].pages_per_group);
        }
    }
    /* Room for every request that any decoder may hold, and every transfer of all decoders. */
    assert_true(d->configs[0].requests_max >= 3 * d->configs[3].requests_max);
    assert_true(d->configs[1].requests_max >= 3 * scenario.messenger.handoffs_max);
    deployment_free(d);
}

static void large_instances_take_whole_machines(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    scenario_llama_70b_mixed(&scenario, 2, 4, 10);
    scenario.pools[0].shardings[0] = (struct parallelism){.tensor = 4, .data = 3, .expert = 1, .pipeline = 1};
    struct deployment_choice choice = deployment_default(&scenario);
    struct deployment *d = make(&choice, &error);
    assert_non_null(d);
    assert_int_equal(d->instances[1].place.machine, 0);
    assert_int_equal(d->instances[2].place.machine, 2);
    assert_int_equal(d->machines, 4);
    assert_int_equal(d->gpus, 24);
    assert_int_equal(d->configs[1].group_count, 3);
    deployment_free(d);
}

static void pools_on_other_hardware_share_no_machine(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    scenario_llama_70b(&scenario, 1, 1, 4, 10);
    snprintf(scenario.pools[1].hardware.name, sizeof scenario.pools[1].hardware.name, "h200");
    struct deployment_choice choice = deployment_default(&scenario);
    struct deployment *d = make(&choice, &error);
    assert_non_null(d);
    assert_int_equal(d->instances[1].place.machine, 0);
    assert_int_equal(d->instances[2].place.machine, 1);
    deployment_free(d);
}

static void what_does_not_fit_is_said(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    scenario_llama_70b(&scenario, 1, 1, 4, 10);
    struct deployment_choice choice = deployment_default(&scenario);
    scenario.pools[1].shardings[0].tensor = 1;
    scenario.model.weight_format = FORMAT_BF16;
    assert_null(make(&choice, &error));
    assert_non_null(strstr(error.text, "pool decode (TP1 on h100-sxm)"));
    assert_non_null(strstr(error.text, "weights take 13")); /* 131 GiB */
    assert_non_null(strstr(error.text, "72.0 GiB may be used"));

    scenario.pools[1].shardings[0].tensor = 3;
    assert_null(make(&choice, &error));
    assert_non_null(strstr(error.text, "TP3"));

    scenario_llama_70b(&scenario, 1, 0, 4, 10);
    choice = deployment_default(&scenario);
    assert_null(make(&choice, &error));
    assert_non_null(strstr(error.text, "needs prefill and decode"));

    scenario_llama_70b(&scenario, 600, 600, 4, 10);
    choice = deployment_default(&scenario);
    assert_null(make(&choice, &error));
    assert_non_null(strstr(error.text, "1201 nodes"));
}

static void prefix_blocks_are_whole_pages(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    scenario_llama_70b(&scenario, 1, 1, 4, 10);
    struct deployment_choice choice = deployment_default(&scenario);
    struct deployment_sizes sizes = deployment_sizes(&scenario.load);
    sizes.request_blocks_max = 32;
    sizes.prefix_block_tokens = 100;
    for (uint32_t p = 0; p < scenario.pool_count; p++)
        scenario.pools[p].scheduler.prefix_cache = true;
    assert_null(deployment_make(&scenario, &choice, &sizes, 3, &error));
    assert_non_null(strstr(error.text, "pool prefill: the load shares prefixes in blocks of 100 tokens"));
    assert_non_null(strstr(error.text, "whole pages of 64"));
    for (uint32_t p = 0; p < scenario.pool_count; p++)
        scenario.pools[p].scheduler.prefix_cache = false;
    struct deployment *d = deployment_make(&scenario, &choice, &sizes, 3, &error);
    assert_non_null(d);
    deployment_free(d);
}

static void shardings_are_written_as_in_the_field(void **state)
{
    (void)state;
    static const struct {
        struct parallelism parallelism;
        const char *text;
    } cases[] = {
        {{1, 1, 1, 1}, "TP1"},
        {{8, 1, 1, 1}, "TP8"},
        {{8, 1, 8, 1}, "TP8 EP8"},
        {{1, 8, 8, 1}, "DP8 EP8"},
        {{4, 2, 8, 2}, "TP4 DP2 EP8 PP2"},
        {{1, 1, 1, 4}, "PP4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        parallelism_text(&cases[i].parallelism, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void sizes_follow_the_load(void **state)
{
    (void)state;
    struct load load = {.arrivals = ARRIVAL_CLOSED,
                        .concurrency = 5000,
                        .prompt = {.kind = LENGTH_CONSTANT, .low = 100, .high = 100},
                        .output = {.kind = LENGTH_QUANTILES,
                                   .quantile_count = 2,
                                   .quantile_permille = {0, 1000},
                                   .quantile_tokens = {1, 900}}};
    struct deployment_sizes sizes = deployment_sizes(&load);
    assert_int_equal(sizes.request_tokens_max, 1000);
    assert_int_equal(sizes.requests_together, 5000);
    assert_int_equal(sizes.request_blocks_max, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_follow_the_pools),
        cmocka_unit_test(placements_decide_the_path),
        cmocka_unit_test(nvlink_may_join_machines),
        cmocka_unit_test(lists_that_do_not_go_are_refused),
        cmocka_unit_test(everyone_knows_whom_it_talks_to),
        cmocka_unit_test(large_instances_take_whole_machines),
        cmocka_unit_test(pools_on_other_hardware_share_no_machine),
        cmocka_unit_test(what_does_not_fit_is_said),
        cmocka_unit_test(prefix_blocks_are_whole_pages),
        cmocka_unit_test(shardings_are_written_as_in_the_field),
        cmocka_unit_test(sizes_follow_the_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
