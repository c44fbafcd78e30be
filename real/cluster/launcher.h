/* A real run as the launcher sees it: it is the front, node 0, and records what all nodes report.
 *
 * Nothing is printed or stored here; rows stream to the caller and the rest is in the result, as of a simulated run.
 */
#ifndef TANDEM_REAL_CLUSTER_LAUNCHER_H
#define TANDEM_REAL_CLUSTER_LAUNCHER_H

#include "run/run_record.h"
#include "world/load/workload.h"
#include "real/fabric/topology.h"
#include "real/cluster/token_book.h"
#include "real/cluster/real_world.h"

struct launcher_config {
    const struct real_world *world;
    const struct real_options *options;
    const struct scenario_override *sets; /* as the scenario was loaded with, for the children */
    size_t set_count;
    const struct workload_arrivals *arrivals; /* of a run that is played again; NULL: the load draws them */
    /* Tells the others where the front listens, where they are started by somebody else. NULL: the launcher starts
     * them. */
    bool (*publish)(void *self, const char *address, uint16_t port, const unsigned char *token, char *error,
                    size_t error_size);
    void *publish_self;

    void *self;
    /* False ends the run. Any may be NULL. */
    bool (*row)(void *self, const struct request_row *row);
    void (*steps)(void *self, const struct step_row *row);
    void (*transfer)(void *self, const struct transfer_row *row);
    void (*notice)(void *self, const char *text); /* for people: what it takes, a node was lost */
};

enum launch_status {
    LAUNCH_COMPLETE = 1, /* every request has ended, and the nodes that live hold nothing any more */
    LAUNCH_STOPPED = 2,  /* by the user, or by the row callback */
    LAUNCH_FAILED = 3,   /* the run could not be started or go on */
    LAUNCH_LIMIT = 4,    /* it took longer than it may */
    LAUNCH_UNSOUND = 5,  /* something is left, lost or differs that must not be */
};

/* What a real run measures of a node beside what it serves. */
struct node_meter {
    int64_t clock_offset_ns; /* its clock less the front's: taken out of all times; 0 where they are the same clock */
    int64_t clock_error_ns;  /* at most, at any moment of the run, of what is left */
    int64_t node_ns;         /* spent inside the node; -1: it was lost, and its count with it */
    uint64_t staged_bytes;   /* copied between its devices and pinned memory */
    uint64_t staged_ns;      /* and the time of the copies, summed over ranks */
    struct nic_choice nics;  /* that its ranks write by */
};

struct launch_result {
    enum launch_status status;
    char text[4096]; /* of the last three */
    struct run_summary summary;
    uint32_t instance_count;
    struct instance_summary *instances;
    uint64_t *itl;
    struct node_meter *meters; /* by node */
    uint64_t pieces_verified;
    uint32_t nodes_lost;
};

void launcher_run(const struct launcher_config *config, struct launch_result *result);
void launch_result_free(struct launch_result *result);

#endif
