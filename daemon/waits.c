/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/waits.h"

#include <errno.h>
#include <poll.h>
#include <zmq.h>

#include "common/env.h"
#include "common/mem.h"

/* Besides the other islands' sockets. */
enum { FDS_MAX = 64 };

struct waits {
    struct waits_conf conf;
    zmq_pollitem_t *items;
    size_t room;
};

enum err waits_new(const struct waits_conf *conf, struct waits **out)
{
    TRY(mem_new(1, sizeof **out, "events", out));
    (*out)->conf = *conf;
    return ERR_OK;
}

void waits_free(struct waits *waits)
{
    if (waits == NULL)
        return;
    mem_free(waits->items);
    mem_free(waits);
}

static enum err make_room(struct waits *waits)
{
    size_t room = peers_poll(waits->conf.peers, NULL, 0) + FDS_MAX;
    if (room <= waits->room)
        return ERR_OK;
    TRY(mem_grow(&waits->items, waits->room, room, sizeof *waits->items, "events"));
    waits->room = room;
    return ERR_OK;
}

static size_t gather(const struct waits *waits, int signal_fd, bool peers)
{
    const struct waits_conf *conf = &waits->conf;
    struct pollfd fds[FDS_MAX];
    size_t count = peers ? peers_poll(conf->peers, waits->items, waits->room - FDS_MAX) : 0;
    size_t fds_count = 0;
    fds[fds_count++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    fds[fds_count++] = (struct pollfd){.fd = jobs_fd(conf->jobs), .events = POLLIN};
    fds_count += trainer_poll(conf->trainer, fds + fds_count, FDS_MAX - fds_count);
    fds_count += control_poll(conf->control, fds + fds_count, FDS_MAX - fds_count);
    for (size_t i = 0; i < fds_count; i++)
        waits->items[count++] =
            (zmq_pollitem_t){.fd = fds[i].fd, .events = fds[i].events & POLLOUT ? ZMQ_POLLOUT : ZMQ_POLLIN};
    return count;
}

enum err waits_wait(struct waits *waits, int signal_fd, uint64_t until_ms, bool peers)
{
    TRY(make_room(waits));
    size_t count = gather(waits, signal_fd, peers);
    uint64_t now_ms = env_mono_ms();
    uint64_t wait_us = peers ? peers_wait_us(waits->conf.peers) : 0;
    long wait_ms = until_ms > now_ms ? (long)(until_ms - now_ms) : 0;
    if (wait_us > 0 && wait_us / 1000 + 1 < (uint64_t)wait_ms)
        wait_ms = (long)(wait_us / 1000 + 1);
    if (zmq_poll(waits->items, (int)count, wait_ms) < 0 && zmq_errno() != EINTR)
        return err_set(ERR_IO, "waiting for events: %s", zmq_strerror(zmq_errno()));
    return ERR_OK;
}
