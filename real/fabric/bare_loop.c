/* See bare_loop.h. */
#define _POSIX_C_SOURCE 200809L

#include "real/fabric/bare_loop.h"

#include "real/fabric/fabric_internal.h"
#include "real/fabric/provider.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_MAX 1024
#define READ_ENTRIES 64

struct bare_loop {
    struct nic nic;
    struct fid_ep *endpoint;
    struct fid_av *addresses;
    struct fid_cq *queue;
    struct fid_mr *region;
    unsigned char *memory;
    size_t bytes;
    struct fi_context2 contexts[WINDOW_MAX];
    struct fi_context2 *unused[WINDOW_MAX]; /* a stack: completions come in any order */
    uint32_t unused_count;
};

static int endpoint_open(struct bare_loop *loop)
{
    struct fi_av_attr addresses = {.type = FI_AV_TABLE};
    struct fi_cq_attr completions = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE, .size = 2 * WINDOW_MAX};
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
                                 struct bare_address *own, char *error, size_t error_size)
{
    const struct provider *found = provider_find(provider);
    struct bare_loop *loop = calloc(1, sizeof *loop);
    if (found == NULL || loop == NULL) {
        snprintf(error, error_size, "no provider \"%s\"", provider);
        free(loop);
        return NULL;
    }
    loop->memory = memory;
    loop->bytes = bytes;
    if (!nic_open(&loop->nic, found, address, 0, error, error_size)) {
        free(loop);
        return NULL;
    }
    int rc = endpoint_open(loop);
    size_t length = sizeof own->address;
    memset(own, 0, sizeof *own);
    if (rc == 0)
        rc = fi_getname(&loop->endpoint->fid, own->address, &length);
    if (rc != 0) {
        snprintf(error, error_size, "fabric %s: the bare loop: %s", provider, fi_strerror(-rc));
        bare_loop_free(loop);
        return NULL;
    }
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

void bare_loop_serve(struct bare_loop *loop, const _Atomic uint32_t *stop)
{
    struct fi_cq_data_entry entries[READ_ENTRIES];
    while (atomic_load_explicit(stop, memory_order_relaxed) == 0)
        if (fi_cq_read(loop->queue, entries, READ_ENTRIES) == -FI_EAGAIN)
            sched_yield();
}

static ssize_t post(struct bare_loop *loop, fi_addr_t to, const struct bare_address *target, size_t bytes,
                    uint64_t number)
{
    size_t offset = (size_t)(number % (loop->bytes / bytes)) * bytes;
    void *descriptor = fi_mr_desc(loop->region);
    struct iovec piece = {.iov_base = loop->memory + offset, .iov_len = bytes};
    struct fi_rma_iov remote = {.addr = target->base + offset, .len = bytes, .key = target->key};
    struct fi_msg_rma message = {
        .msg_iov = &piece,
        .desc = &descriptor,
        .iov_count = 1,
        .addr = to,
        .rma_iov = &remote,
        .rma_iov_count = 1,
        .context = loop->unused[loop->unused_count - 1],
        .data = 1,
    };
    return fi_writemsg(loop->endpoint, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

uint64_t bare_loop_write(struct bare_loop *loop, const struct bare_address *target, uint32_t window, size_t bytes,
                         int64_t duration_ns, int64_t *took_ns)
{
    struct fi_cq_data_entry entries[READ_ENTRIES];
    uint64_t posted = 0;
    uint64_t completed = 0;
    uint64_t warm = 0; /* completed before the clock started: connecting is not measured */
    int64_t start_ns = 0;
    fi_addr_t to;
    if (window > WINDOW_MAX || fi_av_insert(loop->addresses, target->address, 1, &to, 0, NULL) != 1)
        return 0;
    for (loop->unused_count = 0; loop->unused_count < window; loop->unused_count++)
        loop->unused[loop->unused_count] = &loop->contexts[loop->unused_count];
    int64_t now_ns = fabric_clock_ns();
    int64_t give_up_ns = now_ns + FABRIC_STALL_NS;
    bool posting = true;
    while (posting || completed < posted) {
        now_ns = fabric_clock_ns();
        if (start_ns == 0 && completed >= window) {
            start_ns = now_ns;
            warm = completed;
        }
        posting = start_ns == 0 ? now_ns < give_up_ns : now_ns < start_ns + duration_ns;
        while (posting && loop->unused_count > 0 && post(loop, to, target, bytes, posted) == 0) {
            loop->unused_count--;
            posted++;
        }
        ssize_t count = fi_cq_read(loop->queue, entries, READ_ENTRIES);
        for (ssize_t i = 0; i < count; i++)
            loop->unused[loop->unused_count++] = entries[i].op_context;
        if (count > 0)
            completed += (uint64_t)count;
        else if (count != -FI_EAGAIN)
            return 0;
        else
            sched_yield();
    }
    *took_ns = fabric_clock_ns() - start_ns;
    return completed - warm;
}
