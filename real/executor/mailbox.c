/* See mailbox.h. */
#include "real/executor/mailbox.h"

static size_t line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t reply_stride(const struct executor_setup *setup)
{
    return line(sizeof(struct mailbox_reply)) + line(setup->sequences_max * sizeof(struct device_token));
}

static size_t lane_stride(const struct executor_setup *setup)
{
    return setup->ranks * reply_stride(setup) + MAILBOX_CHANGES_BYTES;
}

size_t mailbox_bytes(const struct executor_setup *setup)
{
    return line(sizeof(struct mailbox)) + setup->lanes * lane_stride(setup);
}

static unsigned char *reply_at(struct mailbox *mailbox, uint32_t lane, uint32_t rank)
{
    return (unsigned char *)mailbox + line(sizeof *mailbox) + lane * lane_stride(&mailbox->setup) +
           rank * reply_stride(&mailbox->setup);
}

struct mailbox_reply *mailbox_reply(struct mailbox *mailbox, uint32_t lane, uint32_t rank)
{
    return (struct mailbox_reply *)(void *)reply_at(mailbox, lane, rank);
}

struct device_token *mailbox_tokens(struct mailbox *mailbox, uint32_t lane, uint32_t rank)
{
    return (struct device_token *)(void *)(reply_at(mailbox, lane, rank) + line(sizeof(struct mailbox_reply)));
}

unsigned char *mailbox_changes(struct mailbox *mailbox, uint32_t lane)
{
    return reply_at(mailbox, lane, mailbox->setup.ranks);
}
