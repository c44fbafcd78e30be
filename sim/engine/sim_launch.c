/* Steps: what a launch costs, and when its boundaries come.
 *
 * Over several pipeline stages a launch passes them one after the other. A stage begins with it when it has come from
 * the stage before and the launch before it has left: each stage is known to be busy until some time, and since a
 * launch never waits for a later one, all its times are known when it is made.
 *
 * Every launch is a run of boundaries known in chunks. A step with prefill has one; a decode batch that repeats has as
 * many as it was launched with, unless an event cuts it short. Only the end of the chunk in hand is in the queue.
 */
#include "sim/engine/sim_internal.h"

#include "serve/token_clock.h"

#include <string.h>

static struct cost_entry *cost_entry(struct sim_node *node, uint32_t batch)
{
    struct cost_entry *entry = &node->costs[batch % COST_CACHE];
    if (entry->batch != batch)
        *entry = (struct cost_entry){.batch = batch};
    return entry;
}

static struct decode_line line_at(struct sim_node *node, uint32_t batch, uint64_t context)
{
    struct cost_entry *entry = cost_entry(node, batch);
    const struct decode_line *line = &entry->line;
    if (!entry->line_known || context < line->context_min || context > line->context_max) {
        node->device.ops->decode_line(node->device.model, batch, context, &entry->line);
        CHECK(line->context_min <= context && context <= line->context_max);
        entry->line_known = true;
    }
    return *line;
}

static int64_t line_ns(const struct decode_line *line, uint64_t context)
{
    return line->base_ns + (int64_t)((uint128)context * line->slope_q32 >> 32);
}

/* What bounds a decode step changes slowly with the context: it is asked again where the context has moved by an
 * eighth, so that a steady batch does not pay for the whole roofline at every launch. */
static enum step_bound decode_bound(struct sim_node *node, struct launch *launch)
{
    struct cost_entry *entry = cost_entry(node, (uint32_t)launch->tokens);
    uint64_t reach = entry->bound_context / 8;
    if (!entry->bound_known || launch->decode_context + reach < entry->bound_context ||
        launch->decode_context > entry->bound_context + reach) {
        struct step_time time;
        node->device.ops->step(node->device.model, launch->groups, launch->group_count, &time);
        entry->bound = (uint8_t)time.bound;
        entry->bound_context = launch->decode_context;
        entry->bound_known = true;
    }
    return (enum step_bound)entry->bound;
}

static int64_t decode_fixed(struct sim_node *node, struct launch *launch)
{
    const struct device *device = &node->device;
    if (launch->group_count > 1)
        return device->ops->decode_fixed_ns(device->model, launch->groups, launch->group_count);
    struct cost_entry *entry = cost_entry(node, launch->groups[0].decode_sequences);
    if (entry->fixed_ns == 0)
        entry->fixed_ns = device->ops->decode_fixed_ns(device->model, launch->groups, 1);
    return entry->fixed_ns;
}

/* Boundaries come last within their instant; see sim_key(). */
static int64_t boundary_key(int64_t at_ns)
{
    return 2 * at_ns + 1;
}

static void queue_chunk(struct sim_node *node, struct launch *launch)
{
    int64_t end_ns = launch->chunk_end_ns[launch->chunk_count - 1];
    CHECK(end_ns < TIME_NEVER / 2);
    uint32_t microbatch = (uint32_t)(launch - node->launches);
    launch->handle = event_queue_push(node->sim->queue, boundary_key(end_ns),
                                      pending_pack(PENDING_STEPS, node->runtime.node, microbatch, 0));
}

/* The instance's token clock `steps` steps after those of the launch that are done. */
static uint64_t launch_clock(const struct launch *launch, uint32_t steps)
{
    return token_clock(launch->yield, launch->step + launch->steps_done + steps);
}

/* Steps of one group, the usual case: no maximum to take and the line at hand. */
static void walk_one(struct sim_node *node, struct launch *launch, uint32_t count, int64_t at_ns)
{
    struct step_group *group = &launch->groups[0];
    struct decode_line line = launch->lines[0];
    uint64_t context = group->decode_context;
    uint64_t clock = launch_clock(launch, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (context < line.context_min || context > line.context_max)
            line = line_at(node, group->decode_sequences, context);
        at_ns += launch->fixed_ns + line_ns(&line, context);
        uint64_t next = launch_clock(launch, i + 1);
        context += group->decode_sequences * (next - clock);
        clock = next;
        launch->chunk_end_ns[i] = at_ns;
    }
    group->decode_context = context;
    launch->lines[0] = line;
}

static void walk_many(struct sim_node *node, struct launch *launch, uint32_t count, int64_t at_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t slowest_ns = 0;
        uint64_t tokens = launch_clock(launch, i + 1) - launch_clock(launch, i);
        for (uint32_t g = 0; g < launch->group_count; g++) {
            struct step_group *group = &launch->groups[g];
            struct decode_line *line = &launch->lines[g];
            if (group->decode_sequences == 0)
                continue;
            if (group->decode_context < line->context_min || group->decode_context > line->context_max)
                *line = line_at(node, group->decode_sequences, group->decode_context);
            slowest_ns = max_i64(slowest_ns, line_ns(line, group->decode_context));
            group->decode_context += group->decode_sequences * tokens;
        }
        at_ns += launch->fixed_ns + slowest_ns;
        launch->chunk_end_ns[i] = at_ns;
    }
}

/* Boundaries of the next chunk, from `at_ns`, where the last step ended. */
static void walk(struct sim_node *node, struct launch *launch, int64_t at_ns)
{
    uint32_t count = min_u32(launch->chunk_size, launch->steps_max - launch->steps_done);
    if (launch->group_count == 1)
        walk_one(node, launch, count, at_ns);
    else
        walk_many(node, launch, count, at_ns);
    CHECK(launch->chunk_end_ns[0] > at_ns);
    launch->chunk_count = count;
    launch->chunk_size = min_u32(launch->chunk_size * 2, CHUNK_MAX);
}

static void start_decode(struct sim_node *node, struct launch *launch)
{
    launch->fixed_ns = decode_fixed(node, launch);
    for (uint32_t g = 0; g < launch->group_count; g++)
        if (launch->groups[g].decode_sequences > 0)
            launch->lines[g] = line_at(node, launch->groups[g].decode_sequences, launch->groups[g].decode_context);
    launch->bound = decode_bound(node, launch);
    launch->chunk_size = CHUNK_FIRST;
    walk(node, launch, time_add(launch->start_ns, node->device.launch_ns));
}

/* The step's way through the stages: each begins with it when it has come there and the stage is free. Returns when the
 * last has ended. */
static int64_t pass_stages(struct sim_node *node, struct launch *launch, const struct step_time *time)
{
    int64_t at_ns = node->sim->now_ns;
    uint32_t last = node->stages - 1;
    for (uint32_t s = 0; s <= last; s++) {
        int64_t begin_ns = max_i64(at_ns, node->stage_free_ns[s]);
        int64_t takes_ns = time->stage_ns + (s == 0 ? time->entry_ns : 0) + (s == last ? time->exit_ns : 0);
        if (s == 0)
            launch->start_ns = begin_ns;
        node->stage_free_ns[s] = time_add(begin_ns, takes_ns);
        at_ns = time_add(node->stage_free_ns[s], s == last ? 0 : time->hop_ns);
    }
    launch->stage_ns = step_interval_ns(time, node->stages);
    return at_ns;
}

/* One step, costed whole: with prefill in it, of the plain form, or over several stages. Layers of a step that had to
 * wait between stages are said to be done as late as the last of them allows. */
static void start_whole(struct sim_node *node, struct launch *launch)
{
    struct step_time time;
    node->device.ops->step(node->device.model, launch->groups, launch->group_count, &time);
    CHECK(time.total_ns > 0 && time.first_layer_ns >= 0 && time.layer_ns >= 0);
    launch->layer_ns = time.layer_ns;
    launch->bound = time.bound;
    launch->steps_max = 1;
    launch->chunk_count = 1;
    int64_t launch_ns = launch->decode_only ? node->device.launch_ns : 0;
    if (node->stages > 1) {
        time.entry_ns += launch_ns;
        launch->chunk_end_ns[0] = pass_stages(node, launch, &time);
    } else {
        launch->chunk_end_ns[0] = time_add(launch->start_ns, launch_ns + time.total_ns);
    }
    launch->gate_first_ns = launch->chunk_end_ns[0] - time.total_ns + time.first_layer_ns;
}

void sim_launch(struct runtime *rt, const struct step_launch *spec)
{
    struct sim_node *node = (struct sim_node *)(void *)rt;
    CHECK(node->inside && node->device.ops != NULL && spec->microbatch < node->stages);
    struct launch *launch = &node->launches[spec->microbatch];
    CHECK(!launch->running && (node->stages == 1 || spec->repeat_max == 1));
    CHECK(spec->repeat_max >= 1 && spec->group_count >= 1 && spec->group_count <= node->group_count);
    for (uint32_t i = 0; i < node->sim->listener_count; i++)
        if (node->sim->listeners[i].launch != NULL)
            node->sim->listeners[i].launch(node->sim->listeners[i].self, rt->node, spec);
    memcpy(launch->groups, spec->groups, spec->group_count * sizeof *spec->groups);
    launch->running = true;
    launch->ends = false;
    launch->ticket = spec->ticket;
    launch->group_count = spec->group_count;
    launch->start_ns = node->sim->now_ns;
    launch->before_ns = node->step_end_ns;
    launch->stage_ns = 0;
    launch->yield = spec->yield;
    launch->step = spec->step;
    launch->steps_max = spec->repeat_max;
    launch->steps_done = 0;
    launch->tokens = 0;
    launch->prefill_tokens = 0;
    launch->decode_context = 0;
    uint64_t chunks = 0;
    for (uint32_t g = 0; g < spec->group_count; g++) {
        launch->tokens += spec->groups[g].decode_sequences;
        launch->decode_context += spec->groups[g].decode_context;
        launch->prefill_tokens += spec->groups[g].prefill_tokens;
        chunks += spec->groups[g].prefill_sequences;
    }
    launch->joins = launch->follows = 0;
    for (uint32_t i = 0; i < spec->change_count; i++) {
        launch->joins += spec->changes[i].kind == STEP_JOIN;
        launch->follows += spec->changes[i].kind == STEP_JOIN && spec->changes[i].tokens > 0;
    }
    launch->decode_only = chunks == 0;
    CHECK(launch->tokens + chunks > 0 && launch->joins <= launch->tokens);
    CHECK(launch->decode_only || spec->repeat_max == 1);
    node->ledger.launches++;
    if (launch->decode_only && !node->sim->plain && node->stages == 1)
        start_decode(node, launch);
    else
        start_whole(node, launch);
    queue_chunk(node, launch);
}

/* Ends the run of boundaries with the first that is not before now; in the second half of an instant, where boundaries
 * of this instant have been handled already, with the first after it. */
static void cut(struct sim_node *node)
{
    struct sim *sim = node->sim;
    struct launch *launch = &node->launches[0]; /* over several stages nothing is repeated */
    if (launch->ends || launch->steps_max == 1)
        return;
    int64_t earliest_ns = sim->now_ns + (int64_t)sim->phase;
    uint32_t last = 0;
    while (last + 1 < launch->chunk_count && launch->chunk_end_ns[last] < earliest_ns)
        last++;
    launch->ends = true;
    if (last + 1 == launch->chunk_count)
        return;
    launch->chunk_count = last + 1;
    if (launch->handle != HANDLE_NONE)
        event_queue_move(sim->queue, launch->handle, boundary_key(launch->chunk_end_ns[last]));
}

void sim_launch_cut(struct sim_node *node)
{
    cut(node);
}

void sim_launch_end(struct runtime *rt, uint32_t ticket)
{
    struct sim_node *node = (struct sim_node *)(void *)rt;
    CHECK(node->inside);
    if (node->launches[0].running && node->launches[0].ticket == ticket)
        cut(node);
}

const struct launch *sim_launch_running(const struct sim_node *node, uint32_t ticket)
{
    for (uint32_t i = 0; i < node->stages; i++)
        if (node->launches[i].running && node->launches[i].ticket == ticket)
            return &node->launches[i];
    return NULL;
}

/* ---- Boundaries ------------------------------------------------------------------------------------------------- */

static void count_gap(struct sim *sim, int64_t gap_ns, uint64_t tokens)
{
    sim->itl[itl_bucket(gap_ns)] += tokens;
}

/* Gaps between tokens, for every step of the chunk. Of the tokens that a sequence takes in one step the first follows
 * the last of the step before, the others follow at once. A sequence that joins with the first step has no token before
 * it on this node, or has it from the step that ended its prefill. */
static void count_gaps(const struct sim_node *node, const struct launch *launch)
{
    struct sim *sim = node->sim;
    int64_t before_ns = launch->decode_end_ns;
    for (uint32_t i = 0; i < launch->chunk_count; i++) {
        int64_t end_ns = launch->chunk_end_ns[i];
        uint64_t tokens = launch_clock(launch, i + 1) - launch_clock(launch, i);
        uint64_t joins = i == 0 && launch->steps_done == 0 ? launch->joins : 0;
        if (end_ns >= sim->itl_from_ns) {
            if (before_ns >= 0)
                count_gap(sim, end_ns - before_ns, launch->tokens - joins);
            if (node->produces_first_token && launch->before_ns >= 0)
                count_gap(sim, end_ns - launch->before_ns, joins == 0 ? 0 : launch->follows);
            if (tokens > 1)
                count_gap(sim, 0, launch->tokens * (tokens - 1));
        }
        before_ns = end_ns;
    }
}

static void account(struct sim_node *node, struct launch *launch)
{
    int64_t end_ns = launch->chunk_end_ns[launch->chunk_count - 1];
    if (launch->tokens > 0) {
        count_gaps(node, launch);
        launch->decode_end_ns = end_ns;
        node->ledger.decode_tokens +=
            launch->tokens * (launch_clock(launch, launch->chunk_count) - launch_clock(launch, 0));
    }
    node->step_end_ns = end_ns;
    node->ledger.steps += launch->chunk_count;
    node->ledger.prefill_tokens += launch->prefill_tokens;
    launch->steps_done += launch->chunk_count;
}

static void report_steps(const struct sim_node *node, const struct launch *launch, int64_t end_ns)
{
    struct sim *sim = node->sim;
    struct step_row row = {
        .node = (uint16_t)node->runtime.node,
        .steps = launch->steps_done,
        .decode_sequences = (uint32_t)launch->tokens,
        .prefill_tokens = launch->prefill_tokens,
        .decode_context = launch->decode_context,
        .start_ns = launch->start_ns,
        .end_ns = end_ns,
    };
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].steps != NULL)
            sim->listeners[i].steps(sim->listeners[i].self, &row);
}

void sim_steps(struct sim *sim, struct sim_node *node)
{
    struct launch *launch = &node->launches[node->ending];
    CHECK(launch->running && launch->chunk_end_ns[launch->chunk_count - 1] == sim->now_ns);
    account(node, launch);
    if (!launch->ends && launch->steps_done < launch->steps_max) {
        walk(node, launch, sim->now_ns);
        queue_chunk(node, launch);
        return;
    }
    int64_t busy_ns = node->stages > 1 ? launch->stage_ns : sim->now_ns - launch->start_ns;
    node->ledger.busy_ns += busy_ns;
    node->ledger.bound_ns[launch->bound] += busy_ns;
    launch->running = false;
    if (sim->listens_steps)
        report_steps(node, launch, sim->now_ns);
    sim_hand_over(sim, node,
                  &(struct event){.kind = EVENT_STEPS_DONE, .id = launch->ticket, .count = launch->steps_done});
}
