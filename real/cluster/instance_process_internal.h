/* What the files of an instance process share. */
#ifndef TANDEM_REAL_CLUSTER_INSTANCE_PROCESS_INTERNAL_H
#define TANDEM_REAL_CLUSTER_INSTANCE_PROCESS_INTERNAL_H

#include "host/check_host.h"
#include "real/executor/executors.h"
#include "real/cluster/instance_process.h"
#include "real/runtime/real_runtime.h"
#include "real/cluster/real_node.h"
#include "real/cluster/summary.h"
#include "real/runtime/verifier.h"

#define REPORT_RECORDS_MAX 1024u

struct instance {
    const struct instance_start *start;
    const struct real_world *world;
    const struct node_config *config;
    struct kv_memory memory;
    struct executors *executors;
    struct fabric_rank *regions; /* of the ranks, for the engine and the verifier */
    struct fabric_thread *fabric;
    struct nic_choice nics; /* of no ranks where there is no fabric */
    char nics_text[NICS_TEXT_BYTES];
    struct mesh *mesh;
    struct real_runtime *real;
    struct verifier *verifier;
    struct answers *answers;
    struct real_node node;
    struct check_context check;

    /* Meeting the others. */
    uint32_t peers_named;
    uint32_t peers_learnt;
    bool all_named;
    bool ready;
    bool started;

    /* Reports to the front that are not sent yet. */
    unsigned char records[12 + REPORT_RECORDS_MAX * TIMED_RECORD_BYTES];
    uint32_t record_count;
    int64_t reported_ns;

    /* The end. */
    bool stopping;
    bool finished;
    bool over;
    int64_t stop_by_ns;
    struct user_error trouble; /* set: it cannot go on */
};

/* instance_report.c: what goes to the front beside the node's own messages. */
void instance_trace(void *self, int64_t now_ns, const struct trace_record *record);
void instance_before_send(void *self, uint32_t node);
void instance_steps(void *self, const struct step_row *row, const struct steps_outcome *outcome);
void instance_transfer(void *self, const struct transfer_row *row);
void instance_report(struct instance *instance, int64_t complete_ns); /* all records so far, and that none is missing */
void instance_finish(struct instance *instance);

/* instance.c */
void instance_trouble(void *self, const char *text);

#endif
