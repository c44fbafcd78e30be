/* See sockets.h. The descriptors of another process are had by pidfd_getfd(), without its help. */
#define _GNU_SOURCE
#include "support/sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOCKETS_MAX 256u

struct socket_of {
    int fd;          /* here */
    uint16_t local;  /* port */
    uint16_t remote; /* 0: it listens */
};

static uint16_t port_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port) : 0;
}

/* The TCP sockets of a process. */
static uint32_t take_sockets(pid_t process, struct socket_of *sockets)
{
    char path[64];
    uint32_t count = 0;
    int process_fd = (int)syscall(SYS_pidfd_open, process, 0);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    DIR *folder = process_fd < 0 ? NULL : opendir(path);
    for (struct dirent *entry; folder != NULL && count < SOCKETS_MAX && (entry = readdir(folder)) != NULL;) {
        struct sockaddr_storage local = {.ss_family = AF_UNSPEC};
        struct sockaddr_storage remote = {.ss_family = AF_UNSPEC};
        socklen_t local_bytes = sizeof local;
        socklen_t remote_bytes = sizeof remote;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        int fd = (int)syscall(SYS_pidfd_getfd, process_fd, (int)strtol(entry->d_name, NULL, 10), 0);
        if (fd < 0)
            continue;
        int listens = 0;
        socklen_t size = sizeof listens;
        bool socket = getsockname(fd, (struct sockaddr *)&local, &local_bytes) == 0 && local.ss_family == AF_INET &&
                      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0;
        bool connected = socket && getpeername(fd, (struct sockaddr *)&remote, &remote_bytes) == 0;
        if (socket && (connected || listens != 0))
            sockets[count++] = (struct socket_of){fd, port_of(&local), connected ? port_of(&remote) : 0};
        else
            close(fd);
    }
    if (folder != NULL)
        closedir(folder);
    if (process_fd >= 0)
        close(process_fd);
    return count;
}

static void give_back(const struct socket_of *sockets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(sockets[i].fd);
}

uint32_t sockets_break_one(pid_t from, pid_t to)
{
    struct socket_of own[SOCKETS_MAX];
    struct socket_of theirs[SOCKETS_MAX];
    uint32_t own_count = take_sockets(from, own);
    uint32_t their_count = take_sockets(to, theirs);
    uint32_t broken = 0;
    uint16_t lowest = 0;
    for (uint32_t i = 0; i < own_count; i++)
        for (uint32_t k = 0; k < their_count; k++)
            if (theirs[k].remote == 0 && own[i].remote == theirs[k].local && own[i].remote != 0 &&
                (lowest == 0 || own[i].remote < lowest))
                lowest = own[i].remote;
    for (uint32_t i = 0; lowest != 0 && i < own_count; i++)
        broken += own[i].remote == lowest && shutdown(own[i].fd, SHUT_RDWR) == 0;
    give_back(own, own_count);
    give_back(theirs, their_count);
    return broken;
}
