/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/handover.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* With room for more descriptors than one, so that none that came is lost sight of. */
union control {
    struct cmsghdr header;
    char space[CMSG_SPACE(4 * sizeof(int))];
};

static enum err socket_error(const char *what)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return err_set(ERR_AGAIN, "%s a descriptor: not now", what);
    if (errno == EPIPE || errno == ECONNRESET)
        return err_set(ERR_CLOSED, "%s a descriptor: the other rank is gone", what);
    return err_set_errno(ERR_IO, "%s a descriptor between ranks", what);
}

enum err handover_send(int socket, uint64_t number, int fd)
{
    union control control = {.space = {0}};
    struct iovec part = {.iov_base = &number, .iov_len = sizeof number};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(sizeof fd);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? socket_error("sending") : ERR_OK;
}

/* The first one that came; others are closed. Returns how many. */
static size_t take(struct msghdr *message, int *fd)
{
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++, count++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
            if (*fd < 0)
                *fd = one;
            else
                close(one);
        }
    }
    return count;
}

enum err handover_receive(int socket, uint64_t number, int *fd)
{
    union control control;
    uint64_t got = 0;
    struct iovec part = {.iov_base = &got, .iov_len = sizeof got};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t bytes;
    *fd = -1;
    do
        bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0)
        return socket_error("taking");
    if (bytes == 0)
        return err_set(ERR_CLOSED, "taking a descriptor: the other rank is gone");
    size_t count = take(&message, fd);
    if ((message.msg_flags & MSG_CTRUNC) == 0 && bytes == sizeof got && got == number && count <= 1)
        return ERR_OK;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    if ((message.msg_flags & MSG_CTRUNC) != 0)
        return err_set(ERR_IO, "a descriptor from another rank could not be taken: too many files are open");
    return err_set(ERR_PROTO, "%zd bytes and %zu descriptors from another rank that are not what comes next", bytes,
                   count);
}
