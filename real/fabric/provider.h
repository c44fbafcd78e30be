/* Providers of libfabric, and what is known of each: a NIC is one fabric and one domain of a provider.
 *
 * What is asked of every provider: reliable datagram endpoints, remote writes that carry 4 bytes of data to the
 * target's completion queue, and FI_DELIVERY_COMPLETE, so that a completed write is a delivered one. A provider that
 * does not offer all of it is refused with a sentence: without delivery semantics a decoder could free pages under a
 * write.
 */
#ifndef TANDEM_REAL_FABRIC_PROVIDER_H
#define TANDEM_REAL_FABRIC_PROVIDER_H

#include "real/fabric/topology.h"
#include "host/user_error.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct provider {
    const char *name;         /* as users say it */
    const char *libfabric;    /* as libfabric says it */
    bool takes_address;       /* binds to config->address; shm names its endpoints itself */
    bool one_host;            /* reaches processes of this host alone */
    bool delivery_by_message; /* FI_DELIVERY_COMPLETE is honoured in fi_writemsg alone, not as an endpoint's default */
    const char *delivery;     /* what a completion with FI_DELIVERY_COMPLETE rests on */
    const char *death;        /* what the writer of a killed process sees */
};

/* In the order in which "the best that works" is looked for between hosts; ends with an entry without a name. */
extern const struct provider providers[];

/* NULL: no such provider. */
const struct provider *provider_find(const char *name);

/* The same, with a sentence that names those there are. */
const struct provider *provider_named(const char *name, struct user_error *error);

/* "tcp, net, shm": those that this machine has; "none". */
#define PROVIDERS_TEXT_BYTES 64
void providers_present(char *text, size_t size);

/* One NIC: opened per index. Endpoints of all peers at this NIC, and their keys, live in its domain. */
struct nic {
    struct fi_info *list; /* as fi_getinfo gave it */
    struct fi_info *info; /* the entry in use */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
};

/* Opens NIC `index`: the index-th different domain that the provider shows, beginning again after the last, so that
 * more NICs than there are share the hardware. False with a sentence. */
bool nic_open(struct nic *nic, const struct provider *provider, const char *address, uint32_t index,
              struct user_error *error);
/* The same, of a NIC that takes the memory of devices (FI_HMEM). */
bool nic_open_devices(struct nic *nic, const struct provider *provider, const char *address, uint32_t index,
                      struct user_error *error);
void nic_close(struct nic *nic);

/* Different domains that the provider showed when this one was opened: NICs, where there are any. */
uint32_t nic_domains(const struct nic *nic);

/* Where it sits; unknown of what is no PCI device. */
struct place nic_place(const struct nic *nic);

static inline bool nic_mr(const struct nic *nic, int mode)
{
    return (nic->info->domain_attr->mr_mode & mode) != 0;
}

#endif
