/* The swarm and its checkers: that they are silent where nothing is wrong, that each speaks where something is broken
 * on purpose, that a seed is what it is, and that a failure is shrunk to a file that fails alike. */
#define _XOPEN_SOURCE 700 /* mkdtemp */

#include "base/arith.h"
#include "sim/swarm/fuzz_draw.h"
#include "world/scenario/scenario_lua.h"
#include "world/scenario/scenario_schema.h"
#include "world/scenario/scenario_write.h"
#include "messenger/wire.h"
#include "sim/swarm/shrink.h"
#include "sim/swarm/swarm.h"
#include "support/edges.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Seeds ------------------------------------------------------------------------------------------------------- */

static void a_drawn_scenario_is_the_file_that_it_is_written_to(void **state)
{
    (void)state;
    struct drawn *drawn = calloc(1, sizeof *drawn);
    char folder[] = "/tmp/tandem_fuzz_XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/drawn.lua", folder);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct user_error error = {.set = false};
        fuzz_draw(seed, drawn);
        scenario_identify(&drawn->scenario);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(scenario_write(&drawn->scenario, file));
        assert_int_equal(fclose(file), 0);
        struct scenario *loaded = scenario_load(path, NULL, 0, &error);
        if (loaded == NULL)
            fail_msg("seed %" PRIu64 ": %s", seed, error.text);
        if (strcmp(loaded->identity, drawn->scenario.identity) != 0) {
            char *a = scenario_canonical(&drawn->scenario);
            char *b = scenario_canonical(loaded);
            size_t at = 0;
            while (a[at] == b[at])
                at++;
            while (at > 0 && a[at - 1] != '\n')
                at--;
            fail_msg("seed %" PRIu64 ": drawn %.120s\nread %.120s", seed, a + at, b + at);
        }
        assert_int_equal(loaded->seed, drawn->scenario.seed);
        scenario_free(loaded);
    }
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);
    free(drawn);
}

static void the_outcome_does_not_depend_on_the_number_of_workers(void **state)
{
    (void)state;
    struct swarm_result *one = malloc(sizeof *one);
    struct swarm_result *three = malloc(sizeof *three);
    swarm_run(&(struct swarm_options){.first = 1000, .seeds = 60, .jobs = 1}, one);
    swarm_run(&(struct swarm_options){.first = 1000, .seeds = 60, .jobs = 3}, three);
    if (one->failed)
        fail_msg("seed %" PRIu64 ": %s", one->seed, one->failure.text);
    assert_false(three->failed);
    assert_int_equal(one->seeds, 60);
    assert_int_equal(three->seeds, 60);
    assert_int_equal(one->events, three->events);
    assert_memory_equal(&one->coverage, &three->coverage, sizeof one->coverage);
    free(one);
    free(three);
}

/* ---- What is broken on purpose ------------------------------------------------------------------------------------
 */

/* Between nodes and the simulator: one of these spoils what passes, now and then. */
enum breakage {
    WRONG_PAGE,
    WRONG_SOURCE,
    WRONG_OFFSET,
    WRONG_SLOT,
    NO_GATE,
    SKIPPED_UNIT,
    WRONG_COUNT,
    AFTER_QUIET,
    NOT_ARMED,
    RELEASED_TWICE,
    FALSE_COUNT,
    STOLEN_PAGE,
    ENDS_TWICE,
    GARBLED,
    LOST_MESSAGE,
};

static struct breakage_state {
    enum breakage what;
    const struct runtime_ops *ops;
    struct paged_write last;
    const struct transfer_plan *original;
    struct transfer_plan plan;
    uint32_t pages[64];
    uint32_t stolen;
    bool seen;
} broken;

static void post_broken(struct runtime *rt, const struct paged_write *spec)
{
    struct paged_write write = *spec;
    uint32_t pages[256];
    broken.last = *spec;
    switch (broken.what) {
    case WRONG_PAGE:
        if (spec->destination_page_count > 0 && spec->destination_page_count <= 256) {
            pages[0] = spec->destination_pages[0] == 0 ? 1 : spec->destination_pages[0] - 1;
            for (uint32_t i = 1; i < spec->destination_page_count; i++)
                pages[i] = spec->destination_pages[i];
            write.destination_pages = pages;
        }
        break;
    case WRONG_SOURCE:
        if (spec->source_page_count > 0 && spec->source_page_count <= 256) {
            for (uint32_t i = 0; i < spec->source_page_count; i++)
                pages[i] = spec->source_pages[i];
            pages[0] = pages[0] == 0 ? 1 : pages[0] - 1;
            write.source_pages = pages;
        }
        break;
    case WRONG_OFFSET:
        /* A node keeps the pairs in use alone, and plans are known by their place: one of them is spoilt. */
        if (broken.original == NULL) {
            broken.original = spec->plan;
            memcpy(&broken.plan, spec->plan,
                   offsetof(struct transfer_plan, pairs) + spec->plan->pair_count * sizeof spec->plan->pairs[0]);
            broken.plan.pairs[0].run_bytes /= 2;
        }
        if (spec->plan == broken.original && spec->plan->pairs[0].runs == 1 && spec->plan->unit_tokens > 1)
            write.plan = &broken.plan;
        break;
    case WRONG_SLOT:
        write.tail_destination_slot++;
        break;
    case NO_GATE:
        write.gate = STEP_NONE;
        break;
    case SKIPPED_UNIT:
        if (spec->unit_count > 1) {
            write.unit_count--;
            write.source_page_count =
                transfer_pages(spec->unit_first, write.unit_count, spec->plan->source_units_per_page);
            write.destination_page_count =
                transfer_pages(spec->unit_first, write.unit_count, spec->plan->destination_units_per_page);
        }
        break;
    case WRONG_COUNT:
        write.source_page_count -= spec->source_page_count > 0;
        break;
    default:
        break;
    }
    broken.ops->write_post(rt, &write);
}

static void expect_broken(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    if (broken.what == NOT_ARMED && count > 0)
        return;
    broken.ops->immediate_expect(rt, immediate, broken.what == FALSE_COUNT && count > 1 ? count - 1 : count);
    if (broken.what == RELEASED_TWICE && count == 0)
        broken.ops->immediate_expect(rt, immediate, 0);
}

static void launch_broken(struct runtime *rt, const struct step_launch *spec)
{
    struct step_launch launch = *spec;
    struct step_change changes[64];
    for (uint32_t i = 0; i < spec->change_count && i < 64; i++) {
        changes[i] = spec->changes[i];
        if (broken.what != STOLEN_PAGE || changes[i].page_count == 0 || changes[i].page_count > 64)
            continue;
        memcpy(broken.pages, changes[i].pages, changes[i].page_count * sizeof *broken.pages);
        if (broken.seen)
            broken.pages[changes[i].page_count - 1] = broken.stolen;
        broken.stolen = broken.pages[changes[i].page_count - 1];
        broken.seen = true;
        changes[i].pages = broken.pages;
    }
    launch.changes = changes;
    broken.ops->launch(rt, spec->change_count <= 64 ? &launch : spec);
}

static void send_broken(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    struct message m;
    assert_true(wire_decode(bytes, length, &m));
    if (broken.what == GARBLED && m.kind == MESSAGE_FINISHED) {
        broken.ops->send(rt, node, bytes, length - 1);
        return;
    }
    if (broken.what == LOST_MESSAGE && m.kind == MESSAGE_FINISHED)
        return;
    broken.ops->send(rt, node, bytes, length);
    if (broken.what == AFTER_QUIET && m.kind == MESSAGE_QUIESCED && broken.last.epoch == m.epoch &&
        broken.last.destination == node && broken.last.request == m.request) {
        broken.last.unit_count = broken.last.source_page_count = broken.last.destination_page_count = 0;
        broken.ops->write_post(rt, &broken.last);
    }
}

static void trace_broken(struct runtime *rt, const struct trace_record *record)
{
    broken.ops->trace(rt, record);
    if (broken.what == ENDS_TWICE && (record->kind == TRACE_ABORTED || record->kind == TRACE_FAILED))
        broken.ops->trace(rt, record);
}

static void break_it(void *self, struct sim *sim, const struct run_nodes *nodes)
{
    static struct runtime_ops ops;
    (void)self;
    enum breakage what = broken.what;
    broken = (struct breakage_state){.what = what, .ops = sim_runtime(sim, 0)->ops};
    ops = *broken.ops;
    ops.write_post = post_broken;
    ops.immediate_expect = expect_broken;
    ops.launch = launch_broken;
    ops.send = send_broken;
    ops.trace = trace_broken;
    for (uint32_t i = 0; i < nodes->count; i++)
        sim_runtime(sim, i)->ops = &ops;
}

static const struct seed_sabotage sabotage = {.ready = break_it};

/* What each makes some checker say, within so many seeds. */
static void every_checker_speaks(void **state)
{
    (void)state;
    static const struct {
        enum breakage what;
        const char *says;
        bool crashes;
    } cases[] = {
        {WRONG_PAGE, "the page is not this transfer's", false},
        {WRONG_SOURCE, "holds another's token", false},
        {WRONG_OFFSET, "not all of token", false},
        {WRONG_SLOT, "which is not its own", false},
        {NO_GATE, "does not wait for the step", false},
        {SKIPPED_UNIT, "no progress", false},
        {WRONG_COUNT, "names other pages than its units need", false},
        {AFTER_QUIET, "which it said was quiet", false},
        {NOT_ARMED, "before it is armed", false},
        {RELEASED_TWICE, "is let go of, but it is not awaited", false},
        {FALSE_COUNT, "CHECK failed", true},
        {STOLEN_PAGE, "another sequence has", false},
        {ENDS_TWICE, "ends a second time", false},
        {GARBLED, "does not parse", false},
        {LOST_MESSAGE, "not drained", false},
    };
    struct swarm_result *result = malloc(sizeof *result);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool said = false;
        broken.what = cases[i].what;
        /* Another checker may be the first to speak of a seed. */
        for (uint64_t first = 1; first <= 600 && !said; first = result->failed ? result->seed + 1 : 601) {
            swarm_run(&(struct swarm_options){.first = first, .seeds = 601 - first, .jobs = 1, .sabotage = &sabotage},
                      result);
            said = result->failed && result->failure.crashed == cases[i].crashes &&
                   strstr(result->failure.text, cases[i].says) != NULL;
        }
        if (!said)
            fail_msg("case %zu: nobody says \"%s\" (last: %s)", i, cases[i].says, result->failure.text);
    }
    free(result);
}

static void a_failure_is_shrunk(void **state)
{
    (void)state;
    broken.what = RELEASED_TWICE;
    struct swarm_result *result = malloc(sizeof *result);
    struct drawn *drawn = calloc(1, sizeof *drawn);
    swarm_run(&(struct swarm_options){.first = 60, .seeds = 400, .jobs = 2, .sabotage = &sabotage}, result);
    assert_true(result->failed);
    assert_int_equal(result->failure.status, RUN_INVARIANT);
    /* No seed before it fails. */
    struct swarm_result *before = malloc(sizeof *before);
    if (result->seed > 60)
        swarm_run(&(struct swarm_options){.first = 60, .seeds = result->seed - 60, .jobs = 1, .sabotage = &sabotage},
                  before);
    assert_true(result->seed == 60 || !before->failed);
    fuzz_draw(result->seed, drawn);
    uint32_t requests = drawn->scenario.load.requests;
    struct seed_result failure = result->failure;
    assert_true(shrink(drawn, &sabotage, &failure) > 0);
    assert_true(seed_same_failure(&failure, &result->failure));
    /* A request that is cancelled in its transfer is all that it takes. */
    assert_in_range(drawn->scenario.load.requests, 1, min_u32(requests, 3));
    assert_in_range(drawn->faults.count, 0, 2);
    assert_int_equal(drawn->scenario.pools[0].count, 1);
    struct seed_result again;
    seed_run_apart(drawn, &sabotage, &again);
    assert_string_equal(again.text, failure.text);
    free(before);
    free(result);
    free(drawn);
}

/* The reasons why pairs cannot be are about pairs that there are. */
static void reasons_are_about_something(void **state)
{
    (void)state;
    uint32_t explained = 0, pairs = 0;
    for (uint32_t t = 0; coverage_table_name(t) != NULL; t++)
        for (uint32_t s = 0; coverage_state_name(t, s) != NULL; s++)
            for (uint32_t e = 0; coverage_event_name(t, e) != NULL; e++) {
                pairs++;
                explained += coverage_explanation(t, s, e) != NULL;
            }
    assert_int_equal(pairs, 226);
    assert_in_range(explained, 45, 65);
}

/* ---- Edges ------------------------------------------------------------------------------------------------------- */

static struct {
    struct run_nodes nodes;
    struct edge_view views[64]; /* by node */
    struct edge_counts counts;
} edges;

static void look(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    (void)self;
    (void)now_ns;
    if (event->kind == EVENT_START)
        edges.views[node].count = 0; /* what its predecessor held has died with it */
    edges_look(&edges.views[node], edges.nodes.configs[node].role, edges.nodes.nodes[node], &edges.counts);
}

static void look_at_edges(void *self, struct sim *sim, const struct run_nodes *nodes)
{
    (void)self;
    edges.nodes = *nodes;
    assert_true(nodes->count <= sizeof edges.views / sizeof *edges.views);
    memset(edges.views, 0, sizeof edges.views);
    sim_listen(sim, &(struct sim_listener){.after = look});
}

/* tests/stories/EDGES.md has a story for every edge that is known: the swarm takes no other. TANDEM_EDGE_SEEDS
 * seeds. */
static void the_swarm_takes_no_edge_without_a_story(void **state)
{
    (void)state;
    static const struct seed_sabotage looking = {.ready = look_at_edges};
    const char *text = getenv("TANDEM_EDGE_SEEDS");
    uint64_t seeds = text == NULL ? 400 : strtoull(text, NULL, 10);
    struct drawn *drawn = calloc(1, sizeof *drawn);
    uint32_t taken = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct seed_result result;
        fuzz_draw(seed, drawn);
        seed_run(drawn, NULL, &looking, &result);
        assert_false(seed_failed(&result));
    }
    for (uint32_t i = 0; i < known_edge_count; i++)
        taken += edges.counts.of[i] > 0;
    print_message("%u of %u edges taken\n", taken, known_edge_count);
    assert_in_range(taken, known_edge_count - 8, known_edge_count);
    free(drawn);
}

/* A fault's `on` knows every record of base/trace.h by its name. */
static void triggers_are_records(void **state)
{
    (void)state;
    struct drawn *drawn = calloc(1, sizeof *drawn);
    fuzz_draw(1, drawn);
    drawn->faults.count = 1;
    for (uint16_t kind = 1; kind < 256; kind++) {
        char *text = NULL;
        size_t size = 0;
        char wanted[64];
        if (trace_kind_name(kind) == NULL)
            continue;
        drawn->faults.item[0] = (struct fault){.kind = FAULT_KILL, .node = "prefill-0", .record = kind, .nth = 1};
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        assert_true(scenario_write(&drawn->scenario, out));
        assert_int_equal(fclose(out), 0);
        snprintf(wanted, sizeof wanted, "on = \"%s\"", trace_kind_name(kind));
        if (strstr(text, wanted) == NULL)
            fail_msg("no fault can be set off by %s", trace_kind_name(kind));
        free(text);
    }
    free(drawn);
}

/* ---- Enumerations ------------------------------------------------------------------------------------------------ */

/* Words of the language that no seed draws, and why. */
static const struct {
    const char *key;
    const char *word;
} undrawn[] = {
    {"weights", NULL}, /* of the sizes of a model: times and bytes alone */
    {"attention_weights", NULL}, {"output_weights", NULL}, {"fp4_block", NULL}, {"moe_interval", NULL},
    {"memory_share", NULL},      {"expert_weights", NULL}, {"kernels", NULL}, /* steps are drawn as tables of times */
    {"load", "trace"},                            /* a list of requests like the listed load, once it is read */
    {"on", "rejected"},                           /* of what has ended nothing is left that a fault could hit */
    {"on", "aborted"},           {"on", "batch"}, /* chunk and decode_started say the same of a request */
    {"on", "prefix_hit"},
};

/* Which words of a table were drawn; the first drawn value of a key gives it its place. */
struct drawn_words {
    const char *key;
    const struct field_name *names;
    uint32_t count;
    uint64_t seen; /* by index in names */
};
#define DRAWN_KEYS_MAX 32

static void note_value(struct drawn_words *words, const char *key, const struct field_name *names, uint32_t count,
                       int64_t value)
{
    uint32_t at = 0;
    while (words[at].key != NULL && (strcmp(words[at].key, key) != 0 || words[at].names != names))
        at++;
    assert_true(at < DRAWN_KEYS_MAX - 1);
    assert_true(count <= 64);
    words[at] = (struct drawn_words){.key = key, .names = names, .count = count, .seen = words[at].seen};
    for (uint32_t n = 0; n < count; n++)
        if (names[n].value == value)
            words[at].seen |= UINT64_C(1) << n;
}

static void note_fields(struct drawn_words *words, const struct schema *schema, const void *base)
{
    for (uint32_t f = 0; f < schema->count; f++) {
        const struct field *field = &schema->fields[f];
        if (field->kind == FIELD_NAME)
            note_value(words, field->key, field->names, field->name_count, field_load(field, base));
    }
}

static bool is_undrawn(const char *key, const char *word)
{
    bool is = false;
    for (size_t i = 0; i < sizeof undrawn / sizeof undrawn[0]; i++)
        is =
            is || (strcmp(undrawn[i].key, key) == 0 && (undrawn[i].word == NULL || strcmp(undrawn[i].word, word) == 0));
    return is;
}

/* A policy, a load, a fault or a format that is added to the language is drawn, or stands above with its reason. */
static void every_word_of_the_language_is_drawn(void **state)
{
    (void)state;
    struct drawn_words words[DRAWN_KEYS_MAX] = {{0}};
    struct drawn *drawn = calloc(1, sizeof *drawn);
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        fuzz_draw(seed, drawn);
        note_fields(words, &schema_model, &drawn->scenario.model);
        note_fields(words, &schema_routing, &drawn->scenario);
        note_value(words, "load", load_names, load_name_count, drawn->scenario.load.arrivals);
        for (uint32_t p = 0; p < drawn->scenario.pool_count; p++)
            note_fields(words, &schema_pool, &drawn->scenario.pools[p]);
        for (uint32_t i = 0; i < drawn->faults.count; i++) {
            note_fields(words, &schema_fault, &drawn->faults.item[i]);
            note_value(words, "fault", fault_names, fault_name_count, drawn->faults.item[i].kind);
        }
    }
    for (const struct drawn_words *of = words; of->key != NULL; of++)
        for (uint32_t n = 0; n < of->count; n++)
            if ((of->seen >> n & 1) == 0 && !is_undrawn(of->key, of->names[n].name))
                fail_msg("4000 seeds draw no %s = %s: see sim/swarm/fuzz_draw.h", of->key, of->names[n].name);
    free(drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drawn_scenario_is_the_file_that_it_is_written_to),
        cmocka_unit_test(the_outcome_does_not_depend_on_the_number_of_workers),
        cmocka_unit_test(every_checker_speaks),
        cmocka_unit_test(a_failure_is_shrunk),
        cmocka_unit_test(reasons_are_about_something),
        cmocka_unit_test(triggers_are_records),
        cmocka_unit_test(every_word_of_the_language_is_drawn),
        cmocka_unit_test(the_swarm_takes_no_edge_without_a_story),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
