/* See rail.h. */
#include "real/fabric/rail.h"

#include "base/check.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entries read at a time, and at most per poll, so that one busy rail does not keep the others waiting. */
#define READ_ENTRIES 64
#define READ_ROUNDS 8

/* Polls before an endpoint is closed: so many without anything, at most so many. */
#define CLOSE_QUIET 64
#define CLOSE_ROUNDS 2048

static void rail_release(struct rail *rail)
{
    if (rail->endpoint != NULL)
        fi_close(&rail->endpoint->fid);
    if (rail->addresses != NULL)
        fi_close(&rail->addresses->fid);
    if (rail->queue != NULL)
        fi_close(&rail->queue->fid);
    free(rail->ops);
    *rail = (struct rail){.endpoint = NULL};
}

static bool ops_make(struct rail *rail, uint32_t window)
{
    rail->ops = calloc(window, sizeof *rail->ops);
    if (rail->ops == NULL)
        return false;
    rail->window = window;
    for (uint32_t i = 0; i < window; i++)
        rail->ops[i].next_unused = i + 1 < window ? i + 2 : 0;
    rail->unused_first = 1;
    return true;
}

bool rail_open(struct rail *rail, const struct nic *nic, uint32_t window, struct user_error *error)
{
    *rail = (struct rail){.endpoint = NULL};
    size_t queue = nic->info->tx_attr->size;
    if (queue > 0 && window > queue)
        window = (uint32_t)queue;
    struct fi_av_attr addresses = {.type = FI_AV_TABLE};
    struct fi_cq_attr completions = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE, .size = 1024 + 2 * window};
    int rc = ops_make(rail, window) ? 0 : -FI_ENOMEM;
    if (rc == 0)
        rc = fi_endpoint(nic->domain, nic->info, &rail->endpoint, NULL);
    if (rc == 0)
        rc = fi_av_open(nic->domain, &addresses, &rail->addresses, NULL);
    if (rc == 0)
        rc = fi_cq_open(nic->domain, &completions, &rail->queue, NULL);
    if (rc == 0)
        rc = fi_ep_bind(rail->endpoint, &rail->addresses->fid, 0);
    if (rc == 0)
        rc = fi_ep_bind(rail->endpoint, &rail->queue->fid, FI_TRANSMIT | FI_RECV);
    if (rc == 0)
        rc = fi_enable(rail->endpoint);
    if (rc != 0) {
        user_error_set(error, NULL, 0, NULL, "opening an endpoint of %s: %s", nic->info->fabric_attr->prov_name,
                       fi_strerror(-rc));
        rail_release(rail);
        return false;
    }
    return true;
}

size_t rail_address(const struct rail *rail, void *address, size_t size)
{
    size_t length = size;
    int rc = fi_getname(&rail->endpoint->fid, address, &length);
    return rc == 0 && length <= size ? length : 0;
}

bool rail_connect(struct rail *rail, const void *address)
{
    rail->connected = fi_av_insert(rail->addresses, address, 1, &rail->remote, 0, NULL) == 1;
    return rail->connected;
}

enum rail_result rail_post(struct rail *rail, const struct rail_write *write, int64_t now_ns)
{
    CHECK(rail->unused_first != 0);
    struct write_op *op = &rail->ops[rail->unused_first - 1];
    void *descriptor = write->descriptor;
    struct iovec piece = {.iov_base = write->source, .iov_len = write->bytes};
    struct fi_rma_iov target = {.addr = write->address, .len = write->bytes, .key = write->key};
    struct fi_msg_rma message = {
        .msg_iov = &piece,
        .desc = &descriptor,
        .iov_count = 1,
        .addr = rail->remote,
        .rma_iov = &target,
        .rma_iov_count = 1,
        .context = &op->context,
        .data = write->immediate,
    };
    /* Flags of the call, not of the endpoint: net ignores the latter. */
    ssize_t rc = fi_writemsg(rail->endpoint, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE);
    if (rc == -FI_EAGAIN) {
        if (rail->in_flight == 0 && rail->refused_ns == 0)
            rail->refused_ns = now_ns;
        return RAIL_AGAIN;
    }
    if (rc != 0)
        return RAIL_FAILED;
    rail->unused_first = op->next_unused;
    op->next_unused = OP_BUSY;
    op->ticket = write->ticket;
    if (rail->in_flight++ == 0)
        rail->progress_ns = now_ns;
    rail->refused_ns = 0;
    return RAIL_POSTED;
}

static void complete(struct rail *rail, void *context, bool good, const struct rail_listener *listener)
{
    struct write_op *op = context;
    CHECK(op >= rail->ops && op < rail->ops + rail->window && op->next_unused == OP_BUSY);
    op->next_unused = rail->unused_first;
    rail->unused_first = (uint32_t)(op - rail->ops) + 1;
    rail->in_flight--;
    listener->completed(listener->owner, op->ticket, good);
}

/* Takes the error that stands first in the queue. */
static void take_error(struct rail *rail, const struct rail_listener *listener)
{
    struct fi_cq_err_entry entry;
    memset(&entry, 0, sizeof entry);
    ssize_t rc = fi_cq_readerr(rail->queue, &entry, 0);
    /* An error of the receiving side, or of the connection, names no operation of ours. */
    if (rc == 1 && entry.op_context != NULL && (entry.flags & FI_WRITE) != 0)
        complete(rail, entry.op_context, false, listener);
}

bool rail_poll(struct rail *rail, const struct rail_listener *listener, int64_t now_ns, bool *progress)
{
    struct fi_cq_data_entry entries[READ_ENTRIES];
    bool good = true;
    for (int round = 0; round < READ_ROUNDS; round++) {
        ssize_t count = fi_cq_read(rail->queue, entries, READ_ENTRIES);
        if (count == -FI_EAGAIN)
            break;
        *progress = true;
        if (count == -FI_EAVAIL) {
            take_error(rail, listener);
            good = false;
            continue;
        }
        if (count < 0)
            return false;
        rail->progress_ns = now_ns;
        for (ssize_t i = 0; i < count; i++) {
            if ((entries[i].flags & FI_REMOTE_CQ_DATA) != 0)
                listener->immediate(listener->owner, (uint32_t)entries[i].data);
            else if (entries[i].op_context != NULL)
                complete(rail, entries[i].op_context, true, listener);
        }
        if (count < READ_ENTRIES)
            break;
    }
    return good;
}

bool rail_stalled(const struct rail *rail, int64_t now_ns, int64_t stall_ns)
{
    if (rail->in_flight > 0)
        return now_ns - rail->progress_ns > stall_ns;
    return rail->refused_ns != 0 && now_ns - rail->refused_ns > stall_ns;
}

void rail_close(struct rail *rail, const struct rail_listener *listener)
{
    if (rail->endpoint == NULL)
        return;
    /* Until it has been quiet for a while: rxm of 1.17 falls over a connection that is closed while its end is still to
     * be read. A peer that goes on sending is not waited for. */
    uint32_t quiet = 0;
    for (uint32_t round = 0; quiet < CLOSE_QUIET && round < CLOSE_ROUNDS; round++) {
        bool progress = false;
        rail_poll(rail, listener, rail->progress_ns, &progress);
        quiet = progress ? 0 : quiet + 1;
    }
    fi_close(&rail->endpoint->fid);
    rail->endpoint = NULL;
    for (uint32_t i = 0; i < rail->window; i++)
        if (rail->ops[i].next_unused == OP_BUSY)
            complete(rail, &rail->ops[i].context, false, listener);
    rail_release(rail);
}
