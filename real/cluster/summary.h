/* What an instance tells the front at its end. */
#ifndef TANDEM_REAL_CLUSTER_SUMMARY_H
#define TANDEM_REAL_CLUSTER_SUMMARY_H

#include "node.h"
#include "real/control/frame.h"
#include "real/fabric/topology.h"
#include "real/runtime/ledger.h"

struct instance_end {
    struct ledger ledger;
    struct node_stats stats; /* of the node, as it stands */
    bool quiet;              /* nothing is launched or in flight */
    uint64_t writes_late;    /* single writes whose immediate nobody expected any more */
};

/* What an instance says when it is ready: the NICs that its ranks write by, and the same for people. */
#define NICS_TEXT_BYTES 1024
#define READY_BYTES_MAX (4 + RANKS_MAX * 5 + NICS_TEXT_BYTES)
void ready_write(struct frame_writer *writer, const struct nic_choice *choice, const char *text);
bool ready_read(const struct frame *frame, struct nic_choice *choice, char *text);

/* Bytes of the longest. */
#define INSTANCE_END_BYTES_MAX (256 + ITL_BUCKETS * 12)

void instance_end_write(struct frame_writer *writer, const struct instance_end *end);
bool instance_end_read(const struct frame *frame, struct instance_end *end);

/* Everything is back: nothing is held, waits or is under way. */
static inline bool instance_end_clean(const struct instance_end *end)
{
    return end->quiet && end->stats.requests_live == 0 && end->stats.transfers == 0 && end->stats.quarantined == 0 &&
           end->stats.pages_held == 0;
}

#endif
