/* A node in its process: in memory of its own, and recorded where that is asked for. */
#ifndef TANDEM_REAL_CLUSTER_REAL_NODE_H
#define TANDEM_REAL_CLUSTER_REAL_NODE_H

#include "node.h"
#include "real/runtime/recording.h"
#include "host/user_error.h"

struct real_node {
    struct policy *policy; /* what the scenario decides itself here, set before it is made; NULL: nothing */
    struct node *node;
    void *memory;
    struct recording *recording; /* NULL: it is not recorded */
};

/* Recorded in `folder`, where it is not NULL. False with a sentence; close in either case. */
bool real_node_make(struct real_node *made, const struct node_config *config, struct runtime *seam, const char *folder,
                    uint32_t incarnation, struct user_error *error);

/* `self` is a struct real_node: for the runtime. */
void real_node_handle(void *self, const struct event *event);

/* False where the recording could not be written. Nothing may be handled any more; the node can still be looked at. */
bool real_node_close(struct real_node *node);
void real_node_free(struct real_node *node);

#endif
