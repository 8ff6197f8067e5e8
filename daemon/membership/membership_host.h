/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership_host: the host of net/membership in this daemon: its votes, configurations and evidence on disk, its
 * messages on the link, its door (join_server.h, dial_server.h), and what it has to say to people and to the engine.
 *
 * It decides nothing. Whoever has something to tell membership or the join server, or to ask them, is given them. A
 * decided configuration is posted (EVENT_EPOCH) once it is durable; the engine takes it, changes over, and calls
 * membership_host_begin(). Only the loop's thread.
 *
 * Owns: the daemon's part of membership: votes, configurations and evidence on disk; invitations and guests.
 * Called by: daemon, daemon/control, daemon/peers.
 * Never includes: daemon/peers/, daemon/transfer/, daemon/rounds/, daemon/control/, <zmq.h>, <sys/socket.h>.
 */
#ifndef DAEMON_MEMBERSHIP_MEMBERSHIP_HOST_H
#define DAEMON_MEMBERSHIP_MEMBERSHIP_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/runspec.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/keyring.h"
#include "daemon/membership/dial_server.h"
#include "daemon/membership/join_server.h"
#include "daemon/membership/vote.h"
#include "daemon/trainer/trainer.h"
#include "net/membership/membership.h"
#include "net/transport/link.h"

/* All borrowed. */
struct membership_host_conf {
    const char *folder; /* of the state */
    const struct runspec *spec;
    const struct view *view; /* follows the newest configuration of the config log */
    const struct config_log *config_log;
    const struct keyring *keyring; /* follows the newest configuration of the config log, too */
    struct vote *vote;
    struct events *events;
    struct jobs *jobs;
    struct link *link;
    const struct trainer *trainer;
    uint64_t start_ms;
};

struct membership_host;
/* The config log has the newest configuration, the view follows it. Fails as join_server_new(), too. */
ERR_MUST_CHECK enum err membership_host_new(const struct membership_host_conf *conf, struct membership_host **out);
/* NULL is fine. */
void membership_host_free(struct membership_host *host);
/* Borrowed. */
struct membership *membership_host_membership(struct membership_host *host);
struct join_server *membership_host_join_server(struct membership_host *host);
struct dial_server *membership_host_dial_server(struct membership_host *host);
/* As membership_plan_known(). */
ERR_MUST_CHECK enum err membership_host_plan_known(struct membership_host *host, struct sync *sync, uint32_t fragments,
                                                   const uint32_t *shards_counts);

/* The config log has a new configuration, and view and core have changed over to it; also once at the start. */
ERR_MUST_CHECK enum err membership_host_begin(struct membership_host *host, uint64_t now_ms);
/* Packs the configurations before that epoch, which no restart needs, into few files; an island that was away for long
 * is sent them from there. A failure is logged, and the next call tries again. */
void membership_host_tidy(struct membership_host *host, uint64_t before);
/* EVENT_KEPT: a vote or a decided configuration has become durable. */
void membership_host_kept(struct membership_host *host, uint64_t now_ms);
/* Once a turn: guests that have said something. */
void membership_host_look(struct membership_host *host, uint64_t now_ms);
/* The door's tick; what could not be written is tried again; then membership_tick(). `shut_out`: most of the others
 * that vote do not know our key, so that nobody can come in here. */
void membership_host_tick(struct membership_host *host, const struct bitset *silent, bool shut_out, uint64_t now_ms);

/* Why a decided configuration, or our vote, cannot be made durable; "": it can. Borrowed until the next change. */
const char *membership_host_unkept(const struct membership_host *host);
/* As membership_waits(); names our disk, too, if the wait is for that. */
void membership_host_waits(const struct membership_host *host, char *text, size_t text_bytes);

#endif
