/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "net/transport/socket.h"

enum { HOST_BYTES = ADDRESS_HOST_MAX + 1 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Of no other length than 1 to `ADDRESS_LABEL_MAX`; `*number`: it has digits alone. */
static bool label_good(const char *label, size_t length, bool *number)
{
    *number = true;
    if (length < 1 || length > ADDRESS_LABEL_MAX || !is_alnum(label[0]))
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!is_alnum(label[i]) && label[i] != '-' && label[i] != '_')
            return false;
        *number = *number && is_digit(label[i]);
    }
    return true;
}

/* `*number`: its last label is one, as in an IPv4 address. */
static bool labels_good(const char *host, bool *number)
{
    for (const char *label = host;;) {
        size_t length = strcspn(label, ".");
        if (!label_good(label, length, number))
            return false;
        if (label[length] == '\0')
            return true;
        label += length + 1;
    }
}

/* A last label that is a number would be read as an IPv4 address of another form by some resolvers (RFC 1123, 2.1). */
static bool host_good(const char *host)
{
    uint8_t bytes[sizeof(struct in6_addr)];
    char inner[HOST_BYTES];
    bool number;
    size_t length = strlen(host);
    if (host[0] == '[') {
        if (host[length - 1] != ']' || length - 2 >= sizeof inner)
            return false;
        snprintf(inner, sizeof inner, "%.*s", (int)length - 2, host + 1);
        return inet_pton(AF_INET6, inner, bytes) == 1;
    }
    return labels_good(host, &number) && (!number || inet_pton(AF_INET, host, bytes) == 1);
}

static bool port_good(const char *port, uint32_t least)
{
    uint32_t value = 0;
    if (port[0] == '\0' || (port[0] == '0' && port[1] != '\0'))
        return false;
    for (; *port != '\0'; port++) {
        if (!is_digit(*port) || value > UINT16_MAX)
            return false;
        value = 10 * value + (uint32_t)(*port - '0');
    }
    return value >= least && value <= UINT16_MAX;
}

/* What stands before the last colon into `host`, and where the port begins; NULL: it is no address. */
static const char *take_host(const char *text, char host[HOST_BYTES])
{
    const char *colon = strrchr(text, ':');
    if (strlen(text) >= ADDRESS_BYTES || colon == NULL || colon == text || colon - text >= HOST_BYTES)
        return NULL;
    snprintf(host, HOST_BYTES, "%.*s", (int)(colon - text), text);
    return colon + 1;
}

bool address_good(const char *text)
{
    char host[HOST_BYTES];
    const char *port = take_host(text, host);
    return port != NULL && host_good(host) && port_good(port, 1);
}

/* An interface may have a name that no host has, as eth0.7. */
bool address_listen_good(const char *text, uint32_t port_min)
{
    char host[HOST_BYTES];
    bool number;
    const char *port = take_host(text, host);
    if (port == NULL || !port_good(port, port_min))
        return false;
    return strcmp(host, "*") == 0 || host_good(host) || labels_good(host, &number);
}

/* ---- this machine ---- */

/* IPv6 in brackets, as ZeroMQ takes it. False: none that another machine could dial. */
static bool text_of(const struct sockaddr *address, unsigned port, char *out)
{
    char host[NI_MAXHOST];
    bool six = address->sa_family == AF_INET6;
    socklen_t bytes = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (six && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr))
        return false;
    if (getnameinfo(address, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    int length = snprintf(out, ADDRESS_BYTES, six ? "[%s]:%u" : "%s:%u", host, port);
    return length > 0 && length < ADDRESS_BYTES;
}

uint32_t here_addresses(unsigned port, char (*addresses)[ADDRESS_BYTES], uint32_t max)
{
    static const struct {
        int family;
        bool loopback;
    } turns[] = {{AF_INET, false}, {AF_INET6, false}, {AF_INET, true}};
    struct ifaddrs *list = NULL;
    uint32_t count = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (size_t turn = 0; turn < sizeof turns / sizeof turns[0]; turn++)
        for (const struct ifaddrs *item = list; item != NULL && count < max; item = item->ifa_next)
            if (item->ifa_addr != NULL && item->ifa_addr->sa_family == turns[turn].family &&
                (item->ifa_flags & IFF_UP) != 0 && ((item->ifa_flags & IFF_LOOPBACK) != 0) == turns[turn].loopback)
                count += text_of(item->ifa_addr, port, addresses[count]);
    freeifaddrs(list);
    return count;
}

/* Connecting a datagram socket chooses a route and sends nothing. */
static bool route_to(const struct addrinfo *to, unsigned port, char *out)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool found = connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                 getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 &&
                 text_of((const struct sockaddr *)&own, port, out);
    close(fd);
    return found;
}

void here_towards(const char *there, unsigned port, char address[ADDRESS_BYTES])
{
    char host[ADDRESS_BYTES];
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
    const char *colon = strrchr(there, ':'), *begin = there;
    address[0] = '\0';
    if (colon == NULL)
        return;
    size_t length = (size_t)(colon - there);
    if (length >= 2 && there[0] == '[' && colon[-1] == ']') {
        begin++;
        length -= 2;
    }
    snprintf(host, sizeof host, "%.*s", (int)length, begin);
    if (getaddrinfo(host, colon + 1, &hints, &list) != 0)
        return;
    for (const struct addrinfo *item = list; item != NULL && address[0] == '\0'; item = item->ai_next)
        if (!route_to(item, port, address))
            address[0] = '\0';
    freeaddrinfo(list);
}

/* In its own words, where ZeroMQ's say too little to somebody who has typed an address. */
static const char *reason_of(int error)
{
    switch (error) {
    case EADDRINUSE: return "the port is in use";
    case EADDRNOTAVAIL:
    case ENODEV: return "this machine has no such address";
    default: return zmq_strerror(error);
    }
}

enum err here_listen(void *socket, const char *listen)
{
    char endpoint[ADDRESS_BYTES + 8];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", listen);
    if (zmq_bind(socket, endpoint) != 0)
        return err_set(ERR_CONF, "cannot listen on %s: %s", listen, reason_of(zmq_errno()));
    return ERR_OK;
}

/* The daemon's own kind of socket: it alone knows what it makes of "*" and of an interface's name. */
static enum err try_in(void *context, const char *listen)
{
    void *router = NULL;
    enum err err = socket_open(context, ZMQ_ROUTER, ADDRESS_BYTES, &router);
    if (err == ERR_OK)
        err = here_listen(router, listen);
    if (router != NULL)
        zmq_close(router);
    return err;
}

enum err here_try(const char *listen)
{
    void *context = zmq_ctx_new();
    if (context == NULL)
        return socket_failed("cannot start ZeroMQ");
    enum err err = try_in(context, listen);
    zmq_ctx_term(context); /* which waits until the port is free again */
    return err;
}
