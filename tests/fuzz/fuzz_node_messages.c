/* A node that is spoken to by anybody: whatever messages come, in whatever order, among events that the world may give
 * it, the node neither stops nor loses a page.
 *
 * The first byte picks the role. Then come records: a byte says what happens, and for a message follow its source, two
 * bytes of length and the bytes, as wire.h has them. The world is honest: a step ends only when one was launched, a
 * write completes only when it was posted, a count is reached only when it was armed.
 */
#include "base/check.h"
#include "base/limits.h"
#include "messenger/wire.h"
#include "node.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TICKETS 16u
#define ARMED_MAX 64u
#define NODES 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the node has asked of the world. */
static struct world {
    struct runtime runtime;
    bool launched;
    uint32_t launch;
    bool posted[TICKETS];
    uint32_t armed[ARMED_MAX];
    uint32_t armed_count;
    bool timer;
} world;

static void op_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    (void)rt;
    (void)slot;
    world.timer = at_ns != INT64_MAX;
}

static void op_launch(struct runtime *rt, const struct step_launch *launch)
{
    (void)rt;
    CHECK(!world.launched && launch->repeat_max >= 1);
    world.launched = true;
    world.launch = launch->ticket;
}

static void op_ticket(struct runtime *rt, uint32_t ticket)
{
    (void)rt;
    (void)ticket;
}

static void op_write_post(struct runtime *rt, const struct paged_write *write)
{
    (void)rt;
    CHECK(write->ticket < TICKETS && !world.posted[write->ticket]);
    world.posted[write->ticket] = true;
}

static void op_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    (void)rt;
    for (uint32_t i = 0; i < world.armed_count; i++)
        if (world.armed[i] == immediate)
            world.armed[i--] = world.armed[--world.armed_count];
    if (count == 0)
        return;
    CHECK(world.armed_count < ARMED_MAX);
    world.armed[world.armed_count++] = immediate;
}

/* What a node says is a message, and for somebody who exists. */
static void op_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    struct message m;
    CHECK(node < NODES && length <= rt->limits.message_bytes && wire_decode(bytes, length, &m));
}

static void op_trace(struct runtime *rt, const struct trace_record *record)
{
    (void)rt;
    CHECK(trace_kind_name(record->kind) != NULL);
}

static const struct runtime_ops operations = {
    .timer_set = op_timer_set,
    .launch = op_launch,
    .launch_end = op_ticket,
    .write_post = op_write_post,
    .write_stop = op_ticket,
    .immediate_expect = op_immediate_expect,
    .send = op_send,
    .trace = op_trace,
};

/* ---- The node ---------------------------------------------------------------------------------------------------- */

static struct kv_geometry geometry_of_four_layers(void)
{
    struct kv_geometry geometry = {.layers = 4,
                                   .planes = 2,
                                   .kv_heads = 2,
                                   .head_bytes = 256,
                                   .page_tokens = 16,
                                   .layout = LAYOUT_HND,
                                   .parallelism = {.tensor = 1, .pipeline = 1, .data = 1}};
    geometry.stage_layer_first[1] = 4;
    return geometry;
}

/* Node 0 is the front; a prefiller and two decoders, or three mixed instances where this one is mixed. */
static struct node_config config_of(enum node_role role, struct peer_config *peers)
{
    static const enum node_role apart[NODES] = {ROLE_FRONT, ROLE_PREFILL, ROLE_DECODE, ROLE_DECODE};
    uint32_t own = role == ROLE_FRONT ? 0 : role == ROLE_DECODE ? 2 : 1;
    struct node_config config = {
        .node = own,
        .role = role,
        .seed = 1,
        .geometry = geometry_of_four_layers(),
        .group_count = 1,
        .pages_per_group = 32,
        .requests_max = 16,
        .request_tokens_max = 400,
        .request_blocks_max = 8,
        .prefix_block_tokens = 32,
        .tail_writes = 1,
        .tail_bytes = 512,
        .scheduler = {.queue = QUEUE_FCFS,
                      .token_budget = 64,
                      .batch_max = 8,
                      .headroom_tokens = 16,
                      .prefix_cache = 1,
                      .repeat_max = 4},
        .messenger = {.deadline_ns = 1000000, .attempts_max = 3, .handoffs_max = 4},
        .decode_router = ROUTER_ROUND_ROBIN,
        .prefill_router = ROUTER_ROUND_ROBIN,
        .peers = peers,
    };
    for (uint32_t node = 0; node < NODES; node++) {
        enum node_role other = role == ROLE_MIXED && node > 0 ? ROLE_MIXED : apart[node];
        if (node == own || (own != 0 && node != 0 && other == role))
            continue;
        peers[config.peer_count++] = (struct peer_config){
            .node = node, .role = other, .group_count = 1, .pages_per_group = 32, .geometry = config.geometry};
    }
    return config;
}

/* ---- What happens ------------------------------------------------------------------------------------------------ */

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t next(struct input *input)
{
    if (input->left == 0)
        return 0;
    input->left--;
    return *input->at++;
}

/* A copy of exactly its size, so that the address sanitizer sees a read past its end. */
static void tell(struct node *node, struct input *input)
{
    uint32_t source = next(input) % NODES;
    size_t length = next(input);
    length |= (size_t)next(input) << 8;
    length = length < input->left ? length : input->left;
    uint8_t *bytes = malloc(length + 1);
    CHECK(bytes != NULL);
    if (length > 0)
        memcpy(bytes, input->at, length);
    input->at += length;
    input->left -= length;
    node_handle(node, &(struct event){.kind = EVENT_MESSAGE, .id = source, .count = length, .data = bytes});
    free(bytes);
}

static void arrive(struct node *node, struct input *input, uint16_t status)
{
    static const uint64_t blocks[2] = {11, 12};
    struct request_spec spec = {.id = next(input) % 32u,
                                .prompt_tokens = 1 + next(input),
                                .output_tokens = 1 + next(input) % 64u,
                                .block_count = 2,
                                .block_tokens = 32,
                                .deadline_ns = INT64_MAX,
                                .blocks = blocks};
    node_handle(node, &(struct event){.kind = EVENT_ARRIVAL, .status = status, .data = &spec});
}

static void complete_write(struct node *node, struct input *input)
{
    uint32_t ticket = next(input) % TICKETS;
    uint16_t status = next(input) % 3u;
    if (!world.posted[ticket])
        return;
    world.posted[ticket] = false;
    node_handle(node, &(struct event){.kind = EVENT_WRITE_DONE, .status = status, .id = ticket, .count = 4});
}

static void reach_count(struct node *node, struct input *input)
{
    uint32_t *armed = &world.armed[next(input) % world.armed_count];
    struct event event = {.kind = EVENT_IMMEDIATE, .id = *armed, .count = 1};
    *armed = world.armed[--world.armed_count];
    node_handle(node, &event);
}

static void happen(struct node *node, const struct node_config *config, struct input *input)
{
    bool front = config->role == ROLE_FRONT;
    uint8_t what = next(input);
    world.runtime.now_ns += what * 1000;
    switch (what % 8) {
    case 0:
        if (world.launched) {
            world.launched = false;
            node_handle(node, &(struct event){.kind = EVENT_STEPS_DONE, .id = world.launch, .count = 1});
        }
        break;
    case 1:
        if (config->role == ROLE_PREFILL)
            complete_write(node, input);
        break;
    case 2:
        if (config->role == ROLE_DECODE && world.armed_count > 0)
            reach_count(node, input);
        break;
    case 3:
        if (world.timer && config->role == ROLE_DECODE) {
            world.timer = false;
            node_handle(node, &(struct event){.kind = EVENT_TIMER});
        }
        break;
    case 4:
        if (front)
            arrive(node, input, next(input) % 4u == 0 ? ARRIVAL_ABORT : ARRIVAL_NEW);
        break;
    case 5:
        node_handle(node, &(struct event){.kind = EVENT_PEER_LOST,
                                          .status = next(input) % 2u == 0 ? PEER_SUSPECTED : PEER_FENCED,
                                          .id = next(input) % NODES});
        break;
    default:
        tell(node, input);
        break;
    }
    struct node_stats stats = node_stats(node);
    CHECK(front || stats.pages_free + stats.pages_held == stats.pages_total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum node_role roles[] = {ROLE_FRONT, ROLE_PREFILL, ROLE_DECODE, ROLE_MIXED};
    struct input input = {.at = data, .left = size};
    struct peer_config peers[NODES];
    struct node_config config = config_of(roles[next(&input) % 4u], peers);
    world = (struct world){.runtime = {.ops = &operations,
                                       .node = config.node,
                                       .limits = {.writes_in_flight = TICKETS, .message_bytes = MESSAGE_BYTES_MAX}}};
    size_t bytes = node_size(&config, &world.runtime.limits);
    void *memory = aligned_alloc(64, bytes);
    CHECK(memory != NULL);
    memset(memory, 0, bytes);
    struct node *node = node_make(&config, &world.runtime, memory, bytes);
    node_handle(node, &(struct event){.kind = EVENT_START});
    while (input.left > 0)
        happen(node, &config, &input);
    free(memory);
    return 0;
}
