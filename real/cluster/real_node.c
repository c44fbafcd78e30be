/* See real_node.h. */
#include "real/cluster/real_node.h"

#include "base/check.h"
#include "world/scenario/policy_host.h"

#include <stdio.h>
#include <stdlib.h>

#define LINE 64 /* bytes of a cache line */

bool real_node_make(struct real_node *made, const struct node_config *config, struct runtime *seam, const char *folder,
                    uint32_t incarnation, struct user_error *error)
{
    seam->policy = made->policy;
    if (folder != NULL) {
        char path[1200];
        char again[16] = "";
        if (incarnation > 0)
            snprintf(again, sizeof again, ".%u", incarnation);
        snprintf(path, sizeof path, "%s/node-%u%s.events", folder, config->node, again);
        made->recording = recording_make(path, seam, error);
        if (made->recording == NULL)
            return false;
        seam = recording_seam(made->recording);
    }
    size_t size = node_size(config, &seam->limits);
    made->memory = calloc(1, size + LINE);
    CHECK(made->memory != NULL);
    uintptr_t at = ((uintptr_t)made->memory + LINE - 1) / LINE * LINE;
    made->node = node_make(config, seam, (void *)at, size);
    if (made->recording != NULL)
        recording_node(made->recording, made->node);
    return true;
}

void real_node_handle(void *self, const struct event *event)
{
    struct real_node *node = self;
    if (node->recording != NULL)
        recording_handle(node->recording, event);
    else
        node_handle(node->node, event);
}

bool real_node_close(struct real_node *node)
{
    bool whole = recording_free(node->recording);
    node->recording = NULL;
    return whole;
}

void real_node_free(struct real_node *node)
{
    real_node_close(node);
    policy_host_free(node->policy);
    free(node->memory);
}
