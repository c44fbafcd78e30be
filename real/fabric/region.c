/* Registering the memory of ranks, and finding out whether NICs reach that of devices: a registration that succeeds
 * proves nothing (providers have been seen to take device memory and write elsewhere), so a write is tried.
 */
#include "real/fabric/fabric_internal.h"

#include "base/arith.h"
#include "host/clock.h"

#include <rdma/fi_errno.h>

#include <stdio.h>
#include <string.h>

#define PROBE_BYTES 64u
#define PROBE_NS (2 * NS_PER_S) /* providers without an answer for device memory may be silent */

int region_register(struct fabric *fabric, uint32_t nic, void *memory, uint64_t bytes, const struct device_reach *reach,
                    uint64_t access, struct fid_mr **registration)
{
    struct fid_domain *domain = fabric->nics[nic].domain;
    uint64_t key = fabric->next_key++;
    if (reach == NULL || reach->kind == DEVICE_REACH_HOST)
        return fi_mr_reg(domain, memory, bytes, access, 0, key, 0, registration, NULL);
    struct iovec region = {.iov_base = memory, .iov_len = bytes};
    struct fi_mr_attr attributes = {.mr_iov = &region,
                                    .iov_count = 1,
                                    .access = access,
                                    .requested_key = key,
                                    .iface = FI_HMEM_CUDA,
                                    .device = {.cuda = reach->ordinal}};
    return fi_mr_regattr(domain, &attributes, 0, registration);
}

bool region_wants_local(const struct fabric *fabric, uint32_t nic)
{
    bool device = fabric->ranks[0].reach != NULL && fabric->stages == NULL;
    return nic_mr(&fabric->nics[nic], FI_MR_LOCAL) || (device && nic_mr(&fabric->nics[nic], FI_MR_HMEM));
}

struct probe {
    bool completed;
    bool good;
    bool arrived;
};

static void completed(void *owner, uint32_t ticket, bool good)
{
    struct probe *probe = owner;
    (void)ticket;
    probe->completed = true;
    probe->good = good;
}

static void immediate(void *owner, uint32_t value)
{
    (void)value;
    ((struct probe *)owner)->arrived = true;
}

/* Polls both ends until the write has ended and told the other end. */
static bool wait_for(struct probe *probe, struct rail *from, struct rail *to)
{
    struct rail_listener listener = {probe, completed, immediate};
    int64_t until_ns = clock_now_ns() + PROBE_NS;
    bool progress;
    while (!(probe->completed && probe->arrived)) {
        int64_t now_ns = clock_now_ns();
        if (!rail_poll(from, &listener, now_ns, &progress) || !rail_poll(to, &listener, now_ns, &progress) ||
            (probe->completed && !probe->good) || now_ns > until_ns)
            return false;
    }
    return probe->good;
}

/* One write over two rails of the NIC, which talk to each other. */
static bool write_over(struct fabric *fabric, uint32_t nic, const struct rail_write *write, struct user_error *why)
{
    struct rail from = {.endpoint = NULL};
    struct rail to = {.endpoint = NULL};
    unsigned char address[2][CARD_ADDRESS_MAX];
    struct probe probe = {.completed = false};
    struct rail_listener listener = {&probe, completed, immediate};
    bool good = rail_open(&from, &fabric->nics[nic], 1, why) && rail_open(&to, &fabric->nics[nic], 1, why);
    if (good) {
        good = rail_address(&from, address[0], sizeof address[0]) > 0 &&
               rail_address(&to, address[1], sizeof address[1]) > 0 && rail_connect(&from, address[1]) &&
               rail_connect(&to, address[0]);
        int64_t until_ns = clock_now_ns() + PROBE_NS;
        enum rail_result posted = RAIL_AGAIN;
        while (good && posted == RAIL_AGAIN && clock_now_ns() < until_ns) {
            bool progress;
            posted = rail_post(&from, write, clock_now_ns());
            rail_poll(&from, &listener, 0, &progress);
            rail_poll(&to, &listener, 0, &progress);
        }
        good = good && posted == RAIL_POSTED && wait_for(&probe, &from, &to);
        if (!good)
            user_error_set(why, NULL, 0, NULL, "a write that was tried did not end well");
    }
    rail_close(&from, &listener);
    rail_close(&to, &listener);
    return good;
}

static bool registered(struct fabric *fabric, uint32_t nic, uint32_t rank, uint64_t access, struct fid_mr **mr,
                       struct user_error *why)
{
    const struct fabric_rank *region = &fabric->ranks[rank];
    int rc = region_register(fabric, nic, region->memory, region->bytes, region->reach, access, mr);
    if (rc != 0)
        user_error_set(why, NULL, 0, NULL, "registering it fails: %s", fi_strerror(-rc));
    return rc == 0;
}

static bool try_write(struct fabric *fabric, uint32_t nic, uint32_t rank, uint64_t target, struct user_error *why)
{
    const struct fabric_rank *region = &fabric->ranks[rank];
    struct device_reach *reach = region->reach;
    struct fid_mr *local = NULL;
    struct fid_mr *remote = NULL;
    unsigned char sent[PROBE_BYTES];
    unsigned char came[PROBE_BYTES] = {0};
    static const unsigned char zero[PROBE_BYTES];
    for (uint32_t i = 0; i < PROBE_BYTES; i++)
        sent[i] = (unsigned char)(0xa5 ^ i * 7);
    bool good = reach->ops->write(reach, 0, sent, sizeof sent) && reach->ops->write(reach, target, zero, sizeof zero);
    if (!good)
        user_error_set(why, NULL, 0, NULL, "this process cannot write to it");
    good = good && registered(fabric, nic, rank, FI_REMOTE_WRITE, &remote, why) &&
           (!region_wants_local(fabric, nic) || registered(fabric, nic, rank, FI_WRITE, &local, why));
    if (good) {
        bool virtual = nic_mr(&fabric->nics[nic], FI_MR_VIRT_ADDR);
        struct rail_write write = {.source = region->memory,
                                   .descriptor = local == NULL ? NULL : fi_mr_desc(local),
                                   .bytes = PROBE_BYTES,
                                   .address = (virtual ? (uint64_t)(uintptr_t)region->memory : 0) + target,
                                   .key = fi_mr_key(remote)};
        good = write_over(fabric, nic, &write, why);
    }
    if (good && (!reach->ops->read(reach, target, came, sizeof came) || memcmp(came, sent, sizeof came) != 0)) {
        good = false;
        user_error_set(why, NULL, 0, NULL, "a write that was tried is said to be done and did not arrive");
    }
    if (local != NULL)
        fi_close(&local->fid);
    if (remote != NULL)
        fi_close(&remote->fid);
    return reach->ops->write(reach, 0, zero, sizeof zero) && reach->ops->write(reach, target, zero, sizeof zero) &&
           good;
}

bool region_probe(struct fabric *fabric, uint32_t nic, uint32_t rank, struct user_error *why)
{
    uint64_t bytes = fabric->ranks[rank].bytes;
    if (bytes >= 4 * PROBE_BYTES)
        return try_write(fabric, nic, rank, bytes / 2 / PROBE_BYTES * PROBE_BYTES, why);
    user_error_set(why, NULL, 0, NULL, "it is too small to try a write");
    return false;
}
