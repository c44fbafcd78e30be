/* See provider.h. The observations are of libfabric 1.17; where a newer one differs the engine does not depend on
 * it. */
#define _POSIX_C_SOURCE 200809L

#include "real/fabric/provider.h"

#include <rdma/fi_errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct provider providers[] = {
    {
        .name = "efa",
        .libfabric = "efa",
        .takes_address = true,
        .delivery = "a receipt from the target's provider: 1.17 emulates writes with messages. No order between writes",
        .death = "an error a write after the retries of the device run out",
    },
    {
        .name = "verbs",
        .libfabric = "verbs;ofi_rxm",
        .takes_address = true,
        .delivery = "the acknowledgement of the reliable connection; an immediate follows its own bytes",
        .death = "an error a write after the retry count of the connection",
    },
    {
        .name = "tcp",
        .libfabric = "tcp;ofi_rxm",
        .takes_address = true,
        .delivery = "a response from the target, sent after the bytes are in place",
        .death = "errors for all outstanding writes in about 13 ms; EAGAIN for ever when it was never connected",
    },
    {
        .name = "net",
        .libfabric = "net",
        .takes_address = true,
        .delivery_by_message = true,
        .delivery = "a response from the target, asked for in fi_writemsg alone: endpoint defaults are ignored",
        .death = "errors in about 5 ms, then EAGAIN for ever",
    },
    {
        .name = "shm",
        .libfabric = "shm",
        .one_host = true,
        .delivery =
            "a response in the shared region, given after the target has copied; 4 KiB and less go one at a time",
        .death = "nothing at all: only deadlines and the control plane see it",
    },
    {.name = NULL},
};

const struct provider *provider_find(const char *name)
{
    for (const struct provider *p = providers; p->name != NULL; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

static struct fi_info *hints_make(const struct provider *provider, bool devices)
{
    struct fi_info *hints = fi_allocinfo();
    if (hints == NULL)
        return NULL;
    hints->caps = FI_MSG | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    if (devices) {
        hints->caps |= FI_HMEM;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
    hints->mode = FI_CONTEXT | FI_CONTEXT2; /* every operation brings room for the provider */
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->cq_data_size = sizeof(uint32_t);
    hints->domain_attr->threading = FI_THREAD_DOMAIN; /* one thread owns the engine */
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->fabric_attr->prov_name = strdup(provider->libfabric); /* freed with the hints */
    return hints;
}

void providers_present(char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "none");
    for (const struct provider *p = providers; p->name != NULL && used < size; p++) {
        struct fi_info *hints = hints_make(p, false);
        struct fi_info *list = NULL;
        if (hints != NULL && fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list) == 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", p->name);
            fi_freeinfo(list);
        }
        if (hints != NULL)
            fi_freeinfo(hints);
    }
}

/* The index-th different domain of the list, beginning again after the last. */
static struct fi_info *domain_of(struct fi_info *list, uint32_t index)
{
    uint32_t different = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t at = 0;
        for (struct fi_info *info = list; info != NULL; info = info->next) {
            bool seen = false;
            for (struct fi_info *before = list; before != info && !seen; before = before->next)
                seen = strcmp(before->domain_attr->name, info->domain_attr->name) == 0;
            if (seen)
                continue;
            if (pass == 1 && at == index % different)
                return info;
            at++;
        }
        different = at;
    }
    return list;
}

static bool open_nic(struct nic *nic, const struct provider *provider, const char *address, uint32_t index,
                     bool devices, struct user_error *error)
{
    *nic = (struct nic){.list = NULL};
    struct fi_info *hints = hints_make(provider, devices);
    if (hints == NULL) {
        user_error_set(error, NULL, 0, NULL, "fabric %s: %s", provider->name, fi_strerror(FI_ENOMEM));
        return false;
    }
    /* The address is that of this side: a provider left to choose binds to the default interface, loopback or not.
     * Devices that are named by domain (efa) are not found by an address of another interface; they are asked without
     * one. */
    bool addressed = provider->takes_address && address != NULL;
    int rc =
        fi_getinfo(FI_VERSION(1, 17), addressed ? address : NULL, NULL, addressed ? FI_SOURCE : 0, hints, &nic->list);
    if (rc != 0 && strcmp(provider->name, "efa") == 0)
        rc = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &nic->list);
    fi_freeinfo(hints);
    if (rc != 0) {
        char present[PROVIDERS_TEXT_BYTES];
        providers_present(present, sizeof present);
        user_error_set(
            error, NULL, 0, NULL,
            "fabric %s is not to be had at %s (reliable datagrams, remote writes with data and delivery-complete "
            "are asked for%s): %s; present here: %s",
            provider->name, addressed ? address : "this host", devices ? ", and memory of devices" : "",
            fi_strerror(-rc), present);
        return false;
    }
    nic->info = domain_of(nic->list, index);
    const char *what = "opening its fabric";
    rc = fi_fabric(nic->info->fabric_attr, &nic->fabric, NULL);
    if (rc == 0) {
        what = "opening its domain";
        rc = fi_domain(nic->fabric, nic->info, &nic->domain, NULL);
    }
    if (rc != 0) {
        user_error_set(error, NULL, 0, NULL, "fabric %s at %s: %s: %s", provider->name,
                       addressed ? address : "this host", what, fi_strerror(-rc));
        nic_close(nic);
        return false;
    }
    return true;
}

uint32_t nic_domains(const struct nic *nic)
{
    uint32_t count = 0;
    for (const struct fi_info *info = nic->list; info != NULL; info = info->next) {
        bool seen = false;
        for (const struct fi_info *before = nic->list; before != info && !seen; before = before->next)
            seen = strcmp(before->domain_attr->name, info->domain_attr->name) == 0;
        count += !seen;
    }
    return count;
}

struct place nic_place(const struct nic *nic)
{
    const struct fid_nic *device = nic->info->nic;
    if (device == NULL || device->bus_attr == NULL || device->bus_attr->bus_type != FI_BUS_PCI)
        return (struct place){.kind = PLACE_UNKNOWN};
    const struct fi_pci_attr *pci = &device->bus_attr->attr.pci;
    return (struct place){.kind = PLACE_PCI,
                          .domain = pci->domain_id,
                          .bus = pci->bus_id,
                          .device = pci->device_id,
                          .function = pci->function_id};
}

bool nic_open(struct nic *nic, const struct provider *provider, const char *address, uint32_t index,
              struct user_error *error)
{
    return open_nic(nic, provider, address, index, false, error);
}

bool nic_open_devices(struct nic *nic, const struct provider *provider, const char *address, uint32_t index,
                      struct user_error *error)
{
    return open_nic(nic, provider, address, index, true, error);
}

const struct provider *provider_named(const char *name, struct user_error *error)
{
    const struct provider *provider = provider_find(name);
    if (provider == NULL) {
        char present[PROVIDERS_TEXT_BYTES];
        providers_present(present, sizeof present);
        user_error_set(error, NULL, 0, NULL,
                       "fabric: no provider \"%s\"; known: efa, verbs, tcp, net, shm, auto; present here: %s", name,
                       present);
    }
    return provider;
}

void nic_close(struct nic *nic)
{
    if (nic->domain != NULL)
        fi_close(&nic->domain->fid);
    if (nic->fabric != NULL)
        fi_close(&nic->fabric->fid);
    if (nic->list != NULL)
        fi_freeinfo(nic->list);
    *nic = (struct nic){.list = NULL};
}
