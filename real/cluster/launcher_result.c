/* What a real run came to. */
#include "real/cluster/launcher_internal.h"

#include "base/arith.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nodes that lived to the end must have given everything back, and nothing may differ. */
void launcher_judge(struct launcher *launcher)
{
    uint64_t verified = 0;
    for (uint32_t i = 1; i < launcher->node_count; i++) {
        const struct instance_end *end = launcher->remotes[i].end;
        if (end == NULL)
            continue;
        const struct node_stats *stats = &end->stats;
        verified += end->ledger.pieces_verified;
        if (end->ledger.pieces_differ > 0)
            run_break(launcher->run, RUN_INVARIANT,
                      "%s: %" PRIu64 " pieces of transferred KV differ from what was sent", launcher_name(launcher, i),
                      end->ledger.pieces_differ);
        if (!instance_end_clean(end))
            run_break(launcher->run, RUN_INVARIANT,
                      "%s still holds something at the end: %" PRIu32 " requests, %" PRIu32 " transfers, %" PRIu32
                      " in quarantine, %" PRIu64 " pages%s",
                      launcher_name(launcher, i), stats->requests_live, stats->transfers, stats->quarantined,
                      stats->pages_held, end->quiet ? "" : ", work in progress");
    }
    if (recorder_live(launcher->run->recorder) > 0)
        run_break(launcher->run, RUN_INVARIANT, "%" PRIu32 " requests have no recorded end",
                  recorder_live(launcher->run->recorder));
    if (!launcher->run->broken && launcher->options->verify)
        run_notice(launcher->run, "verified: %" PRIu64 " pieces of transferred KV arrived as they were sent", verified);
}

static void sample(const struct launcher *launcher, uint32_t node, const char *counter, int64_t at_ns, int64_t value)
{
    const struct run_listener *listener = &launcher->run->config->listener;
    struct sample_row row = {.node = (uint16_t)node, .at_ns = at_ns, .value = value};
    snprintf(row.counter, sizeof row.counter, "%s", counter);
    if (listener->sample != NULL)
        listener->sample(listener->self, &row);
}

/* Its clock less the front's, taken out of all times, and what is left at most at any moment of the run; the time spent
 * inside the node; what was copied between its devices and pinned memory; the NICs that its ranks write by. */
static void sample_node(const struct launcher *launcher, uint32_t node, int64_t end_ns)
{
    const struct remote *remote = &launcher->remotes[node];
    const struct instance_end *end = remote->end;
    int64_t error_ns = remote->clock_apart ? clock_estimate_error_ns(&remote->clock, &remote->clock_after) : 0;
    sample(launcher, node, "clock_offset_ns", 0, remote->clock.offset_ns);
    sample(launcher, node, "clock_error_ns", 0, error_ns);
    if (end != NULL)
        sample(launcher, node, "node_ns", end_ns, end->ledger.node_ns);
    if (end != NULL && end->ledger.staged_bytes > 0) {
        sample(launcher, node, "staged_bytes", 0, (int64_t)end->ledger.staged_bytes);
        sample(launcher, node, "staged_ns", 0, (int64_t)end->ledger.staged_ns);
    }
    for (uint32_t r = 0; r < remote->nics.ranks; r++) {
        char counter[48];
        snprintf(counter, sizeof counter, "rank_%" PRIu32 "_nics", r); /* bit n: NIC n */
        sample(launcher, node, counter, 0, nic_choice_set(&remote->nics, r));
        snprintf(counter, sizeof counter, "rank_%" PRIu32 "_nic_distance", r); /* enum nic_distance */
        sample(launcher, node, counter, 0, remote->nics.distance[r]);
    }
}

void launcher_summarize(void *self, struct run_result *result)
{
    struct launcher *launcher = self;
    struct run_summary *summary = &result->summary;
    uint64_t staged_bytes = 0;
    uint64_t staged_ns = 0;
    summary->trace_hash = launcher->trace_hash;
    summary->event_count = real_runtime_ledger(launcher->real)->events;
    for (uint32_t i = 1; i < launcher->node_count; i++) {
        const struct instance_end *end = launcher->remotes[i].end;
        struct instance_summary *instance = &result->instances[i - 1];
        if (result->status == RUN_COMPLETE)
            sample_node(launcher, i, summary->end_ns);
        if (end == NULL)
            continue; /* lost: what it counted went with it */
        instance->busy_ns = end->ledger.busy_ns;
        instance->steps = end->ledger.steps;
        instance->prefill_tokens = end->ledger.prefill_tokens;
        instance->decode_tokens = end->ledger.decode_tokens;
        instance->pages_held_peak = end->ledger.pages_held_peak;
        instance->nic_bytes = end->ledger.write_bytes;
        staged_bytes += end->ledger.staged_bytes;
        staged_ns += end->ledger.staged_ns;
        summary->event_count += end->ledger.events;
        for (uint32_t b = 0; b < ITL_BUCKETS; b++)
            result->itl[b] += end->ledger.itl[b];
    }
    if (result->status == RUN_COMPLETE && staged_bytes > 0 && staged_ns > 0)
        run_notice(launcher->run, "staged: %.1f MB between devices and pinned memory, %.1f GB/s while copying",
                   (double)staged_bytes * 1e-6, (double)staged_bytes / (double)staged_ns);
}

/* Where everybody stands, for a run that did not come to its end. */
void launcher_diagnose(struct launcher *launcher, char *text, size_t size)
{
    int64_t now_ns = launcher->started ? real_runtime_now_ns(launcher->real) : 0;
    int used = snprintf(text, size, "%s; the front has %" PRIu32 " requests in flight, and %s",
                        launcher->started ? "the run goes on" : "the run has not started", launcher->front_live,
                        run_fed(launcher->run) ? "no more are to arrive" : "more are to arrive");
    if (launcher->started && used > 0 && (size_t)used < size)
        used += snprintf(text + used, size - (size_t)used, "; a request last made progress %" PRId64 " ms ago",
                         (now_ns - launcher->run->last_record_ns) / 1000000);
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
