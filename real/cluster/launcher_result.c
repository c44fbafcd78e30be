/* What a real run came to. */
#include "real/cluster/launcher_internal.h"

#include "base/arith.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

/* Nodes that lived to the end must have given everything back, and nothing may differ. */
void launcher_judge(struct launcher *launcher)
{
    for (uint32_t i = 1; i < launcher->node_count; i++) {
        const struct instance_end *end = launcher->remotes[i].end;
        if (end == NULL)
            continue;
        const struct node_stats *stats = &end->stats;
        launcher->result->pieces_verified += end->ledger.pieces_verified;
        if (end->ledger.pieces_differ > 0)
            launcher_break(launcher, LAUNCH_UNSOUND,
                           "%s: %" PRIu64 " pieces of transferred KV differ from what was sent",
                           launcher_name(launcher, i), end->ledger.pieces_differ);
        if (!instance_end_clean(end))
            launcher_break(launcher, LAUNCH_UNSOUND,
                           "%s still holds something at the end: %" PRIu32 " requests, %" PRIu32 " transfers, %" PRIu32
                           " in quarantine, %" PRIu64 " pages%s",
                           launcher_name(launcher, i), stats->requests_live, stats->transfers, stats->quarantined,
                           stats->pages_held, end->quiet ? "" : ", work in progress");
    }
    if (recorder_live(launcher->recorder) > 0)
        launcher_break(launcher, LAUNCH_UNSOUND, "%" PRIu32 " requests have no recorded end",
                       recorder_live(launcher->recorder));
}

static void summarize_instance(const struct launcher *launcher, uint32_t node, struct instance_summary *summary)
{
    const struct deployment_instance *instance = &launcher->world->deployment->instances[node];
    const struct node_config *config = &launcher->world->deployment->configs[node];
    const struct recorder_node *recorded = recorder_node(launcher->recorder, node);
    *summary = (struct instance_summary){
        .node = (uint16_t)node,
        .role = config->role,
        .ranks = instance->ranks,
        .requests = recorded->requests,
        .pages_total = (uint64_t)config->pages_per_group * config->group_count,
        .page_wait_ns = recorded->page_wait_ns,
        .handoff_wait_ns = recorded->handoff_wait_ns,
        .preemptions = recorded->preemptions,
    };
    memcpy(summary->name, instance->name, sizeof summary->name);
    const struct instance_end *end = launcher->remotes[node].end;
    if (end == NULL)
        return; /* lost: what it counted went with it */
    summary->busy_ns = end->ledger.busy_ns;
    summary->steps = end->ledger.steps;
    summary->prefill_tokens = end->ledger.prefill_tokens;
    summary->decode_tokens = end->ledger.decode_tokens;
    summary->pages_held_peak = end->ledger.pages_held_peak;
    summary->nic_bytes = end->ledger.write_bytes;
}

void launcher_summarize(struct launcher *launcher, int64_t end_ns)
{
    struct launch_result *result = launcher->result;
    struct run_summary *summary = &result->summary;
    summary->seed = launcher->world->seed;
    const struct load *load = &launcher->world->scenario->load;
    summary->start_ns = min_i64(load->warmup_requests > 0 ? launcher->counted_ns : load->warmup_ns, end_ns);
    summary->end_ns = end_ns;
    summary->event_count += real_runtime_ledger(launcher->real)->events;
    recorder_summary(launcher->recorder, summary);
    result->instance_count = launcher->node_count - 1;
    result->instances = allocate(result->instance_count, sizeof *result->instances);
    result->itl = allocate(ITL_BUCKETS, sizeof *result->itl);
    result->meters = allocate(launcher->node_count, sizeof *result->meters);
    for (uint32_t i = 1; i < launcher->node_count; i++) {
        summarize_instance(launcher, i, &result->instances[i - 1]);
        const struct remote *remote = &launcher->remotes[i];
        const struct instance_end *end = remote->end;
        result->meters[i] = (struct node_meter){
            .clock_offset_ns = remote->clock.offset_ns,
            .clock_error_ns = remote->clock_apart ? clock_estimate_error_ns(&remote->clock, &remote->clock_after) : 0,
            .nics = remote->nics,
            .node_ns = end == NULL ? -1 : end->ledger.node_ns,
            .staged_bytes = end == NULL ? 0 : end->ledger.staged_bytes,
            .staged_ns = end == NULL ? 0 : end->ledger.staged_ns,
        };
        if (end == NULL)
            continue;
        summary->event_count += end->ledger.events;
        for (uint32_t b = 0; b < ITL_BUCKETS; b++)
            result->itl[b] += end->ledger.itl[b];
    }
}

/* Where everybody stands, for a run that did not come to its end. */
void launcher_diagnose(struct launcher *launcher, char *text, size_t size)
{
    int64_t now_ns = launcher->started ? real_runtime_now_ns(launcher->real) : 0;
    int used = snprintf(text, size, "%s; the front has %" PRIu32 " requests in flight, and %s",
                        launcher->started ? "the run goes on" : "the run has not started", launcher->front_live,
                        launcher->workload != NULL && workload_next_ns(launcher->workload) == TIME_NEVER
                            ? "no more are to arrive"
                            : "more are to arrive");
    if (launcher->started && used > 0 && (size_t)used < size)
        used += snprintf(text + used, size - (size_t)used, "; a request last made progress %" PRId64 " ms ago",
                         (now_ns - launcher->last_record_ns) / 1000000);
    for (uint32_t i = 1; i < launcher->node_count && used > 0 && (size_t)used < size; i++) {
        const struct remote *remote = &launcher->remotes[i];
        const char *state = remote->lost ? "lost" : !remote->up ? "not here yet" : !remote->ready ? "not ready" : "up";
        used += snprintf(text + used, size - (size_t)used, "\n%s: %s", launcher_name(launcher, i), state);
        if (remote->end == NULL || used <= 0 || (size_t)used >= size)
            continue;
        const struct node_stats *stats = &remote->end->stats;
        used += snprintf(text + used, size - (size_t)used,
                         ", %" PRIu32 " live, %" PRIu32 " waiting, %" PRIu32 " running, %" PRIu32 " transfers, %" PRIu32
                         " in quarantine, pages %" PRIu64 " held of %" PRIu64 "%s",
                         stats->requests_live, stats->waiting, stats->running, stats->transfers, stats->quarantined,
                         stats->pages_held, stats->pages_total, remote->end->quiet ? "" : ", work in progress");
    }
}

void launch_result_free(struct launch_result *result)
{
    free(result->instances);
    free(result->itl);
    free(result->meters);
    *result = (struct launch_result){0};
}
