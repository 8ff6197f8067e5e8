/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door: worker.sock: lets processes in, and reads a trainer's words when it attaches: its identity, its tensors, and
 * the memory it had from a daemon before this one. Private to trainer/.
 *
 * Root and the daemon's own user may come in; with [worker] group everybody in that group, too: the socket's mode sees
 * to that, so who could connect is let in. Only the loop's thread calls; nothing is sent from here.
 */
#ifndef DAEMON_TRAINER_DOOR_H
#define DAEMON_TRAINER_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ipc.h"
#include "daemon/dconf.h"

/* Listens at `*path` (the caller frees it with mem_free(), and unlinks it). ERR_CONF: another daemon listens there, or
 * the socket cannot be given to the group. */
ERR_MUST_CHECK enum err door_open(const struct dconf *conf, char **path, int *listen_fd);

/* Whether the one who connected may attach; `*pid` is its process. */
bool door_admits(const struct dconf *conf, int fd, uint32_t *pid);

/* A descriptor that can be read from when that process has ended, whoever else holds its socket: a process that it has
 * forked, as a loader of data is. -1: it cannot be watched, as one in a PID namespace that is not ours. */
int door_watch(uint32_t pid);

/* ---- what a trainer says of itself: input from another process, checked as it comes ---- */

/* In the caller's storage; memory for tensors is kept from one trainer to the next. */
struct introduction {
    struct ipc_hello hello; /* zero before it said so; its texts end, and its machine can be printed */
    int memory_fd;          /* of the memory it had, ours to close; -1: none */
    struct ipc_tensor *tensors;
    uint32_t tensors_count, tensors_room;
    char other_base[IPC_TEXT_BYTES]; /* how its frozen tensors differ from the run's, as was allowed; "": they do not */
};

void introduction_init(struct introduction *introduction);
void introduction_deinit(struct introduction *introduction);
/* Another trainer comes. */
void introduction_forget(struct introduction *introduction);
/* This one has gone; what it said may still be looked at. */
void introduction_close_memory(struct introduction *introduction);

/* IPC_HELLO, IPC_TENSOR and IPC_REGISTERED. ERR_PROTO: it speaks another version (one that never said hello speaks
 * none), or says something that makes no sense; ERR_NOMEM. `fd` stays the caller's. */
ERR_MUST_CHECK enum err introduction_hello(struct introduction *introduction, const struct ipc_hello *hello, int fd);
ERR_MUST_CHECK enum err introduction_tensor(struct introduction *introduction, const struct ipc_tensor *tensor);
ERR_MUST_CHECK enum err introduction_end(const struct introduction *introduction);

/* It attaches again, and brings the memory of before. */
bool introduction_again(const struct introduction *introduction);
/* Hands that memory's descriptor over. */
int introduction_take_memory(struct introduction *introduction);

#endif
