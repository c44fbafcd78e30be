/* See in_run.h. */
#define _GNU_SOURCE
#include "real/calibrate/in_run.h"

#include "base/arith.h"
#include "world/scenario/policy_host.h"
#include "host/interrupt.h"
#include "host/stats.h"
#include "real/cluster/launcher.h"
#include "real/runtime/recording.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER_BYTES 256

/* A list that grows. */
struct samples {
    void *items;
    uint32_t count;
    uint32_t room;
};

static void *samples_add(struct samples *samples, size_t size)
{
    if (samples->count == samples->room) {
        samples->room = samples->room == 0 ? 256 : 2 * samples->room;
        samples->items = realloc(samples->items, samples->room * size);
        CHECK(samples->items != NULL);
    }
    return (unsigned char *)samples->items + samples->count++ * size;
}

/* When a message was sent, and whether it had to wait for a count. */
struct sent {
    int64_t at_ns;
    bool armed;
};

/* Messages from one node to another arrive in the order in which they were sent. */
struct pair {
    struct samples sent;  /* struct sent */
    struct samples heard; /* int64_t */
};

struct reader {
    const struct real_world *world;
    const struct step_plan *plan;
    struct samples (*steps)[2]; /* struct line_sample: by table, [0] prefill, [1] decode */
    struct pair *pairs;         /* [source * nodes + destination] */
    uint32_t nodes;

    /* Of the node in hand. */
    uint32_t node;
    const struct step_table *table; /* NULL: the front, or nothing was measured for it */
    uint32_t place;
    bool armed;         /* a count, in the event in hand */
    uint32_t in_flight; /* launches */
    bool overlaps;      /* since none was: then what one takes is not seen */
    int64_t launched_ns;
    uint32_t group_count;
    struct step_group groups[GROUPS_MAX];
};

/* ---- What a recording tells -------------------------------------------------------------------------------------- */

static double prefill_expected(const struct reader *reader)
{
    double ns = 0;
    for (uint32_t g = 0; g < reader->group_count; g++) {
        const struct step_group *group = &reader->groups[g];
        if (group->prefill_tokens == 0)
            continue;
        double keys = (double)group->prefill_pairs / (double)group->prefill_tokens;
        double own = step_grid_at(&reader->table->prefill, (double)group->prefill_tokens, keys);
        ns = own > ns ? own : ns;
    }
    return ns;
}

/* Of `steps` steps, one after the other, each a token longer. */
static double decode_expected(const struct reader *reader, uint64_t steps)
{
    double ns = 0;
    for (uint64_t i = 0; i < steps; i++) {
        double slowest = 0;
        for (uint32_t g = 0; g < reader->group_count; g++) {
            const struct step_group *group = &reader->groups[g];
            if (group->decode_sequences == 0)
                continue;
            double context = (double)(group->decode_context + i * group->decode_sequences);
            double own = step_grid_at(&reader->table->decode, (double)group->decode_sequences, context);
            slowest = own > slowest ? own : slowest;
        }
        ns += slowest;
    }
    return ns;
}

/* A launch of one kind of step; one that mixes them says little of either. */
static void take_launch(struct reader *reader, int64_t now_ns, uint64_t steps)
{
    bool prefills = false;
    bool decodes = false;
    for (uint32_t g = 0; g < reader->group_count; g++) {
        prefills = prefills || reader->groups[g].prefill_tokens > 0;
        decodes = decodes || reader->groups[g].decode_sequences > 0;
    }
    if (reader->table == NULL || prefills == decodes)
        return;
    const struct step_grid *grid = prefills ? &reader->table->prefill : &reader->table->decode;
    if (grid->row_count == 0)
        return;
    struct line_sample *sample = samples_add(&reader->steps[reader->place][decodes], sizeof *sample);
    sample->expected_ns = prefills ? prefill_expected(reader) : decode_expected(reader, steps);
    sample->took_ns = (double)(now_ns - reader->launched_ns);
}

static void on_event(void *self, int64_t now_ns, const struct event *event)
{
    struct reader *reader = self;
    reader->armed = false;
    if (event->kind == EVENT_STEPS_DONE && reader->in_flight > 0) {
        if (!reader->overlaps)
            take_launch(reader, now_ns, event->count);
        reader->in_flight--;
    } else if (event->kind == EVENT_MESSAGE && event->id != reader->node && event->id < reader->nodes) {
        struct pair *pair = &reader->pairs[event->id * reader->nodes + reader->node];
        *(int64_t *)samples_add(&pair->heard, sizeof(int64_t)) = now_ns;
    }
}

static void on_launch(void *self, int64_t now_ns, const struct step_launch *launch)
{
    struct reader *reader = self;
    reader->overlaps = reader->in_flight > 0; /* of this one, and those beside it */
    reader->in_flight++;
    reader->launched_ns = now_ns;
    reader->group_count = launch->group_count;
    memcpy(reader->groups, launch->groups, launch->group_count * sizeof *launch->groups);
}

static void on_expect(void *self, int64_t now_ns, uint32_t immediate, uint64_t count)
{
    (void)now_ns;
    (void)immediate;
    struct reader *reader = self;
    reader->armed = reader->armed || count > 0;
}

static void on_send(void *self, int64_t now_ns, uint32_t node)
{
    struct reader *reader = self;
    if (node == reader->node || node >= reader->nodes)
        return;
    struct sent *sent = samples_add(&reader->pairs[reader->node * reader->nodes + node].sent, sizeof *sent);
    *sent = (struct sent){.at_ns = now_ns, .armed = reader->armed};
}

/* The table of the node's model and sharding. */
static void find_table(struct reader *reader)
{
    const struct parallelism *parallelism = &reader->world->deployment->instances[reader->node].parallelism;
    reader->table = NULL;
    for (uint32_t t = 0; t < reader->plan->count && reader->node > 0; t++) {
        const struct step_table *table = &reader->plan->item[t].table;
        if (strcmp(table->model, reader->world->scenario->model.name) != 0 ||
            !parallelism_same(&table->parallelism, parallelism))
            continue;
        reader->table = table;
        reader->place = t;
    }
}

static bool read_node(struct reader *reader, const char *folder, uint32_t node, struct user_error *why)
{
    char path[FOLDER_BYTES + 32];
    struct runtime_limits limits = real_world_limits();
    struct policy *policy = policy_host_make(reader->world->scenario, reader->world->deployment->instances[node].pool);
    struct recording_listener listener = {
        .event = on_event, .launch = on_launch, .expect = on_expect, .send = on_send, .self = reader, .policy = policy};
    snprintf(path, sizeof path, "%s/node-%u.events", folder, node);
    reader->node = node;
    reader->in_flight = 0;
    find_table(reader);
    int64_t events = recording_replay_heard(path, &reader->world->deployment->configs[node], &limits, &listener, why);
    policy_host_free(policy);
    return events >= 0;
}

/* ---- What it comes to -------------------------------------------------------------------------------------------- */

/* Delays of messages: of the front's, and of those that waited for a count. */
static void take_delays(const struct reader *reader, struct samples *front, struct samples *armed)
{
    for (uint32_t p = 0; p < reader->nodes * reader->nodes; p++) {
        const struct pair *pair = &reader->pairs[p];
        const struct sent *sent = pair->sent.items;
        const int64_t *heard = pair->heard.items;
        for (uint32_t i = 0; i < min_u32(pair->sent.count, pair->heard.count); i++) {
            struct samples *samples = sent[i].armed ? armed : p < reader->nodes ? front : NULL;
            if (samples != NULL)
                *(int64_t *)samples_add(samples, sizeof(int64_t)) = heard[i] - sent[i].at_ns;
        }
    }
}

static int64_t samples_median(struct samples *samples)
{
    stats_sort(samples->items, samples->count);
    return stats_percentile(samples->items, samples->count, 500);
}

static struct step_correction correction_of(const struct samples *samples)
{
    struct step_correction correction = {.launches = samples->count, .line = {.factor = 1}};
    line_fit(samples->items, samples->count, &correction.line);
    return correction;
}

static void scale(struct step_grid *grid, double base_ns, double factor)
{
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            double ns = base_ns + factor * (double)grid->ns[r][c];
            grid->ns[r][c] = max_i64(1, (int64_t)(ns + 0.5));
        }
    }
}

void step_table_correct(struct step_table *table, const struct step_correction *prefill,
                        const struct step_correction *decode)
{
    const struct line *first = table->prefill.row_count > 0 ? &prefill->line : &decode->line;
    double base_ns = table->prefill.row_count > 0 ? first->base_ns : 0;
    table->first_layer_ns = (int64_t)(base_ns + first->factor * (double)table->first_layer_ns + 0.5);
    scale(&table->prefill, prefill->line.base_ns, prefill->line.factor);
    scale(&table->decode, 0, decode->line.factor);
    table->launch_ns = (int64_t)(decode->line.base_ns + 0.5);
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

static bool run(const struct in_run_config *config, const struct real_world *world, const char *folder,
                struct user_error *why)
{
    struct real_options options = *config->options;
    struct run_result result;
    options.record_events = folder;
    struct deployment_choice choice = deployment_default(world->scenario);
    run_play(&real_backend,
             &(struct run_config){.scenario = world->scenario,
                                  .choice = &choice,
                                  .seed = world->seed,
                                  .recorded = world->recorded,
                                  .sets = config->sets,
                                  .set_count = config->set_count,
                                  .options = &(struct launcher_options){.options = &options}},
             &result);
    bool good = result.status == RUN_COMPLETE;
    if (!good && result.status != RUN_STOPPED)
        user_error_set(why, NULL, 0, NULL, "%s", result.text);
    run_result_free(&result);
    return good;
}

static void remove_folder(const char *folder, uint32_t nodes)
{
    for (uint32_t i = 0; i < nodes; i++) {
        char path[FOLDER_BYTES + 32];
        snprintf(path, sizeof path, "%s/node-%u.events", folder, i);
        unlink(path);
    }
    rmdir(folder);
}

static void reader_free(struct reader *reader)
{
    for (uint32_t p = 0; reader->pairs != NULL && p < reader->nodes * reader->nodes; p++) {
        free(reader->pairs[p].sent.items);
        free(reader->pairs[p].heard.items);
    }
    free(reader->pairs);
}

/* Runs one scenario and adds what it shows. */
static bool add_scenario(const struct in_run_config *config, const char *path, struct reader *reader,
                         struct samples *front, struct samples *armed, struct user_error *error)
{
    struct real_world world;
    char folder[FOLDER_BYTES];
    struct user_error why = {.set = false};
    const char *temporary = getenv("TMPDIR");
    bool good = real_world_load(&world, path, config->sets, config->set_count, -1, error);
    uint64_t seed = good ? world.seed + 1 : 0;
    real_world_free(&world);
    good = good && real_world_load(&world, path, config->sets, config->set_count, (int64_t)(seed & INT64_MAX), error);
    if (!good)
        return false;
    snprintf(folder, sizeof folder, "%s/tandem-calibrate-XXXXXX", temporary == NULL ? "/tmp" : temporary);
    reader->world = &world;
    reader->nodes = world.deployment->node_count;
    reader->pairs = calloc((size_t)reader->nodes * reader->nodes, sizeof *reader->pairs);
    CHECK(reader->pairs != NULL);
    if (mkdtemp(folder) == NULL) {
        user_error_set(error, folder, 0, NULL, "cannot be made: %s", strerror(errno));
        good = false;
    } else {
        good = run(config, &world, folder, &why);
        for (uint32_t node = 0; node < reader->nodes && good; node++)
            good = read_node(reader, folder, node, &why);
        remove_folder(folder, reader->nodes);
        if (why.set)
            user_error_set(error, path, 0, NULL, "%.400s", why.text);
    }
    if (good)
        take_delays(reader, front, armed);
    reader_free(reader);
    real_world_free(&world);
    return good && !interrupt_requested();
}

bool in_run_measure(const struct in_run_config *config, struct step_plan *plan, struct in_run *found,
                    struct user_error *error)
{
    struct samples steps[STEP_TABLES_MAX][2] = {{{0}}};
    struct samples front = {0};
    struct samples armed = {0};
    struct reader reader = {.plan = plan, .steps = steps};
    bool good = true;
    *found = (struct in_run){.messages = 0};
    for (size_t i = 0; i < config->scenario_count && good; i++)
        good = add_scenario(config, config->scenarios[i], &reader, &front, &armed, error);
    for (uint32_t t = 0; t < plan->count && good; t++) {
        found->prefill[t] = correction_of(&steps[t][0]);
        found->decode[t] = correction_of(&steps[t][1]);
        step_table_correct(&plan->item[t].table, &found->prefill[t], &found->decode[t]);
    }
    found->messages = front.count;
    found->armed = armed.count;
    if (good && front.count > 0)
        found->message_ns = max_i64(1, samples_median(&front));
    if (good && front.count > 0 && armed.count > 0)
        found->arm_ns = max_i64(0, samples_median(&armed) - found->message_ns);
    for (uint32_t t = 0; t < STEP_TABLES_MAX; t++) {
        free(steps[t][0].items);
        free(steps[t][1].items);
    }
    free(front.items);
    free(armed.items);
    return good;
}
