/* SPDX-License-Identifier: Apache-2.0 */
/* What link tells of its connections, and asks the kernel for them. */
#include "net/transport/link.h"
#include "common/env.h"
#include "net/transport/link_core.h"

unsigned link_port(const struct link *link)
{
    return link->port;
}

uint64_t link_handed_bytes(const struct link *link)
{
    return link->handed;
}

/* Where bulk goes; -1: nowhere. */
static int bulk_fd(const struct link *link, uint32_t peer)
{
    const struct link_peer *p = peer < link->places ? &link->peers[peer] : NULL;
    return p == NULL ? -1 : p->dialled[1].up ? p->dialled[1].fd : p->listened[1].fd;
}

bool link_undialled(const struct link *link, uint32_t peer, uint64_t for_ms)
{
    const struct dialled *d = peer < link->places ? &link->peers[peer].dialled[0] : NULL;
    return d != NULL && d->socket != NULL && !d->up && env_mono_ms() >= d->since_ms + for_ms;
}

struct traffic_socket link_bulk_socket(const struct link *link, uint32_t peer)
{
    struct traffic_socket socket;
    (void)traffic_socket(bulk_fd(link, peer), &socket);
    return socket;
}

/* Not for every byte more: by half of what there is. */
void link_make_room(struct link *link, uint32_t peer, uint64_t bytes)
{
    int fd = bulk_fd(link, peer);
    if (fd < 0 || bytes <= link->peers[peer].room + link->peers[peer].room / 2)
        return;
    link->peers[peer].room = bytes;
    (void)socket_make_room(fd, bytes, link->caps.grows_bytes);
}

const struct caps *link_caps(const struct link *link)
{
    return &link->caps;
}

void link_sample(struct link *link)
{
    traffic_sample(link->traffic);
}

struct link_counters link_counters(const struct link *link, uint32_t peer)
{
    if (peer >= link->places)
        return (struct link_counters){.rtt_us = 0};
    struct traffic_sum sum = traffic_of(link->traffic, peer);
    return (struct link_counters){
        .sent = sum.sent, .received = sum.received, .rtt_us = sum.rtt_us, .rtt_min_us = sum.rtt_min_us};
}
