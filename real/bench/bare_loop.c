/* See bare_loop.h. */
#define _POSIX_C_SOURCE 200809L

#include "real/bench/bare_loop.h"

#include "base/check.h"
#include "real/fabric/fabric_internal.h"
#include "real/fabric/provider.h"
#include "host/clock.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_ENTRIES 64
#define IMMEDIATE 1
#define POLL_GAP_NS 500

struct bare_loop {
    struct nic nic;
    struct fid_ep *endpoint;
    struct fid_av *addresses;
    struct fid_cq *queue;
    struct fid_mr *region;
    void *descriptor;
    unsigned char *memory;
    size_t bytes;
    bool by_message; /* the provider takes delivery-complete from fi_writemsg alone */
    fi_addr_t remote;
    struct bare_address target;
    struct fi_context2 contexts[BARE_WINDOW_MAX];
    struct fi_context2 *unused[BARE_WINDOW_MAX]; /* a stack: completions come in any order */
    uint32_t unused_count;
};

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static int endpoint_open(struct bare_loop *loop)
{
    struct fi_av_attr addresses = {.type = FI_AV_TABLE};
    struct fi_cq_attr completions = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE, .size = 1024};
    int rc = fi_endpoint(loop->nic.domain, loop->nic.info, &loop->endpoint, NULL);
    if (rc == 0)
        rc = fi_av_open(loop->nic.domain, &addresses, &loop->addresses, NULL);
    if (rc == 0)
        rc = fi_cq_open(loop->nic.domain, &completions, &loop->queue, NULL);
    if (rc == 0)
        rc = fi_ep_bind(loop->endpoint, &loop->addresses->fid, 0);
    if (rc == 0)
        rc = fi_ep_bind(loop->endpoint, &loop->queue->fid, FI_TRANSMIT | FI_RECV);
    if (rc == 0)
        rc = fi_enable(loop->endpoint);
    if (rc == 0)
        rc = fi_mr_reg(loop->nic.domain, loop->memory, loop->bytes, FI_WRITE | FI_REMOTE_WRITE, 0, 1, 0, &loop->region,
                       NULL);
    return rc;
}

struct bare_loop *bare_loop_make(const char *provider, const char *address, void *memory, size_t bytes,
                                 struct bare_address *own, struct user_error *error)
{
    const struct provider *found = provider_find(provider);
    struct bare_loop *loop = calloc(1, sizeof *loop);
    CHECK(found != NULL && loop != NULL); /* the engine has found it before */
    loop->memory = memory;
    loop->bytes = bytes;
    loop->by_message = found->delivery_by_message;
    if (!nic_open(&loop->nic, found, address, 0, error)) {
        free(loop);
        return NULL;
    }
    int rc = endpoint_open(loop);
    size_t length = sizeof own->address;
    memset(own, 0, sizeof *own);
    if (rc == 0)
        rc = fi_getname(&loop->endpoint->fid, own->address, &length);
    if (rc != 0) {
        user_error_set(error, NULL, 0, NULL, "fabric %s: the bare loop: %s", provider, fi_strerror(-rc));
        bare_loop_free(loop);
        return NULL;
    }
    loop->descriptor = fi_mr_desc(loop->region);
    for (uint32_t i = 0; i < BARE_WINDOW_MAX; i++)
        loop->unused[loop->unused_count++] = &loop->contexts[i];
    own->base = nic_mr(&loop->nic, FI_MR_VIRT_ADDR) ? (uint64_t)(uintptr_t)memory : 0;
    own->key = fi_mr_key(loop->region);
    return loop;
}

void bare_loop_free(struct bare_loop *loop)
{
    if (loop == NULL)
        return;
    if (loop->endpoint != NULL)
        fi_close(&loop->endpoint->fid);
    if (loop->region != NULL)
        fi_close(&loop->region->fid);
    if (loop->addresses != NULL)
        fi_close(&loop->addresses->fid);
    if (loop->queue != NULL)
        fi_close(&loop->queue->fid);
    nic_close(&loop->nic);
    free(loop);
}

bool bare_loop_aim(struct bare_loop *loop, const struct bare_address *target)
{
    loop->target = *target;
    return fi_av_insert(loop->addresses, target->address, 1, &loop->remote, 0, NULL) == 1;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* A poll that found nothing costs the other side: both look at the same words of memory. Half a microsecond between two
 * is faster than none, and than yielding or napping. */
static void wait_after(ssize_t count)
{
    if (count > 0)
        return;
    int64_t until_ns = clock_now_ns() + POLL_GAP_NS;
    while (clock_now_ns() < until_ns)
        continue;
}

uint32_t bare_loop_serve(struct bare_loop *loop)
{
    struct fi_cq_data_entry entries[READ_ENTRIES];
    ssize_t count = fi_cq_read(loop->queue, entries, READ_ENTRIES);
    uint32_t immediates = 0;
    for (ssize_t i = 0; i < count; i++)
        immediates += (entries[i].flags & FI_REMOTE_CQ_DATA) != 0;
    wait_after(count);
    return immediates;
}

static ssize_t post(struct bare_loop *loop, size_t offset, size_t bytes, struct fi_context2 *context)
{
    uint64_t address = loop->target.base + offset;
    if (!loop->by_message)
        return fi_writedata(loop->endpoint, loop->memory + offset, bytes, loop->descriptor, IMMEDIATE, loop->remote,
                            address, loop->target.key, context);
    struct iovec piece = {.iov_base = loop->memory + offset, .iov_len = bytes};
    struct fi_rma_iov remote = {.addr = address, .len = bytes, .key = loop->target.key};
    struct fi_msg_rma message = {
        .msg_iov = &piece,
        .desc = &loop->descriptor,
        .iov_count = 1,
        .addr = loop->remote,
        .rma_iov = &remote,
        .rma_iov_count = 1,
        .context = context,
        .data = IMMEDIATE,
    };
    return fi_writemsg(loop->endpoint, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

/* How many writes have completed; negative after an error. */
static ssize_t reap(struct bare_loop *loop)
{
    struct fi_cq_data_entry entries[READ_ENTRIES];
    ssize_t count = fi_cq_read(loop->queue, entries, READ_ENTRIES);
    for (ssize_t i = 0; i < count; i++)
        loop->unused[loop->unused_count++] = entries[i].op_context;
    wait_after(count);
    return count == -FI_EAGAIN ? 0 : count;
}

bool bare_loop_stream(struct bare_loop *loop, uint32_t window, size_t bytes, int64_t warm_ns, int64_t duration_ns,
                      struct bare_stream *stream)
{
    enum { CONNECTING, WARMING, COUNTING, DRAINING } phase = CONNECTING;
    uint32_t least = BARE_WINDOW_MAX - window; /* contexts left unused by a full window */
    size_t offset = 0;
    int64_t mark_ns = clock_now_ns();
    *stream = (struct bare_stream){.writes = 0};
    while (phase != DRAINING || loop->unused_count < BARE_WINDOW_MAX) {
        while (phase != DRAINING && loop->unused_count > least &&
               post(loop, offset, bytes, loop->unused[loop->unused_count - 1]) == 0) {
            loop->unused_count--;
            offset = offset + 2 * bytes <= loop->bytes ? offset + bytes : 0;
        }
        ssize_t count = reap(loop);
        if (count < 0)
            return false;
        int64_t now_ns = count > 0 || phase == CONNECTING ? clock_now_ns() : 0;
        if (phase == CONNECTING && count == 0 && now_ns - mark_ns > FABRIC_STALL_NS)
            return false;
        if (count == 0)
            continue;
        if (phase == COUNTING) {
            stream->writes += (uint64_t)count;
            stream->took_ns = now_ns - mark_ns;
            if (stream->took_ns >= duration_ns)
                phase = DRAINING;
        } else if (phase == CONNECTING || (phase == WARMING && now_ns - mark_ns >= warm_ns)) {
            phase = phase == CONNECTING ? WARMING : COUNTING;
            mark_ns = now_ns;
        }
    }
    return stream->writes > 0 && stream->took_ns > 0;
}

int64_t bare_loop_single_ns(struct bare_loop *loop, size_t bytes)
{
    int64_t start_ns = clock_now_ns();
    struct fi_context2 *context = loop->unused[--loop->unused_count];
    ssize_t rc;
    while ((rc = post(loop, 0, bytes, context)) == -FI_EAGAIN && clock_now_ns() - start_ns < FABRIC_STALL_NS)
        reap(loop);
    ssize_t count = 0;
    while (rc == 0 && (count = reap(loop)) == 0)
        continue;
    return rc == 0 && count == 1 ? clock_now_ns() - start_ns : 0;
}
