/* See bind_address.h. */
#define _DEFAULT_SOURCE /* getifaddrs */
#include "real/control/bind_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Addresses in the byte order of integers. */
struct network {
    uint32_t address;
    uint32_t mask;
};

static bool read_network(const char *text, struct network *network)
{
    char head[INET_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t length = slash == NULL ? strlen(text) : (size_t)(slash - text);
    unsigned long bits = 32;
    struct in_addr parsed;
    if (length >= sizeof head)
        return false;
    memcpy(head, text, length);
    head[length] = '\0';
    if (slash != NULL) {
        char *end;
        bits = strtoul(slash + 1, &end, 10);
        if (slash[1] < '0' || slash[1] > '9' || *end != '\0' || bits > 32)
            return false;
    }
    if (inet_pton(AF_INET, head, &parsed) != 1)
        return false;
    network->address = ntohl(parsed.s_addr);
    network->mask = bits == 0 ? 0 : UINT32_MAX << (32 - bits);
    return true;
}

bool bind_address(const char *text, char *address, struct user_error *error)
{
    struct network network;
    struct ifaddrs *interfaces = NULL;
    bool found = false;
    if (!read_network(text, &network)) {
        user_error_set(error, NULL, 0, NULL, "'%s' is neither an IPv4 address (10.0.0.7) nor a network (10.0.0.0/24)",
                       text);
        return false;
    }
    if (strchr(text, '/') == NULL) {
        snprintf(address, CONTROL_ADDRESS_BYTES, "%s", text);
        return true;
    }
    if (getifaddrs(&interfaces) != 0)
        interfaces = NULL;
    for (const struct ifaddrs *at = interfaces; at != NULL && !found; at = at->ifa_next) {
        struct sockaddr_in own;
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&own, at->ifa_addr, sizeof own);
        found = ((ntohl(own.sin_addr.s_addr) ^ network.address) & network.mask) == 0 &&
                inet_ntop(AF_INET, &own.sin_addr, address, CONTROL_ADDRESS_BYTES) != NULL;
    }
    if (interfaces != NULL)
        freeifaddrs(interfaces);
    if (!found)
        user_error_set(error, NULL, 0, NULL, "this host has no address in %s", text);
    return found;
}
