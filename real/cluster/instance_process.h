/* The process of one instance: `tandem instance`, started by the launcher or by an MPI's own.
 *
 * It makes its executors and its transfer engine, meets the front and its peers, and then only turns its loop: the node
 * is entered there and nowhere else. It ends when the front says so, when the front is gone, or when it cannot go on.
 */
#ifndef TANDEM_REAL_CLUSTER_INSTANCE_PROCESS_H
#define TANDEM_REAL_CLUSTER_INSTANCE_PROCESS_H

#include "real/cluster/real_world.h"
#include "host/user_error.h"

struct instance_start {
    const struct real_world *world;
    const struct real_options *options;
    uint32_t node;
    uint32_t incarnation;  /* above 0: it takes the place of one that was lost */
    uint32_t device_first; /* ranks of instances on this machine that come before this one's */
    bool crowded;          /* real_world_crowded(), of this machine */
    char front_address[CONTROL_ADDRESS_BYTES];
    uint16_t front_port;
    unsigned char token[CONTROL_TOKEN_BYTES];
};

/* Runs until the end. False with a sentence when something went wrong here; the front has been told, if it could be. */
bool instance_run(const struct instance_start *start, struct user_error *error);

#endif
