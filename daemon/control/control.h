/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control: the control socket: one request a line, one JSON answer a line (docs/FORMATS.md).
 *
 * Reading is for everyone who can open the socket; what changes something is for root and the daemon's own user. Only
 * the loop's thread calls; nothing blocks. Commands are orders to the parts below it.
 *
 * Owns: the control socket, what `status` finds, and complaints.
 * Called by: daemon.
 * Never includes: <zmq.h>, <pthread.h>, net/transfer/.
 */
#ifndef DAEMON_CONTROL_CONTROL_H
#define DAEMON_CONTROL_CONTROL_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/control/status.h"
#include "daemon/keyring.h"

/* The parts that exist once the run's plan is known; all borrowed. */
struct control_plan {
    const struct model_plan *plan;
    const struct sync *sync;
    struct rounds *rounds; /* save */
    const struct replica *replica;
    const struct parts *parts;
    uint64_t memory_bytes;
};

struct control_conf {
    const char *folder;              /* for control.sock; borrowed */
    struct trainer *trainer;         /* resume, pause */
    struct peers *peers;             /* leave */
    struct keyring *keyring;         /* rekey */
    struct join_server *join_server; /* invitations */
    struct membership *membership;   /* orders */
    struct status_conf status;       /* before the plan is known */
};

struct control;

/* Opens the socket. The trainer's socket in the same folder was opened before: no other daemon uses it. What `conf`
 * points to is borrowed until control_free(). ERR_CONF: the folder cannot be written; ERR_IO, ERR_NOMEM. */
ERR_MUST_CHECK enum err control_new(const struct control_conf *conf, struct control **out);
void control_free(struct control *control);
/* Until then: these rounds read what the disk has. NULL: nobody does. */
void control_recovers(struct control *control, const struct rounds *rounds);
void control_plan_known(struct control *control, const struct control_plan *plan);

size_t control_poll(const struct control *control, struct pollfd *items, size_t items_max);
void control_run(struct control *control, uint64_t now_ms);

/* Now and then, a few times a second: how rounds get on. */
void control_sample(struct control *control, uint64_t now_ms);

/* One line for systemd's status field, cut where `line` is too short. */
void control_line(const struct control *control, uint64_t now_ms, char *line, size_t line_bytes);

#endif
