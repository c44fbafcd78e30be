/* The instance processes of a run that the launcher starts itself. However it ends, and
 * whenever, none of them outlives it, and nothing of theirs stays in /dev/shm (real/fabric/lifeline.h).
 */
#ifndef TANDEM_REAL_CLUSTER_CHILDREN_H
#define TANDEM_REAL_CLUSTER_CHILDREN_H

#include "real/cluster/real_world.h"
#include "host/user_error.h"

#include <sys/types.h>

struct children;

struct children_config {
    uint32_t node_count;
    const char *scenario; /* path */
    const struct scenario_override *sets;
    size_t set_count;
    uint64_t seed;
    const struct real_options *options;
    const char *front_address;
    uint16_t front_port;
    const unsigned char *token;
};

/* Starts one process for each node but the front. NULL with a sentence; none is left then. */
struct children *children_start(const struct children_config *config, struct user_error *error);

/* Another process in place of the node's, which is killed if it lives, and with it what it left in /dev/shm. False with
 * a sentence; then the node has no process. */
bool children_replace(struct children *children, const struct children_config *config, uint32_t node,
                      uint32_t incarnation, struct user_error *error);

/* Readable when the node's process has died; -1 where there is none. */
int children_death_fd(const struct children *children, uint32_t node);

/* Waits for all to end by themselves (they do when the front hangs up), kills those that do not, and removes what they
 * left in /dev/shm. */
void children_end(struct children *children);

/* The environment variable that carries the join token: unlike an argument, other users cannot read it. */
#define JOIN_TOKEN_VARIABLE "TANDEM_JOIN_TOKEN"

void token_text(const unsigned char *token, char *text); /* 2 * CONTROL_TOKEN_BYTES + 1 */
bool token_parse(const char *text, unsigned char *token);

#endif
