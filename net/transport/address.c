/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/address.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

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
