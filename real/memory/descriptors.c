/* See descriptors.h. */
#define _GNU_SOURCE
#include "real/memory/descriptors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Room for one descriptor, aligned as the kernel wants it. */
union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
};

bool descriptor_send(int socket, uint32_t number, int descriptor)
{
    struct iovec part = {.iov_base = &number, .iov_len = sizeof number};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    memset(&control, 0, sizeof control);
    if (descriptor >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof number;
}

bool descriptor_receive(int socket, uint32_t *number, int *descriptor)
{
    struct iovec part = {.iov_base = number, .iov_len = sizeof *number};
    union control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got;
    *descriptor = -1;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    const struct cmsghdr *header = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof *descriptor))
        memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
    return got == (ssize_t)sizeof *number;
}
