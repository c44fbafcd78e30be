/* The processes of a run, and others in place of those that are lost.
 *
 * A replacement is started by the policy of its pool, has the number of its predecessor and an incarnation one higher,
 * and meets those who are there as they met each other at first. When it is ready it is told when the run began; its
 * node then says HELLO to everybody (shared/node.h), and only by that do others take it for one of them. Of a process
 * that was merely stopped nothing is left: it is killed first.
 */
#include "real/cluster/launcher_internal.h"

#include "real/cluster/memory_need.h"
#include "base/arith.h"
#include "real/memory/shared_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Replacements in a row that end before they take part, until no more are started: something else is wrong then. */
#define IN_VAIN_MAX 3u

/* Memory that a run takes, from which on it is told: less is nobody's concern. */
#define TOLD_BYTES (UINT64_C(1) << 30)

static struct children_config config_of(const struct launcher *launcher)
{
    const struct run_config *config = launcher->run->config;
    return (struct children_config){
        .node_count = launcher->node_count,
        .scenario = launcher->world.scenario->path,
        .sets = config->sets,
        .set_count = config->set_count,
        .seed = launcher->world.seed,
        .options = launcher->options,
        .front_address = launcher->options->address,
        .front_port = mesh_port(launcher->mesh),
        .token = launcher->token,
    };
}

static void child_died(void *self, uint32_t node)
{
    struct launcher *launcher = self;
    struct remote *remote = &launcher->remotes[node];
    real_runtime_unwatch(launcher->real, children_death_fd(launcher->children, node));
    /* Once it is connected, the end of the connection says the same, after all that it has sent. */
    if (remote->up || remote->finished)
        return;
    if (remote->replacing)
        launcher_in_vain(launcher, node);
    else if (!remote->lost)
        run_break(launcher->run, RUN_REFUSED, "%s ended before it was ready", launcher_name(launcher, node));
}

bool launcher_start_children(struct launcher *launcher, struct user_error *error)
{
    struct children_config config = config_of(launcher);
    struct memory_need need;
    struct memory_there there = memory_there_now(launcher->options);
    char text[256];
    if (!memory_need_of(&launcher->world, launcher->options, &need, error) || !memory_suffices(&need, &there, error))
        return false;
    memory_need_text(&need, text, sizeof text);
    if (memory_need_total(&need) >= TOLD_BYTES)
        run_notice(launcher->run, "takes %s", text);
    launcher->children = children_start(&config, error);
    for (uint32_t i = 1; i < launcher->node_count && launcher->children != NULL; i++)
        real_runtime_watch(launcher->real, children_death_fd(launcher->children, i), child_died, launcher, i);
    return launcher->children != NULL;
}

static const struct pool *pool_of(const struct launcher *launcher, uint32_t node)
{
    return &launcher->world.scenario->pools[launcher->world.deployment->instances[node].pool];
}

/* Processes that somebody else has started are his to start again. */
void launcher_lost(struct launcher *launcher, uint32_t node)
{
    const struct pool *pool = pool_of(launcher, node);
    if (launcher->children != NULL && pool_replaces(pool) && !launcher->stopping)
        launcher->remotes[node].replace_at_ns = time_add(real_runtime_now_ns(launcher->real), pool->replace_ns);
}

static void tell(const struct launcher *launcher, uint32_t node, const char *what)
{
    run_notice(launcher->run, "%s %s", launcher_name(launcher, node), what);
}

void launcher_in_vain(struct launcher *launcher, uint32_t node)
{
    struct remote *remote = &launcher->remotes[node];
    remote->replacing = false;
    if (++remote->in_vain < IN_VAIN_MAX)
        launcher_lost(launcher, node);
    else
        tell(launcher, node, "stays lost: its replacements end before they are ready");
}

static void start_another(struct launcher *launcher, uint32_t node)
{
    struct remote *remote = &launcher->remotes[node];
    struct children_config config = config_of(launcher);
    struct user_error error = {.set = false};
    int old = children_death_fd(launcher->children, node);
    if (old >= 0)
        real_runtime_unwatch(launcher->real, old);
    remote->replace_at_ns = TIME_NEVER;
    remote->replacing = true;
    remote->incarnation++;
    if (children_replace(launcher->children, &config, node, remote->incarnation, &error)) {
        real_runtime_watch(launcher->real, children_death_fd(launcher->children, node), child_died, launcher, node);
    } else {
        tell(launcher, node, error.text);
        launcher_in_vain(launcher, node);
    }
}

void launcher_send_start(struct launcher *launcher, uint32_t node, int64_t origin_ns)
{
    unsigned char bytes[8];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u64(&writer, (uint64_t)(origin_ns + launcher->remotes[node].clock.offset_ns));
    mesh_send(launcher->mesh, node, FRAME_START, bytes, writer.used);
}

/* From now on it is a node like others. */
static void let_in(struct launcher *launcher, uint32_t node)
{
    struct remote *remote = &launcher->remotes[node];
    free(remote->end);
    remote->end = NULL;
    remote->replacing = false;
    remote->in_vain = 0;
    remote->lost = false;
    trace_merge_again(launcher->merge, node, real_runtime_now_ns(launcher->real));
    launcher_send_start(launcher, node, launcher->origin_ns);
    launcher_say_counted(launcher, node);
    tell(launcher, node, "is replaced");
}

void launcher_replace(struct launcher *launcher)
{
    int64_t now_ns = real_runtime_now_ns(launcher->real);
    for (uint32_t i = 1; i < launcher->node_count && !launcher->stopping; i++) {
        struct remote *remote = &launcher->remotes[i];
        if (remote->replace_at_ns <= now_ns)
            start_another(launcher, i);
        else if (remote->replacing && remote->up && remote->ready && remote->clock_asks == 0)
            let_in(launcher, i);
    }
}
