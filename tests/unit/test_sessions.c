/* Conversations: what a turn's prompt holds, when it comes, and which of its blocks have been there before; and
 * mixtures of clients, from which requests are drawn. */
#include "base/arith.h"
#include "world/load/sessions.h"
#include "world/load/trace_reader.h"
#include "world/load/workload.h"
#include "sim/sim_run.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct load conversations(void)
{
    return (struct load){
        .arrivals = ARRIVAL_SESSIONS,
        .rate_micro_per_s = 4000000,
        .requests = 400,
        .prompt = {.kind = LENGTH_UNIFORM, .low = 50, .high = 150},
        .output = {.kind = LENGTH_UNIFORM, .low = 100, .high = 200},
        .session_turns = {.kind = LENGTH_UNIFORM, .low = 2, .high = 6},
        .session_think_ns = 5 * NS_PER_S,
        .session_system_tokens = 200,
        .session_block_tokens = 64,
    };
}

/* ---- So many at a time ------------------------------------------------------------------------------------------- */

static void so_many_conversations_at_a_time(void **state)
{
    (void)state;
    struct load load = conversations();
    struct user_error error = {.set = false};
    load.rate_micro_per_s = 0;
    load.concurrency = 3;
    load.session_system_tokens = 0;
    load.session_first = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 1000, .high = 1000};
    load.session_turns = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 2, .high = 2};
    struct workload *workload = workload_create(&load, 1, NULL, &error);
    assert_non_null(workload);
    struct workload_item item;
    uint32_t answers[3];
    for (uint32_t id = 0; id < 3; id++) {
        assert_int_equal(workload_next_ns(workload), 0);
        assert_true(workload_next(workload, &item));
        assert_int_equal(item.spec.prompt_tokens, 1000); /* the first turn, whatever the others say */
        answers[id] = item.spec.output_tokens;
    }
    assert_int_equal(workload_next_ns(workload), TIME_NEVER); /* a fourth has to wait */
    workload_answered(workload, 1, 7 * NS_PER_S);
    assert_true(workload_next_ns(workload) > 7 * NS_PER_S); /* the second one's next turn */
    assert_true(workload_next(workload, &item));
    assert_in_range(item.spec.prompt_tokens, 1000 + answers[1] + 50, 1000 + answers[1] + 150);
    assert_int_equal(workload_next_ns(workload), TIME_NEVER);
    /* Its last answer: another conversation begins there and then. */
    workload_answered(workload, item.spec.id, 60 * NS_PER_S);
    assert_int_equal(workload_next_ns(workload), 60 * NS_PER_S);
    assert_true(workload_next(workload, &item));
    assert_int_equal(item.spec.prompt_tokens, 1000);
    assert_int_equal(workload_conversation(workload, item.spec.id), 4);
    assert_int_equal(workload_next_ns(workload), TIME_NEVER);
    workload_free(workload);
}

/* ---- Turns by hand ----------------------------------------------------------------------------------------------- */

static void a_turn_holds_all_before_it(void **state)
{
    (void)state;
    struct load load = conversations();
    struct user_error error = {.set = false};
    load.rate_micro_per_s = 1; /* conversations are weeks apart */
    load.session_turns = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 3, .high = 3};
    struct workload *workload = workload_create(&load, 1, NULL, &error);
    assert_non_null(workload);
    uint64_t blocks[64];
    uint32_t whole = 0;
    uint32_t said = 200;
    int64_t answered_ns = 0;
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct workload_item item;
        int64_t announced_ns = workload_next_ns(workload);
        assert_true(workload_next(workload, &item));
        assert_int_equal(item.arrival_ns, announced_ns);
        assert_int_equal(item.spec.id, turn);
        assert_in_range(item.spec.prompt_tokens, said + 50, said + 150);
        assert_in_range(item.spec.output_tokens, 100, 200);
        assert_int_equal(item.spec.block_tokens, 64);
        assert_int_equal(item.spec.block_count, (item.spec.prompt_tokens + 63) / 64);
        if (turn > 0)
            assert_true(item.arrival_ns > answered_ns);
        /* What was a whole block is the same block; what was not is another one now. */
        assert_memory_equal(blocks, item.spec.blocks, whole * sizeof *blocks);
        if (turn > 0)
            assert_true(blocks[whole] != item.spec.blocks[whole]);
        memcpy(blocks, item.spec.blocks, item.spec.block_count * sizeof *blocks);
        whole = item.spec.prompt_tokens / 64;
        said = item.spec.prompt_tokens + item.spec.output_tokens;
        answered_ns = item.arrival_ns + 10 * NS_PER_S;
        if (turn < 2) /* nothing of this conversation before its answer */
            assert_true(workload_next_ns(workload) > item.arrival_ns + 60 * NS_PER_S);
        workload_answered(workload, turn, answered_ns);
        if (turn < 2)
            assert_true(workload_next_ns(workload) < answered_ns + 200 * NS_PER_S);
    }
    /* Three turns and it is over; another one shares the whole blocks of the system prompt and no more. */
    struct workload_item other;
    assert_true(workload_next(workload, &other));
    assert_true(other.arrival_ns > answered_ns + 60 * NS_PER_S);
    assert_memory_equal(blocks, other.spec.blocks, 3 * sizeof *blocks);
    assert_true(blocks[3] != other.spec.blocks[3]);
    workload_free(workload);
}

static void expect_error(const struct load *load, const struct workload_arrivals *arrivals, const char *text)
{
    struct user_error error = {.set = false};
    assert_null(workload_create_again(load, 1, NULL, arrivals, &error));
    if (strstr(error.text, text) == NULL)
        fail_msg("'%s' lacks '%s'", error.text, text);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct load load = conversations();
    /* Whose turns they were must be known, and be possible: the second conversation does not begin before the first. */
    const int64_t at_ns[] = {0, 1};
    const uint32_t second_first[] = {2, 1};
    expect_error(&load, &(struct workload_arrivals){2, at_ns, NULL}, "request 0 is a turn is not known");
    expect_error(&load, &(struct workload_arrivals){2, at_ns, second_first}, "request 0 is a turn is not known");
    load.session_turns.high = 100000;
    expect_error(&load, NULL, "longer than a request may be");
    load = conversations();
    load.session_block_tokens = 0;
    expect_error(&load, NULL, "size of prefix blocks");
}

/* ---- In a run ---------------------------------------------------------------------------------------------------- */

struct seen {
    uint32_t rows;
    uint32_t counted;
    int64_t last_ns[6];
    uint64_t prompts;
};

static bool on_row(void *self, const struct request_row *row, bool met)
{
    (void)met;
    struct seen *seen = self;
    assert_int_equal(row->outcome, OUTCOME_COMPLETED);
    seen->rows++;
    seen->counted += !row->warmup;
    seen->prompts += row->prompt_tokens;
    assert_int_equal(row->warmup, row->request < 40);
    return true;
}

static uint64_t run_conversations(const struct scenario *scenario, uint64_t seed, struct seen *seen,
                                  uint64_t *prefill_tokens)
{
    struct deployment_choice choice = deployment_default(scenario);
    struct run_config config = {
        .scenario = scenario, .choice = &choice, .seed = seed, .listener = {.self = seen, .row = on_row}};
    struct run_result result;
    *seen = (struct seen){.rows = 0};
    run_play(&sim_backend, &config, &result);
    if (result.status != RUN_COMPLETE)
        fail_msg("%s", result.text);
    *prefill_tokens = 0;
    for (uint32_t i = 0; i < result.instance_count; i++)
        if (result.instances[i].role == ROLE_PREFILL)
            *prefill_tokens += result.instances[i].prefill_tokens;
    uint64_t hash = result.summary.trace_hash;
    assert_int_equal(result.summary.completed, scenario->load.requests);
    run_result_free(&result);
    return hash;
}

/* Every request of a run is served, the first ones count for nothing, the same seed says the same, and what was said
 * before is found in the caches of prefillers. */
static void a_run_of_conversations_is_repeatable(void **state)
{
    (void)state;
    struct scenario *scenario = malloc(sizeof *scenario);
    assert_non_null(scenario);
    scenario_llama_70b(scenario, 1, 1, 4, 400);
    scenario->load = conversations();
    scenario->load.warmup_requests = 40;
    struct seen seen;
    uint64_t computed;
    uint64_t again;
    for (uint32_t p = 0; p < 2; p++)
        scenario->pools[p].scheduler.prefix_cache = 1;
    uint64_t first = run_conversations(scenario, 1, &seen, &computed);
    assert_int_equal(seen.rows, 400);
    assert_int_equal(seen.counted, 360);
    uint64_t prompts = seen.prompts;
    assert_true(run_conversations(scenario, 1, &seen, &again) == first);
    assert_int_equal(again, computed);
    assert_true(run_conversations(scenario, 2, &seen, &again) != first);
    assert_true(computed < prompts * 3 / 4);
    for (uint32_t p = 0; p < 2; p++)
        scenario->pools[p].scheduler.prefix_cache = 0;
    run_conversations(scenario, 1, &seen, &again);
    assert_true(again > computed + computed / 4);
    free(scenario);
}

/* Rows of a run, as they are stored: when its requests came and whose turns they were. */
struct kept {
    int64_t at_ns[400];
    uint32_t conversations[400];
    uint32_t prompts[400];
};

static bool keep_row(void *self, const struct request_row *row, bool met)
{
    (void)met;
    struct kept *kept = self;
    kept->at_ns[row->request] = row->boundary_ns[BOUNDARY_ARRIVED];
    kept->conversations[row->request] = row->conversation;
    kept->prompts[row->request] = row->prompt_tokens;
    return true;
}

/* Played again with the arrivals that it had, a run has the same turns and takes the same decisions; and whoever says
 * that a request was another conversation's turn gets another prompt. */
static void a_run_of_conversations_is_played_again(void **state)
{
    (void)state;
    static struct kept first;
    static struct kept again;
    struct user_error error = {.set = false};
    struct scenario *scenario = malloc(sizeof *scenario);
    assert_non_null(scenario);
    scenario_llama_70b(scenario, 1, 1, 4, 400);
    scenario->load = conversations();
    scenario->load.abort_permille = 100;
    scenario->load.abort_after_ns = 5 * NS_PER_S;
    for (uint32_t p = 0; p < 2; p++)
        scenario->pools[p].scheduler.prefix_cache = 1;
    struct deployment_choice choice = deployment_default(scenario);
    struct run_config config = {
        .scenario = scenario, .choice = &choice, .seed = 1, .listener = {.self = &first, .row = keep_row}};
    struct run_result result;
    run_play(&sim_backend, &config, &result);
    assert_int_equal(result.status, RUN_COMPLETE);
    uint64_t hash = result.summary.trace_hash;
    assert_true(result.summary.aborted > 10);
    run_result_free(&result);
    uint32_t later_turns = 0;
    for (uint32_t i = 0; i < 400; i++)
        later_turns += first.prompts[i] > 350;
    assert_true(later_turns > 100);
    struct workload_arrivals arrivals = {400, first.at_ns, first.conversations};
    config = (struct run_config){.scenario = scenario,
                                 .choice = &choice,
                                 .seed = 1,
                                 .arrivals = &arrivals,
                                 .listener = {.self = &again, .row = keep_row}};
    run_play(&sim_backend, &config, &result);
    assert_int_equal(result.status, RUN_COMPLETE);
    assert_true(result.summary.trace_hash == hash);
    assert_memory_equal(&first, &again, sizeof first);
    run_result_free(&result);
    /* Two conversations under way change places. */
    uint32_t other = 1;
    while (first.conversations[other] == first.conversations[0] || first.prompts[other] > 350)
        other++;
    uint32_t next = other + 1;
    while (first.conversations[next] != first.conversations[0])
        next++;
    memcpy(again.conversations, first.conversations, sizeof first.conversations);
    again.conversations[next] = first.conversations[other];
    arrivals.conversations = again.conversations;
    struct workload *workload = workload_create_again(&scenario->load, 1, NULL, &arrivals, &error);
    bool differs = workload == NULL; /* there is no such turn at all */
    struct workload_item item;
    while (!differs && workload_next(workload, &item))
        differs = !item.is_abort && item.spec.prompt_tokens != first.prompts[item.spec.id];
    assert_true(differs);
    workload_free(workload);
    free(scenario);
}

/* ---- Mixtures of clients ----------------------------------------------------------------------------------------- */

#define LENGTHS "10,20,30,40,50,60,70,80,90,100,110,120,130,140,150,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"

static struct trace_file *draw(const char *text, const char *expected_error)
{
    struct user_error error = {.set = false};
    struct trace_file *trace = trace_file_read_memory(text, strlen(text), "clients.csv",
                                                      &(struct trace_options){.format = TRACE_FORMAT_SERVEGEN}, &error);
    if (expected_error == NULL && trace == NULL)
        fail_msg("%s", error.text);
    if (expected_error != NULL) {
        assert_null(trace);
        if (strstr(error.text, expected_error) == NULL)
            fail_msg("'%s' lacks '%s'", error.text, expected_error);
    }
    return trace;
}

/* Counts and squared coefficients of variation of the gaps, of many clients with one rate and shape each. */
static void requests_come_as_their_windows_say(void **state)
{
    (void)state;
    const struct {
        const char *pattern;
        uint32_t shape;
        double variation; /* squared: 1 / shape of a gamma distribution, 2.0 x 24 / 2^2 - 1 of this Weibull one */
    } families[] = {{"gamma", 1000, 1.0}, {"gamma", 250, 4.0}, {"gamma", 4000, 0.25}, {"weibull", 500, 5.0}};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        char text[512];
        snprintf(text, sizeof text, "# a comment\nlengths,3," LENGTHS "\nwindow,3,600,100000000,%s,%u\n",
                 families[f].pattern, families[f].shape);
        struct trace_file *trace = draw(text, NULL);
        /* 100 a second for ten minutes. */
        assert_in_range(trace->count, 58000, 62000);
        double sum = 0;
        double squares = 0;
        for (uint32_t i = 1; i < trace->count; i++) {
            double gap = (double)(trace->arrival_ns[i] - trace->arrival_ns[i - 1]) / 1e9;
            sum += gap;
            squares += gap * gap;
            assert_in_range(trace->prompt_tokens[i], 10, 150);
            assert_in_range(trace->output_tokens[i], 1, 15);
        }
        double mean = sum / (trace->count - 1);
        double variation = squares / (trace->count - 1) / (mean * mean) - 1;
        assert_true(variation > families[f].variation * 0.9 && variation < families[f].variation * 1.1);
        trace_file_free(trace);
    }
}

/* What one client sends does not depend on the others; all of them are in order. */
static void clients_are_independent(void **state)
{
    (void)state;
    struct trace_file *alone = draw("lengths,1," LENGTHS "\nwindow,1,0,500000,gamma,300\n", NULL);
    struct trace_file *both = draw("lengths,0," LENGTHS "\nlengths,1," LENGTHS
                                   "\nwindow,0,0,2000000,weibull,700\nwindow,1,0,500000,gamma,300\n",
                                   NULL);
    assert_true(both->count > alone->count);
    uint32_t found = 0;
    int64_t shift_ns = -1;
    for (uint32_t i = 0; i < both->count; i++) {
        assert_true(i == 0 || both->arrival_ns[i] >= both->arrival_ns[i - 1]);
        /* Arrivals are relative to the first one of the file. */
        if (shift_ns < 0 && both->prompt_tokens[i] == alone->prompt_tokens[0] &&
            both->output_tokens[i] == alone->output_tokens[0])
            shift_ns = both->arrival_ns[i];
        if (shift_ns >= 0 && found < alone->count && both->arrival_ns[i] - shift_ns == alone->arrival_ns[found] &&
            both->prompt_tokens[i] == alone->prompt_tokens[found])
            found++;
    }
    assert_int_equal(found, alone->count);
    trace_file_free(alone);
    trace_file_free(both);
}

static void lines_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    draw("", "no requests");
    draw("lengths,1,5\n", "2 x 15 quantiles");
    draw("window,1,0,5,gamma,5\n", "no line with its lengths");
    draw("lengths,1," LENGTHS "\nwindow,1,0,5,normal,5\n", "expected gamma or weibull");
    draw("lengths,1," LENGTHS "\nwindow,1,0,0,gamma,5\n", "expected a whole number from 1 to");
    draw("lengths,1," LENGTHS "\nwindow,1,0,5,gamma,1\n", "expected a whole number from 5 to");
    draw("lengths,1," LENGTHS "\nwindow,1,0,5,gamma\n", "5 fields");
    draw("clients,1\n", "expected lengths or window");
}

/* What is shipped is what its README says of it. */
static void the_shipped_mixture_is_read(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    struct trace_file *trace = trace_file_read(TANDEM_SOURCE_DIR "/scenarios/traces/servegen-deepseek-r1-2h.csv.xz",
                                               &(struct trace_options){.format = TRACE_FORMAT_SERVEGEN}, &error);
    if (trace == NULL)
        fail_msg("%s", error.text);
    printf("%u requests, %llu + %llu tokens\n", trace->count,
           (unsigned long long)trace->prompt_tokens_sum / trace->count,
           (unsigned long long)trace->output_tokens_sum / trace->count);
    assert_in_range(trace->count, 140000, 160000); /* 149,610 by the rates */
    trace_file_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_conversations_at_a_time),
        cmocka_unit_test(a_turn_holds_all_before_it),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_run_of_conversations_is_repeatable),
        cmocka_unit_test(a_run_of_conversations_is_played_again),
        cmocka_unit_test(requests_come_as_their_windows_say),
        cmocka_unit_test(clients_are_independent),
        cmocka_unit_test(lines_that_make_no_sense_are_refused),
        cmocka_unit_test(the_shipped_mixture_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
