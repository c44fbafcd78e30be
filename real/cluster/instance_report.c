/* What an instance tells the front beside its node's messages: trace records, rows, tokens, and at last what it came
 * to.
 *
 * Everything goes over the one connection with the front, and records go before any message of the node: when the front
 * learns from a message that a request has ended, the records of its end are there already, even if this process dies
 * right after.
 */
#include "real/cluster/instance_process_internal.h"

#include "base/arith.h"
#include "real/cluster/rows.h"
#include "real/cluster/summary.h"

#include <stdlib.h>

void instance_report(struct instance *instance, int64_t complete_ns)
{
    struct frame_writer writer = {.bytes = instance->records, .size = 12};
    write_u64(&writer, (uint64_t)complete_ns);
    write_u32(&writer, instance->record_count);
    mesh_send(instance->mesh, 0, FRAME_TRACE, instance->records,
              12 + (size_t)instance->record_count * TIMED_RECORD_BYTES);
    instance->record_count = 0;
}

void instance_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct instance *instance = self;
    struct timed_record timed = {.time_ns = now_ns, .record = *record};
    check_context_append(&instance->check, now_ns, record);
    if (instance->record_count == REPORT_RECORDS_MAX)
        instance_report(instance, now_ns);
    struct frame_writer writer = {
        .bytes = instance->records + 12 + (size_t)instance->record_count * TIMED_RECORD_BYTES,
        .size = TIMED_RECORD_BYTES,
    };
    timed_record_write(&writer, &timed);
    CHECK(!writer.full);
    instance->record_count++;
}

void instance_before_send(void *self, uint32_t node)
{
    struct instance *instance = self;
    if (node == 0 && instance->record_count > 0)
        instance_report(instance, real_runtime_seam(instance->real)->now_ns);
}

void instance_steps(void *self, const struct step_row *row, const struct steps_outcome *outcome)
{
    struct instance *instance = self;
    unsigned char bytes[STEP_ROW_BYTES];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    step_row_write(&writer, row);
    mesh_send(instance->mesh, 0, FRAME_STEPS, bytes, writer.used);
    if (instance->start->options->tokens == NULL)
        return;
    static const uint32_t at_once = FRAME_BODY_BYTES_MAX / TOKEN_ROW_BYTES;
    for (uint32_t first = 0; first < outcome->token_count; first += at_once) {
        uint32_t count = min_u32(at_once, outcome->token_count - first);
        struct frame_writer tokens = {.size = (size_t)count * TOKEN_ROW_BYTES};
        tokens.bytes = malloc(tokens.size);
        CHECK(tokens.bytes != NULL);
        for (uint32_t i = first; i < first + count; i++)
            token_row_write(&tokens, &outcome->tokens[i]);
        mesh_send(instance->mesh, 0, FRAME_TOKENS, tokens.bytes, tokens.used);
        free(tokens.bytes);
    }
}

void instance_transfer(void *self, const struct transfer_row *row)
{
    struct instance *instance = self;
    unsigned char bytes[TRANSFER_ROW_BYTES];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    transfer_row_write(&writer, row);
    mesh_send(instance->mesh, 0, FRAME_TRANSFER, bytes, writer.used);
}

void instance_finish(struct instance *instance)
{
    struct instance_end *end = calloc(1, sizeof *end);
    unsigned char *bytes = malloc(INSTANCE_END_BYTES_MAX);
    CHECK(end != NULL && bytes != NULL);
    end->ledger = *real_runtime_ledger(instance->real);
    end->stats = node_stats(instance->node.node);
    end->quiet = real_runtime_quiet(instance->real);
    if (instance->verifier != NULL) {
        end->ledger.pieces_verified = verifier_compared(instance->verifier);
        end->ledger.pieces_differ = verifier_differed(instance->verifier);
    }
    /* The engine goes on until the front hangs up: a peer's last write is confirmed only while its target makes
     * progress. */
    if (instance->fabric != NULL) {
        end->writes_late = fabric_thread_late(instance->fabric);
        end->ledger.staged_bytes = fabric_thread_staged_bytes(instance->fabric);
        end->ledger.staged_ns = (uint64_t)fabric_thread_staged_ns(instance->fabric);
    }
    instance_report(instance, real_runtime_now_ns(instance->real));
    struct frame_writer writer = {.bytes = bytes, .size = INSTANCE_END_BYTES_MAX};
    instance_end_write(&writer, end);
    CHECK(!writer.full);
    mesh_send(instance->mesh, 0, FRAME_FINISHED, bytes, writer.used);
    free(bytes);
    free(end);
    instance->finished = true;
}
