/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_link: the connection between a trainer and its daemon.
 *
 * Owns the socket, the messages still to be sent, and whether the daemon has welcomed us. Called by attach_move and the
 * public calls, on the trainer's thread. The first time it waits for the daemon; while training goes on nothing here
 * waits: what cannot be sent is kept in order, attaching again goes on a little with every turn, and a daemon that is
 * gone is no error. It never touches a tensor's values or a word.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_LINK_H
#define WORKER_LIBDILOCO_ATTACH_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

/* ERR_CONF: the path is too long for a socket. */
ERR_MUST_CHECK enum err attach_link_init(struct diloco *d, const char *socket_path);
/* Once, before anything is said. */
ERR_MUST_CHECK enum err attach_link_reserve(struct diloco *d, uint32_t fragments_count);
void attach_link_deinit(struct diloco *d);

/* False: nobody is there; errno says why. */
bool attach_connect(struct diloco *d);

/* Waits for input or for one slice of time. */
void attach_wait(const struct diloco *d);
/* The first time: HELLO, every tensor, REGISTERED, then the daemon's WELCOME. Waits. `*fd` as from ipc_recv(). */
ERR_MUST_CHECK int attach_announce(struct diloco *d, struct ipc_message *message, int *fd);
/* Waits for a message of one of two types; REFUSED ends the wait, others are passed over. */
ERR_MUST_CHECK int attach_await(struct diloco *d, enum ipc_type type, enum ipc_type other, struct ipc_message *message,
                                int *fd);
/* Sends, waiting for room. False: the daemon is gone meanwhile; the next one has the words to look at. */
bool attach_send(struct diloco *d, enum ipc_type type);
/* Likewise IPC_FINISHED, with how far we are. */
bool attach_finished(struct diloco *d);

/* Tells the daemon to look at a fragment, now or as soon as there is room; never waits. */
void attach_say(struct diloco *d, enum ipc_type type, uint32_t fragment);
/* Tells it, once to each daemon, that nothing more will be contributed to a fragment. */
void attach_settle(struct diloco *d, uint32_t fragment);
/* Sends a report if there is room for it just now. */
void attach_report(struct diloco *d, const struct ipc_report *report);
/* Takes in messages, sends waiting ones, goes on with attaching again; never waits. Only a refusal is an error. */
ERR_MUST_CHECK int attach_turn(struct diloco *d);
/* False while a connection is being made anew: the daemon reads the words then, so they must not change. */
bool attach_words_free(const struct diloco *d);

#endif
