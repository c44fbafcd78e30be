/* See story.h. */
#include "support/story.h"

#include "support/fault_injection.h"
#include "support/cluster.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fault loops of one story, one test a kind. */
struct loop {
    const struct CMUnitTest *story;
    enum injected_fault_kind kind;
};

static bool about_nodes(enum injected_fault_kind kind)
{
    return kind == INJECT_DEATH || kind == INJECT_DEATH_LINGERING || kind == INJECT_DEATH_AND_RETURN ||
           kind == INJECT_DEATH_LONG_RETURN;
}

/* Runs with the first fault, the second, ... until none is reached; the number of runs that met one. */
static uint32_t loop_over(const struct loop *loop, uint32_t subject)
{
    void *state = NULL;
    for (uint32_t nth = 1;; nth++) {
        cluster_fault(&(struct injected_fault){.kind = loop->kind, .subject = subject, .nth = nth});
        loop->story->test_func(&state);
        if (!cluster_fault_struck())
            return nth - 1;
    }
}

static void play(void **state)
{
    const struct loop *loop = *state;
    void *story_state = NULL;
    uint32_t runs = 0;
    cluster_fault(&(struct injected_fault){.kind = INJECT_NONE});
    loop->story->test_func(&story_state);
    struct cluster_cast cast = cluster_cast();
    if (about_nodes(loop->kind)) {
        for (uint32_t node = 1; node < cast.node_count; node++)
            runs += loop_over(loop, node);
    } else if (loop->kind == INJECT_CLIENT_LEAVES) {
        for (uint32_t i = 0; i < cast.request_count; i++)
            runs += loop_over(loop, cast.requests[i]);
    } else {
        runs += loop_over(loop, 0);
    }
    cluster_fault(NULL);
    print_message("%s: %s: %" PRIu32 " runs\n", loop->story->name, injection_name(loop->kind), runs);
}

static int play_faults(const struct CMUnitTest *stories, size_t count)
{
    size_t loops_count = count * (INJECT_KINDS - 1);
    struct loop *loops = calloc(loops_count, sizeof *loops);
    struct CMUnitTest *tests = calloc(loops_count, sizeof *tests);
    char(*names)[96] = calloc(loops_count, sizeof *names);
    if (loops == NULL || tests == NULL || names == NULL)
        abort();
    for (size_t i = 0; i < loops_count; i++) {
        loops[i] =
            (struct loop){&stories[i / (INJECT_KINDS - 1)], (enum injected_fault_kind)(1 + i % (INJECT_KINDS - 1))};
        snprintf(names[i], sizeof names[i], "%s: %s", loops[i].story->name, injection_name(loops[i].kind));
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = play, .initial_state = &loops[i]};
    }
    int failures = _cmocka_run_group_tests("fault loops", tests, loops_count, NULL, NULL);
    free(loops);
    free(tests);
    free(names);
    return failures;
}

/* For tests/stories/edges.sh: a line for every edge there is, and for every one that a story takes. */
static int tell_edges(const struct CMUnitTest *stories, size_t count)
{
    for (uint32_t i = 0; i < known_edge_count; i++) {
        const struct edge *edge = &known_edges[i];
        printf("edge\t%" PRIu32 "\t%s\t%s\t%s\t%s\n", i, edge->role == ROLE_DECODE ? "decoder" : "prefiller",
               edge_state_name(edge->from), edge_state_name(edge->to), edge->words);
    }
    for (size_t story = 0; story < count; story++) {
        void *state = NULL;
        stories[story].test_func(&state);
        struct edge_counts edges = cluster_edges();
        for (uint32_t i = 0; i < known_edge_count; i++)
            if (edges.of[i] > 0)
                printf("taken\t%" PRIu32 "\t%s\n", i, stories[story].name);
    }
    return 0;
}

int run_stories_of(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    if (argc == 2 && strcmp(argv[1], "faults") == 0)
        return play_faults(tests, count);
    if (argc == 2 && strcmp(argv[1], "edges") == 0)
        return tell_edges(tests, count);
    if (argc != 1) {
        fprintf(stderr, "usage: %s [faults|edges]\n", argv[0]);
        return 2;
    }
    return _cmocka_run_group_tests("stories", tests, count, NULL, NULL);
}
