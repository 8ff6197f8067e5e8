/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door: worker.sock, and who may come in by it. Private to trainer/.
 *
 * Root and the daemon's own user may; with [worker] group everybody in that group, too: the socket's mode sees to that,
 * so who could connect is let in. Only the loop's thread calls.
 */
#ifndef DAEMON_TRAINER_DOOR_H
#define DAEMON_TRAINER_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/dconf.h"

/* Listens at `*path` (the caller frees it with mem_free(), and unlinks it). ERR_CONF: another daemon listens there, or
 * the socket cannot be given to the group. */
ERR_MUST_CHECK enum err door_open(const struct dconf *conf, char **path, int *listen_fd);

/* Whether the one who connected may attach; `*pid` is its process. */
bool door_admits(const struct dconf *conf, int fd, uint32_t *pid);

/* A descriptor that can be read from when that process has ended, whoever else holds its socket: a process that it has
 * forked, as a loader of data is. -1: it cannot be watched, as one in a PID namespace that is not ours. */
int door_watch(uint32_t pid);

#endif
